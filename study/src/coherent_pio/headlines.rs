//! The results whose dependence on the platforms' guesses is shown.

use super::figures::{Machines, Run};
use super::over_pcie::POLLED;
use super::pcie::Transport;
use super::{over_pcie, percentile, streams};
use crate::experiment::Effort;
use crate::workload::Failure;

/// Ids and units, in the order of [`headlines`].
pub const HEADLINES: [(&str, &str); 16] = [
    ("pio.fig6.shared", "ns"),
    ("pio.fig6.fastforward", "ns"),
    ("fig7 at 8 KiB", "ns"),
    ("fig8 at 32 KiB", "GiB/s"),
    ("fig8 at 32 KiB over 16 KiB", "ratio"),
    ("pio.table1.eci_64.receive_p50", "us"),
    ("pio.table1.eci_64.transmit_p50", "us"),
    ("table1 receive of 9600", "us"),
    ("pio.beyond.fig11_eci_one_line", "us"),
    ("pio.fig12.per_element", "us"),
    ("pio.fig1.enzian_over_pc", "ratio"),
    ("fig2 at 1 KiB, Enzian over PC", "ratio"),
    ("pio.table1.pcie_64.receive_p50", "us"),
    ("pio.table1.dma_64.receive_p50", "us"),
    ("fig11 of one line, PCIe over software", "ratio"),
    ("fig11 of 16 KiB, DMA over software", "ratio"),
];

/// How many of them come first that depend on the machines with coherent lines and on the two sockets.
const NOT_OVER_PCIE: usize = 10;

/// How many of them come last that depend on those and on the machines with PCIe; the others depend on the latter alone.
const ON_BOTH: usize = 2;

/// The headline results on some machines, with little effort a point; none where a run fails.
pub fn headlines(machines: &Machines) -> Vec<Option<f64>> {
    of(machines, |_| None)
}

/// The same, where those on other machines are known: what depends on nothing that is different is taken from there.
pub fn headlines_beside(machines: &Machines, others: &Machines, known: &[Option<f64>]) -> Vec<Option<f64>> {
    let same = machines.enzian == others.enzian && machines.thunderx == others.thunderx;
    let same_over_pcie = machines.enzian_pcie == others.enzian_pcie && machines.pc_pcie == others.pc_pcie;
    of(machines, |index| {
        let (needs_coherent, needs_pcie) =
            (index < NOT_OVER_PCIE || index >= HEADLINES.len() - ON_BOTH, index >= NOT_OVER_PCIE);
        let is_same = (same || !needs_coherent) && (same_over_pcie || !needs_pcie);
        is_same.then(|| known.get(index).copied().flatten())
    })
}

/// The headline results, but for those that are known.
fn of(machines: &Machines, known: impl Fn(usize) -> Option<Option<f64>>) -> Vec<Option<f64>> {
    let mut run = Run::new(machines, Effort::Quick);
    type One = fn(&mut Run<'_>) -> Result<Option<f64>, Failure>;
    let of: [One; HEADLINES.len()] = [
        |run| Ok(Some(run.calls(run.line(), false)?.median_nanoseconds())),
        |run| Ok(Some(run.slots(true, false)?)),
        |run| Ok(Some(run.calls(8192, true)?.median_nanoseconds())),
        |run| Ok(Some(run.throughput(32768)?)),
        |run| Ok(Some(run.throughput(32768)? / run.throughput(16384)?)),
        |run| Ok(Some(percentile(&run.receive(64, false)?, 0.5) / 1000.0)),
        |run| Ok(Some(percentile(&run.transmit(64)?, 0.5) / 1000.0)),
        |run| Ok(Some(percentile(&run.receive(9600, false)?, 0.5) / 1000.0)),
        |run| streams::filters_one_line(run.machine).map_err(|fault| Failure(fault.to_string())),
        |run| streams::bloom_per_element(run.machine).map_err(|fault| Failure(fault.to_string())),
        |run| over_pcie::apart(run.over_pcie(), POLLED, 64),
        |run| over_pcie::apart(run.over_pcie(), Transport::Pio, 1024),
        |run| run.over_pcie()[0].received(Transport::Pio, 64).map(Some),
        |run| run.over_pcie()[0].received(POLLED, 64).map(Some),
        |run| streams::over_software(run.machines, Transport::Pio, 16).map_err(|fault| Failure(fault.to_string())),
        |run| streams::over_software(run.machines, POLLED, 2048).map_err(|fault| Failure(fault.to_string())),
    ];
    let each = of.into_iter().enumerate();
    each.map(|(index, one)| known(index).unwrap_or_else(|| one(&mut run).ok().flatten())).collect()
}
