//! The crash matrix: clients and the daemon, killed (SIGKILL) or made to stand still (SIGSTOP) at each of their steps.
//!
//! A step is an access to shared memory by what it is and in which part of the region, or a call that makes, passes or maps
//! something; a process watches its own steps (`conic_native`'s feature `steps`, which the product does not have) and stops itself
//! before the chosen one. This program plays the daemon, the clients that are stopped, and the bystanders: three clients that
//! exchange numbered frames all the time.
//!
//! | stopped | checked after each |
//! |---|---|
//! | a client, killed | no bystander lost a frame or saw a changed one; the daemon's descriptors and mappings are what they were; the same address attaches again and is served |
//! | a client, standing still | the same; it keeps its place, so that its user's quota refuses another; it goes on when it is let, or was refused because a step of attaching took it too long |
//! | the daemon, killed | all clients find it; their buffers keep their contents; with a new daemon they are attached and frames flow again; at the end nothing is held of the old one |
//! | the daemon, standing still | no frame is lost, no session ends |
//! | one of two daemons of which the one takes over from the other | one of them serves all clients, or nobody does and they find that; which of these stands beside the step (`take_overs.rs`) |
//!
//! `cargo test -p conic-daemon --test crash_matrix` goes through all steps once; `... -- --kills 10000` (`make crash`) goes on until so many
//! processes were killed; `... -- --returned 200 --mib 64` measures how long the memory of clients under load takes to be back, `... -- --take-overs 5` goes
//! through the steps of a take-over alone, so many times. `--seed` chooses how often a step is passed before the one that counts.

mod matrix;
mod returned;
mod roles;
mod served;
mod stops;
#[path = "../support/mod.rs"]
mod support;
mod take_overs;

use std::process::ExitCode;

use conic_native::clock;

use matrix::{Clients, Row, Table, attempt_on_a_daemon, steps_of_a_daemon};
use stops::{Blow, Plan, Step};
use support::arguments::numbers;
use take_overs::stop_take_overs;

/// How deep into the repetitions of one step a stop is tried.
const DEEPEST: u64 = 400;

/// One stop that makes the process stand still in so many that kill it.
const KILLS_FOR_A_STOP: u64 = 8;

/// How often a step is tried again at which nobody was killed.
const ATTEMPTS: u32 = 20;

/// Of the kills, those of daemons: one in so many.
const KILLS_FOR_A_DAEMON: u64 = 10;

/// What is said of the steps of a take-over.
const TAKE_OVERS: &str = "one of two daemons, at";

/// A stop at a step that is passed so often.
fn plan(random: &mut fastrand::Rng, step: &Step, count: u64, blow: Blow) -> Plan {
    // Every other time the first, where the state is simplest to think of.
    let occurrence = if random.bool() { 1 } else { random.u64(1..=count.min(DEEPEST)) };
    Plan { step: step.clone(), occurrence, blow }
}

/// What the command line asks for.
struct Arguments {
    /// Kills in all; none: each step once.
    kills: Option<u64>,
    /// Of daemons alone, so many.
    daemons: Option<u64>,
    /// Clients under load to kill, to measure how long their memory takes to come back, and nothing else.
    returned: Option<u64>,
    /// How often each step of a take-over is tried, and nothing else.
    take_overs: Option<u64>,
    /// MiB of their regions.
    mebibytes: u64,
    seed: u64,
}

impl Arguments {
    /// None where the harness asks for tests of another name.
    fn given() -> Option<Arguments> {
        let options = ["--kills", "--daemons", "--returned", "--take-overs", "--mib", "--seed"];
        let [kills, daemons, returned, take_overs, mebibytes, seed] = numbers("crash_matrix", options)?;
        let (mebibytes, seed) = (mebibytes.unwrap_or(8), seed.unwrap_or(2026));
        Some(Arguments { kills, daemons, returned, take_overs, mebibytes, seed })
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = roles::play(&words) {
        return code;
    }
    let Some(arguments) = Arguments::given() else { return ExitCode::SUCCESS };
    if let Some(kills) = arguments.returned {
        returned::measure(kills, arguments.mebibytes);
        return ExitCode::SUCCESS;
    }
    if let Some(rounds) = arguments.take_overs {
        show(TAKE_OVERS, "again", &stop_take_overs(rounds));
        return ExitCode::SUCCESS;
    }
    let begun = clock::now();
    println!("crash matrix, seed {}", arguments.seed);
    let mut random = fastrand::Rng::with_seed(arguments.seed);
    let wanted = arguments.daemons.or(arguments.kills).unwrap_or(0);
    let of_daemons = arguments.daemons.unwrap_or(wanted / KILLS_FOR_A_DAEMON);
    let (mut clients, mut frames) = (Table::new(), 0);
    if arguments.daemons.is_none() {
        (clients, frames) = stop_clients(&mut random, wanted - of_daemons);
        show("a client, at", "back", &clients);
    }
    let daemons = stop_daemons(&mut random, of_daemons);
    show("the daemon, at", "again", &daemons);
    let take_overs = stop_take_overs(1);
    show(TAKE_OVERS, "again", &take_overs);
    let rows = || clients.iter().chain(&daemons).chain(&take_overs);
    let sum = |count: fn(&Row) -> u64| rows().map(|(_, row)| count(row)).sum::<u64>();
    let (kills, stops, missed) = (sum(|row| row.kills), sum(|row| row.stops), sum(|row| row.missed));
    let steps = rows().count();
    println!(
        "{steps} steps, {kills} kills, {stops} stops, {missed} not reached; bystanders exchanged {frames} frames beside the clients' and \
         lost none; {:.0} s",
        clock::now().since(begun).seconds()
    );
    let untried: Vec<&Step> = rows().filter(|(_, row)| row.kills == 0).map(|(step, _)| step).collect();
    if !untried.is_empty() || kills < wanted {
        println!("nobody was killed at {untried:?}, or fewer than {wanted} were");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn stop_clients(random: &mut fastrand::Rng, wanted: u64) -> (Table, u64) {
    let mut clients = Clients::begin();
    let steps = clients.steps();
    let mut table = Table::new();
    let (mut kills, mut tried) = (0, 0);
    let mut rounds = 0;
    while rounds < 1 || kills < wanted {
        for (step, count) in &steps {
            let row = table.entry(step.clone()).or_default();
            let before = row.kills;
            clients.attempt(&plan(random, step, *count, Blow::Kill), row);
            kills += row.kills - before;
            tried += 1;
            if tried % KILLS_FOR_A_STOP == 0 || rounds == 0 && tried % 2 == 0 {
                clients.attempt(&plan(random, step, *count, Blow::Stop), row);
            }
        }
        rounds += 1;
        if rounds % 5 == 0 {
            println!("{kills} clients killed");
        }
    }
    for _ in 0..ATTEMPTS {
        // What depends on the moment, such as a call of a NIC that looks away, may need more than one attempt.
        for (step, row) in table.iter_mut().filter(|(_, row)| row.kills == 0) {
            clients.attempt(&Plan { step: step.clone(), occurrence: 1, blow: Blow::Kill }, row);
        }
    }
    (table, clients.end())
}

fn stop_daemons(random: &mut fastrand::Rng, wanted: u64) -> Table {
    let steps = steps_of_a_daemon();
    let mut table = Table::new();
    let (mut kills, mut rounds) = (0, 0);
    while rounds < 1 || kills < wanted {
        for (index, (step, count)) in steps.iter().enumerate() {
            let row = table.entry(step.clone()).or_default();
            let before = row.kills;
            attempt_on_a_daemon(&plan(random, step, *count, Blow::Kill), row);
            kills += row.kills - before;
            if (index + rounds) % KILLS_FOR_A_STOP as usize == 0 {
                attempt_on_a_daemon(&plan(random, step, *count, Blow::Stop), row);
            }
        }
        rounds += 1;
    }
    table
}

fn show(whose: &str, what: &str, table: &Table) {
    println!("{whose:<56} {:>6} {:>6} {what:>9} us, median (most)", "killed", "stopped");
    for (step, row) in table {
        let mut times = row.microseconds.clone();
        times.sort_unstable();
        let (median, most) = (times.get(times.len() / 2).copied(), times.last().copied());
        let time = median.zip(most).map_or(String::new(), |(median, most)| format!("{median} ({most})"));
        println!("{:<56} {:>6} {:>6} {time:>20}", step.to_string(), row.kills, row.stops);
    }
    let mut all: Vec<u64> = table.values().flat_map(|row| row.microseconds.iter().copied()).collect();
    all.sort_unstable();
    if let Some(most) = all.last() {
        let at = |share: usize| all[(all.len() - 1) * share / 1000];
        println!("  of all {}: median {} us, 99% {} us, most {most} us", all.len(), at(500), at(990));
    }
}
