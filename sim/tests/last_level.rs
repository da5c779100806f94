//! What the last-level cache keeps, and for how long.

use std::cell::Cell;
use std::rc::Rc;

use conic_fabric::{Core, Home, LINE_BYTES, Layout, SynchronisingWords, Time};
use conic_sim::platform::Platform;
use conic_sim::{Options, Role, SimCore, Simulation};

/// Lines that are read, many times what the last-level cache holds.
const LINES: u64 = 64;
/// Ways of the last-level cache, which is one set.
const WAYS: u32 = 8;

/// When the `turn`-th line is read.
fn begins(turn: u64) -> Time {
    Time::from_nanoseconds(2000 * turn)
}

fn wait_until(core: &SimCore<'_>, until: Time) {
    while core.now() < until {
        core.spin_until(until);
    }
}

#[test]
fn a_line_that_the_other_node_has_read_goes_in_its_turn() {
    let mut machine = Platform::load("icx").expect("it comes with the crate").parameters().clone();
    (machine.cache.l1_bytes, machine.cache.l1_ways) = (2 * LINE_BYTES, 2);
    (machine.cache.l2_bytes, machine.cache.l2_ways) = (2 * LINE_BYTES, 2);
    (machine.cache.llc_bytes, machine.cache.llc_ways) = (u64::from(WAYS) * LINE_BYTES, WAYS);
    let mut layout = Layout::new();
    let region = layout.add("lines", LINES * LINE_BYTES, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    let mut simulation = Simulation::new(&machine, &layout, Options { checked: true, ..Options::default() });
    let after_all = Rc::new(Cell::new(0));
    let reads = Rc::clone(&after_all);
    let reader = simulation.core("reader at home", 0, Role::Main, Time::ZERO, move |core| {
        for line in 0..LINES {
            core.load_acquire(region.lines(line));
            wait_until(core, begins(line + 1));
        }
        wait_until(core, begins(LINES + 10));
        let memory_reads = || core.machine().borrow().memory(0).reads();
        let before = memory_reads();
        core.load_acquire(region);
        reads.set(memory_reads() - before);
    });
    // Each line when its first reader has given it up to the last-level cache, and before that has given it up.
    let follower = simulation.core("reader elsewhere", 1, Role::Main, begins(4), move |core| {
        for line in 0..LINES {
            core.load_acquire(region.lines(line));
            wait_until(core, begins(line + 5));
        }
    });
    for agent in [reader, follower] {
        simulation.machine().borrow_mut().set_prefetchers(agent, false);
    }
    simulation.run().expect("both programs end");
    let machine = simulation.machine().borrow();
    assert_eq!(machine.memory(0).reads(), LINES + after_all.get(), "the follower found each line in the last level");
    assert_eq!(after_all.get(), 1, "a line read {LINES} lines ago is not in a cache of {WAYS}");
}
