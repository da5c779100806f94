//! What is being measured, in one line on a terminal.

use crate::status_line::StatusLine;

/// What is being measured, and how many slices of it are.
pub struct Progress {
    line: StatusLine,
    doing: String,
    slices: usize,
}

impl Progress {
    /// Progress that is shown if anybody looks.
    pub fn new() -> Progress {
        Progress { line: StatusLine::new(), doing: String::new(), slices: 0 }
    }

    /// Says what comes next.
    pub fn start(&mut self, doing: impl Into<String>) {
        (self.doing, self.slices) = (doing.into(), 0);
        self.line.show(&self.doing);
    }

    /// Says that a slice is done, and what a line's round trip now costs.
    pub fn slice(&mut self, round_trip: f64) {
        self.slices += 1;
        let Progress { line, doing, slices } = self;
        line.show(&format!("{doing}, slice {slices} (a line's round trip is {round_trip:.0} ns)"));
    }

    /// Clears the line.
    pub fn clear(&self) {
        self.line.clear();
    }
}
