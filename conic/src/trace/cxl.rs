//! One packet through a NIC behind CXL or PCIe, on a host that is modelled with its device.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conic_fabric::Time;
use conic_sim::cxl::CxlParameters;
use conic_sim::platform::{CXL, Platform, model_of};
use conic_sim::probe::{Recording, SpanRecord};
use conic_study::cxl_nic::advise::{choose, described};
use conic_study::cxl_nic::loopback::{
    AT_HOST, Attachment, Design, Loopback, RECEIVE_STAGE, TRANSMIT_STAGE, around, observed_loopback,
};
use conic_study::cxl_nic::{ccnic, layout, optimal};
use conic_study::simulated::ROUND_TRIP;
use serde::Serialize;
use serde_json::{Map, Value};

use super::output::{CountReport, MessageReport, Output, OwnersReport, counts, counts_table, messages, owners, table};
use super::{Followed, Recorded, TRIPS};
use crate::bench::common::nanoseconds;
use crate::bench::failure::{Failure, print_json};
use crate::sim::question::Question;

/// Every message that one packet causes through a NIC behind CXL or PCIe
///
/// A packet comes to the NIC, which brings it to the host by the requests that its design has for each step; a core of the host copies it
/// and sends the copy, which the NIC takes. Packets come one by one until all buffers have been used twice; then one is written down: each
/// access of a core or of the NIC, each message that it caused, what was snooped and found, and who owned each line meanwhile.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// The machine, with its device: agilex7 (CXL, measured), cxl-asic, cxl3-asic (CXL, guesses), bf3 (PCIe), or the path of a file that
    /// ends in .toml
    #[arg(long, value_name = "NAME|FILE", default_value = "agilex7")]
    platform: String,
    /// Replace a value of the platform, in its unit or with one of its own, as in link.crossing=60ns; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// The NIC: 0 to 7, the paper's combinations of request types; layout-1 to layout-4, by what is in the device's memory (Figure 13);
    /// optimal, section 7.2's with pushes and device memory; ccnic, CC-NIC's layout; dma, over PCIe [default: 0, or dma behind PCIe]
    #[arg(long, value_name = "DESIGN", value_parser = named)]
    design: Option<Named>,
    /// Take another choice for one step or structure, both named as conic advise names them; may be repeated
    #[arg(long = "choose", value_name = "WHAT=CHOICE")]
    choices: Vec<String>,
    /// Bytes of a packet, 60 to 9600
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(60..=9600))]
    packet_size: u16,
    /// Packets that come one right behind the other, 1 to 32
    #[arg(long, value_name = "PACKETS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=32))]
    burst: u16,
    /// The seed of everything that is drawn; the same seed gives the same result
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
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

/// A design, and what it is called.
#[derive(Clone, Debug)]
struct Named {
    name: String,
    design: Design,
}

impl Named {
    /// One of the paper's combinations of request types.
    fn combination(number: u32) -> Named {
        Named { name: format!("combination {number}"), design: Design::combination(number) }
    }
}

/// Reads the name of a design.
fn named(text: &str) -> Result<Named, String> {
    let other = |name: &str, design| Some(Named { name: name.to_owned(), design });
    let number = |digits: &str, of: RangeInclusive<u32>| digits.parse().ok().filter(|number| of.contains(number));
    let found = match text {
        "optimal" => other("the configuration of section 7.2", optimal()),
        "ccnic" => other("CC-NIC's layout", ccnic()),
        "dma" => other("DMA", Design::pcie()),
        _ => match text.strip_prefix("layout-") {
            Some(digits) => number(digits, 1..=4)
                .map(|number| Named { name: format!("layout L{number}"), design: layout(number as usize) }),
            None => number(text, 0..=7).map(Named::combination),
        },
    };
    found.ok_or_else(|| "give 0 to 7, layout-1 to layout-4, optimal, ccnic or dma".to_owned())
}

impl Options {
    /// The same question about a machine with a CXL device that was asked about machines of two sockets.
    ///
    /// # Errors
    ///
    /// What of it these machines have nothing of.
    pub fn of(question: &Question, burst: u16, output: &Output) -> Result<Options, Failure> {
        if let Some(option) = question.of_sockets() {
            return Err(Failure::failed(format!(
                "{option} is of machines with two sockets, and {} has a device behind CXL or PCIe: leave it out, and choose request types \
                 and placements with conic trace cxl --platform {}",
                question.platform, question.platform
            )));
        }
        Ok(Options {
            platform: question.platform.clone(),
            overrides: question.overrides.clone(),
            design: None,
            choices: Vec::new(),
            packet_size: question.packet_size,
            burst,
            seed: question.seed,
            output: output.clone(),
        })
    }

    fn platform(&self) -> Result<Platform<CxlParameters>, Failure> {
        let platform = Platform::load_as(&self.platform).and_then(|platform| platform.with(&self.overrides));
        platform.map_err(|error| {
            let other =
                Platform::names().any(|name| name == self.platform) && model_of(&self.platform).name != CXL.name;
            let hint = if other { "; conic trace --help says what follows packets on others" } else { "" };
            Failure::failed(format!("{error}{hint}"))
        })
    }

    /// The design that is named, or the usual one.
    fn named(&self, platform: &Platform<CxlParameters>) -> Named {
        let usual = || {
            if platform.parameters().link.present {
                Named::combination(0)
            } else {
                Named { name: "DMA".to_owned(), design: Design::pcie() }
            }
        };
        self.design.clone().unwrap_or_else(usual)
    }

    /// The same with other choices.
    fn design(&self, platform: &Platform<CxlParameters>) -> Result<Design, Failure> {
        let has_cxl = platform.parameters().link.present;
        let mut design = self.named(platform).design;
        if design.attachment == Attachment::Cxl && !has_cxl {
            let name = platform.name();
            return Err(Failure::failed(format!(
                "the device of {name} has no CXL, of whose requests this design is: leave --design out, or take --platform agilex7"
            )));
        }
        for choice in &self.choices {
            let what = choice.split_once('=').map(|(what, chosen)| (what.trim(), chosen.trim()));
            let (what, chosen) = what.ok_or_else(|| {
                Failure::failed(format!("\"{choice}\": give a choice as in --choose transmit-packet=CS"))
            })?;
            if design.attachment == Attachment::Dma && !what.ends_with("batch") {
                return Err(Failure::failed(format!(
                    "DMA has no choice of {what}: over PCIe there is the receive batch and the transmit batch"
                )));
            }
            design = choose(&design, what, chosen).map_err(Failure::failed)?;
        }
        Ok(design)
    }

    fn loopback(&self, platform: &Platform<CxlParameters>) -> Result<Loopback, Failure> {
        let burst = u64::from(self.burst);
        let (design, bytes) = (self.design(platform)?, self.packet_size.into());
        Ok(Loopback {
            machine: platform.parameters().clone(),
            design,
            bytes,
            // Far more than a packet takes: each burst finds everything at rest.
            gap: Time::from_nanoseconds(20_000),
            together: burst,
            packets: (around(&design, bytes).next_multiple_of(burst), burst * TRIPS as u64),
            seed: self.seed,
        })
    }

    fn title(&self, platform: &Platform<CxlParameters>) -> String {
        let packets = match self.burst {
            1 => format!("a packet of {} bytes", self.packet_size),
            burst => format!("{burst} packets of {} bytes", self.packet_size),
        };
        let name = self.named(platform).name;
        let but = if self.choices.is_empty() { String::new() } else { format!(" but {}", self.choices.join(", ")) };
        format!("{packets} by {name}{but} on {}", platform.name())
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
    let trips = trips(&all, question.packets.0 as usize, options.burst.into());
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
        packet_size: options.packet_size,
        burst: options.burst,
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
