//! Traffic over an interface, and what it measures. It runs in every world: its clock is the core's.

mod account;
mod closed_loop;
pub mod functions;
pub mod invocation;
mod latency;
pub mod limits;
pub mod message_loop;

pub use account::Account;
pub use closed_loop::{ClosedLoop, Workload};
pub use functions::Function;
pub use latency::Latency;
