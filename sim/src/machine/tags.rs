//! Which lines a set-associative cache holds.

/// No line.
const EMPTY: u32 = u32::MAX;

/// The tags of a set-associative cache, least recently used first to go.
#[derive(Clone, Debug)]
pub struct Tags {
    sets: u32,
    ways: usize,
    /// Where the number of sets is a power of two, its mask.
    mask: Option<u32>,
    lines: Vec<u32>,
    /// When each was used last, in accesses of this cache, whose number wraps around.
    used: Vec<u32>,
    clock: u32,
}

impl Tags {
    /// An empty cache of `bytes` bytes in lines of 64 and `ways` ways; at least one set.
    pub fn new(bytes: u64, ways: u32) -> Tags {
        let ways = ways.max(1) as usize;
        let sets = ((bytes / 64) as usize / ways).max(1) as u32;
        let mask = sets.is_power_of_two().then(|| sets - 1);
        let entries = sets as usize * ways;
        Tags { sets, ways, mask, lines: vec![EMPTY; entries], used: vec![0; entries], clock: 0 }
    }

    /// How many lines it holds at most.
    pub fn capacity(&self) -> usize {
        self.lines.len()
    }

    #[inline(always)]
    fn set(&self, line: u32) -> usize {
        let set = match self.mask {
            Some(mask) => line & mask,
            None => line % self.sets,
        };
        set as usize * self.ways
    }

    /// Where a line is.
    #[inline(always)]
    pub fn find(&self, line: u32) -> Option<usize> {
        let start = self.set(line);
        self.lines[start..start + self.ways].iter().position(|&tag| tag == line).map(|way| start + way)
    }

    /// Notes that the line at a place was used.
    #[inline(always)]
    pub fn touch(&mut self, place: usize) {
        self.clock = self.clock.wrapping_add(1);
        self.used[place] = self.clock;
    }

    /// How many accesses of this cache ago the line at a place was used.
    #[inline(always)]
    fn age(&self, place: usize) -> u32 {
        self.clock.wrapping_sub(self.used[place])
    }

    /// The line at a place, if there is one.
    #[inline(always)]
    pub fn line_at(&self, place: usize) -> Option<u32> {
        Some(self.lines[place]).filter(|&line| line != EMPTY)
    }

    /// Puts a line in and gives its place and the line that had to go. Of those that may go by `may_go`, the one not used
    /// for longest; none if no line may.
    #[inline]
    pub fn insert(&mut self, line: u32, may_go: impl FnMut(u32) -> bool) -> Option<(usize, Option<u32>)> {
        self.insert_within(self.ways, line, may_go)
    }

    /// The same in the first `ways` ways of the set.
    #[inline]
    pub fn insert_within(
        &mut self,
        ways: usize,
        line: u32,
        mut may_go: impl FnMut(u32) -> bool,
    ) -> Option<(usize, Option<u32>)> {
        let start = self.set(line);
        let mut best: Option<usize> = None;
        for place in start..start + ways.min(self.ways) {
            let held = self.lines[place];
            if held == EMPTY {
                best = Some(place);
                break;
            }
            if best.is_none_or(|best| self.age(place) > self.age(best)) && may_go(held) {
                best = Some(place);
            }
        }
        let place = best?;
        let victim = self.line_at(place);
        self.lines[place] = line;
        self.touch(place);
        Some((place, victim))
    }

    /// Takes the line at a place out.
    #[inline]
    pub fn remove(&mut self, place: usize) {
        self.lines[place] = EMPTY;
        self.used[place] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_was_not_used_for_longest_goes_first() {
        let mut tags = Tags::new(64 * 4, 4);
        for line in 0..4 {
            assert_eq!(tags.insert(line, |_| true).map(|(_, victim)| victim), Some(None));
        }
        tags.touch(tags.find(0).expect("line 0 was put in"));
        assert_eq!(tags.insert(9, |_| true).and_then(|(_, victim)| victim), Some(1));
        assert_eq!(tags.insert(8, |line| line != 2).and_then(|(_, victim)| victim), Some(3));
        assert_eq!(tags.insert(7, |_| false), None);
    }

    #[test]
    fn the_order_of_use_outlives_four_billion_accesses() {
        let mut tags = Tags::new(64 * 3, 3);
        tags.clock = u32::MAX - 2;
        for line in 0..3 {
            assert_eq!(tags.insert(line, |_| true).map(|(_, victim)| victim), Some(None));
        }
        tags.touch(tags.find(0).expect("line 0 was put in"));
        assert_eq!(tags.insert(7, |_| true).and_then(|(_, victim)| victim), Some(1));
    }

    #[test]
    fn a_number_of_sets_that_is_no_power_of_two_holds_all_its_lines() {
        let mut tags = Tags::new(64 * 12 * 3, 12);
        assert_eq!(tags.capacity(), 36);
        for line in 0..36 {
            assert_eq!(tags.insert(line, |_| true).map(|(_, victim)| victim), Some(None), "line {line}");
        }
        assert!((0..36).all(|line| tags.find(line).is_some()));
    }
}
