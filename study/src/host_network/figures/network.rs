//! Section 2.3: the quadrants with a NIC in place of storage devices.

use conic_sim::Failure;

use super::{CORES, Hosts, UNAFFECTED, chart, least, most, over_cores};
use crate::experiment::Findings;
use crate::host_network::quadrants::Quadrant;
use crate::host_network::runs::{Degradation, Meeting};

/// Ids of a quadrant: least and most degradation of cores, most of the NIC, its regime, and its plot.
const IDS: [[&str; 5]; 4] = [
    [
        "host.sec2.rdma.q1_c2m_degradation_least",
        "host.sec2.rdma.q1_c2m_degradation_most",
        "host.sec2.rdma.q1_rdma_degradation_most",
        "host.sec2.rdma.q1_blue",
        "rdma-q1-degradation",
    ],
    [
        "host.sec2.rdma.q2_c2m_degradation_least",
        "host.sec2.rdma.q2_c2m_degradation_most",
        "host.sec2.rdma.q2_rdma_degradation_most",
        "host.sec2.rdma.q2_blue",
        "rdma-q2-degradation",
    ],
    [
        "host.sec2.rdma.q3_c2m_degradation_least",
        "host.sec2.rdma.q3_c2m_degradation_most",
        "host.sec2.rdma.q3_rdma_degradation_most",
        "host.sec2.rdma.q3_blue_then_red",
        "rdma-q3-degradation",
    ],
    [
        "host.sec2.rdma.q4_c2m_degradation_least",
        "host.sec2.rdma.q4_c2m_degradation_most",
        "host.sec2.rdma.q4_rdma_degradation_most",
        "host.sec2.rdma.q4_blue",
        "rdma-q4-degradation",
    ],
];

/// The NIC's quadrants.
pub(super) fn rdma(hosts: &mut Hosts<'_>) -> Result<Findings, Failure> {
    let runs = &mut hosts.cascade_lake;
    let mut findings = Findings::default();
    let meeting = |quadrant, cores| Meeting { nic: true, ..Meeting::of(quadrant, cores) };
    for (quadrant, ids) in Quadrant::ALL.into_iter().zip(IDS) {
        let all: Vec<Degradation> = CORES.iter().map(|cores| runs.degradation_of(meeting(quadrant, *cores))).collect();
        let cores = over_cores(|cores| all[cores - 1].cores);
        let devices = over_cores(|cores| all[cores - 1].devices);
        findings.number(ids[0], "ratio", Some(least(&cores)));
        findings.number(ids[1], "ratio", Some(most(&cores)));
        findings.number(ids[2], "ratio", Some(most(&devices)));
        let slowed = all.iter().all(|one| one.cores > UNAFFECTED);
        let unaffected = |of: &[Degradation]| of.iter().all(|one| one.devices < UNAFFECTED);
        // Both degrade, from some number of cores on; before that the regime is the blue one.
        let regime = match quadrant {
            Quadrant::Third => slowed && unaffected(&all[..1]) && all[5].devices > UNAFFECTED,
            _ => slowed && unaffected(&all),
        };
        findings.holds(ids[3], Some(regime));
        let title = format!("RDMA, quadrant {}: {}", quadrant.number(), quadrant.name());
        findings.plot(ids[4], chart(&title, ("Degradation", "ratio"), [("C2M", cores), ("RDMA", devices)]));
    }
    let mut paused = |quadrant| over_cores(|cores| runs.run(meeting(quadrant, cores)).paused());
    let [first, third] = [Quadrant::First, Quadrant::Third].map(&mut paused);
    findings.number("host.sec2.rdma.q1_paused_most", "fraction", Some(most(&first)));
    findings.number("host.sec2.rdma.q3_paused_most", "fraction", Some(most(&third)));
    let series = [("C2M-Read", first), ("C2M-ReadWrite", third)];
    findings.plot("rdma-pauses", chart("Pauses of a sender over RoCE", ("Paused", "fraction"), series));
    Ok(findings)
}
