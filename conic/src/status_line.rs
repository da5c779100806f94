//! One line on a terminal that says how far something is, and nothing anywhere else.

use std::io::{IsTerminal, Write, stderr};

use ratatui::crossterm::terminal;

/// A line on stderr that is rewritten in place, if that is a terminal; it is gone when this is.
#[derive(Debug)]
pub struct StatusLine {
    shown: bool,
}

impl StatusLine {
    /// A line that is shown if anybody looks.
    pub fn new() -> StatusLine {
        StatusLine { shown: stderr().is_terminal() }
    }

    /// Writes it anew, as much of it as one row of the terminal holds: of two, only the last could be cleared. Nobody can be told
    /// that a terminal is gone.
    pub fn show(&self, text: &str) {
        if self.shown {
            // One that does not know how wide it is says 0.
            let told = terminal::size().ok().filter(|(columns, _)| *columns > 0);
            let columns = told.map_or(80, |(columns, _)| columns.into());
            drop(write!(stderr(), "\r\x1b[K{} ", cut(text, columns)));
            drop(stderr().flush());
        }
    }

    /// Clears it.
    pub fn clear(&self) {
        if self.shown {
            drop(write!(stderr(), "\r\x1b[K"));
        }
    }
}

/// The beginning of a text that leaves the last two of so many columns free.
fn cut(text: &str, columns: usize) -> &str {
    let end = text.char_indices().nth(columns.saturating_sub(2)).map_or(text.len(), |(end, _)| end);
    &text[..end]
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_text_is_cut_to_one_row() {
        assert_eq!(cut("slice 12", 80), "slice 12");
        assert_eq!(cut("slice 12", 10), "slice 12");
        assert_eq!(cut("slice 12", 9), "slice 1");
        assert_eq!((cut("slice 12", 1), cut("", 0)), ("", ""));
        assert_eq!(cut("µµµµ", 5), "µµµ");
    }
}
