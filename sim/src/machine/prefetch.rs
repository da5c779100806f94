//! The hardware prefetchers of a core.

use crate::parameters::CoreParameters;
use crate::protocol::Ask;

use super::Machine;
use super::uncached::Kind;

/// Which prefetchers a core has, and what they have seen.
#[derive(Clone, Debug)]
pub(crate) struct Prefetchers {
    next_line: bool,
    adjacent: bool,
    stride: bool,
    on: bool,
}

impl Prefetchers {
    pub(crate) fn new(parameters: &CoreParameters) -> Prefetchers {
        Prefetchers {
            next_line: parameters.prefetch_next_line,
            adjacent: parameters.prefetch_adjacent,
            stride: parameters.prefetch_stride,
            on: true,
        }
    }

    /// Switches them all.
    pub(crate) fn set(&mut self, on: bool) {
        self.on = on;
    }

    /// Whether there is any.
    #[inline(always)]
    pub(crate) fn are_on(&self) -> bool {
        self.on && (self.next_line || self.adjacent || self.stride)
    }
}

impl Machine {
    /// After a load that missed.
    pub(crate) fn after_miss(&mut self, id: usize, line: u32) {
        let prefetchers = &self.agents[id].prefetchers;
        let (next, adjacent) = (prefetchers.next_line, prefetchers.adjacent);
        if next {
            self.hardware_prefetch(id, line + 1);
        }
        if adjacent {
            self.hardware_prefetch(id, line ^ 1);
        }
    }

    /// After any load.
    pub(crate) fn after_load(&mut self, _id: usize, _line: u32) {}

    fn hardware_prefetch(&mut self, id: usize, line: u32) {
        let agent = &mut self.agents[id];
        let exists = (line as usize) < self.data.len();
        if exists
            && self.kinds.get(line as usize).is_none_or(|&kind| kind == Kind::WriteBack)
            && agent.fills.len() < agent.fill_limit
            && agent.caches.peek(line).is_none()
            && !agent.is_on_its_way(line)
        {
            agent.counters.accesses.hardware_prefetches += 1;
            let time = agent.time;
            self.fetch(id, line, Ask::Read, time);
        }
    }
}
