//! Random programs of cores and engines over few lines: every word of a line has one writer, who counts up over all its words, so that a
//! reader that sees a word go back has seen stale data, and so has one that sees a number and then not what was written before it. Some
//! lines have one writer for all their words, who stores them whole, past its caches. And
//! rounds in which lines are the device's alone, in device-bias, between others in which they are everybody's.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, LINE_BYTES, Line, StateHint, Time};
use conic_sim::Role;
use conic_sim::cxl::{CxlDevice, CxlParameters, CxlSimulation, Machine};
use conic_sim::draws::Draws;
use conic_sim::protocol::cxl::Bias;

use super::{machine, places};

const LINES: u64 = 6;
/// Behind them, lines that a core each writes alone, in either memory.
const WHOLE: u64 = 2;
const HINTS: [StateHint; 4] =
    [StateHint::NonCacheable, StateHint::NonCacheablePush, StateHint::CacheableShared, StateHint::CacheableOwned];

/// Who writes a word of each line: two cores, two engines, and one that does it by DMA, in the host's lines.
const WRITERS: usize = 5;
const BY_DMA: usize = 4;

/// What was written to each word, in order, by its only writer.
type History = Rc<RefCell<BTreeMap<u64, Vec<u64>>>>;

/// What a reader has seen of each word, and checks that nothing goes back.
#[derive(Default)]
struct Seen {
    words: BTreeMap<u64, u64>,
    /// The highest number seen of each writer, and what they all have written.
    newest: [u64; WRITERS],
    history: History,
}

impl Seen {
    fn of(history: &History) -> Seen {
        Seen { history: Rc::clone(history), ..Seen::default() }
    }

    fn check(&mut self, at: Address, value: u64) {
        let before = self.words.entry(at.0).or_insert(0);
        assert!(value >= *before, "{at} went back from {before} to {value}");
        *before = value;
    }

    /// The same for a word whose writer writes no other number before this one can be seen: whoever has seen one of its numbers, in
    /// whatever line, sees what it wrote before that.
    fn check_word(&mut self, at: Address, writer: usize, value: u64) {
        let newest = self.newest[writer];
        let history = self.history.borrow();
        let written = history.get(&at.0).map_or(&[][..], |numbers| numbers);
        let before = &written[..written.partition_point(|number| *number <= newest)];
        let least = before.last().copied().unwrap_or(0);
        assert!(value >= least, "{at} is {value}, and number {newest} of who wrote {least} there before was seen");
        drop(history);
        self.newest[writer] = newest.max(value);
        self.check(at, value);
    }

    /// Notes that this one, who is a writer too, writes a word.
    fn writes(&mut self, at: Address, writer: usize, value: u64) {
        self.history.borrow_mut().entry(at.0).or_default().push(value);
        self.newest[writer] = value;
    }
}

/// The place of a writer's word.
fn word(places: super::Places, random: &mut Draws, writer: usize) -> Address {
    let line = if writer == BY_DMA { random.below(LINES) } else { random.below(2 * LINES) };
    let base = if line < LINES { places.host } else { places.device };
    base.lines(line % LINES).word(writer)
}

/// A line that a core writes alone.
fn whole_line(places: super::Places, random: &mut Draws, writer: u64) -> Address {
    let base = if random.below(2) == 0 { places.host } else { places.device };
    base.lines(LINES + writer)
}

/// A step on lines with one writer: stores them whole past the caches, stores a word, or reads a line. What a core stored itself it reads
/// as it is, what the other did never goes back.
fn whole_step(core: &impl Core, places: super::Places, writer: u64, random: &mut Draws, known: &mut Whole) {
    let own = whole_line(places, random, writer);
    match random.below(4) {
        0 => {
            known.value += 1;
            core.write_nontemporal(own, &[Line([known.value; 8])]);
            known.stored.extend((0..8).map(|word| (own.word(word).0, known.value)));
        }
        1 => {
            known.value += 1;
            let at = own.word(random.below(8) as usize);
            core.store(at, known.value);
            known.stored.insert(at.0, known.value);
        }
        2 => {
            let at = own.word(random.below(8) as usize);
            let stored = known.stored.get(&at.0).copied().unwrap_or(0);
            assert_eq!(core.load(at), stored, "{at}, which this core alone writes");
        }
        _ => {
            let other = whole_line(places, random, 1 - writer);
            let line = core.read_line(other);
            (0..8).for_each(|word| known.seen.check(other.word(word), line.0[word]));
        }
    }
}

/// What a core knows of the lines with one writer.
#[derive(Default)]
struct Whole {
    value: u64,
    stored: BTreeMap<u64, u64>,
    seen: Seen,
}

fn core_program(core: &impl Core, places: super::Places, writer: usize, seed: u64, history: &History) {
    let mut random = Draws::new(seed);
    let (mut seen, mut value, mut whole) = (Seen::of(history), 0, Whole::default());
    for _ in 0..600 {
        let at = word(places, &mut random, writer);
        match random.below(16) {
            12..=15 => whole_step(core, places, writer as u64, &mut random, &mut whole),
            0..=2 => {
                value += 1;
                seen.writes(at, writer, value);
                core.store(at, value);
            }
            8 => core.prefetch_read(at.line()),
            9 => core.prefetch_write(at.line()),
            3..=5 => {
                let other = random.below(WRITERS as u64) as usize;
                let at = at.line().word(other);
                seen.check_word(at, other, core.load(at));
            }
            // The program goes on behind these, and what it loads next may not be older.
            10..=11 => {
                let line = core.read_line(at.line());
                for word in 0..WRITERS {
                    seen.check_word(at.line().word(word), word, line.0[word]);
                }
            }
            6 => core.flush(at.line()),
            _ => core.demote(at.line()),
        }
        if random.below(4) == 0 {
            core.work(random.below(300) as u32);
        }
    }
}

fn device_program(device: &impl Device, places: super::Places, writer: usize, seed: u64, history: &History) {
    let mut random = Draws::new(seed);
    let (mut seen, mut value) = (Seen::of(history), 0);
    for _ in 0..400 {
        let at = word(places, &mut random, writer);
        let hint = HINTS[random.below(4) as usize];
        if writer != BY_DMA && random.below(6) == 0 {
            let writer = random.below(WHOLE);
            let at = whole_line(places, &mut random, writer);
            let mut bytes = [0; LINE_BYTES as usize];
            device.read(at, &mut bytes, hint);
            (0..8).for_each(|word| seen.check(at.word(word), Line::from_bytes(&bytes).0[word]));
        } else if random.below(2) == 0 {
            value += 1;
            seen.writes(at, writer, value);
            device.write_word(at, value, hint);
        } else {
            let other = random.below(WRITERS as u64) as usize;
            let at = at.line().word(other);
            seen.check_word(at, other, device.read_word(at, hint));
        }
        if random.below(4) == 0 {
            device.work(random.below(100) as u32);
        }
    }
}

pub(super) fn random_run(parameters: &CxlParameters, seed: u64) -> CxlSimulation {
    observed_run(parameters, seed, |_| ())
}

/// The same, where something is done with the machine before it runs.
pub(super) fn observed_run(parameters: &CxlParameters, seed: u64, before: impl FnOnce(&mut Machine)) -> CxlSimulation {
    let (layout, places) = places(LINES + WHOLE);
    let mut simulation = CxlSimulation::new(parameters, &layout);
    simulation.machine().borrow_mut().disturb(seed, 100_000);
    let history = History::default();
    for writer in 0..WRITERS {
        let (history, seed) = (Rc::clone(&history), seed * WRITERS as u64 + writer as u64);
        match writer {
            0..2 => simulation.core("core", Role::Main, move |core| core_program(core, places, writer, seed, &history)),
            BY_DMA => simulation.device("DMA", Role::Main, move |device| {
                device_program(&device.dma(), places, writer, seed, &history);
            }),
            _ => simulation
                .device("engine", Role::Main, move |device| device_program(device, places, writer, seed, &history)),
        };
    }
    before(&mut simulation.machine().borrow_mut());
    simulation.run().unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    simulation
}

#[test]
fn no_word_ever_goes_back() {
    for seed in 1..300 {
        random_run(&machine("agilex7"), seed);
    }
}

#[test]
fn nor_where_the_devices_caches_hold_two_lines() {
    let mut parameters = machine("agilex7");
    (parameters.dcoh.hmc_bytes, parameters.dcoh.hmc_ways) = (128, 2);
    (parameters.dcoh.dmc_bytes, parameters.dcoh.dmc_ways) = (128, 2);
    (parameters.cache.l1_bytes, parameters.cache.l1_ways) = (128, 2);
    (parameters.cache.l2_bytes, parameters.cache.l2_ways) = (128, 2);
    (parameters.cache.llc_bytes, parameters.cache.llc_ways) = (256, 4);
    for seed in 1_000..1_150 {
        random_run(&parameters, seed);
    }
}

/// What is known to be in each word at least: its writer has waited until it was there.
type Written = Rc<RefCell<BTreeMap<u64, u64>>>;

/// Whose a range of lines is, and what both sides know of it: on even turns everybody's, on odd ones the device's alone.
#[derive(Clone, Default)]
struct Shared {
    turn: Rc<Cell<u64>>,
    written: Written,
    stale: Rc<Cell<u64>>,
}

impl Shared {
    /// Reads a word, and counts it if it is older than what was known to be there before.
    fn check(&self, at: Address, read: impl FnOnce() -> u64) {
        let least = self.written.borrow().get(&at.0).copied().unwrap_or(0);
        self.stale.set(self.stale.get() + u64::from(read() < least));
    }
}

const TURNS: u64 = 40;

/// The host's side: its words are those with even numbers. It keeps away while the lines are the device's.
fn host_in_turns(core: &impl Core, places: super::Places, seed: u64, shared: &Shared) {
    let (mut random, mut value) = (Draws::new(seed), 0);
    for round in 0..TURNS {
        let mut stored = BTreeMap::new();
        for _ in 0..random.below(20) {
            let line = places.device.lines(random.below(LINES));
            match random.below(4) {
                0 => {
                    value += 1;
                    let at = line.word(2 * random.below(4) as usize);
                    core.store(at, value);
                    stored.insert(at.0, value);
                }
                1 => core.prefetch_write(line),
                _ => {
                    let at = line.word(2 * random.below(4) as usize + 1);
                    shared.check(at, || core.load(at));
                }
            }
        }
        core.full_fence();
        shared.written.borrow_mut().extend(stored);
        shared.turn.set(2 * round + 1);
        while shared.turn.get() != 2 * round + 2 {
            core.work(100);
        }
    }
}

/// The device's side: in device-bias it pushes nothing, which would leave the host a copy that nobody asks for.
fn device_in_turns(device: &CxlDevice<'_>, places: super::Places, seed: u64, shared: &Shared, flush: bool) {
    let (mut random, mut value) = (Draws::new(seed), 0);
    let range = LINES * LINE_BYTES;
    let mut written = BTreeMap::new();
    let mut step = |hints: &[StateHint]| {
        let hint = hints[random.below(hints.len() as u64) as usize];
        let line = places.device.lines(random.below(LINES));
        if random.below(2) == 0 {
            value += 1;
            let at = line.word(2 * random.below(4) as usize + 1);
            device.write_word(at, value, hint);
            written.insert(at.0, value);
        } else {
            let at = line.word(2 * random.below(4) as usize);
            shared.check(at, || device.read_word(at, hint));
        }
        if random.below(4) == 0 {
            device.await_writes();
            shared.written.borrow_mut().append(&mut written);
        }
    };
    for round in 0..TURNS {
        while shared.turn.get() != 2 * round + 1 {
            step(&HINTS);
            device.wait_until(device.now() + Time::from_nanoseconds(50));
        }
        device.await_writes();
        device.switch_bias(places.device, range, Bias::Device, flush);
        for _ in 0..20 {
            step(&[StateHint::NonCacheable, StateHint::CacheableShared, StateHint::CacheableOwned]);
        }
        device.await_writes();
        device.switch_bias(places.device, range, Bias::Host, flush);
        shared.turn.set(2 * round + 2);
    }
}

/// How many words were older than they should be.
fn stale_by_bias(parameters: &CxlParameters, seed: u64, flush: bool) -> u64 {
    let (layout, places) = places(LINES);
    let mut simulation = CxlSimulation::new(parameters, &layout);
    simulation.machine().borrow_mut().disturb(seed, 100_000);
    let shared = Shared::default();
    let of_core = shared.clone();
    simulation.core("core", Role::Main, move |core| host_in_turns(core, places, 2 * seed, &of_core));
    let of_device = shared.clone();
    simulation.device("engine", Role::Main, move |device| {
        device_in_turns(device, places, 2 * seed + 1, &of_device, flush);
    });
    simulation.run().unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    shared.stale.get()
}

#[test]
fn lines_that_become_the_devices_and_everybodys_again_never_go_stale() {
    for seed in 1..60 {
        assert_eq!(stale_by_bias(&machine("agilex7"), seed, true), 0, "seed {seed}");
    }
    let mut parameters = machine("agilex7");
    (parameters.dcoh.dmc_bytes, parameters.dcoh.dmc_ways) = (128, 2);
    (parameters.cache.l1_bytes, parameters.cache.l1_ways) = (128, 2);
    (parameters.cache.l2_bytes, parameters.cache.l2_ways) = (128, 2);
    (parameters.cache.llc_bytes, parameters.cache.llc_ways) = (256, 4);
    for seed in 100..130 {
        assert_eq!(stale_by_bias(&parameters, seed, true), 0, "seed {seed}");
    }
}

/// The tester is tested: a switch that leaves the host its copies must be seen.
#[test]
fn without_a_flush_they_do_go_stale() {
    let seen = (1..10).filter(|seed| stale_by_bias(&machine("agilex7"), *seed, false) > 0).count();
    assert!(seen >= 8, "{seen} of 9 runs had stale words");
}

/// Lines that an engine alone writes, whole, each time with a higher number: by NC-P while a register says so, which a core changes again
/// and again, and by NC-write else. What it pushed it writes to memory a while later, unless it has written the line anew.
fn gated_engine(device: &CxlDevice<'_>, places: super::Places, seed: u64, counts: &Cell<[u64; 3]>) {
    let (mut random, mut value, mut pushed) = (Draws::new(seed), 0, BTreeMap::new());
    let count = |which: usize| {
        let mut all = counts.get();
        all[which] += 1;
        counts.set(all);
    };
    for step in 0..400_u64 {
        value += 1;
        let at = whole_line(places, &mut random, 0);
        let bytes = Line([value; 8]).to_bytes();
        if device.own_register(places.register) == 0 {
            device.write(at, &bytes, StateHint::NonCacheablePush);
            pushed.insert(at.0, (step + random.below(4), bytes));
            count(0);
        } else {
            device.write(at, &bytes, StateHint::NonCacheable);
            pushed.remove(&at.0);
            count(1);
        }
        pushed.retain(|at, (due, bytes)| {
            if *due <= step {
                device.write(Address(*at), bytes, StateHint::NonCacheable);
                count(2);
            }
            *due > step
        });
        if random.below(3) == 0 {
            device.work(random.below(300) as u32);
        }
    }
}

/// A core that reads those lines, takes them out of its caches, and moves the gate.
fn gating_core(core: &impl Core, places: super::Places, seed: u64, gates: bool) {
    let (mut random, mut seen) = (Draws::new(seed), Seen::default());
    for step in 0..600 {
        let at = whole_line(places, &mut random, 0);
        match random.below(8) {
            0 => core.flush(at),
            1 => core.demote(at),
            2 => core.prefetch_read(at),
            3 if gates => core.register_write(places.register, u64::from(random.below(2) == 0)),
            _ => {
                let line = core.read_line(at);
                (0..8).for_each(|word| seen.check(at.word(word), line.0[word]));
                assert!(line.0.iter().all(|word| *word == line.0[0]), "step {step}: {at} is of two writes: {line:?}");
            }
        }
        if random.below(3) == 0 {
            core.work(random.below(300) as u32);
        }
    }
}

#[test]
fn pushed_lines_never_go_back_while_the_gate_moves_and_what_was_pushed_is_written_back() {
    let mut small = machine("agilex7");
    (small.cache.l1_bytes, small.cache.l1_ways) = (128, 2);
    (small.cache.l2_bytes, small.cache.l2_ways) = (128, 2);
    (small.cache.llc_bytes, small.cache.llc_ways) = (256, 4);
    for (parameters, seeds) in [(machine("agilex7"), 1..40), (small, 100..140)] {
        let counts = Rc::new(Cell::new([0; 3]));
        for seed in seeds {
            let (layout, places) = places(LINES + WHOLE);
            let mut simulation = CxlSimulation::new(&parameters, &layout);
            simulation.machine().borrow_mut().disturb(seed, 100_000);
            simulation.machine().borrow_mut().check();
            for number in 0..2 {
                simulation.core("core", Role::Main, move |core| {
                    gating_core(core, places, seed * 3 + number, number == 0);
                });
            }
            let counts = Rc::clone(&counts);
            simulation.device("engine", Role::Main, move |device| gated_engine(device, places, seed * 3 + 2, &counts));
            simulation.run().unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        }
        assert!(counts.get().iter().all(|count| *count > 1_000), "pushed, written, written back: {:?}", counts.get());
    }
}
