//! A set of a private cache all of whose lines wait for leave to be written: none may go for what comes meanwhile.

use std::cell::Cell;
use std::rc::Rc;

use conic_fabric::{Core, Home, LINE_BYTES, Layout, Line, SynchronisingWords, Time};
use conic_sim::platform::Platform;
use conic_sim::{Options, Role, Simulation};

/// Ways of the private caches, which are one set.
const WAYS: u64 = 2;

#[test]
fn a_line_that_finds_no_way_goes_again_and_comes_once_there_is_one() {
    let mut machine = Platform::load("icx").expect("it comes with the crate").parameters().clone();
    (machine.cache.l1_bytes, machine.cache.l1_ways) = (WAYS * LINE_BYTES, WAYS as u32);
    (machine.cache.l2_bytes, machine.cache.l2_ways) = (WAYS * LINE_BYTES, WAYS as u32);
    let mut layout = Layout::new();
    // The shared lines are far, and leave to write them takes longer than the near line does to come.
    let far = layout.add("far", 4096, 64, Home::Nic, SynchronisingWords::ALL);
    let near = layout.add("near", 4096, 64, Home::Host, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(&machine, &layout, Options { checked: true, ..Options::default() });
    simulation.setup().store(near, 7);
    let evictions = Rc::new(Cell::new(0));
    let into = Rc::clone(&evictions);
    let writer = simulation.core("writer", 0, Role::Main, Time::from_nanoseconds(2000), move |core| {
        let evictions = || core.machine().borrow().counters(core.agent()).evictions;
        for line in 0..WAYS {
            core.load_acquire(far.lines(line));
        }
        let before = evictions();
        for line in 0..WAYS {
            core.store(far.lines(line), line + 1);
        }
        assert_eq!(core.load_acquire(near), 7);
        core.full_fence();
        into.set(evictions() - before);
        for line in 0..WAYS {
            assert_eq!(core.load_acquire(far.lines(line)), line + 1);
        }
        // The same for a store, and for bulk data behind which the core goes on.
        let mut lines = [Line::ZERO; 4];
        core.read_lines(far.lines(8), &mut lines);
        for line in 0..4 {
            core.store(far.lines(8 + line), 9);
            core.store(near.lines(8 + line), 9);
        }
        core.read_lines(near.lines(8), &mut lines);
        assert!(lines.iter().all(|line| line.0[0] == 9), "{lines:?}");
    });
    let reader = simulation.core("reader", 1, Role::Main, Time::ZERO, move |core| {
        for line in 0..WAYS {
            core.load_acquire(far.lines(line));
        }
    });
    for agent in [writer, reader] {
        simulation.machine().borrow_mut().set_prefetchers(agent, false);
    }
    simulation.run().expect("both programs end");
    assert!(evictions.get() > 1, "the near line found a way while both others waited: the test has shown nothing");
}
