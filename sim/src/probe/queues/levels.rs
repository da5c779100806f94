//! Levels of the queues over time, for a recording.

use std::collections::BTreeMap;

use super::super::{LevelRecord, QueueName};
use super::{Name, Probed, time};

/// A change of a queue's level, at a time.
#[derive(Clone, Copy, Debug)]
struct Change<Q> {
    queue: Q,
    at: u64,
    by: i64,
}

/// The changes of all queues, not in the order of their times: a core may be simulated ahead, and some exits are known before.
#[derive(Debug)]
pub(super) struct Changes<Q> {
    changes: Vec<Change<Q>>,
    limit: usize,
    /// How many more there would have been.
    dropped: u64,
}

impl<Q: Name> Changes<Q> {
    pub(super) fn new(limit: usize) -> Changes<Q> {
        Changes { changes: Vec::new(), limit, dropped: 0 }
    }

    pub(super) fn note(&mut self, queue: Q, changes: &[(u64, i64)]) {
        if self.changes.len() >= self.limit {
            self.dropped += changes.len() as u64;
            return;
        }
        self.changes.extend(changes.iter().map(|&(at, by)| Change { queue, at, by }));
    }
}

/// What a recording says of queues: their names, their levels in the order of time, and how many changes found no room.
pub(crate) type Levels = (Vec<String>, Vec<LevelRecord>, u64);

/// Ends writing levels down, and gives what was.
pub(super) fn take<M: Probed>(machine: &mut M) -> Levels {
    let taken = machine.probes_mut().as_mut().and_then(|queues| queues.changes.take());
    let Some(Changes { mut changes, dropped, .. }) = taken else { return Levels::default() };
    changes.sort_by_key(|change| change.at);
    let mut levels: BTreeMap<M::Queue, i64> = changes.iter().map(|change| (change.queue, 0)).collect();
    let names = levels.keys().map(|&queue| machine.name_of(queue)).collect();
    let numbers: BTreeMap<M::Queue, u16> = levels.keys().copied().zip(0..).collect();
    let mut records: Vec<LevelRecord> = Vec::new();
    for same in changes.chunk_by(|one, other| one.at == other.at) {
        let mut changed: BTreeMap<M::Queue, i64> = BTreeMap::new();
        for change in same {
            *changed.entry(change.queue).or_default() += change.by;
        }
        for (queue, by) in changed.into_iter().filter(|&(_, by)| by != 0) {
            let level = levels.entry(queue).or_default();
            *level += by;
            let (inside, at) = ((*level).try_into().unwrap_or(0), time(same[0].at));
            records.push(LevelRecord { queue: QueueName(numbers[&queue]), inside, at });
        }
    }
    (names, records, dropped)
}
