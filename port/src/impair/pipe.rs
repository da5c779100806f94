//! One direction of an impaired port.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use conic_fabric::Time;

use super::options::Impairment;
use crate::{MAX_FRAME, Timestamp};

/// What was done to frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) reordered: u64,
    pub(super) corrupted: u64,
    /// Dropped because as many were under way as may be.
    pub(super) overflowed: u64,
}

/// What became of a frame that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// It is under way, or lost.
    Taken,
    /// Nothing was done with it: the pipe is full of frames that are due.
    Blocked,
}

/// Frames under way. Its memory is fixed when it is made.
pub(super) struct Pipe {
    impairment: Impairment,
    generator: fastrand::Rng,
    /// Slot `i` is bytes `i * MAX_FRAME` onwards.
    bytes: Box<[u8]>,
    frames: Box<[(u16, Option<Timestamp>)]>,
    free: Vec<u16>,
    /// When each is due, how many were offered before, its slot.
    waiting: BinaryHeap<Reverse<(Time, u64, u16)>>,
    offered: u64,
    /// Until when the link is busy with frames that have entered it.
    busy: Time,
    /// When the last frame in order is due: none in order is due before.
    last: Time,
    pub(super) counts: Counts,
    pub(super) refused_length: u64,
    pub(super) oversized: u64,
}

impl Pipe {
    pub(super) fn new(impairment: Impairment, seed: u64) -> Pipe {
        let limit = impairment.limit.clamp(1, Impairment::MOST);
        Pipe {
            impairment,
            generator: fastrand::Rng::with_seed(seed),
            bytes: vec![0; limit * MAX_FRAME].into_boxed_slice(),
            frames: vec![(0, None); limit].into_boxed_slice(),
            free: (0..limit).rev().map(|slot| slot as u16).collect(),
            waiting: BinaryHeap::with_capacity(limit),
            offered: 0,
            busy: Time::ZERO,
            last: Time::ZERO,
            counts: Counts::default(),
            refused_length: 0,
            oversized: 0,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Lets a frame of at most [`MAX_FRAME`] bytes enter.
    pub(super) fn offer(&mut self, now: Time, frame: &[u8], captured: Option<Timestamp>) -> Offer {
        if self.is_full() && self.next_due().is_some_and(|due| due <= now) {
            return Offer::Blocked;
        }
        if self.impairment.loss.draw(&mut self.generator) {
            self.counts.lost += 1;
            return Offer::Taken;
        }
        let twice = self.impairment.duplicate.draw(&mut self.generator);
        self.enter(now, frame, captured);
        if twice {
            self.counts.duplicated += 1;
            self.enter(now, frame, captured);
        }
        Offer::Taken
    }

    fn enter(&mut self, now: Time, frame: &[u8], captured: Option<Timestamp>) {
        let late = self.impairment.reorder.draw(&mut self.generator);
        let spoilt = self.impairment.corrupt.draw(&mut self.generator);
        let Some(slot) = self.free.pop() else {
            self.counts.overflowed += 1;
            return;
        };
        let bytes = &mut self.bytes[usize::from(slot) * MAX_FRAME..][..frame.len()];
        bytes.copy_from_slice(frame);
        self.frames[usize::from(slot)] = (frame.len() as u16, captured);
        if spoilt {
            let bit = self.generator.usize(..8 * frame.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            self.counts.corrupted += 1;
        }
        let mut due = self.arrival(now, frame.len());
        if late {
            due += self.impairment.reorder_by;
            self.counts.reordered += 1;
        } else {
            due = due.max(self.last);
            self.last = due;
        }
        self.waiting.push(Reverse((due, self.offered, slot)));
        self.offered += 1;
    }

    /// When a frame that enters now is through, reordering aside.
    fn arrival(&mut self, now: Time, bytes: usize) -> Time {
        let Impairment { delay, jitter, rate, .. } = self.impairment;
        let mut leaves = now;
        if let Some(rate) = rate {
            self.busy = self.busy.max(now) + rate.busy(bytes);
            leaves = self.busy;
        }
        let mut due = leaves + delay;
        if jitter > Time::ZERO {
            let span = jitter.picoseconds().saturating_mul(2);
            due = (due + Time::from_picoseconds(self.generator.u64(..=span))) - jitter;
        }
        due.max(now)
    }

    /// The frame that is due, if one is.
    pub(super) fn due(&self, now: Time) -> Option<&[u8]> {
        let &Reverse((due, _, slot)) = self.waiting.peek()?;
        let length = usize::from(self.frames[usize::from(slot)].0);
        (due <= now).then(|| &self.bytes[usize::from(slot) * MAX_FRAME..][..length])
    }

    /// When the frame that is due, or the next to be, was captured.
    pub(super) fn captured(&self) -> Option<Timestamp> {
        let &Reverse((_, _, slot)) = self.waiting.peek()?;
        self.frames[usize::from(slot)].1
    }

    /// Takes away the frame that is due, or the next to be.
    pub(super) fn pop(&mut self) {
        if let Some(Reverse((_, _, slot))) = self.waiting.pop() {
            self.free.push(slot);
        }
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.waiting.peek().map(|&Reverse((due, _, _))| due)
    }
}
