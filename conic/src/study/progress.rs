//! How far a study is, in one line on a terminal.

use std::io::{IsTerminal, Write, stderr};

use conic_fabric::Time;
use conic_native::clock;

/// One line on stderr, rewritten in place, if that is a terminal.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    begins: Time,
}

impl Progress {
    /// Progress that is shown if anybody looks.
    pub fn new() -> Progress {
        Progress { shown: stderr().is_terminal(), begins: clock::now() }
    }

    /// Starts over: what follows is another set of points.
    pub fn restart(&mut self) {
        self.begins = clock::now();
    }

    /// Shows how many points of the set are done, and from the share of the work that they are, how long the others will take.
    pub fn show(&self, (done, all): (usize, usize), share: f64, doing: &str) {
        if self.shown {
            let elapsed = clock::now().since(self.begins).seconds();
            let line = line((done, all), remaining(share, elapsed), doing);
            // Nobody can be told that a terminal is gone.
            drop(write!(stderr(), "\r\x1b[K{line} "));
            drop(stderr().flush());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            drop(write!(stderr(), "\r\x1b[K"));
        }
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
