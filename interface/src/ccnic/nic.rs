//! The NIC's half.

use conic_fabric::{Address, Core};

use super::descriptor::{Descriptor, Flags};
use super::inline;
use super::map::Map;
use super::policy::{Features, Policy};
use super::pool::{Allocator, AllocatorFeatures, BadMemory};
use super::queue::{Consumer, MAX_SEGMENTS, Producer, QueueFaults};
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
    /// Packets whose last segment never came.
    pub chain: u64,
    /// Buffers found free that were sent.
    pub freed_twice: u64,
    /// Impossible positions on the transmit ring.
    pub transmit: QueueFaults,
    /// Impossible positions on the receive ring.
    pub receive: QueueFaults,
}

impl NicFaults {
    /// All of them together.
    pub fn total(&self) -> u64 {
        let queues = [self.transmit, self.receive].map(|queue| queue.credit + queue.doorbell).iter().sum::<u64>();
        self.address + self.length + self.not_a_buffer + self.chain + self.freed_twice + queues
    }
}

/// One queue pair of the NIC, for one thread.
///
/// | call | takes | gives |
/// |---|---|---|
/// | [`Nic::poll_tx`] | room | transmitted packets, checked; their payloads may be read until `complete_tx` |
/// | [`Nic::complete_tx`] | the packets of every `poll_tx` since the last | - |
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
    blanks: Option<Blanks<P>>,
    checked: bool,
    faults: NicFaults,
}

/// Receive buffers that the host posted, where it alone manages the pool.
#[derive(Debug)]
struct Blanks<P> {
    ring: Consumer<P>,
    ready: Vec<Descriptor>,
}

impl<C: Core, P: Policy> Nic<C, P> {
    /// The NIC's half of queue pair `queue` of a fresh region. It checks what the host says.
    ///
    /// # Panics
    ///
    /// If there is no such queue.
    pub fn new(core: C, map: &Map, queue: usize) -> Nic<C, P> {
        let allocator = Allocator::new(map.pool, AllocatorFeatures::of(&map.features), true);
        Nic::with_allocator(core, map, queue, allocator)
    }

    fn with_allocator(core: C, map: &Map, queue: usize, allocator: Allocator) -> Nic<C, P> {
        let (queue, features) = (&map.queues[queue], map.features);
        let inline = inline::is_used::<P>(&features);
        let capacity = queue.blanks.slots as usize * P::PER_SLOT;
        Nic {
            core,
            features: Features { inline_payload: inline, ..features },
            transmit: Consumer::new(queue.transmit, inline),
            receive: Producer::new(queue.receive),
            allocator,
            blanks: (!features.shared_pool)
                .then(|| Blanks { ring: Consumer::new(queue.blanks, false), ready: Vec::with_capacity(capacity) }),
            checked: true,
            faults: NicFaults::default(),
        }
    }

    /// The same, believing what the host says: only for measuring what the checks cost.
    pub fn trusting(mut self) -> Nic<C, P> {
        self.checked = false;
        self
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
        let received = self.transmit.receive(core, out, || allocator.allocate(core, inline::INLINE_BYTES as u64));
        if self.checked && !out[..received].iter().all(|packet| self.is_good(packet)) {
            return self.keep_good(&mut out[..received]);
        }
        received
    }

    #[inline(always)]
    fn is_good(&self, packet: &Descriptor) -> bool {
        let retained = packet.has(Flags::RETAIN);
        !packet.has(Flags::NEXT) && self.allocator.map().check(packet.address(), packet.length(), retained).is_ok()
    }

    /// Keeps whole packets of good segments, in order, and counts the others.
    #[cold]
    fn keep_good(&mut self, packets: &mut [Descriptor]) -> usize {
        let (mut kept, mut start) = (0, 0);
        while start < packets.len() {
            let rest = &packets[start..];
            let Some(last) = rest.iter().position(|segment| !segment.has(Flags::NEXT)) else {
                self.faults.chain += 1;
                break;
            };
            let mut good = true;
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
            if good {
                packets.copy_within(start..=start + last, kept);
                kept += last + 1;
            }
            start += last + 1;
        }
        kept
    }

    /// Says that the payloads of all packets polled so far have been read: gives their slots back, then recycles their
    /// buffers, in this order (a buffer recycled first would be owned twice if this side died between the two).
    #[inline(always)]
    pub fn complete_tx(&mut self, packets: &[Descriptor]) {
        self.transmit.release(&self.core);
        if self.blanks.is_some() {
            return;
        }
        for packet in packets {
            if !packet.has(Flags::RETAIN) {
                self.allocator.free(&self.core, packet.address());
            }
        }
    }

    /// Allocates a receive buffer that holds `bytes`.
    #[inline(always)]
    pub fn rx_alloc(&mut self, bytes: u64) -> Option<Address> {
        match self.blanks {
            None => self.allocator.allocate(&self.core, bytes),
            Some(_) => self.take_blank(bytes),
        }
    }

    #[inline(never)]
    fn take_blank(&mut self, bytes: u64) -> Option<Address> {
        let blanks = self.blanks.as_mut()?;
        if blanks.ready.is_empty() {
            let mut posted = [Descriptor::BLANK; 32];
            let count = blanks.ring.receive(&self.core, &mut posted, || None);
            blanks.ring.release(&self.core);
            blanks.ready.extend_from_slice(&posted[..count]);
        }
        let map = self.allocator.map();
        let blank = blanks.ready.last()?.address();
        match map.class_of(blank) {
            Some(class) if map.classes[class].size() >= bytes && blank.0.is_multiple_of(map.classes[class].size()) => {
                blanks.ready.pop();
                Some(blank)
            }
            Some(class) if map.classes[class].size() < bytes => None,
            _ => {
                blanks.ready.pop();
                self.faults.address += 1;
                None
            }
        }
    }

    /// Gives back a receive buffer that was not delivered.
    #[inline(always)]
    pub fn rx_free(&mut self, at: Address) {
        match &mut self.blanks {
            None => self.allocator.free(&self.core, at),
            Some(blanks) => blanks.ready.push(Descriptor::new(at, 1)),
        }
    }

    /// Delivers packets, as many as there is room for, and returns how many, from the front.
    #[inline(always)]
    pub fn rx_burst(&mut self, packets: &[Descriptor]) -> usize {
        if let [packet] = packets
            && self.features.inline_payload
            && usize::from(packet.length()) <= inline::INLINE_BYTES
        {
            let sent = self.receive.send_inline(&self.core, *packet);
            if sent {
                self.allocator.free(&self.core, packet.address());
            }
            return usize::from(sent);
        }
        self.receive.send(&self.core, packets)
    }

    /// How many packets [`Nic::rx_burst`] would take now, if it were given `want`; packets of one segment.
    #[inline(always)]
    pub fn rx_room(&mut self, want: usize) -> usize {
        let slots = want.div_ceil(P::PER_SLOT) as u64;
        self.receive.room(&self.core, slots) as usize * P::PER_SLOT
    }

    /// What the host did that it should not have.
    pub fn faults(&self) -> NicFaults {
        NicFaults {
            freed_twice: self.allocator.freed_twice(),
            transmit: self.transmit.faults(),
            receive: self.receive.faults(),
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
        let lost = allocator.reclaim(&core, held);
        (Nic::with_allocator(core, map, queue, allocator), lost)
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
