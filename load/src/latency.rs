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
