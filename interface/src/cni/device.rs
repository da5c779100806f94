//! The device's halves: an engine that takes messages from the processor, and one that gives it those that come.
//!
//! The send engine fetches early, the paper's variant of virtual polling (section 3): an invalidation of a block other than a message's
//! first says that the block before it is written. A cachable queue's sender writes the first block last, so it is the same there
//! with the first block's in the last place.

use std::collections::VecDeque;

use conic_fabric::{Address, Core, RegisterAccess};

use super::queues::queue;
use super::registers::blocks;
use super::window::{Acknowledged, Window};
use super::{Carrier, MESSAGE_LINES, Message, Way, header, lines_with, words_with};
use crate::cachable_queue::{Receiver, Sender};

/// What a device's engine needs besides the core face, on whose [`Core::register_write`] and [`Core::write_line`] its own registers change.
pub trait Device: Core {
    /// The next access to a segment of its registers, by where that begins, in the order in which they came.
    fn next_access(&self, registers: Address) -> Option<RegisterAccess>;
    /// Whether the network takes a message to a node: it does where the processor keeps to its window.
    fn may_inject(&self, to: u16) -> bool;
    /// The node that has acknowledged a message of this one's, the oldest of which the device was not told.
    fn next_acknowledgement(&self) -> Option<u16>;
    /// Gives the network a message, whose peer is where it goes; on its arrival, where it is from.
    fn inject(&self, message: &Message);
    /// Takes the next message that has come, which acknowledges it.
    fn next_arrival(&self) -> Option<Message>;
}

/// The engine that takes messages from the processor.
#[derive(Debug)]
pub struct SendEngine<D> {
    device: D,
    way: Way,
    queue: Option<Receiver<D>>,
    /// What of a message has come through NI2w's window.
    window: Message,
    /// Messages that the processor has said are ready, and those that were taken.
    ready: u64,
    taken: u64,
    /// Messages that wait for the network, and how many may.
    held: VecDeque<Message>,
    most_held: usize,
    /// The last block of the next message whose writing was seen, of those behind its first.
    last_begun: u64,
    acknowledged: Acknowledged,
}

impl<D: Device + Clone> SendEngine<D> {
    /// One of these, which counts acknowledgements for the window. `fifo_messages`: what NI2w and CNI4 hold.
    pub fn new(way: Way, window: Window, device: D, fifo_messages: usize) -> SendEngine<D> {
        let queue = match way.carrier {
            Carrier::Queue(queue) => Some(queue.receiver(device.clone())),
            Carrier::Window(_) | Carrier::Blocks(_) => None,
        };
        let most_held = if queue.is_some() { 1 } else { fifo_messages };
        let held = VecDeque::new();
        let engine = SendEngine {
            device,
            way,
            queue,
            window: Message::default(),
            ready: 0,
            taken: 0,
            held,
            most_held,
            last_begun: 0,
            acknowledged: window.acknowledged(),
        };
        engine.watch();
        engine
    }

    /// The next message's blocks, where there are blocks.
    fn slot(&self) -> Option<Address> {
        match (self.way.carrier, &self.queue) {
            (Carrier::Window(_), _) => None,
            (_, Some(queue)) => Some(queue.next_slot()),
            (carrier, None) => Some(blocks(carrier)),
        }
    }

    fn watch(&self) {
        if let Some(at) = self.slot() {
            for index in 0..MESSAGE_LINES as u64 {
                self.device.watch(at.lines(index), self.taken * MESSAGE_LINES as u64 + index);
            }
        }
    }

    /// Does what there is to do; false if that is nothing.
    pub fn step(&mut self) -> bool {
        let mut found = self.hear();
        found |= self.fetch_early();
        while let Some(by) = self.device.next_acknowledgement() {
            self.acknowledged.note(&self.device, by);
            found = true;
        }
        if self.ready > self.taken && self.held.len() < self.most_held {
            self.take();
            found = true;
        }
        while let Some(message) = self.held.front().filter(|message| self.device.may_inject(message.peer())) {
            self.device.inject(message);
            self.held.pop_front();
            if let Carrier::Window(_) = self.way.carrier {
                // A place of the FIFO is free.
                self.taken += 1;
                self.device.register_write(self.way.status(), self.taken);
            }
            found = true;
        }
        found
    }

    /// Takes what the processor has stored to registers.
    fn hear(&mut self) -> bool {
        let mut found = false;
        while let Some(access) = self.device.next_access(self.way.registers) {
            if let RegisterAccess::Store(at, value) = access
                && at == self.way.command()
            {
                self.ready = value;
                found = true;
            }
        }
        let Carrier::Window(window) = self.way.carrier else { return found };
        while let Some(access) = self.device.next_access(window) {
            let RegisterAccess::Store(at, value) = access else { continue };
            let index = ((at - window) / 8) as usize;
            self.window.lines[index / 8].0[index % 8] = value;
            let (_, bytes) = header(self.window.lines[0].0[1]);
            if index >= 1 && index + 1 == words_with(bytes) {
                self.held.push_back(std::mem::take(&mut self.window));
            }
            found = true;
        }
        found
    }

    /// Fetches the blocks that are known to be written.
    fn fetch_early(&mut self) -> bool {
        let mut found = false;
        while let Some(tag) = self.device.changed() {
            let (of, block) = (tag / MESSAGE_LINES as u64, tag % MESSAGE_LINES as u64);
            let Some(at) = self.slot().filter(|_| of == self.taken) else { continue };
            let written = match (&self.queue, block) {
                (Some(_), 0) => Some(self.last_begun).filter(|last| *last > 0),
                (Some(_), 1) | (None, 0) => None,
                _ => Some(block - 1),
            };
            self.last_begun = block;
            if let Some(written) = written {
                self.device.prefetch_read(at.lines(written));
                found = true;
            }
        }
        found
    }

    /// Takes the next message that is ready.
    fn take(&mut self) {
        let Some(at) = self.slot() else { return };
        let mut message = Message::default();
        message.lines[0] = self.device.read_line(at);
        let count = lines_with(message.payload());
        for index in 1..count {
            message.lines[index] = self.device.read_line(at.lines(index as u64));
        }
        message.lines[0].0[0] = 0;
        if let Some(queue) = &mut self.queue {
            queue.release();
        }
        (self.taken, self.last_begun) = (self.taken + 1, 0);
        self.watch();
        self.held.push_back(message);
        if let Carrier::Blocks(_) = self.way.carrier {
            self.device.register_write(self.way.status(), self.taken);
        }
    }
}

/// The engine that gives the processor messages that come.
#[derive(Debug)]
pub struct ReceiveEngine<D> {
    device: D,
    way: Way,
    queue: Option<Sender<D>>,
    /// Messages that wait for the processor, and how many may.
    held: VecDeque<Message>,
    most_held: usize,
    /// The message that is shown, of NI2w and CNI4, and how many have been.
    shown: Option<Message>,
    count: u64,
}

impl<D: Device + Clone> ReceiveEngine<D> {
    /// One of these. `fifo_messages`: what NI2w and CNI4 hold.
    pub fn new(way: Way, device: D, fifo_messages: usize) -> ReceiveEngine<D> {
        let queue = match way.carrier {
            Carrier::Queue(_) => Some(queue(way.carrier).sender(device.clone())),
            Carrier::Window(_) | Carrier::Blocks(_) => None,
        };
        let most_held = if queue.is_some() { 1 } else { fifo_messages };
        ReceiveEngine { device, way, queue, held: VecDeque::new(), most_held, shown: None, count: 0 }
    }

    /// Does what there is to do; false if that is nothing.
    pub fn step(&mut self) -> bool {
        let mut found = self.hear();
        while self.held.len() < self.most_held
            && let Some(message) = self.device.next_arrival()
        {
            self.held.push_back(message);
            found = true;
        }
        found | self.give()
    }

    /// Takes what the processor has done with the message that is shown.
    fn hear(&mut self) -> bool {
        let mut found = false;
        while let Some(access) = self.device.next_access(self.way.registers) {
            let RegisterAccess::Store(..) = access else { continue };
            // The handshake's second step: the processor's copies go before anything else is shown.
            if let (Carrier::Blocks(at), Some(message)) = (self.way.carrier, self.shown.take()) {
                for index in 0..message.used().len() {
                    self.device.write_line(at.lines(index as u64), &conic_fabric::Line::ZERO);
                }
            }
            found = true;
        }
        let Carrier::Window(window) = self.way.carrier else { return found };
        while let Some(access) = self.device.next_access(window) {
            let last = |message: &Message| window.word(words_with(message.payload()) - 1);
            if self.shown.as_ref().is_some_and(|message| access == RegisterAccess::Load(last(message))) {
                self.shown = None;
                found = true;
            }
        }
        found
    }

    fn give(&mut self) -> bool {
        let Some(message) = self.held.front() else { return false };
        if let Some(queue) = &mut self.queue {
            return queue.try_send(message.used()) && self.held.pop_front().is_some();
        }
        if self.shown.is_some() {
            return false;
        }
        let (Carrier::Window(at) | Carrier::Blocks(at)) = self.way.carrier else { return false };
        self.device.write_lines(at, message.used());
        self.shown = self.held.pop_front();
        self.count += 1;
        self.device.register_write(self.way.status(), self.count);
        true
    }
}
