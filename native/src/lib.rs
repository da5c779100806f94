//! The seam over real shared memory and real cores: memory mappings, the cycle clock, pinning.
//!
//! This room, with `check`, owns every atomic, fence, clock and machine instruction of the house.

pub mod clock;
mod copy;
mod core;
mod flag;
mod line;
mod mapping;
mod memory;
mod place;
mod thread_clock;

pub use core::NativeCore;
pub use flag::Flag;
pub use mapping::Mapping;
pub use memory::{Memory, MemoryError, Pages};
pub use place::{Machine, cores, numa_nodes, pin, yield_core};
pub use thread_clock::ThreadClock;
