//! How much lies in a ring, for who asks without taking anything.

use conic_fabric::Core;

use super::ahead::read_slot;
use super::{Consumer, MAX_SEGMENTS, Policy, Producer, Signal, is_full, slot_address, take_group};
use crate::ccnic::descriptor::{Descriptor, Flags};
use crate::ccnic::inline;

impl<P: Policy> Consumer<P> {
    /// How many descriptors wait to be received, `most` at most. Nothing is taken; what the peer writes meanwhile may count. It looks at no
    /// more slots than the ring has, whatever the peer says.
    pub fn waiting<C: Core>(&self, core: &C, most: usize) -> usize {
        let (mut count, mut position) = (self.stashed, self.head);
        // Acquire, as in `see_doorbell`; what is not true of it is bounded by the ring's length here, and counted there.
        let tail = if P::SIGNAL == Signal::Register { core.register_read(self.map.doorbell) } else { 0 };
        while count < most && position - self.released < self.map.slots {
            let at = slot_address::<P>(&self.map, position);
            let full = match P::SIGNAL {
                Signal::Register => position != tail,
                // Acquire, as in `full_slot`: the rest of the slot was written before.
                _ => is_full::<P>(&self.map, position, core.load_acquire(at)),
            };
            if !full {
                break;
            }
            let line = read_slot::<C, P>(core, at);
            let first = Descriptor { word: line.0[0], metadata: line.0[1] };
            let length = first.length();
            position += 1;
            if !(self.inline && first.has(Flags::INLINE)) {
                let mut group = [Descriptor::BLANK; MAX_SEGMENTS];
                count += take_group::<C, P>(core, &line, &mut group, false);
            } else if length > 0 && usize::from(length) <= inline::INLINE_BYTES {
                // Others will be refused.
                count += 1;
                position += inline::slots(length) - 1;
            }
        }
        count.min(most)
    }
}

impl<P: Policy> Producer<P> {
    /// How many descriptors there is room for, in bursts: one that is sent alone takes a slot. What the consumer has given back counts when
    /// it says so.
    pub fn free<C: Core>(&mut self, core: &C) -> usize {
        let slots = self.map.slots;
        self.room(core, slots) as usize * P::PER_SLOT
    }
}
