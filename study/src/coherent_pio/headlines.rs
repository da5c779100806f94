//! The results whose dependence on the platforms' guesses is shown.

use super::figures::{Machines, Run};
use super::over_pcie::POLLED;
use super::pcie::Transport;
use super::what_if::{peak, there};
use super::{over_pcie, percentile, streams};
use crate::experiment::Effort;
use crate::workload::Failure;

/// One of them.
struct Headline {
    id: &'static str,
    unit: &'static str,
    /// Which machines it depends on.
    on: On,
    ask: fn(&mut Run<'_>) -> Result<Option<f64>, Failure>,
}

/// Machines that a result depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    /// Those with coherent lines, and the two sockets.
    Lines,
    /// Those with PCIe.
    Pcie,
    /// Both of these kinds.
    Both,
    /// The one of a coming generation.
    WhatIf,
}

const TABLE: [Headline; 20] = [
    Headline {
        id: "pio.fig6.shared",
        unit: "ns",
        on: On::Lines,
        ask: |run| Ok(Some(run.calls(run.line(), false)?.median_nanoseconds())),
    },
    Headline { id: "pio.fig6.fastforward", unit: "ns", on: On::Lines, ask: |run| Ok(Some(run.slots(true, false)?)) },
    Headline {
        id: "fig7 at 8 KiB",
        unit: "ns",
        on: On::Lines,
        ask: |run| Ok(Some(run.calls(8192, true)?.median_nanoseconds())),
    },
    Headline { id: "fig8 at 32 KiB", unit: "GiB/s", on: On::Lines, ask: |run| Ok(Some(run.throughput(32768)?)) },
    Headline {
        id: "fig8 at 32 KiB over 16 KiB",
        unit: "ratio",
        on: On::Lines,
        ask: |run| Ok(Some(run.throughput(32768)? / run.throughput(16384)?)),
    },
    Headline {
        id: "pio.table1.eci_64.receive_p50",
        unit: "us",
        on: On::Lines,
        ask: |run| Ok(Some(percentile(&run.receive(64, false)?, 0.5) / 1000.0)),
    },
    Headline {
        id: "pio.table1.eci_64.transmit_p50",
        unit: "us",
        on: On::Lines,
        ask: |run| Ok(Some(percentile(&run.transmit(64)?, 0.5) / 1000.0)),
    },
    Headline {
        id: "table1 receive of 9600",
        unit: "us",
        on: On::Lines,
        ask: |run| Ok(Some(percentile(&run.receive(9600, false)?, 0.5) / 1000.0)),
    },
    Headline {
        id: "pio.beyond.fig11_eci_one_line",
        unit: "us",
        on: On::Lines,
        ask: |run| streams::filters_one_line(run.machine).map_err(|fault| Failure(fault.to_string())),
    },
    Headline {
        id: "pio.fig12.per_element",
        unit: "us",
        on: On::Lines,
        ask: |run| streams::bloom_per_element(run.machine).map_err(|fault| Failure(fault.to_string())),
    },
    Headline {
        id: "pio.fig1.enzian_over_pc",
        unit: "ratio",
        on: On::Pcie,
        ask: |run| over_pcie::apart(run.over_pcie(), POLLED, 64),
    },
    Headline {
        id: "fig2 at 1 KiB, Enzian over PC",
        unit: "ratio",
        on: On::Pcie,
        ask: |run| over_pcie::apart(run.over_pcie(), Transport::Pio, 1024),
    },
    Headline {
        id: "pio.table1.pcie_64.receive_p50",
        unit: "us",
        on: On::Pcie,
        ask: |run| run.over_pcie()[0].received(Transport::Pio, 64).map(Some),
    },
    Headline {
        id: "pio.table1.dma_64.receive_p50",
        unit: "us",
        on: On::Pcie,
        ask: |run| run.over_pcie()[0].received(POLLED, 64).map(Some),
    },
    Headline {
        id: "fig11 of one line, PCIe over software",
        unit: "ratio",
        on: On::Both,
        ask: |run| streams::over_software(run.machines, Transport::Pio, 16).map_err(|fault| Failure(fault.to_string())),
    },
    Headline {
        id: "fig11 of 16 KiB, DMA over software",
        unit: "ratio",
        on: On::Both,
        ask: |run| streams::over_software(run.machines, POLLED, 2048).map_err(|fault| Failure(fault.to_string())),
    },
    Headline {
        id: "pio.whatif.exclusive",
        unit: "ns",
        on: On::WhatIf,
        ask: |run| there(run, |run| Ok(Some(run.calls(run.line(), true)?.median_nanoseconds()))),
    },
    Headline { id: "pio.whatif.peak", unit: "GiB/s", on: On::WhatIf, ask: |run| there(run, peak).map(Some) },
    Headline {
        id: "pio.whatif.nic_64, received",
        unit: "us",
        on: On::WhatIf,
        ask: |run| there(run, |run| Ok(Some(percentile(&run.receive(64, false)?, 0.5) / 1000.0))),
    },
    Headline {
        id: "pio.whatif.nic_64, sent",
        unit: "us",
        on: On::WhatIf,
        ask: |run| there(run, |run| Ok(Some(percentile(&run.transmit(64)?, 0.5) / 1000.0))),
    },
];

/// Ids and units, in the order of [`headlines`].
pub const HEADLINES: [(&str, &str); TABLE.len()] = {
    let mut all = [("", ""); TABLE.len()];
    let mut index = 0;
    while index < TABLE.len() {
        all[index] = (TABLE[index].id, TABLE[index].unit);
        index += 1;
    }
    all
};

/// The headline results on some machines, with little effort a point; none where a run fails.
pub fn headlines(machines: &Machines) -> Vec<Option<f64>> {
    of(machines, |_, _| None)
}

/// The same, where those on other machines are known: what depends on nothing that is different is taken from there.
pub fn headlines_beside(machines: &Machines, others: &Machines, known: &[Option<f64>]) -> Vec<Option<f64>> {
    let same_lines = machines.enzian == others.enzian && machines.thunderx == others.thunderx;
    let same_over_pcie = machines.enzian_pcie == others.enzian_pcie && machines.pc_pcie == others.pc_pcie;
    of(machines, |index, on| {
        let is_same = match on {
            On::Lines => same_lines,
            On::Pcie => same_over_pcie,
            On::Both => same_lines && same_over_pcie,
            On::WhatIf => machines.cxl == others.cxl,
        };
        is_same.then(|| known.get(index).copied().flatten())
    })
}

/// The headline results, but for those that are known.
fn of(machines: &Machines, known: impl Fn(usize, On) -> Option<Option<f64>>) -> Vec<Option<f64>> {
    let mut run = Run::new(machines, Effort::Quick);
    let each = TABLE.iter().enumerate();
    each.map(|(index, one)| known(index, one.on).unwrap_or_else(|| (one.ask)(&mut run).ok().flatten())).collect()
}
