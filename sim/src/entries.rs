//! The entries of a slice of home agents: who has one, and who waits for one.

use std::collections::VecDeque;

/// How many entries there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// In all.
    pub entries: u32,
    /// Of these, those that bounded requests may have.
    pub bounded: u32,
}

/// A slice's entries. Requests are of two kinds, of which one may not have all entries: it leaves the rest to the other, so that it
/// cannot hold that back for ever. The kinds wait apart; of those that may have an entry the one that came first gets it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    /// Of free and of bounded requests.
    taken: [u32; 2],
    waiting: [VecDeque<(u64, u32)>; 2],
    /// How many wait, in a word beside what every request changes.
    waits: u32,
}

impl Entries {
    fn admits(&self, limits: Limits, bounded: bool) -> bool {
        let all = self.taken[0] + self.taken[1] < limits.entries;
        all && (!bounded || self.taken[1] < limits.bounded)
    }

    /// A request comes: whether it has an entry at once. Otherwise it waits.
    #[inline]
    pub fn arrive(&mut self, limits: Limits, request: u32, bounded: bool, now: u64) -> bool {
        let at_once = self.take(limits, bounded);
        if !at_once {
            self.waiting[usize::from(bounded)].push_back((now, request));
            self.waits += 1;
        }
        at_once
    }

    /// Takes an entry, if a request of the kind has one at once.
    #[inline(always)]
    pub fn take(&mut self, limits: Limits, bounded: bool) -> bool {
        // Who waits is served when an entry comes back: none is free for a kind as long as one of it does.
        let at_once = self.admits(limits, bounded);
        self.taken[usize::from(bounded)] += u32::from(at_once);
        at_once
    }

    /// An entry is given back: the request that has it next, and whether it is bounded.
    #[inline(always)]
    pub fn leave(&mut self, limits: Limits, bounded: bool) -> Option<(u32, bool)> {
        self.taken[usize::from(bounded)] -= 1;
        if self.waits == 0 { None } else { self.next(limits) }
    }

    #[cold]
    #[inline(never)]
    fn next(&mut self, limits: Limits) -> Option<(u32, bool)> {
        let first = |entries: &Entries, bounded: bool| {
            entries.waiting[usize::from(bounded)].front().copied().filter(|_| entries.admits(limits, bounded))
        };
        let bounded = match (first(self, false), first(self, true)) {
            (None, None) => return None,
            (Some(free), Some(bounded)) => bounded < free,
            (free, _) => free.is_none(),
        };
        self.taken[usize::from(bounded)] += 1;
        self.waits -= 1;
        self.waiting[usize::from(bounded)].pop_front().map(|(_, request)| (request, bounded))
    }

    /// Entries that are taken.
    pub fn taken(&self) -> u32 {
        self.taken[0] + self.taken[1]
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waits as usize
    }
}

#[cfg(test)]
mod tests {
    use super::{Entries, Limits};

    const LIMITS: Limits = Limits { entries: 3, bounded: 2 };

    #[test]
    fn bounded_requests_leave_entries_to_the_others_which_pass_those_that_wait() {
        let mut slice = Entries::default();
        assert!(slice.arrive(LIMITS, 1, true, 1) && slice.arrive(LIMITS, 2, true, 2));
        assert!(!slice.arrive(LIMITS, 3, true, 3), "two have all that bounded ones may have");
        assert!(slice.arrive(LIMITS, 4, false, 4), "a free one has the third entry");
        assert!(!slice.arrive(LIMITS, 5, false, 5), "there is no fourth");
        assert_eq!(slice.taken, [1, 2]);
        assert_eq!(slice.leave(LIMITS, false), Some((5, false)), "the bounded one before it may have none");
        assert_eq!(slice.leave(LIMITS, true), Some((3, true)));
        assert_eq!(slice.leave(LIMITS, true), None);
    }

    #[test]
    fn of_a_free_and_a_bounded_request_that_may_both_have_it_the_first_gets_the_entry() {
        for (bounded_at, free_at, expected) in [(4, 5, (9, true)), (6, 5, (8, false))] {
            let mut slice = Entries::default();
            for request in 0..3 {
                assert!(slice.arrive(LIMITS, request, false, 0));
            }
            assert!(!slice.arrive(LIMITS, 9, true, bounded_at));
            assert!(!slice.arrive(LIMITS, 8, false, free_at));
            assert_eq!(slice.leave(LIMITS, false), Some(expected));
        }
    }
}
