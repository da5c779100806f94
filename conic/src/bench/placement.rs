//! Where the two cores were: measurements grouped by what a line's round trip cost beside them.

use serde::Serialize;

/// A slice whose two probes differ by more than this factor was moved while it ran.
const MOVED: f64 = 1.5;

/// Round trips further apart than this factor are different placements.
const APART: f64 = 2.0;

/// One line's round trip before and after a slice, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probes {
    /// Before.
    pub before: f64,
    /// After.
    pub after: f64,
}

impl Probes {
    /// The mean of both.
    pub fn round_trip(self) -> f64 {
        (self.before + self.after) / 2.0
    }

    /// Whether the cores moved in between.
    pub fn moved(self) -> bool {
        self.before.max(self.after) > MOVED * self.before.min(self.after)
    }
}

/// A placement of the two cores.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// `steady` if it is the only one, otherwise `near`, `far`, and `between` for what lies between; `restless` if the
    /// machine stayed nowhere.
    pub label: &'static str,
    /// One line's round trip, in nanoseconds.
    pub round_trip: Spread,
    /// Which of the measurements, in their order.
    pub members: Vec<usize>,
}

/// Groups measurements by the round trip beside them, from the shortest to the longest.
pub fn placements(round_trips: &[f64]) -> Vec<Placement> {
    let mut order: Vec<usize> = (0..round_trips.len()).collect();
    order.sort_by(|&a, &b| round_trips[a].total_cmp(&round_trips[b]));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for index in order {
        match groups.last_mut() {
            Some(group) if round_trips[index] <= APART * round_trips[group[group.len() - 1]] => group.push(index),
            _ => groups.push(vec![index]),
        }
    }
    let last = groups.len().saturating_sub(1);
    let label = |index| match index {
        _ if last == 0 => "steady",
        0 => "near",
        index if index == last => "far",
        _ => "between",
    };
    let placement = |(index, mut members): (usize, Vec<usize>)| {
        members.sort_unstable();
        let values: Vec<f64> = members.iter().map(|&member| round_trips[member]).collect();
        Some(Placement { label: label(index), round_trip: Spread::of(&values)?, members })
    };
    groups.into_iter().enumerate().filter_map(placement).collect()
}

/// All measurements as one placement, where the machine never rested in any.
pub fn mixed(round_trips: &[f64]) -> Vec<Placement> {
    let all = |round_trip| Placement { label: "restless", round_trip, members: (0..round_trips.len()).collect() };
    Spread::of(round_trips).map(all).into_iter().collect()
}

/// A median and how far the values lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of some finite values; none if there are none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Spread { median, min, max })
    }

    /// The same with each value rounded to `digits` decimal digits.
    pub fn rounded(self, digits: i32) -> Spread {
        let round = |value| rounded(value, digits);
        Spread { median: round(self.median), min: round(self.min), max: round(self.max) }
    }
}

/// A value rounded to `digits` decimal digits; zero if it is not finite, so that no output ever says NaN.
pub fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stable_machine_has_one_placement() {
        let found = placements(&[170.0, 180.0, 165.0, 171.0]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].label, found[0].round_trip.median), ("steady", 170.5));
        assert_eq!(found[0].members, [0, 1, 2, 3]);
    }

    #[test]
    fn two_distances_are_near_and_far_whatever_their_order() {
        let found = placements(&[440.0, 60.0, 470.0, 75.0, 58.0]);
        let labels: Vec<_> = found.iter().map(|place| (place.label, place.members.clone())).collect();
        assert_eq!(labels, [("near", vec![1, 3, 4]), ("far", vec![0, 2])]);
    }

    #[test]
    fn what_lies_between_is_neither() {
        let found = placements(&[50.0, 150.0, 450.0]);
        assert_eq!(found.iter().map(|place| place.label).collect::<Vec<_>>(), ["near", "between", "far"]);
    }

    #[test]
    fn a_gradual_drift_is_one_placement() {
        assert_eq!(placements(&[50.0, 90.0, 170.0, 300.0]).len(), 1);
        assert!(placements(&[]).is_empty());
    }

    #[test]
    fn a_slice_is_moved_if_its_probes_disagree() {
        assert!(!Probes { before: 100.0, after: 150.0 }.moved());
        assert!(Probes { before: 100.0, after: 151.0 }.moved());
        assert!(Probes { before: 460.0, after: 62.0 }.moved());
    }

    #[test]
    fn a_spread_has_the_median_and_never_a_nan() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of(&[4.0, 1.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of(&[f64::NAN]), None);
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(rounded(f64::NAN, 3), 0.0);
        assert_eq!(rounded(1.23456, 2), 1.23);
    }
}
