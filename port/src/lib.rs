//! Where packets enter and leave the software NIC.
//!
//! A [`Port`] is polled: it is given the time and a buffer, and never blocks. [`Loopback`] returns what it is sent,
//! [`CapturePort`] replays and records capture files, [`Tap`] is a network interface of the kernel.

mod capture;
mod counters;
mod error;
mod loopback;
pub mod offload;
mod port;
mod tap;

pub use capture::{
    CAPTURED_MAX, CaptureError, CaptureFormat, CapturePort, CaptureReader, CaptureWriter, Loops, Pace, Problem, Record,
    Replay, ShortFrames, Speed, Timestamp,
};
pub use counters::Counters;
pub use error::PortError;
pub use loopback::Loopback;
pub use port::{MAX_FRAME, MIN_FRAME, Port, Receive, Transmit};
pub use tap::{Ipv4Address, Tap, TapError, TapOptions, TapProblem};
