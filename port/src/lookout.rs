//! When to do what takes a system call, and need not be done for every frame.

use conic_fabric::Time;

/// Calls without time between them after which it is time all the same: for callers whose clock stands still.
pub(crate) const CALLS: u32 = 4096;

/// Says now and then that it is time to look: whether an interface is still there, whether a peer has said something.
#[derive(Debug)]
pub(crate) struct Lookout {
    interval: Time,
    next: Time,
    last: Time,
    calls: u32,
}

impl Lookout {
    /// Once in so many milliseconds.
    pub(crate) const fn every(milliseconds: u64) -> Lookout {
        let interval = Time::from_nanoseconds(1_000_000 * milliseconds);
        Lookout { interval, next: Time::ZERO, last: Time::ZERO, calls: 0 }
    }

    /// When it is time next.
    pub(crate) fn next(&self) -> Time {
        self.next
    }

    /// Whether it is time.
    #[inline]
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        self.calls = if now == self.last { self.calls + 1 } else { 0 };
        self.last = now;
        let due = now >= self.next || self.calls >= CALLS;
        if due {
            self.next = now + self.interval;
            self.calls = 0;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_time_once_in_an_interval_and_also_when_the_clock_stands() {
        let mut lookout = Lookout::every(1);
        let microseconds = |count: u64| Time::from_nanoseconds(1000 * count);
        let due = (0..10_000).filter(|&at| lookout.is_due(microseconds(at))).count();
        assert_eq!((due, lookout.next()), (10, microseconds(10_000)));
        let due = (0..10 * u64::from(CALLS)).filter(|_| lookout.is_due(microseconds(9_999))).count();
        assert_eq!(due, 10);
    }

    #[test]
    fn it_is_time_as_often_past_64_bits_of_picoseconds() {
        let mut lookout = Lookout::every(1);
        let late = Time::from_picoseconds(u64::MAX) - Time::from_nanoseconds(5_000_000);
        let due = (0..10_000).filter(|&at| lookout.is_due(late + Time::from_nanoseconds(1000 * at))).count();
        assert_eq!(due, 10);
    }
}
