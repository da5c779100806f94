//! How full a queue is, and Little's law on it.
//!
//! For a window from `a` to `b`, let `N(t)` be the number of entries inside at `t`. Then, whatever the traffic,
//!
//! ```text
//! integral of N(t) dt from a to b  =  sum over every entry inside at any moment of the window of
//!                                     min(left, b) - max(entered, a)
//! ```
//!
//! The left side is accumulated from how many the queue itself says it holds ([`Occupancy::holds`]), the right side from the
//! entries' own times, so that a queue whose entries are told wrong times, or that are not told of, is found. The textbook's form (mean occupancy = arrival rate * mean
//! residence of those that left) differs from it by what the window's ends cut off.

use conic_fabric::Time;
use serde::{Deserialize, Serialize};

/// The probe of one queue or pool of credits. All sums are exact integers of picoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Entries that came and have not left.
    inside: u64,
    /// What the queue says it holds.
    level: u64,
    maximum: u64,
    last: Time,
    /// The latest time of a call: not that of the last, where calls come out of the order of their times.
    latest: Time,
    begun: Time,
    carried: u64,
    arrivals: u64,
    departures: u64,
    /// The integral of the level up to `last`. Signed, because calls may come late: see [`Occupancy::leave`].
    area: i128,
    /// Residence within the window of those that left.
    clipped: i128,
    /// Whole residence of those that left.
    whole: u128,
    /// Sum over those inside of when they entered, or of the window's beginning if that is later.
    entered: i128,
    faults: u64,
}

/// What a queue's window shows. The two sides of the law are [`Little::area`] and [`Little::residence`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Little {
    /// Length of the window.
    pub window_nanoseconds: f64,
    /// Entries inside on average over the window.
    pub mean_occupancy: f64,
    /// Most entries inside at once.
    pub maximum_occupancy: u64,
    /// Entries that were inside when the window began.
    pub carried_in: u64,
    /// Entries that came within the window.
    pub arrivals: u64,
    /// Entries that left within the window.
    pub departures: u64,
    /// Arrivals within the window over its length.
    pub arrivals_per_second: f64,
    /// Mean of the whole stays of those that left.
    pub mean_residence_nanoseconds: f64,
    /// Integral of the occupancy over the window, in entries times picoseconds.
    #[serde(rename = "area_picoseconds")]
    pub area: i128,
    /// Sum of all stays, cut to the window, in picoseconds. Equals `area`, exactly, unless the queue was told nonsense.
    #[serde(rename = "residence_picoseconds")]
    pub residence: i128,
    /// How far the textbook's form is off: (mean occupancy - arrival rate * mean residence) / mean occupancy. It goes to
    /// zero as the window grows; zero for an empty queue.
    pub relative_residual: f64,
    /// Calls that cannot be right; see [`Occupancy::faults`].
    pub faults: u64,
}

impl Little {
    /// Whether the law holds, exactly, and no call was wrong.
    pub fn holds(&self) -> bool {
        self.area == self.residence && self.faults == 0
    }
}

impl Occupancy {
    /// An empty queue whose window begins at `now`.
    pub fn new(now: Time) -> Occupancy {
        Occupancy { last: now, latest: now, begun: now, ..Occupancy::default() }
    }

    /// An entry comes.
    #[inline]
    pub fn enter(&mut self, now: Time) {
        self.advance(now);
        self.inside += 1;
        self.level += 1;
        self.arrivals += 1;
        self.maximum = self.maximum.max(self.level);
        self.entered += i128::from(now.max(self.begun).picoseconds());
    }

    /// The queue says how many it holds, after the entry or exit that was told of last. Not the number that were told of is a
    /// fault, and from then on the law does not hold.
    #[inline]
    pub fn holds(&mut self, level: u64) {
        self.faults += u64::from(level != self.inside);
        self.level = level;
        self.maximum = self.maximum.max(level);
    }

    /// An entry that came at `entered` leaves.
    ///
    /// Calls that come out of the order of their times (a buffer found free some time after it became so) leave every sum
    /// right; only the maximum is then that of the order of calls.
    #[inline]
    pub fn leave(&mut self, now: Time, entered: Time) {
        if self.inside == 0 || entered > now {
            self.faults += 1;
            return;
        }
        self.advance(now);
        let since = entered.max(self.begun);
        self.inside -= 1;
        self.level = self.level.saturating_sub(1);
        self.departures += 1;
        self.clipped += i128::from(now.max(self.begun).picoseconds()) - i128::from(since.picoseconds());
        self.whole += u128::from(now.since(entered).picoseconds());
        self.entered -= i128::from(since.picoseconds());
        if self.inside == 0 && self.entered != 0 {
            // Those that left were not those that came. The right side of the law keeps the error.
            self.faults += 1;
            self.entered = 0;
        }
    }

    #[inline]
    fn advance(&mut self, now: Time) {
        // What happened before the window is of no time in it.
        let now = now.max(self.begun);
        let span = i128::from(now.picoseconds()) - i128::from(self.last.picoseconds());
        self.area += i128::from(self.level) * span;
        self.last = now;
        self.latest = self.latest.max(now);
    }

    /// The latest time of a call.
    pub fn latest(&self) -> Time {
        self.latest
    }

    /// Begins a new window at `now`, which is not before any call so far: a warm-up ends. What is inside stays inside. A
    /// later call with an earlier time counts from the beginning.
    pub fn restart(&mut self, now: Time) {
        *self = Occupancy {
            inside: self.inside,
            level: self.level,
            maximum: self.level,
            carried: self.inside,
            entered: i128::from(self.inside) * i128::from(now.picoseconds()),
            ..Occupancy::new(now)
        };
    }

    /// Entries inside.
    #[inline]
    pub fn inside(&self) -> u64 {
        self.inside
    }

    /// Calls in this window that cannot be right: an entry that left an empty queue or before it came, and moments at
    /// which the queue was empty although the times of those that left were not the times of those that came.
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// What the window up to `now` shows; `now` is not before any call so far.
    pub fn little(&self, now: Time) -> Little {
        let mut end = self.clone();
        end.advance(now);
        let residence = end.clipped + i128::from(end.inside) * i128::from(now.picoseconds()) - end.entered;
        let window = now.since(end.begun).picoseconds();
        let over = |sum: f64, count: f64| if count > 0.0 { sum / count } else { 0.0 };
        let mean_occupancy = over(end.area as f64, window as f64);
        let arrivals_per_picosecond = over(end.arrivals as f64, window as f64);
        let mean_residence = over(end.whole as f64, end.departures as f64);
        let residual = mean_occupancy - arrivals_per_picosecond * mean_residence;
        Little {
            window_nanoseconds: window as f64 / 1e3,
            mean_occupancy,
            maximum_occupancy: end.maximum,
            carried_in: end.carried,
            arrivals: end.arrivals,
            departures: end.departures,
            arrivals_per_second: arrivals_per_picosecond * 1e12,
            mean_residence_nanoseconds: mean_residence / 1e3,
            area: end.area,
            residence,
            relative_residual: over(residual, mean_occupancy),
            faults: end.faults,
        }
    }
}

#[cfg(test)]
mod tests;
