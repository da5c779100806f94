//! The search: every state, what holds in each, and whether every exchange comes to its end.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

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

/// A state's fingerprint, of 128 bits: that two of some million states have the same is out of the question.
#[derive(Default)]
struct Fingerprint([u64; 2]);

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.0[0]
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u64(&mut self, word: u64) {
        const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9];
        for (half, factor) in self.0.iter_mut().zip(FACTORS) {
            let product = u128::from(*half ^ word ^ !factor) * u128::from(factor);
            *half = (product >> 64) as u64 ^ product as u64;
        }
    }
}

fn fingerprint(state: &State) -> [u64; 2] {
    let mut fingerprint = Fingerprint::default();
    state.hash(&mut fingerprint);
    fingerprint.0
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
    numbers: BTreeMap<[u64; 2], u32>,
    /// How each state was reached first.
    reached: Vec<(u32, Step)>,
    /// Where each state's edges end.
    ends: Vec<u32>,
    edges: Vec<Edge>,
    /// The fair steps that each state allows.
    fair: Vec<u16>,
    frontier: VecDeque<State>,
}

/// Visits every state; says how a wrong one is reached, if one is.
pub fn explore(setting: &Setting, mutation: Mutation) -> Result<Explored, String> {
    let mut search = Search {
        setting,
        mutation,
        numbers: BTreeMap::new(),
        reached: Vec::new(),
        ends: Vec::new(),
        edges: Vec::new(),
        fair: Vec::new(),
        frontier: VecDeque::new(),
    };
    search.visit(State::new(setting), (0, Step::Cpu));
    search.run()
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
        while let Some(state) = self.frontier.pop_front() {
            possible.clear();
            steps(self.setting, self.mutation, &state, &mut possible);
            let fair = possible.iter().fold(0, |sum, step| sum | step.fairness(&state));
            if fair == 0 {
                return Err(self.tell(at, None, "deadlock: nothing will happen any more", &state));
            }
            self.fair.push(fair);
            for &step in &possible {
                let mut after = state.clone();
                let mut change =
                    Change { setting: self.setting, mutation: self.mutation, state: &mut after, complete: false };
                let taken = change.take(step);
                let complete = change.complete;
                let taken = taken.and_then(|()| check(self.setting, &after));
                taken.map_err(|fault| self.tell(at, Some(step), &fault, &after))?;
                let to = self.visit(after, (at, step));
                self.edges.push(Edge { to, fairness: step.fairness(&state), complete });
            }
            self.ends.push(self.edges.len() as u32);
            at += 1;
        }
        self.look_for_endless_runs()?;
        let completions = self.edges.iter().filter(|edge| edge.complete).count();
        Ok(Explored { states: self.reached.len(), steps: self.edges.len(), completions })
    }

    /// The number of a state; a new one is looked at later.
    fn visit(&mut self, mut state: State, reached: (u32, Step)) -> u32 {
        state.tidy();
        state.exchange = state.exchange.with_turns_modulo(4);
        state.timers.iter_mut().flatten().for_each(|turn| *turn %= 4);
        let new = self.reached.len() as u32;
        let number = *self.numbers.entry(fingerprint(&state)).or_insert(new);
        if number == new {
            self.reached.push(reached);
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

    fn edges_of(&self, state: u32) -> &[Edge] {
        let start = if state == 0 { 0 } else { self.ends[state as usize - 1] };
        &self.edges[start as usize..self.ends[state as usize] as usize]
    }

    /// Looks for a run that never completes an exchange, though everything that may happen again and again without end
    /// also happens (weak fairness): a strongly connected part of the graph without the completing steps in which each
    /// fair step is taken or, in some state, not possible.
    fn look_for_endless_runs(&self) -> Result<(), String> {
        for part in components(self.reached.len() as u32, |state| {
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
                let way = self.tell_way(part[0]);
                return Err(format!(
                    "endless: {} states go round without completing an exchange, after\n{way}",
                    part.len()
                ));
            }
        }
        Ok(())
    }

    fn tell_way(&self, mut at: u32) -> String {
        let mut way = Vec::new();
        while at != 0 {
            let (before, step) = self.reached[at as usize];
            way.push(format!("  {step:?}"));
            at = before;
        }
        way.reverse();
        way.join("\n")
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
