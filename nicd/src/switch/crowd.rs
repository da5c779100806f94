//! Who loses frames at a receiver that has no room for them, and leaves the last places to the others for it.
//!
//! Whoever floods a receiver is there for each place that becomes free: who sends little would lose as large a part of its frames as
//! the flooder. So those that have lost most lately keep away from an eighth of the ring, which the others find free. Who has lost
//! nothing where nobody lost anything pays one test of a number.

use super::table::Place;

/// Senders that are told apart at one receiver: so many may flood it, and the others' places stay free.
const SENDERS: usize = 4;

/// Frames that were lost at a receiver lately, by sender.
///
/// The counters of Misra and Gries ("Finding repeated elements", 1982): whoever has more than a fifth of all losses is among them,
/// whatever the others are.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowd {
    lost: [(Option<Place>, u32); SENDERS],
    /// The largest of them.
    most: u32,
}

impl Crowd {
    /// Whether a sender is one of those that lose most. Who has lost less than an eighth of what another has is none: it is the
    /// others' victim.
    #[inline(always)]
    pub fn has(&self, from: Place) -> bool {
        !self.is_empty() && self.is_large(from)
    }

    #[inline(never)]
    fn is_large(&self, from: Place) -> bool {
        self.lost.iter().any(|&(who, lost)| who == Some(from) && lost > self.most / 8)
    }

    /// Enters that a sender has lost a frame.
    #[inline(never)]
    pub fn enter(&mut self, from: Place) {
        let known = self.lost.iter().position(|&(who, _)| who == Some(from));
        match known.or_else(|| self.lost.iter().position(|&(_, lost)| lost == 0)) {
            Some(index) => {
                let lost = &mut self.lost[index];
                *lost = (Some(from), lost.1.saturating_add(1));
                self.most = self.most.max(lost.1);
            }
            None => {
                self.lost.iter_mut().for_each(|(_, lost)| *lost -= 1);
                self.find_most();
            }
        }
    }

    /// Whether nobody has lost anything lately.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.most == 0
    }

    /// Lets time pass: each counts half.
    pub fn forget_half(&mut self) {
        self.lost.iter_mut().for_each(|(_, lost)| *lost /= 2);
        self.find_most();
    }

    /// Forgets a sender that is gone: whoever has its place next has lost nothing.
    pub fn forget(&mut self, from: Place) {
        self.lost.iter_mut().filter(|(who, _)| *who == Some(from)).for_each(|lost| *lost = (None, 0));
        self.find_most();
    }

    fn find_most(&mut self) {
        self.most = self.lost.iter().map(|&(_, lost)| lost).max().unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_lose_most_crowd_and_their_victims_do_not_until_both_are_forgotten() {
        let mut crowd = Crowd::default();
        let [one, other, victim] = [Place::Client(1), Place::Port(1), Place::Client(2)];
        assert!(crowd.is_empty() && !crowd.has(one));
        for _ in 0..100 {
            crowd.enter(one);
            crowd.enter(other);
        }
        (0..12).for_each(|_| crowd.enter(victim));
        assert_eq!([one, other, victim].map(|place| crowd.has(place)), [true, true, false]);
        crowd.enter(victim);
        assert!(crowd.has(victim), "13 are more than an eighth of 100");
        (0..6).for_each(|_| crowd.forget_half());
        assert!(crowd.has(one) && !crowd.has(victim));
        crowd.forget_half();
        assert!(crowd.is_empty() && !crowd.has(one));
    }

    #[test]
    fn whoever_loses_most_is_found_among_more_than_are_told_apart() {
        let mut crowd = Crowd::default();
        for round in 0..100 {
            crowd.enter(Place::Client(7));
            // As many as it has lost itself, of fifty others.
            crowd.enter(Place::Client(100 + round % 50));
        }
        assert!(crowd.has(Place::Client(7)));
        assert_eq!((100..150).filter(|&other| crowd.has(Place::Client(other))).count(), 0);
    }

    #[test]
    fn who_is_gone_crowds_nobody_out() {
        let mut crowd = Crowd::default();
        let [gone, other] = [Place::Port(1), Place::Client(2)];
        (0..100).for_each(|_| crowd.enter(gone));
        (0..5).for_each(|_| crowd.enter(other));
        assert!(crowd.has(gone) && !crowd.has(other));
        crowd.forget(gone);
        assert!(!crowd.has(gone) && crowd.has(other), "5 of 5 are most of them");
        crowd.forget(other);
        assert!(crowd.is_empty());
    }

    #[test]
    fn one_more_than_are_told_apart_takes_one_from_each() {
        let mut crowd = Crowd::default();
        let places = crowd.lost.len() as u32;
        (0..places).for_each(|number| crowd.enter(Place::Client(number)));
        assert!((0..places).all(|number| crowd.has(Place::Client(number))));
        crowd.enter(Place::Client(places));
        assert!(crowd.is_empty() && !crowd.has(Place::Client(0)));
        crowd.enter(Place::Client(places));
        assert!(crowd.has(Place::Client(places)), "it has one of the places");
    }
}
