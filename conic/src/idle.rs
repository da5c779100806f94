//! What a thread does that has nothing to do.

use std::time::Duration;

use conic_fabric::Core;

/// Rounds without progress in which a thread only spins: some tens of microseconds.
const SPIN: u32 = 4000;

/// Counts rounds without progress: a thread spins at first, then sleeps for short times, so that others
/// may have its core.
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
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
