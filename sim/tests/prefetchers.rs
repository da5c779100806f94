//! What the hardware prefetchers ask for, seen by programs that reach their core as interfaces do: by a reference to it.

use crate::common;
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

/// Sapphire Rapids with the prefetcher of the next line alone.
fn next_line() -> Parameters {
    let mut parameters = common::without_prefetchers("spr");
    parameters.core.prefetch_next_line = true;
    parameters
}

/// Loads words of the page, given by line and word, and does something with each.
fn words(core: impl Core, page: Address, words: &[(u64, usize)]) {
    for &(line, word) in words {
        core.load(page.lines(line).word(word));
        core.work(2_000);
    }
}

#[test]
fn the_next_line_is_asked_for_where_loads_go_up_and_not_wherever_one_misses() {
    let of = |list: &'static [(u64, usize)]| asked(&next_line(), move |core, page| words(core, page, list));
    assert_eq!(of(&[(10, 0), (20, 0), (30, 0), (40, 0)]), 0, "lines apart");
    assert_eq!(of(&[(10, 0), (11, 0), (12, 0)]), 2, "the lines behind the second and the third");
    assert_eq!(of(&[(12, 0), (11, 0), (10, 0)]), 0, "downwards");
    assert_eq!(of(&[(10, 0), (10, 1), (10, 2)]), 1, "up within a line");
    assert_eq!(of(&[(62, 0), (63, 0)]), 0, "the next line is in another page");
}

#[test]
fn no_next_line_is_asked_for_while_many_lines_are_under_way() {
    let parameters = next_line();
    let half = u64::from(parameters.core.line_fill_buffers / 2);
    // Lines that are asked for before; then two loads that go up, the second of them on its way as well.
    for (others, expected) in [(half - 2, 1), (half - 1, 0)] {
        let prefetched = asked(&parameters, move |core, page| {
            (0..others).for_each(|line| core.prefetch_read(page.lines(2 * line)));
            core.read_line(page.lines(40));
            core.read_line(page.lines(41));
        });
        assert_eq!(prefetched, expected, "{others} others under way");
    }
}

/// Sapphire Rapids with the prefetcher of the adjacent line alone.
fn adjacent() -> Parameters {
    let mut parameters = common::without_prefetchers("spr");
    parameters.core.prefetch_adjacent = true;
    parameters
}

/// Which lines of its page a core has, once its prefetchers are off: those whose loads take no longer than one that hits the second level.
fn had(core: &SimCore<'_>, page: Address) -> Vec<u64> {
    core.machine().borrow_mut().set_prefetchers(core.agent(), false);
    let hits = |line: &u64| {
        let start = core.now();
        core.load_acquire(page.lines(*line));
        core.now().since(start) < Time::from_nanoseconds(20)
    };
    (0..64).filter(hits).collect()
}

#[test]
fn a_load_that_misses_brings_the_other_line_of_its_pair_and_no_other() {
    for line in [0, 10, 21, 63] {
        let prefetched = asked(&adjacent(), move |core, page| {
            core.load(page.lines(line));
            core.work(2_000);
            let pair = line / 2 * 2;
            assert_eq!(had(core, page), [pair, pair + 1], "line {line} was loaded");
        });
        assert_eq!(prefetched, 1, "line {line}");
    }
}

#[test]
fn a_load_that_hits_the_second_level_brings_nothing() {
    let mut parameters = adjacent();
    (parameters.cache.l1_bytes, parameters.cache.l1_ways) = (64, 1);
    let prefetched = asked(&parameters, |core, page| {
        // Line 10 is in the second level alone, and the other line of its pair nowhere.
        for line in [10, 40] {
            core.load(page.lines(line));
            core.work(2_000);
        }
        core.flush(page.lines(11));
        core.full_fence();
        let hits = || core.machine().borrow().counters(core.agent()).l2_hits;
        let before = hits();
        core.load(page.lines(10));
        core.work(2_000);
        assert_eq!(hits(), before + 1);
        assert_eq!(had(core, page), [10, 40, 41]);
    });
    assert_eq!(prefetched, 2, "of the two that missed");
}
