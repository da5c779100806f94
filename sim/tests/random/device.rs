//! A device behind PCIe among random programs: it writes and reads words of lines that cores on both nodes write too.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Home, LINE_WORDS, Layout, StateHint, SynchronisingWords, Time};
use conic_sim::probe::counters::AgentAccesses;
use conic_sim::{Options, Role, Simulation};

use crate::common::{self, Random};

const CORES: usize = 4;
/// The device's word in each line.
const DEVICE: usize = 7;
const LINES: u64 = 5;
const CORE_STEPS: u64 = 3_000;
const DEVICE_STEPS: u64 = 2_000;

/// What each agent saw, and when it ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// For each agent: its number, when it ended, a digest of what it read.
    pub agents: Vec<(usize, Time, u64)>,
    pub counters: Vec<AgentAccesses>,
}

/// The greatest values that an agent has seen.
struct Seen {
    words: [[u64; LINE_WORDS]; LINES as usize],
    digest: u64,
}

impl Seen {
    fn new() -> Seen {
        Seen { words: [[0; LINE_WORDS]; LINES as usize], digest: 0 }
    }

    /// A word never goes back; an agent's own word is what it wrote last.
    fn check(&mut self, me: usize, line: u64, word: usize, value: u64) {
        self.grew(me, line, word, value);
        self.digest = (self.digest.rotate_left(9) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// The same without a part in the digest: for a core's bulk data, which others write meanwhile.
    fn grew(&mut self, me: usize, line: u64, word: usize, value: u64) {
        let before = std::mem::replace(&mut self.words[line as usize][word], value);
        assert!(value >= before, "agent {me} reads {value} in word {word} of line {line} after {before}");
        assert!(word != me || value == before, "agent {me} reads {value} where it wrote {before}");
    }
}

fn core_program(core: &impl Core, memory: Address, me: usize, seed: u64) -> u64 {
    let (mut random, mut seen) = (Random::new(seed, me as u64), Seen::new());
    for step in 1..=CORE_STEPS {
        let line = random.below(LINES);
        let at = memory.lines(line);
        match random.below(10) {
            0..4 => {
                let word = if random.coin() { DEVICE } else { random.below(CORES as u64) as usize };
                seen.check(me, line, word, core.load_acquire(at.word(word)));
            }
            4..7 => {
                seen.words[line as usize][me] = step;
                core.store_release(at.word(me), step);
            }
            7 => core.prefetch_read(at),
            8 => core.work(random.below(500) as u32),
            _ => {
                let whole = core.read_line(at);
                [0, 1, 2, 3, DEVICE].into_iter().for_each(|word| seen.grew(me, line, word, whole.0[word]));
            }
        }
    }
    seen.digest
}

fn device_program(device: &impl Device, memory: Address, seed: u64) -> u64 {
    let (mut random, mut seen) = (Random::new(seed, 40), Seen::new());
    for step in 1..=DEVICE_STEPS {
        let line = random.below(LINES);
        let at = memory.lines(line);
        let hint = if random.coin() { StateHint::NonCacheablePush } else { StateHint::NonCacheable };
        match random.below(8) {
            0..4 => {
                seen.words[line as usize][DEVICE] = step;
                device.write_word(at.word(DEVICE), step, hint);
            }
            4..7 => {
                // PCIe lets no read pass the writes before it, so that the device finds its own word.
                let mut bytes = [0; 64];
                device.read(at, &mut bytes, hint);
                let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
                let words: Vec<u64> = words.collect();
                [0, 1, 2, 3, DEVICE].into_iter().for_each(|word| seen.check(DEVICE, line, word, words[word]));
            }
            _ => device.work(random.below(1_000) as u32),
        }
    }
    seen.digest
}

/// Runs the programs of a seed.
pub fn run(seed: u64, options: Options) -> Outcome {
    let mut parameters = common::tiny(if seed.is_multiple_of(2) { "icx-cx6" } else { "icx-e810" }, seed);
    parameters.cache.device_write_ways = [0, 1, 2][seed as usize % 3];
    let mut layout = Layout::new();
    let memory = layout.add("memory", 64 * LINES, 4096, Home::Host, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(&parameters, &layout, options);
    let ends = Rc::new(RefCell::new(Vec::new()));
    for me in 0..CORES {
        let out = Rc::clone(&ends);
        simulation.core(&format!("core {me}"), me % 2, Role::Main, Time::ZERO, move |core| {
            let digest = core_program(core, memory, me, seed);
            out.borrow_mut().push((me, core.now(), digest));
        });
    }
    let out = Rc::clone(&ends);
    simulation.device("device", Role::Main, Time::ZERO, move |device| {
        let digest = device_program(device, memory, seed);
        out.borrow_mut().push((DEVICE, device.now(), digest));
    });
    simulation.run().unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    let mut agents = ends.borrow().clone();
    agents.sort_unstable();
    let machine = simulation.machine().borrow();
    Outcome { agents, counters: (0..CORES).map(|agent| machine.counters(agent)).collect() }
}
