//! What `conic study native` prints.

use conic_study::simulated::native::{Calibrated, Limits};

use super::predict::Work;
use super::{Compared, LimitReport, PlaceReport, Report, Row, WorkReport};
use crate::bench::common::{nanoseconds, three_digits};
use crate::bench::placement::{Placement, Spread, rounded};

/// Predictions further off than this are counted.
const QUARTER: f64 = 0.25;

/// Puts a placement's report together.
pub fn report(
    place: &Placement,
    calibrated: &Calibrated,
    stop: f64,
    works: &[Work<'_>],
    rows: Vec<Row>,
) -> PlaceReport {
    let machine = &calibrated.machine;
    let limits = calibrated.measured.list().into_iter().zip(calibrated.simulated.list());
    let limit = |(index, (measured, simulated))| LimitReport {
        name: Limits::NAMES[index],
        unit: if index < Limits::TIMES { "ns" } else { "lines/s" },
        compared: Compared::new(measured, simulated),
    };
    let work = |work: &Work<'_>| WorkReport {
        interface: work.subject.interface.name(),
        features: work.subject.features_name(),
        packet_size: work.subject.workload.packet_size,
        window: work.subject.workload.window,
        host_ns: work.takes[0],
        nic_ns: work.takes[1],
        host_scale: rounded(work.machine.core.work_scale, 3),
        nic_scale: rounded(work.nic, 3),
    };
    let rates: Vec<f64> = rows.iter().map(|row| row.mpps.error.abs()).collect();
    let latencies: Vec<f64> = rows.iter().map(|row| row.p50_ns.error.abs()).collect();
    let all = [&rates[..], &latencies[..]].concat();
    let median = |errors: &[f64]| Spread::of(errors).map_or(0.0, |spread| rounded(spread.median, 4));
    PlaceReport {
        placement: place.label,
        one_line_round_trip_ns: place.round_trip.rounded(1),
        slices: place.members.len(),
        calibration: limits.enumerate().map(limit).collect(),
        stretch: rounded(calibrated.stretch, 4),
        line_fill_buffers: calibrated.line_fill_buffers,
        store_fill_buffers: calibrated.store_fill_buffers,
        migratory: calibrated.migratory,
        next_line_prefetch: calibrated.next_line,
        clock_ghz: f64::from(machine.core.frequency_megahertz) / 1e3,
        pause_cycles: machine.core.pause_cycles,
        clock_cycles: machine.core.clock_cycles,
        stop_ns: rounded(stop, 0),
        l1_bytes: machine.cache.l1_bytes,
        l2_bytes: machine.cache.l2_bytes,
        work: works.iter().map(work).collect(),
        loopbacks: rows,
        median_error: median(&all),
        median_rate_error: median(&rates),
        median_latency_error: median(&latencies),
        beyond_a_quarter: all.iter().filter(|error| **error >= QUARTER).count(),
        predictions: all.len(),
    }
}

fn percent(error: f64) -> String {
    format!("{:+.0}%", 100.0 * error)
}

/// Prints a placement.
pub fn print(place: &PlaceReport) {
    let trip = nanoseconds(place.one_line_round_trip_ns.median);
    let name = match place.placement {
        "steady" | "restless" => String::new(),
        label => format!("cores {label}: "),
    };
    println!("\n  {name}one line's round trip {trip}; {} slices", place.slices);
    println!("\n    {:36} {:>10}  {:>10}  {:>6}", "limit", "measured", "simulated", "error");
    for limit in &place.calibration {
        let value = |value: f64| match limit.unit {
            "ns" => nanoseconds(value),
            _ => format!("{} M/s", three_digits(value / 1e6)),
        };
        let Compared { measured, predicted, error } = limit.compared;
        println!("    {:36} {:>10}  {:>10}  {:>6}", limit.name, value(measured), value(predicted), percent(error));
    }
    let switch = |on: bool| if on { "on" } else { "off" };
    println!(
        "    stages times {:.2}, migratory hand-over {}, {} line fill buffers ({} of them for stores), next-line prefetcher {}",
        place.stretch,
        switch(place.migratory),
        place.line_fill_buffers,
        place.store_fill_buffers,
        switch(place.next_line_prefetch),
    );
    println!(
        "    the core: {:.2} GHz, a pause of {} cycles, the time read in {}, a stop of {}, caches of {} and {} KiB",
        place.clock_ghz,
        place.pause_cycles,
        place.clock_cycles,
        nanoseconds(place.stop_ns),
        place.l1_bytes >> 10,
        place.l2_bytes >> 10
    );
    print_work(&place.work);
    print_rows(&place.loopbacks);
    let [all, rates, latencies] =
        [place.median_error, place.median_rate_error, place.median_latency_error].map(|error| 100.0 * error);
    println!(
        "\n    median error {all:.0}% of {} predictions (rates {rates:.0}%, latencies {latencies:.0}%); {} are off by a quarter or more",
        place.predictions, place.beyond_a_quarter
    );
}

fn print_work(work: &[WorkReport]) {
    println!(
        "\n    {:6} {:20} {:>5} {:>6}   {:>9} {:>9} {:>6}   {:>9} {:>9} {:>6}",
        "one", "core, a packet", "bytes", "window", "host", "simulated", "times", "NIC", "simulated", "times"
    );
    for one in work {
        println!(
            "    {:6} {:20} {:>5} {:>6}   {:>9} {:>9} {:>6.2}   {:>9} {:>9} {:>6.2}",
            one.interface,
            one.features.unwrap_or_default(),
            one.packet_size,
            one.window,
            nanoseconds(one.host_ns.measured),
            nanoseconds(one.host_ns.predicted),
            one.host_scale,
            nanoseconds(one.nic_ns.measured),
            nanoseconds(one.nic_ns.predicted),
            one.nic_scale,
        );
    }
}

fn print_rows(rows: &[Row]) {
    println!(
        "\n    {:6} {:20} {:>5} {:>6}   {:>6} {:>9} {:>6}   {:>8} {:>9} {:>6}",
        "over", "", "bytes", "window", "Mpps", "predicted", "error", "p50", "predicted", "error"
    );
    for row in rows {
        println!(
            "    {:6} {:20} {:>5} {:>6}   {:>6} {:>9} {:>6}   {:>8} {:>9} {:>6}",
            row.interface,
            row.features.unwrap_or_default(),
            row.packet_size,
            row.window,
            three_digits(row.mpps.measured),
            three_digits(row.mpps.predicted),
            percent(row.mpps.error),
            nanoseconds(row.p50_ns.measured),
            nanoseconds(row.p50_ns.predicted),
            percent(row.p50_ns.error),
        );
    }
}

/// Says what the model lacks, and whether the median error is as low as is aimed for.
pub fn print_lacks(report: &Report) {
    let verdict = match report.median_error <= GOAL {
        _ if report.restless => "not judged, as the machine never rested; try again when it is idle",
        true => "met",
        false => "missed",
    };
    println!("\n  median error {:.1}%, goal at most {:.0}%: {verdict}", 100.0 * report.median_error, 100.0 * GOAL);
    println!("  what the model of this machine lacks:");
    report.lacks.iter().for_each(|lack| println!("    {lack}"));
}

/// The median error that is aimed for.
const GOAL: f64 = 0.15;
