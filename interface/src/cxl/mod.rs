//! A NIC whose every access says in which state it wants a line, or leaves it: the CXL-NIC of "Re-architecting End-host Networking
//! with CXL" (sections 4 and 5), and on the same rings a NIC that reaches its host by DMA and a doorbell.
//!
//! | file | what |
//! |---|---|
//! | `shape.rs` | the rings and buffers of a queue pair, and in whose memory each lies |
//! | `requests.rs` | the request type of every step, and the paper's configurations |
//! | `entry.rs` | a descriptor's line |
//! | `host.rs` | the host's half: bursts without copies |
//! | `receiver.rs`, `transmitter.rs` | the device's: packets to the host, packets from it |
//! | [`serving`] | a key-value store on the device |
//! | `pushes.rs` | what the host says of pushes, by registers of the device, and the policy by which it says it |
//! | `write_back.rs` | when a pushed packet is taken out of the host's cache again |
//!
//! # The rings
//!
//! A descriptor is a line. Its word 0 synchronises and says which position of the ring it is for, so an old one is told apart:
//!
//! | ring | word 0 is | by | means |
//! |---|---|---|---|
//! | receive | posted | the host | word 1 is a blank buffer |
//! | receive | done | the device | so many packets from this position on are there; their lengths |
//! | transmit | posted | the host | word 1 is a packet, word 0 has its length, and whether it is reported |
//! | transmit | done | the device | this packet was sent, and all before it: their buffers and descriptors are free |
//!
//! Blank buffers are posted 32 at once, at the beginning of the host's receive call, when so many places are empty; over PCIe a
//! register says up to where.
//!
//! A batch of received packets is completed by one line, its first, which the consumer polls; the paper completes its last. The device
//! announces a line after all writes before it, by [`conic_fabric::Device::publish_line`]. Of sent packets the host
//! looks at each 32nd alone, or each second of a ring of four, and asks to be told of it: one that sends fewer and then stops has their
//! buffers back when it goes on, as with DPDK's drivers.
//!
//! # Pushes
//!
//! Where received packets and their completions are pushed into the host's cache (NC-P), two registers of the device say how (section
//! 5.3); the host writes them over CXL.io, at any time. The device looks at them with each batch.
//!
//! | register | holds | after a reset |
//! |---|---|---|
//! | push gate | 0: pushes; else they are written to memory instead | 0 |
//! | write-back | cycles of the device's clock from a packet's push until it is written to memory, in 32 bits; 0: it is not | 0 |
//!
//! A completion is not written back: its line is the host's to post anew. While packets are written back, the host writes into no
//! receive buffer.
//!
//! # What the state of a line does
//!
//! A prefetched receive descriptor stays in the device's cache until the host posts it anew. A polled transmit descriptor stays
//! there until the host writes it: polling crosses the link only then. Packets leave no copy in the device's cache, so that the
//! host may use their buffers again without a snoop. In the device's own memory, packets that the host stores past its caches may
//! be read in device-bias: the host has no copy.

mod entry;
mod host;
mod pushes;
mod receiver;
mod requests;
pub mod serving;
mod shape;
mod transmitter;
mod write_back;

pub use entry::MOST_IN_A_BATCH;
pub use host::{Host, HostStatistics, Store};
pub use pushes::{CachePressure, GatePolicy, PushControl, PushGate};
pub use receiver::{NicStatistics, PushStatistics, Receiver};
pub use requests::{Report, Requests, Signal};
pub use shape::{Homes, Queues, Shape, ShapeError};
pub use transmitter::Transmitter;
