//! `conic bench` alone: a tour of all benchmarks in under a minute.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use conic_fabric::Time;
use serde::Serialize;

use super::ablations::{Group, base};
use super::arena::Arena;
use super::common::{Choice, Common, MachineReport, nanoseconds, print_left_out, three_digits};
use super::compare::{self, Case, Compared, Comparison, Plan, compare};
use super::draw;
use super::failure::{Failure, print_json};
use super::limits::{self, LINES_PER_PACKET};
use super::link::{Interface, Setup, Span};
use super::progress::Progress;
use super::rounds::Dropped;
use super::sweep::{self, Sweep, sweep};
use crate::value::in_lines;

/// Options of the tour.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub common: Common,
    /// As short as can be, for continuous integration: under ten seconds, and figures with more noise
    #[arg(long)]
    pub quick: bool,
    /// Where the charts go
    #[arg(long, value_name = "FILE", default_value = "out/bench.svg")]
    pub svg: PathBuf,
}

/// Everything that the tour measures.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    machine: MachineReport,
    limits: Vec<limits::PlacementReport>,
    /// 64-byte packets over each interface.
    interfaces: Vec<Comparison>,
    /// 1500- and 9600-byte packets over CC-NIC and the ring.
    large: Vec<Comparison>,
    sweep: Sweep,
    ablations: Vec<Comparison>,
    /// Of all of these but the sweep, which has its own.
    dropped_slices: Dropped,
    /// Whether nothing could be left out of one of them.
    restless: bool,
    svg: String,
}

/// How thorough it is.
struct Pace {
    rounds: usize,
    span: Span,
}

impl Pace {
    fn of(quick: bool) -> Pace {
        let milliseconds = |count: u64| Time::from_nanoseconds(count * 1_000_000);
        if quick {
            return Pace { rounds: 1, span: Span { warm_up: milliseconds(2), measured: milliseconds(8) } };
        }
        Pace { rounds: 5, span: Span { warm_up: milliseconds(4), measured: milliseconds(20) } }
    }

    fn plan(&self, slices: usize) -> Plan {
        let slice = self.span.warm_up.picoseconds() + self.span.measured.picoseconds() + 4_000_000_000;
        let limit = Time::from_picoseconds(slice * 2 * (self.rounds * slices) as u64);
        Plan { rounds: self.rounds, limit, span: self.span, latency: true }
    }
}

/// Runs the tour.
///
/// # Errors
///
/// If the machine refuses it, or the charts cannot be written.
pub fn main(arguments: &Options) -> Result<ExitCode, Failure> {
    crate::writable::file(&arguments.svg, "--svg")?;
    let (arena, machine) = arguments.common.arena(1)?;
    let pace = Pace::of(arguments.quick);
    let tour = Tour { arena: &arena, arguments, pace, shown: !arguments.common.json };
    if tour.shown {
        let line = format!("conic on this machine: {}", machine.line());
        in_lines(line.split(' '), " ", 80).iter().for_each(|line| println!("{line}"));
    }
    let limits = tour.limits()?;
    let interfaces = tour.interfaces(&limits.reports)?;
    let large = tour.large()?;
    let ablations = tour.ablations()?;
    let sweep = tour.sweep()?;
    let beside = (sweep.lost, sweep.corrupt);
    let note = format!("{}; conic bench", machine.line());
    let mut charts = vec![sweep::chart(&sweep.curves, 64, &note)];
    charts.extend(ablations.comparisons.first().map(|one| draw::bars(title(one), one, &note)));
    draw::to_file(&charts, &arguments.svg)?;
    let compared = || [&interfaces, &ablations].into_iter().chain(&large);
    if tour.shown {
        finish(&charts, &interfaces, &sweep, &arguments.svg);
    } else {
        let report = Report {
            schema: "conic.bench/1",
            machine,
            interfaces: interfaces.comparisons.clone(),
            large: large.iter().flat_map(|compared| compared.comparisons.clone()).collect(),
            sweep,
            ablations: ablations.comparisons.clone(),
            dropped_slices: compared().fold(limits.dropped, |sum, one| sum + one.dropped),
            restless: limits.restless || compared().any(|one| one.restless),
            limits: limits.reports,
            svg: arguments.svg.display().to_string(),
        };
        print_json(&report)?;
    }
    Ok(Compared::code_of(compared(), beside))
}

/// The steps of the tour; each says what it found, unless nobody listens.
struct Tour<'a> {
    arena: &'a Arena,
    arguments: &'a Options,
    pace: Pace,
    shown: bool,
}

impl Tour<'_> {
    fn choice(&self) -> Choice {
        self.arguments.common.placement
    }

    fn base(&self) -> Setup {
        base(64, 256, self.arguments.common.pages())
    }

    fn limits(&self) -> Result<limits::Found, Failure> {
        let mut progress = Progress::new();
        progress.start("what this machine's coherence allows");
        let span = self.pace.span.measured;
        let found = limits::found(self.arena, &self.arguments.common, self.pace.rounds, span, &mut progress)?;
        progress.clear();
        if self.shown {
            println!("\nWhat its coherence allows");
            found.reports.iter().for_each(limits::print);
            print_left_out(found.dropped, found.restless);
        }
        Ok(found)
    }

    fn compare(&self, doing: &str, cases: &[Case]) -> Result<Compared, Failure> {
        let mut progress = Progress::new();
        progress.start(doing);
        let plan = self.pace.plan(2 * cases.len());
        let compared = compare(self.arena, cases, plan, self.choice(), &mut progress)?;
        progress.clear();
        if self.shown {
            println!("\n{doing}");
            compared.comparisons.iter().for_each(compare::print);
            print_left_out(compared.dropped, compared.restless);
        }
        Ok(compared)
    }

    fn interfaces(&self, limits: &[limits::PlacementReport]) -> Result<Compared, Failure> {
        let setup = self.base();
        let over = |interface: Interface| Setup { interface, ..setup };
        let paper = Setup { features: conic_interface::ccnic::Features::paper(), ..setup };
        let cases = [
            Case::new("ccnic", over(Interface::Ccnic)),
            Case::new("ccnic as published", paper),
            Case::new("ring", over(Interface::Ring)),
            Case::new("cachable queue", over(Interface::CachableQueue)),
            Case::new("fastforward", over(Interface::Fastforward)),
        ];
        let compared = self
            .compare("64-byte packets over each interface, there and back: 256 in flight; latency with one", &cases)?;
        if self.shown
            && let Some(share) = compared.comparisons.first().and_then(|one| share_of_limit(one, limits))
        {
            println!("    {share}");
        }
        Ok(compared)
    }

    fn large(&self) -> Result<Vec<Compared>, Failure> {
        let mut all = Vec::new();
        for size in [1500, 9600] {
            let mut setup = base(size, 64, self.arguments.common.pages());
            setup.descriptors = 256;
            let cases = [Case::new("ccnic", setup), Case::new("ring", Setup { interface: Interface::Ring, ..setup })];
            all.push(self.compare(&format!("{size}-byte packets: 64 in flight; latency with one"), &cases)?);
        }
        Ok(all)
    }

    fn ablations(&self) -> Result<Compared, Failure> {
        self.compare("What each of the published features is worth: each off alone", &Group::Paper.cases(self.base()))
    }

    fn sweep(&self) -> Result<Sweep, Failure> {
        let mut progress = Progress::new();
        progress.start("throughput and latency");
        let setup = self.base();
        let named = [("ccnic".to_owned(), setup), ("ring".to_owned(), Setup { interface: Interface::Ring, ..setup })];
        let rounds = self.pace.rounds.div_ceil(2);
        sweep(self.arena, &named, rounds, self.pace.span, self.choice(), &mut progress)
    }
}

/// The 64-byte rate as a share of what its lines' stream allows, if both were measured with the cores as far apart.
fn share_of_limit(comparison: &Comparison, limits: &[limits::PlacementReport]) -> Option<String> {
    let here = comparison.one_line_round_trip_ns.median;
    let near = |limit: &&limits::PlacementReport| {
        let there = limit.round_trip();
        here.max(there) <= 1.5 * here.min(there)
    };
    let limit = limits.iter().find(near)?.model_64_byte_mpps;
    let rate = comparison.rows.first()?.mpps.median;
    Some(format!(
        "ccnic's rate is {:.0}% of the {} Mpps at which {LINES_PER_PACKET} lines a packet stream both ways",
        100.0 * rate / limit,
        three_digits(limit)
    ))
}

fn title(comparison: &Comparison) -> String {
    let worst = comparison.rows.iter().skip(1).filter_map(|row| Some((row.rate_ratio?.median, &row.name)));
    match worst.min_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((ratio, name)) => format!("Most is lost with \"{name}\": {:+.0}%", 100.0 * (ratio - 1.0)),
        None => "What each feature is worth".to_owned(),
    }
}

fn finish(charts: &[conic_chart::Chart], interfaces: &Compared, sweep: &Sweep, path: &Path) {
    for chart in charts {
        println!();
        draw::on_terminal(chart);
    }
    print_left_out(sweep.dropped_slices, sweep.restless);
    if let Some(row) = interfaces.comparisons.first().and_then(|one| one.rows.first()) {
        let latency = row.p50_ns.map_or_else(String::new, |p50| format!(", {} unloaded", nanoseconds(p50.median)));
        println!("\nccnic: {} Mpps of 64 bytes{latency}", three_digits(row.mpps.median));
    }
    println!("charts: {}", path.display());
}
