//! `conic study cni`: what the CNI paper found by simulation, predicted on the same machine as it describes it.

use std::process::ExitCode;

use clap::Args;
use conic_sim::bus::BusParameters;
use conic_study::cni::{EXPERIMENTS, HEADLINES, findings};
use conic_study::report::CNI;

use super::one_platform::{Common, Study};
use super::paper::Paper;
use crate::spread;

/// Predict what the CNI paper (ISCA 1996) found on nodes with snooping buses
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Figures of the paper: 6, 7, 8; and local: two processors on one bus [default: all of these]
    #[arg(value_name = "FIGURE")]
    figures: Vec<String>,
    #[command(flatten)]
    common: Common,
}

const EXAMPLES: &str = "Examples:
  conic study cni                       every figure that is modelled
  conic study cni 6                     round-trip latency on the memory, the I/O and the cache bus
  conic study cni 7 --quick --set io.refusal=12
  conic study cni --sensitivity         what the guesses of the platform hypersparc decide

Messages are of the user's: each is one or more network messages of 256 bytes, 12 of them header, copied out of a buffer of the \
sender's and into one of the receiver's. An interface is so much better than another as its latency, or its bandwidth, is a smaller or \
larger part of the other's: 0.5 is half as much again.";

/// Runs the command.
pub fn main(options: &Options) -> ExitCode {
    let study: Study<BusParameters, _> = Study {
        paper: Paper { subject: CNI, file: "results/cni.toml", published: include_str!("../../../results/cni.toml") },
        folder: "out/study/cni",
        platforms: &["hypersparc"],
        experiments: EXPERIMENTS,
        findings: |experiments, platforms, effort| {
            findings(experiments, &platforms[0], effort, |cases, run| spread::on_all_cores(cases, run))
        },
        headlines: &HEADLINES,
    };
    study.main(&options.figures, &options.common)
}
