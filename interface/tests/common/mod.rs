//! A single-threaded shared memory for tests: two agents, which word is which checked, and a cache line's moves counted.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::cell::Cell;

use conic_fabric::{Address, Core, LINE_BYTES, LINE_WORDS, Layout, Line, Time};

/// Memory that two agents share, with one cache each (MSI, no capacity).
pub struct Memory {
    words: Vec<Cell<u64>>,
    synchronising: Vec<bool>,
    /// Whether an agent has a line: 0 not, 1 shared, 2 modified.
    caches: [Vec<Cell<u8>>; 2],
    read_misses: [Vec<Cell<u64>>; 2],
    ownerships: [Vec<Cell<u64>>; 2],
}

impl Memory {
    pub fn new(layout: &Layout) -> Memory {
        let lines = (layout.bytes() / LINE_BYTES) as usize;
        let mut synchronising = vec![false; lines * LINE_WORDS];
        for segment in layout.segments() {
            for word in segment.start.0 / 8..segment.end().0 / 8 {
                synchronising[word as usize] = segment.synchronising.contains(word as usize % LINE_WORDS);
            }
        }
        fn zeroes<T: Default>(count: usize) -> Vec<Cell<T>> {
            (0..count).map(|_| Cell::default()).collect()
        }
        Memory {
            words: zeroes(lines * LINE_WORDS),
            synchronising,
            caches: [zeroes(lines), zeroes(lines)],
            read_misses: [zeroes(lines), zeroes(lines)],
            ownerships: [zeroes(lines), zeroes(lines)],
        }
    }

    /// One of the two agents, 0 or 1.
    pub fn agent(&self, index: usize) -> Agent<'_> {
        Agent { memory: self, index }
    }

    /// Reads that found no copy, of the lines in a range of bytes, by an agent.
    pub fn read_misses(&self, agent: usize, from: Address, bytes: u64) -> u64 {
        Self::sum(&self.read_misses[agent], from, bytes)
    }

    /// Writes that found the line not owned, of the lines in a range of bytes, by an agent.
    pub fn ownerships(&self, agent: usize, from: Address, bytes: u64) -> u64 {
        Self::sum(&self.ownerships[agent], from, bytes)
    }

    fn sum(counts: &[Cell<u64>], from: Address, bytes: u64) -> u64 {
        counts[(from.0 / LINE_BYTES) as usize..][..(bytes / LINE_BYTES) as usize].iter().map(Cell::get).sum()
    }

    /// Sets a word, as a peer that keeps to no rule would.
    pub fn poke(&self, at: Address, value: u64) {
        self.words[(at.0 / 8) as usize].set(value);
    }

    pub fn peek(&self, at: Address) -> u64 {
        self.words[(at.0 / 8) as usize].get()
    }
}

/// An agent's view.
#[derive(Clone, Copy)]
pub struct Agent<'memory> {
    memory: &'memory Memory,
    index: usize,
}

impl Agent<'_> {
    fn word(&self, at: Address, write: bool) -> &Cell<u64> {
        assert!(at.0.is_multiple_of(8), "a word at {at}");
        let line = (at.0 / LINE_BYTES) as usize;
        let (mine, other) = (&self.memory.caches[self.index][line], &self.memory.caches[1 - self.index][line]);
        if write {
            if mine.replace(2) != 2 {
                let count = &self.memory.ownerships[self.index][line];
                count.set(count.get() + 1);
            }
            other.set(0);
        } else if mine.get() == 0 {
            let count = &self.memory.read_misses[self.index][line];
            count.set(count.get() + 1);
            mine.set(1);
            if other.get() == 2 {
                other.set(1);
            }
        }
        &self.memory.words[(at.0 / 8) as usize]
    }

    fn synchronising(&self, at: Address) {
        assert!(self.memory.synchronising[(at.0 / 8) as usize], "{at} is an owned word");
    }

    fn owned(&self, at: Address) {
        assert!(!self.memory.synchronising[(at.0 / 8) as usize], "{at} is a synchronising word");
    }
}

impl Core for Agent<'_> {
    fn load_acquire(&self, at: Address) -> u64 {
        self.synchronising(at);
        self.word(at, false).get()
    }
    fn store_release(&self, at: Address, value: u64) {
        self.synchronising(at);
        self.word(at, true).set(value);
    }
    fn fetch_and(&self, at: Address, bits: u64) -> u64 {
        self.synchronising(at);
        let word = self.word(at, true);
        word.replace(word.get() & bits)
    }
    fn fetch_or(&self, at: Address, bits: u64) -> u64 {
        self.synchronising(at);
        let word = self.word(at, true);
        word.replace(word.get() | bits)
    }
    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
        self.synchronising(at);
        let word = self.word(at, true);
        if word.get() == current { Ok(word.replace(new)) } else { Err(word.get()) }
    }
    fn load(&self, at: Address) -> u64 {
        self.owned(at);
        self.word(at, false).get()
    }
    fn store(&self, at: Address, value: u64) {
        self.owned(at);
        self.word(at, true).set(value);
    }
    fn read_line(&self, at: Address) -> Line {
        assert!(at.is_line_aligned(), "a line at {at}");
        Line(std::array::from_fn(|index| self.word(at.word(index), false).get()))
    }
    fn write_line(&self, at: Address, line: &Line) {
        assert!(at.is_line_aligned(), "a line at {at}");
        for (index, word) in line.0.iter().enumerate() {
            self.store(at.word(index), *word);
        }
    }
    fn publish_line(&self, at: Address, line: &Line) {
        assert!(at.is_line_aligned(), "a line at {at}");
        for index in 1..LINE_WORDS {
            self.store(at.word(index), line.0[index]);
        }
        self.store_release(at, line.0[0]);
    }
    fn read_bytes(&self, at: Address, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            let at = at + index as u64;
            self.owned(Address(at.0 & !7));
            *byte = self.word(Address(at.0 & !7), false).get().to_ne_bytes()[(at.0 % 8) as usize];
        }
    }
    fn write_bytes(&self, at: Address, from: &[u8]) {
        for (index, byte) in from.iter().enumerate() {
            let at = at + index as u64;
            self.owned(Address(at.0 & !7));
            let word = self.word(Address(at.0 & !7), true);
            let mut bytes = word.get().to_ne_bytes();
            bytes[(at.0 % 8) as usize] = *byte;
            word.set(u64::from_ne_bytes(bytes));
        }
    }
    fn spin(&self) {}
    fn full_fence(&self) {}
    fn now(&self) -> Time {
        Time::ZERO
    }
}

/// A line whose words are all different, for every seed.
pub fn line(seed: u64) -> Line {
    Line(std::array::from_fn(|index| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64))
}

/// Bytes that depend on the seed and on their place.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|place| (line(seed ^ place >> 3).0[place as usize % 8] >> 17) as u8 ^ place as u8).collect()
}

/// Property tests replay: the same cases at each run, no files written.
pub fn replayed(cases: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config {
        cases,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1996),
        failure_persistence: None,
        ..proptest::test_runner::Config::default()
    }
}
