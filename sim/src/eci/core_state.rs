//! A core's first-level cache and its stores on their way.

use std::collections::VecDeque;

use super::machine::Data;
use super::parameters::EciCacheParameters;
use crate::combined::Combined;
use crate::parameters::TimerParameters;
use crate::timer::Ticks;

/// A store that the second-level cache does not have yet: words of one line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub(super) unit: u32,
    pub(super) word: u8,
    pub(super) count: u8,
    pub(super) values: [u64; 8],
    /// When it can be at the second level at the soonest.
    pub(super) there: u64,
    /// Earlier stores must be done before.
    pub(super) release: bool,
    /// The second level was asked, and waits for the line.
    pub(super) issued: bool,
}

impl Store {
    pub(super) fn apply(&self, data: &mut Data) {
        let (word, count) = (usize::from(self.word), usize::from(self.count));
        data[word..word + count].copy_from_slice(&self.values[..count]);
    }
}

/// A core.
#[derive(Debug)]
pub(super) struct CoreState {
    pub(super) agent: usize,
    /// Lines in the first-level cache, by set, last used first.
    l1: Vec<Vec<u32>>,
    l1_ways: usize,
    pub(super) stores: VecDeque<Store>,
    /// A drain is on its way to the second level.
    pub(super) draining: bool,
    /// When the last store was performed.
    pub(super) performed: u64,
    pub(super) prefetches: u32,
    /// Its timer interrupts.
    pub(super) ticks: Ticks,
    /// What the load that waits was given.
    pub(super) loaded: Option<Data>,
    /// The atomic operation that waits: which word, what, and what it found.
    pub(super) atomic: Option<(usize, Combined)>,
    pub(super) found: u64,
}

impl CoreState {
    pub(super) fn new(agent: usize, parameters: &EciCacheParameters, timer: Option<&TimerParameters>) -> CoreState {
        let sets = parameters.l1_bytes / parameters.line_bytes / u64::from(parameters.l1_ways);
        CoreState {
            agent,
            l1: vec![Vec::new(); sets as usize],
            l1_ways: parameters.l1_ways as usize,
            stores: VecDeque::new(),
            draining: false,
            performed: 0,
            prefetches: 0,
            ticks: Ticks::new(timer, agent),
            loaded: None,
            atomic: None,
            found: 0,
        }
    }

    fn set(&mut self, unit: u32) -> &mut Vec<u32> {
        let set = unit as usize % self.l1.len();
        &mut self.l1[set]
    }

    /// Whether the first level has a line, which is then the last used.
    pub(super) fn touch(&mut self, unit: u32) -> bool {
        let set = self.set(unit);
        let Some(at) = set.iter().position(|one| *one == unit) else { return false };
        set[..=at].rotate_right(1);
        true
    }

    /// Puts a line into the first level, in the place of the one that was not used for longest.
    pub(super) fn fill(&mut self, unit: u32) {
        let ways = self.l1_ways;
        if !self.touch(unit) {
            let set = self.set(unit);
            set.truncate(ways - 1);
            set.insert(0, unit);
        }
    }

    /// Drops a line from the first level.
    pub(super) fn drop_line(&mut self, unit: u32) {
        self.set(unit).retain(|one| *one != unit);
    }

    /// Whether a store to a line is on its way.
    pub(super) fn stores_to(&self, unit: u32) -> bool {
        self.stores.iter().any(|store| store.unit == unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_was_not_used_for_longest_goes() {
        let mut parameters = super::super::tests::parameters().cache;
        (parameters.l1_bytes, parameters.l1_ways) = (1024, 2);
        let mut core = CoreState::new(0, &parameters, None);
        // Four sets of two ways: lines 0, 4 and 8 share one.
        core.fill(0);
        core.fill(4);
        assert!(core.touch(0));
        core.fill(8);
        assert_eq!([0, 4, 8, 1].map(|unit| core.touch(unit)), [true, false, true, false]);
        core.drop_line(0);
        assert!(!core.touch(0) && core.touch(8));
    }
}
