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
}

impl Pace {
    /// From `start` on, beginning with the packet of this sequence number, one each `interval`.
    pub fn new(start: Time, first: u64, interval: Time) -> Pace {
        Pace { start: start.picoseconds(), first, interval: interval.picoseconds().max(1) }
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
        let due = now.checked_sub(self.start).map_or(0, |since| since / self.interval + 1);
        due.saturating_sub(sent - self.first) as usize
    }
}
