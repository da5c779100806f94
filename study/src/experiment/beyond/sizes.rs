//! Results by packet size, and their plots.

use conic_chart::{Axis, Chart, Point, Series};

use super::super::findings::Findings;
use super::super::loops::{alone, gbps, mpps, peak};
use super::super::setting::Setting;
use crate::ask::Ask;
use crate::workload::Loopback;

/// What one variant reached with packets of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub size: u16,
    /// Highest rate of one host thread, in million packets and in gigabits a second.
    pub mpps: Option<f64>,
    pub gbps: Option<f64>,
    /// Bytes of a packet on the link at that rate, both ways.
    pub bytes: Option<f64>,
    /// Median latency with one packet in flight, nanoseconds.
    pub latency: Option<f64>,
}

/// Asks for a variant at each size, on one host thread.
pub(super) fn by_size(
    ask: &mut Ask<'_>,
    setting: &Setting,
    sizes: &[u16],
    question: impl Fn(u16) -> Loopback,
) -> Vec<Reached> {
    let reached = |&size: &u16| {
        let question = Loopback { threads: 1, ..question(size) };
        let latency = ask.of(alone(setting, &question)).map(|outcome| outcome.median_nanoseconds);
        let highest = peak(ask, setting, &question).map(|peak| peak.outcome);
        Reached {
            size,
            mpps: highest.as_ref().map(mpps),
            gbps: highest.as_ref().map(gbps),
            bytes: highest.as_ref().map(|outcome| outcome.link_bytes.iter().sum()),
            latency,
        }
    };
    sizes.iter().map(reached).collect()
}

/// One value of each size; none while one is missing.
pub(super) fn list(variant: &[Reached], value: fn(&Reached) -> Option<f64>) -> Option<Vec<f64>> {
    variant.iter().map(value).collect()
}

/// One value over the same of another variant, for each size.
pub(super) fn ratios(one: &[Reached], over: &[Reached], value: fn(&Reached) -> Option<f64>) -> Option<Vec<f64>> {
    one.iter().zip(over).map(|(one, over)| Some(value(one)? / value(over)?)).collect()
}

/// The size from which on one variant's rate is above another's, on a straight line between logarithms of sizes; none if it
/// never is or always.
pub(super) fn crossover(one: &[Reached], over: &[Reached]) -> Option<f64> {
    let ratios = ratios(one, over, |reached| reached.mpps)?;
    let points: Vec<(f64, f64)> =
        one.iter().zip(ratios).map(|(reached, ratio)| (f64::from(reached.size).ln(), ratio.ln())).collect();
    let last_below = points.iter().rposition(|point| point.1 <= 0.0)?;
    let [(from, below), (to, above)] = [points[last_below], *points.get(last_below + 1)?];
    Some((from + (to - from) * -below / (above - below)).exp())
}

/// A plot of one value by packet size, a line for each variant.
pub(super) fn plot(
    findings: &mut Findings,
    name: &'static str,
    title: &str,
    axis: Axis,
    variants: &[(&str, &[Reached])],
    value: fn(&Reached) -> Option<f64>,
    note: &str,
) {
    let mut chart = Chart::xy(title, Axis::log("Packet size", "bytes"), axis);
    for (name, variant) in variants {
        let point = |reached: &Reached| Some(Point::new(f64::from(reached.size), value(reached)?));
        chart = chart.series(Series::line(*name, variant.iter().filter_map(point).collect::<Vec<_>>()));
    }
    findings.plot(name, chart.note(note));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(rates: &[(u16, f64)]) -> Vec<Reached> {
        let reached =
            |&(size, mpps): &(u16, f64)| Reached { size, mpps: Some(mpps), gbps: None, bytes: None, latency: None };
        rates.iter().map(reached).collect()
    }

    #[test]
    fn the_crossover_lies_where_the_ratio_is_one() {
        let base = rates(&[(64, 8.0), (256, 4.0), (1024, 2.0)]);
        let found = crossover(&rates(&[(64, 2.0), (256, 2.0), (1024, 4.0)]), &base).expect("it crosses");
        // From half to twice between 256 and 1024: in the middle of their logarithms.
        assert!((found - 512.0).abs() < 1e-6, "{found}");
        assert_eq!(crossover(&rates(&[(64, 2.0), (256, 2.0), (1024, 1.0)]), &base), None, "never above");
        assert_eq!(crossover(&rates(&[(64, 9.0), (256, 9.0), (1024, 9.0)]), &base), None, "always above");
        assert_eq!(crossover(&base[..2], &rates(&[(64, 9.0), (256, 4.0)])), None, "equal at the end");
    }

    #[test]
    fn a_missing_answer_leaves_no_crossover() {
        let mut base = rates(&[(64, 8.0), (256, 4.0)]);
        base[1].mpps = None;
        assert_eq!(crossover(&rates(&[(64, 2.0), (256, 8.0)]), &base), None);
    }
}
