//! What the paper's figures come out as.

mod causes;
mod domains;
mod formulas;
mod regimes;

use conic_chart::{Axis, Chart, Series};
use conic_sim::Failure as SimFailure;
use conic_sim::host::HostParameters;

use super::quadrants::Runs;
use crate::experiment::{Effort, Findings, Found, Named};
use crate::workload::Failure;

/// One experiment of this paper.
pub type Experiment = Named<fn(&mut Runs<'_>) -> Result<Findings, SimFailure>>;

/// Every experiment, in the order of the paper's figures.
pub const EXPERIMENTS: &[Experiment] = &[
    Named { name: "3", title: "Blue and red regimes across four quadrants", run: regimes::quadrants },
    Named { name: "6", title: "Domains, their credits and latencies", run: domains::evidence },
    Named { name: "7", title: "Why cores degrade and devices do not (quadrant 1)", run: causes::first_quadrant },
    Named { name: "8", title: "Why both degrade (quadrant 3)", run: causes::third_quadrant },
    Named { name: "11", title: "The analytic formula's error", run: formulas::errors },
    Named { name: "12", title: "What latencies are made of, by the formula", run: formulas::breakdown },
];

/// Ids and units of the results whose dependence on the platform's guesses is shown.
pub const HEADLINES: [(&str, &str); 8] = [
    ("host.fig3.q1.c2m_degradation_least", "ratio"),
    ("host.fig3.q1.c2m_degradation_most", "ratio"),
    ("host.fig3.q3.c2m_degradation_most", "ratio"),
    ("host.fig3.q3.p2m_degradation_most", "ratio"),
    ("host.fig3.q4.p2m_degradation_most", "ratio"),
    ("host.fig11.q1.error", "fraction"),
    ("host.fig11.q3.c2m_error_with_admission", "fraction"),
    ("host.fig11.q4.error", "fraction"),
];

/// What the experiments find on a host.
pub fn findings(experiments: &[Experiment], host: &HostParameters, effort: Effort) -> Vec<Found> {
    let mut runs = Runs::new(host, effort);
    let found = |experiment: &Experiment| {
        let before = runs.made;
        let outcome = (experiment.run)(&mut runs).map_err(|failure| Failure(failure.to_string()));
        experiment.found(outcome, runs.made - before)
    };
    experiments.iter().map(found).collect()
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
