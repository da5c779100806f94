//! Writes down what happens on a machine, where somebody wants to see it.

use std::collections::BTreeMap;

use conic_fabric::Time;

use crate::engine::Key;
use crate::parameters::NodeParameters;
use crate::probe::queues::Probed;
use crate::probe::{Cause, Log, MessageRecord, OwnershipRecord, PlaceName, Recording, SpanRecord};
use crate::protocol::{Ask, Copy, Snoop, ToCore, ToHome};

use super::Machine;
use super::agent::{Agent, Wait};

/// Places before the agents': each node's home agents and its memory, and the root port.
const NODE_PLACES: usize = 5;
/// The root port's place.
const ROOT_PORT: PlaceName = PlaceName(4);

/// What waits for somebody else: for a credit, a tag, its turn, a device's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Held {
    /// A node's request that waits for a credit, by its number there.
    Crossing(u8, u32),
    /// A transaction of the PCIe link.
    Tlp(u32),
    /// A device's write of a line that takes effect after those before it, by its number past the caches.
    Write(u32),
}

/// What is written down, and what is needed to know who caused what.
#[derive(Debug)]
pub(crate) struct Recorder {
    log: Log,
    /// Messages on their way.
    under_way: BTreeMap<Key, Cause>,
    /// The message that is being handled.
    present: Option<Cause>,
    /// What has caused what waits: the message that ends the wait has not.
    held: BTreeMap<Held, Option<Cause>>,
    /// The last request of an agent for a line.
    requests: BTreeMap<(usize, u32), Cause>,
    ways: [NodeParameters; 2],
    /// From a memory's channel to a home agent, and from a core to the root port.
    memory_latency: u64,
    core_to_root: u64,
    /// Where what goes over a PCIe link comes from or goes to.
    device: PlaceName,
}

impl Machine {
    /// Writes down what happens from now on, `limit` records at most, and twice as many changes of queues' levels. Nothing has
    /// happened yet, or the levels are not what they are.
    pub fn record(&mut self, limit: usize) {
        let mut places: Vec<String> =
            ["host home", "NIC home", "host memory", "NIC memory", "root port"].map(str::to_owned).into();
        places.extend((0..self.agents.len()).map(|agent| self.agent_name(agent)));
        let device = (0..self.agents.len()).find(|&id| !self.is_core(id)).map_or(ROOT_PORT, place_of);
        let segments = self.segments.clone();
        self.log_queues(2 * limit);
        self.recorder = Some(Box::new(Recorder {
            log: Log::new(places, segments, limit),
            under_way: BTreeMap::new(),
            present: None,
            held: BTreeMap::new(),
            requests: BTreeMap::new(),
            ways: self.ways,
            memory_latency: self.parameters.memory.latency,
            core_to_root: self.parameters.pcie.as_ref().map_or(0, |pcie| pcie.core_to_root),
            device,
        }));
    }

    /// Whether an agent is a core, and not a device.
    fn is_core(&self, agent: usize) -> bool {
        self.nodes.iter().any(|node| node.cores.contains(&(agent as u16)))
    }

    /// What an agent is called.
    pub fn agent_name(&self, agent: usize) -> String {
        let Agent { node, core, .. } = self.agents[agent];
        match (self.is_core(agent), node) {
            (false, _) => "NIC".to_owned(),
            (true, 0) => format!("host core {core}"),
            (true, _) => format!("NIC core {core}"),
        }
    }

    /// Ends writing down, and gives what was; none where nobody asked for it.
    pub fn take_recording(&mut self) -> Option<Recording> {
        let recorder = self.recorder.take()?;
        let (queues, levels, dropped) = self.take_levels();
        let mut recording = recorder.log.into_recording();
        (recording.queues, recording.levels) = (queues, levels);
        recording.dropped += dropped;
        Some(recording)
    }

    /// What is handled at present has something be sent that must wait.
    #[inline]
    pub(crate) fn holds_back(&mut self, held: Held) {
        if let Some(recorder) = &mut self.recorder {
            recorder.held.insert(held, recorder.present);
        }
    }

    /// Goes on with what had to wait: what that sends is caused by what had it be sent.
    #[inline]
    pub(crate) fn take_up<T>(&mut self, held: Held, go_on: impl FnOnce(&mut Machine) -> T) -> T {
        let present = self.recorder.as_mut().map(|recorder| {
            let cause = recorder.held.remove(&held).flatten();
            std::mem::replace(&mut recorder.present, cause)
        });
        let result = go_on(self);
        if let (Some(recorder), Some(present)) = (&mut self.recorder, present) {
            recorder.present = present;
        }
        result
    }

    /// Writes down that a core's copy of a line has become another.
    #[inline]
    pub(crate) fn note_copy(&mut self, agent: usize, line: u32, copy: Copy) {
        if let Some(recorder) = &mut self.recorder {
            recorder.holds(agent, line, copy, self.now);
        }
    }

    /// Writes down that a node's home agents have memory read or write a line, whose channel takes it at `taken`.
    #[inline]
    pub(crate) fn note_memory(&mut self, node: usize, line: u32, name: &'static str, taken: u64) {
        if let Some(recorder) = &mut self.recorder {
            let (home, memory) = (PlaceName(node as u16), PlaceName(2 + node as u16));
            recorder.by_the_way(name, line.into(), home, memory, self.now, taken);
        }
    }

    /// Writes down that the home agents' answer to a device's read of a line goes to the root port.
    #[inline]
    pub(crate) fn note_answer_to_port(&mut self, line: u32, arrives: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.by_the_way("LineData", line.into(), PlaceName(0), ROOT_PORT, self.now, arrives);
        }
    }

    /// Writes down that the root port's answer to a core's load of a register goes to the core.
    #[inline]
    pub(crate) fn note_answer_to_core(&mut self, agent: usize, line: u64, arrives: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.by_the_way("RegisterData", line, ROOT_PORT, place_of(agent), self.now, arrives);
        }
    }

    /// Writes down a completion that goes to the device before the last of its read.
    #[inline]
    pub(crate) fn note_completion(&mut self, line: u64, arrives: u64) {
        if let Some(recorder) = &mut self.recorder {
            let device = recorder.device;
            recorder.by_the_way("CompletionTlp", line, ROOT_PORT, device, self.now, arrives);
        }
    }

    /// Writes down that an agent's program did something, from `begins` until now.
    pub fn note_span(&mut self, agent: usize, name: &'static str, begins: Time) {
        let ends = Time::from_picoseconds(self.agents[agent].time);
        if let Some(recorder) = &mut self.recorder {
            let span = SpanRecord { name, place: place_of(agent), line: None, begins, ends, first: None };
            recorder.log.span(span);
        }
    }
}

/// The source number of the first agent.
const FIRST_AGENT: usize = 3;

/// The place of an agent.
fn place_of(agent: usize) -> PlaceName {
    PlaceName((NODE_PLACES + agent) as u16)
}

/// The place of a source of events: a node's home agents, or an agent.
fn place_of_source(source: usize) -> PlaceName {
    match source {
        0 | 1 => PlaceName(source as u16),
        2 => ROOT_PORT,
        agent => place_of(agent - FIRST_AGENT),
    }
}

impl Recorder {
    fn message(&mut self, key: Key, record: MessageRecord) -> Option<Cause> {
        let cause = self.log.message(record)?;
        self.under_way.insert(key, cause);
        Some(cause)
    }

    /// A message to a node's home agents was sent at `now`, or a little after by an agent that is ahead.
    #[cold]
    #[inline(never)]
    pub fn sent_to_home(&mut self, key: Key, now: u64, source: usize, node: u8, line: u32, message: ToHome) {
        let way = &self.ways[usize::from(node)];
        let way = match message {
            ToHome::Request { .. } if source >= FIRST_AGENT => way.core_to_home + way.home_lookup,
            ToHome::CoreFound { .. } | ToHome::Evicted { .. } => way.core_to_home,
            _ => key.time - now,
        };
        let way = if message == ToHome::Memory { self.memory_latency } else { way };
        let from = match message {
            ToHome::Memory => PlaceName(2 + u16::from(node)),
            _ => place_of_source(source),
        };
        let sent = key.time.saturating_sub(way).max(now.min(key.time));
        let cause = self.message(
            key,
            MessageRecord {
                name: name_to_home(message),
                line: u64::from(line),
                from,
                to: PlaceName(u16::from(node)),
                sent: Time::from_picoseconds(sent),
                arrives: Time::from_picoseconds(key.time),
                cause: self.present,
                asks: matches!(message, ToHome::Request { .. }) && source >= FIRST_AGENT,
            },
        );
        if let (ToHome::Request { .. }, Some(cause), FIRST_AGENT..) = (message, cause, source) {
            self.requests.insert((source - FIRST_AGENT, line), cause);
        }
    }

    /// A message to a core was sent at `now`.
    #[cold]
    #[inline(never)]
    pub fn sent_to_core(&mut self, key: Key, now: u64, node: u8, agent: u16, line: u32, message: ToCore) {
        let record = MessageRecord {
            name: name_to_core(message),
            line: u64::from(line),
            from: PlaceName(u16::from(node)),
            to: place_of(usize::from(agent)),
            sent: Time::from_picoseconds(now),
            arrives: Time::from_picoseconds(key.time),
            cause: self.present,
            asks: false,
        };
        self.message(key, record);
    }

    /// A TLP was sent over the PCIe link at `now`.
    pub fn over_pcie(&mut self, key: Key, now: u64, name: &'static str, line: u64, to_device: bool) {
        let (from, to) = if to_device { (ROOT_PORT, self.device) } else { (self.device, ROOT_PORT) };
        let (sent, arrives) = (Time::from_picoseconds(now), Time::from_picoseconds(key.time));
        self.message(key, MessageRecord { name, line, from, to, sent, arrives, cause: self.present, asks: false });
    }

    /// A message whose arrival causes nothing by itself.
    #[cold]
    #[inline(never)]
    fn by_the_way(&mut self, name: &'static str, line: u64, from: PlaceName, to: PlaceName, sent: u64, arrives: u64) {
        let (sent, arrives) = (Time::from_picoseconds(sent), Time::from_picoseconds(arrives));
        let cause = self.present;
        self.log.message(MessageRecord { name, line, from, to, sent, arrives, cause, asks: false });
    }

    /// A core's store to a register, or its request to load one, is on its way to the root port.
    pub fn leaves_core(&mut self, key: Key, name: &'static str, line: u64, agent: usize) {
        let sent = Time::from_picoseconds(key.time.saturating_sub(self.core_to_root));
        let arrives = Time::from_picoseconds(key.time);
        let (from, to, cause) = (place_of(agent), ROOT_PORT, self.present);
        self.message(key, MessageRecord { name, line, from, to, sent, arrives, cause, asks: true });
    }

    /// What is being handled goes on with the event of this key, which is no message itself.
    pub fn goes_on(&mut self, key: Key) {
        if let Some(cause) = self.present {
            self.under_way.insert(key, cause);
        }
    }

    /// The event of this key is the arrival of the message that was written down last.
    pub fn is_last(&mut self, key: Key) {
        if let Some(last) = self.log.last() {
            self.under_way.insert(key, last);
        }
    }

    /// An event happens: if it is a message, whatever is sent meanwhile is caused by it.
    #[cold]
    #[inline(never)]
    pub fn handles(&mut self, key: Key) {
        self.present = self.under_way.remove(&key);
    }

    /// The message that is being handled must wait: it is there when the event of this key happens.
    #[cold]
    #[inline(never)]
    pub fn put_off(&mut self, key: Key) {
        if let Some(cause) = self.present.take() {
            self.log.put_off(cause, Time::from_picoseconds(key.time));
            self.under_way.insert(key, cause);
        }
    }

    /// The message that is being handled must wait for nobody knows how long.
    #[cold]
    #[inline(never)]
    pub fn rejects(&mut self) -> Option<Cause> {
        self.present.take()
    }

    /// A message that had to wait is there when the event of this key happens.
    #[cold]
    #[inline(never)]
    pub fn admits(&mut self, message: Option<Cause>, key: Key) {
        if let Some(message) = message {
            self.log.put_off(message, Time::from_picoseconds(key.time));
            self.under_way.insert(key, message);
        }
    }

    /// A message that had to wait is handled now.
    #[cold]
    #[inline(never)]
    pub fn resumes(&mut self, message: Option<Cause>, now: u64) {
        if let Some(message) = message {
            self.log.put_off(message, Time::from_picoseconds(now));
        }
        self.present = message;
    }

    /// A program goes on: what it sends nobody has caused.
    pub fn program_goes_on(&mut self) {
        self.present = None;
    }

    /// An agent has waited.
    #[cold]
    #[inline(never)]
    pub fn waited(&mut self, agent: usize, wait: Wait, begins: u64, ends: u64) {
        let (name, line) = match wait {
            Wait::Line(line) | Wait::Load(line) => ("wait for a line", Some(line)),
            Wait::FillBuffer(..) | Wait::LoadRoom => ("wait for a fill buffer", None),
            Wait::Retire(_) => ("wait for the reorder buffer", None),
            Wait::LoadsDone => ("wait for all loads", None),
            Wait::StoreRoom => ("wait for the store buffer", None),
            Wait::StoresDone => ("wait for all stores", None),
            Wait::StoresTo(line) => ("wait for a store", Some(line)),
            Wait::WriteRoom => ("wait for a write buffer", None),
            Wait::WritesDone => ("wait for all writes past the caches", None),
            Wait::Register => ("wait for a register", None),
            Wait::Nothing | Wait::Time | Wait::Polling | Wait::News | Wait::Ended => return,
        };
        let first = line.and_then(|line| self.requests.get(&(agent, line)).copied());
        self.log.span(SpanRecord {
            name,
            place: place_of(agent),
            line: line.map(u64::from),
            begins: Time::from_picoseconds(begins),
            ends: Time::from_picoseconds(ends),
            first,
        });
    }

    /// An agent's copy of a line has become another.
    #[cold]
    #[inline(never)]
    pub fn holds(&mut self, agent: usize, line: u32, copy: Copy, at: u64) {
        let (place, at) = (place_of(agent), Time::from_picoseconds(at));
        self.log.ownership(OwnershipRecord { line: u64::from(line), place, state: copy.letter(), at });
    }
}

fn name_to_home(message: ToHome) -> &'static str {
    match message {
        ToHome::Request { ask, .. } | ToHome::OrderedWrite { ask, .. } => match ask {
            Ask::Read => "Read",
            Ask::Own => "ReadForOwnership",
            Ask::OwnWhole => "OwnWithoutData",
            Ask::ReadCurrent => "ReadCurrent",
            Ask::WriteCache => "WriteCache",
            Ask::WriteMemory => "WriteMemory",
        },
        ToHome::Evicted { dirty: true, .. } => "EvictedModified",
        ToHome::Evicted { dirty: false, .. } => "EvictedClean",
        ToHome::NodeFound(found) if found.data && found.was != Copy::Modified => "ForwardedClean",
        ToHome::CoreFound { found, .. } | ToHome::NodeFound(found) => match found.was {
            Copy::Invalid => "FoundNothing",
            Copy::Shared | Copy::Exclusive => "FoundClean",
            Copy::Modified => "FoundModified",
        },
        ToHome::Snoop(snoop) => name_of_snoop(snoop),
        ToHome::Reply { data: true, .. } => "Data",
        ToHome::Reply { data: false, .. } => "Acknowledge",
        ToHome::TakeEffect => "TakeEffect",
        ToHome::Complete => "Complete",
        ToHome::WriteBack { .. } => "WriteBack",
        ToHome::Recall => "Recall",
        ToHome::Memory => "MemoryData",
        ToHome::LastLevel => "LastLevelData",
    }
}

fn name_to_core(message: ToCore) -> &'static str {
    match message {
        ToCore::Snoop(snoop) => name_of_snoop(snoop),
        ToCore::Grant { copy, .. } => match copy {
            Copy::Invalid => "Done",
            Copy::Shared => "GrantShared",
            Copy::Exclusive => "GrantExclusive",
            Copy::Modified => "GrantModified",
        },
    }
}

fn name_of_snoop(snoop: Snoop) -> &'static str {
    match snoop {
        Snoop::Migrate => "SnoopMigrate",
        Snoop::Share => "SnoopShare",
        Snoop::Invalidate => "SnoopInvalidate",
        Snoop::Current => "SnoopCurrent",
        Snoop::Own => "SnoopOwn",
        Snoop::Recall => "Recall",
    }
}
