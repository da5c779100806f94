//! The core face of the seam over this machine.

use std::cell::RefCell;

use conic_fabric::{Address, Core, LINE_BYTES, Line, Time};

use super::core_state::Store;
use super::machine::{Data, Machine, Wait};
use super::queues::Queue;
use crate::combined::Combined;
use crate::fiber::Fiber;
use crate::probe::queues::Probed;

/// A core of the modelled CPU, as its program sees it. Copies are the same core.
#[derive(Clone, Copy)]
pub struct EciCore<'a> {
    fiber: Fiber<'a, Machine>,
    core: u16,
    line_bytes: u64,
}

impl<'a> EciCore<'a> {
    pub(super) fn new(fiber: Fiber<'a, Machine>, core: u16) -> EciCore<'a> {
        let line_bytes = fiber.machine.borrow().parameters.cache.line_bytes;
        EciCore { fiber, core, line_bytes }
    }

    fn unit_of(&self, at: Address) -> u32 {
        (at.0 / self.line_bytes) as u32
    }

    fn word_of(&self, at: Address) -> usize {
        (at.0 % self.line_bytes / 8) as usize
    }

    /// Interrupts the run, which goes on here when it is run again.
    pub fn pause(&self) {
        let mut machine = self.fiber.machine.borrow_mut();
        machine.pause = true;
        self.fiber.wait(machine, Wait::Outside, None);
    }

    /// The machine.
    pub fn machine(&self) -> &RefCell<Machine> {
        self.fiber.machine
    }

    /// Time to issue accesses to so many bytes.
    fn issue(&self, machine: &Machine, bytes: u64) -> u64 {
        let p = &machine.parameters.core;
        let accesses = bytes.div_ceil(p.access_bytes.into());
        p.cycles(accesses * u64::from(p.issue_cycles))
    }

    fn with<T>(&self, change: impl FnOnce(&mut Machine) -> T) -> T {
        change(&mut self.fiber.machine.borrow_mut())
    }

    /// The timer interrupts that have come take the core.
    fn take_interrupts(&self) {
        self.fiber.pass(self.with(|machine| machine.interrupted(self.core.into())));
    }

    /// Writes down that something was done, from one time to another, where somebody wants to see it.
    pub fn note_span(&self, name: &'static str, begins: Time, ends: Time) {
        self.with(|machine| machine.note_span(self.core, name, begins, ends));
    }

    /// Waits for this core's stores until `unless` says that there is nothing to wait for, or else for which line's stores; gives
    /// what it says then.
    fn await_stores<T>(&self, name: &'static str, mut unless: impl FnMut(&mut Machine) -> Result<T, u32>) -> T {
        let mut waited = None;
        loop {
            let mut machine = self.fiber.machine.borrow_mut();
            match unless(&mut machine) {
                Ok(ended) => {
                    if let Some((unit, begins)) = waited {
                        machine.note_wait(self.core, name, unit, begins);
                    }
                    return ended;
                }
                Err(unit) => {
                    waited = waited.or(Some((unit, machine.agenda.now)));
                    self.fiber.wait(machine, Wait::Stores, None);
                }
            }
        }
    }

    /// Waits until no store of this core to a line is on its way; a load that finds one waits for it.
    fn await_stores_to(&self, unit: u32) {
        let core = usize::from(self.core);
        self.await_stores("wait for a store", |machine| match machine.cores[core].stores_to(unit) {
            true => Err(unit),
            false => Ok(()),
        });
    }

    /// Loads `bytes` bytes of one line, which it gives whole.
    fn fetch(&self, at: Address, bytes: u64) -> Data {
        let unit = self.unit_of(at);
        self.take_interrupts();
        self.await_stores_to(unit);
        let mut machine = self.fiber.machine.borrow_mut();
        assert!((unit as usize) < machine.cache.len(), "{at} lies outside the region");
        machine.perhaps_evict();
        let rest = self.issue(&machine, bytes);
        if machine.cores[usize::from(self.core)].touch(unit) {
            machine.counters.l1_hits += 1;
            let data = machine.cache[unit as usize].data;
            let hit = u64::from(machine.parameters.core.l1_hit_cycles);
            let until = machine.agenda.now + rest + machine.parameters.core.cycles(hit);
            self.fiber.wait(machine, Wait::Time, Some(until));
            return data;
        }
        let begins = machine.agenda.now + self.issue(&machine, 1);
        let there = begins + machine.parameters.cache.core_to_l2;
        self.fiber.wait(machine, Wait::Time, Some(there));
        let mut machine = self.fiber.machine.borrow_mut();
        let back = machine.parameters.cache.l2_to_core;
        let data = match machine.load_at_l2(self.core, unit) {
            Some(data) => {
                drop(machine);
                self.fiber.pass(back);
                data
            }
            None => {
                self.fiber.wait(machine, Wait::Line(unit.into()), None);
                let core = usize::from(self.core);
                self.with(|machine| {
                    machine.note_wait(self.core, "wait for a line", unit, begins);
                    machine.cores[core].loaded.take()
                })
                .expect("a load goes on with its line")
            }
        };
        self.fiber.pass(rest);
        data
    }

    /// Stores words of one line.
    fn put(&self, at: Address, words: &[u64], release: bool) {
        self.take_interrupts();
        let mut values = [0; 8];
        values[..words.len()].copy_from_slice(words);
        let store = Store {
            unit: self.unit_of(at),
            word: self.word_of(at) as u8,
            count: words.len() as u8,
            values,
            there: 0,
            release,
            issued: false,
        };
        self.fiber.pass(self.with(|machine| self.issue(machine, 8 * words.len() as u64)));
        let core = usize::from(self.core);
        self.await_stores("wait for the store buffer", |machine| {
            assert!((store.unit as usize) < machine.cache.len(), "{at} lies outside the region");
            let stores = &machine.cores[core].stores;
            if stores.len() < machine.parameters.core.store_buffer as usize {
                machine.push_store(self.core, store);
                return Ok(());
            }
            Err(stores[0].unit)
        });
    }

    /// Waits until all stores of this core are performed, and it knows.
    fn drained(&self) {
        let core = usize::from(self.core);
        let known = self.await_stores("wait for all stores", |machine| {
            let state = &machine.cores[core];
            match state.stores.front() {
                None if state.performed > 0 => Ok(state.performed + machine.parameters.cache.l2_to_core),
                None => Ok(0),
                Some(store) => Err(store.unit),
            }
        });
        self.fiber.pass(known.saturating_sub(self.with(|machine| machine.agenda.now)));
    }

    fn atomic(&self, at: Address, operation: Combined) -> u64 {
        self.drained();
        self.fiber.pass(self.with(|machine| self.issue(machine, 8) + machine.parameters.cache.core_to_l2));
        let (core, unit) = (usize::from(self.core), self.unit_of(at));
        let mut machine = self.fiber.machine.borrow_mut();
        machine.cores[core].atomic = Some((self.word_of(at), operation));
        let back = machine.parameters.cache.l2_to_core;
        if let Some(old) = machine.atomic_at_l2(self.core, unit) {
            drop(machine);
            self.fiber.pass(back);
            return old;
        }
        let begins = machine.agenda.now.saturating_sub(machine.parameters.cache.core_to_l2);
        self.fiber.wait(machine, Wait::Line(unit.into()), None);
        self.with(|machine| {
            machine.note_wait(self.core, "wait for a line", unit, begins);
            machine.cores[core].found
        })
    }
}

impl Core for EciCore<'_> {
    fn load_acquire(&self, at: Address) -> u64 {
        self.load(at)
    }
    fn store_release(&self, at: Address, value: u64) {
        self.put(at, &[value], true);
    }
    fn fetch_and(&self, at: Address, bits: u64) -> u64 {
        self.atomic(at, Combined::And(bits))
    }
    fn fetch_or(&self, at: Address, bits: u64) -> u64 {
        self.atomic(at, Combined::Or(bits))
    }
    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
        let old = self.atomic(at, Combined::CompareExchange(current, new));
        if old == current { Ok(old) } else { Err(old) }
    }
    fn load(&self, at: Address) -> u64 {
        self.fetch(at, 8)[self.word_of(at)]
    }
    fn store(&self, at: Address, value: u64) {
        self.put(at, &[value], false);
    }
    fn read_line(&self, at: Address) -> Line {
        let data = self.fetch(at, LINE_BYTES);
        let first = self.word_of(at);
        Line(std::array::from_fn(|index| data[first + index]))
    }
    fn write_line(&self, at: Address, line: &Line) {
        self.put(at, &line.0, false);
    }
    fn publish_line(&self, at: Address, line: &Line) {
        // One store to one line: its words become visible at once.
        self.put(at, &line.0, true);
    }
    fn read_bytes(&self, at: Address, into: &mut [u8]) {
        let mut at = at;
        let mut into = into;
        while !into.is_empty() {
            let from = (at.0 % self.line_bytes) as usize;
            let length = into.len().min(self.line_bytes as usize - from);
            let data = self.fetch(at, length as u64);
            let (now, rest) = into.split_at_mut(length);
            for (index, byte) in now.iter_mut().enumerate() {
                let place = from + index;
                *byte = data[place / 8].to_ne_bytes()[place % 8];
            }
            (at, into) = (at + length as u64, rest);
        }
    }
    fn write_bytes(&self, at: Address, from: &[u8]) {
        // Word by word, what is beside the bytes read before: owned words, which nobody else writes meanwhile.
        let mut done = 0;
        while done < from.len() {
            let here = at + done as u64;
            let (word, offset) = (Address(here.0 & !7), (here.0 % 8) as usize);
            let length = (8 - offset).min(from.len() - done);
            let mut bytes = if length == 8 { [0; 8] } else { self.load(word).to_ne_bytes() };
            bytes[offset..offset + length].copy_from_slice(&from[done..done + length]);
            self.store(word, u64::from_ne_bytes(bytes));
            done += length;
        }
    }
    fn prefetch_read(&self, at: Address) {
        let unit = self.unit_of(at);
        self.fiber.pass(self.with(|machine| self.issue(machine, 1)));
        loop {
            let mut machine = self.fiber.machine.borrow_mut();
            let most = machine.parameters.core.prefetches;
            let state = &mut machine.cores[usize::from(self.core)];
            if state.touch(unit) {
                return;
            }
            if state.prefetches < most {
                state.prefetches += 1;
                let now = machine.agenda.now;
                machine.enters(Queue::Prefetches(self.core), 0, now);
                let most_late = machine.disturbances.prefetch_delay;
                let late = if most_late > 0 { machine.draws.below(most_late) } else { 0 };
                let there = machine.agenda.now + machine.parameters.cache.core_to_l2 + late;
                return machine.agenda.at(there, super::machine::Event::Prefetch(self.core, unit));
            }
            self.fiber.wait(machine, Wait::Prefetch, None);
        }
    }
    fn full_fence(&self) {
        self.drained();
    }
    fn spin(&self) {
        self.fiber.pass(self.with(|machine| machine.parameters.core.cycles(1)));
    }
    fn now(&self) -> Time {
        Time::from_picoseconds(self.with(|machine| machine.agenda.now))
    }
    fn work(&self, cycles: u32) {
        self.take_interrupts();
        self.fiber.pass(self.with(|machine| machine.parameters.core.cycles(cycles.into())));
    }
    fn coherence_unit(&self) -> u64 {
        self.line_bytes
    }
}
