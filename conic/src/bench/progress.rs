//! One line of progress on a terminal, and nothing anywhere else.

use std::io::{IsTerminal, Write, stderr};

/// What is being measured, rewritten in place on stderr if that is a terminal.
pub struct Progress {
    shown: bool,
    doing: String,
    slices: usize,
}

impl Progress {
    /// Progress that is shown if anybody looks.
    pub fn new() -> Progress {
        Progress { shown: stderr().is_terminal(), doing: String::new(), slices: 0 }
    }

    /// Says what comes next.
    pub fn start(&mut self, doing: impl Into<String>) {
        (self.doing, self.slices) = (doing.into(), 0);
        self.show("");
    }

    /// Says that a slice is done, and what a line's round trip now costs.
    pub fn slice(&mut self, round_trip: f64) {
        self.slices += 1;
        self.show(&format!(", slice {} (a line's round trip is {round_trip:.0} ns)", self.slices));
    }

    fn show(&self, more: &str) {
        if self.shown {
            // Nobody can be told that a terminal is gone.
            drop(write!(stderr(), "\r\x1b[K{}{more} ", self.doing));
            drop(stderr().flush());
        }
    }

    /// Clears the line.
    pub fn clear(&self) {
        if self.shown {
            drop(write!(stderr(), "\r\x1b[K"));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
