//! What a study shows: JSON first, and from the same rows a table, plots and one page.

mod html;
mod json;
mod plots;
mod table;

pub use html::page;
pub use json::{json, value as json_value};
pub use plots::{Picture, pictures};
pub use table::{results, summary_lines};

use std::collections::BTreeSet;

use conic_chart::{significant, thousands};

use crate::comparison::{Figure, Row, Summary};
use crate::experiment::{Effort, Found, Value};
use crate::sensitivity::Moves;
use crate::workload::Failure;

/// Whose experiments a report is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// The system.
    pub name: &'static str,
    /// How its results are measured, in sentences.
    pub method: &'static str,
}

/// CC-NIC's experiments.
pub const CC_NIC: Subject = Subject {
    name: "CC-NIC",
    method: "Minimum latency is the median with one packet in flight; the highest rate is that of the closed loop over several \
             windows; latency at a load is the median of an open loop, counted from the time at which each packet was due.",
};

/// Coherent programmed I/O's experiments.
pub const COHERENT_PIO: Subject = Subject {
    name: "Coherent programmed I/O",
    method: "An invocation's latency is the median from before its request is written until its response was read; a frame's is \
             that from its last beat at the device's port until the CPU has read it, or back.",
};

/// The CXL-NIC's experiments.
pub const CXL_NIC: Subject = Subject {
    name: "CXL-NIC",
    method: "A loopback's latency is that of a packet from its generation on the device through a core of the host, which copies it, \
             and back to the device, one packet at a time; throughput is each direction's alone.",
};

/// CNI's experiments.
pub const CNI: Subject = Subject {
    name: "CNI",
    method: "A round trip is from before a message is sent until its answer has been copied into the user's buffer, the median over many, \
             one at a time; bandwidth is what arrives in the receiver's buffer of messages that are sent as fast as it goes.",
};

/// The host network's experiments.
pub const HOST_NETWORK: Subject = Subject {
    name: "Host network",
    method: "Degradation is throughput alone over throughput beside the others; latencies are means by Little's law, from when a credit is taken until it \
             is given back.",
};

/// All that a report is made of.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// Whose experiments.
    pub subject: Subject,
    /// How much was simulated.
    pub effort: Effort,
    /// The platforms' names.
    pub platforms: Vec<String>,
    /// What the experiments found.
    pub found: &'a [Found],
    /// Predictions beside what was published.
    pub rows: &'a [Row],
    /// The rows, summed up.
    pub summary: &'a Summary,
    /// What the platforms' guesses do to the headline results; none where that was not asked.
    pub moves: Option<&'a Moves>,
}

impl Report<'_> {
    /// Questions that the experiments ask, as far as they know, and those without an answer.
    pub fn questions(&self) -> (usize, usize) {
        let of = |count: fn(&Found) -> usize| self.found.iter().map(count).sum();
        (of(|found| found.questions.0), of(|found| found.questions.1))
    }

    /// Whether anything that was asked for is missing because a run failed.
    pub fn has_failed(&self) -> bool {
        self.found.iter().any(|found| !found.failures.is_empty())
            || self.moves.is_some_and(|moves| !moves.unknown.is_empty())
    }

    /// What a reader must know before any number: little effort, a study that was cut short, questions that failed.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.effort == Effort::Quick {
            warnings.push("Quick: fewer points, and fewer packets a point, than the full study.".to_owned());
        }
        if let Some([first, others @ ..]) = self.moves.map(|moves| &moves.unknown[..]) {
            let more = if others.is_empty() { String::new() } else { format!(", and {} more", others.len()) };
            warnings.push(format!("Not known, because a run failed or was not made: {first}{more}."));
        }
        let mut told = BTreeSet::new();
        let (_, open) = self.questions();
        if open > 0 {
            warnings.push(format!("Cut short: {open} questions have no answer yet; what depends on them is missing."));
        }
        for found in self.found {
            // Figures share points: each failure is told where it first matters.
            let new: Vec<&Failure> = found.failures.iter().filter(|failure| told.insert(failure.to_string())).collect();
            match new[..] {
                [] => {}
                [failure] => warnings.push(format!("{}: a run failed: {failure}", heading(found))),
                [first, ..] => {
                    let count = new.len();
                    warnings.push(format!("{}: {count} runs failed, the first of them: {first}", heading(found)));
                }
            }
        }
        warnings
    }
}

/// What an experiment is called in a report.
pub(crate) fn heading(found: &Found) -> String {
    let name = found.name;
    if name.starts_with(|first: char| first.is_ascii_digit()) { format!("Figure {name}") } else { name.to_owned() }
}

/// A number for people: whole ones as they are, others with three significant digits; thousands apart.
pub(crate) fn written(value: f64) -> String {
    if value.abs() >= 1000.0 || value.fract() == 0.0 { thousands(value, 0) } else { significant(value, 3) }
}

/// A prediction for people.
pub(crate) fn predicted(value: &Value) -> String {
    match value {
        Value::Number(number) => written(*number),
        Value::List(numbers) => numbers.iter().map(|number| written(*number)).collect::<Vec<_>>().join("; "),
        Value::Holds(true) => "holds".to_owned(),
        Value::Holds(false) => "does not hold".to_owned(),
    }
}

/// A published result for people.
pub(crate) fn published(figure: Figure) -> String {
    match figure {
        Figure::Exactly(value) => written(value),
        Figure::AtLeast(value) => format!("at least {}", written(value)),
        Figure::AtMost(value) => format!("at most {}", written(value)),
        Figure::Holds(true) => "holds".to_owned(),
        Figure::Holds(false) => "does not hold".to_owned(),
    }
}

/// How a prediction did, for people; empty where there is nothing to compare.
pub(crate) fn verdict(row: &Row) -> String {
    match (row.agrees(), row.error) {
        (Some(true), _) => "agrees".to_owned(),
        (Some(false), _) => "disagrees".to_owned(),
        (None, Some(error)) => format!("{:.1}%", 100.0 * error),
        (None, None) => String::new(),
    }
}
