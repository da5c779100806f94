//! Where packets enter and leave the software NIC.
