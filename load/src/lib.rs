//! Traffic over an interface, and what it measures. It runs in every world: its clock is the core's.

mod account;
mod closed_loop;
mod copy_loop;
mod forward;
pub mod functions;
pub mod invocation;
mod latency;
pub mod limits;
pub mod message_loop;
mod one_core;
mod pace;
mod traffic;

pub use account::Account;
pub use closed_loop::{ClosedLoop, Workload, frame_header};
pub use copy_loop::{CopyLoop, Objects};
pub use forward::{FarEnd, Forwarder, Generator, Network, Touch};
pub use functions::Function;
pub use latency::{KeptLatency, Latency};
pub use one_core::OneCore;
pub use pace::Pace;
pub use traffic::Traffic;
