//! What `conic invoke` prints.

use conic_fabric::Time;
use conic_load::Function;
use serde::Serialize;

use super::{LatencyReport, Outcome, Row};
use crate::bench::common::{MachineReport, nanoseconds, placement_line, print_notes, three_digits};
use crate::bench::failure::{Failure, print_json};
use crate::bench::placement::{Placement, Spread};
use crate::bench::rounds::{Dropped, Slices};

#[derive(Serialize)]
struct PlacementReport {
    placement: &'static str,
    one_line_round_trip_ns: Spread,
    sizes: Vec<Row>,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    function: &'static str,
    device: &'static str,
    wrong: u64,
    dropped_slices: Dropped,
    restless: bool,
    machine: MachineReport,
    /// The headline's first.
    placements: Vec<PlacementReport>,
}

/// One JSON object.
///
/// # Errors
///
/// If it cannot be written.
pub fn json(
    function: Function,
    places: &[&Placement],
    rows: Vec<Vec<Row>>,
    measured: &Slices<Outcome>,
    machine: MachineReport,
    wrong: u64,
) -> Result<(), Failure> {
    let placement = |(place, sizes): (&&Placement, Vec<Row>)| PlacementReport {
        placement: place.label,
        one_line_round_trip_ns: place.round_trip.rounded(1),
        sizes,
    };
    let report = Report {
        schema: "conic.invoke/1",
        function: function.name(),
        device: "played by a core",
        wrong,
        dropped_slices: measured.dropped,
        restless: measured.restless,
        machine,
        placements: places.iter().zip(rows).map(placement).collect(),
    };
    print_json(&report)
}

/// A table for each placement.
pub fn table(
    function: Function,
    places: &[&Placement],
    rows: &[Vec<Row>],
    measured: &Slices<Outcome>,
    machine: &MachineReport,
    slice: Time,
) {
    println!("{function}, called on a device that a core plays");
    machine.print();
    for (place, rows) in places.iter().zip(rows) {
        println!("\n  {}", placement_line(place, place.members.len(), slice));
        println!(
            " {:>7} {:>8} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>5}",
            "request", "response", "min", "p50", "p99", "p99.9", "max", "here", "Mcalls", "GiB/s"
        );
        for row in rows {
            let LatencyReport { min, p50, p99, p999, max, .. } = row.latency_ns;
            let [min, p50, p99, p999, max, here] = [min, p50, p99, p999, max, row.here_ns].map(nanoseconds);
            let (calls, moved) = (row.calls_per_second / 1e6, row.bytes_per_second / f64::from(1 << 30));
            println!(
                " {:>7} {:>8} {min:>7} {p50:>7} {p99:>7} {p999:>7} {max:>7} {here:>7} {:>6} {:>5}",
                row.bytes,
                row.response_bytes,
                three_digits(calls),
                three_digits(moved)
            );
        }
    }
    println!("\n  here: the same on the calling core, with whose result every response was");
    println!("  compared; Mcalls: million calls a second");
    print_notes(measured);
}
