//! A TCP service on a packet interface (CC-NIC section 5.7), in the manner of TAS (TAS, EuroSys 2019): fast-path threads that have
//! the network to themselves, an application that meets them in shared memory alone, and clients that check every byte.
//!
//! It is written against [`conic_fabric::Core`] and [`conic_interface::burst`], and so runs natively and simulated, over every
//! interface.

mod application;
mod clients;
mod context;
mod fast_path;
mod flow;
pub mod segment;
mod service;

pub use application::Application;
pub use clients::{Clients, Load};
pub use context::{Context, Notice};
pub use fast_path::{Acknowledge, Counted, FastPath};
pub use flow::{Flow, Taken, Timeouts};
pub use service::{Connection, Service, Shape, ShapeError};

/// Bytes of a request, and of its answer: section 5.7's.
pub const REQUEST_BYTES: u32 = 64;
