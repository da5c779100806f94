//! What the paper's figures come out as.

mod datapath;
mod memory;
mod pressure;
mod serving;
mod single;

pub use memory::{ccnic, layout, optimal};

use conic_chart::{Axis, Chart, Series};
use conic_fabric::Time;
use conic_sim::Failure as SimFailure;
use conic_sim::cxl::CxlParameters;

use super::loopback::{Attachment, Design, Loopback, LoopbackOutcome, around, loopback};
use super::percentile;
use crate::experiment::{Effort, Findings, Found, Named};
use crate::workload::Failure;

/// One experiment of this paper.
pub type Experiment = Named<fn(&mut Run<'_>) -> Result<Findings, SimFailure>>;

/// The one of pushes in a last-level cache under pressure (section 5.3), which is no figure of the paper's.
pub const PRESSURE: &str = "pressure";

/// Every experiment, in the order of the paper's figures.
pub const EXPERIMENTS: &[Experiment] = &[
    Named { name: "3", title: "What PCIe takes of a packet's latency", run: datapath::shares },
    Named { name: "4", title: "Single operations over PCIe and CXL", run: single::operations },
    Named { name: "7", title: "The host's access to device memory", run: single::device_memory },
    Named { name: "10", title: "Loopback latency by request types", run: datapath::combinations },
    Named { name: "11", title: "Highest throughput by request types", run: datapath::throughputs },
    Named { name: "12", title: "Throughput by batch size", run: datapath::batches },
    Named { name: "13", title: "Loopback latency by packet buffers' memory", run: memory::layouts },
    Named { name: "14", title: "CXL-NIC against CC-NIC's layout", run: memory::against_ccnic },
    Named { name: "15", title: "A key-value store on the NIC", run: serving::stores },
    Named { name: PRESSURE, title: "Pushes beside neighbours in the last-level cache", run: pressure::under_pressure },
];

/// The host with the one device and with the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Machines {
    /// With an Agilex-7.
    pub agilex: CxlParameters,
    /// With a BlueField-3.
    pub bluefield: CxlParameters,
}

/// What the experiments are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// How much is simulated.
    pub effort: Effort,
    /// Where pushes are beside neighbours: the bytes that those walk through, over those of the last-level cache, from the least on.
    pub working_sets: Vec<f64>,
    /// There: after how many of the device's cycles a pushed packet is written back; none: somewhat after the host reads it.
    pub write_back: Option<u32>,
}

impl Asked {
    /// What is usual.
    pub fn with(effort: Effort) -> Asked {
        Asked { effort, working_sets: vec![0.25, 0.5, 0.75, 1.0, 1.5], write_back: None }
    }
}

/// What the experiments find on these machines.
pub fn findings(experiments: &[Experiment], machines: &Machines, asked_for: &Asked) -> Vec<Found> {
    let found = |experiment: &Experiment| {
        let mut run = Run { machines, asked_for, asked: 0 };
        let outcome = (experiment.run)(&mut run).map_err(|failure| Failure(failure.to_string()));
        experiment.found(outcome, run.asked)
    };
    experiments.iter().map(found).collect()
}

/// What an experiment is run with.
pub struct Run<'a> {
    machines: &'a Machines,
    asked_for: &'a Asked,
    /// Runs so far.
    asked: usize,
}

/// Runs whose packets come at other moments.
const SEEDS: u64 = 4;

/// Packets of the smallest and of the largest size.
const SMALL: usize = 64;
const LARGE: usize = 1500;

impl Run<'_> {
    fn machine(&self, design: &Design) -> CxlParameters {
        match design.attachment {
            Attachment::Cxl => self.machines.agilex.clone(),
            Attachment::Dma => self.machines.bluefield.clone(),
        }
    }

    /// A loopback without load.
    fn unloaded(&mut self, design: Design, bytes: usize) -> Result<LoopbackOutcome, SimFailure> {
        self.seeded(design, bytes, 0)
    }

    /// The same at other moments.
    fn seeded(&mut self, design: Design, bytes: usize, seed: u64) -> Result<LoopbackOutcome, SimFailure> {
        self.asked += 1;
        let machine = self.machine(&design);
        let counting = if self.asked_for.effort == Effort::Quick { 100 } else { 1_000 };
        let packets = (around(&design, bytes), counting);
        loopback(&Loopback { machine, design, bytes, gap: Time::from_nanoseconds(20_000), together: 1, packets, seed })
    }

    /// Median and 99th percentile over packets at the moments of several seeds, in nanoseconds: of one, the 99th percentile is the
    /// tenth packet's, which is now among those that wait for the host's buffers to be taken back and now is not.
    fn tail(&mut self, design: Design, bytes: usize) -> Result<(f64, f64), SimFailure> {
        let seeds = if self.asked_for.effort == Effort::Quick { 1 } else { SEEDS };
        let mut latencies = Vec::new();
        for seed in 0..seeds {
            latencies.extend(self.seeded(design, bytes, seed)?.latencies);
        }
        Ok((percentile(&latencies, 0.5), percentile(&latencies, 0.99)))
    }

    /// Median and 99th percentile over packets at the moments of one seed, in nanoseconds.
    fn latency(&mut self, design: Design, bytes: usize) -> Result<(f64, f64), SimFailure> {
        let outcome = self.unloaded(design, bytes)?;
        Ok((percentile(&outcome.latencies, 0.5), percentile(&outcome.latencies, 0.99)))
    }
}

/// A chart of lines over packet sizes or the like.
fn lines(title: &str, x: Axis, y: Axis, series: impl IntoIterator<Item = (&'static str, Vec<(f64, f64)>)>) -> Chart {
    series.into_iter().fold(Chart::xy(title, x, y), |chart, (name, points)| chart.series(Series::line(name, points)))
}
