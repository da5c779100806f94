//! Every queue is probed, the probes change nothing, and a miscount of any of them is found.

use std::collections::BTreeSet;

use super::super::parameters::EciParameters;
use super::super::sharing::observed;
use super::super::tests::parameters;
use super::super::{Counters, Machine};
use super::KINDS;
use crate::probe::queues::{Miscount, QueueReport};

/// Machines in which units have to be waited for, and whether the device recalls lines there: then the second level has room for what
/// answers a recall.
fn narrow(recalls: bool) -> EciParameters {
    let mut parameters = parameters();
    (parameters.core.store_buffer, parameters.core.prefetches) = (2, 2);
    let directory = &mut parameters.directory;
    (directory.slices, directory.units, directory.transactions) = (2, 1, 1);
    (parameters.cache.transaction_units, parameters.cache.unit_transactions) = (1, if recalls { 16 } else { 1 });
    parameters
}

fn run<T>(recalls: bool, before: impl FnOnce(&mut Machine), after: impl FnOnce(&mut Machine) -> T) -> T {
    observed(&narrow(recalls), (3, recalls, 5), before, after)
}

#[test]
fn every_kind_of_queue_is_fed_and_the_law_holds_for_each() {
    let mut all: Vec<QueueReport> = Vec::new();
    for recalls in [false, true] {
        let seen = |machine: &mut Machine| (machine.queue_reports(), machine.queue_faults());
        let (reports, faults) = run(recalls, Machine::probe_queues, seen);
        assert_eq!(faults, Vec::<String>::new());
        for report in &reports {
            assert!(report.little.holds(), "{report:?}");
            assert!(report.limit.is_none_or(|limit| report.little.maximum_occupancy <= limit), "{report:?}");
            if report.little.arrivals == report.little.departures {
                assert!(report.little.relative_residual.abs() < 1e-9, "{report:?}");
            }
        }
        all.extend(reports);
    }
    assert_eq!(all.iter().map(|report| report.kind).collect::<BTreeSet<_>>(), KINDS.into_iter().collect());
    let most = |kind: &str| {
        let of_kind = all.iter().filter(|report| report.kind == kind);
        of_kind.map(|report| report.little.maximum_occupancy).max().expect("the queue is fed")
    };
    assert_eq!(["store buffer", "prefetches", "transactions of a directory unit"].map(most), [2, 2, 1]);
    for waits in ["waits for a cache unit", "waits for a directory unit", "accesses for a line"] {
        assert!(most(waits) > 1, "{waits}");
    }
}

#[test]
fn a_planted_miscount_of_any_queue_is_found() {
    // An exit is not told of where it follows from the entry.
    let known_ends = ["link", "directory slice"];
    for kind in KINDS {
        for exit in [false, true].into_iter().filter(|exit| !exit || !known_ends.contains(&kind)) {
            let miscount = Miscount { kind, exit, number: 3 };
            let plant = |machine: &mut Machine| {
                machine.probe_queues();
                machine.miscount(miscount);
            };
            // Without recalls nothing waits in a directory that serves one request at a time, which the second level does not exceed.
            let recalls = ["recalls", "waits for a directory unit"].contains(&kind);
            let faults = run(recalls, plant, |machine| machine.queue_faults());
            assert!(!faults.is_empty(), "{miscount:?} was not found");
            assert!(faults.iter().all(|fault| fault.contains(&format!(": {kind}: "))), "{miscount:?}: {faults:?}");
        }
    }
}

#[test]
fn probes_change_nothing() {
    let outcome = |machine: &mut Machine| -> (Counters, u64) { (machine.counters.clone(), machine.now()) };
    assert_eq!(run(true, Machine::probe_queues, outcome), run(true, |_| (), outcome));
}
