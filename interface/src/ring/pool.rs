//! The host's free buffers.

/// A last-in, first-out list of the addresses of free buffers, private to the host.
#[derive(Debug)]
pub(super) struct Pool {
    free: Box<[u64]>,
    count: usize,
}

impl Pool {
    /// A pool that holds every buffer.
    pub(super) fn full(start: u64, buffers: u64, buffer_bytes: u64) -> Pool {
        let free: Box<[u64]> = (0..buffers).rev().map(|index| start + index * buffer_bytes).collect();
        Pool { count: free.len(), free }
    }

    /// Takes the buffer that was returned last.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        self.free.get(self.count).copied()
    }

    /// Returns a buffer, or returns false if there cannot be another: one was returned twice.
    #[inline(always)]
    pub(super) fn give_back(&mut self, address: u64) -> bool {
        let Some(place) = self.free.get_mut(self.count) else { return false };
        *place = address;
        self.count += 1;
        true
    }

    /// How many buffers are free.
    pub(super) fn len(&self) -> usize {
        self.count
    }
}
