//! From data values to places on an axis, and where its ticks go.

use crate::format::{log_tick_label, tail_tick_label, tick_labels};
use crate::model::{Axis, Scale};

/// Largest magnitude drawn; beyond it differences overflow and SI prefixes end.
const LARGEST: f64 = 1e18;
/// Free share kept between the outermost value and the end of its axis, so that no mark sits on the frame.
const MARGIN: f64 = 0.035;
/// Ratio below which a logarithmic axis gets evenly spaced ticks, because 1-2-5 would leave it with one or two.
const NARROW_RATIO: f64 = 5.0;

impl Scale {
    /// Place of `value` on an endless axis, or `None` where the scale has no place for it.
    pub(crate) fn forward(self, value: f64) -> Option<f64> {
        match self {
            Scale::Linear => (value.abs() <= LARGEST).then_some(value),
            Scale::Log => (1.0 / LARGEST..=LARGEST).contains(&value).then(|| value.log10()),
            Scale::Tail => (0.0..=100.0 - 1e-7).contains(&value).then(|| -(1.0 - value / 100.0).log10()),
        }
    }
}

/// The part of a scale that an axis shows, with `low < high` in data values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Domain {
    scale: Scale,
    low: f64,
    high: f64,
    start: f64,
    length: f64,
}

/// One labelled tick.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    /// Share of the axis, 0 to 1.
    pub at: f64,
    /// Text.
    pub label: String,
}

/// The ticks of an axis.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticks {
    /// Labelled ticks in rising order.
    pub major: Vec<Tick>,
    /// Unlabelled ticks, as shares of the axis.
    pub minor: Vec<f64>,
}

impl Domain {
    /// A domain that shows all placeable `values`, or the axis' own range. `None` without any value.
    pub fn over(axis: &Axis, values: impl Iterator<Item = f64>, with_zero: bool) -> Option<Domain> {
        let placeable = values.filter(|v| axis.scale.forward(*v).is_some());
        let extent = placeable.fold(None, |seen: Option<(f64, f64)>, v| {
            Some(seen.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
        })?;
        if let Some((low, high)) = axis.range
            && low < high
            && let Some(domain) = Domain::between(axis.scale, low, high)
        {
            return Some(domain);
        }
        let (low, high) = match axis.scale {
            Scale::Linear => linear_extent(extent, with_zero),
            Scale::Log => log_extent(extent),
            Scale::Tail => (0.0, extent.1.max(90.0)),
        };
        Domain::between(axis.scale, low, high)
    }

    /// The domain from `low` to `high`, `None` if the scale cannot show both apart.
    fn between(scale: Scale, low: f64, high: f64) -> Option<Domain> {
        let place = |v: f64| match scale {
            // The margin may reach a little beyond the largest value.
            Scale::Linear => v.is_finite().then_some(v),
            Scale::Log => (v.is_finite() && v > 0.0).then(|| v.log10()),
            Scale::Tail => scale.forward(v),
        };
        let (start, end) = (place(low)?, place(high)?);
        let length = match scale {
            Scale::Tail => (end - start) * (1.0 + MARGIN),
            _ => end - start,
        };
        (length > 0.0 && length.is_finite()).then_some(Domain { scale, low, high, start, length })
    }

    /// Share of the axis at which `value` lies, only if it is on the axis.
    pub fn place(&self, value: f64) -> Option<f64> {
        let share = self.unclipped(value)?;
        (-1e-9..=1.0 + 1e-9).contains(&share).then(|| share.clamp(0.0, 1.0))
    }

    /// Share of the axis at which `value` lies, also outside 0 to 1.
    pub fn unclipped(&self, value: f64) -> Option<f64> {
        Some((self.scale.forward(value)? - self.start) / self.length)
    }

    /// The value at a share of the axis.
    pub fn value_at(&self, share: f64) -> f64 {
        let place = self.start + share * self.length;
        match self.scale {
            Scale::Linear => place,
            Scale::Log => 10f64.powf(place),
            Scale::Tail => 100.0 * (1.0 - 10f64.powf(-place)),
        }
    }

    /// Ticks with at most `most` labels (at least one is allowed).
    pub fn ticks(&self, most: usize) -> Ticks {
        let most = most.max(1);
        match self.scale {
            Scale::Linear => self.even_ticks(most),
            Scale::Log if self.high / self.low < NARROW_RATIO => self.even_ticks(most),
            Scale::Log => self.log_ticks(most),
            Scale::Tail => self.tail_ticks(most),
        }
    }

    fn even_ticks(&self, most: usize) -> Ticks {
        let mut power = ((self.high - self.low) / most as f64).log10().floor() as i32;
        loop {
            for factor in [1.0, 2.0, 5.0] {
                let values = multiples(self.low, self.high, factor, power);
                // Some steps have no multiple inside; coarser ones cannot have more.
                if values.len() <= most {
                    let labels = tick_labels(&values, factor * 10f64.powi(power));
                    return self.labelled(values.into_iter().zip(labels).collect(), Vec::new());
                }
            }
            power += 1;
        }
    }

    fn log_ticks(&self, most: usize) -> Ticks {
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let all = |factors: &[i32], every: i32| -> Vec<f64> {
            (first..=last)
                .filter(|decade| decade.rem_euclid(every) == 0)
                .flat_map(|decade| {
                    factors.iter().map(move |f| format!("{f}e{decade}").parse::<f64>().unwrap_or(f64::NAN))
                })
                .filter(|v| self.place(*v).is_some())
                .collect()
        };
        let mut major = all(&[1, 2, 5], 1);
        let mut every = 1;
        while major.len() > most && every < 64 {
            major = all(&[1], every);
            every += 1;
        }
        major.truncate(most);
        let minor = if last - first <= 8 { all(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 1) } else { all(&[1], 1) };
        let major = major.into_iter().map(|v| (v, log_tick_label(v))).collect();
        self.labelled(major, minor)
    }

    fn tail_ticks(&self, most: usize) -> Ticks {
        let wanted = [0.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999, 50.0, 99.99999];
        let mut major: Vec<f64> = wanted.into_iter().filter(|v| self.place(*v).is_some()).take(most).collect();
        major.sort_by(f64::total_cmp);
        let minor = (0..7)
            .flat_map(|decade| (2..10).map(move |k| 100.0 * (1.0 - 10f64.powi(-decade) / k as f64)))
            .filter(|v| self.place(*v).is_some())
            .collect();
        let major = major.into_iter().map(|v| (v, tail_tick_label(v))).collect();
        self.labelled(major, minor)
    }

    fn labelled(&self, major: Vec<(f64, String)>, minor: Vec<f64>) -> Ticks {
        let major: Vec<Tick> =
            major.into_iter().filter_map(|(value, label)| self.place(value).map(|at| Tick { at, label })).collect();
        let minor = minor
            .into_iter()
            .filter_map(|v| self.place(v))
            .filter(|at| major.iter().all(|tick| (tick.at - at).abs() > 1e-9))
            .collect();
        Ticks { major, minor }
    }

    /// The ticks with the most labels, at most `most`, that `fits` accepts; none fitting, the last one tried.
    pub fn fitting_ticks(&self, most: usize, fits: impl Fn(&[Tick]) -> bool) -> Ticks {
        let mut count = most.clamp(1, 40);
        loop {
            let ticks = self.ticks(count);
            if count == 1 || fits(&ticks.major) {
                return ticks;
            }
            count -= 1;
        }
    }
}

/// Multiples of `factor * 10^power` from `low` to `high`, at most 64, each the nearest `f64` of its decimal number.
fn multiples(low: f64, high: f64, factor: f64, power: i32) -> Vec<f64> {
    let step = factor * 10f64.powi(power);
    let first = (low / step - 1e-6).ceil();
    let last = (high / step + 1e-6).floor();
    let count = (last - first + 1.0).clamp(0.0, 64.0) as usize;
    let value = |i: usize| {
        let multiple = (first + i as f64) * factor;
        let value = if power < 0 { multiple / 10f64.powi(-power) } else { multiple * 10f64.powi(power) };
        // No negative zero: it would be labelled "-0".
        value + 0.0
    };
    (0..count).map(value).collect()
}

/// The smallest 1-2-5 step of at least `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= rough * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

/// Range of a linear axis over values from `low` to `high`: zero if it is not far away, round ends, free margins.
fn linear_extent((low, high): (f64, f64), with_zero: bool) -> (f64, f64) {
    let (mut bottom, mut top) = (low, high);
    if with_zero || (low > 0.0 && low <= 0.5 * high) {
        bottom = bottom.min(0.0);
    }
    if with_zero || (high < 0.0 && high >= 0.5 * low) {
        top = top.max(0.0);
    }
    if top - bottom <= 1e-9 * top.abs().max(bottom.abs()) {
        let half = if top == 0.0 { 0.5 } else { 0.1 * top.abs() };
        (bottom, top) = (bottom - half, top + half);
    }
    let step = nice_step((top - bottom) / 5.0);
    let (start, end) = ((bottom / step).floor() * step, (top / step).ceil() * step);
    let margin = MARGIN * (end - start);
    let start = match bottom == 0.0 && low >= 0.0 {
        true => 0.0,
        false => start.min(bottom - margin),
    };
    let end = match top == 0.0 && high <= 0.0 {
        true => 0.0,
        false => end.max(top + margin),
    };
    (start, end)
}

/// Range of a logarithmic axis over values from `low` to `high`.
fn log_extent((low, high): (f64, f64)) -> (f64, f64) {
    let (low, high) = match high / low < 1.02 {
        true => (low / 1.1, high * 1.1),
        false => (low, high),
    };
    let margin = 10f64.powf(MARGIN * (high / low).log10());
    if high / low < NARROW_RATIO {
        // Rounding to 1-2-5 could double the axis' length.
        return (low / margin, high * margin);
    }
    let round = |value: f64, up: bool| {
        let power = 10f64.powf(value.log10().floor());
        let mantissa = value / power;
        let steps = [1.0, 2.0, 5.0, 10.0];
        let found = match up {
            true => steps.into_iter().find(|s| mantissa <= s * (1.0 + 1e-9)),
            false => steps.into_iter().rfind(|s| mantissa >= s * (1.0 - 1e-9)),
        };
        found.unwrap_or(if up { 10.0 } else { 1.0 }) * power
    };
    (round(low, false).min(low / margin), round(high, true).max(high * margin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(axis: Axis, values: &[f64]) -> Domain {
        Domain::over(&axis, values.iter().copied(), false).expect("a domain")
    }

    fn labels(domain: &Domain, most: usize) -> Vec<String> {
        let ticks = domain.ticks(most);
        ticks.major.into_iter().map(|t| t.label).collect()
    }

    #[test]
    fn linear_axis_starts_at_zero_unless_far_from_it() {
        // Both ends are round: the axis runs on to the next tick beyond its values.
        let near = domain(Axis::linear("", ""), &[10.0, 42.0]);
        assert_eq!(labels(&near, 6), ["0", "10", "20", "30", "40", "50"]);
        let far = domain(Axis::linear("", ""), &[810.0, 890.0]);
        assert_eq!(labels(&far, 6), ["800", "820", "840", "860", "880", "900"]);
    }

    #[test]
    fn log_axis_labels_decades_and_marks_the_rest() {
        let wide = domain(Axis::log("", ""), &[120.0, 90_000.0]);
        assert_eq!(labels(&wide, 4), ["100", "1,000", "10,000", "100,000"]);
        assert!(wide.ticks(4).minor.len() >= 24);
        let narrow = domain(Axis::log("", ""), &[800.0, 900.0]);
        assert!(labels(&narrow, 6).len() >= 4, "{:?}", labels(&narrow, 6));
        let huge = domain(Axis::log("", ""), &[1e-18, 1e18]);
        assert!((3..=5).contains(&labels(&huge, 5).len()));
    }

    #[test]
    fn tail_axis_spaces_nines_evenly() {
        let tail = domain(Axis::tail("p"), &[0.0, 50.0, 99.9]);
        let at = |p| tail.place(p).expect("on the axis");
        assert!(((at(99.0) - at(90.0)) - (at(99.9) - at(99.0))).abs() < 1e-9);
        assert_eq!(labels(&tail, 6), ["0%", "50%", "90%", "99%", "99.9%"]);
        assert_eq!(tail.place(100.0), None);
    }

    #[test]
    fn every_domain_is_monotone_and_holds_its_values_and_at_most_the_asked_ticks() {
        let sets: [&[f64]; 9] = [
            &[0.0],
            &[5.0],
            &[-3.0, -2.9],
            &[1e18, -1e18],
            &[1e-18, 2e-18],
            &[1e15, 1e15 + 1.0],
            &[99.5, 12.0, 0.3],
            &[f64::NAN, 4.0, f64::INFINITY],
            &[1.0, 1.0 + 1e-12],
        ];
        for axis in [Axis::linear("", ""), Axis::log("", ""), Axis::tail("")] {
            for values in sets {
                let Some(domain) = Domain::over(&axis, values.iter().copied(), false) else {
                    assert!(values.iter().all(|v| axis.scale.forward(*v).is_none()));
                    continue;
                };
                for v in values {
                    assert_eq!(domain.place(*v).is_some(), axis.scale.forward(*v).is_some(), "{axis:?} {v}");
                }
                let shares: Vec<f64> = (0..=50).map(|i| i as f64 / 50.0).collect();
                for pair in shares.windows(2) {
                    assert!(domain.value_at(pair[0]) <= domain.value_at(pair[1]));
                }
                for most in 1..12 {
                    let ticks = domain.ticks(most);
                    assert!(ticks.major.len() <= most, "{axis:?} {values:?} {most}");
                    for pair in ticks.major.windows(2) {
                        assert!(pair[0].at < pair[1].at, "{axis:?} {values:?} {most}");
                        assert_ne!(pair[0].label, pair[1].label, "{axis:?} {values:?} {most}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_range_the_scale_cannot_show_is_ignored() {
        for (low, high) in [(-1.0, 10.0), (f64::NAN, 1.0), (10.0, 10.0), (10.0, 1.0)] {
            let axis = Axis::log("", "").range(low, high);
            assert!(domain(axis, &[2.0, 4.0]).place(3.0).is_some());
        }
        let fixed = domain(Axis::linear("", "").range(0.0, 10.0), &[2.0, 40.0]);
        assert_eq!(fixed.place(10.0), Some(1.0));
        assert_eq!(fixed.place(40.0), None);
    }
}
