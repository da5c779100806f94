//! The timer interrupt of a core, on whatever machine.

use std::cell::Cell;

use crate::parameters::TimerParameters;

/// When a core's timer interrupts come. Times are in picoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Ticks {
    span: u64,
    interval: u64,
    next: Cell<u64>,
}

impl Ticks {
    /// Those of an agent's core; none on a tickless kernel.
    pub(crate) fn new(timer: Option<&TimerParameters>, agent: usize) -> Ticks {
        match timer {
            // Cores' ticks are apart, as kernels have them; the first is not at the run's very beginning.
            Some(&TimerParameters { interval, span }) => {
                Ticks { span, interval, next: Cell::new(interval / 8 * (1 + agent as u64 % 7)) }
            }
            None => Ticks { span: 0, interval: 0, next: Cell::new(u64::MAX) },
        }
    }

    /// Whether one has come by `now` that was not taken.
    #[inline(always)]
    pub(crate) fn are_due(&self, now: u64) -> bool {
        now >= self.next.get()
    }

    /// When the next one comes; never without a timer.
    pub(crate) fn next(&self) -> u64 {
        self.next.get()
    }

    /// Takes one that has come by `now`: when it came, and how long it takes the core.
    pub(crate) fn take(&self, now: u64) -> Option<(u64, u64)> {
        self.are_due(now).then(|| (self.next.replace(self.next.get() + self.interval), self.span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tick_is_taken_once_however_late_and_none_without_a_timer() {
        let ticks = Ticks::new(Some(&TimerParameters { interval: 800, span: 5 }), 1);
        assert!(!ticks.are_due(199) && ticks.are_due(200));
        assert_eq!([ticks.take(1_100), ticks.take(1_100), ticks.take(1_100)], [Some((200, 5)), Some((1_000, 5)), None]);
        assert_eq!(Ticks::new(None, 0).take(u64::MAX - 1), None);
    }
}
