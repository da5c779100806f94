//! Events in total order: by time, then by who caused them, then in the order in which that one did.
//!
//! The order does not depend on when an event was put into the queue, so an agent may be simulated ahead of the others, as
//! far as nothing can reach it, and every run still is the same.

use std::cmp::Ordering;
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

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    key: Key,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Entry<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Entry<E>) -> Ordering {
        // The standard heap gives the greatest first.
        other.key.cmp(&self.key)
    }
}

/// Events that have not happened yet.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
}

impl<E> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue { heap: BinaryHeap::new() }
    }
}

impl<E: Copy> EventQueue<E> {
    /// Puts an event in.
    #[inline]
    pub fn push(&mut self, key: Key, event: E) {
        self.heap.push(Entry { key, event });
    }

    /// Takes the first event out.
    #[inline]
    pub fn pop(&mut self) -> Option<(Key, E)> {
        self.heap.pop().map(|entry| (entry.key, entry.event))
    }

    /// The first event's key.
    #[inline]
    pub fn first(&self) -> Option<Key> {
        self.heap.peek().map(|entry| entry.key)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
