//! The results by which the paper is remembered, for the report of what the guesses decide.

use super::accesses;
use super::curves::loaded;
use super::loops::{gbps, minimum, mpps, peak, ratio};
use super::setting::{CC_NIC, LARGE, SMALL, Setting};
use super::stores;
use crate::ask::Ask;
use crate::workload::Interface;

/// The headline results' ids and units, in the order of [`headlines`].
pub const HEADLINES: [(&str, &str); 10] = [
    ("ccnic.fig12.icx.min_latency", "ns"),
    ("ccnic.fig12.icx.peak_rate", "Mpps"),
    ("ccnic.fig12.icx.large_throughput", "Gb/s"),
    ("ccnic.fig13.spr.min_latency", "ns"),
    ("ccnic.fig13.spr.peak_rate", "Mpps"),
    ("ccnic.fig13.spr.large_throughput", "Gb/s"),
    ("ccnic.introduction.unopt_rate_ratio", "ratio"),
    ("ccnic.introduction.cx6.latency_at_80", "ns"),
    ("ccnic.fig2.batched_over_write_back", "fraction"),
    ("ccnic.fig18.interconnect_share", "fraction"),
];

/// The headline results as far as they are known; asked as their figures ask them.
pub fn headlines(setting: &Setting, ask: &mut Ask<'_>) -> [Option<f64>; 10] {
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
    let cx6 = loaded(ask, setting, &setting.loopback(&setting.platforms.icx_cx6, Interface::PcieRing, SMALL));
    let batched = stores::batched_over_write_back(setting, ask);
    let crossing = accesses::share_of_interconnect(setting, ask);
    [icx[0], icx[1], icx[2], spr[0], spr[1], spr[2], ratio(spr[1], plain), cx6, batched, crossing]
}
