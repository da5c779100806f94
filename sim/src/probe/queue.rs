//! The probe of one queue: who is in it, by name, so that an entry or exit that is left out or told twice is found.

use std::collections::VecDeque;

use conic_fabric::Time;

use super::occupancy::{Little, Occupancy};

/// Who is in a queue, and its [`Occupancy`].
#[derive(Clone, Debug, Default)]
pub struct Queue {
    occupancy: Occupancy,
    /// Who came and was not said to leave, with the time.
    inside: VecDeque<(u32, Time)>,
    /// When those leave that are inside but known to leave, and when they came; in the order of leaving.
    leaving: VecDeque<(Time, Time)>,
    /// Exits of entries that nobody has seen come.
    unknown: u64,
    served: Served,
}

/// What a queue with one server, first come, first served, has been told in all; a window does not begin it anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Entries.
    pub entries: u64,
    /// Time for which the server was taken, in picoseconds.
    pub busy_picoseconds: u64,
    /// When it is done with the last.
    done: u64,
}

impl Queue {
    /// An empty queue whose window begins at `begun`.
    pub fn new(begun: Time) -> Queue {
        Queue { occupancy: Occupancy::new(begun), ..Queue::default() }
    }

    /// Somebody comes at `at`; `holds` is how many the queue itself has then, where it says so.
    pub fn enter(&mut self, who: u32, at: Time, holds: Option<u64>) {
        self.drain(at);
        self.occupancy.enter(at);
        self.inside.push_back((who, at));
        self.served.entries += 1;
        holds.into_iter().for_each(|holds| self.occupancy.holds(holds));
    }

    /// Somebody leaves at `at`; of several of one name the one who came first. Where the queue does not say what it holds,
    /// `at` may lie after the present, and who leaves is inside until then.
    pub fn leave(&mut self, who: u32, at: Time, present: Time, holds: Option<u64>) {
        match self.inside.iter().position(|&(other, _)| other == who) {
            Some(place) => {
                let entered = self.inside.remove(place).map_or(at, |(_, entered)| entered);
                match holds {
                    Some(_) => self.occupancy.leave(at, entered),
                    None => self.leaves_at(at, entered),
                }
            }
            None => self.unknown += 1,
        }
        self.drain(present);
        holds.into_iter().for_each(|holds| self.occupancy.holds(holds));
    }

    /// Somebody comes at `at` and will leave at `until`, one of several at once.
    pub fn stay(&mut self, at: Time, until: Time) {
        self.drain(at);
        self.occupancy.enter(at);
        self.served.entries += 1;
        self.leaves_at(until, at);
    }

    /// Somebody comes at `at` to one server and is done at `done`: after everybody before.
    pub fn serve(&mut self, at: Time, done: Time) {
        let (begins, ends) = (at.picoseconds().max(self.served.done), done.picoseconds());
        self.served.busy_picoseconds += ends.saturating_sub(begins);
        self.served.done = ends.max(self.served.done);
        self.stay(at, done);
    }

    fn leaves_at(&mut self, at: Time, entered: Time) {
        let place = self.leaving.partition_point(|&(other, _)| other <= at);
        self.leaving.insert(place, (at, entered));
    }

    /// Lets those leave whose time has come.
    fn drain(&mut self, present: Time) {
        while let Some(&(at, entered)) = self.leaving.front().filter(|(at, _)| *at <= present) {
            self.leaving.pop_front();
            self.occupancy.leave(at, entered);
        }
    }

    /// How many are inside, after those have left who have by `present`.
    pub fn level(&mut self, present: Time) -> u64 {
        self.drain(present);
        self.occupancy.inside()
    }

    /// The latest time of an entry or exit.
    pub fn latest(&self) -> Time {
        self.occupancy.latest()
    }

    /// Begins a new window: see [`Occupancy::restart`].
    pub fn restart(&mut self, now: Time) {
        self.drain(now);
        self.occupancy.restart(now);
    }

    /// What the window up to `now` shows, which is not before any entry or exit so far.
    pub fn little(&self, now: Time) -> Little {
        let mut end = self.clone();
        end.drain(now);
        let mut little = end.occupancy.little(now);
        little.faults += self.unknown;
        little
    }

    /// What it was told in all, for whoever can compare that with what the queue's own counters say.
    pub fn served(&self) -> Served {
        self.served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(picoseconds: u64) -> Time {
        Time::from_picoseconds(picoseconds)
    }

    #[test]
    fn names_tell_whose_stay_ends_and_of_equal_names_the_first() {
        let mut queue = Queue::default();
        for (who, when) in [(7, 0), (8, 10), (7, 20)] {
            queue.enter(who, at(when), None);
        }
        queue.leave(7, at(30), at(30), Some(2));
        queue.leave(8, at(40), at(40), Some(1));
        let seen = queue.little(at(50));
        // 0 to 30, 10 to 40, and 20 to the end.
        assert_eq!((seen.area, seen.residence, seen.maximum_occupancy), (90, 90, 3));
        assert_eq!(seen.mean_residence_nanoseconds, 0.03);
        assert!(seen.holds());
    }

    #[test]
    fn an_entry_or_exit_that_is_left_out_is_found() {
        let mut forgotten_exit = Queue::default();
        forgotten_exit.enter(1, at(0), Some(1));
        forgotten_exit.enter(2, at(10), Some(1));
        let seen = forgotten_exit.little(at(20));
        assert_eq!((seen.area, seen.residence), (20, 30));
        assert!(!seen.holds());
        let mut forgotten_entry = Queue::default();
        forgotten_entry.leave(1, at(10), at(10), Some(0));
        assert!(!forgotten_entry.little(at(20)).holds());
    }

    #[test]
    fn one_server_is_busy_while_somebody_is_there() {
        let mut queue = Queue::default();
        for (comes, done) in [(0, 100), (50, 200), (300, 400), (300, 400)] {
            queue.serve(at(comes), at(done));
        }
        assert_eq!(queue.served(), Served { entries: 4, busy_picoseconds: 300, done: 400 });
        // Up to 350: 0 to 100, 50 to 200, and two from 300 on.
        let seen = queue.little(at(350));
        assert_eq!((seen.area, seen.departures, seen.maximum_occupancy), (350, 2, 2));
        assert!(seen.holds());
        assert_eq!((queue.level(at(399)), queue.level(at(400))), (2, 0));
    }

    #[test]
    fn a_new_window_keeps_who_is_inside_and_clips_calls_that_come_late() {
        let mut queue = Queue::default();
        queue.enter(1, at(10), None);
        queue.stay(at(20), at(150));
        queue.restart(at(100));
        queue.enter(2, at(90), Some(3));
        queue.leave(2, at(95), at(100), Some(2));
        queue.leave(1, at(120), at(120), Some(1));
        let seen = queue.little(at(200));
        assert_eq!((seen.carried_in, seen.arrivals, seen.area), (2, 1, 20 + 50));
        assert!(seen.holds(), "{seen:?}");
    }

    #[test]
    fn a_window_that_begins_after_every_call_so_far_holds_whatever_their_order() {
        let mut queue = Queue::default();
        // One comes when another stay is known to end, which is later than what is told of next.
        queue.enter(1, at(100), None);
        queue.enter(2, at(40), None);
        assert_eq!(queue.latest(), at(100));
        queue.restart(queue.latest());
        queue.leave(2, at(130), at(130), None);
        queue.leave(1, at(150), at(150), None);
        let seen = queue.little(at(200));
        assert_eq!((seen.carried_in, seen.area, seen.residence), (2, 30 + 50, 30 + 50));
        assert!(seen.holds(), "{seen:?}");
    }
}
