//! A port that spoils what passes through another one, as networks do: for tests of whatever stands above it.
//!
//! Everything is drawn from a seed, and time is the caller's: the same calls give the same frames at the same times.

mod options;
mod pipe;

use std::os::fd::BorrowedFd;

use conic_fabric::Time;

pub use options::{Direction, Impairment, Probability, Rate};

use crate::{Counters, Legacy, MAX_FRAME, MIN_FRAME, Port, PortError, Receive, Transmit};
use pipe::{Offer, Pipe};

/// Frames taken from the port below in one call.
const BURST: usize = 64;

/// A port with impairments in front of another port.
///
/// Each direction is a pipe: a frame that enters it may be lost, duplicated, corrupted, held back so that later ones pass
/// it, and leaves after the delay and at the rate. A pipe holds as many frames as its limit says and drops what finds it
/// full, except where it is full because the port below takes nothing: then [`Transmit::Full`] says so.
///
/// [`Port::counters`] counts what passed this port; refusals are those of the port below. [`Port::details`] counts what was
/// spoiled.
pub struct Impaired<P> {
    port: P,
    outgoing: Pipe,
    incoming: Pipe,
    scratch: Box<[u8; MAX_FRAME]>,
    /// The port below was given frames and not told to let them leave.
    unflushed: bool,
    ended: bool,
    /// The time of the last call.
    now: Time,
    /// An error of the port below, told when what came before it has been received.
    failed: Option<PortError>,
    counters: Counters,
}

impl<P: Port> Impaired<P> {
    /// Puts the impairments in front of a port.
    pub fn new(port: P, impairment: Impairment) -> Impaired<P> {
        let none = Impairment { limit: impairment.limit, ..Impairment::NONE };
        let (incoming, outgoing) = match impairment.direction {
            Direction::Both => (impairment, impairment),
            Direction::Receive => (impairment, none),
            Direction::Transmit => (none, impairment),
        };
        Impaired {
            port,
            // Two streams of one seed: what one direction draws does not depend on the other's frames.
            outgoing: Pipe::new(outgoing, impairment.seed),
            incoming: Pipe::new(incoming, !impairment.seed),
            scratch: Box::new([0; MAX_FRAME]),
            unflushed: false,
            ended: false,
            now: Time::ZERO,
            failed: None,
            counters: Counters::default(),
        }
    }

    /// The port below.
    pub fn inner(&self) -> &P {
        &self.port
    }

    /// Gives to the port below what is due; it may stay there.
    fn push_out(&mut self, now: Time) -> Result<(), PortError> {
        self.now = now;
        while let Some(frame) = self.outgoing.due(now) {
            match self.port.transmit(now, frame) {
                Ok(Transmit::Full) => break,
                Ok(Transmit::Accepted) => self.unflushed = true,
                // Counted by the port below.
                Ok(Transmit::Refused) => {}
                Err(error) => {
                    self.outgoing.pop();
                    return Err(error);
                }
            }
            self.outgoing.pop();
        }
        Ok(())
    }

    /// Gives to the port below what is due, and has it leave.
    fn let_out(&mut self, now: Time) -> Result<(), PortError> {
        self.push_out(now)?;
        if std::mem::take(&mut self.unflushed) { self.port.flush(now) } else { Ok(()) }
    }

    /// Gives to the port below all that is held, each at the time at which it would have left, as far as it is taken.
    fn let_all_out(&mut self) -> Result<(), PortError> {
        self.let_out(self.now)?;
        while let Some(due) = self.outgoing.next_due().filter(|due| *due > self.now) {
            self.let_out(due)?;
        }
        Ok(())
    }

    /// Takes what the port below has, until something is due: what is held here is lost where another process goes on below.
    fn pull_in(&mut self, now: Time) -> Result<bool, PortError> {
        for _ in 0..BURST {
            if self.ended || self.incoming.is_full() || self.incoming.due(now).is_some() {
                break;
            }
            match self.port.receive(now, &mut self.scratch[..])? {
                Receive::Frame { length, captured } => {
                    self.incoming.offer(now, &self.scratch[..length], captured);
                }
                Receive::Skipped => return Ok(true),
                Receive::None => break,
                Receive::End => self.ended = true,
            }
        }
        Ok(false)
    }

    /// The refusals are those of the port below, the rest is counted here.
    fn count(&mut self) {
        let own = self.counters;
        self.counters = Counters {
            received_frames: own.received_frames,
            received_bytes: own.received_bytes,
            transmitted_frames: own.transmitted_frames,
            transmitted_bytes: own.transmitted_bytes,
            transmit_full: own.transmit_full,
            ..*self.port.counters()
        };
        self.counters.refused_length += self.outgoing.refused_length;
        self.counters.skipped_oversized += self.incoming.oversized;
    }
}

impl<P: Port> Port for Impaired<P> {
    fn receive(&mut self, now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        self.let_out(now)?;
        if self.failed.is_none() {
            match self.pull_in(now) {
                Ok(true) => {
                    self.count();
                    return Ok(Receive::Skipped);
                }
                Ok(false) => {}
                Err(error) => self.failed = Some(error),
            }
        }
        let given = match self.incoming.due(now) {
            Some(due) => match frame.get_mut(..due.len()) {
                Some(into) => {
                    into.copy_from_slice(due);
                    let length = due.len();
                    self.counters.count_received(length);
                    Receive::Frame { length, captured: self.incoming.captured() }
                }
                None => {
                    self.incoming.oversized += 1;
                    Receive::Skipped
                }
            },
            None if self.incoming.next_due().is_some() => Receive::None,
            None => match self.failed.take() {
                Some(error) => {
                    self.ended = true;
                    return Err(error);
                }
                None if self.ended => Receive::End,
                None => Receive::None,
            },
        };
        if !matches!(given, Receive::None | Receive::End) {
            self.incoming.pop();
        }
        self.count();
        Ok(given)
    }

    fn transmit(&mut self, now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        if !(MIN_FRAME..=MAX_FRAME).contains(&frame.len()) {
            self.outgoing.refused_length += 1;
            self.count();
            return Ok(Transmit::Refused);
        }
        let mut sent = self.push_out(now);
        let answer = match self.outgoing.offer(now, frame, None) {
            Offer::Taken => {
                self.counters.count_transmitted(frame.len());
                Transmit::Accepted
            }
            Offer::Blocked => {
                self.counters.transmit_full += 1;
                // No call of `flush` need follow.
                sent = sent.and_then(|()| self.let_out(now));
                Transmit::Full
            }
        };
        self.count();
        sent.map(|()| answer)
    }

    fn flush(&mut self, now: Time) -> Result<(), PortError> {
        let sent = self.let_out(now);
        self.count();
        sent
    }

    fn next_due(&self) -> Option<Time> {
        let below = if self.ended { None } else { self.port.next_due() };
        [self.outgoing.next_due(), self.incoming.next_due(), below].into_iter().flatten().min()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        let (out, into) = (self.outgoing.counts, self.incoming.counts);
        let mut details = vec![
            ("impaired_transmit_lost", out.lost),
            ("impaired_transmit_duplicated", out.duplicated),
            ("impaired_transmit_reordered", out.reordered),
            ("impaired_transmit_corrupted", out.corrupted),
            ("impaired_transmit_overflowed", out.overflowed),
            ("impaired_receive_lost", into.lost),
            ("impaired_receive_duplicated", into.duplicated),
            ("impaired_receive_reordered", into.reordered),
            ("impaired_receive_corrupted", into.corrupted),
            ("impaired_receive_overflowed", into.overflowed),
        ];
        details.extend(self.port.details());
        details
    }

    fn is_up(&self) -> bool {
        self.port.is_up()
    }

    fn description(&self) -> String {
        format!("{}, impaired", self.port.description())
    }

    fn arm(&mut self) {
        self.port.arm();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.port.descriptor()
    }

    fn forget_received(&mut self) {
        self.port.forget_received();
    }

    fn can_bequeath(&self) -> bool {
        self.port.can_bequeath()
    }

    fn bequeath(&mut self) -> Option<Legacy> {
        // What is held here is lost with it: impairments are no promise.
        self.port.bequeath()
    }

    fn finish(&mut self) -> Result<(), PortError> {
        let sent = self.let_all_out();
        let finished = self.port.finish();
        self.count();
        sent.and(finished)
    }
}
