//! `conic sim cxl`: one's own question about a NIC behind CXL or PCIe.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use clap::Args;
use conic_chart::{Align, Cell, Column, Table, TerminalStyle};
use conic_fabric::Time;
use conic_interface::cxl::MOST_IN_A_BATCH;
use conic_sim::cxl::{Counters, CxlParameters};
use conic_sim::platform::Platform;
use conic_study::coherent_pio::percentile;
use conic_study::cxl_nic::advise::described;
use conic_study::cxl_nic::loopback::{
    Attachment, Design, Loopback, LoopbackOutcome, around, loopback, observed_loopback,
};
use conic_study::cxl_nic::throughput::{Flow, Throughput, receive, transmit};
use serde::Serialize;
use serde_json::{Map, Value};

use super::design::DesignQuestion;
use super::queues::{Watched, Watching, print_watched};
use super::{PlatformReport, elsewhere, print_guesses};
use crate::bench::common::{mpps, nanoseconds, three_digits};
use crate::bench::failure::{Failure, print_json};
use crate::bench::loopback::LatencyReport;
use crate::bench::placement::rounded;
use crate::value::in_lines;

/// Packets through a NIC behind CXL or PCIe and back: latency, highest rates, messages
///
/// The device makes packets and brings each to the host by the requests that its design has for each step; a core copies it and sends the
/// copy, which the device takes. Both halves of the interface run on a modelled host with its device, message by message.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(flatten)]
    question: DesignQuestion,
    /// Offered load, in millions of packets a second over all rings [default: a packet, or a burst of them, each 20 us for each packet:
    /// all is at rest before the next]
    #[arg(long, value_name = "MPPS", value_parser = mpps)]
    rate: Option<f64>,
    /// Ring pairs, each with engines of the device and a core of the host's own
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rings: u16,
    /// Packets that one completion speaks for at most, 1 to 25, in both directions; --choose receive-batch or transmit-batch for one
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u16).range(1..=MOST_IN_A_BATCH as i64))]
    batch: Option<u16>,
    /// Packets measured, after as many as go once round all buffers [default: 1000, or those of 60 us if
    /// that is more, up to 10000]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    packets: Option<u64>,
    /// Show how full each of the machine's queues was while the loopback was measured
    #[arg(long)]
    queues: bool,
    /// Print one JSON object on stdout and nothing else there; errors too, with exit code 1
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "Examples:
  conic sim cxl                                    combination 0 on an Agilex-7, 64 bytes
  conic sim cxl --design 4 --packet-size 1500      receive packets by CO-write
  conic sim cxl --design optimal --rate 0.5        pushes, device memory; under load
  conic sim cxl --choose receive-packet=NC-P --choose receive-buffers=device-memory
  conic sim cxl --batch 16 --rings 4               higher rates, over four rings
  conic sim cxl --platform cxl-asic --set link.crossing=30ns
  conic sim cxl --platform bf3                     DMA and doorbells, for comparison
  conic sim cxl --rate 5 --queues                  where packets wait, and for how long
  conic sim cxl --json                             for a program

A design is a choice for each step and structure: --choose names one after the other, by the names and choices that the output shows; what \
there is to choose from is said where a name is wrong. conic advise searches all designs, conic trace cxl shows one packet's messages.

Latency is from when the device makes a packet until it has it back, its own stages included; a packet is due at its time, whether or not the \
one before it is through. The highest rates are those of each direction alone: packets without end, a host that looks at none, or fills a \
word of each line. Messages are over all links, what is asked in vain by a device that polls included: at rest it asks for as long as nothing \
comes. The same seed gives the same figures; conic study cxl-nic has seed 0 (0 to 3 for Figure 10), 1000 packets, 100 with --quick.";

/// The time between packets that find everything at rest.
const AT_REST: Time = Time::from_nanoseconds(20_000);

/// The longest run, in simulated time.
const LONGEST: Time = Time::from_nanoseconds(5_000_000_000);

/// Messages of each kind, a packet.
type Messages = BTreeMap<&'static str, f64>;

/// One direction as fast as it goes.
#[derive(Clone, Debug, Serialize)]
struct Highest {
    mpps: f64,
    gbps: f64,
    messages_per_packet: Messages,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    platform: PlatformReport,
    /// What the design is called.
    design_name: String,
    /// What was chosen for each step and structure.
    design: Map<String, Value>,
    packet_size: u16,
    burst: u16,
    rings: u16,
    /// Packets a second that come; none: one after the other, at rest.
    offered_mpps: Option<f64>,
    /// Packets a second that came back.
    mpps: Option<f64>,
    gbps: Option<f64>,
    packets: u64,
    seed: u64,
    latency_ns: LatencyReport,
    /// Of the latency, how long the host had the packet, in the median.
    at_host_p50_ns: f64,
    messages_per_packet: Messages,
    /// From the device to the host, alone.
    highest_to_host: Highest,
    /// From the host to the device, alone.
    highest_from_host: Highest,
    /// How full the queues were in the loopback, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    probes: Option<Watched>,
}

/// Asks, and says what is found.
///
/// # Errors
///
/// What cannot be asked for, or why there is no answer.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    let platform = options.question.platform(elsewhere)?;
    options.check_rings(&platform)?;
    let question = options.loopback(&platform)?;
    let stopped = |failure| Failure::failed(format!("the modelled machine stopped: {failure}"));
    let mut watching = Watching::default();
    let outcome = match options.queues {
        true => observed_loopback(&question, &mut watching),
        false => loopback(&question),
    }
    .map_err(stopped)?;
    let (warm, counting) = (around(&question.design, question.bytes), options.counting());
    let one_way = Throughput {
        machine: question.machine.clone(),
        design: question.design,
        bytes: question.bytes,
        packets: (warm.max(counting / 2), counting),
    };
    let flows = [receive(&one_way).map_err(stopped)?, transmit(&one_way).map_err(stopped)?];
    let report = Report { probes: watching.seen(), ..options.report(&platform, &question.design, &outcome, flows) };
    if options.json {
        print_json(&report)?;
    } else {
        print(&report, &question.design);
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    /// Refuses more rings than there are cores for.
    fn check_rings(&self, platform: &Platform<CxlParameters>) -> Result<(), Failure> {
        let (rings, cores) = (u32::from(self.rings), platform.parameters().core.cores);
        if rings <= cores {
            return Ok(());
        }
        let name = platform.name();
        Err(Failure::failed(format!("{name} has cores for {cores} rings, not {rings}: see core.cores")))
    }

    /// Packets that are measured.
    fn counting(&self) -> u64 {
        let span = self.rate.map_or(0, |mpps| (mpps * 60.0) as u64);
        self.packets.unwrap_or(span.clamp(1_000, 10_000))
    }

    /// What the options ask for.
    fn loopback(&self, platform: &Platform<CxlParameters>) -> Result<Loopback, Failure> {
        let (question, burst) = (&self.question, u64::from(self.question.burst));
        let design = question.design(platform, |design| {
            design.rings = self.rings.into();
            if let Some(batch) = self.batch {
                (design.receive_batch, design.transmit_batch) = (batch.into(), batch.into());
            }
        })?;
        let bytes = question.packet_size.into();
        let gap = self.rate.map_or(AT_REST, |mpps| Time::from_picoseconds((1e6 / mpps) as u64));
        let counting = self.counting();
        let takes = Time::from_picoseconds(gap.picoseconds().saturating_mul(counting));
        if takes > LONGEST {
            return Err(Failure::failed(format!(
                "{counting} packets at that rate take {:.0} s of simulated time, and a run takes {:.0} at most: ask for fewer --packets, or a \
                 higher --rate",
                takes.seconds(),
                LONGEST.seconds()
            )));
        }
        // Under load queues are to be as long as they get before the first packet that counts.
        let warm = around(&design, bytes).max(if self.rate.is_some() { counting / 2 } else { 0 });
        // Whole bursts on each ring.
        let whole = |packets: u64| packets.next_multiple_of(burst * u64::from(self.rings));
        Ok(Loopback {
            machine: platform.parameters().clone(),
            design,
            bytes,
            gap,
            together: burst,
            packets: (whole(warm), whole(counting)),
            seed: question.seed,
        })
    }

    fn report(
        &self,
        platform: &Platform<CxlParameters>,
        design: &Design,
        outcome: &LoopbackOutcome,
        flows: [Flow; 2],
    ) -> Report {
        let (question, packets) = (&self.question, outcome.latencies.len() as u64);
        let bits = 8.0 * f64::from(question.packet_size);
        let back = outcome.packets_per_second().filter(|_| self.rate.is_some());
        let latency = |part| rounded(percentile(&outcome.latencies, part), 3);
        let [highest_to_host, highest_from_host] = flows.map(|flow| Highest {
            mpps: rounded(flow.gigabits * 1e3 / bits, 3),
            gbps: rounded(flow.gigabits, 3),
            messages_per_packet: a_packet(&flow.counters, flow.packets),
        });
        Report {
            schema: "conic.sim.cxl/1",
            platform: PlatformReport::of(platform, &question.platform, &question.overrides),
            design_name: question.name(platform),
            design: described(design).into_iter().map(|(what, choice)| (what.to_owned(), choice.into())).collect(),
            packet_size: question.packet_size,
            burst: question.burst,
            rings: self.rings,
            offered_mpps: self.rate,
            mpps: back.map(|rate| rounded(rate / 1e6, 3)),
            gbps: back.map(|rate| rounded(rate * bits / 1e9, 3)),
            packets,
            seed: question.seed,
            latency_ns: LatencyReport {
                min: latency(0.0),
                p50: latency(0.5),
                p99: latency(0.99),
                p999: latency(0.999),
            },
            at_host_p50_ns: rounded(percentile(&outcome.at_host, 0.5), 3),
            messages_per_packet: a_packet(&outcome.counters, outcome.counted()),
            highest_to_host,
            highest_from_host,
            probes: None,
        }
    }
}

/// Messages of each kind, a packet.
fn a_packet(counters: &Counters, packets: u64) -> Messages {
    counters.messages.iter().map(|(kind, count)| (kind, rounded(count as f64 / packets as f64, 3))).collect()
}

/// Columns that a line takes at most.
const COLUMNS: usize = 100;

fn print(report: &Report, design: &Design) {
    let Report { packet_size, burst, rings, platform, .. } = report;
    let together = if *burst == 1 { String::new() } else { format!(", {burst} together") };
    let comes = report.offered_mpps.map_or("at rest".to_owned(), |rate| format!("{rate} Mpps due"));
    let over = if *rings == 1 { String::new() } else { format!(" over {rings} rings") };
    println!("simulated loopback by {}: packets of {packet_size} bytes{together}, {comes}{over}", report.design_name);
    println!("  {}: {}", platform.name, platform.description);
    platform.overrides.iter().for_each(|replaced| println!("  with {replaced}"));
    let batches = ["receive batch", "transmit batch"];
    let is_shown = |what: &str| design.attachment == Attachment::Cxl || batches.contains(&what);
    let choices: Vec<String> = described(design)
        .iter()
        .filter(|(what, _)| is_shown(what))
        .map(|(what, choice)| format!("{what}: {choice}"))
        .collect();
    in_lines(choices.iter().map(String::as_str), "; ", COLUMNS).iter().for_each(|line| println!("  {line}"));
    println!();
    if let (Some(mpps), Some(gbps), Some(due)) = (report.mpps, report.gbps, report.offered_mpps) {
        println!("    rate     {} Mpps, {} Gb/s came back", three_digits(mpps), three_digits(gbps));
        if mpps < 0.95 * due {
            println!("             it does not keep up with {due} Mpps: latency grows as long as packets come");
        }
    }
    let LatencyReport { min, p50, p99, p999 } = report.latency_ns;
    let [min, p50, p99, p999] = [min, p50, p99, p999].map(nanoseconds);
    println!("    latency  min {min}, p50 {p50}, p99 {p99}, p99.9 {p999}, of {} packets", report.packets);
    println!("             of it the host has a packet for {} (p50)", nanoseconds(report.at_host_p50_ns));
    for (way, highest) in [("to the host", &report.highest_to_host), ("from it", &report.highest_from_host)] {
        let (mpps, gbps) = (three_digits(highest.mpps), three_digits(highest.gbps));
        println!("    highest  {mpps} Mpps, {gbps} Gb/s {way}, that direction alone");
    }
    println!();
    print!("{}", table(report).draw(TerminalStyle::default()));
    if report.offered_mpps.is_none() && design.attachment == Attachment::Cxl {
        println!("  at rest the device asks for packets to transmit until there is one: that is among the loopback's");
    }
    if let Some(seen) = &report.probes {
        // They are watched from when the first packet is back, as messages are counted.
        print_watched(seen, &conic_sim::cxl::queues::KINDS, ("a packet", report.packets.saturating_sub(1).max(1)));
    }
    print_guesses(platform);
}

/// Messages by kind, in the loopback and in each direction alone.
fn table(report: &Report) -> Table {
    let number = |name: &'static str| Column { align: Align::Right, ..Column::text(name) };
    let heads = ["loopback", "to the host", "from it"].map(number);
    let [loopback, to_host, from_host] = heads;
    let mut table = Table::new([Column::text("messages a packet"), loopback, to_host, from_host]);
    let columns = [
        &report.messages_per_packet,
        &report.highest_to_host.messages_per_packet,
        &report.highest_from_host.messages_per_packet,
    ];
    let kinds: BTreeSet<&str> = columns.iter().flat_map(|column| column.keys().copied()).collect();
    for kind in kinds {
        let of = |column: &&Messages| column.get(kind).map_or_else(String::new, |count| format!("{count:.2}"));
        let [loopback, to_host, from_host] = columns.each_ref().map(of);
        table.row([kind.to_owned(), loopback, to_host, from_host].map(Cell::from));
    }
    table
}
