//! One NIC core that serves many queue pairs, by looking at each in turn or by acting on what it is told of their lines.
//!
//! A core that is told of snoops ([`Core::watch`]) looks at a queue pair only when the line has changed by which work for it
//! would come. A queue pair is in one of two states:
//!
//! | state | it is looked at | it goes to the other state when |
//! |---|---|---|
//! | awake | in every round | a look finds nothing, its line is watched, and the look after that finds nothing either |
//! | asleep | never | the core says that its line has changed |
//!
//! The look between watching and sleeping is what makes it impossible to miss a change: one that came before it is seen by
//! it, one that comes after it takes the copy away that the look has used. A line that was lost without a change costs
//! one look in vain.

use conic_fabric::Core;

use crate::burst::NicQueue;

/// How a NIC core finds the queue pairs that have work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// It looks at each in turn.
    Polling,
    /// It acts on snoops, where its core is told of them; else it looks at each in turn.
    Snoops,
}

/// Queue pairs that one core serves.
#[derive(Debug)]
pub struct Server<C, Q> {
    core: C,
    queues: Vec<Q>,
    attention: Attention,
    /// Those that are awake, and for each queue pair whether it is.
    awake: Vec<usize>,
    is_awake: Vec<bool>,
    /// Looks at queue pairs so far, and those that found nothing.
    looks: u64,
    vain: u64,
}

impl<C: Core, Q: NicQueue> Server<C, Q> {
    /// A server of queue pairs, all awake.
    pub fn new(core: C, queues: Vec<Q>, attention: Attention) -> Server<C, Q> {
        let (awake, is_awake) = ((0..queues.len()).collect(), vec![true; queues.len()]);
        Server { core, queues, attention, awake, is_awake, looks: 0, vain: 0 }
    }

    /// Turns packets around wherever there is work, and returns how many packets. Zero is no progress: the caller spins.
    pub fn round(&mut self) -> usize {
        if self.attention == Attention::Snoops {
            // As many as there are queue pairs at most, so that a line that keeps being lost does not keep this core here.
            for _ in 0..self.queues.len() {
                let Some(tag) = self.core.changed() else { break };
                self.wake(tag as usize);
            }
        }
        let (mut done, mut index) = (0, 0);
        while index < self.awake.len() {
            let queue = self.awake[index];
            let count = self.look(queue);
            done += count;
            if count == 0 && self.attention == Attention::Snoops && self.falls_asleep(queue, &mut done) {
                self.awake.swap_remove(index);
                self.is_awake[queue] = false;
            } else {
                index += 1;
            }
        }
        done
    }

    /// Says that this round made no progress.
    pub fn spin(&self) {
        self.core.spin();
    }

    /// Looks at queue pairs so far, and how many of them found nothing.
    pub fn looks(&self) -> (u64, u64) {
        (self.looks, self.vain)
    }

    /// The queue pairs.
    pub fn queues(&mut self) -> &mut [Q] {
        &mut self.queues
    }

    fn wake(&mut self, queue: usize) {
        if !std::mem::replace(&mut self.is_awake[queue], true) {
            self.awake.push(queue);
        }
    }

    fn look(&mut self, queue: usize) -> usize {
        let count = self.queues[queue].turn_around();
        self.looks += 1;
        self.vain += u64::from(count == 0);
        count
    }

    /// Watches the line by which work for a queue pair would come, and looks once more; whether it may sleep.
    fn falls_asleep(&mut self, queue: usize, done: &mut usize) -> bool {
        let Some(line) = self.queues[queue].awaited() else { return false };
        if !self.core.watch(line, queue as u64) {
            return false;
        }
        let count = self.look(queue);
        *done += count;
        // What it awaits may have become another line meanwhile: no packet came, but room did.
        count == 0 && self.queues[queue].awaited() == Some(line)
    }
}
