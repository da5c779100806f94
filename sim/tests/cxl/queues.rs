//! Every queue of the machine is probed, the probes change nothing, and a miscount of any of them is found.

use std::collections::BTreeSet;

use conic_fabric::{Address, Core, Device, LINE_BYTES, Line, StateHint};
use conic_sim::Role;
use conic_sim::cxl::queues::KINDS;
use conic_sim::cxl::{Counters, CxlCore, CxlDevice, CxlParameters, CxlSimulation};
use conic_sim::probe::queues::{Miscount, QueueReport};

use super::{Places, machine, places};

const LINES: u64 = 512;

/// A machine in which everything has to be waited for.
fn narrow() -> CxlParameters {
    let mut parameters = machine("agilex7");
    let core = &mut parameters.core;
    (core.line_fill_buffers, core.store_buffer, core.write_combining_buffers) = (2, 4, 2);
    let link = &mut parameters.link;
    (link.request_credits, link.answer_credits, link.data_credits, link.memory_credits) = (2, 1, 1, 1);
    let dcoh = &mut parameters.dcoh;
    (dcoh.requests_in_flight, dcoh.hmc_bytes, dcoh.hmc_ways) = (4, 128, 2);
    (dcoh.dmc_bytes, dcoh.dmc_ways, dcoh.install_interval) = (128, 2, 10_000);
    (parameters.pcie.tags, parameters.pcie.posted_credits) = (2, 1);
    (parameters.cache.l2_bytes, parameters.cache.l2_ways) = (256, 4);
    (parameters.cache.l1_bytes, parameters.cache.l1_ways) = (128, 2);
    (parameters.cache.llc_bytes, parameters.cache.llc_ways) = (512, 8);
    parameters
}

/// What a core does: each of its queues is used, and by several at once.
fn core_program(core: &CxlCore<'_>, places: Places, me: u64) {
    for round in 1..=6 {
        for index in 0..8 {
            core.prefetch_read(places.host.lines(index));
            core.store(places.host.lines((index + 3 * me) % 8).word(me as usize), round);
            core.store(places.device.lines((index + 3 * me) % 8).word(me as usize), round);
        }
        core.read_lines(places.packets.lines(16 * (me + round)), &mut [Line::ZERO; 12]);
        core.write_nontemporal(places.packets.lines(200 + 8 * me), &[Line([round; 8]); 6]);
        core.flush(places.host.lines(3));
        core.register_write(places.register, round);
        core.register_read(places.register);
        core.full_fence();
        core.work(300);
    }
}

/// What an engine does over CXL: lines that several want, words in order, more than there are tags.
fn engine_program(device: &CxlDevice<'_>, places: Places) {
    let mut bytes = vec![0; 10 * LINE_BYTES as usize];
    for round in 0..6 {
        device.write(places.packets.lines(16 * round), &bytes, StateHint::NonCacheable);
        device.write(places.device.lines(2), &[round as u8; 300], StateHint::CacheableOwned);
        device.write_word(places.host.lines(round), round, StateHint::CacheableOwned);
        device.write_word(places.host.lines(round).word(3), round, StateHint::NonCacheable);
        device.read(places.host, &mut bytes, StateHint::CacheableShared);
        device.read(places.packets.lines(16 * round), &mut bytes, StateHint::CacheableOwned);
    }
    device.interrupt(0);
    device.await_writes();
}

/// What an engine does by DMA.
fn dma_program(device: &CxlDevice<'_>, places: Places) {
    let dma = device.dma();
    let mut bytes = vec![0; 1_500];
    let at = |round: u64| Address(places.packets.0 + 40 + LINE_BYTES * round);
    for round in 0..6 {
        dma.write(at(round), &bytes, StateHint::NonCacheable);
        dma.write(at(0), &[round as u8; 400], StateHint::NonCacheable);
        dma.write_word(places.host.lines(2), round, StateHint::NonCacheable);
        let reads: Vec<_> = (0..3).map(|read| dma.start_read(at(8 * read), 1_500, StateHint::NonCacheable)).collect();
        (0..).zip(reads).for_each(|(read, tag)| dma.finish_read(tag, at(8 * read), &mut bytes));
    }
    device.await_writes();
}

/// Runs the programs, after a call to `prepare`; what was counted, and when it was over.
fn run(prepare: impl FnOnce(&mut conic_sim::cxl::Machine)) -> (CxlSimulation, (Counters, u64)) {
    let (layout, places) = places(LINES);
    let mut simulation = CxlSimulation::new(&narrow(), &layout);
    for me in 0..3 {
        simulation.core("core", Role::Main, move |core| core_program(core, places, me));
    }
    for _ in 0..2 {
        simulation.device("engine", Role::Main, move |device| engine_program(device, places));
    }
    simulation.device("DMA engine", Role::Main, move |device| dma_program(device, places));
    prepare(&mut simulation.machine().borrow_mut());
    simulation.run().expect("all programs end");
    let outcome = {
        let machine = simulation.machine().borrow();
        (machine.counters.clone(), machine.now())
    };
    (simulation, outcome)
}

fn reports(simulation: &CxlSimulation) -> Vec<QueueReport> {
    simulation.machine().borrow().queue_reports()
}

#[test]
fn every_kind_of_queue_is_fed_and_the_law_holds_for_each() {
    let (simulation, _) = run(|machine| machine.probe_queues());
    let reports = reports(&simulation);
    let fed: BTreeSet<&str> = reports.iter().map(|report| report.kind).collect();
    assert_eq!(fed, KINDS.into_iter().collect());
    for report in &reports {
        let little = &report.little;
        assert!(little.holds(), "{report:?}");
        assert!(report.limit.is_none_or(|limit| little.maximum_occupancy <= limit), "{report:?}");
        // The textbook's form is off by what the run's end cuts off, and by no more.
        if little.arrivals == little.departures {
            assert!(little.relative_residual.abs() < 1e-9, "{report:?}");
        }
    }
    assert_eq!(simulation.machine().borrow().queue_faults(), Vec::<String>::new());
}

#[test]
fn limits_are_reached_and_waits_are_seen_where_they_are() {
    let (simulation, _) = run(|machine| machine.probe_queues());
    let reports = reports(&simulation);
    let most = |kind: &str| {
        let of_kind = reports.iter().filter(|report| report.kind == kind);
        of_kind.map(|report| report.little.maximum_occupancy).max().expect("the queue is fed")
    };
    let full = [
        "line fill buffers",
        "store buffer",
        "writes past the caches",
        "link credits",
        "requests in flight",
        "read tags",
        "write credits",
    ];
    assert_eq!(full.map(most), [2, 4, 2, 2, 4, 2, 1]);
    for waits in [
        "requests for a line",
        "messages without a credit",
        "writes in order",
        "requests behind one for their line",
        "reads without a tag",
        "transactions without a credit",
        "accesses behind a posted write",
        "port",
    ] {
        assert!(most(waits) > 1, "{waits}");
    }
    assert!(most("memory channel") > 1 && most("link") > 1 && most("lines into the caches") > 1);
}

#[test]
fn a_planted_miscount_of_any_queue_is_found() {
    // An exit is not told of where it follows from the entry.
    let known_ends = [
        "memory channel",
        "link",
        "retry buffer",
        "lines into the caches",
        "PCIe",
        "register reads",
        "register writes",
    ];
    for kind in KINDS {
        for exit in [false, true].into_iter().filter(|exit| !exit || !known_ends.contains(&kind)) {
            for number in [0, 3] {
                let miscount = Miscount { kind, exit, number };
                let (simulation, _) = run(|machine| {
                    machine.probe_queues();
                    machine.miscount(miscount);
                });
                let faults = simulation.machine().borrow().queue_faults();
                assert!(!faults.is_empty(), "{miscount:?} was not found");
                assert!(faults.iter().all(|fault| fault.contains(&format!(": {kind}: "))), "{miscount:?}: {faults:?}");
            }
        }
    }
}

#[test]
fn probes_change_nothing() {
    let (_, plain) = run(|_| ());
    assert_eq!(run(|machine| machine.probe_queues()).1, plain);
}

#[test]
fn random_runs_leave_every_queue_as_its_probe_has_it() {
    for seed in 1..12 {
        let simulation = super::random::observed_run(&narrow(), seed, |machine| machine.probe_queues());
        assert_eq!(simulation.machine().borrow().queue_faults(), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_new_window_begins_with_what_is_inside() {
    let (layout, places) = places(4);
    let mut simulation = CxlSimulation::new(&narrow(), &layout);
    simulation.core("core", Role::Main, move |core| {
        core.work(1000);
        core.prefetch_read(places.host);
        core.machine().borrow_mut().restart_queues();
        core.load(places.host);
        core.load(places.host.lines(1));
    });
    simulation.machine().borrow_mut().probe_queues();
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

/// Two cores that want one line at once ask for it once each, whichever waits for the other.
#[test]
fn who_waits_for_a_line_has_asked_for_it_once() {
    let (layout, places) = places(4);
    let mut simulation = CxlSimulation::new(&narrow(), &layout);
    for _ in 0..2 {
        simulation.core("core", Role::Main, move |core| _ = core.load(places.host));
    }
    simulation.machine().borrow_mut().probe_queues();
    simulation.run().expect("the programs end");
    let reports = reports(&simulation);
    let of = |kind: &str| reports.iter().find(|report| report.kind == kind).expect("the queue is fed").little.arrivals;
    assert_eq!((of("requests at the home agents"), of("requests for a line")), (2, 1));
}
