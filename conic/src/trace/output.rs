//! What is written and printed of whatever is followed.

use std::fs;
use std::path::{Path, PathBuf};

use conic_sim::probe::holding::{Holding, holdings};
use conic_sim::probe::{Cause, MessageRecord, perfetto};
use conic_study::sequence;
use serde::Serialize;

use super::Followed;
use crate::bench::failure::Failure;

/// What stands under the diagram.
const NOTE: &str = "simulated; every access that waited, each message it caused, and who held the lines meanwhile";

/// Writes the trace and the diagram, named after what is followed; says where.
///
/// # Errors
///
/// If they cannot be written.
pub fn write(followed: &Followed, folder: &Path, name: &str, title: &str) -> Result<Vec<PathBuf>, Failure> {
    let cannot = |path: &Path, error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    fs::create_dir_all(folder).map_err(|error| cannot(folder, error))?;
    let trace = perfetto::write(&followed.recording, &perfetto::Options::default());
    let options = sequence::Options { title: title.to_owned(), note: NOTE.to_owned(), begin: Some(followed.begins) };
    let diagram = sequence::svg(&followed.recording, &options);
    let mut files = Vec::new();
    for (extension, bytes) in [("pftrace", trace), ("svg", diagram.into_bytes())] {
        let path = folder.join(format!("{name}.{extension}"));
        fs::write(&path, bytes).map_err(|error| cannot(&path, error))?;
        files.push(path);
    }
    Ok(files)
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
    let mut text = format!("\n  {:>9}  {:>9}  {:36}  {:24}  line\n", "sent", "arrives", "message", "from -> to");
    let mut depths: Vec<usize> = Vec::new();
    let mut order: Vec<usize> = (0..recording.messages.len()).collect();
    for number in 0..recording.messages.len() {
        depths.push(recording.cause_of(number).map_or(0, |cause| depths[cause] + 1));
    }
    order.sort_by_key(|&number| (recording.messages[number].sent, number));
    for number in order {
        let message = &recording.messages[number];
        let name = format!("{}{}", "  ".repeat(depths[number].min(12)), message.name);
        let way = format!("{} -> {}", recording.place(message.from), recording.place(message.to));
        let [sent, arrives] = [message.sent, message.arrives].map(|at| followed.since(at));
        text += &format!("  {sent:>9.1}  {arrives:>9.1}  {name:36}  {way:24}  {}\n", recording.line(message.line));
    }
    let count = recording.messages.len();
    text + &format!("\n  {count} messages; times in nanoseconds; indented under what caused them\n")
}
