//! What a transaction does to caches, memory and registers.

use conic_fabric::{Address, LINE_BYTES, Line, RegisterAccess};

use super::arbiter::{Crossing, Entry, Stage};
use super::cache::Block;
use super::machine::{Attachment, Event, Machine, Request, Wait, What};
use super::queues::Queue;
use crate::probe::queues::Probed;
use crate::protocol::snooping::{Copy, Transaction};

impl Machine {
    /// A transaction begins on a bus: whoever is on it snoops.
    ///
    /// On the asker's own bus, where it goes on to the other, there is nobody but the asker with a copy of the line: an engine has lines
    /// of its own, and a node one processor.
    pub(super) fn begins(&mut self, node: usize, entry: &mut Entry) {
        let Some(transaction) = entry.transaction else { return };
        if transaction == Transaction::WriteBack {
            return self.write_back(node, entry);
        }
        if entry.stage == Stage::Own && entry.crossing != Crossing::No {
            return;
        }
        let line = entry.request.line();
        let mut supplied = None;
        for place in 0..self.nodes[node].agents.len() {
            let other = self.nodes[node].agents[place];
            if other == entry.request.agent {
                continue;
            }
            let agent = &mut self.agents[other];
            let mut told = false;
            if let Some(block) = agent.cache.block(line).filter(|block| block.copy != Copy::Invalid) {
                entry.shared = true;
                if block.copy.supplies(transaction) {
                    supplied = Some(block.data);
                }
                block.copy = block.copy.snooped(transaction);
                told = block.copy == Copy::Invalid;
            }
            if transaction != Transaction::Read
                && let Some(place) = agent.watched.iter().position(|(watched, _)| *watched == line)
            {
                let (_, tag) = agent.watched.remove(place);
                agent.changed.push_back(tag);
                told = true;
            }
            if told {
                self.tell(other);
            }
        }
        entry.data = supplied.unwrap_or(self.nodes[node].home[line as usize]);
    }

    /// A block leaves its cache for its home; across the bridge it gets there later.
    fn write_back(&mut self, node: usize, entry: &mut Entry) {
        let line = entry.request.line();
        if entry.stage == Stage::Own {
            let cache = &mut self.agents[entry.request.agent].cache;
            entry.data = cache.block(line).map_or(Line::ZERO, |block| block.data);
            cache.drop_line(line);
        }
        if entry.stage == Stage::Posted || entry.crossing == Crossing::No {
            self.nodes[node].home[line as usize] = entry.data;
            if self.parameters.bus.snarfing {
                self.snarf(node, entry.request.agent, line, entry.data);
            }
        }
    }

    /// Lets every cache that has a block's tag and no copy take in what is written back.
    fn snarf(&mut self, node: usize, writer: usize, line: u32, data: Line) {
        for place in 0..self.nodes[node].agents.len() {
            let agent = self.nodes[node].agents[place];
            let block = self.agents[agent].cache.block(line);
            if let Some(block) = block.filter(|block| agent != writer && block.copy == Copy::Invalid) {
                (block.copy, block.data) = (Copy::Shared, data);
            }
        }
    }

    /// The asker has what it asked for, or is rid of it.
    pub(super) fn complete(&mut self, node: usize, entry: &Entry) {
        let Request { agent, at, what } = entry.request;
        match (what, entry.transaction) {
            (What::Block(_), Some(transaction)) => {
                let line = entry.request.line();
                let cache = &mut self.agents[agent].cache;
                let own = cache.block(line).map(|block| block.data);
                let data = if transaction == Transaction::Invalidate { own.unwrap_or_default() } else { entry.data };
                cache.install(Block { line, copy: Copy::granted(transaction, entry.shared), data });
            }
            (What::Load, _) => {
                self.agents[agent].loaded = self.register(node, at);
                self.note_access(node, RegisterAccess::Load(at));
            }
            (What::Store(value), _) => {
                if entry.crossing == Crossing::No {
                    self.store_register(node, at, value);
                }
                return self.stored(agent);
            }
            (What::Block(_) | What::WriteBack, _) => {}
        }
        self.wake(agent, Wait::Bus);
    }

    /// What was buffered has had its time on the other bus.
    pub(super) fn takes_effect(&mut self, node: usize, entry: &Entry) {
        if let What::Store(value) = entry.request.what {
            self.store_register(node, entry.request.at, value);
        }
    }

    /// An uncached store is through; the next one goes.
    pub(super) fn stored(&mut self, agent: usize) {
        let state = &mut self.agents[agent];
        let stored = state.stores.pop_front();
        state.storing = false;
        if stored.is_some() {
            self.leaves(Queue::Stores(agent as u16), 0, self.agenda.now);
        }
        if let (Some((at, value)), true) = (stored, self.attachment == Attachment::CacheBus) {
            let node = self.agents[agent].node;
            self.store_register(node, at, value);
        }
        self.wake(agent, Wait::Stores);
        self.drain(agent);
    }

    /// Sends the oldest uncached store of an agent, if none is on its way.
    pub(super) fn drain(&mut self, agent: usize) {
        let state = &mut self.agents[agent];
        let Some((at, value)) = state.stores.front().copied().filter(|_| !state.storing) else { return };
        state.storing = true;
        if self.attachment == Attachment::CacheBus {
            let there = self.agenda.now + self.cycles(self.parameters.cache_bus.store);
            return self.agenda.at(there, Event::Stored(agent as u32));
        }
        self.ask(Request { agent, at, what: What::Store(value) });
    }

    /// What a register holds.
    pub(super) fn register(&self, node: usize, at: Address) -> u64 {
        self.nodes[node].home[(at.0 / LINE_BYTES) as usize].0[(at.0 % LINE_BYTES / 8) as usize]
    }

    pub(super) fn set_register(&mut self, node: usize, at: Address, value: u64) {
        self.nodes[node].home[(at.0 / LINE_BYTES) as usize].0[(at.0 % LINE_BYTES / 8) as usize] = value;
    }

    /// The processor's store to a register has arrived.
    fn store_register(&mut self, node: usize, at: Address, value: u64) {
        self.set_register(node, at, value);
        self.note_access(node, RegisterAccess::Store(at, value));
    }

    /// Lets the engine that answers for a register know of an access.
    pub(super) fn note_access(&mut self, node: usize, access: RegisterAccess) {
        let start = self.segment(access.address()).start;
        for place in 0..self.nodes[node].agents.len() {
            let agent = self.nodes[node].agents[place];
            let queue = self.agents[agent].registers.iter_mut().find(|(at, _)| *at == start);
            if let Some((_, queue)) = queue {
                queue.push_back(access);
                self.enters(Queue::Registers(node as u16), 0, self.agenda.now);
                self.tell(agent);
            }
        }
    }
}
