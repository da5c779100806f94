//! Molecular dynamics: the forces between particles within a cutoff, added up over all nodes by a bulk reduction.
//!
//! A node has an equal part of the particles. It works out the forces of the pairs whose first particle is its own, on all particles; then
//! everybody's forces on each particle are added up, and the node moves its own.
//!
//! | phase | what a node sends, always to the same neighbour |
//! |---|---|
//! | reduction | in as many rounds as there are nodes: a part's forces so far, to which the neighbour adds its own; the last brings a part's sum to whose it is |
//! | places | in one round less: a part's new places, on and on |
//!
//! A part's forces, and its places, are 1.5 kilobytes: 128 particles, three words each. The paper says as much of the reduction (section
//! 4.2), and of how places get around nothing; here they go the same way. Forces are integers, so that their sum is that of one place.

mod particles;

use super::{Messenger, Parallel};
use particles::{Force, Liquid, Pairs, Vector};

/// Steps after which the list of pairs is made anew.
const LIST_STEPS: u32 = 10;
/// Cycles for a pair that is looked at for the list, and for one that is listed: differences and a square; the force, with a division.
const LOOK_WORK: u64 = 12;
const PAIR_WORK: u64 = 50;
/// Cycles to add a word to another, and to move a particle.
const ADD_WORK: u64 = 4;
const MOVE_WORK: u64 = 40;

/// The particles, and how long they move.
#[derive(Clone, Debug)]
pub(super) struct Dynamics {
    machines: usize,
    liquid: Liquid,
    steps: u32,
}

impl Dynamics {
    /// The paper's 2048 particles and 30 steps, or 256 and 2.
    pub(super) fn new(machines: usize, whole: bool) -> Dynamics {
        let (count, steps) = if whole { (2048, 30) } else { (256, 2) };
        Dynamics { machines, liquid: Liquid::new(count), steps }
    }

    /// The particles of a part.
    fn part_of(&self, part: usize) -> std::ops::Range<usize> {
        let each = self.liquid.count / self.machines;
        part * each..(part + 1) * each
    }

    /// Sends words to the next node, and receives as many from the one before.
    fn pass_on(&self, node: &mut Messenger<'_>, words: &[u32]) -> Vec<u32> {
        let before = (node.node() + self.machines - 1) % self.machines;
        node.send((node.node() + 1) % self.machines, words);
        let mut received = Vec::new();
        while received.len() < words.len() {
            let (from, part) = node.next();
            assert_eq!(from, before, "messages go round");
            received.extend(part);
        }
        assert_eq!(received.len(), words.len(), "whole parts");
        received
    }

    /// Adds everybody's forces; a node has the sums of its own particles afterwards.
    fn reduce(&self, node: &mut Messenger<'_>, forces: &mut [Force]) {
        for round in 0..self.machines {
            // A part begins where it belongs, and comes back there.
            let part = |round| self.part_of((node.node() + 2 * self.machines - round) % self.machines);
            let (sent, comes) = (part(round), part(round + 1));
            let words: Vec<u32> = forces[sent].as_flattened().iter().map(|word| *word as u32).collect();
            let received = self.pass_on(node, &words);
            let sums = forces[comes].as_flattened_mut();
            let is_whole = round + 1 == self.machines;
            for (sum, word) in sums.iter_mut().zip(received) {
                *sum = if is_whole { word as i32 } else { sum.wrapping_add(word as i32) };
            }
            node.work(ADD_WORK * words.len() as u64);
        }
    }

    /// Lets everybody know the places of a node's own particles.
    fn tell_places(&self, node: &mut Messenger<'_>, places: &mut [Vector]) {
        for round in 0..self.machines - 1 {
            let part = |round| self.part_of((node.node() + self.machines - round) % self.machines);
            let (sent, comes) = (part(round), part(round + 1));
            let words: Vec<u32> = places[sent].as_flattened().iter().map(|word| word.to_bits()).collect();
            let received = self.pass_on(node, &words);
            let known = places[comes].as_flattened_mut();
            known.iter_mut().zip(received).for_each(|(place, word)| *place = f32::from_bits(word));
        }
    }

    /// What a node ends with: its own particles' places.
    fn words(&self, places: &[Vector], part: usize) -> Vec<u32> {
        places[self.part_of(part)].as_flattened().iter().map(|word| word.to_bits()).collect()
    }
}

impl Parallel for Dynamics {
    fn part(&self, node: &mut Messenger<'_>) -> Vec<u32> {
        let (liquid, own) = (&self.liquid, self.part_of(node.node()));
        let (mut places, mut speeds) = (liquid.places(), liquid.speeds());
        let mut pairs = Pairs::default();
        for step in 0..self.steps {
            if step % LIST_STEPS == 0 {
                pairs = liquid.pairs(&places, own.clone());
                node.work(LOOK_WORK * pairs.looked_at);
            }
            let mut forces = vec![[0; 3]; liquid.count];
            liquid.add_forces(&places, &pairs, &mut forces);
            node.work(PAIR_WORK * pairs.listed.len() as u64);
            node.main_communication(|node| self.reduce(node, &mut forces));
            for particle in own.clone() {
                liquid.moves(&mut places[particle], &mut speeds[particle], &forces[particle]);
                node.work(MOVE_WORK);
            }
            self.tell_places(node, &mut places);
        }
        self.words(&places, node.node())
    }

    fn expected(&self) -> Vec<Vec<u32>> {
        let liquid = &self.liquid;
        let (mut places, mut speeds) = (liquid.places(), liquid.speeds());
        let mut pairs = Pairs::default();
        for step in 0..self.steps {
            if step % LIST_STEPS == 0 {
                pairs = liquid.pairs(&places, 0..liquid.count);
            }
            let mut forces = vec![[0; 3]; liquid.count];
            liquid.add_forces(&places, &pairs, &mut forces);
            for ((place, speed), force) in places.iter_mut().zip(&mut speeds).zip(&forces) {
                liquid.moves(place, speed, force);
            }
        }
        (0..self.machines).map(|part| self.words(&places, part)).collect()
    }
}
