//! `conic sim`: one's own question to the simulator.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use conic_sim::platform::{CXL, ECI, ParameterSet, Platform, SOCKETS, Source};
use conic_study::simulated::{Simulator, loopback, observed_loopback};
use conic_study::workload::{
    DESCRIPTORS, Loopback, LoopbackOutcome, Machine, NIC_BURST, NicPlace, PingPong, PingPongLayout,
};
use serde::Serialize;

use crate::bench::common::{count, mpps, nanoseconds, three_digits};
use crate::bench::failure::{Failure, code_of, print_json};
use crate::bench::loopback::LatencyReport;
use crate::bench::placement::rounded;

mod cxl;
pub mod design;
pub mod lines;
mod pio;
pub mod question;
mod queues;
mod sweep;
mod switches;

use question::{Choice, Question};
use queues::Looking;
use switches::{SwitchArguments, SwitchReport};

/// Packets through an interface and back on a modelled machine: rate, latency, traffic
///
/// The interface's own code runs on simulated cores, caches and links, message by message. Every value of the machine comes
/// from a platform file and can be replaced. Without a subcommand the machine has two sockets; the subcommand cxl asks the same of a NIC
/// behind CXL or PCIe, and pio of coherent programmed I/O, on machines whose device is home to coherent lines.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    sockets: Sockets,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    Cxl(cxl::Options),
    Pio(pio::Options),
}

/// What is asked of a machine with two sockets.
#[derive(Clone, Debug, Args)]
struct Sockets {
    #[command(flatten)]
    question: Question,
    /// Packets in flight in each queue pair at most, up to the 2048 that its two rings hold; 1 shows the unloaded latency
    #[arg(long, value_name = "PACKETS", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=IN_RINGS))]
    window: u64,
    /// Packets sent in one call at most, 1 to 256
    #[arg(long, value_name = "PACKETS", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256))]
    burst: u16,
    /// Packets received in one call at most, 1 to 256 [default: as --burst]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u16).range(1..=256))]
    rx_burst: Option<u16>,
    /// Host threads, each with a queue pair and, over coherence, a NIC core of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    threads: usize,
    /// Offered load of each thread, in millions of packets a second: packets are due at that pace, latency counts from then
    /// [default: as fast as the window allows]
    #[arg(long, value_name = "MPPS", value_parser = mpps, conflicts_with = "sweep")]
    rate: Option<f64>,
    /// Packets measured of each thread, after half as many that are not [default: 4000, or 16 windows if that is more]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    packets: Option<u64>,
    /// The throughput-latency curve: 1, 2, 4 and so on to 1024 packets in flight
    #[arg(long, conflicts_with = "window")]
    sweep: bool,
    /// Where --sweep's chart goes
    #[arg(long, value_name = "FILE", default_value = "out/sim.svg", requires = "sweep")]
    svg: PathBuf,
    /// Show how full each of the machine's queues was while it was measured; --json also gets each agent's counters
    #[arg(long, conflicts_with = "sweep")]
    queues: bool,
    /// Print one JSON object on stdout and nothing else there; errors too, with exit code 1
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    switches: SwitchArguments,
}

/// Packets that the two rings of a queue pair hold: more are never in flight, whatever is asked for.
const IN_RINGS: u64 = 2 * DESCRIPTORS;

const EXAMPLES: &str = "Examples:
  conic sim                                              64-byte packets on Sapphire Rapids, one thread
  conic sim --platform icx --threads 16 --window 128     as many threads as a socket has cores
  conic sim --window 1 --interface ring                  the unloaded latency of the baseline
  conic sim --set interconnect.crossing=100ns            what if the NIC were further away?
  conic sim --rate 5                                     latency at half of what one thread can
  conic sim --features paper,no-shared-pool --sweep      the curve of an ablation
  conic sim --platform icx --threads 16 --queues         where packets wait, and for how long
  conic sim --packet-size 1500 --json                    for a program
  conic sim --queue-pairs 256 --attention snoops --window 1   a NIC core with many idle queues (without snoops it polls)
  conic sim --forward header --packet-size 4096          payloads that stay in the NIC's cache
  conic sim --copy --engine both --packet-size 9600      copies by engines instead of cores
  conic sim cxl --design optimal                         a NIC behind CXL; conic sim cxl --help has its choices
  conic sim pio call --bytes 1000                        calls over a device's coherent lines, on Enzian

Latency is a round trip in a closed loop: from just before a burst is written to just after the burst with its answer is \
received; with --rate, from when the packet was due. Gb/s counts the packets' bytes one way. The same seed gives the same figures.";

/// What one side's cores ask of the other, a packet.
#[derive(Clone, Copy, Debug, Serialize)]
struct RemoteReport {
    reads: f64,
    rfos: f64,
}

/// The figures of one point.
#[derive(Clone, Debug, Serialize)]
struct Figures {
    mpps: f64,
    gbps: f64,
    latency_ns: LatencyReport,
    /// Requests that cross the interconnect, a packet.
    host: RemoteReport,
    /// The same of the NIC's cores.
    nic: RemoteReport,
    /// From the host to the NIC and back, a packet.
    link_bytes_per_packet: [f64; 2],
    link_utilisation: [f64; 2],
    packets: u64,
    lost: u64,
    corrupt: u64,
    operations: u64,
    events: u64,
    simulated_seconds: f64,
}

/// What the figures rest on.
#[derive(Clone, Debug, Serialize)]
struct PlatformReport {
    name: String,
    description: String,
    overrides: Vec<String>,
    values: usize,
    guesses: usize,
    guesses_listed_by: String,
}

impl PlatformReport {
    /// A platform, as it was given, with what was replaced of it.
    fn of<P: ParameterSet>(platform: &Platform<P>, given: &str, overrides: &[String]) -> PlatformReport {
        let replaced: String = overrides.iter().map(|text| format!(" --set {text}")).collect();
        PlatformReport {
            name: platform.name().to_owned(),
            description: platform.description().to_owned(),
            overrides: overrides.to_vec(),
            values: platform.entries().filter(|entry| !entry.key.starts_with("inputs.")).count(),
            guesses: platform.entries().filter(|entry| entry.source == Source::Guess).count(),
            guesses_listed_by: format!("conic platform show {given}{replaced} --guesses"),
        }
    }
}

/// What was asked, apart from the window.
#[derive(Clone, Debug, Serialize)]
struct Asked {
    schema: &'static str,
    interface: &'static str,
    features: Option<String>,
    packet_size: u16,
    burst: usize,
    rx_burst: usize,
    queues: usize,
    descriptors: u64,
    same_socket: bool,
    prefetch: String,
    /// What goes beyond the paper; none if nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    beyond: Option<SwitchReport>,
    seed: u64,
    /// Packets a second that each thread is offered; none in a closed loop.
    offered_mpps: Option<f64>,
    platform: PlatformReport,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    asked: Asked,
    window: u64,
    #[serde(flatten)]
    figures: Figures,
    one_line_round_trip_ns: Option<f64>,
    /// Queues and counters, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    probes: Option<queues::Seen>,
}

/// Runs the command.
pub fn main(arguments: &Arguments) -> ExitCode {
    let (result, json) = match &arguments.command {
        None => (run(&arguments.sockets), arguments.sockets.json),
        Some(Command::Cxl(options)) => (cxl::run(options), options.json),
        Some(Command::Pio(options)) => (pio::run(options), options.is_json()),
    };
    result.unwrap_or_else(|failure| failure.report(json))
}

/// What asks a machine of some model, where `conic sim` or one of its subcommands does.
fn elsewhere(model: &str) -> String {
    let command = match model {
        name if name == SOCKETS.name => "conic sim",
        name if name == CXL.name => "conic sim cxl",
        name if name == ECI.name => "conic sim pio",
        _ => return String::new(),
    };
    format!("; {command} asks a machine of its model")
}

fn run(arguments: &Sockets) -> Result<ExitCode, Failure> {
    let platform = arguments.question.platform(elsewhere)?;
    let question = arguments.loopback(&platform)?;
    let asked = arguments.asked(&platform, &question);
    if arguments.sweep {
        return sweep::main(arguments, &question, asked);
    }
    let mut looking = Looking::default();
    let outcome = match arguments.queues {
        true => observed_loopback(&question, &mut looking),
        false => loopback(&question),
    };
    let outcome = outcome.map_err(Failure::failed)?;
    let (figures, probes) = (Figures::of(&outcome), looking.seen());
    let one_line_round_trip_ns = one_line(&question)?;
    let report = Report { asked, window: question.window, one_line_round_trip_ns, figures, probes };
    if arguments.json {
        print_json(&report)?;
    } else {
        print(&report);
    }
    Ok(code_of(outcome.lost, outcome.corrupt))
}

/// What a number in one line takes there and back on the machine, for scale; none over PCIe or within a socket.
fn one_line(question: &Loopback) -> Result<Option<f64>, Failure> {
    use conic_study::workload::Interface;
    if question.nic_place == NicPlace::SameNode || question.interface == Interface::PcieRing {
        return Ok(None);
    }
    let ping_pong = PingPong {
        machine: question.machine.clone(),
        layout: PingPongLayout::OneLine { node: 0 },
        rounds: (100, 200),
        seed: question.seed,
    };
    let outcome = Simulator.ping_pong(&ping_pong).map_err(|failure| Failure::failed(failure.to_string()))?;
    Ok(Some(rounded(outcome.median_nanoseconds, 1)))
}

impl Sockets {
    /// What the options ask for.
    fn loopback(&self, platform: &Platform) -> Result<Loopback, Failure> {
        let question = &self.question;
        question.check_threads(platform, self.threads)?;
        let burst = usize::from(self.burst);
        Ok(Loopback {
            machine: platform.parameters().clone(),
            interface: question.interface(platform)?,
            nic_place: question.nic_place(),
            threads: self.threads,
            packet_size: question.packet_size,
            window: self.window,
            transmit_burst: burst,
            receive_burst: self.rx_burst.map_or(burst, usize::from),
            nic_burst: NIC_BURST,
            whole_bursts: false,
            offered: self.rate.map(|mpps| mpps * 1e6),
            prefetching: question.prefetching(),
            nic_work: None,
            packets: self.packets_of(self.window),
            switches: self.switches.switches(),
            seed: question.seed,
        })
    }

    /// Packets before measuring starts, and measured.
    fn packets_of(&self, window: u64) -> (u64, u64) {
        let measured = self.packets.unwrap_or((16 * window).max(4_000));
        // The window must have filled before measuring starts.
        ((measured / 2).max(2 * window), measured)
    }

    fn asked(&self, platform: &Platform, question: &Loopback) -> Asked {
        let options = &self.question;
        Asked {
            schema: if self.sweep { "conic.sim.sweep/2" } else { "conic.sim/2" },
            interface: options.interface_name(),
            features: (options.choice() == Choice::Ccnic).then(|| options.features().to_string()),
            packet_size: options.packet_size,
            burst: question.transmit_burst,
            rx_burst: question.receive_burst,
            queues: self.threads,
            descriptors: DESCRIPTORS,
            same_socket: options.same_socket,
            prefetch: format!("{:?}", options.prefetch()).to_lowercase(),
            beyond: self.switches.report(),
            seed: options.seed,
            offered_mpps: self.rate,
            platform: PlatformReport::of(platform, &options.platform, &options.overrides),
        }
    }
}

impl Figures {
    fn of(outcome: &LoopbackOutcome) -> Figures {
        let remote = |accesses: conic_study::workload::RemoteAccesses| RemoteReport {
            reads: rounded(accesses.reads, 3),
            rfos: rounded(accesses.rfos, 3),
        };
        Figures {
            mpps: rounded(outcome.packets_per_second / 1e6, 3),
            gbps: rounded(outcome.bits_per_second / 1e9, 3),
            latency_ns: LatencyReport {
                min: rounded(outcome.minimum_nanoseconds, 1),
                p50: rounded(outcome.median_nanoseconds, 1),
                p99: rounded(outcome.p99_nanoseconds, 1),
                p999: rounded(outcome.p999_nanoseconds, 1),
            },
            host: remote(outcome.host),
            nic: remote(outcome.nic),
            link_bytes_per_packet: outcome.link_bytes.map(|bytes| rounded(bytes, 1)),
            link_utilisation: outcome.link_utilisation.map(|share| rounded(share, 4)),
            packets: outcome.packets,
            lost: outcome.lost,
            corrupt: outcome.corrupt,
            operations: outcome.operations,
            events: outcome.events,
            simulated_seconds: outcome.simulated_seconds,
        }
    }
}

/// What is simulated, in the words of `conic bench loopback`.
fn print_asked(asked: &Asked, window: &str) {
    let Asked { interface, packet_size, burst, rx_burst, queues, platform, .. } = asked;
    let bursts =
        if burst == rx_burst { format!("bursts of {burst}") } else { format!("bursts of {burst} and {rx_burst}") };
    let pairs = if *queues == 1 { String::new() } else { format!(" in each of {queues} queue pairs") };
    println!("simulated loopback over {interface}: packets of {packet_size} bytes{window}{pairs}, {bursts}");
    if let Some(features) = &asked.features {
        println!("  {features}");
    }
    let place = if asked.same_socket { "; the NIC on cores of the host's socket" } else { "" };
    println!("  {}: {}{place}", platform.name, platform.description);
    if let Some(beyond) = &asked.beyond {
        println!("  {}", beyond.text());
    }
    for replaced in &platform.overrides {
        println!("  with {replaced}");
    }
}

fn print(report: &Report) {
    let Report { asked, figures, .. } = report;
    print_asked(asked, &format!(", up to {} in flight", report.window));
    println!();
    let (mpps, gbps) = (three_digits(figures.mpps), three_digits(figures.gbps));
    println!("    rate     {mpps} Mpps, {gbps} Gb/s");
    let LatencyReport { min, p50, p99, p999 } = figures.latency_ns;
    let [min, median, p99, p999] = [min, p50, p99, p999].map(nanoseconds);
    let loop_ = if asked.offered_mpps.is_some() { "open loop" } else { "closed loop" };
    println!("    latency  min {min}, p50 {median}, p99 {p99}, p99.9 {p999} (round trip, {loop_})");
    if let Some(trip) = report.one_line_round_trip_ns {
        let trips = three_digits(p50 / trip.max(0.1));
        println!("             p50 is {trips} round trips of a line; one takes {}", nanoseconds(trip));
    }
    let side = |name: &str, remote: RemoteReport| {
        println!("    {name:8} {:.2} reads and {:.2} RFOs across a packet", remote.reads, remote.rfos);
    };
    side("host", figures.host);
    side("NIC", figures.nic);
    let [to_nic, to_host] = figures.link_bytes_per_packet.map(three_digits);
    let [there, back] = figures.link_utilisation.map(|share| three_digits(100.0 * share));
    println!(
        "    link     {to_nic} bytes a packet to the NIC and {to_host} back; {there}% and {back}% of its time used"
    );
    println!();
    match (figures.lost, figures.corrupt) {
        (0, 0) => {
            println!("  loss     none of {} packets; every payload came back as it was sent", count(figures.packets))
        }
        (lost, corrupt) => println!("  loss     {} lost, {} corrupt", count(lost), count(corrupt)),
    }
    print_guesses(&asked.platform);
    if let Some(seen) = &report.probes {
        queues::print(seen, figures.packets);
    }
}

/// What the figures rest on.
fn print_guesses(platform: &PlatformReport) {
    let PlatformReport { values, guesses, guesses_listed_by, .. } = platform;
    println!("  guesses  {guesses} go into the platform's {values} values: {guesses_listed_by}");
}
