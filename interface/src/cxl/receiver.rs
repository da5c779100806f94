//! The device's half that brings packets to the host: descriptor management and packet forwarding of the receive side.

use std::collections::VecDeque;

use conic_fabric::{Address, Device, LINE_BYTES, Line, ReadTag, StateHint, Time};

use super::entry::{self, State};
use super::write_back::WriteBack;
use super::{MOST_IN_A_BATCH, Queues, Requests, Signal};

/// What the device's half refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicStatistics {
    /// Descriptors whose buffer is none, or whose length cannot be.
    pub refused_descriptors: u64,
    /// Frames that fit into no buffer.
    pub dropped_frames: u64,
}

/// What became of received packets that are to be pushed ([`Requests::rx_packet`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushStatistics {
    /// Packets that were pushed.
    pub pushed: u64,
    /// Packets that were written to memory instead, because the gate was closed.
    pub gated: u64,
    /// Pushed packets that were written to memory after a while.
    pub written_back: u64,
}

/// A descriptor that was read ahead, or is being read.
#[derive(Debug)]
enum Ahead {
    Asked(ReadTag),
    There(Line),
}

/// The device's half of the receive ring.
#[derive(Debug)]
pub struct Receiver<D> {
    device: D,
    queues: Queues,
    requests: Requests,
    /// The next position to complete.
    next: u64,
    /// Descriptors from `next` on that were read ahead; at most so many are.
    ahead: VecDeque<Ahead>,
    depth: usize,
    /// A position that the host had not posted when it was last read: none behind it is read before it is.
    blank: Option<u64>,
    write_back: WriteBack,
    statistics: NicStatistics,
    pushes: PushStatistics,
}

impl<D: Device> Receiver<D> {
    /// The device's half, which keeps as many descriptors read ahead as are posted, at most so many.
    pub fn new(queues: Queues, device: D, requests: Requests, depth: usize) -> Receiver<D> {
        let depth = depth.clamp(1, queues.shape.descriptors as usize);
        Receiver {
            device,
            queues,
            requests,
            next: 0,
            ahead: VecDeque::new(),
            depth,
            blank: None,
            write_back: WriteBack::default(),
            statistics: NicStatistics::default(),
            pushes: PushStatistics::default(),
        }
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// What was refused.
    pub fn statistics(&self) -> NicStatistics {
        self.statistics
    }

    /// What became of packets that are to be pushed.
    pub fn pushes(&self) -> PushStatistics {
        self.pushes
    }

    /// When [`Receiver::prefetch`] has to be called next, whatever comes: a pushed packet is to be written back then.
    pub fn next_due(&self) -> Option<Time> {
        self.write_back.next()
    }

    /// A request type, as the host has it at present.
    fn hint(&self, hint: StateHint) -> StateHint {
        let is_push = hint == StateHint::NonCacheablePush;
        if is_push && !self.queues.allows_pushes(&self.device) { StateHint::NonCacheable } else { hint }
    }

    fn at(&self, position: u64) -> Address {
        self.queues.descriptor(self.queues.rx_ring, position)
    }

    /// How many descriptors from the next on the host has said are posted; where it says nothing, they are looked at.
    fn announced(&self) -> usize {
        match self.requests.tx_signal {
            Signal::Doorbell => {
                let announced = self.device.own_register(self.queues.rx_doorbell).wrapping_sub(self.next);
                // A head that goes back, or too far ahead, is none.
                if announced <= self.queues.shape.descriptors { announced as usize } else { 0 }
            }
            Signal::Descriptor | Signal::Tail => usize::MAX,
        }
    }

    /// Reads the descriptors ahead that are posted, as the pipeline does between packets; and writes back what is due. Where the host
    /// does not say what is posted, the first that is not is read again each time, and none behind it: out of the device's cache, which
    /// loses it when the host posts.
    pub fn prefetch(&mut self) {
        for index in 0..self.ahead.len() {
            if matches!(&self.ahead[index], Ahead::Asked(tag) if self.device.is_ready(tag)) {
                self.arrive(index);
            }
        }
        // As far as it is there: what is still on its way is looked at when it has come.
        while let (Some(blank), Some(Ahead::There(_))) = (self.blank, self.ahead.back())
            && self.next + self.ahead.len() as u64 > blank
        {
            self.ahead.pop_back();
        }
        let posted = self.blank.map_or(usize::MAX, |blank| (blank + 1).saturating_sub(self.next) as usize);
        let depth = self.depth.min(self.announced()).min(posted);
        while self.ahead.len() < depth {
            let at = self.at(self.next + self.ahead.len() as u64);
            self.ahead.push_back(Ahead::Asked(self.device.start_read(at, LINE_BYTES, self.requests.rx_prefetch)));
        }
        self.pushes.written_back += self.write_back.perform(&self.device);
    }

    fn arrive(&mut self, index: usize) -> Line {
        let position = self.next + index as u64;
        let at = self.at(position);
        let found = std::mem::replace(&mut self.ahead[index], Ahead::There(Line::ZERO));
        let line = match found {
            Ahead::There(line) => line,
            Ahead::Asked(tag) => self.device.finish_line(tag, at),
        };
        self.ahead[index] = Ahead::There(line);
        self.note_posted(position, entry::is(line.0[0], position, State::Posted));
        line
    }

    fn note_posted(&mut self, position: u64, is_posted: bool) {
        if !is_posted {
            self.blank = Some(self.blank.map_or(position, |blank| blank.min(position)));
        } else if self.blank == Some(position) {
            self.blank = None;
        }
    }

    /// The buffers of the next descriptors, as far as they are posted.
    fn buffers(&mut self, wanted: usize) -> Vec<Address> {
        let lines: Vec<Line> = match self.requests.rx_descriptor {
            Some(hint) => {
                let ask = |index| self.device.start_read(self.at(self.next + index as u64), LINE_BYTES, hint);
                let tags: Vec<ReadTag> = (0..wanted.min(self.announced())).map(ask).collect();
                let read = |(index, tag)| self.device.finish_line(tag, self.at(self.next + index as u64));
                tags.into_iter().enumerate().map(read).collect()
            }
            None => {
                self.prefetch();
                let have = wanted.min(self.ahead.len());
                (0..have).map(|index| self.arrive(index)).collect()
            }
        };
        let mut buffers = Vec::with_capacity(lines.len());
        for (line, index) in lines.iter().zip(0..) {
            if !entry::is(line.0[0], self.next + index, State::Posted) {
                break;
            }
            if !self.queues.is_buffer(self.queues.rx_buffers, line.0[1]) {
                self.statistics.refused_descriptors += 1;
                break;
            }
            buffers.push(Address(line.0[1]));
        }
        if buffers.is_empty() && self.requests.rx_descriptor.is_none() {
            // What was read ahead is of before the host posted: it is read again.
            for (position, old) in (self.next..).zip(std::mem::take(&mut self.ahead)) {
                if let Ahead::Asked(tag) = old {
                    self.device.finish_line(tag, self.at(position));
                }
            }
        }
        buffers
    }

    /// Brings frames to the host, as one batch that one line completes; returns how many, from the front, were brought or
    /// dropped. Zero: no descriptor is posted.
    pub fn deliver<F: AsRef<[u8]>>(&mut self, frames: &[F]) -> usize {
        // The largest buffer has a byte more than a descriptor can say.
        let most = self.queues.shape.buffer_bytes.min(u16::MAX.into());
        let fits = |frame: &[u8]| !frame.is_empty() && frame.len() as u64 <= most;
        let wanted = frames.iter().take(MOST_IN_A_BATCH).take_while(|frame| fits(frame.as_ref())).count();
        if wanted == 0 {
            self.statistics.dropped_frames += u64::from(!frames.is_empty());
            return frames.len().min(1);
        }
        let buffers = self.buffers(wanted);
        if buffers.is_empty() {
            return 0;
        }
        let hint = self.hint(self.requests.rx_packet);
        let mut lengths = Vec::with_capacity(buffers.len());
        for (frame, at) in frames.iter().zip(&buffers) {
            let frame = frame.as_ref();
            self.write_packet(*at, frame, hint);
            lengths.push(frame.len() as u16);
        }
        let line = entry::done(self.next, &lengths);
        self.device.publish_line(self.at(self.next), &line, self.hint(self.requests.rx_completion));
        for position in self.next..self.next + buffers.len() as u64 {
            if let Some(Ahead::Asked(tag)) = self.ahead.pop_front() {
                self.device.finish_line(tag, self.at(position));
            }
        }
        self.next += buffers.len() as u64;
        if self.blank.is_some_and(|blank| blank < self.next) {
            self.blank = None;
        }
        buffers.len()
    }

    fn write_packet(&mut self, at: Address, frame: &[u8], hint: StateHint) {
        self.write_back.forget(at);
        if hint != StateHint::NonCacheablePush {
            self.pushes.gated += u64::from(self.requests.rx_packet == StateHint::NonCacheablePush);
            return self.device.write(at, frame, hint);
        }
        // Whole lines are pushed; what is behind the frame in its last line is the buffer's, and nobody's.
        let mut whole = frame.to_vec();
        whole.resize(frame.len().next_multiple_of(LINE_BYTES as usize), 0);
        self.device.write(at, &whole, hint);
        self.pushes.pushed += 1;
        if let Some(after) = self.queues.write_back_after(&self.device) {
            self.write_back.pushed(at, whole, self.device.now() + after);
        }
    }
}
