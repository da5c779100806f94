//! Copies of what a client or a port sends and gets, for whoever looks into it.
//!
//! A copy is offered, and never waited for: one that is not taken is counted, and the frame goes its way. While a network has a
//! mirror its frames are laid out here on their way, which costs a second copy of each; without one it costs a test. On a loopback
//! network a frame that comes back is the one that was sent, and is shown once.

use std::ops::AddAssign;

use conic_fabric::{Core, Time};

use super::Switch;
use super::circuit::Party;
use super::table::Place;

/// Where copies go.
pub trait Mirror: Send {
    /// Takes a copy of a frame, at once; false if it cannot.
    fn copy(&mut self, now: Time, frame: &[u8]) -> bool;
}

/// What a mirror has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorCounters {
    /// Frames of which a copy was taken.
    pub frames: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Frames of which none was taken: whoever takes them was too slow, or has enough.
    pub dropped: u64,
}

impl AddAssign for MirrorCounters {
    fn add_assign(&mut self, other: MirrorCounters) {
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.dropped += other.dropped;
    }
}

/// A place with what takes copies of its frames.
pub(super) struct Mirrored {
    party: Party,
    mirror: Box<dyn Mirror>,
    counters: MirrorCounters,
}

impl Mirrored {
    pub(super) fn is_of(&self, party: Party) -> bool {
        self.party == party
    }

    pub(super) fn offer(&mut self, now: Time, frame: &[u8]) {
        if self.mirror.copy(now, frame) {
            self.counters.frames += 1;
            self.counters.bytes += frame.len() as u64;
        } else {
            self.counters.dropped += 1;
        }
    }
}

impl<C: Core> Switch<C> {
    /// Offers copies of what somebody sends and gets from here on; in place of another mirror of it, if there is one.
    pub fn mirror(&mut self, party: Party, mirror: Box<dyn Mirror>) {
        self.mirrors.retain(|one| one.party != party);
        self.mirrors.push(Mirrored { party, mirror, counters: MirrorCounters::default() });
        self.set_ways();
    }

    /// Ends that; what the mirror has seen, if there was one.
    pub fn unmirror(&mut self, party: Party) -> Option<MirrorCounters> {
        let index = self.mirrors.iter().position(|one| one.party == party)?;
        let ended = self.mirrors.swap_remove(index);
        self.set_ways();
        Some(ended.counters)
    }

    /// Who is looked into, and what was seen.
    pub fn mirrors(&self) -> impl Iterator<Item = (Party, MirrorCounters)> {
        self.mirrors.iter().map(|one| (one.party, one.counters))
    }

    /// Offers a copy of the frame that lies here, which a place sends or gets.
    #[inline(always)]
    pub(super) fn show(&mut self, now: Time, place: Place, length: usize) {
        if !self.mirrors.is_empty() {
            self.offer(now, place, length);
        }
    }

    #[inline(never)]
    fn offer(&mut self, now: Time, place: Place, length: usize) {
        let Some(party) = self.party(place) else { return };
        let Some(one) = self.mirrors.iter_mut().find(|one| one.party == party) else { return };
        one.offer(now, &self.frame[..length]);
    }
}
