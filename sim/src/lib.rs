//! The seam over a modelled machine: event engine and fibers, caches and coherence, links, memory, devices, probes.
//!
//! | module | what |
//! |---|---|
//! | [`simulation`] | a run: agents with their programs on a machine |
//! | [`core`], [`device`] | the two faces of the seam, as a program sees them |
//! | [`bus`] | nodes whose processor and network interface snoop a bus |
//! | [`cxl`] | a third: a host, and a device behind a CXL or a PCIe link |
//! | [`eci`] | another machine: cores that share a cache, and a device that is home to coherent lines |
//! | [`host`] | the network inside a host: credits on the ways of cores and devices to memory |
//! | [`engine`] | events in total order |
//! | [`protocol`] | the coherence protocol as pure functions, and their exhaustive exploration |
//! | [`machine`] | cores, caches, home agents: what the protocol's messages take |
//! | [`link`], [`memory`], [`credits`], [`pcie`] | resources as arithmetic over time |
//! | [`parameters`], [`platform`] | what a machine is made of, and the files that say so with provenance |
//! | [`probe`] | counters, queues and traces |
//! | [`setup`] | memory before a run begins |

mod agenda;
pub mod bus;
mod bytes;
mod combined;
mod copy_engine;
pub mod core;
pub mod credits;
pub mod cxl;
pub mod device;
pub mod draws;
pub mod eci;
pub mod engine;
mod entries;
pub mod host;

mod fiber;
pub mod link;
pub mod machine;
pub mod memory;
pub mod parameters;
pub mod pcie;
pub mod platform;
pub mod probe;
pub mod protocol;
pub mod setup;
pub mod simulation;
mod timer;

pub use core::SimCore;
pub use device::SimDevice;
pub use machine::Options;
pub use parameters::Parameters;
pub use setup::SetupCore;
pub use simulation::{Failure, Role, Simulation};
