//! Random programs on machines with tiny caches: every value that a load gives is checked, and so is every state that a
//! copy changes to. The same programs run with and without the simulator's shortcuts, and must not see a difference.

mod device;
mod program;

use crate::common;
use conic_sim::Options;
use program::{Outcome, Plan, run};

fn checked(seed: u64) -> Options {
    Options { checked: true, seed, ..Options::default() }
}

fn plan(seed: u64) -> Plan {
    let name = if seed.is_multiple_of(2) { "icx" } else { "spr" };
    Plan { seed, parameters: common::tiny(name, seed), agents: [3, 3], lines: 3 + seed % 5, operations: 10_000 }
}

#[test]
fn no_load_sees_a_value_that_it_may_not() {
    let operations: u64 = (0..40).map(|seed| run(&plan(seed), checked(seed)).operations).sum();
    println!("{operations} operations");
    assert!(operations > 2_000_000, "{operations} operations");
}

#[test]
fn lines_are_recalled_in_half_of_the_runs_and_requests_wait_for_ways_and_get_them() {
    let outcomes: Vec<_> = (400..410).map(|seed| run(&plan(seed), checked(seed)).filters).collect();
    let runs = outcomes.iter().filter(|filters| filters.evictions > 100).count();
    let [evictions, recalled, waits] = [
        outcomes.iter().map(|filters| filters.evictions).sum::<u64>(),
        outcomes.iter().map(|filters| filters.recalled).sum::<u64>(),
        outcomes.iter().map(|filters| filters.waits).sum::<u64>(),
    ];
    println!("{runs} runs: {evictions} evictions, {recalled} copies recalled, {waits} requests waited");
    assert!(runs >= 3 && recalled > evictions && evictions > 10_000 && waits > 1_000);
}

#[test]
fn a_seed_replays_a_run_to_the_last_picosecond() {
    for seed in 100..104 {
        let (first, second) = (run(&plan(seed), checked(seed)), run(&plan(seed), checked(seed)));
        assert_eq!(first, second, "seed {seed}");
        let other = run(&Plan { seed: seed + 1, ..plan(seed) }, checked(seed));
        assert_ne!(first.ends, other.ends, "another seed draws another program");
    }
}

#[test]
fn simulating_ahead_and_skipping_rounds_changes_nothing() {
    // How many events there are is all that the shortcuts may change.
    for seed in 200..212 {
        let slow = Options { fast_forward: false, run_ahead: false, ..checked(seed) };
        let exact = run(&plan(seed), slow);
        for (fast_forward, run_ahead) in [(true, false), (false, true), (true, true)] {
            let fast = run(&plan(seed), Options { fast_forward, run_ahead, ..slow });
            let fast = Outcome { events: exact.events, ..fast };
            assert_eq!(fast, exact, "seed {seed}, fast_forward {fast_forward}, run_ahead {run_ahead}");
        }
    }
}

#[test]
fn what_memory_alone_decides_is_answered_ahead_only_where_nobody_looks_and_that_changes_nothing() {
    // A checked run looks at queues, so memory's answers are events. Half of the runs have the fewest entries that may be.
    let mut left_out = 0;
    for seed in 300..324 {
        let exact = run(&plan(seed), checked(seed));
        let ahead = run(&plan(seed), Options { checked: false, ..checked(seed) });
        left_out += exact.events - ahead.events;
        assert_eq!(Outcome { events: exact.events, ..ahead }, exact, "seed {seed}");
    }
    assert!(left_out > 24_000, "only {left_out} events were left out");
}

#[test]
fn a_device_and_cores_see_each_others_writes_in_order_with_and_without_the_shortcuts() {
    for seed in 0..18 {
        let exact = device::run(seed, Options { fast_forward: false, run_ahead: false, ..checked(seed) });
        let fast = device::run(seed, checked(seed));
        assert_eq!(fast, exact, "seed {seed}");
    }
}
