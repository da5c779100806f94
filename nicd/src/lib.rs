//! The software NIC.
//!
//! [`SoftwareNic`] joins the queues of an interface to a [`conic_port::Port`]; whoever drives it says what time it is.

mod counters;
mod flow;
mod nic;

pub use counters::Counters;
pub use flow::flow_hash;
pub use nic::{Options, SoftwareNic, Step};
