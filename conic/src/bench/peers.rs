//! `conic bench peers`: the same loopback over what people use today, alternating with conic's.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use conic_fabric::Time;
use conic_interface::ccnic::Features;
use conic_load::Workload;
use serde::{Deserialize, Serialize};

use super::arena::{Arena, ArenaError};
use super::common::{
    Common, MachineReport, nanoseconds, print_left_out, range, span, three_digits, two_cores, usable_cores,
};
use super::compare::ratio_text;
use super::failure::{Failure, code_of, print_json};
use super::link::{Interface, Setup, Span, run};
use super::placement::{Placement, Probes, Spread, rounded};
use super::progress::Progress;
use super::rounds::{Dropped, Recorder, Slice, Slices};

mod compile;

/// The same loopback over DPDK's memif, vhost-user and ring, alternating with conic's
///
/// Needs DPDK with its development files and a C compiler; installs nothing by itself (`make peers` does).
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Rounds, in each of which conic and every peer run once
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub rounds: u16,
    /// How long each run is measured, 1ms to 60s
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = span)]
    pub duration: Time,
    /// Only these peers, comma-separated
    #[arg(long, value_name = "PEERS", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(PEERS))]
    pub only: Vec<String>,
}

const PEERS: [&str; 5] = ["memif", "memif-zero-copy", "vhost-user", "vhost-user-packed", "ring"];

const FAIR: &str = "The work is the same for all: the application writes every byte of each payload,
with a time stamp in it, and reads and checks every byte of what comes back; the
NIC puts each payload into another buffer; two cores, closed loop, the same
packets in flight or each one's best; each peer in its fastest variant. DPDK's
memif and vhost-user run as two processes, its ring and conic as two threads. A
ratio is conic's figure over the peer's, by pairs of runs in one round.";

const EXAMPLES: &str = "Examples:
  conic bench peers
  conic bench peers --only vhost-user,memif --rounds 10
  conic bench peers --json

The peers are compiled once into the user's cache folder (XDG_CACHE_HOME, or ~/.cache), by cc or $CC.";

/// Windows of which each takes its best.
const WINDOWS: [u64; 4] = [64, 128, 256, 512];

/// Nanoseconds that the peers' program can be told to measure.
const PEERS_TIME: RangeInclusive<u64> = 1_000_000..=60_000_000_000;

/// What all run.
#[derive(Clone, Copy, Debug)]
struct Point {
    name: &'static str,
    packet_size: u16,
    /// Packets in flight; none: the best of [`WINDOWS`] for each.
    window: Option<u64>,
}

const POINTS: [Point; 3] = [
    Point { name: "64 bytes, one packet in flight", packet_size: 64, window: Some(1) },
    Point { name: "64 bytes, each one's best window", packet_size: 64, window: None },
    Point { name: "1500 bytes, each one's best window", packet_size: 1500, window: None },
];

/// What a run came to.
#[derive(Clone, Debug, Deserialize)]
struct Figures {
    variant: String,
    mpps: f64,
    latency_ns: Latencies,
    lost: u64,
    #[serde(default)]
    reordered: u64,
    corrupted: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Latencies {
    p50: f64,
    p99: f64,
}

/// Conic, or one of the peers.
#[derive(Clone, Debug)]
enum Contestant {
    Conic(&'static str, Interface),
    Peer(String),
}

impl Contestant {
    fn name(&self) -> String {
        match self {
            Contestant::Conic(name, _) => (*name).to_owned(),
            Contestant::Peer(name) => format!("DPDK {name}"),
        }
    }
}

/// One contestant at one point.
#[derive(Clone, Debug, Serialize)]
struct Row {
    name: String,
    variant: String,
    window: u64,
    mpps: Spread,
    gbps: f64,
    p50_ns: Spread,
    p99_ns: Spread,
    /// Conic's rate over this one's.
    conic_rate_ratio: Option<Spread>,
    /// Conic's median latency over this one's.
    conic_latency_ratio: Option<Spread>,
    runs: usize,
    lost: u64,
    corrupt: u64,
}

/// All contestants at one point, in one placement.
#[derive(Clone, Debug, Serialize)]
struct Table {
    point: &'static str,
    packet_size: u16,
    placement: &'static str,
    one_line_round_trip_ns: Spread,
    rows: Vec<Row>,
    dropped: Dropped,
    restless: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    fair: &'static str,
    tables: Vec<Table>,
    machine: MachineReport,
}

/// Runs the command.
///
/// # Errors
///
/// If something is missing (exit code 2), or a run fails.
pub fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if !PEERS_TIME.contains(&arguments.duration.nanoseconds()) {
        return Err(Failure::failed("--duration: a run of the peers is measured for 1ms to 60s"));
    }
    let mut progress = Progress::new();
    progress.start("compiling the peers");
    let compile::Compiled { program, .. } = &compile::program()?;
    let cores = two_cores(arguments.common.cores)?;
    let runner = Runner { program, arguments, cores, spoilt: Cell::new((0, 0)) };
    let usable = usable_cores();
    let machine = runner.with_arena(|arena| Ok(MachineReport::of(arena, usable)))?;
    let mut contestants =
        vec![Contestant::Conic("conic ccnic", Interface::Ccnic), Contestant::Conic("conic ring", Interface::Ring)];
    let chosen =
        PEERS.iter().filter(|&&peer| arguments.only.is_empty() || arguments.only.iter().any(|only| only == peer));
    contestants.extend(chosen.map(|peer| Contestant::Peer((*peer).to_owned())));
    let mut tables = Vec::new();
    for point in POINTS {
        tables.extend(runner.tables(point, &contestants, &mut progress)?);
    }
    progress.clear();
    if arguments.common.json {
        let report = Report { schema: "conic.bench.peers/1", fair: FAIR, tables, machine };
        print_json(&report)?;
    } else {
        println!(
            "loopback over conic and over DPDK's peers, {} rounds of runs of {}",
            arguments.rounds,
            nanoseconds(arguments.duration.nanoseconds() as f64)
        );
        machine.print();
        tables.iter().for_each(print);
        println!("\n{FAIR}");
    }
    let (lost, corrupt) = runner.spoilt.get();
    Ok(code_of(lost, corrupt))
}

/// Runs contestants, each with the cores to itself.
struct Runner<'a> {
    program: &'a Path,
    arguments: &'a Arguments,
    cores: (usize, usize),
    /// Packets that conic lost, and that it brought back corrupt, in any run, those that look for the best window too. What peers lose
    /// stands beside their figures.
    spoilt: Cell<(u64, u64)>,
}

impl Runner<'_> {
    /// Works on the cores from threads that have ended when this returns: they must not run beside a peer, and the
    /// peers' processes must not inherit that they are pinned.
    fn with_arena<T: Send>(&self, work: impl FnOnce(&Arena) -> Result<T, Failure> + Send) -> Result<T, Failure> {
        let cores = self.cores;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || work(&Arena::new(1, Some(cores))?));
            thread.join().unwrap_or_else(|_| Err(Failure::from(ArenaError::Died)))
        })
    }

    /// What a line's round trip costs now.
    fn round_trip(&self) -> Result<f64, Failure> {
        self.with_arena(|arena| Ok(arena.round_trip()?))
    }

    fn run(&self, contestant: &Contestant, size: u16, window: u64, span: Span) -> Result<Figures, Failure> {
        match contestant {
            Contestant::Conic(_, interface) => self.run_conic(*interface, size, window, span),
            Contestant::Peer(peer) => self.run_peer(peer, size, window, span),
        }
    }

    fn run_conic(&self, interface: Interface, size: u16, window: u64, span: Span) -> Result<Figures, Failure> {
        let setup = Setup {
            interface,
            features: Features::best(),
            workload: Workload { packet_size: size, window, transmit_burst: 32, receive_burst: 32, fetch_ahead: true },
            queues: 1,
            interval: None,
            descriptors: 1024,
            pages: self.arguments.common.pages(),
        };
        let outcome = self.with_arena(|arena| run(arena, &setup, span))?;
        let (lost, corrupt) = self.spoilt.get();
        self.spoilt.set((lost + outcome.lost, corrupt + outcome.corrupt));
        let quantile = |share| outcome.latency.quantile(share).picoseconds() as f64 / 1e3;
        Ok(Figures {
            variant: if interface == Interface::Ccnic { setup.features.to_string() } else { String::new() },
            mpps: outcome.rate / 1e6,
            latency_ns: Latencies { p50: quantile(0.5), p99: quantile(0.99) },
            lost: outcome.lost,
            reordered: 0,
            corrupted: outcome.corrupt,
        })
    }

    fn run_peer(&self, peer: &str, size: u16, window: u64, span: Span) -> Result<Figures, Failure> {
        let milliseconds = |time: Time| (time.nanoseconds() / 1_000_000).max(1).to_string();
        let mut command = Command::new(self.program);
        command.args(["--peer", peer, "--packet-size", &size.to_string(), "--window", &window.to_string()]);
        command.args(["--duration-ms", &milliseconds(span.measured), "--warmup-ms", &milliseconds(span.warm_up)]);
        command.args(["--cores", &format!("{},{}", self.cores.0, self.cores.1)]);
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|error| Failure::failed(format!("{}: {error}", self.program.display())))?;
        let message = String::from_utf8_lossy(&output.stderr);
        let last = message.lines().last().unwrap_or("it said nothing");
        match output.status.code() {
            Some(0) => serde_json::from_slice(&output.stdout)
                .map_err(|error| Failure::failed(format!("DPDK's {peer}: its result cannot be read: {error}"))),
            Some(2) => Err(compile::missing(&format!("DPDK's driver for {peer} ({last})"))),
            _ => Err(Failure::failed(format!("DPDK's {peer}: {}: {last}", output.status))),
        }
    }

    /// The window with the highest rate, each tried for a moment.
    fn best_window(&self, contestant: &Contestant, size: u16) -> Result<u64, Failure> {
        let span = Span { warm_up: Time::from_nanoseconds(50_000_000), measured: Time::from_nanoseconds(100_000_000) };
        let mut best = (0.0, WINDOWS[0]);
        for window in WINDOWS {
            let rate = self.run(contestant, size, window, span)?.mpps;
            if rate > best.0 {
                best = (rate, window);
            }
        }
        Ok(best.1)
    }

    fn tables(&self, point: Point, contestants: &[Contestant], progress: &mut Progress) -> Result<Vec<Table>, Failure> {
        let mut windows = Vec::new();
        for contestant in contestants {
            progress.start(format!("{}: {}", point.name, contestant.name()));
            windows.push(match point.window {
                Some(window) => window,
                None => self.best_window(contestant, point.packet_size)?,
            });
        }
        let span = Span { warm_up: Time::from_nanoseconds(100_000_000), measured: self.arguments.duration };
        let mut recorder = Recorder::new(contestants.len());
        let mut before = self.round_trip()?;
        for round in 0..usize::from(self.arguments.rounds) {
            for (subject, contestant) in contestants.iter().enumerate() {
                progress.start(format!("{}: round {}, {}", point.name, round + 1, contestant.name()));
                let value = self.run(contestant, point.packet_size, windows[subject], span)?;
                let after = self.round_trip()?;
                recorder.record(Slice { subject, round, value }, Probes { before, after }, 1.0);
                before = after;
            }
        }
        let measured = recorder.finish();
        let complete = measured.complete(contestants.len());
        let table = |place: &&Placement| Table {
            point: point.name,
            packet_size: point.packet_size,
            placement: place.label,
            one_line_round_trip_ns: place.round_trip.rounded(1),
            rows: rows(&measured, place, contestants, &windows, point.packet_size),
            dropped: measured.dropped,
            restless: measured.restless,
        };
        Ok(self.arguments.common.placement.of(&complete).iter().map(table).collect())
    }
}

fn rows(
    measured: &Slices<Figures>,
    place: &Placement,
    contestants: &[Contestant],
    windows: &[u64],
    size: u16,
) -> Vec<Row> {
    let row = |(subject, contestant): (usize, &Contestant)| {
        let spread =
            |figure: fn(&Figures) -> f64, digits| Some(measured.spread(place, subject, figure)?.rounded(digits));
        let against = |figure: fn(&Figures) -> f64| {
            (subject != 0).then(|| measured.ratios(place, 0, subject, figure))?.map(|ratio| ratio.rounded(3))
        };
        let mpps = spread(|figures| figures.mpps, 3)?;
        let all = || measured.all().filter(|slice| slice.subject == subject).map(|slice| &slice.value);
        Some(Row {
            name: contestant.name(),
            variant: all().next()?.variant.clone(),
            window: windows[subject],
            mpps,
            gbps: rounded(mpps.median * f64::from(size) * 8.0 / 1e3, 3),
            p50_ns: spread(|figures| figures.latency_ns.p50, 1)?,
            p99_ns: spread(|figures| figures.latency_ns.p99, 1)?,
            conic_rate_ratio: against(|figures| figures.mpps),
            conic_latency_ratio: against(|figures| figures.latency_ns.p50),
            runs: measured.of(place, subject).count(),
            lost: all().map(|figures| figures.lost).sum(),
            corrupt: all().map(|figures| figures.corrupted + figures.reordered).sum(),
        })
    };
    contestants.iter().enumerate().filter_map(row).collect()
}

fn print(table: &Table) {
    let trip = table.one_line_round_trip_ns;
    let spread = range(trip, |value| format!("{value:.0}"));
    println!("\n  {}; one line's round trip {} {spread}", table.point, nanoseconds(trip.median));
    println!("  {:22} {:>6} {:>11} {:>10} {:>9} {:>9}", "", "window", "rate", "", "p50", "p99");
    for row in &table.rows {
        let rate = format!("{} Mpps", three_digits(row.mpps.median));
        let bits = format!("{} Gb/s", three_digits(row.gbps));
        let (p50, p99) = (nanoseconds(row.p50_ns.median), nanoseconds(row.p99_ns.median));
        println!("  {:22} {:>6} {rate:>11} {bits:>10} {p50:>9} {p99:>9}", row.name, row.window);
        if let (Some(rate), Some(latency)) = (row.conic_rate_ratio, row.conic_latency_ratio) {
            println!("    conic over it: rate {}, latency {}", ratio_text(rate), ratio_text(latency));
        }
        if row.lost + row.corrupt > 0 {
            println!("    lost {}, corrupt {}", row.lost, row.corrupt);
        }
    }
    print_left_out(table.dropped, table.restless);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_in_a_run_that_is_left_out_stands_in_its_row() {
        let run = |lost| Figures {
            variant: String::new(),
            mpps: 1.0,
            latency_ns: Latencies { p50: 1.0, p99: 1.0 },
            lost,
            reordered: 1,
            corrupted: lost,
        };
        let measured = Slices::kept_and_left_out([run(0), run(3)]);
        let contestants = [Contestant::Conic("conic ccnic", Interface::Ccnic)];
        let rows = rows(&measured, measured.complete(1)[0], &contestants, &[64], 64);
        assert_eq!((rows[0].runs, rows[0].lost, rows[0].corrupt), (1, 3, 5));
    }
}
