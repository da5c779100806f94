//! Levels of the queues over time, for a recording.

use std::collections::BTreeMap;

use conic_fabric::Time;

use crate::machine::Machine;
use crate::probe::{LevelRecord, QueueName};

use super::Queue;

/// A change of a queue's level, at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub queue: Queue,
    pub at: u64,
    pub by: i64,
}

/// The changes of all queues, not in the order of their times: a core is simulated ahead, and some exits are known before.
#[derive(Debug)]
pub(super) struct Changes {
    changes: Vec<Change>,
    limit: usize,
    /// How many more there would have been.
    dropped: u64,
}

impl Changes {
    pub fn note(&mut self, queue: Queue, changes: &[(u64, i64)]) {
        if self.changes.len() >= self.limit {
            self.dropped += changes.len() as u64;
            return;
        }
        self.changes.extend(changes.iter().map(|&(at, by)| Change { queue, at, by }));
    }
}

/// What a recording says of queues: their names, their levels in the order of time, and how many changes found no room.
pub(crate) type Levels = (Vec<String>, Vec<LevelRecord>, u64);

impl Machine {
    /// Writes down every change of a queue's level from now on, about `limit` at most. Where the queues have no probes yet, they
    /// have from now on; that is for a machine on which nothing has happened.
    pub(crate) fn log_queues(&mut self, limit: usize) {
        let queues = self.queues.get_or_insert_default();
        queues.changes = Some(Changes { changes: Vec::new(), limit, dropped: 0 });
    }

    /// Ends writing them down, and gives what was.
    pub(crate) fn take_levels(&mut self) -> Levels {
        let taken = self.queues.as_mut().and_then(|queues| queues.changes.take());
        let Some(Changes { mut changes, dropped, .. }) = taken else { return Levels::default() };
        changes.sort_by_key(|change| change.at);
        let mut levels: BTreeMap<Queue, i64> = changes.iter().map(|change| (change.queue, 0)).collect();
        let names = levels.keys().map(|&queue| self.name_of(queue)).collect();
        let numbers: BTreeMap<Queue, u16> = levels.keys().copied().zip(0..).collect();
        let mut records: Vec<LevelRecord> = Vec::new();
        for same in changes.chunk_by(|one, other| one.at == other.at) {
            let mut changed: BTreeMap<Queue, i64> = BTreeMap::new();
            for change in same {
                *changed.entry(change.queue).or_default() += change.by;
            }
            for (queue, by) in changed.into_iter().filter(|&(_, by)| by != 0) {
                let level = levels.entry(queue).or_default();
                *level += by;
                let (inside, at) = ((*level).try_into().unwrap_or(0), Time::from_picoseconds(same[0].at));
                records.push(LevelRecord { queue: QueueName(numbers[&queue]), inside, at });
            }
        }
        (names, records, dropped)
    }
}
