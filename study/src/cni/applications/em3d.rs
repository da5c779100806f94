//! Wave propagation: the values of one half of a bipartite graph from those of the other, in turn.

use std::collections::BTreeMap;

use conic_sim::draws::Draws;

use super::{Messenger, Parallel};

/// Edges of each node, and of those that go to another machine, in percent (Table 3).
const DEGREE: u64 = 5;
const REMOTE_PERCENT: u64 = 10;
/// How many machines away a remote neighbour is, at most.
const SPAN: u64 = 6;
/// Cycles for an edge: two loads, a multiplication, a subtraction.
const EDGE_WORK: u64 = 8;

/// A node of the graph: which machine has it, and its place there among those of its half.
type Place = (usize, usize);

/// The graph.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    machines: usize,
    /// Nodes of each half on each machine.
    nodes: usize,
    iterations: u32,
    /// The neighbours of each node in the other half, by half, machine and place.
    neighbours: [Vec<Vec<Vec<Place>>>; 2],
}

impl Graph {
    /// 1024 nodes and 10 iterations, or 2 of them.
    pub(super) fn new(machines: usize, whole: bool) -> Graph {
        let nodes = 1024 / 2 / machines;
        let mut draws = Draws::new(7);
        let mut neighbour = |machine: usize| {
            let far = if draws.below(100) < REMOTE_PERCENT { 1 + draws.below(SPAN) } else { 0 };
            let signed = if draws.below(2) == 0 { far as usize } else { machines - far as usize % machines };
            ((machine + signed) % machines, draws.below(nodes as u64) as usize)
        };
        let neighbours = [0, 1].map(|_| {
            let of_machine = |machine| (0..nodes).map(|_| (0..DEGREE).map(|_| neighbour(machine)).collect()).collect();
            (0..machines).map(of_machine).collect()
        });
        Graph { machines, nodes, iterations: if whole { 10 } else { 2 }, neighbours }
    }

    /// What a node begins with.
    fn start(half: usize, (machine, place): Place) -> u32 {
        ((half * 4096 + machine * 128 + place) as u32).wrapping_mul(2_654_435_761)
    }

    /// The new value of a node from those of its neighbours.
    fn value(old: u32, neighbours: impl Iterator<Item = u32>) -> u32 {
        neighbours.enumerate().fold(old, |sum, (at, value)| sum.wrapping_sub(value.wrapping_mul(2 * at as u32 + 3)))
    }

    /// Edges over which a node's value goes to a machine's nodes of the other half: each is a message.
    fn consumers(&self, half: usize, from: Place) -> Vec<usize> {
        let other = &self.neighbours[1 - half];
        let of = |machine: usize| {
            let edges = other[machine].iter().flatten().filter(|neighbour| **neighbour == from).count();
            std::iter::repeat_n(machine, edges)
        };
        (0..self.machines).filter(|machine| *machine != from.0).flat_map(of).collect()
    }

    /// Messages that a machine gets in a phase in which the nodes of `half` have new values.
    fn expected_updates(&self, half: usize, machine: usize) -> usize {
        self.neighbours[1 - half][machine].iter().flatten().filter(|(owner, _)| *owner != machine).count()
    }
}

/// What a machine knows of the graph's values.
struct Known {
    own: [Vec<u32>; 2],
    remote: [BTreeMap<Place, u32>; 2],
}

impl Known {
    fn of(&self, half: usize, here: usize, place: Place) -> u32 {
        if place.0 == here { self.own[half][place.1] } else { self.remote[half][&place] }
    }
}

impl Parallel for Graph {
    fn part(&self, node: &mut Messenger<'_>) -> Vec<u32> {
        let here = node.node();
        let own = [0, 1].map(|half| (0..self.nodes).map(|place| Graph::start(half, (here, place))).collect());
        let mut known = Known { own, remote: [BTreeMap::new(), BTreeMap::new()] };
        for half in 0..2 {
            let remote = self.neighbours[1 - half][here].iter().flatten().filter(|place| place.0 != here);
            known.remote[half] = remote.map(|place| (*place, Graph::start(half, *place))).collect();
        }
        let consumers = [0, 1].map(|half| -> Vec<Vec<usize>> {
            (0..self.nodes).map(|place| self.consumers(half, (here, place))).collect()
        });
        // Updates by phase: who is ahead sends those of a later one.
        let mut arrived: BTreeMap<u32, Vec<(Place, u32)>> = BTreeMap::new();
        for phase in 0..2 * self.iterations {
            let half = phase as usize % 2;
            for place in 0..self.nodes {
                let neighbours = &self.neighbours[half][here][place];
                let values = neighbours.iter().map(|neighbour| known.of(1 - half, here, *neighbour));
                known.own[half][place] = Graph::value(known.own[half][place], values);
                node.work(EDGE_WORK * DEGREE);
            }
            for (place, consumers) in consumers[half].iter().enumerate() {
                for to in consumers {
                    node.send(*to, &[phase, place as u32, known.own[half][place]]);
                }
            }
            let wanted = self.expected_updates(half, here);
            while arrived.get(&phase).map_or(0, Vec::len) < wanted {
                let (from, words) = node.next();
                arrived.entry(words[0]).or_default().push(((from, words[1] as usize), words[2]));
            }
            known.remote[half].extend(arrived.remove(&phase).unwrap_or_default());
        }
        known.own.concat()
    }

    fn expected(&self) -> Vec<Vec<u32>> {
        let mut values = [0, 1].map(|half| -> Vec<Vec<u32>> {
            let of = |machine| (0..self.nodes).map(|place| Graph::start(half, (machine, place))).collect();
            (0..self.machines).map(of).collect()
        });
        for phase in 0..2 * self.iterations {
            let half = phase as usize % 2;
            let other = values[1 - half].clone();
            for (machine, nodes) in values[half].iter_mut().enumerate() {
                for (place, value) in nodes.iter_mut().enumerate() {
                    let neighbours = self.neighbours[half][machine][place].iter();
                    *value = Graph::value(*value, neighbours.map(|(owner, at)| other[*owner][*at]));
                }
            }
        }
        let of = |machine: usize| values.iter().flat_map(|half| half[machine].clone()).collect();
        (0..self.machines).map(of).collect()
    }
}
