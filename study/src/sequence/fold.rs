//! Lines that are alike: a payload of many lines would otherwise be a column and some rows for each, and nobody could read the diagram.

use std::collections::{BTreeMap, BTreeSet};

use conic_chart::sequence::said_behind;
use conic_sim::probe::{PlaceName, Recording};

/// Lines up to which each is drawn by itself, and columns that are drawn at most.
const MOST: usize = 24;

/// What happens to a line: what is sent and done, how often and between whom, in whatever order.
type Course = BTreeMap<(&'static str, PlaceName, PlaceName), usize>;

/// Which lines stand for others.
#[derive(Debug, Default)]
pub(super) struct Folded {
    /// By line, how many others are drawn with it.
    with: BTreeMap<u64, usize>,
    /// Lines that are drawn with another.
    away: BTreeSet<u64>,
}

/// Folds the lines of a recording that has many: of neighbours in one segment, those with one course into the first of them.
pub(super) fn of(recording: &Recording) -> Folded {
    let mut courses: BTreeMap<u64, Course> = BTreeMap::new();
    for change in &recording.ownership {
        courses.entry(change.line).or_default();
    }
    for message in &recording.messages {
        *courses.entry(message.line).or_default().entry((message.name, message.from, message.to)).or_default() += 1;
    }
    for (span, line) in recording.spans.iter().filter_map(|span| Some((span, span.line?))) {
        *courses.entry(line).or_default().entry((span.name, span.place, span.place)).or_default() += 1;
    }
    let mut folded = Folded::default();
    if courses.len() <= MOST {
        return folded;
    }
    let segment = |line: u64| recording.segments.iter().filter(|(first, _)| *first <= line).count();
    // The first of each course, among the neighbours that are looked at.
    let mut firsts: Vec<(&Course, u64)> = Vec::new();
    let mut last = None;
    for (&line, course) in &courses {
        if last.is_none_or(|last| last + 1 != line || segment(last) != segment(line)) {
            firsts.clear();
        }
        last = Some(line);
        match firsts.iter().find(|(other, _)| *other == course) {
            Some((_, first)) => {
                *folded.with.entry(*first).or_default() += 1;
                folded.away.insert(line);
            }
            None => firsts.push((course, line)),
        }
    }
    folded
}

impl Folded {
    /// Whether a line is drawn by itself.
    pub(super) fn draws(&self, line: u64) -> bool {
        !self.away.contains(&line)
    }

    /// Whether the so-manieth of the lines that are drawn has a column.
    pub(super) fn has_column(&self, number: usize) -> bool {
        number < MOST
    }

    /// A line's name, and for how many it stands.
    pub(super) fn name(&self, name: String, line: u64) -> String {
        self.with.get(&line).map_or_else(|| name.clone(), |others| format!("{name} and {others} like it"))
    }

    /// A note, and what was folded and has no column of so many lines.
    pub(super) fn told(&self, note: &str, lines: usize) -> String {
        let mut note = note.to_owned();
        if !self.away.is_empty() {
            note = said_behind(
                &note,
                "Neighbouring lines with the same messages are drawn once, with the first one's times.",
            );
        }
        if lines > MOST {
            note = said_behind(&note, &format!("The first {MOST} of {lines} lines have columns."));
        }
        note
    }
}

#[cfg(test)]
mod tests {
    use conic_fabric::Time;
    use conic_sim::probe::MessageRecord;

    use super::*;

    fn recording(messages: &[(u64, &'static str)]) -> Recording {
        let message = |&(line, name): &(u64, &'static str)| MessageRecord {
            name,
            line,
            from: PlaceName(0),
            to: PlaceName(1),
            sent: Time::from_nanoseconds(line),
            arrives: Time::from_nanoseconds(line + 10),
            cause: None,
            asks: false,
        };
        Recording {
            segments: vec![(0, "ring".to_owned()), (100, "buffers".to_owned())],
            messages: messages.iter().map(message).collect(),
            ..Recording::default()
        }
    }

    #[test]
    fn neighbours_with_one_course_are_drawn_once() {
        let mut messages: Vec<_> = (90..130).map(|line| (line, "Read")).collect();
        // One goes another way, and one has no neighbour.
        messages.extend([(110, "Write"), (200, "Read")]);
        let folded = of(&recording(&messages));
        let drawn: Vec<u64> = messages.iter().map(|(line, _)| *line).filter(|line| folded.draws(*line)).collect();
        assert_eq!(
            drawn,
            [90, 100, 110, 110, 200],
            "the ring's, the buffers', the odd one by both its messages, and the lone one"
        );
        assert_eq!(folded.name("buffers 0".to_owned(), 100), "buffers 0 and 28 like it");
        assert_eq!(folded.name("buffers 10".to_owned(), 110), "buffers 10");
        assert!(folded.told("A note", 4).ends_with("are drawn once, with the first one's times."));
    }

    #[test]
    fn few_lines_are_drawn_each() {
        let messages: Vec<_> = (0..MOST as u64).map(|line| (line, "Read")).collect();
        let folded = of(&recording(&messages));
        assert!(messages.iter().all(|(line, _)| folded.draws(*line)));
        assert_eq!(folded.told("A note", MOST), "A note");
        let many: Vec<_> = (0..100).map(|line| (2 * line, "Read")).collect();
        let folded = of(&recording(&many));
        assert!(many.iter().all(|(line, _)| folded.draws(*line)), "none has a neighbour");
        assert_eq!(folded.told("", 100), "The first 24 of 100 lines have columns.");
        assert!(folded.has_column(23) && !folded.has_column(24));
    }
}
