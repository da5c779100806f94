//! Diagrams are parsed as XML and measured.

use super::*;
use crate::svg::page::TEXT_SIZE;
use crate::text::ems;
use roxmltree::{Document, Node};

const HOSTILE: &str = "</text><script>alert(1)</script> \"a\" & 'b' ]]> <!-- \u{0}\u{1b}[31m \u{fffe} \u{202e} 漢";

fn message(name: &str, line: usize, hop: (usize, usize), sent: u64, arrives: u64) -> SequenceMessage {
    let (from, to) = hop;
    SequenceMessage { name: name.to_string(), line: Some(line), from, to, sent, arrives }
}

fn state(from: u64, name: &str, strength: u8) -> SequenceState {
    SequenceState { from, name: name.to_string(), strength }
}

/// A read that is snooped for, and its answer, sent the moment the snoop is there.
fn small() -> Sequence {
    let states = vec![state(2_000, "M@NIC", 3), state(60_000, "I", 0), state(117_400, "M@core", 3)];
    Sequence {
        title: "a packet".to_string(),
        note: "A note.".to_string(),
        begin: None,
        places: ["core", "home", "NIC"].map(str::to_string).to_vec(),
        lines: vec![SequenceLine { name: "ring 4".to_string(), states }],
        messages: vec![
            message("Read", 0, (0, 1), 10_000, 22_400),
            message("Snoop", 0, (1, 2), 25_000, 60_000),
            message("Data", 0, (2, 0), 60_000, 117_400),
        ],
        spans: vec![SequenceSpan { name: "load".to_string(), line: Some(0), place: 0, begins: 10_000, ends: 120_000 }],
    }
}

/// Many messages, from a seed: every run draws the same diagram.
fn crowd(messages: usize) -> Sequence {
    let mut numbers = fastrand::Rng::with_seed(5);
    let mut below = |limit: u64| numbers.u64(..limit);
    let mut sequence =
        Sequence { places: (0..5).map(|place| format!("place {place}")).collect(), ..Sequence::default() };
    for line in 0..7u64 {
        let mut states = vec![state(0, "E@place 0", 2)];
        (0..messages as u64 / 8).for_each(|at| states.push(state(at * 8_000 + line * 31, "S@place 0+place 1", 1)));
        sequence.lines.push(SequenceLine { name: format!("payload {line}"), states });
    }
    for number in 0..messages as u64 {
        // Some set out at the same moment, and some arrive at once.
        let sent = number / 2 * 2_000 + below(2) * 500;
        let (from, to) = (below(5) as usize, below(5) as usize);
        let arrives = sent + below(4) * 30_000;
        sequence.messages.push(message("SnoopDataMigratory", below(7) as usize, (from, to), sent, arrives));
        if number % 5 == 0 {
            sequence.spans.push(SequenceSpan {
                name: "load".to_string(),
                line: None,
                place: from,
                begins: sent,
                ends: arrives + 1,
            });
        }
    }
    sequence
}

fn parse(svg: &str) -> Document<'_> {
    Document::parse(svg).unwrap_or_else(|e| panic!("{e}\n{svg}"))
}

fn number(node: &Node, name: &str) -> f64 {
    node.attribute(name).unwrap_or_else(|| panic!("no {name} in {node:?}")).parse().expect("a number")
}

fn classed<'a>(document: &'a Document, class: &'a str) -> Vec<Node<'a, 'a>> {
    let has = move |node: &Node| node.attribute("class").is_some_and(|all| all.split(' ').any(|c| c == class));
    document.descendants().filter(has).collect()
}

fn whole_text(node: &Node) -> String {
    node.descendants().filter(|n| n.is_text()).filter_map(|n| n.text()).collect()
}

/// First and last point of every arrow, in the order of sending.
fn arrows(document: &Document) -> Vec<[(f64, f64); 2]> {
    let ends = |node: Node| {
        let points: Vec<(f64, f64)> = node
            .attribute("points")
            .expect("points")
            .split(' ')
            .map(|point| point.split_once(',').expect("a pair"))
            .map(|(x, y)| (x.parse().expect("a number"), y.parse().expect("a number")))
            .collect();
        [points[0], points[points.len() - 1]]
    };
    classed(document, "hop").into_iter().map(ends).collect()
}

fn lifelines(document: &Document) -> Vec<f64> {
    classed(document, "life").iter().map(|line| number(line, "x1")).collect()
}

#[test]
fn times_are_counted_from_where_it_is_said_to_begin() {
    let svg = Sequence { begin: Some(4_000), note: "A note".to_string(), ..small() }.to_svg();
    let texts: Vec<String> =
        parse(&svg).descendants().filter(|n| n.has_tag_name("text")).map(|n| whole_text(&n)).collect();
    for expected in ["A note. Times in ns from 4.0 ns on; heights are not to scale.", "6.0", "21.0", "56.0"] {
        assert!(texts.iter().any(|text| text == expected), "{expected}: {texts:?}");
    }
    // What comes before it is not drawn at a time below nought.
    let late = Sequence { begin: Some(50_000), ..small() }.to_svg();
    assert!(late.contains("Times in ns from 10.0 ns on"));
}

#[test]
fn arrows_lead_from_lifeline_to_lifeline_and_texts_say_all() {
    let svg = small().to_svg();
    let document = parse(&svg);
    let (lives, arrows) = (lifelines(&document), arrows(&document));
    let ends: Vec<(f64, f64)> = arrows.iter().map(|[from, to]| (from.0, to.0)).collect();
    assert_eq!(ends, [(lives[0], lives[1]), (lives[1], lives[2]), (lives[2], lives[0])]);
    let texts: Vec<String> =
        document.descendants().filter(|n| n.has_tag_name("text")).map(|n| whole_text(&n)).collect();
    let expected = [
        "a packet",
        "A note. Times in ns from 10.0 ns on; heights are not to scale.",
        "core",
        "home",
        "NIC",
        "ring 4",
        "M@NIC",
        "I",
        "M@core",
        "0.0",
        "15.0",
        "50.0",
        "load ring 4 · 110.0 ns",
        "Read ring 4 · 12.4 ns",
        "Snoop ring 4 · 35.0 ns",
        "Data ring 4 · 57.4 ns",
    ];
    assert_eq!(texts, expected);
}

#[test]
fn one_moment_is_one_height() {
    let svg = small().to_svg();
    let document = parse(&svg);
    let arrows = arrows(&document);
    // The snoop arrives, the line is given up and the data leaves; the data arrives and the line is the core's.
    assert_eq!(arrows[1][1].1, arrows[2][0].1);
    let tops: Vec<f64> = classed(&document, "state").iter().map(|state| number(state, "y")).collect();
    assert_eq!(tops[1..], [arrows[2][0].1, arrows[2][1].1]);
    // The state from before is there from the beginning on.
    assert!(tops[0] <= arrows[0][0].1);
}

#[test]
fn heights_follow_time() {
    let sequence = crowd(300);
    let svg = sequence.to_svg();
    let document = parse(&svg);
    let mut sent: Vec<&SequenceMessage> = sequence.messages.iter().collect();
    sent.sort_by_key(|message| message.sent);
    let mut ends: Vec<(u64, f64)> = Vec::new();
    for (message, [from, to]) in sent.iter().zip(arrows(&document)) {
        assert!(from.1 <= to.1, "{message:?} runs upwards");
        // Several messages of one moment stand in rows of their own, so only beginnings are compared with beginnings.
        ends.push((message.sent, from.1));
    }
    assert_eq!(ends.len(), 300);
    assert!(ends.windows(2).all(|pair| pair[0].1 + layout::ROW <= pair[1].1 + 0.01), "rows are too close");
}

#[test]
fn no_label_touches_another() {
    for sequence in [small(), crowd(300)] {
        let svg = sequence.to_svg();
        let document = parse(&svg);
        let width = number(&document.root_element(), "width");
        let labels: Vec<(f64, f64, f64, String)> = document
            .descendants()
            .filter(|node| node.has_tag_name("text"))
            .map(|node| {
                let text = whole_text(&node);
                let size = match node.attribute("class") {
                    Some("title") => 17.0 * 1.06,
                    Some("tick" | "held") => 12.0,
                    _ => 12.5,
                };
                let (x, wide) = (number(&node, "x"), ems(&text) * size);
                let left = match node.attribute("text-anchor") {
                    Some("end") => x - wide,
                    Some("middle") => x - wide / 2.0,
                    _ => x,
                };
                (left, left + wide, number(&node, "y"), text)
            })
            .collect();
        for (number, a) in labels.iter().enumerate() {
            assert!(a.0 >= -0.1 && a.1 <= width + 0.1, "{a:?} leaves the sheet");
            for b in &labels[number + 1..] {
                let apart = a.1 <= b.0 || b.1 <= a.0 || (a.2 - b.2).abs() >= 11.0;
                assert!(apart, "{a:?} and {b:?} overlap");
            }
        }
    }
}

#[test]
fn states_fill_their_columns_in_order_and_are_high_enough_for_a_name() {
    let svg = crowd(300).to_svg();
    let document = parse(&svg);
    let states: Vec<(f64, f64, f64)> = classed(&document, "state")
        .iter()
        .map(|state| (number(state, "x"), number(state, "y"), number(state, "height")))
        .collect();
    assert!(states.len() > 7 * 30);
    for pair in states.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        assert!((pair[0].1 + pair[0].2 - pair[1].1).abs() < 0.03, "{pair:?} leave a gap");
        assert!(pair[0].2 >= layout::STATE - 0.03, "{pair:?}");
    }
}

#[test]
fn overlapping_accesses_of_a_place_stand_side_by_side() {
    let mut sequence = small();
    let mut other = sequence.spans[0].clone();
    (other.begins, other.ends) = (30_000, 70_000);
    sequence.spans.push(other.clone());
    (other.begins, other.ends) = (130_000, 140_000);
    sequence.spans.push(other);
    let svg = sequence.to_svg();
    let document = parse(&svg);
    let lefts: Vec<f64> = classed(&document, "span").iter().map(|span| number(span, "x")).collect();
    assert!(lefts[1] >= lefts[0] + 7.0, "{lefts:?}");
    assert_eq!(lefts[2], lefts[0]);
}

#[test]
fn what_the_last_place_does_is_said_whole_before_the_columns() {
    let mut sequence = small();
    let name = "request waits";
    (sequence.spans[0].name, sequence.spans[0].place) = (name.to_string(), 2);
    let svg = sequence.to_svg();
    let document = parse(&svg);
    let said = format!("{name} ring 4 · 110.0 ns");
    let label = document.descendants().find(|node| node.has_tag_name("text") && whole_text(node) == said);
    let right = number(&label.expect("it is not cut"), "x") + TEXT_SIZE * 1.06 * ems(&said);
    let columns = classed(&document, "state").iter().map(|state| number(state, "x")).fold(f64::MAX, f64::min);
    assert!(right < columns && columns < right + 60.0, "{right}, and columns from {columns}");
    // With less to say the columns stand closer.
    let narrow = small().to_svg();
    let last = lifelines(&parse(&narrow))[2];
    let columns_at = classed(&parse(&narrow), "state").iter().map(|state| number(state, "x")).fold(f64::MAX, f64::min);
    assert!(columns_at < last + 130.0, "{columns_at} behind {last}");
}

#[test]
fn places_are_named_again_in_a_long_diagram() {
    let count = |sequence: &Sequence| {
        let svg = sequence.to_svg();
        let document = parse(&svg);
        document.descendants().filter(|n| n.has_tag_name("text") && whole_text(n) == "place 3").count()
    };
    assert_eq!(count(&crowd(20)), 1);
    assert!(count(&crowd(100)) >= 3);
}

#[test]
fn hostile_texts_stay_texts() {
    let mut sequence = small();
    sequence.title = HOSTILE.to_string();
    sequence.note = HOSTILE.to_string();
    sequence.places.iter_mut().for_each(|place| *place = HOSTILE.to_string());
    sequence.lines[0].name = HOSTILE.to_string();
    sequence.lines[0].states.iter_mut().for_each(|state| state.name = HOSTILE.to_string());
    sequence.messages.iter_mut().for_each(|message| message.name = HOSTILE.to_string());
    sequence.spans[0].name = HOSTILE.to_string();
    let svg = sequence.to_svg();
    let document = parse(&svg);
    let allowed = ["svg", "title", "desc", "style", "rect", "g", "text", "tspan", "line", "polyline", "polygon"];
    for node in document.descendants().filter(|n| n.is_element()) {
        assert!(allowed.contains(&node.tag_name().name()), "{node:?}");
    }
    assert!(!document.descendants().any(|n| n.is_comment()));
}

#[test]
fn what_names_nothing_is_left_out_and_said() {
    let mut sequence = small();
    sequence.messages.push(message("Lost", 0, (0, 3), 1, 2));
    sequence.messages.push(message("Odd", 77, (0, 1), 130_000, 5));
    sequence.spans.push(SequenceSpan { name: "x".into(), line: Some(9), place: 3, begins: 0, ends: 1 });
    let svg = sequence.to_svg();
    let document = parse(&svg);
    let texts: Vec<String> =
        document.descendants().filter(|n| n.has_tag_name("text")).map(|n| whole_text(&n)).collect();
    assert!(!texts.iter().any(|text| text.contains("Lost")), "{texts:?}");
    // One that arrives before it is sent takes no time.
    assert!(texts.contains(&"Odd · 0.0 ns".to_string()), "{texts:?}");
    assert!(texts.join(" ").contains("2 that name no known place are not drawn."), "{texts:?}");
    let svg = Sequence::default().to_svg();
    assert!(parse(&svg).descendants().any(|n| n.has_tag_name("text") && whole_text(&n) == "no messages"));
}

#[test]
fn times_of_any_size_are_drawn() {
    let mut sequence = small();
    sequence.messages.push(message("Late", 0, (0, 1), u64::MAX, u64::MAX));
    sequence.lines[0].states.push(state(u64::MAX, "E@core", 2));
    let svg = sequence.to_svg();
    assert_eq!(arrows(&parse(&svg)).len(), 4);
}

#[test]
fn more_than_can_be_read_is_cut_and_said() {
    let svg = crowd(MOST + 50).to_svg();
    let document = parse(&svg);
    assert_eq!(arrows(&document).len(), MOST);
    let said = format!("Only the first {MOST} are drawn; 50 more are not.");
    let texts: Vec<String> =
        document.descendants().filter(|n| n.has_tag_name("text")).map(|n| whole_text(&n)).collect();
    assert!(texts.join(" ").contains(&said));
}

#[test]
fn the_same_diagram_gives_the_same_bytes() {
    assert_eq!(crowd(50).to_svg(), crowd(50).to_svg());
}
