//! Entries of home agents: who waits for one and for how long, that no run stands still for want of them, and what would.

use crate::common;
use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Home, Layout, Line, SynchronisingWords, Time};
use conic_sim::probe::queues::QueueReport;
use conic_sim::{Options, Parameters, Role, Simulation};

/// A platform with one slice a node and so many entries, without prefetchers, and with memory and look-ups that nobody waits for.
fn limited(entries: u32, own: u32) -> Parameters {
    let mut parameters = common::without_prefetchers("icx");
    (parameters.memory.channels, parameters.memory.line_time) = (64, 1);
    (parameters.node.home_slices, parameters.node.home_service) = (1, 0);
    (parameters.node.home_entries, parameters.node.home_own_entries) = (entries, own);
    parameters
}

/// Has a core each load a line of `home`'s memory from its node at a time; gives the picoseconds of each load, and what the queues show.
/// Nothing of it depends on whether somebody looks at the queues, except what they show.
pub fn loads(parameters: &Parameters, home: Home, starts: &[(usize, u64)]) -> (Vec<u64>, Vec<QueueReport>) {
    let watched = loads_with(parameters, home, starts, Options { checked: true, ..Options::default() });
    let unwatched = loads_with(parameters, home, starts, Options::default());
    assert_eq!(unwatched.0, watched.0, "the same times whether or not somebody looks");
    watched
}

fn loads_with(
    parameters: &Parameters,
    home: Home,
    starts: &[(usize, u64)],
    options: Options,
) -> (Vec<u64>, Vec<QueueReport>) {
    let mut layout = Layout::new();
    let memory = layout.add("memory", 64 * starts.len() as u64, 64, home, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(parameters, &layout, options);
    let times = Rc::new(RefCell::new(vec![0; starts.len()]));
    for (index, &(node, start)) in starts.iter().enumerate() {
        let (times, at): (_, Address) = (Rc::clone(&times), memory.lines(index as u64));
        let start = Time::from_picoseconds(1_000_000 + start);
        simulation.core(&format!("core {index}"), node, Role::Main, start, move |core| {
            let begins = core.now();
            core.load_acquire(at);
            times.borrow_mut()[index] = core.now().since(begins).picoseconds();
        });
    }
    simulation.run().expect("all programs end");
    let reports = simulation.machine().borrow().queue_reports();
    (times.take(), reports)
}

/// A load of a line that only local memory has, and the part of it for which it has an entry.
fn alone(parameters: &Parameters) -> (u64, u64) {
    let node = &parameters.node;
    let held = parameters.memory.latency;
    (node.core_to_home + node.home_lookup + held + node.home_to_core, held)
}

#[test]
fn a_request_without_an_entry_is_looked_up_once_more_when_one_is_free_and_not_a_picosecond_later() {
    let parameters = limited(3, 2);
    let ((alone, held), lookup) = (alone(&parameters), parameters.node.home_lookup);
    let third = |after: u64| loads(&parameters, Home::Host, &[(0, 0), (0, 0), (0, after)]).0[2];
    // The entry is free in the very moment of the answer, which came to be first.
    for (after, waits) in [(0, held + lookup), (1, held - 1 + lookup), (held - 1, 1 + lookup), (held, 0), (held + 1, 0)]
    {
        assert_eq!(third(after), alone + waits, "{after} ps after");
    }
    assert_eq!(loads(&limited(4, 3), Home::Host, &[(0, 0); 3]).0, [alone; 3], "an entry for each");
}

#[test]
fn who_waits_for_an_entry_gets_it_in_the_order_of_arrival() {
    let parameters = limited(2, 1);
    let ((alone, held), lookup) = (alone(&parameters), parameters.node.home_lookup);
    let (took, _) = loads(&parameters, Home::Host, &[(0, 0), (0, 30), (0, 20), (0, 10)]);
    let each = held + lookup;
    assert_eq!(took, [0, 3 * each - 30, 2 * each - 20, each - 10].map(|waits| alone + waits));
}

#[test]
fn requests_of_the_other_node_have_the_entries_that_own_ones_leave() {
    let parameters = limited(3, 2);
    let (node, link) = (&parameters.node, &parameters.interconnect);
    let memory = parameters.memory.latency;
    let remote = loads(&parameters, Home::Host, &[(1, 0)]).0[0];
    // Two own requests have what own ones may have, and keep back a third, but not the other node's first.
    let later = 1_000;
    let (took, _) = loads(&parameters, Home::Host, &[(0, 0), (0, 0), (0, 0), (1, 0), (1, later)]);
    let ((alone, held), lookup) = (alone(&parameters), node.home_lookup);
    assert_eq!(took[..4], [alone, alone, alone + held + lookup, remote]);
    // Its second comes after the own third, and has the second entry that comes back in that moment: own ones have only two.
    let back = u64::from(link.data_flits) * link.flit_time + link.crossing + node.home_to_core;
    let comes = remote - back - memory + later;
    let answered = node.core_to_home + lookup + memory;
    assert!(comes < answered, "it must find the entries taken");
    assert_eq!(took[4], remote + answered - comes + lookup);
}

#[test]
fn a_write_past_the_caches_has_its_entry_until_memory_has_the_line() {
    let mut parameters = limited(2, 1);
    // Longer than the answer's way to the core.
    parameters.node.write_latency += 50_000;
    let mut layout = Layout::new();
    let lines = layout.add("lines", 2 * 64, 64, Home::Host, SynchronisingWords::NONE);
    let mut simulation = Simulation::new(&parameters, &layout, Options { checked: true, ..Options::default() });
    let times = Rc::new(RefCell::new(vec![0; 2]));
    for core in 0..2 {
        let times = Rc::clone(&times);
        let start = Time::from_picoseconds(1_000_000 + 10 * core);
        simulation.core(&format!("core {core}"), 0, Role::Main, start, move |this| {
            let begins = this.now();
            this.write_nontemporal(lines.lines(core), &[Line([7; 8])]);
            this.fence();
            times.borrow_mut()[core as usize] = this.now().since(begins).picoseconds();
        });
    }
    simulation.run().expect("all programs end");
    let [first, second] = times.take()[..] else { panic!("two cores") };
    let (held, lookup) = (parameters.node.write_latency, parameters.node.home_lookup);
    assert_eq!(second, first + held - 10 + lookup);
}

#[test]
fn a_recording_says_when_a_request_that_waited_has_its_entry_and_what_it_caused() {
    for service in [0, 7_000] {
        let mut parameters = limited(2, 1);
        parameters.node.home_service = service;
        waits_for_its_entry(&parameters);
    }
}

fn waits_for_its_entry(parameters: &Parameters) {
    let mut layout = Layout::new();
    let memory = layout.add("memory", 2 * 64, 64, Home::Host, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(parameters, &layout, Options::default());
    for core in 0..2 {
        let start = Time::from_picoseconds(1_000_000 + 10 * core);
        simulation.core(&format!("core {core}"), 0, Role::Main, start, move |this| {
            this.load_acquire(memory.lines(core));
        });
    }
    simulation.machine().borrow_mut().record(1_000);
    simulation.run().expect("all programs end");
    let recording = simulation.machine().borrow_mut().take_recording().expect("it was asked for");
    let about = |name: &str, line: u64| {
        let at = recording.messages.iter().position(|message| message.name == name && message.line == line);
        at.unwrap_or_else(|| panic!("no {name} of line {line}"))
    };
    let (held, lookup) = (alone(parameters).1, parameters.node.home_lookup);
    let [first, second] = [0, 1].map(|line| recording.messages[about("Read", line)].arrives.picoseconds());
    assert_eq!(second - first, held + lookup, "it is there when it has been looked up with an entry");
    for line in 0..2 {
        let data = recording.messages[about("MemoryData", line)].cause;
        assert_eq!(data.map(|cause| cause.0 as usize), Some(about("Read", line)), "line {line}");
    }
    let queue = recording.queues.iter().position(|queue| queue == "host home 0: requests without an entry");
    let levels = recording.levels.iter().filter(|level| Some(usize::from(level.queue.0)) == queue);
    assert_eq!(levels.map(|level| level.inside).collect::<Vec<_>>(), [1, 0]);
}

/// Has run so many cores that each load so many lines of their own from local memory, as many at once as they can.
pub fn misses(parameters: &Parameters, cores: u64, lines: u64) -> Simulation {
    let mut layout = Layout::new();
    let memory = layout.add("memory", 64 * cores * lines, 4096, Home::Host, SynchronisingWords::ALL);
    let mut simulation = Simulation::new(parameters, &layout, Options { checked: true, ..Options::default() });
    for core in 0..cores {
        simulation.core(&format!("core {core}"), 0, Role::Main, Time::ZERO, move |this| {
            (0..lines).for_each(|line| this.prefetch_read(memory.lines(core * lines + line)));
            (0..lines).for_each(|line| _ = this.load(memory.lines(core * lines + line)));
        });
    }
    simulation.run().expect("all programs end");
    simulation
}

#[test]
fn entries_bound_a_slice_as_littles_law_says() {
    const CORES: u64 = 8;
    const LINES: u64 = 100;
    for own in [1, 2, 4] {
        let parameters = limited(own + 1, own);
        let simulation = misses(&parameters, CORES, LINES);
        let machine = simulation.machine().borrow();
        // A request that waited has its entry while it is looked up once more.
        let held = alone(&parameters).1 + parameters.node.home_lookup;
        let least = CORES * LINES * held / u64::from(own);
        let took = machine.now();
        assert!((least - held..least + least / 20).contains(&took), "{own} entries: {took} ps, some {least}");
        let reports = machine.queue_reports();
        let of =
            |kind: &str| reports.iter().find(|report| report.kind == kind && report.of == "host home 0").expect("used");
        let (entries, waiting) = (of("home agent entries"), of("requests without an entry"));
        assert_eq!((entries.limit, entries.little.maximum_occupancy), (Some(u64::from(own) + 1), u64::from(own)));
        assert_eq!(entries.little.arrivals, CORES * LINES);
        assert!(waiting.little.arrivals > CORES * LINES / 2, "most waited: {:?}", waiting.little);
        assert!(entries.little.holds() && waiting.little.holds(), "mean number = rate x mean time");
    }
}

/// Cores of both nodes that write lines of both nodes' memory, all of one slice.
fn crossing_writes(parameters: &Parameters) -> Result<(), conic_sim::Failure> {
    let mut layout = Layout::new();
    let lines =
        [Home::Host, Home::Nic].map(|home| layout.add(&format!("{home:?}"), 4096, 64, home, SynchronisingWords::ALL));
    let mut simulation = Simulation::new(parameters, &layout, Options { checked: true, ..Options::default() });
    for core in 0..6 {
        simulation.core(&format!("core {core}"), core % 2, Role::Main, Time::ZERO, move |this| {
            for round in 0..40 {
                let at = lines[(core + round) % 2].lines((round * (core + 3) % 8) as u64);
                this.store(at, round as u64);
                this.load_acquire(lines[(core + 1) % 2].lines((round % 8) as u64));
            }
            this.full_fence();
        });
    }
    simulation.run()
}

#[test]
fn with_the_fewest_entries_two_nodes_do_not_wait_for_each_other_and_would_if_own_requests_had_all() {
    for forwards in [true, false] {
        let mut parameters = limited(2, 1);
        parameters.protocol.forwards_clean = forwards;
        assert_eq!(crossing_writes(&parameters), Ok(()));
    }
    // What no platform may have: each node's own requests have all entries, and wait for one of the other's.
    for entries in [1, 2] {
        let failure = crossing_writes(&limited(entries, entries)).expect_err("they wait for each other");
        println!("{failure}");
    }
}
