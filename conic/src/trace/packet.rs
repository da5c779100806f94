//! One packet through a loopback.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conic_sim::platform::{CXL, ECI, Platform, model_of};
use conic_sim::probe::SpanRecord;
use conic_study::simulated::{ROUND_TRIP, observed_loopback};
use conic_study::workload::{Loopback, NIC_BURST, Switches};
use serde::Serialize;

use super::output::{MessageReport, Output, messages, table};
use super::{Followed, Recorded, TRIPS, cxl};
use crate::bench::common::nanoseconds;
use crate::bench::failure::{Failure, print_json};
use crate::sim::question::{Choice, Question};

#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    question: Question,
    /// Packets of the burst, 1 to 32
    #[arg(long, value_name = "PACKETS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=32))]
    burst: u16,
    #[command(flatten)]
    pub output: Output,
}

/// Packets before the loop is steady: the rings have gone round several times.
const WARM: u64 = 8_192;

/// Follows one packet.
///
/// # Errors
///
/// What cannot be asked for, or written.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    if model_of(&options.question.platform).name == CXL.name {
        return cxl::run(&cxl::Options::of(&options.question, options.burst, &options.output)?);
    }
    let platform = options.platform()?;
    let question = options.loopback(&platform)?;
    options.output.is_writable()?;
    let packet = packet(&question, &options.output)?;
    let files = options.output.write(&packet, "packet", &title(options, &platform))?;
    if options.output.json {
        print_json(&report(options, &platform, &packet, files))?;
    } else {
        print(options, &platform, &packet, &files);
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn platform(&self) -> Result<Platform, Failure> {
        let name = &self.question.platform;
        if model_of(name).name == ECI.name {
            return Err(Failure::failed(format!(
                "{name} has no queues of packets: its device is home to pairs of lines; follow what crosses those with \
                 conic trace call, receive or transmit --platform {name}"
            )));
        }
        self.question.platform(|_| String::new())
    }

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
            nic_burst: NIC_BURST,
            whole_bursts: false,
            offered: None,
            prefetching: question.prefetching(),
            nic_work: None,
            packets: (WARM, u64::from(burst) * TRIPS as u64),
            switches: Switches::default(),
            seed: question.seed,
        })
    }
}

/// Runs the loopback and picks one round trip.
fn packet(question: &Loopback, output: &Output) -> Result<Followed, Failure> {
    let mut recorded = Recorded(None);
    observed_loopback(question, &mut recorded).map_err(Failure::failed)?;
    let all = recorded.all("--packet-size or --burst")?;
    let trips: Vec<&SpanRecord> = all.spans.iter().filter(|span| span.name == ROUND_TRIP).collect();
    let durations: Vec<u64> = trips.iter().map(|trip| trip.ends.since(trip.begins).picoseconds()).collect();
    let trip = trips[output.chosen(&durations)?];
    Ok(Followed::of(&all, trip.begins, trip.ends))
}

fn title(options: &Options, platform: &Platform) -> String {
    let question = &options.question;
    let packets = match options.burst {
        1 => format!("a packet of {} bytes", question.packet_size),
        burst => format!("{burst} packets of {} bytes", question.packet_size),
    };
    format!("{packets} through {} on {}", question.interface_name(), platform.name())
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

fn report(options: &Options, platform: &Platform, packet: &Followed, files: Vec<PathBuf>) -> Report {
    let question = &options.question;
    Report {
        schema: "conic.trace/1",
        platform: platform.name().to_owned(),
        interface: question.interface_name(),
        features: (question.choice() == Choice::Ccnic).then(|| question.features().to_string()),
        packet_size: question.packet_size,
        burst: options.burst,
        round_trip_ns: packet.since(packet.ends),
        messages: messages(packet),
        files,
    }
}

fn print(options: &Options, platform: &Platform, packet: &Followed, files: &[PathBuf]) {
    println!("{}: {} there and back", title(options, platform), nanoseconds(packet.since(packet.ends)));
    if options.question.choice() == Choice::Ccnic {
        println!("  {}", options.question.features());
    }
    println!("  {}", platform.description());
    print!("{}", table(packet));
    files.iter().for_each(|file| println!("  {}", file.display()));
}
