//! Every queue is probed, the probes change nothing, and a miscount of any of them is found.

use std::collections::BTreeSet;

use conic_fabric::{Core, Line};
use conic_sim::Role;
use conic_sim::bus::queues::KINDS;
use conic_sim::bus::{Attachment, BusCore, BusSimulation, Counters, EngineShape, Machine};
use conic_sim::probe::queues::Miscount;

use super::{Places, parameters, places};

const LINES: u64 = 6;

/// Registers, lines of the device's that it wants as well, and memory of its own.
fn processor(core: &BusCore<'_>, places: Places) {
    for round in 1..40 {
        (0..6).for_each(|word| core.register_write(places.registers.word(word), round));
        for line in 0..LINES {
            core.store(places.device.lines(line), round);
            core.load(places.memory.lines((line + round) % LINES).word(1));
        }
        core.register_read(places.registers);
        core.work(200);
    }
}

/// Answers for the registers, slower than they are written, and exchanges messages with the other node.
fn engine(core: &BusCore<'_>, places: Places, node: usize) {
    for round in 0.. {
        core.next_access(places.registers);
        let line = places.device.lines(round % LINES);
        core.load(line);
        core.store(line.word(1), round);
        if core.may_inject(1 - node) {
            core.inject(1 - node, &[Line([round; 8]); 2]);
        }
        if round % 4 == 0 {
            while core.take_packet().is_some() {}
        }
        if round % 32 == 0 {
            while core.take_acknowledgement().is_some() {}
        }
        core.work(20);
    }
}

/// Runs two nodes, after a call to `prepare`; what their buses carried, and when it was over.
fn run(attachment: Attachment, prepare: impl FnOnce(&mut Machine)) -> (BusSimulation, (Vec<Counters>, u64)) {
    let mut machine = parameters();
    (machine.core.cache_bytes, machine.io.buffer) = (128, 2);
    let (layout, places) = places(LINES);
    let mut simulation = BusSimulation::new(&machine, &layout, 2, attachment);
    let lines = places.device..places.device.lines(LINES);
    let shape = EngineShape { blocks: 2, lines, registers: vec![places.registers] };
    for node in 0..2 {
        simulation.engine(node, "engine", &shape, move |core| engine(core, places, node));
        simulation.processor(node, "processor", Role::Main, move |core| processor(core, places));
    }
    prepare(&mut simulation.machine().borrow_mut());
    simulation.run().expect("all programs end");
    let outcome = {
        let machine = simulation.machine().borrow();
        (machine.counters.clone(), machine.now())
    };
    (simulation, outcome)
}

#[test]
fn every_kind_of_queue_is_fed_and_the_law_holds_for_each() {
    for attachment in [Attachment::MemoryBus, Attachment::IoBus] {
        let (simulation, (counters, _)) = run(attachment, Machine::probe_queues);
        let machine = simulation.machine().borrow();
        assert_eq!(machine.queue_faults(), Vec::<String>::new());
        let reports = machine.queue_reports();
        let fed: BTreeSet<&str> = reports.iter().map(|report| report.kind).collect();
        let has = |kind: &&str| attachment == Attachment::IoBus || *kind != "bridge";
        assert_eq!(fed, KINDS.into_iter().filter(has).collect());
        for report in &reports {
            assert!(report.little.holds(), "{report:?}");
            assert!(report.limit.is_none_or(|limit| report.little.maximum_occupancy <= limit), "{report:?}");
            if report.little.arrivals == report.little.departures {
                assert!(report.little.relative_residual.abs() < 1e-9, "{report:?}");
            }
        }
        // A bus that somebody has is one that is counted as taken, once it is given back.
        for (node, counters) in counters.iter().enumerate() {
            for (bus, busy) in [("memory bus", counters.memory_busy), ("I/O bus", counters.io_busy)] {
                let of = format!("{bus} of node {node}");
                let report = reports.iter().find(|report| report.kind == "bus" && report.of == of);
                let Some(little) = report.map(|one| &one.little) else { continue };
                let has = little.arrivals - little.departures;
                let more = little.area - i128::from(busy);
                let longest = i128::from(parameters().core.cycles(200) * has);
                assert!((0..=longest).contains(&more), "{of}: {more} ps more than are counted");
            }
        }
        let most = |kind: &str| {
            let of_kind = reports.iter().filter(|report| report.kind == kind);
            of_kind.map(|report| report.little.maximum_occupancy).max().expect("the queue is fed")
        };
        assert!(most("waits for a bus") > 0 && most("register accesses") > 1, "{attachment:?}");
        assert_eq!(most("messages without acknowledgement"), u64::from(parameters().network.window));
    }
}

#[test]
fn a_planted_miscount_of_any_queue_is_found() {
    for kind in KINDS {
        for (exit, number) in [(false, 0), (false, 3), (true, 0), (true, 3)] {
            let miscount = Miscount { kind, exit, number };
            let (simulation, _) = run(Attachment::IoBus, |machine| {
                machine.probe_queues();
                machine.miscount(miscount);
            });
            let faults = simulation.machine().borrow().queue_faults();
            assert!(!faults.is_empty(), "{miscount:?} was not found");
            assert!(faults.iter().all(|fault| fault.contains(&format!(": {kind}: "))), "{miscount:?}: {faults:?}");
        }
    }
}

#[test]
fn probes_change_nothing() {
    let (_, plain) = run(Attachment::IoBus, |_| ());
    assert_eq!(run(Attachment::IoBus, Machine::probe_queues).1, plain);
}
