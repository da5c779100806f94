//! The search.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::invariants;
use super::mutation::Mutation;
use super::state::{Setting, State};
use super::step::{Change, Step, deliveries, initiatives};

/// What a search found when nothing was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// States.
    pub states: usize,
    /// Steps from one state to another.
    pub steps: usize,
    /// States in which nothing is under way.
    pub at_rest: usize,
    /// Most messages that have to arrive until everything is at rest, if nobody does anything new.
    pub longest_way_to_rest: u32,
}

/// A state's fingerprint, of 128 bits: that two of some million states have the same is out of the question.
#[derive(Default)]
struct Fingerprint([u64; 2]);

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.0[0]
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }
    fn write_u64(&mut self, word: u64) {
        const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9];
        for (half, factor) in self.0.iter_mut().zip(FACTORS) {
            let product = u128::from(*half ^ word ^ !factor) * u128::from(factor);
            *half = (product >> 64) as u64 ^ product as u64;
        }
    }
    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }
    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

fn fingerprint(state: &State) -> [u64; 2] {
    let mut fingerprint = Fingerprint::default();
    state.hash(&mut fingerprint);
    fingerprint.0
}

/// Nothing arrives after a state: it is at rest.
const AT_REST: u32 = u32::MAX;

struct Search<'a> {
    setting: &'a Setting,
    mutation: Mutation,
    numbers: BTreeMap<[u64; 2], u32>,
    /// How each state was reached first.
    reached: Vec<(u32, Step)>,
    /// The state after each, if the first message that may arrive does.
    then: Vec<u32>,
    frontier: VecDeque<State>,
}

/// Visits every state; says how a wrong one is reached, if one is.
pub fn explore(setting: &Setting, mutation: Mutation) -> Result<Explored, String> {
    let mut search = Search {
        setting,
        mutation,
        numbers: BTreeMap::new(),
        reached: Vec::new(),
        then: Vec::new(),
        frontier: VecDeque::new(),
    };
    search.visit(State::new(setting), (0, Step::EvictLastLevel(0)));
    search.run()
}

impl Search<'_> {
    fn run(&mut self) -> Result<Explored, String> {
        let (mut at, mut count, mut at_rest) = (0, 0, 0);
        let mut steps = Vec::new();
        while let Some(state) = self.frontier.pop_front() {
            steps.clear();
            deliveries(self.mutation, &state, &mut steps);
            let delivered = steps.len();
            if delivered == 0 && !state.is_silent() {
                return Err(self.tell(at, None, "messages are on their way, and none can arrive", &state));
            }
            at_rest += usize::from(delivered == 0);
            initiatives(self.setting, self.mutation, &state, &mut steps);
            for (index, &step) in steps.iter().enumerate() {
                let mut after = state.clone();
                let mut change = Change { setting: self.setting, mutation: self.mutation, state: &mut after };
                // The protocol's own assertions find faults too; the way to them must be told.
                let taken = catch_unwind(AssertUnwindSafe(|| change.take(step)))
                    .unwrap_or_else(|_| Err("the protocol has stopped with a panic".to_owned()))
                    .and_then(|()| invariants::check(&after));
                taken.map_err(|fault| self.tell(at, Some(step), &fault, &after))?;
                let number = self.visit(after, (at, step));
                if index == 0 && delivered > 0 {
                    self.then[at as usize] = number;
                }
            }
            count += steps.len();
            at += 1;
        }
        Ok(Explored {
            states: self.reached.len(),
            steps: count,
            at_rest,
            longest_way_to_rest: self.longest_way_to_rest()?,
        })
    }

    /// The number of a state; a new one is looked at later.
    fn visit(&mut self, state: State, reached: (u32, Step)) -> u32 {
        let new = self.reached.len() as u32;
        let number = *self.numbers.entry(fingerprint(&state)).or_insert(new);
        if number == new {
            self.reached.push(reached);
            self.then.push(AT_REST);
            self.frontier.push_back(state);
        }
        number
    }

    /// How a fault is reached.
    fn tell(&self, before: u32, step: Option<Step>, fault: &str, state: &State) -> String {
        let mut way = Vec::from_iter(step);
        let mut at = before;
        while at != 0 {
            let (before, step) = self.reached[at as usize];
            way.push(step);
            at = before;
        }
        way.reverse();
        let way: Vec<String> = way.iter().map(|step| format!("  {step:?}")).collect();
        format!("{fault}\nafter\n{}\n{state:#?}", way.join("\n"))
    }

    /// Follows each state's first message to where nothing is on its way any more.
    fn longest_way_to_rest(&self) -> Result<u32, String> {
        const UNKNOWN: u32 = u32::MAX;
        const ON_THE_WAY: u32 = u32::MAX - 1;
        let mut ways = vec![UNKNOWN; self.then.len()];
        let mut longest = 0;
        for start in 0..self.then.len() {
            let (mut at, mut path) = (start, Vec::new());
            let mut way = loop {
                match (ways[at], self.then[at]) {
                    (UNKNOWN, AT_REST) => {
                        ways[at] = 0;
                        break 0;
                    }
                    (UNKNOWN, next) => {
                        ways[at] = ON_THE_WAY;
                        path.push(at);
                        at = next as usize;
                    }
                    (ON_THE_WAY, _) => return Err(format!("messages go on for ever from state {start}")),
                    (known, _) => break known,
                }
            };
            while let Some(before) = path.pop() {
                way += 1;
                ways[before] = way;
            }
            longest = longest.max(way);
        }
        Ok(longest)
    }
}
