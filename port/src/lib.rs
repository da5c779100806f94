//! Where packets enter and leave the software NIC.
//!
//! A [`Port`] is polled: it is given the time and a buffer, and never blocks. [`Loopback`] returns what it is sent,
//! [`CapturePort`] replays and records capture files, [`Tap`] is a network interface of the kernel, [`PacketSocket`]
//! and [`XdpSocket`] tap one that exists, [`Memif`] is another process, [`VhostUser`] a virtual machine or another process, [`VirtioUser`] another program's backend for such, [`Impaired`] spoils what passes through another port. [`PortSpec`] is a port as text; [`offload`] is what a NIC does to frames for a host.

mod capture;
mod counters;
mod dpdk;
mod error;
mod forwarding;
mod impair;
mod legacy;
mod lookout;
mod loopback;
mod memif;
mod netdevice;
pub mod offload;
mod packet;
mod peer;
mod port;
mod spec;
mod tap;
mod vhost;
mod vnet;
mod xdp;

pub use capture::{
    CAPTURED_MAX, CaptureError, CaptureFormat, CapturePort, CaptureReader, CaptureWriter, Loops, Pace, Problem, Record,
    Replay, ShortFrames, Speed, Timestamp, create_beside,
};
pub use counters::Counters;
pub use dpdk::{DpdkError, DpdkOptions, DpdkProblem};
pub use error::PortError;
pub use forwarding::{Egress, Forwarding, PORTS as FORWARDING_PORTS};
pub use impair::{Direction, Impaired, Impairment, Probability, Rate};
pub use legacy::Legacy;
pub use loopback::Loopback;
pub use memif::{Memif, MemifOptions};
pub use netdevice::{set_checksum_offload, set_receive_offload};
pub use packet::{PacketError, PacketOptions, PacketProblem, PacketSocket};
pub use peer::{Role, SocketError, SocketProblem};
pub use port::{LEVELS, MAX_FRAME, MIN_FRAME, Port, Receive, Transmit};
pub use spec::{ARGUMENTS, Kind, Made, PortSpec, SYNTAX, SpecError, folder_of};
pub use tap::{Ipv4Address, Tap, TapError, TapOptions, TapProblem};
pub use vhost::{VhostOptions, VhostUser, VirtioUser};
pub use xdp::{CopyMode, ForwardMode, XdpError, XdpOptions, XdpProblem, XdpSocket};
