//! The core face of the seam over the modelled machine.

use std::cell::RefCell;
use std::panic::Location;

use conic_fabric::{Address, Core, LINE_BYTES, Line, Time};

use crate::fiber::Fiber;
use crate::machine::access::{Step, Use, WHOLE};
use crate::machine::places::Place;
use crate::machine::uncached::Kind;
use crate::machine::{Agent, Copying, Machine, Wait};
use crate::protocol::Ask;
use crate::timer::Ticks;

/// A core of the modelled machine, as its program sees it.
pub struct SimCore<'a> {
    fiber: Fiber<'a, Machine>,
    /// Its timer interrupts.
    ticks: Ticks,
}

/// The bytes of the three stores by which a line is published.
const PUBLISHED: [u64; 3] = [0xffff_ffff << 32, 0xffff << 16, 0xffff];

/// The bytes of a line that a word takes.
fn word_bytes(at: Address) -> u64 {
    0xff << ((at.0 % LINE_BYTES) & !7)
}

fn line_of(at: Address) -> u32 {
    (at.0 / LINE_BYTES) as u32
}

/// The place in the code that called: what a prefetcher knows as the load's instruction pointer.
#[track_caller]
fn place_in_code() -> Place {
    Location::caller()
}

fn word_of(at: Address) -> usize {
    (at.0 % LINE_BYTES / 8) as usize
}

impl<'a> SimCore<'a> {
    pub(crate) fn new(fiber: Fiber<'a, Machine>) -> SimCore<'a> {
        let ticks = Ticks::new(fiber.machine.borrow().parameters.timer.as_ref(), fiber.agent);
        SimCore { fiber, ticks }
    }

    /// The timer interrupt comes before this program's next step: it takes the core.
    #[cold]
    fn interrupted(&self, machine: &mut Machine) {
        let agent = &mut machine.agents[self.fiber.agent];
        while let Some((_, span)) = self.ticks.take(agent.time) {
            agent.time += span;
            agent.not_pure();
        }
    }

    /// Whether the timer interrupt came.
    #[inline(always)]
    fn is_interrupted(&self, machine: &Machine) -> bool {
        self.ticks.are_due(machine.agents[self.fiber.agent].time)
    }

    /// The agent's number in the machine.
    pub fn agent(&self) -> usize {
        self.fiber.agent
    }

    /// The machine.
    pub fn machine(&self) -> &RefCell<Machine> {
        self.fiber.machine
    }

    /// Takes steps until one is done; it is told whether the last had to wait for a line.
    #[inline(always)]
    pub(crate) fn until_done<T>(&self, mut step: impl FnMut(&mut Machine, usize, bool) -> Step<T>) -> T {
        let mut waited = false;
        loop {
            let mut machine = self.fiber.machine.borrow_mut();
            if !waited && self.is_interrupted(&machine) {
                self.interrupted(&mut machine);
            }
            match step(&mut machine, self.fiber.agent, waited) {
                Ok(value) => return value,
                Err(wait) => {
                    waited |= matches!(wait, Wait::Line(_));
                    self.fiber.wait(machine, wait, None);
                }
            }
        }
    }

    #[track_caller]
    fn read_word(&self, at: Address, how: Use) -> u64 {
        let line = line_of(at);
        let bytes = word_bytes(at);
        let place = place_in_code();
        self.until_done(|machine, agent, waited| {
            machine.load(agent, line, bytes, how, waited, place).map(|line| line.0[word_of(at)])
        })
    }

    fn write_word(&self, at: Address, value: u64) {
        let mut line = Line::ZERO;
        line.0[word_of(at)] = value;
        self.write(line_of(at), word_bytes(at), &line);
    }

    fn write(&self, line: u32, bytes: u64, data: &Line) {
        let narrow = self.device_access_bytes(line);
        if narrow == LINE_BYTES {
            return self.until_done(|machine, agent, _| machine.store(agent, line, bytes, data));
        }
        let (mask, parts) = ((1 << narrow) - 1, LINE_BYTES / narrow);
        for part in (0..parts).map(|part| bytes & mask << (part * narrow)).filter(|part| *part != 0) {
            self.until_done(|machine, agent, _| machine.store(agent, line, part, data));
        }
    }

    /// Bytes of one access to a line: a whole one, or less where a device behind PCIe has it.
    fn device_access_bytes(&self, line: u32) -> u64 {
        let machine = self.fiber.machine.borrow();
        match machine.kind(line) {
            Kind::DeviceUncached | Kind::DeviceCombining => {
                machine.parameters.pcie.as_ref().map_or(LINE_BYTES, |pcie| pcie.access_bytes.into())
            }
            Kind::WriteBack | Kind::MemoryCombining => LINE_BYTES,
        }
    }

    /// Loads bytes of a device's memory, all in one line, by as many loads as that takes, one after the other.
    fn load_device_bytes(&self, at: Address, narrow: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let here = at + done as u64;
            let length = (narrow - here.0 % narrow).min((into.len() - done) as u64);
            let line = self.load_register(here, length as u32).to_bytes();
            let (from, length) = ((here.0 % LINE_BYTES) as usize, length as usize);
            into[done..done + length].copy_from_slice(&line[from..from + length]);
            done += length;
        }
    }

    fn is_device(&self, at: Address) -> bool {
        matches!(self.fiber.machine.borrow().kind(line_of(at)), Kind::DeviceUncached | Kind::DeviceCombining)
    }

    /// An atomic operation on a word: what it was; `change` gives what it becomes, if it changes.
    fn atomic(&self, at: Address, change: impl Fn(u64) -> Option<u64>) -> u64 {
        let line = line_of(at);
        self.until_done(|machine, agent, _| {
            let place = machine.own_for_atomic(agent, line)?;
            let before = machine.data[line as usize].0[word_of(at)];
            if let Some(after) = change(before) {
                let mut data = Line::ZERO;
                data.0[word_of(at)] = after;
                machine.perform(agent, line, place, word_bytes(at), &data);
            }
            Ok(before)
        })
    }

    pub(crate) fn ask(&self, at: Address, ask: Ask, costs: bool) {
        self.until_done(|machine, agent, _| machine.prefetch(agent, line_of(at), ask, costs));
    }

    /// Loads a whole line of a device's registers at once, as a vector register does.
    pub fn register_read_line(&self, at: Address) -> Line {
        self.load_register(at, LINE_BYTES as u32)
    }

    fn load_register(&self, at: Address, length: u32) -> Line {
        self.until_done(|machine, agent, _| machine.load_register(agent, at.0, length))
    }

    fn pause(&self, until: u64) {
        let mut machine = self.fiber.machine.borrow_mut();
        loop {
            match machine.spin(self.fiber.agent, until, self.ticks.next()) {
                Ok(()) => return,
                Err(Wait::Polling) => {
                    let end = machine.agents[self.fiber.agent].parked_until();
                    return self.fiber.wait(machine, Wait::Polling, end);
                }
                Err(wait) => {
                    self.fiber.wait(machine, wait, None);
                    machine = self.fiber.machine.borrow_mut();
                }
            }
        }
    }
}

/// The parts of a span of bytes that lie in one line each: the line, the bytes of it, where in the line, where in the span.
fn pieces(at: Address, bytes: usize) -> impl Iterator<Item = (u32, u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let here = at + done as u64;
        let start = (here.0 % LINE_BYTES) as usize;
        let count = (bytes - done).min(LINE_BYTES as usize - start);
        if count == 0 {
            return None;
        }
        let mask = if count == 64 { WHOLE } else { ((1 << count) - 1) << start };
        let piece = (line_of(here), mask, start, done..done + count);
        done += count;
        Some(piece)
    })
}

impl Core for SimCore<'_> {
    // A load waits for its data, and stores leave the store buffer in order: acquire and release need no more (TSO).
    #[track_caller]
    fn load_acquire(&self, at: Address) -> u64 {
        self.read_word(at, Use::Dependent)
    }
    fn store_release(&self, at: Address, value: u64) {
        self.write_word(at, value);
    }
    fn fetch_and(&self, at: Address, bits: u64) -> u64 {
        self.atomic(at, |before| Some(before & bits))
    }
    fn fetch_or(&self, at: Address, bits: u64) -> u64 {
        self.atomic(at, |before| Some(before | bits))
    }
    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
        let before = self.atomic(at, |before| (before == current).then_some(new));
        if before == current { Ok(before) } else { Err(before) }
    }
    #[track_caller]
    fn load(&self, at: Address) -> u64 {
        self.read_word(at, Use::Word)
    }
    fn store(&self, at: Address, value: u64) {
        self.write_word(at, value);
    }
    #[track_caller]
    fn read_line(&self, at: Address) -> Line {
        if self.is_device(at) {
            let mut bytes = [0; LINE_BYTES as usize];
            self.load_device_bytes(at, self.device_access_bytes(line_of(at)), &mut bytes);
            return Line::from_bytes(&bytes);
        }
        let (line, place) = (line_of(at), place_in_code());
        self.until_done(|machine, agent, waited| {
            machine.load(agent, line, WHOLE, Use::Independent, waited, place).copied()
        })
    }
    fn write_line(&self, at: Address, line: &Line) {
        self.write(line_of(at), WHOLE, line);
    }
    fn publish_line(&self, at: Address, line: &Line) {
        // Three stores natively, word 0's last: they leave the store buffer one after the other.
        let at = line_of(at);
        if !self.fiber.machine.borrow().stores_together(at, PUBLISHED.len()) {
            return PUBLISHED.into_iter().for_each(|bytes| self.write(at, bytes, line));
        }
        self.until_done(|machine, agent, _| machine.store_parts(agent, at, PUBLISHED, line));
    }
    #[track_caller]
    fn read_lines(&self, at: Address, into: &mut [Line]) {
        for (index, line) in into.iter_mut().enumerate() {
            *line = self.read_line(at.lines(index as u64));
        }
    }
    #[track_caller]
    fn copy_lines(&self, from: Address, to: Address, lines: u64) {
        for index in 0..lines {
            self.write_line(to.lines(index), &self.read_line(from.lines(index)));
        }
    }
    #[track_caller]
    fn post_copy(&self, from: Address, to: Address, lines: u64, done: Address, value: u64) {
        if self.fiber.machine.borrow().has_engine(self.fiber.agent) {
            return self.post(Copying { from, to, lines, done, value });
        }
        self.copy_lines(from, to, lines);
        self.store_release(done, value);
    }
    #[track_caller]
    fn read_bytes(&self, at: Address, into: &mut [u8]) {
        let place = place_in_code();
        for (line, bytes, start, range) in pieces(at, into.len()) {
            if self.is_device(Address(u64::from(line) * LINE_BYTES)) {
                let here = at + range.start as u64;
                self.load_device_bytes(here, self.device_access_bytes(line), &mut into[range]);
                continue;
            }
            let data = self.until_done(|machine, agent, waited| {
                machine.load(agent, line, bytes, Use::Independent, waited, place).copied()
            });
            let count = range.len();
            into[range].copy_from_slice(&data.to_bytes()[start..start + count]);
        }
    }
    fn write_bytes(&self, at: Address, from: &[u8]) {
        for (line, bytes, start, range) in pieces(at, from.len()) {
            let mut data = [0; LINE_BYTES as usize];
            data[start..start + range.len()].copy_from_slice(&from[range]);
            self.write(line, bytes, &Line::from_bytes(&data));
        }
    }
    fn write_nontemporal(&self, at: Address, from: &[Line]) {
        for (index, line) in from.iter().enumerate() {
            let at = line_of(at.lines(index as u64));
            self.until_done(|machine, agent, _| machine.store_nontemporal(agent, at, line));
        }
    }
    fn prefetch_read(&self, at: Address) {
        self.ask(at, Ask::Read, true);
    }
    fn prefetch_write(&self, at: Address) {
        self.ask(at, Ask::Own, true);
    }
    #[track_caller]
    fn will_read(&self, at: Address, cycles: u32) {
        let within = {
            let machine = self.fiber.machine.borrow();
            machine.reaches(self.fiber.agent, machine.agents[self.fiber.agent].work(cycles))
        };
        if within {
            let (line, place) = (line_of(at), place_in_code());
            self.until_done(|machine, agent, _| machine.load_early(agent, line, word_bytes(at), place));
        }
    }
    fn peek(&self, at: Address) -> Option<u64> {
        if self.is_device(at) {
            return None;
        }
        let seen = self.until_done(|machine, agent, _| machine.peek(agent, line_of(at)));
        seen.map(|line| line.0[word_of(at)])
    }
    fn depends_on(&self, at: Address) {
        self.until_done(|machine, agent, _| machine.need(agent, line_of(at)));
    }
    fn full_fence(&self) {
        self.until_done(|machine, agent, _| machine.fence(agent));
        self.fence();
    }
    fn fence(&self) {
        self.until_done(|machine, agent, _| machine.store_fence(agent));
    }
    fn flush(&self, at: Address) {
        self.until_done(|machine, agent, _| machine.flush_line(agent, line_of(at)));
    }
    #[track_caller]
    fn watch(&self, at: Address, tag: u64) -> bool {
        let (line, place) = (line_of(at), place_in_code());
        self.until_done(|machine, agent, waited| machine.watch(agent, line, tag, waited, place));
        true
    }
    fn changed(&self) -> Option<u64> {
        self.until_done(|machine, agent, _| machine.changed(agent))
    }
    #[track_caller]
    fn register_read(&self, at: Address) -> u64 {
        if self.fiber.machine.borrow().kind(line_of(at)) == Kind::WriteBack {
            return self.load_acquire(at);
        }
        self.load_register(at, 8).0[word_of(at)]
    }
    #[track_caller]
    fn register_read_pair(&self, at: Address) -> [u64; 2] {
        if !self.is_device(at) {
            let first = self.load_acquire(at);
            return [first, self.load_acquire(at.word(1))];
        }
        let mut pair = [0; 16];
        self.load_device_bytes(at, self.device_access_bytes(line_of(at)).min(16), &mut pair);
        [0, 8].map(|from| u64::from_ne_bytes(std::array::from_fn(|index| pair[from + index])))
    }
    fn spin(&self) {
        self.pause(u64::MAX);
    }
    fn spin_until(&self, until: Time) {
        self.pause(until.picoseconds());
    }
    fn now(&self) -> Time {
        let span = self.fiber.machine.borrow().timing.clock;
        if span > 0 {
            self.work_for(|_| span);
        }
        Time::from_picoseconds(self.fiber.machine.borrow().agents[self.fiber.agent].time)
    }
    fn work(&self, cycles: u32) {
        self.work_for(|agent| agent.work(cycles));
    }
}

impl SimCore<'_> {
    /// Works for a span, in picoseconds, as far as the reorder buffer lets it.
    fn work_for(&self, span: impl Fn(&Agent) -> u64) {
        let mut machine = self.fiber.machine.borrow_mut();
        if self.is_interrupted(&machine) {
            self.interrupted(&mut machine);
        }
        let mut span = span(&machine.agents[self.fiber.agent]);
        loop {
            let agent = &mut machine.agents[self.fiber.agent];
            let room = agent.reorder.room(agent.worked()).min(span);
            agent.time += room;
            agent.counters.stalls.work_picoseconds += room;
            agent.spinning.present.work += room;
            span -= room;
            if span == 0 {
                return;
            }
            let oldest = Wait::Retire(agent.reorder.oldest());
            self.fiber.wait(machine, oldest, None);
            machine = self.fiber.machine.borrow_mut();
        }
    }
}
