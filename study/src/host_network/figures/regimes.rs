//! Figure 3: who degrades beside whom.

use conic_sim::Failure;

use super::{CORES, Curve, UNAFFECTED, chart, far_from_saturated, least, most, over_cores};
use crate::experiment::Findings;
use crate::host_network::quadrants::Quadrant;
use crate::host_network::runs::{Degradation, Runs};

/// Ids of a quadrant: least and most degradation of cores, most of devices, and its plots.
const IDS: [[&str; 5]; 4] = [
    [
        "host.fig3.q1.c2m_degradation_least",
        "host.fig3.q1.c2m_degradation_most",
        "host.fig3.q1.p2m_degradation_most",
        "fig3-q1-degradation",
        "fig3-q1-bandwidth",
    ],
    [
        "host.fig3.q2.c2m_degradation_least",
        "host.fig3.q2.c2m_degradation_most",
        "host.fig3.q2.p2m_degradation_most",
        "fig3-q2-degradation",
        "fig3-q2-bandwidth",
    ],
    [
        "host.fig3.q3.c2m_degradation_least",
        "host.fig3.q3.c2m_degradation_most",
        "host.fig3.q3.p2m_degradation_most",
        "fig3-q3-degradation",
        "fig3-q3-bandwidth",
    ],
    [
        "host.fig3.q4.c2m_degradation_least",
        "host.fig3.q4.c2m_degradation_most",
        "host.fig3.q4.p2m_degradation_most",
        "fig3-q4-degradation",
        "fig3-q4-bandwidth",
    ],
];

/// Degradation by the number of cores.
fn degradations(runs: &mut Runs<'_>, quadrant: Quadrant) -> Vec<Degradation> {
    CORES.iter().map(|cores| runs.degradation(quadrant, *cores)).collect()
}

fn is_blue(of: &[Degradation]) -> bool {
    of.iter().all(|one| one.cores > UNAFFECTED && one.devices < UNAFFECTED)
}

/// Figure 3.
pub(super) fn quadrants(runs: &mut Runs<'_>) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let all = Quadrant::ALL.map(|quadrant| degradations(runs, quadrant));
    for (quadrant, of) in Quadrant::ALL.into_iter().zip(&all) {
        numbers(runs, &mut findings, quadrant, of);
    }
    statements(runs, &mut findings, &all);
    Ok(findings)
}

fn numbers(runs: &mut Runs<'_>, findings: &mut Findings, quadrant: Quadrant, of: &[Degradation]) {
    let curve = |pick: fn(&Degradation) -> f64| -> Curve {
        CORES.iter().zip(of).map(|(cores, one)| (*cores as f64, pick(one))).collect()
    };
    let (cores, devices) = (curve(|one| one.cores), curve(|one| one.devices));
    let [id_least, id_most, id_devices, degradation, bandwidth] = IDS[quadrant as usize];
    findings.number(id_least, "ratio", Some(least(&cores)));
    findings.number(id_most, "ratio", Some(most(&cores)));
    findings.number(id_devices, "ratio", Some(most(&devices)));
    let title = format!("Quadrant {}: {}", quadrant.number(), quadrant.name());
    findings.plot(degradation, chart(&title, ("Degradation", "ratio"), [("C2M", cores), ("P2M", devices)]));
    let gigabytes = |bytes: f64| bytes / 1e9;
    let of_cores = over_cores(|cores| gigabytes(runs.together(quadrant, cores).core_bytes_per_second()));
    let of_devices = over_cores(|cores| gigabytes(runs.together(quadrant, cores).device_bytes_per_second()));
    let limit = gigabytes(runs.host.memory_bytes_per_second());
    let of_memory = over_cores(|_| limit);
    let series = [("C2M", of_cores), ("P2M", of_devices), ("memory's limit", of_memory)];
    findings.plot(bandwidth, chart(&title, ("Memory bandwidth", "GB/s"), series));
}

fn statements(runs: &mut Runs<'_>, findings: &mut Findings, all: &[Vec<Degradation>; 4]) {
    let [first, second, third, fourth] = all;
    findings.holds("host.fig3.q1.blue", Some(is_blue(first)));
    findings.holds("host.fig3.q1.worse_with_load", Some(first[5].cores > first[0].cores));
    let used = runs.together(Quadrant::First, 1);
    let used = (used.core_bytes_per_second() + used.device_bytes_per_second()) / runs.host.memory_bytes_per_second();
    let early = first[0].cores > UNAFFECTED && far_from_saturated(used);
    findings.holds("host.fig3.q1.far_from_saturated", Some(early));
    findings.holds("host.fig3.q2.blue", Some(is_blue(second)));
    let less = first.iter().zip(second).all(|(first, second)| second.cores < first.cores);
    findings.holds("host.fig3.q2.less_than_q1", Some(less));
    findings.holds("host.fig3.q3.blue_at_first", Some(is_blue(&third[..2])));
    let red = third[2..].iter().all(|one| one.cores > UNAFFECTED && one.devices > UNAFFECTED);
    findings.holds("host.fig3.q3.red_from_three", Some(red));
    findings.holds("host.fig3.q3.p2m_loses_more", Some(third[2..].iter().all(|one| one.devices > one.cores)));
    let turns = third[3].cores < third[2].cores && third[3].devices > 1.1 * third[2].devices;
    findings.holds("host.fig3.q3.c2m_gains_from_p2m", Some(turns));
    let (five, six) = (third[4], third[5]);
    findings.holds("host.fig3.q3.stabilises", Some(six.devices / five.devices < third[3].devices / third[2].devices));
    findings.holds("host.fig3.q4.blue", Some(is_blue(fourth)));
}
