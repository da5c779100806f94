//! The packets of a trace: names by number first, then the tracks, then the events in the order of time.

use super::super::{PlaceName, QueueName, Recording};
use super::fields::{descriptor, event, interned, packet};
use super::flow::Flows;
use super::plan::{Activity, Plan, Row, What};
use super::wire::Wire;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The one sequence of packets.
const SEQUENCE: u64 = 1;
/// The track above all others.
const ROOT: u64 = 1;

/// Names of arguments; an argument's number is its place here, from 1.
const ARGUMENTS: [&str; 7] = ["line", "segment", "line of segment", "from", "to", "message", "cause"];
const LINE: u64 = 1;
const SEGMENT: u64 = 2;
const LINE_OF_SEGMENT: u64 = 3;
const FROM: u64 = 4;
const TO: u64 = 5;
const MESSAGE: u64 = 6;
const CAUSE: u64 = 7;

/// Numbers for texts, from 1, in the order in which they were first asked for.
#[derive(Default)]
struct Texts<'a> {
    numbers: BTreeMap<Cow<'a, str>, u64>,
    texts: Vec<Cow<'a, str>>,
}

impl<'a> Texts<'a> {
    fn number(&mut self, text: Cow<'a, str>) -> u64 {
        if let Some(number) = self.numbers.get(&text) {
            return *number;
        }
        self.texts.push(text.clone());
        let number = self.texts.len() as u64;
        self.numbers.insert(text, number);
        number
    }
}

pub(super) struct Writer<'a> {
    recording: &'a Recording,
    plan: &'a Plan,
    flows: Flows,
    /// The first lane's uuid of each row; those of its other lanes follow.
    uuids: BTreeMap<Row, u64>,
    names: Texts<'a>,
    /// Each item's name.
    item_names: Vec<u64>,
    strings: Texts<'a>,
    places: BTreeMap<PlaceName, u64>,
    segments: BTreeMap<&'a str, u64>,
    out: Wire,
}

impl<'a> Writer<'a> {
    pub fn new(recording: &'a Recording, plan: &'a Plan) -> Writer<'a> {
        let (mut names, mut strings) = (Texts::default(), Texts::default());
        let item_names = plan.items.iter().map(|item| names.number(name(recording, &item.what))).collect();
        let places = recording.messages.iter().flat_map(|message| [message.from, message.to]);
        let places: BTreeSet<PlaceName> = places.collect();
        let places = places.into_iter().map(|place| (place, strings.number(recording.place(place).into())));
        let places = places.collect();
        let segments = recording.segments.iter().map(|(_, name)| (name.as_str(), strings.number(name.into())));
        let segments = segments.collect();
        let flows = Flows::new(recording, &plan.items);
        let (uuids, out) = (BTreeMap::new(), Wire::default());
        Writer { recording, plan, flows, uuids, names, item_names, strings, places, segments, out }
    }

    /// The whole trace, its root track named `root`.
    pub fn write(mut self, root: &str) -> Vec<u8> {
        self.interned();
        self.tracks(root);
        self.events();
        self.out.into_bytes()
    }

    fn interned(&mut self) {
        let arguments = ARGUMENTS.map(Cow::Borrowed);
        let tables: [(u64, &[Cow<str>]); 3] = [
            (interned::EVENT_NAMES, &self.names.texts),
            (interned::ANNOTATION_NAMES, &arguments),
            (interned::ANNOTATION_STRINGS, &self.strings.texts),
        ];
        write_packet(&mut self.out, packet::STATE_CLEARED | packet::NEEDS_STATE, |packet| {
            packet.nested(packet::INTERNED_DATA, |data| {
                for (table, texts) in tables {
                    for (text, number) in texts.iter().zip(1..) {
                        data.nested(table, |entry| {
                            entry.integer(interned::IID, number);
                            entry.text(interned::VALUE, text);
                        });
                    }
                }
            });
        });
    }

    /// The root, a group for each place, one for the lines and one for the queues, and every row's lanes.
    fn tracks(&mut self, root: &str) {
        write_track(&mut self.out, ROOT, root, None, false);
        let mut last = ROOT;
        let mut groups: BTreeMap<String, u64> = BTreeMap::new();
        for ((row, lanes), rank) in self.plan.rows.iter().zip(0..) {
            let group = match row {
                Row::Place(place, _) => self.recording.place(PlaceName(*place)),
                Row::Line(_) => "lines".to_string(),
                Row::Queue(_) => "queues".to_string(),
            };
            let parent = groups.get(&group).copied().unwrap_or_else(|| {
                last += 1;
                write_track(&mut self.out, last, &group, Some((ROOT, rank)), false);
                groups.insert(group, last);
                last
            });
            let name = row_name(self.recording, *row);
            self.uuids.insert(*row, last + 1);
            for _ in 0..*lanes {
                last += 1;
                write_track(&mut self.out, last, &name, Some((parent, rank)), matches!(row, Row::Queue(_)));
            }
        }
    }

    /// Every event, by time; at one moment ends come first, and causes before what they caused.
    fn events(&mut self) {
        let mut order: Vec<(u64, bool, (u64, usize), usize)> = Vec::with_capacity(self.plan.events);
        for (number, item) in self.plan.items.iter().enumerate() {
            order.push((item.begin, true, item.rank(), number));
            if item.end > item.begin {
                order.push((item.end, false, (0, 0), number));
            }
        }
        order.sort_unstable();
        let mut out = std::mem::take(&mut self.out);
        for (time, begins, _, number) in order {
            write_packet(&mut out, packet::NEEDS_STATE, |packet| {
                packet.integer(packet::TIMESTAMP, time);
                packet.nested(packet::TRACK_EVENT, |event| self.event(event, number, begins));
            });
        }
        self.out = out;
    }

    fn event(&self, event: &mut Wire, number: usize, begins: bool) {
        let item = &self.plan.items[number];
        event.integer(event::TRACK, self.uuids[&item.row] + item.lane as u64);
        if !begins {
            return event.integer(event::TYPE, event::SLICE_END);
        }
        if let What::Level(inside) = item.what {
            event.integer(event::TYPE, event::COUNTER);
            return event.integer(event::COUNTER_VALUE, inside.min(i64::MAX as u64));
        }
        event.integer(event::TYPE, if item.end > item.begin { event::SLICE_BEGIN } else { event::INSTANT });
        event.integer(event::NAME_IID, self.item_names[number]);
        match item.what {
            What::Span(span) => self.span(event, span),
            What::Flight(message) => self.flight(event, message),
            What::Handling(message) => self.handling(event, message),
            What::Held(line, _) => self.line(event, line),
            What::Level(_) => {}
        }
    }

    fn span(&self, event: &mut Wire, number: usize) {
        let span = &self.recording.spans[number];
        self.flows.of_span(number).for_each(|flow| event.fixed(event::FLOW, flow));
        span.line.into_iter().for_each(|line| self.line(event, line));
    }

    fn flight(&self, event: &mut Wire, number: usize) {
        self.flows.to_flight(number).into_iter().for_each(|flow| event.fixed(event::TERMINATING_FLOW, flow));
        self.flows.hop(number).into_iter().for_each(|flow| event.fixed(event::FLOW, flow));
        self.message(event, number);
    }

    fn handling(&self, event: &mut Wire, number: usize) {
        self.flows.hop(number).into_iter().for_each(|flow| event.fixed(event::TERMINATING_FLOW, flow));
        self.flows.of_handling(number).for_each(|flow| event.fixed(event::FLOW, flow));
        self.message(event, number);
    }

    fn message(&self, event: &mut Wire, number: usize) {
        let message = &self.recording.messages[number];
        self.line(event, message.line);
        annotate(event, FROM, interned::ANNOTATION_STRING, self.places[&message.from]);
        annotate(event, TO, interned::ANNOTATION_STRING, self.places[&message.to]);
        annotate(event, MESSAGE, interned::ANNOTATION_UNSIGNED, number as u64);
        if let Some(cause) = self.recording.cause_of(number) {
            annotate(event, CAUSE, interned::ANNOTATION_UNSIGNED, cause as u64);
        }
    }

    fn line(&self, event: &mut Wire, line: u64) {
        annotate(event, LINE, interned::ANNOTATION_UNSIGNED, line);
        if let Some((segment, number)) = self.recording.segment(line) {
            annotate(event, SEGMENT, interned::ANNOTATION_STRING, self.segments[segment]);
            annotate(event, LINE_OF_SEGMENT, interned::ANNOTATION_UNSIGNED, number);
        }
    }
}

fn name<'a>(recording: &'a Recording, what: &'a What) -> Cow<'a, str> {
    match what {
        What::Span(number) => recording.spans[*number].name.into(),
        What::Flight(number) | What::Handling(number) => recording.messages[*number].name.into(),
        What::Held(_, label) => label.into(),
        What::Level(_) => "".into(),
    }
}

fn row_name(recording: &Recording, row: Row) -> String {
    match row {
        Row::Place(place, activity) => {
            let does = match activity {
                Activity::Program => "program",
                Activity::Handled => "handles",
                Activity::Sent => "sent",
            };
            format!("{} {does}", recording.place(PlaceName(place)))
        }
        Row::Line(line) => recording.line(line),
        Row::Queue(queue) => recording.queue(QueueName(queue)),
    }
}

fn write_packet(out: &mut Wire, flags: u64, fill: impl FnOnce(&mut Wire)) {
    out.nested(packet::PACKET, |packet| {
        fill(packet);
        packet.integer(packet::SEQUENCE_ID, SEQUENCE);
        packet.integer(packet::SEQUENCE_FLAGS, flags);
    });
}

/// A track; `parent` is its parent's uuid and its rank among the parent's children.
fn write_track(out: &mut Wire, uuid: u64, name: &str, parent: Option<(u64, u64)>, counter: bool) {
    write_packet(out, packet::NEEDS_STATE, |packet| {
        packet.nested(packet::TRACK_DESCRIPTOR, |track| {
            track.integer(descriptor::UUID, uuid);
            track.text(descriptor::NAME, name);
            if let Some((parent, rank)) = parent {
                track.integer(descriptor::PARENT, parent);
                track.integer(descriptor::RANK, rank);
            }
            if counter {
                track.nested(descriptor::COUNTER, |_| {});
            } else {
                track.integer(descriptor::CHILD_ORDERING, descriptor::EXPLICIT);
            }
        });
    });
}

fn annotate(event: &mut Wire, argument: u64, kind: u64, value: u64) {
    event.nested(event::ANNOTATION, |annotation| {
        annotation.integer(interned::ANNOTATION_NAME, argument);
        annotation.integer(kind, value);
    });
}
