//! Host-NIC interfaces, one module each.
pub mod ccnic;
