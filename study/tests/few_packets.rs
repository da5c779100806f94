//! A run of fewer packets than a burst brings: it measures what came, and no nothing.

use conic_interface::ccnic::Features;
use conic_sim::platform::Platform;
use conic_study::simulated::Simulator;
use conic_study::workload::{Interface, Loopback, Machine};

#[test]
fn whoever_asks_for_one_packet_is_told_of_one_whatever_the_burst() {
    let platform = Platform::load("icx").expect("the platform is shipped");
    for (interface, burst) in
        [(Interface::CcNic(Features::best()), 32), (Interface::CcNic(Features::paper()), 3), (Interface::Ring, 256)]
    {
        for (window, offered) in [(200, None), (32, None), (32, Some(5e6))] {
            let question = Loopback {
                threads: 2,
                window,
                offered,
                transmit_burst: burst,
                receive_burst: burst,
                packets: (2 * window, 1),
                ..Loopback::new(platform.parameters(), interface)
            };
            let outcome = Simulator.loopback(&question).unwrap_or_else(|failure| panic!("{failure}"));
            assert!(outcome.packets >= 2, "{question:?}: {outcome:?}");
            assert!(outcome.packets_per_second > 0.0 && outcome.minimum_nanoseconds > 0.0, "{outcome:?}");
        }
    }
}
