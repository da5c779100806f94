//! When a host looks for an answer that another core writes: not before it is likely to be there.
//!
//! A look that comes too early takes the line away from the core that is about to write it, which must then fetch it back: two
//! transfers of the line on the way of the answer (section 4 calls it premature forwarding). So the host counts the rounds that
//! answers take, and spends them without a look.
//!
//! | the first look of an exchange | the next exchanges |
//! |---|---|
//! | was in vain, and the answer came soon after | look a round later |
//! | found the answer, [`PUNCTUAL`] times in succession | look a round earlier: it may have been there for longer |
//! | was in vain for long: the device works | as before: what one look costs does not matter |

/// First looks in succession that found their answer, before an earlier one is tried.
const PUNCTUAL: u32 = 8;

/// Rounds without a look at most.
const MOST_ROUNDS: u32 = 32;

/// Looks in vain up to which the first of them may have been what delayed the answer.
const SOON: u32 = 16;

/// How many rounds of an exchange go by without a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Patience {
    rounds: u32,
    /// Of the present exchange, how many are left.
    left: u32,
    /// Looks of the present exchange that found nothing.
    vain: u32,
    /// First looks that found their answer, in succession.
    punctual: u32,
}

impl Patience {
    /// A request has been made.
    #[inline(always)]
    pub(super) fn begin(&mut self) {
        (self.left, self.vain) = (self.rounds, 0);
    }

    /// Whether this round is too early for a look.
    #[inline(always)]
    pub(super) fn is_early(&mut self) -> bool {
        let is_early = self.left > 0;
        self.left -= u32::from(is_early);
        is_early
    }

    /// A look found nothing.
    #[inline(always)]
    pub(super) fn in_vain(&mut self) {
        self.vain = self.vain.saturating_add(1);
    }

    /// A look found the answer.
    #[inline(always)]
    pub(super) fn found(&mut self) {
        if self.vain == 0 {
            self.punctual += 1;
            if self.punctual >= PUNCTUAL {
                (self.punctual, self.rounds) = (0, self.rounds.saturating_sub(1));
            }
            return;
        }
        self.punctual = 0;
        if self.vain <= SOON {
            self.rounds = (self.rounds + 1).min(MOST_ROUNDS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of an exchange whose answer is there in round `there`, and how many of them looked in vain.
    fn exchange(patience: &mut Patience, there: u32) -> (u32, u32) {
        patience.begin();
        let (mut round, mut vain) = (0, 0);
        loop {
            if !patience.is_early() {
                if round >= there {
                    patience.found();
                    return (round, vain);
                }
                patience.in_vain();
                vain += 1;
            }
            round += 1;
        }
    }

    #[test]
    fn looks_come_when_answers_do_and_follow_them() {
        let mut patience = Patience::default();
        for there in [6, 2, 9, 0] {
            for _ in 0..16 * PUNCTUAL {
                exchange(&mut patience, there);
            }
            let many = 64 * PUNCTUAL;
            let (mut rounds, mut vain) = (0, 0);
            for _ in 0..many {
                let (took, looks) = exchange(&mut patience, there);
                (rounds, vain) = (rounds + took, vain + looks);
            }
            // A round earlier is tried once in nine exchanges, and is no round late otherwise.
            assert_eq!(rounds, there * many, "an answer of round {there}");
            assert!(vain <= many / PUNCTUAL, "{vain} looks in vain at an answer of round {there}");
        }
    }

    #[test]
    fn a_device_that_works_for_long_changes_nothing_and_no_wait_grows_without_end() {
        let mut patience = Patience::default();
        for _ in 0..100 {
            exchange(&mut patience, 5);
        }
        let before = patience.rounds;
        for _ in 0..100 {
            exchange(&mut patience, 10_000);
        }
        assert_eq!(patience.rounds, before);
        for _ in 0..1_000 {
            let there = patience.rounds + SOON;
            exchange(&mut patience, there);
        }
        assert_eq!(patience.rounds, MOST_ROUNDS);
    }
}
