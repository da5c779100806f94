//! How long queues wait between two looks at them.
//!
//! A switch looks at all queues that are awake, and at all ports, once a step. What comes between two steps waits for the next: that is what
//! its thread adds to a frame's time, whatever it does meanwhile. The time of each step is there already, so that it costs a step a few
//! instructions, and a frame none. A thread that sleeps while every queue rests is woken by whoever has something: that time is nobody's
//! wait, and not counted. Where it naps although queues are awake, because rings are full, it is.

use conic_fabric::Time;

/// One for each place of a number of picoseconds in 64 bits, and one for none.
const BUCKETS: usize = 65;

/// Looks by the time since the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looks {
    /// When the last one was; none where the thread has slept since.
    last: Option<Time>,
    /// Of bucket `n` those of less than 2^n picoseconds, and not less than half of that.
    counts: [u64; BUCKETS],
    total: Time,
}

impl Default for Looks {
    fn default() -> Looks {
        Looks { last: None, counts: [0; BUCKETS], total: Time::ZERO }
    }
}

impl Looks {
    /// Enters one.
    #[inline(always)]
    pub(super) fn note(&mut self, now: Time) {
        if let Some(last) = self.last.replace(now) {
            let gap = now.since(last);
            self.counts[(u64::BITS - gap.picoseconds().leading_zeros()) as usize] += 1;
            self.total += gap;
        }
    }

    /// From now until the next look nobody waits.
    pub(super) fn pause(&mut self) {
        self.last = None;
    }

    /// The time between looks, of all together.
    pub fn total(&self) -> Time {
        self.total
    }

    /// How many looks there were by the time since the one before: below so many picoseconds, a power of two, and not below half of that.
    /// Those at one moment, of which the second made nobody wait, are left out, and so is what no look was in.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate().skip(1).filter(|(_, count)| **count > 0);
        counts.map(|(bucket, &count)| (1u64.checked_shl(bucket as u32).unwrap_or(u64::MAX), count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_in_the_bucket_of_the_time_since_the_one_before() {
        let mut looks = Looks::default();
        let mut now = Time::from_picoseconds(77);
        looks.note(now);
        assert_eq!((looks.buckets().count(), looks.total()), (0, Time::ZERO), "nobody has waited for the first");
        for gap in [0, 1, 2, 3, 4, 1023, 1024, 1024, u64::MAX] {
            now += Time::from_picoseconds(gap);
            looks.note(now);
        }
        let found: Vec<_> = looks.buckets().collect();
        assert_eq!(found, [(2, 1), (4, 2), (8, 1), (1024, 1), (2048, 2), (u64::MAX, 1)]);
    }

    #[test]
    fn a_pause_is_no_wait() {
        let at = |nanoseconds| Time::from_nanoseconds(nanoseconds);
        let mut looks = Looks::default();
        looks.note(at(100));
        looks.note(at(150));
        looks.pause();
        looks.note(at(9_000_000));
        looks.note(at(9_000_050));
        assert_eq!((looks.buckets().collect::<Vec<_>>(), looks.total()), (vec![(1 << 16, 2)], at(100)));
    }
}
