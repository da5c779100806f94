//! `conic bench loopback --sweep`.

use std::process::ExitCode;

use conic_fabric::Time;
use serde::Serialize;

use super::Arguments;
use crate::bench::arena::Arena;
use crate::bench::common::{MachineReport, nanoseconds, print_left_out};
use crate::bench::draw;
use crate::bench::failure::{Failure, code_of, print_json};
use crate::bench::link::{Interface, Setup, Span};
use crate::bench::progress::Progress;
use crate::bench::sweep::{self, Curve, Sweep, sweep, windows};
use crate::writable;

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    interface: &'static str,
    packet_size: u16,
    burst: usize,
    rx_burst: usize,
    queues: usize,
    descriptors: Option<u64>,
    #[serde(flatten)]
    sweep: Sweep,
    machine: MachineReport,
    svg: String,
}

/// Measures and draws the curve.
///
/// # Errors
///
/// If the configuration cannot be, or the chart not be written.
pub fn main(arguments: &Arguments, arena: &Arena, setup: &Setup, machine: MachineReport) -> Result<ExitCode, Failure> {
    writable::file(&arguments.svg, "--svg")?;
    let span = Span { warm_up: Time::from_nanoseconds(4_000_000), measured: Time::from_nanoseconds(20_000_000) };
    let windows = windows(setup).len() as u64;
    let rounds = arguments.duration.picoseconds() / windows / span.measured.picoseconds();
    let named = [(setup.interface.name().to_owned(), *setup)];
    let mut progress = Progress::new();
    progress.start(format!("throughput and latency of {}", setup.interface.name()));
    let found = sweep(arena, &named, rounds.max(1) as usize, span, arguments.common.placement, &mut progress)?;
    progress.clear();
    let (lost, corrupt) = (found.lost, found.corrupt);
    let chart = sweep::chart(
        &found.curves,
        setup.workload.packet_size,
        &format!("{}; conic bench loopback --sweep", machine.line()),
    );
    draw::to_file(std::slice::from_ref(&chart), &arguments.svg)?;
    let svg = arguments.svg.display().to_string();
    if arguments.common.json {
        let report = Report {
            schema: "conic.bench.sweep/1",
            interface: setup.interface.name(),
            packet_size: setup.workload.packet_size,
            burst: setup.workload.transmit_burst,
            rx_burst: setup.workload.receive_burst,
            queues: setup.queues,
            descriptors: (setup.interface != Interface::Pio).then_some(setup.descriptors),
            sweep: found,
            machine,
            svg,
        };
        print_json(&report)?;
    } else {
        let pairs = if setup.queues == 1 { String::new() } else { format!(", {} queue pairs", setup.queues) };
        println!("loopback over {}: packets of {} bytes{pairs}", setup.interface.name(), setup.workload.packet_size);
        machine.print();
        for curve in &found.curves {
            print(curve);
        }
        print_left_out(found.dropped_slices, found.restless);
        println!();
        draw::on_terminal(&chart);
        println!("chart: {svg}");
    }
    Ok(code_of(lost, corrupt))
}

fn print(curve: &Curve) {
    let trip = curve.points.first().map_or(0.0, |point| point.figures.one_line_round_trip_ns.median);
    println!("\n  {}: one line's round trip {}", curve.placement, nanoseconds(trip));
    sweep::print(curve);
}
