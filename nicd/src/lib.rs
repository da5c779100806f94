//! The software NIC.
//!
//! [`SoftwareNic`] joins the queues of an interface to a [`conic_port::Port`]; whoever drives it says what time it is.
//! [`process`] puts a NIC into a process of its own.

mod counters;
mod features;
mod flow;
mod nic;
pub mod process;

pub use counters::Counters;
pub use features::parse_features;
pub use flow::flow_hash;
pub use nic::{Options, SoftwareNic, Step};
