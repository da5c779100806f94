//! The modelled machine: agents with private caches, two nodes with home agents, last-level caches and memory, and the
//! interconnect between them.
//!
//! | file | what |
//! |---|---|
//! | `tags.rs` | which lines a cache holds |
//! | `private.rs` | a core's first and second level |
//! | `agent.rs` | a core: what it waits for, what is under way to and from it |
//! | `access.rs` | what a core's program does: loads, stores, atomics, prefetches |
//! | `fills.rs` | its line fill buffers |
//! | `fill.rs` | what comes back: grants, snoops, stores that can be performed |
//! | `line.rs` | what home agents know of a line |
//! | `alone.rs` | their answers to requests that memory alone decides |
//! | `home.rs` | the home agents' side: messages, last-level cache, memory, links |
//! | `reorder.rs` | loads that a core has issued and goes on behind |
//! | `stores.rs` | its store buffer |
//! | `slices.rs` | how many messages the home agents can look up, and how many requests they can be busy with |
//! | `filter.rs` | their snoop filter: how many lines they can know to be in private caches |
//! | `prefetch.rs` | the hardware prefetchers |
//! | `places.rs` | the places in the code that they tell apart |
//! | `recorder.rs` | what a traced run writes down |
//! | `queues.rs` | the probes of its queues |
//! | `window.rs` | counters and queues between two moments |
//! | `uncached.rs` | what a core does past its caches: registers, write-combining memory, non-temporal stores |
//! | `pcie.rs` | the root port of a PCIe link: what it brings, and what is sent over it |
//! | `device.rs` | what a device behind that link does |
//! | `engine.rs` | copies that cores post to engines |
//! | `watch.rs` | lines whose loss an agent is told of |
//!
//! Everything happens in the total order of [`crate::engine`]. A core is simulated ahead of that order over its own hits,
//! as far as no message can reach it: until the first message that is on its way to it, and no further than a message takes
//! from a home agent to a core, because none that is not yet on its way can be there sooner.

pub(crate) mod access;
mod agent;
mod alone;
mod device;
mod engine;
mod fill;
mod fills;
mod filter;
mod home;
mod line;
pub(crate) mod pcie;
pub(crate) mod places;
mod prefetch;
mod private;
pub mod queues;
mod recorder;
mod reorder;
mod slices;
mod stores;
pub mod tags;
pub(crate) mod uncached;
mod watch;
pub mod window;

use std::collections::VecDeque;

use conic_fabric::{Home, LINE_BYTES, Layout, Line, MemoryType};

use crate::credits::Credits;
use crate::engine::pages::{Room, Table};
use crate::engine::{EventQueue, Key, pages};
use crate::link::Direction;
use crate::memory::Memory;
use crate::parameters::{NodeParameters, Parameters};
use crate::pcie::PcieLink;
use crate::probe::counters::AgentAccesses;
use crate::probe::queues::Queues;
use crate::protocol::home::{Action, Active, Choices};
use crate::protocol::{ToCore, ToHome, Version};
use slab::Slab;

pub use agent::{Agent, Wait};
pub(crate) use engine::Copying;
use engine::Engines;
use filter::{Scarce, SnoopFilter};
use line::lines_of;
pub(crate) use line::{COMPLETING, LineRecord, MOST_TIME};
use pcie::{Past, PcieEvent, RootPort};
use places::Places;
use queues::Queue;
use recorder::Recorder;
use slices::{Rejected, Slices};
use tags::Tags;
use uncached::Kind;
use window::Looked;

/// How a run is simulated. None of it changes a time, a counter of the machine but that of its events, or what a program reads, except
/// that `checked` stops at a fault, and that with `run_ahead` a load of bulk data that misses, and that the program goes on behind, may
/// find what another core stores later, by less than a message takes from a home agent to a core. A program that decides by such
/// a value, of a line that is being written, may then take another course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Check at every access that the copy is the newest, and at every change that there is one writer or many readers.
    pub checked: bool,
    /// Skip rounds of polling that find nothing, and count them as if they had been lived through.
    pub fast_forward: bool,
    /// Simulate a core ahead over its own hits.
    pub run_ahead: bool,
    /// Probe every queue: how many are inside, and for how long. A checked run does, and ends in a panic where a probe finds
    /// what cannot be.
    pub queues: bool,
    /// The seed of everything that is drawn.
    pub seed: u64,
}

impl Default for Options {
    /// Fast, unchecked, seed 1.
    fn default() -> Options {
        Options { checked: false, fast_forward: true, run_ahead: true, queues: false, seed: 1 }
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A message is at a node's home agents, and need not be looked up, or has been.
    Home { node: u8, line: u32, message: ToHome },
    /// Memory answers a request that nothing else is awaited for: its grant has its place in the order already.
    Decides { node: u8, line: u32 },
    /// Memory has answered such a request, whose grant was sent ahead of that: its entry is free, and who waits for it goes on.
    Ends { node: u8, line: u32 },
    /// What kept lines of a node's snoop filter there has ended.
    Ways { node: u8 },
    /// A message is at a node's home agents, whose slice must look it up. A kind of its own, so that the host need not foresee twice
    /// which message it is.
    LookUp { node: u8, line: u32, message: ToHome },
    /// The same, of a request that has been looked up before, and has its entry now.
    LookUpAgain { node: u8, line: u32, message: ToHome },
    /// Such a message that had to wait for its slice has been looked up.
    LookedUp { node: u8, line: u32, message: ToHome },
    /// A node's message that was held back departs to the other node.
    Departs { node: u8, line: u32, message: ToHome },
    /// A message that was held back leaves for a core of its own node.
    Answers { agent: u16, line: u32, message: ToCore },
    /// A message is at a core.
    Core { agent: u16, line: u32, message: ToCore },
    /// An agent goes on; `ticket` tells whether it still waits for that.
    Resume { agent: u16, ticket: u32 },
    /// A transaction of the PCIe link is a stage further.
    Pcie(PcieEvent),
    /// A core's store to a register is done.
    UncachedStored { agent: u16 },
    /// A copy that was posted is at its engine.
    Copy { copy: u32 },
}

/// Times of the machine in picoseconds, from its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub issue: u64,
    pub l1_hit: u64,
    pub l2_hit: u64,
    pub atomic: u64,
    pub poll_exit: u64,
    pub pause: u64,
    pub clock: u64,
    /// From one node to the other, without the time on the wire.
    pub crossing: u64,
    pub speculative_penalty: u64,
    /// How far ahead of the present a message to a core must be sent.
    pub lookahead: u64,
}

/// One node: its last-level cache and memory, and its way to the other node.
#[derive(Debug)]
pub(crate) struct Node {
    pub slices: Slices,
    pub last_level: Tags,
    /// None: no limit.
    pub filter: Option<Box<SnoopFilter>>,
    pub memory: Memory,
    pub out: Direction,
    /// Credits for requests to the other node, and the requests that wait for one.
    pub credits: Credits,
    pub without_credit: Slab<(u32, ToHome)>,
    /// Requests that wait for an entry of their slice.
    pub without_entry: Slab<Rejected>,
    /// The agents that are its cores.
    pub cores: Vec<u16>,
}

/// The machine.
#[derive(Debug)]
pub struct Machine {
    pub(crate) parameters: Parameters,
    pub(crate) options: Options,
    pub(crate) timing: Timing,
    /// The ways between cores and home agents, and what these take, on each node.
    pub(crate) ways: [NodeParameters; 2],
    pub(crate) choices: Choices,
    /// The present: the time of the last event.
    pub(crate) now: u64,
    /// The place of the last event in the order.
    present: Key,
    /// When a run is stopped.
    pub(crate) limit: u64,
    queue: EventQueue<Event>,
    /// How many events each source has caused: the nodes, the root port, then the agents.
    sequences: Vec<u64>,
    pub(crate) agents: Vec<Agent>,
    /// Where the tables of their caches lie.
    room: Room,
    pub(crate) nodes: [Node; 2],
    pub(crate) lines: Table<LineRecord>,
    /// The lines that may lack an entry of their node's snoop filter.
    scarce: Scarce,
    actives: Vec<Active>,
    /// For each of them, memory's answer that nobody is told of: the place in the order that it has.
    untold_answers: Vec<Option<Key>>,
    /// Whether the request that is handled is one that memory decides.
    decides: bool,
    /// When the channel is done with the line that a write past the caches has just written.
    written_until: u64,
    free_actives: Vec<u32>,
    pub(crate) data: Table<Line>,
    /// The newest version of each line; empty where nobody checks versions.
    pub(crate) newest: Vec<Version>,
    ready: VecDeque<u16>,
    actions: Vec<Action>,
    events: u64,
    /// The region's segments: the first line of each, and its name.
    segments: Vec<(u64, String)>,
    /// Writes down what happens, where somebody wants to see it.
    pub(crate) recorder: Option<Box<Recorder>>,
    /// The probes of the queues, where somebody wants to see them.
    queues: Option<Box<Queues<Queue>>>,
    looked: Option<Box<Looked>>,
    /// What each line is to the cores; empty if all are cached memory.
    kinds: Vec<Kind>,
    /// What the home agents do past the caches.
    past: Slab<Past>,
    port: Option<Box<RootPort>>,
    engines: Engines,
    /// Where its programs load.
    places: Places,
}

impl Machine {
    /// A machine with a region, all zeroes, that nobody has cached.
    ///
    /// # Panics
    ///
    /// If the region has more lines than the caches tell apart: 256 MiB for each set of the cache that has fewest.
    pub fn new(parameters: &Parameters, layout: &Layout, options: Options) -> Machine {
        let lines = layout.bytes().div_ceil(LINE_BYTES) as usize;
        let filter = parameters.snoop_filter.iter().map(|filter| (filter.slice_bytes(), filter.ways));
        tags::must_tell_apart(lines as u64, parameters.cache.sizes().into_iter().chain(filter));
        let mut homes = vec![0; lines];
        for segment in layout.segments() {
            let first = (segment.start.0 / LINE_BYTES) as usize;
            // Behind PCIe there are registers alone: what is cached and not the host's is the other socket's, there as elsewhere.
            let in_device = parameters.pcie.is_some() && segment.memory != MemoryType::WriteBack;
            let home = u8::from(segment.home == Home::Nic && !in_device);
            homes[first..first + segment.bytes.div_ceil(LINE_BYTES) as usize].fill(home);
        }
        let protocol = &parameters.protocol;
        let lines = lines_of(parameters, &homes);
        let scarce = parameters.snoop_filter.as_ref().map(|filter| Scarce::of(filter, &lines)).unwrap_or_default();
        Machine {
            timing: Timing::new(parameters, &options),
            choices: Choices {
                migratory_between_nodes: protocol.migratory_between_nodes,
                migratory_within_node: protocol.migratory_within_node,
                exclusive_grant: protocol.exclusive_grant,
                directory_write: protocol.directory_write,
                speculative_memory_read: protocol.speculative_memory_read,
                forwards_clean: protocol.forwards_clean,
                snoops_shared: protocol.snoops_shared,
            },
            nodes: [0, 1].map(|node| Node::new(parameters, node, &scarce)),
            ways: [0, 1].map(|node| parameters.node_of(node)),
            data: pages::collect((0..lines.len()).map(|_| Line::ZERO)),
            newest: vec![0; if options.checked { lines.len() } else { 0 }],
            lines,
            scarce,
            parameters: parameters.clone(),
            options,
            now: 0,
            present: Key::new(0, 0, 0),
            limit: u64::MAX,
            queue: EventQueue::default(),
            sequences: vec![0; 3],
            agents: Vec::new(),
            room: Room::for_many(),
            actives: Vec::new(),
            untold_answers: Vec::new(),
            decides: false,
            written_until: 0,
            free_actives: Vec::new(),
            ready: VecDeque::new(),
            actions: Vec::new(),
            events: 0,
            segments: layout.segments().iter().map(|one| (one.start.0 / LINE_BYTES, one.name.clone())).collect(),
            recorder: None,
            looked: None,
            queues: (options.queues || options.checked).then(Box::default),
            kinds: uncached::kinds(parameters, layout),
            past: Slab::new(),
            port: parameters.pcie.as_ref().map(|pcie| {
                let cycle = parameters.fpga.as_ref().map_or(1, |fpga| fpga.cycle);
                Box::new(RootPort::new(pcie, cycle, parameters.cache.device_write_ways))
            }),
            engines: Engines::default(),
            places: Places::default(),
        }
    }

    /// Adds a core of a node and returns its number as an agent.
    ///
    /// # Panics
    ///
    /// If the node has 64 already: the snoop filter has a bit for each.
    pub fn add_core(&mut self, node: usize) -> usize {
        let core = self.nodes[node].cores.len();
        assert!(core < 64, "a node has 64 cores at most");
        let agent = self.agents.len();
        self.nodes[node].cores.push(agent as u16);
        let core = Self::new_core(&mut self.room, self.options, &self.parameters, node as u8, core as u8);
        self.agents.push(core);
        self.sequences.push(0);
        agent
    }

    /// A core with these parameters, whose caches keep what a checked run checks.
    fn new_core(room: &mut Room, options: Options, parameters: &Parameters, node: u8, core: u8) -> Agent {
        let mut agent = Agent::new(room, parameters, node, core);
        if options.checked {
            agent.caches.keep_versions();
        }
        agent
    }

    /// The present, in picoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// What an agent has done so far.
    pub fn counters(&self, agent: usize) -> AgentAccesses {
        self.agents[agent].counted(self.now).0.accesses
    }

    /// Memory operations of all agents so far.
    pub fn operations(&self) -> u64 {
        self.agents.iter().map(|agent| agent.counted(self.now).1).sum()
    }

    /// What one direction of the interconnect has carried: from node 0, or from node 1.
    pub fn direction(&self, from: usize) -> &Direction {
        &self.nodes[from].out
    }

    /// The memory of a node.
    pub fn memory(&self, node: usize) -> &Memory {
        &self.nodes[node].memory
    }

    /// The PCIe link, where there is one.
    pub fn pcie_link(&self) -> Option<&PcieLink> {
        self.port.as_ref().map(|port| &port.link)
    }

    /// Switches the hardware prefetchers of an agent on, as its platform has them, or off.
    pub fn set_prefetchers(&mut self, agent: usize, on: bool) {
        self.agents[agent].prefetchers.set(on);
    }

    /// Sets the scale of annotated work of an agent, for a program whose instructions are counted otherwise than its platform's.
    pub fn set_work_scale(&mut self, agent: usize, scale: f64) {
        self.agents[agent].work_thousand = self.parameters.core.work_thousand(scale);
    }

    /// The next place in the order of a source's events.
    #[inline]
    fn key(&mut self, time: u64, source: usize) -> Key {
        self.sequences[source] += 1;
        Key::new(time.max(self.now), source as u16, self.sequences[source])
    }

    /// Sends a message to a node's home agents.
    #[inline(always)]
    pub(crate) fn send_home(&mut self, time: u64, source: usize, node: u8, line: u32, message: ToHome) {
        let key = self.key(time, source);
        if let Some(recorder) = &mut self.recorder {
            recorder.sent_to_home(key, self.now, source, node, line, message);
        }
        let looked_up = slices::must_be_looked_up(message);
        let event = if looked_up { Event::LookUp { node, line, message } } else { Event::Home { node, line, message } };
        self.queue.push(key, event);
    }

    /// The source number of an agent.
    #[inline]
    pub(crate) fn source_of(agent: usize) -> usize {
        3 + agent
    }

    /// Sends a message to a core.
    pub(crate) fn send_core(&mut self, time: u64, node: u8, agent: u16, line: u32, message: ToCore) {
        let key = self.key(time, node as usize);
        self.send_core_in_order(key, node, agent, line, message);
    }

    /// Sends a message to a core that has its place in the order.
    #[inline(always)]
    pub(crate) fn send_core_in_order(&mut self, key: Key, node: u8, agent: u16, line: u32, message: ToCore) {
        let time = key.time;
        if let Some(recorder) = &mut self.recorder {
            recorder.sent_to_core(key, self.now, node, agent, line, message);
        }
        self.queue.push(key, Event::Core { agent, line, message });
        let receiver = &mut self.agents[agent as usize];
        receiver.caches.prefetch(line);
        let round = receiver.expect_message(time);
        if let Some(begins) = round {
            self.resume_at(agent as usize, begins.max(self.now));
        }
    }

    /// Has an agent go on at a time.
    pub(crate) fn resume_at(&mut self, agent: usize, time: u64) {
        let ticket = self.agents[agent].new_ticket();
        let key = self.key(time, Self::source_of(agent));
        self.queue.push(key, Event::Resume { agent: agent as u16, ticket });
    }

    /// Whether an agent may act at its own time without waiting for events before it; if nothing lies before that time at
    /// all, the present moves there.
    #[inline(always)]
    pub(crate) fn may_act(&mut self, agent: usize) -> bool {
        let this = &self.agents[agent];
        let time = this.time;
        if time < this.next_message() && time <= self.now + self.timing.lookahead {
            return true;
        }
        // What a program waited for it may use once, whatever else arrives at that moment: without it two cores could take a
        // line from each other for ever.
        if time == this.granted_at {
            return true;
        }
        self.may_advance(time)
    }

    #[inline(never)]
    fn may_advance(&mut self, time: u64) -> bool {
        if time <= self.now && self.options.run_ahead {
            // A message of this very moment is before it.
            return self.queue.first_time().is_none_or(|first| first > time);
        }
        self.advance_to(time)
    }

    /// Moves the present to a time, if nothing lies before it.
    fn advance_to(&mut self, time: u64) -> bool {
        // Nobody else would stop a program that goes on by itself for ever.
        let in_time = time <= self.limit;
        let alone = in_time && self.queue.first_time().is_none_or(|first| first > time) && self.ready.is_empty();
        if alone {
            self.now = self.now.max(time);
        }
        alone
    }

    /// Lets events happen until an agent can go on, and takes it; nobody, if none ever will.
    pub(crate) fn next_ready(&mut self) -> Option<usize> {
        loop {
            if let Some(agent) = self.ready.pop_front() {
                if let Some(recorder) = &mut self.recorder {
                    recorder.program_goes_on();
                }
                return Some(agent as usize);
            }
            let (key, event) = self.queue.pop()?;
            debug_assert!(key.time >= self.now);
            (self.now, self.present) = (key.time, key);
            self.events += 1;
            if let Some(recorder) = &mut self.recorder {
                recorder.handles(key);
            }
            match event {
                Event::Home { node, line, message } => self.at_home(node as usize, line, message),
                Event::Decides { node, line } => self.memory_has_decided(node as usize, line),
                Event::Ends { node, line } => self.answered_ahead_ends(node as usize, line),
                Event::Ways { node } => self.give_ways(node as usize),
                Event::LookUp { node, line, message } => {
                    if self.is_looked_up(node as usize, line, message) {
                        self.at_home(node as usize, line, message);
                    }
                }
                Event::LookUpAgain { node, line, message } => {
                    if self.is_its_turn(node as usize, line, Event::Home { node, line, message }) {
                        self.at_home(node as usize, line, message);
                    }
                }
                Event::LookedUp { node, line, message } => {
                    if self.has_entry(node as usize, line, message) {
                        self.at_home(node as usize, line, message);
                    }
                }
                Event::Departs { node, line, message } => self.put_on_wire(node as usize, line, message),
                Event::Answers { agent, line, message } => self.answer_core(agent, line, message),
                Event::Core { agent, line, message } => self.at_core(agent as usize, line, message),
                Event::Pcie(event) => self.at_pcie(event),
                Event::UncachedStored { agent } => self.uncached_stored(agent as usize),
                Event::Copy { copy } => self.copy_is_at_engine(copy),
                Event::Resume { agent, ticket } => {
                    let this = &mut self.agents[agent as usize];
                    if this.takes_ticket(ticket) {
                        if this.is_parked() {
                            this.unpark(key.time, true);
                        }
                        self.make_ready(agent as usize);
                    }
                }
            }
        }
    }

    /// Lets an agent go on after the present event.
    pub(crate) fn make_ready(&mut self, agent: usize) {
        let this = &mut self.agents[agent];
        let (wait, since) = this.waits();
        this.wake(self.now);
        if let Some(recorder) = &mut self.recorder {
            recorder.waited(agent, wait, since, this.time);
        }
        self.ready.push_back(agent as u16);
    }

    /// The home of a line.
    #[inline]
    pub(crate) fn home_of(&self, line: u32) -> usize {
        self.lines[line as usize].home()
    }
}

impl Timing {
    fn new(parameters: &Parameters, options: &Options) -> Timing {
        let core = &parameters.core;
        let nearest = [0, 1].map(|node| parameters.node_of(node).home_to_core).into_iter().min().unwrap_or(0);
        let cycles = |cycles: u32| core.cycles(u64::from(cycles));
        Timing {
            issue: cycles(core.issue_cycles),
            l1_hit: cycles(core.l1_hit_cycles),
            l2_hit: cycles(core.l2_hit_cycles),
            atomic: cycles(core.atomic_cycles),
            poll_exit: cycles(core.poll_exit_cycles),
            pause: cycles(core.pause_cycles),
            clock: cycles(core.clock_cycles),
            crossing: parameters.links().crossing,
            speculative_penalty: parameters.protocol.speculative_read_penalty,
            lookahead: if options.run_ahead { nearest.saturating_sub(1) } else { 0 },
        }
    }
}

impl Node {
    fn new(parameters: &Parameters, node: usize, scarce: &Scarce) -> Node {
        Node {
            slices: Slices::new(&parameters.node_of(node)),
            last_level: Tags::new(parameters.cache.llc_bytes, parameters.cache.llc_ways),
            filter: parameters
                .snoop_filter
                .as_ref()
                .map(|one| Box::new(SnoopFilter::new(one, &parameters.node, scarce))),
            memory: Memory::new(&parameters.memory).refreshed(parameters.refresh.clone()),
            out: Direction::new(&parameters.links()),
            credits: Credits::new(parameters.interconnect.request_credits.max(1)),
            without_credit: Slab::new(),
            without_entry: Slab::new(),
            cores: Vec::new(),
        }
    }
}
