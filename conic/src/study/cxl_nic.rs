//! `conic study cxl-nic`: what the CXL-NIC paper measured, predicted on a modelled host with either of its devices.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conic_chart::{Cell, Column, Table, TerminalStyle};
use conic_sim::cxl::CxlParameters;
use conic_sim::platform::Platform;
use conic_study::cxl_nic::{Asked, EXPERIMENTS, Experiment, Machines, PRESSURE, findings, guesses as orderings};
use conic_study::experiment::chosen;
use conic_study::report::CXL_NIC;
use conic_study::sensitivity::{self, Guess};
use serde_json::json;

use super::paper::{Outcome, Paper, Predicted, one_table};
use super::{Manner, Shown, guesses, progress};
use crate::bench::failure::Failure;
use crate::writable;

/// Predict what the CXL-NIC paper (MICRO 2025) measured
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Figures of the paper: 3, 4, 7, 10 to 15; and pressure: pushes beside neighbours in the last-level cache [default: all of these]
    #[arg(value_name = "FIGURE")]
    figures: Vec<String>,
    #[command(flatten)]
    manner: Manner,
    /// The folder for results.json, the plots and report.html
    #[arg(long, value_name = "DIR", default_value = "out/study/cxl-nic")]
    output: PathBuf,
    /// For pressure: what the neighbours walk through, over the last-level cache, from the least on [default: 0.25,0.5,0.75,1,1.5]
    #[arg(long = "working-set", value_name = "PART,...", value_delimiter = ',', value_parser = part,
          conflicts_with = "sensitivity")]
    working_sets: Vec<f64>,
    /// For pressure: after how many of the device's cycles a pushed packet is written back [default: 1.25 times as long as it waits]
    #[arg(long, value_name = "CYCLES", value_parser = clap::value_parser!(u32).range(1..),
          conflicts_with = "sensitivity")]
    write_back: Option<u32>,
    /// Replace a value of both platforms, as in link.crossing=60ns; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

const EXAMPLES: &str = "Examples:
  conic study cxl-nic                   every figure that is modelled
  conic study cxl-nic 4 7               single operations over PCIe and CXL
  conic study cxl-nic pressure --working-set 0.5,1,2 --write-back 20000
  conic study cxl-nic --sensitivity     what the platforms' guesses decide, orderings among it (about six minutes)
  conic study cxl-nic 10 --quick --set device.receive_stage=50ns";

const PAPER: Paper =
    Paper { subject: CXL_NIC, file: "results/cxl-nic.toml", published: include_str!("../../../results/cxl-nic.toml") };

/// Runs the command.
pub fn main(options: &Options) -> ExitCode {
    let result = if options.manner.sensitivity { guessed(options) } else { run(options) };
    result
        .map(|shown| shown.print(options.manner.json))
        .unwrap_or_else(|message| Failure::failed(message).report(options.manner.json))
}

/// The two platforms, with what the user replaces.
fn platforms(options: &Options) -> Result<[Platform<CxlParameters>; 2], String> {
    let load = |name| {
        let platform = Platform::<CxlParameters>::load_as(name).and_then(|platform| platform.with(&options.overrides));
        platform.map_err(|error| error.to_string())
    };
    Ok([load("agilex7")?, load("bf3")?])
}

/// What a guess at both ends of its range brings: the orderings, and the headline results.
type Ends = [(Vec<bool>, Vec<Option<f64>>); 2];

/// Says which orderings hold as it is, which a guess turns over, and how far the headline results move.
fn guessed(options: &Options) -> Result<Shown, String> {
    let [agilex, bluefield] = platforms(options)?;
    writable::folder(&options.output, "--output").map_err(|failure| failure.message)?;
    let machines = Machines { agilex: agilex.parameters().clone(), bluefield: bluefield.parameters().clone() };
    let of = |machines: &Machines| {
        let orderings = orderings::orderings(machines).map_err(|failure| failure.to_string())?;
        Ok::<_, String>((orderings, orderings::headlines(machines)))
    };
    let nominal = of(&machines)?;
    let varied = guesses::of_cxl_nic(&agilex, &bluefield)?;
    let of_both = |guess: &Guess<Machines>| {
        let [low, high] = &guess.platforms;
        Ok([of(low)?, of(high)?])
    };
    let ends =
        progress::on_all_cores("guesses", &varied, of_both).into_iter().collect::<Result<Vec<Ends>, String>>()?;
    let moves = sensitivity::moved(
        &orderings::HEADLINES,
        &nominal.1,
        varied.iter().zip(ends.iter().map(|[low, high]| [&low.1, &high.1])),
    );
    let (mut table, mut said) = (Table::new(["ordering", "guess", "value", "holds"].map(Column::text)), Vec::new());
    let holds = |holds: bool| if holds { "yes" } else { "no" };
    for (index, name) in orderings::ORDERINGS.iter().enumerate() {
        table.row([*name, "as it is", "", holds(nominal.0[index])].map(Cell::from));
        said.push(json!({ "ordering": name, "holds": nominal.0[index] }));
        for (guess, ends) in varied.iter().zip(&ends) {
            for (value, (found, _)) in guess.range.iter().zip(ends).filter(|(_, end)| end.0[index] != nominal.0[index])
            {
                table.row([*name, &guess.name, value, holds(found[index])].map(Cell::from));
                said.push(json!({ "ordering": name, "guess": guess.name, "value": value, "holds": found[index] }));
            }
        }
    }
    let predicted = Predicted {
        paper: PAPER,
        effort: options.manner.effort(),
        platforms: vec![agilex.name().to_owned(), bluefield.name().to_owned()],
        outcome: Outcome::Moved(&moves),
    };
    let mut shown = predicted.shown(&options.output, one_table)?;
    let others = format!(
        "Both ends of {} guesses; every ordering that is not listed beside a guess is as it is.\n\n",
        varied.len()
    );
    shown.text = table.draw(TerminalStyle::default()) + &others + &shown.text;
    let mut all: Vec<serde_json::Value> = serde_json::from_str(&shown.json).map_err(|error| error.to_string())?;
    all.extend(said);
    shown.json = format!("{}\n", serde_json::Value::from(all));
    Ok(shown)
}

/// A part of the last-level cache.
fn part(text: &str) -> Result<f64, String> {
    let part: f64 = text.parse().map_err(|_| "give a part of the last-level cache, such as 0.5".to_owned())?;
    if (0.01..=4.0).contains(&part) { Ok(part) } else { Err("give 0.01 to 4".to_owned()) }
}

/// What these experiments are asked for.
fn asked(options: &Options, experiments: &[Experiment]) -> Result<Asked, String> {
    let mut asked = Asked { write_back: options.write_back, ..Asked::with(options.manner.effort()) };
    let given = [("--working-set", !options.working_sets.is_empty()), ("--write-back", options.write_back.is_some())];
    if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given)
        && experiments.iter().all(|experiment| experiment.name != PRESSURE)
    {
        return Err(format!("{option} goes with {PRESSURE}, which is not among what is asked for"));
    }
    if !options.working_sets.is_empty() {
        asked.working_sets.clone_from(&options.working_sets);
        asked.working_sets.sort_by(f64::total_cmp);
        asked.working_sets.dedup();
    }
    Ok(asked)
}

fn run(options: &Options) -> Result<Shown, String> {
    let experiments = chosen(EXPERIMENTS, &options.figures)?;
    let [agilex, bluefield] = platforms(options)?;
    writable::folder(&options.output, "--output").map_err(|failure| failure.message)?;
    let machines = Machines { agilex: agilex.parameters().clone(), bluefield: bluefield.parameters().clone() };
    let asked = asked(options, &experiments)?;
    let found = progress::figures(&experiments, |one| findings(one, &machines, &asked));
    let predicted = Predicted {
        paper: PAPER,
        effort: asked.effort,
        platforms: vec![agilex.name().to_owned(), bluefield.name().to_owned()],
        outcome: Outcome::Found(&found, options.figures.is_empty()),
    };
    predicted.shown(&options.output, one_table)
}
