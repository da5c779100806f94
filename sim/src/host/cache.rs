//! The ways of the last-level cache that devices write to (direct cache access), to the line.
//!
//! | a device writes a line | what happens |
//! |---|---|
//! | that is there | it is overwritten in place: memory sees nothing |
//! | that is not | it takes the place of the one of its set that was written longest ago, which is written back |
//!
//! A set is of one slice: an address's hash says which slice, its low bits which set of it. So what is evicted is not what was written side by side
//! with what evicts it, even where a device writes line after line. Each line here is dirty: only devices write to these ways. Of cores' lines, which
//! may lie in them as well, none is seen: those that are clean cost memory nothing when they go.

use super::parameters::HostParameters;

/// No line.
const EMPTY: u32 = u32::MAX;

/// What became of a device's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It was there.
    Overwritten,
    /// It was not, and nothing had to go for it.
    Allocated,
    /// It was not, and this line goes to memory for it.
    Evicted(u64),
}

/// What devices' writes met in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Lines that were there.
    pub hits: u64,
    /// Lines that were not.
    pub misses: u64,
    /// Lines that had to go, each written back to memory.
    pub write_backs: u64,
}

/// The ways.
#[derive(Clone, Debug)]
pub(super) struct DirectCache {
    ways: usize,
    sets_of_slice: u64,
    /// A set after the other; in a set the line that was written last comes first.
    lines: Vec<u32>,
    pub(super) counters: CacheCounters,
}

impl DirectCache {
    /// Empty ways.
    pub(super) fn new(parameters: &HostParameters) -> DirectCache {
        let (ways, slices) = (parameters.iio.cache_ways as usize, u64::from(parameters.home.slices));
        let sets_of_slice = (parameters.iio.cache_bytes / 64 / ways as u64 / slices).max(1);
        let lines = vec![EMPTY; ways * (sets_of_slice * slices) as usize];
        DirectCache { ways, sets_of_slice, lines, counters: CacheCounters::default() }
    }

    /// Lines that there is room for.
    pub(super) fn room(&self) -> usize {
        self.lines.len()
    }

    /// A device writes a line, given by its slice and its number in memory.
    pub(super) fn write(&mut self, slice: u16, line: u64) -> Written {
        let set = (u64::from(slice) * self.sets_of_slice + line % self.sets_of_slice) as usize;
        let set = &mut self.lines[set * self.ways..(set + 1) * self.ways];
        let found = set.iter().position(|one| *one == line as u32);
        let last = found.unwrap_or(self.ways - 1);
        let gone = set[last];
        set[..=last].rotate_right(1);
        set[0] = line as u32;
        match (found, gone) {
            (Some(_), _) => {
                self.counters.hits += 1;
                Written::Overwritten
            }
            (None, EMPTY) => {
                self.counters.misses += 1;
                Written::Allocated
            }
            (None, gone) => {
                self.counters.misses += 1;
                self.counters.write_backs += 1;
                Written::Evicted(gone.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Platform;

    /// Two slices of four sets with two ways.
    fn cache() -> DirectCache {
        let platform = Platform::<HostParameters>::load_as("cascade-lake").unwrap_or_else(|error| panic!("{error}"));
        let mut parameters = platform.parameters().clone();
        parameters.home.slices = 2;
        (parameters.iio.cache_ways, parameters.iio.cache_bytes) = (2, 2 * 4 * 2 * 64);
        DirectCache::new(&parameters)
    }

    #[test]
    fn the_line_that_goes_is_the_one_of_its_set_that_was_written_longest_ago() {
        let mut cache = cache();
        assert_eq!(cache.room(), 16);
        assert_eq!([4, 8].map(|line| cache.write(1, line)), [Written::Allocated; 2], "set 0 has two ways");
        assert_eq!(cache.write(1, 4), Written::Overwritten, "and is written in place");
        assert_eq!(cache.write(1, 12), Written::Evicted(8), "4 was written after 8");
        assert_eq!(cache.write(1, 8), Written::Evicted(4));
        assert_eq!(cache.write(1, 12), Written::Overwritten);
        assert_eq!(cache.counters, CacheCounters { hits: 2, misses: 4, write_backs: 2 });
    }

    #[test]
    fn sets_and_slices_do_not_evict_each_other_s_lines() {
        let mut cache = cache();
        for slice in 0..2 {
            for line in 0..8 {
                assert_eq!(cache.write(slice, line), Written::Allocated, "slice {slice}, line {line}");
            }
        }
        assert_eq!(cache.write(0, 11), Written::Evicted(3), "of its own set");
        assert_eq!(cache.write(1, 3), Written::Overwritten, "and of its own slice");
    }
}
