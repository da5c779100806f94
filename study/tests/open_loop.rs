//! An open loop on the simulator: what is offered is carried, and warming up does not show.

use conic_interface::ccnic::Features;
use conic_sim::platform::Platform;
use conic_study::simulated::Simulator;
use conic_study::workload::{Interface, Loopback, LoopbackOutcome, Machine};

fn ask(window: u64, offered: Option<f64>) -> LoopbackOutcome {
    let platform = Platform::load("icx").expect("the platform is shipped");
    let question = Loopback {
        threads: 2,
        window,
        offered,
        ..Loopback::new(platform.parameters(), Interface::CcNic(Features::paper()))
    };
    Simulator.loopback(&question).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn what_is_offered_is_carried_and_a_packet_takes_longer_than_alone() {
    let (alone, most) = (ask(1, None), ask(128, None));
    for share in [0.2, 0.5, 0.8] {
        let offered = share * most.packets_per_second / 2.0;
        let outcome = ask(128, Some(offered));
        let carried = outcome.packets_per_second / (2.0 * offered);
        assert!((carried - 1.0).abs() < 0.02, "{carried} of what was offered at {share}");
        assert!(outcome.median_nanoseconds >= alone.minimum_nanoseconds, "{outcome:?}");
        let written = outcome.median_from_writing_nanoseconds;
        assert!((alone.minimum_nanoseconds..=outcome.median_nanoseconds).contains(&written), "{outcome:?}");
    }
    // A closed loop writes when it may: there is nothing to be late for.
    assert_eq!(most.median_from_writing_nanoseconds, most.median_nanoseconds);
}

#[test]
fn more_than_can_be_carried_is_not() {
    let most = ask(128, None);
    let outcome = ask(128, Some(most.packets_per_second));
    assert!(outcome.packets_per_second < 1.1 * most.packets_per_second, "{outcome:?}");
    assert!(outcome.median_nanoseconds > 2.0 * most.median_nanoseconds, "what is late counts: {outcome:?}");
    // Not from when it was written: by then the window is as full as the closed loop's.
    assert!(outcome.median_from_writing_nanoseconds < 1.2 * most.median_nanoseconds, "{outcome:?}");
}
