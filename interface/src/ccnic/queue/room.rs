//! What a producer knows of the slots that its consumer has given back.

use conic_fabric::Core;

use super::{Producer, slot_address};
use crate::ccnic::descriptor::{Flags, flag_bit};
use crate::ccnic::policy::{Policy, Signal};

impl<P: Policy> Producer<P> {
    /// How many slots may be written now, asking the consumer's side only when fewer than `want` are known to be free.
    #[inline(always)]
    pub fn room<C: Core>(&mut self, core: &C, want: u64) -> u64 {
        if self.free_until - self.tail < want {
            self.ask_for_room(core, want);
        }
        self.free_until - self.tail
    }

    #[inline(never)]
    fn ask_for_room<C: Core>(&mut self, core: &C, want: u64) {
        match P::SIGNAL {
            Signal::Clear => while self.free_until - self.tail < want && self.see_cleared(core) {},
            Signal::Phase => {
                // Acquire, pairs with the release in `Consumer::give_credit`: the consumer's reads of the slots that it
                // credits happened before, so overwriting them cannot reach it.
                let credit = core.load_acquire(self.map.credit);
                self.take_credit(credit);
            }
            Signal::Register => {
                // As above; a register so that a platform may place it on the device.
                let head = core.register_read(self.map.credit);
                self.take_credit(head);
            }
        }
    }

    /// Looks whether the consumer cleared more slots: an eighth of the ring at once, by its last slot, because slots are
    /// cleared in order; else one.
    fn see_cleared<C: Core>(&mut self, core: &C) -> bool {
        let unknown = self.tail + self.map.slots - self.free_until;
        for step in [(self.map.slots / 8).max(1).min(unknown), 1.min(unknown)] {
            if step == 0 {
                return false;
            }
            let last = slot_address::<P>(&self.map, self.free_until + step - 1);
            // Acquire, pairs with the release of each clear in `Consumer::release`: the consumer's reads of this slot and
            // of those before it happened before, so overwriting them cannot reach it.
            if core.load_acquire(last) & flag_bit(Flags::VALID) == 0 {
                self.free_until += step;
                return true;
            }
        }
        false
    }

    fn take_credit(&mut self, consumed: u64) {
        let known = self.free_until - self.map.slots;
        if consumed.wrapping_sub(known) <= self.tail - known {
            self.free_until = consumed + self.map.slots;
        } else {
            self.faults.credit += 1;
        }
    }

    /// The first position that the consumer has not released, as far as this side has seen; `look` asks it first.
    pub fn released<C: Core>(&mut self, core: &C) -> u64 {
        if P::SIGNAL == Signal::Clear {
            while self.free_until < self.tail + self.map.slots && self.see_cleared(core) {}
        } else {
            self.ask_for_room(core, 0);
        }
        self.free_until - self.map.slots
    }
}
