//! What is written and printed of whatever is followed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use conic_sim::probe::holding::{Holding, holdings};
use conic_sim::probe::{Cause, MessageRecord, PlaceName, perfetto};
use conic_study::sequence;
use serde::Serialize;

use super::{Followed, TRIPS};
use crate::bench::failure::Failure;
use crate::writable;

/// What stands under the diagram.
const NOTE: &str = "simulated; every access that waited, each message it caused, and who held the lines meanwhile";

/// Which of several is shown, and where to.
#[derive(Clone, Debug, Args)]
pub struct Output {
    /// Which one is shown, 0 to 32, once all is steady [default: the first of median duration]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(0..TRIPS))]
    number: Option<u16>,
    /// The folder for the trace and the diagram
    #[arg(short, long, value_name = "DIR", default_value = "out/trace")]
    output: PathBuf,
    /// Print one JSON object on stdout and nothing else there; errors too, with exit code 1
    #[arg(long)]
    pub json: bool,
}

impl Output {
    /// Refuses a folder that cannot be written into, before anything is run for it.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn is_writable(&self) -> Result<(), Failure> {
        writable::folder(&self.output, "--output")
    }

    /// Which of several, by how long each took: the one that was asked for, or the first of median duration.
    ///
    /// # Errors
    ///
    /// If there are not so many.
    pub fn chosen(&self, durations: &[u64]) -> Result<usize, Failure> {
        let chosen = chosen(durations, self.number.map(usize::from)).filter(|chosen| *chosen < durations.len());
        chosen.ok_or_else(|| Failure::failed("there were too few of them"))
    }

    /// Writes the trace and the diagram, named after what is followed; says where.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub fn write(&self, followed: &Followed, name: &str, title: &str) -> Result<Vec<PathBuf>, Failure> {
        let cannot = |path: &Path, error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
        fs::create_dir_all(&self.output).map_err(|error| cannot(&self.output, error))?;
        let trace = perfetto::write(&followed.recording, &perfetto::Options::default());
        let options =
            sequence::Options { title: title.to_owned(), note: NOTE.to_owned(), begin: Some(followed.begins) };
        let diagram = sequence::svg(&followed.recording, &options);
        let mut files = Vec::new();
        for (extension, bytes) in [("pftrace", trace), ("svg", diagram.into_bytes())] {
            let path = self.output.join(format!("{name}.{extension}"));
            fs::write(&path, bytes).map_err(|error| cannot(&path, error))?;
            files.push(path);
        }
        Ok(files)
    }
}

/// A message in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct MessageReport {
    sent_ns: f64,
    arrives_ns: f64,
    name: &'static str,
    from: String,
    to: String,
    line: String,
    /// The message that caused it: its place in this list.
    cause: Option<u32>,
}

/// All messages.
pub fn messages(followed: &Followed) -> Vec<MessageReport> {
    let recording = &followed.recording;
    let message = |message: &MessageRecord| MessageReport {
        sent_ns: followed.since(message.sent),
        arrives_ns: followed.since(message.arrives),
        name: message.name,
        from: recording.place(message.from),
        to: recording.place(message.to),
        line: recording.line(message.line),
        cause: message.cause.map(|Cause(cause)| cause),
    };
    recording.messages.iter().map(message).collect()
}

/// Who owned a line, in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct OwnersReport {
    line: String,
    from_ns: f64,
    /// As `M@L2`, `S@L2+device`, or `I`: nobody, while it is on its way.
    owners: String,
}

/// The owners of each line, in the order of time: those of the beginning, with when they began to be, and all later ones.
pub fn owners(followed: &Followed) -> Vec<OwnersReport> {
    let recording = &followed.recording;
    let owners = |line: u64, holding: &Holding| OwnersReport {
        line: recording.line(line),
        from_ns: followed.since(holding.from),
        owners: holding.label(recording),
    };
    let all = holdings(recording);
    let later = |held: &&Holding| held.until > followed.begins;
    all.iter().flat_map(|(line, held)| held.iter().filter(later).map(|holding| owners(*line, holding))).collect()
}

/// The messages in the order in which they were sent, indented under what caused them.
pub fn table(followed: &Followed) -> String {
    let recording = &followed.recording;
    let way = |message: &MessageRecord| format!("{} -> {}", recording.place(message.from), recording.place(message.to));
    let wide = recording.messages.iter().map(|message| way(message).len()).max().unwrap_or(0).max(24);
    let mut text = format!("\n  {:>9}  {:>9}  {:36}  {:wide$}  line\n", "sent", "arrives", "message", "from -> to");
    let mut depths: Vec<usize> = Vec::new();
    let mut order: Vec<usize> = (0..recording.messages.len()).collect();
    for number in 0..recording.messages.len() {
        depths.push(recording.cause_of(number).map_or(0, |cause| depths[cause] + 1));
    }
    order.sort_by_key(|&number| (recording.messages[number].sent, number));
    for number in order {
        let message = &recording.messages[number];
        let name = format!("{}{}", "  ".repeat(depths[number].min(12)), message.name);
        let way = way(message);
        let [sent, arrives] = [message.sent, message.arrives].map(|at| followed.since(at));
        text += &format!("  {sent:>9.1}  {arrives:>9.1}  {name:36}  {way:wide$}  {}\n", recording.line(message.line));
    }
    let count = recording.messages.len();
    text + &format!("\n  {count} messages; times in nanoseconds; indented under what caused them\n")
}

/// How many messages of a kind went one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CountReport {
    from: String,
    to: String,
    name: &'static str,
    count: usize,
}

/// Messages by their ways and kinds, in the order of these.
pub fn counts(followed: &Followed) -> Vec<CountReport> {
    let recording = &followed.recording;
    let mut counts: BTreeMap<(PlaceName, PlaceName, &'static str), usize> = BTreeMap::new();
    for message in &recording.messages {
        *counts.entry((message.from, message.to, message.name)).or_default() += 1;
    }
    let report = |((from, to, name), count): (&(PlaceName, PlaceName, &'static str), &usize)| CountReport {
        from: recording.place(*from),
        to: recording.place(*to),
        name,
        count: *count,
    };
    counts.iter().map(report).collect()
}

/// The same as text, a line for each way.
pub fn counts_table(counts: &[CountReport]) -> String {
    let mut text = "\n  how many of each, from -> to:\n".to_owned();
    for way in counts.chunk_by(|one, other| (&one.from, &one.to) == (&other.from, &other.to)) {
        let kinds: Vec<String> = way.iter().map(|one| format!("{} {}", one.count, one.name)).collect();
        let hop = format!("{} -> {}", way[0].from, way[0].to);
        text += &format!("  {hop:38}  {}\n", kinds.join("; "));
    }
    text
}

/// Which of several, by how long each took: the one that was asked for, or the first of median duration.
fn chosen(durations: &[u64], number: Option<usize>) -> Option<usize> {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2)?;
    number.or_else(|| durations.iter().position(|duration| duration == median))
}

#[cfg(test)]
mod tests {
    use super::chosen;

    #[test]
    fn the_one_that_was_asked_for_is_chosen_or_the_first_of_median_duration() {
        let durations = [9, 5, 7, 7, 1];
        assert_eq!(chosen(&durations, None), Some(2));
        assert_eq!(chosen(&durations, Some(4)), Some(4));
        assert_eq!(chosen(&[], None), None);
    }
}
