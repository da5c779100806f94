//! How far a study is, in one line on a terminal.

use conic_fabric::Time;
use conic_native::clock;

use crate::status_line::StatusLine;

/// How many points are done.
#[derive(Debug)]
pub struct Progress {
    line: StatusLine,
    begins: Time,
}

impl Progress {
    /// Progress that is shown if anybody looks.
    pub fn new() -> Progress {
        Progress { line: StatusLine::new(), begins: clock::now() }
    }

    /// Starts over: what follows is another set of points.
    pub fn restart(&mut self) {
        self.begins = clock::now();
    }

    /// Shows how many points of the set are done, and from the share of the work that they are, how long the others will take.
    pub fn show(&self, (done, all): (usize, usize), share: f64, doing: &str) {
        let elapsed = clock::now().since(self.begins).seconds();
        self.line.show(&line((done, all), remaining(share, elapsed), doing));
    }
}

/// How many seconds are left, once enough is done to tell.
pub fn remaining(share: f64, elapsed: f64) -> Option<f64> {
    (share >= 0.02 && elapsed >= 1.0).then(|| elapsed * (1.0 - share) / share)
}

/// The line.
pub fn line((done, all): (usize, usize), remaining: Option<f64>, doing: &str) -> String {
    let left = match remaining {
        Some(seconds) if seconds >= 90.0 => format!(", about {:.0} minutes left", seconds / 60.0),
        Some(seconds) => format!(", about {:.0} seconds left", seconds.max(1.0)),
        None => String::new(),
    };
    format!("{done} of {all} points{left}{doing}")
}
