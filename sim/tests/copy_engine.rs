//! Copies by engines: what they bring, in what order, and what they take.

use crate::common;
use std::cell::RefCell;
use std::rc::Rc;

use crate::common::Random;
use conic_fabric::{Address, Core, Home, Layout, Line, SynchronisingWords, Time};
use conic_sim::parameters::EngineParameters;
use conic_sim::probe::counters::LinkCounters;
use conic_sim::{Options, Parameters, Role, SimCore, Simulation};

const ENGINE: EngineParameters =
    EngineParameters { engines: 1, lines_in_flight: 16, line_time: 1_000, start_up: 50_000, post: 7_000 };

fn quiet(engine: EngineParameters) -> Parameters {
    Parameters { engine: Some(engine), ..common::without_prefetchers("spr") }
}

/// Where a test copies from and to, and the words that say that it is done.
#[derive(Clone, Copy)]
struct Places {
    from: Address,
    to: Address,
    done: Address,
}

fn places(lines: u64, home: Home) -> (Layout, Places) {
    let mut layout = Layout::new();
    let from = layout.add("from", 64 * lines, 64, home, SynchronisingWords::NONE);
    let to = layout.add("to", 64 * lines, 64, home, SynchronisingWords::NONE);
    let done = layout.add("done", 64 * 64, 64, home, SynchronisingWords::ALL);
    (layout, Places { from, to, done })
}

fn wait(core: &SimCore<'_>, done: Address, value: u64) {
    while core.load_acquire(done) != value {
        core.spin();
    }
}

/// Runs a program on a core of node 0 that has an engine there; what each direction of the interconnect has carried.
fn run(parameters: &Parameters, layout: &Layout, program: impl FnOnce(&SimCore<'_>) + 'static) -> [LinkCounters; 2] {
    let mut simulation = Simulation::new(parameters, layout, Options { checked: true, ..Options::default() });
    let core = simulation.core("core", 0, Role::Main, Time::from_nanoseconds(10), program);
    let engine = simulation.engine("engine", 0);
    simulation.machine().borrow_mut().set_engine(core, engine);
    simulation.run().expect("the program ends");
    let machine = simulation.machine().borrow();
    [0, 1].map(|from| machine.direction(from).counters())
}

/// How long copies take from the first posting until the last is done, in picoseconds.
fn takes(parameters: &Parameters, copies: u64, lines: u64) -> u64 {
    let (layout, at) = places(copies * lines, Home::Host);
    let took = Rc::new(RefCell::new(0));
    let out = Rc::clone(&took);
    run(parameters, &layout, move |core| {
        let begins = core.now();
        for copy in 0..copies {
            let offset = copy * lines;
            core.post_copy(at.from.lines(offset), at.to.lines(offset), lines, at.done.lines(copy), 1);
        }
        wait(core, at.done.lines(copies - 1), 1);
        *out.borrow_mut() = core.now().since(begins).picoseconds();
    });
    took.take()
}

#[test]
fn a_copy_holds_what_was_written_before_it_was_posted_and_is_whole_when_it_is_done() {
    let (layout, at) = places(20, Home::Host);
    run(&quiet(ENGINE), &layout, move |core| {
        for round in 1..=30 {
            for line in 0..20 {
                core.write_line(at.from.lines(line), &Line([100 * round + line; 8]));
            }
            core.post_copy(at.from, at.to, 20, at.done, round);
            wait(core, at.done, round);
            for line in 0..20 {
                assert_eq!(core.read_line(at.to.lines(line)), Line([100 * round + line; 8]));
            }
        }
    });
}

#[test]
fn copies_are_done_in_the_order_in_which_they_were_posted() {
    let (layout, at) = places(64, Home::Host);
    run(&quiet(ENGINE), &layout, move |core| {
        let lengths = [40, 1, 1, 20];
        let mut offset = 0;
        for (copy, lines) in (0..).zip(lengths) {
            core.post_copy(at.from.lines(offset), at.to.lines(offset), lines, at.done.lines(copy), 1);
            offset += lines;
        }
        wait(core, at.done.lines(3), 1);
        assert!((0..4).all(|copy| core.load_acquire(at.done.lines(copy)) == 1));
    });
}

#[test]
fn without_an_engine_the_core_copies_before_it_goes_on() {
    let (layout, at) = places(4, Home::Host);
    let mut simulation = Simulation::new(&quiet(ENGINE), &layout, Options { checked: true, ..Options::default() });
    simulation.core("core", 0, Role::Main, Time::ZERO, move |core| {
        core.write_line(at.from, &Line([5; 8]));
        core.post_copy(at.from, at.to, 1, at.done, 9);
        assert_eq!((core.load_acquire(at.done), core.read_line(at.to)), (9, Line([5; 8])));
    });
    simulation.run().expect("the program ends");
}

#[test]
fn a_copy_takes_the_sum_of_its_stages() {
    let parameters = quiet(ENGINE);
    let node = &parameters.node;
    let ask = node.core_to_home + node.home_lookup;
    // The core posts; the engine reads the line from memory, asks for the line that it writes and for the word that says
    // so, and gives that to the last-level cache, where the core that polls it finds it.
    let read = ask + parameters.memory.latency + node.home_to_core;
    let own = ask + node.home_to_core;
    let least = ENGINE.post + ENGINE.start_up + read + own;
    let most =
        least + ENGINE.line_time + parameters.memory.latency + own + 2 * (ask + node.home_to_core + node.snoop_lookup);
    let took = takes(&parameters, 1, 1);
    assert!((least..most).contains(&took), "{took} ps; at least {least}, less than {most}");
}

#[test]
fn start_up_times_of_several_copies_overlap_and_postings_do_not() {
    let slow = EngineParameters { start_up: 5_000_000, ..ENGINE };
    let (one, eight) = (takes(&quiet(slow.clone()), 1, 1), takes(&quiet(slow.clone()), 8, 1));
    assert!(one > slow.start_up);
    assert!(eight - one >= 7 * slow.post && eight < one + slow.start_up / 4, "{one} and {eight} ps");
}

#[test]
fn lines_come_no_faster_than_the_engine_and_its_lines_in_flight_allow() {
    let rate = |engine: EngineParameters| {
        let parameters = quiet(engine);
        (takes(&parameters, 1, 300) - takes(&parameters, 1, 100)) / 200
    };
    let slow = rate(EngineParameters { line_time: 40_000, lines_in_flight: 64, ..ENGINE });
    assert!((40_000..40_400).contains(&slow), "{slow} ps a line");
    // A line holds its place while it is read, and again while it is asked for to be written.
    let parameters = quiet(ENGINE);
    let node = &parameters.node;
    let read = node.core_to_home + node.home_lookup + parameters.memory.latency + node.home_to_core;
    for lines in [1, 2, 4] {
        let paced = rate(EngineParameters { line_time: 0, lines_in_flight: lines, ..ENGINE });
        let least = read / u64::from(lines);
        assert!(
            paced >= least && paced < 4 * least,
            "{lines} in flight: {paced} ps a line, {least} for the read alone"
        );
    }
}

#[test]
fn what_is_written_whole_is_not_fetched() {
    let (layout, at) = places(50, Home::Nic);
    let carried = run(&quiet(ENGINE), &layout, move |core| {
        core.post_copy(at.from, at.to, 50, at.done, 1);
        wait(core, at.done, 1);
    });
    // From the other node 50 lines that are read, and the line of the word; none that is written.
    assert_eq!(carried[1].data_messages, 51, "{carried:?}");
}

/// A core copies lines to a place, from there to a third, and from the first to the second once more; then it reads them. How often
/// the engine has written a line back, and been snooped for those reads.
fn written_again(parameters: &Parameters, lines: u64) -> (u64, u64) {
    let (layout, at) = places(2 * lines, Home::Host);
    let (from, to, third) = (at.from, at.to, at.to.lines(lines));
    let mut simulation = Simulation::new(parameters, &layout, Options { checked: true, ..Options::default() });
    let snoops = Rc::new(RefCell::new(0));
    let out = Rc::clone(&snoops);
    let core = simulation.core("core", 0, Role::Main, Time::from_nanoseconds(10), move |core| {
        for (value, from, to) in [(1, from, to), (2, to, third), (3, from, to)] {
            core.post_copy(from, to, lines, at.done, value);
            wait(core, at.done, value);
        }
        let snoops = || core.machine().borrow().counters(1).snoops;
        let before = snoops();
        (0..lines).for_each(|line| _ = core.load_acquire(to.lines(line)));
        *out.borrow_mut() = snoops() - before;
    });
    let engine = simulation.engine("engine", 0);
    simulation.machine().borrow_mut().set_engine(core, engine);
    simulation.run().expect("the program ends");
    let machine = simulation.machine().borrow();
    (machine.counters(engine).write_backs, snoops.take())
}

#[test]
fn a_line_that_the_engine_had_read_is_given_up_as_others_are_once_it_is_written() {
    let mut parameters = quiet(ENGINE);
    parameters.protocol.exclusive_grant = true;
    for lines in [1, 5] {
        // What it writes of the second place the last time it has, alone, since it has read it.
        assert_eq!(written_again(&parameters, lines), (3 * lines + 3, 0), "{lines} lines");
    }
}

/// Two cores and an engine each copy among a few lines through caches of a few lines, and check every value.
fn crowd(seed: u64, options: Options) -> Vec<(Time, u64)> {
    const LINES: u64 = 6;
    let mut parameters = common::tiny("spr", seed);
    let mut random = Random::new(seed, 7);
    parameters.engine = Some(EngineParameters {
        engines: 2,
        lines_in_flight: 1 + random.below(5) as u32,
        line_time: random.below(3_000),
        start_up: random.below(300_000),
        post: random.below(30_000),
    });
    let mut layout = Layout::new();
    let homes = [Home::Host, Home::Nic];
    let mut data = |words| homes.map(|home| layout.add("data", 64 * 2 * LINES, 64, home, words));
    let (own, done) = (data(SynchronisingWords::NONE), data(SynchronisingWords::ALL));
    let mut simulation = Simulation::new(&parameters, &layout, options);
    let ends = Rc::new(RefCell::new(vec![(Time::ZERO, 0); 2]));
    for side in 0..2 {
        let ends = Rc::clone(&ends);
        let core = simulation.core("core", side, Role::Main, Time::ZERO, move |core| {
            let mut random = Random::new(seed, side as u64);
            // Its lines lie among the other core's, so that both nodes' home agents and caches are in each other's way.
            let (from, to) = (own[side].lines(side as u64 * LINES), own[1 - side].lines(side as u64 * LINES));
            let mut sum = 0_u64;
            for round in 1..40 {
                let (first, count) = (random.below(LINES), 1 + random.below(LINES));
                let count = count.min(LINES - first);
                for line in first..first + count {
                    core.write_line(from.lines(line), &Line([round * 1_000 + line; 8]));
                }
                let word = done[side].lines(side as u64 * LINES);
                core.post_copy(from.lines(first), to.lines(first), count, word, 2 * round);
                while random.coin() {
                    // More that is on its way to the engine while it is at work.
                    core.post_copy(from.lines(first), to.lines(first), count, word, 2 * round);
                    core.work(random.below(200) as u32);
                }
                if random.coin() {
                    // The engine then has these lines, and the next copy is to them.
                    core.post_copy(to.lines(first), from.lines(first), count, word, 2 * round + 1);
                    wait(core, word, 2 * round + 1);
                    continue;
                }
                core.work(random.below(500) as u32);
                wait(core, word, 2 * round);
                for line in first..first + count {
                    let found = core.read_line(to.lines(line));
                    assert_eq!(found, Line([round * 1_000 + line; 8]), "seed {seed}, core {side}, round {round}");
                    sum += found.0[3];
                }
            }
            ends.borrow_mut()[side] = (core.now(), sum);
        });
        let engine = simulation.engine("engine", 1 - side);
        simulation.machine().borrow_mut().set_engine(core, engine);
    }
    simulation.run().expect("both programs end");
    ends.take()
}

#[test]
fn copies_in_a_crowd_are_right_and_the_same_whatever_the_shortcuts() {
    for seed in 0..150 {
        let options =
            |fast_forward, run_ahead| Options { checked: true, fast_forward, run_ahead, seed: 1, queues: true };
        let exact = crowd(seed, options(false, false));
        for (fast_forward, run_ahead) in [(true, false), (false, true), (true, true)] {
            assert_eq!(crowd(seed, options(fast_forward, run_ahead)), exact, "seed {seed}, {fast_forward} {run_ahead}");
        }
    }
}

#[test]
#[should_panic(expected = "no copy engines")]
fn a_machine_without_engines_says_so() {
    let mut parameters = quiet(ENGINE);
    parameters.engine = None;
    let (layout, _) = places(1, Home::Host);
    Simulation::new(&parameters, &layout, Options::default()).engine("engine", 0);
}

#[test]
fn a_line_that_an_engine_has_given_up_is_never_looked_for_before_that_is_known() {
    // A store's instruction takes long, and a snooped core or engine answers at once.
    let mut parameters = quiet(ENGINE);
    parameters.core.issue_cycles = 60;
    parameters.node.snoop_lookup = 0;
    for offset in (0..400).step_by(3) {
        let (layout, at) = places(2, Home::Host);
        let mut simulation = Simulation::new(&parameters, &layout, Options { checked: true, ..Options::default() });
        let copies = Time::from_nanoseconds(10);
        let core = simulation.core("core", 0, Role::Main, copies, move |core| {
            core.write_line(at.from.lines(1), &Line([7; 8]));
            // The engine has what it reads alone, and then writes it.
            core.post_copy(at.from, at.to, 1, at.done, 1);
            core.post_copy(at.from.lines(1), at.from, 1, at.done, 2);
            wait(core, at.done, 2);
            assert_eq!(core.read_line(at.from), Line([7; 8]));
        });
        let reads = Time::from_nanoseconds(250 + offset);
        simulation.core("reads", 0, Role::Main, reads, move |core| _ = core.read_line(at.from));
        let engine = simulation.engine("engine", 0);
        simulation.machine().borrow_mut().set_engine(core, engine);
        simulation.run().expect("the programs end");
    }
}
