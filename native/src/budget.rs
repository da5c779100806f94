//! What several threads spend together, so that no other room needs an atomic.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that threads take from until somebody asks for more than is left.
#[derive(Debug)]
pub struct Budget(
    /// What is left and one more; 0 where more was asked for.
    AtomicU64,
);

impl Budget {
    /// So much, less than `u64::MAX`: what is more counts as one less than that.
    pub const fn new(amount: u64) -> Budget {
        Budget(AtomicU64::new(amount.saturating_add(1)))
    }

    /// Takes so much. Where that is more than is left nothing is taken, and nothing can be from then on.
    #[must_use]
    pub fn spend(&self, amount: u64) -> bool {
        let rest = |left: u64| left.checked_sub(1)?.checked_sub(amount)?.checked_add(1);
        // Relaxed, both: the number is all that passes between the threads.
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(rest(left).unwrap_or(0)));
        before.is_ok_and(|left| rest(left).is_some())
    }

    /// Gives back what was taken and is not needed, unless more was asked for since.
    pub fn give_back(&self, amount: u64) {
        let back = |left: u64| if left == 0 { None } else { Some(left.saturating_add(amount)) };
        // Relaxed, both: as above. Where it has ended it stays so.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, back);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_ends_it_and_what_is_given_back_does_not_begin_it_again() {
        let budget = Budget::new(100);
        assert!(budget.spend(60) && budget.spend(39));
        budget.give_back(39);
        assert!(budget.spend(40), "that is all of it");
        budget.give_back(40);
        assert!(budget.spend(39) && !budget.spend(2), "one is left");
        assert!(!budget.spend(1), "it is spent");
        budget.give_back(50);
        assert!(!budget.spend(1) && !budget.spend(0), "it stays so");
        assert!(Budget::new(0).spend(0) && !Budget::new(0).spend(1));
        assert!(Budget::new(u64::MAX).spend(u64::MAX - 1));
    }

    #[test]
    fn threads_spend_no_more_than_there_is() {
        let budget = Budget::new(10_000);
        let spent: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..4000).filter(|_| budget.spend(1)).count() as u64)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
        });
        assert_eq!(spent, 10_000);
    }
}
