//! Clients: they ask for keys as a catalogue says, keep so many requests under way, and check every answer.

use std::rc::Rc;

use conic_fabric::{Line, Time};
use conic_load::{Account, FarEnd, Pace};

use crate::catalogue::Catalogue;
use crate::message::{Answer, HEADER_BYTES, MOST_VALUE_BYTES, Operation, Request, Status, checksum};

/// Requests that are made at once.
const BURST: usize = 32;

/// What of the answers was not a value as it had been put there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Values.
    pub gets: u64,
    /// Bytes of these.
    pub value_bytes: u64,
    /// Values that were put.
    pub sets: u64,
    /// Values that were overwritten while they left, as their checksums say: to be asked for again.
    pub torn: u64,
    /// Requests for a value that was being replaced: to be asked for again.
    pub busy: u64,
}

/// What is under way.
#[derive(Clone, Copy, Debug)]
struct Asked {
    request: Request,
    /// When it was made, in picoseconds.
    at: u64,
}

/// The clients behind one queue of the NIC's, whose answers come in the order of their requests.
#[derive(Debug)]
pub struct Clients {
    catalogue: Rc<Catalogue>,
    draws: fastrand::Rng,
    window: u64,
    account: Account,
    answers: Answers,
    /// By a request's number modulo the window.
    asked: Vec<Asked>,
    /// Requests that were made and not taken.
    frames: Vec<Vec<u8>>,
    made: usize,
    pace: Option<Pace>,
}

impl Clients {
    /// Clients with so many requests under way, at least one, drawn with this seed.
    pub fn new(catalogue: Rc<Catalogue>, window: u64, seed: u64) -> Clients {
        let none = Request { operation: Operation::Get, key: 0, value_bytes: 0, number: 0, checksum: 0 };
        let window = window.max(1);
        Clients {
            catalogue,
            draws: fastrand::Rng::with_seed(seed),
            window,
            account: Account::default(),
            answers: Answers::default(),
            asked: vec![Asked { request: none, at: 0 }; window as usize],
            frames: vec![Vec::new(); BURST],
            made: 0,
            pace: None,
        }
    }

    /// What the answers were.
    pub fn answers(&self) -> Answers {
        self.answers
    }

    /// Makes a request.
    fn make(&mut self, place: usize, now: u64) {
        let sequence = self.account.send();
        let key = self.catalogue.draw(&mut self.draws);
        let frame = &mut self.frames[place];
        frame.clear();
        frame.resize(usize::from(HEADER_BYTES), 0);
        let mut request = Request {
            operation: Operation::Get,
            key: key.into(),
            value_bytes: 0,
            number: sequence as u32,
            checksum: 0,
        };
        if self.draws.u16(..1000) < self.catalogue.demand().sets {
            request.operation = Operation::Set;
            request.value_bytes = self.catalogue.sizes()[key as usize];
            fill(frame, request);
            request.checksum = checksum(&frame[usize::from(HEADER_BYTES)..]);
        }
        frame[..usize::from(HEADER_BYTES)].copy_from_slice(&request.header(1024 + place as u16).to_bytes());
        let at = self.pace.map_or(now, |pace| pace.due(sequence));
        self.asked[(sequence % self.window) as usize] = Asked { request, at };
    }

    fn sent(&self) -> u64 {
        self.account.expected() + self.account.in_flight()
    }

    /// What an answer says of its request; none where it is none of it.
    fn judge(&mut self, asked: &Request, answer: &Answer, value: &[u8]) -> Option<()> {
        if answer.key != asked.key {
            return None;
        }
        match (answer.status, asked.operation) {
            (Status::Busy, _) => self.answers.busy += 1,
            (Status::Done, Operation::Set) if value.is_empty() => self.answers.sets += 1,
            (Status::Done, Operation::Get) if value.len() == self.catalogue.sizes()[asked.key as usize].into() => {
                self.answers.value_bytes += value.len() as u64;
                if checksum(value) != answer.checksum {
                    self.answers.torn += 1;
                } else if is_a_value_of(asked.key, value) {
                    self.answers.gets += 1;
                } else {
                    return None;
                }
            }
            _ => return None,
        }
        Some(())
    }
}

/// The word that values of a key are filled with, but for its lowest bits, which are the request's that put them there.
fn pattern(key: u64) -> u64 {
    (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) & !0xffff
}

/// Appends a set's value to its headers.
fn fill(frame: &mut Vec<u8>, request: Request) {
    let word = (pattern(request.key) | u64::from(request.number & 0xffff)).to_le_bytes();
    let bytes = usize::from(HEADER_BYTES + request.value_bytes);
    frame.resize(bytes, 0);
    frame[usize::from(HEADER_BYTES)..].chunks_mut(8).for_each(|part| part.copy_from_slice(&word[..part.len()]));
}

/// Whether somebody put this value to the key, or nobody has put one yet.
fn is_a_value_of(key: u64, value: &[u8]) -> bool {
    let mut words = value.chunks_exact(8).map(|eight| u64::from_le_bytes(eight.try_into().expect("eight bytes")));
    // Of a shorter one only the lowest bits were written: the checksum tells all that can be told.
    let Some(first) = words.next() else { return true };
    let is_known = first == 0 || first & !0xffff == pattern(key);
    let rest = value.chunks_exact(8).remainder();
    is_known && words.all(|word| word == first) && rest == &first.to_le_bytes()[..rest.len()]
}

impl FarEnd for Clients {
    fn packets(&mut self, now: Time) -> &[Vec<u8>] {
        if self.made == 0 {
            let now = now.picoseconds();
            let room = self.window.saturating_sub(self.account.in_flight()) as usize;
            let due = self.pace.map_or(usize::MAX, |pace| pace.waiting(self.sent(), now));
            let count = room.min(due).min(BURST);
            (0..count).for_each(|place| self.make(place, now));
            self.made = count;
        }
        &self.frames[..self.made]
    }
    fn delivered(&mut self, count: usize) {
        self.frames[..self.made].rotate_left(count);
        self.made -= count;
    }
    fn came_back(&mut self, frame: &[u8], now: Time) {
        let header = usize::from(HEADER_BYTES);
        let parsed = frame.first_chunk().and_then(|first| Answer::parse(&Line::from_bytes(first), frame.len() as u16));
        let Some(answer) = parsed else { return self.account.spoilt() };
        let expected = self.account.expected();
        // The low bits of a sequence number are within half their range of those of what is expected.
        let ahead = answer.number.wrapping_sub(expected as u32) as i32;
        let sequence = expected.wrapping_add_signed(ahead.into());
        self.account.enter(sequence);
        let asked = self.asked[(sequence % self.window) as usize];
        if asked.request.number != answer.number || self.judge(&asked.request, &answer, &frame[header..]).is_none() {
            return self.account.spoilt();
        }
        self.account.took(asked.at, now.picoseconds(), 1);
    }
    fn next_due(&self) -> Time {
        self.pace.map_or(Time::NEVER, |pace| Time::from_picoseconds(pace.due(self.sent())))
    }
    fn burst(&self) -> usize {
        BURST
    }
    fn most_bytes(&self) -> usize {
        (HEADER_BYTES + MOST_VALUE_BYTES).into()
    }
    fn account(&self) -> &Account {
        &self.account
    }
    fn account_mut(&mut self) -> &mut Account {
        &mut self.account
    }
    fn pace(&mut self, start: Time, interval: Time) {
        self.pace = Some(Pace::new(start, self.sent(), interval));
    }
}
