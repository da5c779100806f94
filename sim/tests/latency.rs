//! What one access costs in each state, against the sum of the platform's stages; and how many requests cross.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Home, Layout, Line, SynchronisingWords, Time};
use conic_sim::platform::Platform;
use conic_sim::probe::counters::AgentCounters;
use conic_sim::{Options, Parameters, Role, Simulation};

use crate::common::without_prefetchers;

const LINES: u64 = 256;

fn platform(name: &str) -> Parameters {
    Platform::load(name).expect("a platform that comes with the crate").parameters().clone()
}

fn checked() -> Options {
    Options { checked: true, ..Options::default() }
}

/// Median picoseconds of a load of a line that `owner` (a node) has modified, homed at `home`, read on node 0.
fn load_of_modified(parameters: &Parameters, owner: Option<usize>, home: Home) -> u64 {
    let mut parameters = parameters.clone();
    (parameters.core.prefetch_next_line, parameters.core.prefetch_adjacent) = (false, false);
    parameters.core.prefetch_stride = false;
    let mut layout = Layout::new();
    let lines = layout.add("lines", LINES * 64, 64, home, SynchronisingWords::ALL);
    let flag = layout.add("flag", 64, 64, Home::Host, SynchronisingWords::FIRST);
    let mut simulation = Simulation::new(&parameters, &layout, checked());
    if let Some(node) = owner {
        simulation.core("writer", node, Role::Main, Time::ZERO, move |core| {
            for index in 0..LINES {
                core.store(lines.lines(index), index);
            }
            core.full_fence();
            core.store_release(flag, 1);
        });
    }
    let times = Rc::new(RefCell::new(Vec::new()));
    let out = Rc::clone(&times);
    simulation.core("reader", 0, Role::Main, Time::ZERO, move |core| {
        while owner.is_some() && core.load_acquire(flag) == 0 {
            core.spin();
        }
        for index in 0..LINES {
            let before = core.now();
            assert_eq!(core.load_acquire(lines.lines(index)), if owner.is_some() { index } else { 0 });
            out.borrow_mut().push(core.now().since(before).picoseconds());
        }
    });
    simulation.run().expect("both programs end");
    let mut times = times.borrow().clone();
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn a_modified_line_of_the_other_socket_costs_what_figure_7_says() {
    for (name, expected) in [("icx", 114_000), ("spr", 171_000)] {
        let parameters = platform(name);
        let writer_homed = load_of_modified(&parameters, Some(1), Home::Nic);
        assert!(writer_homed.abs_diff(expected) <= 10, "{name}: {writer_homed} ps, {expected} in the paper");
        let reader_homed = load_of_modified(&parameters, Some(1), Home::Host);
        assert!(reader_homed > writer_homed && reader_homed < writer_homed * 11 / 10, "{name}: {reader_homed}");
    }
}

/// Picoseconds that a load takes on node 0 of a line of its memory that the other node has loaded before.
fn load_of_clean(parameters: &Parameters) -> u64 {
    let mut layout = Layout::new();
    let line = layout.add("line", 64, 64, Home::Host, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(parameters, &layout, checked());
    simulation.core("first", 1, Role::Main, Time::ZERO, move |core| _ = core.load_acquire(line));
    let took = Rc::new(RefCell::new(0));
    let into = Rc::clone(&took);
    simulation.core("second", 0, Role::Main, conic_fabric::Time::from_nanoseconds(10_000), move |core| {
        let before = core.now();
        core.load_acquire(line);
        *into.borrow_mut() = core.now().since(before).picoseconds();
    });
    simulation.run().expect("both programs end");
    took.take()
}

#[test]
fn a_clean_line_that_the_other_socket_forwards_costs_what_a_modified_one_does_and_does_not_wait_for_memory() {
    for name in ["icx", "spr"] {
        let mut parameters = without_prefetchers(name);
        let modified = load_of_modified(&parameters, Some(1), Home::Host);
        assert_eq!(load_of_clean(&parameters), modified, "{name}");
        parameters.memory.latency *= 10;
        assert_eq!(load_of_clean(&parameters), modified, "{name}: with slow memory");
        // MESI: the answer says that memory has it, which was read meanwhile.
        parameters.protocol.forwards_clean = false;
        let node = &parameters.node;
        let way = node.core_to_home + node.home_lookup + node.home_to_core;
        assert_eq!(load_of_clean(&parameters), way + parameters.memory.latency, "{name}: without who forwards");
        // And begun only after the answer, where nothing is read ahead: a header's flit instead of a line's on the way back.
        parameters.protocol.speculative_memory_read = false;
        let link = &parameters.interconnect;
        let penalty = parameters.protocol.speculative_read_penalty;
        let shorter = u64::from(link.data_flits - 1) * link.flit_time + penalty;
        let after = load_of_clean(&parameters) - parameters.memory.latency;
        assert!(after.abs_diff(modified - shorter) <= 2, "{name}: {after} ps besides memory, {modified} with the line");
        parameters.protocol.forwards_clean = true;
        let alone = load_of_clean(&parameters);
        assert_eq!(alone, modified - penalty, "{name}: what comes with the answer is not read");
    }
}

#[test]
fn memory_and_the_neighbour_cost_the_sum_of_their_stages() {
    for name in ["icx", "spr"] {
        let parameters = platform(name);
        let node = &parameters.node;
        let way = node.core_to_home + node.home_lookup + node.home_to_core;
        let memory = load_of_modified(&parameters, None, Home::Host);
        assert_eq!(memory, way + parameters.memory.latency, "{name}");
        let neighbour = load_of_modified(&parameters, Some(0), Home::Host);
        assert_eq!(neighbour, way + node.home_to_core + node.snoop_lookup + node.core_to_home, "{name}");
    }
}

/// Requests that cross for each round trip of a number in one line, or in two.
fn requests_per_round_trip(parameters: &Parameters, lines: u64) -> (f64, f64) {
    const ROUNDS: u64 = 200;
    let mut layout = Layout::new();
    let ask = layout.add("ask", 64, 128, Home::Host, SynchronisingWords::FIRST);
    let answer = if lines == 1 {
        Address(ask.0 + 8)
    } else {
        layout.add("answer", 64, 128, Home::Nic, SynchronisingWords::FIRST)
    };
    let mut simulation = Simulation::new(parameters, &layout, checked());
    let time = Rc::new(RefCell::new(0.0));
    let out = Rc::clone(&time);
    simulation.core("caller", 0, Role::Main, Time::ZERO, move |core| {
        let begins = core.now();
        for round in 1..=ROUNDS {
            core.store_release(ask, round);
            while core.load_acquire(answer) != round {
                core.spin();
            }
        }
        *out.borrow_mut() = core.now().since(begins).picoseconds() as f64 / ROUNDS as f64 / 1000.0;
    });
    simulation.core("answerer", 1, Role::Main, Time::ZERO, move |core| {
        for round in 1..=ROUNDS {
            while core.load_acquire(ask) != round {
                core.spin();
            }
            core.store_release(answer, round);
        }
    });
    simulation.run().expect("both programs end");
    let machine = simulation.machine().borrow();
    let requests: u64 =
        (0..2).map(|agent| machine.counters(agent).remote_reads + machine.counters(agent).remote_rfos).sum();
    let nanoseconds = *time.borrow();
    (requests as f64 / ROUNDS as f64, nanoseconds)
}

#[test]
fn a_ping_pong_needs_two_requests_in_one_line_and_four_in_two() {
    for name in ["icx", "spr"] {
        let parameters = platform(name);
        let (together, near) = requests_per_round_trip(&parameters, 1);
        let (apart, far) = requests_per_round_trip(&parameters, 2);
        println!("{name}: {together} requests {near} ns, {apart} requests {far} ns");
        assert!((1.95..=2.05).contains(&together), "{name}: {together}");
        assert!((3.95..=4.05).contains(&apart), "{name}: {apart}");
    }
}

/// What an access of node 0 to a line of node 1's memory makes that memory do: lines read, and written; and the messages that cross
/// to node 1 and back, each with a line and without. Nobody has the line cached, or a core of node 1 has loaded it before.
fn at_the_other_memory(
    parameters: &Parameters,
    loaded_before: bool,
    access: fn(&conic_sim::SimCore<'_>, Address),
) -> [u64; 6] {
    let mut layout = Layout::new();
    let line = layout.add("line", 64, 64, Home::Nic, SynchronisingWords::ALL);
    let elsewhere = layout.add("elsewhere", 64, 64, Home::Host, SynchronisingWords::FIRST);
    let mut simulation = Simulation::new(parameters, &layout, checked());
    if loaded_before {
        simulation.core("its own", 1, Role::Main, Time::ZERO, move |core| {
            core.load_acquire(line);
        });
    }
    simulation.core("core", 0, Role::Main, conic_fabric::Time::from_nanoseconds(10_000), move |core| {
        access(core, line);
        core.full_fence();
        // What is written back without an answer arrives before a load that is much later.
        core.work(10_000);
        core.load_acquire(elsewhere);
    });
    simulation.run().expect("the program ends");
    let machine = simulation.machine().borrow();
    let [there, back] = [0, 1].map(|from| machine.direction(from).counters());
    let memory = machine.memory(1);
    let crossed = [there.data_messages, there.header_messages, back.data_messages, back.header_messages];
    let before = u64::from(loaded_before);
    [memory.reads() - before, memory.writes(), crossed[0], crossed[1], crossed[2], crossed[3]]
}

#[test]
fn a_line_that_crosses_is_entered_into_the_directory_and_one_written_past_the_caches_is_owned_first() {
    let with = without_prefetchers("icx");
    let mut without = with.clone();
    without.protocol.directory_write = false;
    let nontemporal = |core: &conic_sim::SimCore<'_>, line| core.write_nontemporal(line, &[Line([7; 8])]);
    let load = |core: &conic_sim::SimCore<'_>, line| assert_eq!(core.load_acquire(line), 0);
    let store = |core: &conic_sim::SimCore<'_>, line| core.store(line, 7);
    // The entry is written with the line, so it is read first, whether its data travel or not.
    assert_eq!(at_the_other_memory(&with, false, load), [1, 1, 0, 1, 1, 0]);
    assert_eq!(at_the_other_memory(&with, false, store), [1, 1, 0, 1, 1, 0]);
    assert_eq!(at_the_other_memory(&with, false, nontemporal), [1, 2, 1, 1, 0, 1]);
    assert_eq!(at_the_other_memory(&without, false, load), [1, 0, 0, 1, 1, 0]);
    assert_eq!(at_the_other_memory(&without, false, store), [1, 0, 0, 1, 1, 0]);
    assert_eq!(at_the_other_memory(&without, false, nontemporal), [0, 1, 1, 1, 0, 1]);
    // That a core there has a copy makes no difference: the entry says that nobody of this node has one. Where that core hands the
    // line over, home agents note it without memory.
    assert_eq!(at_the_other_memory(&with, true, nontemporal), [1, 2, 1, 1, 0, 1]);
    assert_eq!(at_the_other_memory(&with, true, store), [0, 0, 0, 1, 1, 0]);
    assert_eq!(at_the_other_memory(&without, true, nontemporal), [0, 1, 1, 1, 0, 1]);
    // What was written back is in memory alone: the next write finds it as the first did.
    let twice = |core: &conic_sim::SimCore<'_>, line| {
        core.write_nontemporal(line, &[Line([7; 8])]);
        core.fence();
        core.work(10_000);
        core.write_nontemporal(line, &[Line([8; 8])]);
    };
    assert_eq!(at_the_other_memory(&with, false, twice), [2, 4, 2, 2, 0, 2]);
}

#[test]
fn rounds_of_polling_count_the_same_skipped_or_lived_through_and_the_work_in_them_is_work() {
    const WORK: u32 = 30;
    let mut parameters = without_prefetchers("icx");
    parameters.core.work_scale = 1.0;
    let core = parameters.core.clone();
    let cycles = |cycles: u32| core.cycles(cycles.into());
    let (work, pause, hit) = (cycles(WORK), cycles(core.pause_cycles), cycles(core.l1_hit_cycles));
    for fast_forward in [false, true] {
        let mut layout = Layout::new();
        let line = layout.add("line", 64, 64, Home::Host, SynchronisingWords::ALL);
        let mut simulation = Simulation::new(&parameters, &layout, Options { fast_forward, ..checked() });
        simulation.core("core", 0, Role::Main, Time::ZERO, move |core| {
            let until = Time::from_nanoseconds(20_000);
            while core.now() < until {
                core.load_acquire(line);
                core.work(WORK);
                core.spin_until(until);
            }
        });
        simulation.run().expect("the program ends");
        let machine = simulation.machine().borrow();
        let counters = machine.counted().agents[0].counters;
        let (rounds, stalls) = (counters.accesses.spins, counters.stalls);
        assert!(rounds > 200, "{rounds} rounds");
        assert_eq!((counters.accesses.loads, counters.accesses.l1_hits), (rounds, rounds - 1));
        assert_eq!(stalls.work_picoseconds, rounds * (work + cycles(core.clock_cycles)) + cycles(core.clock_cycles));
        // The first round has waited for the line.
        let polled = (rounds - 1) * (hit + pause);
        assert_eq!(stalls.polling_picoseconds, polled, "fast forward {fast_forward}");
    }
}

/// What a core has counted that polls for ever a line that nobody writes: until another begins at `ends`, and of that since one began at
/// `begins`; the operations of all; and when each of its rounds ended that was lived through.
fn a_service_that_polls(
    options: Options,
    begins: Time,
    ends: Time,
) -> ((AgentCounters, AgentCounters, u64), Vec<Time>) {
    let mut parameters = without_prefetchers("icx");
    parameters.core.clock_cycles = 0;
    let mut layout = Layout::new();
    let line = layout.add("line", 64, 64, Home::Host, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(&parameters, &layout, options);
    simulation.core("begins", 1, Role::Main, begins, |core| core.machine().borrow_mut().begin_window());
    simulation.core("ends", 1, Role::Main, ends, |core| core.machine().borrow_mut().end_window());
    let rounds = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&rounds);
    let poller = simulation.core("polls", 0, Role::Service, Time::ZERO, move |core| {
        loop {
            core.load_acquire(line);
            core.work(30);
            core.spin();
            into.borrow_mut().push(core.now());
        }
    });
    simulation.run().expect("the programs end");
    let machine = simulation.machine().borrow();
    let all = machine.counted().agents[poller].counters;
    assert_eq!(machine.counters(poller), all.accesses);
    let window = machine.window().expect("it was ended").counters.agents[poller].counters;
    ((all, window, machine.operations()), rounds.take())
}

#[test]
fn a_core_that_still_polls_has_counted_the_rounds_that_it_skips() {
    let exact = Options { fast_forward: false, run_ahead: false, ..checked() };
    let end = Time::from_nanoseconds(100_000);
    let (_, rounds) = a_service_that_polls(exact, end, end);
    // Between two rounds, at the end of one, what has been lived through is whole rounds. The probes begin as one ends, and end as another does.
    let near = |nanoseconds| *rounds.iter().find(|end| **end >= Time::from_nanoseconds(nanoseconds)).expect("it polls");
    let (begins, ends) = (near(50_000), near(60_000));
    let (lived, _) = a_service_that_polls(exact, begins, ends);
    let (all, window, _) = lived;
    assert!(window.accesses.spins > 100 && all.accesses.spins > 5 * window.accesses.spins, "{all:?}, {window:?}");
    assert_eq!(window.stalls.polling_picoseconds + window.stalls.work_picoseconds, ends.since(begins).picoseconds());
    for run_ahead in [false, true] {
        let (skipped, rounds) = a_service_that_polls(Options { run_ahead, ..checked() }, begins, ends);
        assert!(rounds.len() < 10, "{} rounds were lived through", rounds.len());
        assert_eq!(skipped, lived, "run ahead {run_ahead}");
    }
}

#[test]
fn what_a_round_of_polling_waits_for_is_no_polling() {
    let parameters = without_prefetchers("icx");
    let mut layout = Layout::new();
    let lines = layout.add("lines", 128, 64, Home::Host, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(&parameters, &layout, checked());
    simulation.core("core", 0, Role::Main, Time::ZERO, move |core| {
        core.load_acquire(lines);
        // On its way while the next round does nothing but hit, and work until the reorder buffer is full.
        core.read_line(lines.lines(1));
        core.spin_until(Time::ZERO);
        core.load_acquire(lines);
        core.work(1_000);
        core.spin_until(Time::ZERO);
    });
    simulation.run().expect("the program ends");
    let machine = simulation.machine().borrow();
    let stalls = machine.counted().agents[0].counters.stalls;
    let once = stalls.load_picoseconds + stalls.work_picoseconds + stalls.polling_picoseconds;
    assert!(stalls.load_picoseconds > 100_000 && once <= machine.now(), "{stalls:?} of {} ps", machine.now());
}
