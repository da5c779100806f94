//! Clients: they ask for keys as a catalogue says, keep so many requests under way, and check every answer.
//!
//! A value is one word again and again, which says whose it is:
//!
//! | bits | what |
//! |---|---|
//! | 0..24 | the lowest bits of the number of the set that put it there |
//! | 24..40 | of the seed of the clients that did |
//! | 40..64 | a pattern of the key, never 0 |
//!
//! Requests of one queue are answered in their order. So once these clients were told that a set of theirs was done, they get neither
//! zeros nor what a set of theirs put there before. What other clients put may be there at any time, and what somebody with the same
//! seed left there until the first set.

use std::sync::Arc;

use conic_fabric::{Line, Time};
use conic_load::{Account, FarEnd, Pace};

use crate::catalogue::Catalogue;
use crate::message::{Answer, HEADER_BYTES, MOST_VALUE_BYTES, Operation, Request, Status, checksum};

/// Requests that are made at once.
const BURST: usize = 32;

/// What the answers were, but for those that were wrong: [`Account::corrupt`] counts these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Values as they had been put there.
    pub gets: u64,
    /// Bytes of values that came, of those that were torn too.
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
    catalogue: Arc<Catalogue>,
    draws: fastrand::Rng,
    /// In all values that are put, to know them again.
    mark: u64,
    /// By key: the number of the last set that was done, and 1; 0 for none.
    done: Vec<u32>,
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
    /// Clients with so many requests under way, at least one, drawn with this seed. Clients of one store at one time have seeds that
    /// differ in their lowest 16 bits.
    pub fn new(catalogue: Arc<Catalogue>, window: u64, seed: u64) -> Clients {
        let none = Request { operation: Operation::Get, key: 0, value_bytes: 0, number: 0, checksum: 0 };
        let window = window.max(1);
        Clients {
            draws: fastrand::Rng::with_seed(seed),
            mark: (seed & 0xffff) << NUMBER_BITS,
            done: vec![0; catalogue.sizes().len()],
            catalogue,
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
            fill(frame, request.value_bytes, pattern(request.key) | self.mark | u64::from(request.number) & NUMBER);
            request.checksum = checksum(&frame[usize::from(HEADER_BYTES)..]);
        }
        frame[..usize::from(HEADER_BYTES)].copy_from_slice(&request.header(1024 + place as u16).to_bytes());
        let at = self.pace.map_or(now, |pace| pace.due(sequence));
        self.asked[(sequence % self.window) as usize] = Asked { request, at };
    }

    /// What an answer says of its request; none where it is none of it.
    fn judge(&mut self, asked: &Request, answer: &Answer, value: &[u8]) -> Option<()> {
        if answer.key != asked.key {
            return None;
        }
        match (answer.status, asked.operation) {
            (Status::Busy, _) => self.answers.busy += 1,
            (Status::Done, Operation::Set) if value.is_empty() => {
                self.answers.sets += 1;
                self.done[asked.key as usize] = asked.number.wrapping_add(1);
            }
            (Status::Done, Operation::Get) if value.len() == self.catalogue.sizes()[asked.key as usize].into() => {
                self.answers.value_bytes += value.len() as u64;
                if checksum(value) != answer.checksum {
                    self.answers.torn += 1;
                } else if self.may_be(asked, value) {
                    self.answers.gets += 1;
                } else {
                    return None;
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Whether this value may be there when a get is answered.
    fn may_be(&self, get: &Request, value: &[u8]) -> bool {
        let mut words = value.chunks_exact(8).map(|eight| u64::from_le_bytes(eight.try_into().expect("eight bytes")));
        // Of a shorter one only the lowest bits were written: the checksum tells all that can be told.
        let Some(first) = words.next() else { return true };
        let rest = value.chunks_exact(8).remainder();
        self.is_in_time(get, first) && words.all(|word| word == first) && rest == &first.to_le_bytes()[..rest.len()]
    }

    /// Whether this word is one of the key's that is not older than the last set of it that was done.
    fn is_in_time(&self, get: &Request, word: u64) -> bool {
        let done = self.done[get.key as usize];
        if word == 0 {
            return done == 0;
        }
        let is_mine = word & MARK == self.mark;
        // How many requests lie between these sets and the get. Of the number in the value the highest bits are not known: it is taken
        // for the newest that it can be, so that nothing is called too old which is not.
        let since_done = u64::from(get.number.wrapping_sub(done));
        let since_this = u64::from(get.number).wrapping_sub(1 + (word & NUMBER)) & NUMBER;
        word & KEY == pattern(get.key) && (done == 0 || !is_mine || since_this <= since_done)
    }
}

const NUMBER_BITS: u32 = 24;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;
const MARK: u64 = 0xffff << NUMBER_BITS;
const KEY: u64 = !(NUMBER | MARK);

/// The bits of a value's word that say its key.
fn pattern(key: u64) -> u64 {
    (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) & KEY | 1 << 63
}

/// Appends a set's value to its headers: so many bytes of a word.
fn fill(frame: &mut Vec<u8>, bytes: u16, word: u64) {
    frame.resize(usize::from(HEADER_BYTES + bytes), 0);
    let word = word.to_le_bytes();
    frame[usize::from(HEADER_BYTES)..].chunks_mut(8).for_each(|part| part.copy_from_slice(&word[..part.len()]));
}

impl FarEnd for Clients {
    fn packets(&mut self, now: Time) -> &[Vec<u8>] {
        if self.made == 0 {
            let now = now.picoseconds();
            let room = self.window.saturating_sub(self.account.in_flight()) as usize;
            let due = self.pace.map_or(usize::MAX, |pace| pace.waiting(self.account.sent(), now));
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
        self.pace.map_or(Time::NEVER, |pace| Time::from_picoseconds(pace.due(self.account.sent())))
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
        self.pace = Some(Pace::new(start, self.account.sent(), interval));
    }
}
