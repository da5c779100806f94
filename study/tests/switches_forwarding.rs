//! Packets that the NIC makes, the host looks at and the NIC sends on.

use conic_interface::ccnic::Features;
use conic_sim::platform::Platform;
use conic_study::simulated::Simulator;
use conic_study::workload::{
    Application, Attention, Interface, Loopback, LoopbackOutcome, Machine, Prefetching, Serving, Switches, Touch,
};

fn question(platform: &str, interface: Interface, packet_size: u16, touch: Touch) -> Loopback {
    Loopback {
        packet_size,
        prefetching: Prefetching { host: false, nic: false },
        packets: (300, 300),
        switches: Switches { application: Application::Forwarding(touch), ..Switches::default() },
        ..Loopback::new(
            Platform::load(platform).expect("a platform that comes with the simulator").parameters(),
            interface,
        )
    }
}

fn run(question: &Loopback) -> LoopbackOutcome {
    let outcome = Simulator.loopback(question).expect("a loopback that runs");
    assert_eq!(outcome.wrong(), 0);
    outcome
}

const CC_NIC: Interface = Interface::CcNic(Features::paper());

fn bytes(outcome: &LoopbackOutcome) -> f64 {
    outcome.link_bytes.iter().sum()
}

#[test]
fn a_header_costs_the_same_messages_whatever_its_packet_s_size() {
    let [small, large] = [64, 4096].map(|size| {
        let mut alone = question("spr", CC_NIC, size, Touch::Header);
        alone.window = 1;
        run(&alone)
    });
    // The descriptor, its clearing, the header's line and what is left of the pool: the payload stays with the NIC.
    for (one, other) in [(small.nic, large.nic), (small.host, large.host)] {
        assert!((one.reads - other.reads).abs() < 0.01 && (one.rfos - other.rfos).abs() < 0.01, "{one:?} {other:?}");
    }
    // Each way a descriptor's line and the header's are read by whom they are for.
    assert!((2.0..2.1).contains(&large.host.reads) && (2.0..2.1).contains(&large.nic.reads), "{large:?}");
    assert!((bytes(&small) / bytes(&large) - 1.0).abs() < 0.01, "{} {}", bytes(&small), bytes(&large));
}

#[test]
fn a_payload_that_the_host_reads_crosses_there_and_back() {
    let alone = |touch| {
        let mut alone = question("spr", CC_NIC, 4096, touch);
        alone.window = 1;
        run(&alone)
    };
    let header = alone(Touch::Header);
    for touch in [Touch::Whole, Touch::Rewrite] {
        let whole = alone(touch);
        // 63 lines more; read by the host, they are handed over, and the NIC must fetch them again.
        for (all, few) in [(whole.host, header.host), (whole.nic, header.nic)] {
            // Each crosses once, for a load or, where the core has gone on to write it, for the store.
            let more = all.reads + all.rfos - few.reads - few.rfos;
            // A header that is written while all else is loaded is asked for once more.
            let lines = if touch == Touch::Whole { 64.0 } else { 63.0 };
            assert!((more - lines).abs() < 0.01, "{touch:?}: {all:?} {few:?}");
        }
        assert!(bytes(&whole) > 10.0 * bytes(&header), "{touch:?}");
        assert!(whole.median_nanoseconds > 1.5 * header.median_nanoseconds, "{touch:?}");
    }
}

#[test]
fn every_interface_brings_every_payload_back_as_the_host_left_it() {
    for (platform, interface) in [
        ("spr", CC_NIC),
        ("spr", Interface::CcNic(Features::best())),
        ("spr", Interface::UnoptimisedRing),
        ("icx-cx6", Interface::PcieRing),
    ] {
        for size in [60, 64, 100, 1500, 9600] {
            for touch in [Touch::Header, Touch::Whole, Touch::Rewrite] {
                // `run` looks at how many came back otherwise.
                let outcome = run(&question(platform, interface, size, touch));
                // Of the 300, what came in the warm-up's last burst is not counted.
                assert!(outcome.packets >= 300 - 31, "{interface:?} {size} {touch:?}");
            }
        }
    }
}

#[test]
fn over_pcie_all_of_a_packet_crosses_whatever_the_host_looks_at() {
    let of = |touch| bytes(&run(&question("icx-cx6", Interface::PcieRing, 4096, touch)));
    let (header, whole) = (of(Touch::Header), of(Touch::Whole));
    assert!(header > 2.0 * 4096.0, "{header}");
    assert!((header / whole - 1.0).abs() < 0.02, "{header} {whole}");
}

#[test]
fn an_open_loop_of_forwarded_packets_keeps_its_rate() {
    for (platform, interface) in [("spr", CC_NIC), ("icx-cx6", Interface::PcieRing)] {
        let mut paced = question(platform, interface, 64, Touch::Header);
        paced.offered = Some(2e6);
        let outcome = run(&paced);
        assert!((outcome.packets_per_second / 2e6 - 1.0).abs() < 0.05, "{platform}: {outcome:?}");
    }
}

#[test]
fn a_nic_core_that_serves_many_queue_pairs_makes_no_packets() {
    let mut odd = question("spr", CC_NIC, 64, Touch::Header);
    odd.switches.serving = Serving::Shared { queue_pairs: 4, attention: Attention::Snoops };
    let failure = Simulator.loopback(&odd).expect_err("no such program").to_string();
    assert!(failure.contains("forward"), "{failure}");
}
