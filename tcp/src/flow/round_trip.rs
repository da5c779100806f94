//! How long a connection's round trips take, and for how long an acknowledgement is waited for (RFC 6298), in integer ticks.
//!
//! One segment is timed at a time, and only one that is sent for the first time: of what was sent twice nobody knows which of the two
//! an acknowledgement answers (Karn's algorithm). For the same reason what a timeout has doubled stays doubled until one that was sent
//! once is acknowledged; otherwise a round trip that grew beyond the timeout would have everything sent twice for ever, and never be
//! measured.
//!
//! Ticks are 1024 ns and counted modulo 2^32, which go round in 73 minutes. Nothing is waited for so long, and what nobody looked at for
//! that long is at worst taken for younger than it is.

use conic_fabric::Time;

/// Binary digits of the nanoseconds of a tick.
const TICK_BITS: u32 = 10;
/// The longest time that is told from longer ones, 69 seconds: eight times as much is below 2^32.
const LONGEST: u32 = 1 << 26;
/// How often a timeout is doubled at most: the shortest one is as long as the longest then. A connection's line has five bits for it.
const MOST_DOUBLINGS: u8 = 26;

/// The tick of a time.
#[inline]
pub(super) fn tick(now: Time) -> u32 {
    (now.nanoseconds() >> TICK_BITS) as u32
}

/// When so many ticks since a former one will have passed: not later than now where they have.
#[inline]
pub(super) fn end_of(since: u32, ticks: u32, now: Time) -> Time {
    let now = now.nanoseconds() >> TICK_BITS;
    let left = ticks.saturating_sub((now as u32).wrapping_sub(since));
    Time::from_nanoseconds((now + u64::from(left)) << TICK_BITS)
}

/// For how long acknowledgements are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    first: u32,
    least: u32,
    most: u32,
    shortest: Time,
}

impl Timeouts {
    /// `first` where no round trip was measured; then the smoothed round trip and four times its deviation, but `least` at least instead
    /// of the latter, so that a round trip that never varied may vary for once; doubled each time it runs out, to no more than `most`.
    /// The peer must not keep an acknowledgement for as long as `least`. Ticks are 1.024 us; a minute is the most there is.
    pub fn new(first: Time, least: Time, most: Time) -> Timeouts {
        let ticks = |time: Time| {
            let rounded_up = time.nanoseconds().saturating_add((1 << TICK_BITS) - 1) >> TICK_BITS;
            rounded_up.clamp(1, LONGEST.into()) as u32
        };
        let most = ticks(most);
        let (first, least) = (ticks(first).min(most), ticks(least).min(most));
        // What is waited for begins in the middle of a tick.
        let shortest = Time::from_nanoseconds(u64::from(first.min(least) - 1) << TICK_BITS);
        Timeouts { first, least, most, shortest }
    }

    /// No timeout is shorter.
    #[inline]
    pub(crate) fn shortest(&self) -> Time {
        self.shortest
    }
}

impl Default for Timeouts {
    /// A tenth of a second instead of RFC 6298's whole one before anything is known, because these round trips are a data centre's; at
    /// least the 10 ms with which DCTCP was measured there (SIGCOMM 2010), longer than a thread may be without a core; at most RFC
    /// 6298's minute, because a round trip that took longer than that would never be measured.
    fn default() -> Timeouts {
        let milliseconds = |count: u64| Time::from_nanoseconds(count * 1_000_000);
        Timeouts::new(milliseconds(100), milliseconds(10), milliseconds(60_000))
    }
}

/// A segment that is timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timed {
    /// The sequence number behind its last byte.
    pub end: u32,
    /// The tick in which it was sent.
    pub at: u32,
}

/// What is known of a connection's round trips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrip {
    /// The smoothed round trip, in eighths of a tick; 0 where none was measured.
    pub smoothed: u32,
    /// Its mean deviation, in quarters of a tick.
    pub deviation: u32,
    /// How often the timeout is doubled.
    pub doublings: u8,
    /// What is timed.
    pub timed: Option<Timed>,
}

impl RoundTrip {
    /// What ends with this sequence number is sent, and was never sent before: it is timed, unless something is.
    #[inline]
    pub fn sent(&mut self, end: u32, tick: u32) {
        if self.timed.is_none() {
            self.timed = Some(Timed { end, at: tick });
        }
    }

    /// All before this sequence number is acknowledged.
    #[inline]
    pub fn acknowledged(&mut self, oldest: u32, tick: u32) {
        if let Some(timed) = self.timed
            && oldest.wrapping_sub(timed.end) as i32 >= 0
        {
            self.timed = None;
            self.measure(tick.wrapping_sub(timed.at));
        }
    }

    /// Everything will be sent again: which of the two an acknowledgement answers, nobody knows.
    pub fn forget(&mut self) {
        self.timed = None;
    }

    /// The timeout has run out.
    pub fn ran_out(&mut self) {
        self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
    }

    /// Enters a round trip of what was sent once (RFC 6298 section 2, with its 1/8 and 1/4). Shorter than a tick is a tick: 0 says that
    /// none was measured.
    fn measure(&mut self, ticks: u32) {
        let ticks = ticks.clamp(1, LONGEST);
        self.doublings = 0;
        if self.smoothed == 0 {
            // Half of it deviates: two of four quarters.
            (self.smoothed, self.deviation) = (ticks << 3, ticks << 1);
            return;
        }
        let before = self.smoothed >> 3;
        self.deviation = self.deviation - (self.deviation >> 2) + ticks.abs_diff(before);
        self.smoothed = self.smoothed - before + ticks;
    }

    /// For how many ticks an acknowledgement is waited for.
    #[inline]
    pub fn timeout(&self, timeouts: &Timeouts) -> u32 {
        let once = match self.smoothed {
            0 => timeouts.first,
            // Four times the deviation is what its quarters are.
            smoothed => (smoothed >> 3) + self.deviation.max(timeouts.least),
        };
        (u64::from(once) << self.doublings).min(timeouts.most.into()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: Timeouts = of([1000, 20, 5000]);

    const fn of([first, least, most]: [u32; 3]) -> Timeouts {
        Timeouts { first, least, most, shortest: Time::ZERO }
    }

    /// After these round trips, in ticks.
    fn measured(round_trips: &[u32]) -> RoundTrip {
        let mut known = RoundTrip::default();
        for &ticks in round_trips {
            known.sent(7, 100);
            known.acknowledged(7, 100_u32.wrapping_add(ticks));
        }
        known
    }

    /// RFC 6298 (2.2) and (2.3), worked out by hand.
    #[test]
    fn round_trips_are_smoothed_as_the_rfc_has_it() {
        // SRTT 80, RTTVAR 40.
        assert_eq!((measured(&[80]).smoothed, measured(&[80]).deviation), (8 * 80, 4 * 40));
        assert_eq!(measured(&[80]).timeout(&TIMEOUTS), 80 + 4 * 40);
        // RTTVAR 3/4 * 40 + 1/4 * |80 - 160| = 50, then SRTT 7/8 * 80 + 1/8 * 160 = 90.
        let second = measured(&[80, 160]);
        assert_eq!((second.smoothed, second.deviation), (8 * 90, 4 * 50));
        assert_eq!(second.timeout(&TIMEOUTS), 90 + 200);
        // RTTVAR 3/4 * 50 + 1/4 * |90 - 10| = 57.5, SRTT 7/8 * 90 + 1/8 * 10 = 80.
        let third = measured(&[80, 160, 10]);
        assert_eq!((third.smoothed, third.deviation), (8 * 80, 230));
    }

    #[test]
    fn round_trips_that_do_not_vary_leave_what_is_waited_at_least() {
        let known = measured(&[80; 200]);
        assert_eq!((known.smoothed >> 3, known.timeout(&TIMEOUTS)), (80, 80 + TIMEOUTS.least));
    }

    #[test]
    fn the_first_timeout_is_the_one_of_nothing_known() {
        assert_eq!(RoundTrip::default().timeout(&TIMEOUTS), TIMEOUTS.first);
    }

    #[test]
    fn a_round_trip_shorter_than_a_tick_is_one_that_was_measured() {
        let known = measured(&[0; 100]);
        assert_eq!((known.smoothed, known.timeout(&TIMEOUTS)), (8, 1 + TIMEOUTS.least));
        // It is not forgotten whatever comes between.
        let known =
            measured(&[0, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!((8..24).contains(&known.smoothed), "{known:?}");
    }

    #[test]
    fn round_trips_as_long_as_there_are_fit_and_are_forgotten_again() {
        for ticks in [LONGEST, LONGEST + 1, u32::MAX] {
            let longest = measured(&[ticks]);
            assert_eq!(longest.smoothed, 8 * LONGEST, "{ticks}");
            assert_eq!(longest.timeout(&TIMEOUTS), TIMEOUTS.most);
        }
        // From one extreme to the other, for as long as sums could grow.
        let extremes: Vec<u32> = (0..1000).map(|number| if number % 2 == 0 { u32::MAX } else { 0 }).collect();
        let wild = measured(&extremes);
        assert!(wild.smoothed <= 8 * LONGEST && wild.deviation <= 4 * LONGEST, "{wild:?}");
        assert_eq!(wild.timeout(&TIMEOUTS), TIMEOUTS.most);
        let calm = measured(&[extremes, vec![80; 300]].concat());
        assert_eq!(calm.timeout(&TIMEOUTS), 80 + TIMEOUTS.least);
    }

    #[test]
    fn each_timeout_doubles_the_next_up_to_the_most() {
        let mut known = measured(&[80; 200]);
        for expected in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            assert_eq!(known.timeout(&TIMEOUTS), expected);
            known.ran_out();
        }
        (0..1000).for_each(|_| known.ran_out());
        assert_eq!(known.timeout(&TIMEOUTS), TIMEOUTS.most);
        // As long as there are, and as short: nothing overflows, and the bound is reached.
        let mut widest = measured(&[u32::MAX, 0, u32::MAX]);
        (0..1000).for_each(|_| widest.ran_out());
        let widest_of_all = of([LONGEST; 3]);
        assert_eq!(widest.timeout(&widest_of_all), LONGEST);
        let mut shortest = RoundTrip::default();
        (0..1000).for_each(|_| shortest.ran_out());
        assert_eq!(shortest.timeout(&of([1, 1, LONGEST])), LONGEST);
    }

    #[test]
    fn what_was_doubled_stays_so_until_a_round_trip_is_measured() {
        let mut known = measured(&[80; 200]);
        known.sent(50, 0);
        known.forget();
        known.ran_out();
        // Sent again, and acknowledged.
        known.acknowledged(50, 3);
        assert_eq!((known.smoothed >> 3, known.timeout(&TIMEOUTS)), (80, 200));
        known.sent(60, 10);
        known.acknowledged(60, 90);
        assert_eq!(known.timeout(&TIMEOUTS), 100);
    }

    #[test]
    fn one_segment_is_timed_at_a_time_and_until_all_of_it_is_acknowledged() {
        let mut known = RoundTrip::default();
        known.sent(50, 1000);
        known.sent(60, 1030);
        known.acknowledged(49, 1040);
        assert_eq!(known.smoothed, 0);
        known.acknowledged(60, 1090);
        assert_eq!((known.smoothed, known.timed), (8 * 90, None));
    }

    #[test]
    fn sequence_numbers_and_ticks_go_round() {
        let mut known = RoundTrip::default();
        known.sent(10, u32::MAX - 4);
        known.acknowledged(u32::MAX - 2, 2);
        assert_eq!(known.smoothed, 0, "it lies before what is timed");
        known.acknowledged(10, 5);
        assert_eq!(known.smoothed, 8 * 10);
        let round = Time::from_nanoseconds((1 << (32 + TICK_BITS)) + 5 * 1024 + 1023);
        assert_eq!((tick(round), tick(Time::from_nanoseconds(5 * 1024))), (5, 5));
        assert_eq!(end_of(u32::MAX, 8, round).since(round), Time::from_nanoseconds(1025));
        assert!(end_of(u32::MAX, 6, round) <= round && end_of(u32::MAX, 1, round) <= round);
    }

    /// 64 bits of picoseconds last for 213 days.
    #[test]
    fn ticks_go_on_after_a_year() {
        let year = Time::from_nanoseconds(365 * 86_400 * 1_000_000_000);
        assert_eq!(tick(year + Time::from_nanoseconds(1024)), tick(year).wrapping_add(1));
        let next = end_of(tick(year), 1, year);
        assert!(next > year && next.since(year) <= Time::from_nanoseconds(1024));
    }

    #[test]
    fn timeouts_are_rounded_up_and_in_order() {
        let nanoseconds = Time::from_nanoseconds;
        let timeouts = Timeouts::new(nanoseconds(1025), Time::ZERO, nanoseconds(4096));
        assert_eq!(timeouts, of([2, 1, 4]));
        let shortest = Timeouts::new(nanoseconds(5 * 1024), nanoseconds(3 * 1024), nanoseconds(9999)).shortest();
        assert_eq!(shortest, nanoseconds(2 * 1024), "what began at the end of a tick is due two of them later");
        let never = Timeouts::new(Time::NEVER, Time::NEVER, Time::NEVER);
        assert_eq!([never.first, never.least, never.most], [LONGEST; 3]);
        assert_eq!(Timeouts::new(nanoseconds(9999), nanoseconds(9999), nanoseconds(1024)).first, 1);
        assert_eq!(Timeouts::new(nanoseconds(9999), nanoseconds(9999), nanoseconds(1024)).least, 1);
        let Timeouts { first, least, most, .. } = Timeouts::default();
        assert_eq!([first, least, most].map(|ticks| u64::from(ticks) * 1024 / 1_000_000), [100, 10, 60_000]);
    }
}
