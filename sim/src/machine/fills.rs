//! The line fill buffers of a core in use.

use wide::u32x16;

/// Lines that are compared at once.
const LANES: usize = 16;
/// What stands where no line does: regions are smaller.
const NONE: u32 = u32::MAX;

/// The lines for which a core's line fill buffers wait, each once, in no order.
#[derive(Debug)]
pub(crate) struct Fills {
    /// The first `used` are in use; the others are [`NONE`].
    lines: Vec<u32x16>,
    used: usize,
    limit: usize,
}

impl Fills {
    /// So many buffers, none of them in use.
    pub(crate) fn new(limit: u32) -> Fills {
        let limit = limit as usize;
        Fills { lines: vec![u32x16::splat(NONE); limit.div_ceil(LANES)], used: 0, limit }
    }

    /// How many there are.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// How many are in use.
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether none is left.
    #[inline(always)]
    pub(crate) fn are_full(&self) -> bool {
        self.used >= self.limit
    }

    /// Where one waits for a line.
    #[inline(always)]
    fn find(&self, line: u32) -> Option<usize> {
        self.lines.iter().zip((0..).step_by(LANES)).find_map(|(lines, first)| {
            let found = lines.simd_eq(u32x16::splat(line)).to_bitmask();
            (found != 0).then(|| first + found.trailing_zeros() as usize)
        })
    }

    /// Whether one waits for a line.
    #[inline(always)]
    pub(crate) fn wait_for(&self, line: u32) -> bool {
        self.find(line).is_some()
    }

    #[inline(always)]
    fn line_mut(&mut self, place: usize) -> &mut u32 {
        &mut self.lines[place / LANES].as_mut_array()[place % LANES]
    }

    /// Takes one for a line.
    #[inline(always)]
    pub(crate) fn take_for(&mut self, line: u32) {
        debug_assert!(!self.are_full() && !self.wait_for(line));
        *self.line_mut(self.used) = line;
        self.used += 1;
    }

    /// Frees the one that waits for a line.
    ///
    /// # Panics
    ///
    /// If none does.
    #[inline(always)]
    pub(crate) fn free(&mut self, line: u32) {
        let place = self.find(line).expect("a grant answers a request");
        self.used -= 1;
        let last = *self.line_mut(self.used);
        *self.line_mut(place) = last;
        *self.line_mut(self.used) = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_waits_from_its_request_to_its_grant_however_many_buffers_there_are() {
        for limit in [1, 16, 17, 40] {
            let mut fills = Fills::new(limit);
            let (mut waiting, mut draws) = (std::collections::BTreeSet::new(), crate::draws::Draws::new(limit.into()));
            for _ in 0..2_000 {
                let line = draws.below(2 * u64::from(limit)) as u32;
                assert_eq!(fills.wait_for(line), waiting.contains(&line));
                if waiting.remove(&line) {
                    fills.free(line);
                } else if !fills.are_full() {
                    fills.take_for(line);
                    waiting.insert(line);
                }
                assert_eq!((fills.len(), fills.is_empty()), (waiting.len(), waiting.is_empty()));
                assert_eq!(fills.are_full(), waiting.len() == fills.limit());
            }
        }
    }

    #[test]
    #[should_panic(expected = "a grant answers a request")]
    fn a_line_for_which_none_waits_is_refused() {
        Fills::new(4).free(7);
    }
}
