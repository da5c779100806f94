//! The buffer that each half sets aside for a payload that comes in a ring.

use conic_fabric::{Address, Core};

use super::Allocator;

impl Allocator {
    /// From now on sets one buffer of `bytes` at least aside for a payload that comes in a ring. Without it such a payload could wait
    /// for ever: all other buffers may be in packets behind it in the same ring.
    pub(crate) fn keep_reserve<C: Core>(&mut self, core: &C, bytes: u64) {
        self.keeps_reserve = true;
        self.reserve_bytes = bytes;
        if self.reserve.is_none() {
            self.reserve = self.allocate(core, bytes);
        }
    }

    /// Allocates a buffer for a payload that came in a ring; the one set aside, if there is no other.
    #[inline(always)]
    pub(crate) fn allocate_inline<C: Core>(&mut self, core: &C, bytes: u64) -> Option<Address> {
        self.allocate(core, bytes).or_else(|| self.reserve.take())
    }
}
