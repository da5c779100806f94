//! Lines that one core has written, or read, and another takes: what loads, stores and atomic operations cost that find their line
//! elsewhere, one by one and together, apart from any signal and any polling.

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, SynchronisingWords, Time};

use super::{Moved, STOP, lines};

/// Lines that are taken one after the other, each in a page of its own, so that no prefetcher brings one along; few enough for a
/// first-level translation buffer of 64 entries.
const SCATTERED: u64 = 48;

/// Lines side by side that are taken together: few enough for a first-level cache.
const TOGETHER: u64 = 256;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// How the lines are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// Loads, each after the one before has come: its address depends on it.
    Loads,
    /// Compare-and-exchange operations, each after the one before.
    Exchanges,
    /// The same of lines that this core has loaded before: cheap where a load of a modified line takes it over.
    ExchangesOfLoaded,
    /// Loads of whole lines side by side, as fast as they go.
    LoadsTogether,
    /// Stores of whole lines side by side, as fast as they go.
    StoresTogether,
    /// The same of lines that this core wrote last, and that the other has read since: what a ring's producer comes back to.
    StoresOfRead,
}

impl Take {
    /// Whether lines are taken as fast as they go, so that their rate says something, and not the time of one.
    pub fn is_together(self) -> bool {
        matches!(self, Take::LoadsTogether | Take::StoresTogether | Take::StoresOfRead)
    }
}

/// Lines that go from one core to the other, in turns. Needs a fresh region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taking {
    how: Take,
    at: Address,
    given: Address,
    taken: Address,
}

impl Taking {
    /// The lines lie in the memory of who takes them.
    pub fn new(layout: &mut Layout, how: Take) -> Taking {
        let bytes = if how.is_together() { TOGETHER * LINE_BYTES } else { SCATTERED * PAGE };
        Taking {
            how,
            at: layout.add("taken lines", bytes, PAGE, Home::Host, SynchronisingWords::FIRST),
            given: lines(layout, "lines are given", 1, Home::Nic, SynchronisingWords::FIRST),
            taken: lines(layout, "lines are taken", 1, Home::Host, SynchronisingWords::FIRST),
        }
    }

    fn count(&self) -> u64 {
        if self.how.is_together() { TOGETHER } else { SCATTERED }
    }

    fn line(&self, index: u64) -> Address {
        if self.how.is_together() {
            return self.at.lines(index);
        }
        // Neither all in one set of a cache, nor at one place of their pages.
        self.at + (index * PAGE + index * 7 % (PAGE / LINE_BYTES) * LINE_BYTES)
    }

    /// Which line follows one in a turn: another order in each, and all of them in each.
    fn after(&self, index: u64, turn: u64) -> u64 {
        // Neither 2 nor 3 divides these, as they do the number of lines.
        const STEPS: [u64; 8] = [5, 7, 11, 13, 17, 19, 23, 25];
        (index + STEPS[turn as usize % STEPS.len()]) % SCATTERED
    }

    /// Takes the lines in turns until `until`, and then stops [`Taking::give`]; says how many were taken in how long.
    pub fn take<C: Core>(&self, core: &C, until: Time) -> Moved {
        let (mut turn, mut moved) = (0, Moved::default());
        let mut local = vec![Line::ZERO; TOGETHER as usize];
        while core.now() < until {
            turn += 1;
            // Release, and acquire in the loop: the lines change hands with the turn.
            core.store_release(self.taken, turn);
            while core.load_acquire(self.given) != turn {
                core.spin();
            }
            if self.how == Take::ExchangesOfLoaded {
                self.loads(core);
            }
            core.full_fence();
            let start = core.now();
            match self.how {
                Take::Loads => self.loads(core),
                Take::Exchanges | Take::ExchangesOfLoaded => self.exchanges(core, turn),
                Take::LoadsTogether => core.read_lines(self.at, &mut local),
                Take::StoresTogether | Take::StoresOfRead => {
                    (0..TOGETHER).for_each(|index| core.write_line(self.line(index), &Line([turn; 8])));
                }
            }
            core.full_fence();
            let span = core.now().since(start);
            moved = Moved { count: moved.count + self.count(), span: moved.span + span };
            std::hint::black_box(&local);
        }
        // Release: nothing depends on it.
        core.store_release(self.taken, STOP);
        moved
    }

    /// Loads each line after the one before, which says where it is.
    fn loads<C: Core>(&self, core: &C) {
        let mut index = 0;
        for _ in 0..SCATTERED {
            // Acquire: the simulated core waits for what is acquired, as the next address depends on it.
            index = core.load_acquire(self.line(index));
        }
        assert_eq!(index, 0, "the chain of lines leads back to the first");
    }

    /// Exchanges a word of each line for what it is.
    fn exchanges<C: Core>(&self, core: &C, turn: u64) {
        let mut index = 0;
        for _ in 0..SCATTERED {
            let next = self.after(index, turn);
            index = core.compare_exchange(self.line(index), next, next).unwrap_or_else(|found| found);
        }
        assert_eq!(index, 0, "the chain of lines leads back to the first");
    }

    /// Writes the lines, or reads them, in turns until the other side stops.
    ///
    /// # Panics
    ///
    /// If a line that it reads is not as it was written the turn before.
    pub fn give<C: Core>(&self, core: &C) {
        let mut last = 0;
        let mut local = vec![Line::ZERO; TOGETHER as usize];
        loop {
            // Acquire: the other side has done with the lines.
            let turn = core.load_acquire(self.taken);
            if turn == STOP {
                return;
            }
            if turn == last {
                core.spin();
                continue;
            }
            match self.how {
                Take::StoresOfRead => {
                    core.read_lines(self.at, &mut local);
                    let expected = Line([last; 8]);
                    assert!(local.iter().all(|line| *line == expected), "not the lines that turn {last} wrote");
                }
                // Release: which line of many is written first does not matter.
                _ => (0..self.count()).for_each(|index| core.store_release(self.line(index), self.after(index, turn))),
            }
            last = turn;
            // Every store is visible, and every load done, before the turn is given: what is measured is the taking.
            core.full_fence();
            // Release: the lines change hands with the turn.
            core.store_release(self.given, turn);
        }
    }
}
