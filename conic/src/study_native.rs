//! `conic study native`: what the simulator predicts for this very machine, beside what is measured on it.

use std::process::ExitCode;

use clap::Args;
use conic_fabric::Time;
use conic_interface::ccnic::Features;
use conic_load::Workload;
use conic_load::limits::{Moved, Take};
use conic_native::processor::caches;
use conic_sim::Parameters;
use conic_study::simulated::native::{Calibrated, Cores, Limits, calibrate, preset};
use conic_study::workload::Loopback;
use serde::Serialize;

use crate::bench::arena::{Arena, ArenaError};
use crate::bench::common::{Common, MachineReport, print_left_out};
use crate::bench::failure::{Failure, code_of, print_json};
use crate::bench::limits::{CALIBRATING, Kernel};
use crate::bench::link::{Interface, Outcome, Setup, Span, run, run_halves};
use crate::bench::placement::{Placement, Spread};
use crate::bench::progress::Progress;
use crate::bench::rounds::{Dropped, Slices, Until, alternate};

mod output;
mod predict;

/// What this machine's own model predicts for `conic bench loopback`, beside what is measured
///
/// Measures what the machine's coherence allows, with the kernels of `conic bench limits`, and what each interface's halves take
/// where one core runs both; sets a simulated machine of two cores so that the same kernels and halves give the same figures there;
/// and lets it predict the loopback over interfaces, switches, sizes and windows, which are measured in turn with them.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Rounds: each measures everything once, a slice of 20 ms each
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Two sizes and two windows instead of four of each
    #[arg(long)]
    quick: bool,
}

const EXAMPLES: &str = "What is calibrated, and on what:
  the stages of the way from core to core    a load of a line that the other core has written
  whether a load takes a line over           which brings an exchange after it nearest
  line fill buffers                          which bring lines loaded together nearest
  those of them for stores                   which bring lines stored together nearest
  next-line prefetcher                       which brings the streams nearest
  the clock, the pause of a polling loop     instructions of a cycle, and pauses, one behind the other
  what looking at the time takes             looks at it, one behind the other
  a NIC that stands still once               for how long a core does that its system or hypervisor takes away
  sizes of the caches                        what the system lists
  the work of each interface's halves        both on one core, each size of packets and of bursts: no line moves between
                                             cores there

Nothing is fitted to what is predicted. Where a virtual machine's cores move, \
each placement is calibrated and compared by itself.

Examples:
  conic study native
  conic study native --quick --rounds 3
  conic study native --placement all --json";

/// How long a slice is measured.
const SLICE: Time = Time::from_nanoseconds(20_000_000);

/// What comes before it.
const WARM_UP: Time = Time::from_nanoseconds(4_000_000);

/// The interfaces and their switches.
const VARIANTS: [(Interface, &str); 5] = [
    (Interface::Ccnic, "best"),
    (Interface::Ccnic, "paper"),
    (Interface::Ccnic, "best,no-recycling"),
    (Interface::Ccnic, "best,no-shared-pool"),
    (Interface::Ring, ""),
];

/// One loopback.
#[derive(Clone, Debug)]
struct Subject {
    interface: Interface,
    variant: &'static str,
    features: Features,
    workload: Workload,
}

impl Subject {
    /// CC-NIC's switches by name; no other interface has any.
    fn features_name(&self) -> Option<&'static str> {
        (self.interface == Interface::Ccnic).then_some(self.variant)
    }

    /// The window with which both halves run on one core: two whole bursts keep both at work, fewer packets go in smaller bursts.
    fn on_one_core(&self) -> u64 {
        self.workload.window.min(64)
    }

    /// Whether another's packets go through the same instructions, in bursts of one size.
    fn works_like(&self, other: &Subject) -> bool {
        let same = |one: &Subject| (one.interface, one.variant, one.workload.packet_size, one.on_one_core());
        same(self) == same(other)
    }
}

/// What both halves of an interface run on one core: each of the loopbacks' sizes of packets and of bursts once.
fn on_one_core(subjects: &[Subject]) -> Vec<Subject> {
    let mut all: Vec<Subject> = Vec::new();
    for subject in subjects {
        if !all.iter().any(|other| other.works_like(subject)) {
            let workload = Workload { window: subject.on_one_core(), ..subject.workload };
            all.push(Subject { workload, ..subject.clone() });
        }
    }
    all
}

fn subjects(quick: bool) -> Result<Vec<Subject>, Failure> {
    let (sizes, windows): (&[u16], &[u64]) =
        if quick { (&[64, 1500], &[1, 256]) } else { (&[64, 256, 1500, 4096], &[1, 16, 64, 256]) };
    let mut all = Vec::new();
    for (interface, variant) in VARIANTS {
        let features = match variant {
            "" => Features::best(),
            variant => variant
                .parse()
                .map_err(|error: conic_interface::ccnic::UnknownFeature| Failure::failed(error.to_string()))?,
        };
        for &packet_size in sizes {
            for &window in windows {
                let workload = Workload {
                    packet_size,
                    window,
                    transmit_burst: 32,
                    receive_burst: 32,
                    fetch_ahead: features.fetch_ahead,
                };
                all.push(Subject { interface, variant, features, workload });
            }
        }
    }
    Ok(all)
}

/// What one slice came to.
enum Measured {
    Limit(Moved),
    /// What the host's half and the NIC's take for a packet on one core, nanoseconds.
    Halves([f64; 2]),
    Loop(Outcome),
}

/// A figure that was measured and one that was predicted.
#[derive(Clone, Copy, Debug, Serialize)]
struct Compared {
    measured: f64,
    predicted: f64,
    /// The predicted over the measured, less one.
    error: f64,
}

impl Compared {
    fn new(measured: f64, predicted: f64) -> Compared {
        Compared { measured, predicted, error: predicted / measured - 1.0 }
    }
}

/// One loopback, measured and predicted.
#[derive(Clone, Debug, Serialize)]
struct Row {
    interface: &'static str,
    features: Option<&'static str>,
    packet_size: u16,
    window: u64,
    mpps: Compared,
    p50_ns: Compared,
    slices: usize,
}

/// One limit, measured and simulated.
#[derive(Clone, Debug, Serialize)]
struct LimitReport {
    name: &'static str,
    unit: &'static str,
    #[serde(flatten)]
    compared: Compared,
}

/// The work of an interface's halves for a packet, where both run on one core.
#[derive(Clone, Debug, Serialize)]
struct WorkReport {
    interface: &'static str,
    features: Option<&'static str>,
    packet_size: u16,
    window: u64,
    host_ns: Compared,
    nic_ns: Compared,
    /// By how much the work is scaled that the interface's code states.
    host_scale: f64,
    nic_scale: f64,
}

/// One placement of the cores.
#[derive(Clone, Debug, Serialize)]
struct PlaceReport {
    placement: &'static str,
    one_line_round_trip_ns: Spread,
    slices: usize,
    calibration: Vec<LimitReport>,
    stretch: f64,
    line_fill_buffers: u32,
    store_fill_buffers: u32,
    migratory: bool,
    next_line_prefetch: bool,
    clock_ghz: f64,
    pause_cycles: u32,
    clock_cycles: u32,
    stop_ns: f64,
    l1_bytes: u64,
    l2_bytes: u64,
    work: Vec<WorkReport>,
    loopbacks: Vec<Row>,
    /// Of all predicted rates and latencies.
    median_error: f64,
    median_rate_error: f64,
    median_latency_error: f64,
    /// Those that are off by a quarter or more.
    beyond_a_quarter: usize,
    predictions: usize,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    median_error: f64,
    placement: &'static str,
    dropped_slices: Dropped,
    restless: bool,
    machine: MachineReport,
    lacks: &'static [&'static str],
    placements: Vec<PlaceReport>,
}

/// What the model of this machine lacks.
const LACKS: [&str; 6] = [
    "one node a core, in place of cores that share a last-level cache: stages are scaled, not modelled one by one",
    "the processor's own protocol: an owned state, its victim cache and its prefetchers but for the next line's",
    "that a line which the other core has only read is slower to store again than one that it has written",
    "a core that executes out of order past a load that its program waits for, except where the program says so",
    "two threads of one core: where a line's round trip is some 60 ns, nothing moves between caches, and instructions decide",
    "whatever else the hypervisor and the other tenants do",
];

/// Runs the command.
pub fn main(arguments: &Arguments) -> ExitCode {
    measured_and_predicted(arguments).unwrap_or_else(|failure| failure.report(arguments.common.json))
}

fn measured_and_predicted(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let subjects = subjects(arguments.quick)?;
    let preset = preset().map_err(|failure| Failure::failed(failure.to_string()))?;
    let mut progress = Progress::new();
    progress.start("limits and loopbacks");
    // By threads that have ended when the cores are wanted for the predictions: they never sleep, and whoever makes the arena is pinned.
    let (core, machine, measured) = std::thread::scope(|scope| {
        let measuring = scope.spawn(|| {
            let (arena, machine) = arguments.common.arena(1)?;
            let measured = measure(arguments, &arena, &subjects, &mut progress)?;
            Ok((arena.pairs()[0].0, machine, measured))
        });
        measuring.join().unwrap_or_else(|_| Err(Failure::from(ArenaError::Died)))
    })?;
    progress.start("predicting");
    let mut places = Vec::new();
    let complete = measured.complete(CALIBRATING.len() + on_one_core(&subjects).len());
    for &place in &complete {
        places.push(compare(preset.parameters(), core, place, &measured, &subjects)?);
    }
    progress.clear();
    let wanted = arguments.common.placement.of(&complete);
    let labels: Vec<&str> = wanted.iter().map(|place| place.label).collect();
    let first = places.iter().find(|place| labels.first() == Some(&place.placement));
    let first =
        first.ok_or_else(|| Failure::failed("the cores moved during every slice: try again, or with more --rounds"))?;
    let report = Report {
        schema: "conic.study.native/1",
        median_error: first.median_error,
        placement: first.placement,
        dropped_slices: measured.dropped,
        restless: measured.restless,
        machine,
        lacks: &LACKS,
        placements: places,
    };
    let (lost, corrupt) = spoilt(&measured);
    if arguments.common.json {
        print_json(&report)?;
        return Ok(code_of(lost, corrupt));
    }
    println!("this machine, measured and predicted");
    report.machine.print();
    report.placements.iter().filter(|place| labels.contains(&place.placement)).for_each(output::print);
    output::print_lacks(&report);
    print_left_out(report.dropped_slices, report.restless);
    Ok(code_of(lost, corrupt))
}

/// Packets that were lost, and that were corrupt, in any loopback.
fn spoilt(measured: &Slices<Measured>) -> (u64, u64) {
    measured.all().fold((0, 0), |(lost, corrupt), slice| match &slice.value {
        Measured::Loop(outcome) => (lost + outcome.lost, corrupt + outcome.corrupt),
        _ => (lost, corrupt),
    })
}

/// Measures the limits, the halves on one core and the loopbacks in turn; that is the order of subjects.
fn measure(
    arguments: &Arguments,
    arena: &Arena,
    subjects: &[Subject],
    progress: &mut Progress,
) -> Result<Slices<Measured>, Failure> {
    let pages = arguments.common.pages();
    let all: Vec<Subject> = on_one_core(subjects).into_iter().chain(subjects.iter().cloned()).collect();
    let on_one_core = all.len() - subjects.len();
    let count = CALIBRATING.len() + all.len();
    let rounds = usize::from(arguments.rounds);
    let until = Until::rounds(rounds, count, SLICE + WARM_UP);
    alternate(arena, count, until, progress, |subject| {
        if let Some(kernel) = CALIBRATING.get(subject) {
            return kernel.measure(arena, pages, SLICE).map(Measured::Limit);
        }
        let number = subject - CALIBRATING.len();
        let Subject { interface, features, workload, .. } = all[number];
        let setup = Setup { interface, features, workload, queues: 1, interval: None, descriptors: 1024, pages };
        let span = Span { warm_up: WARM_UP, measured: SLICE };
        if number < on_one_core {
            return run_halves(&setup, span).map(Measured::Halves);
        }
        run(arena, &setup, span).map(Measured::Loop)
    })
}

/// The median of a figure over a subject's slices in a placement, and how many there are.
fn median(
    measured: &Slices<Measured>,
    place: &Placement,
    subject: usize,
    figure: impl Fn(&Measured) -> f64,
) -> Option<(f64, usize)> {
    let values: Vec<f64> = measured.of(place, subject).map(figure).collect();
    Some((Spread::of(&values)?.median, values.len()))
}

/// Calibrates the machine on a placement's limits, and compares its predictions with that placement's loopbacks.
fn compare(
    preset: &Parameters,
    core: usize,
    place: &Placement,
    measured: &Slices<Measured>,
    subjects: &[Subject],
) -> Result<PlaceReport, Failure> {
    let (calibrated, stop) = (calibrated(preset, core, place, measured)?, limit(place, measured, Kernel::Stop)?);
    let on_one_core = on_one_core(subjects);
    let mut halves = Vec::new();
    for (index, subject) in on_one_core.iter().enumerate() {
        let half = |half: usize| {
            let figure = |one: &Measured| if let Measured::Halves(halves) = one { halves[half] } else { 0.0 };
            let found = median(measured, place, CALIBRATING.len() + index, figure);
            found.ok_or_else(|| failed("both halves on one core were not measured: try again")).map(|(value, _)| value)
        };
        halves.push((subject, [half(0)?, half(1)?]));
    }
    let works = predict::fit(&calibrated.machine, &halves)?;
    let rate = |one: &Measured| if let Measured::Loop(outcome) = one { outcome.rate } else { 0.0 };
    let latency = |one: &Measured| match one {
        Measured::Loop(outcome) => outcome.latency.quantile(0.5).picoseconds() as f64 / 1e3,
        Measured::Limit(_) | Measured::Halves(_) => 0.0,
    };
    let mut found = Vec::new();
    for (index, subject) in subjects.iter().enumerate() {
        let number = CALIBRATING.len() + on_one_core.len() + index;
        let (Some((rate, slices)), Some((latency, _))) =
            (median(measured, place, number, rate), median(measured, place, number, latency))
        else {
            continue;
        };
        found.push(predict::Found { subject, rate, latency, slices });
    }
    let rows = predict::rows(&works, &found, Time::from_picoseconds((stop * 1e3) as u64))?;
    Ok(output::report(place, &calibrated, stop, &works, rows))
}

/// What a kernel came to in a placement.
fn limit(place: &Placement, measured: &Slices<Measured>, kernel: Kernel) -> Result<f64, Failure> {
    let index = CALIBRATING.iter().position(|&other| other == kernel);
    let index = index.ok_or_else(|| Failure::failed(format!("{kernel:?} is not measured here")))?;
    let figure = |one: &Measured| if let Measured::Limit(moved) = one { kernel.figure(moved) } else { 0.0 };
    let found = median(measured, place, index, figure).map(|(value, _)| value);
    found.ok_or_else(|| Failure::failed(format!("{kernel:?} was not measured: try again")))
}

/// The calibrated machine but for its work.
fn calibrated(
    preset: &Parameters,
    core: usize,
    place: &Placement,
    measured: &Slices<Measured>,
) -> Result<Calibrated, Failure> {
    let limit = |kernel: Kernel| limit(place, measured, kernel);
    let listed = caches(core);
    let cache = |level: u32| listed.iter().find(|cache| cache.level == level).map(|cache| (cache.bytes, cache.ways));
    let cores = Cores {
        cycle: limit(Kernel::Cycle)?,
        pause: limit(Kernel::Pause)?,
        clock: limit(Kernel::Clock)?,
        caches: [1, 2].map(cache),
    };
    let limits = Limits {
        // Not of the probes beside the slices: those are one line of one address, which may lie near to the cores or far.
        one_line: limit(Kernel::OneLine)?,
        two_lines: limit(Kernel::TwoLines)?,
        line_and_flag: limit(Kernel::LineAndFlag)?,
        load: limit(Kernel::Taken(Take::Loads))?,
        exchange: limit(Kernel::Taken(Take::Exchanges))?,
        exchange_of_loaded: limit(Kernel::Taken(Take::ExchangesOfLoaded))?,
        loads_together: limit(Kernel::Taken(Take::LoadsTogether))?,
        stores_together: limit(Kernel::Taken(Take::StoresTogether))?,
        one_way: limit(Kernel::OneWay)?,
        both_ways: limit(Kernel::BothWays)?,
        swap: limit(Kernel::Swap)?,
        stores_of_read: limit(Kernel::Taken(Take::StoresOfRead))?,
    };
    let machine = cores.of(preset).map_err(failed)?;
    calibrate(&machine, &limits).map_err(failed)
}

fn failed(failure: impl std::fmt::Display) -> Failure {
    Failure::failed(failure.to_string())
}

#[cfg(test)]
mod tests {
    use conic_load::KeptLatency;

    use super::*;

    #[test]
    fn what_a_loopback_lost_in_any_slice_is_not_forgotten() {
        let slice = |lost| {
            let latency = KeptLatency::default();
            Measured::Loop(Outcome { packets: 1, rate: 1.0, latency, unfinished: 0, lost, corrupt: 2 * lost })
        };
        assert_eq!(spoilt(&Slices::kept_and_left_out([slice(0), slice(3)])), (3, 6));
    }
}
