//! `conic bench scaling`: what several pairs of cores do together.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use conic_chart::{Axis, Chart, Point, Series};
use conic_fabric::lines_of;
use conic_interface::ccnic::Features;
use conic_load::Workload;
use conic_load::limits::Moved;
use conic_native::{Pages, cores};
use serde::Serialize;

use super::arena::{Arena, ArenaError};
use super::common::{MachineReport, nanoseconds, three_digits};
use super::draw;
use super::failure::{Failure, code_of, print_json};
use super::limits::{Kernel, LINES_OF_A_DESCRIPTOR};
use super::link::{Interface, Outcome, Setup, Span, run};
use super::loopback::{SLICE, WARM_UP};
use super::placement::{Spread, rounded};
use super::progress::Progress;
use super::temporary::Folder;
use crate::writable;

mod through;

use through::{Joined, Through};

/// What several pairs of cores do together: interfaces within one process, and the NIC's daemon with several threads
///
/// A pair is an application's core and a NIC's. With each number of pairs, by turns: the loopback within one process, a queue pair on
/// each pair of cores; clients of `conic nic`, one on each application's core, whose packets come back from a thread each or from one
/// for all; and clients that send to the address of another beside them, which sends everything back: both on one thread of the daemon,
/// or on two. Beside them stands the limit: as many pairs that do nothing but move the packets' lines.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Numbers of pairs, each measured by itself [default: 1, 2, 4 and so on, and as many as there are]
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=64))]
    pub pairs: Vec<u16>,
    /// The cores, pair by pair: an application's, its NIC's, the next application's and so on [default: all that this process may use]
    #[arg(long, value_name = "CORE,...", value_delimiter = ',')]
    pub cores: Vec<usize>,
    /// Bytes of a packet, 60 to 9600
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(60..=9600))]
    pub packet_size: u16,
    /// Packets in flight on each pair, half as many as a ring's descriptors at most: a switch drops what a receiver has no room for
    #[arg(long, value_name = "PACKETS", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=512))]
    pub window: u64,
    /// Packets in one call at most
    #[arg(long, value_name = "PACKETS", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub burst: u16,
    /// Measure these alone
    #[arg(long, value_name = "ROW,...", value_delimiter = ',', value_parser = PossibleValuesParser::new(ROWS.map(|row| row.key)))]
    pub only: Vec<String>,
    /// How often each is measured, for 50 ms
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Where the chart goes
    #[arg(long, value_name = "FILE", default_value = "out/scaling.svg")]
    pub svg: PathBuf,
}

const EXAMPLES: &str = "Examples:
  conic bench scaling                              1, 2, 4 and more pairs, as many as there are
  conic bench scaling --pairs 1,8 --rounds 20      two numbers of pairs, at length
  conic bench scaling --cores 0,8,1,9,2,10         applications on 0, 1 and 2, their NICs on 8, 9 and 10
  conic bench scaling --packet-size 1500 --json    for a program

Where two cores are threads of one, their numbers often lie half of them all apart, or one: `lscpu --extended` shows it, and a pair's \
round trip of one line, which is printed, tells it.";

/// What is measured with each number of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// Lines that each side writes and the other reads, both ways at once: a stream, or a swap.
    Lines(Kernel),
    /// Queue pairs within this process.
    Within(Interface),
    /// Clients of the daemon.
    Through(Joined),
}

/// A line of the table: its name for programs, the same for people, and what is measured; of several the fastest.
struct Row {
    key: &'static str,
    title: &'static str,
    subjects: &'static [Subject],
}

const ROWS: [Row; 7] = [
    Row {
        key: "lines",
        title: "limit: lines alone",
        subjects: &[Subject::Lines(Kernel::BothWays), Subject::Lines(Kernel::Swap)],
    },
    Row { key: "ccnic", title: "CC-NIC, one process", subjects: &[Subject::Within(Interface::Ccnic)] },
    Row { key: "ring", title: "ring, one process", subjects: &[Subject::Within(Interface::Ring)] },
    Row { key: "daemon", title: "daemon, thread each", subjects: &[Subject::Through(Joined::ThreadEach)] },
    Row { key: "daemon_one_thread", title: "daemon, one thread", subjects: &[Subject::Through(Joined::OneThread)] },
    Row { key: "bridge", title: "bridge, thread each", subjects: &[Subject::Through(Joined::Bridge)] },
    Row { key: "bridge_across", title: "bridge across threads", subjects: &[Subject::Through(Joined::BridgeAcross)] },
];

impl Row {
    /// Packets in flight on each pair.
    fn window(&self, workload: &Workload) -> u64 {
        match self.subjects {
            [Subject::Through(joined)] => joined.window(workload),
            _ => workload.window,
        }
    }
}

impl Subject {
    /// The fewest pairs with which there is such a thing.
    fn least(self) -> usize {
        if self == Subject::Through(Joined::BridgeAcross) { 2 } else { 1 }
    }
}

/// What a slice came to, all pairs together.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    mpps: f64,
    /// None for lines.
    p50_ns: Option<f64>,
    /// The same.
    p99_ns: Option<f64>,
    lost: u64,
    corrupt: u64,
}

impl Taken {
    fn of(outcomes: &[Outcome]) -> Taken {
        let mut taken = Taken::default();
        let Some((first, others)) = outcomes.split_first() else { return taken };
        let mut all = first.clone();
        others.iter().for_each(|other| all.add(other));
        taken.mpps = outcomes.iter().map(|outcome| outcome.rate / 1e6).sum();
        let quantile = |part| Some(all.latency.quantile(part).picoseconds() as f64 / 1e3);
        (taken.p50_ns, taken.p99_ns) = (quantile(0.5), quantile(0.99));
        (taken.lost, taken.corrupt) = (all.lost, all.corrupt);
        taken
    }
}

/// Something to measure, ready.
enum Ready {
    Lines(Kernel),
    Within(Interface),
    Through(Box<Through>),
}

/// What is measured with a number of pairs, and what was.
struct Measured {
    row: usize,
    pairs: usize,
    ready: Ready,
    taken: Vec<Taken>,
}

/// The cores, and what is sent.
struct Bench {
    pairs: Vec<(usize, usize)>,
    workload: Workload,
    /// The rows to measure; all, if none are named.
    only: Vec<String>,
}

impl Bench {
    /// All that is to be measured with some numbers of pairs; their daemons have started.
    fn ready(&self, counts: &[usize]) -> Result<Vec<Measured>, Failure> {
        let mut all = Vec::new();
        let subjects = || ROWS.iter().enumerate().flat_map(|(row, one)| one.subjects.iter().map(move |&it| (row, it)));
        for (&pairs, (row, subject)) in counts.iter().flat_map(|pairs| subjects().map(move |subject| (pairs, subject)))
        {
            let wanted = self.only.is_empty() || self.only.iter().any(|key| key == ROWS[row].key);
            if !wanted || pairs < subject.least() {
                continue;
            }
            let ready = match subject {
                Subject::Lines(kernel) => Ready::Lines(kernel),
                Subject::Within(interface) => Ready::Within(interface),
                Subject::Through(joined) => {
                    let folder = Folder::new(&format!("conic-scaling-{}", all.len()))?;
                    Ready::Through(Box::new(Through::start(joined, &self.pairs[..pairs], self.workload, folder)?))
                }
            };
            all.push(Measured { row, pairs, ready, taken: Vec::new() });
        }
        Ok(all)
    }

    /// A slice.
    fn measure(&self, one: &mut Measured) -> Result<Taken, Failure> {
        let (span, pages) = (Span { warm_up: WARM_UP, measured: SLICE }, Pages::Plain);
        // Its threads never rest: it is gone before a daemon needs their cores.
        let arena = || Arena::on(self.pairs[..one.pairs].to_vec());
        match &mut one.ready {
            Ready::Through(through) => Ok(Taken::of(&through.slice(span)?)),
            Ready::Within(interface) => {
                let setup = Setup {
                    interface: *interface,
                    features: Features::best(),
                    workload: self.workload,
                    queues: one.pairs,
                    interval: None,
                    descriptors: 1024,
                    pages,
                };
                Ok(Taken::of(&[run(&arena()?, &setup, span)?]))
            }
            Ready::Lines(kernel) => {
                let moved = kernel.measure_on(one.pairs, &arena()?, pages, SLICE)?;
                let lines: f64 = moved.iter().map(Moved::per_second).sum();
                let a_packet = lines_of(u64::from(self.workload.packet_size)) as f64 + LINES_OF_A_DESCRIPTOR;
                Ok(Taken { mpps: lines / a_packet / 1e6, ..Taken::default() })
            }
        }
    }
}

/// What was measured with a number of pairs.
#[derive(Clone, Debug, Serialize)]
struct Count {
    pairs: usize,
    /// Millions of packets a second, all pairs together.
    mpps: Spread,
    /// The median over that of the fewest pairs.
    over_fewest: f64,
    /// The median over the limit's, with as many pairs, where that was measured.
    over_limit: Option<f64>,
    /// The median latency in nanoseconds, over the slices; none of lines.
    p50_ns: Option<Spread>,
    /// The 99th percentile of a slice's latencies, over the slices.
    p99_ns: Option<Spread>,
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
struct Line {
    key: &'static str,
    title: &'static str,
    /// Packets in flight on each pair, which may be fewer than asked.
    window: u64,
    counts: Vec<Count>,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: &'static str,
    packet_size: u16,
    window: u64,
    burst: u16,
    rounds: u16,
    machine: MachineReport,
    /// The cores of each pair, the application's first.
    cores: Vec<(usize, usize)>,
    /// What one line's round trip costs between the cores of each pair.
    one_line_round_trip_ns: Vec<f64>,
    lost: u64,
    corrupt: u64,
    rows: Vec<Line>,
    svg: String,
}

/// Runs the command.
///
/// # Errors
///
/// There are too few cores, the daemon cannot be had, or the machine refuses memory.
pub fn main(arguments: &Arguments) -> Result<ExitCode, Failure> {
    writable::file(&arguments.svg, "--svg")?;
    let usable = cores();
    let pairs = pairs_of(if arguments.cores.is_empty() { &usable } else { &arguments.cores })?;
    let counts = counts_of(&arguments.pairs, pairs.len())?;
    let workload = Workload::of_bursts(arguments.packet_size, arguments.window, arguments.burst.into());
    let bench = Bench { pairs, workload, only: arguments.only.clone() };
    let most = counts.iter().copied().max().unwrap_or(1);
    let (trips, machine) = look_at(&bench.pairs[..most], usable.len())?;
    let mut measured = bench.ready(&counts)?;
    if measured.is_empty() {
        return Err(Failure::failed("two threads of the daemon need two pairs of cores: there is nothing to measure"));
    }
    let mut progress = Progress::new();
    for round in 1..=arguments.rounds {
        progress.start(format!("up to {most} pairs of cores, round {round} of {}", arguments.rounds));
        for one in &mut measured {
            let taken = bench.measure(one)?;
            one.taken.push(taken);
        }
    }
    progress.clear();
    let sum = |figure: fn(&Taken) -> u64| measured.iter().flat_map(|one| &one.taken).map(figure).sum();
    let report = Report {
        schema: "conic.bench.scaling/1",
        packet_size: arguments.packet_size,
        window: arguments.window,
        burst: arguments.burst,
        rounds: arguments.rounds,
        machine,
        cores: bench.pairs[..most].to_vec(),
        one_line_round_trip_ns: trips,
        lost: sum(|taken| taken.lost),
        corrupt: sum(|taken| taken.corrupt),
        rows: rows_of(&measured, &counts, &workload),
        svg: arguments.svg.display().to_string(),
    };
    let chart = chart(&report);
    draw::to_file(std::slice::from_ref(&chart), &arguments.svg)?;
    if arguments.json {
        print_json(&report)?;
    } else {
        print(&report, &chart);
    }
    Ok(code_of(report.lost, report.corrupt))
}

/// What one line's round trip costs between the cores of each pair, in nanoseconds, and the machine. In a thread of its own: this one is
/// bound to no core while daemons start, which would inherit it.
fn look_at(pairs: &[(usize, usize)], usable: usize) -> Result<(Vec<f64>, MachineReport), Failure> {
    let looked = std::thread::scope(|scope| {
        let look = || {
            // All at once, so that a core that cannot be used, or twice, is found before anything starts.
            let machine = MachineReport::of(&Arena::on(pairs.to_vec())?, usable);
            let trip = |&pair: &(usize, usize)| Ok(rounded(Arena::on(vec![pair])?.round_trip()?, 1));
            Ok((pairs.iter().map(trip).collect::<Result<_, ArenaError>>()?, machine))
        };
        scope.spawn(look).join().unwrap_or(Err(ArenaError::Died))
    });
    Ok(looked?)
}

/// Cores as pairs.
fn pairs_of(cores: &[usize]) -> Result<Vec<(usize, usize)>, Failure> {
    match cores.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>() {
        pairs if pairs.is_empty() => Err(Failure::failed(format!(
            "a pair needs two cores, and there is core {cores:?} alone: give more, as in --cores 0,1,2,3"
        ))),
        pairs => Ok(pairs),
    }
}

/// The numbers of pairs to measure, from few to many.
fn counts_of(asked: &[u16], there: usize) -> Result<Vec<usize>, Failure> {
    let mut counts: Vec<usize> = asked.iter().copied().map(usize::from).collect();
    if counts.is_empty() {
        counts = std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|&count| count < there).collect();
        counts.push(there);
    }
    counts.sort_unstable();
    counts.dedup();
    match counts.last() {
        Some(&most) if most > there => Err(Failure::failed(format!(
            "{most} pairs need {} cores, and {} are there: {there} at most",
            2 * most,
            2 * there
        ))),
        _ => Ok(counts),
    }
}

fn rows_of(measured: &[Measured], counts: &[usize], workload: &Workload) -> Vec<Line> {
    // Of several subjects the one that is fastest with that many pairs.
    let of = |row: usize, pairs: usize| {
        let these = measured.iter().filter(|one| one.row == row && one.pairs == pairs);
        let spread = |one: &Measured| Spread::of(&one.taken.iter().map(|taken| taken.mpps).collect::<Vec<_>>());
        let spreads = these.filter_map(|one| Some((spread(one)?, one)));
        spreads.max_by(|one, other| one.0.median.total_cmp(&other.0.median))
    };
    let line = |(row, named): (usize, &Row)| {
        let Row { key, title, .. } = named;
        let mut fewest = None;
        let count = |&pairs: &usize| {
            let (mpps, one) = of(row, pairs)?;
            let over_slices = |figure: fn(&Taken) -> Option<f64>| {
                let figures: Vec<f64> = one.taken.iter().filter_map(figure).collect();
                Spread::of(&figures).map(|spread| spread.rounded(1))
            };
            Some(Count {
                pairs,
                mpps: mpps.rounded(3),
                over_fewest: rounded(mpps.median / *fewest.get_or_insert(mpps.median), 3),
                over_limit: of(0, pairs).map(|(limit, _)| rounded(mpps.median / limit.median, 3)),
                p50_ns: over_slices(|taken| taken.p50_ns),
                p99_ns: over_slices(|taken| taken.p99_ns),
            })
        };
        Line { key, title, window: named.window(workload), counts: counts.iter().filter_map(count).collect() }
    };
    ROWS.iter().enumerate().map(line).collect()
}

/// Rates over the number of pairs.
fn chart(report: &Report) -> Chart {
    let most = report.cores.len();
    let measured = || report.rows.iter().filter(|row| !row.counts.is_empty());
    // What is said is of the daemon, or else of the last row that there is.
    let said = measured().find(|row| row.key == "daemon").or(measured().next_back());
    let title = match said.and_then(|row| Some((row, row.counts.last()?))) {
        Some((row, Count { pairs, mpps, .. })) => {
            let mpps = three_digits(mpps.median);
            format!("{}-byte packets, {}: {mpps} Mpps with {pairs} pairs of cores", report.packet_size, row.title)
        }
        None => "Nothing was measured".to_owned(),
    };
    // With both logarithmic, what grows as the cores do is a straight line, and all such lines have one slope.
    let mut chart = Chart::xy(title, Axis::log("Pairs of cores", ""), Axis::log("Rate", "Mpps"));
    chart = chart.note(format!("{}; conic bench scaling, up to {most} pairs", report.machine.line()));
    for row in measured() {
        let point = |count: &Count| {
            let Spread { median, min, max } = count.mpps;
            Point::new(count.pairs as f64, median).y_spread(min, max)
        };
        chart = chart.series(Series::line(row.title, row.counts.iter().map(point)));
    }
    chart
}

fn print(report: &Report, chart: &Chart) {
    let Report { packet_size, window, rounds, .. } = report;
    println!("pairs of cores together: packets of {packet_size} bytes, {window} in flight on each pair");
    report.machine.print();
    let pair = |(&(application, nic), trip): (&(usize, usize), &f64)| format!("{application},{nic} {trip:.0}");
    let trips: Vec<String> = report.cores.iter().zip(&report.one_line_round_trip_ns).map(pair).collect();
    println!("  one line's round trip in ns, by pair: {}", trips.join("; "));
    println!();
    let rate = |row: &Line, count: &Count| match count.pairs == row.counts[0].pairs {
        true => three_digits(count.mpps.median),
        false => format!("{} x{:.2}", three_digits(count.mpps.median), count.over_fewest),
    };
    table(report, "Mpps, and times the fewest", rate);
    println!();
    let latency = |of: Option<Spread>| of.map_or(String::new(), |spread| nanoseconds(spread.median));
    table(report, "median latency, a closed loop", |_, count| latency(count.p50_ns));
    println!();
    table(report, "99th percentile", |_, count| latency(count.p99_ns));
    println!(
        "\n  {rounds} slices of 50 ms of each, by turns; {} packets lost, {} corrupt",
        report.lost, report.corrupt
    );
    for row in report.rows.iter().filter(|row| row.window < *window && !row.counts.is_empty()) {
        println!(
            "  note: {}: {} in flight on each pair, as the rings between threads hold no more",
            row.title, row.window
        );
    }
    if counts(report).len() < 2 {
        println!("  note: with one number of pairs there is nothing to compare (--pairs)");
    } else {
        println!();
        draw::on_terminal(chart);
    }
    println!("chart: {}", report.svg);
}

/// The numbers of pairs that any row has.
fn counts(report: &Report) -> &[Count] {
    report.rows.iter().map(|row| &row.counts[..]).max_by_key(|counts| counts.len()).unwrap_or_default()
}

/// A line for each row that has such a figure, and a column for each number of pairs; one that lacks any lacks the fewest.
fn table(report: &Report, what: &str, cell: impl Fn(&Line, &Count) -> String) {
    let all = counts(report);
    let heading =
        |count: &Count| format!("{:>14}", format!("{} pair{}", count.pairs, if count.pairs == 1 { "" } else { "s" }));
    println!("  {what}");
    println!("  {:20}{}", "", all.iter().map(heading).collect::<String>());
    for row in &report.rows {
        let cells: Vec<String> = row.counts.iter().map(|count| format!("{:>14}", cell(row, count))).collect();
        if cells.iter().any(|cell| !cell.trim().is_empty()) {
            println!("  {:20}{}{}", row.title, " ".repeat(14 * (all.len() - cells.len())), cells.concat());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_doubled_up_to_as_many_as_there_are() {
        for (there, wanted) in [(1, vec![1]), (2, vec![1, 2]), (6, vec![1, 2, 4, 6]), (8, vec![1, 2, 4, 8])] {
            assert_eq!(counts_of(&[], there).expect("they are there"), wanted);
        }
        assert_eq!(counts_of(&[4, 1, 4], 4).expect("they are there"), [1, 4]);
        let refused = counts_of(&[1, 3], 2).expect_err("there are two").message;
        assert!(refused.contains("6 cores") && refused.contains("2 at most"), "{refused}");
        assert!(pairs_of(&[5]).expect_err("one core").message.contains("[5] alone"));
        assert_eq!(pairs_of(&[5, 3, 1]).expect("a pair"), [(5, 3)]);
    }

    fn measured(row: usize, pairs: usize, rates: [f64; 3], p50_ns: Option<f64>) -> Measured {
        let p99_ns = p50_ns.map(|p50| 2.0 * p50);
        let taken = rates.map(|mpps| Taken { mpps, p50_ns, p99_ns, ..Taken::default() }).to_vec();
        Measured { row, pairs, ready: Ready::Lines(Kernel::Swap), taken }
    }

    #[test]
    fn a_row_is_of_medians_and_of_the_faster_of_two_subjects() {
        let all = [
            measured(0, 1, [10.0, 40.0, 20.0], None),
            measured(0, 1, [50.0, 10.0, 10.0], None),
            measured(0, 2, [80.0, 90.0, 70.0], None),
            measured(1, 1, [10.0; 3], Some(500.0)),
            measured(1, 2, [16.0; 3], Some(600.0)),
            measured(6, 2, [5.0; 3], Some(700.0)),
        ];
        let workload = Workload::of_bursts(9600, 256, 32);
        let rows = rows_of(&all, &[1, 2], &workload);
        assert_eq!((rows[5].window, rows[6].window), (256, 81), "what lies between threads holds no more");
        let figures = |row: usize| -> Vec<[f64; 4]> {
            let figure = |count: &Count| {
                [count.pairs as f64, count.mpps.median, count.over_fewest, count.over_limit.unwrap_or(0.0)]
            };
            rows[row].counts.iter().map(figure).collect()
        };
        assert_eq!(figures(0), [[1.0, 20.0, 1.0, 1.0], [2.0, 80.0, 4.0, 1.0]]);
        assert_eq!(figures(1), [[1.0, 10.0, 1.0, 0.5], [2.0, 16.0, 1.6, 0.2]]);
        assert_eq!(figures(6), [[2.0, 5.0, 1.0, 0.063]]);
        assert_eq!(rows[0].counts[0].mpps.max, 40.0);
        let latencies = [rows[1].counts[1].p50_ns, rows[1].counts[1].p99_ns];
        assert_eq!(latencies.map(|spread| spread.map(|spread| spread.median)), [Some(600.0), Some(1200.0)]);
        assert!(rows[0].counts[0].p50_ns.is_none() && rows[0].counts[0].p99_ns.is_none() && rows[2].counts.is_empty());
    }
}
