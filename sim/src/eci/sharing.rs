//! Several cores on one machine: what one stores the others see, in order and once, whatever the cache gives up or the device
//! recalls meanwhile. Not both in one run: a home must not recall what the cache may just have given up and asked for again
//! ([`crate::protocol::homed`]).

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Ask, Core, Device, Grant, Home, HomeAgent, Layout, ReadTag, SynchronisingWords};

use super::parameters::EciParameters;
use super::recorder::tests::holds_all;
use super::tests::parameters;
use super::{Counters, Disturbances, EciCore, EciDevice, EciSimulation, Machine};
use crate::draws::Draws;
use crate::probe::Recording;
use crate::simulation::Role;

/// Lines whose words are stored to, each word by one core and each line by all.
const SHARED_LINES: usize = 6;
/// Words of each of them.
const WORDS: usize = 4;
/// All such words.
const ALL: usize = SHARED_LINES * WORDS;
/// Behind them a line with a counter and one with a bit for each core, and one with how many cores are done.
const COUNTER: Address = Address(128 * SHARED_LINES as u64);
const BITS: Address = Address(COUNTER.0 + 128);
const DONE: Address = Address(BITS.0 + 128);
const LINES: u64 = SHARED_LINES as u64 + 3;

/// Steps of each core's program.
const STEPS: u64 = if cfg!(debug_assertions) { 3_000 } else { 40_000 };

/// Where a word lies: two in each half of a line.
fn at(word: usize) -> Address {
    Address((word / WORDS * 128 + word % WORDS * 32) as u64)
}

/// What has been stored to each word: the numbers from one on. A store counts when it is issued.
type Stored = Rc<RefCell<[u64; ALL]>>;

/// What one agent has seen of each word.
struct Seen {
    stored: Stored,
    words: [u64; ALL],
}

impl Seen {
    /// A word never goes back, and is nothing that was not stored.
    fn sees(&mut self, word: usize, value: u64) {
        let stored = self.stored.borrow()[word];
        let before = std::mem::replace(&mut self.words[word], value);
        assert!(before <= value && value <= stored, "word {word}: {value} after {before}, of {stored}");
    }
}

/// One core's program.
struct Sharer {
    index: usize,
    cores: usize,
    seen: Seen,
    draws: Draws,
}

impl Sharer {
    fn next(&mut self, word: usize) -> u64 {
        let next = self.seen.stored.borrow()[word] + 1;
        self.seen.stored.borrow_mut()[word] = next;
        next
    }

    fn loads(&mut self, core: &EciCore<'_>, word: usize) -> u64 {
        let value = core.load_acquire(at(word));
        self.seen.sees(word, value);
        if word % self.cores == self.index {
            assert_eq!(value, self.seen.stored.borrow()[word], "its own store to word {word} was forgotten");
        }
        value
    }

    /// Stores to one of its words that is no flag.
    fn stores(&mut self, core: &EciCore<'_>) {
        let own = (ALL - self.index).div_ceil(self.cores) as u64;
        let place = match self.draws.below(own - 1) as usize {
            0 => 0,
            other => other + 1,
        };
        let word = self.index + place * self.cores;
        let value = self.next(word);
        if self.draws.below(2) == 0 { core.store(at(word), value) } else { core.store_release(at(word), value) }
    }

    /// Stores to a word, and then to one that is a flag: whoever sees the flag's number sees as many stores to the other.
    fn publishes(&mut self, core: &EciCore<'_>) {
        let (data, flag) = (self.index, self.index + self.cores);
        let value = self.next(data);
        core.store(at(data), value);
        let flagged = self.next(flag);
        core.store_release(at(flag), flagged);
    }

    /// Looks whether that is so of another core.
    fn follows(&mut self, core: &EciCore<'_>) {
        let other = self.draws.below(self.cores as u64) as usize;
        let flagged = self.loads(core, other + self.cores);
        let value = self.loads(core, other);
        assert!(flagged <= value, "core {other} had stored {flagged}, and {value} was seen");
    }

    fn changes_bits(&self, core: &EciCore<'_>) {
        let bit = 1 << self.index;
        assert_eq!(core.fetch_or(BITS, bit) & bit, 0);
        assert_eq!(core.fetch_and(BITS, !bit) & bit, bit);
    }

    fn step(&mut self, core: &EciCore<'_>) {
        match self.draws.below(16) {
            0..=3 => self.stores(core),
            4..=5 => self.publishes(core),
            6..=8 => {
                let word = self.draws.below(ALL as u64) as usize;
                self.loads(core, word);
            }
            9..=10 => self.follows(core),
            11 => {
                let half = self.draws.below(2 * SHARED_LINES as u64) as usize;
                let line = core.read_line(Address(64 * half as u64));
                (0..2).for_each(|place| self.seen.sees(2 * half + place, line.0[4 * place]));
            }
            12 => core.prefetch_read(at(self.draws.below(ALL as u64) as usize)),
            13 => core.full_fence(),
            14 => counts(core, COUNTER),
            _ => self.changes_bits(core),
        }
    }

    fn run(mut self, core: &EciCore<'_>) {
        for _ in 0..STEPS {
            self.step(core);
        }
        core.full_fence();
        counts(core, DONE);
        while core.load_acquire(DONE) < self.cores as u64 {
            core.spin();
        }
        for word in 0..ALL {
            let value = self.loads(core, word);
            assert_eq!(value, self.seen.stored.borrow()[word], "a store to word {word} was lost");
        }
    }
}

/// Adds one.
fn counts(core: &EciCore<'_>, at: Address) {
    let mut old = core.load(at);
    while let Err(now) = core.compare_exchange(at, old, old + 1) {
        old = now;
    }
}

/// Answers every request; if it is to, recalls a line that the cache has now and then, and looks at what has come back.
fn serves(device: &EciDevice<'_>, recalls: bool, mut seen: Seen, mut draws: Draws) -> ! {
    let mut under_way: Option<(ReadTag, u64)> = None;
    let mut granted = [false; LINES as usize];
    loop {
        while let Some(arrival) = device.next_arrival() {
            // A shared copy that is recalled while it is to be written is given up after the write: see above.
            let grant = if recalls || draws.below(2) == 0 { Grant::Exclusive } else { Grant::Shared };
            granted[(arrival.line.0 / 128) as usize] = !matches!(arrival.ask, Ask::Evicted { .. });
            match arrival.ask {
                Ask::Evicted { .. } => {}
                Ask::Exclusive => device.answer(arrival, Grant::Exclusive),
                Ask::Shared => device.answer(arrival, grant),
            }
        }
        match under_way.take_if(|(tag, _)| device.is_recalled(tag)) {
            Some((tag, line)) => {
                device.finish_recall(tag);
                granted[line as usize] = false;
                for half in (0..2).filter(|_| line < SHARED_LINES as u64) {
                    let own = device.own_line(Address(128 * line + 64 * half));
                    let first = WORDS * line as usize + 2 * half as usize;
                    (0..2).for_each(|place| seen.sees(first + place, own.0[4 * place]));
                }
            }
            None => {
                let line = draws.below(LINES);
                if recalls && under_way.is_none() && granted[line as usize] {
                    under_way = Some((device.start_recall(Address(128 * line)), line));
                } else {
                    device.spin();
                }
            }
        }
    }
}

/// Runs so many cores; gives what was counted and when it ended, and what was written down if `recorded`.
fn shared(
    parameters: &EciParameters,
    cores: usize,
    recalls: bool,
    seed: u64,
    recorded: bool,
) -> (Counters, u64, Option<Recording>) {
    let before = |machine: &mut Machine| {
        if recorded {
            machine.record(usize::MAX);
        }
    };
    let after = |machine: &mut Machine| (machine.counters.clone(), machine.now(), machine.take_recording());
    observed(parameters, (cores, recalls, seed), before, after)
}

/// Runs so many cores, with recalls or with evictions, from a seed; something is done with the machine before, and what is found after.
pub(super) fn observed<T>(
    parameters: &EciParameters,
    (cores, recalls, seed): (usize, bool, u64),
    before: impl FnOnce(&mut Machine),
    after: impl FnOnce(&mut Machine) -> T,
) -> T {
    let mut layout = Layout::new();
    layout.add("lines", LINES * 128, 128, Home::Nic, SynchronisingWords::NONE);
    let disturbances = Disturbances {
        seed,
        evictions_permille: if recalls { 0 } else { 40 },
        dropped_prefetches_permille: 100,
        prefetch_delay: 400_000,
        message_delay: 300_000,
    };
    let mut simulation = EciSimulation::new(parameters, &layout, disturbances);
    let stored: Stored = Rc::new(RefCell::new([0; ALL]));
    let seen = || Seen { stored: Rc::clone(&stored), words: [0; ALL] };
    for index in 0..cores {
        let sharer = Sharer { index, cores, seen: seen(), draws: Draws::new(seed << 8 | index as u64) };
        simulation.core(&format!("core {index}"), Role::Main, move |core| sharer.run(core));
    }
    let (seen, draws) = (seen(), Draws::new(!seed));
    simulation.device("device", Role::Service, move |device| serves(device, recalls, seen, draws));
    before(&mut simulation.machine().borrow_mut());
    simulation.run().unwrap_or_else(|failure| panic!("{cores} cores, seed {seed}: {failure}"));
    after(&mut simulation.machine().borrow_mut())
}

#[test]
fn what_is_written_down_is_all_that_was_sent_and_changes_nothing() {
    for seed in 0..6 {
        let mut parameters = parameters();
        parameters.cache.writes_back_first = seed % 2 == 0;
        let ask = |recorded| shared(&parameters, 3, seed >= 3, seed, recorded);
        let (plain, looked_at) = (ask(false), ask(true));
        assert_eq!((&plain.0, plain.1), (&looked_at.0, looked_at.1), "seed {seed}");
        holds_all(&looked_at.2.expect("it was asked for"), &looked_at.0, looked_at.1);
    }
}

#[test]
fn cores_of_one_machine_see_each_others_stores_in_order_and_lose_none() {
    let (mut evicted, mut recalled) = (0, 0);
    for seed in 0..48 {
        let mut parameters = parameters();
        parameters.cache.writes_back_first = seed % 3 == 0;
        parameters.core.store_buffer = [8, 1, 2, 4][seed as usize % 4];
        // Then so few ways that the first levels lose lines as well.
        (parameters.cache.l1_bytes, parameters.cache.l1_ways) = [(32 << 10, 32), (512, 2)][seed as usize / 4 % 2];
        let (counters, ..) = shared(&parameters, 2 + seed as usize % 3, seed / 8 % 2 == 1, seed, false);
        let recalls = counters.messages.iter().find(|(kind, _)| *kind == "recall").map_or(0, |(_, count)| count);
        (evicted, recalled) = (evicted + counters.evictions, recalled + recalls);
    }
    println!("{evicted} lines given up, {recalled} recalled");
    assert!(evicted > 24 * STEPS / 20 && recalled > 24 * STEPS / 20, "{evicted} lines given up, {recalled} recalled");
}
