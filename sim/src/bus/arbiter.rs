//! Who gets a bus, for how long, and what crosses the bridge.

use std::collections::VecDeque;

use conic_fabric::{Home, Line};

use super::machine::{Attachment, Event, Machine, Request, Wait, What};
use super::queues::Queue;
use crate::probe::queues::Probed;
use crate::protocol::snooping::Transaction;

/// A bus of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Which {
    Memory,
    Io,
}

/// Where an entry of a bus's queue comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// From an agent on this bus.
    Own,
    /// From the other bus, which is held meanwhile.
    Through,
    /// From the bridge's buffer.
    Posted,
}

/// Whether a transaction goes on to the other bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crossing {
    No,
    /// Its bus is held until the other one has served it.
    Blocking,
    /// The bridge buffers it.
    Buffered,
}

/// A request at a bus.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) request: Request,
    pub(super) stage: Stage,
    /// The bridge has refused it before.
    urgent: bool,
    /// What it is on the bus, from its begin on, where it is about a block.
    pub(super) transaction: Option<Transaction>,
    /// Whether it goes on to the other bus, from its begin on.
    pub(super) crossing: Crossing,
    /// The block, from whoever supplied it.
    pub(super) data: Line,
    /// Another cache had a copy.
    pub(super) shared: bool,
    /// It has had its time on this bus and waits for the other.
    waiting: bool,
    /// Since when it has this bus.
    since: u64,
}

impl Entry {
    fn new(request: Request) -> Entry {
        Entry {
            request,
            stage: Stage::Own,
            urgent: false,
            transaction: None,
            crossing: Crossing::No,
            data: Line::ZERO,
            shared: false,
            waiting: false,
            since: 0,
        }
    }
}

/// A bus.
#[derive(Debug, Default)]
pub(super) struct Bus {
    current: Option<Entry>,
    pub(super) queue: VecDeque<Entry>,
    /// The bridge is refusing somebody until then.
    free_at: u64,
}

impl Bus {
    /// Somebody has it.
    pub(super) fn is_taken(&self) -> bool {
        self.current.is_some()
    }
}

/// Places in `Node::posted`.
const TO_MEMORY: usize = 0;
const TO_IO: usize = 1;

impl Machine {
    fn bus(&mut self, node: usize, which: Which) -> &mut Bus {
        let node = &mut self.nodes[node];
        match which {
            Which::Memory => &mut node.memory,
            Which::Io => &mut node.io,
        }
    }

    /// Lets an agent's request wait for its bus.
    pub(super) fn ask(&mut self, request: Request) {
        let agent = &self.agents[request.agent];
        let on_io = agent.is_engine && self.attachment == Attachment::IoBus;
        let (node, which) = (agent.node, if on_io { Which::Io } else { Which::Memory });
        self.enter(node, which, Entry::new(request));
    }

    fn enter(&mut self, node: usize, which: Which, entry: Entry) {
        self.bus(node, which).queue.push_back(entry);
        self.enters(Queue::Arbitration(node as u16, which), number_of(&entry), self.agenda.now);
        self.agenda.at(self.agenda.now, Event::Grant(node as u16, which));
    }

    /// What a request is on the bus now; none where it is about no block, or needs nothing any more.
    fn transaction_of(&self, request: &Request) -> Option<Transaction> {
        let copy = self.agents[request.agent].cache.copy(request.line());
        match request.what {
            What::Block(access) => copy.needs(access),
            What::WriteBack => copy.evicted(),
            What::Load | What::Store(_) => None,
        }
    }

    fn crossing(&self, request: &Request, transaction: Option<Transaction>) -> Crossing {
        let is_engine = self.agents[request.agent].is_engine;
        let crosses = self.attachment == Attachment::IoBus && (is_engine || self.home_of(request.at) == Home::Nic);
        let copy = self.agents[request.agent].cache.copy(request.line());
        match (request.what, transaction) {
            _ if !crosses => Crossing::No,
            (What::Load, _) => Crossing::Blocking,
            (What::Store(_), _) => Crossing::Buffered,
            (_, Some(transaction)) if copy.may_be_posted(transaction) => Crossing::Buffered,
            (_, Some(_)) => Crossing::Blocking,
            (What::Block(_) | What::WriteBack, None) => Crossing::No,
        }
    }

    /// Whether the processor's transaction that holds the memory bus is to cross the bridge and wait for the answer.
    fn processor_crosses(&self, node: usize) -> bool {
        let current = self.nodes[node].memory.current.as_ref();
        current.is_some_and(|entry| entry.stage == Stage::Own && entry.crossing == Crossing::Blocking)
    }

    fn may_start(&self, node: usize, which: Which, entry: &Entry) -> bool {
        let (state, request) = (&self.nodes[node], &entry.request);
        if entry.stage != Stage::Own {
            // Who holds the other bus gets this one, or is refused.
            return true;
        }
        if self.is_pending(node, request) {
            return false;
        }
        let room = |direction: usize| state.posted[direction] < self.parameters.io.buffer;
        match (which, self.crossing(request, self.transaction_of(request))) {
            (Which::Memory, Crossing::No) => true,
            (Which::Memory, _) if state.reserved => false,
            (Which::Memory, Crossing::Blocking) => state.posted[TO_MEMORY] == 0,
            (Which::Memory, Crossing::Buffered) => room(TO_IO),
            (Which::Io, _) if self.processor_crosses(node) => false,
            (Which::Io, Crossing::Blocking) => state.posted[TO_IO] == 0,
            (Which::Io, Crossing::Buffered) => room(TO_MEMORY),
            (Which::Io, Crossing::No) => true,
        }
    }

    /// Whether the bridge holds an invalidation of a request's line: one side has been answered about it, and the other has not seen it, so that only the
    /// bridge's own transaction may come now.
    fn is_pending(&self, node: usize, request: &Request) -> bool {
        self.nodes[node].pending.contains(&request.line())
    }

    /// Gives a free bus to whoever is next: the bridge's buffer, who was refused or holds the other bus, who came first.
    pub(super) fn grant(&mut self, node: usize, which: Which) {
        let cycle = match which {
            Which::Memory => self.parameters.bus.cycle,
            Which::Io => self.parameters.io.cycle,
        };
        let (now, cycle) = (self.agenda.now, self.cycles(cycle));
        let bus = self.bus(node, which);
        if bus.current.is_some() || bus.queue.is_empty() {
            return;
        }
        let from = now.max(bus.free_at).next_multiple_of(cycle);
        if from > now {
            return self.agenda.at(from, Event::Grant(node as u16, which));
        }
        let class = |entry: &Entry| match entry.stage {
            Stage::Posted => 0,
            Stage::Through if which == Which::Io => 1,
            _ if entry.urgent => 1,
            Stage::Own | Stage::Through => 2,
        };
        let queue = match which {
            Which::Memory => &self.nodes[node].memory.queue,
            Which::Io => &self.nodes[node].io.queue,
        };
        let ready = queue.iter().enumerate().filter(|(_, entry)| self.may_start(node, which, entry));
        let Some(place) = ready.min_by_key(|(_, entry)| class(entry)).map(|(place, _)| place) else { return };
        if let Some(entry) = self.bus(node, which).queue.remove(place) {
            self.leaves(Queue::Arbitration(node as u16, which), number_of(&entry), self.agenda.now);
            self.start(node, which, entry);
        }
    }

    fn start(&mut self, node: usize, which: Which, mut entry: Entry) {
        let request = entry.request;
        if entry.stage == Stage::Own {
            entry.transaction = self.transaction_of(&request);
            if entry.transaction.is_none() && matches!(request.what, What::Block(_) | What::WriteBack) {
                // Somebody else's transaction has left nothing to do; nor is the bus kept any longer for what was refused.
                if entry.urgent {
                    self.is_through(node, Which::Memory);
                }
                self.wake(request.agent, Wait::Bus);
                return self.agenda.at(self.agenda.now, Event::Grant(node as u16, which));
            }
        }
        if (which, entry.stage) == (Which::Memory, Stage::Through) && self.nodes[node].posted[TO_IO] > 0 {
            // What it reads must not pass what was buffered before, whose bus it holds.
            self.refuse(node);
            return self.agenda.at(self.agenda.now, Event::Grant(node as u16, which));
        }
        if entry.stage == Stage::Own {
            entry.crossing = self.crossing(&request, entry.transaction);
        }
        self.begins(node, &mut entry);
        let kind = kind_of(&entry);
        let counters = &mut self.counters[node];
        match which {
            Which::Memory => counters.memory.count(kind),
            Which::Io => counters.io.count(kind),
        }
        entry.since = self.agenda.now;
        let ends = self.agenda.now + self.cycles(self.span(which, &entry));
        self.bus(node, which).current = Some(entry);
        self.enters(Queue::Bus(node as u16, which), 0, self.agenda.now);
        if which == Which::Memory && entry.stage == Stage::Own && entry.crossing == Crossing::Blocking {
            self.refuse_waiting(node);
        }
        self.agenda.at(ends, Event::Ends(node as u16, which));
    }

    /// For how many cycles a transaction takes a bus.
    fn span(&self, which: Which, entry: &Entry) -> u32 {
        let (bus, io) = (&self.parameters.bus, &self.parameters.io);
        let from_device = entry.stage == Stage::Own;
        match (which, entry.request.what, entry.transaction) {
            (Which::Memory, What::Load, _) => bus.load,
            (Which::Memory, What::Store(_), _) => bus.store,
            (Which::Memory, _, Some(Transaction::Invalidate)) => bus.invalidate,
            (Which::Memory, _, Some(Transaction::WriteBack)) => bus.write_back,
            (Which::Memory, ..) => bus.block,
            (Which::Io, What::Load, _) => io.load,
            (Which::Io, What::Store(_), _) => io.store,
            (Which::Io, _, Some(Transaction::Invalidate)) => io.invalidate,
            (Which::Io, _, Some(Transaction::WriteBack)) => io.block_to_device,
            (Which::Io, ..) if from_device => io.block_to_device,
            (Which::Io, ..) => io.block_to_core,
        }
    }

    /// A transaction has had its time on a bus.
    pub(super) fn ends(&mut self, node: usize, which: Which) {
        let Some(mut entry) = self.bus(node, which).current.take() else { return };
        let is_about_block = entry.transaction.is_some();
        match (which, entry.stage, entry.crossing) {
            (Which::Io, Stage::Own, _) if self.processor_crosses(node) => {
                self.bus(node, which).current = Some(Entry { waiting: true, ..entry });
                self.refuse(node);
            }
            (_, Stage::Own, Crossing::No) => {
                self.is_free(node, which, entry.since);
                self.complete(node, &entry);
            }
            (_, Stage::Own, Crossing::Blocking) => {
                entry.waiting = true;
                self.bus(node, which).current = Some(entry);
                self.enter(node, which.other(), Entry { stage: Stage::Through, waiting: false, ..entry });
            }
            (_, Stage::Own, Crossing::Buffered) if is_about_block && self.is_pending(node, &entry.request) => {
                // The other side's invalidation of the same line has gone into the bridge meanwhile: this copy is about to go.
                self.is_free(node, which, entry.since);
                self.enter(node, which, Entry::new(entry.request));
            }
            (_, Stage::Own, Crossing::Buffered) => {
                self.is_free(node, which, entry.since);
                self.post(node, which.other(), &entry);
                self.complete(node, &entry);
            }
            (_, Stage::Through, _) => {
                self.is_free(node, which, entry.since);
                if let Some(held) = self.bus(node, which.other()).current.take() {
                    self.is_free(node, which.other(), held.since);
                }
                self.is_through(node, which);
                self.complete(node, &entry);
            }
            (_, Stage::Posted, _) => {
                self.is_free(node, which, entry.since);
                self.nodes[node].pending.remove(&entry.request.line());
                self.nodes[node].posted[which.place()] -= 1;
                self.leaves(Queue::Bridge(node as u16, which), number_of(&entry), self.agenda.now);
                self.takes_effect(node, &entry);
            }
        }
        for which in [Which::Memory, Which::Io] {
            self.agenda.at(self.agenda.now, Event::Grant(node as u16, which));
        }
    }

    /// Puts a transaction into the bridge's buffer for a bus.
    fn post(&mut self, node: usize, to: Which, entry: &Entry) {
        self.is_through(node, to);
        let state = &mut self.nodes[node];
        if !matches!(entry.request.what, What::Store(_)) {
            state.pending.insert(entry.request.line());
        }
        state.posted[to.place()] += 1;
        self.enters(Queue::Bridge(node as u16, to), number_of(entry), self.agenda.now);
        self.enter(node, to, Entry { stage: Stage::Posted, urgent: false, ..*entry });
    }

    /// What the device sends to the memory bus is not refused any more.
    fn is_through(&mut self, node: usize, to: Which) {
        if to == Which::Memory {
            self.nodes[node].reserved = false;
        }
    }

    fn is_free(&mut self, node: usize, which: Which, since: u64) {
        let span = self.agenda.now - since;
        let counters = &mut self.counters[node];
        match which {
            Which::Memory => counters.memory_busy += span,
            Which::Io => counters.io_busy += span,
        }
        self.leaves(Queue::Bus(node as u16, which), 0, self.agenda.now);
    }

    /// The processor's transaction comes across: the device's, if one waits for the memory bus, must come again.
    fn refuse_waiting(&mut self, node: usize) {
        if self.nodes[node].io.current.is_some_and(|entry| entry.stage == Stage::Own && entry.waiting) {
            self.refuse(node);
        }
    }

    /// Refuses the device's transaction that holds the I/O bus.
    fn refuse(&mut self, node: usize) {
        let lost = self.cycles(self.parameters.io.refusal);
        let now = self.agenda.now;
        let state = &mut self.nodes[node];
        let Some(entry) = state.io.current.take() else { return };
        let through = state.memory.queue.iter().position(|other| other.stage == Stage::Through);
        let gone = through.and_then(|place| state.memory.queue.remove(place));
        state.io.free_at = now + lost;
        state.reserved = true;
        if let Some(gone) = gone {
            self.leaves(Queue::Arbitration(node as u16, Which::Memory), number_of(&gone), now);
        }
        self.counters[node].refusals += 1;
        self.is_free(node, Which::Io, entry.since);
        let again = Entry { urgent: true, ..Entry::new(entry.request) };
        self.enter(node, Which::Io, again);
    }
}

impl Which {
    fn other(self) -> Which {
        match self {
            Which::Memory => Which::Io,
            Which::Io => Which::Memory,
        }
    }

    /// Its place in `Node::posted`.
    pub(super) fn place(self) -> usize {
        match self {
            Which::Memory => TO_MEMORY,
            Which::Io => TO_IO,
        }
    }
}

/// Whose an entry is.
fn number_of(entry: &Entry) -> u32 {
    entry.request.agent as u32
}

fn kind_of(entry: &Entry) -> &'static str {
    match (entry.request.what, entry.transaction) {
        (What::Load, _) => "load",
        (What::Store(_), _) => "store",
        (_, Some(Transaction::Read)) => "read",
        (_, Some(Transaction::ReadExclusive)) => "read exclusive",
        (_, Some(Transaction::Invalidate)) => "invalidate",
        (_, Some(Transaction::WriteBack) | None) => "write back",
    }
}
