//! `conic diagnose`: which part of a host's way to memory holds it back, from counters.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use conic_chart::{Align, Cell, Column, Table, TerminalStyle};
use conic_sim::host::HostParameters;
use conic_sim::platform::Platform;
use conic_study::experiment::Effort;
use conic_study::host_network::counters::Counters;
use conic_study::host_network::diagnosis::{Diagnosis, DomainView, Regime, diagnose};
use conic_study::host_network::perf;
use conic_study::host_network::quadrants::Quadrant;
use conic_study::host_network::runs::{Meeting, Runs, Work};

use crate::bench::failure::{Failure, print_json};
use crate::value::in_lines;

/// Cores and devices that are simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Simulated {
    /// Cores read, devices write to memory
    Q1,
    /// Cores read, devices read
    Q2,
    /// Cores store, devices write to memory
    Q3,
    /// Cores store, devices read
    Q4,
    /// Cores run Redis, devices write to memory
    Redis,
    /// Cores run PageRank, devices write to memory
    Graph,
}

/// A regime that counts as failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Bad {
    /// Cores are slowed
    Blue,
    /// Devices are about to be
    Onset,
    /// Both are
    Red,
}

/// Find out from counters which part of a host's way to memory is its bottleneck
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Counters: what the command of --perf wrote, JSON, or lines of name,value; - is the standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["simulate", "perf"])]
    file: Option<PathBuf>,
    /// Instead: print the command that counts on a Skylake or Cascade Lake server, for so many seconds
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["file", "simulate", "json"], num_args = 0..=1, default_missing_value = "10",
          value_parser = clap::value_parser!(u32).range(1..))]
    perf: Option<u32>,
    /// Instead: counters of a simulated host, of so many cores beside storage devices
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "file")]
    simulate: Option<Simulated>,
    /// Cores that generate traffic: of a file of perf's, which does not say it, or simulated [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    cores: Option<u16>,
    /// The socket, of a file of perf's that has several
    #[arg(long, value_name = "N", conflicts_with = "simulate")]
    socket: Option<u32>,
    /// Print the counters as JSON, as a file has them, and no diagnosis
    #[arg(long, conflicts_with = "fail_on")]
    counters: bool,
    /// A platform of model host: its name, or a path to a .toml file [default: the one that the counters name, or cascade-lake]
    #[arg(long, value_name = "NAME")]
    platform: Option<String>,
    /// Replace a value of the platform, as in controller.channels=4; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Exit with 3 if the regime is this one or worse
    #[arg(long, value_enum, value_name = "REGIME")]
    fail_on: Option<Bad>,
    /// Print one JSON object on stdout and nothing else there; errors too
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Regimes, by write queues, credits and latency together:
  idle            credits to spare everywhere
  not memory      a sender's own credits limit it, at unloaded latency
  blue            cores are slowed by latency, devices have credits to spare
  onset of red    write queues are full much of the time
  red             devices have used up their credits too

What perf wrote is read as it is (--cores says how many cores generate traffic). A file of our own has the platform's name, the interval in seconds, \
those cores, sums over all memory channels, and for each queue its occupancy (entries summed over cycles), inserts and cycles: --counters writes it. \
What is missing is said.

Examples:
  conic diagnose --perf > count.sh                     what counts on a server, for ten seconds
  sudo sh count.sh && conic diagnose host.csv --cores 4 --socket 0
  conic diagnose --simulate q3 --cores 5               a simulated host in the red regime
  conic diagnose --simulate redis --cores 3            an application that waits for its loads, beside storage devices
  conic diagnose --simulate q1 --counters > host.json  its counters, as a file has them
  conic diagnose host.json                             what they say
  conic diagnose host.json --set controller.channels=4 --json
  conic diagnose host.json --fail-on red               for scripts";

/// With which code a regime ends that `--fail-on` names.
const BAD: u8 = 3;

/// Runs the command.
pub fn main(options: &Options) -> ExitCode {
    match run(options) {
        Ok(code) => code,
        Err(message) => Failure::failed(message).report(options.json),
    }
}

fn run(options: &Options) -> Result<ExitCode, String> {
    let (host, counters) = match (options.simulate, &options.file) {
        (Some(what), _) => simulated(options, what)?,
        (None, Some(file)) => {
            let counters =
                counters(options, &text_of(file)?).map_err(|error| format!("{}: {error}", file.display()))?;
            (host(options, &counters.platform)?, counters)
        }
        (None, None) => {
            print!("{}", perf::command(options.perf.unwrap_or(10), "host.csv"));
            return Ok(ExitCode::SUCCESS);
        }
    };
    if options.counters {
        let text = serde_json::to_string_pretty(&counters).map_err(|error| error.to_string())?;
        println!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    let diagnosis = diagnose(&host, &counters);
    if options.json {
        print_json(&diagnosis).map_err(|failure| failure.message)?;
    } else {
        show(&diagnosis);
    }
    let bad = options.fail_on.map(|bad| match bad {
        Bad::Blue => Regime::Blue,
        Bad::Onset => Regime::OnsetOfRed,
        Bad::Red => Regime::Red,
    });
    let is_bad = bad.is_some_and(|bad| diagnosis.regime >= bad);
    Ok(if is_bad { ExitCode::from(BAD) } else { ExitCode::SUCCESS })
}

fn host(options: &Options, name: &str) -> Result<HostParameters, String> {
    let name = options.platform.as_deref().unwrap_or(name);
    let platform = Platform::<HostParameters>::load_as(name).and_then(|platform| platform.with(&options.overrides));
    platform.map(|platform| platform.parameters().clone()).map_err(|error| error.to_string())
}

fn text_of(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(file).map(|whole| text = whole)
    };
    read.map(|()| text).map_err(|error| format!("{}: {error}", file.display()))
}

/// A file's counters.
fn counters(options: &Options, text: &str) -> Result<Counters, String> {
    if !perf::is_perf(text) {
        let of_perf = [("--cores", options.cores.is_some()), ("--socket", options.socket.is_some())];
        return match of_perf.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(format!("{option} goes with a file of perf's; this one says it itself")),
            None => Counters::parse(text),
        };
    }
    let cores = options.cores.ok_or("perf does not say how many cores generate traffic: give --cores")?;
    let platform = options.platform.as_deref().unwrap_or(PLATFORM);
    let of = perf::Measured { platform, cores: cores.into(), socket: options.socket };
    let (counters, notes) = perf::parse(text, of)?;
    notes.iter().for_each(|note| eprintln!("{note}"));
    Ok(counters)
}

/// The host, where nobody names one.
const PLATFORM: &str = "cascade-lake";

/// A simulated host and its counters, with what cores and devices get alone.
fn simulated(options: &Options, what: Simulated) -> Result<(HostParameters, Counters), String> {
    let host = host(options, PLATFORM)?;
    let cores = usize::from(options.cores.unwrap_or(4));
    if cores > host.core.cores as usize {
        return Err(format!("--cores {cores}: {} has only {}", host.name, host.core.cores));
    }
    let meeting = match what {
        Simulated::Q1 => Meeting::of(Quadrant::First, cores),
        Simulated::Q2 => Meeting::of(Quadrant::Second, cores),
        Simulated::Q3 => Meeting::of(Quadrant::Third, cores),
        Simulated::Q4 => Meeting::of(Quadrant::Fourth, cores),
        Simulated::Redis => Meeting { work: Work::Redis, ..Meeting::of(Quadrant::First, cores) },
        Simulated::Graph => Meeting { work: Work::Graph, ..Meeting::of(Quadrant::First, cores) },
    };
    let mut runs = Runs::new(&host, Effort::Quick);
    let mut counters = Counters::of(&host, cores, &runs.run(meeting));
    counters.c2m_alone_gb_s = Some(runs.without_devices(meeting).core_bytes_per_second() / 1e9);
    counters.p2m_alone_gb_s = Some(runs.without_cores(meeting).device_bytes_per_second() / 1e9);
    Ok((host, counters))
}

/// Characters of a line of text, behind what it is indented by, on a terminal of 80 columns.
const ROOM: usize = 76;

/// Prints a diagnosis for people.
fn show(diagnosis: &Diagnosis) {
    println!("{}: {}", diagnosis.platform, diagnosis.regime.name());
    let bottleneck = diagnosis.bottleneck.map_or("none is used up and slow".to_owned(), str::to_owned);
    println!("bottleneck: {bottleneck}\n");
    print!("{}", table(diagnosis).draw(TerminalStyle::default()));
    println!();
    let ratio = |what: &str, of: Option<[f64; 2]>| match of {
        Some([low, high]) if high - low < 0.005 => println!("{what} are slowed by a factor of {low:.2}"),
        Some([low, high]) => println!("{what} are slowed by a factor between {low:.2} and {high:.2}"),
        None => {}
    };
    ratio("cores", diagnosis.core_slowdown);
    ratio("devices", diagnosis.device_slowdown);
    if let Some(headroom) = diagnosis.device_headroom_gb_s {
        println!(
            "devices could add {headroom:.1} GB/s at this latency; memory {:.1} GB/s",
            diagnosis.memory_headroom_gb_s
        );
    }
    for (heading, lines) in
        [("because", &diagnosis.evidence), ("what to do", &diagnosis.advice), ("to be known", &diagnosis.warnings)]
    {
        if !lines.is_empty() {
            println!("\n{heading}:");
            for line in lines {
                println!("  {}", in_lines(line.split_whitespace(), " ", ROOM).join("\n    "));
            }
        }
    }
}

/// A column for each domain: what its latency is made of stands below it.
fn table(diagnosis: &Diagnosis) -> Table {
    let domains = diagnosis.domains.iter().map(|view| Column { align: Align::Right, ..Column::text(view.name) });
    let mut table = Table::new(std::iter::once(Column::text("")).chain(domains));
    let nanoseconds = |time: f64| format!("{time:.0} ns");
    type Of<'a> = &'a dyn Fn(&DomainView) -> String;
    let rows: [(&str, Of<'_>); 10] = [
        ("throughput", &|view| format!("{:.1} GB/s", view.gb_s)),
        ("credits in use", &|view| format!("{:.0} of {:.0}", view.credits[0], view.credits[1])),
        ("latency", &|view| nanoseconds(view.latency_ns)),
        ("  unloaded", &|view| nanoseconds(view.unloaded_ns)),
        ("  changes between reading and writing", &|view| nanoseconds(view.parts.switching)),
        ("  lines of the other direction", &|view| nanoseconds(view.parts.other_direction)),
        ("  lines of the same direction", &|view| nanoseconds(view.parts.same_direction)),
        ("  rows that have to be opened", &|view| nanoseconds(view.parts.top_of_queue)),
        ("  admission to the home agent", &|view| view.admission_ns.map_or("not counted".to_owned(), nanoseconds)),
        ("  unexplained", &|view| nanoseconds(view.unexplained_ns)),
    ];
    for (name, of) in rows {
        table.row(std::iter::once(Cell::from(name)).chain(diagnosis.domains.iter().map(|view| Cell::from(of(view)))));
    }
    table
}
