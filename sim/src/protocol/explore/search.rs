//! The search.

use std::panic::{AssertUnwindSafe, catch_unwind};

use conic_check::Visited;

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

/// Nothing arrives after a state: it is at rest.
const AT_REST: u32 = u32::MAX;

struct Search<'a> {
    setting: &'a Setting,
    mutation: Mutation,
    visited: Visited<State, Step>,
    /// The state after each, if the first message that may arrive does.
    then: Vec<u32>,
}

/// Visits every state; says how a wrong one is reached, if one is.
pub fn explore(setting: &Setting, mutation: Mutation) -> Result<Explored, String> {
    let mut search = Search { setting, mutation, visited: Visited::new(State::new(setting)), then: vec![AT_REST] };
    search.run()
}

impl Search<'_> {
    fn run(&mut self) -> Result<Explored, String> {
        let (mut at, mut count, mut at_rest) = (0, 0, 0);
        let mut steps = Vec::new();
        while let Some(state) = self.visited.take() {
            steps.clear();
            deliveries(self.setting, self.mutation, &state, &mut steps);
            let delivered = steps.len();
            if delivered == 0 && !state.is_silent() {
                return Err(self.visited.tell(at, None, "messages are on their way, and none can arrive", &state));
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
                taken.map_err(|fault| self.visited.tell(at, Some(step), &fault, &after))?;
                let number = self.visited.visit(after, at, step);
                self.then.resize(self.visited.states(), AT_REST);
                if index == 0 && delivered > 0 {
                    self.then[at as usize] = number;
                }
            }
            count += steps.len();
            at += 1;
        }
        Ok(Explored {
            states: self.visited.states(),
            steps: count,
            at_rest,
            longest_way_to_rest: self.longest_way_to_rest()?,
        })
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
