//! The search.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

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

/// A state's fingerprint: two states have the same with a chance of 2 to the power of -128.
fn fingerprint(state: &State) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, state).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

/// Nothing arrives after a state: it is at rest.
const AT_REST: u32 = u32::MAX;

struct Search<'a> {
    setting: &'a Setting,
    mutation: Mutation,
    numbers: BTreeMap<u128, u32>,
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
            deliveries(self.setting, &state, &mut steps);
            let delivered = steps.len();
            at_rest += usize::from(delivered == 0);
            initiatives(self.setting, &state, &mut steps);
            for (index, &step) in steps.iter().enumerate() {
                let mut after = state.clone();
                let mut change = Change { setting: self.setting, mutation: self.mutation, state: &mut after };
                let taken = change.take(step).and_then(|()| invariants::check(&after));
                taken.map_err(|fault| self.tell(at, step, &fault, &after))?;
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
    fn tell(&self, before: u32, step: Step, fault: &str, state: &State) -> String {
        let mut way = vec![step];
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
