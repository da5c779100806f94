//! Pushed packets that are taken out of the host's cache again after a while (section 5.3).

use std::collections::BTreeMap;

use conic_fabric::{Address, Device, StateHint, Time};

/// Packets that were pushed and are not written back yet: at most one a buffer.
#[derive(Debug, Default)]
pub(super) struct WriteBack {
    /// By when they are due: what the host sets holds for later pushes, which may be due before earlier ones.
    due: BTreeMap<(Time, Address), Vec<u8>>,
    when: BTreeMap<Address, Time>,
}

impl WriteBack {
    /// A packet was pushed, and is to be written back at a time. One that was pushed to the same place before is not written any
    /// more: the place has a new owner.
    pub(super) fn pushed(&mut self, at: Address, bytes: Vec<u8>, due: Time) {
        self.forget(at);
        self.when.insert(at, due);
        self.due.insert((due, at), bytes);
    }

    /// A packet was written to a place and is not to be written back: what was pushed there before is not written any more.
    pub(super) fn forget(&mut self, at: Address) {
        if let Some(due) = self.when.remove(&at) {
            self.due.remove(&(due, at));
        }
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.due.first_key_value().map(|((due, _), _)| *due)
    }

    /// Writes what is due; how many packets that were.
    pub(super) fn perform<D: Device>(&mut self, device: &D) -> u64 {
        let mut written = 0;
        while let Some(entry) = self.due.first_entry()
            && entry.key().0 <= device.now()
        {
            let ((_, at), bytes) = entry.remove_entry();
            self.when.remove(&at);
            device.write(at, &bytes, StateHint::NonCacheable);
            written += 1;
        }
        written
    }
}
