//! Host-NIC interfaces, one module each.

pub mod cachable_queue;
pub mod fastforward;
pub mod ring;
