//! Events in total order: by time, then by who caused them, then in the order in which that one did.
//!
//! The order does not depend on when an event was put into the queue, so an agent may be simulated ahead of the others, as
//! far as nothing can reach it, and every run still is the same.
//!
//! A calendar queue: events of the near future are in lists, one for each 32 picoseconds; a list has few events, of which
//! the first in order is searched for. Events of the far future are in a heap. Lists are linked through one slab whose entries are
//! used again at once, so the whole queue stays in the first-level cache: a heap of all events took twice as long.
//!
//! The first event of all is in no list: when it is taken out, the next one is searched for at once, while the host is busy with
//! this one. Searched for when it was asked for, it had to be waited for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::select_unpredictable;

/// When an event happens, and its place among those at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Picoseconds.
    pub time: u64,
    /// Who caused it, in the upper 16 bits; its how-manieth, in the others.
    order: u64,
}

impl Key {
    /// After every event.
    const NEVER: Key = Key { time: u64::MAX, order: u64::MAX };

    /// The `sequence`-th event of `source`, at `time`.
    pub fn new(time: u64, source: u16, sequence: u64) -> Key {
        Key { time, order: u64::from(source) << 48 | sequence & 0xffff_ffff_ffff }
    }

    /// The event of the same source that comes next, so much later.
    pub fn next(self, later: u64) -> Key {
        Key { time: self.time + later, order: self.order + 1 }
    }

    /// Whether it comes before another one.
    #[inline(always)]
    pub fn is_before(self, other: Key) -> bool {
        // As one number: which of two is earlier is as hard to foresee as can be.
        let number = |key: Key| u128::from(key.time) << 64 | u128::from(key.order);
        number(self) < number(other)
    }

    /// Itself, or the other one if `other_it_is`, which is hard to foresee.
    #[inline(always)]
    fn or_if(self, other_it_is: bool, other: Key) -> Key {
        Key {
            time: select_unpredictable(other_it_is, other.time, self.time),
            order: select_unpredictable(other_it_is, other.order, self.order),
        }
    }
}

/// Base-two logarithm of the picoseconds that one list covers.
const SPAN: u32 = 5;
/// Lists, a power of two and a square: together an eighth of a microsecond.
const LISTS: usize = 4096;
/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    key: Key,
    /// None before the first.
    event: Option<E>,
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
    /// When the first of these comes near, as the present is counted: the host foresees that it mostly is not yet.
    approaches: u64,
    /// The first entry of all, which is in no list, and its key: found while the host is busy with the event before it.
    first: u32,
    first_key: Key,
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
            approaches: u64::MAX,
            first: NONE,
            first_key: Key::NEVER,
        }
    }
}

impl<E: Copy> EventQueue<E> {
    /// Puts an event in, not before the last that was taken out.
    // Always inline, so that the event is made where it stays: one that was just written elsewhere, part by part, would be
    // copied only when the host's store buffer has drained.
    #[inline(always)]
    pub fn push(&mut self, key: Key, event: E) {
        if self.free == NONE {
            self.add_entry();
        }
        let index = self.free;
        let entry = &mut self.entries[index as usize];
        self.free = entry.next;
        (entry.key, entry.event) = (key, Some(event));
        // The later of it and the first of all goes into a list: which one that is, the host could not foresee.
        let is_first = key.is_before(self.first_key);
        let (later, later_key) =
            (select_unpredictable(is_first, self.first, index), key.or_if(is_first, self.first_key));
        self.first = select_unpredictable(is_first, index, self.first);
        self.first_key = self.first_key.or_if(is_first, key);
        if later != NONE {
            self.place(later_key, later);
        }
    }

    /// Makes a free entry, where there is none.
    // On its own, as the heap's push is: this code stands wherever an event is put in, and the host's first-level cache has not
    // room for all of the simulator's. It is not told the event, which would be made in two places then.
    #[cold]
    #[inline(never)]
    fn add_entry(&mut self) {
        self.free = self.entries.len() as u32;
        self.entries.push(Entry { key: Key::NEVER, event: None, next: NONE });
    }

    /// Puts an entry into its list.
    #[inline(always)]
    fn place(&mut self, key: Key, index: u32) {
        let list = key.time >> SPAN;
        debug_assert!(list >= self.present);
        if list - self.present >= LISTS as u64 {
            return self.place_far(key, index);
        }
        let at = list as usize % LISTS;
        self.entries[index as usize].next = self.heads[at];
        self.heads[at] = index;
        self.occupied[at / 64] |= 1 << (at % 64);
        self.summary |= 1 << (at / 64);
    }

    /// Puts an entry of the far future into the heap.
    #[inline(never)]
    fn place_far(&mut self, key: Key, index: u32) {
        self.far.push(Reverse((key, index)));
        self.approaches = self.approaches.min((key.time >> SPAN) - LISTS as u64 + 1);
    }

    /// The first list with entries, from the present on. There is one.
    #[inline(always)]
    fn first_list(&self) -> usize {
        let start = self.present as usize % LISTS;
        let (word, bit) = (start / 64, start % 64);
        let here = self.occupied[word] & u64::MAX << bit;
        // The words after this one, then those before it, then the bits of this one before the start: as the summary has it
        // when this one's bit is the lowest.
        let from = word as u32 + 1;
        let other = (from + self.summary.rotate_right(from).trailing_zeros()) as usize % (LISTS / 64);
        // Both are computed: whether the next event is near is hard to foresee.
        let (word, bits) = select_unpredictable(here != 0, (word, here), (other, self.occupied[other]));
        word * 64 + bits.trailing_zeros() as usize
    }

    /// Brings events of the far future that have come near into the lists.
    #[inline(never)]
    fn approach(&mut self) {
        self.approaches = u64::MAX;
        while let Some(&Reverse((key, index))) = self.far.peek() {
            let list = key.time >> SPAN;
            if list - self.present >= LISTS as u64 {
                self.approaches = list - LISTS as u64 + 1;
                return;
            }
            self.far.pop();
            self.place(key, index);
        }
    }

    /// Takes the first event out.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<(Key, E)> {
        let (index, key) = (self.first, self.first_key);
        if index == NONE {
            return None;
        }
        self.present = key.time >> SPAN;
        if self.present >= self.approaches {
            self.approach();
        }
        // Whoever handles this event need not wait for the search for the next one.
        (self.first, self.first_key) = self.take_first();
        let entry = &mut self.entries[index as usize];
        entry.next = self.free;
        self.free = index;
        entry.event.map(|event| (key, event))
    }

    /// Takes the first entry out of the lists, or out of the far future where they are empty.
    #[inline(always)]
    fn take_first(&mut self) -> (u32, Key) {
        if self.summary == 0 {
            return self.far.pop().map_or((NONE, Key::NEVER), |Reverse((key, index))| (index, key));
        }
        let list = self.first_list();
        let head = self.heads[list];
        let Entry { key, next, .. } = self.entries[head as usize];
        // A list of one is treated as one of two that are the same: which it is, the host could not foresee.
        let second = select_unpredictable(next != NONE, next, head);
        let Entry { key: second_key, next: third, .. } = self.entries[second as usize];
        if third != NONE {
            return self.take_first_of(list);
        }
        let earlier = second_key.is_before(key);
        let (first, left) = select_unpredictable(earlier, (second, head), (head, next));
        let key = key.or_if(earlier, second_key);
        self.entries[head as usize].next = NONE;
        self.heads[list] = left;
        let word = &mut self.occupied[list / 64];
        *word &= !(u64::from(left == NONE) << (list % 64));
        self.summary &= !(u64::from(*word == 0) << (list / 64));
        (first, key)
    }

    /// Takes the first in order out of a list of several.
    fn take_first_of(&mut self, list: usize) -> (u32, Key) {
        let (mut before, mut first) = (NONE, self.heads[list]);
        let Entry { mut key, next: mut index, .. } = self.entries[first as usize];
        let mut previous = first;
        while index != NONE {
            let entry = &self.entries[index as usize];
            let earlier = entry.key.is_before(key);
            (before, first) = select_unpredictable(earlier, (previous, index), (before, first));
            key = key.or_if(earlier, entry.key);
            (previous, index) = (index, entry.next);
        }
        let next = self.entries[first as usize].next;
        if before == NONE {
            self.heads[list] = next;
        } else {
            self.entries[before as usize].next = next;
        }
        (first, key)
    }

    /// The first event's time.
    #[inline(always)]
    pub fn first_time(&self) -> Option<u64> {
        (self.first != NONE).then_some(self.first_key.time)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        let next = |&index: &u32| Some(self.entries[index as usize].next).filter(|&next| next != NONE);
        let free = std::iter::successors(Some(self.free).filter(|&first| first != NONE), next).count();
        self.entries.len() - free
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.first == NONE
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
