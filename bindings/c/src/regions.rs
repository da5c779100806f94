//! Regions of daemons that are gone, in which the program still holds buffers.

use std::sync::{Mutex, MutexGuard, PoisonError};

use conic_client::SharedMemory;

/// The regions that queues of one client have left. Each stays mapped until its last buffer was freed or sent.
#[derive(Debug, Default)]
pub(crate) struct Regions(Mutex<Vec<Record>>);

#[derive(Debug)]
struct Record {
    /// The region whole, with its bells: by their end the daemon knows that the program has let go of it.
    memory: SharedMemory,
    /// Queues that work in it.
    users: usize,
    /// Buffers of it that the program holds, as far as queues that have left know: one queue's program may free what
    /// another's had received, so that only the sum says something.
    lent: i64,
}

impl Record {
    fn contains(&self, at: usize, bytes: u64) -> bool {
        let (base, size) = self.memory.place();
        let offset = (at as u64).wrapping_sub(base as u64);
        offset < size && bytes <= size - offset
    }
}

impl Regions {
    fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue begins to work in a region.
    pub(crate) fn enter(&self, memory: &SharedMemory) {
        let mut records = self.records();
        match records.iter_mut().find(|record| record.memory.is_same(memory)) {
            Some(record) => record.users += 1,
            None => records.push(Record { memory: memory.clone(), users: 1, lent: 0 }),
        }
    }

    /// A queue leaves a region, having lent `lent` more buffers to the program than it got back.
    pub(crate) fn leave(&self, memory: &SharedMemory, lent: i64) {
        self.change(
            |record| record.memory.is_same(memory),
            |record| {
                record.users -= 1;
                record.lent += lent;
            },
        );
    }

    /// The program gives a buffer back that lies in a region which some queue has left; false if it lies in none.
    pub(crate) fn give_back(&self, at: usize) -> bool {
        self.change(|record| record.contains(at, 1), |record| record.lent -= 1)
    }

    /// Whether so many bytes lie in one of the regions.
    pub(crate) fn contain(&self, at: usize, bytes: u64) -> bool {
        self.records().iter().any(|record| record.contains(at, bytes))
    }

    fn change(&self, which: impl Fn(&Record) -> bool, change: impl FnOnce(&mut Record)) -> bool {
        let mut records = self.records();
        let Some(found) = records.iter().position(which) else { return false };
        let record = &mut records[found];
        change(record);
        if record.users == 0 && record.lent <= 0 {
            records.swap_remove(found);
        }
        true
    }
}
