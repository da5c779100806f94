//! The law is held against entries that are counted one by one.

use super::*;
use crate::draws::Draws;

fn at(picoseconds: u64) -> Time {
    Time::from_picoseconds(picoseconds)
}

/// A stay from `.0` until `.1`.
type Stay = (u64, u64);

/// Calls the probe for the stays in the order of time, with a restart at `begin`, up to `end`.
fn probe(stays: &[Stay], begin: u64, end: u64) -> Occupancy {
    let mut calls: Vec<(u64, bool, u64)> = Vec::new();
    for &(from, until) in stays {
        calls.extend([(from, true, from), (until, false, from)]);
    }
    // Of one moment, arrivals come first: a stay of no time is entered before it is left.
    calls.sort_by_key(|&(time, enters, from)| (time, !enters, from));
    let warm_up = calls.iter().take_while(|call| call.0 < begin).count();
    let mut occupancy = Occupancy::new(at(0));
    for (number, &(time, enters, from)) in calls.iter().enumerate().filter(|(_, call)| call.0 <= end) {
        if number == warm_up {
            occupancy.restart(at(begin));
        }
        match enters {
            true => occupancy.enter(at(time)),
            false => occupancy.leave(at(time), at(from)),
        }
    }
    if calls.iter().all(|call| call.0 < begin || call.0 > end) {
        occupancy.restart(at(begin));
    }
    occupancy
}

/// The right side of the law, stay by stay.
fn sum_of_stays(stays: &[Stay], begin: u64, end: u64) -> i128 {
    let cut = |&(from, until): &Stay| i128::from(until.min(end)) - i128::from(from.max(begin));
    stays.iter().map(cut).filter(|&cut| cut > 0).sum()
}

/// The left side of the law, picosecond by picosecond.
fn integral(stays: &[Stay], begin: u64, end: u64) -> i128 {
    (begin..end).map(|t| stays.iter().filter(|stay| stay.0 <= t && t < stay.1).count() as i128).sum()
}

#[test]
fn the_law_holds_exactly_with_entries_cut_off_at_both_ends() {
    let mut numbers = Draws::new(1);
    for round in 0..200 {
        let stays: Vec<Stay> = (0..numbers.below(40) + 1)
            .map(|_| (numbers.below(1000), numbers.below(400)))
            .map(|(from, length)| (from, from + length))
            .collect();
        let (begin, end) = (300 + numbers.below(100), 700 + numbers.below(100));
        let seen = probe(&stays, begin, end).little(at(end));
        assert_eq!(seen.area, integral(&stays, begin, end), "round {round}");
        assert_eq!(seen.residence, sum_of_stays(&stays, begin, end), "round {round}");
        assert!(seen.holds(), "round {round}: {seen:?}");
        let arrivals = stays.iter().filter(|stay| (begin..=end).contains(&stay.0)).count() as u64;
        assert_eq!(seen.arrivals, arrivals, "round {round}");
        let carried = stays.iter().filter(|stay| stay.0 < begin && stay.1 >= begin).count() as u64;
        assert_eq!(seen.carried_in, carried, "round {round}");
    }
}

#[test]
fn means_of_a_known_queue() {
    // One entry from 0 to 40 ns, one from 10 to 30 ns; window of 100 ns.
    let seen = probe(&[(0, 40_000), (10_000, 30_000)], 0, 100_000).little(at(100_000));
    assert_eq!(seen.window_nanoseconds, 100.0);
    assert_eq!(seen.mean_occupancy, 0.6);
    assert_eq!(seen.maximum_occupancy, 2);
    assert_eq!(seen.arrivals_per_second, 2e7);
    assert_eq!(seen.mean_residence_nanoseconds, 30.0);
    assert!(seen.relative_residual.abs() < 1e-15, "{seen:?}");
}

#[test]
fn the_textbooks_residual_is_what_the_ends_cut_off() {
    // Window 0 to 100; stays 0 to 50 and 50 to 150: area 100, arrival rate 2/100, residence of the one that left 50.
    let seen = probe(&[(0, 50), (50, 150)], 0, 100).little(at(100));
    assert_eq!((seen.area, seen.residence), (100, 100));
    assert_eq!(seen.relative_residual, 0.0);
    // A third that has hardly come counts as an arrival: area 101, rate 3/100, residence 50: (1.01 - 1.5) / 1.01.
    let seen = probe(&[(0, 50), (50, 150), (99, 200)], 0, 100).little(at(100));
    assert!(seen.holds());
    assert!((seen.relative_residual - (1.01 - 1.5) / 1.01).abs() < 1e-12, "{seen:?}");
}

#[test]
fn calls_out_of_the_order_of_their_times_leave_the_sums_right() {
    let mut late = Occupancy::new(at(0));
    late.enter(at(10));
    late.enter(at(20));
    late.leave(at(70), at(20));
    late.leave(at(50), at(10));
    late.enter(at(60));
    late.leave(at(65), at(60));
    let seen = late.little(at(100));
    assert_eq!(seen.area, 40 + 50 + 5);
    assert!(seen.holds());
}

#[test]
fn a_queue_that_is_told_wrong_times_is_found() {
    let mut wrong = Occupancy::new(at(0));
    wrong.enter(at(10));
    wrong.leave(at(30), at(11));
    let seen = wrong.little(at(100));
    assert_eq!((seen.area, seen.residence, seen.faults), (20, 19, 1));
    assert!(!seen.holds());
    let mut empty = Occupancy::new(at(0));
    empty.leave(at(5), at(1));
    assert!(!empty.little(at(10)).holds());
    let mut before = Occupancy::new(at(0));
    before.enter(at(7));
    before.leave(at(8), at(9));
    assert_eq!((before.inside(), before.faults()), (1, 1));
}

#[test]
fn a_window_of_no_time_has_no_means() {
    let seen = Occupancy::new(at(5)).little(at(5));
    assert_eq!((seen.mean_occupancy, seen.arrivals_per_second, seen.relative_residual), (0.0, 0.0, 0.0));
    assert!(seen.holds());
}

#[test]
fn sums_of_long_runs_do_not_overflow() {
    let mut long = Occupancy::new(Time::ZERO);
    let late = u64::MAX - 1;
    for _ in 0..1000 {
        long.enter(at(0));
    }
    let seen = long.little(at(late));
    assert_eq!(seen.area, 1000 * i128::from(late));
    assert!(seen.holds());
}
