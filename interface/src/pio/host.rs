//! The CPU's half of an exchange.

use conic_fabric::{Address, Core, Line};

use super::control::{self, Kind};
use super::patience::Patience;
use super::shape::Lines;
use crate::work;

/// How the device learns that a request is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signal {
    /// By what is written: the device is a core that reads the control word again and again.
    #[default]
    Written,
    /// By the load that follows: the device is home to the lines and sees what the CPU's cache asks for.
    Load,
}

/// The host's switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// What tells the device of a request.
    pub signal: Signal,
    /// Lines of a response are asked for before they are read: where the load is the signal, together with it.
    pub prefetch: bool,
    /// Requests have no payload and no control word: the load alone says that the last response was read. For the NIC's
    /// receive over [`Signal::Load`]; over [`Signal::Written`] the control word is all there is, and this changes nothing.
    pub bare: bool,
}

impl Features {
    /// For a device that a core plays.
    pub const PLAYED: Features = Features { signal: Signal::Written, prefetch: true, bare: false };
    /// For a device that is home to the lines.
    pub const HOMED: Features = Features { signal: Signal::Load, prefetch: true, bare: false };
}

/// Why a request was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBegun {
    /// The last one was not answered.
    Busy,
    /// The payload, or the response that is expected, is longer than the lines hold.
    TooLong {
        /// Its bytes.
        bytes: u64,
        /// What they hold.
        capacity: u64,
    },
}

impl std::fmt::Display for NotBegun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotBegun::Busy => f.write_str("the last request was not answered yet"),
            NotBegun::TooLong { bytes, capacity } => {
                write!(f, "a payload of {bytes} bytes does not fit the {capacity} bytes of these lines")
            }
        }
    }
}

impl std::error::Error for NotBegun {}

/// What a look at the answer gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Nothing yet.
    NotYet,
    /// A response of so many bytes: [`Host::read`] them.
    Response(usize),
    /// The device says that the request cannot be.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Waiting,
    /// A response of so many bytes came.
    Answered(usize),
}

/// The half that calls.
///
/// [`Host::begin`] writes a request, [`Host::poll`] looks for its answer (over [`Signal::Load`] it waits for it),
/// [`Host::read`] takes the payload.
#[derive(Debug)]
pub struct Host<C> {
    core: C,
    lines: Lines,
    features: Features,
    turn: u32,
    /// The control word of this turn's request, and that of its answer: the other's in the next turn.
    mine: Address,
    other: Address,
    state: State,
    /// When [`Host::poll_in_time`] looks.
    patience: Patience,
    /// The last control word that was no answer.
    seen: u64,
    /// Units of the answer that were asked for, and of those that were read.
    prefetched: u16,
    loaded: u16,
    refused: u64,
    try_agains: u64,
}

impl<C: Core> Host<C> {
    /// A host on fresh lines, all zeroes. There must be one.
    pub fn new(core: C, lines: Lines, features: Features) -> Host<C> {
        Host::at_turn(core, lines, features, 0)
    }

    /// A host after `turn` answers, at a device that is as far. Where it must not be taken for granted that both count the
    /// same, the device's number counts.
    pub fn at_turn(core: C, lines: Lines, features: Features, turn: u32) -> Host<C> {
        Host {
            core,
            lines,
            features,
            turn,
            mine: lines.control(turn),
            other: lines.control(turn.wrapping_add(1)),
            state: State::Idle,
            patience: Patience::default(),
            seen: 0,
            prefetched: 0,
            loaded: 0,
            refused: 0,
            try_agains: 0,
        }
    }

    /// A host that takes over lines whose host is gone, from what their control words say, over [`Signal::Written`]. A request
    /// that the last host made and whose answer is still to come is this host's: [`Host::is_waiting`] says so.
    pub fn resume(core: C, lines: Lines, features: Features) -> Host<C> {
        // Acquire: what the device wrote before the newer of the two.
        let words = [0, 1].map(|turn| core.load_acquire(lines.control(turn)));
        // What the device wrote last says how many answers there were; it writes nothing before the first request.
        let answers = |word: u64| match control::kind_of(word) {
            Some(Kind::Response | Kind::TryAgain | Kind::Refused) => Some(control::turn_of(word).wrapping_add(1)),
            // A request is written over the answer before it.
            Some(Kind::Request | Kind::Continue) => Some(control::turn_of(word)),
            None => None,
        };
        let newer = |a: u32, b: u32| if a.wrapping_sub(b) < 1 << 31 { a } else { b };
        let turn = words.into_iter().filter_map(answers).reduce(newer).unwrap_or(0);
        let mut host = Host::at_turn(core, lines, features, turn);
        let word = words[(turn & 1) as usize];
        match control::kind_of(word) {
            Some(Kind::Request | Kind::Continue) if control::turn_of(word) == turn => host.state = State::Waiting,
            // Its response was cut short by "try again", which nobody has followed.
            Some(Kind::TryAgain) => host.go_on(),
            _ => {}
        }
        host
    }

    /// Makes a request. `response` is how many bytes its answer will have at most, which is what is asked for ahead.
    ///
    /// # Errors
    ///
    /// If the last one was not answered, or this one is too long.
    #[inline]
    pub fn begin(&mut self, request: &[u8], response: usize) -> Result<(), NotBegun> {
        let capacity = self.lines.capacity();
        let bytes = request.len().max(response) as u64;
        if bytes > capacity {
            return Err(NotBegun::TooLong { bytes, capacity });
        }
        if self.state == State::Waiting {
            return Err(NotBegun::Busy);
        }
        self.settle(0);
        let first = self.lines.spread(self.turn, request, |at, line| self.core.write_line(at, line));
        self.announce(first, request.len(), response);
        Ok(())
    }

    /// Makes a request of one line, whose word 0 is the control word's: of `bytes` bytes as [`super::Shape`] counts them, so
    /// that its payload need not be copied. Nothing is checked that [`Host::begin`] checks.
    #[inline(always)]
    pub fn begin_line(&mut self, line: Line, bytes: usize) {
        self.announce(line, bytes, bytes);
    }

    #[inline(always)]
    fn announce(&mut self, mut first: Line, bytes: usize, response: usize) {
        self.core.work(work::CALL + work::DESCRIPTOR);
        let Features { signal, prefetch, bare } = self.features;
        if signal == Signal::Written || !bare {
            first.0[0] = control::word(self.turn, Kind::Request, bytes as u32);
            let at = self.mine;
            // Release on word 0: the payload before it, and that the last response was read, for the device's load of word 0.
            if bytes == 0 { self.core.store_release(at, first.0[0]) } else { self.core.publish_line(at, &first) }
        }
        self.state = State::Waiting;
        self.patience.begin();
        if signal == Signal::Load {
            // The stores must have reached the cache before the load that signals them, and the last response's loads be done.
            self.core.full_fence();
            self.loaded = 0;
            if prefetch {
                // Not the overflow lines: see the protocol's forbidden moves.
                let shape = self.lines.shape();
                self.prefetched = shape.units_of(response as u64).min(shape.group);
                self.ask_ahead(0, self.prefetched);
            }
        }
    }

    /// Looks for the answer.
    #[inline(always)]
    pub fn poll(&mut self) -> Poll {
        if self.state != State::Waiting {
            return Poll::NotYet;
        }
        // Acquire: the device's writes of the response before this side reads them.
        let word = self.core.load_acquire(self.other);
        let length = control::length_if(word, self.turn, Kind::Response);
        if length <= self.lines.capacity() {
            self.next_turn();
            self.state = State::Answered(length as usize);
            return Poll::Response(length as usize);
        }
        if word == self.seen { Poll::NotYet } else { self.look_again(word) }
    }

    /// Looks for the answer as [`Host::poll`] does, but over [`Signal::Written`] not in rounds in which it is not likely to be there,
    /// judged by the exchanges before: a look that comes too early takes the line away from the core that is about to write it. For
    /// a caller that does nothing but wait; each call is a round, so that an answer that is there may take some of them.
    #[inline(always)]
    pub fn poll_in_time(&mut self) -> Poll {
        if self.features.signal == Signal::Load {
            return self.poll();
        }
        if self.patience.is_early() {
            return Poll::NotYet;
        }
        let poll = self.poll();
        match poll {
            Poll::NotYet => self.patience.in_vain(),
            Poll::Response(_) | Poll::Refused => self.patience.found(),
        }
        poll
    }

    /// A control word that is no response. Inlined, and only the judgement is not: a call that is given this half's address would
    /// keep all of it in memory.
    #[inline(always)]
    fn look_again(&mut self, word: u64) -> Poll {
        match judge(word, self.turn, self.lines.capacity()) {
            Verdict::TryAgain => {
                self.next_turn();
                self.go_on();
            }
            Verdict::Refused => {
                self.next_turn();
                self.state = State::Idle;
                return Poll::Refused;
            }
            Verdict::Old => self.seen = word,
            Verdict::Wrong => (self.seen, self.refused) = (word, self.refused + 1),
        }
        Poll::NotYet
    }

    #[inline(always)]
    fn next_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
        std::mem::swap(&mut self.mine, &mut self.other);
    }

    /// Turns to the other line after "try again".
    #[inline(always)]
    fn go_on(&mut self) {
        self.try_agains += 1;
        self.state = State::Waiting;
        self.settle(1);
        match self.features.signal {
            // Release: nothing but that the word before it was read.
            Signal::Written => {
                let word = control::word(self.turn, Kind::Continue, 0);
                self.core.store_release(self.mine, word);
            }
            Signal::Load => {
                // The loads of the last turn are done before the next one signals.
                self.core.full_fence();
                self.loaded = 0;
                self.ask_ahead(0, self.prefetched);
            }
        }
    }

    /// Asks for units of the answer that is to come.
    #[inline(always)]
    fn ask_ahead(&self, from: u16, to: u16) {
        for index in from..to {
            self.core.prefetch_read(self.lines.unit_of_turn(self.turn.wrapping_add(1), index));
        }
    }

    /// Loads the units that were asked for ahead and not read, from `from` on: a prefetch that is still on its way when the
    /// next exchange begins would be taken for its signal.
    #[inline(always)]
    fn settle(&mut self, from: u16) {
        for index in self.loaded.max(from)..self.prefetched {
            // An owned word; what it holds does not matter.
            let _ = self.core.load(self.lines.unit_of_turn(self.turn, index).word(1));
        }
        self.loaded = self.prefetched;
    }

    /// Reads the first bytes of the response, as many as there is room for, and says how many.
    #[inline]
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        let State::Answered(length) = self.state else { return 0 };
        self.core.work(work::CALL);
        let room = into.len();
        let into = &mut into[..length.min(room)];
        let length = into.len();
        let units = self.lines.shape().units_of(length as u64);
        if self.features.prefetch && units > self.prefetched.max(1) {
            for index in self.prefetched.max(1)..units {
                self.core.prefetch_read(self.lines.unit_of_turn(self.turn, index));
            }
        }
        self.lines.gather(self.turn, into, |at| self.core.read_line(at));
        self.loaded = self.loaded.max(units);
        length
    }

    /// The first line of the response: its payload is what stands behind the header.
    #[inline(always)]
    pub fn response_line(&self) -> Line {
        self.core.read_line(self.mine)
    }

    /// Whether a request waits for its answer.
    pub fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    /// Answers so far, "try again" among them.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// How often it was told to try again.
    pub fn try_agains(&self) -> u64 {
        self.try_agains
    }

    /// Control words of the device that could not be, and were ignored.
    pub fn refused(&self) -> u64 {
        self.refused
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

/// What a control word is that is not this turn's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    TryAgain,
    Refused,
    /// What this side wrote there in the last turn.
    Old,
    Wrong,
}

#[cold]
fn judge(word: u64, turn: u32, capacity: u64) -> Verdict {
    let mine = matches!(control::kind_of(word), Some(Kind::Request | Kind::Continue));
    let last = control::turn_of(word) == turn.wrapping_sub(1) && control::length_of(word) <= capacity;
    match word {
        word if word == control::word(turn, Kind::TryAgain, 0) => Verdict::TryAgain,
        word if word == control::word(turn, Kind::Refused, 0) => Verdict::Refused,
        0 => Verdict::Old,
        _ if mine && last => Verdict::Old,
        _ => Verdict::Wrong,
    }
}
