//! The NIC's half.

use conic_fabric::{Address, Core};

use super::descriptor::{Descriptor, Flags};
use super::inline;
use super::map::Map;
use super::policy::{Features, Policy};
use super::pool::{Allocator, AllocatorFeatures, BadMemory};
use super::posted::Filling;
use super::queue::{Consumer, MAX_SEGMENTS, Position, Producer, QueueFaults};
use super::recovery;

/// What the host did that it should not have; each was refused and counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicFaults {
    /// Descriptors whose address lies in no buffer and no object.
    pub address: u64,
    /// Descriptors without a byte, or running past the end of their buffer.
    pub length: u64,
    /// Descriptors that name an object without retaining it.
    pub not_a_buffer: u64,
    /// Packets whose last segment never came, or of more than [`MAX_SEGMENTS`].
    pub chain: u64,
    /// Buffers found free that were sent.
    pub freed_twice: u64,
    /// Buffers that the NIC held, and that the host sent, or freed, all the same.
    pub never_lent: u64,
    /// Impossible positions on the transmit ring.
    pub transmit: QueueFaults,
    /// Impossible positions on the receive ring.
    pub receive: QueueFaults,
}

impl NicFaults {
    /// All of them together.
    pub fn total(&self) -> u64 {
        let queues = self.transmit.total() + self.receive.total();
        self.address + self.length + self.not_a_buffer + self.chain + self.freed_twice + self.never_lent + queues
    }

    /// These and those of another queue pair.
    pub fn plus(&self, other: &NicFaults) -> NicFaults {
        NicFaults {
            address: self.address + other.address,
            length: self.length + other.length,
            not_a_buffer: self.not_a_buffer + other.not_a_buffer,
            chain: self.chain + other.chain,
            freed_twice: self.freed_twice + other.freed_twice,
            never_lent: self.never_lent + other.never_lent,
            transmit: self.transmit.plus(&other.transmit),
            receive: self.receive.plus(&other.receive),
        }
    }

    /// Each with its name.
    pub fn named(&self) -> [(&'static str, u64); 10] {
        [
            ("address", self.address),
            ("length", self.length),
            ("not_a_buffer", self.not_a_buffer),
            ("chain", self.chain),
            ("freed_twice", self.freed_twice),
            ("never_lent", self.never_lent),
            ("transmit_inline", self.transmit.inline),
            ("transmit_doorbell", self.transmit.doorbell),
            ("transmit_credit", self.transmit.credit),
            ("receive_credit", self.receive.credit + self.receive.doorbell + self.receive.inline),
        ]
    }
}

/// Where a NIC's half stood when it stopped, so that another process can go on in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicPosition {
    /// Slots of the transmit ring that were consumed.
    pub transmit: u64,
    /// Where it stood on the receive ring.
    pub receive: Position,
}

/// One queue pair of the NIC, for one thread.
///
/// | call | takes | gives |
/// |---|---|---|
/// | [`Nic::poll_tx`] | room | transmitted packets, checked; their payloads may be read until `complete_tx` |
/// | [`Nic::complete_tx`] | the packets of every `poll_tx` since the last, also if there are none: what was refused took slots | - |
/// | [`Nic::rx_alloc`] | a size | a receive buffer, the caller's |
/// | [`Nic::rx_burst`] | packets in such buffers; the host's from then on | how many were taken, from the front |
/// | [`Nic::rx_free`] | a receive buffer that was not delivered | - |
#[derive(Debug)]
pub struct Nic<C, P> {
    core: C,
    features: Features,
    transmit: Consumer<P>,
    receive: Producer<P>,
    allocator: Allocator,
    /// In place of `receive`, where the host alone manages the pool.
    posted: Option<Filling<P>>,
    checked: bool,
    faults: NicFaults,
}

impl<C: Core, P: Policy> Nic<C, P> {
    /// The NIC's half of queue pair `queue` of a fresh region. It checks what the host says.
    ///
    /// # Panics
    ///
    /// If there is no such queue.
    pub fn new(core: C, map: &Map, queue: usize) -> Nic<C, P> {
        let allocator =
            Allocator::new(map.pool, AllocatorFeatures::of(&map.features), true).of_queue(queue, map.queues.len());
        Nic::with_allocator(core, map, queue, allocator)
    }

    fn with_allocator(core: C, map: &Map, queue: usize, allocator: Allocator) -> Nic<C, P> {
        let (queue, features) = (&map.queues[queue], map.features);
        // Where the host alone manages the pool, what it posts says what the NIC holds.
        let mut allocator = if features.shared_pool { allocator.with_ledger() } else { allocator };
        let inline = inline::is_used::<P>(map);
        if inline {
            allocator.keep_reserve(&core, inline::INLINE_BYTES as u64);
        }
        Nic {
            core,
            features: Features { inline_payload: inline, ..features },
            transmit: Consumer::new(queue.transmit, inline::is_read::<P>(map), features.fetch_ahead),
            receive: Producer::new(queue.receive),
            allocator,
            posted: (!features.shared_pool).then(|| Filling::new(queue.receive, features.fetch_ahead)),
            checked: true,
            faults: NicFaults::default(),
        }
    }

    /// The same, believing what the host says: only for measuring what the checks cost.
    pub fn trusting(mut self) -> Nic<C, P> {
        self.checked = false;
        self.allocator.without_ledger();
        self
    }

    /// What is switched on.
    #[inline(always)]
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The core it runs on.
    #[inline(always)]
    pub fn core(&self) -> &C {
        &self.core
    }

    /// Receives transmitted packets into `out`, which has room for [`MAX_SEGMENTS`] at least, and returns how many
    /// descriptors. A descriptor with [`Flags::NEXT`] goes on in the one after it. What is wrong is dropped and counted.
    #[inline(always)]
    pub fn poll_tx(&mut self, out: &mut [Descriptor]) -> usize {
        debug_assert!(out.len() >= MAX_SEGMENTS);
        let (core, allocator) = (&self.core, &mut self.allocator);
        let received = self.transmit.receive(core, out, || {
            let at = allocator.allocate_inline(core, inline::INLINE_BYTES as u64)?;
            // It comes back with the packet, as if the host had sent it.
            allocator.lend(at);
            Some(at)
        });
        if !self.checked {
            return received;
        }
        let good = self.accept(&out[..received]);
        if good == received { received } else { good + self.keep_good(&mut out[good..received]) }
    }

    /// Checks packets of one segment each and enters their buffers, from the front, up to the first that is refused, or of more
    /// segments; how many.
    #[inline(always)]
    fn accept(&mut self, packets: &[Descriptor]) -> usize {
        let mut good = 0;
        loop {
            good += self.allocator.accept_packets(&packets[good..]);
            match packets.get(good) {
                Some(packet) if self.is_retained(packet) => good += 1,
                _ => return good,
            }
        }
    }

    /// Whether a packet of one segment, which is not to be entered because its sender keeps it, is good.
    #[inline(always)]
    fn is_retained(&self, packet: &Descriptor) -> bool {
        let alone = packet.has(Flags::RETAIN) && !packet.has(Flags::NEXT);
        alone && self.allocator.map().check(packet.address(), packet.length(), true).is_ok()
    }

    /// Keeps whole packets of good segments, in order, and counts the others. Their buffers were given away by their
    /// sender; they are recycled at once, because nobody will complete them.
    #[cold]
    fn keep_good(&mut self, packets: &mut [Descriptor]) -> usize {
        let (mut kept, mut start) = (0, 0);
        while start < packets.len() {
            let rest = &packets[start..];
            let Some(last) = rest.iter().position(|segment| !segment.has(Flags::NEXT)) else {
                self.faults.chain += 1;
                self.take_back(rest);
                break;
            };
            let mut good = last < MAX_SEGMENTS;
            self.faults.chain += u64::from(!good);
            for segment in &rest[..=last] {
                let retained = segment.has(Flags::RETAIN);
                if let Err(bad) = self.allocator.map().check(segment.address(), segment.length(), retained) {
                    good = false;
                    match bad {
                        BadMemory::Address => self.faults.address += 1,
                        BadMemory::Length => self.faults.length += 1,
                        BadMemory::NotABuffer => self.faults.not_a_buffer += 1,
                    }
                }
            }
            let accepted = if good { self.accept_from_the_front(&rest[..=last]) } else { 0 };
            if accepted == last + 1 {
                packets.copy_within(start..=start + last, kept);
                kept += last + 1;
            } else {
                let (ours, others) = rest[..=last].split_at(accepted);
                self.recycle(ours);
                self.take_back(others);
            }
            start += last + 1;
        }
        kept
    }

    /// Enters the buffers of a packet's segments, up to the first that the host cannot have sent; how many.
    fn accept_from_the_front(&mut self, segments: &[Descriptor]) -> usize {
        let allocator = &mut self.allocator;
        segments.iter().take_while(|one| one.has(Flags::RETAIN) || allocator.accept(one.address())).count()
    }

    /// Recycles the buffers of segments that are refused, where the host had them to send.
    fn take_back(&mut self, segments: &[Descriptor]) {
        for segment in segments {
            if segment.has(Flags::RETAIN) || self.allocator.accept(segment.address()) {
                self.recycle(std::slice::from_ref(segment));
            } else {
                self.allocator.count_held();
            }
        }
    }

    /// Says that the payloads of all packets polled so far have been read: gives their slots back, then recycles their
    /// buffers, in this order (a buffer recycled first would be owned twice if this side died between the two).
    #[inline(always)]
    pub fn complete_tx(&mut self, packets: &[Descriptor]) {
        self.transmit.release(&self.core);
        self.transmit.fetch_next(&self.core);
        self.recycle(packets);
    }

    /// Recycles the buffers that came with packets, where they are this side's to recycle.
    #[inline(always)]
    fn recycle(&mut self, packets: &[Descriptor]) {
        if self.posted.is_some() {
            return;
        }
        let ours = packets.iter().filter(|packet| !packet.has(Flags::RETAIN));
        self.allocator.free_burst(&self.core, ours.map(|packet| packet.address()));
    }

    /// Allocates a receive buffer that holds `bytes`.
    #[inline(always)]
    pub fn rx_alloc(&mut self, bytes: u64) -> Option<Address> {
        match &mut self.posted {
            None => self.allocator.allocate(&self.core, bytes),
            Some(posted) => posted.take(&self.core, self.allocator.map(), bytes),
        }
    }

    /// Takes receive buffers for these packets, from the front, as long as they are of one segment that begins with a line and this side
    /// has buffers at hand; how many. `each` is given a packet's place among them, the packet, and its buffer, which is the
    /// caller's; a buffer's work is the caller's to count as well, when it begins to use it.
    #[inline(always)]
    pub(super) fn rx_ready(
        &mut self,
        packets: &[Descriptor],
        mut each: impl FnMut(&C, usize, &Descriptor, Address),
    ) -> usize {
        if self.posted.is_some() {
            return 0;
        }
        let core = &self.core;
        self.allocator.pop_for(core, packets, |index, packet, to| each(core, index, packet, to))
    }

    /// Where neither side keeps buffers: takes those that packets of these lengths will be received into from the pool, together, as far
    /// as they are of one class. [`Nic::rx_alloc`] gives them.
    #[inline(always)]
    pub(super) fn rx_claim(&mut self, lengths: impl IntoIterator<Item = u16>) {
        if self.posted.is_none() {
            self.allocator.claim_for(&self.core, lengths);
        }
    }

    /// Whether there are buffers for frames of so many bytes at all; not whether one is free. Where the host posts them,
    /// what it has posted last decides.
    pub fn holds(&mut self, bytes: u64) -> bool {
        let map = self.allocator.map();
        match &mut self.posted {
            None => map.classes.iter().any(|class| class.count > 0 && class.room >= bytes),
            Some(posted) => posted.holds(&self.core, map, bytes),
        }
    }

    /// The most bytes that a buffer holds.
    pub fn largest_room(&self) -> usize {
        let classes = self.allocator.map().classes.iter().filter(|class| class.count > 0);
        classes.map(|class| class.room).max().unwrap_or(0) as usize
    }

    /// Gives back a receive buffer that was not delivered.
    #[inline(always)]
    pub fn rx_free(&mut self, at: Address) {
        match &mut self.posted {
            None => self.allocator.free(&self.core, at),
            Some(posted) => posted.give_back(at),
        }
    }

    /// Delivers packets, as many as there is room for, and returns how many, from the front.
    #[inline(always)]
    pub fn rx_burst(&mut self, packets: &[Descriptor]) -> usize {
        if let [packet] = packets
            && self.features.inline_payload
            && usize::from(packet.length()) <= inline::INLINE_BYTES
            && !packet.has(Flags::NEXT | Flags::RETAIN)
            && self.receive.send_inline(&self.core, *packet)
        {
            self.allocator.free(&self.core, packet.address());
            return 1;
        }
        // It needs two lines, and there may be one: go on with its descriptor.
        self.transmit.will_receive(&self.core);
        let sent = match &mut self.posted {
            None => self.receive.send(&self.core, packets),
            Some(posted) => posted.fill(&self.core, packets),
        };
        self.allocator.lend_packets(&packets[..sent]);
        sent
    }

    /// How many packets [`Nic::rx_burst`] would take now, if it were given `want`; packets of one segment.
    #[inline(always)]
    pub fn rx_room(&mut self, want: usize) -> usize {
        if let Some(posted) = &mut self.posted {
            return posted.room(&self.core, self.allocator.map(), want as u64) as usize;
        }
        let slots = want.div_ceil(P::PER_SLOT) as u64;
        self.receive.room(&self.core, slots) as usize * P::PER_SLOT
    }

    /// The line that changes when packets come, or, where there is no room to deliver `want`, when there is; packets of one
    /// segment. None where something has come that was not polled.
    pub fn awaited(&mut self, want: usize) -> Option<Address> {
        if self.rx_room(want) >= want {
            return self.transmit.awaited(&self.core);
        }
        Some(self.posted.as_ref().map_or_else(|| self.receive.awaited(), Filling::awaited))
    }

    /// What the host did that it should not have.
    pub fn faults(&self) -> NicFaults {
        NicFaults {
            freed_twice: self.allocator.freed_twice(),
            never_lent: self.allocator.found_held(),
            transmit: self.transmit.faults(),
            receive: self.posted.as_ref().map_or(self.receive.faults(), Filling::faults),
            address: self.faults.address + self.posted.as_ref().map_or(0, Filling::bad_addresses),
            ..self.faults
        }
    }

    /// Goes on after the host has died: makes the region whole for a new one and gives the NIC's half of a fresh queue
    /// pair, and how many buffers had been lost with the host. Packets that it had sent are polled first. `held` are the
    /// buffers that the caller still holds.
    ///
    /// Only when no other agent uses the region; with several queue pairs, `held` covers the others' stacks too.
    pub fn recover(self, map: &Map, queue: usize, held: impl IntoIterator<Item = Address>) -> (Nic<C, P>, u64) {
        let Nic { core, mut allocator, .. } = self;
        recovery::reset_rings(&core, map, queue);
        let held: Vec<Address> = held.into_iter().collect();
        let lost = allocator.reclaim(&core, held.iter().copied());
        let mut nic = Nic::with_allocator(core, map, queue, allocator);
        for at in held {
            // A new ledger knows nothing of them, and the new host may not send them.
            nic.allocator.accept(at);
        }
        (nic, lost)
    }

    /// Where it stands in both rings.
    pub fn position(&self) -> NicPosition {
        NicPosition { transmit: self.transmit.consumed(), receive: self.receive.position() }
    }

    /// Stops: gives every buffer back that it keeps, and says where it stood; every packet polled was completed. None where it cannot
    /// stop here.
    pub fn suspend(mut self) -> Option<NicPosition> {
        if self.posted.is_some() {
            return None;
        }
        let transmit = self.transmit.stop(&self.core)?;
        self.drain();
        Some(NicPosition { transmit, receive: self.receive.position() })
    }

    /// The NIC's half of a queue pair in which another stopped there; none if none can have.
    pub fn resume(core: C, map: &Map, queue: usize, position: NicPosition) -> Option<Nic<C, P>> {
        let NicPosition { transmit, receive } = position;
        let rings = map.queues.get(queue)?;
        let receive = Producer::at_position(rings.receive, receive)?;
        let nic = Nic::new(core, map, queue);
        let reads_inline = inline::is_read::<P>(map);
        let transmit = Consumer::at_position(rings.transmit, reads_inline, nic.features.fetch_ahead, transmit);
        Some(Nic { transmit, receive, ..nic })
    }

    /// The allocator, for accounting.
    pub fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// Gives every buffer on this side's stacks back to the pool.
    pub fn drain(&mut self) {
        self.allocator.drain(&self.core);
    }
}
