//! Heights: a row for each message and each access, in the order of time.

use super::{MOST, Sequence, SequenceMessage, SequenceSpan};
use std::collections::BTreeMap;

/// Height of a row.
pub(super) const ROW: f64 = 18.0;
/// Least height between two moments.
const MOMENT: f64 = 5.0;
/// Least height of a state, so that its name fits.
pub(super) const STATE: f64 = 16.0;
/// Rows after which the places' names are written again, and the height that they take.
const BAND_ROWS: usize = 36;
pub(super) const BAND: f64 = 30.0;

/// Something that is drawn, with its heights.
#[derive(Debug)]
pub(super) struct Placed<T> {
    pub what: T,
    pub top: f64,
    pub bottom: f64,
}

/// Everything with its heights.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    pub messages: Vec<Placed<&'a SequenceMessage>>,
    pub spans: Vec<Placed<&'a SequenceSpan>>,
    /// For each span, how many of its place are still under way beside it: the lowest number that none of them has.
    pub lanes: Vec<usize>,
    /// For each line, where each of its states begins: its index and the height. One that began before everything else
    /// begins at the top.
    pub states: Vec<Vec<(usize, f64)>>,
    /// Where the places' names are written again: the middle of each band.
    pub bands: Vec<f64>,
    /// Each row's time and height, one for each moment.
    pub times: Vec<(u64, f64)>,
    pub bottom: f64,
    /// When it all begins.
    pub begin: u64,
    /// Messages and spans that name places that are not there, and those beyond the limit.
    pub unknown: usize,
    pub beyond: usize,
}

/// What happens at one moment.
#[derive(Default)]
struct Moment {
    spans: Vec<usize>,
    messages: Vec<usize>,
    /// Lines whose state changes, with the state's index.
    states: Vec<(usize, usize)>,
}

/// What can be drawn, in the order of time.
struct Drawn<'a> {
    messages: Vec<&'a SequenceMessage>,
    spans: Vec<&'a SequenceSpan>,
}

impl<'a> Layout<'a> {
    /// Lays a diagram out from the height `top` down.
    pub fn new(sequence: &'a Sequence, top: f64) -> Layout<'a> {
        let places = sequence.places.len();
        let mut messages: Vec<&SequenceMessage> =
            sequence.messages.iter().filter(|message| message.from < places && message.to < places).collect();
        let mut spans: Vec<&SequenceSpan> = sequence.spans.iter().filter(|span| span.place < places).collect();
        let unknown = sequence.messages.len() + sequence.spans.len() - messages.len() - spans.len();
        messages.sort_by_key(|message| message.sent);
        spans.sort_by_key(|span| span.begins);
        let beyond = messages.len().saturating_sub(MOST) + spans.len().saturating_sub(MOST);
        messages.truncate(MOST);
        spans.truncate(MOST);
        let first = messages.iter().map(|message| message.sent).chain(spans.iter().map(|span| span.begins)).min();
        let drawn = Drawn { messages, spans };
        let begin = first.into_iter().chain(sequence.begin).min().unwrap_or(0);
        let mut rows = Rows::new(top, sequence.lines.len());
        let moments = drawn.moments(sequence, begin);
        for (time, moment) in &moments {
            rows.moment(*time, moment);
        }
        rows.finish(drawn, begin, unknown, beyond)
    }
}

impl Drawn<'_> {
    fn end(&self) -> u64 {
        let messages = self.messages.iter().map(|message| message.arrives.max(message.sent));
        messages.chain(self.spans.iter().map(|span| span.ends.max(span.begins))).max().unwrap_or(0)
    }

    fn moments(&self, sequence: &Sequence, begin: u64) -> BTreeMap<u64, Moment> {
        let mut moments: BTreeMap<u64, Moment> = BTreeMap::new();
        for (number, message) in self.messages.iter().enumerate() {
            moments.entry(message.sent).or_default().messages.push(number);
            moments.entry(message.arrives.max(message.sent)).or_default();
        }
        for (number, span) in self.spans.iter().enumerate() {
            moments.entry(span.begins).or_default().spans.push(number);
            moments.entry(span.ends.max(span.begins)).or_default();
        }
        let end = self.end();
        for (number, line) in sequence.lines.iter().enumerate() {
            // Of the states from before, the last one is still there at the beginning.
            let before = line.states.iter().filter(|state| state.from <= begin).count();
            for (state, of) in line.states.iter().enumerate().skip(before.saturating_sub(1)) {
                if of.from <= end {
                    moments.entry(of.from.max(begin)).or_default().states.push((number, state));
                }
            }
        }
        moments
    }
}

/// Heights, given out in the order of time.
struct Rows {
    /// The last height that was given out, and the last row's.
    last: f64,
    last_row: f64,
    rows: usize,
    heights: BTreeMap<u64, f64>,
    messages: BTreeMap<usize, f64>,
    spans: BTreeMap<usize, f64>,
    states: Vec<Vec<(usize, f64)>>,
    bands: Vec<f64>,
    times: Vec<(u64, f64)>,
}

impl Rows {
    fn new(top: f64, lines: usize) -> Rows {
        Rows {
            last: top,
            last_row: top,
            rows: 0,
            heights: BTreeMap::new(),
            messages: BTreeMap::new(),
            spans: BTreeMap::new(),
            states: vec![Vec::new(); lines],
            bands: Vec::new(),
            times: Vec::new(),
        }
    }

    fn moment(&mut self, time: u64, moment: &Moment) {
        let rows = moment.spans.len() + moment.messages.len();
        if rows > 0 && self.rows >= BAND_ROWS {
            self.bands.push(self.last + BAND * 0.6);
            (self.last, self.last_row, self.rows) = (self.last + BAND, self.last + BAND, 0);
        }
        self.rows += rows;
        let mut height = self.last + MOMENT;
        if rows > 0 {
            height = height.max(self.last_row + ROW);
        }
        for (line, _) in &moment.states {
            if let Some((_, above)) = self.states[*line].last() {
                height = height.max(above + STATE);
            }
        }
        for (line, state) in &moment.states {
            // Of several changes at one moment the last one stands.
            self.states[*line].retain(|(_, at)| *at < height);
            self.states[*line].push((*state, height));
        }
        self.heights.insert(time, height);
        if rows > 0 {
            self.times.push((time, height));
        }
        for (number, row) in moment.spans.iter().zip(0..) {
            self.spans.insert(*number, height + ROW * f64::from(row));
        }
        for (number, row) in moment.messages.iter().zip(moment.spans.len() as u32..) {
            self.messages.insert(*number, height + ROW * f64::from(row));
        }
        self.last = height + ROW * rows.saturating_sub(1) as f64;
        if rows > 0 {
            self.last_row = self.last;
        }
    }

    fn finish<'a>(self, drawn: Drawn<'a>, begin: u64, unknown: usize, beyond: usize) -> Layout<'a> {
        // What ends within the moment in which it begins does not end above its own row.
        let place = |top: f64, end: u64| (top, self.heights[&end].max(top));
        let messages = drawn.messages.into_iter().enumerate().map(|(number, what)| {
            let (top, bottom) = place(self.messages[&number], what.arrives.max(what.sent));
            Placed { what, top, bottom }
        });
        let spans = drawn.spans.into_iter().enumerate().map(|(number, what)| {
            let (top, bottom) = place(self.spans[&number], what.ends.max(what.begins));
            Placed { what, top, bottom }
        });
        let spans: Vec<_> = spans.collect();
        Layout {
            messages: messages.collect(),
            lanes: lanes(&spans),
            spans,
            bottom: self.last + ROW,
            states: self.states,
            bands: self.bands,
            times: self.times,
            begin,
            unknown,
            beyond,
        }
    }
}

fn lanes(spans: &[Placed<&SequenceSpan>]) -> Vec<usize> {
    let mut free_from: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let lane = |span: &Placed<&SequenceSpan>| {
        let lanes = free_from.entry(span.what.place).or_default();
        let lane = lanes.iter().position(|free| *free <= span.top).unwrap_or(lanes.len());
        lanes.resize(lanes.len().max(lane + 1), 0.0);
        lanes[lane] = span.bottom + 1.0;
        lane
    };
    spans.iter().map(lane).collect()
}
