//! The hardware prefetchers of a core.
//!
//! | prefetcher | on | asks for |
//! |---|---|---|
//! | next line (DCU) | a load above the last one in the same line, or of the line behind one that was just loaded | the next line |
//! | adjacent line (L2) | a load that misses the second level | the other line of the 128-byte pair |
//! | stride (DCU IP) | a load of one place in the code whose last two strides were the same, up to 2 KiB | the line a stride ahead |
//!
//! None crosses a page of 4 KiB, and a prefetch that finds no line fill buffer free is dropped. Those of the first level (DCU) ask for
//! nothing either while many lines are under way, for loads or for stores. So Intel's optimisation manual: "triggered by an ascending
//! access to very recently loaded data", where "not many other load misses are in progress" and "there is not a continuous stream of
//! stores". How recent and how many it does not say: here one of the last eight lines, and more than half of the line fill buffers.

use crate::parameters::CoreParameters;
use crate::protocol::Ask;

use super::Machine;
use super::places::Place;
use super::uncached::Kind;

/// The longest stride, in lines.
const LONGEST: u32 = 32;
/// Lines of a page.
const PAGE_LINES: u32 = 64;
/// Lines that count as just loaded.
const RECENT: usize = 8;

/// What was loaded at a place in the code.
#[derive(Clone, Copy, Debug)]
struct Loads {
    line: u32,
    stride: i32,
}

impl Loads {
    /// Nothing yet; no line has this number.
    const NONE: Loads = Loads { line: u32::MAX, stride: 0 };
}

/// What was just loaded.
#[derive(Clone, Debug)]
struct Recent {
    /// Lines, and the bytes in them at which the last load of each began.
    loads: [(u32, u32); RECENT],
    /// The one that gives way.
    oldest: usize,
}

impl Recent {
    const NONE: Recent = Recent { loads: [(u32::MAX, 0); RECENT], oldest: 0 };

    /// Notes a load, and says whether it goes up from one that came just before it.
    #[inline(always)]
    fn ascends(&mut self, line: u32, offset: u32) -> bool {
        let before = line.wrapping_sub(1);
        let same = self.loads.iter().position(|load| load.0 == line);
        if let Some(at) = same.or_else(|| self.loads.iter().position(|load| load.0 == before)) {
            let ascends = self.loads[at].0 != line || self.loads[at].1 < offset;
            self.loads[at] = (line, offset);
            return ascends;
        }
        self.loads[self.oldest] = (line, offset);
        self.oldest = (self.oldest + 1) % RECENT;
        false
    }
}

/// Which prefetchers a core has, and what they have seen.
#[derive(Clone, Debug)]
pub(crate) struct Prefetchers {
    next_line: bool,
    adjacent: bool,
    stride: bool,
    on: bool,
    /// By the place's number.
    loads: Vec<Loads>,
    recent: Recent,
}

impl Prefetchers {
    pub(crate) fn new(parameters: &CoreParameters) -> Prefetchers {
        Prefetchers {
            next_line: parameters.prefetch_next_line,
            adjacent: parameters.prefetch_adjacent,
            stride: parameters.prefetch_stride,
            on: true,
            loads: Vec::new(),
            recent: Recent::NONE,
        }
    }

    /// Switches them all.
    pub(crate) fn set(&mut self, on: bool) {
        self.on = on;
    }

    /// Whether there is any.
    #[inline(always)]
    pub(crate) fn are_on(&self) -> bool {
        self.on && (self.next_line || self.adjacent || self.stride)
    }

    /// Notes a load, and gives the line that the stride prefetcher asks for, if it does.
    fn predict(&mut self, place: usize, line: u32) -> Option<u32> {
        if place >= self.loads.len() {
            self.loads.resize(place + 1, Loads::NONE);
        }
        let loads = &mut self.loads[place];
        let before = std::mem::replace(&mut loads.line, line);
        // A stride that does not fit is none that any other equals and is short.
        let stride = line.wrapping_sub(before) as i32;
        if before == u32::MAX || stride == 0 {
            return None;
        }
        let steady = stride == loads.stride && stride.unsigned_abs() <= LONGEST;
        loads.stride = stride;
        let ahead = line.checked_add_signed(stride)?;
        (steady && ahead / PAGE_LINES == line / PAGE_LINES).then_some(ahead)
    }
}

impl Machine {
    /// After a load that missed.
    pub(crate) fn after_miss(&mut self, id: usize, line: u32) {
        if self.agents[id].prefetchers.adjacent {
            self.hardware_prefetch(id, line ^ 1);
        }
    }

    /// After a load was issued, one that misses too: of these bytes of a line, at a place in the code.
    pub(crate) fn after_load(&mut self, id: usize, line: u32, bytes: u64, place: Place) {
        let agent = &mut self.agents[id];
        let many_under_way = 2 * agent.fills.len() > agent.fills.limit();
        let seen = &mut agent.prefetchers;
        let next = seen.next_line
            && seen.recent.ascends(line, bytes.trailing_zeros())
            && !(line + 1).is_multiple_of(PAGE_LINES);
        let ahead = if seen.stride { seen.predict(self.places.number(place), line) } else { None };
        if many_under_way {
            return;
        }
        if next {
            self.hardware_prefetch(id, line + 1);
        }
        if let Some(ahead) = ahead {
            self.hardware_prefetch(id, ahead);
        }
    }

    fn hardware_prefetch(&mut self, id: usize, line: u32) {
        // Neither registers nor write-combining memory is ever cached.
        let exists = (line as usize) < self.data.len() && self.kind(line) == Kind::WriteBack;
        let agent = &mut self.agents[id];
        if exists && !agent.fills.are_full() && agent.caches.peek(line).is_none() && !agent.is_on_its_way(line) {
            agent.not_pure();
            agent.counters.accesses.hardware_prefetches += 1;
            let time = agent.time;
            self.fetch(id, line, Ask::Read, time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefetchers() -> Prefetchers {
        let platform = crate::platform::Platform::load("icx").expect("a platform that comes with the crate");
        Prefetchers::new(&platform.parameters().core)
    }

    #[test]
    fn two_equal_strides_of_one_place_are_run_ahead_of_and_others_are_not() {
        let mut seen = prefetchers();
        assert_eq!([0, 3, 6, 9].map(|line| seen.predict(7, line)), [None, None, Some(9), Some(12)]);
        assert_eq!([20, 30, 41].map(|line| seen.predict(7, line)), [None, None, None]);
        // Other places, as many as there may be, have strides of their own, and take none away.
        assert_eq!((8..1000).find_map(|place| seen.predict(place, 52)), None);
        assert_eq!([52, 63].map(|line| seen.predict(7, line)), [Some(63), None]);
    }

    #[test]
    fn only_a_load_above_one_that_came_just_before_it_goes_up() {
        let mut recent = Recent::NONE;
        // A line, again at the same place, further up in it, and further down.
        assert_eq!([0, 0, 8, 8, 0].map(|offset| recent.ascends(7, offset)), [false, false, true, false, false]);
        // The lines behind it and before it; a polled line goes up once.
        assert_eq!([8, 8, 9, 8, 7].map(|line| recent.ascends(line, 0)), [true, false, true, false, false]);
        // Others meanwhile, one fewer than push it out, and as many.
        for (others, ascends) in [(RECENT as u32 - 1, true), (RECENT as u32, false)] {
            let mut recent = Recent::NONE;
            recent.ascends(7, 0);
            (0..others).for_each(|other| _ = recent.ascends(100 + 2 * other, 0));
            assert_eq!(recent.ascends(8, 0), ascends);
        }
    }

    #[test]
    fn no_stride_is_longer_than_2_kibibytes_or_leaves_its_page() {
        let mut seen = prefetchers();
        assert_eq!([0, 33, 66].map(|line| seen.predict(1, line)), [None, None, None]);
        assert_eq!([160, 192, 224].map(|line| seen.predict(2, line)), [None, None, None]);
        assert_eq!([60, 61, 62, 63].map(|line| seen.predict(3, line)), [None, None, Some(63), None]);
    }
}
