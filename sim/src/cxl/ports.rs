//! The ports of the device's coherence engine, and the requests that it may have under way.
//!
//! The unit that moves packets and the one that manages descriptors have a port each (section 4.1): each takes its requests in their
//! order, at its own rate. Behind both is one pool of tags (`dcoh.requests_in_flight`): what its value was measured from is how much
//! one stream of reads had under way, and nothing says that a second port brings a second pool. A request takes its tag when it passes
//! its port, so that what still waits for a port keeps no tag from the other unit; where both ports wait for tags, they take turns.

use std::collections::VecDeque;

use super::machine::{Event, Machine};
use super::queues::Queue;
use crate::probe::queues::Probed;

/// The port of the unit that moves packets, and that of the one that manages descriptors.
pub(super) const PORTS: usize = 2;

/// A port.
#[derive(Clone, Debug, Default)]
pub(super) struct Port {
    /// Requests that have not passed it, and when each was made.
    waiting: VecDeque<(u32, u64)>,
    /// When it takes the next one.
    free_at: u64,
    /// It looks again then.
    looks_again: bool,
}

impl Port {
    /// Requests that have not passed it.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

impl Machine {
    /// A request of the device's logic comes to the port of the unit that it is of: what the unit that manages descriptors asks for are
    /// lines with words that synchronise.
    pub(super) fn comes_to_port(&mut self, key: u32) {
        let port = usize::from(self.lines[self.operations[key as usize].line as usize].synchronises);
        if let Some(recorder) = &mut self.recorder {
            recorder.is_to_pass(key);
        }
        self.ports[port].waiting.push_back((key, self.agenda.now));
        self.enters(Queue::Port(port as u8), key, self.agenda.now);
        self.passes_port(port);
    }

    /// A port is free again.
    pub(super) fn looks_again(&mut self, port: usize) {
        self.ports[port].looks_again = false;
        self.passes_port(port);
    }

    /// A request, by its number, is done: whoever waits for its tag has it, the port first that did not have the last one.
    pub(super) fn gives_tag(&mut self, key: u32) {
        self.in_flight.give(self.agenda.now);
        self.leaves(Queue::Tags, key, self.agenda.now);
        let first = 1 - self.last_tag;
        self.passes_port(first);
        self.passes_port(1 - first);
    }

    /// The requests of a port go, as far as it takes them now and there are tags, to the look-up in the device's cache.
    fn passes_port(&mut self, port: usize) {
        let (now, p) = (self.agenda.now, &self.parameters.dcoh);
        let interval = p.cycle / u64::from([p.ports, p.descriptor_ports][port]);
        let there = now + p.hit / 2;
        while let Some((key, asked)) = self.ports[port].waiting.front().copied() {
            let state = &mut self.ports[port];
            if state.free_at > now {
                if !state.looks_again {
                    state.looks_again = true;
                    let free_at = state.free_at;
                    self.agenda.at(free_at, Event::PortFree(port));
                }
                return;
            }
            if !self.in_flight.try_take(now) {
                return;
            }
            state.waiting.pop_front();
            state.free_at = now + interval;
            self.last_tag = port;
            self.leaves(Queue::Port(port as u8), key, now);
            self.enters(Queue::Tags, key, now);
            self.note_access(key, asked, there);
            self.agenda.at(there, Event::LookedUp(key));
        }
    }
}
