//! The key-value store on modelled machines: every answer is checked by the clients behind the NIC.

use super::{CC_NIC, machine, overlay, ways};
use conic_kv::{Demand, Sizes};
use conic_study::simulated::Simulator;
use conic_study::workload::{Interface, KeyValue, KeyValueOutcome, Loopback, Machine, Reached};

fn small(reached: Reached, threads: usize) -> KeyValue {
    let demand = Demand { keys: 3000, sets: 200, ..Demand::of_sizes(Sizes::ADS_LIKE) };
    KeyValue { reached, demand, threads, requests: (200, 400), ..KeyValue::new(&machine("icx-cx6"), Sizes::ADS_LIKE) }
}

fn served(question: &KeyValue) -> KeyValueOutcome {
    let outcome = Simulator.key_value(question).expect("it runs");
    assert_eq!(outcome.wrong, 0, "{question:?}");
    outcome
}

#[test]
fn every_answer_is_right_whatever_is_between_the_store_and_the_nic() {
    for reached in ways() {
        for copied_up_to in [0, 100] {
            let outcome = served(&KeyValue { copied_up_to, ..small(reached, 2) });
            let queues = if let Reached::Overlay { threads, .. } = reached { threads } else { 2 };
            assert!(outcome.requests >= 400 * queues as u64, "{outcome:?}");
            assert!(outcome.requests_per_second > 1e6 && outcome.median_nanoseconds > 1000.0, "{outcome:?}");
        }
    }
}

#[test]
fn jumbo_values_fit_everywhere() {
    for reached in
        [Reached::Directly, overlay(CC_NIC, 1), Reached::Overlay { interface: Interface::UnoptimisedRing, threads: 1 }]
    {
        let demand =
            Demand { keys: 50, sets: 500, ..Demand::of_sizes(Sizes::Bytes(conic_kv::message::MOST_VALUE_BYTES)) };
        let outcome = served(&KeyValue { demand, window: 8, requests: (50, 100), ..small(reached, 1) });
        assert!(outcome.value_bits_per_second > 1e9, "{outcome:?}");
    }
}

/// What comes in goes through the chip's own direction, and what leaves through the other.
#[test]
fn sets_come_in_no_faster_than_the_nics_ports_are() {
    let bytes = conic_kv::message::MOST_VALUE_BYTES;
    let demand = Demand { keys: 500, sets: 1000, ..Demand::of_sizes(Sizes::Bytes(bytes)) };
    let question = KeyValue { demand, window: 16, requests: (100, 300), ..small(Reached::Directly, 8) };
    let nic = question.machine.nic.clone().expect("a NIC");
    let outcome = served(&question);
    let inwards = outcome.requests_per_second * 8.0 * f64::from(conic_kv::message::HEADER_BYTES + bytes);
    let ports = nic.megabits_per_second as f64 * 1e6;
    assert!((0.9..1.01).contains(&(inwards / ports)), "{inwards} bits a second of {ports}");
}

#[test]
fn a_seed_gives_one_outcome_and_another_one_hardly_another() {
    let question = small(overlay(CC_NIC, 2), 2);
    let [first, again] = [served(&question), served(&question)];
    assert_eq!(first, again);
    let other = served(&KeyValue { seed: 2, requests: (400, 1500), ..question.clone() });
    let long = served(&KeyValue { requests: (400, 1500), ..question });
    assert!((other.requests_per_second / long.requests_per_second - 1.0).abs() < 0.05, "{other:?} {long:?}");
}

#[test]
fn what_cannot_be_is_said() {
    let refused = |question: &KeyValue| Simulator.key_value(question).expect_err("it is refused").0;
    let good = small(Reached::Directly, 1);
    assert!(refused(&KeyValue { machine: machine("icx"), ..good.clone() }).contains("no PCIe link"));
    assert!(refused(&KeyValue { threads: 0, ..good.clone() }).contains("a thread at least"));
    assert!(refused(&KeyValue { requests: (10, 0), ..good.clone() }).contains("one is measured"));
    let none = Demand { keys: 0, ..good.demand };
    assert!(refused(&KeyValue { demand: none, ..good.clone() }).contains("a key at least"));
    assert!(
        refused(&KeyValue { threads: 3, reached: overlay(CC_NIC, 2), ..good.clone() })
            .contains("an overlay thread each")
    );
    assert!(refused(&KeyValue { reached: overlay(Interface::PcieRing, 1), ..good }).contains("between CC-NIC or"));
}

/// CC-NIC does not use the NIC behind PCIe: its lines are where they are without one.
#[test]
fn cc_nic_is_as_fast_on_a_machine_that_has_another_nic_too() {
    let [with, without] = ["icx-cx6", "icx"].map(|name| {
        let question = Loopback { packets: (300, 600), ..Loopback::new(&machine(name), CC_NIC) };
        Simulator.loopback(&question).expect("it runs")
    });
    assert_eq!(with.packets_per_second, without.packets_per_second);
    assert_eq!(with.nic, without.nic);
}
