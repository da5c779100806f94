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
    /// Figures of the paper: 1, 2, 3, 6, 7, 8, 11, 12; rdma: the quadrants with a NIC [default: all of these]
    #[arg(value_name = "FIGURE")]
    figures: Vec<String>,
    #[command(flatten)]
    common: Common,
}

const EXAMPLES: &str = "Cores (C2M) and devices (P2M) that share a host's memory, in four quadrants: cores that read or that store (a read and a write for \
each line), beside devices that write to memory (a storage device that is read from) or read from it, or a NIC that does; and applications, Redis and \
PageRank, beside storage devices. Degradation is throughput alone over throughput together. Figure 1 is on the platform ice-lake, all others are on \
cascade-lake; --set replaces a value of both.

Examples:
  conic study host-network              every figure that is modelled
  conic study host-network 1 2          applications beside storage devices, with direct cache access and without
  conic study host-network 3 rdma       who degrades beside whom
  conic study host-network 3 8 --quick --set iio.write_credits=128
  conic study host-network --sensitivity    what the guesses of both platforms decide";

/// Runs the command.
pub fn main(options: &Options) -> ExitCode {
    let study: Study<HostParameters, _> = Study {
        paper: Paper {
            subject: HOST_NETWORK,
            file: "results/host-network.toml",
            published: include_str!("../../../results/host-network.toml"),
        },
        folder: "out/study/host-network",
        platforms: &["cascade-lake", "ice-lake"],
        experiments: EXPERIMENTS,
        findings: |experiments, hosts, effort| findings(experiments, &hosts[0], &hosts[1], effort),
        headlines: &HEADLINES,
    };
    study.main(&options.figures, &options.common)
}
