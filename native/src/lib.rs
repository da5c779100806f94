//! The seam over real shared memory and real cores: memory mappings, the cycle clock, pinning.
//!
//! This room, with `check`, owns every atomic, fence, clock and machine instruction of the house.

mod budget;
pub mod channel;
pub mod clock;
mod closer;
mod copy;
mod core;
mod count;
pub mod descriptors;
pub mod fences;
mod flag;
mod kept;
mod line;
mod mapping;
mod memory;
mod pages;
mod place;
pub mod processor;
mod ringer;
pub mod socket;
mod steps;
mod thread_clock;

pub use budget::Budget;
pub use closer::{Closer, Held};
pub use core::NativeCore;
pub use count::Count;
pub use flag::Flag;
pub use kept::KeptCore;
pub use line::demotes;
pub use mapping::Mapping;
pub use memory::{Memory, MemoryError, Pages};
pub use place::{Machine, cores, may_run_on, numa_nodes, pin, spin, yield_core};
pub use ringer::Ringer;
pub use steps::about_to;
#[cfg(feature = "steps")]
pub use steps::{Watcher, watch};
pub use thread_clock::ThreadClock;
