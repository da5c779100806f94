//! Copies that cores post to engines.
//!
//! An engine is an agent of its node's snoop filter, like a core, with as many line fill buffers as it has lines in flight. It
//! keeps nothing that it writes: each line goes to the node's last-level cache as soon as it is written, and it asks for a
//! line that it writes whole without its data. What it reads it holds for as long as there is room.

use std::collections::{BTreeMap, VecDeque};

use conic_fabric::{Address, LINE_BYTES};
use slab::Slab;

use crate::parameters::{CacheParameters, CoreParameters, EngineParameters, Parameters};
use crate::probe::queues::Probed;
use crate::protocol::Copy;

use super::access::Step;
use super::queues::Queue;
use super::tags::MOST_WAYS;
use super::{Event, Machine, Wait as W};

/// A copy that was posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copying {
    pub from: Address,
    pub to: Address,
    pub lines: u64,
    /// The word that says that it is done, and what it says.
    pub done: Address,
    pub value: u64,
}

/// The engines, and what they are to do.
#[derive(Debug, Default)]
pub(crate) struct Engines {
    /// Whose copies go to which agent.
    of_core: BTreeMap<usize, usize>,
    /// Copies on their way, each to an agent.
    posted: Slab<(usize, Copying)>,
    /// Copies that each engine has not begun.
    waiting: BTreeMap<usize, VecDeque<Copying>>,
}

impl Engines {
    /// Copies that were posted to an engine and that it has not taken.
    pub(crate) fn not_taken(&self, engine: usize) -> usize {
        let on_their_way = self.posted.iter().filter(|(_, (to, _))| *to == engine).count();
        on_their_way + self.waiting.get(&engine).map_or(0, VecDeque::len)
    }
}

impl Machine {
    /// Adds an engine to a node and returns its number as an agent.
    ///
    /// # Panics
    ///
    /// If the machine has none, or the node has 64 cores and engines already.
    pub(crate) fn add_engine(&mut self, node: usize) -> usize {
        let engine = self.engine_parameters();
        let id = self.add_core(node);
        let (shape, core) = (shape(&self.parameters, &engine), self.agents[id].core);
        self.agents[id] = Self::new_core(&mut self.room, self.options, &shape, node as u8, core);
        self.agents[id].is_engine = true;
        self.engines.waiting.insert(id, VecDeque::new());
        id
    }

    /// What the machine's engines are.
    ///
    /// # Panics
    ///
    /// If it has none.
    pub(crate) fn engine_parameters(&self) -> EngineParameters {
        let name = &self.parameters.name;
        self.parameters.engine.clone().unwrap_or_else(|| panic!("{name} has no copy engines: see its [engine]"))
    }

    /// Has a core's copies made by an engine from now on.
    ///
    /// # Panics
    ///
    /// If `engine` is none.
    pub fn set_engine(&mut self, core: usize, engine: usize) {
        assert!(self.engines.waiting.contains_key(&engine), "agent {engine} is no engine");
        self.engines.of_core.insert(core, engine);
    }

    /// How many engines a node has.
    pub fn engines_of_a_node(&self) -> u32 {
        self.parameters.engine.as_ref().map_or(0, |engine| engine.engines)
    }

    /// Whether a core has an engine for its copies.
    pub(crate) fn has_engine(&self, core: usize) -> bool {
        self.engines.of_core.contains_key(&core)
    }

    /// Posts a copy, when every store before it can be seen.
    pub(crate) fn post_copy(&mut self, id: usize, copying: Copying) -> Step<()> {
        self.fence(id)?;
        if !self.agents[id].past.is_answered() {
            return Err(W::WritesDone);
        }
        let EngineParameters { post, start_up, .. } = self.engine_parameters();
        let agent = &mut self.agents[id];
        agent.time += post;
        agent.operations += 1;
        let posted = agent.time;
        let engine = self.engines.of_core[&id];
        let copy = self.engines.posted.insert((engine, copying)) as u32;
        self.enters(Queue::Copies(engine as u16), 0, posted);
        let key = self.key(posted + start_up, Self::source_of(id));
        self.queue.push(key, Event::Copy { copy });
        Ok(())
    }

    /// A copy may begin.
    #[inline(never)]
    pub(crate) fn copy_is_at_engine(&mut self, copy: u32) {
        let (engine, copying) = self.engines.posted.remove(copy as usize);
        self.engines.waiting.get_mut(&engine).expect("an engine").push_back(copying);
        self.tell_device(engine);
    }

    /// Takes the next copy that is at an engine by now, if there is one.
    pub(crate) fn waiting_copy(&mut self, id: usize) -> Step<Option<Copying>> {
        // Cores whose time is before this engine's may still have one come.
        if !self.is_present(id) {
            return Err(W::Time);
        }
        let taken = self.engines.waiting.get_mut(&id).and_then(VecDeque::pop_front);
        if taken.is_some() {
            // They come in the order in which they were posted: they need no names.
            self.leaves(Queue::Copies(id as u16), 0, self.now);
        }
        Ok(taken)
    }

    /// The same, and waits for one.
    pub(crate) fn next_copy(&mut self, id: usize) -> Step<Copying> {
        loop {
            if let Some(copying) = self.waiting_copy(id)? {
                return Ok(copying);
            }
            self.news(id, u64::MAX)?;
        }
    }

    /// Gives up a line that was just written, at `time`.
    #[inline(never)]
    pub(crate) fn give_up(&mut self, id: usize, line: u32, place: usize, time: u64) {
        let agent = &mut self.agents[id];
        let version = agent.caches.held(place).version;
        agent.caches.remove(line, place);
        agent.counters.accesses.evictions += 1;
        agent.counters.accesses.write_backs += 1;
        self.note_copy(id, line, Copy::Invalid);
        self.tell_of_eviction(id, line, true, version, time);
    }
}

/// A machine whose cores are engines.
fn shape(parameters: &Parameters, engine: &EngineParameters) -> Parameters {
    let lines = engine.lines_in_flight;
    // Room for several times what is on its way, so that a set has some however the lines fall.
    let (ways, sets) = (MOST_WAYS, (lines / 4).max(1).next_power_of_two());
    let bytes = LINE_BYTES * u64::from(ways) * u64::from(sets);
    let cache =
        CacheParameters { l1_bytes: bytes, l1_ways: ways, l2_bytes: bytes, l2_ways: ways, ..parameters.cache.clone() };
    let core = CoreParameters {
        line_fill_buffers: lines,
        store_fill_buffers: lines,
        load_buffer: lines,
        store_buffer: lines,
        prefetch_next_line: false,
        prefetch_stride: false,
        prefetch_adjacent: false,
        ..parameters.core.clone()
    };
    Parameters { cache, core, ..parameters.clone() }
}
