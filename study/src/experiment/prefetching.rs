//! Hardware prefetching: Figure 20, on Sapphire Rapids.

use conic_chart::{Axis, Bar, Chart};

use super::findings::Findings;
use super::loops::peak;
use super::setting::{CC_NIC, SMALL, Setting};
use crate::ask::Ask;
use crate::workload::{Interface, Loopback, Prefetching};

/// Who prefetches: nobody first, then the host alone.
const CASES: [(&str, Prefetching); 4] = [
    ("nobody", Prefetching { host: false, nic: false }),
    ("host", Prefetching { host: true, nic: false }),
    ("NIC", Prefetching { host: false, nic: true }),
    ("both", Prefetching { host: true, nic: true }),
];

/// Rates over the rate without prefetching, in the order of [`CASES`].
fn ratios(ask: &mut Ask<'_>, setting: &Setting, interface: Interface) -> [Option<f64>; 4] {
    let question = setting.loopback(&setting.platforms.spr, interface, SMALL);
    let rates = CASES.map(|(_, prefetching)| {
        let question = Loopback { prefetching, ..question.clone() };
        Some(peak(ask, setting, &question)?.outcome.packets_per_second)
    });
    rates.map(|rate| Some(rate? / rates[0]?))
}

/// Figure 20: rate by who prefetches, over the rate without.
pub(super) fn prefetching(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let ours = ratios(ask, setting, CC_NIC);
    let theirs = ratios(ask, setting, Interface::UnoptimisedRing);
    let mut findings = Findings::default();
    findings.number("ccnic.fig20.prefetch_host", "ratio", ours[1]);
    let all = |ratios: [Option<f64>; 4]| ratios.into_iter().collect::<Option<Vec<f64>>>();
    // The change by the larger factor, up or down.
    let most = all(theirs).and_then(|ratios| ratios.into_iter().max_by(|a, b| a.ln().abs().total_cmp(&b.ln().abs())));
    findings.number("ccnic.fig20.prefetch_unopt", "ratio", most);
    let host_best = |ratios: [Option<f64>; 4]| Some(all(ratios)?.into_iter().all(|ratio| ratios[1] >= Some(ratio)));
    findings.holds("ccnic.fig20.host_only_best_ccnic", host_best(ours));
    findings.holds("ccnic.fig20.host_only_best_unopt", host_best(theirs));
    let bars = [("CC-NIC", ours), ("unoptimised", theirs)].into_iter().flat_map(|(name, ratios)| {
        let bar = move |((who, _), ratio): (&(&str, Prefetching), Option<f64>)| {
            let bar = Bar::new(format!("{name}: {who}"), ratio?);
            Some(if *who == "nobody" { bar.highlight() } else { bar })
        };
        CASES.iter().zip(ratios).filter_map(bar)
    });
    let bars: Vec<Bar> = bars.collect();
    let chart =
        Chart::bars("Packet rate by who prefetches", Axis::linear("Rate over that without prefetching", ""), bars)
            .note("Sapphire Rapids, all cores, 64-byte packets.");
    findings.plot("fig20", chart);
    findings
}
