//! Host-NIC interfaces, one module each, written once over the seam.

pub mod burst;
pub mod ccnic;
