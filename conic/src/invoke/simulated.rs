//! `conic invoke --device simulated`: what a call would take on modelled machines, in each way that they have to their devices.

use std::process::ExitCode;

use conic_load::Function;
use conic_sim::Parameters;
use conic_sim::eci::EciParameters;
use conic_sim::platform::{ECI, Platform, model_of};
use conic_study::coherent_pio::invocation::{Took, Way};
use conic_study::coherent_pio::percentile;
use serde::Serialize;

use super::{LatencyReport, Options};
use crate::bench::common::{nanoseconds, three_digits};
use crate::bench::failure::{Failure, print_json};
use crate::bench::placement::rounded;
use crate::status_line::StatusLine;

/// The machines, where none is named: each that has a device to call.
const MACHINES: [&str; 4] = ["enzian", "enzian-pcie", "pc-pcie", "cxl3-mem"];

/// The one whose device's logic all of them have, in cycles.
const LOGIC: &str = "enzian";

/// Calls of each size.
const CALLS: u64 = 40;

/// A machine with its device.
enum Machine {
    Coherent(Box<Platform<EciParameters>>),
    Card(Box<Platform<Parameters>>),
}

/// Calls of one size in one way.
#[derive(Clone, Debug, Serialize)]
struct Row {
    bytes: usize,
    response_bytes: usize,
    calls: usize,
    latency_ns: LatencyReport,
    calls_per_second: f64,
    bytes_per_second: f64,
}

/// Calls in one way.
#[derive(Clone, Debug, Serialize)]
struct Curve {
    platform: String,
    way: &'static str,
    sizes: Vec<Row>,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    function: &'static str,
    device: &'static str,
    ways: &'a [Curve],
}

/// Runs the command.
///
/// # Errors
///
/// If there is no such platform, it has no such device, or the modelled machine stops.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let names: Vec<&str> = match &options.platforms[..] {
        [] => MACHINES.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let machines: Vec<Machine> = names.into_iter().map(load).collect::<Result<_, _>>()?;
    let logic = coherent(LOGIC)?;
    let sizes: Vec<usize> = match options.bytes {
        Some(bytes) => vec![bytes as usize],
        None => [56, 120].into_iter().chain((8..=16).map(|power| 1 << power)).collect(),
    };
    let mut curves = Vec::new();
    let line = StatusLine::new();
    for machine in &machines {
        let (platform, ways) = match machine {
            Machine::Coherent(platform) => (platform.name(), vec![Way::Lines(platform.parameters())]),
            Machine::Card(platform) => {
                (platform.name(), Way::over_pcie(platform.parameters(), &logic.parameters().device))
            }
        };
        for way in ways {
            let row = |&bytes: &usize| {
                line.show(&format!("{} of {bytes} bytes, {} on {platform}", options.function, way.name()));
                let took = way.call(options.function, bytes, options.calls.unwrap_or(CALLS));
                let took =
                    took.map_err(|failure| Failure::failed(format!("the modelled machine stopped: {failure}")))?;
                Ok(row(options.function, bytes, &took))
            };
            let sizes = sizes.iter().map(row).collect::<Result<_, Failure>>()?;
            curves.push(Curve { platform: platform.to_owned(), way: way.name(), sizes });
        }
    }
    line.clear();
    if options.common.json {
        let (function, device) = (options.function.name(), "simulated");
        print_json(&Report { schema: "conic.invoke.simulated/1", function, device, ways: &curves })?;
    } else {
        print!("{}", table(options.function, &curves));
    }
    Ok(ExitCode::SUCCESS)
}

fn coherent(name: &str) -> Result<Platform<EciParameters>, Failure> {
    Platform::load_as(name).map_err(|error| Failure::failed(error.to_string()))
}

fn load(name: &str) -> Result<Machine, Failure> {
    if model_of(name).name == ECI.name {
        return coherent(name).map(|platform| Machine::Coherent(Box::new(platform)));
    }
    let platform: Platform = Platform::load(name).map_err(|error| Failure::failed(error.to_string()))?;
    if platform.parameters().fpga.is_none() || platform.parameters().driver.is_none() {
        let machines = MACHINES.join(", ");
        return Err(Failure::failed(format!("{name} has no device that computes: {machines} have one")));
    }
    Ok(Machine::Card(Box::new(platform)))
}

fn row(function: Function, bytes: usize, took: &Took) -> Row {
    let quantile = |share| percentile(&took.latencies, share);
    let (calls, seconds, response_bytes) =
        (took.latencies.len(), took.elapsed.seconds(), function.response_bytes(bytes));
    Row {
        bytes,
        response_bytes,
        calls,
        latency_ns: LatencyReport::of(quantile(0.0), quantile),
        calls_per_second: rounded(calls as f64 / seconds, 0),
        bytes_per_second: rounded(calls as f64 * (bytes + response_bytes) as f64 / seconds, 0),
    }
}

/// A table of medians, a column a way, where there are several; then each way's own.
fn table(function: Function, curves: &[Curve]) -> String {
    let mut text = format!("{function}, called on a device of a modelled machine; the time is the simulator's\n");
    if curves.len() > 1 {
        text += &medians(curves);
    }
    for curve in curves {
        text += &format!("\n  {} on {}\n", title(curve.way), curve.platform);
        let heads = ["min", "p50", "p90", "p99", "max"].map(|head| format!(" {head:>7}")).concat();
        text += &format!(" {:>7} {:>8}{heads} {:>7} {:>6}\n", "request", "response", "Mcalls", "GiB/s");
        for row in &curve.sizes {
            let LatencyReport { min, p50, p90, p99, max, .. } = row.latency_ns;
            let times = [min, p50, p90, p99, max].map(|time| format!(" {:>7}", nanoseconds(time))).concat();
            let (calls, moved) = (row.calls_per_second / 1e6, row.bytes_per_second / f64::from(1 << 30));
            let (calls, moved) = (three_digits(calls), three_digits(moved));
            text += &format!(" {:>7} {:>8}{times} {calls:>7} {moved:>6}\n", row.bytes, row.response_bytes);
        }
    }
    text + "\n  one call after the other; every response was compared with what the function\n  gives; Mcalls: million calls a second\n"
}

/// What a way is called in the table.
fn title(way: &str) -> &str {
    match way {
        "pio" => "coherent lines",
        "pcie-pio" => "loads and stores over PCIe",
        "dma-polled" => "copy engines, polled,",
        _ => "copy engines, interrupt,",
    }
}

fn medians(curves: &[Curve]) -> String {
    let width = |curve: &Curve| curve.way.len().max(curve.platform.len()).max(7);
    // So many ways that a line of the table has at most 80 columns.
    let mut text = String::from("\n  medians, by bytes of a request\n");
    let mut rest = curves;
    while !rest.is_empty() {
        let mut room = 80 - 8;
        let fits = rest.iter().take_while(|curve| {
            let needed = width(curve) + 1;
            let fits = needed <= room;
            room = room.saturating_sub(needed);
            fits
        });
        let count = fits.count().max(1);
        let (now, later) = rest.split_at(count);
        rest = later;
        let line = |first: &str, cell: &dyn Fn(&Curve) -> String| {
            let cells: String = now.iter().map(|curve| format!(" {:>1$}", cell(curve), width(curve))).collect();
            format!(" {first:>7}{cells}\n")
        };
        text += &line("", &|curve| curve.platform.clone());
        text += &line("", &|curve| curve.way.to_owned());
        for (number, row) in now[0].sizes.iter().enumerate() {
            text += &line(&row.bytes.to_string(), &|curve| nanoseconds(curve.sizes[number].latency_ns.p50));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_at_most_80_columns() {
        let latency_ns = LatencyReport { min: 99.9, p50: 1e3, p90: 99_950.0, p99: 123_456.0, p999: 9e5, max: 9.99e5 };
        let row = Row {
            bytes: 65_536,
            response_bytes: 65_536,
            calls: 40,
            latency_ns,
            calls_per_second: 7123.0,
            bytes_per_second: 12e9,
        };
        let ways = ["pio", "pcie-pio", "dma-polled", "dma-interrupt"];
        let curve = |way| Curve { platform: "enzian-pcie".to_owned(), way, sizes: vec![row.clone(); 2] };
        let text = table(Function::Checksum, &ways.map(curve).into_iter().chain(ways.map(curve)).collect::<Vec<_>>());
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert_eq!(text.matches("dma-interrupt").count(), 2, "each way has a column: {text}");
    }
}
