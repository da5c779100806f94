//! The results whose dependence on the platforms' guesses is shown.

use super::figures::{Machines, Run};
use super::{percentile, streams};
use crate::experiment::Effort;
use crate::workload::Failure;

/// Ids and units, in the order of [`headlines`].
pub const HEADLINES: [(&str, &str); 9] = [
    ("pio.fig6.shared", "ns"),
    ("pio.fig6.fastforward", "ns"),
    ("fig7 at 8 KiB", "ns"),
    ("fig8 at 32 KiB", "GiB/s"),
    ("pio.table1.eci_64.receive_p50", "us"),
    ("pio.table1.eci_64.transmit_p50", "us"),
    ("table1 receive of 9600", "us"),
    ("pio.beyond.fig11_eci_one_line", "us"),
    ("pio.fig12.per_element", "us"),
];

/// The headline results on some machines, with little effort a point; none where a run fails.
pub fn headlines(machines: &Machines) -> Vec<Option<f64>> {
    let mut run = Run::new(machines, Effort::Quick);
    type One = fn(&mut Run<'_>) -> Result<Option<f64>, Failure>;
    let of: [One; HEADLINES.len()] = [
        |run| Ok(Some(run.calls(run.line(), false)?.median_nanoseconds())),
        |run| Ok(Some(run.slots(true, false)?)),
        |run| Ok(Some(run.calls(8192, true)?.median_nanoseconds())),
        |run| Ok(Some(run.throughput(32768)?)),
        |run| Ok(Some(percentile(&run.receive(64, false)?, 0.5) / 1000.0)),
        |run| Ok(Some(percentile(&run.transmit(64)?, 0.5) / 1000.0)),
        |run| Ok(Some(percentile(&run.receive(9600, false)?, 0.5) / 1000.0)),
        |run| streams::filters_one_line(run.machine).map_err(|fault| Failure(fault.to_string())),
        |run| streams::bloom_per_element(run.machine).map_err(|fault| Failure(fault.to_string())),
    ];
    of.into_iter().map(|one| one(&mut run).ok().flatten()).collect()
}
