//! What the paper's figures come out as.

mod micro;
mod parallel;

use conic_interface::cni::Kind;
use conic_sim::Failure as SimFailure;
use conic_sim::bus::{Attachment, BusParameters};

use super::applications::{Outcome, Program};
use super::local;
use super::messages::Traffic;
use super::nodes::Nodes;
use crate::experiment::{Effort, Findings, Found, Named};
use crate::workload::Failure;

/// One experiment of this paper.
pub type Experiment = Named<fn(&mut Run<'_>) -> Result<Findings, SimFailure>>;

/// Every experiment, in the order of the paper.
pub const EXPERIMENTS: &[Experiment] = &[
    Named { name: "local", title: "Two processors on one memory bus", run: between_processors },
    Named { name: "6", title: "Round-trip latency by message size", run: micro::round_trips },
    Named { name: "7", title: "Bandwidth by message size", run: micro::bandwidths },
    Named { name: "8", title: "Five parallel programs on 16 nodes", run: parallel::programs },
];

/// Ids and units of the results whose dependence on the platform's guesses is shown.
pub const HEADLINES: [(&str, &str); 9] = [
    ("cni.sec5.local_bandwidth", "MB/s"),
    ("cni.fig6.memory.64", "fraction"),
    ("cni.fig6.memory.least", "fraction"),
    ("cni.fig6.io.64", "fraction"),
    ("cni.fig7.memory.64", "fraction"),
    ("cni.fig7.io.64", "fraction"),
    ("cni.fig7.memory.highest", "MB/s"),
    ("cni.fig7.snarfing", "fraction"),
    ("cni.fig8.occupancy.queues", "fraction"),
];

/// A parallel program on nodes with one of the interfaces.
pub type Case = (Program, Attachment, Kind);

/// What comes of a program's run.
pub type Ran = Result<Outcome, SimFailure>;

/// How runs that do not depend on each other are answered, in their order: one after the other, or on the caller's threads.
pub type Spread = fn(&[Case], &(dyn Fn(&Case) -> Ran + Sync)) -> Vec<Ran>;

/// What an experiment is run with.
pub struct Run<'a> {
    machine: &'a BusParameters,
    effort: Effort,
    spread: Spread,
    /// Runs so far.
    asked: usize,
}

/// What the experiments find on this machine.
pub fn findings(experiments: &[Experiment], machine: &BusParameters, effort: Effort, spread: Spread) -> Vec<Found> {
    let found = |experiment: &Experiment| {
        let mut run = Run { machine, effort, spread, asked: 0 };
        let outcome = (experiment.run)(&mut run).map_err(|failure| Failure(failure.to_string()));
        experiment.found(outcome, run.asked)
    };
    experiments.iter().map(found).collect()
}

/// An interface in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Configuration {
    attachment: Attachment,
    kind: Kind,
}

impl Configuration {
    const fn new(attachment: Attachment, kind: Kind) -> Configuration {
        Configuration { attachment, kind }
    }
}

impl Run<'_> {
    /// Messages between two nodes; the first ones go through every slot of the longest queue.
    fn traffic(&mut self, configuration: Configuration, bytes: u64) -> Traffic {
        self.asked += 1;
        let Configuration { attachment, kind } = configuration;
        let nodes = Nodes { machine: self.machine.clone(), attachment, kind, count: 2 };
        let counting = if self.effort == Effort::Quick { 128 } else { 1024 };
        Traffic { nodes, bytes, messages: (160, counting) }
    }
}

/// By how much one latency is better than another, as the paper counts it: how much the other is over it, as a part.
fn better(latency: f64, other: f64) -> f64 {
    other / latency - 1.0
}

/// A line's transfer, and the bandwidth to which Figure 7 is relative.
fn between_processors(run: &mut Run<'_>) -> Result<Findings, SimFailure> {
    run.asked += 1;
    let mut findings = Findings::default();
    findings.number("cni.sec5.transfer", "ns", Some(local::transfer(run.machine)?));
    findings.number("cni.sec5.local_bandwidth", "MB/s", Some(run.local_bandwidth()?));
    Ok(findings)
}

impl Run<'_> {
    fn local_bandwidth(&mut self) -> Result<f64, SimFailure> {
        self.asked += 1;
        local::bandwidth(self.machine, if self.effort == Effort::Quick { 100 } else { 1_000 })
    }
}
