//! When packets are due in an open loop.

use conic_fabric::Time;

/// When packets are due.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// When the first is, in picoseconds.
    start: u64,
    /// Its sequence number.
    first: u64,
    /// Picoseconds from each to the next.
    interval: u64,
    /// How many are due in all.
    most: u64,
}

impl Pace {
    /// From `start` on, beginning with the packet of this sequence number, one each `interval`.
    pub fn new(start: Time, first: u64, interval: Time) -> Pace {
        Pace { start: start.picoseconds(), first, interval: interval.picoseconds().max(1), most: u64::MAX }
    }

    /// From a time on, in picoseconds, no further packet becomes due.
    pub fn end(&mut self, now: u64) {
        self.most = self.most.min(self.so_far(now));
    }

    /// How many have become due until a time.
    #[inline(always)]
    fn so_far(&self, now: u64) -> u64 {
        now.checked_sub(self.start).map_or(0, |since| since / self.interval + 1)
    }

    /// When a packet is due, in picoseconds, by its sequence number.
    pub fn due(&self, sequence: u64) -> u64 {
        self.start + sequence.saturating_sub(self.first) * self.interval
    }

    /// When a packet that was written at a time was due; those from before the pace were so when they were written.
    pub fn due_of(&self, sequence: u64, written: u64) -> u64 {
        if sequence < self.first { written } else { self.due(sequence) }
    }

    /// How many packets are due at a time, in picoseconds, where so many were sent.
    pub fn waiting(&self, sent: u64, now: u64) -> usize {
        self.so_far(now).min(self.most).saturating_sub(sent - self.first) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_due_when_a_pace_ends_is_due_for_ever_and_nothing_else_is() {
        let mut pace = Pace::new(Time::from_picoseconds(100), 5, Time::from_picoseconds(10));
        assert_eq!([99, 100, 109, 110, 125].map(|now| pace.waiting(5, now)), [0, 1, 1, 2, 3]);
        pace.end(125);
        assert_eq!([pace.waiting(5, 1_000), pace.waiting(7, 1_000), pace.waiting(8, 1_000)], [3, 1, 0]);
        // Nor does a second end bring more.
        pace.end(1_000);
        assert_eq!(pace.waiting(5, 1_000), 3);
    }
}
