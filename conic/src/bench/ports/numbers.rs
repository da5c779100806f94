//! Which of a loop's frames have come back.

use std::collections::{BTreeSet, VecDeque};

/// Numbers of frames that were sent, one after the other from zero, and which of them are waited for.
#[derive(Debug, Default)]
pub struct Numbers {
    sent: u64,
    /// From the oldest that is waited for on, whether each has come.
    latest: VecDeque<bool>,
    waited_for: u64,
    /// Those that are waited for no longer, and have not come.
    given_up: BTreeSet<u64>,
}

impl Numbers {
    /// Frames that were sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Frames that are waited for.
    pub fn waited_for(&self) -> u64 {
        self.waited_for
    }

    /// Frames that were given up and have not come since.
    pub fn lost(&self) -> u64 {
        self.given_up.len() as u64
    }

    /// Enters the next one, which is sent.
    pub fn send(&mut self) {
        self.latest.push_back(false);
        self.sent += 1;
        self.waited_for += 1;
    }

    /// Enters one that came; false if it came before, or was never sent.
    pub fn enter(&mut self, number: u64) -> bool {
        let first = self.sent - self.latest.len() as u64;
        let Some(place) = number.checked_sub(first) else { return self.given_up.remove(&number) };
        match self.latest.get_mut(place as usize) {
            Some(come) if !*come => *come = true,
            _ => return false,
        }
        self.waited_for -= 1;
        while self.latest.front() == Some(&true) {
            self.latest.pop_front();
        }
        true
    }

    /// Waits for none of those any longer that are under way; one that comes all the same is not lost.
    pub fn give_up(&mut self) {
        let first = self.sent - self.latest.len() as u64;
        let missing = (first..).zip(self.latest.drain(..)).filter(|(_, come)| !come);
        self.given_up.extend(missing.map(|(number, _)| number));
        self.waited_for = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_comes_once_in_any_order_and_late_or_never() {
        let mut numbers = Numbers::default();
        (0..6).for_each(|_| numbers.send());
        let entered = [2, 0, 2, 6, u64::MAX, 0, 1, 5].map(|number| numbers.enter(number));
        assert_eq!(entered, [true, true, false, false, false, false, true, true]);
        assert_eq!((numbers.sent(), numbers.waited_for(), numbers.lost()), (6, 2, 0));
        numbers.give_up();
        numbers.send();
        assert_eq!((numbers.waited_for(), numbers.lost()), (1, 2));
        assert_eq!([4, 4, 5, 6].map(|number| numbers.enter(number)), [true, false, false, true]);
        assert_eq!((numbers.sent(), numbers.waited_for(), numbers.lost()), (7, 0, 1));
    }
}
