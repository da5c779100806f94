//! The host's half: the burst calls of the paper's Figure 5.

use conic_fabric::{Address, Core};

use super::descriptor::{Descriptor, Flags, has_flag};
use super::inline;
use super::map::Map;
use super::policy::{Features, Policy};
use super::pool::{Allocator, AllocatorFeatures, PoolMap};
use super::posted::{Posting, TOGETHER};
use super::queue::{Consumer, MAX_SEGMENTS, Producer, QueueFaults};
use super::recovery;
use super::retained::Retained;
use crate::{buffer_metadata, work};

/// Buffers of a class that a half keeps that only sends: as many go back to the pool with one atomic operation.
const KEPT_BY_A_SENDER: usize = 8;

/// Sent buffers that a host which manages the pool alone takes back at once, when fewer descriptors of its ring than this are free: what
/// DPDK's drivers do by default (`tx_free_thresh`, `tx_rs_thresh`). Of a small ring an eighth.
const RECLAIMED: usize = 32;

/// What the NIC did that it should not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostFaults {
    /// Impossible positions on the transmit ring.
    pub transmit: QueueFaults,
    /// Impossible positions on the receive ring.
    pub receive: QueueFaults,
    /// Received descriptors that named no buffer, found when they were freed.
    pub not_a_buffer: u64,
    /// Buffers found free that were freed.
    pub freed_twice: u64,
}

impl HostFaults {
    /// These and those of another queue pair.
    pub fn plus(&self, other: &HostFaults) -> HostFaults {
        HostFaults {
            transmit: self.transmit.plus(&other.transmit),
            receive: self.receive.plus(&other.receive),
            not_a_buffer: self.not_a_buffer + other.not_a_buffer,
            freed_twice: self.freed_twice + other.freed_twice,
        }
    }
}

/// One queue pair of the host, for one thread.
///
/// | call | takes | gives | may block |
/// |---|---|---|---|
/// | [`Host::buf_alloc`] | a size | a buffer, the caller's | no |
/// | [`Host::buf_free`] | a buffer of the caller's | - | no |
/// | [`Host::tx_burst`] | packets; their buffers are the NIC's from then on, unless retained | how many were taken, from the front | no |
/// | [`Host::rx_burst`] | room | packets; their buffers are the caller's | no |
/// | [`Host::completions`] | room | retained buffers that are the caller's again | no |
///
/// A call that makes no progress has not spun: whoever loops calls [`Core::spin`].
#[derive(Debug)]
pub struct Host<C, P> {
    core: C,
    features: Features,
    transmit: Producer<P>,
    receive: Consumer<P>,
    allocator: Allocator,
    retained: Retained,
    /// In place of `receive`, where this half alone manages the pool.
    posted: Option<Posting<P>>,
    /// There are metadata in front of the buffers ([`buffer_metadata`]).
    metadata: bool,
}

impl<C: Core, P: Policy> Host<C, P> {
    /// The host's half of queue pair `queue` of a fresh region.
    ///
    /// # Panics
    ///
    /// If there is no such queue.
    pub fn new(core: C, map: &Map, queue: usize) -> Host<C, P> {
        let allocator =
            Allocator::new(map.pool, AllocatorFeatures::of(&map.features), false).of_queue(queue, map.queues.len());
        Host::with_allocator(core, map, queue, allocator)
    }

    fn with_allocator(core: C, map: &Map, queue: usize, mut allocator: Allocator) -> Host<C, P> {
        let (queue, features) = (&map.queues[queue], map.features);
        let inline = inline::is_used::<P>(map);
        if inline {
            allocator.keep_reserve(&core, inline::INLINE_BYTES as u64);
        }
        let mut host = Host {
            core,
            features: Features { inline_payload: inline, ..features },
            transmit: Producer::new(queue.transmit),
            receive: Consumer::new(queue.receive, inline::is_read::<P>(map), features.fetch_ahead),
            allocator,
            retained: Retained::new(queue.transmit.slots * P::PER_SLOT as u64),
            posted: (!features.shared_pool).then(|| Posting::new(queue.receive, features.fetch_ahead)),
            metadata: map.metadata,
        };
        host.post_blanks();
        host
    }

    /// The core it runs on.
    #[inline(always)]
    pub fn core(&self) -> &C {
        &self.core
    }

    /// From now on does not ask for the payloads of received packets ahead: for a caller that may pass them on without a look, and asks
    /// for what it looks at itself. A line that it never asks for stays in the NIC's cache.
    pub fn leave_payloads(&mut self) {
        self.receive.leave_payloads();
        if let Some(posted) = &mut self.posted {
            posted.leave_payloads();
        }
    }

    /// From now on keeps few of the buffers that it frees: for a half that sends, beside one that receives. What is sent in the ring's
    /// lines is freed by the one and allocated by the other; with a whole stack between them hundreds of buffers would be in turn,
    /// whose lines and pages are in no cache near the core when they come.
    pub fn only_sends(&mut self) {
        self.allocator.keep_at_most(KEPT_BY_A_SENDER);
    }

    /// Allocates buffers that hold `bytes` each, small ones if those are large enough, and returns how many: fewer than
    /// there is room for in `out` where the pool has run dry.
    #[inline(always)]
    pub fn buf_alloc(&mut self, bytes: u64, out: &mut [Address]) -> usize {
        let mut count = self.allocator.allocate_burst(&self.core, bytes, out);
        if count < out.len() && self.posted.is_some() {
            self.reclaim_transmitted(usize::MAX);
            count += self.allocator.allocate_burst(&self.core, bytes, &mut out[count..]);
        }
        if self.metadata {
            touch(&self.core, self.allocator.map(), out[..count].iter().copied(), buffer_metadata::reset);
        }
        count
    }

    /// Frees buffers.
    #[inline(always)]
    pub fn buf_free(&mut self, buffers: &[Address]) {
        if self.metadata {
            touch(&self.core, self.allocator.map(), buffers.iter().copied(), buffer_metadata::consult);
        }
        self.allocator.free_burst(&self.core, buffers.iter().copied());
    }

    /// Sends packets and returns how many, from the front: fewer than asked where the ring is full.
    ///
    /// A packet of several segments is several descriptors, all but the last with [`Flags::NEXT`], at most
    /// [`MAX_SEGMENTS`]. A segment with [`Flags::RETAIN`] stays the caller's, and comes back by [`Host::completions`]; who
    /// writes it before then must bear that a mixture of old and new bytes is sent, or let the receiver find that out, as
    /// for the ring ([`crate::ring`]). Who retains must take completions: what waits for that takes the place of what could
    /// be sent.
    #[inline(always)]
    pub fn tx_burst(&mut self, packets: &[Descriptor]) -> usize {
        if self.metadata {
            enter(&self.core, self.allocator.map(), packets.iter().map(|packet| (packet.address(), packet.length())));
        }
        if let [packet] = packets
            && self.features.inline_payload
            && usize::from(packet.length()) <= inline::INLINE_BYTES
            && !packet.has(Flags::NEXT | Flags::RETAIN)
            && self.transmit.send_inline(&self.core, *packet)
        {
            if self.metadata {
                touch(&self.core, self.allocator.map(), [packet.address()], buffer_metadata::consult);
            }
            self.allocator.free(&self.core, packet.address());
            return 1;
        }
        // It needs two lines, and there may be one: go on with its descriptor.
        if let Some(posted) = &self.posted {
            posted.will_receive(&self.core);
            return self.send_kept(packets);
        }
        self.receive.will_receive(&self.core);
        self.receive.fetch_next(&self.core);
        let all = packets.iter().fold(0, |all, packet| all | packet.word);
        if has_flag(all, Flags::RETAIN) {
            return self.send_kept(packets);
        }
        self.transmit.send(&self.core, packets)
    }

    /// Sends packets of which some come back to the host.
    #[inline(never)]
    fn send_kept(&mut self, packets: &[Descriptor]) -> usize {
        let mut sent = 0;
        let all_kept = self.posted.is_some();
        if all_kept && self.retained.room() < RECLAIMED.min(self.retained.capacity() / 8) {
            self.reclaim_transmitted(RECLAIMED.max(packets.len()));
        }
        while sent < packets.len() {
            // One slot's worth at a time, so that each descriptor's position is known.
            let most = packets.len().min(sent + P::PER_SLOT.max(MAX_SEGMENTS));
            if self.retained.room() < P::PER_SLOT.max(MAX_SEGMENTS) {
                self.reclaim_transmitted(usize::MAX);
                if self.retained.room() < P::PER_SLOT.max(MAX_SEGMENTS) {
                    break;
                }
            }
            let count = self.transmit.send(&self.core, &packets[sent..most]);
            for packet in &packets[sent..sent + count] {
                if all_kept || packet.has(Flags::RETAIN) {
                    self.core.work(work::RECORD);
                    self.retained.push(self.transmit.sent(), *packet);
                }
            }
            if count == 0 {
                break;
            }
            sent += count;
        }
        sent
    }

    /// Takes retained segments that the NIC has read: each is the caller's again. Returns how many.
    pub fn completions(&mut self, out: &mut [Descriptor]) -> usize {
        self.reclaim_transmitted(usize::MAX);
        self.retained.take_returned(out)
    }

    /// Frees what was transmitted from buffers of the pool, where the host manages it alone, and keeps what the caller
    /// retained for `completions`; so many at most.
    #[inline(never)]
    fn reclaim_transmitted(&mut self, mut most: usize) {
        if !self.retained.is_waiting() {
            return;
        }
        let released = self.transmit.released(&self.core);
        let (mut batch, mut count) = ([Address(0); RECLAIMED], 0);
        while most > 0
            && let Some(done) = self.retained.pop_released(released)
        {
            most -= 1;
            self.core.work(work::RECORD);
            if !done.has(Flags::RETAIN) {
                batch[count] = done.address();
                count += 1;
            }
            if count == RECLAIMED {
                self.buf_free(&batch);
                count = 0;
            }
        }
        self.buf_free(&batch[..count]);
    }

    /// Receives packets into `out` and returns how many. Their buffers are the caller's.
    #[inline(always)]
    pub fn rx_burst(&mut self, out: &mut [Descriptor]) -> usize {
        if self.posted.is_some() {
            return self.receive_posted(out);
        }
        let (core, allocator) = (&self.core, &mut self.allocator);
        let metadata = self.metadata;
        let received = self.receive.receive(core, out, || {
            let at = allocator.allocate_inline(core, inline::INLINE_BYTES as u64)?;
            if metadata {
                touch(core, allocator.map(), [at], buffer_metadata::reset);
            }
            Some(at)
        });
        // Nothing of the slots is needed any more: the buffers came with the descriptors. Also where nothing was received,
        // because slots may have been refused.
        self.receive.release(&self.core);
        self.enter_received(&out[..received]);
        received
    }

    #[inline(always)]
    fn enter_received(&self, packets: &[Descriptor]) {
        if self.metadata {
            enter(&self.core, self.allocator.map(), packets.iter().map(|packet| (packet.address(), packet.length())));
        }
    }

    /// Receives packets into buffers that this half has posted, and posts others.
    #[inline(never)]
    fn receive_posted(&mut self, out: &mut [Descriptor]) -> usize {
        let received = self.posted.as_mut().map_or(0, |posted| posted.receive(&self.core, out));
        self.enter_received(&out[..received]);
        self.post_blanks();
        received
    }

    /// Whether something has come that was not received.
    pub fn has_packets(&self) -> bool {
        match &self.posted {
            None => self.receive.awaited(&self.core).is_none(),
            Some(posted) => posted.awaited(&self.core).is_none(),
        }
    }

    /// How many descriptors have come that were not received, `most` at most; where buffers are posted only whether there is one.
    pub fn waiting(&self, most: usize) -> usize {
        match &self.posted {
            None => self.receive.waiting(&self.core, most),
            Some(_) => most.min(self.has_packets().into()),
        }
    }

    /// How many descriptors there is room to send, in bursts: one that is sent alone takes a slot of several.
    pub fn tx_room(&mut self) -> usize {
        self.transmit.free(&self.core)
    }

    /// Posts as many blank buffers as are wanted, or as there are.
    fn post_blanks(&mut self) {
        if self.post_what_is_there() {
            return;
        }
        // What was sent may be all that there is, and nobody need send or allocate again.
        self.reclaim_transmitted(usize::MAX);
        self.post_what_is_there();
    }

    /// The same of the buffers that are free; whether they were enough.
    fn post_what_is_there(&mut self) -> bool {
        let Host { core, allocator, posted: Some(posted), metadata, .. } = self else { return true };
        loop {
            let wanted = (posted.wanted() as usize).min(TOGETHER);
            let (mut buffers, mut count) = ([Address(0); TOGETHER], 0);
            allocator.claim_blanks(core, wanted);
            // The size of what will arrive is not known: the largest frame's buffer, or what there is.
            while count < wanted
                && let Some(at) = allocator.allocate_blank(core)
            {
                buffers[count] = at;
                count += 1;
            }
            let (blanks, spare) = buffers[..count].split_at(count - count % P::PER_SLOT);
            if *metadata {
                touch(core, allocator.map(), blanks.iter().copied(), buffer_metadata::post);
            }
            posted.post(core, blanks);
            allocator.free_burst(core, spare.iter().copied());
            if blanks.len() < wanted || wanted == 0 {
                return wanted == 0;
            }
        }
    }

    /// What the NIC did that it should not have.
    pub fn faults(&self) -> HostFaults {
        HostFaults {
            transmit: self.transmit.faults(),
            receive: self.posted.as_ref().map_or(self.receive.faults(), Posting::faults),
            not_a_buffer: self.allocator.not_a_buffer(),
            freed_twice: self.allocator.freed_twice(),
        }
    }

    /// Goes on after the NIC has died: makes the region whole and gives the host's half of a fresh queue pair, and how
    /// many buffers had been lost with the NIC. Packets that it had delivered are received first, by `rx_burst`; what was
    /// sent and not read is gone, and comes back by no completion. `held` are the buffers that the application holds.
    ///
    /// Only when no other agent uses the region; with several queue pairs, `held` covers the others' stacks too.
    pub fn recover(self, map: &Map, queue: usize, held: impl IntoIterator<Item = Address>) -> (Host<C, P>, u64) {
        let Host { core, mut allocator, .. } = self;
        recovery::reset_rings(&core, map, queue);
        let lost = allocator.reclaim(&core, held);
        (Host::with_allocator(core, map, queue, allocator), lost)
    }

    /// Leaves a region whose NIC has died: gives everything that this half keeps back to the pool, with what it has sent and the NIC
    /// cannot have passed on. What was delivered is received before, by `rx_burst`, or lost; what the NIC held stays lost: whether it is
    /// that or the application's is nowhere written.
    pub fn leave(&mut self) {
        // Where the host posts the buffers, it frees them on completion.
        if self.posted.is_none() {
            let Host { core, transmit, allocator, metadata, .. } = self;
            transmit.show_unread(core, |packet| {
                if *metadata {
                    touch(core, allocator.map(), [packet.address()], buffer_metadata::consult);
                }
                allocator.free(core, packet.address());
            });
        }
        self.drain();
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

/// Enters packets' lengths in the metadata of their buffers; objects have none.
#[inline(never)]
fn enter<C: Core>(core: &C, pool: &PoolMap, packets: impl IntoIterator<Item = (Address, u16)>) {
    for (at, length) in packets {
        if let Some(buffer) = pool.buffer_of(at) {
            buffer_metadata::enter(core, buffer, length.into());
        }
    }
}

/// Does something to the metadata of buffers; objects have none.
#[inline(never)]
fn touch<C: Core>(core: &C, pool: &PoolMap, buffers: impl IntoIterator<Item = Address>, how: impl Fn(&C, Address)) {
    for buffer in buffers.into_iter().filter_map(|at| pool.buffer_of(at)) {
        how(core, buffer);
    }
}

impl AllocatorFeatures {
    /// The switches that concern buffers.
    pub fn of(features: &Features) -> AllocatorFeatures {
        AllocatorFeatures {
            recycling: features.recycling,
            scattered: features.scattered,
            small_buffers: features.small_buffers,
        }
    }
}
