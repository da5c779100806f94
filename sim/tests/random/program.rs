//! A random program for each agent, and what may be said of every value that it reads.
//!
//! | lines | word | written by | may be read |
//! |---|---|---|---|
//! | shared | 0 to 5 | the agent of that number, increasing | by all: never less than before |
//! | shared | 6 | all, a bit each, atomically | each finds its own bit as it left it |
//! | shared | 7 | all, adding atomically | the sum is exact |
//! | blocks | all | one agent, whole lines, increasing from the last word to the first | by all: no word is newer than the one after it |
//! | bytes | | one agent, spans of bytes | by it: exactly what it wrote |

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Home, LINE_WORDS, Layout, Line, SynchronisingWords, Time};
use conic_sim::probe::counters::{AgentCounters, LinkCounters, SnoopFilterCounters};
use conic_sim::{Options, Parameters, Role, SimCore, Simulation};

use crate::common::Random;

const BITS: usize = 6;
const SUM: usize = 7;
const BLOCK_LINES: u64 = 3;
const SPAN: usize = 200;

/// What is run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub parameters: Parameters,
    /// Cores of each node, six in all at most.
    pub agents: [usize; 2],
    /// Shared lines.
    pub lines: u64,
    /// Operations of each agent's program.
    pub operations: u64,
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// When each program ended, in picoseconds.
    pub ends: Vec<u64>,
    /// A digest of every time and value that each program saw.
    pub seen: Vec<u64>,
    /// Accesses, and what each agent stood still for.
    pub counters: Vec<AgentCounters>,
    pub links: Vec<LinkCounters>,
    /// Of both nodes' snoop filters.
    pub filters: SnoopFilterCounters,
    pub operations: u64,
    pub events: u64,
}

/// Where everything lies.
#[derive(Clone, Debug)]
struct Places {
    shared: Vec<Address>,
    blocks: Vec<Address>,
    bytes: Vec<Address>,
    arrived: Address,
}

impl Places {
    fn new(plan: &Plan, layout: &mut Layout) -> Places {
        let agents = plan.agents.iter().sum::<usize>();
        let mut pages = [Home::Host, Home::Nic].map(|home| {
            let page = layout.add(&format!("{home:?}"), 4096 * 2, 64, home, SynchronisingWords::ALL);
            (0..128).map(move |line| page.lines(line))
        });
        let mut random = Random::new(plan.seed, 77);
        let mut take = |lines: u64| {
            let page = &mut pages[random.below(2) as usize];
            let first = page.next().expect("the pages have room");
            (1..lines).for_each(|_| _ = page.next());
            first
        };
        Places {
            shared: (0..plan.lines).map(|_| take(1)).collect(),
            blocks: (0..agents).map(|_| take(BLOCK_LINES)).collect(),
            bytes: (0..agents).map(|_| take(5)).collect(),
            arrived: take(1),
        }
    }
}

/// What the programs tell each other outside of the machine.
#[derive(Debug, Default)]
struct Told {
    added: u64,
    ends: Vec<(usize, u64, u64)>,
}

/// Runs a plan and checks everything that its programs read.
pub fn run(plan: &Plan, options: Options) -> Outcome {
    let mut layout = Layout::new();
    let places = Rc::new(Places::new(plan, &mut layout));
    let mut simulation = Simulation::new(&plan.parameters, &layout, options);
    simulation.set_limit(Time::from_nanoseconds(100_000_000));
    let told = Rc::new(RefCell::new(Told::default()));
    let agents = plan.agents.iter().sum::<usize>();
    let nodes = plan.agents.iter().enumerate().flat_map(|(node, &cores)| std::iter::repeat_n(node, cores));
    for (me, node) in nodes.enumerate() {
        let (plan, places, told) = (plan.clone(), Rc::clone(&places), Rc::clone(&told));
        let start = Time::from_picoseconds(Random::new(plan.seed, 50 + me as u64).below(200_000));
        simulation.core(&format!("agent {me}"), node, Role::Main, start, move |core| {
            let random = Random::new(plan.seed, me as u64);
            let lines = plan.lines as usize;
            let mut program = Program {
                core,
                places: &places,
                random,
                me,
                agents,
                seen: vec![[0; LINE_WORDS]; lines],
                loaded: vec![[0; LINE_WORDS]; lines],
                blocks: vec![[[0; LINE_WORDS]; BLOCK_LINES as usize]; agents],
                bytes: [0; SPAN],
                next: 0,
                bit: vec![false; lines],
                added: 0,
                digest: 0,
            };
            for _ in 0..plan.operations {
                program.step();
                program.note(core.now().picoseconds());
            }
            program.finish(&told);
        });
    }
    simulation.run().unwrap_or_else(|failure| panic!("seed {}: {failure}", plan.seed));
    let machine = simulation.machine().borrow();
    let mut told = told.borrow().ends.clone();
    told.sort_unstable();
    let mut filters = SnoopFilterCounters::default();
    let counted = machine.counted();
    counted.snoop_filters.iter().for_each(|filter| filters.add(&filter.counters));
    Outcome {
        ends: told.iter().map(|(_, end, _)| *end).collect(),
        seen: told.iter().map(|(_, _, digest)| *digest).collect(),
        counters: counted.agents.iter().map(|agent| agent.counters).collect(),
        links: (0..2).map(|node| machine.direction(node).counters()).collect(),
        filters,
        operations: machine.operations(),
        events: machine.events(),
    }
}

struct Program<'a> {
    core: &'a SimCore<'a>,
    places: &'a Places,
    random: Random,
    me: usize,
    agents: usize,
    /// The greatest value seen of each word of the shared lines.
    seen: Vec<[u64; LINE_WORDS]>,
    /// The last value of each that a load of the word gave.
    loaded: Vec<[u64; LINE_WORDS]>,
    /// And of the blocks.
    blocks: Vec<[[u64; LINE_WORDS]; BLOCK_LINES as usize]>,
    /// What is in the agent's own bytes.
    bytes: [u8; SPAN],
    /// The last value written.
    next: u64,
    /// The agent's bit in each shared line.
    bit: Vec<bool>,
    added: u64,
    digest: u64,
}

impl Program<'_> {
    fn note(&mut self, value: u64) {
        self.digest = (self.digest.rotate_left(7) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn step(&mut self) {
        let line = self.random.below(self.places.shared.len() as u64) as usize;
        let at = self.places.shared[line];
        match self.random.below(100) {
            0..22 => self.load(line),
            22..27 => {
                let whole = self.core.read_line(at);
                (0..BITS).for_each(|word| self.grew(line, word, whole.0[word]));
            }
            27..45 => {
                let value = self.fresh();
                self.seen[line][self.me] = value;
                match self.random.coin() {
                    true => self.core.store(at.word(self.me), value),
                    false => self.core.store_release(at.word(self.me), value),
                }
            }
            45..52 => self.add(line),
            52..59 => self.change_bit(line),
            59..62 => self.core.prefetch_read(at),
            62..65 => self.core.prefetch_write(at),
            65..67 => self.core.will_read(at, self.random.below(40) as u32),
            67 => self.peek(line),
            68..74 => self.write_block(),
            74..80 => self.read_block(),
            80..84 => self.write_bytes(),
            84..88 => self.read_bytes(),
            88..90 => self.core.full_fence(),
            90..94 => self.core.work(self.random.below(400) as u32),
            _ => self.poll(line),
        }
    }

    /// Nothing that was seen may be older than what this agent saw before; what it wrote itself is exact.
    fn check(&mut self, line: usize, word: usize, value: u64) {
        self.grew(line, word, value);
        self.loaded[line][word] = value;
        self.note(value);
    }

    /// The same for bulk data that others write meanwhile. Which of the values that a line has between the load's issue and its
    /// arrival comes depends on how far others are simulated ahead: it is held against the order of writes, and is no part of
    /// what a run is told apart by.
    fn grew(&mut self, line: usize, word: usize, value: u64) {
        let before = std::mem::replace(&mut self.seen[line][word], value);
        let me = self.me;
        assert!(value >= before, "agent {me} reads {value} in word {word} of line {line} after {before}");
        assert!(word != me || value == before, "agent {me} reads {value} where it wrote {before}");
    }

    fn load(&mut self, line: usize) {
        let word = self.random.below(self.agents as u64) as usize;
        let at = self.places.shared[line].word(word);
        let value = if self.random.coin() { self.core.load(at) } else { self.core.load_acquire(at) };
        self.check(line, word, value);
    }

    /// What a hint goes by is old, and never from the future; of its own stores it may lack those that are under way.
    fn peek(&mut self, line: usize) {
        let word = (self.me + 1) % self.agents;
        if let Some(value) = self.core.peek(self.places.shared[line].word(word)) {
            self.grew(line, word, value);
        }
    }

    fn add(&mut self, line: usize) {
        let at = self.places.shared[line].word(SUM);
        let mut current = self.core.load_acquire(at);
        while let Err(other) = self.core.compare_exchange(at, current, current + 1) {
            assert!(other > current, "a sum fell from {current} to {other}");
            current = other;
        }
        self.added += 1;
        self.note(current);
    }

    fn change_bit(&mut self, line: usize) {
        let (at, bit) = (self.places.shared[line].word(BITS), 1 << self.me);
        self.bit[line] = !self.bit[line];
        let before = if self.bit[line] { self.core.fetch_or(at, bit) } else { self.core.fetch_and(at, !bit) };
        assert_eq!(before & bit != 0, !self.bit[line], "agent {} finds its bit changed", self.me);
        self.note(before);
    }

    /// Writes a line of the agent's own block: at once, in the three parts in which a line is published, or past the caches.
    fn write_block(&mut self) {
        let value = self.fresh();
        let line = self.random.below(BLOCK_LINES);
        self.blocks[self.me][line as usize] = [value; LINE_WORDS];
        let at = self.places.blocks[self.me].lines(line);
        let line = Line([value; LINE_WORDS]);
        match self.random.below(4) {
            0 | 1 => self.core.write_line(at, &line),
            2 => self.core.publish_line(at, &line),
            _ => self.core.write_nontemporal(at, &[line]),
        }
        if self.random.below(4) == 0 {
            self.core.fence();
        }
    }

    fn read_block(&mut self) {
        let whose = self.random.below(self.agents as u64) as usize;
        let mut lines = [Line::ZERO; BLOCK_LINES as usize];
        self.core.read_lines(self.places.blocks[whose], &mut lines);
        for (line, words) in lines.iter().enumerate() {
            let before = std::mem::replace(&mut self.blocks[whose][line], words.0);
            let me = self.me;
            assert!(words.0.is_sorted(), "agent {me} reads {words:?}, which was written from the last word on");
            let grew = words.0.iter().zip(before).all(|(now, before)| *now >= before);
            assert!(grew, "agent {me} reads {words:?} after {before:?}");
            assert!(whose != me || words.0 == before, "agent {me} reads {words:?} where it wrote {before:?}");
            if whose == me {
                words.0.iter().for_each(|&word| self.note(word));
            }
        }
    }

    fn span(&mut self) -> (usize, usize) {
        let start = self.random.below(SPAN as u64) as usize;
        (start, 1 + self.random.below((SPAN - start) as u64) as usize)
    }

    fn write_bytes(&mut self) {
        let (start, count) = self.span();
        let value = self.fresh();
        let bytes: Vec<u8> = (0..count).map(|index| (value as usize * 7 + index) as u8).collect();
        self.bytes[start..start + count].copy_from_slice(&bytes);
        self.core.write_bytes(self.places.bytes[self.me] + start as u64, &bytes);
    }

    fn read_bytes(&mut self) {
        let (start, count) = self.span();
        let mut bytes = vec![0; count];
        self.core.read_bytes(self.places.bytes[self.me] + start as u64, &mut bytes);
        assert_eq!(bytes, self.bytes[start..start + count], "agent {} reads its bytes from {start}", self.me);
    }

    /// Polls another's word for a while, until it changes.
    fn poll(&mut self, line: usize) {
        let word = (self.me + 1) % self.agents;
        let at = self.places.shared[line].word(word);
        let until = Time::from_picoseconds(self.core.now().picoseconds() + 1 + self.random.below(3_000_000));
        let before = self.loaded[line][word];
        let work = self.random.below(3) as u32 * 20;
        while self.core.now() < until {
            let value = self.core.load_acquire(at);
            if value != before {
                return self.check(line, word, value);
            }
            self.core.work(work);
            self.core.spin_until(until);
        }
    }

    /// Waits until all programs are here, and holds the memory against what all have done.
    fn finish(&mut self, told: &RefCell<Told>) {
        told.borrow_mut().added += self.added;
        let all = (1 << self.agents) - 1;
        self.core.fetch_or(self.places.arrived, 1 << self.me);
        while self.core.load_acquire(self.places.arrived) != all {
            self.core.spin();
        }
        let sum: u64 = self.places.shared.iter().map(|&line| self.core.load(line.word(SUM))).sum();
        assert_eq!(sum, told.borrow().added, "the sum of all that was added");
        for line in 0..self.places.shared.len() {
            for word in 0..self.agents {
                let value = self.core.load(self.places.shared[line].word(word));
                self.check(line, word, value);
            }
        }
        // What prefetchers have asked for comes meanwhile: it counts in every run, or in none.
        self.core.work(30_000);
        self.core.load_acquire(self.places.arrived);
        let end = self.core.now().picoseconds();
        told.borrow_mut().ends.push((self.me, end, self.digest));
    }
}
