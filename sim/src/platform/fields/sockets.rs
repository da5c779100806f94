//! Values of two sockets that cannot be together.

use crate::machine::tags::MOST_WAYS;
use crate::parameters::{NodeParameters, Parameters};

/// Values of the home agents.
pub(super) fn contradictions_of_home(parameters: &Parameters, found: &mut Vec<(&'static str, String)>) {
    let NodeParameters { home_entries: all, home_own_entries: own, .. } = parameters.node;
    let ways = parameters.snoop_filter.as_ref().map_or(0, |filter| filter.ways);
    if ways > MOST_WAYS {
        found.push(("snoop_filter.ways", format!("a set has {MOST_WAYS} ways at most, not {ways}")));
    }
    if own >= all {
        let message = format!(
            "none of a slice's {all} entries (node.home_entries) would be left to the other node, and two nodes might wait for each other"
        );
        found.push(("node.home_own_entries", message));
    }
}

/// Values of the uncore's clock.
pub(super) fn contradictions_of_uncore(parameters: &Parameters, found: &mut Vec<(&'static str, String)>) {
    let Some(uncore) = &parameters.uncore else { return };
    let (crossing, flit) = (parameters.interconnect.crossing, parameters.interconnect.flit_time);
    if 2 * uncore.crossing_part > crossing {
        let message =
            format!("both nodes' parts are more than all of a crossing (interconnect.crossing, {crossing} ps)");
        found.push(("uncore.crossing_part", message));
    }
    if uncore.flit_time > flit {
        let message = format!("the link would never reach its own rate (interconnect.flit_time, {flit} ps)");
        found.push(("uncore.flit_time", message));
    }
}
