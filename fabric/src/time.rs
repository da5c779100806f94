//! Time, as every world counts it.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A point in time, or a span of it, in integer picoseconds.
///
/// Natively it counts from the moment the process first asked; in simulation from the start of the run. Picoseconds,
/// because one clock period of a 2.6 GHz core is 384.6 of them and rounding it to nanoseconds would lose it. In 128 bits,
/// because 64 bits of them last for 213 days, and a software NIC serves for years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u128);

impl Time {
    /// The beginning.
    pub const ZERO: Time = Time(0);
    /// Later than any time that is reached.
    pub const NEVER: Time = Time(u128::MAX);

    /// A time from picoseconds, at most 213 days.
    #[inline(always)]
    pub const fn from_picoseconds(picoseconds: u64) -> Time {
        Time(picoseconds as u128)
    }

    /// The time of so many ticks of a counter, rounded down. `scale` is picoseconds a tick, times 2^32.
    #[inline(always)]
    pub const fn from_ticks(ticks: u64, scale: u64) -> Time {
        Time((ticks as u128 * scale as u128) >> 32)
    }

    /// A time from nanoseconds.
    #[inline(always)]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Time {
        Time(nanoseconds as u128 * 1_000)
    }

    /// The time in picoseconds; more than 213 days saturate.
    #[inline(always)]
    pub const fn picoseconds(self) -> u64 {
        if self.0 > u64::MAX as u128 { u64::MAX } else { self.0 as u64 }
    }

    /// The time in nanoseconds, rounded down; more than 584 years saturate.
    pub const fn nanoseconds(self) -> u64 {
        // A division of 128 bits is a call: not where 64 do.
        if self.0 <= u64::MAX as u128 {
            return self.0 as u64 / 1_000;
        }
        let nanoseconds = self.0 / 1_000;
        if nanoseconds > u64::MAX as u128 { u64::MAX } else { nanoseconds as u64 }
    }

    /// The time in seconds, for printing.
    pub fn seconds(self) -> f64 {
        self.0 as f64 * 1e-12
    }

    /// The span since `earlier`; zero where `earlier` is later.
    pub const fn since(self, earlier: Time) -> Time {
        Time(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Time {
    type Output = Time;
    fn add(self, span: Time) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, span: Time) {
        *self = *self + span;
    }
}

impl Sub for Time {
    type Output = Time;
    fn sub(self, earlier: Time) -> Time {
        self.since(earlier)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} ns", self.0 / 1_000, self.0 % 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_many_years_still_tells_what_is_later() {
        const YEARS: u64 = 100 * 365 * 86_400;
        let late = Time::from_nanoseconds(YEARS * 1_000_000_000);
        assert_eq!(late.nanoseconds(), YEARS * 1_000_000_000);
        assert_eq!((late + Time::from_picoseconds(1)).since(late), Time::from_picoseconds(1));
        assert!(late > Time::from_picoseconds(u64::MAX) && late < Time::NEVER);
        assert_eq!(late.seconds(), YEARS as f64);
        assert_eq!((late.picoseconds(), Time::NEVER.nanoseconds()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn a_counter_of_64_bits_is_converted_whole() {
        // A counter of 4 GHz: 250 ps a tick, 146 years.
        assert_eq!(Time::from_ticks(u64::MAX, 250 << 32).nanoseconds(), u64::MAX / 4);
        assert_eq!(Time::from_ticks(3, 3 << 31), Time::from_picoseconds(4));
    }
}
