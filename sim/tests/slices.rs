//! How many messages home agents can look up: one every `home_service` in each slice, and not a picosecond sooner.

use crate::common;
use crate::entries::{self, misses};

use conic_fabric::Home;
use conic_sim::Parameters;

const SERVICE: u64 = 7_000;

/// A platform with one slice a node, without prefetchers, and with memory that no access waits for.
fn one_slice() -> Parameters {
    let mut parameters = common::without_prefetchers("icx");
    (parameters.memory.channels, parameters.memory.line_time) = (64, 1);
    (parameters.node.home_slices, parameters.node.home_service) = (1, SERVICE);
    parameters
}

/// Has cores of node 0 load a line each at a given time, and gives the picoseconds that each load took.
fn loads(parameters: &Parameters, home: Home, starts: &[u64]) -> Vec<u64> {
    let starts: Vec<_> = starts.iter().map(|&start| (0, start)).collect();
    entries::loads(parameters, home, &starts).0
}

/// A load of a line that only local memory has, with nobody else about.
fn alone(parameters: &Parameters) -> u64 {
    let node = &parameters.node;
    node.core_to_home + node.home_lookup + parameters.memory.latency + node.home_to_core
}

#[test]
fn a_slice_begins_its_next_look_up_after_its_service_time_and_not_a_picosecond_later() {
    let parameters = one_slice();
    let alone = alone(&parameters);
    for (after, waits) in [(0, SERVICE), (1, SERVICE - 1), (SERVICE - 1, 1), (SERVICE, 0), (SERVICE + 1, 0)] {
        assert_eq!(loads(&parameters, Home::Host, &[0, after]), [alone, alone + waits], "{after} ps after");
    }
}

#[test]
fn who_waits_for_a_slice_is_served_in_the_order_of_arrival() {
    let parameters = one_slice();
    let took = loads(&parameters, Home::Host, &[0, 30, 20, 10]);
    let expected = [0, 3 * SERVICE - 30, 2 * SERVICE - 20, SERVICE - 10];
    assert_eq!(took, expected.map(|waits| alone(&parameters) + waits));
}

#[test]
fn neighbouring_lines_are_of_different_slices_and_do_not_wait_for_each_other() {
    let mut parameters = one_slice();
    parameters.node.home_slices = 4;
    assert_eq!(loads(&parameters, Home::Host, &[0; 4]), [alone(&parameters); 4]);
    parameters.node.home_slices = 2;
    let mut took = loads(&parameters, Home::Host, &[0; 4]);
    took.sort_unstable();
    assert_eq!(took, [0, 0, SERVICE, SERVICE].map(|waits| alone(&parameters) + waits));
}

#[test]
fn a_request_that_crosses_is_looked_up_in_both_nodes() {
    let parameters = one_slice();
    let [first, second] = loads(&parameters, Home::Nic, &[0, 0])[..] else { panic!("two loads") };
    // The second leaves its own home agents later by one service time, and finds the other node's free then.
    assert_eq!(second - first, SERVICE);
    let third = loads(&parameters, Home::Nic, &[0, 0, 0])[2];
    assert_eq!(third - first, 2 * SERVICE);
}

#[test]
fn home_agents_saturate_at_a_line_a_slice_every_service_time() {
    const CORES: u64 = 8;
    const LINES: u64 = 400;
    for slices in [1, 2, 4] {
        let mut parameters = one_slice();
        parameters.node.home_slices = slices;
        let simulation = misses(&parameters, CORES, LINES);
        let took = simulation.machine().borrow().now();
        let least = CORES * LINES * SERVICE / u64::from(slices);
        // Memory could give a line every 15 ps. The first and the last loads do not overlap.
        assert!((least..least + least / 50).contains(&took), "{slices} slices: {took} ps, at least {least}");
    }
}

#[test]
fn no_service_time_is_no_limit() {
    let mut parameters = one_slice();
    parameters.node.home_service = 0;
    assert_eq!(loads(&parameters, Home::Host, &[0; 8]), [alone(&parameters); 8]);
}
