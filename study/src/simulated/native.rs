//! The machine that the program runs on: calibrated on what its coherence allows, and on nothing else but one rate.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use conic_fabric::{Core, Layout, Time};
use conic_load::limits::{Exchange, LineAndFlag, Moved, RoundTrip, Side, Swap, Take, Taking};
use conic_sim::platform::Platform;
use conic_sim::{Options, Parameters, Role, SimCore, Simulation};

use super::{failure, loopback};
use crate::workload::{Failure, Loopback};

/// The preset, before anything is calibrated.
const PRESET: &str = include_str!("../../../platforms/native.toml");

/// The preset.
///
/// # Errors
///
/// What is wrong with its file.
pub fn preset() -> Result<Platform, Failure> {
    Platform::parse("native", PRESET, &|_| None).map_err(failure)
}

/// What the coherence of two cores allows, by the kernels of [`conic_load::limits`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// A number there and back in one line, nanoseconds.
    pub one_line: f64,
    /// The same with a line for each direction.
    pub two_lines: f64,
    /// A line of data announced in another, there and back, nanoseconds.
    pub line_and_flag: f64,
    /// A load of a line that the other core has written, nanoseconds.
    pub load: f64,
    /// An atomic exchange in such a line.
    pub exchange: f64,
    /// The same in one that was loaded before.
    pub exchange_of_loaded: f64,
    /// Lines a second that are loaded together, which the other core has written.
    pub loads_together: f64,
    /// The same stored.
    pub stores_together: f64,
    /// Lines a second in a ring, one way.
    pub one_way: f64,
    /// Lines a second each way, both at once.
    pub both_ways: f64,
    /// Lines of one ring that both sides overwrite, a second each way.
    pub swap: f64,
}

impl Limits {
    /// How many of them are times: those come first.
    pub const TIMES: usize = 6;

    /// Their names, for tables.
    pub const NAMES: [&str; 11] = [
        "one line, there and back",
        "two lines, there and back",
        "line and flag, there and back",
        "load of a line that was written",
        "exchange in a line that was written",
        "the same after a load",
        "loads of lines together",
        "stores of lines together",
        "stream, one way",
        "stream, each of both ways at once",
        "swap, each of both ways at once",
    ];

    /// As a list in the order of the names: nanoseconds, then lines a second.
    pub fn list(&self) -> [f64; 11] {
        [
            self.one_line,
            self.two_lines,
            self.line_and_flag,
            self.load,
            self.exchange,
            self.exchange_of_loaded,
            self.loads_together,
            self.stores_together,
            self.one_way,
            self.both_ways,
            self.swap,
        ]
    }

    /// How far some of these are from others': the mean of the logarithms of the ratios, without signs.
    fn distance(&self, other: &Limits, which: Range<usize>) -> f64 {
        let both = self.list().into_iter().zip(other.list());
        let count = which.len();
        both.skip(which.start).take(count).map(|(mine, its)| (mine / its).ln().abs()).sum::<f64>() / count as f64
    }
}

/// The round trips among the limits.
const ROUND_TRIPS: Range<usize> = 0..3;
/// What is taken together.
const TOGETHER: Range<usize> = 6..8;
/// The plain streams among them; swapped lines depend on how the two sides happen to follow one another.
const STREAMS: Range<usize> = 8..10;

/// How long a kernel runs, nanoseconds: so long that its lines' first way from memory does not count.
const SPAN: u64 = 400_000;

/// Simulates the kernels.
///
/// # Errors
///
/// How a run failed.
pub fn limits(machine: &Parameters) -> Result<Limits, Failure> {
    let line_and_flag = kernel(
        machine,
        LineAndFlag::new,
        |kernel, core, until| kernel.call(core, until),
        |kernel, core| kernel.answer(core),
    )?
    .nanoseconds_each();
    let one_way = kernel(
        machine,
        Exchange::new,
        |kernel, core, until| kernel.write(core, until),
        |kernel, core| {
            kernel.read(core);
        },
    )?;
    let both_ways = kernel(
        machine,
        Exchange::new,
        |kernel, core, until| kernel.both_ways(core, Side::Host, until),
        |kernel, core| {
            kernel.both_ways(core, Side::Nic, Time::NEVER);
        },
    )?;
    let swap = kernel(
        machine,
        Swap::new,
        |kernel, core, until| kernel.run(core, Side::Host, until),
        |kernel, core| {
            kernel.run(core, Side::Nic, Time::NEVER);
        },
    )?;
    Ok(Limits {
        one_line: one_line(machine)?,
        two_lines: round_trip(machine, RoundTrip::two_lines)?,
        line_and_flag,
        load: taking(machine, Take::Loads)?.nanoseconds_each(),
        exchange: taking(machine, Take::Exchanges)?.nanoseconds_each(),
        exchange_of_loaded: taking(machine, Take::ExchangesOfLoaded)?.nanoseconds_each(),
        loads_together: taking(machine, Take::LoadsTogether)?.per_second(),
        stores_together: taking(machine, Take::StoresTogether)?.per_second(),
        one_way: one_way.per_second(),
        both_ways: both_ways.per_second(),
        swap: swap.per_second(),
    })
}

fn taking(machine: &Parameters, how: Take) -> Result<Moved, Failure> {
    kernel(
        machine,
        |layout| Taking::new(layout, how),
        |kernel, core, until| kernel.take(core, until),
        |kernel, core| kernel.give(core),
    )
}

/// One line's round trip, in nanoseconds.
fn one_line(machine: &Parameters) -> Result<f64, Failure> {
    round_trip(machine, RoundTrip::one_line)
}

fn round_trip(machine: &Parameters, make: fn(&mut Layout) -> RoundTrip) -> Result<f64, Failure> {
    let moved =
        kernel(machine, make, |kernel, core, until| kernel.call(core, until), |kernel, core| kernel.answer(core))?;
    Ok(moved.nanoseconds_each())
}

/// Runs a kernel on two cores, one on each node; the first measures.
fn kernel<K: Copy + 'static>(
    machine: &Parameters,
    make: impl FnOnce(&mut Layout) -> K,
    host: impl for<'a, 'b> FnOnce(&K, &'a SimCore<'b>, Time) -> Moved + 'static,
    nic: impl for<'a, 'b> FnOnce(&K, &'a SimCore<'b>) + 'static,
) -> Result<Moved, Failure> {
    let mut layout = Layout::new();
    let kernel = make(&mut layout);
    let mut simulation = Simulation::new(machine, &layout, Options::default());
    let moved = Rc::new(Cell::new(Moved::default()));
    let result = Rc::clone(&moved);
    simulation.core("host core", 0, Role::Main, Time::ZERO, move |core| {
        let until = core.now() + Time::from_nanoseconds(SPAN);
        result.set(host(&kernel, core, until));
    });
    simulation.core("NIC core", 1, Role::Main, Time::ZERO, move |core| nic(&kernel, core));
    simulation.run().map_err(failure)?;
    Ok(moved.get())
}

/// A calibrated machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibrated {
    /// Its parameters.
    pub machine: Parameters,
    /// What was to come out.
    pub measured: Limits,
    /// What comes out.
    pub simulated: Limits,
    /// By how much the stages of the way from core to core were scaled.
    pub stretch: f64,
    /// Whether a load of a modified line takes it over.
    pub migratory: bool,
    /// Whether a load that misses asks for the next line.
    pub next_line: bool,
    /// Lines that a core has on their way at once.
    pub line_fill_buffers: u32,
}

impl Calibrated {
    fn new(machine: Parameters, measured: &Limits, stretch: f64) -> Result<Calibrated, Failure> {
        Ok(Calibrated {
            measured: *measured,
            simulated: limits(&machine)?,
            stretch,
            migratory: machine.protocol.migratory_between_nodes,
            next_line: machine.core.prefetch_next_line,
            line_fill_buffers: machine.core.line_fill_buffers,
            machine,
        })
    }

    /// The one of two whose limits are nearer to the measured ones, of those named.
    fn nearer(self, other: Option<Calibrated>, which: Range<usize>) -> Calibrated {
        let distance = |one: &Calibrated| one.simulated.distance(&one.measured, which.clone());
        match other {
            Some(other) if distance(&other) <= distance(&self) => other,
            _ => self,
        }
    }
}

/// How many lines a core may have on their way at once, from the fewest of present cores to the most.
const FILL_BUFFERS: [u32; 7] = [10, 12, 16, 20, 24, 32, 48];

/// Solves the few free values so that the simulated limits equal the measured ones. The round trips give the stages' scale and
/// whether hand-over is migratory; lines that are taken together how many are on their way at once; the streams whether the next
/// line is prefetched.
///
/// # Errors
///
/// A limit is not positive, or how a run failed.
pub fn calibrate(preset: &Parameters, measured: &Limits) -> Result<Calibrated, Failure> {
    if measured.list().iter().any(|limit| !limit.is_finite() || *limit <= 0.0) {
        return Err(Failure(format!("limits are positive numbers, not {measured:?}")));
    }
    let mut machine = preset.clone();
    machine.protocol.migratory_between_nodes = false;
    let shared = scaled(&machine, measured)?;
    machine.protocol.migratory_between_nodes = true;
    let nearest = scaled(&machine, measured)?.nearer(Some(shared), ROUND_TRIPS);
    let mut best = [None, None];
    for (best, next_line) in best.iter_mut().zip([false, true]) {
        for line_fill_buffers in FILL_BUFFERS {
            let mut machine = nearest.machine.clone();
            machine.core.line_fill_buffers = line_fill_buffers;
            machine.core.prefetch_next_line = next_line;
            *best = Some(Calibrated::new(machine, measured, nearest.stretch)?.nearer(best.take(), TOGETHER));
        }
    }
    let [without, with] = best;
    Ok(with.map_or(nearest, |with| with.nearer(without, STREAMS)))
}

/// Finds the stages' scale with which one line's round trip comes out.
fn scaled(machine: &Parameters, measured: &Limits) -> Result<Calibrated, Failure> {
    let mut stretch = 1.0;
    for _ in 0..ROUNDS {
        let simulated = one_line(&stretched(machine, stretch))?;
        stretch = (stretch * measured.one_line / simulated).clamp(0.01, 100_000.0);
    }
    Calibrated::new(stretched(machine, stretch), measured, stretch)
}

/// Rounds of [`scaled`]: the round trip is nearly in proportion, so that each brings it much nearer.
const ROUNDS: usize = 6;

/// The machine with the stages of the way from core to core scaled.
fn stretched(machine: &Parameters, stretch: f64) -> Parameters {
    let mut machine = machine.clone();
    let scale = |stage: &mut u64| *stage = (*stage as f64 * stretch) as u64;
    let node = &mut machine.node;
    for stage in [&mut node.core_to_home, &mut node.home_to_core, &mut node.home_lookup, &mut node.llc_read] {
        scale(stage);
    }
    scale(&mut machine.node.snoop_lookup);
    scale(&mut machine.interconnect.crossing);
    machine
}

/// The scale of annotated work with which the loopback's rate comes out, the one value that is fitted to an interface's figure:
/// within 1%, or the nearest that there is. Sets it in the question's machine and returns it.
///
/// # Errors
///
/// How a run failed.
pub fn fit_work(question: &mut Loopback, packets_per_second: f64) -> Result<f64, Failure> {
    let (mut low, mut high) = (0.0, 16.0);
    for _ in 0..12 {
        let middle = f64::midpoint(low, high);
        question.machine.core.work_scale = middle;
        let rate = loopback(question).map_err(Failure)?.packets_per_second;
        if (rate / packets_per_second - 1.0).abs() < 0.01 {
            break;
        }
        if rate > packets_per_second { low = middle } else { high = middle }
    }
    Ok(question.machine.core.work_scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_found_again_from_its_limits() {
        let preset = preset().expect("it comes with the program");
        for migratory in [false, true] {
            let mut there = stretched(preset.parameters(), 3.0);
            there.protocol.migratory_between_nodes = migratory;
            there.core.prefetch_next_line = false;
            there.core.line_fill_buffers = 12;
            let measured = limits(&there).expect("it runs");
            let found = calibrate(preset.parameters(), &measured).expect("it runs");
            assert_eq!(found.migratory, migratory);
            assert!((found.stretch / 3.0 - 1.0).abs() < 0.03, "{}", found.stretch);
            assert!(found.simulated.distance(&measured, 0..11) < 0.05, "{found:?}");
        }
    }

    #[test]
    fn taken_lines_tell_latency_ownership_and_lines_on_their_way_apart() {
        let mut machine = preset().expect("it comes with the program").parameters().clone();
        let [plain, migratory] = [false, true].map(|migratory| {
            machine.protocol.migratory_between_nodes = migratory;
            limits(&stretched(&machine, 3.0)).expect("it runs")
        });
        // A load that takes the line over leaves nothing to ask for; one that shares it leaves as much as there was.
        assert!(migratory.exchange_of_loaded < migratory.exchange / 4.0, "{migratory:?}");
        assert!(plain.exchange_of_loaded > 0.8 * plain.exchange, "{plain:?}");
        machine.core.line_fill_buffers = 8;
        machine.core.prefetch_next_line = false;
        let few = limits(&stretched(&machine, 3.0)).expect("it runs");
        // Eight at a time, each for as long as one by itself.
        for together in [few.loads_together, few.stores_together] {
            let expected = 8e9 / few.load;
            assert!((together / expected - 1.0).abs() < 0.15, "{together} lines a second, not {expected}");
        }
    }

    #[test]
    fn limits_that_cannot_be_are_refused() {
        let preset = preset().expect("it comes with the program");
        assert!(calibrate(preset.parameters(), &Limits::default()).is_err());
    }
}
