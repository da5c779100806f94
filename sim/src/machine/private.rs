//! A core's private caches: which lines they hold, in what state.

use crate::engine::pages::{Room, Table};
use crate::parameters::CacheParameters;
use crate::protocol::cache::Held;
use crate::protocol::{Copy, Version};

use super::tags::Tags;

/// Where a line was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its place in the second level.
    pub second: usize,
    /// Whether the first level has it too.
    pub in_first: bool,
}

/// The first and second level of one core. The second level holds all that the first does.
#[derive(Debug)]
pub struct Private {
    /// A line is marked with the way of the second level that has it.
    first: Tags,
    /// A line is marked with its state.
    second: Tags,
    /// For each place of the second level, which version it has; empty where nobody checks that.
    versions: Vec<Version>,
    /// For each set of the first level, the line that was used last, and its place in the second level.
    last: Table<(u32, u32)>,
}

impl Private {
    /// Empty caches, beside those of other cores.
    pub fn within(room: &mut Room, parameters: &CacheParameters) -> Private {
        let first = Tags::within(room, parameters.l1_bytes, parameters.l1_ways);
        Private {
            last: room.collect((0..first.sets()).map(|_| (u32::MAX, 0))),
            first,
            second: Tags::within(room, parameters.l2_bytes, parameters.l2_ways),
            versions: Vec::new(),
        }
    }

    /// Has it keep the versions of its lines. They cost time and change no result, so only who checks them wants them.
    pub fn keep_versions(&mut self) {
        self.versions = vec![0; self.second.places()];
    }

    /// Looks for a line, as an access does.
    #[inline(always)]
    pub fn find(&mut self, line: u32) -> Option<Place> {
        let last = self.last[self.first.set(line)];
        if last.0 == line {
            return Some(Place { second: last.1 as usize, in_first: true });
        }
        self.search(line)
    }

    fn search(&mut self, line: u32) -> Option<Place> {
        if let Some(first) = self.first.find(line) {
            let way = self.first.touch(first);
            let second = self.second.place_in_set(line, way);
            self.last[self.first.set(line)] = (line, second as u32);
            return Some(Place { second, in_first: true });
        }
        // Lines are mostly used one after the other: with many cores a set is in none of the host's nearer caches any more.
        self.second.prefetch_next(line);
        let second = self.second.find(line)?;
        self.second.touch(second);
        Some(Place { second, in_first: false })
    }

    /// Looks for a line, without counting as a use of it.
    #[inline]
    pub fn peek(&self, line: u32) -> Option<usize> {
        self.second.find(line)
    }

    /// Has the host bring what a message about a line will look at.
    #[inline]
    pub fn prefetch(&self, line: u32) {
        self.second.prefetch(line);
        self.first.prefetch(line);
    }

    /// The copy at a place.
    #[inline(always)]
    pub fn held(&self, place: usize) -> Held {
        self.marked(self.second.mark(place), place)
    }

    /// The copy that a mark of the second level says, of the version at a place.
    #[inline(always)]
    fn marked(&self, mark: u8, place: usize) -> Held {
        let copy = match mark {
            0 => Copy::Invalid,
            1 => Copy::Shared,
            2 => Copy::Exclusive,
            _ => Copy::Modified,
        };
        Held { copy, version: self.versions.get(place).copied().unwrap_or_default() }
    }

    /// Changes the copy at a place.
    #[inline(always)]
    pub fn set(&mut self, place: usize, held: Held) {
        self.second.set_mark(place, held.copy as u8);
        if let Some(version) = self.versions.get_mut(place) {
            *version = held.version;
        }
    }

    /// Brings a line of the second level into the first.
    #[inline]
    pub fn promote(&mut self, line: u32, second: usize) {
        self.first.insert(line, self.second.way_of(second), |_| true).expect("any line may go");
        self.last[self.first.set(line)] = (line, second as u32);
    }

    /// Puts a line in, in both levels; gives the line that had to go, and its copy. `may_go` says which may. Where none of its set
    /// may, it is the line itself that goes, and whoever needs it asks again: a real core would hold it in its line fill buffer.
    #[inline(always)]
    pub fn install(&mut self, line: u32, held: Held, may_go: impl FnMut(u32) -> bool) -> Option<(u32, Held)> {
        if let Some(place) = self.second.find(line) {
            self.set(place, held);
            if self.first.find(line).is_none() {
                self.promote(line, place);
            }
            return None;
        }
        let Some((place, victim)) = self.second.insert(line, held.copy as u8, may_go) else {
            return Some((line, held));
        };
        let gone = victim.map(|victim| {
            self.leave_first(victim.line);
            (victim.line, self.marked(victim.mark, place))
        });
        if let Some(version) = self.versions.get_mut(place) {
            *version = held.version;
        }
        self.promote(line, place);
        gone
    }

    /// Takes a line out of both levels.
    #[inline(always)]
    pub fn remove(&mut self, line: u32, place: usize) {
        self.leave_first(line);
        self.second.remove(place);
    }

    #[inline]
    fn leave_first(&mut self, line: u32) {
        if let Some(first) = self.first.find(line) {
            self.first.remove(first);
            let last = &mut self.last[self.first.set(line)];
            if last.0 == line {
                last.0 = u32::MAX;
            }
        }
    }
}
