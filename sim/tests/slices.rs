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

/// One entry for own requests. An own request has it; another one is at the slice at a time after the first began, and so is a request
/// of the other node. Times are picoseconds after the first began, and from when on the entry is free is given; what the two waited.
fn waits_with_one_entry(times: impl FnOnce(u64) -> [u64; 2]) -> [u64; 2] {
    let mut parameters = one_slice();
    (parameters.node.home_entries, parameters.node.home_own_entries) = (3, 1);
    let (node, link, memory) = (&parameters.node, &parameters.interconnect, parameters.memory.latency);
    let alone = alone(&parameters);
    let remote = entries::loads(&parameters, Home::Host, &[(1, 0)]).0[0];
    let back = u64::from(link.data_flits) * link.flit_time + link.crossing + node.home_to_core;
    let comes = remote - back - memory - node.home_lookup;
    let [own, other] = times(node.core_to_home + node.home_lookup + memory);
    let starts = [(0, 0), (0, own - node.core_to_home), (1, other - comes)];
    let took = entries::loads(&parameters, Home::Host, &starts).0;
    assert_eq!(took[0], alone, "the first waits for nobody");
    [took[1] - alone, took[2] - remote]
}

#[test]
fn a_look_up_that_finds_no_entry_takes_the_slice_as_long_as_any() {
    let lookup = one_slice().node.home_lookup;
    for after in [1, SERVICE - 1, SERVICE, SERVICE + 1] {
        let mut free = 0;
        let [own, other] = waits_with_one_entry(|free_from| {
            free = free_from;
            [free - 20_000, free - 20_000 + after]
        });
        assert_eq!(own, 20_000, "from its first look-up until its second begins");
        assert_eq!(other, SERVICE.saturating_sub(after), "{after} ps behind a look-up in vain, of {lookup} ps");
    }
}

#[test]
fn who_is_looked_up_once_more_takes_its_turn_behind_those_that_came_before() {
    for before in [1, SERVICE - 1, SERVICE, SERVICE + 1] {
        let [own, other] = waits_with_one_entry(|free| [free - 20_000, free - before]);
        assert_eq!((own, other), (20_000 + SERVICE.saturating_sub(before), 0), "{before} ps before");
    }
    for after in [1, SERVICE - 1, SERVICE, SERVICE + 1] {
        let [own, other] = waits_with_one_entry(|free| [free - 20_000, free + after]);
        assert_eq!((own, other), (20_000, SERVICE.saturating_sub(after)), "{after} ps after");
    }
}

#[test]
fn a_request_has_its_entry_once_it_has_been_looked_up_and_not_while_it_waits_for_that() {
    let lookup = one_slice().node.home_lookup;
    // It would have been looked up too early for the entry by so much, and is put off by almost a service time.
    for early in [1, SERVICE - 2] {
        let [own, other] = waits_with_one_entry(|free| [free - lookup - early, free - lookup - early - 1]);
        assert_eq!((own, other), (SERVICE - 1, 0), "{early} ps too early");
    }
    let [own, _] = waits_with_one_entry(|free| [free - lookup - SERVICE, free - lookup - SERVICE - 1]);
    assert_eq!(own, SERVICE + lookup, "looked up in vain, and once more");
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
