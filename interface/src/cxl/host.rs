//! The host's half: bursts without copies, the same over CXL and over PCIe.

use conic_fabric::{Address, Core, LINE_BYTES, Line};

use super::entry::{self, State};
use super::{MOST_IN_A_BATCH, Queues, Signal};
use crate::burst::{HostQueue, Packet};
use crate::work;

/// How the host writes a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Store {
    /// Through its caches.
    Cached,
    /// Past them, whole lines to memory.
    Nontemporal,
}

/// Receive descriptors that are asked for once one of them was found completed, before they are looked at. They are in the host's
/// own cache until the device writes them, so asking for one too early costs nothing.
const LOOK_AHEAD: u64 = 8;

/// What the host's half refused or lacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStatistics {
    /// Completions that speak for more packets than can be.
    pub refused_batches: u64,
    /// Packets of no bytes, or of more than a buffer has.
    pub refused_packets: u64,
    /// Buffers that were freed and are none.
    pub refused_frees: u64,
}

/// The host's half of a queue pair.
#[derive(Debug)]
pub struct Host<C> {
    core: C,
    queues: Queues,
    signal: Signal,
    rx_free: Vec<Address>,
    tx_free: Vec<Address>,
    /// The buffer of each descriptor that the device has.
    rx_posted: Box<[Address]>,
    tx_posted: Box<[Address]>,
    /// The next position to receive from, and to post.
    rx_next: u64,
    rx_end: u64,
    /// Up to which position descriptors have been asked for ahead.
    rx_asked: u64,
    /// The line that completes the packets from `rx_next` on, and which of them is next.
    batch: Option<(Line, usize)>,
    /// The next position to reclaim, and to post.
    tx_next: u64,
    tx_end: u64,
    statistics: HostStatistics,
}

impl<C: Core> Host<C> {
    /// The host's half, which posts all receive descriptors.
    pub fn new(queues: Queues, core: C, signal: Signal) -> Host<C> {
        let shape = queues.shape;
        let buffers = |start: Address| (0..shape.buffers).rev().map(move |index| start + index * shape.buffer_bytes);
        let none = || (0..shape.descriptors).map(|_| Address(0)).collect::<Box<[Address]>>();
        let mut host = Host {
            core,
            queues,
            signal,
            rx_free: buffers(queues.rx_buffers).collect(),
            tx_free: buffers(queues.tx_buffers).collect(),
            rx_posted: none(),
            tx_posted: none(),
            rx_next: 0,
            rx_end: 0,
            rx_asked: 0,
            batch: None,
            tx_next: 0,
            tx_end: 0,
            statistics: HostStatistics::default(),
        };
        host.refill();
        host
    }

    /// What was refused.
    pub fn statistics(&self) -> HostStatistics {
        self.statistics
    }

    /// Writes a packet's bytes into a buffer, whole lines where they go past the caches.
    pub fn write_packet(&self, at: Address, bytes: &[u8], store: Store) {
        match store {
            Store::Cached => self.core.write_bytes(at, bytes),
            Store::Nontemporal => {
                let lines = bytes.chunks(LINE_BYTES as usize).map(|chunk| {
                    let mut line = [0; LINE_BYTES as usize];
                    line[..chunk.len()].copy_from_slice(chunk);
                    Line::from_bytes(&line)
                });
                self.core.write_nontemporal(at, &lines.collect::<Vec<Line>>());
                // The descriptor, an ordinary store, may not pass the packet.
                self.core.fence();
            }
        }
    }

    fn slot(&self, position: u64) -> usize {
        (position & (self.queues.shape.descriptors - 1)) as usize
    }

    /// Posts blank buffers, so many at once: fewer only where the device may have none left.
    fn refill(&mut self) {
        let shape = self.queues.shape;
        loop {
            let places = shape.descriptors - (self.rx_end - self.rx_next);
            let least = if places == shape.descriptors { 1 } else { shape.posted_at_once() };
            let count = places.min(shape.posted_at_once()).min(self.rx_free.len() as u64);
            if count < least {
                return;
            }
            for buffer in self.rx_free.split_off(self.rx_free.len() - count as usize).into_iter().rev() {
                self.post(buffer);
            }
            if self.signal == Signal::Doorbell {
                // Release: the descriptors before their number.
                self.core.register_write(self.queues.rx_doorbell, self.rx_end);
            }
        }
    }

    fn post(&mut self, buffer: Address) {
        let (position, slot) = (self.rx_end, self.slot(self.rx_end));
        self.rx_posted[slot] = buffer;
        let at = self.queues.descriptor(self.queues.rx_ring, position);
        self.core.work(work::DESCRIPTOR);
        self.core.publish_line(at, &entry::posted(position, buffer));
        self.rx_end += 1;
    }

    /// Takes the buffers of the packets back that the next report is of, if it is there: one line speaks for all of them.
    fn reclaim(&mut self) {
        let last = self.queues.shape.report_from(self.tx_next);
        if last >= self.tx_end {
            return;
        }
        // Acquire: the device has read the packets before it said so.
        let word = self.core.load_acquire(self.queues.descriptor(self.queues.tx_ring, last));
        if !entry::is(word, last, State::Done) {
            return;
        }
        while self.tx_next <= last {
            let buffer = self.tx_posted[self.slot(self.tx_next)];
            self.give_back(buffer);
            self.tx_next += 1;
        }
    }

    fn give_back(&mut self, buffer: Address) {
        if self.queues.is_buffer(self.queues.tx_buffers, buffer.0) {
            self.tx_free.push(buffer);
        } else if self.queues.is_buffer(self.queues.rx_buffers, buffer.0) {
            self.rx_free.push(buffer);
        } else {
            self.statistics.refused_frees += 1;
        }
    }

    /// The next received packet, if there is one.
    fn next_received(&mut self) -> Option<Packet> {
        loop {
            let (line, index) = match self.batch.take() {
                Some(batch) => batch,
                None => {
                    let position = self.rx_next;
                    if position == self.rx_end {
                        return None;
                    }
                    let at = self.queues.descriptor(self.queues.rx_ring, position);
                    // Acquire: the device has written the packets before it said so.
                    let word = self.core.load_acquire(at);
                    if !entry::is(word, position, State::Done) {
                        return None;
                    }
                    let count = entry::count(word);
                    if count == 0 || count > MOST_IN_A_BATCH || count as u64 > self.rx_end - position {
                        self.statistics.refused_batches += 1;
                        return None;
                    }
                    self.ask_ahead(position + count as u64);
                    let mut line = if count == 1 { Line::ZERO } else { self.core.read_line(at) };
                    // What was checked counts, whatever the device makes of it meanwhile.
                    line.0[0] = word;
                    (line, 0)
                }
            };
            let length = entry::length_of(&line, index);
            let buffer = self.rx_posted[self.slot(self.rx_next)];
            self.rx_next += 1;
            if index + 1 < entry::count(line.0[0]) {
                self.batch = Some((line, index + 1));
            }
            if length == 0 || u64::from(length) > self.queues.shape.buffer_bytes {
                self.statistics.refused_packets += 1;
                self.rx_free.push(buffer);
                continue;
            }
            // As DPDK's drivers do: the packets of a burst come side by side.
            self.core.prefetch_read(buffer);
            return Some(Packet::new(buffer, length));
        }
    }

    /// Asks for the descriptors from a position on, so that those that are completed as well come side by side.
    fn ask_ahead(&mut self, position: u64) {
        self.rx_asked = self.rx_asked.max(position);
        while self.rx_asked < self.rx_end.min(position + LOOK_AHEAD) {
            self.core.prefetch_read(self.queues.descriptor(self.queues.rx_ring, self.rx_asked));
            self.rx_asked += 1;
        }
    }
}

impl<C: Core> HostQueue for Host<C> {
    type Core = C;

    fn core(&self) -> &C {
        &self.core
    }

    /// Buffers to transmit from.
    fn buf_alloc(&mut self, bytes: u64, out: &mut [Address]) -> usize {
        if bytes > self.queues.shape.buffer_bytes {
            return 0;
        }
        if self.tx_free.len() < out.len() {
            self.reclaim();
        }
        self.core.work(work::CALL + work::BUFFER * out.len() as u32);
        for (count, at) in out.iter_mut().enumerate() {
            let Some(buffer) = self.tx_free.pop() else { return count };
            *at = buffer;
        }
        out.len()
    }

    fn buf_free(&mut self, buffers: &[Address]) {
        for buffer in buffers {
            self.core.work(work::BUFFER);
            self.give_back(*buffer);
        }
    }

    fn tx_burst(&mut self, packets: &[Packet]) -> usize {
        let room = |host: &Host<C>| (host.queues.shape.descriptors - (host.tx_end - host.tx_next)) as usize;
        if room(self) < packets.len() {
            self.reclaim();
        }
        let count = packets.len().min(room(self));
        if count == 0 {
            return 0;
        }
        self.core.work(work::CALL + (work::DESCRIPTOR + work::RECORD) * count as u32);
        for packet in &packets[..count] {
            let (position, slot) = (self.tx_end, self.slot(self.tx_end));
            self.tx_posted[slot] = packet.address();
            let at = self.queues.descriptor(self.queues.tx_ring, position);
            // Release: the packet before the word that announces it.
            let is_reported = self.queues.shape.report_from(position) == position;
            self.core.publish_line(at, &entry::to_send(position, *packet, is_reported));
            self.tx_end += 1;
        }
        match self.signal {
            Signal::Descriptor => {}
            // Release: the descriptors before the tail.
            Signal::Tail => self.core.store_release(self.queues.tx_tail, self.tx_end),
            Signal::Doorbell => self.core.register_write(self.queues.doorbell, self.tx_end),
        }
        count
    }

    fn bytes_to_end(&self, at: Address) -> u64 {
        self.queues.bytes_to_end(at.0)
    }

    fn rx_burst(&mut self, out: &mut [Packet]) -> usize {
        // Before it looks for packets, as DPDK's drivers that use vectors do: the last burst has been sent by then.
        self.refill();
        let mut count = 0;
        while count < out.len() {
            let Some(packet) = self.next_received() else { break };
            out[count] = packet;
            count += 1;
        }
        if count > 0 {
            self.core.work(work::CALL + (work::DESCRIPTOR + work::RECORD) * count as u32);
        }
        count
    }
}
