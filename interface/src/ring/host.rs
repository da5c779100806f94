//! The host half: a driver in the shape of the paper's Figure 5.

use conic_fabric::{Address, Core, LINE_BYTES};

use crate::work;

use super::buffers::Buffers;
use super::{DESCRIPTOR_BYTES, DONE, LENGTH_SHIFT, MORE, QueuePair, RxSignal, descriptor};

/// Sent buffers that are reclaimed at once, unless more are needed: what DPDK's drivers do by default (`tx_rs_thresh`).
const RECLAIMED: u64 = 32;

/// Stands where a TX descriptor's buffer would: its sender kept what it names. No buffer has this address.
const RETAINED: u64 = u64::MAX;

/// Descriptors of a line.
const PER_LINE: u64 = LINE_BYTES / DESCRIPTOR_BYTES;

/// A packet buffer that the host holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// Where the packet starts.
    pub address: Address,
    /// Bytes of the packet in it.
    pub length: u64,
}

/// A packet, or one segment of one, as it is put into the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub address: u64,
    pub length: u64,
    /// The packet goes on in the next one.
    pub goes_on: bool,
    /// The sender keeps it, be it a buffer or none.
    pub retained: bool,
}

/// What the host half refused or lacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStatistics {
    /// A TX head or RX tail that is no ring index, or passes what was given to the device; it is ignored.
    pub refused_registers: u64,
    /// Buffers that the device wrote back with length 0 or more than a buffer holds; they went back to the pool.
    pub refused_packets: u64,
    /// Buffers that were freed when all were free already, and addresses in no buffer that were freed, or sent and not retained; they
    /// were ignored.
    pub refused_frees: u64,
    /// Times a blank buffer was to be posted and the pool had none.
    pub pool_empty: u64,
}

/// The host half of a queue pair.
#[derive(Debug)]
pub struct Host<C> {
    core: C,
    queues: QueuePair,
    buffers: Buffers,
    /// What each TX descriptor that the device has names, in the buffer that it lies in, or [`RETAINED`].
    tx_buffers: Box<[u64]>,
    tx_tail: u64,
    /// Up to where sent packets were reclaimed.
    tx_reclaimed: u64,
    /// The buffer of each RX descriptor that was posted.
    rx_buffers: Box<[u64]>,
    rx_head: u64,
    /// Up to where the device is known to have received.
    rx_tail: u64,
    /// The next descriptor to receive from.
    rx_next: u64,
    statistics: HostStatistics,
}

impl<C: Core> Host<C> {
    pub(super) fn new(queues: QueuePair, core: C) -> Host<C> {
        let shape = queues.shape;
        let none = || (0..shape.descriptors).map(|_| 0).collect::<Box<[u64]>>();
        let mut host = Host {
            core,
            queues,
            buffers: Buffers::full(&shape, queues.buffers),
            tx_buffers: none(),
            tx_tail: 0,
            tx_reclaimed: 0,
            rx_buffers: none(),
            rx_head: 0,
            rx_tail: 0,
            rx_next: 0,
            statistics: HostStatistics::default(),
        };
        host.refill();
        host
    }

    /// Takes buffers from the pool, with length 0; returns how many of `into` were filled. Reclaims sent ones if the
    /// pool runs dry.
    #[inline]
    pub fn buf_alloc(&mut self, into: &mut [Buffer]) -> usize {
        if self.buffers.len() < into.len() {
            self.reclaim_buffers(into.len() - self.buffers.len());
        }
        self.core.work(work::CALL + work::BUFFER * into.len() as u32);
        for (count, buffer) in into.iter_mut().enumerate() {
            let Some(address) = self.buffers.allocate(&self.core) else { return count };
            *buffer = Buffer { address: Address(address), length: 0 };
        }
        into.len()
    }

    /// Returns buffers to the pool, each by an address anywhere in it. The caller must hold them: they came from [`Host::buf_alloc`] or
    /// [`Host::rx_burst`] and were not sent.
    #[inline]
    pub fn buf_free(&mut self, buffers: &[Buffer]) {
        for buffer in buffers {
            self.buffers.free_buffer_of(&self.core, buffer.address.0);
        }
    }

    /// Gives packets to the device, as many as it has descriptors for, and returns how many. Those belong to the device
    /// and return to the pool by themselves; the others are still the caller's.
    #[inline]
    pub fn tx_burst(&mut self, packets: &[Buffer]) -> usize {
        self.send(packets, |packet| Segment {
            address: packet.address.0,
            length: packet.length,
            goes_on: false,
            retained: false,
        })
    }

    /// Gives segments to the device, as many whole packets as it has descriptors for, and returns how many segments. What is retained
    /// stays the caller's; the rest belongs to the device and returns to the pool by itself.
    #[inline(always)]
    pub(super) fn send<P>(&mut self, packets: &[P], segment: impl Fn(&P) -> Segment) -> usize {
        let mask = self.queues.mask();
        let wanted = packets.len() as u64;
        let threshold = self.queues.shape.tx_reclaim_threshold.min(mask / 2);
        let free = mask - self.tx_outstanding();
        if free < wanted.max(threshold) {
            self.reclaim_up_to(RECLAIMED.max(wanted.saturating_sub(free)));
        }
        let mut packets = &packets[..wanted.min(mask - self.tx_outstanding()) as usize];
        // The device is told of whole packets only.
        while let Some((last, before)) = packets.split_last()
            && segment(last).goes_on
        {
            packets = before;
        }
        let count = packets.len();
        if count == 0 {
            return 0;
        }
        self.core.work(work::CALL + (work::DESCRIPTOR + work::RECORD) * count as u32);
        let ring = self.queues.tx_ring;
        let mut tail = self.tx_tail;
        for packet in packets {
            let Segment { address, length, goes_on, retained } = segment(packet);
            let at = descriptor(ring, tail);
            self.core.store(at, address);
            self.core.store(at.word(1), if goes_on { length | MORE } else { length });
            if !retained {
                self.buffers.describe(&self.core, address, length);
            }
            self.tx_buffers[tail as usize] = if retained { RETAINED } else { address };
            tail = (tail + 1) & mask;
        }
        self.tx_tail = tail;
        // Release: payloads and descriptors before the index that announces them, for the device's read of the tail.
        self.core.register_write(self.queues.tx_tail, tail);
        count
    }

    /// Takes received packets; returns how many of `into` were filled. They belong to the caller until it frees or sends
    /// them. Posts blank buffers first, where enough are missing: no packet that has come waits for what the next ones need (as DPDK's
    /// vector drivers do it). Only where the device has few left, it posts them at the end as well: the caller may wait now.
    #[inline]
    pub fn rx_burst(&mut self, into: &mut [Buffer]) -> usize {
        let mask = self.queues.mask();
        let threshold = self.queues.shape.rx_refill_threshold.clamp(1, mask);
        if self.rx_missing() >= threshold {
            self.refill();
        }
        let signal = self.queues.shape.rx_signal;
        let mut known = self.rx_tail.wrapping_sub(self.rx_next) & mask;
        if signal == RxSignal::Register && known < into.len() as u64 {
            known = self.poll_rx_tail(known);
        }
        let mut next = self.rx_next;
        let mut count = 0;
        while count < into.len() {
            let at = descriptor(self.queues.rx_ring, next);
            let word = match signal {
                RxSignal::Register if known == 0 => break,
                RxSignal::Register => {
                    // The register has told how many there are: the next line's load depends on nothing in this one.
                    if known > PER_LINE && at.is_line_aligned() {
                        self.core.will_read(at.lines(1), PER_LINE as u32 * (work::DESCRIPTOR + work::RECORD));
                    }
                    self.core.load(at)
                }
                RxSignal::DescriptorDone if next == self.rx_head => break,
                // Acquire: the device's writes of the payload before this side reads it.
                RxSignal::DescriptorDone => self.core.load_acquire(at),
            };
            if signal == RxSignal::DescriptorDone && word & DONE == 0 {
                break;
            }
            let address = self.rx_buffers[next as usize];
            next = (next + 1) & mask;
            known = known.wrapping_sub(1);
            let length = word >> LENGTH_SHIFT;
            if word & DONE == 0 || length == 0 || length > self.queues.shape.room() {
                self.statistics.refused_packets += 1;
                self.buffers.free(&self.core, address);
                continue;
            }
            if self.queues.shape.fetch_ahead {
                self.core.prefetch_read(Address(address));
            }
            self.buffers.describe(&self.core, address, length);
            into[count] = Buffer { address: Address(address), length };
            count += 1;
        }
        self.core.work(work::CALL + (work::DESCRIPTOR + work::RECORD) * count as u32);
        self.rx_next = next;
        if self.rx_missing() >= threshold.max(mask.div_ceil(2)) {
            self.refill();
        }
        count
    }

    /// Asks the device how far it has received; returns how many packets wait, `known` if the answer cannot be.
    fn poll_rx_tail(&mut self, known: u64) -> u64 {
        let mask = self.queues.mask();
        // Acquire: the device's writes of payloads and descriptors before this side reads them.
        let tail = self.core.register_read(self.queues.rx_tail);
        let waiting = tail.wrapping_sub(self.rx_next) & mask;
        let posted = self.rx_head.wrapping_sub(self.rx_next) & mask;
        if tail > mask || waiting > posted || waiting < known {
            self.statistics.refused_registers += 1;
            return known;
        }
        self.rx_tail = tail;
        waiting
    }

    /// Returns the buffers of packets that the device has sent to the pool, all of them; returns how many.
    pub fn reclaim(&mut self) -> usize {
        let (_, buffers) = self.reclaim_up_to(self.queues.mask());
        buffers
    }

    /// The same for as many as are missing: batch by batch, as what was retained lies between them and gives none.
    fn reclaim_buffers(&mut self, mut missing: usize) {
        loop {
            let most = RECLAIMED.max(missing as u64);
            let (descriptors, buffers) = self.reclaim_up_to(most);
            missing = missing.saturating_sub(buffers);
            if missing == 0 || descriptors < most {
                return;
            }
        }
    }

    /// The same for so many descriptors at most; returns how many of these there were, and how many buffers they had.
    fn reclaim_up_to(&mut self, most: u64) -> (u64, usize) {
        let mask = self.queues.mask();
        // Acquire: the device's reads of payloads and descriptors before this side overwrites them.
        let head = self.core.register_read(self.queues.tx_head);
        let sent = head.wrapping_sub(self.tx_reclaimed) & mask;
        if head > mask || sent > self.tx_outstanding() {
            self.statistics.refused_registers += 1;
            return (0, 0);
        }
        let sent = sent.min(most);
        self.core.work(work::CALL + work::RECORD * sent as u32);
        let (mut index, before) = (self.tx_reclaimed, self.buffers.len());
        for _ in 0..sent {
            let address = self.tx_buffers[index as usize];
            if address != RETAINED {
                self.buffers.free_buffer_of(&self.core, address);
            }
            index = (index + 1) & mask;
        }
        self.tx_reclaimed = index;
        (sent, self.buffers.len() - before)
    }

    /// Posts blank buffers until the ring is full or the pool empty.
    fn refill(&mut self) {
        let mask = self.queues.mask();
        let missing = self.rx_missing();
        if (self.buffers.len() as u64) < missing {
            self.reclaim_buffers(missing as usize - self.buffers.len());
        }
        self.core.work(work::CALL + (work::BUFFER + work::DESCRIPTOR + work::RECORD) * missing as u32);
        let mut head = self.rx_head;
        for _ in 0..missing {
            let Some(address) = self.buffers.post(&self.core) else { break };
            let at = descriptor(self.queues.rx_ring, head);
            self.core.store(at.word(1), 0);
            match self.queues.shape.rx_signal {
                RxSignal::Register => self.core.store(at, address),
                // The word synchronises because the device writes its done bit; the RX head announces this store.
                RxSignal::DescriptorDone => self.core.store_release(at, address),
            }
            self.rx_buffers[head as usize] = address;
            head = (head + 1) & mask;
        }
        if head != self.rx_head {
            self.rx_head = head;
            // Release: descriptors, and this side's last reads of the buffers, before the device writes either.
            self.core.register_write(self.queues.rx_head, head);
        }
    }

    /// TX descriptors that the device has or whose packets were not reclaimed.
    #[inline(always)]
    fn tx_outstanding(&self) -> u64 {
        self.tx_tail.wrapping_sub(self.tx_reclaimed) & self.queues.mask()
    }

    /// RX descriptors without a posted buffer.
    #[inline(always)]
    fn rx_missing(&self) -> u64 {
        let mask = self.queues.mask();
        mask - (self.rx_head.wrapping_sub(self.rx_next) & mask)
    }

    /// Writes a packet into a buffer and sets its length.
    ///
    /// # Panics
    ///
    /// If the packet is larger than a buffer.
    #[inline]
    pub fn write_packet(&self, buffer: &mut Buffer, bytes: &[u8]) {
        assert!(bytes.len() as u64 <= self.queues.shape.room(), "a packet of {} bytes", bytes.len());
        self.core.write_bytes(buffer.address, bytes);
        buffer.length = bytes.len() as u64;
    }

    /// Reads a packet, or its first bytes if `into` is shorter, and returns them. The misses overlap.
    #[inline]
    pub fn read_packet<'bytes>(&self, buffer: &Buffer, into: &'bytes mut [u8]) -> &'bytes mut [u8] {
        let length = (buffer.length as usize).min(into.len());
        let bytes = &mut into[..length];
        for offset in (LINE_BYTES..bytes.len() as u64).step_by(LINE_BYTES as usize) {
            self.core.prefetch_read(buffer.address + offset);
        }
        self.core.read_bytes(buffer.address, bytes);
        bytes
    }

    /// Bytes of the largest packet.
    #[inline(always)]
    pub fn buffer_bytes(&self) -> u64 {
        self.queues.shape.room()
    }

    /// Bytes from an address to the end of the buffer that it lies in; none where it lies in none.
    #[inline(always)]
    pub(super) fn bytes_to_end(&self, at: Address) -> u64 {
        self.buffers.bytes_to_end(at)
    }

    /// How many buffers are in the pool.
    pub fn free_buffers(&self) -> usize {
        self.buffers.len()
    }

    /// How many buffers the device has: posted, or sent and not reclaimed. Those, the free ones and the caller's are all, and what is
    /// retained is the caller's.
    pub fn device_buffers(&self) -> usize {
        let sent = (0..self.tx_outstanding()).map(|after| (self.tx_reclaimed + after) & self.queues.mask());
        let given = sent.filter(|&index| self.tx_buffers[index as usize] != RETAINED).count();
        (self.queues.mask() - self.rx_missing()) as usize + given
    }

    /// What was refused or lacking.
    pub fn statistics(&self) -> HostStatistics {
        HostStatistics { refused_frees: self.buffers.refused, pool_empty: self.buffers.lacked, ..self.statistics }
    }

    /// The core that it runs on.
    pub fn core(&self) -> &C {
        &self.core
    }
}
