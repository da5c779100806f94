//! What DPDK's driver (`driver/`, in C) links to: queues and memory of the NIC's daemon, as C functions.
//!
//! | file | what is there |
//! |---|---|
//! | `port` | a connection to the daemon, with its queues' halves |
//! | `half` | one direction of a queue pair: bursts of descriptors, for one thread |
//! | `memory` | a region, for mbufs that lie in it; from any thread |
//! | `driver/` | the driver itself; `driver/port.h` declares what is here |
//!
//! No function allocates memory on the way of a packet. Nothing unwinds into C: a panic in an `extern "C"` function ends the process.

mod half;
mod memory;
mod port;

pub use half::*;
pub use memory::*;
pub use port::*;
