//! What `conic dataflow` prints.

use conic_chart::{Axis, Chart, Point, Series};
use conic_fabric::Time;
use serde::Serialize;

use super::graphs::{Graph, Outcome, PAYLOAD_BYTES, exchange_bytes};
use super::{GraphReport, Row};
use crate::bench::common::{MachineReport, count, nanoseconds, placement_line, print_notes, three_digits};
use crate::bench::failure::{Failure, print_json};
use crate::bench::placement::{Placement, Spread};
use crate::bench::rounds::{Dropped, Slices};

/// Numbers of a batch that one line holds each way.
const ONE_LINE: usize = 4;

#[derive(Serialize)]
struct PlacementReport<'a> {
    placement: &'static str,
    one_line_round_trip_ns: Spread,
    graphs: &'a [GraphReport],
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    device: &'static str,
    /// Of an exchange each way, and what of it are elements, the rest being progress.
    exchange_bytes: usize,
    payload_bytes: usize,
    /// Of a batch of one line through the filters, in the headline's placement.
    crossing_ns: f64,
    exchange_ns: f64,
    one_line_round_trip_ns: f64,
    wrong: u64,
    dropped_slices: Dropped,
    restless: bool,
    machine: MachineReport,
    /// The headline's first.
    placements: Vec<PlacementReport<'a>>,
}

/// The row of a batch of one line.
fn one_line(graphs: &[GraphReport]) -> Option<&Row> {
    let filters = graphs.iter().find(|report| report.graph == Graph::Filters.name())?;
    filters.sizes.iter().find(|row| row.elements == ONE_LINE)
}

/// One JSON object.
///
/// # Errors
///
/// If it cannot be written.
pub fn json(
    places: &[&Placement],
    reports: &[Vec<GraphReport>],
    measured: &Slices<Outcome>,
    machine: MachineReport,
    wrong: u64,
) -> Result<(), Failure> {
    let placements: Vec<PlacementReport<'_>> = places
        .iter()
        .zip(reports)
        .map(|(place, graphs)| PlacementReport {
            placement: place.label,
            one_line_round_trip_ns: place.round_trip.rounded(1),
            graphs,
        })
        .collect();
    let headline = reports.first().and_then(|graphs| one_line(graphs));
    let (Some(row), Some(place)) = (headline, placements.first()) else {
        return Err(Failure::failed("nothing was measured with batches of one line"));
    };
    let report = Report {
        schema: "conic.dataflow/1",
        device: "played by a core",
        exchange_bytes: exchange_bytes(),
        payload_bytes: PAYLOAD_BYTES,
        crossing_ns: row.crossing_ns,
        exchange_ns: row.exchange_ns,
        one_line_round_trip_ns: place.one_line_round_trip_ns.median,
        wrong,
        dropped_slices: measured.dropped,
        restless: measured.restless,
        machine,
        placements,
    };
    print_json(&report)
}

/// A table for each placement and graph.
pub fn table(
    places: &[&Placement],
    reports: &[Vec<GraphReport>],
    measured: &Slices<Outcome>,
    machine: &MachineReport,
    slice: Time,
) {
    println!("operators of a Timely graph on a device that a core plays: a batch's median time");
    machine.print();
    for (place, graphs) in places.iter().zip(reports) {
        println!("\n  {}", placement_line(place, place.members.len(), slice));
        for (graph, report) in Graph::ALL.into_iter().zip(graphs) {
            println!("\n  {}; elements of a batch:", graph.title());
            let heading: String =
                report.sizes.iter().map(|row| format!(" {:>7}", count(row.elements as u64))).collect();
            println!(" {:23}{heading}", "");
            for (index, way) in graph.ways().iter().enumerate() {
                line(way.name(), report, |row| row.ways[index].batch_ns.p50);
            }
            line("collapsed less fused", report, |row| row.crossing_ns);
            line("collapsed less inline", report, |row| row.exchange_ns);
        }
        if let Some(row) = one_line(graphs) {
            let (crossing, trip) = (row.crossing_ns, place.round_trip.median);
            println!(
                "\n  crossing with a batch of one line: {} over fused software\n  ({} over inline), {} round trips of a line",
                nanoseconds(crossing),
                nanoseconds(row.exchange_ns),
                three_digits(crossing / trip)
            );
        }
    }
    println!("\n  what came out of every batch was compared with what the operators make");
    print_notes(measured);
}

/// Characters of a cell: seven of them, a name and the blanks between fill 80 columns.
const CELL: usize = 7;

/// A time, or a difference of two; its unit stands close where a sign takes the blank's place.
fn cell(value: f64) -> String {
    let text = nanoseconds(value);
    if text.len() > CELL { text.replace(' ', "") } else { text }
}

fn line(name: &str, report: &GraphReport, figure: impl Fn(&Row) -> f64) {
    let figures: String = report.sizes.iter().map(|row| format!(" {:>CELL$}", cell(figure(row)))).collect();
    println!(" {name:23}{figures}");
}

/// A batch's time over its size, a chart for each graph.
pub fn charts(graphs: &[GraphReport]) -> Vec<Chart> {
    let chart = |(graph, report): (Graph, &GraphReport)| {
        let axes = (Axis::log("Elements of a batch", ""), Axis::log("Time of a batch", "us"));
        let chart = Chart::xy(title(graph, report), axes.0, axes.1).note("on a device that a core plays; medians");
        graph.ways().iter().enumerate().fold(chart, |chart, (index, way)| {
            let point = |row: &Row| Point::new(row.elements as f64, row.ways[index].batch_ns.p50 / 1e3);
            chart.series(Series::line(way.name(), report.sizes.iter().map(point)))
        })
    };
    Graph::ALL.into_iter().zip(graphs).map(chart).collect()
}

/// What the chart shows, in a sentence.
fn title(graph: Graph, report: &GraphReport) -> String {
    let crossings: Vec<f64> = report.sizes.iter().map(|row| row.crossing_ns / 1e3).collect();
    let (low, high) = crossings.iter().fold((f64::MAX, f64::MIN), |(low, high), one| (low.min(*one), high.max(*one)));
    format!("{}: {} to {} us more on the device than fused", graph.title(), three_digits(low), three_digits(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_holds_any_difference_of_times() {
        for size in [0.0, 0.01, 99.94, 99.96, 700.0, 999.4, 2_100.0, 99_960.0, 443_000.0, 7e6, 99.96e6, 443e6] {
            for value in [size, -size] {
                assert!(cell(value).len() <= CELL, "{}", cell(value));
            }
        }
        assert_eq!([cell(-2100.0), cell(2100.0)], ["-2.10us", "2.10 us"]);
    }
}
