//! Writes down what happens on this machine, where somebody wants to see it.
//!
//! | place | sends and receives | does |
//! |---|---|---|
//! | a core | accesses that miss the second level, and what comes back for them; those that hit leave no message | waits |
//! | `L2` | what crosses the link | - |
//! | `directory` | the same, and what passes it to the device's logic or from there | - |
//! | `device` | what has passed | lets a request wait: from when it is there until it is answered |
//!
//! A line is owned by `L2` in the state of its copy there, and by `device` in the state that the directory's entry leaves it: `E` what no
//! cache has, `S` what was granted to read, nothing what was granted to write, `L` what was recalled and is locked until the device
//! has taken it. What is on its way has no owner.
//!
//! A message is caused by the one whose arrival had it sent; what the device's program sends, by what the program heard of last.

use std::collections::{BTreeMap, BTreeSet};

use conic_fabric::Time;

use super::machine::{Event, Machine, Message, Waiter, What};
use super::parameters::EciCacheParameters;
use crate::probe::{Cause, Log, PlaceName, Recording, SpanRecord, Way};
use crate::protocol::homed::{Access, Entry, Recall, ToCache, ToHome};

const L2: PlaceName = PlaceName(0);
const DIRECTORY: PlaceName = PlaceName(1);
const DEVICE: PlaceName = PlaceName(2);
/// The first core's place.
const FIRST_CORE: u16 = 3;

/// What is written down, and what is needed to know who caused what. Lines are units of coherence.
#[derive(Debug)]
pub(super) struct Recorder {
    log: Log,
    core_to_l2: u64,
    /// What had a message sent that is on its way, or is to depart, by the message's key; once it has departed, the message itself.
    under_way: BTreeMap<u32, Option<Cause>>,
    /// The message that is being handled.
    present: Option<Cause>,
    /// Accesses that have not been made: who waits, and for which line.
    unanswered: BTreeSet<(Waiter, u32)>,
    /// What has the cache ask for a line.
    asks: BTreeMap<u32, Option<Cause>>,
    /// The last recall of a line that has come to the cache.
    recalls: BTreeMap<u32, Option<Cause>>,
    /// The last request for a line, and the last of what else came of it, that passed the directory.
    requested: BTreeMap<u32, Option<Cause>>,
    told: BTreeMap<u32, Option<Cause>>,
    /// What the device will hear of, by the arrival's number.
    arrivals: BTreeMap<u64, Option<Cause>>,
    /// What the device's program has heard of last.
    heard: Option<Cause>,
    /// What had the device begin to recall a line, and when.
    begun: BTreeMap<u32, (Option<Cause>, u64)>,
    /// Since when the request for a line waits at the device.
    waiting: BTreeMap<u32, u64>,
}

impl Machine {
    /// Writes down what happens from now on, `limit` records at most. Nothing has happened yet, or causes are missing. Costs time
    /// and memory, and changes nothing.
    pub fn record(&mut self, limit: usize) {
        let cores = (0..self.cores.len()).map(|core| format!("core {core}"));
        let places = ["L2", "directory", "device"].map(str::to_owned).into_iter().chain(cores);
        let log = Log::new(places.collect(), self.segments.clone(), limit);
        let mut recorder = Recorder::new(log, &self.parameters.cache);
        for (entry, unit) in self.entries.iter().zip(0..) {
            recorder.log.owns(DEVICE, unit, state_of(entry), self.agenda.now);
        }
        self.recorder = Some(Box::new(recorder));
    }

    /// Ends writing down, and gives what was; none where nobody asked for it.
    pub fn take_recording(&mut self) -> Option<Recording> {
        self.recorder.take().map(|recorder| recorder.log.into_recording())
    }

    /// Writes down that a core's program did something, from one time to another.
    pub fn note_span(&mut self, core: u16, name: &'static str, begins: Time, ends: Time) {
        if let Some(recorder) = &mut self.recorder {
            let place = place_of(core);
            recorder.log.span(SpanRecord { name, place, line: None, begins, ends, first: None });
        }
    }

    /// Writes down that a core has waited for something of a line's, from `begins` until now.
    pub(super) fn note_wait(&mut self, core: u16, name: &'static str, unit: u32, begins: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.log.waits(place_of(core), name, Some(unit.into()), begins, self.agenda.now);
        }
    }

    /// Writes down that the cache's copy of a line is perhaps another.
    pub(super) fn note_copy(&mut self, unit: u32) {
        if let Some(recorder) = &mut self.recorder {
            recorder.log.owns(L2, unit.into(), self.cache[unit as usize].cached.copy.letter(), self.agenda.now);
        }
    }

    /// Writes down that the directory's entry of a line is perhaps another.
    pub(super) fn note_entry(&mut self, unit: u32) {
        if let Some(recorder) = &mut self.recorder {
            recorder.log.owns(DEVICE, unit.into(), state_of(&self.entries[unit as usize]), self.agenda.now);
        }
    }
}

/// The place of a core.
fn place_of(core: u16) -> PlaceName {
    PlaceName(FIRST_CORE + core)
}

/// What the device has of a line.
fn state_of(entry: &Entry) -> char {
    match (entry.recall, entry.granted) {
        (Recall::Locked, _) => 'L',
        (_, None) => 'E',
        (_, Some(false)) => 'S',
        (_, Some(true)) => 'I',
    }
}

impl Recorder {
    fn new(log: Log, cache: &EciCacheParameters) -> Recorder {
        Recorder {
            log,
            core_to_l2: cache.core_to_l2,
            under_way: BTreeMap::new(),
            present: None,
            unanswered: BTreeSet::new(),
            asks: BTreeMap::new(),
            recalls: BTreeMap::new(),
            requested: BTreeMap::new(),
            told: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            heard: None,
            begun: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// An event happens: if it is a message, whatever is sent meanwhile is caused by it.
    pub(super) fn handles(&mut self, event: Event) {
        self.present = match event {
            Event::Arrives(key) | Event::Passed(key) => self.under_way.get(&key).copied().flatten(),
            Event::AnswerRecall(unit) => self.recalls.get(&unit).copied().flatten(),
            Event::Departs(_) | Event::Drain(_) | Event::Prefetch(..) | Event::Watch => None,
        };
    }

    /// What was to happen has happened: what programs do next nobody has caused.
    pub(super) fn programs_go_on(&mut self) {
        self.present = None;
    }

    // ---- the CPU ------------------------------------------------------------------------------------------------

    /// An access at the second level does not hit.
    pub(super) fn misses(&mut self, waiter: Waiter, unit: u32, access: Access, now: u64) {
        let cause = match self.present {
            // An access that has waited for a grant that it cannot use.
            Some(grant) => Some(grant),
            None => {
                let (core, name, _) = names_of(waiter);
                // Whose core does not wait for it, and for which nothing is sent, leaves no trace.
                if access == Access::Waits && matches!(waiter, Waiter::Store(_) | Waiter::Prefetch(_)) {
                    return;
                }
                let way = Way { name, line: unit.into(), from: place_of(core), to: L2, asks: true };
                let cause = self.log.write(way, now.saturating_sub(self.core_to_l2), now, None);
                if cause.is_some() {
                    self.unanswered.insert((waiter, unit));
                }
                cause
            }
        };
        if access != Access::Waits {
            self.asks.insert(unit, cause);
        }
    }

    /// An access that has waited for its line is made; its core knows at `back`. Stores of a core to one line are made together, with
    /// the first of them.
    pub(super) fn is_made(&mut self, waiter: Waiter, unit: u32, now: u64, back: u64) {
        if !self.unanswered.remove(&(waiter, unit)) {
            return;
        }
        let (core, _, name) = names_of(waiter);
        let way = Way { name, line: unit.into(), from: L2, to: place_of(core), asks: false };
        self.log.write(way, now, back, self.present);
    }

    /// A recall has come to the cache.
    pub(super) fn recall_came(&mut self, unit: u32) {
        self.recalls.insert(unit, self.present);
    }

    // ---- the link -----------------------------------------------------------------------------------------------

    /// A message is to depart, caused by what is being handled.
    pub(super) fn is_to_depart(&mut self, key: u32) {
        self.under_way.insert(key, self.present);
    }

    /// A message is to depart, whatever is being handled.
    pub(super) fn has_no_cause(&mut self, key: u32) {
        self.under_way.insert(key, None);
    }

    /// A message is to depart, which asks for a line.
    pub(super) fn asks(&mut self, key: u32, unit: u32) {
        self.under_way.insert(key, self.asks.get(&unit).copied().flatten());
    }

    /// A message is on the link.
    pub(super) fn crosses(&mut self, key: u32, message: &Message, now: u64, arrives: u64) {
        let cause = self.under_way.get(&key).copied().flatten();
        let (from, to) = match message.what {
            What::ToHome(_) => (L2, DIRECTORY),
            What::ToCache(_) => (DIRECTORY, L2),
        };
        let way = Way { name: name_of(message.what), line: message.unit.into(), from, to, asks: false };
        let cause = self.log.write(way, now, arrives, cause);
        self.under_way.insert(key, cause);
    }

    // ---- the device ---------------------------------------------------------------------------------------------

    /// A message of the cache's passes the directory.
    pub(super) fn passes_to_device(&mut self, key: u32, message: &Message, now: u64, passed: u64) {
        let cause = self.under_way.get(&key).copied().flatten();
        let way =
            Way { name: name_of(message.what), line: message.unit.into(), from: DIRECTORY, to: DEVICE, asks: false };
        let cause = self.log.write(way, now, passed, cause);
        self.under_way.insert(key, cause);
    }

    /// It has passed.
    pub(super) fn has_passed(&mut self, unit: u32, told: ToHome) {
        let of = if matches!(told, ToHome::Request { .. }) { &mut self.requested } else { &mut self.told };
        of.insert(unit, self.present);
    }

    /// The device will hear of a line that was given up.
    pub(super) fn gives_up(&mut self, id: u64) {
        self.arrivals.insert(id, self.present);
    }

    /// The device will hear of the request for a line, which waits from now on.
    pub(super) fn requests(&mut self, id: u64, unit: u32, now: u64) {
        self.arrivals.insert(id, self.requested.get(&unit).copied().flatten());
        self.waiting.insert(unit, now);
    }

    /// The device's program hears of one of these.
    pub(super) fn hears(&mut self, id: u64) {
        self.heard = self.arrivals.remove(&id).flatten();
    }

    /// The device's program hears that the recall of a line is done.
    pub(super) fn hears_of_recall(&mut self, unit: u32) {
        self.heard = self.told.get(&unit).copied().flatten();
    }

    /// The device's program begins to recall a line.
    pub(super) fn begins_recall(&mut self, unit: u32, now: u64) {
        self.begun.insert(unit, (self.heard, now));
    }

    /// The recall of a line passes the directory.
    pub(super) fn recall_passes(&mut self, key: u32, recall: ToCache, unit: u32, passed: u64) {
        if let Some((cause, sent)) = self.begun.remove(&unit) {
            self.passes_from_device(key, What::ToCache(recall), unit, (sent, passed), cause);
        }
    }

    /// That a line is back which was written back passes the directory.
    pub(super) fn written_passes(&mut self, key: u32, unit: u32, now: u64, passed: u64) {
        self.passes_from_device(key, What::ToCache(ToCache::Written), unit, (now, passed), self.present);
    }

    /// A message to the cache passes the directory and is then to depart.
    fn passes_from_device(
        &mut self,
        key: u32,
        what: What,
        unit: u32,
        times: (u64, u64),
        cause: Option<Cause>,
    ) -> Option<Cause> {
        let way = Way { name: name_of(what), line: unit.into(), from: DEVICE, to: DIRECTORY, asks: false };
        let cause = self.log.write(way, times.0, times.1, cause);
        self.under_way.insert(key, cause);
        cause
    }

    /// The device's program answers a request, and the answer passes the directory.
    pub(super) fn answers(&mut self, key: u32, answer: ToCache, unit: u32, now: u64, passed: u64) {
        let cause = self.passes_from_device(key, What::ToCache(answer), unit, (now, passed), self.heard);
        if let Some(since) = self.waiting.remove(&unit) {
            let [begins, ends] = [since, now].map(Time::from_picoseconds);
            let (name, line) = ("request waits", Some(unit.into()));
            self.log.span(SpanRecord { name, place: DEVICE, line, begins, ends, first: cause });
        }
    }
}

/// Whose access it is, what it is called, and what comes back.
fn names_of(waiter: Waiter) -> (u16, &'static str, &'static str) {
    match waiter {
        Waiter::Load(core) => (core, "Load", "Data"),
        Waiter::Prefetch(core) => (core, "Prefetch", "Data"),
        Waiter::Store(core) => (core, "Store", "Done"),
        Waiter::Combined(core) => (core, "Atomic", "Done"),
    }
}

/// What a message is called; [`crate::protocol::homed`] has ECI's names beside what they mean.
fn name_of(what: What) -> &'static str {
    match what {
        What::ToHome(ToHome::Request { has_copy: true, .. }) => "Upgrade",
        What::ToHome(ToHome::Request { write: true, .. }) => "ReadExclusive",
        What::ToHome(ToHome::Request { write: false, .. }) => "ReadShared",
        What::ToHome(ToHome::Victim { dirty: true }) => "VictimModified",
        What::ToHome(ToHome::Victim { dirty: false }) => "VictimClean",
        What::ToHome(ToHome::Recalled { dirty: true, .. }) => "RecalledModified",
        What::ToHome(ToHome::Recalled { found: true, .. }) => "RecalledClean",
        What::ToHome(ToHome::Recalled { found: false, .. }) => "RecalledNothing",
        What::ToCache(ToCache::Grant { exclusive: true }) => "GrantExclusive",
        What::ToCache(ToCache::Grant { exclusive: false }) => "GrantShared",
        What::ToCache(ToCache::Recall) => "Recall",
        What::ToCache(ToCache::Written) => "Written",
    }
}

#[cfg(test)]
pub(super) mod tests;
