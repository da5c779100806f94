//! Which line changes when there is something to do again: for a side that watches lines rather than looking at each.

use conic_fabric::{Address, Core};

use super::{Consumer, Policy, Producer, Signal, is_full, slot_address};

impl<P: Policy> Producer<P> {
    /// The line that changes when the consumer makes room, from where there is too little of it.
    pub fn awaited(&self) -> Address {
        match P::SIGNAL {
            // Slots are cleared in order: the next is the first that is not known to be free.
            Signal::Clear => slot_address::<P>(&self.map, self.free_until).line(),
            Signal::Phase | Signal::Register => self.map.credit,
        }
    }
}

impl<P: Policy> Consumer<P> {
    /// The line that changes when the producer sends something. None where something has been sent that this side has not
    /// taken: it is this side that must act.
    pub fn awaited<C: Core>(&self, core: &C) -> Option<Address> {
        let (at, full) = match P::SIGNAL {
            // Acquire, as in `see_doorbell`, which looks again.
            Signal::Register => (self.map.doorbell, self.head != core.register_read(self.map.doorbell)),
            _ => {
                let at = slot_address::<P>(&self.map, self.head);
                // Acquire, as in `full_slot`; nothing is read by it that is not read again there.
                (at.line(), is_full::<P>(&self.map, self.head, core.load_acquire(at)))
            }
        };
        (!full && self.stashed == 0).then_some(at)
    }
}
