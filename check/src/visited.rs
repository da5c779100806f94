//! What an exhaustive exploration of a transition function keeps: which states it has seen, how each was reached first, and
//! what is still to be looked at, breadth first.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

/// The states that a search has met, numbered in the order in which it met them: the first is 0, and the shortest way to
/// each is known.
///
/// A state is kept as a fingerprint of 128 bits once it has been looked at, so that some ten million fit into memory: that
/// two of them have the same fingerprint is out of the question.
pub struct Visited<State, Step> {
    numbers: BTreeMap<[u64; 2], u32>,
    /// The state before each and the step from there; the first state's own is never read.
    reached: Vec<Option<(u32, Step)>>,
    frontier: VecDeque<State>,
}

impl<State: Hash + Debug, Step: Copy + Debug> Visited<State, Step> {
    /// A search that begins in `start`, number 0.
    pub fn new(start: State) -> Visited<State, Step> {
        let mut visited = Visited { numbers: BTreeMap::new(), reached: Vec::new(), frontier: VecDeque::new() };
        visited.meet(start, None);
        visited
    }

    /// How many states there are.
    pub fn states(&self) -> usize {
        self.reached.len()
    }

    /// The next state to look at; they come in the order of their numbers.
    pub fn take(&mut self) -> Option<State> {
        self.frontier.pop_front()
    }

    /// The number of a state that `step` leads to from the state `before`; a new one is looked at later.
    pub fn visit(&mut self, state: State, before: u32, step: Step) -> u32 {
        self.meet(state, Some((before, step)))
    }

    fn meet(&mut self, state: State, reached: Option<(u32, Step)>) -> u32 {
        let new = self.reached.len() as u32;
        let number = *self.numbers.entry(fingerprint(&state)).or_insert(new);
        if number == new {
            self.reached.push(reached);
            self.frontier.push_back(state);
        }
        number
    }

    /// The steps from the first state to number `at`, a line each.
    pub fn way(&self, mut at: u32) -> String {
        let mut way = Vec::new();
        while let Some((before, step)) = self.reached[at as usize] {
            way.push(format!("  {step:?}"));
            at = before;
        }
        way.reverse();
        way.join("\n")
    }

    /// How a fault is reached: by the way to `before`, and then by `step`.
    pub fn tell(&self, before: u32, step: Option<Step>, fault: &str, state: &State) -> String {
        let last = step.map_or(String::new(), |step| format!("\n  {step:?}"));
        format!("{fault}\nafter\n{}{last}\n{state:#?}", self.way(before))
    }
}

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

fn fingerprint<State: Hash>(state: &State) -> [u64; 2] {
    let mut fingerprint = Fingerprint::default();
    state.hash(&mut fingerprint);
    fingerprint.0
}

#[cfg(test)]
mod tests {
    use super::Visited;

    /// Every state of a counter modulo 7 to which 2 or 3 may be added.
    #[test]
    fn every_state_is_met_once_and_by_its_shortest_way() {
        let mut visited = Visited::new(0_u32);
        let mut looked = Vec::new();
        while let Some(state) = visited.take() {
            let at = looked.len() as u32;
            looked.push(state);
            for step in [2, 3] {
                visited.visit((state + step) % 7, at, step);
            }
        }
        assert_eq!(looked, [0, 2, 3, 4, 5, 6, 1]);
        assert_eq!(visited.states(), 7);
        assert_eq!(visited.way(6), "  2\n  3\n  3");
        assert_eq!(visited.tell(2, Some(2), "odd", &5), "odd\nafter\n  3\n  2\n5");
    }

    #[test]
    fn states_that_differ_in_any_one_field_are_different() {
        let mut visited = Visited::new((0_u8, 0_u16, 0_u64, false));
        for state in [(1, 0, 0, false), (0, 1, 0, false), (0, 0, 1, false), (0, 0, 0, true), (0, 256, 0, false)] {
            visited.visit(state, 0, ());
        }
        assert_eq!(visited.states(), 6);
    }
}
