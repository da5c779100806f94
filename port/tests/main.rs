//! Ports, checked: one program, because what their tests share is then compiled once.
//!
//! | files | what they check |
//! |---|---|
//! | `capture_formats`, `capture_hostile` | capture files, sound ones and broken ones |
//! | `ports`, `impair`, `sizes` | ports as text, one port around another, every size of frame through each kind |
//! | `tap`, `packet`, `xdp` | against the kernel, each test in a network namespace of its own |
//! | `memif`, `vhost`, `migration` | against stock DPDK, and virtual machines |
//! | `offload`, `packets` | what a NIC does to frames for a host, and how they are read |
//! | `support`, `reading` | frames, namespaces, peers |
//!
//! `dpdk_device` is a program of its own: DPDK starts once in a process.

mod capture_formats;
mod capture_hostile;
mod impair;
mod memif;
mod migration;
mod offload;
mod packet;
mod packets;
mod ports;
mod reading;
mod sizes;
mod support;
mod tap;
mod vhost;
mod xdp;
