//! The software NIC.
