//! Latency histograms.

use conic_fabric::Time;
use hdrhistogram::Histogram;

/// A histogram of latencies with three significant digits, from one picosecond to a minute.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency::new()
    }
}

impl Latency {
    /// An empty histogram. Its memory is fixed here, so that recording allocates nothing.
    pub fn new() -> Latency {
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000_000, 3).expect("the bounds are in order");
        Latency { histogram }
    }

    /// Records `count` packets of one latency; more than a minute counts as a minute.
    #[inline]
    pub fn record(&mut self, latency: Time, count: u64) {
        if count > 0 {
            self.histogram.saturating_record_n(latency.picoseconds(), count);
        }
    }

    /// What was recorded, in as little memory as it needs.
    pub fn kept(&self) -> KeptLatency {
        let counted = self.histogram.iter_recorded();
        let counts = counted.map(|one| (one.value_iterated_to(), one.count_at_value())).collect();
        KeptLatency { minimum: self.minimum(), counts }
    }

    /// Forgets what was recorded, and keeps the memory.
    pub fn clear(&mut self) {
        self.histogram.reset();
    }

    /// Adds another histogram's counts.
    pub fn add(&mut self, other: &Latency) {
        self.histogram.add(&other.histogram).expect("two histograms of the same bounds");
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The smallest latency; zero if there is none.
    pub fn minimum(&self) -> Time {
        Time::from_picoseconds(if self.histogram.is_empty() { 0 } else { self.histogram.min() })
    }

    /// The latency that a share of the packets did not exceed: 0.5 is the median.
    pub fn quantile(&self, share: f64) -> Time {
        Time::from_picoseconds(self.histogram.value_at_quantile(share))
    }
}

/// Latencies that are kept for later, of slices of which there may be many: a histogram has room for all latencies that there can be, a
/// third of a megabyte.
#[derive(Clone, Debug, Default)]
pub struct KeptLatency {
    minimum: Time,
    /// Latencies of a histogram, each the largest that it does not tell apart, ascending, and how many packets had each.
    counts: Vec<(u64, u64)>,
}

impl KeptLatency {
    /// Adds what was kept of another slice.
    pub fn add(&mut self, other: &KeptLatency) {
        self.minimum = match (self.counts.is_empty(), other.counts.is_empty()) {
            (true, _) => other.minimum,
            (_, true) => self.minimum,
            _ => self.minimum.min(other.minimum),
        };
        let mut both = Vec::with_capacity(self.counts.len() + other.counts.len());
        let (mut mine, mut others) = (self.counts.iter().peekable(), other.counts.iter().peekable());
        while let Some(&&(latency, _)) = [mine.peek(), others.peek()].into_iter().flatten().min() {
            let count = [&mut mine, &mut others].map(|of| of.next_if(|one| one.0 == latency).map_or(0, |one| one.1));
            both.push((latency, count[0] + count[1]));
        }
        self.counts = both;
    }

    /// How many packets there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// The smallest latency; zero if there is none.
    pub fn minimum(&self) -> Time {
        self.minimum
    }

    /// The latency that a share of the packets did not exceed: 0.5 is the median. Zero if there is none.
    pub fn quantile(&self, share: f64) -> Time {
        let rank = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut so_far = 0;
        let reached = self.counts.iter().find(|(_, count)| {
            so_far += count;
            so_far >= rank
        });
        Time::from_picoseconds(reached.or(self.counts.last()).map_or(0, |&(latency, _)| latency))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some latencies from a nanosecond to a millisecond.
    fn some(seed: u64, count: u64) -> Latency {
        let mut latency = Latency::new();
        for number in 0..count {
            let mixed = (number + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            latency.record(Time::from_picoseconds(1_000 + (mixed >> 34 >> (mixed % 20))), 1 + mixed % 3);
        }
        latency
    }

    #[test]
    fn what_is_kept_says_what_the_histogram_said_also_when_it_was_added_up() {
        let (mut whole, mut kept) = (Latency::new(), KeptLatency::default());
        for (seed, count) in [(0, 0), (1, 1), (2, 5000), (3, 0), (4, 77)] {
            let one = some(seed, count);
            whole.add(&one);
            kept.add(&one.kept());
            assert_eq!((kept.count(), kept.minimum()), (whole.count(), whole.minimum()), "after {count} more");
            for share in [0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
                assert_eq!(kept.quantile(share), whole.quantile(share), "{share} after {count} more");
            }
        }
        // Two slices of a hundred latencies each hold no more than two hundred words and as many counts.
        assert!(some(9, 100).kept().counts.capacity() <= 256);
    }
}
