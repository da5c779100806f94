//! The seam over a modelled machine: event engine and fibers, caches and coherence, links, memory, devices, probes.

pub mod core;
pub mod credits;
pub mod device;
pub mod engine;
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

pub use core::SimCore;
pub use device::SimDevice;
pub use machine::Options;
pub use parameters::Parameters;
pub use setup::SetupCore;
pub use simulation::{Failure, Role, Simulation};
