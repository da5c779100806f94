//! The receive ring of a host that manages the pool alone: it posts blank buffers in the ring's descriptors, and the NIC overwrites
//! them with what it receives, as with a PCIe NIC (sections 2.1 and 5.4). In place of a receive ring as [`super::queue`] has it.
//!
//! # Descriptors
//!
//! Positions count descriptors and never wrap. Buffers are posted a slot at a time: a line of four descriptors where they are grouped,
//! one descriptor otherwise. Packets are written into the next descriptors, however many there are: a burst does not begin a new line,
//! as it does in a shared pool, because the rest of the line has buffers in it.
//!
//! | flags in word 0 | whose the descriptor is | what it names |
//! |---|---|---|
//! | none | the host's | nothing yet |
//! | `POSTED` | the NIC's | a blank buffer |
//! | `VALID` | the host's | a packet |
//!
//! With registers the flags say nothing: the host's (head) says how many descriptors were posted, the NIC's (tail) how many were filled.
//!
//! # Moves
//!
//! | who | move | becomes visible | allowed when |
//! |---|---|---|---|
//! | host | [`Posting::post`] | at the slot's word 0, after the other descriptors (`Register`: at the head register) | every descriptor of the slot was received |
//! | NIC | [`Filling::room`], [`Filling::take`] | to nobody: it remembers the buffers | it has not taken the whole ring |
//! | NIC | [`Filling::fill`] | at each descriptor's word 0, a packet's first one last (`Register`: at the tail register) | it has taken the descriptor |
//! | host | [`Posting::receive`] | to nobody | always |
//!
//! # Forbidden
//!
//! | who | must not | because |
//! |---|---|---|
//! | NIC | look at a descriptor that it has taken and not filled | it says `POSTED` still: its buffer would be taken twice |
//! | NIC | fill a descriptor that it has not taken | the buffer in it would be nobody's |
//! | host | post into a line of which a descriptor was not received | the NIC may be writing it |
//! | either | trust a position or an address that the other wrote | it may be anything |

use std::collections::VecDeque;
use std::marker::PhantomData;

use conic_fabric::{Address, Core, Line};

use super::descriptor::{Descriptor, Flags, RING_FLAGS, flag_bit};
use super::policy::{Packing, Policy, Signal};
use super::pool::PoolMap;
use super::queue::{MAX_SEGMENTS, QueueFaults, RingMap, next_group, slot_line};
use crate::work;

/// Buffers that are posted together, as many as DPDK's drivers do by default (`rx_free_thresh`); in a small ring an eighth of it.
pub(super) const TOGETHER: usize = 32;
/// Lines of descriptors that either end asks for at once, where that is switched on, or whose loads a core may have begun.
const LOOK_AHEAD: u64 = 8;

/// What both ends know of the ring.
#[derive(Clone, Copy, Debug)]
struct Ring<P> {
    map: RingMap,
    policy: PhantomData<P>,
}

impl<P: Policy> Ring<P> {
    const PER_SLOT: u64 = P::PER_SLOT as u64;
    const PER_LINE: u64 = if matches!(P::PACKING, Packing::Padded) { 1 } else { 4 };

    fn new(map: RingMap) -> Ring<P> {
        Ring { map, policy: PhantomData }
    }

    /// How many descriptors it has.
    #[inline(always)]
    fn descriptors(&self) -> u64 {
        self.map.slots * Self::PER_SLOT
    }

    #[inline(always)]
    fn at(&self, position: u64) -> Address {
        self.map.ring + (position & (self.descriptors() - 1)) * (P::SLOT_BYTES / Self::PER_SLOT)
    }

    /// Stores a descriptor's word 0, behind the rest of it and what it names.
    #[inline(always)]
    fn store_word<C: Core>(&self, core: &C, at: Address, word: u64) {
        match P::SIGNAL {
            Signal::Register => core.store(at, word),
            // Release, pairs with the acquire in `load_word`: the rest of the descriptor, the payload, and this side's accesses to a
            // buffer that it gives away come before.
            _ => core.store_release(at, word),
        }
    }

    #[inline(always)]
    fn load_word<C: Core>(&self, core: &C, at: Address) -> u64 {
        match P::SIGNAL {
            Signal::Register => core.load(at),
            // Acquire, pairs with the release in `store_word` and `store_line`.
            _ => core.load_acquire(at),
        }
    }

    /// Stores a slot's line, its word 0 last.
    #[inline(always)]
    fn store_line<C: Core>(&self, core: &C, at: Address, line: &Line) {
        match P::SIGNAL {
            Signal::Register => core.write_line(at, line),
            // Release by word 0, as in `store_word`: who looks at the others has acquired it.
            _ => core.publish_line(at, line),
        }
    }

    /// Declares that a core which goes through descriptors from `position` on, `cycles` from now, has begun the loads of the lines
    /// behind the first, as far as `count` descriptors reach: their addresses depend on nothing.
    #[inline(always)]
    fn begins<C: Core>(&self, core: &C, position: u64, count: u64, cycles: u32) {
        let each = work::DESCRIPTOR * Self::PER_LINE as u32;
        for ahead in 1..count.div_ceil(Self::PER_LINE).min(LOOK_AHEAD) {
            core.will_read(self.at(position + ahead * Self::PER_LINE), cycles + each * ahead as u32);
        }
    }
}

/// The host's end: it posts buffers, and receives packets.
#[derive(Debug)]
pub(super) struct Posting<P> {
    ring: Ring<P>,
    /// The first descriptor that was not received.
    head: u64,
    /// The first that is not posted.
    posted: u64,
    /// What the tail register said last.
    filled: u64,
    /// Descriptors that the last call received.
    last_time: u64,
    fetch_ahead: bool,
    fetch_payloads: bool,
    faults: QueueFaults,
}

impl<P: Policy> Posting<P> {
    /// The host's end of an empty ring; `fetch_ahead` to ask for descriptors and payloads before they are read.
    pub(super) fn new(map: RingMap, fetch_ahead: bool) -> Posting<P> {
        let ring = Ring::new(map);
        let faults = QueueFaults::default();
        Posting { ring, head: 0, posted: 0, filled: 0, last_time: 0, fetch_ahead, fetch_payloads: fetch_ahead, faults }
    }

    /// From now on asks for descriptors alone: whoever receives may never look at a payload.
    pub(super) fn leave_payloads(&mut self) {
        self.fetch_payloads = false;
    }

    /// What the NIC said that could not be true.
    pub(super) fn faults(&self) -> QueueFaults {
        self.faults
    }

    /// How many buffers are to be posted now: whole slots, and none before there is room for [`TOGETHER`].
    #[inline(always)]
    pub(super) fn wanted(&self) -> u64 {
        let vacant = self.ring.descriptors() - (self.posted - self.head);
        let together = (TOGETHER as u64).min(self.ring.descriptors() / 8).max(Ring::<P>::PER_SLOT);
        if vacant < together { 0 } else { vacant / Ring::<P>::PER_SLOT * Ring::<P>::PER_SLOT }
    }

    /// Posts buffers, by the addresses at which packets are to begin: as many as were wanted, or fewer whole slots.
    #[inline(always)]
    pub(super) fn post<C: Core>(&mut self, core: &C, buffers: &[Address]) {
        debug_assert!(buffers.len() as u64 <= self.wanted() && buffers.len().is_multiple_of(P::PER_SLOT));
        let posted = |&buffer: &Address| Descriptor::new(buffer, 1).without(Flags::VALID).with(Flags::POSTED);
        for slot in buffers.chunks_exact(P::PER_SLOT) {
            let at = self.ring.at(self.posted);
            if P::PACKING != Packing::Packed && P::WHOLE_LINE {
                let mut group = [Descriptor::BLANK; MAX_SEGMENTS];
                group.iter_mut().zip(slot).for_each(|(one, buffer)| *one = posted(buffer));
                let group = &group[..P::PER_SLOT];
                self.ring.store_line(core, at, &slot_line(core, group[0].word, group));
            } else {
                for (index, buffer) in slot.iter().enumerate().rev() {
                    self.ring.store_word(core, at.word(2 * index), posted(buffer).word);
                }
            }
            self.posted += Ring::<P>::PER_SLOT;
        }
        core.work(work::DESCRIPTOR * buffers.len() as u32);
        if P::SIGNAL == Signal::Register && !buffers.is_empty() {
            // Release, pairs with the acquire in `Filling::is_posted`: the descriptors are there before.
            core.register_write(self.ring.map.credit, self.posted);
        }
    }

    /// Receives packets into `out`, and starts to fetch their payloads where that is switched on. A packet of several segments is given
    /// whole if `out` has room for [`MAX_SEGMENTS`].
    #[inline(always)]
    pub(super) fn receive<C: Core>(&mut self, core: &C, out: &mut [Descriptor]) -> usize {
        let (mut received, begins) = (0, self.head);
        let mut goes_on = false;
        self.look_ahead(core, 0);
        if self.fetch_ahead && P::SIGNAL != Signal::Register {
            for ahead in 0..LOOK_AHEAD {
                core.prefetch_read(self.ring.at(self.head + ahead * Ring::<P>::PER_LINE));
            }
        }
        while received < out.len()
            && let Some(word) = self.filled_word(core)
        {
            if self.head == begins {
                let known = if P::SIGNAL == Signal::Register { self.filled } else { self.posted } - self.head;
                self.ring.begins(core, self.head, known.min(out.len() as u64), 0);
            }
            let has_next = word & flag_bit(Flags::NEXT) != 0;
            if has_next && !goes_on && received > 0 && out.len() - received < MAX_SEGMENTS {
                break;
            }
            goes_on = has_next;
            let at = self.ring.at(self.head);
            self.head += 1;
            let packet = Descriptor { word: word & !RING_FLAGS, metadata: core.load(at.word(1)) };
            // With a register, nothing says that it is one.
            if !packet.is_blank() {
                if self.fetch_payloads {
                    core.prefetch_read(packet.address().line());
                }
                out[received] = packet;
                received += 1;
            }
        }
        self.last_time = self.head - begins;
        core.work(work::DESCRIPTOR * received as u32 + work::CALL);
        received
    }

    /// Declares that a core foresees that a call goes as far as the last one did. Behind a register nothing is known of the ring.
    #[inline(always)]
    fn look_ahead<C: Core>(&self, core: &C, cycles: u32) {
        if P::SIGNAL != Signal::Register {
            self.ring.begins(core, self.head, self.last_time, cycles);
        }
    }

    /// Declares that a core which has come here has by now begun the load with which the next [`Posting::receive`] looks for something.
    #[inline(always)]
    pub(super) fn will_receive<C: Core>(&self, core: &C) {
        let at = match P::SIGNAL {
            Signal::Register => self.ring.map.doorbell,
            _ => self.ring.at(self.head),
        };
        core.will_read(at, work::CALL);
        self.look_ahead(core, work::CALL);
    }

    /// Word 0 of the next descriptor, if that was filled.
    #[inline(always)]
    fn filled_word<C: Core>(&mut self, core: &C) -> Option<u64> {
        if self.head == self.posted {
            return None;
        }
        if P::SIGNAL == Signal::Register {
            if self.head == self.filled {
                self.see_tail(core);
            }
            return (self.head != self.filled).then(|| self.ring.load_word(core, self.ring.at(self.head)));
        }
        let word = self.ring.load_word(core, self.ring.at(self.head));
        (word & flag_bit(Flags::VALID) != 0).then_some(word)
    }

    fn see_tail<C: Core>(&mut self, core: &C) {
        // Acquire, pairs with the release in `Filling::fill`: descriptors and payloads are there.
        let tail = core.register_read(self.ring.map.doorbell);
        if tail.wrapping_sub(self.head) <= self.posted - self.head {
            self.filled = tail;
        } else {
            self.faults.doorbell += 1;
        }
    }

    /// The line that changes when the NIC delivers something. None where it has.
    pub(super) fn awaited<C: Core>(&self, core: &C) -> Option<Address> {
        let at = self.ring.at(self.head);
        match P::SIGNAL {
            // Acquire, as in `see_tail`, which looks again.
            Signal::Register => {
                let tail = self.ring.map.doorbell;
                (self.head == core.register_read(tail)).then_some(tail)
            }
            _ => {
                let filled = self.head != self.posted && self.ring.load_word(core, at) & flag_bit(Flags::VALID) != 0;
                (!filled).then_some(at.line())
            }
        }
    }
}

/// The NIC's end: it takes the buffers that were posted, and delivers packets.
#[derive(Debug)]
pub(super) struct Filling<P> {
    ring: Ring<P>,
    /// The first descriptor that is not filled.
    filled: u64,
    /// The first whose buffer was not taken.
    taken: u64,
    /// What the head register said last.
    posted: u64,
    /// Buffers that were taken, and that no packet has been received into.
    ready: VecDeque<Address>,
    bad_addresses: u64,
    fetch_ahead: bool,
    faults: QueueFaults,
}

impl<P: Policy> Filling<P> {
    /// The NIC's end of an empty ring; `fetch_ahead` to ask for descriptors before they are read, to write.
    pub(super) fn new(map: RingMap, fetch_ahead: bool) -> Filling<P> {
        let ring = Ring::new(map);
        let ready = VecDeque::with_capacity(ring.descriptors() as usize);
        let faults = QueueFaults::default();
        Filling { ring, filled: 0, taken: 0, posted: 0, ready, bad_addresses: 0, fetch_ahead, faults }
    }

    /// What the host said that could not be true.
    pub(super) fn faults(&self) -> QueueFaults {
        self.faults
    }

    /// Addresses that were posted and begin no buffer.
    pub(super) fn bad_addresses(&self) -> u64 {
        self.bad_addresses
    }

    /// How many descriptors may be filled now, looking for more only when fewer than `want` are known.
    #[inline(always)]
    pub(super) fn room<C: Core>(&mut self, core: &C, pool: &PoolMap, want: u64) -> u64 {
        if self.taken - self.filled < want {
            self.look(core, pool, want);
        }
        self.taken - self.filled
    }

    #[inline(never)]
    fn look<C: Core>(&mut self, core: &C, pool: &PoolMap, want: u64) {
        if P::SIGNAL != Signal::Register {
            let missing = want - (self.taken - self.filled);
            if self.fetch_ahead {
                for ahead in 0..missing.div_ceil(Ring::<P>::PER_LINE).min(LOOK_AHEAD) {
                    core.prefetch_write(self.ring.at(self.taken + ahead * Ring::<P>::PER_LINE));
                }
            }
            self.ring.begins(core, self.taken, missing, 0);
        }
        while self.taken - self.filled < want && self.take_slot(core, pool) {}
    }

    /// Whether the next slot to be taken was posted; never one that was taken and not filled.
    #[inline(always)]
    fn is_posted<C: Core>(&mut self, core: &C) -> bool {
        if self.taken - self.filled + Ring::<P>::PER_SLOT > self.ring.descriptors() {
            return false;
        }
        if P::SIGNAL != Signal::Register {
            return self.ring.load_word(core, self.ring.at(self.taken)) & flag_bit(Flags::POSTED) != 0;
        }
        if self.posted - self.taken < Ring::<P>::PER_SLOT {
            // Acquire, pairs with the release in `Posting::post`: the descriptors are there.
            let posted = core.register_read(self.ring.map.credit);
            if posted.wrapping_sub(self.posted) <= self.filled + self.ring.descriptors() - self.posted {
                self.posted = posted;
            } else {
                self.faults.credit += 1;
            }
        }
        self.posted - self.taken >= Ring::<P>::PER_SLOT
    }

    /// Takes the buffers of the next slot, if it was posted, and says whether it was.
    fn take_slot<C: Core>(&mut self, core: &C, pool: &PoolMap) -> bool {
        if !self.is_posted(core) {
            return false;
        }
        for position in self.taken..self.taken + Ring::<P>::PER_SLOT {
            let word = self.ring.load_word(core, self.ring.at(position));
            let at = Descriptor { word, metadata: 0 }.address();
            let class = pool.class_of(at).map(|class| pool.classes[class]);
            if class.is_some_and(|class| class.packet_start(at) == at) {
                self.ready.push_back(at);
            } else {
                self.bad_addresses += 1;
            }
        }
        core.work((work::DESCRIPTOR + work::RECORD) * P::PER_SLOT as u32);
        self.taken += Ring::<P>::PER_SLOT;
        true
    }

    /// Takes a buffer that holds so many bytes, the first of those that were posted.
    pub(super) fn take<C: Core>(&mut self, core: &C, pool: &PoolMap, bytes: u64) -> Option<Address> {
        while self.ready.is_empty() && self.take_slot(core, pool) {}
        let fits = self.ready.iter().position(|&blank| pool.room_of(blank) >= bytes)?;
        self.ready.remove(fits)
    }

    /// Whether a buffer for so many bytes is there, or may come yet.
    pub(super) fn holds<C: Core>(&mut self, core: &C, pool: &PoolMap, bytes: u64) -> bool {
        while self.ready.is_empty() && self.take_slot(core, pool) {}
        self.ready.is_empty() || self.ready.iter().any(|&blank| pool.room_of(blank) >= bytes)
    }

    /// Takes a buffer back that was not delivered.
    pub(super) fn give_back(&mut self, at: Address) {
        self.ready.push_back(at);
    }

    /// Delivers packets in buffers that were taken, as many as there are descriptors for, whole packets only; how many.
    #[inline(always)]
    pub(super) fn fill<C: Core>(&mut self, core: &C, packets: &[Descriptor]) -> usize {
        let most = packets.len().min((self.taken - self.filled) as usize);
        let mut sent = 0;
        while sent < most {
            let rest = &packets[sent..most];
            let begins_slot = self.filled.is_multiple_of(Ring::<P>::PER_SLOT);
            let whole = next_group::<P>(rest);
            if P::PACKING != Packing::Packed && P::WHOLE_LINE && begins_slot && whole.len() == P::PER_SLOT {
                sent += self.fill_slot(core, whole);
                continue;
            }
            let Some(last) = rest.iter().take(MAX_SEGMENTS).position(|segment| !segment.has(Flags::NEXT)) else {
                break;
            };
            sent += self.fill_each(core, &rest[..=last]);
        }
        core.work(work::DESCRIPTOR * sent as u32 + work::CALL);
        if P::SIGNAL == Signal::Register && sent > 0 {
            // Release, pairs with the acquire in `Posting::see_tail`: the descriptors are visible before the tail.
            core.register_write(self.ring.map.doorbell, self.filled);
        }
        sent
    }

    /// Overwrites a whole slot.
    #[inline(always)]
    fn fill_slot<C: Core>(&mut self, core: &C, packets: &[Descriptor]) -> usize {
        let mut group = [Descriptor::BLANK; MAX_SEGMENTS];
        group.iter_mut().zip(packets).for_each(|(one, packet)| *one = of_the_ring(packet));
        let group = &group[..P::PER_SLOT];
        self.ring.store_line(core, self.ring.at(self.filled), &slot_line(core, group[0].word, group));
        self.filled += Ring::<P>::PER_SLOT;
        P::PER_SLOT
    }

    /// Overwrites the next descriptors, the first one last: who sees it sees the others.
    #[inline(always)]
    fn fill_each<C: Core>(&mut self, core: &C, packet: &[Descriptor]) -> usize {
        for (index, segment) in packet.iter().enumerate().rev() {
            let at = self.ring.at(self.filled + index as u64);
            core.store(at.word(1), segment.metadata);
            self.ring.store_word(core, at, of_the_ring(segment).word);
        }
        self.filled += packet.len() as u64;
        packet.len()
    }

    /// The line that changes when the host posts more, from where there is too little of it.
    pub(super) fn awaited(&self) -> Address {
        match P::SIGNAL {
            Signal::Register => self.ring.map.credit,
            _ => self.ring.at(self.taken).line(),
        }
    }
}

/// A descriptor as it stands in the ring.
#[inline(always)]
fn of_the_ring(packet: &Descriptor) -> Descriptor {
    Descriptor { word: packet.word & !RING_FLAGS, ..*packet }.with(Flags::VALID)
}
