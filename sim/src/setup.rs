//! Memory as whoever makes a region finds it: no time passes, nothing is cached.

use std::cell::RefCell;

use conic_fabric::{Address, Core, LINE_BYTES, Line, Time};

use crate::machine::Machine;

/// A core outside of time, to fill the region with before the programs start.
pub struct SetupCore<'a> {
    pub(crate) machine: &'a RefCell<Machine>,
}

impl SetupCore<'_> {
    fn change<T>(&self, at: Address, change: impl FnOnce(&mut u64) -> T) -> T {
        let mut machine = self.machine.borrow_mut();
        let line = &mut machine.data[(at.0 / LINE_BYTES) as usize];
        change(&mut line.0[(at.0 % LINE_BYTES / 8) as usize])
    }
}

impl Core for SetupCore<'_> {
    fn load_acquire(&self, at: Address) -> u64 {
        self.change(at, |word| *word)
    }
    fn store_release(&self, at: Address, value: u64) {
        self.change(at, |word| *word = value);
    }
    fn fetch_and(&self, at: Address, bits: u64) -> u64 {
        self.change(at, |word| std::mem::replace(word, *word & bits))
    }
    fn fetch_or(&self, at: Address, bits: u64) -> u64 {
        self.change(at, |word| std::mem::replace(word, *word | bits))
    }
    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
        self.change(at, |word| if *word == current { Ok(std::mem::replace(word, new)) } else { Err(*word) })
    }
    fn load(&self, at: Address) -> u64 {
        self.load_acquire(at)
    }
    fn store(&self, at: Address, value: u64) {
        self.store_release(at, value);
    }
    fn read_line(&self, at: Address) -> Line {
        self.machine.borrow().data[(at.0 / LINE_BYTES) as usize]
    }
    fn write_line(&self, at: Address, line: &Line) {
        self.machine.borrow_mut().data[(at.0 / LINE_BYTES) as usize] = *line;
    }
    fn publish_line(&self, at: Address, line: &Line) {
        self.write_line(at, line);
    }
    fn read_bytes(&self, at: Address, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            let here = at + index as u64;
            *byte = self.read_line(here.line()).to_bytes()[(here.0 % LINE_BYTES) as usize];
        }
    }
    fn write_bytes(&self, at: Address, from: &[u8]) {
        for (index, byte) in from.iter().enumerate() {
            let here = at + index as u64;
            let mut bytes = self.read_line(here.line()).to_bytes();
            bytes[(here.0 % LINE_BYTES) as usize] = *byte;
            self.write_line(here.line(), &Line::from_bytes(&bytes));
        }
    }
    fn full_fence(&self) {}
    fn spin(&self) {}
    fn now(&self) -> Time {
        Time::ZERO
    }
}
