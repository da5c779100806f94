//! Pushed packets that are taken out of the host's cache again after a while (section 5.3).

use std::collections::VecDeque;

use conic_fabric::{Address, Device, StateHint, Time};

/// Packets that were pushed, oldest first.
#[derive(Debug)]
pub(super) struct WriteBack {
    after: Time,
    pushed: VecDeque<(Time, Address, Vec<u8>)>,
}

impl WriteBack {
    /// Each is written so long after its push.
    pub(super) fn new(after: Time) -> WriteBack {
        WriteBack { after, pushed: VecDeque::new() }
    }

    /// A packet was pushed. One that was pushed to the same place before is not written any more: the place has a new owner.
    pub(super) fn pushed(&mut self, at: Address, bytes: Vec<u8>, now: Time) {
        self.forget(at);
        self.pushed.push_back((now + self.after, at, bytes));
    }

    /// A packet was written to a place and not pushed: what was pushed there before is not written any more.
    pub(super) fn forget(&mut self, at: Address) {
        self.pushed.retain(|(_, other, _)| *other != at);
    }

    /// Writes what is due.
    pub(super) fn perform<D: Device>(&mut self, device: &D) {
        while let Some((due, ..)) = self.pushed.front()
            && *due <= device.now()
        {
            let Some((_, at, bytes)) = self.pushed.pop_front() else { return };
            device.write(at, &bytes, StateHint::NonCacheable);
        }
    }
}
