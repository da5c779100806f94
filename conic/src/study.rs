//! `conic study`: the papers' experiments, predicted by simulation, beside what was published.

mod cni;
mod coherent_pio;
mod cxl_nic;
mod guesses;
mod host_network;
mod kept;
mod one_platform;
mod output;
mod paper;
mod progress;
mod runner;
#[cfg(test)]
mod tests;
mod version;

use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use conic_native::Flag;
use conic_study::ask::Answers;
use conic_study::experiment::{EXPERIMENTS, Effort, Experiment, Platforms, Setting, chosen, findings, questions};
use conic_study::report::{CC_NIC, Report, summary_lines};
use conic_study::sensitivity::{self, Guess};
use conic_study::simulated::Simulator;
use conic_study::workload::Machine;

use crate::bench::failure::Failure;
use crate::writable;
use kept::Kept;
use paper::{Outcome, Paper, Predicted, one_table};
use progress::Progress;
use runner::{Ended, Runner};

/// Options of `conic study`.
#[derive(Debug, Args)]
#[command(after_help = STUDIES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const STUDIES: &str = "Examples:
  conic study ccnic --quick             the CC-NIC paper's evaluation, roughly
  conic study coherent-pio 6            a line there and back on a modelled Enzian
  conic study cxl-nic 4 7               single operations over PCIe and CXL
  conic study cni 6                     round trips over five network interfaces on snooping buses
  conic study host-network --quick      cores and devices that share a host's memory
  conic study native --quick            this machine's own model, beside what is measured

Each shows its results beside the published ones, `native` beside measured ones; all but that write plots and one HTML page below out/study.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Predict what the CC-NIC paper (ASPLOS 2024) measured
    Ccnic(Options),
    CoherentPio(coherent_pio::Options),
    CxlNic(cxl_nic::Options),
    Cni(cni::Options),
    HostNetwork(host_network::Options),
    Native(Box<crate::study_native::Arguments>),
}

/// How a study is run and shown, whichever paper's it is; beside its argument `figures`.
#[derive(Debug, Args)]
struct Manner {
    /// Less of everything: fewer points, fewer packets or exchanges a point
    #[arg(long)]
    quick: bool,
    /// Print one JSON array on stdout and nothing else there; an error as one JSON object
    #[arg(long)]
    json: bool,
    /// Show how far the headline results move when each guess of the platforms goes over its range, with little effort a point
    #[arg(long, conflicts_with = "figures")]
    sensitivity: bool,
}

impl Manner {
    fn effort(&self) -> Effort {
        if self.quick || self.sensitivity { Effort::Quick } else { Effort::Full }
    }
}

/// Options of `conic study ccnic`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct Options {
    /// Figures of the paper, such as 2, 12 or 14a, or table1, mmio, read-only, cores, beyond; 19 has Table 2's key-value store, too, and table2 its TCP echo [default: all]
    #[arg(value_name = "FIGURE")]
    figures: Vec<String>,
    #[command(flatten)]
    manner: Manner,
    /// The folder for results.json, the plots and report.html
    #[arg(long, value_name = "DIR", default_value = "out/study/ccnic")]
    output: PathBuf,
    /// The folder in which finished points are kept for the next time
    #[arg(long, value_name = "DIR", default_value = "out/study/points")]
    points: PathBuf,
    /// Simulate every point anew
    #[arg(long)]
    fresh: bool,
    /// Points that are simulated at once [default: one a core]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

const EXAMPLES: &str = "Examples:
  conic study ccnic --quick             every figure, roughly
  conic study ccnic                     every figure
  conic study ccnic 12 13 cores         some of them
  conic study ccnic --sensitivity       what the platforms' guesses decide

Ctrl-C ends a study with what is finished, and a second one at once; finished points are kept, so that the same command goes \
on where it stopped. A point is simulated anew when the program has changed.

Roles of results:
  calibration    the platforms were fitted to it
  prediction     nothing was fitted to it; its error counts
  bound, statement   the same of what has no value
  indicative     the same, but what was run is published in part only: its error is shown and does not count
  withheld       a blind test: what was published is not known here
  not-modelled   no prediction is made of it
  unpublished    predicted, and not in the paper";

const PAPER: Paper =
    Paper { subject: CC_NIC, file: "results/ccnic.toml", published: include_str!("../../results/ccnic.toml") };

/// Runs the command.
pub fn main(arguments: &Arguments) -> ExitCode {
    let options = match &arguments.command {
        Command::Ccnic(options) => options,
        Command::CoherentPio(options) => return coherent_pio::main(options),
        Command::CxlNic(options) => return cxl_nic::main(options),
        Command::Cni(options) => return cni::main(options),
        Command::HostNetwork(options) => return host_network::main(options),
        Command::Native(arguments) => return crate::study_native::main(arguments),
    };
    run(options).unwrap_or_else(|message| Failure::failed(message).report(options.manner.json))
}

fn run(options: &Options) -> Result<ExitCode, String> {
    let experiments = chosen(EXPERIMENTS, &options.figures)?;
    let (platforms, guesses) = guesses::load(options.manner.sensitivity)?;
    for (folder, option) in [(&options.output, "--output"), (&options.points, "--points")] {
        writable::folder(folder, option).map_err(|failure| failure.message)?;
    }
    let stop = Arc::new(Flag::new());
    let raised = Arc::clone(&stop);
    let handler = move || {
        // The second time, nobody wants to wait for the points that are being simulated.
        if raised.is_up() {
            std::process::exit(130);
        }
        raised.raise();
    };
    ctrlc::set_handler(handler).map_err(|error| format!("Ctrl-C cannot be caught: {error}"))?;
    let study = Study { experiments, platforms, guesses, model: version::version()?, options };
    let shown = study.run(&Simulator, &stop)?;
    Ok(shown.print(options.manner.json))
}

/// A study that is to be run.
struct Study<'a> {
    experiments: Vec<Experiment>,
    platforms: Platforms,
    /// Empty where sensitivity is not asked.
    guesses: Vec<Guess>,
    /// What gives the answers, and in which version.
    model: String,
    options: &'a Options,
}

/// What a study shows when it has ended.
#[derive(Debug)]
struct Shown {
    /// For programs.
    json: String,
    /// For people.
    text: String,
    /// Where the report is.
    report: PathBuf,
    /// Whether it was interrupted, and whether any point failed.
    interrupted: bool,
    failed: bool,
    /// What is to be known of the results, each point that failed with its reason; the text has it, too.
    warnings: Vec<String>,
}

impl Study<'_> {
    fn run(&self, machine: &impl Machine, stop: &Flag) -> Result<Shown, String> {
        let options = self.options;
        let setting = Setting { platforms: self.platforms.clone(), effort: options.manner.effort(), seed: 1 };
        let workers = options.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        let mut runner = Runner {
            machine,
            workers,
            kept: Kept::new(&options.points, &self.model, options.fresh)?,
            stop,
            progress: Progress::new("points"),
        };
        let mut answers = Answers::default();
        let ended = runner.run(&mut answers, |answers| {
            if options.manner.sensitivity {
                sensitivity::questions(&setting, &self.guesses, answers)
            } else {
                questions(&self.experiments, &setting, answers)
            }
        })?;
        let shown = self.shown(&setting, &answers, ended)?;
        Ok(shown)
    }

    fn shown(&self, setting: &Setting, answers: &Answers, ended: Ended) -> Result<Shown, String> {
        let options = self.options;
        let experiments = if options.manner.sensitivity { &[][..] } else { &self.experiments[..] };
        let found = findings(experiments, setting, answers);
        let movements = sensitivity::movements(setting, &self.guesses, answers);
        let platforms = &self.platforms;
        let machines = [&platforms.icx, &platforms.spr, &platforms.icx_cx6, &platforms.icx_e810];
        let predicted = Predicted {
            paper: PAPER,
            effort: setting.effort,
            platforms: machines.iter().map(|machine| machine.name.clone()).collect(),
            outcome: if options.manner.sensitivity {
                Outcome::Moved(&movements)
            } else {
                Outcome::Found(&found, options.figures.is_empty())
            },
        };
        let mut shown = Shown { interrupted: ended.interrupted, ..predicted.shown(&options.output, one_table)? };
        shown.text += &format!("{} points simulated, {} kept from before", ended.simulated, ended.kept);
        shown.text += if ended.interrupted { "; interrupted: the same command goes on from here\n" } else { "\n" };
        Ok(shown)
    }
}

impl Shown {
    /// Of a report that has been written there: its tables, and behind them its summary and what is to be known of it.
    fn of(report: &Report<'_>, written: PathBuf, tables: String, json: String) -> Shown {
        let (mut text, warnings) = (tables, report.warnings());
        for line in summary_lines(report.summary).iter().chain(&warnings) {
            text += &format!("{line}\n");
        }
        let failed = report.has_failed();
        Shown { json, text, report: written, interrupted: false, failed, warnings }
    }

    /// Prints it; the last line says where the report is.
    fn print(&self, as_json: bool) -> ExitCode {
        if as_json {
            print!("{}", self.json);
            if self.failed {
                self.warnings.iter().for_each(|warning| eprintln!("{warning}"));
            }
            if std::io::stderr().is_terminal() {
                eprintln!("report: {}", self.report.display());
            }
        } else {
            print!("{}", self.text);
            println!("report: {}", self.report.display());
        }
        match (self.interrupted, self.failed) {
            (true, _) => ExitCode::from(130),
            (false, true) => ExitCode::FAILURE,
            (false, false) => ExitCode::SUCCESS,
        }
    }
}
