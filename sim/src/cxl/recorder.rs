//! Writes down what happens on this machine, where somebody wants to see it.
//!
//! | place | sends and receives | does |
//! |---|---|---|
//! | a core | what misses its private caches, what comes back, snoops of the home agents | waits |
//! | an engine of the device, by its program's name | its accesses, by their hints, and what comes back | waits |
//! | `host home` | what crosses the CXL link, and what the home agents ask of cores, caches and memory | - |
//! | `last-level cache`, `host memory`, `device memory` | lines | - |
//! | `DCOH` | what crosses the CXL link, and the engines' accesses | - |
//! | `root port`, `PCIe endpoint` | what crosses the PCIe link | - |
//!
//! What crosses the CXL link has the specification's names, what does not has plain ones. A line is owned by a core or by the last-level
//! cache, in the state that the host has it in (what several cores share is S there; a core that has it alone speaks for the last level too),
//! and by `HMC` or `DMC`, the device's caches of host lines and of its own. What is on its way, or in memory alone, has no owner.
//!
//! A message is caused by the one whose arrival had it sent. What a program asks for nobody has caused, but where it waited for a turn,
//! the message that gave it the turn has.

mod names;
mod owners;

use std::collections::BTreeMap;

use conic_fabric::Time;

use super::dcoh::{DeviceOperation, Purpose};
use super::home::From;
use super::machine::{Event, Machine, Message};
use crate::probe::{Cause, LevelRecord, Log, MessageRecord, PlaceName, QueueName, Recording, SpanRecord, Way};
use crate::protocol::cxl::{Opcode, Side, Snoop, ToHost};

use names::of_operation;
pub(super) use names::{of_grant, of_job};

pub(super) const HOME: PlaceName = PlaceName(0);
const LAST_LEVEL: PlaceName = PlaceName(1);
const HOST_MEMORY: PlaceName = PlaceName(2);
const ROOT_PORT: PlaceName = PlaceName(3);
pub(super) const DCOH: PlaceName = PlaceName(4);
const HOST_LINES: PlaceName = PlaceName(5);
const DEVICE_LINES: PlaceName = PlaceName(6);
const DEVICE_MEMORY: PlaceName = PlaceName(7);
pub(super) const ENDPOINT: PlaceName = PlaceName(8);
const PLACES: [&str; 9] = [
    "host home",
    "last-level cache",
    "host memory",
    "root port",
    "DCOH",
    "HMC",
    "DMC",
    "device memory",
    "PCIe endpoint",
];

/// The ways over the links, and what is called by how many messages are on each.
const LINKS: [(PlaceName, PlaceName, &str); 4] = [
    (DCOH, HOME, "messages on the CXL link to the host"),
    (HOME, DCOH, "messages on the CXL link to the device"),
    (ENDPOINT, ROOT_PORT, "TLPs on the PCIe link to the host"),
    (ROOT_PORT, ENDPOINT, "TLPs on the PCIe link to the device"),
];

/// The cause of each of some things that are still to happen, by their numbers.
type Causes = BTreeMap<u32, Option<Cause>>;

/// The message that is being handled, and the last of what that has brought about: a line that is read, a snoop that is answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Present {
    handled: Option<Cause>,
    last: Option<Cause>,
}

impl Present {
    fn of(handled: Option<Cause>) -> Present {
        Present { handled, last: handled }
    }
}

/// What is written down, and what is needed to know who caused what.
#[derive(Debug)]
pub(super) struct Recorder {
    log: Log,
    present: Present,
    /// Messages of the CXL link: what has them sent, and once they are sent, themselves.
    messages: Causes,
    /// What the home agents are asked, and what ends the transaction of a line.
    jobs: Causes,
    ends: Causes,
    /// What goes on beside the device's part of a line's transaction.
    beside: Causes,
    /// Operations of the coherence engine: the access, then the answer.
    operations: Causes,
    /// Packets of DMA transfers.
    pieces: Causes,
    /// What the device asks the host of a line.
    asked: BTreeMap<u32, Opcode>,
    /// The line that stands for interrupts: those behind the region's.
    interrupts: u64,
}

impl Machine {
    /// Writes down what happens from now on, `limit` records at most. Nothing has happened yet, or causes are missing. Costs time
    /// and memory, and changes nothing.
    pub fn record(&mut self, limit: usize) {
        let agents = (0..self.names.len()).map(|agent| self.agent_name(agent));
        let places = PLACES.iter().map(|name| (*name).to_owned()).chain(agents).collect();
        let interrupts = self.lines.len() as u64;
        let mut segments = self.segments.clone();
        segments.push((interrupts, "interrupt".to_owned()));
        self.recorder = Some(Box::new(Recorder {
            log: Log::new(places, segments, limit),
            present: Present::default(),
            messages: Causes::new(),
            jobs: Causes::new(),
            ends: Causes::new(),
            beside: Causes::new(),
            operations: Causes::new(),
            pieces: Causes::new(),
            asked: BTreeMap::new(),
            interrupts,
        }));
    }

    /// What an agent is called: a core by its number, an engine as its program, with a number where several are called so.
    pub(super) fn agent_name(&self, agent: usize) -> String {
        if let Some(core) = self.cores.iter().position(|core| core.agent == agent) {
            return format!("core {core}");
        }
        let name = &self.names[agent];
        let is_other = |other: &usize| self.names[*other] == *name && *other != agent;
        match (0..self.names.len()).any(|other| is_other(&other)) {
            true => format!("{name} {}", (0..agent).filter(is_other).count()),
            false => name.clone(),
        }
    }

    /// Ends writing down, and gives what was; none where nobody asked for it.
    pub fn take_recording(&mut self) -> Option<Recording> {
        let mut recording = self.recorder.take()?.log.into_recording();
        recording.queues = LINKS.map(|(.., name)| name.to_owned()).to_vec();
        recording.levels = levels_of(&recording.messages);
        Some(recording)
    }

    /// Writes down that an agent's program did something, from one time to another.
    pub(super) fn note_span(&mut self, agent: usize, name: &'static str, begins: Time, ends: Time) {
        if let Some(recorder) = &mut self.recorder {
            recorder.log.span(SpanRecord { name, place: place_of(agent), line: None, begins, ends, first: None });
        }
    }

    /// Writes down that an agent has waited for something, perhaps of a line's, from `begins` until now.
    pub(super) fn note_wait(&mut self, agent: usize, name: &'static str, line: Option<u32>, begins: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.log.waits(place_of(agent), name, line.map(u64::from), begins, self.agenda.now);
        }
    }

    /// Writes down that a job is on its way to the home agents, where it is at `there`.
    pub(super) fn note_request(&mut self, key: u32, line: u32, from: From, name: &'static str, there: u64) {
        let Some(recorder) = &mut self.recorder else { return };
        match told(from, |core| self.cores[usize::from(core)].agent, "") {
            Some((_, agent)) => recorder.asks_home(key, line, name, agent, (self.agenda.now, there)),
            None => {
                let sent = self.agenda.now - self.parameters.pcie.root_to_home;
                recorder.root_port_asks_home(key, line, name, (sent, there));
            }
        }
    }

    /// Writes down that the home agents, or the coherence engine, have their memory read a line, which is back at `ready`.
    pub(super) fn note_memory_read(&mut self, line: u32, of_device: bool, ready: u64, beside: bool) {
        let Some(recorder) = &mut self.recorder else { return };
        let (asks, memory, latency) = if of_device {
            (DCOH, DEVICE_MEMORY, self.parameters.device_memory.latency)
        } else {
            (HOME, HOST_MEMORY, self.parameters.memory.latency)
        };
        let (now, taken) = (self.agenda.now, ready.saturating_sub(latency));
        let read = recorder.message("MemoryRead", line, (asks, memory), (now, taken), recorder.present.handled);
        let data = recorder.message("MemoryData", line, (memory, asks), (taken, ready), read);
        if beside {
            recorder.beside.insert(line, data);
        } else if recorder.present.last.is_none_or(|last| recorder.log.arrives(last) <= ready) {
            recorder.present.last = data;
        }
    }

    /// Writes down that they have it write one, whose channel has taken it at `done`. Nobody waits for it, and it waits for nobody.
    pub(super) fn note_memory_write(&mut self, line: u32, of_device: bool, done: u64) {
        let Some(recorder) = &mut self.recorder else { return };
        let way = if of_device { (DCOH, DEVICE_MEMORY) } else { (HOME, HOST_MEMORY) };
        recorder.message("MemoryWrite", line, way, (self.agenda.now, done), recorder.present.handled);
    }

    /// Writes down that an engine's operation, which came to its port at `asked`, is looked up by the coherence engine at `there`.
    pub(super) fn note_access(&mut self, key: u32, asked: u64, there: u64) {
        let Some(recorder) = &mut self.recorder else { return };
        let operation = &self.operations[key as usize];
        let line = &self.lines[operation.line as usize].device;
        let name = of_operation(&operation.operation, (line.home == Side::Device).then_some(line.bias));
        if let Some(agent) = agent_of(operation.purpose, |read| self.reads[read as usize].agent) {
            recorder.asks_dcoh(key, operation.line, name, agent, (asked, there));
        }
    }

    /// Writes down that an operation is done, which its engine is told by a message.
    pub(super) fn note_answer(&mut self, key: u32, sent: u64, there: u64) {
        let Some(recorder) = &mut self.recorder else { return };
        let operation = &self.operations[key as usize];
        let agent = agent_of(operation.purpose, |read| self.reads[read as usize].agent);
        recorder.answers_engine(key, operation, agent, (sent, there));
    }

    /// Writes down that the host's caches are asked for a line from `asked` on, other than the asker's own, who answer after `takes`.
    pub(super) fn note_caches(&mut self, line: u32, asker: Option<u16>, snoop: Snoop, asked: u64, takes: u64) {
        let Some(recorder) = &mut self.recorder else { return };
        let p = &self.parameters.host;
        let others = self.lines[line as usize].holders & !asker.map_or(0, |core| 1 << core);
        // One that cores share is in the last level, or clean: nobody waits for what they find.
        let is_awaited = takes == p.home_to_core + p.snoop_lookup + p.core_to_home;
        let before = recorder.present.last;
        let mut last = before;
        if takes > 0 && !is_awaited {
            last = recorder.message("LastLevelData", line, (LAST_LEVEL, HOME), (asked, asked + takes), last);
        }
        for (core, state) in self.cores.iter().enumerate() {
            let is_asked = others >> core & 1 == 1 && (is_awaited || snoop == Snoop::Invalidate);
            if !is_asked {
                continue;
            }
            let core = place_of(state.agent);
            let there = asked + p.home_to_core;
            let sent = recorder.message(names::of_snoop(snoop), line, (HOME, core), (asked, there), before);
            if is_awaited {
                let found = names::of_found(recorder.log.state(core, line.into()));
                let leaves = there + p.snoop_lookup;
                last = recorder.message(found, line, (core, HOME), (leaves, leaves + p.core_to_home), sent);
            }
        }
        recorder.present.last = last;
    }
}

/// The place of an agent.
fn place_of(agent: usize) -> PlaceName {
    PlaceName((PLACES.len() + agent) as u16)
}

/// How many messages are on each link, over time.
fn levels_of(messages: &[MessageRecord]) -> Vec<LevelRecord> {
    let mut changes = Vec::new();
    for message in messages {
        if let Some(link) = LINKS.iter().position(|(from, to, _)| (*from, *to) == (message.from, message.to)) {
            // One that arrives is off the link before one that departs then is on it.
            changes.extend([(message.arrives, false, link), (message.sent, true, link)]);
        }
    }
    changes.sort_unstable();
    let mut inside = [0_u64; LINKS.len()];
    let level = |(at, enters, link): (Time, bool, usize)| {
        inside[link] = if enters { inside[link] + 1 } else { inside[link] - 1 };
        LevelRecord { queue: QueueName(link as u16), inside: inside[link], at }
    };
    changes.into_iter().map(level).collect()
}

impl Recorder {
    /// A message from one place to another.
    fn message(
        &mut self,
        name: &'static str,
        line: u32,
        (from, to): (PlaceName, PlaceName),
        (sent, arrives): (u64, u64),
        cause: Option<Cause>,
    ) -> Option<Cause> {
        self.log.write(Way { name, line: line.into(), from, to, asks: false }, sent, arrives, cause)
    }

    /// What a program asks for, or what asks in its place.
    fn asks(
        &mut self,
        name: &'static str,
        line: u32,
        (from, to): (PlaceName, PlaceName),
        (sent, arrives): (u64, u64),
    ) -> Option<Cause> {
        self.log.write(Way { name, line: line.into(), from, to, asks: true }, sent, arrives, self.present.last)
    }

    /// An event happens: if it is a message, whatever is sent meanwhile is caused by it.
    pub(super) fn handles(&mut self, event: Event) {
        let (causes, key) = match event {
            Event::Departs(key) | Event::Arrives(key) | Event::Handled(key) => (&self.messages, key),
            Event::AtHome(key) => (&self.jobs, key),
            Event::Finishes(line) => (&self.ends, line),
            Event::LookedUp(key) | Event::DeviceDone(key) => (&self.operations, key),
            Event::AtRoot(key) | Event::DmaDone(key) => (&self.pieces, key),
            Event::Room(..)
            | Event::PortFree(_)
            | Event::Interrupts(_)
            | Event::Drains(_)
            | Event::RegisterWritten(..)
            | Event::RegisterRead(_) => {
                self.present = Present::default();
                return;
            }
        };
        self.present = Present::of(causes.get(&key).copied().flatten());
    }

    /// What was to happen has happened: what programs do next nobody has caused.
    pub(super) fn programs_go_on(&mut self) {
        self.present = Present::default();
    }

    // ---- the host -----------------------------------------------------------------------------------------------

    /// A job is on its way to the home agents, where it is at `arrives`.
    pub(super) fn asks_home(&mut self, key: u32, line: u32, name: &'static str, agent: usize, times: (u64, u64)) {
        let job = self.asks(name, line, (place_of(agent), HOME), times);
        self.jobs.insert(key, job);
    }

    /// A line of a DMA transfer is on its way from the root port to the home agents.
    pub(super) fn root_port_asks_home(&mut self, key: u32, line: u32, name: &'static str, times: (u64, u64)) {
        let job = self.message(name, line, (ROOT_PORT, HOME), times, self.present.last);
        self.jobs.insert(key, job);
    }

    /// What is being handled is asked again later, or waits for its line's turn.
    pub(super) fn puts_off(&mut self, key: u32) {
        self.jobs.insert(key, self.present.last);
    }

    /// What waited for its line's turn has it.
    pub(super) fn has_its_turn(&mut self, key: u32) {
        self.present = Present::of(self.jobs.get(&key).copied().flatten());
    }

    /// A line's transaction goes on: with what went on beside the device's part, if that took longer. Gives what was being handled.
    pub(super) fn goes_on(&mut self, line: u32, waited_beside: bool) -> Present {
        let before = self.present;
        self.present = Present::of(before.handled);
        if waited_beside {
            self.present.last = self.beside.get(&line).copied().flatten();
        }
        before
    }

    /// What was being handled before is again.
    pub(super) fn goes_back(&mut self, before: Present) {
        self.present = before;
    }

    /// What is being handled goes on beside the device's part.
    pub(super) fn goes_on_beside(&mut self, line: u32) {
        self.beside.insert(line, self.present.last);
    }

    /// A line's transaction is over; its asker is told by a message, if it is a core.
    pub(super) fn ends(&mut self, line: u32, told: Option<(&'static str, usize)>, sent: u64, arrives: u64) {
        let mut end = self.present.last;
        if let Some((name, agent)) = told {
            end = self.message(name, line, (HOME, place_of(agent)), (sent, arrives), end);
        }
        self.ends.insert(line, end);
    }

    // ---- the CXL link -------------------------------------------------------------------------------------------

    /// A message is to depart, caused by what is being handled.
    pub(super) fn is_to_depart(&mut self, key: u32) {
        self.messages.insert(key, self.present.last);
    }

    /// A message is on the link.
    pub(super) fn crosses(&mut self, key: u32, message: &Message, sent: u64, arrives: u64) {
        if let Message::ToHost(line, ToHost::Request(opcode)) = message {
            self.asked.insert(*line, *opcode);
        }
        let cause = self.messages.get(&key).copied().flatten();
        let (line, way) = match message {
            Message::ToHost(line, _) => (*line, (DCOH, HOME)),
            Message::ToDevice(line, _) => (*line, (HOME, DCOH)),
        };
        let name = names::on_the_link(message, self.asked.get(&line).copied());
        let crosses = self.message(name, line, way, (sent, arrives), cause);
        self.messages.insert(key, crosses);
    }

    // ---- the device ---------------------------------------------------------------------------------------------

    /// An engine's access comes to a port of the coherence engine, caused by what is being handled.
    pub(super) fn is_to_pass(&mut self, key: u32) {
        self.operations.insert(key, self.present.last);
    }

    /// It passes the port.
    pub(super) fn asks_dcoh(
        &mut self,
        key: u32,
        line: u32,
        name: &'static str,
        agent: usize,
        (sent, arrives): (u64, u64),
    ) {
        let cause = self.operations.get(&key).copied().flatten();
        let way = Way { name, line: line.into(), from: place_of(agent), to: DCOH, asks: true };
        let asks = self.log.write(way, sent, arrives, cause);
        self.operations.insert(key, asks);
    }

    /// The coherence engine has an operation of its own.
    pub(super) fn begins_operation(&mut self, key: u32) {
        self.operations.insert(key, self.present.handled);
    }

    /// It begins with an operation. Gives what was being handled.
    pub(super) fn turns_to_operation(&mut self, key: u32) -> Present {
        let operation = self.operations.get(&key).copied().flatten();
        std::mem::replace(&mut self.present, Present::of(operation))
    }

    /// An operation is done, and its engine is told.
    pub(super) fn answers_engine(
        &mut self,
        key: u32,
        operation: &DeviceOperation,
        agent: Option<usize>,
        at: (u64, u64),
    ) {
        let name = if matches!(operation.purpose, Purpose::Read(_)) { "Data" } else { "Done" };
        let told = match agent {
            Some(agent) => self.message(name, operation.line, (DCOH, place_of(agent)), at, self.present.last),
            None => self.present.last,
        };
        self.operations.insert(key, told);
    }

    // ---- PCIe ---------------------------------------------------------------------------------------------------

    /// A piece of an engine's transfer leaves the endpoint at `leaves`.
    pub(super) fn asks_dma(&mut self, key: u32, line: u32, name: &'static str, agent: usize, times: (u64, u64)) {
        let asks = self.asks(name, line, (place_of(agent), ENDPOINT), times);
        self.pieces.insert(key, asks);
    }

    /// An interrupt is to be sent.
    pub(super) fn is_to_interrupt(&mut self, key: u32) {
        self.pieces.insert(key, self.present.last);
    }

    /// A piece's packet is on the link to the host.
    pub(super) fn piece_crosses(&mut self, key: u32, line: Option<u32>, name: &'static str, times: (u64, u64)) {
        let line = line.unwrap_or(self.interrupts as u32);
        let cause = self.pieces.get(&key).copied().flatten();
        let crosses = self.message(name, line, (ENDPOINT, ROOT_PORT), times, cause);
        self.pieces.insert(key, crosses);
    }

    /// The home agents' answer about a line of a DMA read goes to the root port; then its completion is caused by it.
    pub(super) fn answers_root_port(&mut self, line: u32, times: (u64, u64)) {
        self.present.last = self.message("LineData", line, (HOME, ROOT_PORT), times, self.present.last);
    }

    /// A completion of a piece is on the link to the device; the last one ends it.
    pub(super) fn completes(&mut self, key: u32, line: u32, times: (u64, u64)) {
        let crosses = self.message("CplD", line, (ROOT_PORT, ENDPOINT), times, self.present.last);
        self.pieces.insert(key, crosses);
    }

    /// An interrupt's message has its core's program wake up.
    pub(super) fn interrupts(&mut self, agent: usize, times: (u64, u64)) {
        self.message("Interrupt", self.interrupts as u32, (ROOT_PORT, place_of(agent)), times, self.present.last);
    }

    /// A core's access of a register goes to the root port and over the link; an answer comes back, where there is one.
    pub(super) fn accesses_register(
        &mut self,
        agent: usize,
        line: u32,
        name: &'static str,
        times: [u64; 3],
        back: Option<[u64; 3]>,
    ) {
        let core = place_of(agent);
        let asks = self.asks(name, line, (core, ROOT_PORT), (times[0], times[1]));
        let there = self.message(name, line, (ROOT_PORT, ENDPOINT), (times[1], times[2]), asks);
        if let Some([leaves, at_root, at_core]) = back {
            let answer = self.message("MMIO data", line, (ENDPOINT, ROOT_PORT), (leaves, at_root), there);
            self.message("MMIO data", line, (ROOT_PORT, core), (at_root, at_core), answer);
        }
    }
}

/// The agent whose an operation is, if it is not the cache's own.
fn agent_of(purpose: Purpose, of_read: impl Fn(u32) -> usize) -> Option<usize> {
    match purpose {
        Purpose::Read(read) => Some(of_read(read)),
        Purpose::Write(agent, _) => Some(agent),
        Purpose::Eviction => None,
    }
}

/// The agent of the core that asks, if one does, and what it is told, who may be granted the line.
pub(super) fn told(from: From, agents: impl Fn(u16) -> usize, granted: &'static str) -> Option<(&'static str, usize)> {
    match from {
        From::Load(core, _) | From::Own(core) => Some((granted, agents(core))),
        From::Nontemporal(core) | From::Flush(core) => Some(("Done", agents(core))),
        From::Eviction | From::Device | From::Dma(_) => None,
    }
}
