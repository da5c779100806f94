//! Packets that are copied into buffers and out of them, by cores or by engines.

use conic_interface::ccnic::Features;
use conic_sim::platform::Platform;
use conic_study::simulated::Simulator;
use conic_study::workload::{Application, Engines, Interface, Loopback, LoopbackOutcome, Machine, Switches, Touch};

const CC_NIC: Interface = Interface::CcNic(Features::paper());

fn question(platform: &str, interface: Interface, packet_size: u16, host: bool, nic: bool) -> Loopback {
    Loopback {
        packet_size,
        packets: (300, 300),
        switches: Switches { application: Application::Copying, engines: Engines { host, nic }, ..Switches::default() },
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

#[test]
fn every_payload_comes_back_as_it_was_copied() {
    let features = [Features::paper(), Features::best(), Features { shared_pool: false, ..Features::paper() }];
    let mut cases: Vec<(&str, Interface, bool, bool)> = Vec::new();
    for features in features {
        for (host, nic) in [(false, false), (true, false), (false, true), (true, true)] {
            cases.push(("spr", Interface::CcNic(features), host, nic));
        }
    }
    cases.push(("spr", Interface::UnoptimisedRing, true, false));
    cases.push(("icx-cx6", Interface::PcieRing, false, false));
    for (platform, interface, host, nic) in cases {
        for size in [60, 64, 100, 1500, 9600] {
            // What comes back while warming up is read whole: here nearly all.
            let packets = (150, 40);
            let outcome = run(&Loopback { packets, ..question(platform, interface, size, host, nic) });
            assert!(outcome.packets >= 40 - 31, "{interface:?} {size} {host} {nic}");
        }
    }
}

#[test]
fn engines_of_several_threads_are_shared_in_turn() {
    // Six threads on four engines of each side.
    let question = Loopback { threads: 6, packets: (200, 40), ..question("spr", CC_NIC, 1500, true, true) };
    assert!(run(&question).packets >= 6 * (40 - 31));
}

/// One packet in flight.
fn alone(packet_size: u16, host: bool, nic: bool) -> LoopbackOutcome {
    run(&Loopback { window: 1, ..question("spr", CC_NIC, packet_size, host, nic) })
}

#[test]
fn a_core_with_an_engine_does_not_touch_the_payload() {
    let (by_core, by_engine) = (alone(4096, false, false), alone(4096, true, false));
    // All 64 lines; the descriptor's line is the core's own matter.
    assert!((by_core.host.reads - by_engine.host.reads - 64.0).abs() < 0.1, "{:?} {:?}", by_core.host, by_engine.host);
    let (by_core, by_engine) = (alone(4096, false, false), alone(4096, false, true));
    assert!((by_core.nic.reads - by_engine.nic.reads - 64.0).abs() < 0.1, "{:?} {:?}", by_core.nic, by_engine.nic);
}

#[test]
fn an_engine_costs_a_small_packet_its_start_up_time_twice() {
    let start_up = 2.0 * 200.0;
    let (by_core, by_engine) = (alone(64, false, false), alone(64, true, false));
    let longer = by_engine.median_nanoseconds - by_core.median_nanoseconds;
    assert!(longer > start_up, "{longer} ns");
    let mut slower = question("spr", CC_NIC, 64, true, false);
    slower.window = 1;
    let engine = slower.machine.engine.as_mut().expect("Sapphire Rapids has engines");
    engine.start_up += 100_000;
    let longer = run(&slower).median_nanoseconds - by_engine.median_nanoseconds;
    // The median is a bucket of a histogram of three digits, and polling adds a round.
    assert!((longer - 200.0).abs() < 10.0, "{longer} ns");
}

#[test]
fn a_large_packet_gains_what_a_small_one_loses() {
    let rate = |size, engine| {
        let question = Loopback { window: 64, packets: (300, 600), ..question("spr", CC_NIC, size, engine, engine) };
        run(&question).packets_per_second
    };
    assert!(rate(64, true) < 0.7 * rate(64, false));
    assert!(rate(4096, true) > 1.5 * rate(4096, false));
}

#[test]
fn what_has_no_engine_or_nothing_for_it_says_so() {
    let fails = |question: &Loopback| Simulator.loopback(question).expect_err("refused").to_string();
    let told = fails(&question("icx", CC_NIC, 64, true, false));
    assert!(told.contains("icx has no copy engines") && told.contains("spr"), "{told}");
    let told = fails(&question("spr", Interface::UnoptimisedRing, 64, false, true));
    assert!(told.contains("CC-NIC alone"), "{told}");
    let told = fails(&question("icx-cx6", Interface::PcieRing, 64, false, true));
    assert!(told.contains("PCIe"), "{told}");
    let mut idle = question("spr", CC_NIC, 64, true, false);
    idle.switches.application = Application::Loopback;
    assert!(fails(&idle).contains("does not copy"));
    let mut forwarding = question("spr", CC_NIC, 64, false, true);
    forwarding.switches.application = Application::Forwarding(Touch::Header);
    assert!(fails(&forwarding).contains("forwarded"));
}
