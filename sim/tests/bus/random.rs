//! Random programs of processors and engines over few lines, in small caches. Every word has one writer, who counts up: a word that goes
//! back is old data. Some lines have an engine as the only writer, who writes them whole. And a writer that publishes one word behind
//! another has them seen in that order.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use conic_fabric::{Address, Core, Line};
use conic_sim::Role;
use conic_sim::bus::{Attachment, BusCore, BusParameters, BusSimulation, EngineShape};
use conic_sim::draws::Draws;

use super::{Places, parameters, places};

const LINES: u64 = 12;
/// The first of these have a word for each agent; of the others an engine each writes all.
const SHARED: u64 = 8;
const STEPS: u64 = 1_500;

/// What each agent has written, and all have ended with.
type Written = Rc<RefCell<BTreeMap<u64, u64>>>;

struct Walker {
    index: usize,
    agents: usize,
    is_engine: bool,
    /// A line of data and one of flags, whose words are published in no other way.
    published: [Address; 2],
    lines: Vec<Address>,
    draws: Draws,
    written: Written,
    seen: BTreeMap<u64, u64>,
}

impl Walker {
    fn sees(&mut self, at: Address, value: u64) {
        let newest = self.written.borrow().get(&at.0).copied().unwrap_or(0);
        let before = self.seen.insert(at.0, value).unwrap_or(0);
        assert!(before <= value && value <= newest, "{at}: {value} after {before}, of {newest}");
    }

    fn next(&mut self, at: Address) -> u64 {
        let mut written = self.written.borrow_mut();
        let value = written.entry(at.0).or_insert(0);
        *value += 1;
        *value
    }

    fn line(&mut self, most: u64) -> Address {
        let memories = self.lines.len() as u64;
        self.lines[self.draws.below(memories) as usize].lines(self.draws.below(most))
    }

    fn loads(&mut self, core: &BusCore<'_>, at: Address) -> u64 {
        let value = core.load(at);
        self.sees(at, value);
        value
    }

    fn step(&mut self, core: &BusCore<'_>) {
        match self.draws.below(8) {
            0..=1 => {
                let at = self.line(SHARED).word(self.index);
                let value = self.next(at);
                core.store(at, value);
            }
            2 => {
                // A word, and behind it its flag in another line.
                let (data, flag) = (self.published[0].word(self.index), self.published[1].word(self.index));
                let value = self.next(data);
                core.store(data, value);
                self.written.borrow_mut().insert(flag.0, value);
                core.store_release(flag, value);
            }
            3 => {
                let other = self.draws.below(self.agents as u64) as usize;
                let flagged = self.loads(core, self.published[1].word(other));
                let value = self.loads(core, self.published[0].word(other));
                assert!(flagged <= value, "agent {other} had published {flagged}, and {value} was seen");
            }
            4 if self.is_engine => {
                let at = self.line(1).lines(SHARED + self.index as u64);
                let value = self.next(at);
                core.write_line(at, &Line([value; 8]));
                (1..8).for_each(|word| {
                    self.written.borrow_mut().insert(at.word(word).0, value);
                });
            }
            5 => {
                let at = self.line(LINES);
                let line = core.read_line(at);
                (0..8).for_each(|word| self.sees(at.word(word), line.0[word]));
            }
            _ => {
                let at = self.line(LINES);
                let word = self.draws.below(8) as usize;
                self.loads(core, at.word(word));
            }
        }
        if self.draws.below(4) == 0 {
            core.work(self.draws.below(120) as u32);
        }
    }
}

fn walk(mut walker: Walker, core: &BusCore<'_>, done: &Rc<RefCell<usize>>) {
    for _ in 0..STEPS {
        walker.step(core);
    }
    *done.borrow_mut() += 1;
    // A core that spins may be parked: work makes time pass.
    while *done.borrow() < walker.agents {
        core.work(50);
    }
    core.work(2_000);
    for (at, value) in walker.written.clone().borrow().iter() {
        assert_eq!(core.load(Address(*at)), *value, "what was written last at {at:#x}");
    }
    *done.borrow_mut() += 1;
    while *done.borrow() < 2 * walker.agents {
        core.work(50);
    }
}

/// What the buses carried.
fn random(attachment: Attachment, seed: u64) -> conic_sim::bus::Counters {
    let mut machine: BusParameters = parameters();
    machine.core.cache_bytes = 512;
    machine.io.buffer = 1 + (seed % 4) as u32;
    machine.bus.snarfing = seed % 2 == 1;
    let (layout, Places { device, memory, .. }) = places(LINES + 4);
    let mut simulation = BusSimulation::new(&machine, &layout, 1, attachment);
    let on_io = attachment == Attachment::IoBus;
    // Before a bridge there is one processor, and a device behind it caches its own memory alone.
    let (processors, engines) = (if on_io { 1 } else { 2 }, 2);
    let (written, done) = (Written::default(), Rc::new(RefCell::new(0)));
    for index in 0..engines + processors {
        let is_engine = index < engines;
        let lines = if on_io { vec![device.lines(2)] } else { vec![device.lines(2), memory.lines(2)] };
        let walker = Walker {
            index,
            agents: engines + processors,
            is_engine,
            published: [device, device.lines(1)],
            lines,
            draws: Draws::new(seed << 8 | index as u64),
            written: Rc::clone(&written),
            seen: BTreeMap::new(),
        };
        let done = Rc::clone(&done);
        let program = move |core: &BusCore<'_>| walk(walker, core, &done);
        if is_engine {
            let shape = EngineShape { blocks: 4, lines: device..device.lines(LINES + 4), registers: Vec::new() };
            simulation.engine(0, "engine", &shape, program);
        } else {
            simulation.processor(0, "processor", Role::Main, program);
        }
    }
    simulation.run().unwrap_or_else(|failure| panic!("{attachment:?}, seed {seed}: {failure}"));
    simulation.machine().borrow().counters[0].clone()
}

#[test]
fn random_programs_on_the_memory_bus_see_no_old_value() {
    for seed in 0..24 {
        let counters = random(Attachment::MemoryBus, seed);
        let of = |kind| counters.memory.of(kind);
        assert!(of("read") > 500 && of("invalidate") > 100 && of("write back") > 100, "seed {seed}: {counters:?}");
    }
}

#[test]
fn random_programs_across_the_bridge_see_no_old_value_and_nobody_waits_for_ever() {
    let mut refusals = 0;
    for seed in 0..24 {
        let counters = random(Attachment::IoBus, seed);
        assert!(counters.io.of("invalidate") > 100 && counters.io.of("read") > 500, "seed {seed}: {counters:?}");
        refusals += counters.refusals;
    }
    assert!(refusals > 100, "{refusals} refusals");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let once = || random(Attachment::IoBus, 9);
    assert_eq!(once(), once());
}
