//! The device half.

use conic_fabric::{Address, Device, LINE_BYTES, ReadTag, StateHint};

use crate::work;

use super::segments::{Chain, Refused, Verdict, segment_of};
use super::{DESCRIPTOR_BYTES, DONE, LENGTH_SHIFT, QueuePair, RxSignal, descriptor};

/// Descriptors that are fetched at once: eight lines.
const BATCH: usize = 32;

/// How the device reads what the host wrote.
const READ: StateHint = StateHint::NonCacheable;

/// There is no blank buffer for a packet; it may be offered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoBuffer;

/// What of the host's the device half refused, by reason. Each counts where it was read, so a register that stays wrong
/// counts at each look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// A TX tail that is no ring index.
    pub tx_tail: u64,
    /// An RX head that is no ring index.
    pub rx_head: u64,
    /// A TX descriptor with a length of 0, above what may be where it lies, or with reserved bits set; a packet that is too long, that
    /// has too many segments, or that lacks its last one.
    pub tx_length: u64,
    /// A TX descriptor whose bytes are not all within the buffers, nor all within the program's objects.
    pub tx_address: u64,
    /// An RX descriptor whose buffer is not wholly within the buffers.
    pub rx_address: u64,
    /// A received packet that was empty or larger than a buffer; it was dropped. Not the host's fault.
    pub rx_length: u64,
}

impl Refusals {
    /// How often the host did wrong.
    pub fn by_host(&self) -> u64 {
        self.tx_tail + self.rx_head + self.tx_length + self.tx_address + self.rx_address
    }

    /// Counts a packet that is not sent.
    fn count_tx(&mut self, refused: Refused) {
        match refused {
            Refused::Length => self.tx_length += 1,
            Refused::Address => self.tx_address += 1,
        }
    }
}

/// What a slot holds of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// All of it.
    #[default]
    Whole,
    /// A segment that others follow.
    GoesOn,
    /// The last segment, or all of a packet from the objects.
    Last,
}

/// A packet, a segment of one, or a blank buffer that was read from a descriptor.
#[derive(Debug, Default)]
struct Slot {
    address: u64,
    length: u64,
    /// A ring has at most 2^16 descriptors.
    index: u32,
    part: Part,
    /// The read of the payload, once it has started.
    payload: Option<ReadTag>,
}

/// One ring as the device sees it.
#[derive(Debug)]
struct Ring {
    ring: Address,
    register: Address,
    mask: u64,
    /// Whether word 0 of a descriptor synchronises. The seam then has it read as such, one at a time; word 1 says nothing.
    by_word: bool,
    /// The host's register, as last read.
    announced: u64,
    /// The next descriptor to ask for.
    fetched: u64,
    /// The read of descriptors in flight (none where they are read word by word), the first one's index, and how many.
    fetch: Option<(Option<ReadTag>, u64, usize)>,
    /// What the last fetch brought, `taken..count` of it not yet used.
    slots: [Slot; BATCH],
    taken: usize,
    count: usize,
    /// Where the next batch starts: all before it is done with when the slots are used up.
    batch_end: u64,
    words: [u8; BATCH * DESCRIPTOR_BYTES as usize],
}

impl Ring {
    fn new(ring: Address, register: Address, mask: u64, by_word: bool) -> Ring {
        Ring {
            ring,
            register,
            mask,
            by_word,
            announced: 0,
            fetched: 0,
            fetch: None,
            slots: std::array::from_fn(|_| Slot::default()),
            taken: 0,
            count: 0,
            batch_end: 0,
            words: [0; BATCH * DESCRIPTOR_BYTES as usize],
        }
    }

    #[inline(always)]
    fn waiting(&self) -> usize {
        self.count - self.taken
    }

    /// Asks for the next descriptors, if the host announced any; counts a register that is no index in `refused`.
    #[inline]
    fn start_fetch(&mut self, device: &impl Device, refused: &mut u64) {
        let mask = self.mask;
        if self.announced == self.fetched {
            // Acquire (natively): the host's writes of descriptors and payloads, and its last reads of blank buffers,
            // before this side reads and writes them.
            let announced = device.own_register(self.register);
            if announced > mask {
                *refused += 1;
                return;
            }
            self.announced = announced;
        }
        let first = self.fetched;
        let to_end = mask + 1 - first;
        let count = (self.announced.wrapping_sub(first) & mask).min(to_end).min(BATCH as u64);
        if count == 0 {
            return;
        }
        let at = descriptor(self.ring, first);
        let tag = (!self.by_word).then(|| device.start_read(at, count * DESCRIPTOR_BYTES, READ));
        self.fetch = Some((tag, first, count as usize));
        self.fetched = (first + count) & mask;
    }

    /// Takes descriptors that have arrived: how many, and the first one's index. Call when no slot waits.
    #[inline]
    fn finish_fetch(&mut self, device: &impl Device) -> Option<(u64, usize)> {
        let (tag, first, count) = self.fetch.take()?;
        match tag {
            Some(tag) if !device.is_ready(&tag) => {
                self.fetch = Some((Some(tag), first, count));
                return None;
            }
            Some(tag) => {
                let at = descriptor(self.ring, first);
                let bytes = &mut self.words[..count * DESCRIPTOR_BYTES as usize];
                device.finish_read(tag, at, bytes);
                // Payloads' addresses stand in all of them, and they need not come in order.
                let end = at + bytes.len() as u64;
                for line in 0..(end.0 - at.line().0).div_ceil(LINE_BYTES) {
                    device.depends_on(at.line().lines(line));
                }
            }
            None => {
                for (position, bytes) in self.words.chunks_exact_mut(DESCRIPTOR_BYTES as usize).take(count).enumerate()
                {
                    let word = device.read_word(descriptor(self.ring, first + position as u64), READ);
                    bytes[..8].copy_from_slice(&word.to_ne_bytes());
                }
            }
        }
        self.taken = 0;
        self.count = 0;
        self.batch_end = (first + count as u64) & self.mask;
        Some((first, count))
    }

    /// The two words of a fetched descriptor.
    #[inline(always)]
    fn fetched_words(&self, position: usize) -> (u64, u64) {
        let bytes = &self.words[position * DESCRIPTOR_BYTES as usize..][..DESCRIPTOR_BYTES as usize];
        let word = |half: &[u8]| u64::from_ne_bytes(half.try_into().expect("eight bytes"));
        (word(&bytes[..8]), word(&bytes[8..]))
    }

    #[inline(always)]
    fn push(&mut self, index: u64, address: u64, length: u64, part: Part) {
        let slot = &mut self.slots[self.count];
        slot.address = address;
        slot.length = length;
        slot.index = index as u32;
        slot.part = part;
        slot.payload = None;
        self.count += 1;
    }

    /// The ring index behind another.
    #[inline(always)]
    fn after(&self, index: u32) -> u64 {
        (u64::from(index) + 1) & self.mask
    }
}

/// The device half of a queue pair.
#[derive(Debug)]
pub struct Nic<D> {
    device: D,
    queues: QueuePair,
    tx: Ring,
    /// Slots of the TX batch whose payload was asked for, and the bytes of those not yet taken.
    asked: usize,
    asked_bytes: u64,
    /// The packet that the last descriptor of the TX batch belongs to, and the slot where its segments start, if that is in this batch.
    chain: Chain,
    chain_slot: usize,
    /// Bytes that were taken of a packet of several segments.
    gathered: usize,
    /// Up to where packets were sent, and what the TX head says.
    tx_sent: u64,
    tx_head: u64,
    rx: Ring,
    /// Up to where packets were received, and what the RX tail says.
    rx_received: u64,
    rx_tail: u64,
    refusals: Refusals,
}

impl<D: Device> Nic<D> {
    pub(super) fn new(queues: QueuePair, device: D) -> Nic<D> {
        let mask = queues.mask();
        let rx_by_word = queues.shape.rx_signal == RxSignal::DescriptorDone;
        Nic {
            device,
            queues,
            tx: Ring::new(queues.tx_ring, queues.tx_tail, mask, false),
            asked: 0,
            asked_bytes: 0,
            chain: Chain::default(),
            chain_slot: 0,
            gathered: 0,
            tx_sent: 0,
            tx_head: 0,
            rx: Ring::new(queues.rx_ring, queues.rx_head, mask, rx_by_word),
            rx_received: 0,
            rx_tail: 0,
            refusals: Refusals::default(),
        }
    }

    /// Looks for packets to send and asks for their payloads; returns how many may be taken now, a packet of several segments
    /// counted as so many.
    #[inline]
    pub fn poll_tx(&mut self) -> usize {
        // As many batches as a ring has, of which two are cut off by its end, so that a host whose packets are all refused does not keep
        // the device here.
        for _ in 0..self.tx.mask / BATCH as u64 + 2 {
            if self.tx.waiting() != 0 || !self.next_tx_batch() {
                break;
            }
        }
        self.tx.waiting()
    }

    /// Takes a batch of TX descriptors if one has come, and returns whether.
    #[inline]
    fn next_tx_batch(&mut self) -> bool {
        if self.tx.fetch.is_none() {
            self.tx.start_fetch(&self.device, &mut self.refusals.tx_tail);
        }
        let Some((first, count)) = self.tx.finish_fetch(&self.device) else { return false };
        self.device.work(work::CALL + work::DESCRIPTOR * count as u32);
        self.chain_slot = 0;
        let (mut open, sources) = (self.chain.is_open(), self.queues.sources());
        for position in 0..count {
            let (address, word) = self.tx.fetched_words(position);
            let index = first + position as u64;
            // A word with the goes-on bit is no length that a buffer has.
            if !open && sources.is_in_buffers(address, word) {
                self.tx.push(index, address, word, Part::Whole);
                continue;
            }
            self.add_segment(index, address, word);
            open = self.chain.is_open();
        }
        if open && self.tx.batch_end == self.tx.announced {
            self.break_off();
        }
        self.asked = 0;
        self.asked_bytes = 0;
        self.ask_ahead();
        // The next descriptors travel while the payloads do.
        self.tx.start_fetch(&self.device, &mut self.refusals.tx_tail);
        if self.tx.count == 0 {
            self.tx_sent = self.tx.batch_end;
        }
        true
    }

    /// Takes the next descriptor, one of a packet that has several, or that is refused or lies in the objects.
    #[inline(never)]
    fn add_segment(&mut self, index: u64, address: u64, word: u64) {
        if !self.chain.is_open() {
            self.chain_slot = self.tx.count;
        }
        let (length, _) = segment_of(word);
        match self.chain.look(&self.queues, address, word) {
            Verdict::GoesOn => self.tx.push(index, address, length, Part::GoesOn),
            Verdict::Whole => self.tx.push(index, address, length, Part::Last),
            Verdict::Refused(refused) => {
                self.refusals.count_tx(refused);
                self.forget_segments();
            }
            Verdict::Skipped => {}
        }
    }

    /// Ends a packet that was to go on where nothing more was announced.
    #[cold]
    fn break_off(&mut self) {
        if self.chain.break_off() {
            self.refusals.count_tx(Refused::Length);
            self.forget_segments();
        }
    }

    /// Forgets the segments of the packet whose descriptors are being looked at. Those of this batch were not asked for yet, and
    /// those of others were taken.
    fn forget_segments(&mut self) {
        self.tx.count = self.chain_slot;
        // Before the first slot there is no other packet whose bytes these could be.
        if self.chain_slot == 0 {
            self.gathered = 0;
        }
    }

    /// Asks for payloads, at least the next one's, until enough bytes are on their way.
    #[inline]
    fn ask_ahead(&mut self) {
        let budget = self.queues.shape.read_ahead_bytes;
        while self.asked < self.tx.count && (self.asked == self.tx.taken || self.asked_bytes < budget) {
            let slot = &mut self.tx.slots[self.asked];
            slot.payload = Some(self.device.start_read(Address(slot.address), slot.length, READ));
            self.asked_bytes += slot.length;
            self.asked += 1;
        }
    }

    /// The length of the packet that [`Nic::take_tx`] would take; none where that would take none.
    #[inline]
    pub fn next_tx_length(&self) -> Option<usize> {
        let slots = &self.tx.slots[self.tx.taken..self.tx.count];
        let first = slots.first()?;
        if first.part == Part::Whole {
            return Some(first.length as usize);
        }
        let last = slots.iter().position(|slot| slot.part == Part::Last)?;
        Some(self.gathered + slots[..=last].iter().map(|slot| slot.length as usize).sum::<usize>())
    }

    /// Takes the payload of the next packet to send into the front of `into`; returns its length, or nothing where
    /// [`Nic::poll_tx`] must be asked first. The packet counts as sent from the next [`Nic::flush`] on.
    ///
    /// Of a packet of several segments the last ones may stand in descriptors that were not fetched yet. The first ones are in `into`
    /// then, and nothing is returned: the next call must come with the same `into`, unchanged.
    ///
    /// # Panics
    ///
    /// If `into` is shorter than the packet ([`super::Shape::longest_packet`] is always enough).
    #[inline]
    pub fn take_tx(&mut self, into: &mut [u8]) -> Option<usize> {
        if self.tx.taken == self.tx.count {
            return None;
        }
        let slot = &mut self.tx.slots[self.tx.taken];
        if slot.part != Part::Whole {
            return self.take_segments(into);
        }
        let tag = slot.payload.take()?;
        let (index, address, length) = (slot.index, slot.address, slot.length);
        self.device.finish_read(tag, Address(address), &mut into[..length as usize]);
        self.took(index, length);
        Some(length as usize)
    }

    /// Takes the segments that are there of a packet of several; its length, if that was all of it. Cold, so that packets of one segment
    /// keep their registers: five instructions fewer each.
    #[cold]
    #[inline(never)]
    fn take_segments(&mut self, into: &mut [u8]) -> Option<usize> {
        while self.tx.taken < self.tx.count {
            let slot = &mut self.tx.slots[self.tx.taken];
            let tag = slot.payload.take()?;
            let (index, address, length, part) = (slot.index, slot.address, slot.length, slot.part);
            let end = self.gathered + length as usize;
            self.device.finish_read(tag, Address(address), &mut into[self.gathered..end]);
            self.took(index, length);
            self.gathered = end;
            if part == Part::Last {
                return Some(std::mem::take(&mut self.gathered));
            }
        }
        None
    }

    /// Goes on behind a slot whose payload was read.
    #[inline(always)]
    fn took(&mut self, index: u32, length: u64) {
        self.tx.taken += 1;
        self.asked_bytes -= length;
        self.ask_ahead();
        let last = self.tx.taken == self.tx.count;
        self.tx_sent = if last { self.tx.batch_end } else { self.tx.after(index) };
    }

    /// Looks for blank buffers; returns how many packets may be pushed now.
    #[inline]
    pub fn poll_rx(&mut self) -> usize {
        if self.rx.waiting() != 0 {
            return self.rx.waiting();
        }
        if self.rx.fetch.is_none() {
            self.rx.start_fetch(&self.device, &mut self.refusals.rx_head);
        }
        let Some((first, count)) = self.rx.finish_fetch(&self.device) else { return 0 };
        self.device.work(work::CALL + work::DESCRIPTOR * count as u32);
        for position in 0..count {
            let (address, _) = self.rx.fetched_words(position);
            let end = self.queues.buffers_end();
            let bytes = self.queues.shape.room();
            let inside = address >= self.queues.first_payload() && address < end && bytes <= end - address;
            // Length 0 marks a buffer that must be written back as refused when its turn comes.
            self.rx.push(first + position as u64, address, if inside { bytes } else { 0 }, Part::Whole);
        }
        self.rx.start_fetch(&self.device, &mut self.refusals.rx_head);
        self.rx.waiting()
    }

    /// Writes a received packet into the next posted buffer. The host sees it from the next [`Nic::flush`] on (with
    /// [`RxSignal::DescriptorDone`], at once). An empty or oversized packet is counted and dropped.
    ///
    /// # Errors
    ///
    /// If no buffer is there now; the packet may be offered again after [`Nic::poll_rx`].
    #[inline]
    pub fn rx_push(&mut self, packet: &[u8]) -> Result<(), NoBuffer> {
        let length = packet.len() as u64;
        if length == 0 || length > self.queues.shape.room() {
            self.refusals.rx_length += 1;
            return Ok(());
        }
        // Bounded, so that a host that posts bad buffers without end does not keep the device here.
        for _ in 0..self.queues.shape.descriptors {
            if self.poll_rx() == 0 {
                break;
            }
            let slot = &self.rx.slots[self.rx.taken];
            let (index, address, room) = (u64::from(slot.index), slot.address, slot.length);
            self.rx_received = self.rx.after(slot.index);
            self.rx.taken += 1;
            if room == 0 {
                self.refusals.rx_address += 1;
                self.write_back(index, 0);
                continue;
            }
            self.device.write(Address(address), packet, self.queues.shape.payload_hint);
            self.write_back(index, length);
            return Ok(());
        }
        Err(NoBuffer)
    }

    /// Overwrites an RX descriptor.
    #[inline(always)]
    fn write_back(&self, index: u64, length: u64) {
        let at = descriptor(self.queues.rx_ring, index);
        let word = DONE | length << LENGTH_SHIFT;
        let hint = self.queues.shape.payload_hint;
        match self.queues.shape.rx_signal {
            RxSignal::Register => self.device.write(at, &word.to_ne_bytes(), hint),
            // After every write before it, so the payload is visible to a host that sees the done bit.
            RxSignal::DescriptorDone => self.device.write_word(at, word, hint),
        }
    }

    /// Moves the registers that the host reads: packets received, then packets sent. Returns whether any moved. Call it
    /// once a burst.
    #[inline]
    pub fn flush(&mut self) -> bool {
        let hint = StateHint::NonCacheablePush;
        let mut moved = false;
        if self.rx_tail != self.rx_received {
            self.rx_tail = self.rx_received;
            // Release (natively): payloads and written-back descriptors before it, for the host's read of the tail.
            self.device.write_word(self.queues.rx_tail, self.rx_tail, hint);
            moved = true;
        }
        if self.tx_head != self.tx_sent {
            self.tx_head = self.tx_sent;
            // Release (natively): the reads of payloads and descriptors before the host overwrites them.
            self.device.write_word(self.queues.tx_head, self.tx_head, hint);
            moved = true;
        }
        moved
    }

    /// How many TX descriptors it is done with, and has not told the host of: [`Nic::flush`] does.
    pub fn unreported(&self) -> u64 {
        self.tx_sent.wrapping_sub(self.tx_head) & self.queues.mask()
    }

    /// What was refused.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// The device that it runs on.
    pub fn device(&self) -> &D {
        &self.device
    }
}
