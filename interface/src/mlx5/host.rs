//! The host half: a driver.

use std::collections::VecDeque;

use conic_fabric::{Address, Core};

use super::QueuePair;
use super::entry::{BLOCK, Completion, Control, Entry, MINI, MOST_PACKETS, SEGMENT};
use crate::burst::{HostQueue, Packet};
use crate::ccnic::Flags;
use crate::ring::Buffers;
use crate::work;

/// Completions of what was sent that a burst looks at, unless more are needed (DPDK: `MLX5_TX_COMP_MAX_CQE`).
const LOOKED_AT: usize = 2;
/// Completions of what has come that are looked at together (DPDK: `MLX5_VPMD_DESCS_PER_LOOP`).
const GROUP: usize = 4;

/// What the host half refused or lacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStatistics {
    /// Completions that say nothing that there is, or of what was not asked for; what they took the place of is passed over.
    pub refused_completions: u64,
    /// Buffers that the device gave back with length 0 or more than a buffer holds; they went back to the pool.
    pub refused_packets: u64,
    /// Buffers that were freed when all were free already, and addresses in no buffer that were freed, or sent and not retained; they
    /// were ignored.
    pub refused_frees: u64,
    /// Times a blank buffer was to be posted and the pool had none.
    pub pool_empty: u64,
}

/// An entry that the device was asked to report.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Its first block, and the first one behind it.
    index: u16,
    end: u16,
    /// How many buffers had been given to the device with it, ever.
    given: u64,
}

/// The host half of a queue pair.
#[derive(Debug)]
pub struct Host<C> {
    core: C,
    queues: QueuePair,
    buffers: Buffers,
    entry: Box<Entry>,
    /// Blocks that were filled, ever, and up to where they are free again.
    tail: u16,
    freed: u16,
    /// Buffers that the device may still read, those first that were given first; and how many were given, ever.
    sending: VecDeque<u64>,
    given: u64,
    /// Entries that it was asked to report, and `given` and `tail` as of the last one.
    asked: VecDeque<Asked>,
    last_asked: (u64, u16),
    /// Completions of what was sent that were taken.
    reported: u32,
    /// The buffer of each receive descriptor.
    receiving: Box<[u64]>,
    /// Descriptors that were posted, ever, and packets that were received.
    posted: u16,
    received: u32,
    /// Lengths that a compressed completion has told of: those from `told.1` to `told.2` are of packets yet to be taken.
    told: ([u32; MINI], usize, usize),
    statistics: HostStatistics,
}

impl<C: Core> Host<C> {
    pub(super) fn new(queues: QueuePair, core: C) -> Host<C> {
        let common = queues.shape.common;
        let mut host = Host {
            core,
            queues,
            buffers: Buffers::full(&common, queues.buffers),
            entry: Box::new(Entry::new()),
            tail: 0,
            freed: 0,
            sending: VecDeque::with_capacity(common.descriptors as usize),
            given: 0,
            asked: VecDeque::with_capacity(queues.send_slots as usize),
            last_asked: (0, 0),
            reported: 0,
            receiving: (0..common.descriptors).map(|_| 0).collect(),
            posted: 0,
            received: 0,
            told: ([0; MINI], 0, 0),
            statistics: HostStatistics::default(),
        };
        // A descriptor's length never changes: what is posted is another address.
        for number in 0..common.descriptors {
            host.core.store(queues.descriptor(number as u16), common.room());
        }
        host.refill();
        host
    }

    /// Puts the next entry into the send queue: as many packets, from the front, as share it. Returns how many segments they had, and what
    /// the doorbell is to say; none where nothing is whole or finds room.
    fn send_entry(&mut self, packets: &[Packet]) -> Option<(usize, u64)> {
        let segments = 1 + packets.iter().position(|packet| !packet.has(Flags::NEXT))?;
        let most = self.room_for_entry();
        self.entry.begin();
        let several = self.queues.shape.multi_packet
            && segments == 1
            && packets.get(1).is_some_and(|packet| !packet.has(Flags::NEXT));
        let taken = if several {
            self.fill_with_several(packets, most)
        } else {
            self.fill_with_one(&packets[..segments], most)
        };
        if taken == 0 {
            return None;
        }
        self.core.work(work::DESCRIPTOR);
        let shape = &self.queues.shape;
        let end = self.tail.wrapping_add(self.entry.bytes().div_ceil(BLOCK) as u16);
        let asks = self.given - self.last_asked.0 >= shape.report_interval_of()
            || u64::from(end.wrapping_sub(self.last_asked.1)) >= self.queues.blocks / 8;
        let control = Control { multi_packet: several, index: self.tail, segments: 0, asks };
        let (blocks, word) = self.entry.end(control);
        for (number, block) in (0..).zip(blocks) {
            self.core.write_line(self.queues.block(self.tail.wrapping_add(number)), &block);
        }
        if asks {
            self.asked.push_back(Asked { index: self.tail, end, given: self.given });
            self.last_asked = (self.given, end);
        }
        self.tail = end;
        Some((taken, word))
    }

    /// Bytes that the next entry may have.
    fn room_for_entry(&mut self) -> usize {
        let most = self.queues.shape.most_blocks();
        let free = |host: &Host<C>| host.queues.blocks - u64::from(host.tail.wrapping_sub(host.freed));
        if free(self) < most || self.is_full() {
            self.take_reports(usize::MAX);
        }
        free(self).min(most) as usize * BLOCK
    }

    /// Whether the device has as many buffers to send as it may.
    fn is_full(&self) -> bool {
        self.sending.len() as u64 == self.queues.shape.common.descriptors
    }

    /// Whether a segment is copied if packets of up to `most` bytes are, and this one has `length`. A segment that the device would
    /// refuse is left to it.
    fn may_copy(&self, segments: &[Packet], length: u64, most: Option<u64>) -> bool {
        let sources = self.queues.sources();
        let sound = |segment: &Packet| sources.may_send(segment.address().0, segment.length().into()).is_ok();
        most.is_some_and(|most| length <= most) && segments.iter().all(sound)
    }

    /// Fills an entry with a packet of some segments; returns how many, or 0 where there is no room.
    fn fill_with_one(&mut self, segments: &[Packet], most: usize) -> usize {
        let length = segments.iter().map(|segment| u64::from(segment.length())).sum();
        let inlining = self.queues.shape.inlining.map(|inlining| inlining.alone);
        if self.may_copy(segments, length, inlining) && Entry::head_bytes(length) <= most {
            let mut before = 0;
            for segment in segments {
                let length = u64::from(segment.length());
                self.entry.add_head(&self.core, before, segment.address().0, length);
                before += length;
                self.copied(segment);
            }
            return segments.len();
        }
        let free = self.queues.shape.common.descriptors as usize - self.sending.len();
        if self.entry.bytes() + segments.len() * SEGMENT > most || free < segments.len() {
            return 0;
        }
        segments.iter().for_each(|segment| self.point_to(segment));
        segments.len()
    }

    /// Fills an entry with packets of one segment; returns how many.
    fn fill_with_several(&mut self, packets: &[Packet], most: usize) -> usize {
        let inlining = self.queues.shape.inlining.map(|inlining| inlining.among_others);
        let mut count = 0;
        for packet in packets.iter().take(MOST_PACKETS).take_while(|packet| !packet.has(Flags::NEXT)) {
            let length = packet.length().into();
            let copied = self.may_copy(std::slice::from_ref(packet), length, inlining);
            let bytes = if copied { Entry::inline_segment_bytes(length) } else { SEGMENT };
            if self.entry.bytes() + bytes > most || (!copied && self.is_full()) {
                break;
            }
            if copied {
                self.entry.add_inline(&self.core, packet.address().0, length);
                self.copied(packet);
            } else {
                self.point_to(packet);
            }
            count += 1;
        }
        count
    }

    /// Has the device read a segment where it is.
    #[inline(always)]
    fn point_to(&mut self, segment: &Packet) {
        let (address, length) = (segment.address().0, segment.length().into());
        self.core.work(work::DESCRIPTOR + work::RECORD);
        self.entry.add_pointer(address, length);
        if !segment.has(Flags::RETAIN) {
            self.buffers.describe(&self.core, address, length);
            self.sending.push_back(address);
            self.given += 1;
        }
    }

    /// A segment was copied: its buffer is free.
    #[inline(always)]
    fn copied(&mut self, segment: &Packet) {
        self.core.work(work::DESCRIPTOR);
        if !segment.has(Flags::RETAIN) {
            self.buffers.describe(&self.core, segment.address().0, segment.length().into());
            self.buffers.free_buffer_of(&self.core, segment.address().0);
        }
    }

    /// Takes completions of what was sent, at most so many, and returns the buffers to the pool; returns how many.
    fn take_reports(&mut self, most: usize) -> usize {
        let (slots, before) = (self.queues.send_slots, self.buffers.len());
        for _ in 0..most {
            // Acquire: the device's reads of entries and payloads before this side overwrites them.
            let word = self.core.load_acquire(self.queues.send_completion(self.reported));
            if !Completion::is_there(word, self.reported, slots) {
                break;
            }
            self.core.work(work::DESCRIPTOR);
            self.reported = self.reported.wrapping_add(1);
            let Some(asked) =
                self.asked.front().copied().filter(|asked| Completion::of(word) == Some(Completion::Sent(asked.index)))
            else {
                self.statistics.refused_completions += 1;
                continue;
            };
            self.asked.pop_front();
            let still = (self.given - asked.given) as usize;
            let count = self.sending.len() - still;
            self.core.work(work::RECORD * count as u32);
            for address in self.sending.drain(..count) {
                self.buffers.free_buffer_of(&self.core, address);
            }
            self.freed = asked.end;
        }
        self.buffers.len() - before
    }

    /// Returns the buffers of packets that the device has reported as sent to the pool; returns how many.
    pub fn reclaim(&mut self) -> usize {
        self.take_reports(usize::MAX)
    }

    /// Descriptors that the device does not have.
    #[inline(always)]
    fn missing(&self) -> u64 {
        self.queues.shape.common.descriptors - u64::from(self.posted.wrapping_sub(self.received as u16))
    }

    /// Posts blank buffers until the ring is full or the pool empty.
    fn refill(&mut self) {
        let missing = self.missing();
        if (self.buffers.len() as u64) < missing {
            self.take_reports(usize::MAX);
        }
        self.core.work(work::CALL + (work::BUFFER + work::DESCRIPTOR + work::RECORD) * missing as u32);
        let before = self.posted;
        for _ in 0..missing {
            let Some(address) = self.buffers.post(&self.core) else { break };
            self.core.store(self.queues.descriptor(self.posted).word(1), address);
            let place = u64::from(self.posted) & (self.queues.shape.common.descriptors - 1);
            self.receiving[place as usize] = address;
            self.posted = self.posted.wrapping_add(1);
        }
        if self.posted != before {
            // Release: descriptors, and this side's last reads of buffers and completions, before the device writes any of them.
            self.core.store_release(self.queues.receive_record, self.posted.into());
        }
    }

    /// The length of the next received packet, if one has come.
    #[inline(always)]
    fn next_length(&mut self) -> Option<u64> {
        if self.told.1 < self.told.2 {
            self.told.1 += 1;
            return Some(self.told.0[self.told.1 - 1].into());
        }
        let (slots, number) = (self.queues.shape.common.descriptors, self.received);
        if self.missing() == slots {
            return None;
        }
        // Acquire: the device's writes of the payload before this side reads it.
        let word = self.core.load_acquire(self.queues.receive_completion(number));
        if !Completion::is_there(word, number, slots) {
            return None;
        }
        match Completion::of(word) {
            Some(Completion::Received(length)) => Some(length.into()),
            Some(Completion::Compressed(count)) if self.decompress(count) => self.next_length(),
            _ => {
                self.statistics.refused_completions += 1;
                Some(0)
            }
        }
    }

    /// Takes the lengths that a compressed completion, which is the next one, stands for; false if it cannot be.
    #[cold]
    fn decompress(&mut self, count: u32) -> bool {
        let descriptors = self.queues.shape.common.descriptors;
        let there = descriptors - self.missing();
        if !(2..=MINI as u64).contains(&u64::from(count)) || u64::from(count) > there {
            return false;
        }
        // Its lengths were written before the completion that was acquired.
        let lengths = self.core.read_line(self.queues.receive_completion(self.received.wrapping_add(1)));
        self.told = (lengths.0.map(|word| (word >> 32) as u32), 0, count as usize);
        for after in 1..count {
            let at = self.queues.receive_completion(self.received.wrapping_add(after));
            // Release: the line was read before; the receive record is what gives it to the device.
            self.core.store_release(at, Completion::NONE);
        }
        self.core.work(work::DESCRIPTOR);
        true
    }

    /// Says which completions are looked at next: a group at once, and the group behind it is asked for.
    #[inline(always)]
    fn look_at_group(&self, wanted: usize) {
        if self.told.1 < self.told.2 {
            return;
        }
        let at = |after: usize| self.queues.receive_completion(self.received.wrapping_add(after as u32));
        // Loads of a group depend on nothing: they are one behind the other.
        for after in 1..GROUP.min(wanted) {
            self.core.will_read(at(after), after as u32);
        }
        for after in GROUP..(2 * GROUP).min(wanted) {
            self.core.prefetch_read(at(after));
        }
    }

    /// How many buffers are in the pool.
    pub fn free_buffers(&self) -> usize {
        self.buffers.len()
    }

    /// How many buffers the device has: posted, or sent and not reported. Those, the free ones and the caller's are all, and what is
    /// retained is the caller's.
    pub fn device_buffers(&self) -> usize {
        (self.queues.shape.common.descriptors - self.missing()) as usize + self.sending.len()
    }

    /// What was refused or lacking.
    pub fn statistics(&self) -> HostStatistics {
        HostStatistics { refused_frees: self.buffers.refused, pool_empty: self.buffers.lacked, ..self.statistics }
    }
}

impl<C: Core> HostQueue for Host<C> {
    type Core = C;
    #[inline(always)]
    fn core(&self) -> &C {
        &self.core
    }
    #[inline]
    fn buf_alloc(&mut self, bytes: u64, out: &mut [Address]) -> usize {
        if bytes > self.queues.shape.common.room() {
            return 0;
        }
        if self.buffers.len() < out.len() {
            self.take_reports(usize::MAX);
        }
        self.core.work(work::CALL + work::BUFFER * out.len() as u32);
        for (count, at) in out.iter_mut().enumerate() {
            let Some(address) = self.buffers.allocate(&self.core) else { return count };
            *at = Address(address);
        }
        out.len()
    }
    #[inline]
    fn buf_free(&mut self, buffers: &[Address]) {
        for at in buffers {
            self.buffers.free_buffer_of(&self.core, at.0);
        }
    }
    #[inline]
    fn tx_burst(&mut self, packets: &[Packet]) -> usize {
        self.take_reports(LOOKED_AT);
        self.core.work(work::CALL);
        let (mut taken, mut rings) = (0, None);
        while let Some((count, word)) = self.send_entry(&packets[taken..]) {
            taken += count;
            rings = Some(word);
        }
        if let Some(word) = rings {
            // Release: entries and payloads before the record.
            self.core.store_release(self.queues.send_record, self.tail.into());
            // Release: those, and the record, before the register, for the device's read of it.
            self.core.register_write(self.queues.doorbell, word);
        }
        taken
    }
    #[inline]
    fn rx_burst(&mut self, out: &mut [Packet]) -> usize {
        let threshold = self.queues.shape.common.rx_refill_threshold.clamp(1, self.queues.shape.common.descriptors);
        if self.missing() >= threshold {
            self.refill();
        }
        let (mut count, mut looked) = (0, 0);
        while count < out.len() {
            if looked % GROUP == 0 {
                self.look_at_group(out.len() - count);
            }
            looked += 1;
            let Some(length) = self.next_length() else { break };
            let place = u64::from(self.received) & (self.queues.shape.common.descriptors - 1);
            let address = self.receiving[place as usize];
            self.received = self.received.wrapping_add(1);
            if length == 0 || length > self.queues.shape.common.room() {
                self.statistics.refused_packets += 1;
                self.buffers.free(&self.core, address);
                continue;
            }
            if self.queues.shape.common.fetch_ahead {
                self.core.prefetch_read(Address(address));
            }
            self.buffers.describe(&self.core, address, length);
            out[count] = Packet::new(Address(address), length as u16);
            count += 1;
        }
        self.core.work(work::CALL + (work::DESCRIPTOR + work::RECORD) * count as u32);
        if self.missing() >= threshold.max(self.queues.shape.common.descriptors.div_ceil(2)) {
            self.refill();
        }
        count
    }
    #[inline(always)]
    fn bytes_to_end(&self, at: Address) -> u64 {
        self.buffers.bytes_to_end(at)
    }
}
