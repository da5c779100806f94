//! What goes where: rows, the slices on them, and a lane for each slice so that none overlaps another.

use super::super::holding::holdings;
use super::super::{QueueName, Recording};
use conic_fabric::Time;
use std::collections::BTreeMap;

/// What a row of a place shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Activity {
    /// What the place's program did.
    Program,
    /// Messages that came, until the last one that they caused there was sent.
    Handled,
    /// Messages that the place sent, until they arrive.
    Sent,
}

/// A row of the trace, in the order in which rows are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Row {
    /// A place's, by its index.
    Place(u16, Activity),
    /// A line's ownership.
    Line(u64),
    /// A queue's level.
    Queue(u16),
}

/// What an item shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// An access, by its index.
    Span(usize),
    /// A message on its way.
    Flight(usize),
    /// A message where it arrived.
    Handling(usize),
    /// Who holds a line.
    Held(u64, String),
    /// A queue's level.
    Level(u64),
}

/// A slice, an instant where it begins and ends at once, or a counter's value. Times in the trace's unit.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub row: Row,
    pub lane: usize,
    pub begin: u64,
    pub end: u64,
    pub what: What,
}

impl Item {
    /// Events that it is written as.
    fn events(&self) -> usize {
        if self.begin == self.end { 1 } else { 2 }
    }

    /// Of items that begin at once, the cause goes first: a flow that ends before it begins is lost.
    pub fn rank(&self) -> (u64, usize) {
        match &self.what {
            What::Span(number) => (0, *number),
            What::Flight(number) => (1, 2 * number),
            What::Handling(number) => (1, 2 * number + 1),
            What::Held(..) | What::Level(_) => (2, 0),
        }
    }
}

/// All items that are written, in the order in which they begin.
#[derive(Debug)]
pub(super) struct Plan {
    pub items: Vec<Item>,
    /// Each row's number of lanes.
    pub rows: BTreeMap<Row, usize>,
    /// Events that are written.
    pub events: usize,
    /// Events of the whole recording.
    pub all_events: usize,
}

/// The trace's times: nanoseconds rounded down, or picoseconds; what no signed 64-bit number holds is cut to it.
pub(super) fn unit(time: Time, picoseconds: bool) -> u64 {
    let time = if picoseconds { time.picoseconds() } else { time.nanoseconds() };
    time.min(i64::MAX as u64)
}

impl Plan {
    /// Plans a trace of at most `limit` events: the first ones, whole slices only.
    pub fn new(recording: &Recording, picoseconds: bool, limit: usize) -> Plan {
        let mut items = items(recording, picoseconds);
        items.sort_by_key(|item| (item.begin, item.rank()));
        let all_events = items.iter().map(Item::events).sum();
        let mut events = 0;
        let kept = items.iter().take_while(|item| {
            let fits = events + item.events() <= limit;
            events += if fits { item.events() } else { 0 };
            fits
        });
        let kept = kept.count();
        items.truncate(kept);
        let rows = lanes(&mut items);
        Plan { items, rows, events, all_events }
    }
}

fn items(recording: &Recording, picoseconds: bool) -> Vec<Item> {
    let mut items = Vec::with_capacity(2 * recording.messages.len() + recording.spans.len());
    let mut add = |row, begin: Time, end: Time, what| {
        let (begin, end) = (unit(begin, picoseconds), unit(end.max(begin), picoseconds));
        items.push(Item { row, lane: 0, begin, end, what });
    };
    for (number, span) in recording.spans.iter().enumerate() {
        add(Row::Place(span.place.0, Activity::Program), span.begins, span.ends, What::Span(number));
    }
    // A message is being handled until the last one that it caused is sent.
    let mut handled: Vec<Time> = recording.messages.iter().map(|message| message.arrives).collect();
    for (number, message) in recording.messages.iter().enumerate() {
        if let Some(cause) = recording.cause_of(number) {
            handled[cause] = handled[cause].max(message.sent);
        }
    }
    for (number, message) in recording.messages.iter().enumerate() {
        let from = Row::Place(message.from.0, Activity::Sent);
        add(from, message.sent, message.arrives, What::Flight(number));
        let to = Row::Place(message.to.0, Activity::Handled);
        let there = message.arrives.max(message.sent);
        add(to, there, handled[number], What::Handling(number));
    }
    for (line, held) in holdings(recording) {
        for holding in held {
            add(Row::Line(line), holding.from, holding.until, What::Held(line, holding.label(recording)));
        }
    }
    for level in &recording.levels {
        let QueueName(queue) = level.queue;
        add(Row::Queue(queue), level.at, level.at, What::Level(level.inside));
    }
    items
}

/// Gives each item, in the order of their beginnings, the lowest lane of its row that is free. An instant takes its lane for
/// one unit of time: two on one place would hide each other.
fn lanes(items: &mut [Item]) -> BTreeMap<Row, usize> {
    let mut free_at: BTreeMap<Row, Vec<u64>> = BTreeMap::new();
    for item in items {
        let lanes = free_at.entry(item.row).or_default();
        if let What::Level(_) = item.what {
            lanes.resize(1, 0);
            continue;
        }
        item.lane = lanes.iter().position(|free| *free <= item.begin).unwrap_or(lanes.len());
        let taken = item.end.max(item.begin.saturating_add(1));
        match lanes.get_mut(item.lane) {
            Some(free) => *free = taken,
            None => lanes.push(taken),
        }
    }
    free_at.into_iter().map(|(row, lanes)| (row, lanes.len())).collect()
}
