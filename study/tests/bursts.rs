//! Transmit and receive bursts of a closed loop are each as they were asked.

use conic_interface::ccnic::Features;
use conic_sim::platform::Platform;
use conic_study::simulated::Simulator;
use conic_study::workload::{Interface, Loopback, LoopbackOutcome, Machine};

fn ask(transmit_burst: usize, receive_burst: usize) -> LoopbackOutcome {
    let platform = Platform::load("icx").expect("the platform is shipped");
    let question = Loopback {
        window: 128,
        transmit_burst,
        receive_burst,
        ..Loopback::new(platform.parameters(), Interface::CcNic(Features::paper()))
    };
    Simulator.loopback(&question).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn small_receive_bursts_leave_transmit_bursts_whole() {
    let (both, receive, transmit) = (ask(32, 32), ask(32, 1), ask(1, 32));
    let accesses = |outcome: &LoopbackOutcome| outcome.nic.reads + outcome.nic.rfos;
    assert!(accesses(&receive) < 1.1 * accesses(&both), "{receive:?}");
    assert!(accesses(&transmit) > 1.2 * accesses(&both), "{transmit:?}");
    assert!(receive.packets_per_second > transmit.packets_per_second, "{receive:?} {transmit:?}");
}
