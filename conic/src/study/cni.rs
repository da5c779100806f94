//! `conic study cni`: what the CNI paper found by simulation, predicted on the same machine as it describes it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conic_chart::TerminalStyle;
use conic_sim::bus::BusParameters;
use conic_sim::platform::Platform;
use conic_study::cni::{EXPERIMENTS, findings};
use conic_study::comparison::{compare, parse, summary};
use conic_study::experiment::{Effort, chosen};
use conic_study::report::{CNI, Report, json, results};

use super::{Shown, output, progress};
use crate::bench::failure::Failure;
use crate::writable;

/// Predict what the CNI paper (ISCA 1996) found on nodes with snooping buses
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Figures of the paper: 6, 7, 8; and local: two processors on one bus [default: all of these]
    #[arg(value_name = "FIGURE")]
    figures: Vec<String>,
    /// Fewer messages a point
    #[arg(long)]
    quick: bool,
    /// Print one JSON array on stdout and nothing else there; an error as one JSON object
    #[arg(long)]
    json: bool,
    /// The folder for results.json, the plots and report.html
    #[arg(long, value_name = "DIR", default_value = "out/study/cni")]
    output: PathBuf,
    /// Replace a value of the platform hypersparc, as in bus.invalidate=8; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

const EXAMPLES: &str = "Examples:
  conic study cni                       every figure that is modelled
  conic study cni 6                     round-trip latency on the memory, the I/O and the cache bus
  conic study cni 7 --quick --set io.refusal=12

Messages are of the user's: each is one or more network messages of 256 bytes, 12 of them header, copied out of a buffer of the \
sender's and into one of the receiver's. An interface is so much better than another as its latency, or its bandwidth, is a smaller or \
larger part of the other's: 0.5 is half as much again.";

/// What the paper published. Only the comparison gets it, after everything has been predicted.
const PUBLISHED: &str = include_str!("../../../results/cni.toml");

/// Runs the command.
pub fn main(options: &Options) -> ExitCode {
    let shown = run(options).map(|shown| shown.print(options.json));
    shown.unwrap_or_else(|message| Failure::failed(message).report(options.json))
}

fn run(options: &Options) -> Result<Shown, String> {
    let experiments = chosen(EXPERIMENTS, &options.figures)?;
    let platform = Platform::<BusParameters>::load_as("hypersparc").and_then(|one| one.with(&options.overrides));
    let platform = platform.map_err(|error| error.to_string())?;
    writable::folder(&options.output, "--output").map_err(|failure| failure.message)?;
    let effort = if options.quick { Effort::Quick } else { Effort::Full };
    let found = progress::figures(&experiments, |one| findings(one, platform.parameters(), effort));
    let predictions: Vec<_> = found.iter().flat_map(|found| found.findings.predictions.clone()).collect();
    // From here on, and not before, published values are known.
    let published = parse(PUBLISHED).map_err(|error| format!("results/cni.toml: {error}"))?;
    let rows = compare(&predictions, &published, options.figures.is_empty())?;
    let summary = summary(&rows);
    let report = Report {
        subject: CNI,
        effort,
        platforms: vec![platform.name().to_owned()],
        found: &found,
        rows: &rows,
        summary: &summary,
        movements: &[],
    };
    let path = output::write(&options.output, &report)?;
    Ok(Shown::of(&report, path, results(&rows).draw(TerminalStyle::default()), json(&rows)))
}
