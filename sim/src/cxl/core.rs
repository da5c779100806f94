//! The core face of the seam over this machine.

use std::cell::{RefCell, RefMut};

use conic_fabric::{Address, Core, LINE_BYTES, Line, Time};

use super::cores::Store;
use super::last_level::CacheMonitoring;
use super::machine::{Machine, Wait};
use super::reorder::Reorder;
use crate::bytes::{line_bytes, parts};
use crate::combined::Combined;
use crate::fiber::Fiber;
use crate::protocol::cxl::WHOLE;

/// A core of the modelled host, as its program sees it. Copies are the same core.
#[derive(Clone, Copy)]
pub struct CxlCore<'a> {
    fiber: Fiber<'a, Machine>,
    core: u16,
}

fn line_of(at: Address) -> u32 {
    (at.0 / LINE_BYTES) as u32
}

fn word_of(at: Address) -> usize {
    (at.0 % LINE_BYTES / 8) as usize
}

/// The bytes of a word in its line.
fn word_bytes(at: Address) -> u64 {
    line_bytes(at.0 % LINE_BYTES, 8)
}

/// A load that was begun: its data, or its number.
enum Begun {
    /// It is there, or the program goes on behind it.
    Hit(Line),
    Miss(u32),
}

impl<'a> CxlCore<'a> {
    pub(super) fn new(fiber: Fiber<'a, Machine>, core: u16) -> CxlCore<'a> {
        CxlCore { fiber, core }
    }

    /// The machine.
    pub fn machine(&self) -> &RefCell<Machine> {
        self.fiber.machine
    }

    /// Waits until a time.
    pub fn wait_until(&self, time: Time) {
        let machine = self.fiber.machine.borrow_mut();
        if machine.now() < time.picoseconds() {
            self.fiber.wait(machine, Wait::Time, Some(time.picoseconds()));
        }
    }

    /// Waits until the device has interrupted this core since this was last called; the program slept meanwhile, and its wake-up is
    /// part of [`super::parameters::HostParameters::interrupt`].
    pub fn await_interrupt(&self) {
        loop {
            let mut machine = self.fiber.machine.borrow_mut();
            if std::mem::take(&mut machine.cores[usize::from(self.core)].interrupted) {
                return;
            }
            self.fiber.wait(machine, Wait::Interrupt, None);
        }
    }

    /// Its number among the cores.
    pub fn number(&self) -> u16 {
        self.core
    }

    /// Writes of registers that the program has made, of which the last may wait behind earlier stores:
    /// [`Machine::rang`] says when each of them leaves.
    pub fn register_writes(&self) -> usize {
        self.with(|machine| machine.cores[usize::from(self.core)].register_writes())
    }

    /// Reads what the host's monitoring tells of its last-level cache: its occupancy, and what some cores have brought in; two
    /// counters, one after the other.
    ///
    /// # Panics
    ///
    /// If there is no such core.
    pub fn monitor_cache(&self, cores: &[u16]) -> CacheMonitoring {
        self.pass(2 * self.with(|machine| machine.parameters.host.monitor_read));
        self.with(|machine| machine.monitor_cache(cores))
    }

    /// Writes down that the program did something, from one time to another, where a recording is made.
    pub fn note_span(&self, name: &'static str, begins: Time, ends: Time) {
        self.with(|machine| machine.note_span(self.fiber.agent, name, begins, ends));
    }

    /// Waits for something, perhaps of a line's; the wait is written down where a recording is made.
    fn wait(&self, machine: RefMut<'_, Machine>, wait: Wait, line: Option<u32>) {
        let (begins, watched) = (machine.now(), machine.recorder.is_some());
        self.fiber.wait(machine, wait, None);
        if watched {
            self.with(|machine| machine.note_wait(self.fiber.agent, wait.name(), line, begins));
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Machine) -> T) -> T {
        change(&mut self.fiber.machine.borrow_mut())
    }

    fn issue(&self) -> u64 {
        self.with(|machine| machine.parameters.core.cycles(machine.parameters.core.issue_cycles.into()))
    }

    /// Works for a time, as far as the reorder buffer lets it.
    fn pass(&self, mut time: u64) {
        while time > 0 {
            let room = self.with(|machine| {
                let reorder = &mut machine.cores[usize::from(self.core)].reorder;
                let room = reorder.room().min(time);
                reorder.work(room);
                room
            });
            self.fiber.pass(room);
            time -= room;
            if time > 0 {
                self.await_loads(|reorder| reorder.room() > 0);
            }
        }
    }

    /// Waits until of the loads that this core has gone on behind enough have come.
    fn await_loads(&self, enough: impl Fn(&Reorder) -> bool) {
        loop {
            let machine = self.fiber.machine.borrow_mut();
            if enough(&machine.cores[usize::from(self.core)].reorder) {
                return;
            }
            self.wait(machine, Wait::Retire, None);
        }
    }

    /// Begins to load a line, and the time that it takes if it is there. Behind bulk data that miss the program goes on.
    fn begin(&self, line: u32, bulk: bool) -> (Begun, u64) {
        self.await_past_caches(line);
        let core = usize::from(self.core);
        loop {
            let mut machine = self.fiber.machine.borrow_mut();
            assert!((line as usize) < machine.lines.len(), "line {line} lies outside the region");
            if machine.cores[core].stores_to(line) {
                // A load that finds a store of its own core waits for it.
                self.wait(machine, Wait::Stores, Some(line));
                continue;
            }
            machine.cores[core].reads(line);
            if bulk
                && machine.cores[core].is_prefetched(line)
                && let Some(data) = machine.load_behind(self.core, line)
            {
                return (Begun::Hit(data), 0);
            }
            if let Some(load) = machine.take_prefetched(self.core, line) {
                return (Begun::Miss(load), 0);
            }
            if let Some(time) = machine.private_hit(self.core, line) {
                return (Begun::Hit(machine.lines[line as usize].host.data), time);
            }
            // A line that comes to be written is not asked for again: its line fill buffer is free when it is there.
            if !machine.cores[core].awaits(line) {
                if bulk && let Some(data) = machine.load_behind(self.core, line) {
                    return (Begun::Hit(data), 0);
                }
                if let Some(load) = machine.start_load(self.core, line, true) {
                    return (Begun::Miss(load), 0);
                }
            }
            self.wait(machine, Wait::FillBuffer, Some(line));
        }
    }

    fn finish(&self, line: u32, begun: Begun) -> Line {
        match begun {
            Begun::Hit(line) => line,
            Begun::Miss(load) => loop {
                let mut machine = self.fiber.machine.borrow_mut();
                if let Some(line) = machine.loads[load as usize].data {
                    machine.loads.remove(load as usize);
                    return line;
                }
                self.wait(machine, Wait::Load(load), Some(line));
            },
        }
    }

    /// Loads one line that what follows depends on.
    fn fetch(&self, line: u32) -> Line {
        let (begun, time) = self.begin(line, false);
        let data = self.finish(line, begun);
        self.pass(time);
        data
    }

    /// Loads lines of bulk data, whose misses overlap with each other and with what follows; `each` is given them in order.
    fn fetch_all(&self, lines: std::ops::Range<u32>, mut each: impl FnMut(u32, Line)) {
        let issue = self.issue();
        let mut begun = Vec::with_capacity(lines.len());
        let mut longest = 0;
        for line in lines.clone() {
            let (one, time) = self.begin(line, true);
            longest = longest.max(time);
            begun.push(one);
            self.pass(issue);
        }
        for (line, one) in lines.zip(begun) {
            each(line, self.finish(line, one));
        }
        self.pass(longest);
    }

    /// Stores bytes of one line.
    fn put(&self, line: u32, bytes: u64, data: Line) {
        self.pass(self.issue());
        self.push(Store { line, bytes, data, atomic: None, register: None, after: 0 });
    }

    fn push(&self, store: Store) {
        let line = store.line;
        self.await_past_caches(line);
        loop {
            let mut machine = self.fiber.machine.borrow_mut();
            assert!((line as usize) < machine.lines.len(), "line {line} lies outside the region");
            if machine.cores[usize::from(self.core)].stores.len() < machine.parameters.core.store_buffer as usize {
                return machine.push_store(self.core, store);
            }
            self.wait(machine, Wait::Stores, None);
        }
    }

    fn put_word(&self, at: Address, value: u64) {
        let mut line = Line::ZERO;
        line.0[word_of(at)] = value;
        self.put(line_of(at), word_bytes(at), line);
    }

    /// Waits until all stores of this core are performed.
    fn drained(&self) {
        loop {
            let machine = self.fiber.machine.borrow_mut();
            if machine.cores[usize::from(self.core)].stores.is_empty() {
                return;
            }
            self.wait(machine, Wait::Stores, None);
        }
    }

    /// An atomic operation on a word: what it was.
    fn atomic(&self, at: Address, operation: Combined) -> u64 {
        self.drained();
        self.await_loads(Reorder::is_empty);
        let atomic = Some((word_of(at), operation));
        let (line, bytes) = (line_of(at), word_bytes(at));
        self.push(Store { line, bytes, data: Line::ZERO, atomic, register: None, after: 0 });
        self.drained();
        let time = self.with(|machine| machine.parameters.core.cycles(machine.parameters.core.atomic_cycles.into()));
        self.pass(time);
        self.with(|machine| machine.cores[usize::from(self.core)].found)
    }

    fn await_nontemporal(&self, most: u32) {
        loop {
            let machine = self.fiber.machine.borrow_mut();
            if machine.cores[usize::from(self.core)].nontemporal <= most {
                return;
            }
            self.wait(machine, Wait::Nontemporal, None);
        }
    }

    /// Waits until this core's own store past its caches of a line is done: what it does with the line next comes after.
    fn await_past_caches(&self, line: u32) {
        loop {
            let machine = self.fiber.machine.borrow_mut();
            if !machine.cores[usize::from(self.core)].past_caches.contains(&line) {
                return;
            }
            self.wait(machine, Wait::Nontemporal, None);
        }
    }

    fn is_register(&self, at: Address) -> bool {
        self.with(|machine| machine.registers.contains(&line_of(at)))
    }
}

impl Core for CxlCore<'_> {
    // Loads wait for their data and stores are performed in order: acquire and release need no more (TSO).
    fn load_acquire(&self, at: Address) -> u64 {
        self.load(at)
    }
    fn store_release(&self, at: Address, value: u64) {
        self.put_word(at, value);
    }
    fn fetch_and(&self, at: Address, bits: u64) -> u64 {
        self.atomic(at, Combined::And(bits))
    }
    fn fetch_or(&self, at: Address, bits: u64) -> u64 {
        self.atomic(at, Combined::Or(bits))
    }
    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
        let before = self.atomic(at, Combined::CompareExchange(current, new));
        if before == current { Ok(before) } else { Err(before) }
    }
    fn load(&self, at: Address) -> u64 {
        self.fetch(line_of(at)).0[word_of(at)]
    }
    fn store(&self, at: Address, value: u64) {
        self.put_word(at, value);
    }
    fn read_line(&self, at: Address) -> Line {
        let (line, mut found) = (line_of(at), Line::ZERO);
        self.fetch_all(line..line + 1, |_, data| found = data);
        found
    }
    fn write_line(&self, at: Address, line: &Line) {
        self.put(line_of(at), WHOLE, *line);
    }
    fn publish_line(&self, at: Address, line: &Line) {
        // One store of a whole line: its words become visible at once.
        self.put(line_of(at), WHOLE, *line);
    }
    fn read_lines(&self, at: Address, into: &mut [Line]) {
        let first = line_of(at);
        self.fetch_all(first..first + into.len() as u32, |line, data| into[(line - first) as usize] = data);
    }
    fn copy_lines(&self, from: Address, to: Address, lines: u64) {
        let (first, target) = (line_of(from), line_of(to));
        let mut copied = Vec::with_capacity(lines as usize);
        self.fetch_all(first..first + lines as u32, |_, data| copied.push(data));
        for (line, data) in (target..).zip(copied) {
            self.put(line, WHOLE, data);
        }
    }
    fn read_bytes(&self, at: Address, into: &mut [u8]) {
        let mut parts = parts(at.0, into.len() as u64);
        let lines = line_of(at)..line_of(at + into.len() as u64 + (LINE_BYTES - 1));
        self.fetch_all(lines, |_, data| {
            if let Some(part) = parts.next() {
                part.read(&data, into);
            }
        });
    }
    fn write_bytes(&self, at: Address, from: &[u8]) {
        for part in parts(at.0, from.len() as u64) {
            self.put(part.line, part.bytes, part.line_of(from));
        }
    }
    fn write_nontemporal(&self, at: Address, from: &[Line]) {
        self.await_loads(Reorder::is_empty);
        let most = self.with(|machine| machine.parameters.core.write_combining_buffers);
        for (line, data) in (line_of(at)..).zip(from) {
            self.pass(self.issue());
            // An earlier store to the line comes first.
            while self.with(|machine| machine.cores[usize::from(self.core)].stores_to(line)) {
                let machine = self.fiber.machine.borrow_mut();
                self.wait(machine, Wait::Stores, None);
            }
            self.await_past_caches(line);
            self.await_nontemporal(most - 1);
            self.with(|machine| machine.store_nontemporal(self.core, line, *data));
        }
    }
    fn prefetch_read(&self, at: Address) {
        self.pass(self.issue());
        self.with(|machine| {
            let line = line_of(at);
            let awaited = machine.cores[usize::from(self.core)].awaits(line);
            if !awaited && machine.private_hit(self.core, line).is_none() {
                // Dropped where no line fill buffer is free.
                let _ = machine.start_load(self.core, line, false);
            }
        });
    }
    fn prefetch_write(&self, at: Address) {
        self.pass(self.issue());
        // Dropped where no line fill buffer is free.
        self.with(|machine| machine.prefetch_to_write(self.core, line_of(at)));
    }
    fn flush(&self, at: Address) {
        self.drained();
        self.await_loads(Reorder::is_empty);
        let most = self.with(|machine| machine.parameters.core.write_combining_buffers);
        self.await_nontemporal(most - 1);
        self.with(|machine| machine.start_flush(self.core, line_of(at)));
    }
    fn demote(&self, at: Address) {
        self.pass(self.issue());
        self.drained();
        self.with(|machine| machine.demote(self.core, line_of(at)));
    }
    fn fence(&self) {
        self.await_nontemporal(0);
    }
    fn full_fence(&self) {
        self.drained();
        self.await_loads(Reorder::is_empty);
        self.await_nontemporal(0);
    }
    fn register_read(&self, at: Address) -> u64 {
        if !self.is_register(at) {
            return self.load_acquire(at);
        }
        // Uncached: it passes no store before it.
        self.drained();
        self.await_loads(Reorder::is_empty);
        let mut machine = self.fiber.machine.borrow_mut();
        machine.read_register(self.fiber.agent as u16, at.0);
        self.wait(machine, Wait::Register, Some(line_of(at)));
        self.with(|machine| machine.register_values.get(&at.0).copied().unwrap_or(0))
    }
    fn register_write(&self, at: Address, value: u64) {
        if !self.is_register(at) {
            return self.store_release(at, value);
        }
        self.pass(self.issue());
        let register = Some((at.0, value));
        self.push(Store { line: line_of(at), bytes: 0, data: Line::ZERO, atomic: None, register, after: 0 });
    }
    fn spin(&self) {
        self.spin_until(Time::NEVER);
    }
    fn spin_until(&self, until: Time) {
        let mut machine = self.fiber.machine.borrow_mut();
        let state = &mut machine.cores[usize::from(self.core)];
        let lost = std::mem::take(&mut state.lost);
        let polled = std::mem::take(&mut state.polled);
        let all_here = polled.iter().all(|line| machine.lines[*line as usize].holders >> self.core & 1 == 1);
        if lost || !all_here || polled.is_empty() {
            let pause = machine.now() + machine.parameters.core.cycles(1);
            return self.fiber.wait(machine, Wait::Time, Some(pause));
        }
        // What it reads is in its own caches, so it finds the same until one of those lines is taken away.
        machine.cores[usize::from(self.core)].polled = polled;
        let until = (until != Time::NEVER).then_some(until.picoseconds().max(machine.now() + 1));
        self.fiber.wait(machine, Wait::Change, until);
        self.with(|machine| machine.cores[usize::from(self.core)].polled.clear());
        self.with(|machine| machine.cores[usize::from(self.core)].lost = false);
    }
    fn now(&self) -> Time {
        Time::from_picoseconds(self.with(|machine| machine.now()))
    }
    fn work(&self, cycles: u32) {
        self.pass(self.with(|machine| machine.parameters.core.work(cycles)));
    }
}
