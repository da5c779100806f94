//! What is said of what happens, and how much of it at most.
//!
//! Whoever may connect causes lines of a log as fast as it likes: it is refused, or attaches and leaves, or changes its address, again and
//! again, and would fill a disk. Of each kind of line a user causes a hundred at once and then one each ten seconds. What is beyond is
//! counted, and how much it was is said before that user's next line of that kind, or at the end.
//!
//! Each user has a measure of its own, so that nobody's lines are left out for what another one does; each kind has, so that who is refused
//! on and on hides neither its attaching nor its leaving. A user may have many numbers, in a namespace of its own: there are measures for a
//! few, and one a kind for all others.
//!
//! What an operator does, what fails by itself, and the daemon's beginning and end are always said.

use std::collections::BTreeMap;

use conic_fabric::Time;

use crate::event::{CAUSED, Event, Log};

/// Lines of one kind that one user causes at once.
const BURST: u32 = 100;
/// Beyond that, one line each of these.
const EVERY: Time = Time::from_nanoseconds(10_000_000_000);
/// As much of a measure as there is, in time.
const WHOLE: Time = Time::from_nanoseconds(EVERY.nanoseconds() * BURST as u64);
/// Measures of users and kinds at one time.
const MOST_MEASURES: usize = 32;

/// What one user causes of one kind, and what all do together for whom there is no place.
#[derive(Clone, Copy, Debug, Default)]
struct Measure {
    /// When all of it is there again.
    whole_at: Time,
    /// Lines that were left out and not told of.
    left_out: u64,
}

/// The log, and what was left out of it.
pub(crate) struct Journal {
    log: Log,
    measures: BTreeMap<(&'static str, Option<u32>), Measure>,
    /// Lines that were left out since the beginning, by kind.
    left_out: BTreeMap<&'static str, u64>,
}

impl Journal {
    pub fn new(log: Log) -> Journal {
        Journal { log, measures: BTreeMap::new(), left_out: BTreeMap::new() }
    }

    /// Says what happened by an operator's word or by itself.
    pub fn say(&mut self, event: &Event) {
        (self.log)(event);
    }

    /// Says what a user has caused, or somebody of whom nobody knows who it is, if there was not too much of that.
    pub fn say_of(&mut self, user: Option<u32>, event: &Event, now: Time) {
        let kind = event.kind();
        debug_assert!(CAUSED.contains(&kind), "nobody is told how many of {event:?} were left out");
        let user = self.place(kind, user, now);
        let measure = self.measures.entry((kind, user)).or_default();
        let whole_at = measure.whole_at.max(now) + EVERY;
        if whole_at.since(now) > WHOLE {
            measure.left_out += 1;
            *self.left_out.entry(kind).or_default() += 1;
            return;
        }
        measure.whole_at = whole_at;
        let lines = std::mem::take(&mut measure.left_out);
        self.tell_of(kind, user, lines);
        (self.log)(event);
    }

    /// Says what was left out and not told of, and that this is the end.
    pub fn end(&mut self) {
        for ((kind, user), Measure { left_out, .. }) in std::mem::take(&mut self.measures) {
            self.tell_of(kind, user, left_out);
        }
        (self.log)(&Event::Ended);
    }

    /// Lines of a kind that were left out since the beginning.
    pub fn left_out(&self, kind: &str) -> u64 {
        self.left_out.get(kind).copied().unwrap_or(0)
    }

    /// Whose measure a line of a user's takes from: its own, if there is a place for that.
    fn place(&mut self, kind: &'static str, user: Option<u32>, now: Time) -> Option<u32> {
        if self.measures.len() >= MOST_MEASURES && !self.measures.contains_key(&(kind, user)) {
            self.forget_the_quiet(now);
        }
        let has_place = self.measures.len() < MOST_MEASURES || self.measures.contains_key(&(kind, user));
        user.filter(|_| has_place)
    }

    /// Forgets measures of which all is there again: they are as new ones are.
    fn forget_the_quiet(&mut self, now: Time) {
        let is_quiet = |measure: &Measure| measure.whole_at <= now;
        let quiet: Vec<_> = self.measures.iter().filter(|(_, one)| is_quiet(one)).map(|(&of, _)| of).collect();
        for of in quiet {
            let Measure { left_out, .. } = self.measures.remove(&of).unwrap_or_default();
            self.tell_of(of.0, of.1, left_out);
        }
    }

    fn tell_of(&mut self, kind: &'static str, user: Option<u32>, lines: u64) {
        if lines > 0 {
            (self.log)(&Event::TooMany { kind, user, lines });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    const START: Time = Time::from_nanoseconds(7_000_000_000);

    fn journal() -> (Journal, Receiver<Event>) {
        let (tell, told) = channel();
        // The test is still there, or has failed.
        let log = move |event: &Event| _ = tell.send(event.clone());
        (Journal::new(Box::new(log)), told)
    }

    fn refused(user: u32) -> Event {
        Event::Refused { process: 1, user, reason: "malformed", text: "it says nothing".to_owned() }
    }

    fn readdressed() -> Event {
        let [name, mac, before] = ["web", "02:00:00:00:00:02", "02:00:00:00:00:01"].map(str::to_owned);
        Event::Readdressed { session: 1, name, mac, before }
    }

    /// What was said: lines of events, and how many others they tell of.
    fn counted(told: &Receiver<Event>) -> (u64, u64) {
        told.try_iter().fold((0, 0), |(said, left_out), event| match event {
            Event::TooMany { lines, .. } => (said, left_out + lines),
            Event::Ended => (said, left_out),
            _ => (said + 1, left_out),
        })
    }

    #[test]
    fn who_is_refused_without_end_causes_few_lines_and_all_are_counted() {
        const REFUSALS: u64 = 10_000;
        // A millisecond each: another line comes in the eleventh of ten seconds, which is not reached.
        let (mut journal, told) = journal();
        for number in 0..REFUSALS {
            journal.say_of(Some(1000), &refused(1000), START + Time::from_nanoseconds(number * 1_000_000));
        }
        assert_eq!(counted(&told), (BURST.into(), 0));
        assert_eq!(journal.left_out("refused"), REFUSALS - u64::from(BURST));
        journal.end();
        assert_eq!(counted(&told), (0, REFUSALS - u64::from(BURST)));
    }

    #[test]
    fn one_line_more_is_said_in_its_time_and_not_before_and_tells_of_those_between() {
        let (mut journal, told) = journal();
        for _ in 0..BURST + 3 {
            journal.say_of(Some(1000), &refused(1000), START);
        }
        assert_eq!(counted(&told), (BURST.into(), 0));
        journal.say_of(Some(1000), &refused(1000), Time::from_picoseconds((START + EVERY).picoseconds() - 1));
        assert_eq!(counted(&told), (0, 0));
        journal.say_of(Some(1000), &refused(1000), START + EVERY);
        let too_many = Event::TooMany { kind: "refused", user: Some(1000), lines: 4 };
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [too_many, refused(1000)]);
        // Who was quiet for long may cause as many as before, and no more.
        for _ in 0..2 * BURST {
            journal.say_of(Some(1000), &refused(1000), START + WHOLE + WHOLE + WHOLE);
        }
        assert_eq!(counted(&told), (BURST.into(), 0));
    }

    #[test]
    fn what_one_causes_leaves_out_nothing_of_another_nor_of_another_kind() {
        let (mut journal, told) = journal();
        for _ in 0..1000 {
            journal.say_of(Some(1000), &refused(1000), START);
        }
        assert_eq!(counted(&told), (BURST.into(), 0));
        journal.say_of(Some(1001), &refused(1001), START);
        journal.say_of(Some(1000), &readdressed(), START);
        journal.say_of(None, &Event::Crowded { clients: 1, text: "no descriptors".to_owned() }, START);
        assert_eq!(counted(&told), (3, 0));
        assert_eq!((journal.left_out("refused"), journal.left_out("readdressed")), (900, 0));
    }

    #[test]
    fn an_operator_may_cause_as_many_as_it_likes() {
        let (mut journal, told) = journal();
        for _ in 0..1000 {
            journal.say(&readdressed());
        }
        assert_eq!(counted(&told), (1000, 0));
    }

    /// Whoever has a namespace of its own has thousands of numbers.
    #[test]
    fn many_users_take_no_more_places_than_there_are_and_share_one() {
        let (mut journal, told) = journal();
        let users = 1000_u32;
        for user in 0..users {
            for _ in 0..20 {
                journal.say_of(Some(user), &refused(user), START);
            }
        }
        assert!(journal.measures.len() <= MOST_MEASURES + 1, "{}", journal.measures.len());
        let said = 20 * MOST_MEASURES as u64 + u64::from(BURST);
        assert_eq!(counted(&told), (said, 0));
        assert_eq!(journal.left_out("refused"), 20 * u64::from(users) - said);
        // When they are quiet, others take their places, and what was left out is told of.
        journal.say_of(Some(5000), &refused(5000), START + WHOLE);
        assert_eq!(counted(&told), (1, 20 * u64::from(users) - said));
        assert_eq!(journal.measures.len(), 1);
    }
}
