//! Slices of several configurations, one after the other and round again, each between two probes.

use std::ops::Add;

use conic_fabric::Time;
use conic_native::clock;
use serde::Serialize;

use super::arena::{Arena, ArenaError};
use super::placement::{Placement, Probes, Spread, mixed, placements};
use super::progress::Progress;

/// How long to go on.
#[derive(Clone, Copy, Debug)]
pub struct Until {
    /// Rounds that were not moved, in the placement that has most.
    pub rounds: usize,
    /// No new round after this long.
    pub limit: Time,
}

impl Until {
    /// So many rounds of `subjects` slices, each of `slice` with what comes before it, in at most twice the time that they take.
    pub fn rounds(rounds: usize, subjects: usize, slice: Time) -> Until {
        Until { rounds, limit: Time::from_picoseconds(2 * slice.picoseconds() * (rounds * subjects) as u64) }
    }
}

/// How many slices of `slice` last `duration` together; at least one.
pub fn rounds_of(duration: Time, slice: Time) -> usize {
    duration.picoseconds().div_ceil(slice.picoseconds()).max(1) as usize
}

/// A slice in which a thread had less of its core than the first of these was disturbed. Where nothing else was measured,
/// the next is asked for.
const UNDISTURBED: [f64; 4] = [0.98, 0.9, 0.75, 0.5];

/// One slice's outcome.
#[derive(Clone, Debug)]
pub struct Slice<T> {
    /// Which configuration.
    pub subject: usize,
    /// Which round.
    pub round: usize,
    /// What was measured.
    pub value: T,
}

/// Slices that were left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// The cores moved: the probes before and after disagree.
    pub moved: usize,
    /// Another process ran on one of the cores.
    pub disturbed: usize,
}

impl Add for Dropped {
    type Output = Dropped;
    fn add(self, other: Dropped) -> Dropped {
        Dropped { moved: self.moved + other.moved, disturbed: self.disturbed + other.disturbed }
    }
}

/// All slices of a run.
#[derive(Clone, Debug)]
pub struct Slices<T> {
    /// Those that count.
    pub kept: Vec<Slice<T>>,
    /// Those that do not: their figures are not to be had, but what was wrong in them was wrong.
    left_out: Vec<Slice<T>>,
    /// One line's round trip beside each of them, in nanoseconds.
    pub round_trips: Vec<f64>,
    /// How many do not.
    pub dropped: Dropped,
    /// Whether slices count that should not, because nothing else was measured: the machine was too restless.
    pub restless: bool,
    /// Where the cores were, from near to far.
    pub placements: Vec<Placement>,
}

/// A slice, and what was beside it.
struct Taken<T> {
    slice: Slice<T>,
    probes: Probes,
    share: f64,
}

impl<T> Taken<T> {
    fn counts(&self, share: f64) -> bool {
        !self.probes.moved() && self.share >= share
    }
}

/// Measures `subjects` configurations in turn, a slice each, for at least one round.
///
/// # Errors
///
/// What `measure` says.
pub fn alternate<T, E: From<ArenaError>>(
    arena: &Arena,
    subjects: usize,
    until: Until,
    progress: &mut Progress,
    mut measure: impl FnMut(usize) -> Result<T, E>,
) -> Result<Slices<T>, E> {
    let end = clock::now() + until.limit;
    let mut recorder = Recorder::new(subjects);
    let mut before = arena.round_trip()?;
    for round in 0.. {
        for subject in 0..subjects {
            let usage = arena.usage();
            let value = measure(subject)?;
            let share = arena.usage().share_since(&usage);
            let after = arena.round_trip()?;
            recorder.record(Slice { subject, round, value }, Probes { before, after }, share);
            progress.slice(after);
            before = after;
        }
        if recorder.have(until.rounds * subjects) || clock::now() >= end {
            break;
        }
    }
    Ok(recorder.finish())
}

/// Slices as they are taken.
pub struct Recorder<T> {
    subjects: usize,
    taken: Vec<Taken<T>>,
    /// How many of these count.
    counting: usize,
}

impl<T> Recorder<T> {
    /// For so many configurations.
    pub fn new(subjects: usize) -> Recorder<T> {
        Recorder { subjects, taken: Vec::new(), counting: 0 }
    }

    /// Records a slice, the probes beside it, and the share of its time in which its threads had their cores.
    pub fn record(&mut self, slice: Slice<T>, probes: Probes, share: f64) {
        let taken = Taken { slice, probes, share };
        self.counting += usize::from(taken.counts(UNDISTURBED[0]));
        self.taken.push(taken);
    }

    /// Whether there are so many slices that count in one placement. They are not sorted by placement before there are as many in all:
    /// it takes longer the more there are.
    fn have(&self, wanted: usize) -> bool {
        self.counting >= wanted && self.most() >= wanted
    }

    /// How many slices that count there are in the placement that has most.
    fn most(&self) -> usize {
        let counting = self.taken.iter().filter(|one| one.counts(UNDISTURBED[0]));
        let trips: Vec<f64> = counting.map(|one| one.probes.round_trip()).collect();
        placements(&trips).iter().map(|place| place.members.len()).max().unwrap_or(0)
    }

    /// Sorts out what counts.
    pub fn finish(self) -> Slices<T> {
        Slices::of_taken(self.taken, self.subjects)
    }
}

impl<T> Slices<T> {
    fn of_taken(taken: Vec<Taken<T>>, subjects: usize) -> Slices<T> {
        for share in UNDISTURBED {
            let counting: Vec<&Taken<T>> = taken.iter().filter(|one| one.counts(share)).collect();
            let trips: Vec<f64> = counting.iter().map(|one| one.probes.round_trip()).collect();
            let places = placements(&trips);
            let has = |place: &Placement, one| place.members.iter().any(|&index| counting[index].slice.subject == one);
            if places.iter().any(|place| (0..subjects).all(|one| has(place, one))) {
                let moved = taken.iter().filter(|one| one.probes.moved()).count();
                let dropped = Dropped { moved, disturbed: taken.len() - trips.len() - moved };
                let (kept, left_out): (Vec<_>, Vec<_>) = taken.into_iter().partition(|one| one.counts(share));
                let slices = |taken: Vec<Taken<T>>| taken.into_iter().map(|one| one.slice).collect();
                return Slices {
                    kept: slices(kept),
                    left_out: slices(left_out),
                    round_trips: trips,
                    dropped,
                    restless: share < UNDISTURBED[0],
                    placements: places,
                };
            }
        }
        let round_trips: Vec<f64> = taken.iter().map(|one| one.probes.round_trip()).collect();
        let placements = mixed(&round_trips);
        let kept = taken.into_iter().map(|one| one.slice).collect();
        Slices { kept, left_out: Vec::new(), round_trips, dropped: Dropped::default(), restless: true, placements }
    }

    /// Every slice, also those that do not count: for what may go wrong in none of them.
    pub fn all(&self) -> impl Iterator<Item = &Slice<T>> {
        self.kept.iter().chain(&self.left_out)
    }

    /// The slices of one configuration in one placement.
    pub fn of<'a>(&'a self, place: &'a Placement, subject: usize) -> impl Iterator<Item = &'a T> {
        let slices = place.members.iter().map(|&index| &self.kept[index]);
        slices.filter(move |slice| slice.subject == subject).map(|slice| &slice.value)
    }

    /// The slices of one configuration in one placement, each with the round trip beside it in nanoseconds.
    pub fn beside<'a>(&'a self, place: &'a Placement, subject: usize) -> impl Iterator<Item = (f64, &'a T)> {
        let slices = place.members.iter().map(|&index| (self.round_trips[index], &self.kept[index]));
        slices.filter(move |(_, slice)| slice.subject == subject).map(|(trip, slice)| (trip, &slice.value))
    }

    /// A figure of `subject` over the same figure of `baseline`, by pairs from the same round in one placement.
    pub fn ratios(
        &self,
        place: &Placement,
        subject: usize,
        baseline: usize,
        figure: impl Fn(&T) -> f64,
    ) -> Option<Spread> {
        let of = |subject| {
            let slices = place.members.iter().map(|&index| &self.kept[index]);
            slices.filter(move |slice: &&Slice<T>| slice.subject == subject)
        };
        // Both by their rounds, as they were taken.
        let mut baselines = of(baseline).peekable();
        let mut ratios = Vec::new();
        for slice in of(subject) {
            while baselines.next_if(|other| other.round < slice.round).is_some() {}
            if let Some(other) = baselines.peek().filter(|other| other.round == slice.round) {
                ratios.push(figure(&slice.value) / figure(&other.value));
            }
        }
        Spread::of(&ratios)
    }

    /// The placements in which every one of the `subjects` configurations has a slice; the one with most slices first.
    pub fn complete(&self, subjects: usize) -> Vec<&Placement> {
        let has_all = |place: &&Placement| (0..subjects).all(|subject| self.of(place, subject).next().is_some());
        let mut complete: Vec<_> = self.placements.iter().filter(has_all).collect();
        complete.sort_by_key(|place| std::cmp::Reverse(place.members.len()));
        complete
    }

    /// A figure of a configuration in one placement.
    pub fn spread(&self, place: &Placement, subject: usize, figure: impl Fn(&T) -> f64) -> Option<Spread> {
        Spread::of(&self.of(place, subject).map(figure).collect::<Vec<f64>>())
    }

    /// A figure of a configuration in one placement, and its ratios to the first configuration's, where that is never zero.
    pub fn with_ratio_to_first(
        &self,
        place: &Placement,
        subject: usize,
        figure: impl Fn(&T) -> f64,
    ) -> Option<(Spread, Spread)> {
        let (figures, first) = (self.spread(place, subject, &figure)?, self.spread(place, 0, &figure)?);
        // Where no round has a slice of both, all there is are the medians.
        let of_medians = || Spread::of(&[figures.median / first.median]);
        let ratio = self.ratios(place, subject, 0, &figure).or_else(of_medians)?;
        Some((figures, ratio))
    }
}

#[cfg(test)]
impl<T> Slices<T> {
    /// Two slices of one configuration, the second of which is left out because the cores moved meanwhile; for tests.
    pub fn kept_and_left_out(values: [T; 2]) -> Slices<T> {
        let mut recorder = Recorder::new(1);
        for (round, (value, after)) in values.into_iter().zip([60.0, 400.0]).enumerate() {
            recorder.record(Slice { subject: 0, round, value }, Probes { before: 60.0, after }, 1.0);
        }
        recorder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(values: &[(usize, usize, f64, f64)]) -> Slices<f64> {
        let kept = values.iter().map(|&(round, subject, value, _)| Slice { subject, round, value }).collect();
        let round_trips: Vec<f64> = values.iter().map(|value| value.3).collect();
        let places = placements(&round_trips);
        let dropped = Dropped::default();
        Slices { kept, left_out: Vec::new(), round_trips, dropped, restless: false, placements: places }
    }

    #[test]
    fn a_ratio_pairs_slices_of_one_round_in_one_placement() {
        let all = slices(&[
            (0, 0, 10.0, 60.0),
            (0, 1, 20.0, 60.0),
            (1, 0, 1.0, 400.0),
            (1, 1, 9.0, 400.0),
            (2, 0, 10.0, 60.0),
            (2, 1, 1.0, 400.0),
        ]);
        let near = all.ratios(&all.placements[0], 1, 0, |value| *value);
        assert_eq!(near, Some(Spread { median: 2.0, min: 2.0, max: 2.0 }));
        let far = all.ratios(&all.placements[1], 1, 0, |value| *value);
        assert_eq!(far, Some(Spread { median: 9.0, min: 9.0, max: 9.0 }));
    }

    #[test]
    fn a_placement_without_a_slice_of_each_compares_nothing() {
        let all = slices(&[(0, 0, 1.0, 60.0), (0, 1, 1.0, 400.0), (1, 0, 1.0, 60.0), (1, 1, 2.0, 60.0)]);
        let complete = all.complete(2);
        assert_eq!(complete.len(), 1);
        assert_eq!(complete[0].label, "near");
        assert_eq!(all.ratios(&all.placements[1], 1, 0, |value| *value), None);
    }

    #[test]
    fn figures_stand_beside_the_first_ones_of_their_rounds_or_else_beside_their_median() {
        let all = slices(&[(0, 0, 10.0, 60.0), (0, 1, 40.0, 60.0), (1, 0, 20.0, 60.0), (2, 2, 30.0, 60.0)]);
        let place = &all.placements[0];
        let one = |value| Spread { median: value, min: value, max: value };
        assert_eq!(all.with_ratio_to_first(place, 1, |figure| *figure), Some((one(40.0), one(4.0))));
        assert_eq!(all.with_ratio_to_first(place, 2, |figure| *figure), Some((one(30.0), one(2.0))));
        assert_eq!(all.with_ratio_to_first(place, 3, |figure| *figure), None);
    }

    fn taken(subject: usize, before: f64, after: f64, share: f64) -> Taken<()> {
        Taken { slice: Slice { subject, round: 0, value: () }, probes: Probes { before, after }, share }
    }

    #[test]
    fn slices_that_were_moved_or_disturbed_are_left_out_and_counted() {
        let all =
            Slices::of_taken(vec![taken(0, 60.0, 62.0, 1.0), taken(0, 60.0, 400.0, 1.0), taken(0, 61.0, 60.0, 0.6)], 1);
        assert_eq!((all.kept.len(), all.dropped), (1, Dropped { moved: 1, disturbed: 1 }));
        assert!(!all.restless);
    }

    #[test]
    fn what_went_wrong_in_a_slice_that_was_left_out_is_not_forgotten() {
        let wrong = |taken: Taken<()>, wrong: u64| Taken {
            slice: Slice { subject: 0, round: 0, value: wrong },
            probes: taken.probes,
            share: taken.share,
        };
        let moved = wrong(taken(0, 60.0, 400.0, 1.0), 2);
        let disturbed = wrong(taken(0, 60.0, 61.0, 0.6), 3);
        let all = Slices::of_taken(vec![wrong(taken(0, 60.0, 62.0, 1.0), 0), moved, disturbed], 1);
        assert_eq!((all.kept.len(), all.all().map(|slice| slice.value).sum::<u64>()), (1, 5));
    }

    #[test]
    fn a_run_goes_on_until_one_placement_has_enough_slices_that_count() {
        let mut recorder = Recorder::new(1);
        for (before, after, share, have) in [
            (60.0, 60.0, 1.0, [true, false]),
            // Disturbed, moved, and elsewhere.
            (60.0, 60.0, 0.5, [true, false]),
            (60.0, 400.0, 1.0, [true, false]),
            (400.0, 400.0, 1.0, [true, false]),
            (60.0, 61.0, 1.0, [true, true]),
        ] {
            recorder.record(Slice { subject: 0, round: 0, value: () }, Probes { before, after }, share);
            assert_eq!([1, 2].map(|wanted| recorder.have(wanted)), have);
        }
    }

    #[test]
    fn where_nothing_better_was_measured_the_least_disturbed_slices_count() {
        let all = Slices::of_taken(vec![taken(0, 60.0, 62.0, 0.8), taken(0, 60.0, 61.0, 0.6)], 1);
        assert_eq!((all.kept.len(), all.dropped, all.restless), (1, Dropped { moved: 0, disturbed: 1 }, true));
        assert_eq!(all.placements[0].label, "steady");
    }

    #[test]
    fn a_machine_that_never_rests_is_measured_all_the_same_and_says_so() {
        let all = Slices::of_taken(vec![taken(0, 60.0, 62.0, 1.0), taken(1, 60.0, 400.0, 0.5)], 2);
        assert!(all.restless);
        assert_eq!((all.kept.len(), all.dropped, all.placements.len()), (2, Dropped::default(), 1));
        assert_eq!(all.placements[0].label, "restless");
    }
}
