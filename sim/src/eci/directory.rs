//! The device's side: its directory controller, and what its logic hears of.

use conic_fabric::{Arrival, Ask, Grant, ReadTag};

use super::machine::{Data, DirectoryWork, Event, Machine, RecallState, Wait, What};
use super::placement;
use super::queues::Queue;
use crate::probe::queues::Probed;
use crate::protocol::homed::{Heard, ToCache, ToHome};

/// From the link to the device's logic, and back.
pub(super) const IN: usize = 0;
pub(super) const OUT: usize = 1;

impl Machine {
    /// When a message that enters a slice now has passed it.
    fn pass(&mut self, unit: u32, direction: usize, carries_line: bool) -> u64 {
        let p = &self.parameters.directory;
        let slice = placement::slice_of(p, unit.into());
        let (takes, passes) = (if carries_line { p.line_time } else { p.header_time }, p.pass);
        let state = &mut self.slices[slice][direction];
        let begins = state.until.max(self.agenda.now);
        (state.until, state.messages, state.busy) = (begins + takes, state.messages + 1, state.busy + takes);
        self.serves(Queue::Slice(slice as u8, direction as u8), self.agenda.now, begins + takes);
        begins + passes
    }

    /// A message has come over the link. A request waits here for a slot; what ends a transaction does not.
    pub(super) fn arrived_at_directory(&mut self, key: u32) {
        let message = self.messages[key as usize];
        if let What::ToHome(ToHome::Request { .. }) = message.what {
            let at = self.directory_unit_of(message.unit);
            self.ask_directory_unit(at, DirectoryWork::Request(key));
        } else {
            self.passes(key);
        }
    }

    /// A message of the cache's passes the controller.
    fn passes(&mut self, key: u32) {
        let message = self.messages[key as usize];
        let passed = self.pass(message.unit, IN, message.data.is_some());
        if let Some(recorder) = &mut self.recorder {
            recorder.passes_to_device(key, &message, self.agenda.now, passed);
        }
        self.agenda.at(passed, Event::Passed(key));
    }

    fn begin_directory_work(&mut self, work: DirectoryWork) {
        match work {
            DirectoryWork::Request(key) => self.passes(key),
            DirectoryWork::Recall(unit) => {
                let recall = self.entries[unit as usize].recall();
                let passed = self.pass(unit, OUT, false);
                let key = self.send_at(passed, unit, What::ToCache(recall), None);
                if let Some(recorder) = &mut self.recorder {
                    recorder.recall_passes(key, recall, unit, passed);
                }
            }
        }
    }

    /// Begins a transaction, or lets it wait for its unit.
    fn ask_directory_unit(&mut self, at: usize, work: DirectoryWork) {
        let (line, began) = (self.line_of(&work), self.directory_units.begin(at, work));
        let place = at as u16;
        let queue = if began.is_some() { Queue::DirectoryUnit(place) } else { Queue::DirectoryUnitWaits(place) };
        self.enters(queue, line, self.agenda.now);
        if let Some(work) = began {
            self.begin_directory_work(work);
        }
    }

    /// The line of a transaction.
    fn line_of(&self, work: &DirectoryWork) -> u32 {
        match work {
            DirectoryWork::Request(key) => self.messages[*key as usize].unit,
            DirectoryWork::Recall(unit) => *unit,
        }
    }

    fn end_directory_work(&mut self, unit: u32) {
        let (at, now) = (self.directory_unit_of(unit), self.agenda.now);
        let Some(next) = self.directory_units.end(at) else {
            return self.leaves(Queue::DirectoryUnit(at as u16), unit, now);
        };
        let line = self.line_of(&next);
        self.leaves(Queue::DirectoryUnitWaits(at as u16), line, now);
        self.hands_over(Queue::DirectoryUnit(at as u16), unit, line);
        self.begin_directory_work(next);
    }

    /// A message reaches the line's entry.
    pub(super) fn passed(&mut self, key: u32) {
        let message = self.messages.remove(key as usize);
        let What::ToHome(told) = message.what else { unreachable!("messages to the cache go there") };
        if let Some(data) = message.data {
            self.own[message.unit as usize] = data;
        }
        if self.parameters.cache.writes_back_first && matches!(told, ToHome::Victim { dirty: true }) {
            let passed = self.pass(message.unit, OUT, false);
            let written = self.send_at(passed, message.unit, What::ToCache(ToCache::Written), None);
            if let Some(recorder) = &mut self.recorder {
                recorder.written_passes(written, message.unit, self.agenda.now, passed);
            }
        }
        let heard = self.entries[message.unit as usize].handle(told);
        let heard = heard.unwrap_or_else(|unexpected| panic!("the cache broke the protocol: {unexpected}"));
        if let Some(recorder) = &mut self.recorder {
            recorder.has_passed(message.unit, told);
        }
        self.note_entry(message.unit);
        self.hears(message.unit, heard, message.data.is_some());
    }

    fn hears(&mut self, unit: u32, heard: Heard, changed: bool) {
        if heard.evicted {
            self.arrive(unit, Ask::Evicted { changed });
        }
        if heard.recalled || (heard.evicted && changed) {
            let tag = self.recall_of.get(&unit).copied();
            if let Some(state) = tag.and_then(|tag| self.recalls.get_mut(&tag)) {
                state.changed |= changed;
                state.done |= heard.recalled;
            }
            self.tell_device();
        }
        self.requested(unit, heard.request);
    }

    fn requested(&mut self, unit: u32, request: Option<bool>) {
        if let Some(write) = request {
            self.arrive(unit, if write { Ask::Exclusive } else { Ask::Shared });
        }
    }

    fn arrive(&mut self, unit: u32, ask: Ask) {
        let id = self.next_id;
        self.next_id += 1;
        let line = self.address_of(unit);
        if let Some(recorder) = &mut self.recorder {
            match ask {
                Ask::Evicted { .. } => recorder.gives_up(id),
                Ask::Shared | Ask::Exclusive => recorder.requests(id, unit, self.agenda.now),
            }
        }
        self.arrivals.push_back(Arrival { line, ask, id });
        self.enters(Queue::Arrivals, id as u32, self.agenda.now);
        self.tell_device();
    }

    fn tell_device(&mut self) {
        self.news = true;
        if let Some(agent) = self.device
            && self.agenda.wait_of(agent) == Wait::Message
        {
            self.agenda.resume_at(agent, self.agenda.now);
        }
    }

    /// The device answers a request.
    pub(super) fn answer(&mut self, unit: u32, grant: Grant) {
        let entry = &mut self.entries[unit as usize];
        let write = entry.open.unwrap_or_else(|| panic!("nobody waits for an answer to line {unit}"));
        assert!(!write || grant == Grant::Exclusive, "a store needs line {unit} Exclusive");
        let answer = entry.answer(grant == Grant::Exclusive);
        let data: Data = self.own[unit as usize];
        let passed = self.pass(unit, OUT, true);
        let key = self.send_at(passed, unit, What::ToCache(answer), Some(data));
        if let Some(recorder) = &mut self.recorder {
            recorder.answers(key, answer, unit, self.agenda.now, passed);
        }
        self.note_entry(unit);
        self.end_directory_work(unit);
    }

    /// The device begins to recall a line.
    pub(super) fn start_recall(&mut self, unit: u32) -> ReadTag {
        let tag = self.next_id;
        self.next_id += 1;
        let before = self.recall_of.insert(unit, tag);
        assert!(before.is_none(), "line {unit} is being recalled already");
        self.recalls.insert(tag, RecallState { unit, ..RecallState::default() });
        self.enters(Queue::Recalls, tag as u32, self.agenda.now);
        if let Some(recorder) = &mut self.recorder {
            recorder.begins_recall(unit, self.agenda.now);
        }
        let at = self.directory_unit_of(unit);
        self.ask_directory_unit(at, DirectoryWork::Recall(unit));
        ReadTag(tag)
    }

    /// The device takes the end of a recall, which is done, and unlocks the line; whether the cache had changed it.
    pub(super) fn finish_recall(&mut self, tag: u64) -> bool {
        let state = self.recalls.remove(&tag).unwrap_or_else(|| panic!("recall {tag} is not in flight"));
        let unit = state.unit;
        self.recall_of.remove(&unit);
        self.leaves(Queue::Recalls, tag as u32, self.agenda.now);
        let request = self.entries[unit as usize].unlock();
        if let Some(recorder) = &mut self.recorder {
            recorder.hears_of_recall(unit);
        }
        self.note_entry(unit);
        self.requested(unit, request);
        self.end_directory_work(unit);
        state.changed
    }
}
