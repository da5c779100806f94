//! A core's private caches: which lines they hold, in what state.

use crate::parameters::CacheParameters;
use crate::protocol::cache::Held;
use crate::protocol::{Copy, Version};

use super::tags::Tags;

/// Lines that are found without a search; a power of two.
const RECENT: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Recent {
    line: u32,
    first: u32,
    second: u32,
}

const NOTHING: Recent = Recent { line: u32::MAX, first: 0, second: 0 };

/// Where a line was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its place in the second level.
    pub second: usize,
    /// Whether the first level has it too.
    pub in_first: bool,
}

/// The first and second level of one core. The second level holds all that the first does.
#[derive(Clone, Debug)]
pub struct Private {
    first: Tags,
    /// For each place of the first level, the line's place in the second.
    in_second: Vec<u32>,
    second: Tags,
    copies: Vec<Copy>,
    versions: Vec<Version>,
    recent: [Recent; RECENT],
}

impl Private {
    /// Empty caches.
    pub fn new(parameters: &CacheParameters) -> Private {
        let first = Tags::new(parameters.l1_bytes, parameters.l1_ways);
        let second = Tags::new(parameters.l2_bytes, parameters.l2_ways);
        Private {
            in_second: vec![0; first.capacity()],
            copies: vec![Copy::Invalid; second.capacity()],
            versions: vec![0; second.capacity()],
            first,
            second,
            recent: [NOTHING; RECENT],
        }
    }

    /// Looks for a line, as an access does.
    #[inline(always)]
    pub fn find(&mut self, line: u32) -> Option<Place> {
        let recent = self.recent[line as usize % RECENT];
        if recent.line == line {
            self.first.touch(recent.first as usize);
            return Some(Place { second: recent.second as usize, in_first: true });
        }
        self.search(line)
    }

    fn search(&mut self, line: u32) -> Option<Place> {
        if let Some(first) = self.first.find(line) {
            self.first.touch(first);
            let second = self.in_second[first];
            self.recent[line as usize % RECENT] = Recent { line, first: first as u32, second };
            return Some(Place { second: second as usize, in_first: true });
        }
        let second = self.second.find(line)?;
        self.second.touch(second);
        Some(Place { second, in_first: false })
    }

    /// Looks for a line, without counting as a use of it.
    #[inline]
    pub fn peek(&self, line: u32) -> Option<usize> {
        let recent = self.recent[line as usize % RECENT];
        if recent.line == line { Some(recent.second as usize) } else { self.second.find(line) }
    }

    /// The copy at a place.
    #[inline(always)]
    pub fn held(&self, place: usize) -> Held {
        Held { copy: self.copies[place], version: self.versions[place] }
    }

    /// Changes the copy at a place.
    #[inline(always)]
    pub fn set(&mut self, place: usize, held: Held) {
        self.copies[place] = held.copy;
        self.versions[place] = held.version;
    }

    /// Brings a line of the second level into the first.
    #[inline]
    pub fn promote(&mut self, line: u32, second: usize) {
        if let Some((place, victim)) = self.first.insert(line, |_| true) {
            if let Some(victim) = victim {
                self.forget(victim);
            }
            self.in_second[place] = second as u32;
        }
    }

    /// Puts a line in, in both levels; gives the line that had to go, and its copy. `may_go` says which may.
    pub fn install(&mut self, line: u32, held: Held, may_go: impl FnMut(u32) -> bool) -> Option<(u32, Held)> {
        if let Some(place) = self.second.find(line) {
            self.set(place, held);
            if self.first.find(line).is_none() {
                self.promote(line, place);
            }
            return None;
        }
        let (place, victim) = self.second.insert(line, may_go).expect("fewer lines are pinned than a set has ways");
        let gone = victim.map(|victim| {
            let gone = self.held(place);
            self.leave_first(victim);
            (victim, gone)
        });
        self.set(place, held);
        self.promote(line, place);
        gone
    }

    /// Takes a line out of both levels.
    pub fn remove(&mut self, line: u32, place: usize) {
        self.leave_first(line);
        self.second.remove(place);
        self.copies[place] = Copy::Invalid;
    }

    fn leave_first(&mut self, line: u32) {
        if let Some(first) = self.first.find(line) {
            self.first.remove(first);
        }
        self.forget(line);
    }

    fn forget(&mut self, line: u32) {
        let recent = &mut self.recent[line as usize % RECENT];
        if recent.line == line {
            *recent = NOTHING;
        }
    }
}
