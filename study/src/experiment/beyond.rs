//! Switches beyond the paper: those of the interface, each beside the paper's CC-NIC on Sapphire Rapids, and those that change
//! what the NIC or the host does or how buffers lie, a file each.

mod bulk;
mod header;
mod sizes;
mod snoop;
mod spacing;

use conic_chart::{Axis, Bar, Chart};
use conic_interface::ccnic::{Features, Signal};

use super::findings::Findings;
use super::loops::{gbps, minimum, mpps, peak};
use super::setting::{CC_NIC, LARGE, SMALL, Setting};
use crate::ask::Ask;
use crate::workload::{Interface, Loopback};

/// A switch: its name, its results' ids, and how a loopback with the paper's CC-NIC changes.
struct Switch {
    name: &'static str,
    /// Minimum latency, highest packet rate and highest 1.5 KB throughput, each over that of the paper's CC-NIC.
    ids: [&'static str; 3],
    change: fn(&mut Loopback),
}

/// A further switch is a further entry.
const SWITCHES: &[Switch] = &[
    Switch {
        name: "phase bits",
        ids: ["beyond.phase.min_latency", "beyond.phase.peak_rate", "beyond.phase.large_throughput"],
        change: |question| {
            question.interface = Interface::CcNic(Features { signal: Signal::Phase, ..Features::paper() });
        },
    },
    Switch {
        name: "payload in ring",
        ids: ["beyond.inline.min_latency", "beyond.inline.peak_rate", "beyond.inline.large_throughput"],
        change: |question| {
            question.interface = Interface::CcNic(Features { inline_payload: true, ..Features::paper() });
        },
    },
    Switch {
        name: "both",
        ids: ["beyond.best.min_latency", "beyond.best.peak_rate", "beyond.best.large_throughput"],
        change: |question| question.interface = Interface::CcNic(Features::best()),
    },
];

/// Minimum latency, highest packet rate, highest 1.5 KB throughput.
fn headline(ask: &mut Ask<'_>, setting: &Setting, change: fn(&mut Loopback)) -> [Option<f64>; 3] {
    let mut small = setting.loopback(&setting.platforms.spr, CC_NIC, SMALL);
    change(&mut small);
    let mut large = setting.loopback(&setting.platforms.spr, CC_NIC, LARGE);
    change(&mut large);
    [
        minimum(ask, setting, &small),
        peak(ask, setting, &small).map(|peak| mpps(&peak.outcome)),
        peak(ask, setting, &large).map(|peak| gbps(&peak.outcome)),
    ]
}

/// What each switch changes.
pub(super) fn switches(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let mut findings = Findings::default();
    let base = headline(ask, setting, |_| ());
    let mut bars = Vec::new();
    for switch in SWITCHES {
        let with = headline(ask, setting, switch.change);
        let what = ["latency", "rate", "1.5 KB"];
        for (((id, with), without), what) in switch.ids.into_iter().zip(with).zip(base).zip(what) {
            let ratio = with.zip(without).map(|(with, without)| with / without);
            findings.number(id, "ratio", ratio);
            bars.extend(ratio.map(|ratio| Bar::new(format!("{}: {what}", switch.name), ratio)));
        }
    }
    let chart = Chart::bars("Beyond the paper", Axis::linear("Over the paper's CC-NIC", ""), bars)
        .note("Sapphire Rapids: one packet in flight; 64-byte and 1.5 KB packets on all cores.");
    findings.plot("beyond", chart);
    snoop::find(setting, ask, &mut findings);
    header::find(setting, ask, &mut findings);
    bulk::find(setting, ask, &mut findings);
    spacing::find(setting, ask, &mut findings);
    findings
}
