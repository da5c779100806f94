//! The host's free buffers.

/// In which order free buffers are taken again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolOrder {
    /// The one that was returned last first: its lines are likely to be in a cache. What drivers do that keep a few free buffers
    /// to each core, and a part of what CC-NIC adds (section 3.3).
    LastFirst,
    /// The one that has been free for longest first: "typically a queue" (CC-NIC section 2.1).
    FirstFirst,
}

/// The addresses of free buffers' payloads, private to the host.
#[derive(Debug)]
pub(super) struct Pool {
    /// Where the first buffer lies, and its payload.
    start: u64,
    first_payload: u64,
    buffer_bytes: u64,
    /// 2^64 divided by that, rounded up: a product with it instead of a division, which would take longer than all else here.
    per_buffer: u64,
    /// A ring: `count` free ones from `first` on.
    free: Box<[u64]>,
    first: usize,
    count: usize,
    order: PoolOrder,
}

impl Pool {
    /// A pool that holds every buffer; the one with the lowest address is taken first. They lie from `start` on, and the payload of
    /// the first one from `first_payload` on.
    pub(super) fn full(start: u64, first_payload: u64, buffers: u64, buffer_bytes: u64, order: PoolOrder) -> Pool {
        let mut free: Box<[u64]> = (0..buffers).map(|index| first_payload + index * buffer_bytes).collect();
        if order == PoolOrder::LastFirst {
            free.reverse();
        }
        let per_buffer = u64::MAX / buffer_bytes + 1;
        Pool { start, first_payload, buffer_bytes, per_buffer, count: free.len(), first: 0, free, order }
    }

    /// Where the payload of the buffer begins that an address lies in; none where it lies in none.
    #[inline(always)]
    pub(super) fn payload_of(&self, at: u64) -> Option<u64> {
        // An address before the buffers wraps to an offset far behind them.
        let offset = at.wrapping_sub(self.start);
        // Exact for offsets below 2^48, as a buffer has at most 2^16 bytes. All buffers have less than 2^41, and the quotient of a larger
        // offset is larger than their number, by whatever it is wrong.
        let index = ((u128::from(offset) * u128::from(self.per_buffer)) >> 64) as u64;
        (index < self.free.len() as u64).then(|| self.first_payload + index * self.buffer_bytes)
    }

    /// The place so many after the first.
    #[inline(always)]
    fn place(&self, after: usize) -> usize {
        let place = self.first + after;
        if place < self.free.len() { place } else { place - self.free.len() }
    }

    /// Takes the buffer whose turn it is.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        match self.order {
            PoolOrder::LastFirst => self.free.get(self.count).copied(),
            PoolOrder::FirstFirst => {
                let taken = self.free.get(self.first).copied();
                self.first = self.place(1);
                taken
            }
        }
    }

    /// Returns a buffer, or returns false if there cannot be another: one was returned twice.
    #[inline(always)]
    pub(super) fn give_back(&mut self, address: u64) -> bool {
        if self.count == self.free.len() {
            return false;
        }
        // `first` stays at 0 where the last one is taken first.
        let place = self.place(self.count);
        self.free[place] = address;
        self.count += 1;
        true
    }

    /// How many buffers are free.
    pub(super) fn len(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_taken_in_the_order_that_was_asked_for_and_none_is_kept_twice() {
        for (order, expected) in
            [(PoolOrder::LastFirst, [0, 64, 64, 128, 192]), (PoolOrder::FirstFirst, [0, 64, 128, 192, 64])]
        {
            let mut pool = Pool::full(0, 0, 4, 64, order);
            assert!(!pool.give_back(0), "{order:?}: all are there");
            let first = [pool.take(), pool.take()].map(|at| at.expect("four are free"));
            assert!(pool.give_back(first[1]), "{order:?}: one is missing");
            let taken = [first[0], first[1]].into_iter().chain(std::iter::from_fn(|| pool.take()));
            assert_eq!(taken.collect::<Vec<_>>(), expected, "{order:?}");
            assert_eq!((pool.len(), pool.take()), (0, None));
            // All of them come back, wherever in the ring the first one was.
            for _ in 0..3 {
                assert!((0..4).all(|index| pool.give_back(index * 64)) && !pool.give_back(0), "{order:?}");
                let mut taken: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
                if order == PoolOrder::LastFirst {
                    taken.reverse();
                }
                assert_eq!(taken, [0, 64, 128, 192], "{order:?}");
            }
        }
    }
    #[test]
    fn the_buffer_of_any_address_is_what_a_division_says() {
        let start = 3 << 30;
        for (buffers, bytes) in [(1, 64), (3, 128), (768, 9600), (7, 2368), (1 << 16, 65536), (1000, 65472)] {
            for in_front in [0, 320_u64.min(bytes - 64)] {
                let pool = Pool::full(start, start + in_front, buffers, bytes, PoolOrder::LastFirst);
                let near = |index: u64| [0, 1, bytes / 2, bytes - 1].map(|within| start + index * bytes + within);
                let addresses = (0..buffers + 2).flat_map(near);
                let others = [0, start - 1, start + (1 << 41), start + (1 << 48), u64::MAX - 1, u64::MAX];
                for at in addresses.chain(others) {
                    let index = at.wrapping_sub(start) / bytes;
                    let payload = (index < buffers).then(|| start + index * bytes + in_front);
                    assert_eq!(pool.payload_of(at), payload, "{at} among {buffers} of {bytes}");
                }
            }
        }
    }
}
