//! A function called through two windows of the device's memory.

use std::fmt;

use conic_fabric::{Address, Core, DeviceMemory, Home, LINE_BYTES, Layout, Line, MemoryType, SynchronisingWords, Time};

use super::control::{self, Verdict};
use super::{MOST_BYTES, PAIR, ShapeError, check_bytes};
use crate::work;

/// Bytes of the control word, before the payload.
const CONTROL_BYTES: usize = 8;

/// The windows of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallShape {
    /// Bytes of the longest payload, of a request and of a response.
    pub payload: u64,
    /// How the windows are mapped: write-combining, or write-back where they are memory.
    pub memory: MemoryType,
}

impl CallShape {
    /// Appends the windows to a layout.
    ///
    /// # Errors
    ///
    /// If they are too large.
    pub fn place(&self, layout: &mut Layout) -> Result<CallWindow, ShapeError> {
        // Far below where sums overflow.
        let payload = self.payload.min(2 * MOST_BYTES);
        let bytes = (payload + CONTROL_BYTES as u64).next_multiple_of(LINE_BYTES);
        check_bytes(bytes)?;
        let mut window = |name: &str, words| {
            let start = layout.add_mapped(name, LINE_BYTES, Home::Nic, self.memory, words);
            if bytes > LINE_BYTES {
                let rest = format!("{name} payload");
                layout.add_mapped(&rest, bytes - LINE_BYTES, Home::Nic, self.memory, SynchronisingWords::NONE);
            }
            start
        };
        let request = window("pcie-pio request", SynchronisingWords::FIRST);
        let response = window("pcie-pio response", PAIR);
        Ok(CallWindow { request, response, capacity: bytes - CONTROL_BYTES as u64 })
    }
}

/// Where a call's windows lie; both halves are made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallWindow {
    request: Address,
    response: Address,
    capacity: u64,
}

impl CallWindow {
    /// Bytes of the longest payload.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
}

/// A call that cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The request has more bytes than the window holds: it, and the most.
    TooLong(usize, u64),
    /// The last call has no response yet.
    Waiting,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::TooLong(bytes, most) => {
                write!(f, "a request has at most {most} bytes here, not {bytes}; place a larger window or split it")
            }
            CallError::Waiting => write!(f, "the last call has no response yet; take it first"),
        }
    }
}

impl std::error::Error for CallError {}

/// The half that calls.
#[derive(Debug)]
pub struct Call<C> {
    core: C,
    window: CallWindow,
    turn: u32,
    waiting: bool,
    /// The response's length, and the word that was loaded with its control word.
    response: Option<(usize, u64)>,
    refused: u64,
}

impl<C: Core> Call<C> {
    /// A caller on fresh windows, all zeroes. There must be one.
    pub fn new(core: C, window: CallWindow) -> Call<C> {
        Call { core, window, turn: 0, waiting: false, response: None, refused: 0 }
    }

    /// Stores a request; it is on its way when this returns.
    ///
    /// # Errors
    ///
    /// It is too long, or the last call has no response yet; nothing was stored.
    pub fn begin(&mut self, request: &[u8]) -> Result<(), CallError> {
        if request.len() as u64 > self.window.capacity {
            return Err(CallError::TooLong(request.len(), self.window.capacity));
        }
        if self.waiting {
            return Err(CallError::Waiting);
        }
        self.core.work(work::CALL);
        self.turn = self.turn.wrapping_add(1);
        let inline = request.len().min(LINE_BYTES as usize - CONTROL_BYTES);
        let (inline, rest) = request.split_at(inline);
        for (index, chunk) in (1..).zip(rest.chunks(LINE_BYTES as usize)) {
            let mut line = [0; LINE_BYTES as usize];
            line[..chunk.len()].copy_from_slice(chunk);
            self.core.register_write_line(self.window.request.lines(index), &Line::from_bytes(&line));
        }
        if !rest.is_empty() {
            // Gathered stores leave in any order: the control word's line must not overtake the payload.
            self.core.fence();
        }
        let mut first = [0; LINE_BYTES as usize];
        first[CONTROL_BYTES..CONTROL_BYTES + inline.len()].copy_from_slice(inline);
        let mut first = Line::from_bytes(&first);
        first.0[0] = control::word(self.turn, request.len() as u32);
        // Release on word 0: the request before it, for the device that acquires it.
        self.core.publish_line(self.window.request, &first);
        self.waiting = true;
        self.response = None;
        Ok(())
    }

    /// Loads the response's control word: its length, or none yet. Where the device withholds answers, this waits for it.
    pub fn poll(&mut self) -> Option<usize> {
        if !self.waiting {
            return None;
        }
        // Acquire, in one load with word 1: the response, for the loads behind it.
        let [word, second] = self.core.register_read_pair(self.window.response);
        match control::judge(word, self.turn, 1, self.window.capacity) {
            Verdict::New(length) => {
                self.waiting = false;
                self.response = Some((length, second));
                Some(length)
            }
            Verdict::Old => None,
            Verdict::Wrong => {
                self.refused += 1;
                None
            }
        }
    }

    /// Loads the first bytes of the response, as many as there is room for; says how many.
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        let Some((length, second)) = self.response else { return 0 };
        let length = length.min(into.len());
        let inline = length.min(CONTROL_BYTES);
        into[..inline].copy_from_slice(&second.to_ne_bytes()[..inline]);
        if length > inline {
            self.core.read_bytes(self.window.response + 2 * CONTROL_BYTES as u64, &mut into[inline..length]);
        }
        length
    }

    /// Control words of the device that could not be; they were ignored.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The core that it runs on.
    pub fn core(&self) -> &C {
        &self.core
    }
}

/// The half that answers.
#[derive(Debug)]
pub struct Callee<D> {
    device: D,
    window: CallWindow,
    /// The turn that is waited for, or worked on.
    turn: u32,
    request: Option<usize>,
    /// The last word that could not be, so that it is counted once.
    wrong: u64,
    refused: u64,
    /// How long a load may wait.
    patience: Time,
    not_yets: u64,
    /// The last request was answered, and no other has come.
    is_answered: bool,
}

impl<D: DeviceMemory> Callee<D> {
    /// A device on fresh windows, which answers a load of the response after `patience` even where there is none.
    pub fn new(device: D, window: CallWindow, patience: Time) -> Callee<D> {
        device.withhold(window.response);
        Callee {
            device,
            window,
            turn: 1,
            request: None,
            wrong: 0,
            refused: 0,
            patience,
            not_yets: 0,
            is_answered: false,
        }
    }

    /// The length of a request that has come and was not answered.
    pub fn poll(&mut self) -> Option<usize> {
        if self.request.is_some() {
            return self.request;
        }
        // Acquire: the request's payload, which the host stored before.
        let word = self.device.own_register(self.window.request);
        match control::judge(word, self.turn, 1, self.window.capacity) {
            Verdict::New(length) => (self.request, self.is_answered) = (Some(length), false),
            Verdict::Wrong if word != self.wrong => {
                self.wrong = word;
                self.refused += 1;
            }
            Verdict::Old if self.is_answered => self.answer_what_comes(),
            Verdict::Wrong | Verdict::Old => self.answer_in_time(),
        }
        self.request
    }

    /// Answers a load of the response that was given. It may come after that was stored, which answers those that wait then; and the load
    /// of the next one comes behind its request.
    fn answer_what_comes(&mut self) {
        if self.device.withheld_since(self.window.response).is_some() {
            self.device.answer(self.window.response);
            self.device.withhold(self.window.response);
        }
    }

    /// Reads the request's first bytes, as many as there is room for.
    pub fn read(&self, into: &mut [u8]) -> usize {
        let length = self.request.unwrap_or(0).min(into.len());
        self.device.own_bytes(self.window.request + CONTROL_BYTES as u64, &mut into[..length]);
        length
    }

    /// Answers the request; false, and nothing happens, where there is none or the response is too long.
    pub fn respond(&mut self, response: &[u8]) -> bool {
        if self.request.is_none() || response.len() as u64 > self.window.capacity {
            return false;
        }
        let (inline, rest) = response.split_at(response.len().min(CONTROL_BYTES));
        if !rest.is_empty() {
            self.device.set_own_bytes(self.window.response + 2 * CONTROL_BYTES as u64, rest);
        }
        let mut second = [0; CONTROL_BYTES];
        second[..inline.len()].copy_from_slice(inline);
        // Release: the response before it, and that the request was read, for the host's load.
        let word = control::word(self.turn, response.len() as u32);
        self.device.set_own_pair(self.window.response, [word, u64::from_ne_bytes(second)]);
        // The next response's load waits again.
        self.device.withhold(self.window.response);
        self.turn = self.turn.wrapping_add(1);
        (self.request, self.is_answered) = (None, true);
        true
    }

    /// Answers a load that has waited for too long: the old word says "not yet".
    pub fn answer_in_time(&mut self) {
        let Some(since) = self.device.withheld_since(self.window.response) else { return };
        if self.device.now().since(since) >= self.patience {
            self.device.answer(self.window.response);
            self.device.withhold(self.window.response);
            self.not_yets += 1;
        }
    }

    /// Since when a load of the response has waited, if one does.
    pub fn withheld_since(&self) -> Option<Time> {
        self.device.withheld_since(self.window.response)
    }

    /// How often a load was answered because it had waited for too long.
    pub fn not_yets(&self) -> u64 {
        self.not_yets
    }

    /// Control words of the host that could not be; they were ignored.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The device that it runs on.
    pub fn device(&self) -> &D {
        &self.device
    }
}
