//! Figures 13 and 14: a NIC with memory of its own.

use conic_chart::{Axis, Bar, Chart, GuideKind};
use conic_fabric::Home;
use conic_interface::cxl::{Homes, Requests, Store};
use conic_sim::Failure;

use super::single::less;
use super::{LARGE, Run, SMALL, lines};
use crate::cxl_nic::loopback::Design;
use crate::experiment::Findings;

/// The paper's layouts of packet buffers, L1 to L4: descriptors in the host's memory, non-coherent requests, host-bias.
pub fn layout(number: usize) -> Design {
    let home = |of_device: bool| if of_device { Home::Nic } else { Home::Host };
    let homes = Homes {
        rx_buffers: home(number == 2 || number == 4),
        tx_buffers: home(number == 3 || number == 4),
        ..Homes::HOST
    };
    Design { homes, requests: Requests::EVENT_DRIVEN, ..Design::combination(0) }
}

/// What of their packet buffers is in the device's memory.
const LAYOUTS: [&str; 4] = ["no buffers", "receive buffers", "transmit buffers", "all buffers"];

/// The latency-optimal configuration of section 7.2.
pub fn optimal() -> Design {
    Design {
        requests: Requests::PUSHED,
        homes: Homes { tx_ring: Home::Host, rx_ring: Home::Nic, rx_buffers: Home::Nic, tx_buffers: Home::Nic },
        store: Store::Nontemporal,
        device_bias: true,
        ..Design::combination(0)
    }
}

/// CC-NIC's: descriptors homed at their writer, packets in the host's memory, loads and stores.
pub fn ccnic() -> Design {
    Design {
        requests: Requests::LOADS_AND_STORES,
        homes: Homes { rx_ring: Home::Nic, ..Homes::HOST },
        ..Design::combination(0)
    }
}

/// Figure 13.
pub(super) fn layouts(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let (mut over, mut bars, mut bars_of_p99) = (Vec::new(), Vec::new(), Vec::new());
    for bytes in [SMALL, LARGE] {
        let first = run.latency(layout(1), bytes)?;
        for number in 2..=4 {
            let found = run.latency(layout(number), bytes)?;
            let name = format!("{bytes} bytes, L{number}: {}", LAYOUTS[number - 1]);
            over.push(found.0 / first.0 - 1.0);
            bars.push(Bar::new(name.clone(), found.0 / first.0));
            bars_of_p99.push(Bar::new(name, found.1 / first.1));
        }
    }
    let mut findings = Findings::default();
    findings.holds("cxl.fig13.host_is_best", Some(over.iter().all(|part| *part > 0.0)));
    findings.list("cxl.fig13.layouts", "fraction", Some(over));
    let chart = |title, bars| {
        Chart::bars(title, Axis::linear("Of L1's", ""), bars)
            .note("L1 to L4, by what is in the device's memory")
            .guide(GuideKind::X(1.0), format!("L1: {}", LAYOUTS[0]))
    };
    findings.plot("fig13", chart("Median latency by packet buffers' memory", bars));
    findings.plot("fig13-p99", chart("99th percentile of the latency by packet buffers' memory", bars_of_p99));
    Ok(findings)
}

/// Figure 14.
pub(super) fn against_ccnic(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let (mut ours, mut theirs, mut first) = (Vec::new(), Vec::new(), Vec::new());
    for bytes in [SMALL, 128, 256, 512, 1024, LARGE] {
        ours.push((bytes as f64, run.latency(optimal(), bytes)?.0));
        theirs.push((bytes as f64, run.latency(ccnic(), bytes)?.0));
        first.push((bytes as f64, run.latency(Design::combination(0), bytes)?.0));
    }
    let reductions: Vec<f64> = ours.iter().zip(&theirs).map(|(one, other)| less(one.1, other.1)).collect();
    let mut findings = Findings::default();
    findings.number("cxl.fig14.vs_ccnic", "fraction", Some(reductions.iter().sum::<f64>() / reductions.len() as f64));
    findings.holds("cxl.fig14.lower", Some(reductions.iter().all(|part| *part > 0.0)));
    let over_first: Vec<f64> = ours.iter().zip(&first).map(|(one, other)| one.1 / other.1 - 1.0).collect();
    findings.holds("cxl.sec7.optimal_below_comb0", Some(over_first.iter().all(|part| *part < 0.0)));
    findings.list("cxl.unpublished.optimal_over_comb0", "fraction", Some(over_first));
    let chart = lines(
        "Median latency",
        Axis::linear("Packet", "bytes"),
        Axis::linear("Latency", "ns"),
        [("CXL-NIC with memory", ours), ("CC-NIC's layout", theirs), ("CXL-NIC without memory", first)],
    );
    findings.plot("fig14", chart);
    Ok(findings)
}
