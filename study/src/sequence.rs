//! A recording as a sequence diagram: every message, every access, and who held each line meanwhile.
//!
//! It stands here because the simulator knows nothing of drawings and the drawings nothing of the simulator.

mod fold;
mod order;

use conic_chart::sequence::{Sequence, SequenceLine, SequenceMessage, SequenceSpan, SequenceState, said_behind};
use conic_fabric::Time;
use conic_sim::probe::holding::{Holding, holdings};
use conic_sim::probe::{PlaceName, Recording};
use std::collections::{BTreeMap, BTreeSet};

/// What stands over a diagram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The heading: `one packet of 64 B, CC-NIC on spr`.
    pub title: String,
    /// What stands below it.
    pub note: String,
    /// When what is drawn begins, which times are counted from; its first message or access without it.
    pub begin: Option<Time>,
}

/// The sequence diagram of a recording, best one packet's ([`Recording::packet`]), as SVG text.
///
/// Places that neither send, receive nor do anything are left out, and those that talk to each other stand close. Lines stand in the order in which messages, then accesses,
/// then changes of owners first name them. Of many lines, neighbours that are alike are drawn once.
pub fn svg(recording: &Recording, options: &Options) -> String {
    let folded = fold::of(recording);
    let used = order::places(recording);
    let columns: BTreeMap<PlaceName, usize> = used.iter().copied().zip(0..).collect();
    let lines: Vec<u64> = lines(recording).into_iter().filter(|line| folded.draws(*line)).collect();
    let numbers: BTreeMap<u64, usize> = lines.iter().copied().zip(0..).collect();
    let held = holdings(recording);
    let mut note = options.note.clone();
    if recording.dropped > 0 {
        let more = format!("Recording stopped at its limit: {} more were not written down.", recording.dropped);
        note = said_behind(&note, &more);
    }
    note = folded.told(&note, lines.len());
    Sequence {
        title: options.title.clone(),
        note,
        begin: options.begin.map(Time::picoseconds),
        places: used.iter().map(|place| recording.place(*place)).collect(),
        lines: lines
            .iter()
            .enumerate()
            .map(|(number, line)| {
                let states = held.get(line).filter(|_| folded.has_column(number));
                let column = column(recording, *line, states.map_or(&[], Vec::as_slice));
                SequenceLine { name: folded.name(column.name, *line), ..column }
            })
            .collect(),
        messages: recording
            .messages
            .iter()
            .filter(|message| folded.draws(message.line))
            .map(|message| SequenceMessage {
                name: message.name.to_string(),
                line: Some(numbers[&message.line]),
                from: columns[&message.from],
                to: columns[&message.to],
                sent: message.sent.picoseconds(),
                arrives: message.arrives.picoseconds(),
            })
            .collect(),
        spans: recording
            .spans
            .iter()
            .filter(|span| span.line.is_none_or(|line| folded.draws(line)))
            .map(|span| SequenceSpan {
                name: span.name.to_string(),
                line: span.line.map(|line| numbers[&line]),
                place: columns[&span.place],
                begins: span.begins.picoseconds(),
                ends: span.ends.picoseconds(),
            })
            .collect(),
    }
    .to_svg()
}

/// Every line that is named, in the order in which it first is.
fn lines(recording: &Recording) -> Vec<u64> {
    let messages = recording.messages.iter().map(|message| message.line);
    let spans = recording.spans.iter().filter_map(|span| span.line);
    let owned = recording.ownership.iter().map(|change| change.line);
    let mut seen = BTreeSet::new();
    messages.chain(spans).chain(owned).filter(|line| seen.insert(*line)).collect()
}

fn column(recording: &Recording, line: u64, held: &[Holding]) -> SequenceLine {
    let state = |holding: &Holding| SequenceState {
        from: holding.from.picoseconds(),
        name: holding.label(recording),
        strength: holding.holders.iter().map(|(_, state)| strength(*state)).max().unwrap_or(0),
    };
    SequenceLine { name: recording.line(line), states: held.iter().map(state).collect() }
}

/// The more a state allows, the stronger it is filled.
fn strength(state: char) -> u8 {
    match state {
        'M' | 'O' => 3,
        'E' => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conic_fabric::Time;
    use conic_sim::probe::{Cause, MessageRecord, OwnershipRecord, SpanRecord};

    fn recording() -> Recording {
        let message = |name, from, to, sent, arrives, cause| MessageRecord {
            name,
            line: 5,
            from: PlaceName(from),
            to: PlaceName(to),
            sent: Time::from_nanoseconds(sent),
            arrives: Time::from_nanoseconds(arrives),
            cause,
            asks: false,
        };
        let owner = |line, place, state, at| OwnershipRecord {
            line,
            place: PlaceName(place),
            state,
            at: Time::from_nanoseconds(at),
        };
        Recording {
            places: ["core 0", "idle home", "NIC core"].map(str::to_string).to_vec(),
            segments: vec![(4, "tx <ring>".to_string())],
            messages: vec![
                message("Read", 0, 2, 1_000, 1_057, None),
                message("Data", 2, 0, 1_060, 1_117, Some(Cause(0))),
            ],
            spans: vec![SpanRecord {
                name: "load",
                place: PlaceName(0),
                line: Some(5),
                begins: Time::from_nanoseconds(990),
                ends: Time::from_nanoseconds(1_120),
                first: Some(Cause(0)),
            }],
            ownership: vec![
                owner(5, 2, 'M', 10),
                owner(5, 2, 'S', 1_060),
                owner(5, 0, 'S', 1_117),
                owner(9, 0, 'E', 20),
            ],
            dropped: 3,
            ..Recording::default()
        }
    }

    fn texts(svg: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(svg).expect("the drawing is XML");
        let texts = document.descendants().filter(|node| node.has_tag_name("text"));
        texts.map(|node| node.descendants().filter_map(|n| n.text().filter(|_| n.is_text())).collect()).collect()
    }

    #[test]
    fn every_message_and_owner_is_named_once() {
        let svg =
            svg(&recording(), &Options { title: "a packet".to_string(), note: "A note.".to_string(), begin: None });
        let texts = texts(&svg);
        let count = |text: &str| texts.iter().filter(|found| *found == text).count();
        assert_eq!(count("Read tx <ring> 1 · 57.0 ns"), 1, "{texts:?}");
        assert_eq!(count("Data tx <ring> 1 · 57.0 ns"), 1);
        assert_eq!(count("load tx <ring> 1 · 130.0 ns"), 1);
        assert_eq!((count("core 0"), count("idle home"), count("NIC core")), (1, 0, 1));
        assert_eq!((count("M@NIC core"), count("S@NIC core")), (1, 1));
        assert!(svg.contains("<title>tx &lt;ring&gt; 1: S@core 0+NIC core from 1,117.0 ns</title>"));
        assert_eq!((count("tx <ring> 1"), count("tx <ring> 5"), count("E@core 0")), (1, 1, 1));
        assert!(texts.iter().any(|text| text.contains("A note.") && text.contains("3 more")), "{texts:?}");
    }

    #[test]
    fn a_recording_without_anything_is_drawn() {
        let svg = svg(&Recording::default(), &Options::default());
        assert!(texts(&svg).contains(&"no messages".to_string()));
    }

    #[test]
    fn places_without_names_are_drawn() {
        let mut odd = recording();
        odd.places.clear();
        assert!(texts(&svg(&odd, &Options::default())).contains(&"place 2".to_string()));
    }
}
