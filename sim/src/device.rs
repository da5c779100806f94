//! The device face of the seam over the modelled machine: a device behind PCIe.

use std::cell::RefCell;

use conic_fabric::{Address, Device, DeviceMemory, Line, ReadTag, StateHint, Time};

use crate::fiber::Fiber;
use crate::machine::Machine;
use crate::machine::access::Step;

/// A device behind the PCIe link of the modelled machine, as its program sees it.
///
/// What it asks for costs the link, not the program: reads and writes begin in the moment in which the program stands, and
/// the program goes on. State hints mean nothing to PCIe; whether writes go to the last-level cache is the platform's choice.
pub struct SimDevice<'a> {
    fiber: Fiber<'a, Machine>,
}

impl<'a> SimDevice<'a> {
    pub(crate) fn new(fiber: Fiber<'a, Machine>) -> SimDevice<'a> {
        SimDevice { fiber }
    }

    /// The agent's number in the machine.
    pub fn agent(&self) -> usize {
        self.fiber.agent
    }

    /// The machine.
    pub fn machine(&self) -> &RefCell<Machine> {
        self.fiber.machine
    }

    /// Waits until something comes that this program may not have seen: a write to a register that it has looked at, or the
    /// rest of a read's data; but no longer than until a time.
    pub fn spin_until(&self, until: Time) {
        let until = until.picoseconds();
        self.until_done(until, |machine, agent| machine.news(agent, until));
    }

    /// Takes steps until one is done. News that comes while it waits is left for [`Machine::news`] to find.
    fn until_done<T>(&self, until: u64, mut step: impl FnMut(&mut Machine, usize) -> Step<T>) -> T {
        loop {
            let mut machine = self.fiber.machine.borrow_mut();
            match step(&mut machine, self.fiber.agent) {
                Ok(value) => return value,
                Err(wait) => self.fiber.wait(machine, wait, (until != u64::MAX).then_some(until)),
            }
        }
    }
}

impl Device for SimDevice<'_> {
    fn start_read(&self, at: Address, bytes: u64, _hint: StateHint) -> ReadTag {
        ReadTag(self.until_done(u64::MAX, |machine, agent| machine.start_device_read(agent, at.0, bytes)))
    }
    fn is_ready(&self, tag: &ReadTag) -> bool {
        self.until_done(u64::MAX, |machine, agent| machine.is_device_read_done(agent, tag.0))
    }
    fn finish_read(&self, tag: ReadTag, _at: Address, into: &mut [u8]) {
        let data = self.until_done(u64::MAX, |machine, agent| machine.finish_device_read(agent, tag.0));
        into.copy_from_slice(&data);
    }
    fn read_word(&self, at: Address, hint: StateHint) -> u64 {
        let mut word = [0; 8];
        self.read(at, &mut word, hint);
        u64::from_ne_bytes(word)
    }
    fn write(&self, at: Address, from: &[u8], _hint: StateHint) {
        self.until_done(u64::MAX, |machine, agent| machine.device_write(agent, at.0, from));
    }
    fn write_word(&self, at: Address, value: u64, hint: StateHint) {
        self.write(at, &value.to_ne_bytes(), hint);
    }
    /// One write: a line never needs two packets.
    fn publish_line(&self, at: Address, line: &Line, hint: StateHint) {
        self.write(at, &line.to_bytes(), hint);
    }
    fn own_register(&self, at: Address) -> u64 {
        self.until_done(u64::MAX, |machine, agent| machine.own_register(agent, at.0))
    }
    fn spin(&self) {
        self.spin_until(Time::NEVER);
    }
    fn now(&self) -> Time {
        Time::from_picoseconds(self.fiber.machine.borrow().agents[self.fiber.agent].time)
    }
    /// In cycles of the platform's cores: the clocks of such chips are not published.
    fn work(&self, cycles: u32) {
        let mut machine = self.fiber.machine.borrow_mut();
        let span = machine.parameters.core.cycles(cycles.into());
        machine.agents[self.fiber.agent].time += span;
    }
    fn cycle(&self) -> Time {
        Time::from_picoseconds(self.fiber.machine.borrow().parameters.core.cycles(1))
    }
}

/// Its memory takes no time of its own: what its logic takes is for the program to say.
impl DeviceMemory for SimDevice<'_> {
    fn own_bytes(&self, at: Address, into: &mut [u8]) {
        self.until_done(u64::MAX, |machine, agent| machine.own_bytes(agent, at.0, into));
    }
    fn set_own_bytes(&self, at: Address, from: &[u8]) {
        self.until_done(u64::MAX, |machine, agent| machine.set_own_bytes(agent, at.0, from));
    }
    fn set_own_pair(&self, at: Address, words: [u64; 2]) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&words[0].to_ne_bytes());
        bytes[8..].copy_from_slice(&words[1].to_ne_bytes());
        self.set_own_bytes(at, &bytes);
        self.answer(at);
    }
    fn withhold(&self, at: Address) {
        self.until_done(u64::MAX, |machine, agent| machine.withhold(agent, at.0));
    }
    fn answer(&self, at: Address) {
        self.until_done(u64::MAX, |machine, agent| machine.answer_withheld(agent, at.0));
    }
    fn withheld_since(&self, at: Address) -> Option<Time> {
        self.until_done(u64::MAX, |machine, agent| machine.withheld_since(agent, at.0)).map(Time::from_picoseconds)
    }
}
