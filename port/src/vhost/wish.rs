//! Whether a side of a ring wants to be told of what the other one does: a flag, or the index at which it does.

use super::memory::{Regions, Spot};
use super::ring::Agreed;

/// Of a ring's flags: "do not tell me".
pub(super) const NOT_NOW: u16 = 1;

/// Where one side says what it wants to be told of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// Its flags.
    pub(super) flags: Spot,
    /// Where it says an index, in the same region.
    pub(super) event: usize,
}

impl Wish {
    /// Whether its side wants to be told that the other one has gone from one index to another, which must have been shown.
    #[inline(always)]
    pub(super) fn wants(&self, regions: &Regions, agreed: Agreed, old: u16, new: u16) -> bool {
        let memory = regions.memory(self.flags.region);
        // Full: the index is shown before the wish is read, or both sides might wait for each other.
        memory.full_fence();
        if agreed.event_index {
            let wanted = memory.load_u16(self.event);
            new.wrapping_sub(wanted).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            memory.load_u16(self.flags.at) & NOT_NOW == 0
        }
    }

    /// Says whether its side wants to be told of what comes at an index. Behind the former a look into the ring is due.
    pub(super) fn set(&self, regions: &Regions, agreed: Agreed, wanted: bool, index: u16) {
        let memory = regions.memory(self.flags.region);
        if !agreed.event_index {
            memory.store_u16(self.flags.at, if wanted { 0 } else { NOT_NOW });
        } else if wanted {
            // Without the wish the old one stays, behind which the other side is: it tells once in 65,536 slots.
            memory.store_u16(self.event, index);
        }
        // Full: the wish is visible before the ring is looked at once more.
        memory.full_fence();
    }
}
