//! Units that handle a few transactions at a time; the others wait, first come, first served.

use std::collections::VecDeque;

/// Several equal units, and what waits for each: `T` is a transaction that may begin when one of its unit ends.
#[derive(Clone, Debug)]
pub struct Units<T> {
    slots: u32,
    used: Vec<u32>,
    waiting: Vec<VecDeque<T>>,
}

impl<T> Units<T> {
    /// Idle units with so many slots each.
    pub fn new(units: usize, slots: u32) -> Units<T> {
        Units { slots, used: vec![0; units], waiting: (0..units).map(|_| VecDeque::new()).collect() }
    }

    /// Begins a transaction and gives it back, or lets it wait.
    pub fn begin(&mut self, unit: usize, transaction: T) -> Option<T> {
        if self.used[unit] < self.slots {
            self.used[unit] += 1;
            return Some(transaction);
        }
        self.waiting[unit].push_back(transaction);
        None
    }

    /// Ends one, and begins the next that waits.
    #[must_use = "the next transaction has begun"]
    pub fn end(&mut self, unit: usize) -> Option<T> {
        let next = self.waiting[unit].pop_front();
        self.used[unit] -= u32::from(next.is_none());
        next
    }

    /// Units.
    pub fn number(&self) -> usize {
        self.used.len()
    }

    /// Transactions of a unit that are under way.
    pub fn used(&self, unit: usize) -> u32 {
        self.used[unit]
    }

    /// Those that wait for it.
    pub fn waiting_at(&self, unit: usize) -> usize {
        self.waiting[unit].len()
    }

    /// What waits, with its unit.
    pub fn waiting(&self) -> impl Iterator<Item = (usize, &T)> {
        self.waiting.iter().enumerate().flat_map(|(unit, waiting)| waiting.iter().map(move |one| (unit, one)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_begins_when_a_slot_of_its_unit_is_free_and_in_order() {
        let mut units = Units::new(2, 2);
        assert_eq!([1, 2, 3, 4].map(|one| units.begin(0, one)), [Some(1), Some(2), None, None]);
        assert_eq!(units.begin(1, 5), Some(5));
        assert_eq!(units.waiting().collect::<Vec<_>>(), [(0, &3), (0, &4)]);
        assert_eq!([units.end(0), units.end(0), units.end(0), units.end(0)], [Some(3), Some(4), None, None]);
        assert_eq!(units.begin(0, 6), Some(6));
    }
}
