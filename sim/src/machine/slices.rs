//! A node's home agents, slice by slice: how many messages they can look up.
//!
//! Requests and snoops are looked up in the last-level cache, the snoop filter and the directory. That takes the time that
//! [`NodeParameters::home_lookup`] says, during which others may be begun; a slice begins one every
//! [`NodeParameters::home_service`], in the order in which they arrive. Answers to what a slice has asked are not looked up, and
//! neither are lines that a core gives up.

use crate::link::Spread;
use crate::parameters::{NodeParameters, Parameters};
use crate::protocol::ToHome;

use super::queues::Queue;
use super::{Event, Machine};

/// The slices of a node's home agents.
#[derive(Clone, Debug)]
pub(crate) struct Slices {
    /// Time for which a look-up keeps the next one of its slice waiting; zero: no limit.
    service: u64,
    slices: Vec<Slice>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    free_from: u64,
    looked_up: u64,
}

impl Slices {
    /// Idle slices.
    ///
    /// # Panics
    ///
    /// Where there is none.
    pub fn new(parameters: &NodeParameters) -> Slices {
        assert!(parameters.home_slices > 0, "node.home_slices is 0: there must be a slice");
        Slices { service: parameters.home_service, slices: vec![Slice::default(); parameters.home_slices as usize] }
    }

    /// How many slices there are.
    pub fn number(&self) -> usize {
        self.slices.len()
    }

    /// Look-ups of one slice so far, and the time that they took it.
    pub fn served(&self, slice: usize) -> (u64, u64) {
        let looked_up = self.slices[slice].looked_up;
        (looked_up, looked_up * self.service)
    }

    /// Begins the look-up of a message that is at a slice at `now`, or as soon as the slice has begun those before it; says when
    /// that is. Calls are made in nondecreasing order of `now`.
    #[inline]
    fn begin(&mut self, slice: u8, now: u64) -> u64 {
        let slice = &mut self.slices[usize::from(slice)];
        let begins = slice.free_from.max(now);
        slice.free_from = begins + self.service;
        slice.looked_up += 1;
        begins
    }
}

/// The slice that serves a line, in either node.
///
/// # Panics
///
/// Where there is none or more than [`crate::link::MOST_PARTS`].
pub(crate) fn slice_of(parameters: &Parameters, line: u64) -> usize {
    // Another salt than the links' and the channels', or a slice would have the lines of some of them alone.
    Spread::new(parameters.node.home_slices, 2).part(line)
}

/// Whether home agents must look a message up before they handle it.
#[inline(always)]
pub(crate) fn must_be_looked_up(message: ToHome) -> bool {
    matches!(message, ToHome::Request { .. } | ToHome::OrderedWrite { .. } | ToHome::Snoop(_))
}

impl Machine {
    /// Whether a message that a node's home agents must look up has been by now: its slice may have others to look up first, and
    /// then it is put off by as long as it waits for them.
    #[inline]
    pub(crate) fn is_looked_up(&mut self, node: usize, line: u32, message: ToHome) -> bool {
        let slices = &mut self.nodes[node].slices;
        if slices.service == 0 {
            return true;
        }
        // It was at the slice that much earlier; all are, so their order is that of these events.
        let lookup = self.ways[node].home_lookup;
        let (service, arrived) = (slices.service, self.now - lookup);
        let slice = self.lines[line as usize].slice();
        let begins = slices.begin(slice, arrived);
        self.serves(Queue::Slice(node as u8, slice), arrived, begins + service);
        if begins > arrived {
            self.put_off(node, line, message, begins + lookup);
        }
        begins == arrived
    }

    /// Has a message be looked up at a later time.
    #[cold]
    #[inline(never)]
    fn put_off(&mut self, node: usize, line: u32, message: ToHome, until: u64) {
        let key = self.key(until, node);
        if let Some(recorder) = &mut self.recorder {
            recorder.put_off(key);
        }
        self.queue.push(key, Event::Home { node: node as u8, line, message });
    }
}
