//! Host-NIC interfaces, one module each.
