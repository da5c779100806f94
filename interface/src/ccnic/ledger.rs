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

use super::descriptor::Descriptor;
use super::pool::{CLASSES, ClassMap, PoolMap};

/// For each buffer, whether this side holds it: a byte, so that none is entered by changing its neighbours.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    held: [Vec<bool>; CLASSES],
}

impl Ledger {
    /// Nothing is held.
    pub fn new(map: &PoolMap) -> Ledger {
        Ledger { held: map.classes.map(|class| vec![false; class.count as usize]) }
    }

    /// Enters a buffer of a class, by an address in it; false, and nothing changes, if it is held already.
    #[inline(always)]
    pub fn take(&mut self, map: &PoolMap, class: usize, at: Address) -> bool {
        let held = self.held[class].get_mut(map.classes[class].index_of(at));
        held.is_some_and(|held| !std::mem::replace(held, true))
    }

    /// Strikes a buffer of a class out, by an address in it.
    #[inline(always)]
    pub fn give(&mut self, map: &PoolMap, class: usize, at: Address) {
        if let Some(held) = self.held[class].get_mut(map.classes[class].index_of(at)) {
            *held = false;
        }
    }

    /// Checks packets that came from the peer and enters their buffers, from the front, up to the first that has other segments,
    /// is retained, does not lie in one buffer, or whose buffer is held already; how many.
    #[inline(always)]
    pub fn take_packets(&mut self, map: &PoolMap, packets: &[Descriptor]) -> usize {
        let mut taken = 0;
        // Most often all are of one class, which is looked up once.
        while let Some(first) = packets.get(taken)
            && let Some(class) = map.class_of(first.address())
        {
            let run = take_run(map.classes[class], &mut self.held[class], &packets[taken..]);
            if run == 0 {
                break;
            }
            taken += run;
        }
        taken
    }

    /// Strikes the buffers of packets out that were sent to the peer.
    #[inline(always)]
    pub fn give_packets(&mut self, map: &PoolMap, packets: &[Descriptor]) {
        let mut given = 0;
        while let Some(first) = packets.get(given) {
            let run = match map.class_of(first.address()) {
                Some(class) => give_run(map.classes[class], &mut self.held[class], &packets[given..]),
                None => 0,
            };
            // What lies in no buffer is nobody's to hold.
            given += run.max(1);
        }
    }
}

/// [`Ledger::take_packets`] up to the first packet of another class.
#[inline(always)]
fn take_run(class: ClassMap, held: &mut [bool], packets: &[Descriptor]) -> usize {
    let taken = packets.iter().take_while(|packet| {
        let Some((index, within)) = class.find(packet.address_if_plain()) else { return false };
        // Without a byte it would end before it begins: that is further on than any buffer reaches.
        let last = within + u64::from(packet.length().wrapping_sub(1));
        last < class.size() && held.get_mut(index).is_some_and(|held| !std::mem::replace(held, true))
    });
    taken.count()
}

/// [`Ledger::give_packets`] up to the first packet of another class.
#[inline(always)]
fn give_run(class: ClassMap, held: &mut [bool], packets: &[Descriptor]) -> usize {
    let given = packets.iter().map_while(|packet| {
        let (index, _) = class.find(packet.address())?;
        *held.get_mut(index)? = false;
        Some(())
    });
    given.count()
}
