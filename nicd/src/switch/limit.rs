//! How much a client may send: a bucket of bytes that fills with time.

use conic_fabric::Time;
use serde::{Deserialize, Serialize};

/// Picoseconds of a second.
const SECOND: u128 = 1_000_000_000_000;

/// A rate with what may be sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    /// Bytes a second, at least 1.
    pub bytes_per_second: u64,
    /// Bytes that may be sent at once after a pause, at least 1.
    pub burst_bytes: u64,
}

/// The bucket. A burst may overdraw it; nothing is sent then until it has filled above zero again, so that the rate holds over any
/// time longer than a burst takes.
#[derive(Clone, Debug)]
pub struct Bucket {
    limit: RateLimit,
    level: i128,
    filled: Time,
}

impl Bucket {
    /// A full bucket.
    pub fn new(now: Time, limit: RateLimit) -> Bucket {
        let limit =
            RateLimit { bytes_per_second: limit.bytes_per_second.max(1), burst_bytes: limit.burst_bytes.max(1) };
        Bucket { limit, level: i128::from(limit.burst_bytes), filled: now }
    }

    /// Whether something may be sent now.
    pub fn is_open(&mut self, now: Time) -> bool {
        let rate = u128::from(self.limit.bytes_per_second);
        let earned = u128::from(now.since(self.filled).picoseconds()) * rate / SECOND;
        if earned > 0 {
            let (level, full) = (self.level.saturating_add_unsigned(earned), i128::from(self.limit.burst_bytes));
            self.level = level.min(full);
            // Only the time that was turned into whole bytes: the rest counts next time. A full bucket saves nothing up.
            self.filled =
                if level < full { self.filled + Time::from_picoseconds((earned * SECOND / rate) as u64) } else { now };
        }
        self.level > 0
    }

    /// Takes out what was sent.
    pub fn take(&mut self, bytes: u64) {
        self.level -= i128::from(bytes);
    }

    /// When something may be sent, if not now.
    pub fn opens_at(&self) -> Time {
        let missing = (1 - self.level).max(0) as u128;
        let span = (missing * SECOND).div_ceil(u128::from(self.limit.bytes_per_second));
        self.filled + Time::from_picoseconds(u64::try_from(span).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_and_a_burst_is_paid_back() {
        let limit = RateLimit { bytes_per_second: 1000, burst_bytes: 100 };
        let mut bucket = Bucket::new(Time::ZERO, limit);
        assert!(bucket.is_open(Time::ZERO));
        bucket.take(600);
        let opens = bucket.opens_at();
        // 500 bytes overdrawn, and one more to be above zero: 501 ms.
        assert_eq!(opens, Time::from_nanoseconds(501_000_000));
        assert!(!bucket.is_open(Time::from_picoseconds(opens.picoseconds() - 1)));
        assert!(bucket.is_open(opens));
        // However long the pause, no more than a burst is saved up.
        assert!(bucket.is_open(Time::from_nanoseconds(1_000_000_000_000)));
        bucket.take(100);
        assert!(!bucket.is_open(Time::from_nanoseconds(1_000_000_000_000)));
    }

    #[test]
    fn the_rate_holds_past_64_bits_of_picoseconds() {
        let limit = RateLimit { bytes_per_second: 1000, burst_bytes: 100 };
        let (second, late) = (Time::from_nanoseconds(1_000_000_000), Time::from_picoseconds(u64::MAX));
        let mut bucket = Bucket::new(late - second, limit);
        bucket.take(1100);
        assert!(!bucket.is_open(late));
        assert_eq!(bucket.opens_at(), late + Time::from_nanoseconds(1_000_000));
        assert!(bucket.is_open(bucket.opens_at()));
        // A pause of years is worth one burst as well.
        let years_later = late + late + late;
        assert!(bucket.is_open(years_later));
        bucket.take(100);
        assert!(!bucket.is_open(years_later));
    }

    #[test]
    fn looking_often_does_not_lose_time() {
        let limit = RateLimit { bytes_per_second: 3, burst_bytes: 10 };
        let mut bucket = Bucket::new(Time::ZERO, limit);
        bucket.take(10);
        let mut now = Time::ZERO;
        while !bucket.is_open(now) {
            now += Time::from_nanoseconds(1_000);
        }
        // One byte at three a second: a third of a second.
        assert!(now <= Time::from_nanoseconds(333_335_000), "{now}");
    }
}
