//! When a frame was captured.

/// Nanoseconds since 1970-01-01 00:00 UTC, leap seconds not counted, as capture files count. 64 bits last until 2554.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// A timestamp from nanoseconds since 1970.
    pub const fn from_nanoseconds(nanoseconds: u64) -> Timestamp {
        Timestamp(nanoseconds)
    }

    /// Nanoseconds since 1970.
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to this; zero where `earlier` is later.
    pub const fn nanoseconds_since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// How an interface of a pcapng file counts time (options `if_tsresol` and `if_tsoffset`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    unit: Unit,
    /// Added to every timestamp.
    offset_seconds: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// One unit is this many nanoseconds.
    Nanoseconds(u64),
    /// One nanosecond is this many units; 0 stands for more than 64 bits hold.
    PerNanosecond(u64),
    /// One unit is 2^-n seconds.
    PowerOfTwo(u8),
}

impl Clock {
    /// Microseconds since 1970: what a pcapng interface uses that says nothing.
    pub(super) const MICROSECONDS: Clock = Clock { unit: Unit::Nanoseconds(1_000), offset_seconds: 0 };

    /// The same clock with the resolution of an `if_tsresol` option: the top bit chooses between 10^-n and 2^-n seconds.
    pub(super) fn with_resolution(self, option: u8) -> Clock {
        let exponent = option & 0x7f;
        let unit = if option & 0x80 != 0 {
            Unit::PowerOfTwo(exponent)
        } else if exponent <= 9 {
            Unit::Nanoseconds(10u64.pow(9 - u32::from(exponent)))
        } else {
            Unit::PerNanosecond(10u64.checked_pow(u32::from(exponent) - 9).unwrap_or(0))
        };
        Clock { unit, ..self }
    }

    /// The same clock with the offset of an `if_tsoffset` option.
    pub(super) fn with_offset(self, offset_seconds: i64) -> Clock {
        Clock { offset_seconds, ..self }
    }

    /// The time that this clock shows as `units`, rounded down; before 1970 and after 2554 it saturates.
    #[inline]
    pub(super) fn timestamp(self, units: u64) -> Timestamp {
        let nanoseconds = match self.unit {
            Unit::Nanoseconds(each) => units.saturating_mul(each),
            Unit::PerNanosecond(each) => units.checked_div(each).unwrap_or(0),
            // Below 2^94, so no shift of up to 127 loses more than it should.
            Unit::PowerOfTwo(exponent) => {
                let scaled = (u128::from(units) * 1_000_000_000) >> exponent;
                u64::try_from(scaled).unwrap_or(u64::MAX)
            }
        };
        if self.offset_seconds == 0 {
            return Timestamp(nanoseconds);
        }
        let shifted = i128::from(nanoseconds) + i128::from(self.offset_seconds) * 1_000_000_000;
        Timestamp(u64::try_from(shifted.max(0)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(resolution: u8, offset: i64, units: u64) -> u64 {
        let clock = Clock::MICROSECONDS.with_resolution(resolution).with_offset(offset);
        clock.timestamp(units).nanoseconds()
    }

    #[test]
    fn decimal_resolutions_scale_to_nanoseconds() {
        assert_eq!(Clock::MICROSECONDS.timestamp(7).nanoseconds(), 7_000);
        assert_eq!(at(0, 0, 3), 3_000_000_000);
        assert_eq!(at(6, 0, 5), 5_000);
        assert_eq!(at(9, 0, 5), 5);
        assert_eq!(at(12, 0, 5_999), 5);
        assert_eq!(at(28, 0, u64::MAX), 1);
        assert_eq!(at(29, 0, u64::MAX), 0);
        assert_eq!(at(127, 0, u64::MAX), 0);
    }

    #[test]
    fn binary_resolutions_scale_to_nanoseconds() {
        assert_eq!(at(0x80, 0, 3), 3_000_000_000);
        assert_eq!(at(0x81, 0, 3), 1_500_000_000);
        assert_eq!(at(0x80 | 30, 0, 1 << 30), 1_000_000_000);
        assert_eq!(at(0x80 | 32, 0, (7 << 32) | (1 << 31)), 7_500_000_000);
        assert_eq!(at(0x80 | 127, 0, u64::MAX), 0);
    }

    #[test]
    fn offsets_shift_both_ways_and_saturate() {
        assert_eq!(at(9, 2, 1), 2_000_000_001);
        assert_eq!(at(9, -2, 3_000_000_000), 1_000_000_000);
        assert_eq!(at(9, -2, 1), 0);
        assert_eq!(at(9, i64::MAX, 1), u64::MAX);
        assert_eq!(at(9, i64::MIN, 1), 0);
        assert_eq!(at(0, 0, u64::MAX), u64::MAX);
        assert_eq!(at(0x80, 0, u64::MAX), u64::MAX);
    }
}
