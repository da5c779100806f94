//! Lines that are published whole, and polls that end: what a core asks for, and what leaving a polling loop costs it.

use crate::common;
use std::cell::Cell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Home, Layout, Line, SynchronisingWords, Time};
use conic_sim::{Options, Parameters, Role, SimCore, Simulation};

const LINE: Line = Line([1; 8]);

fn checked() -> Options {
    Options { checked: true, ..Options::default() }
}

/// Messages with a line that node 1 sends when a core of node 0 writes all of a line by `write`. Nobody has the line, and it is
/// home to node 1; or a core of node 1 has modified it.
fn lines_sent(
    without_data: bool,
    store_buffer: u32,
    modified_and_home: Option<Home>,
    write: fn(&SimCore<'_>, Address),
) -> u64 {
    let mut parameters = common::without_prefetchers("spr");
    parameters.protocol.full_line_store_without_data = without_data;
    parameters.core.store_buffer = store_buffer;
    let mut layout = Layout::new();
    let at = layout.add("line", 64, 64, modified_and_home.unwrap_or(Home::Nic), SynchronisingWords::FIRST);
    let mut simulation = Simulation::new(&parameters, &layout, checked());
    if modified_and_home.is_some() {
        simulation.core("owner", 1, Role::Main, Time::ZERO, move |core| core.store_release(at, 7));
    }
    simulation.core("writer", 0, Role::Main, Time::from_nanoseconds(100_000), move |core| {
        write(core, at);
        core.full_fence();
        assert_eq!(core.read_line(at), LINE, "all three parts are there");
    });
    simulation.run().expect("the programs end");
    let machine = simulation.machine().borrow();
    machine.direction(1).counters().data_messages
}

#[test]
fn a_line_that_is_published_is_asked_for_without_its_data_where_the_core_can_do_that() {
    let publish = |core: &SimCore<'_>, at: Address| core.publish_line(at, &LINE);
    assert_eq!(lines_sent(true, 8, None, publish), 0);
    assert_eq!(lines_sent(false, 8, None, publish), 1);
    // A store buffer without room for all three stores asks for the first alone.
    assert_eq!(lines_sent(true, 2, None, publish), 1);
}

#[test]
fn a_modified_line_is_written_back_to_its_home_where_that_is_the_asker() {
    // Whoever asks may be stopped before it writes: what the other has changed must not be lost by then.
    let publish = |core: &SimCore<'_>, at: Address| core.publish_line(at, &LINE);
    let sent = |home| [true, false].map(|without_data| lines_sent(without_data, 8, Some(home), publish));
    assert_eq!(sent(Home::Host), [1, 1]);
    assert_eq!(sent(Home::Nic), [0, 1]);
}

#[test]
fn parts_of_a_line_that_are_stored_apart_are_asked_for_with_the_rest_of_it() {
    let halves = |core: &SimCore<'_>, at: Address| {
        core.write_bytes(at.word(4), &[1, 0, 0, 0, 0, 0, 0, 0].repeat(4));
        core.write_bytes(at, &[1, 0, 0, 0, 0, 0, 0, 0].repeat(4));
    };
    assert_eq!(lines_sent(true, 8, None, halves), 1);
}

/// When the reader of a word has seen it change: one that polls it, or one that looks for it once, after it was written.
fn sees_at(parameters: &Parameters, polls: bool) -> u64 {
    let mut layout = Layout::new();
    let at = layout.add("word", 64, 64, Home::Host, SynchronisingWords::FIRST);
    let mut simulation = Simulation::new(parameters, &layout, checked());
    let seen = Rc::new(Cell::new(0));
    let sees = Rc::clone(&seen);
    let start = Time::from_nanoseconds(if polls { 0 } else { 200_000 });
    simulation.core("reader", 1, Role::Main, start, move |core| {
        while core.load_acquire(at) == 0 {
            core.spin();
        }
        sees.set(core.now().picoseconds());
    });
    simulation.core("writer", 0, Role::Main, Time::from_nanoseconds(100_000), move |core| core.store_release(at, 1));
    simulation.run().expect("both programs end");
    seen.get()
}

#[test]
fn who_leaves_a_polling_loop_pays_for_it_and_who_did_not_poll_does_not() {
    for name in ["icx", "spr"] {
        let mut parameters = common::without_prefetchers(name);
        parameters.core.poll_exit_cycles = 0;
        let free = [true, false].map(|polls| sees_at(&parameters, polls));
        for cycles in [1, 40, 1000] {
            parameters.core.poll_exit_cycles = cycles;
            let paid = [true, false].map(|polls| sees_at(&parameters, polls));
            let cost = parameters.core.cycles(cycles.into());
            assert_eq!(paid, [free[0] + cost, free[1]], "{name}: {cycles} cycles");
        }
    }
}
