//! Sums down a directed acyclic graph, each in an active message's handler.

use conic_sim::draws::Draws;

use super::{Messenger, Parallel};

/// What the handler works for a value that comes: one double-word addition (section 4.2), and to find where it belongs.
const HANDLER_WORK: u64 = 12;

/// Nodes of the graph in order: edges go from lower to higher numbers.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    machines: usize,
    /// Where each node's sum goes.
    edges: Vec<Vec<usize>>,
    /// How many sums come to each.
    awaited: Vec<u32>,
}

impl Graph {
    /// Of the paper's 3720 elements, or a tenth.
    pub(super) fn new(machines: usize, whole: bool) -> Graph {
        let elements = if whole { 3720 } else { 372 };
        let mut draws = Draws::new(11);
        let mut graph = Graph { machines, edges: vec![Vec::new(); elements], awaited: vec![0; elements] };
        // Rows of a sparse matrix: two or three elements left of the diagonal, mostly near it.
        for to in 1..elements {
            for _ in 0..2 + draws.below(2) {
                let from = to - 1 - draws.below((to as u64).min(64)) as usize;
                graph.edges[from].push(to);
                graph.awaited[to] += 1;
            }
        }
        graph
    }

    /// Neighbours in the matrix are on different machines.
    fn owner(&self, element: usize) -> usize {
        element % self.machines
    }

    /// Each element's own part of its sum.
    fn own(element: usize) -> u32 {
        (element as u32).wrapping_mul(2_654_435_761) >> 8
    }
}

impl Parallel for Graph {
    fn part(&self, node: &mut Messenger<'_>) -> Vec<u32> {
        let here = node.node();
        let mut awaited = self.awaited.clone();
        let mut sums: Vec<u32> = (0..self.edges.len()).map(Graph::own).collect();
        let mine: Vec<usize> = (0..self.edges.len()).filter(|element| self.owner(*element) == here).collect();
        let mut ready: Vec<usize> = mine.iter().copied().filter(|element| awaited[*element] == 0).collect();
        let mut done = 0;
        while done < mine.len() {
            while let Some(element) = ready.pop() {
                done += 1;
                for to in &self.edges[element] {
                    if self.owner(*to) == here {
                        node.work(HANDLER_WORK);
                        sums[*to] = sums[*to].wrapping_add(sums[element]);
                        awaited[*to] -= 1;
                        ready.extend((awaited[*to] == 0).then_some(*to));
                    } else {
                        node.send(self.owner(*to), &[*to as u32, sums[element], 0]);
                    }
                }
            }
            if done < mine.len() {
                let (_, words) = node.next();
                node.work(HANDLER_WORK);
                let to = words[0] as usize;
                sums[to] = sums[to].wrapping_add(words[1]);
                awaited[to] -= 1;
                ready.extend((awaited[to] == 0).then_some(to));
            }
        }
        mine.into_iter().map(|element| sums[element]).collect()
    }

    fn expected(&self) -> Vec<Vec<u32>> {
        let mut sums: Vec<u32> = (0..self.edges.len()).map(Graph::own).collect();
        for element in 0..self.edges.len() {
            for to in &self.edges[element] {
                sums[*to] = sums[*to].wrapping_add(sums[element]);
            }
        }
        let of = |machine| sums.iter().skip(machine).step_by(self.machines).copied().collect();
        (0..self.machines).map(of).collect()
    }
}
