//! `conic trace`: every message that one packet causes on a modelled machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use conic_fabric::Time;
use conic_sim::machine::Machine;
use conic_sim::platform::Platform;
use conic_sim::probe::perfetto;
use conic_sim::probe::{Cause, MessageRecord, Recording, SpanRecord};
use conic_study::sequence;
use conic_study::simulated::{Observer, ROUND_TRIP, observed_loopback};
use conic_study::workload::{Loopback, Switches};
use serde::Serialize;

use crate::bench::common::nanoseconds;
use crate::bench::failure::{Failure, print_json};
use crate::sim::question::{Choice, Question};
use crate::writable;

/// Every message that one packet causes, from its first store to its last load
///
/// A loopback with one burst in flight runs until it is steady. Then one round trip is written down: each access that missed, each
/// message that it caused, directly or through another, and who owned each line meanwhile.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    question: Question,
    /// Packets of the burst, 1 to 32
    #[arg(long, value_name = "PACKETS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=32))]
    burst: u16,
    /// Which of the round trips is shown, 0 to 32, once the loop is steady [default: the first of median duration]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(0..TRIPS))]
    number: Option<u16>,
    /// The folder for packet.pftrace and packet.svg
    #[arg(short, long, value_name = "DIR", default_value = "out/trace")]
    output: PathBuf,
    /// Print one JSON object on stdout and nothing else there; errors too, with exit code 1
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "What is written:
  packet.pftrace   for https://ui.perfetto.dev: a row for each agent, cache and line; arrows from cause to effect
  packet.svg       a sequence diagram, with the owners of each line

Times are from the packet's beginning. A line is named by its segment of the region and its number there.

Examples:
  conic trace                                   a 64-byte packet through CC-NIC on Sapphire Rapids
  conic trace --interface ring -o out/ring      the same through the baseline
  conic trace --features paper,no-shared-pool   what an ablation adds
  conic trace --platform icx --packet-size 1500 --burst 4";

/// Round trips to choose from.
const TRIPS: i64 = 33;

/// Records of a run, at most: a round trip has some hundred.
const LIMIT: usize = 8_000_000;

/// Packets before the loop is steady: the rings have gone round several times.
const WARM: u64 = 8_192;

/// What stands under the diagram.
const NOTE: &str = "simulated; every access that waited, each message it caused, and who held the lines meanwhile";

/// Runs the command.
pub fn main(arguments: &Arguments) -> ExitCode {
    run(arguments).unwrap_or_else(|failure| failure.report(arguments.json))
}

fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let platform = arguments.question.platform()?;
    let question = arguments.loopback(&platform)?;
    writable::folder(&arguments.output, "--output")?;
    let packet = packet(&question, arguments.number.map(usize::from))?;
    let files = write(&packet, &arguments.output, &title(arguments, &platform))?;
    if arguments.json {
        let report = report(arguments, &platform, &packet, files);
        print_json(&report)?;
    } else {
        print(arguments, &platform, &packet, &files);
    }
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    fn loopback(&self, platform: &Platform) -> Result<Loopback, Failure> {
        let (question, burst) = (&self.question, self.burst);
        Ok(Loopback {
            machine: platform.parameters().clone(),
            interface: question.interface(platform)?,
            nic_place: question.nic_place(),
            threads: 1,
            packet_size: question.packet_size,
            window: u64::from(burst),
            transmit_burst: usize::from(burst),
            receive_burst: usize::from(burst),
            offered: None,
            prefetching: question.prefetching(),
            nic_work: None,
            packets: (WARM, u64::from(burst) * TRIPS as u64),
            switches: Switches::default(),
            seed: question.seed,
        })
    }
}

/// One round trip: what was written down, and when it was.
struct Packet {
    recording: Recording,
    begins: Time,
    ends: Time,
}

/// Takes the recording of a whole run.
struct Recorded(Option<Recording>);

impl Observer for Recorded {
    fn begins(&mut self, machine: &mut Machine) {
        machine.record(LIMIT);
    }
    fn ends(&mut self, machine: &mut Machine) {
        self.0 = machine.take_recording();
    }
}

/// Runs the loopback and picks one round trip.
fn packet(question: &Loopback, number: Option<usize>) -> Result<Packet, Failure> {
    let mut recorded = Recorded(None);
    observed_loopback(question, &mut recorded).map_err(Failure::failed)?;
    let all = recorded.0.ok_or_else(|| Failure::failed("nothing was written down"))?;
    if all.dropped > 0 {
        let message = format!("more than {LIMIT} records: ask for a smaller --packet-size or --burst");
        return Err(Failure::failed(message));
    }
    let trips: Vec<&SpanRecord> = all.spans.iter().filter(|span| span.name == ROUND_TRIP).collect();
    let trip = trips.get(number.unwrap_or(0)).ok_or_else(|| Failure::failed("there were too few round trips"))?;
    let trip = if number.is_some() { trip } else { typical(&trips).unwrap_or(trip) };
    let SpanRecord { begins, ends, .. } = *trip;
    let within = |at: Time| begins <= at && at < ends;
    let asked = all.messages.iter().filter(|one| (one.cause.is_none() || one.asks) && within(one.sent));
    let waited = all.spans.iter().filter(|span| within(span.begins)).filter_map(|span| span.line);
    let lines: Vec<u64> = asked.map(|message| message.line).chain(waited).collect();
    Ok(Packet { recording: all.packet(&lines, begins, ends), begins, ends })
}

/// The first of median duration.
fn typical<'a>(trips: &[&'a SpanRecord]) -> Option<&'a SpanRecord> {
    let duration = |trip: &SpanRecord| trip.ends.since(trip.begins);
    let mut durations: Vec<Time> = trips.iter().map(|trip| duration(trip)).collect();
    durations.sort_unstable();
    let median = *durations.get(durations.len() / 2)?;
    trips.iter().find(|trip| duration(trip) == median).copied()
}

fn title(arguments: &Arguments, platform: &Platform) -> String {
    let question = &arguments.question;
    let packets = match arguments.burst {
        1 => format!("a packet of {} bytes", question.packet_size),
        burst => format!("{burst} packets of {} bytes", question.packet_size),
    };
    format!("{packets} through {} on {}", question.interface_name(), platform.name())
}

/// Writes the trace and the diagram; says where.
fn write(packet: &Packet, folder: &Path, title: &str) -> Result<Vec<PathBuf>, Failure> {
    let cannot = |path: &Path, error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    fs::create_dir_all(folder).map_err(|error| cannot(folder, error))?;
    let trace = perfetto::write(&packet.recording, &perfetto::Options::default());
    let options = sequence::Options { title: title.to_owned(), note: NOTE.to_owned(), begin: Some(packet.begins) };
    let diagram = sequence::svg(&packet.recording, &options);
    let contents = [("packet.pftrace", trace), ("packet.svg", diagram.into_bytes())];
    let mut files = Vec::new();
    for (name, bytes) in contents {
        let path = folder.join(name);
        fs::write(&path, bytes).map_err(|error| cannot(&path, error))?;
        files.push(path);
    }
    Ok(files)
}

#[derive(Clone, Debug, Serialize)]
struct MessageReport {
    sent_ns: f64,
    arrives_ns: f64,
    name: &'static str,
    from: String,
    to: String,
    line: String,
    /// The message that caused it: its place in this list.
    cause: Option<u32>,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    platform: String,
    interface: &'static str,
    features: Option<String>,
    packet_size: u16,
    burst: u16,
    round_trip_ns: f64,
    messages: Vec<MessageReport>,
    files: Vec<PathBuf>,
}

/// Nanoseconds from a packet's beginning; less than zero for what was caused before.
fn since(packet: &Packet, at: Time) -> f64 {
    (at.picoseconds() as f64 - packet.begins.picoseconds() as f64) / 1e3
}

fn report(arguments: &Arguments, platform: &Platform, packet: &Packet, files: Vec<PathBuf>) -> Report {
    let question = &arguments.question;
    let recording = &packet.recording;
    let message = |message: &MessageRecord| MessageReport {
        sent_ns: since(packet, message.sent),
        arrives_ns: since(packet, message.arrives),
        name: message.name,
        from: recording.place(message.from),
        to: recording.place(message.to),
        line: recording.line(message.line),
        cause: message.cause.map(|Cause(cause)| cause),
    };
    Report {
        schema: "conic.trace/1",
        platform: platform.name().to_owned(),
        interface: question.interface_name(),
        features: (question.interface == Choice::Ccnic).then(|| question.features().to_string()),
        packet_size: question.packet_size,
        burst: arguments.burst,
        round_trip_ns: since(packet, packet.ends),
        messages: recording.messages.iter().map(message).collect(),
        files,
    }
}

fn print(arguments: &Arguments, platform: &Platform, packet: &Packet, files: &[PathBuf]) {
    let recording = &packet.recording;
    println!("{}: {} there and back", title(arguments, platform), nanoseconds(since(packet, packet.ends)));
    if arguments.question.interface == Choice::Ccnic {
        println!("  {}", arguments.question.features());
    }
    println!("  {}", platform.description());
    println!("\n  {:>9}  {:>9}  {:36}  {:24}  line", "sent", "arrives", "message", "from -> to");
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
        let (sent, arrives) = (since(packet, message.sent), since(packet, message.arrives));
        println!("  {sent:>9.1}  {arrives:>9.1}  {name:36}  {way:24}  {}", recording.line(message.line));
    }
    println!("\n  {} messages; times in nanoseconds; indented under what caused them", recording.messages.len());
    files.iter().for_each(|file| println!("  {}", file.display()));
}
