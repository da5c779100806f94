//! One line on a terminal that says how far something is, and nothing anywhere else.

use std::io::{IsTerminal, Write, stderr};

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

    /// Writes it anew. Nobody can be told that a terminal is gone.
    pub fn show(&self, text: &str) {
        if self.shown {
            drop(write!(stderr(), "\r\x1b[K{text} "));
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

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}
