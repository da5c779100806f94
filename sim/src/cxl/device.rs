//! The device face of the seam over this machine: an engine that asks over CXL.cache, and of its own memory.

use std::cell::RefCell;

use conic_fabric::{Address, Device, LINE_BYTES, Line, ReadTag, StateHint, Time};

use super::dma::DmaDevice;
use super::machine::{Machine, Wait};
use crate::fiber::Fiber;
use crate::protocol::cxl::Bias;

/// An engine of the device, as its program sees it: requests with hints (D2H, or D2D for the device's own lines). Copies are the
/// same engine.
#[derive(Clone, Copy)]
pub struct CxlDevice<'a> {
    pub(super) fiber: Fiber<'a, Machine>,
}

impl<'a> CxlDevice<'a> {
    pub(super) fn new(fiber: Fiber<'a, Machine>) -> CxlDevice<'a> {
        CxlDevice { fiber }
    }

    /// The same engine over PCIe: what it asks for is DMA.
    pub fn dma(self) -> DmaDevice<'a> {
        DmaDevice::new(self)
    }

    /// The machine.
    pub fn machine(&self) -> &RefCell<Machine> {
        self.fiber.machine
    }

    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Machine) -> T) -> T {
        change(&mut self.fiber.machine.borrow_mut())
    }

    /// Waits until a time, whatever comes.
    pub fn wait_until(&self, time: Time) {
        let machine = self.fiber.machine.borrow_mut();
        if machine.now() < time.picoseconds() {
            self.fiber.wait(machine, Wait::Time, Some(time.picoseconds()));
        }
    }

    /// Waits until something comes that this program may not have seen, or until a time.
    pub fn spin_until(&self, until: Time) {
        let mut machine = self.fiber.machine.borrow_mut();
        let engine = machine.engines.entry(self.fiber.agent).or_default();
        if std::mem::take(&mut engine.news) {
            return;
        }
        let until = (until != Time::NEVER).then_some(until.picoseconds().max(machine.now() + 1));
        self.fiber.wait(machine, Wait::News, until);
        let agent = self.fiber.agent;
        self.with(|machine| machine.engines.entry(agent).or_default().news = false);
    }

    /// Whether all writes of this engine are done, as its coherence engine tells it.
    pub fn writes_are_done(&self) -> bool {
        let agent = self.fiber.agent;
        self.with(|machine| machine.engines.get(&agent).is_none_or(|engine| engine.writes.is_empty()))
    }

    /// Waits until they are.
    pub fn await_writes(&self) {
        while !self.writes_are_done() {
            self.spin_until(Time::NEVER);
        }
    }

    /// Interrupts a core, once everything that this engine wrote is done: CXL.io keeps no order with CXL.cache.
    ///
    /// # Panics
    ///
    /// If there is no such core.
    pub fn interrupt(&self, core: u16) {
        self.await_writes();
        self.with(|machine| machine.interrupt(core));
    }

    /// Waits until a read of a line is there.
    pub(super) fn await_read(&self, at: Address, is_there: impl Fn() -> bool) {
        let begins = self.now();
        while !is_there() {
            self.spin_until(Time::NEVER);
        }
        let (agent, line) = (self.fiber.agent, (at.0 / LINE_BYTES) as u32);
        if self.now() > begins {
            self.with(|machine| machine.note_wait(agent, "wait for a read", Some(line), begins.picoseconds()));
        }
    }

    /// Writes down that the program did something, from one time to another, where a recording is made.
    pub fn note_span(&self, name: &'static str, begins: Time, ends: Time) {
        let agent = self.fiber.agent;
        self.with(|machine| machine.note_span(agent, name, begins, ends));
    }

    /// Changes who is asked before the device touches its own lines. Towards device-bias the host's caches give them up first
    /// (`flush`), and software must see to it that the host keeps away until it is changed back.
    pub fn switch_bias(&self, at: Address, bytes: u64, bias: Bias, flush: bool) {
        let begins = self.now();
        if flush && bias == Bias::Device {
            let agent = self.fiber.agent;
            for line in at.0 / LINE_BYTES..(at.0 + bytes).div_ceil(LINE_BYTES) {
                self.with(|machine| machine.start_flush_of_host(agent, line as u32));
            }
            self.await_writes();
        }
        self.with(|machine| machine.set_bias(at, bytes, bias));
        let name = if bias == Bias::Device { "switch to device-bias" } else { "switch to host-bias" };
        self.note_span(name, begins, self.now());
    }
}

impl Device for CxlDevice<'_> {
    fn start_read(&self, at: Address, bytes: u64, hint: StateHint) -> ReadTag {
        let agent = self.fiber.agent;
        ReadTag(self.with(|machine| machine.start_read(agent, at.0, bytes, hint)).into())
    }
    fn is_ready(&self, tag: &ReadTag) -> bool {
        self.with(|machine| machine.reads[tag.0 as usize].lines_left == 0)
    }
    fn finish_read(&self, tag: ReadTag, at: Address, into: &mut [u8]) {
        self.await_read(at, || self.is_ready(&tag));
        let read = self.with(|machine| machine.takes_read(tag.0 as u32));
        into.copy_from_slice(&read.buffer);
    }
    fn read_word(&self, at: Address, hint: StateHint) -> u64 {
        let mut word = [0; 8];
        self.read(at, &mut word, hint);
        u64::from_ne_bytes(word)
    }
    fn write(&self, at: Address, from: &[u8], hint: StateHint) {
        let agent = self.fiber.agent;
        self.with(|machine| machine.start_write(agent, at.0, from, hint, false));
    }
    fn write_word(&self, at: Address, value: u64, hint: StateHint) {
        let agent = self.fiber.agent;
        self.with(|machine| machine.start_write(agent, at.0, &value.to_ne_bytes(), hint, true));
    }
    fn publish_line(&self, at: Address, line: &Line, hint: StateHint) {
        // One write of a whole line: its words become visible at once.
        let agent = self.fiber.agent;
        self.with(|machine| machine.start_write(agent, at.0, &line.to_bytes(), hint, true));
    }
    fn own_register(&self, at: Address) -> u64 {
        self.with(|machine| machine.register_values.get(&at.0).copied().unwrap_or(0))
    }
    fn spin(&self) {
        let cycle = self.with(|machine| machine.parameters.dcoh.cycle);
        self.spin_until(self.now() + Time::from_picoseconds(cycle));
    }
    fn now(&self) -> Time {
        Time::from_picoseconds(self.with(|machine| machine.now()))
    }
    fn work(&self, cycles: u32) {
        self.fiber.pass(self.with(|machine| machine.parameters.device.cycle * u64::from(cycles)));
    }
    fn cycle(&self) -> Time {
        Time::from_picoseconds(self.with(|machine| machine.parameters.device.cycle))
    }
}
