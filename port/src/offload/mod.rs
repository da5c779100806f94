//! What a NIC may do for a host, as pure functions over frames: checksums, receive-side scaling, VLAN tags, segmentation
//! and coalescing of TCP, and the metadata that says what has been done and what is left to do.
//!
//! Nothing here allocates for a frame, reads a clock, or trusts a length that a frame claims.

pub mod checksum;
pub mod coalesce;
pub(crate) mod headers;
pub mod rss;
pub mod segment;
pub mod virtio;
pub mod vlan;

pub use headers::{Headers, Network, TCP, UDP};
