//! Sequence diagrams: who sent what to whom, when, and who owned what meanwhile.
//!
//! Time runs downwards and is not to scale: each message and each access has a row of its own, so that every text can be
//! read, and the time in nanoseconds stands beside the row. What happens at the same moment stands at the same height.

mod draw;
mod layout;
#[cfg(test)]
mod tests;

/// A message between two places.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceMessage {
    /// What it is.
    pub name: String,
    /// The line that it is about: an index into [`Sequence::lines`].
    pub line: Option<usize>,
    /// The place that it leaves: an index into [`Sequence::places`].
    pub from: usize,
    /// The place that it reaches.
    pub to: usize,
    /// When it leaves, in picoseconds.
    pub sent: u64,
    /// When it is there, in picoseconds.
    pub arrives: u64,
}

/// Something that a place did over some time.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceSpan {
    /// What.
    pub name: String,
    /// The line that it touched: an index into [`Sequence::lines`].
    pub line: Option<usize>,
    /// Which place: an index into [`Sequence::places`].
    pub place: usize,
    /// When it began, in picoseconds.
    pub begins: u64,
    /// When it ended, in picoseconds.
    pub ends: u64,
}

/// A state of a line, until its next one.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceState {
    /// From when, in picoseconds.
    pub from: u64,
    /// What it is called.
    pub name: String,
    /// How strongly it is filled, from 0, not at all, to 3.
    pub strength: u8,
}

/// A line, drawn as a column of its states in the order of time; without states it has a colour and no column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SequenceLine {
    /// Its name.
    pub name: String,
    /// Its states.
    pub states: Vec<SequenceState>,
}

/// A sequence diagram.
///
/// Input is never trusted: what names a place that is not there is left out, and the diagram says how many were. The same
/// diagram always gives the same bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequence {
    /// The heading.
    pub title: String,
    /// What stands below it.
    pub note: String,
    /// What times are counted from, in picoseconds; what comes first, without it or where that is earlier.
    pub begin: Option<u64>,
    /// The places' names, from left to right.
    pub places: Vec<String>,
    /// Lines.
    pub lines: Vec<SequenceLine>,
    /// Messages, in any order.
    pub messages: Vec<SequenceMessage>,
    /// What places did, in any order.
    pub spans: Vec<SequenceSpan>,
}

/// Messages and spans that are drawn at most, each: more than this nobody reads.
pub const MOST: usize = 1_000;

/// A note, and what is said behind it: sentences, whether the first ends as one or not.
pub fn said_behind(note: &str, more: &str) -> String {
    let gap = match note.chars().last() {
        None => "",
        Some('.') => " ",
        Some(_) => ". ",
    };
    format!("{note}{gap}{more}")
}

impl Sequence {
    /// The diagram as SVG text: a complete document that can be pasted into HTML too, as wide and as high as it needs. It
    /// follows the reader's light or dark preference as the charts do.
    pub fn to_svg(&self) -> String {
        draw::draw(self)
    }
}
