//! A core's store buffer.

use std::collections::VecDeque;
use std::ops::Deref;

use conic_fabric::Line;

/// A store that has not been performed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    pub line: u32,
    /// Where its data is.
    data: u16,
    /// Whether no store behind it has the same data.
    is_last: bool,
    /// Which bytes of the line it writes.
    pub bytes: u64,
    /// The last load before it: it is performed after that has come.
    pub after: u64,
}

/// The stores of a core that have not been performed, oldest first; it dereferences to them.
#[derive(Debug)]
pub(crate) struct Stores {
    stores: VecDeque<Store>,
    /// Their data. Who has done with it gives its place to the next one: places taken in turn would be host lines of which each is seldom
    /// used, and those of a hundred cores are more than the host's caches have room for.
    data: Vec<Line>,
    free: Vec<u16>,
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
        Stores { stores: VecDeque::with_capacity(limit), data: Vec::new(), free: Vec::new(), lines: 0 }
    }

    /// Puts a store in behind the others, and behind the load `after`.
    #[inline(always)]
    pub(crate) fn push_back(&mut self, line: u32, bytes: u64, data: &Line, after: u64) {
        self.lines |= bit(line);
        let place = self.free.pop().unwrap_or_else(|| self.add_place());
        self.data[usize::from(place)] = *data;
        self.stores.push_back(Store { line, data: place, is_last: true, bytes, after });
    }

    /// Puts a store of other bytes of the same data in behind the last one, which has not been taken out.
    #[inline(always)]
    pub(crate) fn push_part(&mut self, bytes: u64) {
        if let Some(before) = self.stores.back_mut() {
            before.is_last = false;
            let part = Store { bytes, is_last: true, ..*before };
            self.stores.push_back(part);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_place(&mut self) -> u16 {
        self.data.push(Line::ZERO);
        u16::try_from(self.data.len() - 1).expect("a store buffer has fewer than 65,536 stores")
    }

    /// What the store at a place writes, in the bytes of the line that it writes.
    #[inline(always)]
    pub(crate) fn data(&self, place: usize) -> &Line {
        &self.data[usize::from(self.stores[place].data)]
    }

    /// Takes the oldest out, if there is one; gives what it writes.
    #[inline(always)]
    pub(crate) fn pop_front(&mut self) -> Option<Line> {
        let Store { data, is_last, .. } = self.stores.pop_front()?;
        if is_last {
            self.free.push(data);
        }
        if self.stores.is_empty() {
            // Begins at its first place again.
            self.stores.clear();
            self.lines = 0;
        }
        Some(self.data[usize::from(data)])
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
        for number in 0..20_000 {
            // Lines of which some have the same lowest bits.
            let (line, bytes) = (draws.below(4) as u32 * 32, 1 << draws.below(3));
            let expected = plain.iter().rposition(|&(other, writes, _)| (other, writes) == (line, bytes));
            assert_eq!(stores.last_to(line, bytes), expected);
            assert_eq!(stores.write(line), plain.iter().any(|&(other, ..)| other == line));
            let data = Line([number; 8]);
            if plain.len() < 8 && draws.below(2) == 0 {
                plain.push_back((line, bytes, data));
                stores.push_back(line, bytes, &data, number);
            } else if plain.len() < 7 && draws.below(4) == 0 {
                plain.extend([(line, 8, data), (line, 16, data)]);
                stores.push_back(line, 8, &data, number);
                stores.push_part(16);
            } else {
                assert_eq!(stores.pop_front(), plain.pop_front().map(|(.., data)| data));
            }
            assert_eq!(stores.len(), plain.len());
            let found = (0..stores.len()).map(|place| (stores[place].line, stores[place].bytes, *stores.data(place)));
            assert!(found.eq(plain.iter().copied()));
        }
        assert!(stores.data.len() <= 8, "{} places for 8 stores", stores.data.len());
    }
}
