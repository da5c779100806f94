//! The machine that the program runs on: calibrated on what one core does by itself and on what the coherence of two allows.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use conic_fabric::{Core, Layout, Time};
use conic_load::limits::{Exchange, LineAndFlag, Moved, RoundTrip, Side, Swap, Take, Taking};
use conic_sim::platform::Platform;
use conic_sim::{Options, Parameters, Role, SimCore, Simulation};

use super::{failure, halves};
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

/// What one core is by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cores {
    /// A cycle, nanoseconds.
    pub cycle: f64,
    /// A pause of a polling loop (`Core::spin`), nanoseconds.
    pub pause: f64,
    /// Reading the clock (`Core::now`), nanoseconds.
    pub clock: f64,
    /// Bytes and ways of the first and second level of its caches, where the system lists them.
    pub caches: [Option<(u64, u32)>; 2],
}

impl Cores {
    /// The preset with these cores.
    ///
    /// # Errors
    ///
    /// A time is not positive.
    pub fn of(&self, preset: &Parameters) -> Result<Parameters, Failure> {
        if [self.cycle, self.pause, self.clock].iter().any(|time| !time.is_finite() || *time <= 0.0) {
            return Err(Failure(format!("a cycle, a pause and the clock take some time, not as in {self:?}")));
        }
        let mut machine = preset.clone();
        machine.core.frequency_megahertz = (1e3 / self.cycle).round().max(1.0) as u32;
        machine.core.pause_cycles = (self.pause / self.cycle).round() as u32;
        machine.core.clock_cycles = (self.clock / self.cycle).round() as u32;
        let [first, second] = self.caches;
        let cache = &mut machine.cache;
        (cache.l1_bytes, cache.l1_ways) = first.unwrap_or((cache.l1_bytes, cache.l1_ways));
        (cache.l2_bytes, cache.l2_ways) = second.unwrap_or((cache.l2_bytes, cache.l2_ways));
        Ok(machine)
    }
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
    /// Lines a second that are stored together, which the other core has read since this one wrote them. Nothing is calibrated on it: with
    /// as many fill buffers for stores as bring it nearest, lines that the other core has written, which prefetchers bring several times
    /// as fast on some processors, come out as slow.
    pub stores_of_read: f64,
}

impl Limits {
    /// How many of them are times: those come first.
    pub const TIMES: usize = 6;

    /// Their names, for tables.
    pub const NAMES: [&str; 12] = [
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
        "stores of lines that were read",
    ];

    /// As a list in the order of the names: nanoseconds, then lines a second.
    pub fn list(&self) -> [f64; 12] {
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
            self.stores_of_read,
        ]
    }

    /// How far some of these are from others': the mean of the logarithms of the ratios, without signs.
    fn distance(&self, other: &Limits, which: Range<usize>) -> f64 {
        let both = self.list().into_iter().zip(other.list());
        let count = which.len();
        both.skip(which.start).take(count).map(|(mine, its)| (mine / its).ln().abs()).sum::<f64>() / count as f64
    }
}

/// What tells whether a load takes a line over: an exchange after it.
const OWNERSHIP: Range<usize> = 5..6;
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
        one_line: round_trip(machine, RoundTrip::one_line)?,
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
        stores_of_read: taking(machine, Take::StoresOfRead)?.per_second(),
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
    /// Of those, how many for stores.
    pub store_fill_buffers: u32,
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
            store_fill_buffers: machine.core.store_fill_buffers,
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

/// How many lines a core may have on their way at once, for loads or for stores, from the fewest of present cores to the most.
const FILL_BUFFERS: [u32; 14] = [6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 20, 24, 32, 48];

/// Solves the few free values of a machine, whose cores are as they are, so that the simulated limits equal the measured ones: a
/// load of a written line gives the stages' scale; an exchange after it whether it takes the line over; lines that are taken
/// together how many are on their way at once, for loads and for stores; the streams whether the next line is prefetched.
///
/// # Errors
///
/// A limit is not positive, or how a run failed.
pub fn calibrate(cores: &Parameters, measured: &Limits) -> Result<Calibrated, Failure> {
    if measured.list().iter().any(|limit| !limit.is_finite() || *limit <= 0.0) {
        return Err(Failure(format!("limits are positive numbers, not {measured:?}")));
    }
    let mut machine = cores.clone();
    machine.protocol.migratory_between_nodes = false;
    let shared = scaled(&machine, measured)?;
    machine.protocol.migratory_between_nodes = true;
    let nearest = scaled(&machine, measured)?.nearer(Some(shared), OWNERSHIP);
    let [without, with] = [false, true].map(|next_line| {
        let mut machine = nearest.machine.clone();
        machine.core.prefetch_next_line = next_line;
        buffered(&mut machine, measured)?;
        Calibrated::new(machine, measured, nearest.stretch)
    });
    Ok(with?.nearer(Some(without?), STREAMS))
}

/// Finds how many lines a core may have on their way at once: as many as bring lines that are loaded together nearest, and of those
/// as many for stores as bring lines that are stored together nearest.
fn buffered(machine: &mut Parameters, measured: &Limits) -> Result<(), Failure> {
    type Set = fn(&mut Parameters, u32);
    let lines: Set = |machine, buffers| {
        machine.core.line_fill_buffers = buffers;
        machine.core.store_fill_buffers = buffers;
    };
    let of_stores: Set = |machine, buffers| machine.core.store_fill_buffers = buffers;
    for (how, wanted, set) in [
        (Take::LoadsTogether, measured.loads_together, lines),
        (Take::StoresTogether, measured.stores_together, of_stores),
    ] {
        let (most, mut best) = (machine.core.line_fill_buffers, (f64::INFINITY, 0));
        for buffers in FILL_BUFFERS.into_iter().filter(|&buffers| how == Take::LoadsTogether || buffers <= most) {
            set(machine, buffers);
            let distance = (taking(machine, how)?.per_second() / wanted).ln().abs();
            if distance < best.0 {
                best = (distance, buffers);
            }
        }
        set(machine, best.1);
    }
    Ok(())
}

/// Finds the stages' scale with which a load of a line that the other core has written comes out: one way, of many lines that lie
/// near and far, and without the polling that round trips have besides.
fn scaled(machine: &Parameters, measured: &Limits) -> Result<Calibrated, Failure> {
    let mut stretch = 1.0;
    for _ in 0..ROUNDS {
        let simulated = taking(&stretched(machine, stretch), Take::Loads)?.nanoseconds_each();
        stretch = (stretch * measured.load / simulated).clamp(0.01, 100_000.0);
    }
    Calibrated::new(stretched(machine, stretch), measured, stretch)
}

/// Rounds of [`scaled`]: the load is nearly in proportion, so that each brings it much nearer.
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

/// Fits the annotated work of a loopback's two halves to what each takes for a packet where both are on one core, nanoseconds: within
/// 1%, or the nearest that there is. Sets both scales in the question, and returns what comes out.
///
/// A scale stands for more instructions, not for slower ones: the reorder buffer spans the same time with all of them.
///
/// # Errors
///
/// How a run failed.
pub fn fit_work(question: &mut Loopback, nanoseconds: [f64; 2]) -> Result<[f64; 2], Failure> {
    let instructions = question.machine.core.work_instructions;
    let mut at = |scale: f64| {
        question.machine.core.work_scale = scale;
        question.machine.core.work_instructions = instructions * scale;
        halves(question).map_err(Failure)
    };
    let (once, twice) = (at(1.0)?, at(2.0)?);
    let mut fitted = [(0.0, 0.0); 2];
    for (half, fitted) in fitted.iter_mut().enumerate() {
        let wanted = nanoseconds[half];
        let (mut before, mut found) = ((1.0, once[half]), (2.0, twice[half]));
        // Time grows with work in a nearly straight line, which is followed to where it meets what is wanted.
        for _ in 0..MOST_STEPS {
            let slope = (found.1 - before.1) / (found.0 - before.0);
            if (found.1 / wanted - 1.0).abs() < 0.01 || slope.is_nan() || slope <= 0.0 {
                break;
            }
            let scale = (found.0 + (wanted - found.1) / slope).clamp(LEAST_WORK, MOST_WORK);
            (before, found) = (found, (scale, at(scale)?[half]));
        }
        *fitted = found;
    }
    let [(host, host_takes), (nic, nic_takes)] = fitted;
    question.machine.core.work_scale = host;
    question.machine.core.work_instructions = instructions * host;
    question.nic_work = Some(nic);
    Ok([host_takes, nic_takes])
}

/// Steps of [`fit_work`]: three or four suffice where the line is straight.
const MOST_STEPS: usize = 8;

/// Less than any interface's annotated work is scaled by; none at all would be no work for the reorder buffer to count.
const LEAST_WORK: f64 = 0.01;

/// More than any is scaled by: the ring's NIC copies packets of 4 KB in pieces, which no annotation says.
const MOST_WORK: f64 = 1024.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Interface;

    #[test]
    fn a_machine_is_found_again_from_its_limits() {
        let preset = preset().expect("it comes with the program");
        for migratory in [false, true] {
            let mut there = stretched(preset.parameters(), 3.0);
            there.protocol.migratory_between_nodes = migratory;
            there.core.prefetch_next_line = false;
            there.core.line_fill_buffers = 12;
            there.core.store_fill_buffers = 9;
            let measured = limits(&there).expect("it runs");
            let found = calibrate(preset.parameters(), &measured).expect("it runs");
            assert_eq!(found.migratory, migratory);
            assert_eq!((found.line_fill_buffers, found.store_fill_buffers), (12, 9));
            assert!((found.stretch / 3.0 - 1.0).abs() < 0.03, "{}", found.stretch);
            assert!(found.simulated.distance(&measured, 0..12) < 0.05, "{found:?}");
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
        for together in [few.loads_together, few.stores_together, few.stores_of_read] {
            let expected = 8e9 / few.load;
            assert!((together / expected - 1.0).abs() < 0.15, "{together} lines a second, not {expected}");
        }
    }

    #[test]
    fn cores_are_as_they_say() {
        let preset = preset().expect("it comes with the program");
        let cores = Cores { cycle: 0.25, pause: 35.0, clock: 8.0, caches: [Some((32 << 10, 8)), None] };
        let machine = cores.of(preset.parameters()).expect("they can be");
        assert_eq!((machine.core.frequency_megahertz, machine.core.pause_cycles), (4000, 140));
        assert_eq!(machine.cache.sizes()[..2], [(32 << 10, 8), preset.parameters().cache.sizes()[1]]);
        let alone = |host: fn(&(), &SimCore<'_>, Time) -> Moved| kernel(&machine, |_| (), host, |(), _| ());
        let paused = alone(|(), core, until| conic_load::limits::pauses(core, until)).expect("it runs");
        // Between 32 pauses it looks at the clock.
        assert!((paused.nanoseconds_each() - (35.0 + 8.0 / 32.0)).abs() < 0.01);
        let looked = alone(|(), core, until| conic_load::limits::clock_readings(core, until)).expect("it runs");
        assert!((looked.nanoseconds_each() - 8.0).abs() < 0.01);
        // Nobody takes a modelled core away.
        let stopped = alone(|(), core, until| conic_load::limits::stops(core, until)).expect("it runs");
        assert_eq!(stopped, Moved::default());
        assert!(Cores { cycle: 0.0, ..cores }.of(preset.parameters()).is_err());
    }

    fn best() -> Interface {
        Interface::CcNic(conic_interface::ccnic::Features::best())
    }

    #[test]
    fn the_work_of_each_half_is_found_again() {
        let preset = preset().expect("it comes with the program");
        let mut machine = preset.parameters().clone();
        let instructions = machine.core.work_instructions;
        let mut question = Loopback { window: 64, ..Loopback::new(&machine, best()) };
        let [host, nic] = [2.0, 5.0].map(|scale| {
            machine.core.work_scale = scale;
            machine.core.work_instructions = instructions * scale;
            halves(&Loopback { machine: machine.clone(), ..question.clone() }).expect("it runs")
        });
        // A machine that differs in what lies between cores alone.
        question.machine = stretched(preset.parameters(), 3.0);
        let fitted = fit_work(&mut question, [host[0], nic[1]]).expect("it runs");
        for (fitted, expected) in fitted.into_iter().zip([host[0], nic[1]]) {
            assert!((fitted / expected - 1.0).abs() < 0.01, "{fitted} ns instead of {expected}");
        }
        assert!((question.machine.core.work_scale / 2.0 - 1.0).abs() < 0.03, "{question:?}");
        assert!(question.nic_work.is_some_and(|scale| (scale / 5.0 - 1.0).abs() < 0.03), "{question:?}");
        // More work, as many instructions in a nanosecond.
        assert_eq!(question.machine.core.reorder_span(), preset.parameters().core.reorder_span());
    }

    #[test]
    fn limits_that_cannot_be_are_refused() {
        let preset = preset().expect("it comes with the program");
        assert!(calibrate(preset.parameters(), &Limits::default()).is_err());
    }
}
