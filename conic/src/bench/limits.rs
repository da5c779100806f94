//! `conic bench limits`: what this machine's coherence allows, so that every figure can be given as a share of it.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use conic_fabric::{LINE_BYTES, Layout, Time};
use conic_load::limits::{Exchange, LineAndFlag, Moved, RoundTrip, Side, Store, Stream, Swap};
use conic_native::{Memory, NativeCore, Pages, clock};
use serde::Serialize;

use super::arena::{Arena, ArenaError};
use super::common::{
    Common, MachineReport, nanoseconds, placement_line, print_notes, range, span, three_digits, usable_cores,
};
use super::failure::Failure;
use super::placement::{Placement, Spread, rounded};
use super::progress::Progress;
use super::rounds::{Dropped, Slices, Until, alternate};

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
  stream            lines in a ring, the signal in the line, credits in batches; one way, and both ways at once
  swap              lines of one ring that each side reads and overwrites with its own: both ways at once
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

/// Lines that a loopback packet of 64 bytes moves each way: its payload, and its quarter of a line of descriptors.
pub const LINES_PER_PACKET: f64 = 1.25;

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    OneLine,
    TwoLines,
    LineAndFlag,
    OneWay,
    BothWays,
    Swap,
    Cached,
    NonTemporal,
}

const KERNELS: [Kernel; 8] = [
    Kernel::OneLine,
    Kernel::TwoLines,
    Kernel::LineAndFlag,
    Kernel::OneWay,
    Kernel::BothWays,
    Kernel::Swap,
    Kernel::Cached,
    Kernel::NonTemporal,
];

impl Kernel {
    /// Nanoseconds, lines a second, or Gb/s.
    fn figure(self, moved: &Moved) -> f64 {
        match self {
            Kernel::OneLine | Kernel::TwoLines | Kernel::LineAndFlag => moved.nanoseconds_each(),
            Kernel::OneWay | Kernel::BothWays | Kernel::Swap => moved.per_second(),
            Kernel::Cached | Kernel::NonTemporal => moved.per_second() * (LINE_BYTES * 8) as f64 / 1e9,
        }
    }

    /// Measures it once, in a region of its own.
    fn measure(self, arena: &Arena, pages: Pages, measured: Time) -> Result<Moved, Failure> {
        let mut layout = Layout::new();
        match self {
            Kernel::OneLine | Kernel::TwoLines => {
                let one = self == Kernel::OneLine;
                let kernel = if one { RoundTrip::one_line(&mut layout) } else { RoundTrip::two_lines(&mut layout) };
                pair(
                    arena,
                    &layout,
                    pages,
                    measured,
                    move |core, until| kernel.call(core, until),
                    move |core| {
                        kernel.answer(core);
                        kernel.answer(core);
                    },
                    true,
                )
            }
            Kernel::LineAndFlag => {
                let kernel = LineAndFlag::new(&mut layout);
                pair(
                    arena,
                    &layout,
                    pages,
                    measured,
                    move |core, until| kernel.call(core, until),
                    move |core| kernel.answer(core),
                    false,
                )
            }
            Kernel::OneWay => {
                let kernel = Exchange::new(&mut layout);
                let read = move |core: &NativeCore<'_>| {
                    std::hint::black_box(kernel.read(core));
                };
                pair(arena, &layout, pages, measured, move |core, until| kernel.write(core, until), read, false)
            }
            Kernel::BothWays => {
                let kernel = Exchange::new(&mut layout);
                let nic = move |core: &NativeCore<'_>| {
                    kernel.both_ways(core, Side::Nic, Time::NEVER);
                };
                pair(
                    arena,
                    &layout,
                    pages,
                    measured,
                    move |core, until| kernel.both_ways(core, Side::Host, until),
                    nic,
                    false,
                )
            }
            Kernel::Swap => {
                let kernel = Swap::new(&mut layout);
                let nic = move |core: &NativeCore<'_>| {
                    kernel.run(core, Side::Nic, Time::NEVER);
                };
                pair(
                    arena,
                    &layout,
                    pages,
                    measured,
                    move |core, until| kernel.run(core, Side::Host, until),
                    nic,
                    false,
                )
            }
            Kernel::Cached | Kernel::NonTemporal => {
                let kernel = Stream::new(&mut layout, 1 << 20);
                let store = if self == Kernel::Cached { Store::Cached } else { Store::NonTemporal };
                let read = move |core: &NativeCore<'_>| {
                    std::hint::black_box(kernel.read(core));
                };
                pair(arena, &layout, pages, measured, move |core, until| kernel.write(core, store, until), read, false)
            }
        }
    }
}

/// Runs a kernel's two sides in a fresh region; one that can be called twice is warmed up first.
fn pair(
    arena: &Arena,
    layout: &Layout,
    pages: Pages,
    measured: Time,
    host: impl Fn(&NativeCore<'_>, Time) -> Moved,
    nic: impl Fn(&NativeCore<'_>) + Send + 'static,
    twice: bool,
) -> Result<Moved, Failure> {
    let memory = Arc::new(Memory::create(layout, pages).map_err(ArenaError::from)?);
    let shared = Arc::clone(&memory);
    let moved = arena.beside(Box::new(move || nic(&NativeCore::new(&shared))), || {
        let core = NativeCore::new(&memory);
        if twice {
            host(&core, clock::now() + WARM_UP);
        }
        host(&core, clock::now() + measured)
    })?;
    Ok(moved)
}

/// The limits in one placement of the cores.
#[derive(Clone, Debug, Serialize)]
pub struct PlacementReport {
    placement: &'static str,
    slices: usize,
    one_line_round_trip_ns: Spread,
    two_lines_round_trip_ns: Spread,
    line_and_flag_round_trip_ns: Spread,
    stream_lines_per_second_one_way: Spread,
    stream_lines_per_second_each_way: Spread,
    swap_lines_per_second_each_way: Spread,
    stream_cached_gbps: Spread,
    stream_nontemporal_gbps: Spread,
    model_64_byte_mpps: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    one_line_round_trip_ns: f64,
    two_lines_round_trip_ns: f64,
    stream_lines_per_second_each_way: f64,
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
    let usable = usable_cores();
    let arena = arguments.common.arena(1)?;
    let machine = MachineReport::of(&arena, usable);
    let rounds = arguments.duration.picoseconds().div_ceil(SLICE.picoseconds()).max(1) as usize;
    let mut progress = Progress::new();
    progress.start("limits");
    let measured = measure(&arena, arguments.common.pages(), rounds, &mut progress)?;
    progress.clear();
    let complete = measured.complete(KERNELS.len());
    let chosen = arguments.common.placement.of(&complete);
    let headline = chosen.first().and_then(|place| place_report(&measured, place)).ok_or_else(|| {
        Failure::failed("the cores moved too often to measure every limit in one placement: try a longer --duration")
    })?;
    if arguments.common.json {
        let report = Report {
            schema: "conic.bench.limits/1",
            one_line_round_trip_ns: headline.one_line_round_trip_ns.median,
            two_lines_round_trip_ns: headline.two_lines_round_trip_ns.median,
            stream_lines_per_second_each_way: headline.lines_each_way(),
            stream_cached_gbps: headline.stream_cached_gbps.median,
            stream_nontemporal_gbps: headline.stream_nontemporal_gbps.median,
            model_64_byte_mpps: headline.model_64_byte_mpps,
            model: MODEL,
            placement: headline.placement,
            dropped_slices: measured.dropped,
            restless: measured.restless,
            machine,
            placements: complete.iter().filter_map(|place| place_report(&measured, place)).collect(),
        };
        println!("{}", serde_json::to_string(&report).map_err(|error| Failure::failed(error.to_string()))?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("limits of this machine's coherence");
    println!("  {}", machine.line());
    for place in &chosen {
        if let Some(report) = place_report(&measured, place) {
            println!("\n  {}", placement_line(place, report.slices, SLICE));
            print(&report);
        }
    }
    print_notes(&measured);
    Ok(ExitCode::SUCCESS)
}

/// Measures all limits in turn.
///
/// # Errors
///
/// If the machine refuses it.
fn measure(arena: &Arena, pages: Pages, rounds: usize, progress: &mut Progress) -> Result<Slices<Moved>, Failure> {
    let slice = (SLICE + WARM_UP).picoseconds() * (rounds * KERNELS.len()) as u64;
    let until = Until { rounds, limit: Time::from_picoseconds(2 * slice) };
    alternate(arena, KERNELS.len(), until, progress, |subject| KERNELS[subject].measure(arena, pages, SLICE))
}

impl PlacementReport {
    /// Lines a second each way, both ways at once, by the faster of the two ways to do it.
    pub fn lines_each_way(&self) -> f64 {
        self.stream_lines_per_second_each_way.median.max(self.swap_lines_per_second_each_way.median)
    }
}

fn place_report(measured: &Slices<Moved>, place: &Placement) -> Option<PlacementReport> {
    let spread = |kernel: Kernel, digits: i32| {
        let subject = KERNELS.iter().position(|&other| other == kernel)?;
        let values: Vec<f64> = measured.of(place, subject).map(|moved| kernel.figure(moved)).collect();
        Some(Spread::of(&values)?.rounded(digits))
    };
    let mut report = PlacementReport {
        placement: place.label,
        slices: place.members.len(),
        one_line_round_trip_ns: spread(Kernel::OneLine, 1)?,
        two_lines_round_trip_ns: spread(Kernel::TwoLines, 1)?,
        line_and_flag_round_trip_ns: spread(Kernel::LineAndFlag, 1)?,
        stream_lines_per_second_one_way: spread(Kernel::OneWay, 0)?,
        stream_lines_per_second_each_way: spread(Kernel::BothWays, 0)?,
        swap_lines_per_second_each_way: spread(Kernel::Swap, 0)?,
        stream_cached_gbps: spread(Kernel::Cached, 2)?,
        stream_nontemporal_gbps: spread(Kernel::NonTemporal, 2)?,
        model_64_byte_mpps: 0.0,
    };
    report.model_64_byte_mpps = rounded(report.lines_each_way() / LINES_PER_PACKET / 1e6, 2);
    Some(report)
}

fn print(report: &PlacementReport) {
    let time = |name: &str, spread: Spread| {
        println!("    {name:34} {:>9} {}", nanoseconds(spread.median), range(spread, nanoseconds));
    };
    time("one line, there and back", report.one_line_round_trip_ns);
    time("two lines, there and back", report.two_lines_round_trip_ns);
    time("line and flag, there and back", report.line_and_flag_round_trip_ns);
    let millions = |value: f64| three_digits(value / 1e6);
    let lines = |name: &str, spread: Spread| {
        println!("    {name:34} {:>7} million lines a second {}", millions(spread.median), range(spread, millions));
    };
    lines("stream, one way", report.stream_lines_per_second_one_way);
    lines("stream, each of both ways at once", report.stream_lines_per_second_each_way);
    lines("swap, each of both ways at once", report.swap_lines_per_second_each_way);
    let bits = |name: &str, spread: Spread| {
        println!("    {name:34} {:>7} Gb/s {}", three_digits(spread.median), range(spread, three_digits));
    };
    bits("cached stream", report.stream_cached_gbps);
    bits("non-temporal stream", report.stream_nontemporal_gbps);
    println!(
        "    A 64-byte packet moves {LINES_PER_PACKET} lines each way (payload, a quarter of a descriptor line): at most"
    );
    println!("    {} Mpps at the faster of the rates both ways.", three_digits(report.model_64_byte_mpps));
}
