//! `conic bench pio`: the exchange of a line pair between two cores, beside one line's round trip.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use conic_fabric::{Home, Layout, Time};
use conic_load::Latency;
use conic_load::limits::{LinePair, Moved, RoundTrip, SlotPair};
use conic_native::{NativeCore, Pages, clock};
use serde::Serialize;

use super::arena::Arena;
use super::common::{
    Common, MachineReport, nanoseconds, placement_line, print_notes, range, region, span, three_digits,
};
use super::failure::{Failure, print_json};
use super::placement::{Placement, Spread};
use super::progress::Progress;
use super::rounds::{Dropped, Slices, Until, alternate, rounds_of};

/// A line pair's exchange between two cores, beside one line's round trip
///
/// Coherent programmed I/O on memory: a core plays the device, and reads the control word again and again where a device
/// that is home to the lines would see the load and withhold its answer. A payload of a line goes there and another comes
/// back, in two lines that swap roles (variant c of the protocol).
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// How long to measure each exchange, in slices of 20 ms, in turn
    #[arg(long, value_name = "TIME", default_value = "400ms", value_parser = span)]
    pub duration: Time,
}

const EXAMPLES: &str = "What is measured:
  one line      a number there and back in one line: what the others are compared with
  line pair     56 bytes there and 56 back, each in a line of the pair, with a control word
  FastForward   56 bytes there and 56 back, in the slots of two queues
  two lines     a number there and back with a line for each direction

A slice's figure is the median over its batches of 32 exchanges. It stands beside one of one line's round trip of the same round and the same placement of the cores; the ratio \
is over those pairs.

Examples:
  conic bench pio
  conic bench pio --placement all
  conic bench pio --duration 2s --json";

/// How long a slice is measured.
const SLICE: Time = Time::from_nanoseconds(20_000_000);

/// What comes before it.
const WARM_UP: Time = Time::from_nanoseconds(2_000_000);

/// An exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    OneLine,
    LinePair,
    FastForward,
    TwoLines,
}

const KERNELS: [(Kernel, &str); 4] = [
    (Kernel::OneLine, "one line"),
    (Kernel::LinePair, "line pair"),
    (Kernel::FastForward, "FastForward"),
    (Kernel::TwoLines, "two lines"),
];

impl Kernel {
    /// Measures it once, in a region of its own.
    fn measure(self, arena: &Arena, pages: Pages) -> Result<f64, Failure> {
        let layout = &mut Layout::new();
        match self {
            Kernel::OneLine | Kernel::TwoLines => {
                let make = if self == Kernel::OneLine { RoundTrip::one_line } else { RoundTrip::two_lines };
                let trips = [make(layout), make(layout)];
                let call = |trip: &RoundTrip, core: &NativeCore<'_>, until, batch: Batch<'_>| {
                    trip.call_in_batches(core, until, batch)
                };
                warm_and_measured(arena, pages, layout, trips, call, |trip, core| trip.answer(core))
            }
            Kernel::LinePair => {
                let pairs = [LinePair::new(layout, Home::Host), LinePair::new(layout, Home::Host)];
                let call =
                    |pair: &LinePair, core: &NativeCore<'_>, until, batch: Batch<'_>| pair.call(core, until, batch);
                warm_and_measured(arena, pages, layout, pairs, call, |pair, core| pair.answer(core))
            }
            Kernel::FastForward => {
                let pairs = [SlotPair::new(layout), SlotPair::new(layout)];
                let call =
                    |pair: &SlotPair, core: &NativeCore<'_>, until, batch: Batch<'_>| pair.call(core, until, batch);
                warm_and_measured(arena, pages, layout, pairs, call, |pair, core| pair.answer(core))
            }
        }
    }
}

/// What a kernel says of each batch of its exchanges.
type Batch<'a> = &'a mut dyn FnMut(Moved);

/// Runs one kernel to warm up, and another of its kind to be measured: the median over its batches of nanoseconds an exchange.
fn warm_and_measured<K: Send + Copy + 'static>(
    arena: &Arena,
    pages: Pages,
    layout: &Layout,
    kernels: [K; 2],
    call: impl Fn(&K, &NativeCore<'_>, Time, Batch<'_>) -> Moved,
    answer: impl Fn(&K, &NativeCore<'_>) + Clone + Send + 'static,
) -> Result<f64, Failure> {
    let memory = Arc::new(region(layout, pages)?);
    let core = NativeCore::new(&memory);
    // A job for each: where the first one's check fails, nobody waits for the second one's calls.
    let exchanges = |kernel: K, span: Time, batch: Batch<'_>| {
        let (shared, answer) = (Arc::clone(&memory), answer.clone());
        let nic = move || answer(&kernel, &NativeCore::new(&shared));
        arena.beside(Box::new(nic), || call(&kernel, &core, clock::now() + span, batch))
    };
    exchanges(kernels[0], WARM_UP, &mut |_| ())?;
    let mut batches = Latency::new();
    exchanges(kernels[1], SLICE, &mut |moved| {
        batches.record(Time::from_picoseconds(moved.span.picoseconds() / moved.count), 1);
    })?;
    Ok(batches.quantile(0.5).picoseconds() as f64 / 1e3)
}

/// One exchange in one placement of the cores.
#[derive(Clone, Debug, Serialize)]
struct Row {
    exchange: &'static str,
    ns: Spread,
    /// Over one line's round trip of the same round.
    ratio: Spread,
}

#[derive(Clone, Debug, Serialize)]
struct PlacementReport {
    placement: &'static str,
    slices: usize,
    exchanges: Vec<Row>,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    one_line_round_trip_ns: f64,
    line_pair_ns: f64,
    line_pair_ratio: f64,
    fastforward_ns: f64,
    payload_bytes_each_way: u64,
    placement: &'static str,
    dropped_slices: Dropped,
    restless: bool,
    machine: MachineReport,
    placements: Vec<PlacementReport>,
}

/// Runs the command.
///
/// # Errors
///
/// If the machine refuses it.
pub fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (arena, machine) = arguments.common.arena(1)?;
    let mut progress = Progress::new();
    progress.start("line pair");
    let until = Until::rounds(rounds_of(arguments.duration, SLICE), KERNELS.len(), SLICE + WARM_UP);
    let pages = arguments.common.pages();
    let measured =
        alternate(&arena, KERNELS.len(), until, &mut progress, |subject| KERNELS[subject].0.measure(&arena, pages))?;
    progress.clear();
    let complete = measured.complete(KERNELS.len());
    let chosen = arguments.common.placement.of(&complete);
    let reports: Vec<PlacementReport> = chosen.iter().filter_map(|place| report(&measured, place)).collect();
    let Some(headline) = reports.first() else {
        return Err(Failure::restless());
    };
    if !arguments.common.json {
        println!("a payload of a line there and another back, between two cores");
        machine.print();
        chosen.iter().zip(&reports).for_each(|(place, report)| print(place, report));
        print_notes(&measured);
        return Ok(ExitCode::SUCCESS);
    }
    let row = |kernel| {
        let index = KERNELS.iter().position(|(other, _)| *other == kernel).expect("each kernel is measured");
        &headline.exchanges[index]
    };
    let report = Report {
        schema: "conic.bench.pio/1",
        one_line_round_trip_ns: row(Kernel::OneLine).ns.median,
        line_pair_ns: row(Kernel::LinePair).ns.median,
        line_pair_ratio: row(Kernel::LinePair).ratio.median,
        fastforward_ns: row(Kernel::FastForward).ns.median,
        payload_bytes_each_way: 56,
        placement: headline.placement,
        dropped_slices: measured.dropped,
        restless: measured.restless,
        machine,
        placements: reports.clone(),
    };
    print_json(&report)?;
    Ok(ExitCode::SUCCESS)
}

fn report(measured: &Slices<f64>, place: &Placement) -> Option<PlacementReport> {
    let row = |(subject, (_, name)): (usize, &(Kernel, &'static str))| {
        let (ns, ratio) = measured.with_ratio_to_first(place, subject, |figure| *figure)?;
        Some(Row { exchange: name, ns: ns.rounded(1), ratio: ratio.rounded(2) })
    };
    let exchanges = KERNELS.iter().enumerate().map(row).collect::<Option<_>>()?;
    Some(PlacementReport { placement: place.label, slices: place.members.len(), exchanges })
}

fn print(place: &Placement, report: &PlacementReport) {
    println!("\n  {}", placement_line(place, report.slices, SLICE));
    for Row { exchange, ns, ratio } in &report.exchanges {
        let spread = range(*ns, nanoseconds);
        println!(
            "    {exchange:14} {:>9} {spread:24} {} {}",
            nanoseconds(ns.median),
            three_digits(ratio.median),
            range(*ratio, three_digits)
        );
    }
    println!("    (medians over batches of 32 and then over slices, and the slices' range;");
    println!("    then over one line's of the same round)");
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use conic_native::{Flag, cores};

    use super::*;

    #[test]
    fn a_check_that_fails_while_it_warms_up_leaves_nobody_waiting_for_what_is_measured() {
        if cores().len() < 2 {
            println!("skipped: this process may use one core, and needs two");
            return;
        }
        let (begun, stop) = (Arc::new(Flag::new()), Arc::new(Flag::new()));
        let (measured, stopped) = (Arc::clone(&begun), Arc::clone(&stop));
        let answer = move |kernel: &u8, _: &NativeCore<'_>| {
            if *kernel == 1 {
                measured.raise();
                while !stopped.is_up() {}
            }
        };
        // A thread of its own, which stays pinned. When it has ended, so has the one that answers.
        let ended = std::thread::spawn(move || {
            let arena = Arena::new(1, None).expect("two cores");
            let call = |_: &u8, _: &NativeCore<'_>, _, _: Batch<'_>| panic!("on purpose");
            let run = || warm_and_measured(&arena, Pages::Plain, &Layout::new(), [0, 1], call, answer);
            let panics = catch_unwind(AssertUnwindSafe(run)).is_err();
            // Else the arena's end would wait for its thread for ever.
            stop.raise();
            panics
        });
        assert!(ended.join().expect("the arena ends") && !begun.is_up());
    }
}
