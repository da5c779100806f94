//! Throughput-latency curves: the loopback with more and more packets in flight.

use conic_chart::{Axis, Chart, Point, Series};
use conic_fabric::Time;
use conic_load::Workload;
use serde::Serialize;

use super::arena::Arena;
use super::common::{Choice, three_digits};
use super::failure::Failure;
use super::link::{Outcome, Setup, Span, run};
use super::loopback::{PlacementReport, place_report};
use super::progress::Progress;
use super::rounds::{Dropped, Slices, Until, alternate};

/// Packets in flight, from unloaded to as many as a ring of the usual size holds.
pub const WINDOWS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// Packets in flight in the points of a configuration's curve: no more than its rings hold.
pub fn windows(setup: &Setup) -> Vec<u64> {
    let most = setup.interface.in_flight(setup.descriptors);
    WINDOWS.into_iter().filter(|&window| window <= most).collect()
}

/// One point of a curve.
#[derive(Clone, Debug, Serialize)]
pub struct SweepPoint {
    /// Packets in flight.
    pub window: u64,
    /// What was measured with them.
    #[serde(flatten)]
    pub figures: PlacementReport,
    /// Packets lost in any slice.
    pub lost: u64,
    /// Packets corrupt in any slice.
    pub corrupt: u64,
}

/// The curve of one configuration in one placement.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// What it is called.
    pub name: String,
    /// The placement.
    pub placement: &'static str,
    /// From unloaded to full.
    pub points: Vec<SweepPoint>,
}

/// Curves, and what was left out of them.
#[derive(Clone, Debug, Serialize)]
pub struct Sweep {
    /// One for each configuration and placement; the headline's placement first.
    pub curves: Vec<Curve>,
    /// What was left out.
    pub dropped_slices: Dropped,
    /// Whether nothing could be left out.
    pub restless: bool,
    /// Packets lost in any slice of any curve.
    pub lost: u64,
    /// Packets corrupt in any slice of any curve.
    pub corrupt: u64,
}

/// Measures the curves of some configurations, all windows of all of them in turn.
///
/// # Errors
///
/// If one of them cannot be, or the machine refuses it.
pub fn sweep(
    arena: &Arena,
    named: &[(String, Setup)],
    rounds: usize,
    span: Span,
    choice: Choice,
    progress: &mut Progress,
) -> Result<Sweep, Failure> {
    // Whose, and how many in flight.
    let points: Vec<(usize, u64)> = (0..named.len())
        .flat_map(|index| windows(&named[index].1).into_iter().map(move |window| (index, window)))
        .collect();
    let subjects = points.len();
    let until = Until::rounds(rounds, subjects, span.warm_up + span.measured + Time::from_nanoseconds(4_000_000));
    let measured = alternate(arena, subjects, until, progress, |subject| {
        let (index, window) = points[subject];
        let setup = named[index].1;
        run(arena, &Setup { workload: Workload { window, ..setup.workload }, ..setup }, span)
    })?;
    let complete = measured.complete(subjects);
    let mut curves = Vec::new();
    for place in choice.of(&complete) {
        for (index, (name, setup)) in named.iter().enumerate() {
            let point = |(subject, &(_, window)): (usize, &(usize, u64))| {
                let (lost, corrupt) = spoilt(&measured, |other| other == subject);
                let figures = place_report(&measured, place, subject, setup.workload.packet_size)?;
                Some(SweepPoint { window, figures, lost, corrupt })
            };
            let own = points.iter().enumerate().filter(|(_, (whose, _))| *whose == index);
            let points = own.filter_map(point).collect();
            curves.push(Curve { name: name.clone(), placement: place.label, points });
        }
    }
    let (lost, corrupt) = spoilt(&measured, |_| true);
    Ok(Sweep { curves, dropped_slices: measured.dropped, restless: measured.restless, lost, corrupt })
}

/// Packets that were lost, and that were corrupt, in all slices of some subjects.
fn spoilt(measured: &Slices<Outcome>, of: impl Fn(usize) -> bool) -> (u64, u64) {
    let outcomes = measured.all().filter(|slice| of(slice.subject)).map(|slice| &slice.value);
    outcomes.fold((0, 0), |(lost, corrupt), outcome| (lost + outcome.lost, corrupt + outcome.corrupt))
}

/// A point's value on one of the axes.
type Figure = fn(&SweepPoint) -> f64;

/// Median (and, of a single curve, 99th percentile) latency against the rate.
pub fn chart(curves: &[Curve], packet_size: u16, note: &str) -> Chart {
    let mut chart =
        Chart::xy(title(curves, packet_size), Axis::linear("Rate", "Mpps"), Axis::log("Latency, round trip", "ns"));
    chart = chart.note(note);
    let several = curves.iter().any(|curve| curve.placement != curves[0].placement);
    for curve in curves {
        let name = if several { format!("{}, cores {}", curve.name, curve.placement) } else { curve.name.clone() };
        let line = |figure: Figure| {
            let point = |point: &SweepPoint| {
                let rate = point.figures.mpps;
                let at = Point::new(rate.median, figure(point)).x_spread(rate.min, rate.max);
                at.note(format!("{} in flight", point.window))
            };
            curve.points.iter().map(point).collect::<Vec<_>>()
        };
        chart = chart.series(Series::line(format!("{name} p50"), line(|point| point.figures.latency_ns.p50)));
        if curves.len() == 1 {
            chart = chart.series(Series::line(format!("{name} p99"), line(|point| point.figures.latency_ns.p99)));
        }
    }
    chart
}

/// What the curves show, in a sentence.
fn title(curves: &[Curve], packet_size: u16) -> String {
    let highest = |curve: &Curve| curve.points.iter().map(|point| point.figures.mpps.median).fold(0.0, f64::max);
    match curves {
        [] => "Nothing was measured".to_owned(),
        [first, others @ ..] => {
            let other = others
                .iter()
                .filter(|other| other.placement == first.placement)
                .map(|other| format!(", {} {}", other.name, three_digits(highest(other))));
            let others: String = other.collect();
            format!("{packet_size}-byte loopback: {} reaches {} Mpps{others}", first.name, three_digits(highest(first)))
        }
    }
}

/// The table of a curve.
pub fn print(curve: &Curve) {
    println!("    {:>9}  {:>10}  {:>10}  {:>9}  {:>9}  {:>9}", "in flight", "rate", "", "p50", "p99", "p99.9");
    for point in &curve.points {
        let figures = &point.figures;
        let latency = figures.latency_ns;
        let [p50, p99, p999] = [latency.p50, latency.p99, latency.p999].map(super::common::nanoseconds);
        let (mpps, gbps) = (three_digits(figures.mpps.median), three_digits(figures.gbps));
        let (mpps, gbps) = (format!("{mpps} Mpps"), format!("{gbps} Gb/s"));
        println!("    {:>9}  {mpps:>10}  {gbps:>10}  {p50:>9}  {p99:>9}  {p999:>9}", point.window);
        if point.lost + point.corrupt > 0 {
            println!("    {:>9}  lost {}, corrupt {}", "", point.lost, point.corrupt);
        }
    }
}
