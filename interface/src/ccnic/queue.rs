//! One ring of descriptors, from one producer to one consumer: what the transmit and the receive queue both are.
//!
//! # Slots
//!
//! A slot is what one signal covers: a line of up to four descriptors ([`Packing::Grouped`]), a line of one
//! ([`Packing::Padded`]), or 16 bytes ([`Packing::Packed`]). Positions count slots and never wrap; the ring's length is a
//! power of two, a position's lap is its quotient.
//!
//! # Who owns a slot when
//!
//! | signal | the producer may write the slot at position `p` when | the consumer may read it when |
//! |---|---|---|
//! | `Clear` | its word 0 is zero, or a later slot's of the same lap is | word 0 has `VALID` |
//! | `Phase` | the credit line says `p - slots` is consumed | word 0 has `VALID`, and `PHASE` as the lap has it |
//! | `Register` | the head register says `p - slots` is consumed | the tail register is past `p` |
//!
//! # Moves
//!
//! | who | move | becomes visible | allowed when |
//! |---|---|---|---|
//! | producer | [`Producer::send`] | slot by slot in order, at each slot's word 0 (`Register`: all at the tail register) | it owns the slots |
//! | consumer | [`Consumer::receive`] | to nobody | always |
//! | consumer | [`Consumer::release`] | at each word 0 (`Clear`), or at the credit line or head register | it has finished with every payload it was given |
//!
//! # Forbidden
//!
//! | who | must not | because |
//! |---|---|---|
//! | consumer | release before it has read a payload whose sender retained it | the sender reuses the buffer on seeing it |
//! | consumer | recycle a buffer before its slot is released | a successor that rebuilt the ring would own it twice |
//! | producer | write word 0 of a slot before the rest | the consumer reads the rest on seeing it |
//! | either | trust a position that the other wrote | it may be anything: it is checked against what was sent |
//!
//! A packet never straddles two grouped slots: whatever a consumer sees is whole, wherever its producer stopped.

mod ahead;
mod awaited;
mod position;
mod room;
mod unread;
mod waiting;

use std::marker::PhantomData;

use conic_fabric::{Address, Core, Line};

use super::descriptor::{Descriptor, Flags, RING_FLAGS, flag_bit};
use super::inline;
use super::policy::{Packing, Policy, Signal};
use crate::work;
use ahead::read_slot;

pub use position::Position;

/// The most segments a packet may have: what a grouped slot holds.
pub const MAX_SEGMENTS: usize = 4;

/// Where a ring lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingMap {
    /// Its first slot.
    pub ring: Address,
    /// Its slots, a power of two.
    pub slots: u64,
    /// The line in which the consumer says what it has consumed (credit, or head register); what it has posted, where the host posts the
    /// buffers of its receive ring.
    pub credit: Address,
    /// The line in which the producer says what it has produced (tail register).
    pub doorbell: Address,
}

/// What the peer wrote that could not be true; each was ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFaults {
    /// Credits or head registers beyond what was sent.
    pub credit: u64,
    /// Tail registers further ahead than the ring is long.
    pub doorbell: u64,
    /// Payloads in the ring of an impossible length, or whose second line was missing.
    pub inline: u64,
}

impl QueueFaults {
    /// All of them together.
    pub fn total(&self) -> u64 {
        self.credit + self.doorbell + self.inline
    }

    /// These and those of another ring.
    pub fn plus(&self, other: &QueueFaults) -> QueueFaults {
        QueueFaults {
            credit: self.credit + other.credit,
            doorbell: self.doorbell + other.doorbell,
            inline: self.inline + other.inline,
        }
    }
}

/// The sending end of a ring.
#[derive(Debug)]
pub struct Producer<P> {
    map: RingMap,
    tail: u64,
    /// Every position below this one may be written.
    free_until: u64,
    faults: QueueFaults,
    policy: PhantomData<P>,
}

#[inline(always)]
fn slot_address<P: Policy>(map: &RingMap, position: u64) -> Address {
    map.ring + (position & (map.slots - 1)) * P::SLOT_BYTES
}

/// The signal of a full slot at a position.
#[inline(always)]
fn full_signal<P: Policy>(map: &RingMap, position: u64) -> u64 {
    let even_lap = position & map.slots == 0;
    match P::SIGNAL {
        Signal::Phase if even_lap => flag_bit(Flags::VALID) | flag_bit(Flags::PHASE),
        _ => flag_bit(Flags::VALID),
    }
}

/// Whether word 0 of the slot at a position says that it is full.
#[inline(always)]
fn is_full<P: Policy>(map: &RingMap, position: u64, word: u64) -> bool {
    match P::SIGNAL {
        Signal::Phase => {
            let mask = flag_bit(Flags::VALID) | flag_bit(Flags::PHASE);
            word & mask == full_signal::<P>(map, position)
        }
        _ => word & flag_bit(Flags::VALID) != 0,
    }
}

impl<P: Policy> Producer<P> {
    /// The sending end of an empty ring.
    pub fn new(map: RingMap) -> Producer<P> {
        Producer { map, tail: 0, free_until: map.slots, faults: QueueFaults::default(), policy: PhantomData }
    }

    /// How many slots have been sent.
    #[inline(always)]
    pub fn sent(&self) -> u64 {
        self.tail
    }

    /// What the peer said that could not be true.
    pub fn faults(&self) -> QueueFaults {
        self.faults
    }

    /// Sends descriptors, as many as there is room for, whole packets only, and returns how many. A packet has at most
    /// [`MAX_SEGMENTS`] descriptors, all but the last with `NEXT`.
    #[inline(always)]
    pub fn send<C: Core>(&mut self, core: &C, descriptors: &[Descriptor]) -> usize {
        let mut sent = 0;
        let mut room = self.room(core, (descriptors.len() as u64).div_ceil(P::PER_SLOT as u64));
        while sent < descriptors.len() {
            let group = next_group::<P>(&descriptors[sent..]);
            let slots = (group.len() as u64).div_ceil(P::PER_SLOT as u64);
            if group.is_empty() || slots > room {
                break;
            }
            core.work(work::DESCRIPTOR * group.len() as u32);
            self.write_group(core, group);
            self.tail += slots;
            room -= slots;
            sent += group.len();
        }
        if P::SIGNAL == Signal::Register && sent > 0 {
            // Release, pairs with the acquire in `Consumer::see_doorbell`: the slots are visible before the tail.
            core.register_write(self.map.doorbell, self.tail);
        }
        core.work(work::CALL);
        sent
    }

    #[inline(always)]
    fn write_group<C: Core>(&self, core: &C, group: &[Descriptor]) {
        if P::PER_SLOT == 1 {
            // A packet's first descriptor last: a consumer that sees it sees the others.
            for (index, descriptor) in group.iter().enumerate().rev() {
                self.write_slot(core, self.tail + index as u64, std::slice::from_ref(descriptor));
            }
        } else {
            self.write_slot(core, self.tail, group);
        }
    }

    #[inline(always)]
    fn write_slot<C: Core>(&self, core: &C, position: u64, group: &[Descriptor]) {
        let at = slot_address::<P>(&self.map, position);
        let signal = full_signal::<P>(&self.map, position);
        let first = group[0].word & !RING_FLAGS | signal;
        if P::PACKING != Packing::Packed && P::WHOLE_LINE {
            self.write_slot_line(core, at, &slot_line(core, first, group));
            return;
        }
        core.store(at.word(1), group[0].metadata);
        if P::PACKING == Packing::Grouped {
            for index in 1..P::PER_SLOT {
                let descriptor = group.get(index).copied().unwrap_or(Descriptor::BLANK);
                core.store(at.word(2 * index), descriptor.word);
                core.store(at.word(2 * index + 1), descriptor.metadata);
            }
        }
        match P::SIGNAL {
            Signal::Register => core.store(at, first),
            // Release, pairs with the acquire in `Consumer::receive`: the rest of the slot, and the payloads it names,
            // are visible before its signal.
            _ => core.store_release(at, first),
        }
    }

    #[inline(always)]
    fn write_slot_line<C: Core>(&self, core: &C, at: Address, line: &Line) {
        match P::SIGNAL {
            Signal::Register => core.write_line(at, line),
            // Release by word 0, pairs with the acquire in `Consumer::receive`, as in `write_slot`.
            _ => core.publish_line(at, line),
        }
    }

    /// Sends a payload of at most [`inline::INLINE_BYTES`] bytes in the ring's lines themselves, and says whether there
    /// was room. Only where `inline::is_used` says so.
    #[inline(always)]
    pub fn send_inline<C: Core>(&mut self, core: &C, descriptor: Descriptor) -> bool {
        let slots = inline::slots(descriptor.length());
        if self.room(core, slots) < slots {
            return false;
        }
        let payload = inline::load(core, descriptor);
        if slots == 2 {
            let mut rest = payload.continuation();
            rest.0[0] |= full_signal::<P>(&self.map, self.tail + 1);
            // Its release orders nothing that anyone acquires: the consumer comes by the slot before, published next.
            core.publish_line(slot_address::<P>(&self.map, self.tail + 1), &rest);
        }
        let mut first = payload.first(descriptor);
        first.0[0] |= full_signal::<P>(&self.map, self.tail);
        self.write_slot_line(core, slot_address::<P>(&self.map, self.tail), &first);
        self.tail += slots;
        true
    }
}

/// A slot's line. Its descriptors were written a moment ago, each by itself: loaded together they would stall.
#[inline(always)]
pub(super) fn slot_line<C: Core>(core: &C, first: u64, group: &[Descriptor]) -> Line {
    let kept = |descriptor: &Descriptor| [descriptor.word, descriptor.metadata].map(|word| core.in_register(word));
    let mut pairs = [[0; 2]; MAX_SEGMENTS];
    match group {
        [a, b, c, d] => pairs = [kept(a), kept(b), kept(c), kept(d)],
        [a, b, c] => pairs[..3].copy_from_slice(&[kept(a), kept(b), kept(c)]),
        [a, b] => pairs[..2].copy_from_slice(&[kept(a), kept(b)]),
        [a, ..] => pairs[0] = kept(a),
        [] => {}
    }
    let [[_, a], [b, c], [d, e], [f, g]] = pairs;
    Line([first, a, b, c, d, e, f, g])
}

/// The longest run of whole packets, from the front, that goes into one slot (grouped), or one packet (otherwise).
#[inline(always)]
pub(super) fn next_group<P: Policy>(descriptors: &[Descriptor]) -> &[Descriptor] {
    if P::PER_SLOT == 1 {
        let last = descriptors.iter().take(MAX_SEGMENTS).position(|descriptor| !descriptor.has(Flags::NEXT));
        return last.map_or(&[], |last| &descriptors[..=last]);
    }
    let mut length = descriptors.len().min(P::PER_SLOT);
    while length > 0 && descriptors[length - 1].has(Flags::NEXT) {
        length -= 1;
    }
    &descriptors[..length]
}

/// What became of a payload in the ring.
enum Taken {
    /// It is in a buffer now.
    Packet(Descriptor),
    /// There is no buffer for it: it stays.
    NoPlace,
    /// It cannot be: it was skipped and counted.
    Refused,
}

/// The receiving end of a ring.
#[derive(Debug)]
pub struct Consumer<P> {
    map: RingMap,
    head: u64,
    released: u64,
    credited: u64,
    /// What the tail register said last.
    known_tail: u64,
    /// Descriptors of the slot before `head` for which the caller had no room yet.
    stash: [Descriptor; MAX_SEGMENTS],
    stashed: usize,
    /// Slots that the last call found full.
    full_last_time: u64,
    /// Whether it ended because the caller had room for no more, so that the next slot may have been full as well.
    may_be_more: bool,
    inline: bool,
    fetch_ahead: bool,
    fetch_payloads: bool,
    faults: QueueFaults,
    policy: PhantomData<P>,
}

impl<P: Policy> Consumer<P> {
    /// The receiving end of an empty ring; `inline` if its producer may send payloads in the ring, `fetch_ahead` to ask for
    /// slots and payloads before they are read.
    pub fn new(map: RingMap, inline: bool, fetch_ahead: bool) -> Consumer<P> {
        Consumer {
            map,
            head: 0,
            released: 0,
            credited: 0,
            known_tail: 0,
            stash: [Descriptor::BLANK; MAX_SEGMENTS],
            stashed: 0,
            full_last_time: 0,
            may_be_more: false,
            inline,
            fetch_ahead,
            fetch_payloads: fetch_ahead,
            faults: QueueFaults::default(),
            policy: PhantomData,
        }
    }

    /// From now on asks for slots alone: whoever receives may never look at a payload.
    pub fn leave_payloads(&mut self) {
        self.fetch_payloads = false;
    }

    /// What the peer said that could not be true.
    pub fn faults(&self) -> QueueFaults {
        self.faults
    }

    /// Receives descriptors into `out`, and starts to fetch the first line of each payload. Payloads that travelled in
    /// the ring are copied to where `place` says; where it has no place they wait.
    ///
    /// A packet of several segments is given whole if `out` has room for [`MAX_SEGMENTS`]. Whatever the peer writes, and
    /// however fast, a call looks at no more slots than the ring has.
    #[inline(always)]
    pub fn receive<C: Core>(
        &mut self,
        core: &C,
        out: &mut [Descriptor],
        mut place: impl FnMut() -> Option<Address>,
    ) -> usize {
        if out.is_empty() {
            return 0;
        }
        let mut received = self.take_stash(out);
        self.look_ahead(core);
        let begins = self.head;
        let mut goes_on = false;
        self.may_be_more = true;
        while out.len() - received >= P::PER_SLOT || received == 0 {
            let Some(at) = self.full_slot(core) else {
                self.may_be_more = false;
                break;
            };
            self.goes_on_to(core, out.len() - received);
            let line = read_slot::<C, P>(core, at);
            let first = Descriptor { word: line.0[0], metadata: line.0[1] };
            if self.inline && first.has(Flags::INLINE) {
                match self.take_inline(core, first, &line, &mut place) {
                    Taken::Packet(descriptor) => {
                        out[received] = descriptor;
                        received += 1;
                    }
                    Taken::Refused => {}
                    Taken::NoPlace => break,
                }
                continue;
            }
            if P::PER_SLOT == 1 {
                let begins_chain = first.has(Flags::NEXT) && !goes_on;
                if begins_chain && received > 0 && out.len() - received < MAX_SEGMENTS {
                    break;
                }
                goes_on = first.has(Flags::NEXT);
            }
            self.head += 1;
            if out.len() - received >= P::PER_SLOT {
                received += take_group::<C, P>(core, &line, &mut out[received..], self.fetch_payloads);
            } else {
                let mut group = [Descriptor::BLANK; MAX_SEGMENTS];
                self.stashed = take_group::<C, P>(core, &line, &mut group, self.fetch_payloads);
                self.stash = group;
                received += self.take_stash(&mut out[received..]);
                break;
            }
        }
        self.full_last_time = self.head - begins;
        core.work(work::CALL);
        if received == 0 {
            self.idle(core);
        }
        received
    }

    /// The slot at the head, if it is full.
    #[inline(always)]
    fn full_slot<C: Core>(&mut self, core: &C) -> Option<Address> {
        let at = slot_address::<P>(&self.map, self.head);
        let full = match P::SIGNAL {
            Signal::Register => self.head != self.known_tail,
            // What was received and not released yet may still say that it is full; and a producer that writes over it
            // all the same does not keep this side busy.
            _ if self.head - self.released >= self.map.slots => false,
            // Acquire, pairs with the release of a slot's word 0 in `Producer::write_slot`: the rest of the slot, and the
            // payloads it names, were written before.
            _ => is_full::<P>(&self.map, self.head, core.load_acquire(at)),
        };
        full.then_some(at)
    }

    fn see_doorbell<C: Core>(&mut self, core: &C) -> bool {
        // Acquire, pairs with the release in `Producer::send`: slots up to the tail were written before.
        let tail = core.register_read(self.map.doorbell);
        if tail.wrapping_sub(self.released) > self.map.slots || tail < self.head {
            self.faults.doorbell += 1;
            return false;
        }
        self.known_tail = tail;
        tail != self.head
    }

    #[inline(always)]
    fn take_stash(&mut self, out: &mut [Descriptor]) -> usize {
        if self.stashed == 0 {
            return 0;
        }
        let count = self.stashed.min(out.len());
        out[..count].copy_from_slice(&self.stash[..count]);
        self.stash.copy_within(count.., 0);
        self.stashed -= count;
        count
    }

    #[inline(always)]
    fn take_inline<C: Core>(
        &mut self,
        core: &C,
        first: Descriptor,
        line: &Line,
        place: &mut impl FnMut() -> Option<Address>,
    ) -> Taken {
        let length = first.length();
        let slots = inline::slots(length);
        let mut good = length > 0 && usize::from(length) <= inline::INLINE_BYTES;
        let mut rest = Line::ZERO;
        if slots == 2 {
            // Written before the first slot, which was acquired.
            rest = core.read_line(slot_address::<P>(&self.map, self.head + 1));
            core.depends_on(slot_address::<P>(&self.map, self.head + 1));
            let continues = rest.0[0] & flag_bit(Flags::CONTINUED) != 0;
            good &= continues && self.head + slots - self.released <= self.map.slots;
        }
        if !good {
            self.faults.inline += 1;
            self.head += 1;
            return Taken::Refused;
        }
        let Some(at) = place() else { return Taken::NoPlace };
        inline::store(core, at, length, line, &rest);
        self.head += slots;
        Taken::Packet(Descriptor::new(at, length).with_metadata(first.metadata))
    }

    #[inline(always)]
    fn idle<C: Core>(&mut self, core: &C) {
        if P::SIGNAL != Signal::Clear && self.credited != self.released {
            self.give_credit(core);
        }
    }

    /// Gives back every slot whose descriptors have all been handed out.
    #[inline(always)]
    pub fn release<C: Core>(&mut self, core: &C) {
        let until = self.head - u64::from(self.stashed > 0);
        if P::SIGNAL == Signal::Clear {
            for position in self.released..until {
                // Release, pairs with the acquire in `Producer::see_cleared`: this side has read the slot, and payloads
                // that the sender retained, before the sender may write them again.
                core.store_release(slot_address::<P>(&self.map, position), 0);
            }
        }
        self.released = until;
        if P::SIGNAL != Signal::Clear && until - self.credited >= (self.map.slots / 4).max(1) {
            self.give_credit(core);
        }
    }

    fn give_credit<C: Core>(&mut self, core: &C) {
        self.credited = self.released;
        match P::SIGNAL {
            Signal::Register => core.register_write(self.map.credit, self.released),
            // Release, pairs with the acquire in `Producer::ask_for_room`, as for a clear above.
            _ => core.store_release(self.map.credit, self.released),
        }
    }
}

/// Takes the descriptors of a slot, blanks skipped, and starts to fetch their payloads where that is switched on.
#[inline(always)]
fn take_group<C: Core, P: Policy>(core: &C, line: &Line, out: &mut [Descriptor], fetches: bool) -> usize {
    if P::PER_SLOT == MAX_SEGMENTS
        && let Some(out) = out.first_chunk_mut()
        && take_full_group(core, line, out, fetches)
    {
        return MAX_SEGMENTS;
    }
    let mut count = 0;
    for pair in line.0.chunks_exact(2).take(P::PER_SLOT) {
        let descriptor = Descriptor { word: pair[0] & !RING_FLAGS, metadata: pair[1] };
        if !descriptor.is_blank() {
            if fetches {
                core.prefetch_read(descriptor.address().line());
            }
            out[count] = descriptor;
            count += 1;
        }
    }
    core.work(work::DESCRIPTOR * count as u32);
    count
}

/// The same for a slot without blanks; false, and nothing is taken, if it has one.
#[inline(always)]
fn take_full_group<C: Core>(core: &C, line: &Line, out: &mut [Descriptor; MAX_SEGMENTS], fetches: bool) -> bool {
    let [a, a_metadata, b, b_metadata, c, c_metadata, d, d_metadata] = line.0;
    if a & b & c & d & flag_bit(Flags::VALID) == 0 {
        return false;
    }
    *out = [(a, a_metadata), (b, b_metadata), (c, c_metadata), (d, d_metadata)]
        .map(|(word, metadata)| Descriptor { word: word & !RING_FLAGS, metadata });
    if fetches {
        out.iter().for_each(|descriptor| core.prefetch_read(descriptor.address().line()));
    }
    core.work(work::DESCRIPTOR * MAX_SEGMENTS as u32);
    true
}
