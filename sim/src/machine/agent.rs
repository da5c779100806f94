//! A core: where its program stands, and what is on its way to and from its caches.

use std::collections::VecDeque;

use crate::engine::pages::Room;
use crate::parameters::Parameters;
use crate::probe::counters::AgentCounters;
use crate::protocol::{Ask, Copy};

use super::fills::Fills;
use super::prefetch::Prefetchers;
use super::private::Private;
use super::reorder::Reorder;
use super::stores::Stores;
use super::uncached::PastCaches;
use super::watch::Watched;

/// What an agent's program waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Nothing: it runs.
    #[default]
    Nothing,
    /// A time: the events before it must happen first.
    Time,
    /// A line that is on its way.
    Line(u32),
    /// A line fill buffer, to ask for a line.
    FillBuffer(u32, Ask),
    /// Room among the prefetches that wait for a line fill buffer.
    LoadRoom,
    /// Room in the store buffer.
    StoreRoom,
    /// The oldest load, whose place in the order of loads has these lowest bits.
    Retire(u32),
    /// The loads of a line that were issued.
    Load(u32),
    /// All loads that were issued.
    LoadsDone,
    /// An empty store buffer.
    StoresDone,
    /// The stores to a line that it partly reads.
    StoresTo(u32),
    /// A change of a line that it polls.
    Polling,
    /// A buffer for a write to memory past the caches.
    WriteRoom,
    /// The answers to all such writes.
    WritesDone,
    /// The answer to a load of a device's register.
    Register,
    /// For a device: a write to a register of its own, or a read's data.
    News,
    /// Nothing any more: its program has ended.
    Ended,
}

// It is handed on in a register: through memory, where it was just written part by part, it could be read whole only when the
// host's store buffer has drained.
const _: () = assert!(size_of::<Wait>() == 8, "what a program waits for fits into a register of the host");

/// A round of polling, for whoever skips rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// What was read, in order.
    pub reads: u64,
    /// How many reads.
    pub count: u64,
    /// How many of them were not loads but prefetches.
    pub hints: u64,
    /// For how much of it the program stated work, in picoseconds.
    pub work: u64,
    /// How long it took.
    pub duration: u64,
}

/// The end of the last round before an agent was parked, the round, and how many of them may be skipped.
type Parked = (u64, Round, u64);

/// How many rounds are skipped until a time: those that have ended by then, or with `after` all that have begun before it.
fn skipped_by((end, round, most): Parked, time: u64, after: bool) -> u64 {
    let since = time.saturating_sub(end);
    let skipped = if after { since.div_ceil(round.duration) } else { since / round.duration };
    // A message may be on its way that arrives after the time at which the polling ends.
    skipped.min(most)
}

/// What so many rounds count. Inlined, so that nothing is added where they count nothing.
#[inline(always)]
fn counted_in(round: Round, rounds: u64) -> AgentCounters {
    let loads = rounds * (round.count - round.hints);
    let mut counters = AgentCounters::default();
    (counters.accesses.loads, counters.accesses.l1_hits, counters.accesses.spins) = (loads, loads, rounds);
    counters.stalls.polling_picoseconds = rounds * (round.duration - round.work);
    counters.stalls.work_picoseconds = rounds * round.work;
    counters
}

/// What is known of the rounds of polling of an agent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spinning {
    /// When the present round began.
    pub begins: u64,
    /// What it has done so far; its duration is not known yet.
    pub present: Round,
    /// Whether it did nothing but hits.
    pub pure: bool,
    /// The round before, if it was pure.
    pub before: Option<Round>,
    /// Whether it has polled since it last waited for a line: the next such wait ends the loop.
    pub polled: bool,
}

/// A core.
#[derive(Debug)]
pub struct Agent {
    pub(crate) node: u8,
    pub(crate) core: u8,
    /// How far its program has come, in picoseconds; ahead of the present by what cannot be disturbed.
    pub(crate) time: u64,
    /// When the messages on their way to it arrive, in order.
    messages: VecDeque<u64>,
    /// The first of them, or the end of time: every access asks for it.
    next_message: u64,
    /// For how long it has waited, in picoseconds.
    waited: u64,
    pub(crate) caches: Private,
    pub(crate) fills: Fills,
    /// Those of them that were taken for stores.
    pub(crate) store_fills: Fills,
    /// Loads that it has issued and goes on behind.
    pub(crate) reorder: Reorder,
    pub(crate) stores: Stores,
    pub(crate) store_limit: usize,
    /// Stores at the front whose lines were asked for.
    pub(crate) requested: usize,
    /// Prefetches that wait for a line fill buffer.
    pub(crate) prefetches: VecDeque<(u32, Ask)>,
    pub(crate) prefetch_limit: usize,
    pub(crate) prefetchers: Prefetchers,
    pub(crate) past: PastCaches,
    pub(crate) watched: Watched,
    /// Whether it copies for others, and keeps nothing of what it writes.
    pub(crate) is_engine: bool,
    /// The time of a thousand cycles of annotated work, in picoseconds.
    pub(crate) work_thousand: u64,
    pub(crate) wait: Wait,
    waits_since: u64,
    ticket: u32,
    /// When a line that the program waited for came last.
    pub(crate) granted_at: u64,
    pub(crate) spinning: Spinning,
    /// The rounds that are being skipped, if any are.
    parked: Option<Parked>,
    pub(crate) counters: AgentCounters,
    /// Operations that were skipped because they repeat.
    pub(crate) operations: u64,
}

impl Agent {
    /// A core that has done nothing, with its caches' tables in `room`.
    pub(crate) fn new(room: &mut Room, parameters: &Parameters, node: u8, core: u8) -> Agent {
        let shape = &parameters.core;
        Agent {
            node,
            core,
            time: 0,
            messages: VecDeque::new(),
            next_message: u64::MAX,
            waited: 0,
            caches: Private::within(room, &parameters.cache),
            reorder: Reorder::new(shape.reorder_span(), shape.load_buffer),
            fills: Fills::new(shape.line_fill_buffers),
            store_fills: Fills::new(shape.store_fill_buffers),
            stores: Stores::new(shape.store_buffer as usize),
            store_limit: shape.store_buffer as usize,
            requested: 0,
            prefetches: VecDeque::with_capacity(shape.load_buffer as usize),
            prefetch_limit: shape.load_buffer as usize,
            prefetchers: Prefetchers::new(shape),
            past: PastCaches::new(parameters),
            watched: Watched::default(),
            is_engine: false,
            work_thousand: shape.work_thousand(shape.work_scale),
            wait: Wait::Nothing,
            waits_since: 0,
            ticket: 0,
            granted_at: u64::MAX,
            spinning: Spinning { pure: true, ..Spinning::default() },
            parked: None,
            counters: AgentCounters::default(),
            operations: 0,
        }
    }

    /// The time of annotated work.
    #[inline(always)]
    pub(crate) fn work(&self, cycles: u32) -> u64 {
        u64::from(cycles) * self.work_thousand / 1000
    }

    /// When the next message arrives.
    #[inline(always)]
    pub(crate) fn next_message(&self) -> u64 {
        self.next_message
    }

    /// Notes that a message is on its way. Gives the beginning of the round of polling that it falls into, if the agent is
    /// parked: it must go on from there.
    #[inline(always)]
    pub(crate) fn expect_message(&mut self, time: u64) -> Option<u64> {
        self.next_message = self.next_message.min(time);
        if self.messages.back().is_none_or(|&last| last <= time) {
            self.messages.push_back(time);
        } else {
            self.expect_own(time);
        }
        self.unpark(time, false)
    }

    /// Notes that something of its own will happen to it, whatever message comes before or after.
    pub(crate) fn expect_own(&mut self, time: u64) {
        let place = self.messages.partition_point(|&other| other <= time);
        self.messages.insert(place, time);
        self.next_message = self.next_message.min(time);
    }

    /// Ends the skipping of rounds with the one in which `time` lies, or the first that begins at `time` or after.
    pub(crate) fn unpark(&mut self, time: u64, after: bool) -> Option<u64> {
        let parked = self.parked.take()?;
        let (end, round, _) = parked;
        let skipped = skipped_by(parked, time, after);
        self.time = end + skipped * round.duration;
        self.operations += skipped * round.count;
        self.counters.add(&counted_in(round, skipped));
        self.spinning.begins = self.time;
        self.wait = Wait::Time;
        Some(self.time)
    }

    /// Its counters, and its operations, with the rounds that it skips and that are over at a time.
    pub(crate) fn counted(&self, now: u64) -> (AgentCounters, u64) {
        let (mut counters, mut operations) = (self.counters, self.operations);
        if let Some(parked) = self.parked {
            let skipped = skipped_by(parked, now, false);
            counters.add(&counted_in(parked.1, skipped));
            operations += skipped * parked.1.count;
        }
        (counters, operations)
    }

    /// Takes the message that has arrived off the list.
    #[inline(always)]
    pub(crate) fn message_arrived(&mut self, time: u64) {
        let first = self.messages.pop_front();
        debug_assert_eq!(first, Some(time));
        self.next_message = self.messages.front().copied().unwrap_or(u64::MAX);
    }

    /// Skips rounds from now on, but neither the first that begins at `until` or later nor the one within which a `tick` of the
    /// core's timer lies.
    pub(crate) fn park(&mut self, round: Round, until: u64, tick: u64) {
        let left = |until: u64| until.saturating_sub(self.time);
        let most = if until == u64::MAX { u64::MAX } else { left(until).div_ceil(round.duration) };
        let most = if tick == u64::MAX { most } else { most.min(left(tick) / round.duration) };
        self.parked = Some((self.time, round, most));
    }

    /// When the first round begins that is not skipped; none if all are.
    pub(crate) fn parked_until(&self) -> Option<u64> {
        let (end, round, most) = self.parked?;
        (most != u64::MAX).then(|| end + most * round.duration)
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.parked.is_some()
    }

    pub(crate) fn new_ticket(&mut self) -> u32 {
        self.ticket = self.ticket.wrapping_add(1);
        self.ticket
    }

    /// Whether this ticket is the last, and its holder still waits for it.
    pub(crate) fn takes_ticket(&self, ticket: u32) -> bool {
        self.ticket == ticket && matches!(self.wait, Wait::Time | Wait::Polling | Wait::Register | Wait::News)
    }

    /// Starts to wait.
    pub(crate) fn wait_for(&mut self, wait: Wait) {
        self.wait = wait;
        self.waits_since = self.time;
    }

    /// What it waits for, and since when.
    pub(crate) fn waits(&self) -> (Wait, u64) {
        (self.wait, self.waits_since)
    }

    /// Ends the wait: the program goes on now, or at its own time if that is later.
    pub(crate) fn wake(&mut self, now: u64) {
        if self.wait != Wait::Time {
            self.spinning.pure = false;
            self.waited += now.saturating_sub(self.time);
            self.time = self.time.max(now);
            self.granted_at = now;
        }
        let span = self.time - self.waits_since.min(self.time);
        let stalls = &mut self.counters.stalls;
        match self.wait {
            Wait::Line(_) | Wait::Register | Wait::Retire(_) | Wait::Load(_) | Wait::LoadsDone => {
                stalls.load_picoseconds += span
            }
            Wait::FillBuffer(..) | Wait::LoadRoom => stalls.fill_buffer_picoseconds += span,
            Wait::StoreRoom => stalls.store_buffer_picoseconds += span,
            Wait::WriteRoom => stalls.store_buffer_picoseconds += span,
            Wait::StoresDone | Wait::StoresTo(_) | Wait::WritesDone => stalls.fence_picoseconds += span,
            _ => {}
        }
        self.wait = Wait::Nothing;
    }

    /// For how long it has worked: its time without what it has waited for, in picoseconds.
    #[inline(always)]
    pub(crate) fn worked(&self) -> u64 {
        self.time - self.waited
    }

    /// Whether what the program waits for has come.
    #[inline(always)]
    pub(crate) fn is_served(&self) -> bool {
        match self.wait {
            Wait::Line(line) => !self.is_on_its_way(line),
            Wait::FillBuffer(..) => !self.fills.are_full(),
            Wait::LoadRoom => self.prefetches.len() < self.prefetch_limit,
            Wait::Retire(load) => !self.reorder.is_oldest(load),
            Wait::Load(line) => !self.reorder.waits_for(line),
            Wait::LoadsDone => self.reorder.is_empty(),
            Wait::StoreRoom => self.stores.len() < self.store_limit,
            Wait::StoresDone => self.stores.is_empty(),
            Wait::StoresTo(line) => !self.stores.write(line),
            Wait::WriteRoom => !self.past.lacks_buffer(),
            Wait::WritesDone => self.past.is_answered(),
            Wait::Nothing | Wait::Time | Wait::Polling | Wait::Register | Wait::News | Wait::Ended => false,
        }
    }

    /// Whether its copy of a line is good enough for what would be asked.
    pub(crate) fn has_for(&self, line: u32, ask: Ask) -> bool {
        let held = self.caches.peek(line).map_or(Copy::Invalid, |place| self.caches.held(place).copy);
        if ask == Ask::Read { held != Copy::Invalid } else { held >= Copy::Exclusive }
    }

    /// Whether a line fill buffer waits for a line.
    #[inline(always)]
    pub(crate) fn is_on_its_way(&self, line: u32) -> bool {
        self.fills.wait_for(line)
    }

    /// Whether a line fill buffer is left for a store.
    pub(crate) fn may_ask_for_store(&self) -> bool {
        !self.fills.are_full() && !self.store_fills.are_full()
    }

    /// Whether nothing of it is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.fills.is_empty()
            && self.reorder.is_empty()
            && self.stores.is_empty()
            && self.prefetches.is_empty()
            && self.messages.is_empty()
    }

    /// Notes an access for the round of polling.
    #[inline(always)]
    pub(crate) fn note_read(&mut self, line: u32) {
        let round = &mut self.spinning.present;
        round.reads = round.reads.rotate_left(13) ^ u64::from(line).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        round.count += 1;
        self.operations += 1;
    }

    /// Notes that the present round did more than hit.
    #[inline(always)]
    pub(crate) fn not_pure(&mut self) {
        self.spinning.pure = false;
    }
}
