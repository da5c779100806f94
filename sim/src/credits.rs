//! Credits: how many of something there may be at once, and who waits for the next.

use std::collections::VecDeque;

/// A pool of credits, and those who wait for one, first come, first served.
///
/// Whoever asks is known by a token of the caller's. Calls are made in nondecreasing order of `now`, in picoseconds. The
/// occupancy and the waiting are summed exactly, for Little's law: mean number = rate x mean time.
#[derive(Clone, Debug)]
pub struct Credits {
    limit: u32,
    taken: u32,
    waiters: VecDeque<u32>,
    /// When the integrals were last brought up to date.
    at: u64,
    taken_time: u128,
    waiting_time: u128,
    counters: CreditCounters,
}

/// What a pool of credits went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditCounters {
    /// Credits handed out.
    pub handed_out: u64,
    /// Those that had to be waited for.
    pub waited_for: u64,
    /// Most credits taken at once.
    pub most_taken: u32,
    /// Most that waited at once.
    pub most_waiting: u32,
}

impl Credits {
    /// A pool of `limit` credits, all free.
    ///
    /// # Panics
    /// Where `limit` is 0: nobody would ever get one.
    pub fn new(limit: u32) -> Credits {
        assert!(limit > 0, "a pool of 0 credits would never give one: give it at least 1");
        Credits {
            limit,
            taken: 0,
            waiters: VecDeque::new(),
            at: 0,
            taken_time: 0,
            waiting_time: 0,
            counters: CreditCounters::default(),
        }
    }

    /// Takes a credit, or queues `id` for one: then `false`, and a later [`Credits::give`] names it.
    #[inline]
    pub fn take(&mut self, id: u32, now: u64) -> bool {
        if self.try_take(now) {
            return true;
        }
        self.waiters.push_back(id);
        self.counters.most_waiting = self.counters.most_waiting.max(self.waiters.len() as u32);
        false
    }

    /// Takes a credit if one is free, and queues for none.
    #[inline]
    pub fn try_take(&mut self, now: u64) -> bool {
        self.advance(now);
        // Whoever waits is served by `give`: no credit is free as long as somebody does.
        if self.taken == self.limit {
            return false;
        }
        self.taken += 1;
        self.counters.handed_out += 1;
        self.counters.most_taken = self.counters.most_taken.max(self.taken);
        true
    }

    /// Gives a credit back; the one who has waited longest, if anybody, has it now.
    ///
    /// # Panics
    /// Where no credit is taken.
    #[inline]
    pub fn give(&mut self, now: u64) -> Option<u32> {
        assert!(self.taken > 0, "a credit was given back at {now} ps, and none was taken");
        self.advance(now);
        let next = self.waiters.pop_front();
        if next.is_some() {
            self.counters.handed_out += 1;
            self.counters.waited_for += 1;
        } else {
            self.taken -= 1;
        }
        next
    }

    /// Brings the sums up to `now`.
    #[inline]
    fn advance(&mut self, now: u64) {
        debug_assert!(now >= self.at, "time went back from {} to {now}", self.at);
        let span = now - self.at;
        self.taken_time += u128::from(span) * u128::from(self.taken);
        self.waiting_time += u128::from(span) * self.waiters.len() as u128;
        self.at = now;
    }

    /// Credits in the pool, free and taken.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Credits taken.
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Those who wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// The time for which credits were taken up to `now`, all together, in credits x picoseconds.
    pub fn taken_time(&self, now: u64) -> u128 {
        self.taken_time + u128::from(now - self.at) * u128::from(self.taken)
    }

    /// The time for which tokens waited up to `now`, all together, in tokens x picoseconds.
    pub fn waiting_time(&self, now: u64) -> u128 {
        self.waiting_time + u128::from(now - self.at) * self.waiters.len() as u128
    }

    /// What the pool went through.
    pub fn counters(&self) -> CreditCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_credit_is_given_and_the_next_is_waited_for() {
        let mut credits = Credits::new(2);
        assert!(credits.take(7, 0));
        assert!(credits.take(8, 0));
        assert!(!credits.take(9, 0));
        assert_eq!((credits.taken(), credits.waiting()), (2, 1));
        assert_eq!(credits.give(10), Some(9));
        assert_eq!((credits.taken(), credits.waiting()), (2, 0));
        assert_eq!(credits.give(10), None);
        assert_eq!(credits.taken(), 1);
        assert!(credits.take(10, 10), "the credit that came back is free");
    }

    #[test]
    fn who_only_tries_does_not_queue() {
        let mut credits = Credits::new(1);
        assert!(credits.try_take(0));
        assert!(!credits.try_take(0));
        assert_eq!((credits.waiting(), credits.give(1)), (0, None));
        assert!(credits.try_take(1));
    }

    #[test]
    fn waiters_are_served_in_their_order() {
        let mut credits = Credits::new(1);
        assert!(credits.take(100, 0));
        for id in [3, 1, 2, 1] {
            assert!(!credits.take(id, 1));
        }
        let served: Vec<_> = (2..7).map(|now| credits.give(now)).collect();
        assert_eq!(served, [Some(3), Some(1), Some(2), Some(1), None]);
    }

    #[test]
    fn nobody_starves_behind_those_who_keep_asking() {
        let mut credits = Credits::new(3);
        for id in 0..3 {
            assert!(credits.take(id, 0));
        }
        assert!(!credits.take(999, 0));
        // Whoever gives a credit back asks again at once, before and after: the waiter is served by the first credit.
        for now in 1..=50 {
            assert!(!credits.take(now as u32 % 3, now), "a newcomer passed those who wait");
            let next = credits.give(now).expect("somebody waits");
            assert_eq!(next == 999, now == 1, "served at {now}: {next}");
        }
    }

    #[test]
    fn the_sums_are_exact() {
        let mut credits = Credits::new(1);
        credits.take(0, 100);
        credits.take(1, 130);
        credits.give(150);
        credits.give(175);
        assert_eq!(credits.taken_time(175), 75);
        assert_eq!(credits.waiting_time(175), 20);
        assert_eq!(credits.taken_time(1_000), 75);
        let expected = CreditCounters { handed_out: 2, waited_for: 1, most_taken: 1, most_waiting: 1 };
        assert_eq!(credits.counters(), expected);
    }

    #[test]
    fn littles_law_holds_on_a_random_run() {
        let mut credits = Credits::new(12);
        let mut draws = crate::draws::Draws::new(1);
        let mut random = |bound: u64| draws.below(bound);
        let (mut holding, mut waiting) = (Vec::new(), VecDeque::new());
        let (mut held, mut waited, mut now) = (0_u128, 0_u128, 0_u64);
        for id in 0..20_000_u32 {
            now += random(1_000);
            if credits.take(id, now) {
                holding.push(now);
            } else {
                waiting.push_back((id, now));
            }
            while !holding.is_empty() && random(100) < 48 {
                now += random(500);
                let since = holding.swap_remove(random(holding.len() as u64) as usize);
                held += u128::from(now - since);
                let next = credits.give(now);
                assert_eq!(next, waiting.front().map(|&(id, _)| id));
                if let Some((_, asked)) = waiting.pop_front() {
                    waited += u128::from(now - asked);
                    holding.push(now);
                }
            }
            assert!(holding.len() <= 12);
        }
        held += holding.iter().map(|&since| u128::from(now - since)).sum::<u128>();
        waited += waiting.iter().map(|&(_, asked)| u128::from(now - asked)).sum::<u128>();
        assert_eq!(credits.taken_time(now), held);
        assert_eq!(credits.waiting_time(now), waited);
        assert!(credits.counters().waited_for > 1_000, "the run hardly tested waiting: {:?}", credits.counters());
        assert_eq!(credits.counters().most_taken, 12);
    }

    #[test]
    #[should_panic(expected = "a credit was given back at 5 ps, and none was taken")]
    fn a_credit_that_nobody_took_is_refused() {
        Credits::new(1).give(5);
    }

    #[test]
    #[should_panic(expected = "a pool of 0 credits")]
    fn an_empty_pool_is_refused() {
        Credits::new(0);
    }
}
