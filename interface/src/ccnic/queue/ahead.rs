//! What a consumer asks for before it needs it, and what it tells a simulator of the loads that a core has begun by itself.

use conic_fabric::{Address, Core, Line};

use super::{Consumer, slot_address};
use crate::ccnic::policy::{Packing, Policy, Signal};
use crate::work;

/// Slots that a consumer starts to fetch at once. They are in its own cache until the producer writes them, so asking for
/// one too early costs nothing; asking for all before the first is needed lets their misses overlap. Measured between
/// cores without a shared cache: 64 packets in flight, from 26.6 to 29.5 million a second; more in flight, no difference.
const LOOK_AHEAD: u64 = 8;
/// Slots whose loads a core may have begun while it handles one; how many it has is for the modelled core to say.
const MOST_BEGUN: usize = 8;
/// Cycles between the end of one call and the first load of the next.
const BETWEEN_CALLS: u32 = work::CALL;

impl<P: Policy> Consumer<P> {
    /// Learns from the register, where there is one, how many slots are full, and asks for the next ones where that is switched
    /// on. Behind a register nothing is known of the ring before the register says so.
    #[inline(always)]
    pub(super) fn look_ahead<C: Core>(&mut self, core: &C) {
        self.expects(core, 0);
        let announced = if P::SIGNAL == Signal::Register {
            if self.head == self.known_tail {
                self.see_doorbell(core);
            }
            self.known_tail - self.head
        } else {
            LOOK_AHEAD
        };
        if self.fetch_ahead {
            for ahead in 0..announced.min(LOOK_AHEAD) {
                core.prefetch_read(slot_address::<P>(&self.map, self.head + ahead));
            }
        }
    }

    /// Declares that a core which has come here has by now begun the load with which the next [`Consumer::receive`] looks for
    /// something: it depends on nothing that lies between, and a few dozen instructions fit between the two.
    #[inline(always)]
    pub fn will_receive<C: Core>(&self, core: &C) {
        let at = match P::SIGNAL {
            Signal::Register => self.map.doorbell,
            _ => slot_address::<P>(&self.map, self.head),
        };
        core.will_read(at, BETWEEN_CALLS);
        self.expects(core, BETWEEN_CALLS);
    }

    /// Declares that a core foresees the branches on which a call goes on from slot to slot as they went the last time, and so
    /// has begun the loads of as many slots, whose addresses depend on nothing, while the first one's is under way. `cycles`:
    /// how much work lies before the first.
    #[inline(always)]
    fn expects<C: Core>(&self, core: &C, cycles: u32) {
        if P::SIGNAL == Signal::Register {
            return;
        }
        let each = work::DESCRIPTOR * P::PER_SLOT as u32;
        for ahead in 1..self.full_last_time.min(MOST_BEGUN as u64) {
            core.will_read(slot_address::<P>(&self.map, self.head + ahead), cycles + each * ahead as u32);
        }
    }

    /// Declares that a core which has found a slot full goes on to the next ones while there is room for them.
    #[inline(always)]
    pub(super) fn goes_on_to<C: Core>(&self, core: &C, room: usize) {
        let each = work::DESCRIPTOR * P::PER_SLOT as u32;
        let mut slots = room.div_ceil(P::PER_SLOT).min(MOST_BEGUN) as u64;
        if P::SIGNAL == Signal::Register {
            slots = slots.min(self.known_tail - self.head);
        }
        for ahead in 1..slots {
            core.will_read(slot_address::<P>(&self.map, self.head + ahead), each * ahead as u32);
        }
    }
}

/// Reads a slot that was seen to be full.
#[inline(always)]
pub(super) fn read_slot<C: Core, P: Policy>(core: &C, at: Address) -> Line {
    if P::PACKING == Packing::Packed {
        let (word, metadata) = (core.load_acquire_or_owned::<P>(at), core.load(at.word(1)));
        return Line([word, metadata, 0, 0, 0, 0, 0, 0]);
    }
    let line = core.read_line(at);
    // Payloads' addresses stand in it. Behind a flag they have come with the flag.
    core.depends_on(at);
    line
}

/// Reads word 0 of a slot that was seen to be full, as the kind of word that it is.
trait LoadSlotWord: Core {
    fn load_acquire_or_owned<P: Policy>(&self, at: Address) -> u64;
}

impl<C: Core> LoadSlotWord for C {
    #[inline(always)]
    fn load_acquire_or_owned<P: Policy>(&self, at: Address) -> u64 {
        match P::SIGNAL {
            Signal::Register => self.load(at),
            // Acquire, as in `full_slot`; the same word again, now for its fields.
            _ => self.load_acquire(at),
        }
    }
}
