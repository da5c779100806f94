//! A core that tells of what it does before it does it.

use conic_fabric::{Address, Core, Line, Time};

/// What a core is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// An access to a word, synchronising or owned.
    Word(Address),
    /// Reads a line.
    ReadLine(Address),
    /// Writes a line, or publishes it.
    WriteLine(Address),
    /// Reads up to eight bytes of bulk data.
    ReadBytes(Address),
    /// Writes bytes.
    WriteBytes(Address),
    /// Asks for a line to read.
    Prefetch(Address),
    /// Needs a line that it has read.
    DependsOn(Address),
    /// Works for so many cycles.
    Work(u32),
}

/// A core that tells `tell` of what it does before it does it on the core that it wraps. Bulk data is read a word at a time, each told
/// of, so that something else may happen between.
#[derive(Clone, Copy, Debug)]
pub struct ToldCore<C, F> {
    core: C,
    tell: F,
}

impl<C: Core, F: Fn(Does)> ToldCore<C, F> {
    /// A core that is told of.
    pub fn new(core: C, tell: F) -> ToldCore<C, F> {
        ToldCore { core, tell }
    }
}

impl<C: Core, F: Fn(Does)> Core for ToldCore<C, F> {
    fn load_acquire(&self, at: Address) -> u64 {
        (self.tell)(Does::Word(at));
        self.core.load_acquire(at)
    }
    fn store_release(&self, at: Address, value: u64) {
        (self.tell)(Does::Word(at));
        self.core.store_release(at, value);
    }
    fn fetch_and(&self, at: Address, bits: u64) -> u64 {
        (self.tell)(Does::Word(at));
        self.core.fetch_and(at, bits)
    }
    fn fetch_or(&self, at: Address, bits: u64) -> u64 {
        (self.tell)(Does::Word(at));
        self.core.fetch_or(at, bits)
    }
    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
        (self.tell)(Does::Word(at));
        self.core.compare_exchange(at, current, new)
    }
    fn load(&self, at: Address) -> u64 {
        (self.tell)(Does::Word(at));
        self.core.load(at)
    }
    fn store(&self, at: Address, value: u64) {
        (self.tell)(Does::Word(at));
        self.core.store(at, value);
    }
    fn read_line(&self, at: Address) -> Line {
        (self.tell)(Does::ReadLine(at));
        self.core.read_line(at)
    }
    fn write_line(&self, at: Address, line: &Line) {
        (self.tell)(Does::WriteLine(at));
        self.core.write_line(at, line);
    }
    fn publish_line(&self, at: Address, line: &Line) {
        (self.tell)(Does::WriteLine(at));
        self.core.publish_line(at, line);
    }
    fn read_bytes(&self, at: Address, into: &mut [u8]) {
        for (place, word) in into.chunks_mut(8).enumerate() {
            let at = at + 8 * place as u64;
            (self.tell)(Does::ReadBytes(at));
            self.core.read_bytes(at, word);
        }
    }
    fn write_bytes(&self, at: Address, from: &[u8]) {
        (self.tell)(Does::WriteBytes(at));
        self.core.write_bytes(at, from);
    }
    fn prefetch_read(&self, at: Address) {
        (self.tell)(Does::Prefetch(at));
        self.core.prefetch_read(at);
    }
    fn peek(&self, at: Address) -> Option<u64> {
        self.core.peek(at)
    }
    fn depends_on(&self, at: Address) {
        (self.tell)(Does::DependsOn(at));
        self.core.depends_on(at);
    }
    fn work(&self, cycles: u32) {
        (self.tell)(Does::Work(cycles));
        self.core.work(cycles);
    }
    fn full_fence(&self) {
        self.core.full_fence();
    }
    fn spin(&self) {
        self.core.spin();
    }
    fn now(&self) -> Time {
        self.core.now()
    }
}
