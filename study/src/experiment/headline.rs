//! The results by which the paper is remembered, for the report of what the guesses decide.

use super::loops::{gbps, minimum, mpps, peak, ratio};
use super::setting::{CC_NIC, LARGE, SMALL, Setting};
use crate::ask::Ask;
use crate::workload::Interface;

/// The headline results' ids and units, in the order of [`headlines`].
pub const HEADLINES: [(&str, &str); 7] = [
    ("ccnic.fig12.icx.min_latency", "ns"),
    ("ccnic.fig12.icx.peak_rate", "Mpps"),
    ("ccnic.fig12.icx.large_throughput", "Gb/s"),
    ("ccnic.fig13.spr.min_latency", "ns"),
    ("ccnic.fig13.spr.peak_rate", "Mpps"),
    ("ccnic.fig13.spr.large_throughput", "Gb/s"),
    ("ccnic.introduction.unopt_rate_ratio", "ratio"),
];

/// The headline results as far as they are known; asked as their figures ask them.
pub fn headlines(setting: &Setting, ask: &mut Ask<'_>) -> [Option<f64>; 7] {
    let [icx, spr] = [&setting.platforms.icx, &setting.platforms.spr].map(|machine| {
        let small = setting.loopback(machine, CC_NIC, SMALL);
        let large = setting.loopback(machine, CC_NIC, LARGE);
        let lowest = minimum(ask, setting, &small);
        let rate = peak(ask, setting, &small).map(|peak| mpps(&peak.outcome));
        let throughput = peak(ask, setting, &large).map(|peak| gbps(&peak.outcome));
        [lowest, rate, throughput]
    });
    let plain = setting.loopback(&setting.platforms.spr, Interface::UnoptimisedRing, SMALL);
    let plain = peak(ask, setting, &plain).map(|peak| mpps(&peak.outcome));
    [icx[0], icx[1], icx[2], spr[0], spr[1], spr[2], ratio(spr[1], plain)]
}
