//! `conic bench loopback`: packets from the application through the NIC and back.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conic_fabric::Time;
use conic_interface::ccnic::Features;
use conic_load::Workload;
use serde::Serialize;

use super::common::{
    Common, MachineReport, count, mpps, nanoseconds, placement_line, print_notes, range, span, three_digits,
};
use super::failure::{Failure, code_of, print_json};
use super::link::{Interface, Outcome, Setup, Span, run};
use super::placement::{Placement, Spread, rounded};
use super::progress::Progress;
use super::rounds::{Dropped, Slices, Until, alternate};
use crate::value::in_lines;

mod curve;

/// How long a slice is measured.
pub const SLICE: Time = Time::from_nanoseconds(50_000_000);

/// What comes before it.
pub const WARM_UP: Time = Time::from_nanoseconds(10_000_000);

/// Packets through an interface and back: rate, latency, loss
///
/// One application thread and one NIC thread, each on a core of its own. The application writes every byte of each
/// payload, with a time stamp and a sequence number in it, sends it, and reads and checks every byte of what comes back.
/// The NIC reads each payload and writes it into a receive buffer, as a wire would; no pointer is passed through.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// The interface
    #[arg(long, value_enum, default_value_t = Interface::Ccnic)]
    pub interface: Interface,
    /// CC-NIC's switches, comma-separated, each changing what those before it made of "best": paper, best; clear, phase,
    /// register; grouped, packed, padded; and, also with no- before it: whole-line, inline-payload, fetch-ahead,
    /// recycling, scattered, small-buffers, shared-pool [default: best]
    #[arg(long, value_name = "LIST")]
    pub features: Option<Features>,
    /// Bytes of a packet, 60 to 9600
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(60..=9600))]
    pub packet_size: u16,
    /// Packets in flight in each queue pair, as many as its two rings hold at most; 1 shows the unloaded latency [default: 256]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    pub window: Option<u64>,
    /// Offered load of each queue pair, in millions of packets a second: packets are due at that pace, and latency counts
    /// from then [default: as fast as the window allows]
    #[arg(long, value_name = "MPPS", value_parser = mpps, conflicts_with = "sweep")]
    pub rate: Option<f64>,
    /// Packets sent in one call at most, 1 to 256
    #[arg(long, value_name = "PACKETS", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub burst: u16,
    /// Packets received in one call at most, 1 to 256 [default: as --burst]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub rx_burst: Option<u16>,
    /// Queue pairs; each gets an application and a NIC core of its own where there are enough cores
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub queues: u16,
    /// Descriptors of each ring, a power of two [default: 1024]
    #[arg(long, value_name = "NUMBER")]
    pub descriptors: Option<u64>,
    /// How long to measure, in slices of 50 ms, each between two probes of a line's round trip
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = span)]
    pub duration: Time,
    /// The throughput-latency curve: 1, 2, 4 and so on to 1024 packets in flight, or as many as the rings hold, each for as long
    #[arg(long, conflicts_with = "window")]
    pub sweep: bool,
    /// Where --sweep's chart goes
    #[arg(long, value_name = "FILE", default_value = "out/loopback.svg", requires = "sweep")]
    pub svg: PathBuf,
}

const EXAMPLES: &str = "Examples:
  conic bench loopback                                  64-byte packets, 256 in flight
  conic bench loopback --window 1                       the unloaded latency
  conic bench loopback --rate 10                        latency at ten million packets a second
  conic bench loopback --packet-size 1500 --json        for a program
  conic bench loopback --features paper,no-recycling    CC-NIC as published, without its recycling stacks

Latency is a round trip in a closed loop: from just before a burst is written to just after the burst with its answer is \
received; a packet is sent when another has come back. With --rate, it is from when the packet was due, so that what a slow answer \
held back is late; those that are due when a slice ends are waited for, as long again at most, and who is not back then is counted and \
has no latency. Gb/s counts the packets' bytes one way (1 Gb = 10^9 bits).";

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencyReport {
    /// The smallest.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// What 99% do not exceed.
    pub p99: f64,
    /// What 99.9% do not exceed.
    pub p999: f64,
}

impl LatencyReport {
    /// Of a slice, or of several added up.
    pub fn of(outcome: &Outcome) -> LatencyReport {
        let nanoseconds = |time: Time| rounded(time.picoseconds() as f64 / 1e3, 1);
        let latency = &outcome.latency;
        LatencyReport {
            min: nanoseconds(latency.minimum()),
            p50: nanoseconds(latency.quantile(0.5)),
            p99: nanoseconds(latency.quantile(0.99)),
            p999: nanoseconds(latency.quantile(0.999)),
        }
    }
}

/// What was measured in one placement of the cores.
#[derive(Clone, Debug, Serialize)]
pub struct PlacementReport {
    /// `steady`, `near`, `far` or `between`.
    pub placement: &'static str,
    /// One line's round trip beside the slices.
    pub one_line_round_trip_ns: Spread,
    /// How many slices.
    pub slices: usize,
    /// Millions of packets a second, over the slices.
    pub mpps: Spread,
    /// Packet bytes one way, in 10^9 bits a second.
    pub gbps: f64,
    /// Of all packets of all slices.
    pub latency_ns: LatencyReport,
    /// The slices' medians.
    pub p50_ns: Spread,
    /// Each slice's median latency over the round trip beside it.
    pub p50_in_round_trips: Spread,
    /// Packets that come back while one line goes there and back.
    pub packets_per_round_trip: Spread,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    schema: &'static str,
    interface: &'static str,
    features: Option<String>,
    packet_size: u16,
    window: u64,
    offered_mpps: Option<f64>,
    burst: usize,
    rx_burst: usize,
    queues: usize,
    /// None where there are no rings.
    descriptors: Option<u64>,
    mpps: f64,
    gbps: f64,
    latency_ns: LatencyReport,
    /// Packets that were due, at a pace, and not back when they were waited for no longer: they have no latency.
    unfinished: u64,
    /// Of all slices, also those whose figures are left out.
    lost: u64,
    corrupt: u64,
    packets: u64,
    slices: usize,
    dropped_slices: Dropped,
    restless: bool,
    placement: &'static str,
    one_line_round_trip_ns: f64,
    machine: MachineReport,
    placements: Vec<PlacementReport>,
}

/// Runs the command.
///
/// # Errors
///
/// If the configuration cannot be, or the machine refuses it.
pub fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let setup = arguments.setup()?;
    let (arena, machine) = arguments.common.arena(usize::from(arguments.queues))?;
    if let Some(asked) = arguments.window.filter(|&asked| asked > setup.workload.window) {
        let (most, descriptors) = (setup.workload.window, setup.descriptors);
        let holds = match setup.interface {
            Interface::Pio => "line pairs hold no more".to_owned(),
            _ => format!("two rings of {descriptors} descriptors hold no more (--descriptors)"),
        };
        eprintln!("note: up to {most} packets in flight, and not {asked}: {holds}");
    }
    if arguments.sweep {
        return curve::main(arguments, &arena, &setup, machine);
    }
    let (slice, rounds) = slices_in(arguments.duration);
    let mut progress = Progress::new();
    progress.start(format!("loopback over {}", setup.interface.name()));
    let until = Until { rounds, limit: longest(arguments.duration) };
    let measured = alternate(&arena, 1, until, &mut progress, |_| {
        run(&arena, &setup, Span { warm_up: WARM_UP, measured: slice })
    })?;
    progress.clear();
    let report = report(&setup, arguments, machine, &measured)?;
    if arguments.common.json {
        print_json(&report)?;
    } else {
        print(&report, arguments.common.placement, &measured, slice);
    }
    Ok(code_of(report.lost, report.corrupt))
}

/// Packets in flight where nothing else is asked for.
const WINDOW: u64 = 256;
/// Descriptors of each ring where nothing else is asked for.
const DESCRIPTORS: u64 = 1024;

impl Arguments {
    /// What the options ask for, with as many packets in flight as there can be.
    ///
    /// # Errors
    ///
    /// If they ask for what the interface does not have.
    pub fn setup(&self) -> Result<Setup, Failure> {
        let (burst, interface) = (usize::from(self.burst), self.interface);
        if self.features.is_some() && interface != Interface::Ccnic {
            return Err(Failure::failed("--features are CC-NIC's: leave them out"));
        }
        if self.descriptors.is_some() && interface == Interface::Pio {
            return Err(Failure::failed("--descriptors are those of rings, and line pairs have none: leave them out"));
        }
        let (features, descriptors) =
            (self.features.unwrap_or(Features::best()), self.descriptors.unwrap_or(DESCRIPTORS));
        Ok(Setup {
            interface,
            features,
            workload: Workload {
                packet_size: self.packet_size,
                window: self.window.unwrap_or(WINDOW).min(interface.in_flight(descriptors)),
                transmit_burst: burst,
                receive_burst: self.rx_burst.map_or(burst, usize::from),
                fetch_ahead: features.fetch_ahead,
            },
            queues: usize::from(self.queues),
            interval: self.rate.map(|mpps| Time::from_picoseconds((1e6 / mpps) as u64)),
            descriptors,
            pages: self.common.pages(),
        })
    }
}

/// A duration as slices: how long each is, and how many.
fn slices_in(duration: Time) -> (Time, usize) {
    if duration <= SLICE {
        return (duration, 1);
    }
    (SLICE, duration.picoseconds().div_ceil(SLICE.picoseconds()) as usize)
}

/// When to give up waiting for enough slices in one placement.
pub fn longest(duration: Time) -> Time {
    Time::from_picoseconds(duration.picoseconds().saturating_mul(2)) + Time::from_nanoseconds(300_000_000)
}

/// One configuration in one placement.
pub fn place_report(
    measured: &Slices<Outcome>,
    place: &Placement,
    subject: usize,
    packet_size: u16,
) -> Option<PlacementReport> {
    let beside: Vec<(f64, &Outcome)> = measured.beside(place, subject).collect();
    let mut all = beside.first()?.1.clone();
    beside[1..].iter().for_each(|(_, outcome)| all.add(outcome));
    let spread = |figure: &dyn Fn(f64, &Outcome) -> f64, digits| {
        let values: Vec<f64> = beside.iter().map(|(trip, outcome)| figure(*trip, outcome)).collect();
        Some(Spread::of(&values)?.rounded(digits))
    };
    let median = |outcome: &Outcome| outcome.latency.quantile(0.5).picoseconds() as f64 / 1e3;
    let mpps = spread(&|_, outcome| outcome.rate / 1e6, 6)?;
    Some(PlacementReport {
        placement: place.label,
        one_line_round_trip_ns: place.round_trip.rounded(1),
        slices: beside.len(),
        mpps,
        gbps: rounded(mpps.median * f64::from(packet_size) * 8.0 / 1e3, 6),
        latency_ns: LatencyReport::of(&all),
        p50_ns: spread(&|_, outcome| median(outcome), 1)?,
        p50_in_round_trips: spread(&|trip, outcome| median(outcome) / trip, 2)?,
        packets_per_round_trip: spread(&|trip, outcome| outcome.rate * trip / 1e9, 2)?,
    })
}

fn report(
    setup: &Setup,
    arguments: &Arguments,
    machine: MachineReport,
    measured: &Slices<Outcome>,
) -> Result<Report, Failure> {
    let (size, choice) = (setup.workload.packet_size, arguments.common.placement);
    let complete = measured.complete(1);
    let chosen = choice.of(&complete);
    let all: Vec<PlacementReport> =
        measured.placements.iter().filter_map(|place| place_report(measured, place, 0, size)).collect();
    let headline = chosen.first().and_then(|place| place_report(measured, place, 0, size));
    let headline = headline.ok_or_else(Failure::restless)?;
    let sum = |figure: fn(&Outcome) -> u64| measured.all().map(|slice| figure(&slice.value)).sum();
    Ok(Report {
        schema: "conic.bench.loopback/1",
        interface: setup.interface.name(),
        features: (setup.interface == Interface::Ccnic).then(|| setup.features.to_string()),
        packet_size: size,
        window: setup.workload.window,
        offered_mpps: arguments.rate,
        burst: setup.workload.transmit_burst,
        rx_burst: setup.workload.receive_burst,
        queues: setup.queues,
        descriptors: (setup.interface != Interface::Pio).then_some(setup.descriptors),
        mpps: headline.mpps.median,
        gbps: headline.gbps,
        latency_ns: headline.latency_ns,
        unfinished: sum(|outcome| outcome.unfinished),
        lost: sum(|outcome| outcome.lost),
        corrupt: sum(|outcome| outcome.corrupt),
        packets: sum(|outcome| outcome.packets),
        slices: measured.kept.len(),
        dropped_slices: measured.dropped,
        restless: measured.restless,
        placement: headline.placement,
        one_line_round_trip_ns: headline.one_line_round_trip_ns.median,
        machine,
        placements: all,
    })
}

/// A list of switches in lines that a terminal of 80 columns holds, as one could give it: each but the last ends with its comma.
fn in_switches(switches: &str) -> Vec<String> {
    in_lines(switches.split_inclusive(','), "", 78)
}

fn print(report: &Report, choice: super::common::Choice, measured: &Slices<Outcome>, slice: Time) {
    let Report { interface, packet_size, window, burst, rx_burst, queues, .. } = report;
    let bursts =
        if burst == rx_burst { format!("bursts of {burst}") } else { format!("bursts of {burst} and {rx_burst}") };
    let pairs = if *queues == 1 { String::new() } else { format!(" in each of {queues} queue pairs") };
    let offered = report.offered_mpps.map_or(String::new(), |rate| format!(", {rate} Mpps due"));
    let title = format!(
        "loopback over {interface}: packets of {packet_size} bytes{offered}, up to {window} in flight{pairs}, {bursts}"
    );
    in_lines(title.split(' '), " ", 80).iter().for_each(|line| println!("{line}"));
    if let Some(features) = &report.features {
        in_switches(features).iter().for_each(|line| println!("  {line}"));
    }
    report.machine.print();
    for place in choice.of(&measured.complete(1)) {
        let Some(one) = place_report(measured, place, 0, *packet_size) else { continue };
        println!();
        println!("  {}", placement_line(place, one.slices, slice));
        let rates = range(one.mpps, three_digits);
        let (mpps, gbps) = (three_digits(one.mpps.median), three_digits(one.gbps));
        println!(
            "    rate     {mpps} Mpps {rates}, {gbps} Gb/s; {} packets a round trip",
            one.packets_per_round_trip.median
        );
        let LatencyReport { min, p50, p99, p999 } = one.latency_ns;
        let [min, p50, p99, p999] = [min, p50, p99, p999].map(nanoseconds);
        let counted = if report.offered_mpps.is_some() { "open loop" } else { "closed loop" };
        println!("    latency  min {min}, p50 {p50}, p99 {p99}, p99.9 {p999}");
        println!("             of round trips, {counted}; p50 is {} of a line's", one.p50_in_round_trips.median);
        if let Some(due) = report.offered_mpps.filter(|due| !keeps_up(one.mpps.median, due * *queues as f64)) {
            println!("    note: it does not keep up with {due} Mpps{pairs}: latency grows while a slice lasts");
        }
    }
    println!();
    match (report.lost, report.corrupt) {
        (0, 0) => {
            println!("  loss     none of {} packets; every payload came back as it was sent", count(report.packets))
        }
        (lost, corrupt) => println!("  loss     {} lost, {} corrupt", count(lost), count(corrupt)),
    }
    if report.unfinished > 0 {
        let packets = count(report.unfinished);
        println!("  note: {packets} were due and not back in time: they are in no latency");
    }
    print_notes(measured);
    match measured.placements.len() - choice.of(&measured.complete(1)).len() {
        0 => {}
        1 => println!("  another placement of the cores was seen: --placement all shows it"),
        others => println!("  {others} other placements of the cores were seen: --placement all shows them"),
    }
}

/// Whether a rate is the one that was due, but for what a slice's ends and the clock leave of it.
fn keeps_up(rate: f64, due: f64) -> bool {
    rate >= 0.95 * due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_in_lines_can_be_given_back_as_they_stand() {
        for features in [Features::best(), Features::paper()] {
            let (all, lines) = (features.to_string(), in_switches(&features.to_string()));
            assert_eq!(lines.concat(), all);
            assert!(lines.iter().all(|line| line.len() <= 78), "{lines:?}");
        }
        assert_eq!(in_switches(&"a,".repeat(39)).len(), 1);
        assert_eq!(in_switches(&"a,".repeat(40)).len(), 2);
    }
}
