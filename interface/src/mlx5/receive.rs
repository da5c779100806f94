//! The receive queue as the device sees it: descriptors that a record in the host's memory announces, and completions.

use std::collections::VecDeque;

use conic_fabric::{Address, Device, LINE_BYTES, Line, ReadTag};

use super::device::{READ, Refusals};
use super::entry::{Completion, MINI};
use super::{DESCRIPTOR_BYTES, QueuePair};
use crate::ring::NoBuffer;
use crate::work;

/// Batches of descriptors that are on the device, or on their way to it, at most.
const BATCHES: u64 = 2;

/// Descriptors under way.
#[derive(Debug)]
struct Fetch {
    tag: ReadTag,
    first: u16,
    count: u16,
}

/// The device's side of a receive queue.
#[derive(Debug)]
pub(super) struct Receive {
    queues: QueuePair,
    /// Descriptors that the host has announced, ever; that were asked for, and used.
    announced: u16,
    asked: u16,
    used: u16,
    /// The read of the record, and whether another may bring more: something was used, or wanted, since the last one began.
    record: Option<ReadTag>,
    wants: bool,
    fetches: VecDeque<Fetch>,
    scratch: Vec<u8>,
    /// Buffers' addresses, and whether they may be written.
    blank: VecDeque<(u64, bool)>,
    /// Lengths of packets that are to be completed, and how many were.
    done: VecDeque<u32>,
    completed: u32,
}

impl Receive {
    pub fn new(queues: QueuePair) -> Receive {
        Receive {
            queues,
            announced: 0,
            asked: 0,
            used: 0,
            record: None,
            wants: true,
            fetches: VecDeque::new(),
            scratch: Vec::new(),
            blank: VecDeque::new(),
            done: VecDeque::new(),
            completed: 0,
        }
    }

    /// Takes what has come, and asks for descriptors, and for the record where few that it announced are left.
    pub fn look(&mut self, device: &impl Device, refusals: &mut Refusals) {
        self.take_record(device, refusals);
        self.take_descriptors(device);
        self.fetch(device);
        self.ask(device);
    }

    /// Asks for the record where few of the descriptors that it announced are left, and it may say more.
    fn ask(&mut self, device: &impl Device) {
        let left = self.announced.wrapping_sub(self.used);
        let few =
            u64::from(left) <= (BATCHES * self.queues.shape.fetch_batch).min(self.queues.shape.common.descriptors / 2);
        if self.wants && few && self.record.is_none() {
            self.wants = false;
            self.record = Some(device.start_read(self.queues.receive_record, LINE_BYTES, READ));
        }
    }

    fn take_record(&mut self, device: &impl Device, refusals: &mut Refusals) {
        if !self.record.as_ref().is_some_and(|tag| device.is_ready(tag)) {
            return;
        }
        let Some(tag) = self.record.take() else { return };
        // Acquire (natively): the host's writes of descriptors, and its last reads of buffers and completions, before this side reads
        // and writes them.
        let record = device.finish_line(tag, self.queues.receive_record).0[0];
        let announced = record as u16;
        let descriptors = self.queues.shape.common.descriptors;
        let held = u64::from(announced.wrapping_sub(self.used));
        if record > u64::from(u16::MAX)
            || held > descriptors
            || held < u64::from(self.announced.wrapping_sub(self.used))
        {
            refusals.receive_record += 1;
            return;
        }
        self.announced = announced;
    }

    fn take_descriptors(&mut self, device: &impl Device) {
        while let Some(fetch) = self.fetches.front().filter(|fetch| device.is_ready(&fetch.tag)) {
            let (first, count) = (fetch.first, fetch.count);
            let Some(Fetch { tag, .. }) = self.fetches.pop_front() else { return };
            self.scratch.resize(usize::from(count) * DESCRIPTOR_BYTES as usize, 0);
            device.finish_read(tag, self.queues.descriptor(first), &mut self.scratch);
            device.work(work::CALL + work::DESCRIPTOR * u32::from(count));
            let (sources, room) = (self.queues.sources(), self.queues.shape.common.room());
            for words in self.scratch.chunks_exact(DESCRIPTOR_BYTES as usize) {
                let address = u64::from_ne_bytes(words[8..].try_into().expect("eight bytes"));
                // All of a buffer is written, whatever length the descriptor says.
                self.blank.push_back((address, sources.is_in_buffers(address, room)));
            }
        }
    }

    fn fetch(&mut self, device: &impl Device) {
        let descriptors = self.queues.shape.common.descriptors;
        let batch = self.queues.shape.fetch_batch;
        loop {
            let first = self.asked;
            let room = (BATCHES * batch).saturating_sub(first.wrapping_sub(self.used).into());
            let to_end = descriptors - (u64::from(first) & (descriptors - 1));
            let there = u64::from(self.announced.wrapping_sub(first)).min(to_end).min(batch);
            // Room is not filled by a few at a time.
            if there == 0 || room < there {
                return;
            }
            let tag = device.start_read(self.queues.descriptor(first), there * DESCRIPTOR_BYTES, READ);
            self.fetches.push_back(Fetch { tag, first, count: there as u16 });
            self.asked = first.wrapping_add(there as u16);
        }
    }

    /// Takes what reads bring until there is a blank buffer, where they take no time: one look asks for the record, the next one for
    /// descriptors, and the third one takes them.
    pub fn find_buffer(&mut self, device: &impl Device, refusals: &mut Refusals) {
        for _ in 0..3 {
            if self.blank.is_empty() {
                self.wants = true;
                self.look(device, refusals);
            }
        }
    }

    /// Writes a packet into the next blank buffer, of those that are on the device. Its completion is to be written.
    pub fn push(&mut self, device: &impl Device, packet: &[u8], refusals: &mut Refusals) -> Result<(), NoBuffer> {
        let length = packet.len() as u64;
        if length == 0 || length > self.queues.shape.common.room() {
            refusals.rx_length += 1;
            return Ok(());
        }
        // Bounded, so that a host that posts bad buffers without end does not keep the device here.
        for _ in 0..self.queues.shape.common.descriptors {
            self.wants = true;
            let Some((address, good)) = self.blank.pop_front() else {
                // What was used has made room.
                self.fetch(device);
                self.ask(device);
                return Err(NoBuffer);
            };
            self.used = self.used.wrapping_add(1);
            if good {
                device.write(Address(address), packet, self.queues.shape.common.payload_hint);
                self.done.push_back(length as u32);
                return Ok(());
            }
            refusals.rx_address += 1;
            self.done.push_back(0);
        }
        Err(NoBuffer)
    }

    /// Packets that are to be completed.
    pub fn done(&self) -> usize {
        self.done.len()
    }

    /// Writes completions of so many of the packets that are done, from the first on: compressed where that is allowed, and there are several.
    pub fn complete(&mut self, device: &impl Device, mut count: usize) {
        count = count.min(self.done.len());
        while count > 0 {
            let together = if self.queues.shape.compressed { count.min(MINI) } else { 1 };
            if together == 1 {
                let length = self.done.pop_front().unwrap_or_default();
                self.publish(device, Completion::Received(length));
            } else {
                let mut line = Line([0; 8]);
                for (word, length) in line.0.iter_mut().zip(self.done.drain(..together)) {
                    *word = u64::from(length) << 32;
                }
                let hint = self.queues.shape.common.payload_hint;
                // Before the completion that says that it is there.
                device.publish_line(self.queues.receive_completion(self.completed.wrapping_add(1)), &line, hint);
                self.publish(device, Completion::Compressed(together as u32));
            }
            self.completed = self.completed.wrapping_add(together as u32);
            count -= together;
        }
    }

    fn publish(&self, device: &impl Device, completion: Completion) {
        let number = self.completed;
        let word = completion.word(number, self.queues.shape.common.descriptors);
        let hint = self.queues.shape.common.payload_hint;
        // After every write before it, so the payload is visible to a host that sees the owner bit.
        device.publish_line(self.queues.receive_completion(number), &Line([word, 0, 0, 0, 0, 0, 0, 0]), hint);
    }
}
