//! The machine's state, and its events in order.

use std::collections::{BTreeMap, VecDeque};

use conic_fabric::{Address, Arrival, Home, Layout, MemoryType};
use slab::Slab;

use super::core_state::CoreState;
use super::parameters::EciParameters;
use super::placement;
use super::queues::Queue;
use super::recorder::Recorder;
use super::units::Units;
use crate::agenda::{Agenda, HasAgenda};
use crate::draws::Draws;
use crate::link::{Direction, mix};
use crate::parameters::TimerParameters;
use crate::probe::counters::{LinkCounters, MessageCounts};
use crate::probe::queues::Queues;
use crate::probe::segments_of;
use crate::protocol::homed::{Cached, Entry, ToCache, ToHome};
use crate::simulation::Failure;

/// Bytes of the longest line.
pub const MOST_LINE_BYTES: u64 = 128;
/// 64-bit words of one.
pub(super) const MOST_WORDS: usize = 16;

/// A line's contents; a shorter line's are the first of them.
pub(super) type Data = [u64; MOST_WORDS];

/// What a run does besides what its programs ask for, from a seed: what a correct program must bear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disturbances {
    /// The seed.
    pub seed: u64,
    /// How often, in thousandths, the cache gives up a line of its own accord at an access or a message.
    pub evictions_permille: u32,
    /// How often, in thousandths, a prefetch is dropped.
    pub dropped_prefetches_permille: u32,
    /// By how much at most a prefetch is late, in picoseconds.
    pub prefetch_delay: u64,
    /// By how much at most a message is late, in picoseconds: so they overtake each other.
    pub message_delay: u64,
}

/// What an agent waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A point in time.
    Time,
    /// A line that it loads, or changes atomically.
    Line(u64),
    /// Its stores.
    Stores,
    /// One of its prefetches.
    Prefetch,
    /// A message, or a recall that is done.
    Message,
    /// The next run: its program has asked for a pause.
    Outside,
    /// Nothing: its program has ended.
    Ended,
}

/// A message's contents.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    ToHome(ToHome),
    ToCache(ToCache),
}

/// A message on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) unit: u32,
    pub(super) what: What,
    /// The line, where the message carries it.
    pub(super) data: Option<Data>,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A message is ready for its link.
    Departs(u32),
    Arrives(u32),
    /// The directory has passed a message on to the device's side, or the device's message on to the link.
    Passed(u32),
    Drain(u16),
    Prefetch(u16, u32),
    AnswerRecall(u32),
    /// The oldest request may have waited too long.
    Watch,
}

/// A transaction that waits for a slot of the CPU's cache.
#[derive(Clone, Copy, Debug)]
pub(super) enum CacheWork {
    Request(u32, ToHome),
    Recall(u32),
}

/// A transaction that waits for a slot of the directory.
#[derive(Clone, Copy, Debug)]
pub(super) enum DirectoryWork {
    Request(u32),
    Recall(u32),
}

/// A recall of the device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecallState {
    pub(super) unit: u32,
    pub(super) changed: bool,
    pub(super) done: bool,
}

/// What crossed the links, by message, and what the caches did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages by kind, in the terms of [`crate::protocol::homed`]: `request`, `upgrade`, `victim`, `victim with data`,
    /// `recalled`, `recalled with data`, `grant`, `recall`, and `written` where the home says that it has what was written back.
    pub messages: MessageCounts,
    /// Loads that hit a first-level cache.
    pub l1_hits: u64,
    /// Loads that found their line in the second level.
    pub l2_hits: u64,
    /// Lines that the cache gave up of its own accord.
    pub evictions: u64,
}

impl Counters {
    /// What was counted since an earlier state.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            messages: self.messages.since(&earlier.messages),
            l1_hits: self.l1_hits - earlier.l1_hits,
            l2_hits: self.l2_hits - earlier.l2_hits,
            evictions: self.evictions - earlier.evictions,
        }
    }
}

/// Who waits for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waiter {
    Load(u16),
    Prefetch(u16),
    Store(u16),
    Combined(u16),
}

/// A line in the CPU's second-level cache.
#[derive(Clone, Debug)]
pub(super) struct CacheUnit {
    pub(super) cached: Cached,
    pub(super) data: Data,
    pub(super) waiters: Vec<Waiter>,
    /// When it was asked for.
    pub(super) asked: u64,
    /// A recall holds a transaction slot.
    pub(super) recall_holds: bool,
}

/// A direction of a slice of the directory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slice {
    /// Until when it is occupied.
    pub(super) until: u64,
    /// Messages that have passed it, and for how long they have occupied it.
    pub(super) messages: u64,
    pub(super) busy: u64,
}

/// A CPU and a device, and everything between them.
pub struct Machine {
    pub(super) parameters: EciParameters,
    pub(super) disturbances: Disturbances,
    pub(super) draws: Draws,
    pub(super) agenda: Agenda<Wait, Event>,
    pub(super) cores: Vec<CoreState>,
    pub(super) timer: Option<TimerParameters>,
    pub(super) cache: Vec<CacheUnit>,
    pub(super) cache_units: Units<CacheWork>,
    pub(super) messages: Slab<Message>,
    pub(super) to_home: Direction,
    pub(super) to_cache: Direction,
    pub(super) entries: Vec<Entry>,
    /// The device's copies.
    pub(super) own: Vec<Data>,
    pub(super) directory_units: Units<DirectoryWork>,
    /// Each slice, for messages to the device, and from it.
    pub(super) slices: [[Slice; 2]; 2],
    pub(super) arrivals: VecDeque<Arrival>,
    pub(super) recalls: BTreeMap<u64, RecallState>,
    /// The recall of each line.
    pub(super) recall_of: BTreeMap<u32, u64>,
    pub(super) next_id: u64,
    /// The device's agent, and whether it has not heard of something.
    pub(super) device: Option<usize>,
    pub(super) news: bool,
    pub(super) watching: bool,
    /// A program has asked that the run be interrupted.
    pub(super) pause: bool,
    pub(super) fault: Option<Failure>,
    /// The region's segments: the first line that begins in each, and its name.
    pub(super) segments: Vec<(u64, String)>,
    /// Writes down what happens, where somebody wants to see it.
    pub(super) recorder: Option<Box<Recorder>>,
    /// The probes of the queues, where somebody wants to see them.
    pub(super) queues: Option<Box<Queues<Queue>>>,
    /// What has been counted.
    pub counters: Counters,
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
        if let Some(recorder) = &mut self.recorder {
            recorder.handles(event);
        }
        match event {
            Event::Departs(message) => self.departs(message),
            Event::Arrives(message) => self.arrives(message),
            Event::Passed(message) => self.passed(message),
            Event::Drain(core) => self.drain(core),
            Event::Prefetch(core, unit) => self.prefetch_arrived(core, unit),
            Event::AnswerRecall(unit) => self.answer_recall(unit),
            Event::Watch => self.watch(),
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.programs_go_on();
        }
    }
    fn take_pause(&mut self) -> bool {
        std::mem::take(&mut self.pause)
    }
    fn fault(&self) -> Option<Failure> {
        self.fault.clone()
    }
    fn stuck(&self) -> Vec<String> {
        Machine::stuck(self)
    }
}

impl Machine {
    pub(super) fn new(parameters: &EciParameters, layout: &Layout, disturbances: Disturbances) -> Machine {
        for segment in layout.segments() {
            let homed = segment.home == Home::Nic && segment.memory == MemoryType::WriteBack;
            assert!(
                homed,
                "{}: this machine models coherent lines whose home is the device, and no others",
                segment.name
            );
        }
        let p = parameters;
        let units = layout.bytes().div_ceil(p.cache.line_bytes) as usize;
        assert!(units < u32::MAX as usize, "a region of {units} lines is too large");
        let empty = CacheUnit {
            cached: Cached::default(),
            data: [0; MOST_WORDS],
            waiters: Vec::new(),
            asked: 0,
            recall_holds: false,
        };
        Machine {
            parameters: p.clone(),
            disturbances,
            draws: Draws::new(mix(disturbances.seed ^ 0x5851_f42d_4c95_7f2d)),
            agenda: Agenda::new(),
            cores: Vec::new(),
            timer: None,
            cache: vec![empty; units],
            cache_units: Units::new(p.cache.transaction_units as usize, p.cache.unit_transactions),
            messages: Slab::new(),
            to_home: Direction::new(&p.link.wires()),
            to_cache: Direction::new(&p.link.wires()),
            entries: vec![Entry::default(); units],
            own: vec![[0; MOST_WORDS]; units],
            directory_units: Units::new((p.directory.slices * p.directory.units) as usize, p.directory.transactions),
            slices: Default::default(),
            arrivals: VecDeque::new(),
            recalls: BTreeMap::new(),
            recall_of: BTreeMap::new(),
            next_id: 0,
            device: None,
            news: false,
            watching: false,
            pause: false,
            fault: None,
            segments: segments_of(layout, p.cache.line_bytes),
            recorder: None,
            queues: None,
            counters: Counters::default(),
        }
    }

    /// The time.
    pub fn now(&self) -> u64 {
        self.agenda.now
    }

    /// How long the timer interrupts that have come by now take a core before its next step.
    pub(super) fn interrupted(&self, core: usize) -> u64 {
        let (ticks, now) = (&self.cores[core].ticks, self.agenda.now);
        std::iter::from_fn(|| ticks.take(now)).map(|(_, span)| span).sum()
    }

    /// What it is made of.
    pub fn parameters(&self) -> &EciParameters {
        &self.parameters
    }

    /// What the links carried: to the home, and to the cache.
    pub fn link_counters(&self) -> [LinkCounters; 2] {
        [self.to_home.counters(), self.to_cache.counters()]
    }

    /// Whether something that happens so often happens now. Draws nothing where it never does.
    pub(super) fn happens(&mut self, permille: u32) -> bool {
        permille > 0 && self.draws.below(1000) < u64::from(permille)
    }

    /// Puts a message on its way at a time, and gives its key.
    pub(super) fn send_at(&mut self, time: u64, unit: u32, what: What, data: Option<Data>) -> u32 {
        let key = self.messages.insert(Message { unit, what, data }) as u32;
        if let Some(recorder) = &mut self.recorder {
            recorder.is_to_depart(key);
        }
        self.agenda.at(time, Event::Departs(key));
        key
    }

    fn departs(&mut self, key: u32) {
        let message = self.messages[key as usize];
        let kind = kind_of(&message);
        self.counters.messages.count(kind);
        let link = match message.what {
            What::ToHome(_) => &mut self.to_home,
            What::ToCache(_) => &mut self.to_cache,
        };
        let line = u64::from(message.unit);
        let there = match message.data {
            Some(_) => link.send_data(line, self.agenda.now),
            None => link.send_header(line, self.agenda.now),
        };
        self.takes_link(&message.what, message.unit, there);
        let late =
            if self.disturbances.message_delay > 0 { self.draws.below(self.disturbances.message_delay) } else { 0 };
        if let Some(recorder) = &mut self.recorder {
            recorder.crosses(key, &message, self.agenda.now, there + late);
        }
        self.agenda.at(there + late, Event::Arrives(key));
    }

    fn arrives(&mut self, key: u32) {
        let message = self.messages[key as usize];
        match message.what {
            What::ToCache(_) => {
                self.messages.remove(key as usize);
                self.arrived_at_cache(message);
            }
            What::ToHome(_) => self.arrived_at_directory(key),
        }
    }

    pub(super) fn address_of(&self, unit: u32) -> Address {
        Address(u64::from(unit) * self.parameters.cache.line_bytes)
    }

    pub(super) fn transaction_unit_of(&self, unit: u32) -> usize {
        placement::transaction_unit_of(&self.parameters.cache, unit.into())
    }

    pub(super) fn directory_unit_of(&self, unit: u32) -> usize {
        placement::directory_unit_of(&self.parameters.directory, unit.into())
    }

    /// Says whose wait has no end: the transactions that wait for a slot, with their units.
    pub(super) fn stuck(&self) -> Vec<String> {
        let address = |unit: u32| self.address_of(unit);
        let cache = self.cache_units.waiting().map(|(at, work)| match work {
            CacheWork::Request(unit, _) => {
                format!("the request for the line at {} for transaction unit {at}", address(*unit))
            }
            CacheWork::Recall(unit) => {
                format!("the recall of the line at {} for transaction unit {at}", address(*unit))
            }
        });
        let directory = self.directory_units.waiting().map(|(at, work)| match work {
            DirectoryWork::Request(key) => {
                let unit = self.messages[*key as usize].unit;
                format!("the request for the line at {} for directory unit {at}", address(unit))
            }
            DirectoryWork::Recall(unit) => {
                format!("the recall of the line at {} for directory unit {at}", address(*unit))
            }
        });
        cache.chain(directory).collect()
    }

    /// Begins to look after requests that wait too long.
    pub(super) fn begin_watch(&mut self) {
        if !std::mem::replace(&mut self.watching, true) {
            self.agenda.at(self.agenda.now + self.parameters.cache.patience, Event::Watch);
        }
    }

    fn watch(&mut self) {
        let asked = self.cache.iter().zip(0_u32..).filter(|(unit, _)| unit.cached.asked.is_some());
        let Some((asked, unit)) = asked.map(|(unit, number)| (unit.asked, number)).min() else {
            self.watching = false;
            return;
        };
        let deadline = asked + self.parameters.cache.patience;
        if self.agenda.now < deadline {
            return self.agenda.at(deadline, Event::Watch);
        }
        let stuck = self.stuck();
        self.fault = Some(if stuck.is_empty() {
            Failure::NoAnswer {
                line: self.address_of(unit),
                waited: conic_fabric::Time::from_picoseconds(self.agenda.now - asked),
            }
        } else {
            Failure::Deadlock(stuck)
        });
    }
}

fn kind_of(message: &Message) -> &'static str {
    match (message.what, message.data.is_some()) {
        (What::ToHome(ToHome::Request { has_copy: false, .. }), _) => "request",
        (What::ToHome(ToHome::Request { has_copy: true, .. }), _) => "upgrade",
        (What::ToHome(ToHome::Victim { .. }), false) => "victim",
        (What::ToHome(ToHome::Victim { .. }), true) => "victim with data",
        (What::ToHome(ToHome::Recalled { .. }), false) => "recalled",
        (What::ToHome(ToHome::Recalled { .. }), true) => "recalled with data",
        (What::ToCache(ToCache::Written), _) => "written",
        (What::ToCache(ToCache::Grant { .. }), _) => "grant",
        (What::ToCache(ToCache::Recall), _) => "recall",
    }
}
