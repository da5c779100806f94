//! A CPU whose cores share a cache, and a device that is home to coherent lines, over ECI: Enzian, the machine of "Rethinking
//! Programmed I/O for Fast Devices, Cheap Cores, and Coherent Interconnects" (sections 3 and 4).
//!
//! | module | what |
//! |---|---|
//! | [`simulation`] | a run: cores and a device with their programs |
//! | [`core`], [`device`] | the two faces of the seam |
//! | [`machine`] | state and events |
//! | `cache.rs`, `core_state.rs` | the CPU's side: second-level cache with its transaction units, first levels, stores |
//! | `directory.rs` | the device's side: directory controller with its slices and units |
//! | [`placement`] | which unit handles a line |
//! | [`queues`] | the queues' probes |
//! | `recorder.rs` | what is written down of a run |
//! | [`units`] | units that handle a few transactions at a time |
//! | [`parameters`] | what the machine is made of |
//!
//! What a line's cache and directory do is [`crate::protocol::homed`], the functions that the exploration runs; events, link
//! serialisation and platform files are the x86 machine's.
//!
//! # What it leaves out
//!
//! The CPU's own memory, and with it the second level's capacity: all lines are homed at the device, and far fewer than 16 MiB
//! of them. Messages wait for nothing on a link but the wire (no credits). The answer to an upgrade carries the line, where ECI's
//! (PEMD) carries none: some 10 ns of wire too much, and no copy is lost that a recall takes meanwhile. Hardware prefetchers. An instruction is an access or
//! time that the program says ([`conic_fabric::Core::work`]).

mod cache;
pub mod core;
mod core_state;
pub mod device;
mod directory;
pub mod machine;
pub mod parameters;
pub mod placement;
pub mod queues;
mod recorder;
#[cfg(test)]
mod sharing;
pub mod simulation;
#[cfg(test)]
mod tests;
pub mod units;

pub use core::EciCore;
pub use device::EciDevice;
pub use machine::{Counters, Disturbances, MOST_LINE_BYTES, Machine};
pub use parameters::EciParameters;
pub use simulation::EciSimulation;
