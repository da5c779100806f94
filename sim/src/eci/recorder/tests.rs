//! What is written down: every message once, under its cause, with the owners meanwhile; and that it changes nothing.

use std::collections::BTreeMap;

use conic_fabric::{Address, Core, Grant};

use super::super::parameters::EciParameters;
use super::super::tests::{answering, exchange_on, lines, parameters};
use super::super::{Counters, Disturbances, EciCore, EciSimulation};
use super::*;
use crate::probe::MessageRecord;
use crate::probe::holding::holdings;
use crate::simulation::Role;

/// Runs an exchange of two lines by a device that returns lines in one way, and gives what was written down.
fn exchange(parameters: &EciParameters, grant: Grant) -> Recording {
    let recording = exchange_on(parameters, [1, 0], grant, Some(10_000)).expect("it ends");
    recording.expect("it was asked for")
}

/// What was written down of a core's program, beside a device that answers at once and returns what was asked for to read shared.
fn recorded(program: impl FnOnce(&EciCore<'_>) + 'static) -> Recording {
    let mut simulation = EciSimulation::new(&parameters(), &lines(2), Disturbances::default());
    simulation.core("core", Role::Main, program);
    simulation.device("device", Role::Service, answering(Grant::Shared));
    simulation.machine().borrow_mut().record(100);
    simulation.run().expect("it ends");
    let recording = simulation.machine().borrow_mut().take_recording();
    recording.expect("it was asked for")
}

/// Each message: its name, its way, its line, and which one caused it.
fn messages(recording: &Recording) -> Vec<(&str, String, u64, Option<u32>)> {
    let way = |one: &MessageRecord| format!("{} -> {}", recording.place(one.from), recording.place(one.to));
    let message = |one: &MessageRecord| (one.name, way(one), one.line, one.cause.map(|cause| cause.0));
    recording.messages.iter().map(message).collect()
}

/// Who owned a line, one after the other.
fn owners(recording: &Recording, line: u64) -> Vec<String> {
    holdings(recording)[&line].iter().map(|holding| holding.label(recording)).collect()
}

#[test]
fn a_miss_is_six_messages_one_behind_the_other() {
    let parameters = parameters();
    let recording = recorded(|core| {
        core.load(Address(128));
    });
    assert_eq!(recording.line(1), "lines 1");
    let expected = [
        ("Load", "core 0 -> L2", None),
        ("ReadShared", "L2 -> directory", Some(0)),
        ("ReadShared", "directory -> device", Some(1)),
        ("GrantShared", "device -> directory", Some(2)),
        ("GrantShared", "directory -> L2", Some(3)),
        ("Data", "L2 -> core 0", Some(4)),
    ];
    assert_eq!(messages(&recording), expected.map(|(name, way, cause)| (name, way.to_owned(), 1, cause)));
    let p = &parameters;
    let line_time = u64::from(p.link.line_words) * p.link.word_time;
    // A load's address is issued in a nanosecond. The device takes a cycle for what it hears of.
    let mut at = 1_000;
    for (message, (takes, waits)) in recording.messages.iter().zip([
        (p.cache.core_to_l2, 0),
        (p.link.word_time + p.link.crossing, 0),
        (p.directory.pass, p.device.message_time),
        (p.directory.pass, 0),
        (line_time + p.link.crossing, 0),
        (p.cache.l2_to_core, 0),
    ]) {
        assert_eq!((message.sent.picoseconds(), message.arrives.picoseconds()), (at, at + takes), "{message:?}");
        at += takes + waits;
    }
    assert_eq!(owners(&recording, 1), ["E@device", "S@device", "S@L2+device"]);
    assert_eq!(owners(&recording, 0), ["E@device"]);
    let spans: Vec<_> = recording.spans.iter().map(|span| (span.name, span.place, span.line, span.first)).collect();
    let expected =
        [("request waits", DEVICE, Some(1), Some(Cause(3))), ("wait for a line", place_of(0), Some(1), Some(Cause(0)))];
    assert_eq!(spans, expected);
    let waited = recording.spans[1];
    assert_eq!((waited.begins.picoseconds(), waited.ends.picoseconds()), (1_000, at));
}

#[test]
fn an_exchange_is_two_round_trips_and_the_line_is_locked_until_the_device_takes_it() {
    let recording = exchange(&parameters(), Grant::Exclusive);
    let over_the_link: Vec<_> = messages(&recording)
        .into_iter()
        .filter(|(_, way, ..)| way == "L2 -> directory" || way == "directory -> L2")
        .map(|(name, _, line, _)| (name, line))
        .collect();
    let expected = [
        // The line that is written, which the cache did not have.
        ("ReadExclusive", 1),
        ("GrantExclusive", 1),
        ("ReadShared", 0),
        ("Recall", 1),
        ("RecalledModified", 1),
        ("GrantExclusive", 0),
    ];
    assert_eq!(over_the_link, expected);
    assert_eq!(owners(&recording, 1), ["E@device", "I", "M@L2", "I", "L@device", "E@device"]);
    assert_eq!(owners(&recording, 0), ["E@device", "I", "E@L2"]);
    // From the load on, each message caused the next.
    let load = recording.messages.iter().position(|message| message.name == "Load").expect("it misses");
    for number in load + 1..recording.messages.len() {
        assert_eq!(recording.cause_of(number), Some(number - 1), "{:?}", messages(&recording));
        let (cause, message) = (recording.messages[number - 1], recording.messages[number]);
        assert!(cause.to == message.from && cause.arrives <= message.sent, "{cause:?}, then {message:?}");
    }
    // The device has the line from the last hop's end until it has taken its cycle for it.
    let locked = holdings(&recording)[&1][4].clone();
    assert_eq!(locked.until.since(locked.from).picoseconds(), parameters().device.message_time);
}

#[test]
fn a_store_to_a_shared_copy_upgrades_it_and_is_acknowledged_once() {
    let recording = recorded(|core| {
        core.load(Address(0));
        core.store(Address(0), 1);
        core.store(Address(8), 2);
        core.full_fence();
    });
    let names: Vec<&str> = messages(&recording)[6..].iter().map(|(name, ..)| *name).collect();
    let upgrade = ["Upgrade", "Upgrade", "GrantExclusive", "GrantExclusive"];
    assert_eq!(names, [&["Store"][..], &upgrade, &["Done"]].concat());
    assert_eq!(owners(&recording, 0), ["E@device", "S@device", "S@L2+device", "S@L2", "M@L2"]);
    let waited = recording.spans.iter().find(|span| span.name == "wait for all stores").expect("the fence waits");
    assert_eq!((waited.line, waited.ends), (Some(0), recording.messages.last().expect("Done").arrives));
}

#[test]
fn a_line_that_is_written_back_first_has_no_owner_until_that_is_there() {
    let mut parameters = parameters();
    parameters.cache.writes_back_first = true;
    let recording = exchange(&parameters, Grant::Exclusive);
    let found = messages(&recording);
    let recall = found.iter().position(|(name, ..)| *name == "Recall").expect("there is one");
    let names: Vec<_> = found[recall..].iter().map(|(name, way, ..)| (*name, way.as_str())).collect();
    let expected = [
        ("Recall", "device -> directory"),
        ("Recall", "directory -> L2"),
        ("VictimModified", "L2 -> directory"),
        ("VictimModified", "directory -> device"),
        ("Written", "device -> directory"),
        ("Written", "directory -> L2"),
        ("RecalledNothing", "L2 -> directory"),
        ("RecalledNothing", "directory -> device"),
    ];
    assert_eq!(names[..8], expected);
    // Home again when it was written back, and locked when the recall is done.
    assert_eq!(owners(&recording, 1), ["E@device", "I", "M@L2", "I", "E@device", "L@device", "E@device"]);
}

#[test]
fn a_recording_that_is_full_counts_what_it_leaves_out() {
    let whole = exchange(&parameters(), Grant::Exclusive);
    let records = |one: &Recording| one.messages.len() + one.spans.len() + one.ownership.len();
    // All lines' first states are among them: enough for those, and for a few messages.
    let limit = records(&whole) - 7;
    let cut = exchange_on(&parameters(), [1, 0], Grant::Exclusive, Some(limit)).expect("it ends").expect("asked for");
    assert_eq!((records(&cut), cut.dropped), (limit, 7));
}

/// What [`Counters`] call a message over the link.
fn kind_of(name: &str) -> &'static str {
    match name {
        "ReadShared" | "ReadExclusive" => "request",
        "Upgrade" => "upgrade",
        "VictimClean" => "victim",
        "VictimModified" => "victim with data",
        "RecalledClean" | "RecalledNothing" => "recalled",
        "RecalledModified" => "recalled with data",
        "GrantExclusive" | "GrantShared" => "grant",
        "Recall" => "recall",
        "Written" => "written",
        other => panic!("{other} is no message over the link"),
    }
}

/// That all that was counted was written down, and each message once on each of its hops.
pub(in crate::eci) fn holds_all(recording: &Recording, counters: &Counters, end: u64) {
    assert_eq!(recording.dropped, 0);
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    // What each message has sent: over the link, and between the directory and the device.
    let mut effects: Vec<Vec<&MessageRecord>> = vec![Vec::new(); recording.messages.len()];
    for (number, message) in recording.messages.iter().enumerate() {
        if (message.from, message.to) == (L2, DIRECTORY) || (message.from, message.to) == (DIRECTORY, L2) {
            *counted.entry(kind_of(message.name)).or_default() += 1;
        }
        assert!(message.sent < message.arrives, "{message:?}");
        let Some(cause) = message.cause else { continue };
        let cause = recording.cause_of(number).unwrap_or_else(|| panic!("{cause:?} of {message:?} is behind it"));
        assert!(recording.messages[cause].arrives <= message.sent, "{message:?}");
        // Only the device brings one line into play for another.
        let is_programs = message.from == DEVICE;
        assert!(is_programs || recording.messages[cause].line == message.line, "{message:?}");
        effects[cause].push(message);
    }
    let expected: BTreeMap<&str, u64> = counters.messages.iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, expected);
    let same = |one: &&MessageRecord, other: &MessageRecord| (one.name, one.line) == (other.name, other.line);
    for (message, effects) in recording.messages.iter().zip(&effects) {
        let goes_on = effects.iter().filter(|effect| same(effect, message)).count();
        let hop = (message.from, message.to);
        if hop == (DEVICE, DIRECTORY) || hop == (L2, DIRECTORY) {
            // What came too late to go on before the end is left out.
            let is_late = message.arrives.picoseconds() + 1_000_000 > end;
            assert!(goes_on == 1 || (is_late && goes_on == 0), "{message:?} goes on {goes_on} times");
        }
    }
    for message in recording.messages.iter().filter(|one| one.from == DIRECTORY) {
        let hop = recording.messages[message.cause.expect("something came to the directory").0 as usize];
        assert!(same(&&hop, message) && hop.to == DIRECTORY, "{message:?} after {hop:?}");
    }
}

#[test]
fn programs_that_say_what_they_do_are_written_down() {
    let recording = recorded(|core| {
        core.work(10);
        core.note_span("works", Time::ZERO, core.now());
    });
    let ends = Time::from_nanoseconds(5);
    let span = SpanRecord { name: "works", place: place_of(0), line: None, begins: Time::ZERO, ends, first: None };
    assert_eq!((recording.place(place_of(0)), recording.spans), ("core 0".to_owned(), vec![span]));
}
