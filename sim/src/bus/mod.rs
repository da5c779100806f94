//! Nodes whose processor and network interface snoop a bus: the parallel machine of "Coherent Network Interfaces for Fine-Grain
//! Communication" (sections 3 and 4).
//!
//! | module | what |
//! |---|---|
//! | [`simulation`] | a run: nodes with a processor and a network interface's engines, and their programs |
//! | [`core`] | the face of the seam that processors and engines share |
//! | `engine.rs` | what an engine has besides: accesses to its registers, and the network |
//! | [`machine`] | nodes, agents, and what happens |
//! | `arbiter.rs` | who gets a bus, and what crosses the bridge |
//! | `snoop.rs` | what a transaction does to caches, memory and registers |
//! | `cache.rs` | a direct-mapped cache with data of its own |
//! | `network.rs` | messages between nodes |
//! | [`queues`] | the queues' probes |
//! | [`parameters`] | what the machine is made of |
//!
//! What a block's caches do is [`crate::protocol::snooping`], the functions that the exploration runs; events, fibers and platform files
//! are the other machines'. Every cache has data of its own, so that an old copy that is read is a wrong value.
//!
//! # The buses
//!
//! A bus carries one transaction at a time, for as long as the paper's Table 2 says, and begins at one of its own cycles. Who came
//! first gets it first.
//!
//! | what | memory bus | I/O bus |
//! |---|---|---|
//! | on the memory bus alone | all of it | |
//! | the processor reads from the device behind the bridge | held until the end | at the end |
//! | the processor stores to it, or invalidates a copy of it | until the bridge has it | later |
//! | the device reads from the processor | at the end | held until the end |
//! | the device invalidates a copy of the processor's | later | until the bridge has it |
//!
//! The bridge refuses a transaction of the device's that meets one of the processor's the other way, and lets nothing of the processor's
//! cross before that transaction, when it comes again, is through. A read crosses only behind what was buffered before it, as PCI has
//! it.
//!
//! # What it leaves out
//!
//! Instruction fetches (they hit), address translation, a write-back buffer (the paper has none), several processors in a node. A
//! processor goes on behind its uncached stores alone.

mod arbiter;
mod cache;
pub mod core;
mod engine;
pub mod machine;
mod network;
pub mod parameters;
pub mod queues;
pub mod simulation;
mod snoop;

pub use core::BusCore;
pub use machine::{Attachment, Counters, Machine};
pub use network::{MOST_PACKET_LINES, Packet};
pub use parameters::BusParameters;
pub use simulation::{BusSimulation, EngineShape};
