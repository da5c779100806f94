//! The device's half that takes packets from the host: descriptor management and packet forwarding of the transmit side.

use conic_fabric::{Address, Device, LINE_BYTES, Line, ReadTag};

use super::entry::{self, State};
use super::receiver::NicStatistics;
use super::{Queues, Report, Requests, Signal};

/// The device's half of the transmit ring.
#[derive(Debug)]
pub struct Transmitter<D> {
    device: D,
    queues: Queues,
    requests: Requests,
    batch: usize,
    /// The next position to take, and up to where the tail has told that there are packets.
    next: u64,
    known: u64,
    statistics: NicStatistics,
}

impl<D: Device> Transmitter<D> {
    /// The device's half, which takes up to so many packets at once.
    pub fn new(queues: Queues, device: D, requests: Requests, batch: usize) -> Transmitter<D> {
        let batch = batch.clamp(1, queues.shape.descriptors as usize);
        Transmitter { device, queues, requests, batch, next: 0, known: 0, statistics: NicStatistics::default() }
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// What was refused.
    pub fn statistics(&self) -> NicStatistics {
        self.statistics
    }

    fn at(&self, position: u64) -> Address {
        self.queues.descriptor(self.queues.tx_ring, position)
    }

    /// Reads so many descriptors at once.
    fn descriptors(&self, from: u64, count: usize, hint: conic_fabric::StateHint) -> Vec<Line> {
        let ask = |index| self.device.start_read(self.at(from + index as u64), LINE_BYTES, hint);
        let tags: Vec<ReadTag> = (0..count).map(ask).collect();
        let read = |(index, tag)| self.device.finish_line(tag, self.at(from + index as u64));
        tags.into_iter().enumerate().map(read).collect()
    }

    /// The descriptors that are posted, up to a batch.
    fn posted(&mut self) -> Vec<Line> {
        let Requests { tx_signal, tx_poll, tx_descriptor, .. } = self.requests;
        let waiting = |transmitter: &Self| {
            // A tail that goes back, or too far ahead, is no tail.
            let waiting = transmitter.known.wrapping_sub(transmitter.next);
            if waiting <= transmitter.queues.shape.descriptors { waiting as usize } else { 0 }
        };
        match tx_signal {
            Signal::Descriptor => {
                let mut lines = self.descriptors(self.next, 1, tx_poll);
                if self.batch > 1 && entry::is(lines[0].0[0], self.next, State::Posted) {
                    lines.extend(self.descriptors(self.next + 1, self.batch - 1, tx_descriptor));
                }
                lines
            }
            Signal::Tail => {
                if waiting(self) == 0 {
                    self.known = self.device.read_word(self.queues.tx_tail, tx_poll);
                }
                self.descriptors(self.next, waiting(self).min(self.batch), tx_descriptor)
            }
            Signal::Doorbell => {
                self.known = self.device.own_register(self.queues.doorbell);
                self.descriptors(self.next, waiting(self).min(self.batch), tx_descriptor)
            }
        }
    }

    /// Looks for packets and takes up to a batch of them; `each` is given every one. Returns how many; zero is no progress.
    pub fn take(&mut self, mut each: impl FnMut(&[u8])) -> usize {
        let lines = self.posted();
        let (mut packets, mut reported) = (Vec::with_capacity(lines.len()), Vec::new());
        for (line, index) in lines.iter().zip(0..) {
            if !entry::is(line.0[0], self.next + index, State::Posted) {
                break;
            }
            packets.push((Address(line.0[1]), u64::from(entry::length(line.0[0]))));
            reported.extend((entry::count(line.0[0]) > 0).then_some(self.next + index));
        }
        if packets.is_empty() {
            return 0;
        }
        let good = |(at, length): &(Address, u64)| {
            let is_buffer = |start| self.queues.is_buffer(start, at.0);
            let owned = is_buffer(self.queues.tx_buffers) || is_buffer(self.queues.rx_buffers);
            owned && (1..=self.queues.shape.buffer_bytes).contains(length)
        };
        let hint = self.requests.tx_packet;
        let tags: Vec<Option<ReadTag>> = packets
            .iter()
            .map(|packet| good(packet).then(|| self.device.start_read(packet.0, packet.1, hint)))
            .collect();
        let mut frame = Vec::new();
        for ((at, length), tag) in packets.iter().zip(tags) {
            let Some(tag) = tag else {
                // It is completed all the same, so that the ring goes on.
                self.statistics.refused_descriptors += 1;
                continue;
            };
            frame.resize(*length as usize, 0);
            self.device.finish_read(tag, *at, &mut frame);
            each(&frame);
        }
        let last = self.next + packets.len() as u64 - 1;
        if self.requests.tx_report == Report::EachBatch && reported.last() != Some(&last) {
            reported.push(last);
        }
        for position in reported {
            self.device.publish_line(self.at(position), &entry::sent(position), self.requests.tx_completion);
        }
        self.next += packets.len() as u64;
        packets.len()
    }
}
