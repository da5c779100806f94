//! Traces are read back field by field, by a decoder that shares nothing with the writer.

mod decode;

use super::super::sample::{loopback, nanoseconds};
use super::super::{Cause, LevelRecord, MessageRecord, OwnershipRecord, PlaceName, QueueName, SpanRecord};
use super::*;
use conic_fabric::Time;
use decode::{Event, Kind, Trace};
use std::collections::{BTreeMap, BTreeSet};

fn trace(recording: &Recording, options: &Options) -> Trace {
    decode::trace(&write(recording, options))
}

fn slices_of(trace: &Trace, row: &str) -> Vec<(String, u64, u64)> {
    trace.slices().into_iter().filter(|slice| slice.row == row).map(|s| (s.name, s.begin, s.end)).collect()
}

/// Every arrow's sender and receiver, as numbers of slices; panics where an id has not exactly one of each, in order.
fn arrows(trace: &Trace) -> BTreeMap<u64, (usize, usize)> {
    let slices = trace.slices();
    let mut senders: BTreeMap<u64, usize> = BTreeMap::new();
    let mut receivers: BTreeMap<u64, usize> = BTreeMap::new();
    for (number, slice) in slices.iter().enumerate() {
        slice.flows.iter().for_each(|flow| assert_eq!(senders.insert(*flow, number), None, "flow {flow} reused"));
        for flow in &slice.terminating {
            assert!(senders.contains_key(flow), "flow {flow} ends before it begins");
            assert_eq!(receivers.insert(*flow, number), None, "flow {flow} reused");
        }
    }
    assert_eq!(senders.keys().collect::<Vec<_>>(), receivers.keys().collect::<Vec<_>>(), "a flow has one end only");
    senders.into_iter().map(|(flow, sender)| (flow, (sender, receivers[&flow]))).collect()
}

#[test]
fn every_message_is_sent_and_handled_where_and_when_it_was() {
    let trace = trace(&loopback(), &Options::default());
    let slice = |name: &str, begin, end| (name.to_string(), begin, end);
    assert_eq!(
        slices_of(&trace, "host core 0 program"),
        [slice("burst", 90, 270), slice("load", 99, 261), slice("load", 600, 700)]
    );
    assert_eq!(
        slices_of(&trace, "host core 0 sent"),
        [slice("Read", 100, 120), slice("Prefetch", 140, 160), slice("Read", 600, 620), slice("WriteBack", 900, 920)]
    );
    // A read is being handled until the snoop that it causes is sent; what causes nothing takes no time.
    assert_eq!(
        slices_of(&trace, "host home handles"),
        [
            slice("Read", 120, 130),
            slice("Prefetch", 160, 190),
            slice("Read", 620, 620),
            slice("WriteBack", 920, 920),
            slice("Done", 960, 960),
        ]
    );
    assert_eq!(slices_of(&trace, "NIC core 0 handles"), [slice("Snoop", 180, 910)]);
    assert_eq!(slices_of(&trace, "NIC core 0 sent"), [slice("Data", 190, 260), slice("Done", 910, 960)]);
}

#[test]
fn arguments_say_line_segment_ends_and_cause() {
    let slices = trace(&loopback(), &Options::default()).slices();
    let arguments = |row: &str, name: &str| {
        let slice = slices.iter().find(|slice| slice.row == row && slice.name == name).expect("the slice is there");
        slice.arguments.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    let data = "line=8 segment=tx ring line of segment=4 from=NIC core 0 to=host core 0 message=3 cause=1";
    assert_eq!(arguments("NIC core 0 sent", "Data"), data);
    assert_eq!(arguments("host core 0 handles", "Data"), data);
    assert_eq!(arguments("host core 0 sent", "WriteBack"), "line=3 from=host core 0 to=host home message=6 cause=3");
    assert_eq!(arguments("host core 0 program", "load"), "line=8 segment=tx ring line of segment=4");
    assert_eq!(arguments("host core 0 program", "burst"), "");
}

#[test]
fn rows_of_lines_show_their_owners() {
    let trace = trace(&loopback(), &Options::default());
    let slice = |name: &str, begin, end| (name.to_string(), begin, end);
    assert_eq!(
        slices_of(&trace, "tx ring 4"),
        [
            slice("S@host core 0", 10, 20),
            slice("M@NIC core 0", 20, 180),
            slice("I", 180, 260),
            slice("M@host core 0", 260, 2000),
            slice("I", 2000, 2000),
        ]
    );
    assert_eq!(slices_of(&trace, "payload 4"), [slice("E@host core 0", 200, 2000)]);
    assert_eq!(slices_of(&trace, "line 3"), [slice("M@host core 0", 30, 900), slice("I", 900, 2000)]);
}

#[test]
fn queues_are_counters() {
    let trace = trace(&loopback(), &Options::default());
    let row = trace.tracks.values().find(|track| track.name == "host to NIC credits").expect("a track");
    assert!(row.counter);
    let values: Vec<(u64, u64)> = trace
        .events
        .iter()
        .filter(|event| event.track == row.uuid)
        .map(|event| match event.kind {
            Kind::Counter(value) => (event.time, value),
            ref other => panic!("{other:?} on a counter"),
        })
        .collect();
    assert_eq!(values, [(130, 1), (180, 0)]);
}

#[test]
fn rows_stand_under_their_places_in_order() {
    let trace = trace(&loopback(), &Options::default());
    let root = trace.tracks.values().find(|track| track.parent.is_none()).expect("a root");
    assert_eq!(root.name, "conic");
    let children = |parent: u64| {
        let mut children: Vec<_> = trace.tracks.values().filter(|track| track.parent == Some(parent)).collect();
        children.sort_by_key(|track| track.rank);
        children
    };
    let names = |tracks: &[&decode::Track]| tracks.iter().map(|track| track.name.clone()).collect::<Vec<_>>();
    let groups = children(root.uuid);
    assert_eq!(names(&groups), ["host core 0", "host home", "NIC core 0", "lines", "queues"]);
    assert!(trace.tracks.values().all(|track| track.ordered_by_rank != track.counter));
    // The burst and the load within it overlap: two lanes of one name.
    let core = ["host core 0 program", "host core 0 program", "host core 0 handles", "host core 0 sent"];
    assert_eq!(names(&children(groups[0].uuid)), core);
    let ranks: BTreeSet<u64> = children(groups[0].uuid)[..2].iter().map(|lane| lane.rank).collect();
    assert_eq!(ranks.len(), 1);
    assert_eq!(names(&children(groups[3].uuid)), ["line 3", "tx ring 4", "payload 4"]);
}

#[test]
fn arrows_lead_from_an_access_to_all_that_it_caused() {
    let trace = trace(&loopback(), &Options::default());
    let slices = trace.slices();
    let arrows = arrows(&trace);
    // A way each for eight messages, two accesses that sent one, and five messages that another caused.
    assert_eq!(arrows.len(), 8 + 2 + 5);
    let load = slices.iter().position(|slice| slice.name == "load").expect("a load");
    let mut reached = BTreeSet::from([load]);
    for (sender, receiver) in arrows.values() {
        // Numbers of arrows rise along a chain.
        if reached.contains(sender) {
            reached.insert(*receiver);
        }
    }
    let names: BTreeSet<(&str, &str)> =
        reached.iter().map(|slice| (slices[*slice].row.as_str(), slices[*slice].name.as_str())).collect();
    let expected = [
        ("NIC core 0 handles", "Snoop"),
        ("NIC core 0 sent", "Data"),
        ("NIC core 0 sent", "Done"),
        ("host core 0 handles", "Data"),
        ("host core 0 program", "load"),
        ("host core 0 sent", "Read"),
        ("host core 0 sent", "WriteBack"),
        ("host home handles", "Done"),
        ("host home handles", "Read"),
        ("host home handles", "WriteBack"),
        ("host home sent", "Snoop"),
    ];
    assert_eq!(names, BTreeSet::from(expected));
}

#[test]
fn an_access_that_waited_for_anothers_message_has_no_arrow_to_it() {
    let mut recording = loopback();
    let mut second = recording.spans[0];
    (second.begins, second.ends) = (nanoseconds(110), nanoseconds(262));
    recording.spans.push(second);
    let trace = trace(&recording, &Options::default());
    assert_eq!(arrows(&trace).len(), 15);
}

/// A recording of many messages that overlap in every way.
fn crowd(messages: u32) -> Recording {
    let mut draws = crate::draws::Draws::new(3);
    let mut below = |limit: u64| draws.below(limit);
    let mut recording = Recording { places: vec!["a".into(), "b".into(), "c".into()], ..Recording::default() };
    for number in 0..messages {
        let sent = Time::from_picoseconds(u64::from(number) * 700 + below(5_000));
        recording.messages.push(MessageRecord {
            name: ["Read", "Data", "Snoop"][below(3) as usize],
            line: below(4),
            from: PlaceName(below(3) as u16),
            to: PlaceName(below(3) as u16),
            sent,
            arrives: sent + Time::from_picoseconds(below(40_000)),
            cause: (number > 0 && below(2) == 0).then(|| Cause(below(u64::from(number)) as u32)),
            asks: false,
        });
    }
    recording
}

#[test]
fn slices_that_overlap_keep_their_durations() {
    for picoseconds in [false, true] {
        let recording = crowd(500);
        let options = Options { picoseconds, ..Options::default() };
        let trace = trace(&recording, &options);
        // The decoder fails where a slice begins on a track whose last one has not ended. Nothing may be lost:
        let mut found: Vec<(u64, u64)> =
            trace.slices().iter().filter(|s| s.row.ends_with("sent")).map(|s| (s.begin, s.end)).collect();
        let unit = |time: Time| if picoseconds { time.picoseconds() } else { time.nanoseconds() };
        let mut expected: Vec<(u64, u64)> =
            recording.messages.iter().map(|message| (unit(message.sent), unit(message.arrives))).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
        arrows(&trace);
    }
}

#[test]
fn a_row_has_no_more_lanes_than_slices_overlap_on_it() {
    let mut recording = Recording { places: vec!["core".into()], ..Recording::default() };
    for (begins, ends) in [(0, 10), (2, 6), (6, 12), (10, 11), (20, 30)] {
        recording.spans.push(SpanRecord {
            name: "load",
            place: PlaceName(0),
            line: None,
            begins: nanoseconds(begins),
            ends: nanoseconds(ends),
            first: None,
        });
    }
    let trace = trace(&recording, &Options::default());
    assert_eq!(trace.tracks.values().filter(|track| track.name == "core program").count(), 2);
}

#[test]
fn picoseconds_are_written_as_such_and_said() {
    let mut recording = loopback();
    recording.messages[0].sent = Time::from_picoseconds(100_385);
    let options = Options { picoseconds: true, ..Options::default() };
    let fine = trace(&recording, &options);
    assert_eq!(slices_of(&fine, "host core 0 sent")[0], ("Read".to_string(), 100_385, 120_000));
    let root = fine.tracks.values().find(|track| track.parent.is_none()).expect("a root");
    assert_eq!(root.name, "conic: 1 ns shown is 1 ps simulated");
    let coarse = trace(&recording, &Options::default());
    assert_eq!(slices_of(&coarse, "host core 0 sent")[0], ("Read".to_string(), 100, 120));
}

#[test]
fn a_limit_keeps_the_first_events_whole_and_says_so() {
    let recording = crowd(200);
    let all = count_events(&recording, &Options::default());
    assert_eq!(trace(&recording, &Options::default()).events.len(), all);
    for most_events in [0, 1, 2, 3, 77, all - 1] {
        let options = Options { most_events, ..Options::default() };
        let cut = trace(&recording, &options);
        assert!(cut.events.len() <= most_events && cut.events.len() + 2 > most_events, "{most_events}");
        arrows(&cut);
        let root = cut.tracks.values().find(|track| track.parent.is_none()).expect("a root");
        let expected = format!("conic: only the first {} of {all} events; ask for more", cut.events.len());
        assert_eq!(root.name, expected);
    }
    let options = Options { most_events: all, ..Options::default() };
    assert_eq!(write(&recording, &options), write(&recording, &Options::default()));
    let stopped = Recording { dropped: 12, ..loopback() };
    let root = trace(&stopped, &Options::default()).tracks.remove(&1).expect("a root");
    assert_eq!(root.name, "conic: recording stopped at its limit, 12 more left out");
}

#[test]
fn any_recording_gives_a_trace() {
    let message = |from, to, sent, arrives, cause| MessageRecord {
        name: "\u{0}<&",
        line: u64::MAX,
        from: PlaceName(from),
        to: PlaceName(to),
        sent: Time::from_picoseconds(sent),
        arrives: Time::from_picoseconds(arrives),
        cause: Some(Cause(cause)),
        asks: false,
    };
    let span = |begins, ends, first| SpanRecord {
        name: "",
        place: PlaceName(9),
        line: Some(u64::MAX),
        begins: Time::from_picoseconds(begins),
        ends: Time::from_picoseconds(ends),
        first: Some(Cause(first)),
    };
    let recording = Recording {
        segments: vec![(7, "seven".into()), (3, "three".into())],
        messages: vec![
            message(0, u16::MAX, 500_000, 20, 0),
            message(u16::MAX, 1, u64::MAX, u64::MAX, 0),
            message(1, 1, 0, u64::MAX, 4_000_000_000),
            message(1, 1, 0, 3, 1),
        ],
        spans: vec![span(9, 3, 0), span(0, u64::MAX, u32::MAX), span(u64::MAX, 0, 2)],
        ownership: vec![OwnershipRecord { line: 1, place: PlaceName(77), state: '\u{fffd}', at: Time::NEVER }],
        levels: vec![LevelRecord { queue: QueueName(5), inside: u64::MAX, at: Time::ZERO }],
        dropped: u64::MAX,
        ..Recording::default()
    };
    for picoseconds in [false, true] {
        let trace = trace(&recording, &Options { picoseconds, ..Options::default() });
        arrows(&trace);
        assert_eq!(trace.slices().len(), 2 * 4 + 3 + 1);
        assert!(trace.events.iter().all(|event| event.time <= i64::MAX as u64));
    }
    let nothing = trace(&Recording::default(), &Options::default());
    assert_eq!((nothing.tracks.len(), nothing.events.len()), (1, 0));
}

#[test]
fn the_same_recording_gives_the_same_bytes() {
    assert_eq!(write(&crowd(100), &Options::default()), write(&crowd(100), &Options::default()));
}

#[test]
#[should_panic(expected = "a slice begins before the last one of its track ends")]
fn the_decoder_refuses_slices_that_overlap_on_one_track() {
    let event = |time, kind| Event { time, kind, track: 1, ..Event::default() };
    let events = vec![event(1, Kind::Begin), event(2, Kind::Begin), event(3, Kind::End)];
    Trace { events, ..Trace::default() }.slices();
}
