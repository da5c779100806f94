//! What the hardware prefetchers ask for, seen by programs that reach their core as interfaces do: by a reference to it.

#[path = "common/mod.rs"]
mod common;

use conic_fabric::{Address, Core, Home, Layout, Line, SynchronisingWords, Time};
use conic_sim::{Options, Parameters, Role, SimCore, Simulation};

/// Sapphire Rapids with the stride prefetcher alone.
fn stride() -> Parameters {
    let mut parameters = common::without_prefetchers("spr");
    parameters.core.prefetch_stride = true;
    parameters
}

/// How many lines the prefetchers of a core ask for while it runs a program on a page.
fn asked(parameters: &Parameters, program: impl FnOnce(&SimCore<'_>, Address) + 'static) -> u64 {
    let mut layout = Layout::new();
    let page = layout.add("page", 4096, 4096, Home::Host, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(parameters, &layout, Options { checked: true, ..Options::default() });
    let agent = simulation.core("reader", 0, Role::Main, Time::ZERO, move |core| {
        program(core, page);
        core.full_fence();
    });
    simulation.run().expect("the program ends");
    simulation.machine().borrow().counters(agent).hardware_prefetches
}

/// Loads every third line of the page, and does something with each; 21 lines.
fn every_third<C: Core>(core: C, page: Address, load: impl Fn(&C, Address)) {
    for line in (0..64).step_by(3) {
        load(&core, page.lines(line));
        core.work(2_000);
    }
}

#[test]
fn a_strided_loop_is_prefetched_from_its_third_load_on_to_the_end_of_the_page() {
    // From the load of line 6, which asks for line 9, to that of line 60, which asks for 63.
    let ahead = 19;
    assert_eq!(asked(&stride(), |core, page| every_third(core, page, |core, at| _ = core.load(at))), ahead);
    assert_eq!(asked(&stride(), |core, page| every_third(core, page, |core, at| _ = core.load_acquire(at))), ahead);
    let bulk = asked(&stride(), |core, page| every_third(core, page, |core, at| _ = core.read_line(at)));
    assert_eq!(bulk, ahead, "loads behind which the core goes on, too");
    let lines = asked(&stride(), |core, page| {
        every_third(core, page, |core, at| core.read_lines(at, &mut [Line::ZERO]));
    });
    assert_eq!(lines, ahead);
    let early = asked(&stride(), |core, page| every_third(core, page, |core, at| core.will_read(at, 0)));
    assert_eq!(early, ahead, "and those that begin early");
}

/// Loads from two places in the code, on lines of their own, in turn.
fn in_turn(core: impl Core, page: Address) {
    for (up, down) in (0..20).zip((40..60).rev()) {
        core.load(page.lines(up));
        core.work(2_000);
        core.load(page.lines(down));
        core.work(2_000);
    }
}

#[test]
fn loads_in_two_places_of_the_code_have_strides_of_their_own() {
    // Each from its third load on: the way up asks for lines 3 to 20, the way down for lines 56 to 39.
    assert_eq!(asked(&stride(), |core, page| in_turn(core, page)), 18 + 18);
}
