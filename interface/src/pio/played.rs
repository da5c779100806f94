//! The device's half, played by a core: it reads the control word again and again, where a device would see the load.
//!
//! | step | store | makes visible | to |
//! |---|---|---|---|
//! | request | the CPU's control word of turn t, release, last | the payload, and that the answer of turn t - 1 was read | the device that acquires it |
//! | answer | the device's control word of turn t, in the other group, release, last | the payload, and that the request was read | the CPU that acquires it |
//!
//! Turn t's request lies in the group t mod 2, its answer in the other, where the next request will be written over it: a
//! line that a core has read is the next that it writes, so that each comes once an exchange and goes once.

use conic_fabric::{Address, Core, Line};

use super::control::{self, Kind};
use super::device::{Device, Refusals};
use super::shape::Lines;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// A request of so many bytes came.
    Working(usize),
    /// The CPU was told to try again, and has not said that it did.
    Deferred,
}

/// The half that answers.
#[derive(Debug)]
pub struct Played<C> {
    core: C,
    lines: Lines,
    turn: u32,
    /// The control word of this turn's request, and that of its answer: the other's in the next turn.
    request: Address,
    answer: Address,
    state: State,
    /// The last control word that was no request.
    seen: u64,
    refusals: Refusals,
}

impl<C: Core> Played<C> {
    /// A device on fresh lines, all zeroes. There must be one.
    pub fn new(core: C, lines: Lines) -> Played<C> {
        Played::at_turn(core, lines, 0)
    }

    fn at_turn(core: C, lines: Lines, turn: u32) -> Played<C> {
        let (request, answer) = (lines.control(turn), lines.control(turn.wrapping_add(1)));
        Played { core, lines, turn, request, answer, state: State::Waiting, seen: 0, refusals: Refusals::default() }
    }

    /// A device that takes over lines whose device is gone. A request that was not answered is delivered, perhaps for the second
    /// time: the last device may have worked on it. Where the exchange has overflow lines and responses reach into them, the last
    /// device may also have written over it; a NIC's do not.
    pub fn resume(core: C, lines: Lines) -> Played<C> {
        // Acquire: what the last device wrote before its answer.
        let words = [0, 1].map(|turn| core.load_acquire(lines.control(turn)));
        let next = |word: u64| match control::kind_of(word) {
            Some(Kind::Response | Kind::TryAgain | Kind::Refused) => Some(control::turn_of(word).wrapping_add(1)),
            Some(Kind::Request | Kind::Continue) => Some(control::turn_of(word)),
            None => None,
        };
        let newer = |a: u32, b: u32| if a.wrapping_sub(b) < 1 << 31 { a } else { b };
        Played::at_turn(core, lines, words.into_iter().filter_map(next).reduce(newer).unwrap_or(0))
    }

    /// The request's only line, where it has one; its payload is what stands behind the header.
    #[inline(always)]
    pub fn request_line(&self) -> Line {
        self.core.read_line(self.request)
    }

    /// Responds with one line, whose word 0 is the control word's, of `bytes` bytes as [`super::Shape`] counts them. The request
    /// must have been taken by [`Device::poll`].
    #[inline(always)]
    pub fn respond_line(&mut self, line: Line, bytes: usize) {
        self.publish(line, Kind::Response, bytes);
        self.state = State::Waiting;
    }

    /// Tells the CPU to try again, having read the request; it need not be answered soon. Nothing without a request.
    pub fn try_again(&mut self) {
        if let State::Working(_) = self.state {
            self.publish(Line::ZERO, Kind::TryAgain, 0);
            self.state = State::Deferred;
        }
    }

    #[inline(always)]
    fn publish(&mut self, mut first: Line, kind: Kind, bytes: usize) {
        first.0[0] = control::word(self.turn, kind, bytes as u32);
        // Release on word 0: the payload before it, and that the request was read, for the CPU's load of word 0.
        self.core.publish_line(self.answer, &first);
        self.turn = self.turn.wrapping_add(1);
        std::mem::swap(&mut self.request, &mut self.answer);
    }

    /// A control word that is no request for this turn, and was not looked at before. Inlined, and only the judgement is not: a
    /// call that is given this half's address would keep all of it in memory.
    #[inline(always)]
    fn look_again(&mut self, word: u64) {
        self.seen = word;
        match judge(word, self.turn) {
            Verdict::Old => {}
            Verdict::Turn => self.refusals.turns += 1,
            Verdict::Kind => self.refusals.kinds += 1,
            // Honest but too long: it hears of it, and may go on.
            Verdict::Length => {
                self.refusals.lengths += 1;
                self.publish(Line::ZERO, Kind::Refused, 0);
            }
            Verdict::Stray => {
                self.refusals.kinds += 1;
                self.publish(Line::ZERO, Kind::Refused, 0);
            }
        }
    }

    /// Answers so far.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// The lines.
    pub fn lines(&self) -> &Lines {
        &self.lines
    }

    /// The core that it runs on.
    pub fn core(&self) -> &C {
        &self.core
    }
}

impl<C: Core> Device for Played<C> {
    #[inline(always)]
    fn poll(&mut self) -> Option<usize> {
        if self.state != State::Waiting {
            return None;
        }
        // Acquire: the CPU's writes of the request before this side reads them.
        let word = self.core.load_acquire(self.request);
        let length = control::length_if(word, self.turn, Kind::Request);
        if length <= self.lines.capacity() {
            self.state = State::Working(length as usize);
            return Some(length as usize);
        }
        if word != self.seen {
            self.look_again(word);
        }
        None
    }

    #[inline]
    fn read(&mut self, into: &mut [u8]) -> usize {
        let State::Working(length) = self.state else { return 0 };
        let length = length.min(into.len());
        // The CPU wrote them all before the control word, so that they can all be on their way at once.
        for index in 1..self.lines.shape().units_of(length as u64) {
            self.core.prefetch_read(self.lines.unit_of_turn(self.turn, index));
        }
        self.lines.gather(self.turn, &mut into[..length], |at| self.core.read_line(at));
        length
    }

    #[inline]
    fn respond(&mut self, response: &[u8]) -> bool {
        match self.state {
            State::Waiting => return false,
            State::Working(_) => {}
            State::Deferred => {
                // Acquire: that the CPU has read "try again", before this side writes over it in the next turn.
                let word = self.core.load_acquire(self.request);
                if word != control::word(self.turn, Kind::Continue, 0) {
                    return false;
                }
            }
        }
        let capacity = self.lines.capacity() as usize;
        let response = &response[..response.len().min(capacity)];
        let next = self.turn.wrapping_add(1);
        let first = self.lines.spread(next, response, |at, line| self.core.write_line(at, line));
        self.respond_line(first, response.len());
        true
    }

    fn is_working(&self) -> bool {
        self.state != State::Waiting
    }

    #[inline(always)]
    fn spin(&self) {
        self.core.spin();
    }

    fn refusals(&self) -> Refusals {
        self.refusals
    }
}

/// What a control word is that is not this turn's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// What this side wrote there in the last turn.
    Old,
    /// Another turn's.
    Turn,
    /// Nothing that belongs there.
    Kind,
    /// This turn's request, longer than the lines.
    Length,
    /// The CPU tries again what a device that is gone had deferred: there is no request to read.
    Stray,
}

#[cold]
fn judge(word: u64, turn: u32) -> Verdict {
    let (kind, of) = (control::kind_of(word), control::turn_of(word));
    match kind {
        Some(Kind::Request) if of == turn => Verdict::Length,
        Some(Kind::Continue) if of == turn => Verdict::Stray,
        Some(Kind::Request | Kind::Continue) => Verdict::Turn,
        Some(_) if of == turn.wrapping_sub(1) => Verdict::Old,
        _ if word == 0 => Verdict::Old,
        _ => Verdict::Kind,
    }
}
