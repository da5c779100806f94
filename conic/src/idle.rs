//! What a thread does that has nothing to do.

use std::time::Duration;

use conic_fabric::Core;

/// Rounds without progress in which a thread only spins: some tens of microseconds.
const SPIN: u32 = 4000;

/// Rounds after these in which it offers its core to others.
const YIELD: u32 = SPIN + 100;

/// Counts rounds without progress: a thread spins at first, then lets others run, then sleeps for short times.
#[derive(Debug, Default)]
pub struct Idle {
    rounds: u32,
}

impl Idle {
    /// Says that this round made progress.
    pub fn reset(&mut self) {
        self.rounds = 0;
    }

    /// Says that this round made none, and waits accordingly.
    pub fn wait(&mut self, core: &impl Core) {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds < SPIN {
            core.spin();
        } else if self.rounds < YIELD {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
