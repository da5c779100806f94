//! `conic study coherent-pio`: what the coherent programmed I/O paper measured, predicted on a modelled Enzian.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conic_chart::TerminalStyle;
use conic_sim::eci::EciParameters;
use conic_sim::platform::Platform;
use conic_study::coherent_pio::{Machines, chosen, findings};
use conic_study::comparison::{compare, parse, summary};
use conic_study::experiment::Effort;
use conic_study::report::{COHERENT_PIO, Report, json, results, summary_lines};
use serde_json::json;

use super::{Shown, output};

/// Predict what the coherent programmed I/O paper measured on Enzian
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Figures of the paper: 1, 2, 6, 7, 8, 10, table1 [default: all of these]
    #[arg(value_name = "FIGURE")]
    figures: Vec<String>,
    /// Fewer exchanges a point
    #[arg(long)]
    quick: bool,
    /// Print one JSON array on stdout and nothing else there; an error as one JSON object
    #[arg(long)]
    json: bool,
    /// The folder for results.json, the plots and report.html
    #[arg(long, value_name = "DIR", default_value = "out/study/coherent-pio")]
    output: PathBuf,
    /// Replace a value of the platform enzian, as in link.crossing=100ns; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

const EXAMPLES: &str = "Examples:
  conic study coherent-pio              every figure that is modelled
  conic study coherent-pio 6            a line there and back
  conic study coherent-pio table1 --set directory.pass=20ns

PCIe is modelled on Enzian (platform enzian-pcie) and on the PC of the paper's calibration (pc-pcie). Not modelled so far: FastForward
between sockets, and stream operators.";

/// What the paper published. Only the comparison gets it, after everything has been predicted.
const PUBLISHED: &str = include_str!("../../../results/coherent-pio.toml");

/// Runs the command.
pub fn main(options: &Options) -> ExitCode {
    match run(options) {
        Ok(shown) => shown.print(options.json),
        Err(message) if options.json => {
            println!("{}", json!({ "error": message }));
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<Shown, String> {
    let experiments = chosen(&options.figures)?;
    let platform = Platform::<EciParameters>::load_as("enzian").and_then(|platform| platform.with(&options.overrides));
    let platform = platform.map_err(|error| error.to_string())?;
    let effort = if options.quick { Effort::Quick } else { Effort::Full };
    let over_pcie = |name| Platform::load(name).map_err(|error| error.to_string());
    let (enzian_pcie, pc_pcie): (Platform, Platform) = (over_pcie("enzian-pcie")?, over_pcie("pc-pcie")?);
    let machines = Machines {
        enzian: platform.parameters().clone(),
        enzian_pcie: enzian_pcie.parameters().clone(),
        pc_pcie: pc_pcie.parameters().clone(),
    };
    let found = findings(&experiments, &machines, effort);
    let predictions: Vec<_> = found.iter().flat_map(|found| found.findings.predictions.clone()).collect();
    // From here on, and not before, published values are known.
    let published = parse(PUBLISHED).map_err(|error| format!("results/coherent-pio.toml: {error}"))?;
    let rows = compare(&predictions, &published, options.figures.is_empty())?;
    let summary = summary(&rows);
    let report = Report {
        subject: COHERENT_PIO,
        effort,
        platforms: [platform.name(), enzian_pcie.name(), pc_pcie.name()].map(str::to_owned).to_vec(),
        found: &found,
        rows: &rows,
        summary: &summary,
        movements: &[],
    };
    let path = output::write(&options.output, &report)?;
    let mut text = results(&rows).draw(TerminalStyle::default());
    for line in summary_lines(&summary).into_iter().chain(report.warnings()) {
        text += &format!("{line}\n");
    }
    let failed = found.iter().any(|found| !found.failures.is_empty());
    Ok(Shown { json: json(&rows), text, report: path, interrupted: false, failed })
}
