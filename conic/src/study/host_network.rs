//! `conic study host-network`: what the paper on the host network measured, predicted on a modelled host.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conic_chart::TerminalStyle;
use conic_sim::host::HostParameters;
use conic_sim::platform::Platform;
use conic_study::comparison::{compare, parse, summary};
use conic_study::experiment::{Effort, chosen};
use conic_study::host_network::{EXPERIMENTS, findings};
use conic_study::report::{HOST_NETWORK, Report, json, results};

use super::{Shown, output, progress};
use crate::bench::failure::Failure;
use crate::writable;

/// Predict what the paper on the host network (SIGCOMM 2024) measured
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Figures of the paper: 3, 6, 7, 8, 11, 12 [default: all of these]
    #[arg(value_name = "FIGURE")]
    figures: Vec<String>,
    /// A shorter time a point
    #[arg(long)]
    quick: bool,
    /// Print one JSON array on stdout and nothing else there; an error as one JSON object
    #[arg(long)]
    json: bool,
    /// The folder for results.json, the plots and report.html
    #[arg(long, value_name = "DIR", default_value = "out/study/host-network")]
    output: PathBuf,
    /// Replace a value of the platform, as in iio.write_credits=128; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

const EXAMPLES: &str = "Cores (C2M) and devices (P2M) that share a host's memory, in four quadrants: cores that read or that store (a read and a write for \
each line), beside devices that write to memory (a storage device that is read from) or read from it. Degradation is throughput alone over throughput \
together.

Examples:
  conic study host-network              every figure that is modelled
  conic study host-network 3            who degrades beside whom
  conic study host-network 3 8 --quick --set iio.write_credits=128";

/// What the paper published. Only the comparison gets it, after everything has been predicted.
const PUBLISHED: &str = include_str!("../../../results/host-network.toml");

/// Runs the command.
pub fn main(options: &Options) -> ExitCode {
    run(options)
        .map(|shown| shown.print(options.json))
        .unwrap_or_else(|message| Failure::failed(message).report(options.json))
}

fn run(options: &Options) -> Result<Shown, String> {
    let experiments = chosen(EXPERIMENTS, &options.figures)?;
    let platform = Platform::<HostParameters>::load_as("cascade-lake")
        .and_then(|platform| platform.with(&options.overrides))
        .map_err(|error| error.to_string())?;
    writable::folder(&options.output, "--output").map_err(|failure| failure.message)?;
    let effort = if options.quick { Effort::Quick } else { Effort::Full };
    let found = progress::figures(&experiments, |one| findings(one, platform.parameters(), effort));
    let predictions: Vec<_> = found.iter().flat_map(|found| found.findings.predictions.clone()).collect();
    // From here on, and not before, published values are known.
    let published = parse(PUBLISHED).map_err(|error| format!("results/host-network.toml: {error}"))?;
    let rows = compare(&predictions, &published, options.figures.is_empty())?;
    let summary = summary(&rows);
    let report = Report {
        subject: HOST_NETWORK,
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
