//! Which buffers this side holds, in its own memory, where the other side cannot change it.
//!
//! The pool's free set is shared: a peer may set or clear any bit of it. What this side holds is therefore written down here as
//! well, and a buffer that it holds cannot come to it a second time, be it sent by the peer or found free.
//!
//! | the buffer | how it comes to this side | how it leaves |
//! |---|---|---|
//! | in the pool | [`Ledger::take`], when its bit was claimed | [`Ledger::give`], when its bit is set |
//! | the peer's | [`Ledger::take`], when a descriptor names it | [`Ledger::give`], when a descriptor is sent that names it |

use conic_fabric::Address;

use super::pool::{CLASSES, PoolMap};

/// A bit for each buffer that this side holds.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    held: [Vec<u64>; CLASSES],
}

impl Ledger {
    /// Nothing is held.
    pub fn new(map: &PoolMap) -> Ledger {
        Ledger { held: map.classes.map(|class| vec![0; class.count.div_ceil(64) as usize]) }
    }

    /// Enters a buffer of a class, by an address in it; false, and nothing changes, if it is held already.
    #[inline(always)]
    pub fn take(&mut self, map: &PoolMap, class: usize, at: Address) -> bool {
        let (word, bit) = map.classes[class].place_of(at);
        let Some(word) = self.held[class].get_mut(word) else { return false };
        let was_free = *word & bit == 0;
        *word |= bit;
        was_free
    }

    /// Strikes a buffer of a class out, by an address in it.
    #[inline(always)]
    pub fn give(&mut self, map: &PoolMap, class: usize, at: Address) {
        let (word, bit) = map.classes[class].place_of(at);
        if let Some(word) = self.held[class].get_mut(word) {
            *word &= !bit;
        }
    }
}
