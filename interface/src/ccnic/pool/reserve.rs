//! The buffer that each half sets aside for a payload that comes in a ring.

use conic_fabric::{Address, Core};

use super::Allocator;

/// Buffers of a queue pair from which each half sets one aside; of fewer it would take too many away.
const LEAST_WITH_RESERVE: u64 = 16;

impl Allocator {
    /// From now on sets one buffer of `bytes` at least aside for a payload that comes in a ring, where each queue pair has
    /// [`LEAST_WITH_RESERVE`] such buffers or more. Without it such a payload could wait for ever: all other buffers may be in packets
    /// behind it in the same ring.
    pub(crate) fn keep_reserve<C: Core>(&mut self, core: &C, bytes: u64) {
        let first = usize::from(!self.features.small_buffers);
        let classes = self.map.classes[first..].iter().filter(|class| class.room >= bytes);
        let buffers: u64 = classes.map(|class| class.count).sum();
        self.keeps_reserve = buffers / self.queues >= LEAST_WITH_RESERVE;
        self.reserve_bytes = bytes;
        if self.keeps_reserve && self.reserve.is_none() {
            self.reserve = self.allocate(core, bytes);
        }
    }

    /// Allocates a buffer for a payload that came in a ring; the one set aside, if there is no other.
    #[inline(always)]
    pub(crate) fn allocate_inline<C: Core>(&mut self, core: &C, bytes: u64) -> Option<Address> {
        self.allocate(core, bytes).or_else(|| self.reserve.take())
    }
}
