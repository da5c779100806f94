//! The diagram as SVG text.

use super::layout::{Layout, ROW, STATE};
use super::{MOST, Sequence, SequenceMessage, SequenceSpan, said_behind};
use crate::format::thousands;
use crate::model::{Axis, Chart};
use crate::svg::page::{COLOURS, MARGIN, Page, TEXT_SIZE, TICK_SIZE, number};
use crate::text::{cut, ems, escape, wrap};

/// Least and greatest distance of two lifelines.
const SPACING: (f64, f64) = (110.0, 230.0);
/// Width of a line's column, and the gap to the next.
const COLUMN: f64 = 140.0;
const GAP: f64 = 10.0;
/// Greatest distance of the last lifeline from the columns.
const BESIDE_LAST: f64 = 360.0;
/// From a lifeline to a text beside it.
const BESIDE: f64 = 9.0;
/// Half the width of what a place does, on its lifeline.
const HALF: f64 = 3.5;
/// From one of several overlapping things that a place does to the next.
const LANE: f64 = 2.0 * HALF + 1.0;
/// Lines of a heading.
const HEADING_LINES: usize = 2;

/// The rules that the charts do not have.
const STYLE: &str = "<style>\n\
    .conic-chart .hop{fill:none;stroke:currentColor;stroke-width:1.3}\n\
    .conic-chart .head{fill:currentColor;stroke:none}\n\
    .conic-chart .span{fill:currentColor;fill-opacity:.55;stroke:none}\n\
    .conic-chart .state{fill:currentColor;stroke:currentColor;stroke-width:.75;stroke-opacity:.6}\n\
    .conic-chart .s0{fill-opacity:0}\n.conic-chart .s1{fill-opacity:.12}\n\
    .conic-chart .s2{fill-opacity:.24}\n.conic-chart .s3{fill-opacity:.4}\n\
    .conic-chart .held{font-size:12px}\n\
    .conic-chart .life{stroke:#8a929b;stroke-width:1}\n</style>";

/// Where things stand from left to right.
struct Across {
    first: f64,
    spacing: f64,
    columns: f64,
    width: f64,
}

impl Across {
    fn place(&self, place: usize) -> f64 {
        self.first + self.spacing * place as f64
    }

    fn column(&self, column: usize) -> f64 {
        self.columns + (COLUMN + GAP) * column as f64
    }
}

pub(super) fn draw(sequence: &Sequence) -> String {
    let columns: Vec<usize> = (0..sequence.lines.len()).filter(|l| !sequence.lines[*l].states.is_empty()).collect();
    let layout = Layout::new(sequence, 0.0);
    let across = across(sequence, &layout, columns.len());
    let chart = heading(sequence, &layout);
    let mut page = Page::new(across.width);
    let heading_bottom = page.header(&chart, &[]);
    let names_top = heading_bottom + 10.0;
    let top = names_top + HEADING_LINES as f64 * TEXT_SIZE * 1.2 + 4.0;
    let layout = Layout::new(sequence, top);
    page.raw(STYLE);
    if layout.messages.is_empty() && layout.spans.is_empty() {
        page.text(across.width / 2.0, top + ROW, "axis", "middle", "no messages");
        return page.finish(&chart, top + 3.0 * ROW, "No message was written down.");
    }
    names(&mut page, sequence, &across, names_top);
    lifelines(&mut page, sequence, &layout, &across, top);
    for (column, line) in columns.iter().enumerate() {
        draw_column(&mut page, sequence, &layout, *line, (across.column(column), names_top));
    }
    for (time, height) in &layout.times {
        let text = nanoseconds(time - layout.begin);
        page.text(across.first - HALF - BESIDE, height + TICK_SIZE * 0.36, "tick", "end", &text);
    }
    for (placed, lane) in layout.spans.iter().zip(&layout.lanes) {
        let x = across.place(placed.what.place) - HALF + LANE * *lane as f64;
        draw_span(&mut page, placed.what, (x, placed.top, placed.bottom), sequence, layout.begin);
    }
    for placed in &layout.messages {
        draw_arrow(&mut page, placed.what, (placed.top, placed.bottom), &across, sequence, layout.begin);
    }
    draw_labels(&mut page, sequence, &layout, &across);
    let described = format!("{} messages between {} places.", layout.messages.len(), sequence.places.len());
    page.finish(&chart, layout.bottom + MARGIN, &described)
}

fn across(sequence: &Sequence, layout: &Layout, columns: usize) -> Across {
    let messages = layout.messages.iter().map(|placed| message_label(placed.what, sequence));
    let labels = messages.chain(layout.spans.iter().map(|placed| span_label(placed.what, sequence)));
    let widest = labels.map(|(name, detail)| label_width(&name, &detail)).fold(0.0, f64::max);
    let spacing = (widest + 2.0 * BESIDE + 8.0).clamp(SPACING.0, SPACING.1);
    let times = layout.times.iter().map(|(time, _)| ems(&nanoseconds(time - layout.begin)) * TICK_SIZE);
    let first = MARGIN + times.fold(30.0, f64::max).max(spacing / 3.0) + HALF + BESIDE;
    let last = first + spacing * sequence.places.len().saturating_sub(1) as f64;
    // Nothing else stands beside the last lifeline's labels.
    let is_last = |place: usize| place + 1 == sequence.places.len();
    let spans = layout.spans.iter().zip(&layout.lanes).filter(|(placed, _)| is_last(placed.what.place));
    let spans = spans.map(|(placed, lane)| (span_label(placed.what, sequence), HALF + LANE * *lane as f64 + BESIDE));
    let loops = layout.messages.iter().filter(|one| one.what.from == one.what.to && is_last(one.what.to));
    let loops = loops.map(|placed| (message_label(placed.what, sequence), 3.0 * BESIDE));
    let beside = spans.chain(loops).map(|((name, detail), from)| from + label_width(&name, &detail));
    let columns_at = last + beside.map(|right| (right + 2.0 * GAP).min(BESIDE_LAST)).fold(spacing / 2.0, f64::max);
    let end = columns_at + (COLUMN + GAP) * columns as f64 - if columns > 0 { GAP } else { 0.0 };
    Across { first, spacing, columns: columns_at, width: (end + MARGIN).max(360.0) }
}

/// The chart whose heading the diagram has.
fn heading(sequence: &Sequence, layout: &Layout) -> Chart {
    let mut note = sequence.note.clone();
    let mut say = |text: String| note = said_behind(&note, &text);
    if !layout.times.is_empty() {
        say(format!("Times in ns from {} ns on; heights are not to scale.", nanoseconds(layout.begin)));
    }
    if layout.beyond > 0 {
        say(format!("Only the first {MOST} are drawn; {} more are not.", layout.beyond));
    }
    if layout.unknown > 0 {
        say(format!("{} that name no known place are not drawn.", layout.unknown));
    }
    let title = if sequence.title.is_empty() { "Messages" } else { &sequence.title };
    Chart::bars(title, Axis::linear("", ""), []).note(note)
}

/// Nanoseconds to a tenth.
fn nanoseconds(picoseconds: u64) -> String {
    thousands(picoseconds as f64 / 1e3, 1)
}

fn line_name(sequence: &Sequence, line: Option<usize>) -> &str {
    line.and_then(|line| sequence.lines.get(line)).map_or("", |line| &line.name)
}

fn message_label(message: &SequenceMessage, sequence: &Sequence) -> (String, String) {
    let takes = nanoseconds(message.arrives.saturating_sub(message.sent));
    (message.name.clone(), format!("{} · {takes} ns", line_name(sequence, message.line)).trim_start().to_string())
}

fn span_label(span: &SequenceSpan, sequence: &Sequence) -> (String, String) {
    let takes = nanoseconds(span.ends.saturating_sub(span.begins));
    (span.name.clone(), format!("{} · {takes} ns", line_name(sequence, span.line)).trim_start().to_string())
}

/// Every label, after everything else: a halo keeps it readable over whatever crosses it. A row has one label, which may
/// therefore reach as far as the diagram does.
fn draw_labels(page: &mut Page, sequence: &Sequence, layout: &Layout, across: &Across) {
    let (leftmost, rightmost) = (across.first, across.columns - GAP);
    for (placed, lane) in layout.spans.iter().zip(&layout.lanes) {
        let (name, detail) = span_label(placed.what, sequence);
        let x = across.place(placed.what.place) + HALF + LANE * *lane as f64 + BESIDE;
        label(page, (x, placed.top - 2.0), "start", &name, &detail, rightmost - x);
    }
    for placed in &layout.messages {
        let (name, detail) = message_label(placed.what, sequence);
        let from = across.place(placed.what.from);
        let (x, anchor, room) = if placed.what.to < placed.what.from {
            (from - BESIDE, "end", from - BESIDE - leftmost)
        } else {
            let x = from + if placed.what.to == placed.what.from { 3.0 * BESIDE } else { BESIDE };
            (x, "start", rightmost - x)
        };
        label(page, (x, placed.top - 4.0), anchor, &name, &detail, room);
    }
}

fn label_width(name: &str, detail: &str) -> f64 {
    ems(name) * TEXT_SIZE * 1.06 + ems(" ") * TEXT_SIZE + ems(detail) * TEXT_SIZE
}

/// A name in bold and a detail after it, cut where they do not fit `room`.
fn label(page: &mut Page, at: (f64, f64), anchor: &str, name: &str, detail: &str, room: f64) {
    let name = cut(name, "…", |text| label_width(text, "") <= room);
    let detail = cut(detail, "…", |text| label_width(&name, text) <= room);
    let (x, y) = (number(at.0), number(at.1));
    let (name, detail) = (escape(&name), escape(&detail));
    page.raw(&format!(
        "<text class=\"halo\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\"><tspan class=\"strong\">{name}</tspan> \
         <tspan class=\"note\">{detail}</tspan></text>"
    ));
}

/// The places' names over their lifelines.
fn names(page: &mut Page, sequence: &Sequence, across: &Across, top: f64) {
    for (place, name) in sequence.places.iter().enumerate() {
        let lines = wrap(name, HEADING_LINES, "…", |text| ems(text) * TEXT_SIZE * 1.06 <= across.spacing - 10.0);
        let missing = HEADING_LINES.saturating_sub(lines.len());
        for (text, row) in lines.iter().zip(missing..) {
            let y = top + TEXT_SIZE * (0.85 + 1.2 * row as f64);
            page.text(across.place(place), y, "strong", "middle", text);
        }
    }
}

fn lifelines(page: &mut Page, sequence: &Sequence, layout: &Layout, across: &Across, top: f64) {
    for place in 0..sequence.places.len() {
        let x = across.place(place);
        page.line((x, top), (x, layout.bottom), "life");
    }
    for band in &layout.bands {
        for (place, name) in sequence.places.iter().enumerate() {
            let name = cut(name, "…", |text| ems(text) * TEXT_SIZE <= across.spacing - 10.0);
            page.text(across.place(place), *band, "note halo", "middle", &name);
        }
    }
}

fn draw_column(page: &mut Page, sequence: &Sequence, layout: &Layout, line: usize, at: (f64, f64)) {
    let (x, names_top) = at;
    page.open_series(line % COLOURS);
    let heading = wrap(&sequence.lines[line].name, HEADING_LINES, "…", |text| ems(text) * TEXT_SIZE * 1.06 <= COLUMN);
    let missing = HEADING_LINES.saturating_sub(heading.len());
    for (text, row) in heading.iter().zip(missing..) {
        page.text(x, names_top + TEXT_SIZE * (0.85 + 1.2 * row as f64), "name", "start", text);
    }
    let states = &layout.states[line];
    for (number, (state, top)) in states.iter().enumerate() {
        let bottom = states.get(number + 1).map_or(layout.bottom, |next| next.1);
        let state = &sequence.lines[line].states[*state];
        page.open_titled(&format!("{}: {} from {} ns", sequence.lines[line].name, state.name, nanoseconds(state.from)));
        page.rectangle(x, *top, COLUMN, bottom - top, &format!("state s{}", state.strength.min(3)));
        let room = ((bottom - top + 0.01) / STATE) as usize;
        let texts = wrap(&state.name, room.min(3), "…", |text| ems(text) * TICK_SIZE <= COLUMN - 8.0);
        for (text, row) in texts.iter().zip(0..) {
            let y = top + TICK_SIZE + STATE * f64::from(row);
            page.text(x + 4.0, y, if state.strength == 0 { "tick" } else { "held" }, "start", text);
        }
        page.close();
    }
    page.close();
}

fn draw_span(page: &mut Page, span: &SequenceSpan, at: (f64, f64, f64), sequence: &Sequence, begin: u64) {
    let (x, top, bottom) = at;
    let (name, detail) = span_label(span, sequence);
    let place = &sequence.places[span.place];
    let from = nanoseconds(span.begins.saturating_sub(begin));
    page.open_series(span.line.unwrap_or(0) % COLOURS);
    page.open_titled(&format!("{name} {detail}, {place}, from {from} ns"));
    page.rectangle(x, top, 2.0 * HALF, bottom.max(top + 3.0) - top, "span");
    page.close();
    page.close();
}

fn draw_arrow(
    page: &mut Page,
    message: &SequenceMessage,
    heights: (f64, f64),
    across: &Across,
    sequence: &Sequence,
    begin: u64,
) {
    let (from, to) = (across.place(message.from), across.place(message.to));
    let (name, detail) = message_label(message, sequence);
    let (sender, receiver) = (&sequence.places[message.from], &sequence.places[message.to]);
    let ends = |time: u64| nanoseconds(time.saturating_sub(begin));
    page.open_series(message.line.unwrap_or(0) % COLOURS);
    page.open_titled(&format!(
        "{name} {detail}, {sender} to {receiver}, from {} to {} ns",
        ends(message.sent),
        ends(message.arrives.max(message.sent))
    ));
    let (top, mut bottom) = heights;
    let path = if message.from == message.to {
        bottom = bottom.max(top + 8.0);
        vec![(from, top), (from + 2.0 * BESIDE, top), (from + 2.0 * BESIDE, bottom), (to, bottom)]
    } else {
        vec![(from, top), (to, bottom)]
    };
    page.path(&path, "hop", "");
    let (tail, tip) = (path[path.len() - 2], path[path.len() - 1]);
    page.raw(&head(tail, tip));
    page.close();
    page.close();
}

/// An arrow's head at `tip`, coming from `tail`.
fn head(tail: (f64, f64), tip: (f64, f64)) -> String {
    const LENGTH: f64 = 8.0;
    const WIDE: f64 = 3.2;
    let (dx, dy) = (tip.0 - tail.0, tip.1 - tail.1);
    let length = dx.hypot(dy).max(1e-9);
    let (ux, uy) = (dx / length, dy / length);
    let foot = (tip.0 - LENGTH * ux, tip.1 - LENGTH * uy);
    let corners = [tip, (foot.0 - WIDE * uy, foot.1 + WIDE * ux), (foot.0 + WIDE * uy, foot.1 - WIDE * ux)];
    let points: Vec<String> = corners.iter().map(|(x, y)| format!("{},{}", number(*x), number(*y))).collect();
    format!("<polygon class=\"head\" points=\"{}\"/>", points.join(" "))
}
