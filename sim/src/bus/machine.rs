//! Nodes, their agents, and what happens.

use std::collections::{BTreeSet, VecDeque};

use conic_fabric::{Address, Home, LINE_BYTES, Layout, Line, MemoryType, RegisterAccess};
use slab::Slab;

use super::arbiter::{Bus, Entry, Which};
use super::cache::Cache;
use super::network::{Packet, Port};
use super::parameters::BusParameters;
use super::queues::Queue;
use super::simulation::EngineShape;
use crate::agenda::{Agenda, HasAgenda};
use crate::probe::counters::MessageCounts;
use crate::probe::queues::Queues;
use crate::protocol::snooping::Access;

/// Where a node's network interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attachment {
    /// Between the processor and its cache: registers alone, and no coherence.
    CacheBus,
    /// On the memory bus.
    MemoryBus,
    /// On the I/O bus, behind the bridge.
    IoBus,
}

/// What an agent waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A point in time.
    Time,
    /// Its transaction.
    Bus,
    /// Its uncached stores.
    Stores,
    /// Something that it might look at.
    News,
    /// Nothing: its program has ended.
    Ended,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A node's bus may have somebody to serve.
    Grant(u16, Which),
    /// The transaction on a node's bus has had its time.
    Ends(u16, Which),
    /// An uncached store of an agent is through the cache bus.
    Stored(u32),
    /// A network message comes.
    Arrives(u32),
    /// A message of `to` was taken by `from`.
    Acknowledged { from: u16, to: u16 },
}

/// What an agent asks of its bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Block(Access),
    WriteBack,
    Load,
    Store(u64),
}

/// A request of an agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) agent: usize,
    pub(super) at: Address,
    pub(super) what: What,
}

impl Request {
    pub(super) fn line(&self) -> u32 {
        (self.at.0 / LINE_BYTES) as u32
    }
}

/// What an agent's accesses are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// A load of eight bytes that the cache has; of an engine, of a block.
    pub(super) load: u64,
    /// The same of a store.
    pub(super) store: u64,
    /// Until what the cache does not have is asked for.
    pub(super) miss: u64,
}

/// A processor, or an engine of a network interface.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) node: usize,
    pub(super) is_engine: bool,
    pub(super) cache: Cache,
    pub(super) pace: Pace,
    /// Uncached stores that are not through.
    pub(super) stores: VecDeque<(Address, u64)>,
    /// The first of them is on its way.
    pub(super) storing: bool,
    /// What its uncached load brought.
    pub(super) loaded: u64,
    /// Something has changed since it last said that it had found nothing.
    pub(super) news: bool,
    /// It has asked a register since then.
    pub(super) asked_device: bool,
    /// Lines that it watches, with their tags.
    pub(super) watched: Vec<(u32, u64)>,
    /// Tags of those whose writers have asked for them.
    pub(super) changed: VecDeque<u64>,
    /// Accesses to the registers that it answers for, by the segment's start.
    pub(super) registers: Vec<(Address, VecDeque<RegisterAccess>)>,
}

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    /// Every line as its home has it; registers as they are.
    pub(super) home: Vec<Line>,
    pub(super) memory: Bus,
    pub(super) io: Bus,
    /// Lines about which the bridge holds something.
    pub(super) pending: BTreeSet<u32>,
    /// What the bridge holds for the memory bus, and for the I/O bus.
    pub(super) posted: [u32; 2],
    /// A transaction of the device's was refused and is not through yet.
    pub(super) reserved: bool,
    pub(super) port: Port,
    /// Its agents.
    pub(super) agents: Vec<usize>,
}

/// What a node's buses have carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions on the memory bus by kind: `read`, `read exclusive`, `invalidate`, `write back`, `load`, `store`.
    pub memory: MessageCounts,
    /// The same on the I/O bus.
    pub io: MessageCounts,
    /// For how many picoseconds the memory bus was taken.
    pub memory_busy: u64,
    /// The same of the I/O bus.
    pub io_busy: u64,
    /// Transactions of the device's that the bridge refused.
    pub refusals: u64,
    /// Network messages that the node sent.
    pub messages: u64,
}

impl Counters {
    /// What was counted since an earlier state.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            memory: self.memory.since(&earlier.memory),
            io: self.io.since(&earlier.io),
            memory_busy: self.memory_busy - earlier.memory_busy,
            io_busy: self.io_busy - earlier.io_busy,
            refusals: self.refusals - earlier.refusals,
            messages: self.messages - earlier.messages,
        }
    }
}

/// Nodes with their buses, and the network between them.
pub struct Machine {
    pub(super) parameters: BusParameters,
    pub(super) attachment: Attachment,
    pub(super) agenda: Agenda<Wait, Event>,
    pub(super) nodes: Vec<Node>,
    pub(super) agents: Vec<Agent>,
    pub(super) layout: Layout,
    pub(super) packets: Slab<(usize, Packet)>,
    /// The probes of the queues, where somebody wants to see them.
    pub(super) queues: Option<Box<Queues<Queue>>>,
    /// What each node has counted.
    pub counters: Vec<Counters>,
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
        match event {
            Event::Grant(node, which) => self.grant(node.into(), which),
            Event::Ends(node, which) => self.ends(node.into(), which),
            Event::Stored(agent) => self.stored(agent as usize),
            Event::Arrives(key) => self.packet_arrives(key),
            Event::Acknowledged { from, to } => self.acknowledged(from.into(), to.into()),
        }
    }
    fn stuck(&self) -> Vec<String> {
        let of = |(number, node): (usize, &Node)| {
            let told = |bus: &Bus, name| {
                let waiting =
                    bus.queue.iter().map(|Entry { request, .. }| format!("{:?} {}", request.what, request.at));
                let waiting: Vec<String> = waiting.collect();
                (!waiting.is_empty()).then(|| format!("the {name} bus of node {number}: {}", waiting.join(", ")))
            };
            [told(&node.memory, "memory"), told(&node.io, "I/O")]
        };
        self.nodes.iter().enumerate().flat_map(of).flatten().collect()
    }
}

impl Node {
    pub(super) fn bus(&self, which: Which) -> &Bus {
        match which {
            Which::Memory => &self.memory,
            Which::Io => &self.io,
        }
    }
}

impl Machine {
    pub(super) fn new(parameters: &BusParameters, layout: &Layout, nodes: usize, attachment: Attachment) -> Machine {
        let most = parameters.network.nodes as usize;
        assert!((1..=most).contains(&nodes), "the machine has {most} nodes, not {nodes}");
        let lines = layout.bytes().div_ceil(LINE_BYTES) as usize;
        let node = || Node {
            home: vec![Line::ZERO; lines],
            memory: Bus::default(),
            io: Bus::default(),
            pending: BTreeSet::new(),
            posted: [0; 2],
            reserved: false,
            port: Port { outstanding: vec![0; nodes], ..Port::default() },
            agents: Vec::new(),
        };
        Machine {
            parameters: parameters.clone(),
            attachment,
            agenda: Agenda::new(),
            nodes: (0..nodes).map(|_| node()).collect(),
            agents: Vec::new(),
            layout: layout.clone(),
            packets: Slab::new(),
            queues: None,
            counters: vec![Counters::default(); nodes],
        }
    }

    /// The time, in picoseconds.
    pub fn now(&self) -> u64 {
        self.agenda.now
    }

    /// What it is made of.
    pub fn parameters(&self) -> &BusParameters {
        &self.parameters
    }

    /// Picoseconds of so many of the processor's cycles.
    pub(super) fn cycles(&self, cycles: u32) -> u64 {
        self.parameters.core.cycles(cycles.into())
    }

    fn engines_pace(&self) -> Pace {
        let step = self.cycles(self.parameters.device.step);
        Pace { load: step, store: step, miss: 0 }
    }

    /// Adds a processor, or an engine if it has a shape, to a node.
    pub(super) fn add(&mut self, node: usize, engine: Option<&EngineShape>) {
        let lines = (self.layout.bytes() / LINE_BYTES) as u32;
        let line_of = |at: Address| (at.0 / LINE_BYTES) as u32;
        let core = &self.parameters.core;
        let (cache, pace, registers) = match engine {
            Some(shape) => (
                Cache::new(shape.blocks.max(1), line_of(shape.lines.start)..line_of(shape.lines.end)),
                self.engines_pace(),
                shape.registers.iter().map(|at| (*at, VecDeque::new())).collect(),
            ),
            None => (
                Cache::new((core.cache_bytes / LINE_BYTES) as usize, 0..lines),
                Pace {
                    load: self.cycles(core.load_cycles),
                    store: self.cycles(core.store_cycles),
                    miss: self.cycles(core.miss_cycles),
                },
                Vec::new(),
            ),
        };
        self.nodes[node].agents.push(self.agents.len());
        self.agents.push(Agent {
            node,
            is_engine: engine.is_some(),
            cache,
            pace,
            stores: VecDeque::new(),
            storing: false,
            loaded: 0,
            news: false,
            asked_device: false,
            watched: Vec::new(),
            changed: VecDeque::new(),
            registers,
        });
    }

    /// Whose memory a line is in.
    pub(super) fn home_of(&self, at: Address) -> Home {
        self.segment(at).home
    }

    /// Whether an address is a register's.
    pub(super) fn is_register(&self, at: Address) -> bool {
        self.segment(at).memory == MemoryType::Uncached
    }

    pub(super) fn segment(&self, at: Address) -> &conic_fabric::Segment {
        self.layout.segment_of(at).unwrap_or_else(|| panic!("{at} lies outside the region"))
    }

    /// Lets an agent look again at whatever it looks at.
    pub(super) fn tell(&mut self, agent: usize) {
        self.agents[agent].news = true;
        let now = self.agenda.now;
        self.agenda.wake(agent, Wait::News, now);
    }

    /// The same of a node's engines.
    pub(super) fn tell_engines(&mut self, node: usize) {
        for place in 0..self.nodes[node].agents.len() {
            let agent = self.nodes[node].agents[place];
            if self.agents[agent].is_engine {
                self.tell(agent);
            }
        }
    }

    pub(super) fn wake(&mut self, agent: usize, wait: Wait) {
        let now = self.agenda.now;
        self.agenda.wake(agent, wait, now);
    }
}
