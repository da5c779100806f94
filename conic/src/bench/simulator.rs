//! `conic bench sim`: the simulator's own speed.

use std::process::ExitCode;

use clap::Args;
use conic_fabric::Time;
use conic_native::ThreadClock;
use conic_sim::machine::Machine;
use conic_sim::platform::Platform;
use conic_study::simulated::Observer;
use conic_study::simulated::speed::{Done, Work};
use serde::Serialize;

use super::common::{range, span, three_digits};
use super::failure::{Failure, print_json};
use super::placement::{Spread, rounded};
use super::progress::Progress;

/// The simulator's own speed: simulated memory operations a second on one core
///
/// Three kinds of work, run in turn over several rounds, with more and more agents: packets through CC-NIC and back,
/// accesses that hit the agent's own cache, and accesses of random lines that all miss to memory through the protocol.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Print one JSON object on stdout and nothing else there; errors too, with exit code 1
    #[arg(long)]
    pub json: bool,
    /// The machine: a platform's name, or a .toml file
    #[arg(long, value_name = "NAME|FILE", default_value = "spr")]
    pub platform: String,
    /// Numbers of agents, comma-separated: half of them are host cores, half NIC cores
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,4,8,16,32,64,112")]
    pub agents: Vec<usize>,
    /// How long to simulate each kind of work with each number of agents, all rounds together
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = span)]
    pub duration: Time,
    /// Rounds: each runs everything once
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
}

const EXAMPLES: &str = "What is run:
  loopback   64-byte packets through CC-NIC with its best features and back, 64 in flight on each pair of agents
  hits       two loads and a store of lines in the agent's own first-level cache, over and over
  misses     as many loads as stores of random lines of 16 MiB, with caches of a 48th of that in all; 2 to 8 agents

A second is one of the simulating thread's own time, so that other processes do not count. An operation is a load, store, \
atomic or prefetch of a simulated program; rounds of polling that are skipped count as what they stand for.

Examples:
  conic bench sim
  conic bench sim --agents 2,112 --rounds 9
  conic bench sim --json";

/// Agents with which random misses are run at most: beyond, they only queue for memory.
const MOST_MISSING: usize = 8;

/// Operations of the first run of each work, from which the length of the others is taken.
const TRIAL: u64 = 200_000;

/// The goals, in operations a second with 2 agents (misses: the slowest of 2 to 8), and how much dearer one may become with 112.
const GOALS: [(Work, f64); 3] = [(Work::Loopback, 10e6), (Work::Hits, 60e6), (Work::Misses, 3e6)];
const GROWTH_GOAL: f64 = 1.5;

/// What is known of one kind of work with one number of agents.
#[derive(Clone)]
struct Subject {
    work: Work,
    agents: usize,
    operations: u64,
    rates: Vec<Rate>,
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Rate {
    operations: f64,
    events: f64,
    memory_share: f64,
}

/// The figures with one number of agents.
#[derive(Clone, Debug, Serialize)]
struct Row {
    agents: usize,
    loopback_operations_per_second: Spread,
    hit_operations_per_second: Spread,
    #[serde(skip_serializing_if = "Option::is_none")]
    miss_operations_per_second: Option<Spread>,
    /// Of the loopback.
    events_per_second: Spread,
}

#[derive(Clone, Debug, Serialize)]
struct Goal {
    what: &'static str,
    goal: f64,
    reached: f64,
    met: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    platform: String,
    rounds: u16,
    loopback_operations_per_second: f64,
    hit_operations_per_second: f64,
    /// The slowest; none where none were run.
    miss_operations_per_second: Option<f64>,
    events_per_second: f64,
    by_agents: Vec<Row>,
    /// How much dearer an operation of the loopback is with most agents than with fewest; none where there is one number of them.
    loopback_cost_growth: Option<f64>,
    /// The same of hits.
    hit_cost_growth: Option<f64>,
    /// The share of the random accesses whose line came from memory, in the run with the smallest.
    misses_to_memory: Option<f64>,
    /// Of what was run.
    goals: Vec<Goal>,
}

/// Runs the command.
///
/// # Errors
///
/// There is no such platform, or not so many agents on it.
pub fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let platform = Platform::load(&arguments.platform).map_err(|error| Failure::failed(error.to_string()))?;
    let mut agents = arguments.agents.clone();
    agents.sort_unstable();
    agents.dedup();
    let mut progress = Progress::new();
    let subjects = measure(&platform, &agents, arguments, &mut progress)?;
    progress.clear();
    let report = report(arguments, &agents, &subjects)?;
    if arguments.json {
        print_json(&report)?;
    } else {
        print(&report);
    }
    Ok(ExitCode::SUCCESS)
}

/// The simulating thread's time between the first event and the last.
struct Stopwatch {
    clock: ThreadClock,
    begun: Time,
    took: Time,
}

impl Observer for Stopwatch {
    fn begins(&mut self, _machine: &mut Machine) {
        self.begun = self.clock.elapsed();
    }
    fn ends(&mut self, _machine: &mut Machine) {
        self.took = self.clock.elapsed().since(self.begun);
    }
}

fn run(platform: &Platform, work: Work, agents: usize, operations: u64) -> Result<Rate, Failure> {
    let mut watch = Stopwatch { clock: ThreadClock::mine(), begun: Time::ZERO, took: Time::ZERO };
    let done: Done = work.run(platform.parameters(), agents, operations, &mut watch).map_err(Failure::failed)?;
    let seconds = watch.took.seconds().max(1e-9);
    Ok(Rate {
        operations: done.operations as f64 / seconds,
        events: done.events as f64 / seconds,
        memory_share: done.memory_reads as f64 / done.operations.max(1) as f64,
    })
}

fn measure(
    platform: &Platform,
    agents: &[usize],
    arguments: &Arguments,
    progress: &mut Progress,
) -> Result<Vec<Subject>, Failure> {
    let mut subjects = Vec::new();
    let slice = arguments.duration.seconds() / f64::from(arguments.rounds);
    progress.start("how fast the simulator is");
    for &agents in agents {
        for (work, _) in GOALS {
            if work == Work::Misses && agents > MOST_MISSING {
                continue;
            }
            let trial = run(platform, work, agents, TRIAL)?;
            let operations = (trial.operations * slice) as u64;
            subjects.push(Subject { work, agents, operations: operations.max(TRIAL / 10), rates: Vec::new() });
        }
    }
    for round in 1..=arguments.rounds {
        progress.start(format!("how fast the simulator is, round {round} of {}", arguments.rounds));
        for subject in &mut subjects {
            subject.rates.push(run(platform, subject.work, subject.agents, subject.operations)?);
        }
    }
    Ok(subjects)
}

fn report(arguments: &Arguments, agents: &[usize], subjects: &[Subject]) -> Result<Report, Failure> {
    let spread = |work: Work, agents: usize, figure: fn(&Rate) -> f64| {
        let subject = subjects.iter().find(|subject| (subject.work, subject.agents) == (work, agents))?;
        Some(Spread::of(&subject.rates.iter().map(figure).collect::<Vec<_>>())?.rounded(0))
    };
    let row = |&agents: &usize| {
        Some(Row {
            agents,
            loopback_operations_per_second: spread(Work::Loopback, agents, |rate| rate.operations)?,
            hit_operations_per_second: spread(Work::Hits, agents, |rate| rate.operations)?,
            miss_operations_per_second: spread(Work::Misses, agents, |rate| rate.operations),
            events_per_second: spread(Work::Loopback, agents, |rate| rate.events)?,
        })
    };
    let rows: Vec<Row> = agents.iter().filter_map(row).collect();
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return Err(Failure::failed("--agents: give at least one number of agents, such as 2"));
    };
    let misses = rows.iter().filter_map(|row| row.miss_operations_per_second).map(|spread| spread.median);
    let growth =
        |figure: fn(&Row) -> Spread| (rows.len() > 1).then(|| rounded(figure(first).median / figure(last).median, 3));
    let shares = subjects.iter().filter(|subject| subject.work == Work::Misses);
    let share = shares.flat_map(|subject| &subject.rates).map(|rate| rate.memory_share).min_by(f64::total_cmp);
    let mut report = Report {
        schema: "conic.bench.sim/1",
        platform: arguments.platform.clone(),
        rounds: arguments.rounds,
        loopback_operations_per_second: first.loopback_operations_per_second.median,
        hit_operations_per_second: first.hit_operations_per_second.median,
        miss_operations_per_second: misses.min_by(f64::total_cmp),
        events_per_second: first.events_per_second.median,
        loopback_cost_growth: growth(|row| row.loopback_operations_per_second),
        hit_cost_growth: growth(|row| row.hit_operations_per_second),
        misses_to_memory: share.map(|share| rounded(share, 3)),
        by_agents: rows,
        goals: Vec::new(),
    };
    report.goals = goals(&report);
    Ok(report)
}

fn goals(report: &Report) -> Vec<Goal> {
    let at_least =
        |what, goal, reached: Option<f64>| Some(Goal { what, goal, reached: reached?, met: reached? >= goal });
    let at_most = |what, reached: Option<f64>| {
        Some(Goal { what, goal: GROWTH_GOAL, reached: reached?, met: reached? < GROWTH_GOAL })
    };
    let with_two = |reached| (report.by_agents.first()?.agents == 2).then_some(reached);
    let goals = [
        at_least("loopback operations a second", GOALS[0].1, with_two(report.loopback_operations_per_second)),
        at_least("hits a second", GOALS[1].1, with_two(report.hit_operations_per_second)),
        at_least("misses a second", GOALS[2].1, report.miss_operations_per_second),
        at_most("growth of a loopback operation's cost", report.loopback_cost_growth),
        at_most("growth of a hit's cost", report.hit_cost_growth),
    ];
    goals.into_iter().flatten().collect()
}

fn print(report: &Report) {
    println!("the simulator's own speed, on one core: {}, medians of {} rounds", report.platform, report.rounds);
    println!("  millions a second of the simulating thread's time");
    println!("\n{}", line("agents", ["loopback", "hits", "misses"].map(str::to_owned), "events"));
    let cell = |spread: Spread| {
        let millions = |value: f64| three_digits(value / 1e6);
        format!("{} {}", millions(spread.median), range(spread, millions))
    };
    for row in &report.by_agents {
        let misses = row.miss_operations_per_second.map_or_else(|| "-".to_owned(), cell);
        let cells = [cell(row.loopback_operations_per_second), cell(row.hit_operations_per_second), misses];
        let events = three_digits(row.events_per_second.median / 1e6);
        println!("{}", line(&row.agents.to_string(), cells, &events));
    }
    if let Some(share) = report.misses_to_memory {
        println!("\n  {}% of the random accesses got their line from memory", three_digits(100.0 * share));
    }
    if !report.goals.is_empty() {
        println!();
    }
    for goal in &report.goals {
        let number = |value: f64| {
            if value > 1e3 { format!("{} million", three_digits(value / 1e6)) } else { format!("{value:.2} times") }
        };
        let verdict = if goal.met { "met" } else { "missed" };
        println!("  {:37} {:>13}, goal {:>12}: {verdict}", goal.what, number(goal.reached), number(goal.goal));
    }
}

/// A line of the table, which a terminal of 80 columns holds.
fn line(agents: &str, cells: [String; 3], events: &str) -> String {
    let [loopback, hits, misses] = cells;
    format!("  {agents:>6}  {loopback:>19}  {hits:>19}  {misses:>19}  {events:>7}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> Arguments {
        let duration = Time::from_nanoseconds(1_000_000);
        Arguments { json: false, platform: "spr".to_owned(), agents: Vec::new(), duration, rounds: 1 }
    }

    fn subject(work: Work, agents: usize) -> Subject {
        let rate = Rate { operations: 20e6 / agents as f64, events: 1e6, memory_share: 0.875 };
        Subject { work, agents, operations: 1, rates: vec![rate] }
    }

    #[test]
    fn what_was_not_run_is_not_said_to_be_slow_nor_to_be_met() {
        let subjects = [subject(Work::Loopback, 16), subject(Work::Hits, 16)];
        let found = report(&arguments(), &[16], &subjects).expect("there are agents");
        assert_eq!((found.miss_operations_per_second, found.misses_to_memory), (None, None));
        assert_eq!((found.loopback_cost_growth, found.hit_cost_growth, found.goals.len()), (None, None, 0));
        let of = |agents| [Work::Loopback, Work::Hits, Work::Misses].map(|work| subject(work, agents));
        let found = report(&arguments(), &[2, 4], &[of(2), of(4)].concat()).expect("there are agents");
        assert_eq!((found.miss_operations_per_second, found.misses_to_memory), (Some(5e6), Some(0.875)));
        assert_eq!((found.loopback_cost_growth, found.goals.len()), (Some(2.0), 5));
        let met: Vec<bool> = found.goals.iter().map(|goal| goal.met).collect();
        assert_eq!(met, [true, false, true, false, false]);
    }

    #[test]
    fn a_line_of_the_table_has_80_columns_at_most() {
        let cell = || "1234 (1234 to 1234)".to_owned();
        assert!(line("112", [cell(), cell(), cell()], "12345").len() <= 80);
    }
}
