//! Latencies without coordinated omission.
//!
//! A latency counts from the moment at which the request was meant to be made, not from when the sender came to make it:
//! otherwise a sender that is held up by a slow answer leaves out just those requests that would have suffered most.
//! Nothing is corrected afterwards, because what was not measured cannot be made up.

use conic_fabric::Time;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies up to a minute in buckets of at most a thousandth of their value; more than a minute counts as a minute.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    /// The histogram knows its ends to a thousandth only; the ends are asked for most.
    minimum: u64,
    maximum: u64,
    sum: u128,
    early: u64,
}

/// What is printed of latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// How many there are.
    pub count: u64,
    /// The lowest.
    pub minimum_nanoseconds: f64,
    /// The mean.
    pub mean_nanoseconds: f64,
    /// What half of them do not exceed.
    pub median_nanoseconds: f64,
    /// What 90 of 100 do not exceed.
    pub p90_nanoseconds: f64,
    /// What 99 of 100 do not exceed.
    pub p99_nanoseconds: f64,
    /// What 999 of 1000 do not exceed.
    pub p99_9_nanoseconds: f64,
    /// The highest.
    pub maximum_nanoseconds: f64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

impl Latencies {
    /// The longest latency that is told from longer ones, in picoseconds: a minute.
    const LONGEST: u64 = 60_000_000_000_000;
    /// Significant decimal digits: a bucket is at most a thousandth of its value wide.
    const DIGITS: u8 = 3;

    /// No latencies. Memory is taken here, so that recording allocates nothing.
    pub fn new() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, Self::LONGEST, Self::DIGITS).expect("the bounds are in order");
        Latencies { histogram, minimum: u64::MAX, maximum: 0, sum: 0, early: 0 }
    }

    /// Records one that was meant to begin at `intended` and was done at `done`. In a closed loop, where the next begins when
    /// the last is done, `intended` is when it began.
    ///
    /// One that is done before it was meant to begin is counted by [`Latencies::early`] and not recorded.
    #[inline]
    pub fn record(&mut self, intended: Time, done: Time) {
        if done < intended {
            self.early += 1;
            return;
        }
        let latency = done.since(intended).picoseconds();
        self.histogram.saturating_record(latency);
        self.minimum = self.minimum.min(latency);
        self.maximum = self.maximum.max(latency);
        self.sum += u128::from(latency);
    }

    /// Adds those of another recorder.
    pub fn add(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("two histograms of the same bounds");
        self.minimum = self.minimum.min(other.minimum);
        self.maximum = self.maximum.max(other.maximum);
        self.sum += other.sum;
        self.early += other.early;
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// How many were done before they were meant to begin: a sign that the caller's times are wrong.
    pub fn early(&self) -> u64 {
        self.early
    }

    /// The lowest, exactly; zero if there are none.
    pub fn minimum(&self) -> Time {
        Time::from_picoseconds(if self.count() == 0 { 0 } else { self.minimum })
    }

    /// The highest, exactly.
    pub fn maximum(&self) -> Time {
        Time::from_picoseconds(self.maximum)
    }

    /// The mean, rounded down to a picosecond; zero if there are none.
    pub fn mean(&self) -> Time {
        let mean = self.sum / u128::from(self.count().max(1));
        Time::from_picoseconds(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// What a share of them does not exceed: 0.5 is the median, a share outside 0 to 1 is taken for the nearer end. Never
    /// below the true value, and above it by at most a thousandth; zero if there are none.
    pub fn quantile(&self, share: f64) -> Time {
        let bucket = self.histogram.value_at_quantile(share.clamp(0.0, 1.0));
        Time::from_picoseconds(bucket.min(self.maximum).max(self.minimum().picoseconds()))
    }

    /// The distribution for a plot: ascending latencies, each with the share of all that do not exceed it.
    pub fn distribution(&self) -> Vec<(Time, f64)> {
        let mut below = 0;
        let all = self.count() as f64;
        let step = |at: hdrhistogram::iterators::IterationValue<u64>| {
            below += at.count_since_last_iteration();
            (Time::from_picoseconds(at.value_iterated_to().min(self.maximum)), below as f64 / all)
        };
        self.histogram.iter_recorded().map(step).collect()
    }

    /// What is printed of them.
    pub fn summary(&self) -> LatencySummary {
        let nanoseconds = |time: Time| time.picoseconds() as f64 / 1e3;
        LatencySummary {
            count: self.count(),
            minimum_nanoseconds: nanoseconds(self.minimum()),
            mean_nanoseconds: nanoseconds(self.mean()),
            median_nanoseconds: nanoseconds(self.quantile(0.5)),
            p90_nanoseconds: nanoseconds(self.quantile(0.9)),
            p99_nanoseconds: nanoseconds(self.quantile(0.99)),
            p99_9_nanoseconds: nanoseconds(self.quantile(0.999)),
            maximum_nanoseconds: nanoseconds(self.maximum()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(picoseconds: u64) -> Time {
        Time::from_picoseconds(picoseconds)
    }

    #[test]
    fn a_sender_that_is_held_up_hides_nothing() {
        // Meant every 10 ns; the first answer takes 1000 ns, and 99 more are sent and answered at once after it.
        let mut intended = Latencies::new();
        let mut begun = Latencies::new();
        intended.record(at(0), at(1_000_000));
        begun.record(at(0), at(1_000_000));
        for number in 1..100 {
            intended.record(at(number * 10_000), at(1_000_000));
            begun.record(at(1_000_000), at(1_000_000));
        }
        assert_eq!(begun.quantile(0.5), Time::ZERO);
        // The one in the middle was meant at 500 ns.
        let middle = intended.quantile(0.5).picoseconds();
        assert!((500_000..=510_500).contains(&middle), "{middle}");
    }

    #[test]
    fn quantiles_are_not_below_the_truth_and_at_most_a_thousandth_above() {
        let mut numbers: Vec<u64> = Vec::new();
        let mut state = 7u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // From picoseconds to seconds, evenly over the powers of two.
            numbers.push((state >> 24) >> ((state & 0xff) % 40));
        }
        let mut latencies = Latencies::new();
        numbers.iter().for_each(|&number| latencies.record(at(11), at(11 + number)));
        numbers.sort_unstable();
        for share in [0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 1.0] {
            let rank = ((share * numbers.len() as f64).ceil() as usize).max(1);
            let truth = numbers[rank - 1];
            let found = latencies.quantile(share).picoseconds();
            assert!(truth <= found && found <= truth + truth / 1000, "{share}: {found} for {truth}");
        }
        assert_eq!(latencies.minimum(), at(numbers[0]));
        assert_eq!(latencies.maximum(), at(numbers[numbers.len() - 1]));
        let sum: u64 = numbers.iter().sum();
        assert_eq!(latencies.mean(), at(sum / 20_000));
    }

    #[test]
    fn two_recorders_together_are_one() {
        let (mut even, mut odd, mut all) = (Latencies::new(), Latencies::new(), Latencies::new());
        for number in 0..1000u64 {
            let one = if number % 2 == 0 { &mut even } else { &mut odd };
            one.record(at(5), at(5 + number * 997));
            all.record(at(5), at(5 + number * 997));
        }
        even.add(&odd);
        assert_eq!(even.summary(), all.summary());
        assert_eq!(even.distribution(), all.distribution());
    }

    #[test]
    fn no_latencies_have_no_figures() {
        let none = Latencies::new();
        assert_eq!(none.summary(), LatencySummary::default());
        assert_eq!(none.distribution(), []);
    }

    #[test]
    fn what_is_done_too_early_or_too_late_is_seen() {
        let mut odd = Latencies::new();
        odd.record(at(10), at(9));
        assert_eq!((odd.count(), odd.early()), (0, 1));
        odd.record(at(0), at(2 * Latencies::LONGEST));
        assert_eq!((odd.count(), odd.maximum()), (1, at(2 * Latencies::LONGEST)));
        assert!(odd.quantile(1.0) >= at(Latencies::LONGEST));
    }

    #[test]
    fn a_distribution_ascends_to_all() {
        let mut some = Latencies::new();
        [30, 10, 20, 10].iter().for_each(|&latency| some.record(at(0), at(latency)));
        assert_eq!(some.distribution(), [(at(10), 0.5), (at(20), 0.75), (at(30), 1.0)]);
    }
}
