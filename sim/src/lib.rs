//! The seam over a modelled machine: event engine and fibers, caches and coherence, links, memory, devices, probes.

pub mod credits;
pub mod link;
pub mod memory;
pub mod parameters;
pub mod pcie;
pub mod probe;

pub use parameters::Parameters;
