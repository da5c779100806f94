//! A recording while it is written down, whichever machine writes: it has room for so many records.

use conic_fabric::Time;

use super::{Cause, MessageRecord, OwnershipRecord, Recording, SpanRecord};

/// A recording that grows as far as its limit.
#[derive(Debug)]
pub(crate) struct Log {
    recording: Recording,
    /// Messages, spans and changes of owners together, at most.
    limit: usize,
}

impl Log {
    /// One with nothing in it but the names of places and segments.
    pub(crate) fn new(places: Vec<String>, segments: Vec<(u64, String)>, limit: usize) -> Log {
        Log { recording: Recording { places, segments, ..Recording::default() }, limit }
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
    pub(crate) fn of(&self, cause: Cause) -> &MessageRecord {
        &self.recording.messages[cause.0 as usize]
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
