//! Writes down what happens on a machine, where somebody wants to see it.

use std::collections::BTreeMap;

use conic_fabric::Time;

use crate::engine::Key;
use crate::probe::{Cause, MessageRecord, OwnershipRecord, PlaceName, Recording, SpanRecord};
use crate::protocol::{Ask, Copy, Snoop, ToCore, ToHome};

use super::agent::Wait;
use super::{Machine, Timing};

/// Places before the agents': each node's home agents and its memory, and the root port.
const NODE_PLACES: usize = 5;
/// The root port's place.
const ROOT_PORT: PlaceName = PlaceName(4);

/// What is written down, and what is needed to know who caused what.
#[derive(Debug)]
pub(crate) struct Recorder {
    recording: Recording,
    /// Records of all kinds, at most.
    limit: usize,
    /// Messages on their way.
    under_way: BTreeMap<Key, Cause>,
    /// The message that is being handled.
    present: Option<Cause>,
    /// The last request of an agent for a line.
    requests: BTreeMap<(usize, u32), Cause>,
    timing: Timing,
    /// Where what goes over a PCIe link comes from or goes to.
    device: PlaceName,
}

impl Machine {
    /// Writes down what happens from now on, `limit` records at most.
    pub fn record(&mut self, limit: usize) {
        let mut places: Vec<String> =
            ["host home", "NIC home", "host memory", "NIC memory", "root port"].map(str::to_owned).into();
        let is_core = |id: usize| self.nodes.iter().any(|node| node.cores.contains(&(id as u16)));
        let name = |(id, agent): (usize, &super::Agent)| match (is_core(id), agent.node) {
            (false, _) => "NIC".to_owned(),
            (true, 0) => format!("host core {}", agent.core),
            (true, _) => format!("NIC core {}", agent.core),
        };
        places.extend(self.agents.iter().enumerate().map(name));
        let device = (0..self.agents.len()).find(|&id| !is_core(id)).map_or(ROOT_PORT, place_of);
        let segments = self.segments.clone();
        self.recorder = Some(Box::new(Recorder {
            recording: Recording { places, segments, ..Recording::default() },
            limit,
            under_way: BTreeMap::new(),
            present: None,
            requests: BTreeMap::new(),
            timing: self.timing,
            device,
        }));
    }

    /// Ends writing down, and gives what was; none where nobody asked for it.
    pub fn take_recording(&mut self) -> Option<Recording> {
        self.recorder.take().map(|recorder| recorder.recording)
    }

    /// Writes down that a core's copy of a line has become another.
    #[inline]
    pub(crate) fn note_copy(&mut self, agent: usize, line: u32, copy: Copy) {
        if let Some(recorder) = &mut self.recorder {
            recorder.holds(agent, line, copy, self.now);
        }
    }

    /// Writes down that an agent's program did something, from `begins` until now.
    pub fn note_span(&mut self, agent: usize, name: &'static str, begins: Time) {
        let ends = Time::from_picoseconds(self.agents[agent].time);
        if let Some(recorder) = &mut self.recorder {
            let span = SpanRecord { name, place: place_of(agent), line: None, begins, ends, first: None };
            recorder.span(span);
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
    /// Whether there is room for one more record.
    fn has_room(&mut self) -> bool {
        let recording = &mut self.recording;
        let records = recording.messages.len() + recording.spans.len() + recording.ownership.len();
        recording.dropped += u64::from(records >= self.limit);
        records < self.limit
    }

    fn message(&mut self, key: Key, record: MessageRecord) -> Option<Cause> {
        if !self.has_room() {
            return None;
        }
        let cause = Cause(self.recording.messages.len() as u32);
        self.recording.messages.push(record);
        self.under_way.insert(key, cause);
        Some(cause)
    }

    fn span(&mut self, span: SpanRecord) {
        if self.has_room() {
            self.recording.spans.push(span);
        }
    }

    /// A message to a node's home agents was sent at `now`, or a little after by an agent that is ahead.
    pub fn sent_to_home(&mut self, key: Key, now: u64, source: usize, node: u8, line: u32, message: ToHome) {
        let timing = &self.timing;
        let way = match message {
            ToHome::Request { .. } if source >= FIRST_AGENT => timing.core_to_home + timing.home_lookup,
            ToHome::CoreFound { .. } | ToHome::Evicted { .. } => timing.core_to_home,
            _ => key.time - now,
        };
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
            },
        );
        if let (ToHome::Request { .. }, Some(cause), FIRST_AGENT..) = (message, cause, source) {
            self.requests.insert((source - FIRST_AGENT, line), cause);
        }
    }

    /// A message to a core was sent at `now`.
    pub fn sent_to_core(&mut self, key: Key, now: u64, node: u8, agent: u16, line: u32, message: ToCore) {
        let record = MessageRecord {
            name: name_to_core(message),
            line: u64::from(line),
            from: PlaceName(u16::from(node)),
            to: place_of(usize::from(agent)),
            sent: Time::from_picoseconds(now),
            arrives: Time::from_picoseconds(key.time),
            cause: self.present,
        };
        self.message(key, record);
    }

    /// A TLP was sent over the PCIe link at `now`.
    pub fn over_pcie(&mut self, key: Key, now: u64, name: &'static str, line: u64, to_device: bool) {
        let (from, to) = if to_device { (ROOT_PORT, self.device) } else { (self.device, ROOT_PORT) };
        let (sent, arrives) = (Time::from_picoseconds(now), Time::from_picoseconds(key.time));
        self.message(key, MessageRecord { name, line, from, to, sent, arrives, cause: self.present });
    }

    /// An event happens: if it is a message, whatever is sent meanwhile is caused by it.
    pub fn handles(&mut self, key: Key) {
        self.present = self.under_way.remove(&key);
    }

    /// A program goes on: what it sends nobody has caused.
    pub fn program_goes_on(&mut self) {
        self.present = None;
    }

    /// An agent has waited.
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
        self.span(SpanRecord {
            name,
            place: place_of(agent),
            line: line.map(u64::from),
            begins: Time::from_picoseconds(begins),
            ends: Time::from_picoseconds(ends),
            first,
        });
    }

    /// An agent's copy of a line has become another.
    pub fn holds(&mut self, agent: usize, line: u32, copy: Copy, at: u64) {
        if self.has_room() {
            let (place, at) = (place_of(agent), Time::from_picoseconds(at));
            self.recording.ownership.push(OwnershipRecord { line: u64::from(line), place, state: copy.letter(), at });
        }
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
    }
}
