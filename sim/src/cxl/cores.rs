//! The cores' private caches, their loads, and their stores on their way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use conic_fabric::Line;

use super::checks::Mistake;
use super::home::{From, Job};
use super::machine::{Event, Machine, Wait};
use super::parameters::CxlParameters;
use super::queues::Queue;
use super::reorder::Reorder;
use crate::combined::Combined;
use crate::machine::tags::{Gone, Tags};
use crate::probe::queues::Probed;
use crate::protocol::cxl::{Ask, Copy};

/// A store that is not performed yet: bytes of one line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub(super) line: u32,
    pub(super) bytes: u64,
    pub(super) data: Line,
    /// What it does to a word besides, and gives back what that was.
    pub(super) atomic: Option<(usize, Combined)>,
    /// It is a register's, of this address and with this value.
    pub(super) register: Option<(u64, u64)>,
    /// Loads that were issued before it: it is performed after they have come.
    pub(super) after: u64,
}

/// What a load has brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded {
    pub(super) data: Option<Line>,
    /// Somebody takes it.
    wanted: bool,
}

/// A core.
#[derive(Debug)]
pub(super) struct CoreState {
    pub(super) agent: usize,
    l1: Tags,
    l2: Tags,
    pub(super) stores: VecDeque<Store>,
    /// Until when the write of a register holds those behind it, if one is on its way.
    register_until: Option<u64>,
    /// Loads that it has gone on behind.
    pub(super) reorder: Reorder,
    /// Lines that it has asked to write, and of those the ones that no store waited for then.
    owning: BTreeSet<u32>,
    owning_ahead: BTreeSet<u32>,
    /// Lines on their way to it.
    pub(super) fills: u32,
    /// Of those, the ones that nobody takes yet, with their loads' numbers.
    prefetched: BTreeMap<u32, u32>,
    /// Non-temporal stores and flushes on their way.
    pub(super) nontemporal: u32,
    /// The lines of those stores.
    pub(super) past_caches: Vec<u32>,
    /// Lines that it has read since it last said that it made no progress.
    pub(super) polled: Vec<u32>,
    /// What the last atomic operation found.
    pub(super) found: u64,
    /// One of them is gone since.
    pub(super) lost: bool,
    /// When each of its writes of registers left it.
    pub(super) rang: Vec<u64>,
    /// An interrupt came that its program has not taken.
    pub(super) interrupted: bool,
    /// Lines that were brought from memory for it.
    pub(super) brought_in: u64,
}

impl CoreState {
    pub(super) fn new(agent: usize, parameters: &CxlParameters) -> CoreState {
        let cache = &parameters.cache;
        CoreState {
            agent,
            l1: Tags::new(cache.l1_bytes, cache.l1_ways),
            l2: Tags::new(cache.l2_bytes, cache.l2_ways),
            stores: VecDeque::new(),
            register_until: None,
            reorder: Reorder::new(parameters.core.reorder_span()),
            owning: BTreeSet::new(),
            owning_ahead: BTreeSet::new(),
            fills: 0,
            prefetched: BTreeMap::new(),
            nontemporal: 0,
            past_caches: Vec::new(),
            polled: Vec::new(),
            found: 0,
            lost: false,
            rang: Vec::new(),
            interrupted: false,
            brought_in: 0,
        }
    }

    /// Writes of registers, those that wait for stores before them included.
    pub(super) fn register_writes(&self) -> usize {
        let first_left = usize::from(self.register_until.is_some());
        self.rang.len() + self.stores.iter().filter(|store| store.register.is_some()).count() - first_left
    }

    /// Whether a store to a line is on its way.
    pub(super) fn stores_to(&self, line: u32) -> bool {
        self.stores.iter().any(|store| store.line == line)
    }

    /// Whether a line is on its way to it that no program waits for.
    pub(super) fn is_prefetched(&self, line: u32) -> bool {
        self.prefetched.contains_key(&line)
    }

    /// Whether a line is on its way to it, or leave to write one.
    pub(super) fn awaits(&self, line: u32) -> bool {
        self.prefetched.contains_key(&line) || self.owning.contains(&line)
    }

    /// Notes that a line was read in this round of polling.
    pub(super) fn reads(&mut self, line: u32) {
        const MOST: usize = 64;
        if !self.polled.contains(&line) {
            if self.polled.len() == MOST {
                // A round that reads so much is no round of polling.
                self.polled.clear();
                self.lost = true;
            }
            self.polled.push(line);
        }
    }
}

impl Machine {
    fn bit(core: u16) -> u64 {
        1 << core
    }

    /// How long a core's load of a line takes if its private caches have it.
    pub(super) fn private_hit(&mut self, core: u16, line: u32) -> Option<u64> {
        let p = &self.parameters.core;
        let (l1_hit, l2_hit) = (p.cycles(p.l1_hit_cycles.into()), p.cycles(p.l2_hit_cycles.into()));
        let state = &mut self.cores[usize::from(core)];
        if self.lines[line as usize].holders & Self::bit(core) == 0 || state.l2.find(line).is_none() {
            // Its home agent may count it among those who have the line before the line has come.
            return None;
        }
        if let Some(place) = state.l1.find(line) {
            state.l1.touch(place);
            return Some(l1_hit);
        }
        self.fill(core, line);
        Some(l2_hit)
    }

    /// Puts a line into a core's caches; what falls out of the second level goes to the last.
    fn fill(&mut self, core: u16, line: u32) {
        let state = &mut self.cores[usize::from(core)];
        if state.l1.find(line).is_none() {
            state.l1.insert(line, 0, |_| true);
        }
        if let Some(place) = state.l2.find(line) {
            state.l2.touch(place);
            return;
        }
        let Some((_, Some(Gone { line: victim, .. }))) = state.l2.insert(line, 0, |_| true) else { return };
        if let Some(place) = state.l1.find(victim) {
            state.l1.remove(place);
        }
        if state.polled.contains(&victim) {
            // Nobody tells this core any more when the line changes: it looks again, and then has it again.
            state.lost = true;
            let agent = state.agent;
            self.agenda.wake(agent, Wait::Change, self.agenda.now);
        }
        let gone = &mut self.lines[victim as usize];
        gone.holders &= !Self::bit(core);
        if gone.holders == 0 && gone.host.copy != Copy::Invalid {
            self.install_last_level(victim, false);
        }
        self.note_owners(victim);
    }

    /// A core loses a line.
    pub(super) fn loses(&mut self, core: u16, line: u32) {
        let p = &self.parameters.host;
        let there = self.agenda.now + p.home_to_core + p.snoop_lookup;
        let state = &mut self.cores[usize::from(core)];
        for cache in [&mut state.l1, &mut state.l2] {
            if let Some(place) = cache.find(line) {
                cache.remove(place);
            }
        }
        if state.polled.contains(&line) {
            state.lost = true;
            let agent = state.agent;
            self.agenda.wake(agent, Wait::Change, there);
        }
    }

    /// Takes a line that is on its way to a core because it was prefetched; the load's number.
    pub(super) fn take_prefetched(&mut self, core: u16, line: u32) -> Option<u32> {
        let load = self.cores[usize::from(core)].prefetched.remove(&line)?;
        self.loads[load as usize].wanted = true;
        Some(load)
    }

    /// Begins a load that missed, or a prefetch, whose data nobody takes; its number, unless no line fill buffer is free.
    pub(super) fn start_load(&mut self, core: u16, line: u32, wanted: bool) -> Option<u32> {
        let most = self.parameters.core.line_fill_buffers;
        let state = &mut self.cores[usize::from(core)];
        if state.fills >= most {
            return None;
        }
        state.fills += 1;
        self.counters.misses += 1;
        let load = self.loads.insert(Loaded { data: None, wanted }) as u32;
        if !wanted {
            state.prefetched.insert(line, load);
        }
        self.enters(Queue::LineFill(core), line, self.agenda.now);
        let delay = self.parameters.host.core_to_home;
        self.ask_home(Job { line, ask: Ask::Load, from: From::Load(core, load) }, delay);
        Some(load)
    }

    pub(super) fn load_arrived(&mut self, core: u16, load: u32, line: u32) {
        let agent = self.cores[usize::from(core)].agent;
        if self.loads[load as usize].wanted {
            self.loads[load as usize].data = Some(self.lines[line as usize].host.data);
        } else {
            self.loads.remove(load as usize);
            self.cores[usize::from(core)].prefetched.remove(&line);
        }
        self.fill(core, line);
        self.loads_have(core, line);
        // A store that found the line on its way has waited for it, and one behind the load for its data.
        self.drain(core);
        self.fill_is_free(core, line);
        self.agenda.wake(agent, Wait::Load(load), self.agenda.now);
    }

    fn fill_is_free(&mut self, core: u16, line: u32) {
        let state = &mut self.cores[usize::from(core)];
        state.fills -= 1;
        let agent = state.agent;
        self.leaves(Queue::LineFill(core), line, self.agenda.now);
        self.agenda.wake(agent, Wait::FillBuffer, self.agenda.now);
        self.ask_for_stores(core);
    }

    /// Whether a core may write a line now. What its home agent gives it is not there before the answer is.
    fn may_write(&self, core: u16, line: u32) -> bool {
        let state = &self.lines[line as usize];
        state.host.copy.is_alone() && state.holders == Self::bit(core) && !self.is_answering(core, line)
    }

    /// Takes a store into its core's buffer, which has room.
    pub(super) fn push_store(&mut self, core: u16, store: Store) {
        let state = &mut self.cores[usize::from(core)];
        state.stores.push_back(Store { after: state.reorder.issued(), ..store });
        self.enters(Queue::StoreBuffer(core), store.line, self.agenda.now);
        self.drain(core);
        self.ask_for_stores(core);
    }

    /// Performs what can be performed, in order.
    pub(super) fn drain(&mut self, core: u16) {
        let before = self.cores[usize::from(core)].stores.len();
        while let Some(store) = self.cores[usize::from(core)].stores.front().copied() {
            if !self.cores[usize::from(core)].reorder.has_retired(store.after) {
                break;
            }
            if let Some((at, value)) = store.register {
                if !self.passes_register(core, at, value) {
                    break;
                }
                self.cores[usize::from(core)].stores.pop_front();
                self.leaves(Queue::StoreBuffer(core), store.line, self.agenda.now);
                continue;
            }
            if !self.may_write(core, store.line) {
                break;
            }
            // The data lies in one place for all cores, so a store that came too early would show in no value.
            let has = self.cores[usize::from(core)].l2.find(store.line).is_some();
            assert!(has, "core {core} stores to line {}, which has not come to it", store.line);
            let lost = self.errs(Mistake::LosesStore);
            let host = &mut self.lines[store.line as usize].host;
            let mut data = store.data;
            if let Some((word, combined)) = store.atomic {
                // At once with the line's arrival: whoever waits for the line behind this core comes after.
                data.0[word] = host.data.0[word];
                self.cores[usize::from(core)].found = combined.apply(&mut data.0[word]);
            }
            if !lost {
                host.write(&data, store.bytes);
            }
            self.took_effect(store.line, &data, store.bytes);
            self.check_line(store.line);
            // The core's copy is the only one that is current.
            self.leaves_last_level(store.line, true);
            self.cores[usize::from(core)].stores.pop_front();
            self.leaves(Queue::StoreBuffer(core), store.line, self.agenda.now);
            self.note_owners(store.line);
        }
        let state = &self.cores[usize::from(core)];
        if state.stores.len() < before {
            let agent = state.agent;
            self.agenda.wake(agent, Wait::Stores, self.agenda.now);
        }
    }

    /// Sends the write of a register that is the first of its core's stores; whether it lets those behind it pass. One is in flight
    /// between core and root port (CC-NIC section 2.2): the core goes on, and its later stores wait, as they keep their order.
    fn passes_register(&mut self, core: u16, at: u64, value: u64) -> bool {
        let now = self.agenda.now;
        let until = self.cores[usize::from(core)].register_until;
        if until.is_none() {
            self.write_register(core, at, value);
            let until = now + self.parameters.pcie.uncached_store;
            let state = &mut self.cores[usize::from(core)];
            state.register_until = Some(until);
            state.rang.push(now);
            self.agenda.at(until, Event::Drains(core));
        }
        let passes = until.is_some_and(|until| until <= now);
        if passes {
            self.cores[usize::from(core)].register_until = None;
        }
        passes
    }

    /// Asks for the lines of stores that wait, as far as line fill buffers reach.
    fn ask_for_stores(&mut self, core: u16) {
        let most = self.parameters.core.line_fill_buffers;
        let lines: Vec<u32> = {
            let state = &self.cores[usize::from(core)];
            if state.fills >= most || state.stores.len() <= state.owning.len() - state.owning_ahead.len() {
                return;
            }
            let wanted = state.stores.iter().filter(|store| store.register.is_none()).map(|store| store.line);
            wanted.filter(|line| !state.awaits(*line)).collect()
        };
        for line in lines {
            self.ask_to_write(core, line);
        }
    }

    /// Asks for a line to write, unless the core may write it or waits for it, or no line fill buffer is free; whether it did.
    fn ask_to_write(&mut self, core: u16, line: u32) -> bool {
        let may = self.may_write(core, line);
        let most = self.parameters.core.line_fill_buffers;
        let state = &mut self.cores[usize::from(core)];
        if may || state.fills >= most || state.awaits(line) {
            return false;
        }
        state.owning.insert(line);
        state.fills += 1;
        self.enters(Queue::LineFill(core), line, self.agenda.now);
        let delay = self.parameters.host.core_to_home;
        self.ask_home(Job { line, ask: Ask::Own, from: From::Own(core) }, delay);
        true
    }

    /// Asks for a line that is written later.
    pub(super) fn prefetch_to_write(&mut self, core: u16, line: u32) {
        if self.ask_to_write(core, line) {
            self.cores[usize::from(core)].owning_ahead.insert(line);
        }
    }

    /// A core has a line alone.
    pub(super) fn owned(&mut self, core: u16, line: u32) {
        self.lines[line as usize].holders |= Self::bit(core);
        let state = &mut self.cores[usize::from(core)];
        state.owning.remove(&line);
        state.owning_ahead.remove(&line);
        self.fill(core, line);
        self.drain(core);
        self.fill_is_free(core, line);
        // One that came while it was not first in line may be gone again by the time that it is.
        self.ask_for_stores(core);
    }

    /// Begins to write a line past the caches; there is a buffer.
    pub(super) fn store_nontemporal(&mut self, core: u16, line: u32, data: Line) {
        self.cores[usize::from(core)].nontemporal += 1;
        self.cores[usize::from(core)].past_caches.push(line);
        self.enters(Queue::Nontemporal(core), line, self.agenda.now);
        let delay = self.parameters.host.core_to_home;
        let ask = Ask::Nontemporal { data, bytes: crate::protocol::cxl::WHOLE };
        self.ask_home(Job { line, ask, from: From::Nontemporal(core) }, delay);
    }

    /// Begins to flush a line.
    pub(super) fn start_flush(&mut self, core: u16, line: u32) {
        self.cores[usize::from(core)].nontemporal += 1;
        self.enters(Queue::Nontemporal(core), line, self.agenda.now);
        let delay = self.parameters.host.core_to_home;
        self.ask_home(Job { line, ask: Ask::Flush, from: From::Flush(core) }, delay);
    }

    /// The store of a line past a core's caches is done.
    pub(super) fn stored_past_caches(&mut self, core: u16, line: u32) {
        let lines = &mut self.cores[usize::from(core)].past_caches;
        if let Some(place) = lines.iter().position(|other| *other == line) {
            lines.swap_remove(place);
        }
        self.nontemporal_done(core, line);
    }

    pub(super) fn nontemporal_done(&mut self, core: u16, line: u32) {
        let state = &mut self.cores[usize::from(core)];
        state.nontemporal -= 1;
        let agent = state.agent;
        self.leaves(Queue::Nontemporal(core), line, self.agenda.now);
        self.agenda.wake(agent, Wait::Nontemporal, self.agenda.now);
    }

    /// Moves a core's copy of a line to the last-level cache.
    pub(super) fn demote(&mut self, core: u16, line: u32) {
        if self.lines[line as usize].holders != Self::bit(core) || self.running.contains_key(&line) {
            return;
        }
        self.loses(core, line);
        self.lines[line as usize].holders = 0;
        self.install_last_level(line, false);
        self.note_owners(line);
    }
}
