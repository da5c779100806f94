//! Loads that a core has issued and that have not come, behind which it goes on: its reorder buffer.
//!
//! | what | rule |
//! |---|---|
//! | a load of bulk data that misses (`read_line`, `read_lines`, `copy_lines`) | takes a place; the program goes on |
//! | any other load that misses | the program waits: what follows depends on it |
//! | what may be issued | what lies within the reorder buffer's instructions of the oldest load that has not come |
//! | a store | leaves the store buffer after every load before it has come (it retires in order) |
//! | a store's request for its line | leaves at once, once its address is known, whatever loads before it are under way |
//! | a store whose line was taken away before its turn | asks again when its turn comes, and those behind it with it |
//! | atomic, full fence, access past the caches | after every load before it has come |
//!
//! The store's request is measured, because Intel's optimisation manual says of older cores that reading for ownership comes after
//! retirement. On Sapphire Rapids, with every line modified in another core's cache (cycles of 2.6 GHz, medians of 51,200, three
//! runs): a load 270, a store with a fence 268, two loads 366, a load and a store behind it 366, two stores 368, and a store whose
//! address depends on the load 532. Up to ten stores to lines of their own overlap as loads do, however closely they stand; of more
//! that stand within some 20 cycles of each other, fewer than of loads are under way at once (`core.store_fill_buffers`).
//!
//! That lost lines are asked for together is measured on the same processor: behind a store to a line in memory (181 ns with a
//! fence) stand stores to lines that the core has and that another core loads meanwhile. With one such line it takes 258 ns,
//! with four 271 and with eight or twelve 504; one after the other each would take another 70.
//!
//! Instructions are counted by the time that a core works: annotated work states its own (`core.work_instructions`). A load's
//! value is the line's at the moment of issue, or as much later as another core may be simulated ahead: a moment before it
//! arrives in any case, and the same order for every load and store of a core. The real core, which finds out that a line
//! changed before its load retired, does the load again. Whoever reads what nobody writes meanwhile sees no difference.
//!
//! So a core's loads are seen in their order, as total store order has it, because each takes its value when it is issued, from the one
//! place where a line's data is. A snoop that takes a line away whose load is under way changes nothing of that: the load that the real
//! core does again, and what that costs, are not modelled.

use std::collections::VecDeque;

use super::Machine;
use super::Wait as W;
use super::access::Step;
use super::places::Place;
use super::queues::Queue;
use super::uncached::Kind;
use crate::probe::queues::Probed;
use crate::protocol::Ask;

/// A load that was issued.
#[derive(Clone, Copy, Debug)]
struct Load {
    line: u32,
    /// Its place in the order of the core's loads.
    sequence: u64,
    /// How long the core had worked when it was issued, in picoseconds.
    worked: u64,
    come: bool,
}

/// The loads of a core that have not come, oldest first, and behind it those that have come before it.
#[derive(Debug)]
pub(crate) struct Reorder {
    loads: VecDeque<Load>,
    /// Loads that were issued so far.
    issued: u64,
    /// For how long a core works while it fills the reorder buffer, in picoseconds.
    span: u64,
    /// Loads that may be under way.
    limit: usize,
}

impl Reorder {
    pub(crate) fn new(span: u64, limit: u32) -> Reorder {
        Reorder { loads: VecDeque::with_capacity(limit as usize), issued: 0, span, limit: limit.max(1) as usize }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.loads.is_empty()
    }

    /// The last load that was issued: what a store that follows it retires after.
    #[inline(always)]
    pub(crate) fn last(&self) -> u64 {
        self.issued
    }

    /// Whether a load and all before it have come.
    #[inline(always)]
    pub(crate) fn has_retired(&self, sequence: u64) -> bool {
        self.loads.front().is_none_or(|oldest| oldest.sequence > sequence)
    }

    /// For how long a core that has worked for `worked` may go on before the oldest load must have come; picoseconds.
    #[inline(always)]
    pub(crate) fn room(&self, worked: u64) -> u64 {
        self.loads.front().map_or(u64::MAX, |oldest| (oldest.worked + self.span).saturating_sub(worked))
    }

    /// The oldest load, which must have come before a core whose buffer is full goes on: the lowest bits of its place in the order.
    #[inline(always)]
    pub(crate) fn oldest(&self) -> u32 {
        self.loads.front().map_or(self.issued, |oldest| oldest.sequence) as u32
    }

    /// Whether this load, which was the oldest, is so still.
    #[inline(always)]
    pub(crate) fn is_oldest(&self, load: u32) -> bool {
        self.loads.front().is_some_and(|oldest| oldest.sequence as u32 == load)
    }

    /// For how long a core works while it fills the buffer, in picoseconds.
    #[inline(always)]
    pub(crate) fn span(&self) -> u64 {
        self.span
    }

    /// Whether a load of this line has not come.
    pub(crate) fn waits_for(&self, line: u32) -> bool {
        self.loads.iter().any(|load| load.line == line && !load.come)
    }

    fn issue(&mut self, line: u32, worked: u64) {
        self.issued += 1;
        self.loads.push_back(Load { line, sequence: self.issued, worked, come: false });
    }

    /// Loads that may be under way at once.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Loads that have not retired.
    pub(crate) fn len(&self) -> usize {
        self.loads.len()
    }

    /// Notes that a line has come.
    fn arrived(&mut self, line: u32) {
        for load in self.loads.iter_mut().filter(|load| load.line == line) {
            load.come = true;
        }
    }

    /// Retires the oldest load, if it has come, and gives its place in the order of loads.
    fn retire(&mut self) -> Option<u64> {
        let oldest = *self.loads.front().filter(|load| load.come)?;
        self.loads.pop_front();
        Some(oldest.sequence)
    }
}

impl Machine {
    /// Lets a core go on only if what it does next lies within the reorder buffer.
    #[inline(always)]
    pub(crate) fn within_reorder_buffer(&self, id: usize) -> Step<()> {
        let agent = &self.agents[id];
        if !agent.reorder.is_empty() && agent.reorder.room(agent.worked()) == 0 {
            return Err(W::Retire(agent.reorder.oldest()));
        }
        Ok(())
    }

    /// Whether the reorder buffer holds what a core does within `work` picoseconds of work from now.
    #[inline(always)]
    pub(crate) fn reaches(&self, id: usize, work: u64) -> bool {
        let agent = &self.agents[id];
        work < agent.reorder.room(agent.worked()).min(agent.reorder.span())
    }

    /// A line has come for whatever loads of a core wait for it.
    #[inline(always)]
    pub(crate) fn loads_have(&mut self, id: usize, line: u32) {
        if self.agents[id].reorder.is_empty() {
            return;
        }
        self.agents[id].reorder.arrived(line);
        while let Some(sequence) = self.agents[id].reorder.retire() {
            self.leaves(Queue::Reorder(id as u16), sequence as u32, self.now);
        }
    }

    /// Waits for a line that is on its way, because what follows depends on it.
    pub(crate) fn need(&mut self, id: usize, line: u32) -> Step<()> {
        if !self.may_act(id) {
            return Err(W::Time);
        }
        let agent = &mut self.agents[id];
        match agent.reorder.waits_for(line) {
            false => Ok(()),
            true => {
                agent.not_pure();
                Err(W::Load(line))
            }
        }
    }

    /// Issues a load of a line that the core does not have, without waiting for it.
    pub(crate) fn load_behind(&mut self, id: usize, line: u32, bytes: u64, place: Place) -> Step<()> {
        // The value is of this moment: whatever comes before it must have happened.
        if !self.is_present(id) {
            return Err(W::Time);
        }
        assert!(self.kind(line) == Kind::WriteBack, "line {line} is not cached: read it as a register");
        let issue = self.timing.issue;
        let agent = &mut self.agents[id];
        agent.not_pure();
        if agent.reorder.loads.len() >= agent.reorder.limit {
            return Err(W::Retire(agent.reorder.oldest()));
        }
        if !agent.is_on_its_way(line) {
            if !agent.fills.are_full() && agent.prefetches.is_empty() {
                let time = agent.time;
                self.fetch(id, line, Ask::Read, time);
                if self.agents[id].prefetchers.are_on() {
                    self.after_miss(id, line);
                }
            } else if agent.prefetches.len() < agent.prefetch_limit {
                agent.prefetches.push_back((line, Ask::Read));
                let time = agent.time;
                self.enters(Queue::LoadBuffer(id as u16), line, time);
            } else {
                return Err(W::LoadRoom);
            }
        }
        let agent = &mut self.agents[id];
        let worked = agent.worked();
        agent.reorder.issue(line, worked);
        let (begins, sequence) = (agent.time, agent.reorder.last());
        agent.time += issue;
        agent.note_read(line);
        agent.counters.accesses.loads += 1;
        self.enters(Queue::Reorder(id as u16), sequence as u32, begins);
        if self.agents[id].prefetchers.are_on() {
            self.after_load(id, line, bytes, place);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_holds_back_what_lies_a_buffer_behind_it_and_not_a_picosecond_before() {
        let mut buffer = Reorder::new(1000, 8);
        assert_eq!(buffer.room(5), u64::MAX);
        buffer.issue(7, 100);
        buffer.issue(8, 400);
        assert_eq!([buffer.room(1099), buffer.room(1100), buffer.room(2000)], [1, 0, 0]);
        buffer.arrived(7);
        assert_eq!([buffer.retire(), buffer.retire()], [Some(1), None]);
        assert_eq!([buffer.room(1100), buffer.room(1399), buffer.room(1400)], [300, 1, 0]);
    }

    #[test]
    fn loads_retire_in_order() {
        let mut buffer = Reorder::new(1000, 8);
        buffer.issue(7, 0);
        buffer.issue(8, 0);
        let stores_after = buffer.last();
        buffer.arrived(8);
        let oldest = buffer.oldest();
        assert_eq!(buffer.retire(), None);
        assert!(buffer.is_oldest(oldest) && !buffer.has_retired(1) && !buffer.has_retired(stores_after));
        buffer.arrived(7);
        assert_eq!([buffer.retire(), buffer.retire()], [Some(1), Some(2)]);
        assert!(buffer.has_retired(stores_after) && buffer.is_empty() && !buffer.is_oldest(oldest));
    }
}
