//! Sets of lines by their numbers, of a fixed size.

/// Lines 0 to `64 * WORDS - 1`, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineSet<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> LineSet<WORDS> {
    /// No line.
    pub const EMPTY: LineSet<WORDS> = LineSet([0; WORDS]);
    /// How many lines a set can hold.
    pub const CAPACITY: u32 = 64 * WORDS as u32;

    /// The lines from `start` on, `count` of them.
    pub fn range(start: u16, count: u16) -> LineSet<WORDS> {
        let mut set = LineSet::EMPTY;
        (start..start + count).for_each(|line| set.insert(line));
        set
    }

    /// Puts a line in.
    #[inline]
    pub fn insert(&mut self, line: u16) {
        self.0[usize::from(line) / 64] |= 1 << (line % 64);
    }

    /// Takes a line out, and says whether it was in.
    #[inline]
    pub fn remove(&mut self, line: u16) -> bool {
        let (word, bit) = (&mut self.0[usize::from(line) / 64], 1 << (line % 64));
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }

    /// Whether a line is in.
    #[inline]
    pub fn contains(&self, line: u16) -> bool {
        self.0[usize::from(line) / 64] >> (line % 64) & 1 == 1
    }

    /// Whether no line is in.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// How many lines are in.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Takes the line with the smallest number out.
    #[inline]
    pub fn take_first(&mut self) -> Option<u16> {
        let (index, word) = self.0.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros();
        *word &= *word - 1;
        Some(index as u16 * 64 + bit as u16)
    }

    /// The lines that are in both.
    #[inline]
    pub fn and(mut self, other: &LineSet<WORDS>) -> LineSet<WORDS> {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= other);
        self
    }

    /// The lines that are in either.
    #[inline]
    pub fn or(mut self, other: &LineSet<WORDS>) -> LineSet<WORDS> {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
        self
    }

    /// The lines that are in this and not in the other.
    #[inline]
    pub fn without(mut self, other: &LineSet<WORDS>) -> LineSet<WORDS> {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= !other);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_set_is_that_of_its_numbers() {
        let (mut set, mut other) = (LineSet::<3>::EMPTY, LineSet::<3>::range(60, 70));
        let numbers = [0, 63, 64, 127, 128, 191];
        numbers.into_iter().for_each(|line| set.insert(line));
        let in_both: Vec<u16> = std::iter::from_fn({
            let mut both = set.and(&other);
            move || both.take_first()
        })
        .collect();
        assert_eq!(in_both, [63, 64, 127, 128]);
        assert_eq!((set.count(), other.count(), set.or(&other).count(), set.without(&other).count()), (6, 70, 72, 2));
        assert!(other.remove(129) && !other.remove(129) && !other.remove(0));
        let mut taken = BTreeSet::new();
        while let Some(line) = set.take_first() {
            assert!(taken.insert(line) && !set.contains(line));
        }
        assert_eq!(Vec::from_iter(taken), numbers);
        assert!(set.is_empty() && !other.is_empty());
    }
}
