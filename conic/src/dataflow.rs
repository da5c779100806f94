//! `conic dataflow`: graphs of Timely's with operators on a device, beside the same graphs in software.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conic_fabric::Time;
use serde::Serialize;

use crate::bench::arena::Arena;
use crate::bench::common::{Common, span};
use crate::bench::draw;
use crate::bench::failure::Failure;
use crate::bench::placement::{Placement, Spread, rounded};
use crate::bench::progress::Progress;
use crate::bench::rounds::{Slices, Until, alternate, rounds_of};
use crate::invoke::DeviceKind;
use crate::writable;

mod graphs;
mod output;
mod simulated;

use graphs::{COLLAPSED, Graph, Outcome, Region, Span, Way};

/// Run operators of a Timely graph on a device, beside the same graph in software
///
/// Two graphs (of the paper on coherent programmed I/O, section 5.3): 31 trivial filters one after the other, and the hashes of a
/// Bloom filter. Each runs in software, fused into one operator of software, and on a device that another core plays and that is
/// reached through pairs of lines; or, with `--device simulated`, on a device of a modelled machine. Channels are inserted between the two parts; elements cross, and with them what Timely tracks
/// of progress. What comes out of every batch is compared with what the operators make.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(flatten)]
    pub common: Common,
    /// How long to run each graph in each way with each size of batches, in slices of 10 ms, in turn
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = span)]
    pub duration: Time,
    /// What the device is
    #[arg(long, value_enum, default_value_t = DeviceKind::Played)]
    pub device: DeviceKind,
    /// The modelled machine of a simulated device: a platform's name, or the path of a file that ends in .toml [default: enzian]
    #[arg(long, value_name = "NAME")]
    pub platform: Option<String>,
    /// Where the charts go
    #[arg(long, value_name = "FILE", default_value = "out/dataflow.svg")]
    pub svg: PathBuf,
}

const EXAMPLES: &str = "Ways to run a graph:
  software         each operator an operator of Timely's
  software, fused  one operator of Timely's that does what all of them do: what can be had without a device
  inline           the device's part computed on the calling core, with all that crossing needs but the crossing
  collapsed        on the device; the parent graph sees one operator, which waits for the device
  each operator    on the device; the parent graph sees all of its operators, each with what the device says of it
  deferred         the worker goes on, and the device wakes the operator when it is done

A batch's time is from just before it is sent to just after the probe says that it is complete, one batch after the other. What \
crossing costs is the time of `collapsed` less that of `software, fused`.

A simulated device computes what the graph sends it, and what comes back is compared like any other. The graph runs on this \
machine meanwhile, so that a batch has two times: the host's, on this machine's clock and without what simulating took, and the \
exchanges', on the simulator's. Where the host waits they are reported apart and summed; the sum is what this machine would take \
with that device. Where calls are deferred and several batches are on the way, both overlap: an exchange ends when so much of the \
host's time has passed as it took in the simulation, and what is told is from one batch to the next, and from a batch's sending to \
its end, on that one clock. Each exchange under way has a modelled core and machine to itself. \
A host that has nothing else to do looks for results, each time through Timely: where it takes longer for a batch than its exchanges \
do, deferring gains no more than their time, less what those looks take. \
`conic study coherent-pio 11 12` has times of the modelled machine alone.

Examples:
  conic dataflow
  conic dataflow --device simulated --platform enzian
  conic dataflow --duration 200ms --placement all
  conic dataflow --json";

/// How long a slice is measured, and what comes before it.
const SPAN: Span = Span { warm_up: Time::from_nanoseconds(2_000_000), measured: Time::from_nanoseconds(10_000_000) };

/// A graph, a size of its batches, and a way to run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Subject {
    graph: Graph,
    elements: usize,
    way: Way,
}

fn subjects() -> Vec<Subject> {
    let of = |graph: Graph| {
        let ways = move |&elements| graph.ways().iter().map(move |&way| Subject { graph, elements, way });
        graph.sizes().iter().flat_map(ways)
    };
    Graph::ALL.into_iter().flat_map(of).collect()
}

/// One way to run a graph with batches of one size.
#[derive(Clone, Copy, Debug, Serialize)]
struct Cell {
    way: &'static str,
    batches: u64,
    batch_ns: Times,
}

/// A batch's time in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Times {
    p50: f64,
    p99: f64,
    /// Medians of the slices.
    slices: Spread,
}

/// Batches of one size.
#[derive(Clone, Debug, Serialize)]
struct Row {
    elements: usize,
    /// What it takes longer on the device than fused in software: encoding, crossing both ways, the device's work, decoding.
    crossing_ns: f64,
    /// What it takes longer on another core than inline: the exchanges alone.
    exchange_ns: f64,
    ways: Vec<Cell>,
}

/// A graph.
#[derive(Clone, Debug, Serialize)]
struct GraphReport {
    graph: &'static str,
    sizes: Vec<Row>,
}

/// Runs the command.
pub fn main(options: &Options) -> ExitCode {
    let writable = || writable::file(&options.svg, "--svg");
    let simulated = [("--platform", options.platform.is_some())];
    let fitting = options.device.fitting(&options.common, &[], &simulated);
    let result = fitting.and_then(|()| writable()).and_then(|()| match options.device {
        DeviceKind::Played => run(options),
        DeviceKind::Simulated => simulated::run(options),
    });
    result.unwrap_or_else(|failure| failure.report(options.common.json))
}

fn run(options: &Options) -> Result<ExitCode, Failure> {
    let (arena, machine) = options.common.arena(1)?;
    let region = Region::new(options.common.pages())?;
    let subjects = subjects();
    let measured = measure(&arena, &region, &subjects, options.duration)?;
    let complete = measured.complete(subjects.len());
    let chosen = options.common.placement.of(&complete);
    let reports = |place: &&Placement| report(&measured, place, &subjects);
    let reports: Vec<Vec<GraphReport>> = chosen.iter().map(reports).collect::<Option<_>>().unwrap_or_default();
    let Some(headline) = reports.first() else {
        return Err(Failure::restless());
    };
    let wrong: u64 = measured.all().map(|slice| slice.value.wrong).sum();
    let charts = output::charts(headline);
    draw::to_file(&charts, &options.svg)?;
    if options.common.json {
        output::json(&chosen, &reports, &measured, machine, wrong)?;
    } else {
        output::table(&chosen, &reports, &measured, &machine, SPAN.measured);
        charts.iter().for_each(draw::on_terminal);
        println!("charts: {}", options.svg.display());
    }
    if wrong > 0 {
        eprintln!("error: of {wrong} batches something else came out than the operators make");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(arena: &Arena, region: &Region, subjects: &[Subject], duration: Time) -> Result<Slices<Outcome>, Failure> {
    let until = Until::rounds(rounds_of(duration, SPAN.measured), subjects.len(), SPAN.measured + SPAN.warm_up);
    let mut progress = Progress::new();
    progress.start("operators on a device");
    alternate(arena, subjects.len(), until, &mut progress, |subject| {
        let Subject { graph, elements, way } = subjects[subject];
        graphs::slice(arena, region, graph, way, elements, SPAN)
    })
}

/// The figures of one placement of the cores.
fn report(measured: &Slices<Outcome>, place: &Placement, subjects: &[Subject]) -> Option<Vec<GraphReport>> {
    let row = |graph: Graph, elements: usize| {
        let of = |(index, subject): (usize, &Subject)| Some((subject.way, cell(measured, place, index, subject.way)?));
        let mine = subjects.iter().enumerate().filter(|(_, one)| one.graph == graph && one.elements == elements);
        let cells: Vec<(Way, Cell)> = mine.map(of).collect::<Option<_>>()?;
        let median = |way| cells.iter().find(|(other, _)| *other == way).map(|(_, cell)| cell.batch_ns.p50);
        let collapsed = median(COLLAPSED)?;
        Some(Row {
            elements,
            crossing_ns: rounded(collapsed - median(Way::Fused)?, 1),
            exchange_ns: rounded(collapsed - median(Way::Inline)?, 1),
            ways: cells.into_iter().map(|(_, cell)| cell).collect(),
        })
    };
    let graph = |graph: Graph| {
        let sizes = graph.sizes().iter().map(|&elements| row(graph, elements)).collect::<Option<_>>()?;
        Some(GraphReport { graph: graph.name(), sizes })
    };
    Graph::ALL.into_iter().map(graph).collect()
}

fn cell(measured: &Slices<Outcome>, place: &Placement, subject: usize, way: Way) -> Option<Cell> {
    let nanoseconds = |time: Time| time.picoseconds() as f64 / 1e3;
    let mut latency = conic_load::KeptLatency::default();
    let (mut batches, mut medians) = (0, Vec::new());
    for outcome in measured.of(place, subject) {
        batches += outcome.batches;
        medians.push(nanoseconds(outcome.latency.quantile(0.5)));
        latency.add(&outcome.latency);
    }
    let quantile = |share| rounded(nanoseconds(latency.quantile(share)), 1);
    let slices = Spread::of(&medians)?.rounded(1);
    let batch_ns = Times { p50: quantile(0.5), p99: quantile(0.99), slices };
    Some(Cell { way: way.name(), batches, batch_ns })
}
