//! `conic study host-network`: what the paper on the host network measured, predicted on a modelled host.

use std::process::ExitCode;

use clap::Args;
use conic_sim::host::HostParameters;
use conic_study::host_network::{EXPERIMENTS, HEADLINES, findings};
use conic_study::report::HOST_NETWORK;

use super::one_platform::{Common, Study};
use super::paper::Paper;

/// Predict what the paper on the host network (SIGCOMM 2024) measured
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Figures of the paper: 3, 6, 7, 8, 11, 12 [default: all of these]
    #[arg(value_name = "FIGURE")]
    figures: Vec<String>,
    #[command(flatten)]
    common: Common,
}

const EXAMPLES: &str = "Cores (C2M) and devices (P2M) that share a host's memory, in four quadrants: cores that read or that store (a read and a write for \
each line), beside devices that write to memory (a storage device that is read from) or read from it. Degradation is throughput alone over throughput \
together.

Examples:
  conic study host-network              every figure that is modelled
  conic study host-network 3            who degrades beside whom
  conic study host-network 3 8 --quick --set iio.write_credits=128
  conic study host-network --sensitivity    what the guesses of the platform cascade-lake decide";

/// Runs the command.
pub fn main(options: &Options) -> ExitCode {
    let study: Study<HostParameters, _> = Study {
        paper: Paper {
            subject: HOST_NETWORK,
            file: "results/host-network.toml",
            published: include_str!("../../../results/host-network.toml"),
        },
        folder: "out/study/host-network",
        platform: "cascade-lake",
        experiments: EXPERIMENTS,
        findings,
        headlines: &HEADLINES,
    };
    study.main(&options.figures, &options.common)
}
