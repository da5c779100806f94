//! The slices of the caching and home agent: who has an entry, and who waits for one.

use std::collections::VecDeque;

use super::parameters::HomeParameters;

/// A slice. Reads and writes wait apart, as reads pass writes that are held back; of those that may have an entry the one that came first gets it.
#[derive(Clone, Debug, Default)]
pub(super) struct Slice {
    /// Entries of reads and of writes.
    taken: [u32; 2],
    waiting: [VecDeque<(u64, u32)>; 2],
}

impl Slice {
    fn admits(&self, limits: &HomeParameters, writes: bool) -> bool {
        let all = self.taken[0] + self.taken[1] < limits.entries;
        all && (!writes || self.taken[1] < limits.write_entries)
    }

    /// A request comes: whether it has an entry at once. Otherwise it waits.
    pub(super) fn arrive(&mut self, limits: &HomeParameters, request: u32, writes: bool, now: u64) -> bool {
        let of = usize::from(writes);
        let at_once = self.waiting[of].is_empty() && self.admits(limits, writes);
        if at_once {
            self.taken[of] += 1;
        } else {
            self.waiting[of].push_back((now, request));
        }
        at_once
    }

    /// An entry is given back: the request that has it next, and whether it writes.
    pub(super) fn leave(&mut self, limits: &HomeParameters, writes: bool) -> Option<(u32, bool)> {
        self.taken[usize::from(writes)] -= 1;
        let first = |slice: &Slice, writes: bool| {
            slice.waiting[usize::from(writes)].front().copied().filter(|_| slice.admits(limits, writes))
        };
        let writes = match (first(self, false), first(self, true)) {
            (None, None) => return None,
            (Some(read), Some(write)) => write < read,
            (read, _) => read.is_none(),
        };
        self.taken[usize::from(writes)] += 1;
        self.waiting[usize::from(writes)].pop_front().map(|(_, request)| (request, writes))
    }
}

#[cfg(test)]
mod tests {
    use super::Slice;
    use crate::host::parameters::HomeParameters;

    const LIMITS: HomeParameters = HomeParameters {
        slices: 1,
        entries: 3,
        write_entries: 2,
        to_memory: 0,
        from_memory: 0,
        core_write_to_memory: 0,
        device_write_to_memory: 0,
    };

    #[test]
    fn writes_leave_entries_to_reads_and_reads_pass_writes_that_wait() {
        let mut slice = Slice::default();
        assert!(slice.arrive(&LIMITS, 1, true, 1) && slice.arrive(&LIMITS, 2, true, 2));
        assert!(!slice.arrive(&LIMITS, 3, true, 3), "two writes have all that writes may have");
        assert!(slice.arrive(&LIMITS, 4, false, 4), "a read has the third entry");
        assert!(!slice.arrive(&LIMITS, 5, false, 5), "there is no fourth");
        assert_eq!(slice.taken, [1, 2]);
        assert_eq!(slice.leave(&LIMITS, false), Some((5, false)), "the write before it may have none");
        assert_eq!(slice.leave(&LIMITS, true), Some((3, true)));
        assert_eq!(slice.leave(&LIMITS, true), None);
    }

    #[test]
    fn of_a_read_and_a_write_that_may_both_have_it_the_first_gets_the_entry() {
        for (write_at, read_at, expected) in [(4, 5, (9, true)), (6, 5, (8, false))] {
            let mut slice = Slice::default();
            for request in 0..3 {
                assert!(slice.arrive(&LIMITS, request, false, 0));
            }
            assert!(!slice.arrive(&LIMITS, 9, true, write_at));
            assert!(!slice.arrive(&LIMITS, 8, false, read_at));
            assert_eq!(slice.leave(&LIMITS, false), Some(expected));
        }
    }
}
