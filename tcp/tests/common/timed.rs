//! A core whose time is what a test says, and which says until when whoever runs on it would sleep.

use std::cell::Cell;

use conic_fabric::{Address, Core, Line, Time};

/// Another core with this time.
#[derive(Clone, Copy)]
pub struct TimedCore<'a, C> {
    core: C,
    now: &'a Cell<Time>,
    sleeps_until: &'a Cell<Time>,
}

impl<'a, C: Core> TimedCore<'a, C> {
    /// It reads the time in `now`, and writes into `sleeps_until` when it is to be woken at the latest.
    pub fn new(core: C, now: &'a Cell<Time>, sleeps_until: &'a Cell<Time>) -> TimedCore<'a, C> {
        TimedCore { core, now, sleeps_until }
    }
}

impl<C: Core> Core for TimedCore<'_, C> {
    fn now(&self) -> Time {
        self.now.get()
    }
    fn spin(&self) {
        self.sleeps_until.set(Time::NEVER);
    }
    fn spin_until(&self, until: Time) {
        self.sleeps_until.set(until);
    }
    fn load_acquire(&self, at: Address) -> u64 {
        self.core.load_acquire(at)
    }
    fn store_release(&self, at: Address, value: u64) {
        self.core.store_release(at, value);
    }
    fn fetch_and(&self, at: Address, bits: u64) -> u64 {
        self.core.fetch_and(at, bits)
    }
    fn fetch_or(&self, at: Address, bits: u64) -> u64 {
        self.core.fetch_or(at, bits)
    }
    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
        self.core.compare_exchange(at, current, new)
    }
    fn load(&self, at: Address) -> u64 {
        self.core.load(at)
    }
    fn store(&self, at: Address, value: u64) {
        self.core.store(at, value);
    }
    fn read_line(&self, at: Address) -> Line {
        self.core.read_line(at)
    }
    fn write_line(&self, at: Address, line: &Line) {
        self.core.write_line(at, line);
    }
    fn publish_line(&self, at: Address, line: &Line) {
        self.core.publish_line(at, line);
    }
    fn read_bytes(&self, at: Address, into: &mut [u8]) {
        self.core.read_bytes(at, into);
    }
    fn write_bytes(&self, at: Address, from: &[u8]) {
        self.core.write_bytes(at, from);
    }
    fn full_fence(&self) {
        self.core.full_fence();
    }
}
