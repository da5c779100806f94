//! `conic bench limits`: what this machine's coherence allows, so that every figure can be given as a share of it.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use conic_fabric::{LINE_BYTES, Layout, Time};
use conic_load::limits::{
    Exchange, LineAndFlag, Moved, RoundTrip, Side, Store, Stream, Swap, Take, Taking, clock_readings, pauses, stops,
};
use conic_native::{Flag, NativeCore, Pages, clock, processor};
use serde::Serialize;

use super::arena::{Arena, Job};
use super::common::{
    Common, MachineReport, nanoseconds, placement_line, print_left_out, range, region, span, three_digits,
};
use super::failure::{Failure, print_json};
use super::placement::{Placement, Spread, rounded};
use super::progress::Progress;
use super::rounds::{Dropped, Slices, Until, alternate, rounds_of};

/// What the machine's coherence allows: round trips of lines, and streams of them
///
/// Two pinned threads and as little protocol as there can be. Every other figure can be read as a share of these.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// How long to measure each limit, in slices of 20 ms, in turn
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = span)]
    pub duration: Time,
}

const EXAMPLES: &str = "What is measured:
  one line          a number there and back in one line
  two lines         the same with a line for each direction, as head and tail registers lie (CC-NIC Figure 8)
  line and flag     a line of data announced in another line, there and back
  load, exchange    of lines that the other core has written, one after the other, without any polling; an exchange after a
                    load of the same line is cheap where a load takes a modified line over
  lines together    whole lines that the other core has written, loaded, or stored, as fast as they go; stored where it has only
                    read what this core wrote, as a ring's producer finds them when it comes round
  stream            lines in a ring, the signal in the line, credits in batches; one way, and both ways at once
  swap              lines of one ring that each side reads and overwrites with its own: both ways at once
  pause, clock      an instruction that waits in a polling loop, reading the time, and the clock of the application's core
  stop              for how long that core stands still where the system or a hypervisor takes it away for over a microsecond
  cached stream     a megabyte at a time, announced by a register, read into a local buffer (Figure 9)
  non-temporal      the same, written past the caches

Examples:
  conic bench limits
  conic bench limits --json
  conic bench limits --placement all";

/// How long a slice is measured.
const SLICE: Time = Time::from_nanoseconds(20_000_000);

/// What comes before it.
const WARM_UP: Time = Time::from_nanoseconds(3_000_000);

/// Lines of descriptors that a packet moves each way: four are in a line.
pub const LINES_OF_A_DESCRIPTOR: f64 = 0.25;

/// Lines that a loopback packet of 64 bytes moves each way: its payload, and its quarter of a line of descriptors.
pub const LINES_PER_PACKET: f64 = 1.0 + LINES_OF_A_DESCRIPTOR;

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// A number there and back in one line.
    OneLine,
    /// The same with a line for each direction.
    TwoLines,
    /// A line of data announced in another.
    LineAndFlag,
    /// Lines that the other core has written.
    Taken(Take),
    /// Lines in a ring, one way.
    OneWay,
    /// The same both ways at once.
    BothWays,
    /// Lines of one ring that both sides overwrite.
    Swap,
    /// A pause of a polling loop.
    Pause,
    /// A cycle of the application's core.
    Cycle,
    /// Reading the clock.
    Clock,
    /// A stop of the application's core.
    Stop,
    /// Megabytes through the caches.
    Cached,
    /// Megabytes past the caches.
    NonTemporal,
}

const KERNELS: [Kernel; 18] = [
    Kernel::OneLine,
    Kernel::TwoLines,
    Kernel::LineAndFlag,
    Kernel::Taken(Take::Loads),
    Kernel::Taken(Take::Exchanges),
    Kernel::Taken(Take::ExchangesOfLoaded),
    Kernel::Taken(Take::LoadsTogether),
    Kernel::Taken(Take::StoresTogether),
    Kernel::OneWay,
    Kernel::BothWays,
    Kernel::Swap,
    Kernel::Taken(Take::StoresOfRead),
    Kernel::Pause,
    Kernel::Cycle,
    Kernel::Clock,
    Kernel::Stop,
    Kernel::Cached,
    Kernel::NonTemporal,
];

/// What a model of this machine is calibrated on, or judged by, in that order: twelve of lines, and four of one core.
pub const CALIBRATING: &[Kernel] = KERNELS.split_at(16).0;

impl Kernel {
    /// Nanoseconds, lines a second, or Gb/s.
    pub fn figure(self, moved: &Moved) -> f64 {
        match self {
            Kernel::Taken(how) if how.is_together() => moved.per_second(),
            Kernel::OneLine | Kernel::TwoLines | Kernel::LineAndFlag | Kernel::Taken(_) => moved.nanoseconds_each(),
            Kernel::Pause | Kernel::Cycle | Kernel::Clock | Kernel::Stop => moved.nanoseconds_each(),
            Kernel::OneWay | Kernel::BothWays | Kernel::Swap => moved.per_second(),
            Kernel::Cached | Kernel::NonTemporal => moved.per_second() * (LINE_BYTES * 8) as f64 / 1e9,
        }
    }

    /// Measures it once, in a region of its own.
    ///
    /// # Errors
    ///
    /// If the machine refuses it.
    pub fn measure(self, arena: &Arena, pages: Pages, measured: Time) -> Result<Moved, Failure> {
        Ok(self.measure_on(1, arena, pages, measured)?.swap_remove(0))
    }

    /// Measures it on the first `pairs` of an arena at once, in a region for each: what each of them moved.
    ///
    /// # Errors
    ///
    /// If the machine refuses it.
    pub fn measure_on(self, pairs: usize, arena: &Arena, pages: Pages, measured: Time) -> Result<Vec<Moved>, Failure> {
        let mut nics: Vec<Job> = Vec::new();
        let mut hosts: Vec<Box<dyn FnOnce() -> Moved + Send>> = Vec::new();
        for _ in 0..pairs {
            let mut layout = Layout::new();
            let (host, nic) = self.sides(&mut layout);
            let memory = Arc::new(region(&layout, pages)?);
            let shared = Arc::clone(&memory);
            nics.push(Box::new(move || nic(&NativeCore::new(&shared))));
            hosts.push(Box::new(move || host(&NativeCore::new(&memory), clock::now() + measured)));
        }
        // Each side of a kernel ends with the other.
        Ok(arena.run(&Flag::new(), nics, hosts)?)
    }

    /// What each side does.
    fn sides(self, layout: &mut Layout) -> (HostSide, NicSide) {
        match self {
            Kernel::OneLine => round_trip(RoundTrip::one_line(layout)),
            Kernel::TwoLines => round_trip(RoundTrip::two_lines(layout)),
            Kernel::LineAndFlag => {
                let kernel = LineAndFlag::new(layout);
                (Box::new(move |core, until| kernel.call(core, until)), Box::new(move |core| kernel.answer(core)))
            }
            Kernel::Taken(how) => {
                let kernel = Taking::new(layout, how);
                (Box::new(move |core, until| kernel.take(core, until)), Box::new(move |core| kernel.give(core)))
            }
            Kernel::OneWay => {
                let kernel = Exchange::new(layout);
                let nic = move |core: &NativeCore<'_>| drop_all(kernel.read(core));
                (Box::new(move |core, until| kernel.write(core, until)), Box::new(nic))
            }
            Kernel::BothWays => {
                let kernel = Exchange::new(layout);
                let nic = move |core: &NativeCore<'_>| drop_all(kernel.both_ways(core, Side::Nic, Time::NEVER));
                (Box::new(move |core, until| kernel.both_ways(core, Side::Host, until)), Box::new(nic))
            }
            Kernel::Swap => {
                let kernel = Swap::new(layout);
                let nic = move |core: &NativeCore<'_>| drop_all(kernel.run(core, Side::Nic, Time::NEVER));
                (Box::new(move |core, until| kernel.run(core, Side::Host, until)), Box::new(nic))
            }
            Kernel::Pause => (Box::new(|core, until| pauses(core, until)), Box::new(|_| ())),
            Kernel::Cycle => (Box::new(|_, until| cycles(until)), Box::new(|_| ())),
            Kernel::Clock => (Box::new(|core, until| clock_readings(core, until)), Box::new(|_| ())),
            Kernel::Stop => (Box::new(|core, until| stops(core, until)), Box::new(|_| ())),
            Kernel::Cached => stream(layout, Store::Cached),
            Kernel::NonTemporal => stream(layout, Store::NonTemporal),
        }
    }
}

/// Cycles of this core.
fn cycles(until: Time) -> Moved {
    let (count, span) = processor::cycles(until);
    Moved { count, span }
}

/// The side of a kernel that keeps the time.
type HostSide = Box<dyn Fn(&NativeCore<'_>, Time) -> Moved + Send>;

/// The side of a kernel that stops when it is told.
type NicSide = Box<dyn Fn(&NativeCore<'_>) + Send>;

/// A round trip, warmed up first.
fn round_trip(kernel: RoundTrip) -> (HostSide, NicSide) {
    let host = move |core: &NativeCore<'_>, until: Time| {
        kernel.call(core, clock::now() + WARM_UP);
        kernel.call(core, until + WARM_UP)
    };
    let nic = move |core: &NativeCore<'_>| (0..2).for_each(|_| kernel.answer(core));
    (Box::new(host), Box::new(nic))
}

/// A stream of a megabyte at a time.
fn stream(layout: &mut Layout, store: Store) -> (HostSide, NicSide) {
    let kernel = Stream::new(layout, 1 << 20);
    let nic = move |core: &NativeCore<'_>| drop_all(kernel.read(core));
    (Box::new(move |core, until| kernel.write(core, store, until)), Box::new(nic))
}

/// Forgets what a kernel read, so that the compiler cannot leave the reading out.
fn drop_all<T>(read: T) {
    std::hint::black_box(read);
}

/// The limits in one placement of the cores.
#[derive(Clone, Debug, Serialize)]
pub struct PlacementReport {
    #[serde(skip)]
    place: Placement,
    #[serde(skip)]
    slice: Time,
    placement: &'static str,
    slices: usize,
    one_line_round_trip_ns: Spread,
    two_lines_round_trip_ns: Spread,
    line_and_flag_round_trip_ns: Spread,
    load_ns: Spread,
    exchange_ns: Spread,
    exchange_of_loaded_ns: Spread,
    loads_together_lines_per_second: Spread,
    stores_together_lines_per_second: Spread,
    stores_of_read_lines_per_second: Spread,
    stream_lines_per_second_one_way: Spread,
    stream_lines_per_second_each_way: Spread,
    swap_lines_per_second_each_way: Spread,
    pause_ns: Spread,
    cycle_ns: Spread,
    clock_ns: Spread,
    stop_ns: Spread,
    stream_cached_gbps: Spread,
    stream_nontemporal_gbps: Spread,
    /// Millions of 64-byte packets a second at which their lines would stream both ways.
    pub model_64_byte_mpps: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    one_line_round_trip_ns: f64,
    two_lines_round_trip_ns: f64,
    stream_lines_per_second_each_way: f64,
    swap_lines_per_second_each_way: f64,
    stream_cached_gbps: f64,
    stream_nontemporal_gbps: f64,
    model_64_byte_mpps: f64,
    model: &'static str,
    placement: &'static str,
    dropped_slices: Dropped,
    restless: bool,
    machine: MachineReport,
    placements: Vec<PlacementReport>,
}

const MODEL: &str = "a 64-byte packet moves 1 line of payload and 1/4 line of descriptors each way; \
lines each way: the faster of stream and swap, both ways at once";

/// Runs the command.
///
/// # Errors
///
/// If the machine refuses it.
pub fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (arena, machine) = arguments.common.arena(1)?;
    let rounds = rounds_of(arguments.duration, SLICE);
    let mut progress = Progress::new();
    progress.start("limits");
    let found = found(&arena, &arguments.common, rounds, SLICE, &mut progress)?;
    progress.clear();
    let headline = found.reports.first().ok_or_else(|| Failure::failed("nothing was measured"))?;
    if arguments.common.json {
        let report = Report {
            schema: "conic.bench.limits/1",
            one_line_round_trip_ns: headline.one_line_round_trip_ns.median,
            two_lines_round_trip_ns: headline.two_lines_round_trip_ns.median,
            stream_lines_per_second_each_way: headline.stream_lines_per_second_each_way.median,
            swap_lines_per_second_each_way: headline.swap_lines_per_second_each_way.median,
            stream_cached_gbps: headline.stream_cached_gbps.median,
            stream_nontemporal_gbps: headline.stream_nontemporal_gbps.median,
            model_64_byte_mpps: headline.model_64_byte_mpps,
            model: MODEL,
            placement: headline.placement,
            dropped_slices: found.dropped,
            restless: found.restless,
            machine,
            placements: found.reports,
        };
        print_json(&report)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("limits of this machine's coherence");
    machine.print();
    found.reports.iter().for_each(print);
    print_left_out(found.dropped, found.restless);
    Ok(ExitCode::SUCCESS)
}

/// The limits in each placement that was asked for.
pub struct Found {
    /// The headline's first.
    pub reports: Vec<PlacementReport>,
    /// What was left out.
    pub dropped: Dropped,
    /// Whether nothing could be left out.
    pub restless: bool,
}

/// Measures all limits in turn, a slice of `measured` each.
///
/// # Errors
///
/// If the machine refuses it.
pub fn found(
    arena: &Arena,
    common: &Common,
    rounds: usize,
    measured: Time,
    progress: &mut Progress,
) -> Result<Found, Failure> {
    let until = Until::rounds(rounds, KERNELS.len(), measured + WARM_UP);
    let measure = |subject: usize| KERNELS[subject].measure(arena, common.pages(), measured);
    let all = alternate(arena, KERNELS.len(), until, progress, measure)?;
    let complete = all.complete(KERNELS.len());
    let chosen = common.placement.of(&complete);
    let reports = chosen.iter().filter_map(|place| place_report(&all, place, measured)).collect();
    Ok(Found { reports, dropped: all.dropped, restless: all.restless })
}

impl PlacementReport {
    /// What one line's round trip cost beside the limits, in nanoseconds.
    pub fn round_trip(&self) -> f64 {
        self.place.round_trip.median
    }

    /// Lines a second each way, both ways at once, by the faster of the two ways to do it.
    fn lines_each_way(&self) -> f64 {
        self.stream_lines_per_second_each_way.median.max(self.swap_lines_per_second_each_way.median)
    }
}

fn place_report(measured: &Slices<Moved>, place: &Placement, slice: Time) -> Option<PlacementReport> {
    let spread = |kernel: Kernel, digits: i32| {
        let subject = KERNELS.iter().position(|&other| other == kernel)?;
        Some(measured.spread(place, subject, |moved| kernel.figure(moved))?.rounded(digits))
    };
    let mut report = PlacementReport {
        place: place.clone(),
        slice,
        placement: place.label,
        slices: place.members.len(),
        one_line_round_trip_ns: spread(Kernel::OneLine, 1)?,
        two_lines_round_trip_ns: spread(Kernel::TwoLines, 1)?,
        line_and_flag_round_trip_ns: spread(Kernel::LineAndFlag, 1)?,
        load_ns: spread(Kernel::Taken(Take::Loads), 1)?,
        exchange_ns: spread(Kernel::Taken(Take::Exchanges), 1)?,
        exchange_of_loaded_ns: spread(Kernel::Taken(Take::ExchangesOfLoaded), 1)?,
        loads_together_lines_per_second: spread(Kernel::Taken(Take::LoadsTogether), 0)?,
        stores_together_lines_per_second: spread(Kernel::Taken(Take::StoresTogether), 0)?,
        stores_of_read_lines_per_second: spread(Kernel::Taken(Take::StoresOfRead), 0)?,
        stream_lines_per_second_one_way: spread(Kernel::OneWay, 0)?,
        stream_lines_per_second_each_way: spread(Kernel::BothWays, 0)?,
        swap_lines_per_second_each_way: spread(Kernel::Swap, 0)?,
        pause_ns: spread(Kernel::Pause, 2)?,
        cycle_ns: spread(Kernel::Cycle, 4)?,
        clock_ns: spread(Kernel::Clock, 2)?,
        stop_ns: spread(Kernel::Stop, 0)?,
        stream_cached_gbps: spread(Kernel::Cached, 2)?,
        stream_nontemporal_gbps: spread(Kernel::NonTemporal, 2)?,
        model_64_byte_mpps: 0.0,
    };
    report.model_64_byte_mpps = rounded(report.lines_each_way() / LINES_PER_PACKET / 1e6, 2);
    Some(report)
}

/// Prints the limits of a placement.
pub fn print(report: &PlacementReport) {
    println!("\n  {}", placement_line(&report.place, report.slices, report.slice));
    let time = |name: &str, spread: Spread| {
        println!("    {name:34} {:>9} {}", nanoseconds(spread.median), range(spread, nanoseconds));
    };
    time("one line, there and back", report.one_line_round_trip_ns);
    time("two lines, there and back", report.two_lines_round_trip_ns);
    time("line and flag, there and back", report.line_and_flag_round_trip_ns);
    time("load of a line that was written", report.load_ns);
    time("exchange in a line that was written", report.exchange_ns);
    time("the same after a load", report.exchange_of_loaded_ns);
    let millions = |value: f64| three_digits(value / 1e6);
    let lines = |name: &str, spread: Spread| {
        println!("    {name:34} {:>7} million lines/s {}", millions(spread.median), range(spread, millions));
    };
    lines("loads of lines together", report.loads_together_lines_per_second);
    lines("stores of lines together", report.stores_together_lines_per_second);
    lines("the same of lines that were read", report.stores_of_read_lines_per_second);
    lines("stream, one way", report.stream_lines_per_second_one_way);
    lines("stream, each of both ways at once", report.stream_lines_per_second_each_way);
    lines("swap, each of both ways at once", report.swap_lines_per_second_each_way);
    time("a pause of a polling loop", report.pause_ns);
    time("reading the clock", report.clock_ns);
    time("a stop of the core", report.stop_ns);
    let clock = three_digits(1.0 / report.cycle_ns.median);
    println!("    {:34} {clock:>7} GHz", "the application's core");
    let bits = |name: &str, spread: Spread| {
        println!("    {name:34} {:>7} Gb/s {}", three_digits(spread.median), range(spread, three_digits));
    };
    bits("cached stream", report.stream_cached_gbps);
    bits("non-temporal stream", report.stream_nontemporal_gbps);
    println!("    A 64-byte packet moves {LINES_PER_PACKET} lines each way, of payload and of descriptors:");
    println!("    at most {} Mpps at the faster of the rates both ways.", three_digits(report.model_64_byte_mpps));
}
