//! Latencies and limits to the picosecond, each against the sum of its stages: what may happen at a time happens then, and
//! not a picosecond sooner.

use crate::common;
use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Home, Layout, Line, MemoryType, SynchronisingWords, Time};
use conic_sim::{Options, Parameters, Role, SimCore, Simulation};

/// A platform without hardware prefetchers, and with memory that no access waits for.
fn quiet(name: &str) -> Parameters {
    let mut parameters = common::without_prefetchers(name);
    parameters.core.work_scale = 1.0;
    (parameters.memory.channels, parameters.memory.line_time) = (64, 1);
    parameters
}

/// The stages of an access, in picoseconds.
struct Stages {
    issue: u64,
    /// From a core to its home agent's decision.
    ask: u64,
    /// From a home agent to a core.
    home_to_core: u64,
    /// From a home agent to a core's answer.
    snoop: u64,
    /// Across the interconnect, without a line and with one.
    header: u64,
    data: u64,
    lookup: u64,
    memory: u64,
}

impl Stages {
    fn of(parameters: &Parameters) -> Stages {
        let (node, wire) = (&parameters.node, &parameters.interconnect);
        Stages {
            issue: parameters.core.cycles(u64::from(parameters.core.issue_cycles)),
            ask: node.core_to_home + node.home_lookup,
            home_to_core: node.home_to_core,
            snoop: node.home_to_core + node.snoop_lookup + node.core_to_home,
            header: wire.crossing + wire.flit_time,
            data: wire.crossing + u64::from(wire.data_flits) * wire.flit_time,
            lookup: node.home_lookup,
            memory: parameters.memory.latency,
        }
    }

    /// A load of a line that only local memory has.
    fn local_memory(&self) -> u64 {
        self.ask + self.memory + self.home_to_core
    }
}

type Program = Box<dyn FnOnce(&SimCore<'_>)>;

/// Runs a program on each of some cores, given by node, one after the other, and gives the picoseconds that each took.
fn one_after_the_other(parameters: &Parameters, layout: &Layout, programs: Vec<(usize, Program)>) -> Vec<u64> {
    // Far enough from each other for everything to be over.
    let starts = (1..).map(|place| place * APART);
    started_at(parameters, layout, programs.into_iter().zip(starts).map(|((node, program), at)| (node, at, program)))
}

/// Nanoseconds in which everything is over.
const APART: u64 = 100_000;

/// Runs a program on each of some cores, given by node and by the nanosecond in which it begins, and gives the picoseconds that each
/// took, in the order in which they ended.
fn started_at(
    parameters: &Parameters,
    layout: &Layout,
    programs: impl IntoIterator<Item = (usize, u64, Program)>,
) -> Vec<u64> {
    let mut simulation = Simulation::new(parameters, layout, Options { checked: true, ..Options::default() });
    let times = Rc::new(RefCell::new(Vec::new()));
    for (index, (node, start, program)) in programs.into_iter().enumerate() {
        let times = Rc::clone(&times);
        simulation.core(&format!("core {index}"), node, Role::Main, Time::from_nanoseconds(start), move |core| {
            let begins = core.now();
            program(core);
            times.borrow_mut().push(core.now().since(begins).picoseconds());
        });
    }
    simulation.run().expect("all programs end");
    times.take()
}

fn line(home: Home) -> (Layout, Address) {
    let mut layout = Layout::new();
    let at = layout.add("line", 64, 64, home, SynchronisingWords::ALL);
    (layout, at)
}

fn load(at: Address) -> Program {
    Box::new(move |core| _ = core.load_acquire(at))
}

fn write(at: Address) -> Program {
    Box::new(move |core| {
        core.store(at, 1);
        core.full_fence();
    })
}

fn change(at: Address) -> Program {
    Box::new(move |core| _ = core.fetch_or(at, 1))
}

/// A node, and what a core of it does to an address.
type Placed = (usize, fn(Address) -> Program);

/// What the last of some programs, one after the other on their nodes, takes.
fn last(parameters: &Parameters, home: Home, programs: Vec<Placed>) -> u64 {
    let (layout, at) = line(home);
    let programs = programs.into_iter().map(|(node, program)| (node, program(at))).collect();
    *one_after_the_other(parameters, &layout, programs).last().expect("a program")
}

#[test]
fn a_load_takes_the_sum_of_its_stages() {
    for name in ["icx", "spr"] {
        let p = quiet(name);
        let s = Stages::of(&p);
        let penalty = p.protocol.speculative_read_penalty;
        let loads: [(&str, Home, Vec<Placed>, u64); 7] = [
            ("local memory", Home::Host, vec![(0, load)], s.local_memory()),
            ("the other node's memory", Home::Nic, vec![(0, load)], {
                s.ask + s.header + s.lookup + s.memory + s.data + s.home_to_core
            }),
            ("the neighbour, modified", Home::Host, vec![(0, write), (0, load)], s.ask + s.snoop + s.home_to_core),
            ("the neighbour, clean", Home::Host, vec![(0, load), (0, load)], s.ask + s.snoop + s.home_to_core),
            ("the other node, modified, homed there", Home::Nic, vec![(1, write), (0, load)], {
                s.ask + s.header + s.lookup + s.snoop + s.data + s.home_to_core
            }),
            ("the other node, modified, homed here", Home::Host, vec![(1, write), (0, load)], {
                s.ask + penalty + s.header + s.lookup + s.snoop + s.data + s.home_to_core
            }),
            ("the other node's line, that its neighbour had", Home::Nic, vec![(1, load), (0, load)], {
                s.ask + s.header + s.lookup + s.snoop + s.data + s.home_to_core
            }),
        ];
        for (what, home, programs, expected) in loads {
            assert_eq!(last(&p, home, programs), expected, "{name}: {what}");
        }
    }
}

#[test]
fn what_the_other_node_has_changed_or_forwards_waits_for_no_memory_however_slow_that_is() {
    for name in ["icx", "spr"] {
        let mut p = quiet(name);
        let pairs: [[Placed; 2]; 3] = [[(1, write), (0, load)], [(1, write), (0, change)], [(1, load), (0, load)]];
        let took = |p: &Parameters| pairs.map(|pair| last(p, Home::Host, pair.to_vec()));
        let before = took(&p);
        p.memory.latency += 1_000_000;
        let after = took(&p);
        assert_eq!(after, before, "{name}: a load and an atomic of a changed line, a load of a clean one");
        p.protocol.forwards_clean = false;
        let after = took(&p);
        assert_eq!(after[..2], before[..2], "{name}: a changed line comes with the answer all the same");
        assert!(after[2] > 1_000_000, "{name}: a clean line does not, without who forwards");
    }
}

#[test]
fn a_snoop_that_waits_for_its_time_holds_up_nothing_else_on_its_link() {
    for name in ["icx", "spr"] {
        let mut p = quiet(name);
        p.interconnect.links = 1;
        // Long enough to be seen, and so that the two answers do not meet on their way back.
        (p.protocol.speculative_read_penalty, p.memory.latency) = (50_000, 1_000_000);
        let s = Stages::of(&p);
        let penalty = p.protocol.speculative_read_penalty;
        let mut layout = Layout::new();
        let homed_here = layout.add("homed here", 64, 64, Home::Host, SynchronisingWords::ALL);
        let homed_there = layout.add("homed there", 64, 64, Home::Nic, SynchronisingWords::ALL);
        let programs = [
            (1, APART, write(homed_here)),
            (0, 2 * APART, load(homed_here)),
            // Its request is ready while the snoop of the other line's owner has its time before it.
            (0, 2 * APART + 1, load(homed_there)),
        ];
        let took = started_at(&p, &layout, programs);
        let snooped = s.ask + penalty + s.header + s.lookup + s.snoop + s.data + s.home_to_core;
        let from_memory = s.ask + s.header + s.lookup + s.memory + s.data + s.home_to_core;
        assert_eq!(took[1..], [snooped, from_memory], "{name}");
    }
}

#[test]
fn a_slower_uncore_lengthens_its_nodes_stages_and_what_crosses_to_it() {
    let fast = quiet("spr");
    let uncore = fast.uncore.clone().expect("its clock is known");
    let mut slow = fast.clone();
    let clock = &mut slow.uncore.as_mut().expect("the same").second_node_megahertz;
    *clock = uncore.frequency_megahertz / 2;
    let s = Stages::of(&fast);
    let l2 = fast.core.cycles(u64::from(fast.core.l2_hit_cycles));
    let crossing = s.header + uncore.crossing_part;
    let local: [(&str, [Placed; 2]); 2] =
        [("memory", [(0, load), (0, load)]), ("the neighbour, modified", [(0, write), (0, load)])];
    for (what, pair) in local {
        let took = |p: &Parameters| last(p, Home::Host, pair.to_vec());
        assert_eq!(took(&slow), took(&fast), "node 0 is as it was: {what}");
    }
    // A flit takes the link's agent 0.8 instead of 0.4 ns, which is more than the 0.5 on the wire; a line has four.
    let flit = 2 * uncore.flit_time;
    let wire = |flits: u64| crossing - fast.interconnect.flit_time + flits * flit;
    let loads: [(&str, Home, Vec<Placed>, u64); 3] = [
        ("memory of node 1 from node 0", Home::Nic, vec![(0, load)], {
            s.ask + wire(1) + 2 * s.lookup + s.memory + wire(4) + s.home_to_core
        }),
        ("memory of node 1 from node 1", Home::Nic, vec![(1, load)], {
            l2 + 2 * (s.ask - l2) + s.memory + 2 * s.home_to_core
        }),
        ("what a core of node 1 has modified", Home::Nic, vec![(1, write), (0, load)], {
            let snoop = 2 * s.home_to_core + fast.node.snoop_lookup + l2 + 2 * (fast.node.core_to_home - l2);
            s.ask + wire(1) + 2 * s.lookup + snoop + wire(4) + s.home_to_core
        }),
    ];
    for (what, home, programs, expected) in loads {
        assert_eq!(last(&slow, home, programs), expected, "{what}");
    }
}

#[test]
fn an_atomic_takes_what_it_takes_to_own_the_line() {
    for name in ["icx", "spr"] {
        let p = quiet(name);
        let s = Stages::of(&p);
        let atomic = p.core.cycles(u64::from(p.core.atomic_cycles));
        let upgrade_at_home = s.ask + s.header + s.lookup + s.snoop + s.header + s.home_to_core;
        let changes: [(&str, Home, Vec<Placed>, u64); 4] = [
            ("local memory", Home::Host, vec![(0, change)], s.local_memory()),
            ("modified by the neighbour", Home::Host, vec![(0, write), (0, change)], s.ask + s.snoop + s.home_to_core),
            ("modified by the other node, homed there", Home::Nic, vec![(1, write), (0, change)], {
                s.ask + s.header + s.lookup + s.snoop + s.data + s.home_to_core
            }),
            ("shared with the other node, homed there", Home::Nic, vec![(1, load), (0, both)], {
                s.ask + s.header + s.lookup + s.snoop + s.data + s.home_to_core + upgrade_at_home
            }),
        ];
        for (what, home, programs, expected) in changes {
            assert_eq!(last(&p, home, programs), expected + atomic, "{name}: {what}");
        }
        // Homed here, memory is read while the other node is asked, and for nothing: its clean line comes with the answer.
        let shared_here: Vec<Placed> = vec![(1, load), (0, both)];
        let asked = s.ask + p.protocol.speculative_read_penalty + s.header + s.lookup + s.snoop;
        let forwarded = asked + s.data + s.home_to_core;
        let took = last(&p, Home::Host, shared_here.clone());
        assert_eq!(took, forwarded + upgrade_at_home + atomic, "{name}: shared with the other node, homed here");
        let mut mesi = p.clone();
        mesi.protocol.forwards_clean = false;
        let shared = (asked + s.header).max(s.ask + s.memory) + s.home_to_core;
        assert_eq!(
            last(&mesi, Home::Host, shared_here),
            shared + upgrade_at_home + atomic,
            "{name}: without who forwards"
        );
    }
}

/// Loads a line, and then changes it.
fn both(at: Address) -> Program {
    Box::new(move |core| {
        core.load_acquire(at);
        core.fetch_or(at, 1);
    })
}

#[test]
fn each_level_of_cache_takes_its_own_time() {
    for name in ["icx", "spr"] {
        let mut p = quiet(name);
        (p.cache.l1_ways, p.cache.l1_bytes) = (2, 128);
        (p.cache.l2_ways, p.cache.l2_bytes) = (24, 24 * 64);
        let s = Stages::of(&p);
        let mut layout = Layout::new();
        let at = layout.add("lines", 64 * 64, 64, Home::Host, SynchronisingWords::ALL);
        let seen = Rc::new(RefCell::new(Vec::new()));
        let out = Rc::clone(&seen);
        let program: Program = Box::new(move |core| {
            let mut timed = |index| {
                let before = core.now();
                core.load_acquire(at.lines(index));
                out.borrow_mut().push(core.now().since(before).picoseconds());
            };
            // Two lines fit into the first level, 24 into the second.
            [0, 0, 1, 2, 0].into_iter().for_each(&mut timed);
            (3..28).for_each(&mut timed);
            timed(1);
        });
        one_after_the_other(&p, &layout, vec![(0, program)]);
        let seen = seen.borrow();
        let cycles = |cycles: u32| p.core.cycles(u64::from(cycles));
        assert_eq!(seen[1], cycles(p.core.l1_hit_cycles), "{name}: first level");
        assert_eq!(seen[4], cycles(p.core.l2_hit_cycles), "{name}: second level");
        assert_eq!(seen[30], s.ask + p.node.llc_read + s.home_to_core, "{name}: last level");
    }
}

/// What a program takes on memory of many lines.
fn takes(parameters: &Parameters, program: impl FnOnce(&SimCore<'_>, Address) + 'static) -> u64 {
    let mut layout = Layout::new();
    let at = layout.add("lines", 1024 * 64, 64, Home::Host, SynchronisingWords::ALL);
    one_after_the_other(parameters, &layout, vec![(0, Box::new(move |core| program(core, at)))])[0]
}

#[test]
fn a_line_of_the_second_level_is_waited_for_by_a_word_and_not_by_bulk_data() {
    for name in ["icx", "spr"] {
        let mut p = quiet(name);
        (p.cache.l1_ways, p.cache.l1_bytes) = (2, 128);
        // The first of three lines is in the second level alone.
        let behind = |access: fn(&SimCore<'_>, Address)| {
            takes(&p, move |core, at| {
                (0..3).for_each(|index| _ = core.load_acquire(at.lines(index)));
                access(core, at);
            })
        };
        let alone = behind(|_, _| ());
        assert_eq!(behind(|core, at| _ = core.read_line(at)) - alone, Stages::of(&p).issue, "{name}");
        let word = behind(|core, at| _ = core.load(at)) - alone;
        assert_eq!(word, p.core.cycles(u64::from(p.core.l2_hit_cycles)), "{name}");
    }
}

#[test]
fn a_peek_waits_for_nothing_and_sees_what_has_come() {
    for name in ["icx", "spr"] {
        let p = quiet(name);
        let s = Stages::of(&p);
        let begun = takes(&p, |core, at| assert_eq!(core.peek(at), None, "it is in memory"));
        assert_eq!(begun, s.issue, "{name}");
        let cycles = s.local_memory() / p.core.cycles(1) + 2;
        takes(&p, move |core, at| {
            core.peek(at);
            core.work(cycles as u32);
            let before = core.now();
            assert_eq!(core.peek(at), Some(0), "{name}: the first look has asked for it");
            assert_eq!(core.now().since(before).picoseconds(), s.issue, "{name}");
        });
    }
}

#[test]
fn a_miss_waits_for_a_line_fill_buffer_if_all_are_taken_and_not_if_one_is_left() {
    for name in ["icx", "spr"] {
        let p = quiet(name);
        let s = Stages::of(&p);
        let buffers = u64::from(p.core.line_fill_buffers);
        let after = |others: u64| {
            takes(&p, move |core, at| {
                (0..others).for_each(|index| core.prefetch_read(at.lines(index)));
                core.load_acquire(at.lines(others));
            })
        };
        assert_eq!(after(buffers - 1), (buffers - 1) * s.issue + s.local_memory(), "{name}");
        // The first line is there; then the load can begin.
        assert_eq!(after(buffers), s.issue + 2 * s.local_memory(), "{name}");
    }
}

#[test]
fn a_store_waits_for_the_store_buffer_if_it_is_full_and_not_if_a_place_is_left() {
    for name in ["icx", "spr"] {
        let p = quiet(name);
        let s = Stages::of(&p);
        let places = u64::from(p.core.store_buffer);
        let after = |stores| takes(&p, move |core, at| (0..stores).for_each(|index| core.store(at.lines(index), 1)));
        assert_eq!(after(places), places * s.issue, "{name}");
        // The first store leaves when it owns its line.
        assert_eq!(after(places + 1), s.issue + s.local_memory() + s.issue, "{name}");
    }
}

#[test]
fn a_store_waits_for_a_line_fill_buffer_that_stores_may_take_and_a_load_does_not() {
    for name in ["icx", "spr"] {
        let mut p = quiet(name);
        p.core.store_fill_buffers = 3;
        let s = Stages::of(&p);
        let store =
            |core: &SimCore<'_>, at: Address, count| (0..count).for_each(|index| core.store(at.lines(index), 1));
        let fenced = |count| {
            takes(&p, move |core, at| {
                store(core, at, count);
                core.full_fence();
            })
        };
        assert_eq!(fenced(3), 3 * s.issue + s.local_memory(), "{name}");
        // The fourth asks when the first line has come.
        assert_eq!(fenced(4), s.issue + 2 * s.local_memory(), "{name}");
        let loaded = takes(&p, move |core, at| {
            store(core, at, 4);
            core.load_acquire(at.lines(4));
        });
        assert_eq!(loaded, 4 * s.issue + s.local_memory(), "{name}");
    }
}

#[test]
fn the_clock_takes_its_cycles_to_be_read() {
    let mut p = quiet("icx");
    p.core.clock_cycles = 30;
    // Once by the program, once by who measures it.
    assert_eq!(takes(&p, |core, _| _ = core.now()), 2 * p.core.cycles(30));
}

#[test]
fn a_fence_waits_for_the_last_store_and_not_longer() {
    let p = quiet("icx");
    let s = Stages::of(&p);
    let fenced = takes(&p, |core, at| {
        (0..3).for_each(|index| core.store(at.lines(index), 1));
        core.full_fence();
    });
    assert_eq!(fenced, 3 * s.issue + s.local_memory());
}

/// Stores so many lines of the own node's memory past the caches, and waits until memory has them.
fn past_caches(parameters: &Parameters, lines: u64) -> u64 {
    let mut layout = Layout::new();
    let at = layout.add("lines", lines * 64, 64, Home::Host, SynchronisingWords::NONE);
    let program: Program = Box::new(move |core| {
        (0..lines).for_each(|line| core.write_nontemporal(at.lines(line), &[conic_fabric::Line([7; 8])]));
        core.fence();
    });
    one_after_the_other(parameters, &layout, vec![(0, program)])[0]
}

#[test]
fn a_write_past_the_caches_is_answered_when_memory_has_it_and_its_channel_has_come_to_it() {
    for name in ["icx", "spr"] {
        let mut p = quiet(name);
        let s = Stages::of(&p);
        let way = |lines: u64, memory: u64| lines * s.issue + s.ask + memory + s.home_to_core;
        assert_eq!(past_caches(&p, 1), way(1, p.node.write_latency), "{name}: one");
        p.node.write_latency += 1;
        assert_eq!(past_caches(&p, 1), way(1, p.node.write_latency), "{name}: a picosecond more");
        // They come faster than the one channel takes them: the last one waits for those before it, and not for `write_latency` as well.
        (p.memory.channels, p.memory.line_time) = (1, 40_000);
        p.node.home_service = 0;
        assert!(p.node.write_latency < 8 * p.memory.line_time);
        assert_eq!(past_caches(&p, 8), way(1, 8 * p.memory.line_time), "{name}: eight");
    }
}

#[test]
fn prefetches_wait_in_the_load_buffer_and_the_core_only_if_it_is_full() {
    for name in ["icx", "spr"] {
        let mut p = quiet(name);
        // Full long before the first line comes.
        p.core.load_buffer = 24;
        let s = Stages::of(&p);
        let places = u64::from(p.core.line_fill_buffers + p.core.load_buffer);
        let after = |count| takes(&p, move |core, at| (0..count).for_each(|index| core.prefetch_read(at.lines(index))));
        assert_eq!(after(places), places * s.issue, "{name}");
        assert_eq!(after(places + 1), s.issue + s.local_memory() + s.issue, "{name}");
    }
}

#[test]
fn a_core_has_its_line_until_a_snoop_is_there_however_far_it_is_simulated_ahead() {
    for run_ahead in [false, true] {
        let mut p = quiet("spr");
        // A cycle is a whole number of picoseconds.
        p.core.frequency_megahertz = 2_000;
        let s = Stages::of(&p);
        // The other core asks at 200 microseconds; the snoop is here after its way to the home and the home's to this core.
        let asks = 200_000_000;
        let snooped = asks + s.ask + s.home_to_core;
        let load_at = |time: u64| {
            let (layout, at) = line(Home::Host);
            let options = Options { run_ahead, ..Options::default() };
            let mut simulation = Simulation::new(&p, &layout, options);
            let took = Rc::new(RefCell::new(0));
            let out = Rc::clone(&took);
            let cycle = p.core.cycles(1);
            let store = p.core.cycles(1) + s.local_memory();
            // Whole cycles of work, and a start that makes the load begin at that very picosecond.
            let start = (time - store) % cycle;
            let cycles = (time - store - start) / cycle;
            simulation.core("owner", 0, Role::Main, Time::from_picoseconds(start), move |core| {
                core.store(at, 1);
                core.full_fence();
                core.work(cycles as u32);
                assert_eq!(core.now().picoseconds(), time, "the test's own arithmetic");
                core.load_acquire(at);
                *out.borrow_mut() = core.now().picoseconds() - time;
            });
            simulation.core("asker", 0, Role::Main, Time::from_picoseconds(asks), move |core| {
                core.fetch_or(at, 2);
            });
            simulation.run().expect("both end");
            *took.borrow()
        };
        let hit = p.core.cycles(u64::from(p.core.l1_hit_cycles));
        assert_eq!(load_at(snooped - 1), hit, "run_ahead {run_ahead}");
        assert!(load_at(snooped) > s.ask + s.home_to_core, "run_ahead {run_ahead}");
    }
}

/// Three lines of local memory that nobody has.
fn three_lines() -> (Layout, [Address; 3]) {
    let mut layout = Layout::new();
    let at = layout.add("three lines", 192, 64, Home::Host, SynchronisingWords::ALL);
    (layout, [at, at.lines(1), at.lines(2)])
}

#[test]
fn loads_of_bulk_data_overlap_and_what_depends_on_one_waits_for_it() {
    for name in ["icx", "spr"] {
        let p = quiet(name);
        let s = Stages::of(&p);
        let goes_on = takes(&p, |core, at| {
            core.read_line(at);
            core.read_line(at.lines(1));
        });
        assert_eq!(goes_on, 2 * s.issue, "{name}");
        let waits = takes(&p, |core, at| {
            core.read_line(at);
            core.read_line(at.lines(1));
            core.depends_on(at.lines(1));
        });
        assert_eq!(waits, s.issue + s.local_memory(), "{name}: both were on their way at once");
        let waits_for_the_first = takes(&p, |core, at| {
            core.read_line(at);
            core.read_line(at.lines(1));
            core.depends_on(at);
        });
        assert_eq!(waits_for_the_first, s.local_memory(), "{name}: and not for the second");
        let words = takes(&p, |core, at| _ = core.load(at) + core.load(at.lines(1)));
        assert_eq!(words, 2 * s.local_memory(), "{name}: a word that misses is waited for");
    }
}

#[test]
fn a_store_asks_for_its_line_while_a_load_before_it_is_under_way_and_not_before_its_address_is_known() {
    for name in ["icx", "spr"] {
        let p = quiet(name);
        let s = Stages::of(&p);
        let behind = |address_depends: bool| {
            takes(&p, move |core, at| {
                core.read_line(at);
                if address_depends {
                    core.depends_on(at);
                }
                core.store(at.lines(1), 1);
                core.full_fence();
            })
        };
        assert_eq!(behind(false), 2 * s.issue + s.local_memory(), "{name}: both were on their way at once");
        assert_eq!(behind(true), s.local_memory() + s.issue + s.local_memory(), "{name}");
    }
}

#[test]
fn a_core_works_behind_a_load_until_its_reorder_buffer_is_full_and_no_longer() {
    for name in ["icx", "spr"] {
        let mut p = quiet(name);
        // A cycle is a whole number of picoseconds, and the buffer holds a whole number of cycles' work.
        p.core.frequency_megahertz = 2_000;
        let fits = 100;
        p.core.work_instructions = 3.0;
        p.core.reorder_buffer = 3 * fits;
        let s = Stages::of(&p);
        let span = u64::from(fits) * p.core.cycles(1);
        assert!(span < s.local_memory() && s.issue == p.core.cycles(1), "the load must come after the buffer is full");
        // The issue of the load is work too.
        for cycles in [fits - 2, fits - 1, fits, 2 * fits] {
            let work = p.core.cycles(cycles.into());
            let behind = takes(&p, move |core, at| {
                core.read_line(at);
                core.work(cycles);
            });
            let done = s.issue + work;
            let expected = if done <= span { done } else { s.local_memory() + done - span };
            assert_eq!(behind, expected, "{name}: {work} ps of work in {span} ps");
        }
        // The next access waits as work does, and so does one that would hit.
        let access = |cycles: u32| {
            takes(&p, move |core, at| {
                core.store(at.lines(2), 1);
                core.full_fence();
                core.read_line(at);
                core.work(cycles);
                core.load(at.lines(2));
            })
        };
        let own = s.issue + s.local_memory();
        assert_eq!(access(fits - 2), own + span, "{name}");
        assert_eq!(access(fits - 1), own + s.local_memory() + s.issue, "{name}");
    }
}

/// What a reader on the same node sees of a line that a writer owns, if its snoop is at the writer so many picoseconds after
/// (or before) the line comes behind whose load the writer's store waits.
fn seen(parameters: &Parameters, after: i64) -> u64 {
    let (s, (layout, [first, second, third])) = (Stages::of(parameters), three_lines());
    let begins = 10_000_000;
    let comes = begins + s.local_memory();
    let mut simulation = Simulation::new(parameters, &layout, Options { checked: true, ..Options::default() });
    let cycle = parameters.core.cycles(1);
    let owns = s.issue + s.local_memory() + s.issue + cycle;
    let start = (begins - owns) % cycle;
    simulation.core("owner", 0, Role::Main, Time::from_picoseconds(start), move |core| {
        core.store(second, 1);
        core.full_fence();
        core.work(((begins - owns - start) / cycle) as u32);
        // Comes before the load does, and finds the store waiting.
        core.prefetch_read(third);
        core.work(1);
        assert_eq!(core.now().picoseconds(), begins, "the test's own arithmetic");
        core.read_line(first);
        core.store(second, 7);
        assert_eq!(core.now().picoseconds(), begins + 2 * s.issue, "the core itself does not wait");
    });
    let value = Rc::new(RefCell::new(0));
    let into = Rc::clone(&value);
    let asks = (comes - s.ask - s.home_to_core).checked_add_signed(after).expect("late enough");
    simulation.core("reader", 0, Role::Main, Time::from_picoseconds(asks), move |core| {
        *into.borrow_mut() = core.load_acquire(second);
    });
    simulation.run().expect("both end");
    value.take()
}

#[test]
fn a_store_behind_a_load_is_not_seen_before_the_load_has_come() {
    for name in ["icx", "spr"] {
        let mut p = quiet(name);
        p.core.frequency_megahertz = 2_000;
        assert_eq!([seen(&p, -1), seen(&p, 1)], [1, 7], "{name}");
    }
}

/// What a load of a line in memory, stores to so many lines behind it, and a fence take, if another core loads the stores' lines
/// before the first line comes.
fn lost(parameters: &Parameters, stores: u64) -> u64 {
    let mut layout = Layout::new();
    let at = layout.add("lines", 16 * 64, 64, Home::Host, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(parameters, &layout, Options { checked: true, ..Options::default() });
    let begins = Time::from_nanoseconds(10_000);
    let took = Rc::new(RefCell::new(0));
    let into = Rc::clone(&took);
    let store = move |core: &SimCore<'_>| (1..=stores).for_each(|index| core.store(at.lines(index), 1));
    simulation.core("writer", 0, Role::Main, Time::ZERO, move |core| {
        store(core);
        core.full_fence();
        while core.now() < begins {
            core.spin();
        }
        let begins = core.now();
        core.read_line(at);
        store(core);
        core.full_fence();
        *into.borrow_mut() = core.now().since(begins).picoseconds();
    });
    simulation.core("reader", 0, Role::Main, begins + Time::from_nanoseconds(10), move |core| {
        (1..=stores).for_each(|index| _ = core.read_line(at.lines(index)));
    });
    simulation.run().expect("both end");
    took.take()
}

#[test]
fn stores_that_have_lost_their_lines_ask_for_them_together() {
    for name in ["icx", "spr"] {
        let p = quiet(name);
        let s = Stages::of(&p);
        let expected = s.local_memory() + s.ask + s.snoop + s.home_to_core;
        assert_eq!([lost(&p, 1), lost(&p, 4)], [expected; 2], "{name}");
    }
}

#[test]
fn a_store_to_a_write_combining_buffer_that_is_open_needs_no_free_one() {
    let mut p = quiet("icx");
    p.core.write_combining_buffers = 2;
    let mut layout = Layout::new();
    let at = layout.add_registers("combining", 4096, Home::Host, MemoryType::WriteCombining);
    let took = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&took);
    let program: Program = Box::new(move |core| {
        // One is on its way to memory, one gathers.
        core.write_line(at, &Line([1; 8]));
        core.store(at.lines(1), 1);
        let timed = |at: Address| {
            let begins = core.now();
            core.store(at, 2);
            into.borrow_mut().push(core.now().since(begins).picoseconds());
        };
        (1..8).for_each(|word| timed(at.lines(1).word(word)));
        timed(at.lines(2));
    });
    one_after_the_other(&p, &layout, vec![(0, program)]);
    let (issue, took) = (Stages::of(&p).issue, took.take());
    assert_eq!(took[..7], [issue; 7], "the last one of them fills it");
    assert!(took[7] > 10 * issue, "both are on their way now: {took:?}");
}
