//! The messaging layer: messages of any length as fragments, and the software flow control of CNI's section 4.1.

use std::collections::VecDeque;

use conic_fabric::{Address, Core, Home, Layout, SynchronisingWords};

use super::window::Unacknowledged;
use super::{Host, MOST_PAYLOAD, Place, Received};

/// Bytes between two buffers of messages that were taken in.
const BUFFER_BYTES: u64 = 256;

/// Where messages lie that were taken in while a message could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    at: Address,
    count: u64,
}

impl Buffers {
    /// Appends `count` buffers, in the memory of the user.
    pub fn place(layout: &mut Layout, count: u64) -> Buffers {
        let bytes = count * BUFFER_BYTES;
        let at = layout.add("messages taken in", bytes, BUFFER_BYTES, Home::Host, SynchronisingWords::NONE);
        Buffers { at, count }
    }
}

/// A process's end of the network, over any of the five interfaces.
///
/// Who cannot send, because its window to a node or the interface is full, takes messages in meanwhile, so that no ring of nodes waits for
/// each other: a device acknowledges what it has room for, and has room again when its processor receives, or cannot send either. Where the interface lets them overflow to
/// memory by itself, only once its queue there is full too, and then all of them: the paper's device interrupts the processor, which
/// drains the queue into memory of its own (section 2.3); here the processor that waits looks for itself, and one that does not will
/// receive.
#[derive(Debug)]
pub struct Endpoint<C> {
    core: C,
    host: Host<C>,
    window: Unacknowledged,
    takes_in: bool,
    buffers: Buffers,
    /// What was taken in, oldest first, in the buffers from `begin` on.
    taken_in: VecDeque<Received>,
    begin: u64,
    buffered: u64,
}

impl<C: Core + Clone> Endpoint<C> {
    /// One on a processor. `fifo_messages`: what NI2w's send queue holds; `window`: how many messages to a node may be without
    /// acknowledgement.
    pub fn new(place: Place, core: C, fifo_messages: u64, window: u64, buffers: Buffers) -> Endpoint<C> {
        let (host, takes_in) = (place.host(core.clone(), fifo_messages), !place.kind.overflows_to_memory());
        let window = place.window.unacknowledged(window);
        Endpoint { core, host, window, takes_in, buffers, taken_in: VecDeque::new(), begin: 0, buffered: 0 }
    }

    /// Sends `bytes` bytes that lie at `from` to a node, as one network message or several, and waits until all are given to the interface.
    pub fn send(&mut self, to: u16, from: Address, bytes: u64) {
        let mut done = 0;
        loop {
            let part = (bytes - done).min(MOST_PAYLOAD);
            while !self.try_send(to, from + done, part) {
                if !self.makes_room() {
                    self.core.spin();
                }
            }
            done += part;
            if done == bytes {
                return;
            }
        }
    }

    /// Sends a network message if the window to the node and the interface let it.
    fn try_send(&mut self, to: u16, from: Address, bytes: u64) -> bool {
        let has_gone = self.window.may_send(&self.core, to) && self.host.try_send(to, from, bytes);
        if has_gone {
            self.window.note_sent(to);
        }
        has_gone
    }

    /// Does what is to be done while nothing can be sent; false if that is nothing.
    fn makes_room(&mut self) -> bool {
        if self.takes_in {
            return self.take_in();
        }
        let is_full = matches!(&self.host, Host::Queues(host) if host.is_full());
        let mut found = false;
        while is_full && self.take_in() {
            found = true;
        }
        found
    }

    /// Takes a message out of the interface into a buffer, if there are both.
    fn take_in(&mut self) -> bool {
        let count = self.taken_in.len() as u64;
        if count == self.buffers.count {
            return false;
        }
        let Some(received) = self.host.try_receive(self.buffer(self.begin + count)) else { return false };
        self.taken_in.push_back(received);
        self.buffered += 1;
        true
    }

    fn buffer(&self, place: u64) -> Address {
        self.buffers.at + place % self.buffers.count * BUFFER_BYTES
    }

    /// Receives the next network message into the buffer at `into`, if there is one.
    pub fn try_receive(&mut self, into: Address) -> Option<Received> {
        let Some(received) = self.taken_in.pop_front() else { return self.host.try_receive(into) };
        let mut bytes = [0; MOST_PAYLOAD as usize];
        let bytes = &mut bytes[..received.bytes as usize];
        self.core.read_bytes(self.buffer(self.begin), bytes);
        self.core.write_bytes(into, bytes);
        self.begin += 1;
        Some(received)
    }

    /// How many messages were taken in while others could not be sent.
    pub fn buffered(&self) -> u64 {
        self.buffered
    }

    /// The core that it runs on.
    pub fn core(&self) -> &C {
        &self.core
    }
}
