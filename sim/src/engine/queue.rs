//! Events in total order: by time, then by who caused them, then in the order in which that one did.
//!
//! The order does not depend on when an event was put into the queue, so an agent may be simulated ahead of the others, as
//! far as nothing can reach it, and every run still is the same.
//!
//! A calendar queue: events of the near future are in lists, one for each 64 picoseconds; a list has few events, of which
//! the first in order is searched for. Events of the far future are in a heap. Lists are linked through one slab whose entries are
//! used again at once, so the whole queue stays in the first-level cache: a heap of all events took twice as long.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// When an event happens, and its place among those at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Picoseconds.
    pub time: u64,
    /// Who caused it, in the upper 16 bits; its how-manieth, in the others.
    order: u64,
}

impl Key {
    /// The `sequence`-th event of `source`, at `time`.
    pub fn new(time: u64, source: u16, sequence: u64) -> Key {
        Key { time, order: u64::from(source) << 48 | sequence & 0xffff_ffff_ffff }
    }
}

/// Base-two logarithm of the picoseconds that one list covers.
const SPAN: u32 = 6;
/// Lists, a power of two and a square: together a quarter of a microsecond.
const LISTS: usize = 4096;
/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    key: Key,
    event: E,
    next: u32,
}

/// Events that have not happened yet.
#[derive(Debug)]
pub struct EventQueue<E> {
    entries: Vec<Entry<E>>,
    free: u32,
    /// The first entry of each list.
    heads: Box<[u32; LISTS]>,
    /// Which lists have entries, and which words of this have bits.
    occupied: [u64; LISTS / 64],
    summary: u64,
    /// The list that the present lies in, counted from the beginning of time.
    present: u64,
    far: BinaryHeap<Reverse<(Key, u32)>>,
}

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue {
            entries: Vec::new(),
            free: NONE,
            heads: Box::new([NONE; LISTS]),
            occupied: [0; LISTS / 64],
            summary: 0,
            present: 0,
            far: BinaryHeap::new(),
        }
    }
}

impl<E: Copy> EventQueue<E> {
    /// Puts an event in, not before the last that was taken out.
    // Always inline, so that the event is made where it stays: one that was just written elsewhere, part by part, would be
    // copied only when the host's store buffer has drained.
    #[inline(always)]
    pub fn push(&mut self, key: Key, event: E) {
        let index = self.free;
        let index = if index == NONE {
            self.entries.push(Entry { key, event, next: NONE });
            self.entries.len() as u32 - 1
        } else {
            let entry = &mut self.entries[index as usize];
            self.free = entry.next;
            (entry.key, entry.event) = (key, event);
            index
        };
        self.place(key, index);
    }

    #[inline(always)]
    fn place(&mut self, key: Key, index: u32) {
        let list = key.time >> SPAN;
        debug_assert!(list >= self.present);
        if list - self.present >= LISTS as u64 {
            self.far.push(Reverse((key, index)));
            return;
        }
        let at = list as usize % LISTS;
        self.entries[index as usize].next = self.heads[at];
        self.heads[at] = index;
        self.occupied[at / 64] |= 1 << (at % 64);
        self.summary |= 1 << (at / 64);
    }

    /// The first list with entries, from the present on. There is one.
    #[inline(always)]
    fn first_list(&self) -> usize {
        let start = self.present as usize % LISTS;
        let (word, bit) = (start / 64, start % 64);
        let here = self.occupied[word] & u64::MAX << bit;
        if here != 0 {
            return word * 64 + here.trailing_zeros() as usize;
        }
        // The words after this one, then those before it, then the bits of this one before the start: as the summary has it
        // when this one's bit is the lowest.
        let from = word as u32 + 1;
        let word = (from + self.summary.rotate_right(from).trailing_zeros()) as usize % (LISTS / 64);
        word * 64 + self.occupied[word].trailing_zeros() as usize
    }

    /// Brings events of the far future that have come near into the lists.
    #[inline(never)]
    fn approach(&mut self) {
        while let Some(&Reverse((key, index))) = self.far.peek() {
            if (key.time >> SPAN) - self.present >= LISTS as u64 {
                return;
            }
            self.far.pop();
            self.place(key, index);
        }
    }

    /// Takes the first event out.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<(Key, E)> {
        if self.summary == 0 {
            let Reverse((key, _)) = self.far.peek()?;
            self.present = key.time >> SPAN;
            self.approach();
        }
        let list = self.first_list();
        let mut first = self.heads[list];
        let Entry { key, next, .. } = self.entries[first as usize];
        let mut time = key.time;
        if next == NONE {
            self.heads[list] = NONE;
            let word = &mut self.occupied[list / 64];
            *word &= !(1 << (list % 64));
            self.summary &= !(u64::from(*word == 0) << (list / 64));
        } else {
            first = self.take_first_of(list);
            time = self.entries[first as usize].key.time;
        }
        self.entries[first as usize].next = self.free;
        self.free = first;
        let present = time >> SPAN;
        if present != self.present {
            self.present = present;
            if !self.far.is_empty() {
                self.approach();
            }
        }
        let Entry { key, event, .. } = self.entries[first as usize];
        Some((key, event))
    }

    /// Takes the first in order out of a list of several.
    fn take_first_of(&mut self, list: usize) -> u32 {
        let (mut before, mut first) = (NONE, self.heads[list]);
        let Entry { mut key, next: mut index, .. } = self.entries[first as usize];
        let mut previous = first;
        while index != NONE {
            let entry = &self.entries[index as usize];
            if entry.key < key {
                (before, first, key) = (previous, index, entry.key);
            }
            (previous, index) = (index, entry.next);
        }
        let next = self.entries[first as usize].next;
        if before == NONE {
            self.heads[list] = next;
        } else {
            self.entries[before as usize].next = next;
        }
        first
    }

    /// The first event's time.
    #[inline]
    pub fn first_time(&self) -> Option<u64> {
        if self.summary == 0 {
            return self.far.peek().map(|Reverse((key, _))| key.time);
        }
        let mut index = self.heads[self.first_list()];
        let mut time = u64::MAX;
        while index != NONE {
            time = time.min(self.entries[index as usize].key.time);
            index = self.entries[index as usize].next;
        }
        Some(time)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        let next = |&index: &u32| Some(self.entries[index as usize].next).filter(|&next| next != NONE);
        let free = std::iter::successors(Some(self.free).filter(|&first| first != NONE), next).count();
        self.entries.len() - free
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.summary == 0 && self.far.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    #[test]
    fn events_come_out_in_order_whatever_order_they_went_in() {
        for seed in 0..20 {
            let (mut draws, mut queue, mut sorted) =
                (Draws::new(seed), EventQueue::default(), std::collections::BTreeSet::new());
            let (mut now, mut sequence) = (0, 0);
            for _ in 0..20_000 {
                if draws.below(5) < 3 {
                    // Near, at the same time, about half a microsecond away, and far.
                    let reach = [1, 200, 40_000, 530_000, 5_000_000][draws.below(5) as usize];
                    sequence += 1;
                    let key = Key::new(now + draws.below(reach), draws.below(4) as u16, sequence);
                    queue.push(key, key);
                    sorted.insert(key);
                } else {
                    let expected = sorted.pop_first();
                    assert_eq!(queue.first_time(), expected.map(|key| key.time));
                    assert_eq!(queue.pop(), expected.map(|key| (key, key)));
                    now = expected.map_or(now, |key| key.time);
                }
                assert_eq!(queue.len(), sorted.len());
            }
            while let Some(expected) = sorted.pop_first() {
                assert_eq!(queue.pop(), Some((expected, expected)));
            }
            assert!(queue.is_empty() && queue.pop().is_none());
        }
    }

    #[test]
    fn at_one_time_the_source_decides_and_then_the_sequence() {
        let mut queue = EventQueue::default();
        for (source, sequence) in [(3, 1), (1, 9), (1, 2), (0, 77)] {
            queue.push(Key::new(5, source, sequence), (source, sequence));
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, [(0, 77), (1, 2), (1, 9), (3, 1)]);
    }
}
