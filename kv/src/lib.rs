//! A key-value store that is asked over a packet interface (CC-NIC section 5.7): an index and values in shared memory, servers that
//! answer gets without copying the value, and clients that check every answer.
//!
//! It is written against [`conic_fabric::Core`] and [`conic_interface::burst`], and so runs natively and simulated, over every
//! interface.

mod catalogue;
mod clients;
pub mod message;
mod server;
mod store;
mod zipf;

pub use catalogue::{Catalogue, Demand, Sizes};
pub use clients::{Answers, Clients};
pub use server::{Served, Server};
pub use store::{Filling, Hashed, Refused, Slot, Store, Value};
pub use zipf::Zipf;
