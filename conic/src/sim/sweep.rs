//! `conic sim --sweep`: throughput-latency curves.

use std::process::ExitCode;

use conic_chart::{Axis, Chart, Point, Series};
use conic_study::simulated::loopback;
use conic_study::workload::Loopback;
use serde::Serialize;

use super::{Asked, Figures, Sockets, print_asked, print_guesses};
use crate::bench::common::{nanoseconds, three_digits};
use crate::bench::draw;
use crate::bench::failure::{Failure, code_of, print_json};
use crate::bench::progress::Progress;
use crate::bench::sweep::WINDOWS;
use crate::spread::on_all_cores;
use crate::writable;

#[derive(Clone, Debug, Serialize)]
struct SweepPoint {
    window: u64,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    asked: Asked,
    points: Vec<SweepPoint>,
    svg: String,
}

/// Simulates and draws the curve.
///
/// # Errors
///
/// If the question cannot be answered, or the chart not be written.
pub fn main(arguments: &Sockets, question: &Loopback, asked: Asked) -> Result<ExitCode, Failure> {
    writable::file(&arguments.svg, "--svg")?;
    let mut progress = Progress::new();
    progress.start(format!("simulating {} points", WINDOWS.len()));
    let points = points(arguments, question)?;
    progress.clear();
    let sum = |of: fn(&Figures) -> u64| points.iter().map(|point| of(&point.figures)).sum();
    let (lost, corrupt) = (sum(|figures| figures.lost), sum(|figures| figures.corrupt));
    let chart = chart(&points, &asked);
    draw::to_file(std::slice::from_ref(&chart), &arguments.svg)?;
    let report = Report { asked, points, svg: arguments.svg.display().to_string() };
    if arguments.json {
        print_json(&report)?;
        return Ok(code_of(lost, corrupt));
    }
    print_asked(&report.asked, "");
    println!("\n    {:>9}  {:>11}  {:>11}  {:>9}  {:>9}  {:>9}", "in flight", "rate", "", "min", "p50", "p99");
    for SweepPoint { window, figures } in &report.points {
        let latency = figures.latency_ns;
        let [min, p50, p99] = [latency.min, latency.p50, latency.p99].map(nanoseconds);
        let (mpps, gbps) =
            (format!("{} Mpps", three_digits(figures.mpps)), format!("{} Gb/s", three_digits(figures.gbps)));
        println!("    {window:>9}  {mpps:>11}  {gbps:>11}  {min:>9}  {p50:>9}  {p99:>9}");
    }
    println!();
    print_guesses(&report.asked.platform);
    println!();
    draw::on_terminal(&chart);
    println!("chart: {}", report.svg);
    Ok(code_of(lost, corrupt))
}

/// All points, on all cores.
fn points(arguments: &Sockets, question: &Loopback) -> Result<Vec<SweepPoint>, Failure> {
    let asked = |&window: &u64| {
        let question = Loopback { window, packets: arguments.packets_of(window), ..question.clone() };
        (window, loopback(&question))
    };
    let point = |(window, outcome): (u64, Result<_, String>)| {
        let figures = Figures::of(&outcome.map_err(|error| Failure::failed(format!("{window} in flight: {error}")))?);
        Ok(SweepPoint { window, figures })
    };
    on_all_cores(&WINDOWS, asked).into_iter().map(point).collect()
}

fn chart(points: &[SweepPoint], asked: &Asked) -> Chart {
    let highest = points.iter().map(|point| point.figures.mpps).fold(0.0, f64::max);
    let title = format!(
        "{}-byte loopback on {}: {} reaches {} Mpps",
        asked.packet_size,
        asked.platform.name,
        asked.interface,
        three_digits(highest)
    );
    let line = |latency: fn(&Figures) -> f64| {
        let point = |point: &SweepPoint| {
            let figures = &point.figures;
            Point::new(figures.mpps, latency(figures)).note(format!("{} in flight", point.window))
        };
        points.iter().map(point).collect::<Vec<_>>()
    };
    Chart::xy(title, Axis::linear("Rate", "Mpps"), Axis::log("Latency, round trip", "ns"))
        .note("simulated; conic sim --sweep")
        .series(Series::line("p50", line(|figures| figures.latency_ns.p50)))
        .series(Series::line("p99", line(|figures| figures.latency_ns.p99)))
}
