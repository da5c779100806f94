//! What arrives at a core: what it asked for, and snoops.

use crate::engine::ahead::prefetch;
use crate::probe::queues::Probed;
use crate::protocol::cache::{self, Held};
use crate::protocol::{Ask, Copy, Snoop, ToCore, ToHome, Version};

use super::Machine;
use super::queues::Queue;
use super::uncached::Kind;

impl Machine {
    /// Handles a message at a core.
    // On its own: see `at_home`.
    #[inline(never)]
    pub(crate) fn at_core(&mut self, id: usize, line: u32, message: ToCore) {
        self.agents[id].message_arrived(self.now);
        // What this round has read may be gone: the next one may not be like it.
        self.agents[id].not_pure();
        match message {
            ToCore::Snoop(snoop) => self.snooped(id, line, snoop),
            ToCore::Grant { copy, version, data } => {
                let known = data || !self.options.checked;
                let version = if known { version } else { self.version_without_data(id, line) };
                self.granted(id, line, copy, version);
            }
        }
        if self.agents[id].is_served() {
            self.make_ready(id);
        }
    }

    fn snooped(&mut self, id: usize, line: u32, snoop: Snoop) {
        if snoop == Snoop::Current {
            self.port_reads(line);
        }
        let agent = &mut self.agents[id];
        agent.counters.accesses.snoops += 1;
        let place = agent.caches.peek(line);
        let mut held = place.map_or(Held::default(), |place| agent.caches.held(place));
        let found = cache::snooped(&mut held, snoop);
        if let Some(place) = place {
            if held.copy == Copy::Invalid {
                agent.caches.remove(line, place);
                agent.watched.lost(line);
            } else {
                agent.caches.set(place, held);
            }
            self.note_copy(id, line, held.copy);
        }
        let (node, core) = (self.agents[id].node, self.agents[id].core);
        let way = &self.ways[usize::from(node)];
        let arrives = self.now + way.snoop_lookup + way.core_to_home;
        self.send_home(arrives, Self::source_of(id), node, line, ToHome::CoreFound { core, found });
    }

    /// A core's data goes to the root port, where there is one.
    #[inline(never)]
    fn port_reads(&mut self, line: u32) {
        if let Some(port) = self.port.as_mut() {
            port.found.insert(line, self.data[line as usize]);
        }
    }

    /// The version of a line that is granted without its data: what the core has, or is about to write over.
    #[cold]
    #[inline(never)]
    fn version_without_data(&self, id: usize, line: u32) -> Version {
        let caches = &self.agents[id].caches;
        caches.peek(line).map_or_else(|| self.newest[line as usize], |place| caches.held(place).version)
    }

    fn granted(&mut self, id: usize, line: u32, copy: Copy, version: Version) {
        if copy == Copy::Invalid {
            return self.memory_written(id, line);
        }
        let agent = &mut self.agents[id];
        agent.fills.free(line);
        if agent.store_fills.wait_for(line) {
            agent.store_fills.free(line);
        }
        let mut held = Held::default();
        cache::granted(&mut held, copy, version);
        let fills = &agent.fills;
        let gone = agent.caches.install(line, held, |candidate| !fills.wait_for(candidate));
        self.leaves(Queue::LineFill(id as u16), line, self.now);
        self.note_copy(id, line, held.copy);
        if let Some((victim, gone)) = gone {
            self.note_copy(id, victim, Copy::Invalid);
            let agent = &mut self.agents[id];
            agent.counters.accesses.evictions += 1;
            agent.watched.lost(victim);
            let dirty = gone.copy == Copy::Modified;
            agent.counters.accesses.write_backs += u64::from(dirty);
            self.tell_of_eviction(id, victim, dirty, gone.version, self.now);
        }
        if self.options.checked {
            self.check_one_writer(line);
        }
        self.loads_have(id, line);
        self.perform_stores(id);
        self.use_fill_buffers(id);
    }

    /// Tells a line's home agent that a core has given its copy up at `time`.
    pub(crate) fn tell_of_eviction(&mut self, id: usize, line: u32, dirty: bool, version: Version, time: u64) {
        let (node, core) = (self.agents[id].node, self.agents[id].core);
        let message = ToHome::Evicted { core, dirty, version };
        prefetch(&self.lines[line as usize]);
        // What the last-level cache gives up for it, by then.
        if let Some(victim) = self.nodes[node as usize].last_level.next_to_go(line) {
            prefetch(&self.lines[victim as usize]);
        }
        self.send_home(time + self.ways[usize::from(node)].core_to_home, Self::source_of(id), node, line, message);
    }

    /// Performs stores from the front of the store buffer, as far as their lines are owned, and asks for the first that is
    /// not.
    pub(crate) fn perform_stores(&mut self, id: usize) {
        while let Some(&store) = self.agents[id].stores.front() {
            if !self.agents[id].reorder.has_retired(store.after) {
                return;
            }
            if self.kind(store.line) != Kind::WriteBack {
                let now = self.now;
                return self.start_uncached_store(id, now);
            }
            let agent = &mut self.agents[id];
            let place = agent.caches.find(store.line);
            let owned = place.filter(|place| agent.caches.held(place.second).copy >= Copy::Exclusive);
            let Some(place) = owned else {
                // Lost to a snoop before its turn, or not asked for yet: now it must come, and with it whatever lines of the
                // stores behind it were lost.
                if !agent.is_on_its_way(store.line) {
                    agent.requested = 0;
                    let now = self.now;
                    self.ask_for_stores(id, now);
                }
                return;
            };
            if !place.in_first {
                agent.caches.promote(store.line, place.second);
            }
            let Some(data) = agent.stores.pop_front() else { return };
            agent.requested = agent.requested.saturating_sub(1);
            self.leaves(Queue::StoreBuffer(id as u16), 0, self.now);
            self.perform(id, store.line, place.second, store.bytes, &data);
            if self.agents[id].is_engine {
                self.give_up(id, store.line, place.second, self.now);
            }
        }
    }

    /// What is asked for a store in the store buffer and those behind it to the same line: where they write all of it together,
    /// its old data may be left out.
    fn ask_of_stores(&self, id: usize, first: usize) -> Ask {
        let agent = &self.agents[id];
        if !agent.is_engine && !self.parameters.protocol.full_line_store_without_data {
            return Ask::Own;
        }
        let line = agent.stores[first].line;
        let to_it = agent.stores.range(first..).take_while(|store| store.line == line);
        let whole = to_it.fold(0, |bytes, store| bytes | store.bytes) == super::access::WHOLE;
        if whole { Ask::OwnWhole } else { Ask::Own }
    }

    /// Asks for the lines of stores that wait, in order, while there are line fill buffers for them.
    pub(crate) fn ask_for_stores(&mut self, id: usize, time: u64) {
        while self.agents[id].requested < self.agents[id].stores.len() {
            let agent = &mut self.agents[id];
            let store = agent.stores[agent.requested];
            if self.kind(store.line) != Kind::WriteBack {
                self.agents[id].requested += 1;
                continue;
            }
            let agent = &mut self.agents[id];
            let owned =
                agent.caches.peek(store.line).is_some_and(|place| agent.caches.held(place).copy >= Copy::Exclusive);
            if !owned && !agent.is_on_its_way(store.line) {
                if !agent.may_ask_for_store() {
                    return;
                }
                agent.store_fills.take_for(store.line);
                let ask = self.ask_of_stores(id, self.agents[id].requested);
                self.fetch(id, store.line, ask, time);
            }
            self.agents[id].requested += 1;
        }
    }

    /// Gives line fill buffers that have become free to whoever waits for one: the program, then stores, then prefetches.
    pub(crate) fn use_fill_buffers(&mut self, id: usize) {
        if let super::Wait::FillBuffer(line, ask) = self.agents[id].wait
            && !self.agents[id].has_for(line, ask)
            && !self.agents[id].is_on_its_way(line)
        {
            return;
        }
        let now = self.now;
        self.ask_for_stores(id, now);
        while !self.agents[id].fills.are_full() {
            let Some((line, ask)) = self.agents[id].prefetches.pop_front() else { return };
            self.leaves(Queue::LoadBuffer(id as u16), line, now);
            let agent = &self.agents[id];
            if !agent.has_for(line, ask) && !agent.is_on_its_way(line) {
                self.fetch(id, line, ask, now);
            }
        }
    }

    /// Stops a run in which a line has two writers, or a writer and a reader.
    #[cold]
    #[inline(never)]
    fn check_one_writer(&self, line: u32) {
        let copies: Vec<(usize, Copy)> = (0..self.agents.len())
            .filter_map(|id| {
                let caches = &self.agents[id].caches;
                caches.peek(line).map(|place| (id, caches.held(place).copy))
            })
            .filter(|(_, copy)| *copy != Copy::Invalid)
            .collect();
        let writer = copies.iter().any(|(_, copy)| *copy >= Copy::Exclusive);
        assert!(!writer || copies.len() == 1, "line {line} is held as {copies:?}");
    }
}
