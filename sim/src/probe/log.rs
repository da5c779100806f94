//! A recording while it is written down, whichever machine writes: it has room for so many records.

use std::collections::BTreeMap;

use conic_fabric::{Layout, Time};

use super::{Cause, MessageRecord, OwnershipRecord, PlaceName, Recording, SpanRecord};

/// A message's name, its line and its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) line: u64,
    pub(crate) from: PlaceName,
    pub(crate) to: PlaceName,
    /// As [`MessageRecord::asks`] has it.
    pub(crate) asks: bool,
}

/// A recording that grows as far as its limit.
#[derive(Debug)]
pub(crate) struct Log {
    recording: Recording,
    /// Messages, spans and changes of owners together, at most.
    limit: usize,
    /// The states that were written down last, by place and line, where they are compared.
    states: BTreeMap<(PlaceName, u64), char>,
    /// The last request of a place for a line, where somebody may wait for that.
    requests: BTreeMap<(PlaceName, u64), Cause>,
}

impl Log {
    /// One with nothing in it but the names of places and segments.
    pub(crate) fn new(places: Vec<String>, segments: Vec<(u64, String)>, limit: usize) -> Log {
        let recording = Recording { places, segments, ..Recording::default() };
        Log { recording, limit, states: BTreeMap::new(), requests: BTreeMap::new() }
    }

    /// Whether there is room for one more record; one that finds none is counted.
    fn has_room(&mut self) -> bool {
        let recording = &mut self.recording;
        let records = recording.messages.len() + recording.spans.len() + recording.ownership.len();
        recording.dropped += u64::from(records >= self.limit);
        records < self.limit
    }

    /// Writes a message down, and gives what those name that it causes; none where there is no room.
    pub(crate) fn message(&mut self, record: MessageRecord) -> Option<Cause> {
        if !self.has_room() {
            return None;
        }
        self.recording.messages.push(record);
        self.last()
    }

    /// Writes a message down by its way and its times, in picoseconds; one that asks is what its place waits for.
    pub(crate) fn write(&mut self, way: Way, sent: u64, arrives: u64, cause: Option<Cause>) -> Option<Cause> {
        let Way { name, line, from, to, asks } = way;
        let [sent, arrives] = [sent, arrives].map(Time::from_picoseconds);
        let written = self.message(MessageRecord { name, line, from, to, sent, arrives, cause, asks })?;
        if asks {
            self.requests.insert((from, line), written);
        }
        Some(written)
    }

    /// Writes down that a place waited from `begins` to `ends`, in picoseconds, for something of a line's: with the request that it has
    /// sent for the line meanwhile. A wait that goes on where the last one ended is one with it.
    pub(crate) fn waits(&mut self, place: PlaceName, name: &'static str, line: Option<u64>, begins: u64, ends: u64) {
        let [begins, ends] = [begins, ends].map(Time::from_picoseconds);
        let first = line.and_then(|line| self.requests.get(&(place, line)).copied());
        let first = first.filter(|request| self.of(*request).sent >= begins);
        if let Some(last) = self.recording.spans.last_mut()
            && (last.name, last.place, last.line, last.ends) == (name, place, line, begins)
        {
            last.ends = ends;
            return;
        }
        self.span(SpanRecord { name, place, line, begins, ends, first });
    }

    /// Writes down what a place has of a line from `at` on, in picoseconds, if that is something else than before.
    pub(crate) fn owns(&mut self, place: PlaceName, line: u64, state: char, at: u64) {
        if self.states.insert((place, line), state).unwrap_or('I') != state {
            self.ownership(OwnershipRecord { line, place, state, at: Time::from_picoseconds(at) });
        }
    }

    /// What a place had of a line when that was written down last.
    pub(crate) fn state(&self, place: PlaceName, line: u64) -> char {
        self.states.get(&(place, line)).copied().unwrap_or('I')
    }

    /// Writes down what a program did.
    pub(crate) fn span(&mut self, span: SpanRecord) {
        if self.has_room() {
            self.recording.spans.push(span);
        }
    }

    /// Writes down that a line's state has become another.
    pub(crate) fn ownership(&mut self, change: OwnershipRecord) {
        if self.has_room() {
            self.recording.ownership.push(change);
        }
    }

    /// The message that was written down last.
    pub(crate) fn last(&self) -> Option<Cause> {
        self.recording.messages.len().checked_sub(1).map(|last| Cause(last as u32))
    }

    /// A message that was written down.
    fn of(&self, cause: Cause) -> &MessageRecord {
        &self.recording.messages[cause.0 as usize]
    }

    /// When a message that was written down arrives, in picoseconds.
    pub(crate) fn arrives(&self, cause: Cause) -> u64 {
        self.of(cause).arrives.picoseconds()
    }

    /// A message arrives at another time than was written down.
    pub(crate) fn put_off(&mut self, cause: Cause, arrives: Time) {
        self.recording.messages[cause.0 as usize].arrives = arrives;
    }

    /// The recording.
    pub(crate) fn into_recording(self) -> Recording {
        self.recording
    }
}

/// The first line that begins in each segment, and the segment's name. A line that several segments share is the first one's.
pub(crate) fn segments_of(layout: &Layout, line_bytes: u64) -> Vec<(u64, String)> {
    let firsts = layout.segments().iter().map(|one| (one.start.0.div_ceil(line_bytes), one));
    let begins = firsts.filter(|(first, one)| first * line_bytes < one.start.0 + one.bytes);
    begins.map(|(first, one)| (first, one.name.clone())).collect()
}
