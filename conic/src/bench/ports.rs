//! `conic bench ports`: conic's ports beside DPDK's drivers for the same and the kernel's bridge, in one run, alternating.

mod client;
mod numbers;
mod server;

use std::process::ExitCode;

use clap::Args;
use conic_fabric::Time;
use conic_native::pin;
use serde::Serialize;

use super::common::{nanoseconds, range, span, three_digits, two_cores};
use super::compare::ratio_text;
use super::failure::{Failure, code_of, print_json};
use super::placement::{Spread, rounded};
use super::progress::Progress;
use client::{Figures, Load};
use server::{Contestant, Ground, Server};

/// Conic's ports, by themselves and behind the switch, beside DPDK's memif, vhost-user, AF_XDP, packet-socket and TAP drivers and the kernel's bridge, alternating
///
/// Needs root (it works in a network namespace of its own) and, for the peers, `dpdk-testpmd`; a peer that is not there or
/// does not start is named and left out.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Print one JSON object on stdout and nothing else there; errors too, with exit code 1, or 2 where something must be installed
    #[arg(long)]
    pub json: bool,
    /// The cores of the client and of what is measured [default: the first two this process may use]
    #[arg(long, value_name = "CLIENT,SERVER", value_parser = crate::value::core_pair)]
    pub cores: Option<(usize, usize)>,
    /// Rounds, in each of which each contestant runs once
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub rounds: u16,
    /// How long each point is measured
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = span)]
    pub duration: Time,
    /// Only these groups, comma-separated
    #[arg(long, value_name = "GROUPS", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(server::GROUPS))]
    pub only: Vec<String>,
}

const EXAMPLES: &str = "Examples:
  conic bench ports
  conic bench ports --only memif,vhost,virtio --rounds 10
  conic bench ports --only two-memif
  conic bench ports --json";

const FAIR: &str = "The client is the same for all: a closed loop on one core that writes every byte
of each frame and checks every byte of what comes back. What is measured runs in
a process of its own on the other core and never sleeps. memif, vhost (it is the
backend, and conic's frontend the client) and virtio (the other way round): it
sends each frame back. The others: it carries frames from one interface to
another, and the client sends and receives through packet sockets on their far
ends, or over memif (two-memif). `conic nic` spins, as all the others do, and
learns where stations are; `conic bridge`, which the rest of conic's are, and
DPDK's testpmd do not. `conic kernel` is `conic nic` with forward=kernel, which
sleeps once it knows both stations: in the driver, with GRO at the far ends,
which take nothing from a program otherwise, and in the network stack (generic).
After 20 ms without a frame others are sent; those that have not come a second
after the last one at the end are lost. A ratio is conic's figure over the
peer's, by rounds.";

/// What each contestant is measured at.
const POINTS: [Load; 3] = [
    Load { name: "64 bytes, one frame under way", bytes: 64, window: 1 },
    Load { name: "64 bytes, 128 under way", bytes: 64, window: 128 },
    Load { name: "1500 bytes, 128 under way", bytes: 1500, window: 128 },
];

#[derive(Clone, Debug, Serialize)]
struct Row {
    contestant: &'static str,
    point: &'static str,
    mpps: Spread,
    p50_ns: Spread,
    p99_ns: Spread,
    /// The part of the server's time that it spends in the kernel; none where it is no process of its own, or spent too little.
    kernel_share: Option<f64>,
    lost: u64,
    corrupt: u64,
    /// What conic's come to beside it.
    against: Vec<Comparison>,
}

/// One of conic's, and its rate and median latency over another's.
#[derive(Clone, Debug, Serialize)]
struct Comparison {
    conic: &'static str,
    rate_ratio: Spread,
    latency_ratio: Spread,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    fair: &'static str,
    rounds: u16,
    rows: Vec<Row>,
    left_out: Vec<String>,
}

/// Runs the command.
///
/// # Errors
///
/// Without root or two cores, or if one of conic's own ports does not work.
pub fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let pair = two_cores(arguments.cores)?;
    let chosen: Vec<&Contestant> = server::CONTESTANTS
        .iter()
        .filter(|contestant| arguments.only.is_empty() || arguments.only.iter().any(|group| group == contestant.group))
        .collect();
    // A thread of its own: its namespace and its core end with it.
    let work = || measure(arguments, pair, &chosen);
    let report = std::thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|_| Err(Failure::failed("the client's thread has died")))
    })?;
    let (lost, corrupt) = of_conic(&report.rows);
    if arguments.json {
        print_json(&report)?;
    } else {
        print(&report, arguments);
    }
    Ok(code_of(lost, corrupt))
}

/// What conic's own ports lost, and brought back corrupt. What peers lose stands beside their figures.
fn of_conic(rows: &[Row]) -> (u64, u64) {
    let is_conic = |name| server::CONTESTANTS.iter().any(|one| one.name == name && one.is_conic());
    let own = rows.iter().filter(|row| is_conic(row.contestant));
    own.fold((0, 0), |(lost, corrupt), row| (lost + row.lost, corrupt + row.corrupt))
}

fn measure(arguments: &Arguments, pair: (usize, usize), chosen: &[&Contestant]) -> Result<Report, Failure> {
    let ground = Ground::new()?;
    pin(pair.0).map_err(|error| Failure::failed(error.to_string()))?;
    let mut progress = Progress::new();
    // By contestant, point and round.
    let mut figures: Vec<Vec<Vec<Figures>>> = vec![vec![Vec::new(); POINTS.len()]; chosen.len()];
    let mut left_out: Vec<String> = Vec::new();
    let mut gone = vec![false; chosen.len()];
    for round in 0..arguments.rounds {
        for (number, contestant) in chosen.iter().enumerate() {
            if gone[number] {
                continue;
            }
            progress.start(format!("round {}: {}", round + 1, contestant.name));
            match run(&ground, contestant, pair, arguments.duration) {
                Ok(points) => points.into_iter().zip(&mut figures[number]).for_each(|(point, all)| all.push(point)),
                Err(Failure { message, code }) if contestant.is_conic() => {
                    return Err(Failure { message: format!("{}: {message}", contestant.name), code });
                }
                Err(failure) => {
                    left_out.push(format!("{}: {failure}", contestant.name));
                    gone[number] = true;
                }
            }
        }
    }
    progress.clear();
    let mut rows = Vec::new();
    for (at, point) in POINTS.iter().enumerate() {
        for (number, contestant) in chosen.iter().enumerate() {
            let of = |name: &&str| chosen.iter().position(|other| other.name == *name);
            let against = contestant.against.iter().filter_map(of);
            let against: Vec<_> = against.map(|other| (chosen[other].name, &figures[other][at][..])).collect();
            rows.extend(row(contestant, point, &figures[number][at], &against));
        }
    }
    Ok(Report { schema: "conic.bench.ports/2", fair: FAIR, rounds: arguments.rounds, rows, left_out })
}

/// Starts a contestant and measures it at each point.
fn run(
    ground: &Ground,
    contestant: &Contestant,
    pair: (usize, usize),
    duration: Time,
) -> Result<Vec<Figures>, Failure> {
    let mut server = Server::start(ground, contestant, pair)?;
    let mut ends = server.client_ends(ground)?;
    let points: Result<_, _> =
        POINTS.iter().map(|point| client::measure(&mut ends, *point, duration, || server.spent())).collect();
    server.still_runs()?;
    points
}

fn row(contestant: &Contestant, point: &Load, own: &[Figures], against: &[(&'static str, &[Figures])]) -> Option<Row> {
    let spread = |figure: fn(&Figures) -> f64, digits| {
        Spread::of(&own.iter().map(figure).collect::<Vec<f64>>()).map(|spread| spread.rounded(digits))
    };
    let ratio = |conic: &[Figures], figure: fn(&Figures) -> f64| {
        let ratios: Vec<f64> = conic.iter().zip(own).map(|(conic, own)| figure(conic) / figure(own)).collect();
        Spread::of(&ratios).map(|spread| spread.rounded(3))
    };
    let compare = |&(conic, figures): &(&'static str, &[Figures])| {
        let rate_ratio = ratio(figures, |figures| figures.mpps)?;
        Some(Comparison { conic, rate_ratio, latency_ratio: ratio(figures, |figures| figures.p50_ns)? })
    };
    let spent = |figure: fn(&Figures) -> f64| own.iter().map(figure).sum::<f64>();
    let (user, kernel) = (spent(|figures| figures.user_seconds), spent(|figures| figures.kernel_seconds));
    Some(Row {
        contestant: contestant.name,
        point: point.name,
        mpps: spread(|figures| figures.mpps, 4)?,
        p50_ns: spread(|figures| figures.p50_ns, 0)?,
        p99_ns: spread(|figures| figures.p99_ns, 0)?,
        kernel_share: (user + kernel > 0.0).then(|| rounded(kernel / (user + kernel), 3)),
        lost: own.iter().map(|figures| figures.lost).sum(),
        corrupt: own.iter().map(|figures| figures.corrupt).sum(),
        against: against.iter().filter_map(compare).collect(),
    })
}

fn print(report: &Report, arguments: &Arguments) {
    let each = nanoseconds(arguments.duration.nanoseconds() as f64);
    println!("ports beside their peers, {} rounds of {each} each", report.rounds);
    for point in POINTS {
        println!("\n  {}", point.name);
        println!("  {:20} {:>10} {:>17} {:>8} {:>8} {:>7}", "", "rate", "", "p50", "p99", "kernel");
        for row in report.rows.iter().filter(|row| row.point == point.name) {
            let rate = format!("{} Mpps", three_digits(row.mpps.median));
            let spread = range(row.mpps, three_digits);
            let (p50, p99) = (nanoseconds(row.p50_ns.median), nanoseconds(row.p99_ns.median));
            let kernel = row.kernel_share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", 100.0 * share));
            println!("  {:20} {rate:>10} {spread:>17} {p50:>8} {p99:>8} {kernel:>7}", row.contestant);
            for Comparison { conic, rate_ratio, latency_ratio } in &row.against {
                let (rate, latency) = (ratio_text(*rate_ratio), ratio_text(*latency_ratio));
                println!("    {conic} over it: rate {rate}, latency {latency}");
            }
            if row.lost + row.corrupt > 0 {
                println!("    lost {}, corrupt {}", row.lost, row.corrupt);
            }
        }
    }
    for left_out in &report.left_out {
        println!("\nskipped: {left_out}");
    }
    println!("\n{FAIR}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(user_seconds: f64, kernel_seconds: f64) -> Figures {
        Figures { mpps: 1.0, p50_ns: 1.0, p99_ns: 1.0, lost: 3, corrupt: 2, user_seconds, kernel_seconds }
    }

    #[test]
    fn what_is_no_process_has_no_share_of_its_time_and_conic_answers_for_its_losses_alone() {
        let of = |name: &str, figures| {
            let contestant = server::CONTESTANTS.iter().find(|one| one.name == name).expect("such a contestant");
            row(contestant, &POINTS[0], &[figures], &[]).expect("it was measured")
        };
        let bridge = of("kernel bridge", figures(0.0, 0.0));
        assert_eq!(bridge.kernel_share, None);
        let (own, peer) = (of("conic memif", figures(1.0, 3.0)), of("DPDK net_memif", figures(1.0, 0.0)));
        assert_eq!((own.kernel_share, peer.kernel_share), (Some(0.75), Some(0.0)));
        assert_eq!(of_conic(&[bridge, own, peer]), (3, 2));
    }
}
