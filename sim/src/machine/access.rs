//! What a core's program does to memory. Each step either is done or says what must come first.

use conic_fabric::Line;

use crate::engine::ahead::prefetch;
use crate::probe::queues::Probed;
use crate::protocol::cache::Held;
use crate::protocol::{Ask, Asker, Copy, ToHome, Version};

use super::agent::{Round, Spinning, Wait};
use super::places::Place;
use super::queues::Queue;
use super::stores::Store;
use super::uncached::Kind;
use super::{Machine, Wait as W};

pub(crate) use crate::bytes::{WHOLE, merge};

/// A step of a program: done, or not before something else.
pub(crate) type Step<T> = Result<T, Wait>;

/// How the code goes on after a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// What follows depends on it: the latency counts.
    Dependent,
    /// A word: where it hits the first level, independent accesses overlap it and it costs an issue slot; where it misses,
    /// what follows depends on it.
    Word,
    /// Bulk data: what follows goes on behind it.
    Independent,
}

impl Machine {
    /// Loads bytes of a line; gives the whole line, of which those are valid. `place`: where in the code. `waited`: this load has waited for its line.
    #[inline(always)]
    pub(crate) fn load(
        &mut self,
        id: usize,
        line: u32,
        bytes: u64,
        how: Use,
        waited: bool,
        place: Place,
    ) -> Step<&Line> {
        if !self.may_act(id) {
            return Err(W::Time);
        }
        self.within_reorder_buffer(id)?;
        let agent = &mut self.agents[id];
        if let Some(store) = agent.stores.last_to(line, bytes) {
            return self.load_from_store(id, store, bytes);
        }
        if agent.past.writes(line) {
            // Its own write past the caches comes first; a copy that it still has is older.
            agent.not_pure();
            return Err(W::WritesDone);
        }
        self.readable(id, line, bytes, how, waited, place)?;
        Ok(&self.data[line as usize])
    }

    /// Loads bytes, some of which a store in the store buffer writes: all of them, or that store must be performed first.
    fn load_from_store(&mut self, id: usize, store: usize, bytes: u64) -> Step<&Line> {
        let agent = &mut self.agents[id];
        agent.not_pure();
        let Store { line, bytes: written, .. } = agent.stores[store];
        if written & bytes != bytes {
            return Err(W::StoresTo(line));
        }
        agent.time += self.timing.l1_hit;
        agent.note_read(line);
        agent.counters.accesses.loads += 1;
        agent.counters.accesses.merged += 1;
        Ok(agent.stores.data(store))
    }

    /// Waits until a core may read a line, and takes the time that it takes.
    #[inline(always)]
    fn readable(&mut self, id: usize, line: u32, bytes: u64, how: Use, waited: bool, place_in_code: Place) -> Step<()> {
        let timing = self.timing;
        let agent = &mut self.agents[id];
        let Some(place) = agent.caches.find(line) else {
            if how == Use::Independent && !waited {
                return self.load_behind(id, line, bytes, place_in_code);
            }
            let wait = self.miss(id, line, Ask::Read);
            if self.agents[id].prefetchers.are_on() {
                self.after_load(id, line, bytes, place_in_code);
            }
            return Err(wait);
        };
        agent.note_read(line);
        agent.counters.accesses.loads += 1;
        if waited {
            // The way to the core was part of what it waited for.
            if how == Use::Dependent && std::mem::take(&mut agent.spinning.polled) {
                agent.time += timing.poll_exit;
            }
        } else if place.in_first {
            agent.time += if how == Use::Dependent { timing.l1_hit } else { timing.issue };
            agent.counters.accesses.l1_hits += 1;
        } else {
            // The second level gives a line a cycle: of bulk data the core waits for none.
            agent.time += if how == Use::Independent { timing.issue } else { timing.l2_hit };
            agent.counters.accesses.l2_hits += 1;
            agent.caches.promote(line, place.second);
            agent.not_pure();
        }
        if self.options.checked {
            self.check_newest(id, line, place.second);
        }
        if self.agents[id].prefetchers.are_on() {
            self.after_load(id, line, bytes, place_in_code);
        }
        Ok(())
    }

    /// Starts to fetch a line that the program must have, if that can be, and says what to wait for.
    fn miss(&mut self, id: usize, line: u32, ask: Ask) -> Wait {
        assert!(self.kind(line) == Kind::WriteBack, "line {line} is not cached: read it as a register");
        let agent = &mut self.agents[id];
        agent.not_pure();
        if agent.is_on_its_way(line) {
            return W::Line(line);
        }
        if agent.fills.are_full() {
            return W::FillBuffer(line, ask);
        }
        let time = agent.time;
        self.fetch(id, line, ask, time);
        if ask == Ask::Read && self.agents[id].prefetchers.are_on() {
            self.after_miss(id, line);
        }
        W::Line(line)
    }

    /// Takes a line fill buffer and sends the request.
    pub(crate) fn fetch(&mut self, id: usize, line: u32, ask: Ask, time: u64) {
        prefetch(&self.lines[line as usize]);
        prefetch(&self.data[line as usize]);
        let agent = &mut self.agents[id];
        agent.fills.take_for(line);
        let (node, asker) = (agent.node, Asker::Core(agent.core));
        let way = &self.ways[usize::from(node)];
        let arrives = time + way.core_to_home + way.home_lookup;
        let message = ToHome::Request { asker, ask, has_data: false, write: 0 };
        self.enters(Queue::LineFill(id as u16), line, time);
        self.send_home(arrives, Self::source_of(id), node, line, message);
    }

    /// Stores bytes of a line.
    #[inline]
    pub(crate) fn store(&mut self, id: usize, line: u32, bytes: u64, data: &Line) -> Step<()> {
        self.store_parts(id, line, [bytes], data)
    }

    /// Whether so many stores to a line may be in the store buffer together: the line is cached, and there is room for them.
    pub(crate) fn stores_together(&self, line: u32, parts: usize) -> bool {
        self.kind(line) == Kind::WriteBack && self.parameters.core.store_buffer as usize >= parts
    }

    /// Stores parts of a line, one after the other, by instructions that stand together: the request for the line leaves once
    /// all of them are in the store buffer, and so asks for what they write together.
    #[inline]
    pub(crate) fn store_parts<const PARTS: usize>(
        &mut self,
        id: usize,
        line: u32,
        parts: [u64; PARTS],
        data: &Line,
    ) -> Step<()> {
        if !self.may_act(id) {
            return Err(W::Time);
        }
        self.within_reorder_buffer(id)?;
        let timing = self.timing;
        let agent = &mut self.agents[id];
        agent.not_pure();
        if agent.past.writes(line) {
            return Err(W::WritesDone);
        }
        if agent.stores.is_empty()
            && agent.reorder.is_empty()
            && let Some(place) = agent.caches.find(line)
            && agent.caches.held(place.second).copy >= Copy::Exclusive
        {
            let begins = agent.time;
            agent.time += timing.issue * PARTS as u64;
            agent.operations += PARTS as u64;
            agent.counters.accesses.stores += PARTS as u64;
            if place.in_first {
                agent.counters.accesses.l1_hits += PARTS as u64;
            } else {
                agent.counters.accesses.l2_hits += 1;
                agent.counters.accesses.l1_hits += PARTS as u64 - 1;
                agent.caches.promote(line, place.second);
            }
            self.perform(id, line, place.second, parts.into_iter().fold(0, |all, part| all | part), data);
            if self.agents[id].is_engine {
                // Before a snoop that comes within the instruction, and no longer finds the line, is answered.
                self.give_up(id, line, place.second, begins);
            }
            return Ok(());
        }
        if !self.kinds.is_empty() && self.kind(line) != Kind::WriteBack {
            debug_assert!(PARTS == 1, "what is not cached is stored part by part");
            return self.store_past_caches(id, line, parts[0], data);
        }
        let agent = &mut self.agents[id];
        if agent.stores.len() + PARTS > agent.store_limit {
            return Err(W::StoreRoom);
        }
        let after = agent.reorder.last();
        let begins = agent.time;
        for (part, bytes) in parts.into_iter().enumerate() {
            let stores = &mut self.agents[id].stores;
            if part == 0 {
                stores.push_back(line, bytes, data, after)
            } else {
                stores.push_part(bytes)
            }
            // From when the first instruction began: the line may come before that ends.
            self.enters(Queue::StoreBuffer(id as u16), 0, begins);
        }
        let agent = &mut self.agents[id];
        agent.time += timing.issue * PARTS as u64;
        agent.operations += PARTS as u64;
        agent.counters.accesses.stores += PARTS as u64;
        let time = agent.time;
        self.ask_for_stores(id, time);
        Ok(())
    }

    /// Performs a store: the core owns the line.
    #[inline(always)]
    pub(crate) fn perform(&mut self, id: usize, line: u32, place: usize, bytes: u64, data: &Line) {
        let at = line as usize;
        if self.options.checked {
            self.check_newest(id, line, place);
        }
        merge(&mut self.data[at], bytes, data);
        if self.recorder.is_some() && self.agents[id].caches.held(place).copy != Copy::Modified {
            self.note_copy(id, line, Copy::Modified);
        }
        let version = if self.options.checked { self.newer_version(line) } else { 0 };
        self.agents[id].caches.set(place, Held { copy: Copy::Modified, version });
    }

    /// Owns a line before an atomic operation, and takes the operation's time.
    pub(crate) fn own_for_atomic(&mut self, id: usize, line: u32) -> Step<usize> {
        if !self.may_act(id) {
            return Err(W::Time);
        }
        let atomic = self.timing.atomic;
        let agent = &mut self.agents[id];
        agent.not_pure();
        if !agent.stores.is_empty() {
            return Err(W::StoresDone);
        }
        if !agent.reorder.is_empty() {
            return Err(W::LoadsDone);
        }
        if agent.past.writes(line) {
            return Err(W::WritesDone);
        }
        let owned = agent.caches.find(line).filter(|place| agent.caches.held(place.second).copy >= Copy::Exclusive);
        let Some(place) = owned else { return Err(self.miss(id, line, Ask::Own)) };
        agent.time += atomic;
        agent.operations += 1;
        agent.counters.accesses.atomics += 1;
        if !place.in_first {
            agent.caches.promote(line, place.second);
        }
        Ok(place.second)
    }

    /// Asks for a line before it is needed. `costs`: it is an instruction, rather than a statement about the core.
    #[inline]
    pub(crate) fn prefetch(&mut self, id: usize, line: u32, ask: Ask, costs: bool) -> Step<()> {
        if !self.may_act(id) {
            return Err(W::Time);
        }
        self.within_reorder_buffer(id)?;
        let issue = if costs { self.timing.issue } else { 0 };
        let agent = &mut self.agents[id];
        if let Some(place) = agent.caches.find(line)
            && (ask == Ask::Read || agent.caches.held(place.second).copy >= Copy::Exclusive)
        {
            agent.time += issue;
            agent.note_read(line);
            agent.spinning.present.hints += 1;
            if !place.in_first {
                agent.caches.promote(line, place.second);
            }
            return Ok(());
        }
        agent.not_pure();
        if agent.is_on_its_way(line) {
            agent.time += issue;
            return Ok(());
        }
        if !agent.fills.are_full() && agent.prefetches.is_empty() {
            agent.time += issue;
            agent.operations += 1;
            agent.counters.accesses.software_prefetches += 1;
            let time = agent.time;
            self.fetch(id, line, ask, time);
        } else if agent.prefetches.len() < agent.prefetch_limit {
            agent.time += issue;
            agent.operations += 1;
            agent.counters.accesses.software_prefetches += 1;
            agent.prefetches.push_back((line, ask));
            let asked = agent.time - issue;
            self.enters(Queue::LoadBuffer(id as u16), line, asked);
        } else if costs {
            return Err(W::LoadRoom);
        }
        Ok(())
    }

    /// Loads a line of which nothing but hints depend: what this core has of it. What it has not is on its way from now on, and comes too
    /// late for them, while a core whose reorder buffer reaches so far would ask for what it names when it has come.
    pub(crate) fn peek(&mut self, id: usize, line: u32) -> Step<Option<Line>> {
        self.prefetch(id, line, Ask::Read, true)?;
        let has = self.agents[id].caches.find(line).is_some();
        Ok(has.then(|| self.data[line as usize]))
    }

    /// Begins a load that the program is foreseen to do, by the load at `place` in the code.
    pub(crate) fn load_early(&mut self, id: usize, line: u32, bytes: u64, place: Place) -> Step<()> {
        let before = self.agents[id].counters.accesses.software_prefetches;
        self.prefetch(id, line, Ask::Read, false)?;
        if self.agents[id].prefetchers.are_on() {
            if self.agents[id].counters.accesses.software_prefetches != before {
                self.after_miss(id, line);
            }
            self.after_load(id, line, bytes, place);
        }
        Ok(())
    }

    /// Waits for every store to be performed and every load to have come.
    pub(crate) fn fence(&mut self, id: usize) -> Step<()> {
        if !self.may_act(id) {
            return Err(W::Time);
        }
        let agent = &mut self.agents[id];
        agent.not_pure();
        if !agent.stores.is_empty() {
            return Err(W::StoresDone);
        }
        if !agent.reorder.is_empty() {
            return Err(W::LoadsDone);
        }
        Ok(())
    }

    /// Ends a round that made no progress. Where the next rounds would do just the same, they are skipped until a message
    /// comes, or until the first round that begins at `until` or later, or the one within which the core's timer `tick` lies.
    pub(crate) fn spin(&mut self, id: usize, until: u64, tick: u64) -> Step<()> {
        if !self.may_act(id) {
            return Err(W::Time);
        }
        let pause = self.timing.pause;
        let fast_forward = self.options.fast_forward;
        let agent = &mut self.agents[id];
        agent.time += pause;
        agent.counters.accesses.spins += 1;
        let duration = agent.time - agent.spinning.begins;
        let round = Round { duration, ..agent.spinning.present };
        // A round that has read nothing waits for nothing that could end the skipping.
        let polls = agent.spinning.pure && round.count > 0;
        if polls {
            agent.counters.stalls.polling_picoseconds += duration - round.work;
        }
        let same = polls && agent.spinning.before == Some(round) && agent.is_quiet();
        agent.spinning = Spinning {
            begins: agent.time,
            present: Round::default(),
            before: agent.spinning.pure.then_some(round),
            pure: true,
            polled: true,
        };
        if !fast_forward || !same || agent.time >= until || tick.saturating_sub(agent.time) < duration {
            return Ok(());
        }
        agent.park(round, until, tick);
        Err(W::Polling)
    }

    /// The version that a store makes.
    fn newer_version(&mut self, line: u32) -> Version {
        let newest = &mut self.newest[line as usize];
        *newest = newest.wrapping_add(1);
        *newest
    }

    /// Stops a run at the first access to a copy that is not the newest.
    #[inline(never)]
    pub(crate) fn check_newest(&self, id: usize, line: u32, place: usize) {
        let held = self.agents[id].caches.held(place);
        let newest = self.newest[line as usize];
        assert!(
            held.version == newest && held.copy != Copy::Invalid,
            "agent {id} has version {} of line {line} ({:?}); the newest is {newest}",
            held.version,
            held.copy
        );
    }
}
