//! A rate that is no whole number of picoseconds a unit, kept exactly.

/// Something that serves so many units a second, one after the other, in order: a wire's bytes, a chip's packets.
///
/// The part of a picosecond that a unit leaves is carried over to the next of a busy period, so that a rate does not drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Time of a unit, in 2^-32 picoseconds, rounded up.
    unit: u64,
    busy_until: u64,
    /// What `busy_until` leaves out, in 2^-32 picoseconds.
    fraction: u64,
}

const FRACTION_BITS: u32 = 32;

impl Pace {
    /// A unit takes `numerator / denominator` picoseconds.
    ///
    /// # Panics
    /// Where `denominator` is 0, or a unit takes a millisecond or more.
    pub const fn new(numerator: u64, denominator: u64) -> Pace {
        assert!(denominator > 0, "a rate of 0 serves nothing");
        assert!(numerator / denominator < 1_000_000_000, "a unit that takes a millisecond is no rate");
        let unit = ((numerator as u128) << FRACTION_BITS).div_ceil(denominator as u128) as u64;
        Pace { unit, busy_until: 0, fraction: 0 }
    }

    /// So many units in a second.
    ///
    /// # Panics
    /// Where they are fewer than 1000.
    pub const fn per_second(units: u64) -> Pace {
        Pace::new(1_000_000_000_000, units)
    }

    /// Serves `units` from `now` on, or from when those before are done: the picoseconds in which that begins and ends.
    #[inline]
    pub const fn take(&mut self, units: u64, now: u64) -> (u64, u64) {
        if now > self.busy_until {
            self.busy_until = now;
            self.fraction = 0;
        }
        let start = self.busy_until;
        // 128 bits: 2^32 units of a picosecond would fill 64.
        let total = self.fraction as u128 + units as u128 * self.unit as u128;
        self.busy_until += (total >> FRACTION_BITS) as u64;
        self.fraction = total as u64 & ((1 << FRACTION_BITS) - 1);
        (start, self.busy_until)
    }

    /// When all units that were taken are served.
    pub const fn busy_until(&self) -> u64 {
        self.busy_until
    }

    /// The time of so many units, in picoseconds, rounded down.
    pub const fn time_of(&self, units: u64) -> u64 {
        ((units as u128 * self.unit as u128) >> FRACTION_BITS) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_period_does_not_drift() {
        // 192 million a second: 5208 1/3 ps each.
        let mut pace = Pace::per_second(192_000_000);
        for index in 0..3_000_000_u64 {
            let (start, end) = pace.take(1, 0);
            let exact = |units: u64| (u128::from(units) * 1_000_000_000_000 / 192_000_000) as u64;
            assert_eq!((start, end), (exact(index), exact(index + 1)), "unit {index}");
        }
    }

    #[test]
    fn a_unit_waits_while_others_are_served_and_not_a_picosecond_longer() {
        for (ready, starts) in [(0, 10), (9, 10), (10, 10), (11, 11)] {
            let mut pace = Pace::new(10, 1);
            assert_eq!(pace.take(1, 0), (0, 10));
            assert_eq!(pace.take(3, ready), (starts, starts + 30));
            assert_eq!(pace.busy_until(), starts + 30);
        }
    }

    #[test]
    fn idle_time_forgets_the_fraction() {
        let mut pace = Pace::new(3, 2);
        assert_eq!(pace.take(1, 0), (0, 1));
        assert_eq!(pace.take(1, 1), (1, 3), "1.5 to 3 ps");
        assert_eq!(pace.take(1, 10), (10, 11));
        assert_eq!(pace.take(1, 20), (20, 21));
        assert_eq!(pace.time_of(3), 4);
    }

    #[test]
    #[should_panic(expected = "a rate of 0")]
    fn no_rate_is_refused() {
        Pace::per_second(0);
    }
}
