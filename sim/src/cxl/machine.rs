//! The machine's state, and its events in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use conic_fabric::{Address, Home, LINE_BYTES, Layout, Line, MemoryType, SynchronisingWords, Time};
use slab::Slab;

use super::checks::Checks;
use super::cores::{CoreState, Loaded};
use super::dcoh::DeviceOperation;
use super::gate::Gate;
use super::home::{Job, Running};
use super::last_level::{LastLevel, PushedLines};
use super::link::{Channel, Class, LayerCounters};
use super::parameters::CxlParameters;
use super::pcie::{DmaPiece, DmaRead};
use super::ports::{PORTS, Port};
use super::queues::Queue;
use super::recorder::Recorder;
use crate::agenda::{Agenda, HasAgenda};
use crate::credits::Credits;
use crate::draws::Draws;
use crate::link::mix;
use crate::machine::tags::{self, Tags};
use crate::memory::Memory;
use crate::pcie::PcieLink;
use crate::probe::counters::MessageCounts;
use crate::probe::queues::{Probed, Queues};
use crate::probe::segments_of;
use crate::protocol::cxl::{Bias, DeviceLine, HostLine, Side, ToDevice, ToHost};

/// What an agent waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A point in time.
    Time,
    /// A load, by its number.
    Load(u32),
    /// A line fill buffer.
    FillBuffer,
    /// The oldest of the loads that it has gone on behind.
    Retire,
    /// Its stores, or room for one.
    Stores,
    /// Its non-temporal stores, or room for one.
    Nontemporal,
    /// That a line which it reads over and over changes.
    Change,
    /// Something of its own at the device: an answer, or a register's write.
    News,
    /// A register's contents.
    Register,
    /// An interrupt.
    Interrupt,
    /// Nothing: its program has ended.
    Ended,
}

impl Wait {
    /// What a recording calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Wait::Load(_) => "wait for a line",
            Wait::FillBuffer => "wait for a fill buffer",
            Wait::Retire => "wait for the reorder buffer",
            Wait::Stores => "wait for stores",
            Wait::Nontemporal => "wait for writes past the caches",
            Wait::Register => "wait for a register",
            Wait::Time | Wait::Change | Wait::News | Wait::Interrupt | Wait::Ended => "wait",
        }
    }
}

/// A message on the CXL link.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    ToHost(u32, ToHost<Line>),
    ToDevice(u32, ToDevice<Line>),
}

impl Message {
    fn line(&self) -> u32 {
        match self {
            Message::ToHost(line, _) | Message::ToDevice(line, _) => *line,
        }
    }

    fn receiver(&self) -> Side {
        match self {
            Message::ToHost(..) => Side::Host,
            Message::ToDevice(..) => Side::Device,
        }
    }

    /// What the receiver must have room for.
    fn class(&self) -> Class {
        match self {
            Message::ToHost(_, ToHost::Request(_)) | Message::ToDevice(_, ToDevice::Snoop(_)) => Class::Request,
            Message::ToHost(_, ToHost::Snooped { data: None, .. })
            | Message::ToDevice(_, ToDevice::Grant { data: None, .. } | ToDevice::Pull | ToDevice::Finished) => {
                Class::Answer
            }
            Message::ToHost(_, ToHost::Snooped { data: Some(_), .. } | ToHost::Pulled { .. })
            | Message::ToDevice(_, ToDevice::Grant { data: Some(_), .. } | ToDevice::Current(_)) => Class::Data,
            Message::ToHost(_, ToHost::MemoryData { .. } | ToHost::MemoryDone)
            | Message::ToDevice(_, ToDevice::MemoryRead(_) | ToDevice::MemoryWrite { .. } | ToDevice::MemoryForward) => {
                Class::Memory
            }
        }
    }
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A message is ready for the link, and on the other side.
    Departs(u32),
    Arrives(u32),
    /// The host's side, or the device's, hears that there is room for a message of a class.
    Room(Side, Class),
    /// An interrupt's message has reached a core's program.
    Interrupts(u16),
    /// A message has passed the receiver's stage.
    Handled(u32),
    /// A job has been looked up by its home agent.
    AtHome(u32),
    /// The transaction of a line is over.
    Finishes(u32),
    /// A port of the coherence engine takes the next request.
    PortFree(usize),
    /// An operation of the device is looked up in its cache.
    LookedUp(u32),
    /// It is done.
    DeviceDone(u32),
    /// A piece of a DMA transfer is at the root port, or its answer at the device.
    AtRoot(u32),
    DmaDone(u32),
    /// A core's stores go on behind the write of a register.
    Drains(u16),
    /// A register's write is at the device, its read's answer at the core.
    RegisterWritten(u64, u64),
    RegisterRead(u16),
}

/// A line, on both sides.
#[derive(Clone, Debug)]
pub(super) struct LineState {
    pub(super) host: HostLine<Line>,
    pub(super) device: DeviceLine<Line>,
    /// The cores whose private caches have it, a bit each.
    pub(super) holders: u64,
    /// It has words that synchronise, as descriptors have and packets have not.
    pub(super) synchronises: bool,
}

/// What crossed the links, by message, and what the caches did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages by kind, in the terms of [`crate::protocol::cxl`], and TLPs of PCIe.
    pub messages: MessageCounts,
    /// Loads of cores that missed their private caches.
    pub misses: u64,
    /// Requests of the device that its cache or its memory answered without the host.
    pub device_hits: u64,
    /// Lines that a cache gave up for want of room.
    pub evictions: u64,
    /// Lines that the device has put into the host's last-level cache.
    pub pushed_lines: PushedLines,
}

impl Counters {
    /// What was counted since an earlier state.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            messages: self.messages.since(&earlier.messages),
            misses: self.misses - earlier.misses,
            device_hits: self.device_hits - earlier.device_hits,
            evictions: self.evictions - earlier.evictions,
            pushed_lines: self.pushed_lines.since(&earlier.pushed_lines),
        }
    }
}

/// What each engine of the device has under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Engine {
    /// Something came that its program may not have seen.
    pub(super) news: bool,
    /// Numbers of its writes that are not done.
    pub(super) writes: BTreeSet<u64>,
    /// Writes of words that wait for those before them, and what waits behind them for its line.
    pub(super) ordered: VecDeque<u32>,
    pub(super) next_write: u64,
    /// When the last DMA write that it was given leaves.
    pub(super) dma_until: u64,
}

/// A host and a device.
pub struct Machine {
    pub(super) parameters: CxlParameters,
    pub(super) agenda: Agenda<Wait, Event>,
    pub(super) draws: Draws,
    /// By how much at most a job is late at its home agent, to meet other orders.
    pub(super) jitter: u64,
    pub(super) lines: Vec<LineState>,
    pub(super) registers: BTreeSet<u32>,
    pub(super) register_values: BTreeMap<u64, u64>,
    // The host.
    pub(super) cores: Vec<CoreState>,
    pub(super) loads: Slab<Loaded>,
    pub(super) last_level: LastLevel,
    pub(super) memory: Memory,
    pub(super) jobs: Slab<Job>,
    pub(super) waiting: BTreeMap<u32, VecDeque<u32>>,
    pub(super) running: BTreeMap<u32, Running>,
    // The link.
    pub(super) messages: Slab<Message>,
    to_host: Channel,
    to_device: Channel,
    // The device.
    pub(super) engines: BTreeMap<usize, Engine>,
    pub(super) operations: Slab<DeviceOperation>,
    pub(super) reads: Slab<super::dcoh::DeviceRead>,
    pub(super) in_flight: Credits,
    pub(super) ports: [Port; PORTS],
    /// The port whose request had the last tag.
    pub(super) last_tag: usize,
    pub(super) gate: Gate,
    /// The operation that waits for the host, and those behind it, by line.
    pub(super) pending: BTreeMap<u32, u32>,
    pub(super) behind: BTreeMap<u32, VecDeque<u32>>,
    pub(super) hmc: Tags,
    pub(super) dmc: Tags,
    pub(super) device_memory: Memory,
    // PCIe.
    pub(super) pcie: PcieLink,
    pub(super) dma_reads: Slab<DmaRead>,
    pub(super) dma_pieces: Slab<DmaPiece>,
    pub(super) engine_free: u64,
    /// Posted writes at the root port, in order, and lines of those that are not first, or of reads that came behind them.
    pub(super) dma_order: VecDeque<u32>,
    pub(super) dma_parked: Vec<u32>,
    /// Posted writes that have come to the root port.
    pub(super) dma_arrived: u64,
    /// Lines whose last write by the device is noted, and when it was over.
    watched: BTreeMap<u32, u64>,
    /// The region's segments: the first line that begins in each, and its name; and the agents' names.
    pub(super) segments: Vec<(u64, String)>,
    pub(super) names: Vec<String>,
    /// Writes down what happens, where somebody wants to see it.
    pub(super) recorder: Option<Box<Recorder>>,
    /// What a checked run knows.
    pub(super) checks: Option<Box<Checks>>,
    /// The probes of the queues, where somebody wants to see them.
    pub(super) queues: Option<Box<Queues<Queue>>>,
    /// What has been counted.
    pub counters: Counters,
}

impl HasAgenda for Machine {
    type Wait = Wait;
    type Event = Event;
    const TIME: Wait = Wait::Time;
    const ENDED: Wait = Wait::Ended;

    fn agenda(&self) -> &Agenda<Wait, Event> {
        &self.agenda
    }
    fn agenda_mut(&mut self) -> &mut Agenda<Wait, Event> {
        &mut self.agenda
    }
    fn happens(&mut self, event: Event) {
        if let Some(recorder) = &mut self.recorder {
            recorder.handles(event);
        }
        match event {
            Event::Departs(message) => self.departs(message),
            Event::Room(side, class) => self.has_room(side, class),
            Event::Interrupts(agent) => self.interrupted(agent),
            Event::Arrives(message) => self.arrives(message),
            Event::Handled(message) => self.handled(message),
            Event::AtHome(job) => self.at_home(job),
            Event::Finishes(line) => self.finishes(line),
            Event::PortFree(port) => self.looks_again(port),
            Event::LookedUp(operation) => self.looked_up(operation),
            Event::DeviceDone(operation) => self.device_done(operation),
            Event::AtRoot(piece) => self.at_root(piece),
            Event::DmaDone(piece) => self.dma_done(piece),
            Event::Drains(core) => self.drain(core),
            Event::RegisterWritten(at, value) => self.register_written(at, value),
            Event::RegisterRead(agent) => self.register_read(agent),
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.programs_go_on();
        }
    }
    fn stuck(&self) -> Vec<String> {
        Machine::stuck(self)
    }
}

impl Machine {
    pub(super) fn new(p: &CxlParameters, layout: &Layout) -> Machine {
        let lines = layout.bytes().div_ceil(LINE_BYTES) as usize;
        let caches = &p.cache;
        let (hmc, dmc) = (p.dcoh.hmc(), p.dcoh.dmc());
        tags::must_tell_apart(lines as u64, caches.sizes().into_iter().chain([hmc, dmc]));
        let mut registers = BTreeSet::new();
        let mut homes = vec![(Side::Host, false); lines];
        for segment in layout.segments() {
            let first = (segment.start.0 / LINE_BYTES) as u32;
            let last = (segment.end().0.div_ceil(LINE_BYTES)) as u32;
            if segment.memory != MemoryType::WriteBack {
                registers.extend(first..last);
            } else {
                let home = if segment.home == Home::Nic { Side::Device } else { Side::Host };
                let synchronises = segment.synchronising != SynchronisingWords::NONE;
                homes[first as usize..last as usize].fill((home, synchronises));
            }
        }
        let line = |&(home, synchronises): &(Side, bool)| LineState {
            host: HostLine::new(home, Line::ZERO),
            device: DeviceLine::new(home, Line::ZERO),
            holders: 0,
            synchronises,
        };
        Machine {
            parameters: p.clone(),
            agenda: Agenda::new(),
            draws: Draws::new(1),
            jitter: 0,
            lines: homes.iter().map(line).collect(),
            registers,
            register_values: BTreeMap::new(),
            cores: Vec::new(),
            loads: Slab::new(),
            last_level: LastLevel::new(p),
            memory: Memory::new(&p.memory).refreshed(p.refresh.clone()).forwarding(p.host.reads_pending_writes),
            jobs: Slab::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            messages: Slab::new(),
            to_host: Channel::new(&p.link, 1),
            to_device: Channel::new(&p.link, 2),
            engines: BTreeMap::new(),
            operations: Slab::new(),
            reads: Slab::new(),
            in_flight: Credits::new(p.dcoh.requests_in_flight),
            ports: Default::default(),
            last_tag: 0,
            gate: Gate::default(),
            pending: BTreeMap::new(),
            behind: BTreeMap::new(),
            hmc: Tags::new(p.dcoh.hmc_bytes, p.dcoh.hmc_ways),
            dmc: Tags::new(p.dcoh.dmc_bytes, p.dcoh.dmc_ways),
            device_memory: Memory::new(&p.device_memory).refreshed(p.device_refresh.clone()),
            pcie: PcieLink::new(&p.pcie),
            dma_reads: Slab::new(),
            dma_pieces: Slab::new(),
            engine_free: 0,
            dma_order: VecDeque::new(),
            dma_parked: Vec::new(),
            dma_arrived: 0,
            watched: BTreeMap::new(),
            segments: segments_of(layout, LINE_BYTES),
            names: Vec::new(),
            recorder: None,
            checks: None,
            queues: None,
            counters: Counters::default(),
        }
    }

    /// The time, in picoseconds.
    pub fn now(&self) -> u64 {
        self.agenda.now
    }

    /// What it is made of.
    pub fn parameters(&self) -> &CxlParameters {
        &self.parameters
    }

    /// From now on notes when the host can have what the device writes into so many lines.
    pub fn watch(&mut self, from: Address, lines: u64) {
        let first = (from.0 / LINE_BYTES) as u32;
        self.watched.extend((first..first + lines as u32).map(|line| (line, 0)));
    }

    /// When the device's last write of a line that is watched was over at its home agent, or was in the device's own cache.
    ///
    /// # Panics
    ///
    /// If the line is not watched.
    pub fn landed(&self, at: Address) -> Time {
        Time::from_picoseconds(self.watched[&((at.0 / LINE_BYTES) as u32)])
    }

    /// When a core's write of a register, by its number from 0 on, left the core, if it has.
    pub fn rang(&self, core: u16, number: usize) -> Option<Time> {
        self.cores[usize::from(core)].rang.get(number).copied().map(Time::from_picoseconds)
    }

    pub(super) fn note_landing(&mut self, line: u32) {
        if let Some(time) = self.watched.get_mut(&line) {
            *time = self.agenda.now;
        }
    }

    /// What the link's layer did to the host, and to the device.
    pub fn link_layer(&self) -> [LayerCounters; 2] {
        [self.to_host.counters, self.to_device.counters]
    }

    /// Sets who is asked before the device touches its own lines from `at` on. Nobody is told: software sees to what the host has.
    ///
    /// # Panics
    ///
    /// If the device has a request for one of them under way.
    pub fn set_bias(&mut self, at: Address, bytes: u64, bias: Bias) {
        for line in at.0 / LINE_BYTES..(at.0 + bytes).div_ceil(LINE_BYTES) {
            assert!(!self.pending.contains_key(&(line as u32)), "the device has a request under way for line {line}");
            self.lines[line as usize].device.bias = bias;
            self.bias_was_set(line as u32);
        }
    }

    /// Has jobs be late at their home agents by up to so many picoseconds, drawn from a seed: other orders, and no other results
    /// where a program is right.
    pub fn disturb(&mut self, seed: u64, jitter: u64) {
        (self.draws, self.jitter) = (Draws::new(mix(seed)), jitter);
    }

    pub(super) fn count(&mut self, kind: &'static str) {
        self.counters.messages.count(kind);
    }

    /// Puts a message on its way at a time.
    pub(super) fn send_at(&mut self, time: u64, message: Message) {
        let key = self.messages.insert(message) as u32;
        if let Some(recorder) = &mut self.recorder {
            recorder.is_to_depart(key);
        }
        self.agenda.at(time, Event::Departs(key));
    }

    fn departs(&mut self, key: u32) {
        let message = self.messages[key as usize];
        let (line, class, now) = (message.line(), message.class(), self.agenda.now);
        if self.channel_to(message.receiver()).take_credit(key, line, class, now) {
            self.sends(key);
        } else {
            self.enters(Queue::WithoutCredit(message.receiver()), key, now);
        }
    }

    /// Sends a message that has its credit.
    fn sends(&mut self, key: u32) {
        let message = self.messages[key as usize];
        let (name, quarters) = self.on_the_wire(&message);
        self.count(name);
        let (link, now) = (self.parameters.link.clone(), self.agenda.now);
        let (receiver, class) = (message.receiver(), message.class());
        let there = self.channel_to(receiver).send(message.line(), now, quarters, &link);
        self.enters(Queue::Credits(receiver, class), 0, now);
        self.serves(Queue::Link(receiver), now, there - link.crossing);
        let kept_from = self.channel(receiver).kept_from();
        self.stays(Queue::Retry(receiver), kept_from, there + link.acknowledge + link.crossing);
        if let Some(recorder) = &mut self.recorder {
            recorder.crosses(key, &message, now, there);
        }
        self.agenda.at(there, Event::Arrives(key));
    }

    fn channel_to(&mut self, side: Side) -> &mut Channel {
        if side == Side::Host { &mut self.to_host } else { &mut self.to_device }
    }

    pub(super) fn channel(&self, receiver: Side) -> &Channel {
        if receiver == Side::Host { &self.to_host } else { &self.to_device }
    }

    /// A receiver has room for one more message of a class, and its sender has heard of it.
    fn has_room(&mut self, receiver: Side, class: Class) {
        let now = self.agenda.now;
        let depart = self.channel_to(receiver).give_back(class, now);
        self.leaves(Queue::Credits(receiver, class), 0, now);
        for key in depart {
            self.leaves(Queue::WithoutCredit(receiver), key, now);
            self.sends(key);
        }
    }

    /// How long a message to the host would wait for its wire now.
    pub(super) fn backlog_to_host(&self, line: u32) -> u64 {
        self.to_host.wait(line, self.agenda.now)
    }

    /// A message's name in the specification, and its quarters of slots.
    fn on_the_wire(&self, message: &Message) -> (&'static str, u32) {
        use crate::protocol::cxl::Opcode as O;
        let p = &self.parameters.link;
        let data = p.data_header_quarters + p.line_quarters;
        match message {
            Message::ToHost(_, ToHost::Request(opcode)) => {
                let name = match opcode {
                    O::ReadCurrent => "RdCurr",
                    O::ReadShared => "RdShared",
                    O::ReadOwn => "RdOwn",
                    O::ReadOwnNoData => "RdOwnNoData",
                    O::WriteInvalidate { .. } => "WOWrInv",
                    O::WritePush => "ItoMWr",
                    O::DirtyEvict => "DirtyEvict",
                    O::CleanEvict => "CleanEvict",
                    O::FlushHost => "CLFlush",
                };
                (name, p.device_request_quarters)
            }
            Message::ToHost(_, ToHost::Snooped { data: None, .. }) => ("Rsp", p.answer_quarters),
            Message::ToHost(_, ToHost::Snooped { data: Some(_), .. }) => ("RspFwd, data", p.answer_quarters + data),
            Message::ToHost(_, ToHost::Pulled { .. }) => ("data", data),
            Message::ToHost(_, ToHost::MemoryData { .. }) => ("MemData", p.data_header_quarters + data),
            Message::ToHost(_, ToHost::MemoryDone) => ("Cmp", p.answer_quarters),
            Message::ToDevice(_, ToDevice::Snoop(_)) => ("Snp", p.snoop_quarters),
            Message::ToDevice(_, ToDevice::Grant { data: None, .. }) => ("GO", p.answer_quarters),
            Message::ToDevice(_, ToDevice::Grant { data: Some(_), .. }) => ("GO, data", p.answer_quarters + data),
            Message::ToDevice(_, ToDevice::Current(_)) => ("data", data),
            Message::ToDevice(_, ToDevice::Pull) => ("GO_WritePull", p.answer_quarters),
            Message::ToDevice(_, ToDevice::Finished) => ("ExtCmp", p.answer_quarters),
            Message::ToDevice(_, ToDevice::MemoryRead(_)) => ("MemRd", p.memory_request_quarters),
            Message::ToDevice(_, ToDevice::MemoryWrite { .. }) => {
                ("MemWr", p.memory_request_quarters + p.line_quarters)
            }
            Message::ToDevice(_, ToDevice::MemoryForward) => ("MemFwd", p.memory_request_quarters),
        }
    }

    /// A message is on the other side.
    fn arrives(&mut self, key: u32) {
        let p = &self.parameters;
        let stage = match self.messages[key as usize] {
            Message::ToHost(..) => p.host.home_lookup,
            Message::ToDevice(_, ToDevice::MemoryRead(_) | ToDevice::MemoryWrite { .. }) => p.dcoh.memory_pass,
            Message::ToDevice(..) => 0,
        };
        self.agenda.at(self.agenda.now + stage, Event::Handled(key));
    }

    fn handled(&mut self, key: u32) {
        let message = self.messages.remove(key as usize);
        let p = &self.parameters.link;
        let back = self.agenda.now + p.credit_return + p.crossing;
        self.agenda.at(back, Event::Room(message.receiver(), message.class()));
        match message {
            Message::ToHost(line, ToHost::Request(opcode)) => {
                let ask = crate::protocol::cxl::Ask::Device(opcode);
                self.looked_up_at_home(Job { line, ask, from: super::home::From::Device });
            }
            Message::ToHost(line, answer) => self.answered(line, answer),
            Message::ToDevice(line, message) => self.device_receives(line, message),
        }
    }
}
