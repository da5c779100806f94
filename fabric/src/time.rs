//! Time, as every world counts it.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A point in time, or a span of it, in integer picoseconds.
///
/// Natively it counts from the moment the process first asked (64 bits last for 213 days); in simulation from the start
/// of the run. Picoseconds, because one clock period of a 2.6 GHz core is 384.6 of them and rounding it to nanoseconds
/// would lose it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The beginning.
    pub const ZERO: Time = Time(0);
    /// Later than any time that is reached.
    pub const NEVER: Time = Time(u64::MAX);

    /// A time from picoseconds.
    pub const fn from_picoseconds(picoseconds: u64) -> Time {
        Time(picoseconds)
    }

    /// A time from nanoseconds; more than 213 days saturate.
    pub const fn from_nanoseconds(nanoseconds: u64) -> Time {
        Time(nanoseconds.saturating_mul(1_000))
    }

    /// The time in picoseconds.
    pub const fn picoseconds(self) -> u64 {
        self.0
    }

    /// The time in nanoseconds, rounded down.
    pub const fn nanoseconds(self) -> u64 {
        self.0 / 1_000
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
