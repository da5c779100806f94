//! The device's coherence engine: requests of its logic, its caches and memory, and what the host asks of it.

use conic_fabric::{Line, StateHint};

use super::checks::Mistake;
use super::machine::{Event, Machine, Message, Wait};
use super::queues::Queue;
use crate::bytes::{Part, parts};
use crate::probe::queues::Probed;
use crate::protocol::cxl::{Copy, Operation, Received, Side, Snoop, Started, ToDevice, WHOLE};

/// Whose an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Part of a read, by its number.
    Read(u32),
    /// A write of an engine's program, by its number there.
    Write(usize, u64),
    /// The cache's own.
    Eviction,
}

/// An operation of the device's logic, or of its cache.
#[derive(Clone, Debug)]
pub(super) struct DeviceOperation {
    pub(super) line: u32,
    pub(super) operation: Operation<Line>,
    pub(super) purpose: Purpose,
    /// What a read finds.
    value: Line,
    /// When a line that the host wrote back for it is in the device's cache, if one is.
    in_cache: Option<u64>,
}

impl DeviceOperation {
    fn new(line: u32, operation: Operation<Line>, purpose: Purpose) -> DeviceOperation {
        DeviceOperation { line, operation, purpose, value: Line::ZERO, in_cache: None }
    }
}

/// A read of the device's logic.
#[derive(Clone, Debug)]
pub(super) struct DeviceRead {
    pub(super) agent: usize,
    pub(super) at: u64,
    pub(super) buffer: Vec<u8>,
    pub(super) lines_left: u32,
}

impl Machine {
    /// Begins a read of the device's logic; its number.
    pub(super) fn start_read(&mut self, agent: usize, at: u64, bytes: u64, hint: StateHint) -> u32 {
        let lines_left = parts(at, bytes).count() as u32;
        let read = DeviceRead { agent, at, buffer: vec![0; bytes as usize], lines_left };
        let read = self.reads.insert(read) as u32;
        self.enters(Queue::DeviceReads, read, self.agenda.now);
        for Part { line, .. } in parts(at, bytes) {
            let operation = DeviceOperation::new(line, Operation::Read(hint), Purpose::Read(read));
            if self.is_behind_ordered(agent, line) {
                let key = self.operations.insert(operation) as u32;
                self.must_come_later(agent, key);
            } else {
                self.admit(operation);
            }
        }
        read
    }

    /// The device's logic takes a read that is there.
    pub(super) fn takes_read(&mut self, read: u32) -> DeviceRead {
        let taken = self.reads.remove(read as usize);
        self.leaves(Queue::DeviceReads, read, self.agenda.now);
        taken
    }

    /// Whether what an engine asks of a line comes behind one of its writes that has not begun: an engine reads what it wrote.
    fn is_behind_ordered(&self, agent: usize, line: u32) -> bool {
        let of_line = |key: &u32| self.operations[*key as usize].line == line;
        self.engines.get(&agent).is_some_and(|engine| engine.ordered.iter().any(of_line))
    }

    /// Begins to write; `word`: after every write before it.
    pub(super) fn start_write(&mut self, agent: usize, at: u64, from: &[u8], hint: StateHint, word: bool) {
        for part in parts(at, from.len() as u64) {
            self.write_line(agent, part.line, part.line_of(from), part.bytes, hint, word);
        }
    }

    fn write_line(&mut self, agent: usize, line: u32, data: Line, bytes: u64, hint: StateHint, word: bool) {
        // A part of a line cannot be pushed: the host's cache would have to merge it.
        let hint = match hint {
            StateHint::NonCacheablePush if bytes != WHOLE => StateHint::NonCacheable,
            StateHint::CacheableShared => StateHint::CacheableOwned,
            other => other,
        };
        let engine = self.engines.entry(agent).or_default();
        let number = engine.next_write;
        engine.next_write += 1;
        engine.writes.insert(number);
        let must_wait = word && engine.writes.len() > 1;
        self.enters(Queue::DeviceWrites(agent as u16), number as u32, self.agenda.now);
        let operation = Operation::Write { hint, data, bytes };
        let operation = DeviceOperation::new(line, operation, Purpose::Write(agent, number));
        if must_wait || self.is_behind_ordered(agent, line) {
            let key = self.operations.insert(operation) as u32;
            self.must_come_later(agent, key);
        } else {
            self.admit(operation);
        }
    }

    /// An operation of an engine must come after others.
    fn must_come_later(&mut self, agent: usize, key: u32) {
        self.engines.entry(agent).or_default().ordered.push_back(key);
        self.enters(Queue::Ordered(agent as u16), key, self.agenda.now);
    }

    /// Begins the ordered writes of an engine whose turn has come, and what waits behind them for their lines.
    fn release_ordered(&mut self, agent: usize) {
        loop {
            let engine = &self.engines[&agent];
            let Some(key) = engine.ordered.front().copied() else { return };
            if let Purpose::Write(_, number) = self.operations[key as usize].purpose
                && engine.writes.first() != Some(&number)
            {
                return;
            }
            self.engines.get_mut(&agent).expect("it has a write").ordered.pop_front();
            self.leaves(Queue::Ordered(agent as u16), key, self.agenda.now);
            self.comes_to_port(key);
        }
    }

    fn admit(&mut self, operation: DeviceOperation) {
        let key = self.operations.insert(operation) as u32;
        self.comes_to_port(key);
    }

    /// An operation's turn has come: of those of the engines when they have been looked up.
    pub(super) fn looked_up(&mut self, key: u32) {
        let before = self.recorder.as_mut().map(|recorder| recorder.turns_to_operation(key));
        self.begin_operation(key);
        if let (Some(recorder), Some(before)) = (&mut self.recorder, before) {
            recorder.goes_back(before);
        }
    }

    fn begin_operation(&mut self, key: u32) {
        let line = self.operations[key as usize].line;
        if self.pending.contains_key(&line) {
            self.behind.entry(line).or_default().push_back(key);
            return self.enters(Queue::Behind, key, self.agenda.now);
        }
        let operation = self.operations[key as usize].operation.clone();
        let watched = self.checks.is_some().then(|| operation.clone());
        let started = self.lines[line as usize].device.start(operation);
        let p = self.parameters.dcoh.clone();
        let rest = p.miss.saturating_sub(p.hit / 2);
        match started {
            Started::Asked(opcode) => {
                self.pending.insert(line, key);
                self.enters(Queue::Pending, line, self.agenda.now);
                let message = crate::protocol::cxl::ToHost::Request(opcode);
                self.send_at(self.agenda.now + rest, Message::ToHost(line, message));
            }
            Started::Done { value, read_memory, wrote_memory, installed } => {
                watched.iter().for_each(|operation| self.check_done(line, operation));
                let is_eviction = self.operations[key as usize].purpose == Purpose::Eviction;
                self.counters.device_hits += u64::from(!is_eviction);
                if wrote_memory {
                    self.write_device_memory(line);
                }
                let now = self.agenda.now;
                let ready = if read_memory { self.read_device_memory(line) } else { now };
                let takes = if read_memory { rest + p.completion } else { p.hit - p.hit / 2 };
                let ready = if installed { self.enters_cache(ready) } else { ready };
                self.operations[key as usize].value = value;
                self.keep_or_drop(line);
                self.answer_engine(key, ready, ready + takes);
            }
        }
    }

    fn read_device_memory(&mut self, line: u32) -> u64 {
        let ready = self.reads_memory(Side::Device, line);
        self.note_memory_read(line, true, ready, false);
        ready
    }

    fn write_device_memory(&mut self, line: u32) {
        let done = self.writes_memory(Side::Device, line);
        self.note_memory_write(line, true, done);
    }

    /// An operation is done, which its engine is told by a message.
    fn answer_engine(&mut self, key: u32, sent: u64, there: u64) {
        let DeviceOperation { line, purpose, .. } = self.operations[key as usize];
        if matches!(purpose, Purpose::Write(..)) && self.lines[line as usize].device.copy == Copy::Modified {
            self.note_landing(line);
        }
        self.note_answer(key, sent, there);
        self.agenda.at(there, Event::DeviceDone(key));
    }

    /// Puts a line that the device has a copy of into its cache, and takes one that it has not out; the one that has to go for
    /// it is given up.
    fn keep_or_drop(&mut self, line: u32) {
        self.note_owners(line);
        let state = &self.lines[line as usize].device;
        let has = state.copy != Copy::Invalid;
        let cache = if state.home == Side::Host { &mut self.hmc } else { &mut self.dmc };
        match (cache.find(line), has) {
            (Some(place), true) => {
                cache.touch(place);
            }
            (Some(place), false) => cache.remove(place),
            (None, false) => {}
            (None, true) => {
                let pending = &self.pending;
                if let Some((_, Some(gone))) = cache.insert(line, 0, |other| !pending.contains_key(&other)) {
                    self.counters.evictions += 1;
                    let eviction = DeviceOperation::new(gone.line, Operation::Evict, Purpose::Eviction);
                    let key = self.operations.insert(eviction) as u32;
                    if let Some(recorder) = &mut self.recorder {
                        recorder.begins_operation(key);
                    }
                    // Its place is taken: it goes now, whatever its look-up would take.
                    self.looked_up(key);
                }
            }
        }
    }

    /// A message of the host for the device.
    pub(super) fn device_receives(&mut self, line: u32, message: ToDevice<Line>) {
        let p = self.parameters.dcoh.clone();
        let answer_after = match message {
            ToDevice::Snoop(_) => p.snoop,
            ToDevice::Pull => p.pull,
            ToDevice::MemoryRead(_) | ToDevice::MemoryWrite { .. } => p.memory_pass,
            _ => 0,
        };
        let device = &mut self.lines[line as usize].device;
        let (had, waited) = (device.copy, self.checks.as_ref().and(device.pending.clone()));
        let Received { reply, done, read_memory, wrote_memory, installed } = device.receive(message);
        if matches!(message, ToDevice::Snoop(Snoop::Invalidate))
            && had != Copy::Invalid
            && self.errs(Mistake::KeepsCopy)
        {
            self.lines[line as usize].device.copy = had;
        }
        self.check_received(line, &message, waited);
        let mut time = self.agenda.now;
        if message == ToDevice::Pull && done.is_some() {
            // A push is over when its data has left.
            time += answer_after + self.backlog_to_host(line);
        }
        if wrote_memory {
            self.write_device_memory(line);
        }
        if read_memory {
            time = self.read_device_memory(line);
        }
        if let Some(reply) = reply {
            let from = if read_memory { time } else { self.agenda.now };
            self.send_at(from + answer_after, Message::ToHost(line, reply));
        }
        self.keep_or_drop(line);
        let Some(value) = done else { return self.may_have_come_back(line, installed) };
        let key = self.pending.remove(&line).expect("an operation waited");
        self.leaves(Queue::Pending, line, self.agenda.now);
        self.operations[key as usize].value = value;
        time = match self.operations[key as usize].in_cache {
            Some(in_cache) => time.max(in_cache),
            None if installed => self.enters_cache(time),
            None => time,
        };
        self.answer_engine(key, time, time + p.completion);
        self.next_of_line(line);
    }

    /// Notes for the operation that waits for a line when what the host has written back for it is in the device's cache: it is put there as
    /// every line is, while the host is told and says that the operation may go on.
    fn may_have_come_back(&mut self, line: u32, installed: bool) {
        let Some(key) = self.pending.get(&line).map(|key| *key as usize) else { return };
        let entered = installed.then(|| self.enters_cache(self.agenda.now));
        let has = self.lines[line as usize].device.copy != Copy::Invalid;
        let operation = &mut self.operations[key];
        operation.in_cache = if has { entered.or(operation.in_cache) } else { None };
    }

    /// A line that is there at a time is put into the device's cache, one after the other; when it is in it.
    fn enters_cache(&mut self, there: u64) -> u64 {
        let p = &self.parameters.dcoh;
        let in_cache = self.gate.begins(self.agenda.now, there, p.install_interval) + p.install;
        self.stays(Queue::Gate, there, in_cache);
        in_cache
    }

    /// The operation that waited behind the last one of its line.
    fn next_of_line(&mut self, line: u32) {
        let Some(queue) = self.behind.get_mut(&line) else { return };
        let next = queue.pop_front();
        if queue.is_empty() {
            self.behind.remove(&line);
        }
        if let Some(next) = next {
            self.leaves(Queue::Behind, next, self.agenda.now);
            self.looked_up(next);
            if !self.pending.contains_key(&line) {
                self.next_of_line(line);
            }
        }
    }

    /// An operation is done, and the logic knows.
    pub(super) fn device_done(&mut self, key: u32) {
        let DeviceOperation { line, purpose, value, .. } = self.operations.remove(key as usize);
        match purpose {
            Purpose::Eviction => return,
            Purpose::Read(read) => {
                let state = &mut self.reads[read as usize];
                let part = parts(state.at, state.buffer.len() as u64).find(|part| part.line == line);
                part.expect("the read is of this line").read(&value, &mut state.buffer);
                state.lines_left -= 1;
                let (agent, over) = (state.agent, state.lines_left == 0);
                if over {
                    self.news(agent);
                }
            }
            Purpose::Write(agent, number) => {
                self.engines.get_mut(&agent).expect("it wrote").writes.remove(&number);
                self.leaves(Queue::DeviceWrites(agent as u16), number as u32, self.agenda.now);
                self.release_ordered(agent);
                self.news(agent);
            }
        }
        self.gives_tag(key);
    }

    /// Something came for an engine.
    pub(super) fn news(&mut self, agent: usize) {
        self.engines.entry(agent).or_default().news = true;
        self.agenda.wake(agent, Wait::News, self.agenda.now);
    }

    /// Makes the host's caches give up lines, as software does before it changes their bias.
    pub(super) fn start_flush_of_host(&mut self, agent: usize, line: u32) {
        let engine = self.engines.entry(agent).or_default();
        let number = engine.next_write;
        engine.next_write += 1;
        engine.writes.insert(number);
        self.enters(Queue::DeviceWrites(agent as u16), number as u32, self.agenda.now);
        let purpose = Purpose::Write(agent, number);
        self.admit(DeviceOperation::new(line, Operation::FlushHost, purpose));
    }
}
