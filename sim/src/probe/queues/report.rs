//! What the probes of the queues show, and whether it can be right.

use serde::Serialize;

use super::super::occupancy::Little;
use super::{Name, Probed};

/// What the probe of one queue shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueReport {
    /// What it is: one of the machine's list of kinds.
    pub kind: &'static str,
    /// Whose: `host core 0`, `NIC to host 1`, `host memory 3`.
    pub of: String,
    /// Most that it has room for, where it has a limit.
    pub limit: Option<u64>,
    /// Its window.
    pub little: Little,
}

/// See [`Probed::reports`].
pub(super) fn reports<M: Probed>(machine: &M) -> Vec<QueueReport> {
    let end = machine.last_change();
    let Some(queues) = machine.probes() else { return Vec::new() };
    let report = |(&queue, probe): (&M::Queue, &super::queue::Queue)| QueueReport {
        kind: queue.kind(),
        of: machine.owner(queue),
        limit: machine.limit_of(queue),
        little: probe.little(end),
    };
    let reports = queues.probes.iter().map(report);
    reports.filter(|report| report.little.arrivals + report.little.carried_in > 0).collect()
}

/// See [`Probed::find_faults`].
pub(super) fn faults<M: Probed>(machine: &M) -> Vec<String> {
    let Some(queues) = machine.probes() else { return Vec::new() };
    let end = machine.last_change();
    let mut faults = Vec::new();
    for queue in machine.all_queues() {
        let mut probe = queues.probes.get(&queue).cloned().unwrap_or_default();
        let name = machine.name_of(queue);
        let little = probe.little(end);
        if !little.holds() {
            let (area, residence, calls) = (little.area, little.residence, little.faults);
            faults.push(format!("{name}: occupancy {area} ps, stays {residence} ps, {calls} calls that cannot be"));
        }
        let inside = probe.level(end);
        if let Some(holds) = machine.holds_at_end(queue, end.picoseconds()).filter(|&holds| holds != inside) {
            faults.push(format!("{name}: it holds {holds}, and {inside} came and did not leave"));
        }
        if let Some(limit) = machine.limit_of(queue).filter(|&limit| little.maximum_occupancy > limit) {
            faults.push(format!("{name}: {} at once, and there is room for {limit}", little.maximum_occupancy));
        }
        let served = probe.served();
        if let Some((entries, busy)) = machine.served_by(queue)
            && (entries != served.entries || busy.is_some_and(|busy| busy != served.busy_picoseconds))
        {
            faults.push(format!("{name}: it counted {entries} and {busy:?} ps, the probe {served:?}"));
        }
    }
    faults
}
