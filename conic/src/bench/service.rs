//! `conic bench service`: what the NIC's daemon costs and does as a service: at rest, at arrivals, deaths and upgrades.

mod measure;
mod nic;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use conic_fabric::Time;
use serde_json::{Map, Value, json};

use super::common::{nanoseconds, span, two_cores};
use super::failure::Failure;
use super::placement::Spread;
use super::progress::Progress;
use crate::value::core_pair;

/// What the NIC's daemon costs at rest, and how long arrivals, deaths and upgrades of it take
///
/// Starts `conic nic` with a bridge, and measures: the processor time of the daemon while clients are attached that say nothing; the
/// first packet from one client to another after everybody has gone to sleep; attaching, up to the first packet that the new
/// client sends; the same while another client attaches and leaves with a large region; a client that is killed under load, until
/// the daemon holds nothing of it; and a new daemon that takes over (--adopt) under load: the longest gap between two packets,
/// packets and sessions lost.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Clients that are attached and say nothing
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u16).range(0..=200))]
    pub clients: u16,
    /// How long the daemon at rest is watched
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = span)]
    pub duration: Time,
    /// First packets, arrivals and deaths; upgrades are a quarter as many
    #[arg(long, value_name = "NUMBER", default_value_t = 40, value_parser = clap::value_parser!(u16).range(4..=10_000))]
    pub rounds: u16,
    /// MiB of the regions of clients that are killed
    #[arg(long, value_name = "MIB", default_values_t = [8, 64], value_delimiter = ',', value_parser = clap::value_parser!(u64).range(2..=512))]
    pub mib: Vec<u64>,
    /// How long cores may take to wake up, as `conic nic --wakeup-latency` asks it [default: as the kernel thinks right]
    #[arg(long, value_name = "MICROSECONDS")]
    pub wakeup_latency: Option<u32>,
    /// The cores of the clients and of the NIC [default: the first two]
    #[arg(long, value_name = "APP,NIC", value_parser = core_pair)]
    pub cores: Option<(usize, usize)>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Plays a client until it is killed
    #[arg(long, hide = true, requires = "socket")]
    play: Option<Part>,
    /// Where it does
    #[arg(long, hide = true)]
    socket: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  conic bench service                          all of it, 64 clients at rest
  conic bench service --clients 0 --rounds 200 first packets and arrivals on a NIC that has nobody else
  sudo conic bench service --wakeup-latency 0  on a machine whose cores never halt
  conic bench service --mib 8,256 --json       for a program";

/// What a process plays that this command starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A client that sends, to everybody.
    Loader,
    /// A client that attaches and leaves.
    Visitor,
}

/// What one question came to, each value of a round.
struct Figure {
    /// Its name in JSON.
    key: String,
    /// What it is, for people.
    what: String,
    /// Nanoseconds, or what `unit` says, ascending.
    values: Vec<f64>,
    unit: Unit,
    /// What to reach, in the same unit, for the median; it is not to be passed.
    goal: Option<f64>,
}

/// What a figure counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Nanoseconds,
    /// Share of a core.
    Share,
}

impl Figure {
    fn new(
        key: impl Into<String>,
        what: impl Into<String>,
        mut values: Vec<f64>,
        unit: Unit,
        goal: Option<f64>,
    ) -> Figure {
        values.sort_unstable_by(f64::total_cmp);
        Figure { key: key.into(), what: what.into(), values, unit, goal }
    }

    /// What this share of the values does not exceed: the smallest of which that is so.
    fn at(&self, share: f64) -> f64 {
        let rank = (self.values.len() as f64 * share).ceil() as usize;
        self.values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    /// The median, as JSON has it too.
    fn median(&self) -> f64 {
        Spread::of(&self.values).map_or(f64::NAN, |spread| spread.median)
    }

    fn json(&self) -> Value {
        let of = Spread::of(&self.values);
        let suffix = if self.unit == Unit::Share { "share_of_a_core" } else { "nanoseconds" };
        json!({ "what": self.what, "unit": suffix, "rounds": self.values.len(), "spread": of, "p90": self.at(0.9), "p99": self.at(0.99), "goal": self.goal })
    }

    fn line(&self) -> String {
        let text = |value: f64| match self.unit {
            Unit::Nanoseconds => nanoseconds(value),
            Unit::Share => format!("{:.3}%", 100.0 * value),
        };
        let goal = self.goal.map_or(String::new(), |goal| {
            let missed = if self.median() > goal { ": missed" } else { "" };
            format!("  {}{missed}", text(goal))
        });
        let figures = [self.median(), self.at(0.9), self.at(1.0)].map(|value| format!("{:>8}", text(value))).concat();
        format!("  {:<36}{figures}{goal}", self.what)
    }
}

/// Runs the command.
///
/// # Errors
///
/// If the daemon cannot be had, or loses what it must not.
pub fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if let (Some(part), Some(socket)) = (arguments.play, &arguments.socket) {
        return measure::play(part, socket, arguments.mib.first().copied().unwrap_or(8));
    }
    let (application, core) = two_cores(arguments.cores)?;
    let mut progress = Progress::new();
    let mut figures = Vec::new();
    let mut nic = nic::Nic::start(core, arguments.wakeup_latency)?;
    let rounds = usize::from(arguments.rounds);
    progress.start("clients at rest");
    let idle = (0..arguments.clients).map(|_| nic.attach(nic::small())).collect::<Result<Vec<_>, _>>()?;
    figures.push(measure::at_rest(&nic, idle.len(), arguments.duration)?);
    progress.start("first packets after a rest");
    figures.extend(measure::first_packets(&nic, (application, core), rounds)?);
    progress.start("arrivals");
    figures.extend(measure::arrivals(&nic, rounds)?);
    progress.start("upgrades");
    let upgrades = measure::upgrades(&mut nic, rounds.div_ceil(4), &idle)?;
    figures.extend(upgrades.figures);
    for &mebibytes in &arguments.mib {
        progress.start(format!("deaths of clients of {mebibytes} MiB"));
        figures.push(measure::deaths(&nic, rounds, mebibytes)?);
    }
    progress.clear();
    let (packets, twice, sessions) = (upgrades.packets_lost, upgrades.packets_twice, upgrades.sessions_lost);
    if arguments.json {
        let all: Map<String, Value> = figures.iter().map(|one| (one.key.clone(), one.json())).collect();
        let report = json!({
            "schema": "conic.bench.service/1", "clients": arguments.clients, "wakeup_latency_us": arguments.wakeup_latency, "figures": all,
            "upgrades": rounds.div_ceil(4), "packets_lost_in_upgrades": packets, "packets_twice_in_upgrades": twice,
            "sessions_lost_in_upgrades": sessions,
        });
        println!("{report}");
    } else {
        let within = arguments.wakeup_latency.map_or(String::new(), |time| format!("; cores wake up within {time} us"));
        println!("the NIC's daemon as a service, beside {} clients at rest{within}", arguments.clients);
        println!("  {:<36}{:>8}{:>8}{:>8}  goal", "", "median", "90%", "most");
        figures.iter().for_each(|one| println!("{}", one.line()));
        let upgrades = rounds.div_ceil(4);
        println!(
            "  {upgrades} upgrades lost {packets} packets and {sessions} sessions; {twice} packets came twice or late"
        );
    }
    Ok(if packets + twice + sessions == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(values: &[f64]) -> Figure {
        Figure::new("key", "what", values.to_vec(), Unit::Nanoseconds, Some(25.0))
    }

    #[test]
    fn a_share_of_the_values_does_not_exceed_what_is_said_and_the_median_is_the_one_of_json() {
        let hundred = figure(&(1..=100).map(f64::from).collect::<Vec<_>>());
        assert_eq!([0.9, 0.99, 1.0].map(|share| hundred.at(share)), [90.0, 99.0, 100.0]);
        // Of forty none but the largest is what 99% do not exceed.
        assert_eq!(figure(&(1..=40).map(f64::from).collect::<Vec<_>>()).at(0.99), 40.0);
        let even = figure(&[40.0, 10.0, 30.0, 20.0]);
        assert_eq!(even.json()["spread"]["median"], even.median());
        assert!(even.line().contains("25.0 ns") && !even.line().contains("missed"), "{}", even.line());
        assert!(figure(&[]).at(0.5).is_nan());
    }
}
