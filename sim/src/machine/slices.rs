//! A node's home agents, slice by slice: how many messages they can look up, and how many requests they can be busy with.
//!
//! Requests and snoops are looked up in the last-level cache, the snoop filter and the directory. That takes the time that
//! [`NodeParameters::home_lookup`] says, during which others may be begun; a slice begins one every
//! [`NodeParameters::home_service`], in the order in which they arrive. Answers to what a slice has asked are not looked up, and
//! neither are lines that a core gives up.
//!
//! A request needs one of its slice's [`NodeParameters::home_entries`], in each node that it comes to:
//!
//! | whose | its entry | from when | until |
//! |---|---|---|---|
//! | a core's or device's of this node | one of [`NodeParameters::home_own_entries`] | it has been looked up | it is answered; a write to memory: memory has it |
//! | the other node's | any | the same | it is answered |
//! | snoops, answers, lines that are given up | none | | |
//!
//! Where there is none the slice looks it up once more when it has one, in the order in which the requests of a kind came. The look-up in
//! vain has kept the slice as any does, and the second one takes its turn behind whatever is at the slice before the entry is free.
//!
//! Nobody waits for ever: what has no entry waits for those that do, and each of these comes to its end; a look-up waits for those before it alone. A request of the other node waits for
//! nothing but memory, snoops, their answers, and the request or recall before it on its line, which has its entry in the same slice; none of these
//! needs another. So the entries that own requests may not have come back always. An own request may wait for such an entry of the
//! other node besides. If own requests had all entries of both, each could wait for one that the other has; if a snoop needed
//! one, for its own line's request. A test shows the first.

use crate::engine::Key;
use crate::entries::{Entries, Limits};
use crate::link::Spread;
use crate::parameters::{NodeParameters, Parameters};
use crate::probe::Cause;
use crate::probe::queues::Probed;
use crate::protocol::{Asker, ToHome};

use super::alone::Ahead;
use super::queues::Queue;
use super::{Event, Machine, Node};

/// The slices of a node's home agents.
#[derive(Clone, Debug)]
pub(crate) struct Slices {
    /// Time for which a look-up keeps the next one of its slice waiting; zero: no limit.
    service: u64,
    limits: Limits,
    slices: Vec<Slice>,
}

#[derive(Clone, Debug, Default)]
struct Slice {
    free_from: u64,
    looked_up: u64,
    entries: Entries,
    /// Requests that were answered ahead of memory, and have their entries.
    ahead: Vec<Ahead>,
}

impl Slice {
    /// Frees the entries of those requests that were answered ahead and ended before the present, without an event: nobody waits for them.
    #[inline(always)]
    fn free_ended(&mut self, limits: Limits, present: Key) {
        let mut place = 0;
        while let Some(&Ahead { ends, told, .. }) = self.ahead.get(place) {
            if told || !ends.is_before(present) {
                place += 1;
                continue;
            }
            self.ahead.swap_remove(place);
            let next = self.entries.leave(limits, true);
            debug_assert!(next.is_none(), "the end of a request is an event where one waits");
        }
    }
}

/// A request that found no entry, and what caused it, where that is written down.
#[derive(Clone, Debug)]
pub(crate) struct Rejected {
    line: u32,
    message: ToHome,
    cause: Option<Cause>,
}

impl Slices {
    /// Idle slices.
    ///
    /// # Panics
    ///
    /// Where there is none.
    pub fn new(parameters: &NodeParameters) -> Slices {
        assert!(parameters.home_slices > 0, "node.home_slices is 0: there must be a slice");
        let limits = Limits { entries: parameters.home_entries, bounded: parameters.home_own_entries };
        let slices = vec![Slice::default(); parameters.home_slices as usize];
        Slices { service: parameters.home_service, limits, slices }
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

    /// Entries of each slice.
    pub fn entries(&self) -> u32 {
        self.limits.entries
    }

    /// Entries of one slice that are taken, and requests that wait for one.
    pub fn busy(&self, slice: u8) -> (u32, usize) {
        let entries = &self.slices[usize::from(slice)].entries;
        (entries.taken(), entries.waiting())
    }

    /// A request is answered ahead, and has its entry until it ends: whether a request waits for one.
    #[inline(always)]
    pub fn ends(&mut self, slice: u8, ahead: Ahead) -> bool {
        let slice = &mut self.slices[usize::from(slice)];
        slice.ahead.push(ahead);
        slice.entries.waiting() > 0
    }

    /// Whether one slice's request for a line was answered ahead and ends after the present.
    pub fn ends_later(&self, slice: u8, line: u32, present: Key) -> bool {
        self.ahead(slice).iter().any(|ahead| ahead.line == line && present.is_before(ahead.ends))
    }

    /// The end of such a request is an event from now on; when it is, unless it was one before.
    pub fn tell_of_end(&mut self, slice: u8, line: u32, present: Key) -> Option<Key> {
        let mut ahead = self.ahead_mut(slice).iter_mut();
        let ahead = ahead.find(|ahead| ahead.line == line && present.is_before(ahead.ends))?;
        (!std::mem::replace(&mut ahead.told, true)).then_some(ahead.ends)
    }

    /// Those of one slice that were answered ahead.
    pub fn ahead(&self, slice: u8) -> &[Ahead] {
        &self.slices[usize::from(slice)].ahead
    }

    /// The same, to be changed.
    pub fn ahead_mut(&mut self, slice: u8) -> &mut Vec<Ahead> {
        &mut self.slices[usize::from(slice)].ahead
    }

    /// Takes an entry, if a request has one at once.
    #[inline(always)]
    fn take(&mut self, slice: u8, own: bool, present: Key) -> bool {
        let (limits, slice) = (self.limits, &mut self.slices[usize::from(slice)]);
        slice.free_ended(limits, present);
        slice.entries.take(limits, own)
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
    /// Whether a message that a node's home agents must look up has been by now, and has its entry if it needs one.
    #[inline]
    pub(crate) fn is_looked_up(&mut self, node: usize, line: u32, message: ToHome) -> bool {
        self.is_its_turn(node, line, Event::LookedUp { node: node as u8, line, message })
            && self.has_entry(node, line, message)
    }

    /// Whether what would have been looked up by now, if its slice had nothing else to do, has been. Its slice may have others to look
    /// up first, and then `looked_up` happens as much later as it waits for them.
    #[inline]
    pub(crate) fn is_its_turn(&mut self, node: usize, line: u32, looked_up: Event) -> bool {
        if self.nodes[node].slices.service == 0 {
            return true;
        }
        // It was at the slice that much earlier; all are, so their order is that of these events.
        let lookup = self.ways[node].home_lookup;
        let arrived = self.now - lookup;
        let begins = self.begin_look_up(node, line, arrived);
        if begins > arrived {
            self.put_off(node, begins + lookup, looked_up);
        }
        begins == arrived
    }

    /// Begins the look-up of what is at a line's slice at `arrived`; says when that is.
    #[inline]
    pub(super) fn begin_look_up(&mut self, node: usize, line: u32, arrived: u64) -> u64 {
        let slices = &mut self.nodes[node].slices;
        let service = slices.service;
        let slice = self.lines[line as usize].slice();
        let begins = slices.begin(slice, arrived);
        self.serves(Queue::Slice(node as u8, slice), arrived, begins + service);
        begins
    }

    /// Whether a message has an entry of its slice from now on, or needs none. Otherwise it waits for one.
    #[inline]
    pub(crate) fn has_entry(&mut self, node: usize, line: u32, message: ToHome) -> bool {
        let own = match message {
            ToHome::Request { asker, .. } => asker != Asker::Node,
            ToHome::OrderedWrite { .. } => true,
            _ => return true,
        };
        let slice = self.lines[line as usize].slice();
        let has = self.nodes[node].slices.take(slice, own, self.present);
        if has {
            self.enters(Queue::Entries(node as u8, slice), line, self.now);
        } else {
            self.wait_for_entry(node, slice, own, line, message);
        }
        has
    }

    #[cold]
    #[inline(never)]
    fn wait_for_entry(&mut self, node: usize, slice: u8, own: bool, line: u32, message: ToHome) {
        let cause = self.recorder.as_mut().and_then(|recorder| recorder.rejects());
        let Node { slices, without_entry, .. } = &mut self.nodes[node];
        let id = without_entry.insert(Rejected { line, message, cause }) as u32;
        let at_once = slices.slices[usize::from(slice)].entries.arrive(slices.limits, id, own, self.now);
        debug_assert!(!at_once, "there was none");
        self.tell_of_ends(node, slice);
        self.enters(Queue::WithoutEntry(node as u8, slice), id, self.now);
    }

    /// The entry of a request for a line that has been answered is free, one of a node's own or of the other's; the request that is next has it,
    /// and is looked up once more.
    #[inline]
    pub(crate) fn give_entry(&mut self, node: usize, line: u32, own: bool) {
        let slice = self.lines[line as usize].slice();
        let slices = &mut self.nodes[node].slices;
        let next = slices.slices[usize::from(slice)].entries.leave(slices.limits, own);
        match next {
            None => self.leaves(Queue::Entries(node as u8, slice), line, self.now),
            Some((id, _)) => self.pass_entry(node, slice, line, id),
        }
    }

    #[cold]
    #[inline(never)]
    fn pass_entry(&mut self, node: usize, slice: u8, answered: u32, id: u32) {
        let Rejected { line, message, cause } = self.nodes[node].without_entry.remove(id as usize);
        self.leaves(Queue::WithoutEntry(node as u8, slice), id, self.now);
        self.hands_over(Queue::Entries(node as u8, slice), answered, line);
        let key = self.key(self.now + self.ways[node].home_lookup, node);
        if let Some(recorder) = &mut self.recorder {
            recorder.admits(cause, key);
        }
        // It is at the slice now, where others may be that came before.
        self.queue.push(key, Event::LookUpAgain { node: node as u8, line, message });
    }

    /// Has a message be looked up at a later time.
    #[cold]
    #[inline(never)]
    fn put_off(&mut self, node: usize, until: u64, looked_up: Event) {
        let key = self.key(until, node);
        if let Some(recorder) = &mut self.recorder {
            recorder.put_off(key);
        }
        self.queue.push(key, looked_up);
    }
}
