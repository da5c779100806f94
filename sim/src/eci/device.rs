//! The device face of the seam over this machine: a device that sees the coherence messages of its lines.

use std::cell::RefCell;

use conic_fabric::{Address, Arrival, Device, Grant, HomeAgent, Line, ReadTag, StateHint, Time};

use super::machine::{Machine, Wait};
use super::queues::Queue;
use crate::fiber::Fiber;
use crate::probe::queues::Probed;
use crate::protocol::homed::Copy;

/// The device, as its program sees it. It asks for nothing but its own lines: the requests of [`Device`] are not modelled, and
/// panic. Copies are the same device.
#[derive(Clone, Copy)]
pub struct EciDevice<'a> {
    fiber: Fiber<'a, Machine>,
}

impl<'a> EciDevice<'a> {
    pub(super) fn new(fiber: Fiber<'a, Machine>) -> EciDevice<'a> {
        EciDevice { fiber }
    }

    /// The machine.
    pub fn machine(&self) -> &RefCell<Machine> {
        self.fiber.machine
    }

    /// Waits until a time, whatever comes.
    pub fn wait_until(&self, time: Time) {
        let machine = self.fiber.machine.borrow_mut();
        if machine.agenda.now < time.picoseconds() {
            self.fiber.wait(machine, Wait::Time, Some(time.picoseconds()));
        }
    }

    /// [`Device::spin`], but not past a time.
    pub fn spin_until(&self, time: Time) {
        let mut machine = self.fiber.machine.borrow_mut();
        if !std::mem::take(&mut machine.news) {
            let until = (machine.agenda.now + machine.parameters.device.timer_resolution).min(time.picoseconds());
            self.fiber.wait(machine, Wait::Message, Some(until));
            self.with(|machine| machine.news = false);
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Machine) -> T) -> T {
        change(&mut self.fiber.machine.borrow_mut())
    }

    /// The time that the device takes for a message.
    fn take(&self) {
        self.fiber.pass(self.with(|machine| machine.parameters.device.message_time));
    }

    /// The line's number, and the first word in it.
    fn place(&self, at: Address) -> (usize, usize) {
        let bytes = self.with(|machine| machine.parameters.cache.line_bytes);
        ((at.0 / bytes) as usize, (at.0 % bytes / 8) as usize)
    }
}

/// Says what this device cannot.
fn not_modelled() -> ! {
    panic!("a device of this machine has its own lines only: requests to the CPU's memory are not modelled")
}

impl Device for EciDevice<'_> {
    fn start_read(&self, _at: Address, _bytes: u64, _hint: StateHint) -> ReadTag {
        not_modelled()
    }
    fn is_ready(&self, _tag: &ReadTag) -> bool {
        not_modelled()
    }
    fn finish_read(&self, _tag: ReadTag, _at: Address, _into: &mut [u8]) {
        not_modelled()
    }
    fn read_word(&self, _at: Address, _hint: StateHint) -> u64 {
        not_modelled()
    }
    fn write(&self, _at: Address, _from: &[u8], _hint: StateHint) {
        not_modelled()
    }
    fn write_word(&self, _at: Address, _value: u64, _hint: StateHint) {
        not_modelled()
    }
    fn own_register(&self, _at: Address) -> u64 {
        not_modelled()
    }
    fn spin(&self) {
        self.spin_until(Time::NEVER);
    }
    fn now(&self) -> Time {
        Time::from_picoseconds(self.with(|machine| machine.agenda.now))
    }
    fn work(&self, cycles: u32) {
        self.fiber.pass(self.with(|machine| machine.parameters.device.cycle * u64::from(cycles)));
    }
    fn cycle(&self) -> Time {
        Time::from_picoseconds(self.with(|machine| machine.parameters.device.cycle))
    }
}

impl HomeAgent for EciDevice<'_> {
    fn next_arrival(&self) -> Option<Arrival> {
        if self.with(|machine| machine.arrivals.is_empty()) {
            return None;
        }
        self.take();
        self.with(|machine| {
            let arrival = machine.arrivals.pop_front()?;
            let now = machine.agenda.now;
            machine.leaves(Queue::Arrivals, arrival.id as u32, now);
            if let Some(recorder) = &mut machine.recorder {
                recorder.hears(arrival.id);
            }
            Some(arrival)
        })
    }
    fn answer(&self, arrival: Arrival, grant: Grant) {
        let (unit, _) = self.place(arrival.line);
        self.with(|machine| machine.answer(unit as u32, grant));
    }
    fn own_line(&self, at: Address) -> Line {
        let (unit, first) = self.place(at);
        self.with(|machine| Line(std::array::from_fn(|index| machine.own[unit][first + index])))
    }
    fn set_own_line(&self, at: Address, line: &Line) {
        let (unit, first) = self.place(at);
        self.with(|machine| {
            assert!(machine.cache[unit].cached.copy == Copy::Invalid, "the line at {at} is in the CPU's cache");
            machine.own[unit][first..first + 8].copy_from_slice(&line.0);
        });
    }
    fn start_recall(&self, at: Address) -> ReadTag {
        let (unit, _) = self.place(at);
        self.with(|machine| machine.start_recall(unit as u32))
    }
    fn is_recalled(&self, tag: &ReadTag) -> bool {
        self.with(|machine| machine.recalls.get(&tag.0).is_some_and(|recall| recall.done))
    }
    fn finish_recall(&self, tag: ReadTag) -> bool {
        while !self.is_recalled(&tag) {
            self.spin();
        }
        self.take();
        self.with(|machine| machine.finish_recall(tag.0))
    }
}
