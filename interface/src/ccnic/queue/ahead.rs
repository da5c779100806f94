//! What a consumer asks for before it needs it, and what it tells a simulator of the loads that a core has begun by itself.

use conic_fabric::{Address, Core, Line};

use super::{Consumer, MAX_SEGMENTS, is_full, slot_address};
use crate::ccnic::descriptor::{Descriptor, Flags, flag_bit};
use crate::ccnic::policy::{Packing, Policy, Signal};
use crate::work;

/// Slots that a consumer starts to fetch at once. They are in its own cache until the producer writes them, so asking for
/// one too early costs nothing; asking for all before the first is needed lets their misses overlap. Measured between
/// cores without a shared cache: 64 packets in flight, from 26.6 to 29.5 million a second; more in flight, no difference.
const LOOK_AHEAD: u64 = 8;
/// Packets of the next burst whose payloads are asked for when this one's have been read: they come while this burst's buffers are
/// recycled and its slots written. Asked for earlier, when this burst's own are on their way, they took turns with those and gained
/// a tenth of it. Measured by turns, 64 bytes: between cores without a shared cache from 28 to 43 million a second, with one from 77
/// to 88; twice as many, no more.
const NEXT_PACKETS: u64 = 16;
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

    /// Asks for the first line of each payload in the next slots, as far as they are full already, where that is switched on: they
    /// come while the caller does what is left of this burst. Once for each call that receives, and not where that has found a slot
    /// that was not full: the producer is about to write it, and to look at it takes its line away from there. A hint;
    /// [`Consumer::receive`] finds and checks for itself. Behind a register nothing is known of those slots.
    #[inline(always)]
    pub fn fetch_next<C: Core>(&mut self, core: &C) {
        if !std::mem::take(&mut self.may_be_more) || !self.fetch_payloads || P::SIGNAL == Signal::Register {
            return;
        }
        for position in self.head..self.head + NEXT_PACKETS.div_ceil(P::PER_SLOT as u64) {
            let at = slot_address::<P>(&self.map, position);
            let Some(first) = core.peek(at) else { return };
            // A slot that is full to its last descriptor, and no payload's: behind another there is seldom one that follows.
            let mut all = first;
            let mut words = [first; MAX_SEGMENTS];
            for (index, word) in (1..).zip(&mut words[1..P::PER_SLOT]) {
                *word = core.peek(at.word(2 * index)).unwrap_or(0);
                all &= *word;
            }
            if !is_full::<P>(&self.map, position, first)
                || all & flag_bit(Flags::VALID) == 0
                || first & flag_bit(Flags::INLINE) != 0
            {
                return;
            }
            for &word in &words[..P::PER_SLOT] {
                core.prefetch_read(Descriptor { word, metadata: 0 }.address().line());
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
