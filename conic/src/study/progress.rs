//! How far a study is, in one line on a terminal.

use std::slice;
use std::sync::Mutex;

use conic_fabric::Time;
use conic_native::clock;
use conic_study::experiment::{Found, Named};

use crate::spread;
use crate::status_line::StatusLine;

/// How many of something are done.
#[derive(Debug)]
pub struct Progress {
    line: StatusLine,
    /// What is counted.
    what: &'static str,
    begins: Time,
}

impl Progress {
    /// Progress that is shown if anybody looks.
    pub fn new(what: &'static str) -> Progress {
        Progress { line: StatusLine::new(), what, begins: clock::now() }
    }

    /// Starts over: what follows is another set.
    pub fn restart(&mut self) {
        self.begins = clock::now();
    }

    /// Shows how many of the set are done, and from the share of the work that they are, how long the others will take.
    pub fn show(&self, (done, all): (usize, usize), share: f64, doing: &str) {
        let elapsed = clock::now().since(self.begins).seconds();
        self.line.show(&line((done, all), self.what, remaining(share, elapsed), doing));
    }
}

/// How many seconds are left, once enough is done to tell.
pub fn remaining(share: f64, elapsed: f64) -> Option<f64> {
    (share >= 0.02 && elapsed >= 1.0).then(|| elapsed * (1.0 - share) / share)
}

/// The line.
pub fn line((done, all): (usize, usize), what: &str, remaining: Option<f64>, doing: &str) -> String {
    let left = match remaining {
        Some(seconds) if seconds >= 90.0 => format!(", about {:.0} minutes left", seconds / 60.0),
        Some(seconds) => format!(", about {:.0} seconds left", seconds.max(1.0)),
        None => String::new(),
    };
    format!("{done} of {all} {what}{left}{doing}")
}

/// What experiments find, on all cores; shows which was begun last. How long the others take nobody knows: they differ too much.
pub fn figures<R: Sync>(experiments: &[Named<R>], find: impl Fn(&[Named<R>]) -> Vec<Found> + Sync) -> Vec<Found> {
    let shown = Mutex::new((0, Progress::new("figures")));
    let found = spread::on_all_cores(experiments, |one| {
        // A lock is poisoned only where another thread has panicked, which ends the caller.
        if let Ok(shown) = shown.lock() {
            shown.1.show((shown.0, experiments.len()), 0.0, &format!("; now {}: {}", one.name, one.title));
        }
        let found = find(slice::from_ref(one));
        if let Ok(mut shown) = shown.lock() {
            shown.0 += 1;
        }
        found
    });
    found.into_iter().flatten().collect()
}

/// [`spread::on_all_cores`]; shows how many answers there are, of questions that take about as long as each other.
pub fn on_all_cores<Q: Sync, A: Send>(what: &'static str, questions: &[Q], answer: impl Fn(&Q) -> A + Sync) -> Vec<A> {
    let all = questions.len();
    let shown = Mutex::new((0, Progress::new(what)));
    spread::on_all_cores(questions, |question| {
        let answer = answer(question);
        // A lock is poisoned only where another thread has panicked, which ends the caller.
        if let Ok(mut shown) = shown.lock() {
            shown.0 += 1;
            shown.1.show((shown.0, all), shown.0 as f64 / all as f64, "");
        }
        answer
    })
}
