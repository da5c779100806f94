//! Packets that the NIC receives, a host core looks at and the NIC sends on (section 6): the header alone, or all of each.

use conic_chart::Axis;
use conic_sim::Parameters;

use super::super::findings::Findings;
use super::super::setting::{CC_NIC, LARGE, PAGE, SMALL, Setting};
use super::sizes::{Reached, by_size, list, plot, ratios};
use crate::ask::Ask;
use crate::workload::{Application, Interface, Loopback, Touch};

const SIZES: [u16; 3] = [SMALL, LARGE, PAGE];

fn variant(
    ask: &mut Ask<'_>,
    setting: &Setting,
    machine: &Parameters,
    interface: Interface,
    touch: Touch,
) -> Vec<Reached> {
    by_size(ask, setting, &SIZES, |size| {
        let mut question: Loopback = setting.loopback(machine, interface, size);
        question.switches.application = Application::Forwarding(touch);
        question
    })
}

/// What it is worth that the payload stays with the NIC. All on the Ice Lake server, since a PCIe NIC is modelled there.
pub(super) fn find(setting: &Setting, ask: &mut Ask<'_>, findings: &mut Findings) {
    let (icx, cx6) = (&setting.platforms.icx, &setting.platforms.icx_cx6);
    let header = variant(ask, setting, icx, CC_NIC, Touch::Header);
    let whole = variant(ask, setting, icx, CC_NIC, Touch::Whole);
    let pcie_header = variant(ask, setting, cx6, Interface::PcieRing, Touch::Header);
    let pcie_whole = variant(ask, setting, cx6, Interface::PcieRing, Touch::Whole);
    findings.list("beyond.header.rate", "Mpps", list(&header, |reached| reached.mpps));
    findings.list("beyond.header.rate_ratio", "ratio", ratios(&header, &whole, |reached| reached.mpps));
    findings.list("beyond.header.latency", "ns", list(&header, |reached| reached.latency));
    findings.list("beyond.header.latency_ratio", "ratio", ratios(&header, &whole, |reached| reached.latency));
    findings.list("beyond.header.link_bytes", "bytes", list(&header, |reached| reached.bytes));
    findings.list("beyond.header.link_bytes_ratio", "ratio", ratios(&header, &whole, |reached| reached.bytes));
    findings.list("beyond.header.pcie_rate_ratio", "ratio", ratios(&header, &pcie_header, |reached| reached.mpps));
    findings.list("beyond.header.pcie_link_bytes", "bytes", list(&pcie_header, |reached| reached.bytes));
    let variants: [(&str, &[Reached]); 4] = [
        ("CC-NIC, header", &header),
        ("CC-NIC, whole packet", &whole),
        ("PCIe, header", &pcie_header),
        ("PCIe, whole packet", &pcie_whole),
    ];
    let note = "Ice Lake, one host core; over PCIe a ConnectX-6 Dx. The NIC makes the packets; the host changes their headers.";
    let mut draw = |name, title: &str, axis, value| plot(findings, name, title, axis, &variants, value, note);
    draw("beyond-header-rate", "Packets forwarded by a core", Axis::linear("Packets", "Mpps"), |reached| reached.mpps);
    draw("beyond-header-bytes", "Link traffic of a forwarded packet", Axis::log("Both ways", "bytes"), |reached| {
        reached.bytes
    });
    draw("beyond-header-latency", "Latency of a forwarded packet", Axis::log("Median latency", "ns"), |reached| {
        reached.latency
    });
}
