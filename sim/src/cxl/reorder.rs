//! Loads of bulk data that a core has issued and that have not come, behind which it goes on: its reorder buffer, as in the first
//! machine (`sim/src/machine/reorder.rs` says what was measured).
//!
//! | what | rule |
//! |---|---|
//! | a load of bulk data that misses (`read_line`, `read_lines`, `read_bytes`, `copy_lines`) | takes a place and a line fill buffer; the program goes on |
//! | any other load that misses | the program waits: what follows depends on it |
//! | what may be issued | what lies within the reorder buffer's instructions of the oldest load that has not come |
//! | a store | is performed after every load before it has come (it retires in order) |
//! | a store's request for its line | leaves at once, whatever loads before it are under way |
//! | atomic, full fence, register, access past the caches | after every load before it has come |
//!
//! A load's value is what the line is at the moment of issue. While somebody else's request for the line is under way there is no
//! such value in one place: then the program waits for the load, as it does where no line fill buffer is free.

use std::collections::VecDeque;

use conic_fabric::Line;

use super::home::From;
use super::machine::{Machine, Wait};
use super::queues::Queue;
use crate::probe::queues::Probed;
use crate::protocol::cxl::{Copy, Side};

/// A load that was issued.
#[derive(Clone, Copy, Debug)]
struct Load {
    line: u32,
    /// How long the core had worked when it was issued, in picoseconds.
    worked: u64,
    come: bool,
}

/// The loads of a core that have not come, oldest first, and behind it those that have come before it.
#[derive(Debug)]
pub(super) struct Reorder {
    loads: VecDeque<Load>,
    /// Loads that were issued so far, and that have retired.
    issued: u64,
    retired: u64,
    /// How long the core has worked, in picoseconds: its time without what it has waited for.
    worked: u64,
    /// For how long a core works while it fills the reorder buffer, in picoseconds.
    span: u64,
}

impl Reorder {
    pub(super) fn new(span: u64) -> Reorder {
        Reorder { loads: VecDeque::new(), issued: 0, retired: 0, worked: 0, span }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.loads.is_empty()
    }

    /// Loads that are under way, or have come and have not retired.
    pub(super) fn len(&self) -> usize {
        self.loads.len()
    }

    /// How many loads were issued: what a store that follows them retires after.
    pub(super) fn issued(&self) -> u64 {
        self.issued
    }

    /// Whether so many loads, counted from the first, have come.
    pub(super) fn has_retired(&self, loads: u64) -> bool {
        self.retired >= loads
    }

    /// For how long the core may go on before the oldest load must have come; picoseconds.
    pub(super) fn room(&self) -> u64 {
        self.loads.front().map_or(u64::MAX, |oldest| (oldest.worked + self.span).saturating_sub(self.worked))
    }

    pub(super) fn work(&mut self, span: u64) {
        self.worked += span;
    }

    fn issue(&mut self, line: u32) {
        self.issued += 1;
        self.loads.push_back(Load { line, worked: self.worked, come: false });
    }

    /// Notes that a line has come, and whether a load retires with that.
    fn arrived(&mut self, line: u32) -> bool {
        for load in self.loads.iter_mut().filter(|load| load.line == line) {
            load.come = true;
        }
        let before = self.retired;
        while self.loads.front().is_some_and(|oldest| oldest.come) {
            self.loads.pop_front();
            self.retired += 1;
        }
        self.retired > before
    }
}

impl Machine {
    /// Issues a load of a line that a core does not have, without waiting for it: its value, unless the core must wait.
    pub(super) fn load_behind(&mut self, core: u16, line: u32) -> Option<Line> {
        let data = self.newest(line)?;
        self.must_be_current(line, &data, "what a core loads");
        let comes = self.cores[usize::from(core)].is_prefetched(line);
        if !comes {
            self.start_load(core, line, false)?;
        }
        let reorder = &mut self.cores[usize::from(core)].reorder;
        reorder.issue(line);
        let number = reorder.issued() as u32;
        self.enters(Queue::Reorder(core), number, self.agenda.now);
        Some(data)
    }

    /// What a line is as the host sees it; none while somebody's request but a load for it is under way.
    fn newest(&self, line: u32) -> Option<Line> {
        let loads = |from| matches!(from, From::Load(..));
        if self.pending.contains_key(&line) || !self.asker_of(line).is_none_or(loads) {
            return None;
        }
        let state = &self.lines[line as usize];
        Some(match (state.host.copy, state.device.copy, state.host.home) {
            (Copy::Invalid, Copy::Invalid, Side::Host) => state.host.memory,
            (Copy::Invalid, Copy::Invalid, Side::Device) => state.device.memory,
            (Copy::Invalid, ..) => state.device.data,
            _ => state.host.data,
        })
    }

    /// A line has come for whatever loads of a core are behind.
    pub(super) fn loads_have(&mut self, core: u16, line: u32) {
        let state = &mut self.cores[usize::from(core)];
        let before = state.reorder.retired;
        if state.reorder.arrived(line) {
            let (agent, after) = (state.agent, state.reorder.retired);
            for number in before + 1..=after {
                self.leaves_before(Queue::Reorder(core), number as u32, self.agenda.now, after - number);
            }
            self.agenda.wake(agent, Wait::Retire, self.agenda.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_holds_back_what_lies_a_buffer_behind_it_and_not_a_picosecond_before() {
        let mut buffer = Reorder::new(1000);
        assert_eq!(buffer.room(), u64::MAX);
        buffer.issue(7);
        buffer.work(300);
        buffer.issue(8);
        buffer.work(699);
        assert_eq!(buffer.room(), 1);
        buffer.work(1);
        assert_eq!(buffer.room(), 0);
        assert!(buffer.arrived(7));
        assert_eq!(buffer.room(), 300);
    }

    #[test]
    fn loads_retire_in_order() {
        let mut buffer = Reorder::new(1000);
        buffer.issue(7);
        buffer.issue(8);
        let both = buffer.issued();
        assert!(!buffer.arrived(8) && !buffer.has_retired(1));
        assert!(buffer.arrived(7) && buffer.has_retired(both) && buffer.is_empty());
    }
}
