//! The software NIC.
//!
//! [`SoftwareNic`] joins the queues of an interface to a [`conic_port::Port`]; [`switch::Switch`] joins those of many clients,
//! which it does not trust, to each other and to ports. Whoever drives them says what time it is.

pub mod config;
mod counters;
mod flow;
mod nic;
pub mod quota;
pub mod switch;

pub use counters::Counters;
pub use flow::flow_hash;
pub use nic::{Options, SoftwareNic, Step};
