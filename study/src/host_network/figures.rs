//! What the paper's figures come out as.

mod applications;
mod causes;
mod domains;
mod formulas;
mod network;
mod regimes;

use conic_chart::{Axis, Chart, Series};
use conic_sim::Failure as SimFailure;
use conic_sim::host::HostParameters;

use super::runs::Runs;
use crate::experiment::{Effort, Findings, Found, Named};
use crate::workload::Failure;

/// Runs on the paper's two hosts.
#[derive(Debug)]
pub struct Hosts<'a> {
    /// Cascade Lake, on which most of it was measured.
    pub cascade_lake: Runs<'a>,
    /// Ice Lake, on which applications were.
    pub ice_lake: Runs<'a>,
}

/// One experiment of this paper.
pub type Experiment = Named<fn(&mut Hosts<'_>) -> Result<Findings, SimFailure>>;

/// Every experiment, in the order of the paper's figures.
pub const EXPERIMENTS: &[Experiment] = &[
    Named { name: "1", title: "Applications beside storage devices on Ice Lake", run: applications::ice_lake },
    Named {
        name: "2",
        title: "Applications on Cascade Lake, with and without direct cache access",
        run: applications::direct_access,
    },
    Named {
        name: "3",
        title: "Blue and red regimes across four quadrants",
        run: |hosts| regimes::quadrants(&mut hosts.cascade_lake),
    },
    Named { name: "rdma", title: "The four quadrants with a NIC (section 2.3)", run: network::rdma },
    Named {
        name: "6",
        title: "Domains, their credits and latencies",
        run: |hosts| domains::evidence(&mut hosts.cascade_lake),
    },
    Named {
        name: "7",
        title: "Why cores degrade and devices do not (quadrant 1)",
        run: |hosts| causes::first_quadrant(&mut hosts.cascade_lake),
    },
    Named {
        name: "8",
        title: "Why both degrade (quadrant 3)",
        run: |hosts| causes::third_quadrant(&mut hosts.cascade_lake),
    },
    Named { name: "11", title: "The analytic formula's error", run: |hosts| formulas::errors(&mut hosts.cascade_lake) },
    Named {
        name: "12",
        title: "What latencies are made of, by the formula",
        run: |hosts| formulas::breakdown(&mut hosts.cascade_lake),
    },
];

/// Ids and units of the results whose dependence on the platform's guesses is shown.
pub const HEADLINES: [(&str, &str); 15] = [
    ("host.fig1.bandwidth_most", "fraction"),
    ("host.fig1.redis_degradation_most", "ratio"),
    ("host.fig1.graph_degradation_most", "ratio"),
    ("host.fig2.graph_degradation_on", "ratio"),
    ("host.fig2.graph_degradation_off", "ratio"),
    ("host.sec2.rdma.q1_c2m_degradation_most", "ratio"),
    ("host.sec2.rdma.q3_rdma_degradation_most", "ratio"),
    ("host.fig3.q1.c2m_degradation_least", "ratio"),
    ("host.fig3.q1.c2m_degradation_most", "ratio"),
    ("host.fig3.q3.c2m_degradation_most", "ratio"),
    ("host.fig3.q3.p2m_degradation_most", "ratio"),
    ("host.fig3.q4.p2m_degradation_most", "ratio"),
    ("host.fig11.q1.error", "fraction"),
    ("host.fig11.q3.c2m_error_with_admission", "fraction"),
    ("host.fig11.q4.error", "fraction"),
];

/// What the experiments find on the two hosts.
pub fn findings(
    experiments: &[Experiment],
    cascade_lake: &HostParameters,
    ice_lake: &HostParameters,
    effort: Effort,
) -> Vec<Found> {
    let [cascade_lake, ice_lake] = [cascade_lake, ice_lake].map(|host| Runs::new(host, effort));
    let mut hosts = Hosts { cascade_lake, ice_lake };
    let found = |experiment: &Experiment| {
        let before = hosts.made();
        let outcome = (experiment.run)(&mut hosts).map_err(|failure| Failure(failure.to_string()));
        experiment.found(outcome, hosts.made() - before)
    };
    experiments.iter().map(found).collect()
}

impl Hosts<'_> {
    /// How many runs were made.
    fn made(&self) -> usize {
        self.cascade_lake.made + self.ice_lake.made
    }
}

/// Throughput that falls by less than this part counts as unaffected: the paper's runs vary by 1.5%, and its figure's lines by some more.
const UNAFFECTED: f64 = 1.05;

/// Whether memory's bandwidth, as a part of its channels', is far from used up: less than three quarters of the 90% that reads reach.
fn far_from_saturated(used: f64) -> bool {
    used < 0.68
}

/// The paper's numbers of cores.
const CORES: [usize; 6] = [1, 2, 3, 4, 5, 6];

/// A value for each number of cores.
type Curve = Vec<(f64, f64)>;

/// Something of each number of cores.
fn over_cores(mut of: impl FnMut(usize) -> f64) -> Curve {
    CORES.iter().map(|cores| (*cores as f64, of(*cores))).collect()
}

/// The largest of a curve's values.
fn most(curve: &Curve) -> f64 {
    curve.iter().map(|(_, value)| *value).fold(f64::MIN, f64::max)
}

/// The least.
fn least(curve: &Curve) -> f64 {
    curve.iter().map(|(_, value)| *value).fold(f64::MAX, f64::min)
}

/// A chart of lines over the number of cores.
fn chart(title: &str, y: (&str, &str), series: impl IntoIterator<Item = (&'static str, Curve)>) -> Chart {
    let chart = Chart::xy(title, Axis::linear("C2M cores", ""), Axis::linear(y.0, y.1));
    series.into_iter().fold(chart, |chart, (name, points)| chart.series(Series::line(name, points)))
}
