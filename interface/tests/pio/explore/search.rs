//! The search: every state, what holds in each, and whether every exchange comes to its end.

use conic_check::Visited;
use conic_sim::protocol::homed::{Copy, Recall, ToHome};

use super::mutation::Mutation;
use super::state::{Kind, Setting, State};
use super::step::{Change, Step, steps};

/// What a search found when nothing was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// States.
    pub states: usize,
    /// Steps from one state to another.
    pub steps: usize,
    /// Steps that complete an exchange.
    pub completions: usize,
}

/// A step from one state to another, for the look for runs without an end.
struct Edge {
    to: u32,
    fairness: u16,
    complete: bool,
}

struct Search<'a> {
    setting: &'a Setting,
    mutation: Mutation,
    visited: Visited<State, Step>,
    /// Where each state's edges end.
    ends: Vec<u32>,
    edges: Vec<Edge>,
    /// The fair steps that each state allows.
    fair: Vec<u16>,
}

/// Visits every state; says how a wrong one is reached, if one is.
pub fn explore(setting: &Setting, mutation: Mutation) -> Result<Explored, String> {
    let mut search = Search {
        setting,
        mutation,
        visited: Visited::new(folded(State::new(setting))),
        ends: Vec::new(),
        edges: Vec::new(),
        fair: Vec::new(),
    };
    search.run()
}

/// A state as it is told apart from others: turns count without end, and what matters is which of a few they are.
fn folded(mut state: State) -> State {
    state.tidy();
    state.exchange = state.exchange.with_turns_modulo(4);
    state.timers.iter_mut().flatten().for_each(|turn| *turn %= 4);
    state
}

/// What holds in every state.
pub fn check(setting: &Setting, state: &State) -> Result<(), String> {
    let held = |line: u16| state.cached[usize::from(line)].copy != Copy::Invalid;
    for index in 0..setting.plan.group {
        let [a, b] = [0, 1].map(|group| setting.plan.line(group, index));
        if held(a) && held(b) {
            return Err(format!("lines {a} and {b} are both valid in the CPU's cache"));
        }
    }
    for (line, (cached, entry)) in state.cached.iter().zip(&state.entries).enumerate() {
        let permitted = match entry.granted {
            None => Copy::Invalid,
            Some(false) => Copy::Shared,
            Some(true) => Copy::Modified,
        };
        if cached.copy > permitted {
            return Err(format!("the cache has line {line} {:?}, and the directory {entry:?}", cached.copy));
        }
        // A recall that is done takes a victim with it: none may come later and be taken for another's.
        let victim = |message: &super::state::Message| {
            usize::from(message.line) == line && matches!(message.kind, Kind::ToHome(ToHome::Victim { .. }))
        };
        if entry.recall == Recall::Locked && state.messages.iter().any(victim) {
            return Err(format!("a recall of line {line} is done before its victim has come"));
        }
    }
    Ok(())
}

impl Search<'_> {
    fn run(&mut self) -> Result<Explored, String> {
        let (mut at, mut possible) = (0, Vec::new());
        while let Some(state) = self.visited.take() {
            possible.clear();
            steps(self.setting, self.mutation, &state, &mut possible);
            let fair = possible.iter().fold(0, |sum, step| sum | step.fairness(&state));
            if fair == 0 {
                return Err(self.visited.tell(at, None, "deadlock: nothing will happen any more", &state));
            }
            self.fair.push(fair);
            for &step in &possible {
                let mut after = state.clone();
                let mut change =
                    Change { setting: self.setting, mutation: self.mutation, state: &mut after, complete: false };
                let taken = change.take(step);
                let complete = change.complete;
                let taken = taken.and_then(|()| check(self.setting, &after));
                taken.map_err(|fault| self.visited.tell(at, Some(step), &fault, &after))?;
                let to = self.visited.visit(folded(after), at, step);
                self.edges.push(Edge { to, fairness: step.fairness(&state), complete });
            }
            self.ends.push(self.edges.len() as u32);
            at += 1;
        }
        self.look_for_endless_runs()?;
        let completions = self.edges.iter().filter(|edge| edge.complete).count();
        Ok(Explored { states: self.visited.states(), steps: self.edges.len(), completions })
    }

    fn edges_of(&self, state: u32) -> &[Edge] {
        let start = if state == 0 { 0 } else { self.ends[state as usize - 1] };
        &self.edges[start as usize..self.ends[state as usize] as usize]
    }

    /// Looks for a run that never completes an exchange, though everything that may happen again and again without end
    /// also happens (weak fairness): a strongly connected part of the graph without the completing steps in which each
    /// fair step is taken or, in some state, not possible.
    fn look_for_endless_runs(&self) -> Result<(), String> {
        for part in components(self.visited.states() as u32, |state| {
            self.edges_of(state).iter().filter(|edge| !edge.complete).map(|edge| edge.to)
        }) {
            let members: std::collections::BTreeSet<u32> = part.iter().copied().collect();
            let (mut taken, mut always, mut inner) = (0, u16::MAX, 0);
            for &state in &part {
                always &= self.fair[state as usize];
                for edge in self.edges_of(state).iter().filter(|edge| !edge.complete && members.contains(&edge.to)) {
                    taken |= edge.fairness;
                    inner += 1;
                }
            }
            if inner > 0 && always & !taken == 0 {
                let way = self.visited.way(part[0]);
                return Err(format!(
                    "endless: {} states go round without completing an exchange, after\n{way}",
                    part.len()
                ));
            }
        }
        Ok(())
    }
}

/// The strongly connected components of a graph (Tarjan's algorithm, without recursion).
fn components<I: Iterator<Item = u32>>(count: u32, successors: impl Fn(u32) -> I) -> Vec<Vec<u32>> {
    const UNSEEN: u32 = u32::MAX;
    let mut index = vec![UNSEEN; count as usize];
    let mut low = vec![0; count as usize];
    let mut on_stack = vec![false; count as usize];
    let (mut next, mut stack, mut parts) = (0, Vec::new(), Vec::new());
    for root in 0..count {
        if index[root as usize] != UNSEEN {
            continue;
        }
        let mut calls = vec![(root, successors(root))];
        while let Some((state, rest)) = calls.last_mut() {
            let at = *state as usize;
            if index[at] == UNSEEN {
                (index[at], low[at]) = (next, next);
                next += 1;
                stack.push(*state);
                on_stack[at] = true;
            }
            match rest.next() {
                Some(to) if index[to as usize] == UNSEEN => calls.push((to, successors(to))),
                Some(to) if on_stack[to as usize] => low[at] = low[at].min(index[to as usize]),
                Some(_) => {}
                None => {
                    if low[at] == index[at] {
                        let start =
                            stack.iter().rposition(|&member| member as usize == at).expect("it is on the stack");
                        let part = stack.split_off(start);
                        part.iter().for_each(|&member| on_stack[member as usize] = false);
                        parts.push(part);
                    }
                    calls.pop();
                    if let Some((caller, _)) = calls.last() {
                        let caller = *caller as usize;
                        low[caller] = low[caller].min(low[at]);
                    }
                }
            }
        }
    }
    parts
}
