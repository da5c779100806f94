//! Where an end of a ring stands, so that another process can go on in its place.

use conic_fabric::Core;

use super::{Consumer, Policy, Producer, RingMap, Signal};

/// Where a producer stands, in slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// What was sent.
    pub sent: u64,
    /// Every position below this one may be written.
    pub free_until: u64,
}

impl<P: Policy> Producer<P> {
    /// Where it stands.
    pub fn position(&self) -> Position {
        Position { sent: self.tail, free_until: self.free_until }
    }

    /// The sending end of a ring in which another stood there; none if nobody can stand there.
    pub fn at_position(map: RingMap, position: Position) -> Option<Producer<P>> {
        let Position { sent, free_until } = position;
        let possible = sent <= free_until && free_until - sent <= map.slots && free_until >= map.slots;
        possible.then(|| Producer { tail: sent, free_until, ..Producer::new(map) })
    }
}

impl<P: Policy> Consumer<P> {
    /// How many slots have been handed out, to the last descriptor of the last.
    pub fn consumed(&self) -> u64 {
        self.head
    }

    /// Gives back what was handed out, and says what was consumed, in slots: another goes on from there. None where something was
    /// taken out of its slot and not handed out.
    pub fn stop<C: Core>(&mut self, core: &C) -> Option<u64> {
        if self.stashed > 0 {
            return None;
        }
        self.release(core);
        if P::SIGNAL != Signal::Clear && self.credited != self.released {
            self.give_credit(core);
        }
        Some(self.head)
    }

    /// The receiving end of a ring from which another has consumed so many slots.
    pub fn at_position(map: RingMap, inline: bool, fetch_ahead: bool, consumed: u64) -> Consumer<P> {
        let new = Consumer::new(map, inline, fetch_ahead);
        Consumer { head: consumed, released: consumed, credited: consumed, known_tail: consumed, ..new }
    }
}
