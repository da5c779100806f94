//! A host of x86 cores and a device behind a CXL link, or a PCIe link: the machine of "Re-architecting End-host Networking with CXL"
//! (sections 2, 3 and 6).
//!
//! | module | what |
//! |---|---|
//! | [`simulation`] | a run: cores and a device's engines with their programs |
//! | [`core`], [`device`], [`dma`] | the faces of the seam: a core, a device that asks over CXL.cache, one that uses DMA |
//! | [`machine`] | state and events |
//! | `cores.rs` | the cores' private caches, loads and stores |
//! | `reorder.rs` | loads that a core has issued and goes on behind |
//! | `home.rs` | the home agents: a line's transactions in turn, memory |
//! | `last_level.rs` | the last-level cache, and what the host's monitoring tells of it |
//! | `link.rs` | the link's credits and retries |
//! | `dcoh.rs` | the device's coherence engine: its caches, its memory |
//! | `gate.rs` | when lines are put into its caches |
//! | `ports.rs` | its ports, and the requests that it may have under way |
//! | `checks.rs` | what must hold at every transition of a checked run |
//! | [`queues`] | the queues' probes |
//! | `recorder.rs` | what is written down of a run |
//! | `pcie.rs` | registers, interrupts, and DMA over PCIe |
//! | [`parameters`] | what the machine is made of |
//!
//! What host and device do with a line is [`crate::protocol::cxl`], the functions that the exploration runs; event queue, wires,
//! memory channels, tags, credits and PCIe's packets are the other machines'.
//!
//! # What it leaves out
//!
//! Address translation, hardware prefetchers, and branches guessed wrong. A core goes on behind loads of bulk data, not behind a word that missed.
//! The home agents' look-ups have no limit of their own. A copy changes when a home agent has decided, and the time that the
//! snoop of a core takes is charged to whoever asked.

mod checks;
pub mod core;
mod cores;
mod dcoh;
pub mod device;
pub mod dma;
mod gate;
mod home;
mod last_level;
mod link;
pub mod machine;
pub mod parameters;
mod pcie;
mod ports;
pub mod queues;
mod recorder;
mod reorder;
pub mod simulation;

pub use checks::Mistake;
pub use core::CxlCore;
pub use device::CxlDevice;
pub use dma::DmaDevice;
pub use last_level::{CacheMonitoring, PushedLines};
pub use link::LayerCounters;
pub use machine::{Counters, Machine};
pub use parameters::CxlParameters;
pub use simulation::CxlSimulation;
