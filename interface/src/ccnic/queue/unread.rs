//! What lies in a ring whose consumer is dead.

use conic_fabric::Core;

use super::ahead::read_slot;
use super::{MAX_SEGMENTS, Policy, Producer, Signal, slot_address, take_group};
use crate::ccnic::descriptor::{Descriptor, Flags};

impl<P: Policy> Producer<P> {
    /// Shows each descriptor that was sent and whose buffer the consumer, which is dead, cannot have passed on.
    ///
    /// A buffer is recycled behind its slot's release, and a consumer that gives credit does so before a quarter of the ring is
    /// released without it: what lies further on than that was not released. Before, it may have come back to this side.
    pub fn show_unread<C: Core>(&mut self, core: &C, mut show: impl FnMut(Descriptor)) {
        // A half that only receives has sent nothing, and the credit in its ring is the other half's.
        if self.tail == 0 {
            return;
        }
        let doubtful = if P::SIGNAL == Signal::Clear { 0 } else { (self.map.slots / 4).max(1) };
        // Nobody is left to be accused of a credit that is gone with the region's contents.
        let faults = self.faults;
        let released = self.released(core);
        self.faults = faults;
        for position in released + doubtful..self.tail {
            let line = read_slot::<C, P>(core, slot_address::<P>(&self.map, position));
            // In a payload's slots no buffer is named.
            if (Descriptor { word: line.0[0], metadata: 0 }).has(Flags::INLINE | Flags::CONTINUED) {
                continue;
            }
            let mut group = [Descriptor::BLANK; MAX_SEGMENTS];
            let count = take_group::<C, P>(core, &line, &mut group, false);
            group[..count].iter().filter(|descriptor| !descriptor.has(Flags::RETAIN)).for_each(|&one| show(one));
        }
    }
}
