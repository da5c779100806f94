//! What a core does between its accesses to shared memory, in cycles: for worlds in which that takes no time by itself.
//!
//! [`conic_fabric::Core::work`] is nothing natively. The values are instruction counts of the compiled loops over three
//! instructions a cycle, rounded; a platform scales all of them by one factor (`core.work_scale`), which is fitted to one
//! single-thread figure. So only their ratios matter. How many instructions one of them is on a platform, `core.work_instructions`
//! says: they fill its reorder buffer.

/// Entering and leaving a burst call: its checks, loops and the caller's.
pub const CALL: u32 = 10;
/// Putting a descriptor together, or taking one apart and checking it. Of [`crate::mlx5`]: an entry's control and Ethernet segments, each
/// data segment, a completion: as many fields each.
pub const DESCRIPTOR: u32 = 6;
/// Taking a buffer from a private stack or putting one back: its class, its place, its bookkeeping.
pub const BUFFER: u32 = 5;
/// Remembering or recalling which buffer a descriptor of a ring had.
pub const RECORD: u32 = 3;
