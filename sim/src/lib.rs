//! The seam over a modelled machine: event engine and fibers, caches and coherence, links, memory, devices, probes.

pub mod parameters;
pub mod platform;
pub mod probe;

pub use parameters::Parameters;
