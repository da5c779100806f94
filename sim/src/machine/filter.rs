//! A node's snoop filter: the lines that its home agents know to be in private caches, in sets and ways of each slice.
//!
//! | the entry of a line | |
//! |---|---|
//! | is taken | when a core's request for a copy has been looked up, and the line has none |
//! | is kept | while a core of the node has a copy, or has asked for one and not been granted it |
//! | is free | when neither holds any more |
//! | is given up | for another line of its set, if it was asked for longest ago of those that have nothing under way; every copy in the node is then recalled ([`ToHome::Recall`]) |
//!
//! Which line goes is decided by what the filter sees, the requests: hits in private caches are none. A recalled line is no longer of its
//! set, so the request goes on beside the recall; what the filter holds then is fewer than what private caches do, by the lines that
//! are being recalled, and more by those that are on their way. A recall takes a look-up of its slice, behind that of the request, and
//! what it snoops is answered as other snoops are; it needs no entry of the home agents.
//!
//! A set can only be full if the region has more lines of it than ways. The lines of other sets always find a way, so nothing is kept of
//! them: their entries change nothing, and looking at them would cost the host a third of its speed where all lines miss.
//!
//! Nobody waits for ever. A request waits only where every line of its set has something under way, and none of that waits for an entry of a
//! snoop filter: requests that are under way have theirs, recalls and snoops wait for answers of cores, which wait for nothing. So one of
//! the set's lines comes to rest, and the first that waits takes its way. Meanwhile a waiting request holds nothing that what is under way may need: of the home
//! agents' entries it has one of those that own requests may have, and the other node's need none of these ([`super::slices`]).

use std::collections::{BTreeSet, VecDeque};

use crate::engine::Key;
use crate::engine::pages::Room;
use crate::parameters::{NodeParameters, SnoopFilterParameters};
use crate::probe::Cause;
use crate::probe::counters::SnoopFilterCounters;
use crate::probe::queues::Probed;
use crate::protocol::home::Active;
use crate::protocol::{Asker, ToHome};

use super::line::{LineRecord, Pending};
use super::queues::Queue;
use super::slices::Slices;
use super::tags::{Gone, Tags};
use super::{COMPLETING, Event, Machine, Node};

/// The lines that share a set of a snoop filter with more lines than it has ways, a bit each; none where no set has so many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scarce(Vec<u64>);

impl Scarce {
    /// Those of the lines whose slices these are.
    pub fn of(parameters: &SnoopFilterParameters, lines: &[LineRecord]) -> Scarce {
        let sets = parameters.sets as usize;
        let set = |line: usize| usize::from(lines[line].slice()) * sets + line % sets;
        let mut inside = vec![0_u32; sets * usize::from(lines.iter().map(LineRecord::slice).max().unwrap_or(0) + 1)];
        (0..lines.len()).for_each(|line| inside[set(line)] += 1);
        let mut bits = vec![0; lines.len().div_ceil(64)];
        for line in (0..lines.len()).filter(|&line| inside[set(line)] > parameters.ways) {
            bits[line / 64] |= 1 << (line % 64);
        }
        Scarce(if bits.iter().all(|&bits| bits == 0) { Vec::new() } else { bits })
    }

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a line is one.
    #[inline(always)]
    fn has(&self, line: u32) -> bool {
        self.0.get(line as usize / 64).is_some_and(|bits| bits >> (line % 64) & 1 == 1)
    }
}

/// The snoop filter of a node.
#[derive(Debug)]
pub(crate) struct SnoopFilter {
    /// None where no line can lack a way.
    slices: Vec<Tags>,
    /// Requests that wait for a way of their set, in the order in which they came.
    waiting: VecDeque<Waiting>,
    /// When they are next looked at, if nothing happens before.
    looked_at: u64,
    pub counters: SnoopFilterCounters,
}

/// A request that waits, and what caused it, where that is written down.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    line: u32,
    slice: u8,
    message: ToHome,
    cause: Option<Cause>,
}

impl SnoopFilter {
    /// An empty one.
    pub fn new(parameters: &SnoopFilterParameters, node: &NodeParameters, scarce: &Scarce) -> SnoopFilter {
        let (bytes, mut room) = (parameters.slice_bytes(), Room::for_many());
        let slices = if scarce.is_empty() { 0 } else { node.home_slices };
        let slices = (0..slices).map(|_| Tags::within(&mut room, bytes, parameters.ways)).collect();
        SnoopFilter { slices, waiting: VecDeque::new(), looked_at: 0, counters: SnoopFilterCounters::default() }
    }

    /// Whether a line has an entry, which a request now uses.
    fn uses(&mut self, slice: u8, line: u32) -> bool {
        let tags = &mut self.slices[usize::from(slice)];
        let place = tags.find(line);
        place.inspect(|&place| _ = tags.touch(place)).is_some()
    }

    /// Gives a line an entry, and the line that gives its own up for it; none if no line may.
    fn enter(&mut self, slice: u8, line: u32, may_go: impl FnMut(u32) -> bool) -> Option<Option<Gone>> {
        self.slices[usize::from(slice)].insert(line, 0, may_go).map(|(_, gone)| gone)
    }

    /// Whether a request that came before waits for a way of a line's set, among the first `requests` that wait.
    fn is_waited_for(&self, slice: u8, line: u32, requests: usize) -> bool {
        let tags = &self.slices[usize::from(slice)];
        let same = |other: &Waiting| other.slice == slice && tags.set(other.line) == tags.set(line);
        self.waiting.iter().take(requests).any(same)
    }

    /// Takes a line's entry away.
    fn forget(&mut self, slice: u8, line: u32) {
        let tags = &mut self.slices[usize::from(slice)];
        if let Some(place) = tags.find(line) {
            tags.remove(place);
        }
    }

    /// How many requests wait for a way.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The lines that have an entry, of those that may lack one.
    fn lines(&self) -> impl Iterator<Item = u32> {
        self.slices.iter().flat_map(Tags::lines)
    }
}

/// What says whether a line of a node may give its entry up.
struct Busy<'a> {
    lines: &'a [LineRecord],
    slices: &'a Slices,
    node: usize,
    present: Key,
}

impl Busy<'_> {
    /// Whether nothing is under way for a line, in the order of events and not just by the time.
    fn may_go(&self, line: u32) -> bool {
        let record = &self.lines[line as usize];
        if record.active[self.node] == COMPLETING && record.completion() == self.present.time {
            return !self.slices.ends_later(record.slice(), line, self.present);
        }
        !record.is_busy(self.node, self.present.time)
    }
}

/// Whether a core of a node has asked for a copy of a line and not been granted it.
fn is_wanted(record: &LineRecord, actives: &[Active], node: usize) -> bool {
    match (record.pending(node), record.active[node]) {
        (Some(pending), _) => matches!(pending, Pending::Reply { .. }),
        (None, 0 | COMPLETING) => false,
        (None, place) => actives[place as usize - 1].wants_copy(),
    }
}

impl Machine {
    /// Whether what a request brings a core may be there: its line has an entry of the node's snoop filter from now on, or needs none.
    /// Otherwise it waits for one.
    #[inline(always)]
    pub(crate) fn has_way(&mut self, node: usize, line: u32, message: ToHome) -> bool {
        !self.scarce.has(line) || self.takes_way(node, line, message)
    }

    #[inline(never)]
    fn takes_way(&mut self, node: usize, line: u32, message: ToHome) -> bool {
        let ToHome::Request { asker: Asker::Core(_), ask, .. } = message else { return true };
        let Node { filter, slices, .. } = &mut self.nodes[node];
        let Some(filter) = filter.as_mut().filter(|_| ask.brings_copy()) else { return true };
        let slice = self.lines[line as usize].slice();
        if filter.uses(slice, line) {
            return true;
        }
        let busy = Busy { lines: &self.lines, slices, node, present: self.present };
        let waited_for = !filter.waiting.is_empty() && filter.is_waited_for(slice, line, usize::MAX);
        let way = if waited_for { None } else { filter.enter(slice, line, |other| busy.may_go(other)) };
        match way {
            Some(None) => {}
            Some(Some(Gone { line: victim, .. })) => self.recall(node, victim),
            None => self.wait_for_way(node, Waiting { line, slice, message, cause: None }),
        }
        way.is_some()
    }

    /// Has every copy of a line in a node recalled.
    #[inline(never)]
    fn recall(&mut self, node: usize, line: u32) {
        let copies = self.lines[line as usize].stable[node].copies;
        if let Some(filter) = &mut self.nodes[node].filter {
            filter.counters.evictions += 1;
            filter.counters.recalled += u64::from(copies.count_ones());
        }
        self.begin_look_up(node, line, self.now - self.ways[node].home_lookup);
        self.at_home(node, line, ToHome::Recall);
    }

    #[cold]
    #[inline(never)]
    fn wait_for_way(&mut self, node: usize, waiting: Waiting) {
        let cause = self.recorder.as_mut().and_then(|recorder| recorder.rejects());
        if let Some(filter) = &mut self.nodes[node].filter {
            filter.counters.waits += 1;
            filter.waiting.push_back(Waiting { cause, ..waiting });
        }
        self.enters(Queue::WithoutWay(node as u8), waiting.line, self.now);
        self.look_again(node, waiting.slice, waiting.line);
    }

    /// A node's home agents have handled a message about a line that cores had copies of: none may be left.
    #[inline(always)]
    pub(crate) fn may_forget(&mut self, node: usize, line: u32) {
        if self.scarce.has(line) {
            self.forget_unless_needed(node, line);
        }
    }

    #[inline(never)]
    fn forget_unless_needed(&mut self, node: usize, line: u32) {
        let Some(filter) = &mut self.nodes[node].filter else { return };
        let record = &self.lines[line as usize];
        if record.stable[node].copies == 0 && !is_wanted(record, &self.actives, node) {
            filter.forget(record.slice(), line);
        }
    }

    /// Something has ended at a node's home agents: requests that wait for a way of the snoop filter may have one now.
    #[inline(always)]
    pub(crate) fn may_give_ways(&mut self, node: usize) {
        if !self.scarce.is_empty() && self.nodes[node].filter.as_ref().is_some_and(|filter| !filter.waiting.is_empty())
        {
            self.give_ways(node);
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn give_ways(&mut self, node: usize) {
        let mut place = 0;
        while let Node { filter: Some(filter), slices, .. } = &mut self.nodes[node]
            && let Some(&Waiting { line, slice, message, cause }) = filter.waiting.get(place)
        {
            let busy = Busy { lines: &self.lines, slices, node, present: self.present };
            let way = if filter.is_waited_for(slice, line, place) {
                None
            } else if filter.uses(slice, line) {
                Some(None)
            } else {
                filter.enter(slice, line, |other| busy.may_go(other))
            };
            let Some(gone) = way else {
                self.look_again(node, slice, line);
                place += 1;
                continue;
            };
            filter.waiting.remove(place);
            self.leaves(Queue::WithoutWay(node as u8), line, self.now);
            if let Some(recorder) = &mut self.recorder {
                recorder.resumes(cause, self.now);
            }
            if let Some(Gone { line: victim, .. }) = gone {
                self.recall(node, victim);
            }
            self.at_home(node, line, message);
            // Handling it may have given ways to others.
            place = 0;
        }
    }

    /// Has those that wait for a way be looked at when what keeps the lines of a set there ends, as far as no event would say that it
    /// has: memory's answers to requests that were answered ahead, and the first acknowledgement of a reply.
    fn look_again(&mut self, node: usize, slice: u8, line: u32) {
        let (lines, now) = (&self.lines, self.now);
        let Node { filter: Some(filter), slices, .. } = &mut self.nodes[node] else { return };
        let completes = |line: &u32| lines[*line as usize].active[node] == COMPLETING;
        let mut acknowledged = u64::MAX;
        for other in filter.slices[usize::from(slice)].lines_beside(line).filter(completes) {
            if slices.ends_later(slice, other, self.present) {
                if let Some(ends) = slices.tell_of_end(slice, other, self.present) {
                    self.queue.push(ends, Event::Ends { node: node as u8, line: other });
                }
            } else if lines[other as usize].completion() > now {
                acknowledged = acknowledged.min(lines[other as usize].completion());
            }
        }
        let is_expected = filter.looked_at > now && filter.looked_at <= acknowledged;
        if acknowledged < u64::MAX && !is_expected {
            filter.looked_at = acknowledged;
            let key = self.key(acknowledged, node);
            self.queue.push(key, Event::Ways { node: node as u8 });
        }
    }

    /// Lines that have an entry of a snoop filter and need none, or need one and have none: what a checked run must not end with.
    pub(crate) fn filter_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (node, filter) in [0, 1].into_iter().filter_map(|node| Some((node, self.nodes[node].filter.as_ref()?))) {
            let known: BTreeSet<u32> = filter.lines().collect();
            for line in (0..self.lines.len() as u32).filter(|&line| self.scarce.has(line)) {
                let needs = self.needs_entry(node, line);
                if needs != known.contains(&line) {
                    faults.push(format!("node {node}, line {line}: it needs an entry of the snoop filter: {needs}"));
                }
            }
        }
        faults
    }

    /// Whether a line's entry is taken: a core of the node has a copy that is not being recalled, or waits for one.
    fn needs_entry(&self, node: usize, line: u32) -> bool {
        let record = &self.lines[line as usize];
        let is_recalled = self.active_of(node, line).is_some_and(Active::is_recalling);
        record.stable[node].copies != 0 && !is_recalled || is_wanted(record, &self.actives, node)
    }

    /// What is under way for a line in a node, where that is written down.
    fn active_of(&self, node: usize, line: u32) -> Option<&Active> {
        let record = &self.lines[line as usize];
        let place = record.active[node];
        (place != 0 && place != COMPLETING && record.pending(node).is_none()).then(|| &self.actives[place as usize - 1])
    }

    /// How many lines a node's snoop filter has entries for; none where it has no limit.
    pub fn filtered(&self, node: usize) -> Option<usize> {
        let filter = self.nodes[node].filter.as_ref()?;
        let others = (0..self.lines.len() as u32).filter(|&line| !self.scarce.has(line));
        Some(filter.lines().count() + others.filter(|&line| self.needs_entry(node, line)).count())
    }

    /// How many lines the private caches of a node have, each counted once.
    pub fn privately_cached(&self, node: usize) -> usize {
        let has = |line: u32| {
            self.nodes[node].cores.iter().any(|&id| self.agents[usize::from(id)].caches.peek(line).is_some())
        };
        (0..self.lines.len() as u32).filter(|&line| has(line)).count()
    }
}
