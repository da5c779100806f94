//! The core face of the seam over this machine, for processors and for engines.

use std::cell::RefCell;

use conic_fabric::{Address, Core, Home, LINE_BYTES, Line, RegisterAccess, Time};

use super::machine::{Attachment, Machine, Request, Wait, What};
use super::queues::Queue;
use crate::combined::Combined;
use crate::fiber::Fiber;
use crate::probe::queues::Probed;
use crate::protocol::snooping::{Access, Copy};

/// A processor, or an engine of a network interface, as its program sees it. Copies are the same agent.
///
/// A processor's access takes its time for each eight bytes, an engine's for each block. An engine writes whole blocks without fetching
/// them, and reaches its own registers without a bus.
#[derive(Clone, Copy)]
pub struct BusCore<'a> {
    pub(super) fiber: Fiber<'a, Machine>,
    pub(super) agent: usize,
    pub(super) node: usize,
    is_engine: bool,
}

impl<'a> BusCore<'a> {
    pub(super) fn new(fiber: Fiber<'a, Machine>, agent: usize) -> BusCore<'a> {
        let (node, is_engine) = {
            let machine = fiber.machine.borrow();
            (machine.agents[agent].node, machine.agents[agent].is_engine)
        };
        BusCore { fiber, agent, node, is_engine }
    }

    /// The machine.
    pub fn machine(&self) -> &RefCell<Machine> {
        self.fiber.machine
    }

    /// Its node's number.
    pub fn node(&self) -> usize {
        self.node
    }

    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Machine) -> T) -> T {
        change(&mut self.fiber.machine.borrow_mut())
    }

    /// Lets the time of a load pass that finds what it loads; of an engine, that of a step.
    pub(super) fn step(&self) {
        self.fiber.pass(self.with(|machine| machine.agents[self.agent].pace.load));
    }

    /// Accesses `bytes` bytes of a block that is cached.
    fn access<T>(&self, at: Address, access: Access, bytes: u64, act: impl FnOnce(&mut Line) -> T) -> T {
        let line = (at.0 / LINE_BYTES) as u32;
        let mut missed = false;
        loop {
            let mut machine = self.fiber.machine.borrow_mut();
            let pace = machine.agents[self.agent].pace;
            if let Some(block) = machine.agents[self.agent].cache.block(line)
                && block.copy.needs(access).is_none()
            {
                block.copy = block.copy.after_hit(access);
                let result = act(&mut block.data);
                drop(machine);
                let accesses = if self.is_engine { 1 } else { bytes.div_ceil(8) };
                self.fiber.pass(accesses * if access == Access::Load { pace.load } else { pace.store });
                return result;
            }
            assert!(!machine.is_register(at), "{at} is a register's, and is accessed as coherent memory");
            if !missed {
                missed = true;
                drop(machine);
                self.fiber.pass(pace.miss);
                continue;
            }
            self.ask_for(machine, line, at, access);
        }
    }

    /// Asks the bus for a block, or to take what is in its way, and waits.
    fn ask_for(&self, mut machine: std::cell::RefMut<'_, Machine>, line: u32, at: Address, access: Access) {
        let in_the_way = machine.agents[self.agent].cache.in_the_way_of(line);
        let request = match in_the_way {
            Some(block) => {
                let victim = Address(u64::from(block.line) * LINE_BYTES);
                let dirty = block.copy.evicted().is_some();
                if !dirty || self.is_engine && machine.home_of(victim) == Home::Nic {
                    // What is clean is dropped, and what a device gives up of its own memory goes there without a bus.
                    if dirty {
                        machine.nodes[self.node].home[block.line as usize] = block.data;
                    }
                    return machine.agents[self.agent].cache.drop_line(block.line);
                }
                Request { agent: self.agent, at: victim, what: What::WriteBack }
            }
            None => Request { agent: self.agent, at, what: What::Block(access) },
        };
        machine.ask(request);
        self.fiber.wait(machine, Wait::Bus, None);
    }

    /// How a whole block is written.
    fn whole(&self) -> Access {
        if self.is_engine { Access::StoreWhole } else { Access::Store }
    }

    fn word_of(at: Address) -> usize {
        (at.0 % LINE_BYTES / 8) as usize
    }

    fn combined(&self, at: Address, operation: Combined) -> u64 {
        self.access(at, Access::Store, 8, |line| operation.apply(&mut line.0[Self::word_of(at)]))
    }

    /// Waits until `until` says so of the uncached stores that are not through.
    fn await_stores(&self, until: impl Fn(usize) -> bool) {
        loop {
            let machine = self.fiber.machine.borrow_mut();
            if until(machine.agents[self.agent].stores.len()) {
                return;
            }
            self.fiber.wait(machine, Wait::Stores, None);
        }
    }

    /// Splits a span of bytes by lines: the place in the span, where it lies, how long the part is.
    fn parts(at: Address, length: usize) -> impl Iterator<Item = (usize, Address, usize)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let here = at + done as u64;
            let part = (length - done).min((LINE_BYTES - here.0 % LINE_BYTES) as usize);
            let from = done;
            done += part;
            (part > 0).then_some((from, here, part))
        })
    }
}

impl Core for BusCore<'_> {
    fn load_acquire(&self, at: Address) -> u64 {
        self.load(at)
    }
    fn store_release(&self, at: Address, value: u64) {
        self.store(at, value);
    }
    fn fetch_and(&self, at: Address, bits: u64) -> u64 {
        self.combined(at, Combined::And(bits))
    }
    fn fetch_or(&self, at: Address, bits: u64) -> u64 {
        self.combined(at, Combined::Or(bits))
    }
    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
        let old = self.combined(at, Combined::CompareExchange(current, new));
        if old == current { Ok(old) } else { Err(old) }
    }
    fn load(&self, at: Address) -> u64 {
        self.access(at, Access::Load, 8, |line| line.0[Self::word_of(at)])
    }
    fn store(&self, at: Address, value: u64) {
        self.access(at, Access::Store, 8, |line| line.0[Self::word_of(at)] = value);
    }
    fn read_line(&self, at: Address) -> Line {
        self.access(at, Access::Load, LINE_BYTES, |line| *line)
    }
    fn write_line(&self, at: Address, line: &Line) {
        if self.is_engine && self.with(|machine| machine.is_register(at)) {
            // A device's own registers are no memory that anybody caches.
            self.step();
            return self.with(|machine| machine.nodes[self.node].home[(at.0 / LINE_BYTES) as usize] = *line);
        }
        self.access(at, self.whole(), LINE_BYTES, |block| *block = *line);
    }
    fn publish_line(&self, at: Address, line: &Line) {
        // The block is owned before any of it is written: its words become visible at once.
        self.write_line(at, line);
    }
    fn read_bytes(&self, at: Address, into: &mut [u8]) {
        for (from, here, length) in Self::parts(at, into.len()) {
            let first = (here.0 % LINE_BYTES) as usize;
            let part = &mut into[from..from + length];
            self.access(here, Access::Load, length as u64, |line| {
                part.copy_from_slice(&line.to_bytes()[first..first + length]);
            });
        }
    }
    fn write_bytes(&self, at: Address, from: &[u8]) {
        for (place, here, length) in Self::parts(at, from.len()) {
            let first = (here.0 % LINE_BYTES) as usize;
            self.access(here, Access::Store, length as u64, |line| {
                let mut bytes = line.to_bytes();
                bytes[first..first + length].copy_from_slice(&from[place..place + length]);
                *line = Line::from_bytes(&bytes);
            });
        }
    }
    fn prefetch_read(&self, at: Address) {
        // An engine has nothing else to do meanwhile; a processor of this machine has no such instruction.
        if self.is_engine {
            self.access(at, Access::Load, 8, |_| ());
        }
    }
    fn full_fence(&self) {
        self.await_stores(|left| left == 0);
    }
    fn watch(&self, at: Address, tag: u64) -> bool {
        self.with(|machine| {
            let line = (at.0 / LINE_BYTES) as u32;
            let watched = &mut machine.agents[self.agent].watched;
            watched.retain(|(other, _)| *other != line);
            watched.push((line, tag));
        });
        true
    }
    fn changed(&self) -> Option<u64> {
        self.with(|machine| machine.agents[self.agent].changed.pop_front())
    }
    fn register_read(&self, at: Address) -> u64 {
        if self.is_engine {
            self.step();
            return self.with(|machine| machine.register(self.node, at));
        }
        // In order behind the stores to the device.
        self.await_stores(|left| left == 0);
        let attachment = self.with(|machine| {
            machine.agents[self.agent].asked_device = true;
            machine.attachment
        });
        if attachment == Attachment::CacheBus {
            self.fiber.pass(self.with(|machine| machine.cycles(machine.parameters.cache_bus.load)));
            return self.with(|machine| {
                machine.note_access(self.node, RegisterAccess::Load(at));
                machine.register(self.node, at)
            });
        }
        self.fiber.pass(self.with(|machine| machine.agents[self.agent].pace.miss));
        let mut machine = self.fiber.machine.borrow_mut();
        machine.ask(Request { agent: self.agent, at, what: What::Load });
        self.fiber.wait(machine, Wait::Bus, None);
        self.step();
        self.with(|machine| machine.agents[self.agent].loaded)
    }
    fn register_write(&self, at: Address, value: u64) {
        self.fiber.pass(self.with(|machine| machine.agents[self.agent].pace.store));
        if self.is_engine {
            return self.with(|machine| machine.set_register(self.node, at, value));
        }
        let most = self.with(|machine| machine.parameters.core.store_buffer) as usize;
        self.await_stores(|left| left < most);
        self.with(|machine| {
            machine.agents[self.agent].stores.push_back((at, value));
            let now = machine.now();
            machine.enters(Queue::Stores(self.agent as u16), 0, now);
            machine.drain(self.agent);
        });
    }
    fn spin(&self) {
        self.spin_until(Time::NEVER);
    }
    fn spin_until(&self, until: Time) {
        let mut machine = self.fiber.machine.borrow_mut();
        let agent = &mut machine.agents[self.agent];
        // A register tells nobody when it changes: it must be asked again.
        let again = std::mem::take(&mut agent.news) | std::mem::take(&mut agent.asked_device);
        if !again {
            let until = (until != Time::NEVER).then(|| until.picoseconds());
            self.fiber.wait(machine, Wait::News, until);
            self.with(|machine| machine.agents[self.agent].news = false);
            return;
        }
        drop(machine);
        self.step();
    }
    fn now(&self) -> Time {
        Time::from_picoseconds(self.with(|machine| machine.agenda.now))
    }
    fn work(&self, cycles: u32) {
        let span = self.with(|machine| {
            let core = &machine.parameters.core;
            (core.cycles(u64::from(cycles) * 1000) as f64 * core.work_scale / 1000.0) as u64
        });
        self.fiber.pass(span);
    }
}

/// What a block of a processor's or an engine's cache is, for tests.
impl Machine {
    /// An agent's copy of the line at an address.
    pub fn copy_of(&self, agent: usize, at: Address) -> Copy {
        self.agents[agent].cache.copy((at.0 / LINE_BYTES) as u32)
    }
}
