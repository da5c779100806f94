//! Every queue of the machine is probed, the probes change nothing, and a miscount of any of them is found.

use crate::common;
use std::collections::BTreeSet;

use conic_fabric::{Address, Core, Device, Home, Layout, Line, MemoryType, StateHint, SynchronisingWords, Time};
use conic_sim::machine::queues::KINDS;
use conic_sim::parameters::{EngineParameters, SnoopFilterParameters};
use conic_sim::probe::counters::AgentAccesses;
use conic_sim::probe::queues::{Miscount, QueueReport};
use conic_sim::{Options, Parameters, Role, SimCore, SimDevice, Simulation};

const HINT: StateHint = StateHint::NonCacheablePush;

/// A machine in which everything has to be waited for.
fn narrow() -> Parameters {
    let mut parameters = common::platform("icx-cx6");
    let core = &mut parameters.core;
    (core.line_fill_buffers, core.load_buffer, core.store_buffer, core.write_combining_buffers) = (2, 3, 4, 2);
    parameters.interconnect.request_credits = 1;
    // As few as let several requests wait for one line.
    (parameters.node.home_slices, parameters.node.home_entries, parameters.node.home_own_entries) = (2, 5, 4);
    let pcie = parameters.pcie.as_mut().expect("the platform has a PCIe link");
    (pcie.tags, pcie.posted_credits) = (2, 1);
    parameters.snoop_filter = Some(SnoopFilterParameters { sets: 1, ways: 2 });
    parameters.engine =
        Some(EngineParameters { engines: 1, lines_in_flight: 2, line_time: 1_000, start_up: 50_000, post: 7_000 });
    parameters
}

/// Registers and memory of a device, memory of either node.
#[derive(Clone, Copy)]
struct Region {
    registers: Address,
    combining: Address,
    near: Address,
    far: Address,
}

fn region() -> (Layout, Region) {
    let mut layout = Layout::new();
    let region = Region {
        registers: layout.add_registers("registers", 4096, Home::Nic, MemoryType::Uncached),
        combining: layout.add_registers("device memory", 4096, Home::Nic, MemoryType::WriteCombining),
        near: layout.add("memory", 1 << 14, 4096, Home::Host, SynchronisingWords::ALL),
        far: layout.add("combining memory", 1 << 14, 4096, Home::Host, SynchronisingWords::ALL),
    };
    (layout, region)
}

/// What a core does: each of its queues is used, and by several at once.
fn core_program(core: &SimCore<'_>, region: Region, me: u64) {
    for round in 1..=8 {
        for index in 0..12 {
            core.will_read(region.near.lines(index), 0);
        }
        for index in 0..12 {
            core.store(region.near.lines((index + 3 * me) % 12).word(me as usize), round);
        }
        // Lines that nobody writes.
        core.read_lines(region.near.lines(12 * (me + 1)), &mut [Line::ZERO; 8]);
        core.write_nontemporal(region.far.lines(16 * me), &[Line([round; 8]); 6]);
        core.store(region.combining.lines(me).word(1), round);
        core.store(region.combining.lines(me + 8).word(1), round);
        core.store(region.combining.lines(me + 16).word(1), round);
        core.store(region.registers.lines(me), round);
        core.register_read(region.registers.lines(me));
        core.full_fence();
        if me == 0 {
            let done = region.near.lines(100).word(round as usize % 8);
            core.post_copy(region.near.lines(101), region.near.lines(104), 3, done, round);
            core.post_copy(region.near.lines(104), region.near.lines(101), 3, done, 2 * round);
            while core.load_acquire(done) != 2 * round {
                core.spin();
            }
        }
        core.work(500);
    }
}

fn device_program(device: &SimDevice<'_>, region: Region) {
    let mut bytes = vec![0; 2000];
    for round in 0..8 {
        device.write(region.near + 64 * round, &[round as u8; 700], HINT);
        device.read(region.near, &mut bytes, HINT);
        device.write(region.far + 4096, &bytes, HINT);
    }
}

/// What a run was: accesses of each agent, its end.
type Outcome = (Vec<AgentAccesses>, u64);

/// Runs the programs, after a call to `prepare`.
fn run(options: Options, prepare: impl FnOnce(&mut Simulation)) -> (Simulation, Outcome) {
    let (layout, region) = region();
    let mut simulation = Simulation::new(&narrow(), &layout, options);
    for me in 0..4 {
        let start = Time::from_nanoseconds(20 * me);
        let node = me as usize % 2;
        // Cores of the other node reach the device's registers over the first one's root port alone.
        simulation.core(&format!("core {me}"), node, Role::Main, start, move |core| core_program(core, region, me));
    }
    simulation.device("device", Role::Main, Time::ZERO, move |device| device_program(device, region));
    let engine = simulation.engine("engine", 0);
    simulation.machine().borrow_mut().set_engine(0, engine);
    prepare(&mut simulation);
    simulation.run().expect("all programs end");
    let outcome = {
        let machine = simulation.machine().borrow();
        ((0..6).map(|agent| machine.counters(agent)).collect(), machine.now())
    };
    (simulation, outcome)
}

fn probed() -> Options {
    Options { queues: true, ..Options::default() }
}

fn reports(simulation: &Simulation) -> Vec<QueueReport> {
    simulation.machine().borrow().queue_reports()
}

#[test]
fn every_kind_of_queue_is_fed_and_the_law_holds_for_each() {
    for (fast_forward, run_ahead) in [(true, true), (false, false)] {
        let (simulation, _) = run(Options { fast_forward, run_ahead, ..probed() }, |_| ());
        let reports = reports(&simulation);
        let fed: BTreeSet<&str> = reports.iter().map(|report| report.kind).collect();
        assert_eq!(fed, KINDS.into_iter().collect());
        for report in &reports {
            let little = &report.little;
            assert!(little.holds(), "{report:?}");
            assert!(report.limit.is_none_or(|limit| little.maximum_occupancy <= limit), "{report:?}");
            // All programs have ended and nothing is inside: nothing is cut off, and the textbook's form is exact.
            assert_eq!(little.arrivals, little.departures, "{report:?}");
            assert!(little.relative_residual.abs() < 1e-9, "{report:?}");
        }
        assert_eq!(simulation.machine().borrow().queue_faults(), Vec::<String>::new());
    }
}

#[test]
fn limits_are_reached_and_waits_are_seen_where_they_are() {
    let (simulation, _) = run(probed(), |_| ());
    let reports = reports(&simulation);
    let most = |kind: &str| {
        let of_kind = reports.iter().filter(|report| report.kind == kind);
        of_kind.map(|report| report.little.maximum_occupancy).max().expect("the queue is fed")
    };
    assert!(most("home agent entries") >= 4, "own requests have all that they may have");
    let full = ["line fill buffers", "load buffer", "store buffer", "request credits", "read tags", "write credits"];
    assert_eq!(full.map(most), [2, 3, 4, 1, 2, 1]);
    for waits in [
        "requests without an entry",
        "requests without a way",
        "requests without a credit",
        "reads without a tag",
        "transactions without a credit",
    ] {
        assert!(most(waits) > 0, "{waits}");
    }
    assert_eq!(most("copies for an engine"), 2);
    // Two lines at once into a channel, or nothing was tested.
    assert!(most("memory channel") > 1 && most("link") > 1 && most("requests for a line") > 1);
}

#[test]
fn a_planted_miscount_of_any_queue_is_found() {
    // An exit from a server is not told of: it follows from the entry.
    let servers = ["home agent", "link", "memory channel", "PCIe", "write-combining buffers on their way"];
    for kind in KINDS {
        for exit in [false, true].into_iter().filter(|exit| !exit || !servers.contains(&kind)) {
            for number in [0, 3] {
                let miscount = Miscount { kind, exit, number };
                let (simulation, _) = run(probed(), |simulation| simulation.machine().borrow_mut().miscount(miscount));
                let faults = simulation.machine().borrow().queue_faults();
                assert!(!faults.is_empty(), "{miscount:?} was not found");
                assert!(faults.iter().all(|fault| fault.contains(kind)), "{miscount:?}: {faults:?}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "queues do not hold what came and did not leave: host core 0: line fill buffers")]
fn a_checked_run_ends_at_a_miscount() {
    run(Options { checked: true, ..Options::default() }, |simulation| {
        let miscount = Miscount { kind: "line fill buffers", exit: true, number: 0 };
        simulation.machine().borrow_mut().miscount(miscount);
    });
}

#[test]
fn probes_change_nothing() {
    let (_, plain) = run(Options::default(), |_| ());
    assert_eq!(run(probed(), |_| ()).1, plain);
    assert_eq!(run(Options { checked: true, ..Options::default() }, |_| ()).1, plain);
}

#[test]
fn a_new_window_begins_with_what_is_inside() {
    let (layout, region) = region();
    let mut parameters = narrow();
    (parameters.core.prefetch_next_line, parameters.core.prefetch_adjacent) = (false, false);
    let mut simulation = Simulation::new(&parameters, &layout, probed());
    simulation.core("core", 0, Role::Main, Time::ZERO, move |core| {
        core.work(1000);
        core.prefetch_read(region.near);
        core.machine().borrow_mut().restart_queues();
        core.load(region.near);
        core.load(region.near.lines(1));
    });
    simulation.run().expect("the program ends");
    let reports = reports(&simulation);
    let fills = reports.iter().find(|report| report.kind == "line fill buffers").expect("the queue is fed");
    let little = &fills.little;
    assert_eq!((little.carried_in, little.arrivals, little.departures), (1, 1, 2));
    assert!(little.holds());
    // Also of queues that nobody was in before.
    let windows = || reports.iter().map(|report| report.little.window_nanoseconds);
    assert!(windows().all(|window| window == little.window_nanoseconds), "{:?}", windows().collect::<Vec<_>>());
}
