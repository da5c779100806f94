//! A core's store buffer.

use std::collections::VecDeque;
use std::ops::Deref;

use conic_fabric::Line;

/// A store that has not been performed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    pub line: u32,
    /// Which bytes of the line it writes.
    pub bytes: u64,
    pub data: Line,
    /// The last load before it: it is performed after that has come.
    pub after: u64,
}

/// The stores of a core that have not been performed, oldest first; it dereferences to them.
#[derive(Debug)]
pub(crate) struct Stores {
    stores: VecDeque<Store>,
    /// A bit for each line that one may be to, by the line's lowest six bits, until there is none at all. Every load asks, and
    /// mostly no store is to its line: without the bits each store would be looked at, on host lines of its own.
    lines: u64,
}

/// The bit of a line.
#[inline(always)]
fn bit(line: u32) -> u64 {
    1 << (line % u64::BITS)
}

impl Stores {
    /// None, and room for so many.
    pub(crate) fn new(limit: usize) -> Stores {
        Stores { stores: VecDeque::with_capacity(limit), lines: 0 }
    }

    /// Puts one in behind the others.
    #[inline(always)]
    pub(crate) fn push_back(&mut self, store: Store) {
        self.lines |= bit(store.line);
        self.stores.push_back(store);
    }

    /// Takes the oldest out.
    #[inline(always)]
    pub(crate) fn pop_front(&mut self) {
        self.stores.pop_front();
        if self.stores.is_empty() {
            // Begins at its first place again: the whole buffer is more than the host's caches have room for, by agent.
            self.stores.clear();
            self.lines = 0;
        }
    }

    /// Where the last store stands that writes some of these bytes of a line.
    #[inline(always)]
    pub(crate) fn last_to(&self, line: u32, bytes: u64) -> Option<usize> {
        if self.lines & bit(line) == 0 {
            return None;
        }
        self.stores.iter().rposition(|store| store.line == line && store.bytes & bytes != 0)
    }

    /// Whether one is to a line.
    #[inline(always)]
    pub(crate) fn write(&self, line: u32) -> bool {
        self.last_to(line, u64::MAX).is_some()
    }
}

impl Deref for Stores {
    type Target = VecDeque<Store>;

    #[inline(always)]
    fn deref(&self) -> &VecDeque<Store> {
        &self.stores
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    #[test]
    fn the_last_store_to_a_line_is_found_whatever_came_and_went_before() {
        let (mut stores, mut plain, mut draws) = (Stores::new(8), VecDeque::new(), Draws::new(1));
        for _ in 0..20_000 {
            // Lines of which some have the same lowest bits.
            let (line, bytes) = (draws.below(4) as u32 * 32, 1 << draws.below(3));
            let expected = plain.iter().rposition(|&other| other == (line, bytes));
            assert_eq!(stores.last_to(line, bytes), expected);
            assert_eq!(stores.write(line), plain.iter().any(|&(other, _)| other == line));
            if plain.len() < 8 && draws.below(2) == 0 {
                plain.push_back((line, bytes));
                stores.push_back(Store { line, bytes, data: Line::ZERO, after: 0 });
            } else {
                plain.pop_front();
                stores.pop_front();
            }
            assert_eq!(stores.len(), plain.len());
        }
    }
}
