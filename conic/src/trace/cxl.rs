//! One packet through a NIC behind CXL or PCIe, on a host that is modelled with its device.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conic_fabric::Time;
use conic_sim::cxl::CxlParameters;
use conic_sim::platform::Platform;
use conic_sim::probe::{Recording, SpanRecord};
use conic_study::cxl_nic::advise::described;
use conic_study::cxl_nic::loopback::{
    AT_HOST, Attachment, Design, Loopback, RECEIVE_STAGE, TRANSMIT_STAGE, around, observed_loopback,
};
use conic_study::simulated::ROUND_TRIP;
use serde::Serialize;
use serde_json::{Map, Value};

use super::output::{CountReport, MessageReport, Output, OwnersReport, counts, counts_table, messages, owners, table};
use super::{Followed, Recorded, TRIPS};
use crate::bench::common::nanoseconds;
use crate::bench::failure::{Failure, print_json};
use crate::sim::design::DesignQuestion;
use crate::sim::question::Question;

/// Every message that one packet causes through a NIC behind CXL or PCIe
///
/// A packet comes to the NIC, which brings it to the host by the requests that its design has for each step; a core of the host copies it
/// and sends the copy, which the NIC takes. Packets come one by one until all buffers have been used twice; then one is written down: each
/// access of a core or of the NIC, each message that it caused, what was snooped and found, and who owned each line meanwhile.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(flatten)]
    question: DesignQuestion,
    #[command(flatten)]
    pub output: Output,
}

const EXAMPLES: &str = "A core's and the NIC's accesses have plain names, those of the NIC by their hints: NC-read, NC-write, NC-P (a push), CS-read, CO-read, \
CO-write. What crosses the CXL link has the specification's: RdCurr, RdShared, RdOwn, RdOwnNoData, WOWrInvF, ItoMWr, evictions; snoops and \
their answers, RspI for both RspIHitI and RspIHitSE; GO and its state, pulls, ExtCmp; MemRd, MemWr and forwards. Over PCIe: MRd, CplD, MWr, \
MMIO.

A line is owned by a core, the last-level cache, or the device's cache of host lines (HMC) or of its own (DMC), as in M@core 0. I: it is in memory \
alone, or on its way. The NIC polls for packets to transmit: what it asks in vain is in the trace as well.

Examples:
  conic trace cxl                                  combination 0: non-coherent requests, 64 bytes
  conic trace cxl --design 4 --packet-size 1500    receive packets by CO-write
  conic trace cxl --design optimal -o out/optimal  pushes, device memory, device-bias
  conic trace cxl --design 2 --choose transmit-packet=CS --choose receive-ring=device-memory
  conic trace cxl --platform bf3                   DMA and doorbells, for comparison
  conic trace cxl --burst 8 --choose receive-batch=8";

impl Options {
    /// The same question about a machine with a CXL device that was asked about machines of two sockets.
    ///
    /// # Errors
    ///
    /// What of it these machines have nothing of.
    pub fn of(question: &Question, burst: u16, output: &Output) -> Result<Options, Failure> {
        Ok(Options { question: DesignQuestion::of(question, burst)?, output: output.clone() })
    }

    fn platform(&self) -> Result<Platform<CxlParameters>, Failure> {
        self.question.platform(|_| "; conic trace --help says what follows packets on others".to_owned())
    }

    fn loopback(&self, platform: &Platform<CxlParameters>) -> Result<Loopback, Failure> {
        let question = &self.question;
        let burst = u64::from(question.burst);
        let (design, bytes) = (question.design(platform, |_| ())?, question.packet_size.into());
        Ok(Loopback {
            machine: platform.parameters().clone(),
            design,
            bytes,
            // Far more than a packet takes: each burst finds everything at rest.
            gap: Time::from_nanoseconds(20_000),
            together: burst,
            packets: (around(&design, bytes).next_multiple_of(burst), burst * TRIPS as u64),
            seed: question.seed,
        })
    }

    fn title(&self, platform: &Platform<CxlParameters>) -> String {
        let packets = match self.question.burst {
            1 => format!("a packet of {} bytes", self.question.packet_size),
            burst => format!("{burst} packets of {} bytes", self.question.packet_size),
        };
        format!("{packets} by {} on {}", self.question.name(platform), platform.name())
    }
}

/// Follows one packet, or one burst.
///
/// # Errors
///
/// What cannot be asked for, or written.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let platform = options.platform()?;
    let question = options.loopback(&platform)?;
    options.output.is_writable()?;
    let mut recorded = Recorded(None);
    let stopped = |failure| Failure::failed(format!("the modelled machine stopped: {failure}"));
    observed_loopback(&question, &mut recorded).map_err(stopped)?;
    let all = recorded.all("--packet-size or --burst")?;
    let trips = trips(&all, question.packets.0 as usize, options.question.burst.into());
    let durations: Vec<u64> = trips.iter().map(|trip| trip.took().picoseconds()).collect();
    let trip = &trips[options.output.chosen(&durations)?];
    let followed = Followed::of(&all, trip.bounds[0], trip.bounds[PARTS.len()]);
    let title = options.title(&platform);
    let files = options.output.write(&followed, "packet", &title)?;
    let report = Report {
        schema: "conic.trace.cxl/1",
        platform: platform.name().to_owned(),
        design: described(&question.design)
            .into_iter()
            .map(|(what, choice)| (what.to_owned(), choice.into()))
            .collect(),
        packet_size: options.question.packet_size,
        burst: options.question.burst,
        round_trip_ns: followed.since(followed.ends),
        parts: trip.parts(),
        counts: counts(&followed),
        messages: messages(&followed),
        owners: owners(&followed),
        files,
    };
    if options.output.json {
        print_json(&report)?;
    } else {
        println!("{title}: {} there and back", nanoseconds(report.round_trip_ns));
        println!("  {}", platform.description());
        print(&report, &question.design);
        print!("{}{}", table(&followed), counts_table(&report.counts));
        report.files.iter().for_each(|file| println!("  {}", file.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The parts of a round trip, one after the other.
const PARTS: [&str; 5] = [
    "in the NIC, until it begins to deliver it",
    "to the host: descriptor, packet, completion",
    "at the host, until its transmit call is over",
    "to the NIC: descriptor and packet",
    "in the NIC, until it is out",
];

/// When each part of a round trip begins, and when the last ends. Of a burst, what is in the NIC and on its way to the host is the
/// first packet, and the last from then on.
struct Trip {
    bounds: [Time; PARTS.len() + 1],
}

impl Trip {
    fn took(&self) -> Time {
        self.bounds[PARTS.len()].since(self.bounds[0])
    }

    fn parts(&self) -> Vec<Part> {
        let spans = self.bounds.windows(2).map(|bound| bound[1].since(bound[0]));
        PARTS.iter().zip(spans).map(|(what, span)| Part { what, ns: span.picoseconds() as f64 / 1e3 }).collect()
    }
}

/// The round trips of the bursts that count.
fn trips(all: &Recording, before: usize, burst: usize) -> Vec<Trip> {
    let named =
        |name: &str| -> Vec<&SpanRecord> { all.spans.iter().filter(|span| span.name == name).skip(before).collect() };
    let [round_trips, received, at_host, transmitted] = [ROUND_TRIP, RECEIVE_STAGE, AT_HOST, TRANSMIT_STAGE].map(named);
    let trip = |first: usize| {
        let last = first + burst - 1;
        let bounds = [
            round_trips[first].begins,
            received[first].ends,
            at_host[first].begins,
            at_host[last].ends,
            transmitted[last].begins,
            transmitted[last].ends,
        ];
        Trip { bounds }
    };
    (0..round_trips.len() / burst).map(|number| trip(number * burst)).collect()
}

/// How long a part of a round trip took.
#[derive(Clone, Debug, Serialize)]
struct Part {
    what: &'static str,
    ns: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    platform: String,
    /// What was chosen for each step and structure.
    design: Map<String, Value>,
    packet_size: u16,
    burst: u16,
    round_trip_ns: f64,
    parts: Vec<Part>,
    counts: Vec<CountReport>,
    messages: Vec<MessageReport>,
    owners: Vec<OwnersReport>,
    files: Vec<PathBuf>,
}

/// Prints the design and the parts of the round trip.
fn print(report: &Report, design: &Design) {
    if design.attachment == Attachment::Cxl {
        let choices: Vec<String> = described(design).iter().map(|(what, choice)| format!("{what}: {choice}")).collect();
        crate::value::in_lines(choices.iter().map(String::as_str), "; ", 100)
            .iter()
            .for_each(|line| println!("  {line}"));
    }
    println!();
    report.parts.iter().for_each(|part| println!("  {:>9.1}  {}", part.ns, part.what));
}
