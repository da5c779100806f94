//! Applications behind a modelled NIC chip, driven directly and through overlays.

mod key_value;
mod tcp_rpc;

use conic_interface::ccnic::Features;
use conic_sim::Parameters;
use conic_sim::platform::Platform;
use conic_study::workload::{Interface, Reached};

const CC_NIC: Interface = Interface::CcNic(Features::paper());

fn machine(name: &str) -> Parameters {
    Platform::load(name).expect("a platform that comes with the simulator").parameters().clone()
}

fn overlay(interface: Interface, threads: usize) -> Reached {
    Reached::Overlay { interface, threads }
}

/// All that may lie between two threads of an application and the NIC.
fn ways() -> [Reached; 5] {
    [
        Reached::Directly,
        overlay(CC_NIC, 2),
        overlay(CC_NIC, 5),
        overlay(Interface::CcNic(Features::best()), 2),
        overlay(Interface::UnoptimisedRing, 3),
    ]
}
