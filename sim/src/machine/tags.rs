//! Which lines a set-associative cache holds.
//!
//! A set of up to 16 ways is one cache line of the host, one of up to 32 ways two: a simulated access that misses the
//! host's own caches must not do so more often than it has to. A way is 32 bits:
//!
//! | bits | what |
//! |---|---|
//! | 31 to 10 | the line's tag: its number without what selects the set |
//! | 9 to 5 | what the cache's owner marks the line with |
//! | 4 to 0 | how many ways of the set were used later |

use wide::u32x16;

use crate::engine::ahead::prefetch;
use crate::engine::pages::{Room, Table};

/// Ways that are compared at once.
const LANES: usize = 16;
/// Most ways that a cache may have.
pub const MOST_WAYS: u32 = 2 * LANES as u32;

const TAG_SHIFT: u32 = 10;
const TAG: u32 = u32::MAX << TAG_SHIFT;
const MARK_SHIFT: u32 = 5;
const MARK: u32 = 0b11111 << MARK_SHIFT;
const RANK: u32 = 0b11111;
/// The tag of no line.
const EMPTY: u32 = TAG;
/// How many tags there are.
const MOST_TAGS: u64 = (EMPTY >> TAG_SHIFT) as u64;

/// How many sets a cache of `bytes` bytes and `ways` ways has.
fn sets(bytes: u64, ways: u32) -> u64 {
    (bytes / 64 / u64::from(ways.max(1))).max(1)
}

/// Stops where a region has more lines than the tags of one of these caches, by bytes and ways, tell apart.
///
/// # Panics
///
/// If it has.
pub fn must_tell_apart(lines: u64, caches: impl IntoIterator<Item = (u64, u32)>) {
    for (bytes, ways) in caches {
        let most = sets(bytes, ways) * MOST_TAGS;
        assert!(
            lines <= most,
            "a cache of {bytes} bytes and {ways} ways tells {most} lines apart, the region has {lines}"
        );
    }
}

/// A row of a set of which the way with this rank is used: those that were used later move back by one, and it to the front.
/// Whole rows are written, because they are read whole soon after.
#[inline(always)]
fn used(row: u32x16, rank: u32x16) -> u32x16 {
    let ranks = row & u32x16::splat(RANK);
    let later = ranks.simd_lt(rank) & u32x16::splat(1);
    row + later - (ranks.simd_eq(rank) & ranks)
}

/// All bits of the way at a place, and none of the others of its row. Whoever changes one way of a row writes the whole row, which
/// is soon read whole: after a write of a part, that would wait until the host's store buffer has drained.
#[inline(always)]
fn lane(place: usize) -> u32x16 {
    const LANE: u32x16 = u32x16::new([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    LANE.simd_eq(u32x16::splat((place % LANES) as u32))
}

/// A line that had to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The line.
    pub line: u32,
    /// What it was marked with.
    pub mark: u8,
}

/// The tags of a set-associative cache, least recently used first to go.
#[derive(Debug)]
pub struct Tags {
    sets: u32,
    ways: usize,
    /// Where the number of sets is a power of two, its logarithm.
    shift: u32,
    /// Else 2^64 / `sets`, rounded up: a multiplication in the place of a division, exact for all 32-bit numbers (Lemire,
    /// Kaser and Kurz, 2019). Zero where it is a power of two.
    reciprocal: u64,
    /// Base-two logarithm of the rows of a set.
    row_shift: u32,
    rows: Table<u32x16>,
}

impl Tags {
    /// An empty cache of `bytes` bytes in lines of 64 and `ways` ways; at least one set.
    ///
    /// # Panics
    ///
    /// If there are more than [`MOST_WAYS`] ways.
    pub fn new(bytes: u64, ways: u32) -> Tags {
        Tags::within(&mut Room::default(), bytes, ways)
    }

    /// The same beside the tags of other caches.
    ///
    /// # Panics
    ///
    /// If there are more than [`MOST_WAYS`] ways.
    pub fn within(room: &mut Room, bytes: u64, ways: u32) -> Tags {
        assert!(ways <= MOST_WAYS, "a cache has {MOST_WAYS} ways at most, not {ways}");
        let sets = sets(bytes, ways) as u32;
        let ways = ways.max(1) as usize;
        let shift = sets.trailing_zeros();
        let reciprocal = if sets.is_power_of_two() { 0 } else { u64::MAX / u64::from(sets) + 1 };
        let row_shift = u32::from(ways > LANES);
        let row = |row: usize| {
            // Ways that do not exist come last, and stay there.
            u32x16::new(std::array::from_fn(|lane| {
                let way = row % (1 << row_shift) * LANES + lane;
                EMPTY | if way < ways { way as u32 } else { RANK }
            }))
        };
        let rows = room.collect((0..(sets as usize) << row_shift).map(row));
        Tags { sets, ways, shift, reciprocal, row_shift, rows }
    }

    /// How many places there are; some are never used.
    pub fn places(&self) -> usize {
        self.rows.len() * LANES
    }

    /// The set of a line, and its tag.
    #[inline(always)]
    fn split(&self, line: u32) -> (usize, u32) {
        let (set, tag) = if self.reciprocal == 0 {
            (line & (self.sets - 1), line >> self.shift)
        } else {
            let tag = ((u128::from(self.reciprocal) * u128::from(line)) >> 64) as u32;
            (line - tag * self.sets, tag)
        };
        (set as usize, tag << TAG_SHIFT)
    }

    /// How many sets there are.
    pub fn sets(&self) -> usize {
        self.sets as usize
    }

    /// The set of a line.
    #[inline(always)]
    pub fn set(&self, line: u32) -> usize {
        self.split(line).0
    }

    /// The first row of a line's set, and its tag.
    #[inline(always)]
    fn row_of(&self, line: u32) -> (usize, u32) {
        let (set, tag) = self.split(line);
        (set << self.row_shift, tag)
    }

    #[inline(always)]
    fn way(&self, place: usize) -> u32 {
        self.rows[place / LANES].as_array()[place % LANES]
    }

    #[inline(always)]
    fn way_mut(&mut self, place: usize) -> &mut u32 {
        &mut self.rows[place / LANES].as_mut_array()[place % LANES]
    }

    /// Where a line is.
    #[inline(always)]
    pub fn find(&self, line: u32) -> Option<usize> {
        let (first, tag) = self.row_of(line);
        let found = |row: usize| {
            let found = (self.rows[row] & u32x16::splat(TAG)).simd_eq(u32x16::splat(tag)).to_bitmask();
            (found != 0).then(|| row * LANES + found.trailing_zeros() as usize)
        };
        match found(first) {
            None if self.row_shift != 0 => found(first + 1),
            place => place,
        }
    }

    /// Notes that the line at a place was used, and gives what it is marked with.
    #[inline(always)]
    pub fn touch(&mut self, place: usize) -> u8 {
        // Read before the row is written: from the row it would have to wait for that.
        let way = self.way(place);
        let mark = ((way & MARK) >> MARK_SHIFT) as u8;
        if way & RANK != 0 {
            let (row, rank) = (place / LANES, u32x16::splat(way & RANK));
            self.rows[row] = used(self.rows[row], rank);
            if self.row_shift != 0 {
                self.rows[row ^ 1] = used(self.rows[row ^ 1], rank);
            }
        }
        mark
    }

    /// What the line at a place is marked with.
    #[inline(always)]
    pub fn mark(&self, place: usize) -> u8 {
        ((self.way(place) & MARK) >> MARK_SHIFT) as u8
    }

    /// Marks the line at a place with a number below 32.
    #[inline(always)]
    pub fn set_mark(&mut self, place: usize, mark: u8) {
        let way = self.way_mut(place);
        *way = *way & !MARK | u32::from(mark) << MARK_SHIFT & MARK;
    }

    /// Where a place is in its set, below 32.
    #[inline(always)]
    pub fn way_of(&self, place: usize) -> u8 {
        (place & ((LANES << self.row_shift) - 1)) as u8
    }

    /// The place of a line's set that [`Tags::way_of`] names.
    #[inline(always)]
    pub fn place_in_set(&self, line: u32, way: u8) -> usize {
        self.row_of(line).0 * LANES + usize::from(way)
    }

    /// The line at a place, if there is one.
    #[inline(always)]
    fn line_at(&self, place: usize) -> Option<u32> {
        let tag = self.way(place) >> TAG_SHIFT;
        let set = ((place / LANES) >> self.row_shift) as u32;
        (tag != EMPTY >> TAG_SHIFT).then(|| tag * self.sets + set)
    }

    /// The lines of the set of a line.
    pub fn lines_beside(&self, line: u32) -> impl Iterator<Item = u32> {
        let first = self.row_of(line).0 * LANES;
        (first..first + self.ways).filter_map(|place| self.line_at(place))
    }

    /// All lines.
    pub fn lines(&self) -> impl Iterator<Item = u32> {
        (0..self.places()).filter_map(|place| self.line_at(place))
    }

    /// Puts a line in with a mark, and gives its place and what had to go for it. Of the lines that may go by `may_go`, that is
    /// the one not used for longest; none if no line may.
    #[inline]
    pub fn insert(&mut self, line: u32, mark: u8, may_go: impl FnMut(u32) -> bool) -> Option<(usize, Option<Gone>)> {
        self.insert_within(self.ways, line, mark, may_go)
    }

    /// The same in the first `ways` ways of the set.
    #[inline]
    pub fn insert_within(
        &mut self,
        ways: usize,
        line: u32,
        mark: u8,
        mut may_go: impl FnMut(u32) -> bool,
    ) -> Option<(usize, Option<Gone>)> {
        let (first, tag) = self.row_of(line);
        let exist = ((1_u64 << ways.min(self.ways)) - 1) as u32;
        let place = self.empty(first, exist).or_else(|| self.oldest(first, exist, &mut may_go))?;
        let gone = self.line_at(place).map(|line| Gone { line, mark: self.mark(place) });
        let (row, rank) = (place / LANES, u32x16::splat(self.way(place) & RANK));
        let way = u32x16::splat(tag | u32::from(mark) << MARK_SHIFT & MARK);
        self.rows[row] = lane(place).bitselect(way, used(self.rows[row], rank));
        if self.row_shift != 0 {
            self.rows[row ^ 1] = used(self.rows[row ^ 1], rank);
        }
        Some((place, gone))
    }

    /// The line that goes next for another one of its set, as long as the set is full, that line may go, and none is used before.
    #[inline]
    pub fn next_to_go(&self, line: u32) -> Option<u32> {
        let (first, oldest) = (self.row_of(line).0, u32x16::splat(self.ways as u32 - 1));
        let found = self.ways_that(first, |row| (row & u32x16::splat(RANK)).simd_eq(oldest));
        self.line_at(first * LANES + found.trailing_zeros() as usize)
    }

    /// Has the host bring a line's set.
    #[inline]
    pub fn prefetch(&self, line: u32) {
        prefetch(&self.rows[self.row_of(line).0]);
    }

    /// Has the host bring the set of the next line.
    #[inline(always)]
    pub fn prefetch_next(&self, line: u32) {
        if let Some(row) = self.rows.get(self.row_of(line).0 + (1 << self.row_shift)) {
            prefetch(row);
        }
    }

    /// The ways of a set that a test of rows holds for, a bit each.
    #[inline(always)]
    fn ways_that(&self, first: usize, test: impl Fn(u32x16) -> u32x16) -> u32 {
        let low = test(self.rows[first]).to_bitmask();
        if self.row_shift == 0 { low } else { low | test(self.rows[first + 1]).to_bitmask() << LANES }
    }

    /// The first empty way of a set among some ways.
    #[inline(always)]
    fn empty(&self, first: usize, among: u32) -> Option<usize> {
        let empty = self.ways_that(first, |row| (row & u32x16::splat(TAG)).simd_eq(u32x16::splat(EMPTY))) & among;
        (empty != 0).then(|| first * LANES + empty.trailing_zeros() as usize)
    }

    /// The way of a full set among some ways that was not used for longest and may go.
    #[inline(always)]
    fn oldest(&self, first: usize, among: u32, may_go: &mut impl FnMut(u32) -> bool) -> Option<usize> {
        // Mostly it is the first that is looked at.
        let last = self.ways as u32 - 1;
        let oldest = self.ranked(first, among, last).filter(|&place| self.line_at(place).is_some_and(&mut *may_go));
        oldest.or_else(|| self.next_oldest(first, among, may_go))
    }

    #[cold]
    #[inline(never)]
    fn next_oldest(&self, first: usize, among: u32, may_go: &mut impl FnMut(u32) -> bool) -> Option<usize> {
        let of_rank =
            |rank| self.ranked(first, among, rank).filter(|&place| self.line_at(place).is_some_and(&mut *may_go));
        (0..self.ways as u32 - 1).rev().find_map(of_rank)
    }

    /// The place of the way of a set among some ways that has this rank.
    #[inline(always)]
    fn ranked(&self, first: usize, among: u32, rank: u32) -> Option<usize> {
        let found = self.ways_that(first, |row| (row & u32x16::splat(RANK)).simd_eq(u32x16::splat(rank))) & among;
        (found != 0).then(|| first * LANES + found.trailing_zeros() as usize)
    }

    /// Takes the line at a place out.
    #[inline]
    pub fn remove(&mut self, place: usize) {
        self.rows[place / LANES] |= lane(place) & u32x16::splat(EMPTY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::CacheParameters;

    /// The line that an insertion took out.
    fn gone(inserted: Option<(usize, Option<Gone>)>) -> Option<u32> {
        Some(inserted?.1?.line)
    }

    #[test]
    fn the_line_that_was_not_used_for_longest_goes_first() {
        let mut tags = Tags::new(64 * 4, 4);
        for line in 0..4 {
            assert_eq!(tags.insert(line, 0, |_| true).map(|(_, gone)| gone), Some(None));
        }
        tags.touch(tags.find(0).expect("line 0 was put in"));
        assert_eq!(gone(tags.insert(9, 0, |_| true)), Some(1));
        assert_eq!(gone(tags.insert(8, 0, |line| line != 2)), Some(3));
        assert_eq!(tags.insert(7, 0, |_| false), None);
    }

    #[test]
    fn what_goes_next_is_foreseen() {
        for ways in [1, 4, 12, 16, 20, 32] {
            let mut tags = Tags::new(64 * 3 * u64::from(ways), ways);
            let mut foreseen = 0;
            for turn in 0..2000_u32 {
                let line = turn.wrapping_mul(2_654_435_761) >> 20;
                if let Some(place) = tags.find(line) {
                    tags.touch(place);
                    continue;
                }
                let next = tags.next_to_go(line);
                let victim = gone(tags.insert(line, 0, |_| true));
                assert_eq!(next, victim, "{ways} ways, turn {turn}");
                foreseen += u32::from(victim.is_some());
            }
            assert!(foreseen > 1000, "{ways} ways: only {foreseen} lines had to go");
        }
    }

    #[test]
    fn a_number_of_sets_that_is_no_power_of_two_holds_all_its_lines() {
        let mut tags = Tags::new(64 * 12 * 3, 12);
        for line in 0..36 {
            assert_eq!(tags.insert(line, 0, |_| true).map(|(_, gone)| gone), Some(None), "line {line}");
        }
        assert!((0..36).all(|line| tags.find(line).is_some()));
    }

    #[test]
    fn lines_up_to_the_last_are_told_apart() {
        for sets in [1, 2, 3, 48, 64, 1000, 2048] {
            let mut tags = Tags::new(64 * 2 * sets, 2);
            let last = (sets * MOST_TAGS - 1).min(u64::from(u32::MAX)) as u32;
            for line in [0, last / 3, last - 1, last] {
                let (place, _) = tags.insert(line, 31, |_| true).expect("every line may go");
                assert_eq!(tags.line_at(place), Some(line), "{sets} sets");
                assert_eq!(tags.place_in_set(line, tags.way_of(place)), place);
                assert_eq!((tags.find(line), tags.mark(place)), (Some(place), 31));
                tags.remove(place);
                assert_eq!((tags.find(line), tags.line_at(place)), (None, None));
            }
        }
    }

    /// A set as a list: the places' lines, and the lines by use, the latest last.
    #[derive(Default)]
    struct Reference {
        places: Vec<Option<u32>>,
        by_use: Vec<u32>,
        marks: std::collections::BTreeMap<u32, u8>,
    }

    impl Reference {
        fn touch(&mut self, line: u32) {
            self.by_use.retain(|&other| other != line);
            self.by_use.push(line);
        }

        fn insert(&mut self, ways: usize, line: u32, may_go: impl Fn(u32) -> bool) -> Option<Option<u32>> {
            let places = &self.places[..ways];
            let empty = places.iter().position(Option::is_none);
            let mut oldest = self.by_use.iter().filter(|&&line| places.contains(&Some(line)) && may_go(line));
            let (place, victim) = match (empty, oldest.next()) {
                (Some(place), _) => (place, None),
                (None, Some(&line)) => (places.iter().position(|&other| other == Some(line))?, Some(line)),
                (None, None) => return None,
            };
            self.places[place] = Some(line);
            self.by_use.retain(|&other| Some(other) != victim);
            self.touch(line);
            Some(victim)
        }
    }

    #[test]
    fn what_goes_is_what_a_list_by_use_says() {
        let mut draws = crate::draws::Draws::new(1);
        let mut next = |below: u64| draws.below(below);
        for (sets, ways) in [(1, 1), (2, 8), (3, 12), (1, 15), (4, 16), (2, 20), (3, 32)] {
            let mut tags = Tags::new(64 * sets * ways, ways as u32);
            let mut references: Vec<_> = (0..sets).map(|_| Reference::default()).collect();
            references.iter_mut().for_each(|one| one.places.resize(ways as usize, None));
            for step in 0..20_000 {
                let line = next(2 * sets * ways) as u32;
                let reference = &mut references[(u64::from(line) % sets) as usize];
                let place = tags.find(line);
                let set = tags.row_of(line).0 * LANES;
                let expected = reference.places.iter().position(|&other| other == Some(line)).map(|way| set + way);
                assert_eq!(place, expected, "{sets} sets of {ways} ways, step {step}");
                match (place, next(4)) {
                    (Some(place), 0) => {
                        tags.remove(place);
                        reference.places[place - set] = None;
                        reference.by_use.retain(|&other| other != line);
                    }
                    (Some(place), _) => {
                        tags.touch(place);
                        reference.touch(line);
                    }
                    (None, draw) => {
                        let within = if draw == 0 { 1 + next(ways) as usize } else { ways as usize };
                        let pinned = next(3) as u32;
                        let may_go = |line: u32| draw == 1 || line % 3 != pinned;
                        let mark = next(32) as u8;
                        let inserted = tags.insert_within(within, line, mark, may_go);
                        let expected = reference.insert(within, line, may_go);
                        let found = inserted.map(|(_, gone)| gone.map(|gone| gone.line));
                        assert_eq!(found, expected, "{ways} ways, step {step}");
                        if let Some((place, gone)) = inserted {
                            assert_eq!((tags.find(line), tags.mark(place)), (Some(place), mark));
                            let marked = gone.map(|gone| (Some(gone.mark), reference.marks.remove(&gone.line)));
                            assert!(marked.is_none_or(|(found, expected)| found == expected), "step {step}");
                            reference.marks.insert(line, mark);
                        }
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "tells 4194303 lines apart, the region has 4194304")]
    fn a_region_with_more_lines_than_tags_is_refused() {
        let platform = crate::platform::Platform::load("icx").expect("a platform that comes with the crate");
        let small = CacheParameters { l1_bytes: 64 * 12, ..platform.parameters().cache.clone() };
        must_tell_apart(MOST_TAGS, small.sizes());
        must_tell_apart(MOST_TAGS + 1, small.sizes());
    }

    #[test]
    #[should_panic(expected = "32 ways at most, not 33")]
    fn more_ways_than_a_set_can_tell_apart_are_refused() {
        Tags::new(64 * 33, 33);
    }
}
