//! `conic study coherent-pio`: what the coherent programmed I/O paper measured, predicted on a modelled Enzian.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conic_sim::eci::EciParameters;
use conic_sim::platform::Platform;
use conic_study::coherent_pio::{EXPERIMENTS, HEADLINES, Machines, WHAT_IF, findings, headlines, headlines_beside};
use conic_study::comparison::Row;
use conic_study::experiment::chosen;
use conic_study::report::COHERENT_PIO;
use conic_study::sensitivity::{Guess, Movement, Moves, moved};

use super::paper::{Outcome, Paper, Predicted, one_table};
use super::{Manner, Shown, guesses, progress};
use crate::bench::failure::Failure;
use crate::writable;

/// Predict what the coherent programmed I/O paper measured on Enzian
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Figures of the paper: 1, 2, 6, 7, 8, 10, table1, 11, 12, terms, and cxl3-mem, a what-if [default: all of these]
    #[arg(value_name = "FIGURE")]
    figures: Vec<String>,
    #[command(flatten)]
    manner: Manner,
    /// The folder for results.json, the plots and report.html
    #[arg(long, value_name = "DIR", default_value = "out/study/coherent-pio")]
    output: PathBuf,
    /// Replace a value of the platform enzian, as in link.crossing=100ns, or of cxl3-mem, as in cxl3-mem:link.crossing=40ns; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

const EXAMPLES: &str = "Examples:
  conic study coherent-pio              every figure that is modelled
  conic study coherent-pio 6            a line there and back
  conic study coherent-pio table1 --set directory.pass=20ns
  conic study coherent-pio cxl3-mem --set cxl3-mem:link.crossing=40ns
  conic study coherent-pio --sensitivity    what the platforms' guesses decide

PCIe is modelled on Enzian (platform enzian-pcie) and on the PC of the paper's calibration (pc-pcie), FastForward between two sockets of \
Enzian's CPU (thunderx).

Figures 11 and 12 run Timely graphs for real with a device on the simulator; the time of a batch is that of the modelled machine \
alone: exchanges as simulated, copies by its loads and stores, Timely's own work by the platform's table [software].

terms says what a line there and back (returned Exclusive and Shared) and a frame of 64 bytes (received, transmitted) consist of.

cxl3-mem is no machine that exists: its results have ids that begin with pio.whatif, and stand apart.";

/// What an override of cxl3-mem begins with.
const OF_CXL: &str = "cxl3-mem:";

const PAPER: Paper = Paper {
    subject: COHERENT_PIO,
    file: "results/coherent-pio.toml",
    published: include_str!("../../../results/coherent-pio.toml"),
};

/// Runs the command.
pub fn main(options: &Options) -> ExitCode {
    let shown = run(options).map(|shown| shown.print(options.manner.json));
    shown.unwrap_or_else(|message| Failure::failed(message).report(options.manner.json))
}

fn run(options: &Options) -> Result<Shown, String> {
    let experiments = chosen(EXPERIMENTS, &options.figures)?;
    let of_cxl = |text: &String| text.strip_prefix(OF_CXL).map(str::to_owned);
    let enzian: Vec<String> = options.overrides.iter().filter(|text| of_cxl(text).is_none()).cloned().collect();
    let cxl: Vec<String> = options.overrides.iter().filter_map(of_cxl).collect();
    let lines = |name, overrides: &[String]| {
        let platform = Platform::<EciParameters>::load_as(name).and_then(|platform| platform.with(overrides));
        platform.map_err(|error| error.to_string())
    };
    let (platform, cxl) = (lines("enzian", &enzian)?, lines("cxl3-mem", &cxl)?);
    let thunderx: Platform = Platform::load("thunderx").map_err(|error| error.to_string())?;
    let over_pcie = |name| Platform::load(name).map_err(|error| error.to_string());
    let (enzian_pcie, pc_pcie): (Platform, Platform) = (over_pcie("enzian-pcie")?, over_pcie("pc-pcie")?);
    writable::folder(&options.output, "--output").map_err(|failure| failure.message)?;
    let machines = Machines {
        enzian: platform.parameters().clone(),
        enzian_pcie: enzian_pcie.parameters().clone(),
        pc_pcie: pc_pcie.parameters().clone(),
        thunderx: thunderx.parameters().clone(),
        cxl: cxl.parameters().clone(),
    };
    let effort = options.manner.effort();
    let platforms = [platform.name(), enzian_pcie.name(), pc_pcie.name(), thunderx.name(), cxl.name()];
    let predicted =
        |outcome| Predicted { paper: PAPER, effort, platforms: platforms.map(str::to_owned).to_vec(), outcome };
    if options.manner.sensitivity {
        let guesses = guesses::of_coherent_pio([&platform, &cxl], &thunderx, [&enzian_pcie, &pc_pcie], &machines)?;
        let movements = movements(&guesses, &machines);
        let mut shown = predicted(Outcome::Moved(&movements)).shown(&options.output, tables)?;
        shown.text += &intervals(&movements.movements);
        return Ok(shown);
    }
    let found = progress::figures(&experiments, |one| findings(one, &machines, effort));
    predicted(Outcome::Found(&found, options.figures.is_empty())).shown(&options.output, tables)
}

/// The results, those of a machine that does not exist apart.
fn tables(rows: &[Row]) -> String {
    let (what_if, compared): (Vec<_>, Vec<_>) = rows.iter().cloned().partition(|row| row.id.starts_with(WHAT_IF));
    let mut text = String::new();
    if !compared.is_empty() {
        text += &one_table(&compared);
    }
    if !what_if.is_empty() {
        text += "\nWhat if, over CXL.mem 3.0 with back-invalidate: nobody measured this, and nearly every value of cxl3-mem is a guess\n";
        text += &one_table(&what_if);
    }
    text
}

/// Between what each headline result lies when one guess after the other goes over its range.
fn intervals(movements: &[Movement]) -> String {
    let of = |own: &[Movement]| {
        let ends = own.iter().flat_map(|one| one.ends);
        let (low, high) = ends.fold((own[0].nominal, own[0].nominal), |(low, high), end| (low.min(end), high.max(end)));
        format!("{}: {:.3}, {low:.3} to {high:.3} {}\n", own[0].headline, own[0].nominal, own[0].unit)
    };
    let each = movements.chunk_by(|one, other| one.headline == other.headline).map(of);
    "with one guess at an end of its range, the others as they are:\n".to_owned() + &each.collect::<String>()
}

/// How far each guess moves the headline results.
fn movements(guesses: &[Guess<Machines>], machines: &Machines) -> Moves {
    let nominal = headlines(machines);
    let beside = |changed: &Machines| headlines_beside(changed, machines, &nominal);
    let of = |guess: &Guess<Machines>| guess.platforms.each_ref().map(beside);
    let ends = progress::on_all_cores("guesses", guesses, of);
    moved(&HEADLINES, &nominal, guesses.iter().zip(ends))
}
