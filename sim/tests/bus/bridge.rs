//! What the bridge refuses, buffers and orders.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Core, Line, RegisterAccess};
use conic_sim::Role;
use conic_sim::bus::{Attachment, BusCore, BusSimulation, EngineShape};

use super::{BEGINS, Places, parameters, places, took, took_on, wait_until};

#[test]
fn a_device_that_meets_the_processor_is_refused_once_and_then_comes_through() {
    // The processor reads from the device over and over; the device reads a line that the processor has modified.
    let found = Rc::new(RefCell::new(None));
    let into = Rc::clone(&found);
    let engine = move |core: &BusCore<'_>, places: Places| {
        wait_until(core, BEGINS + 2_000);
        let begins = core.now();
        assert_eq!(core.load(places.device), 3);
        into.replace(Some(core.now().since(begins)));
    };
    let (_, counters) = took(Attachment::IoBus, engine, |core, places| {
        core.store(places.device, 3);
        for _ in 0..40 {
            core.register_read(places.registers);
        }
    });
    let span = found.take().expect("the device has read it").picoseconds() / parameters().core.cycles(1);
    assert!(counters.refusals >= 1, "{counters:?}");
    // One of the processor's transactions, then its own two buses, however often the processor comes.
    assert!(span < 2 * (28 + 20 + 8) + 62 + 16, "{span} cycles");
}

#[test]
fn what_the_bridge_has_refused_comes_again_after_the_refusal() {
    // The processor's read comes across while the device holds the I/O bus, and then never again.
    let span = |refusal| {
        let mut machine = parameters();
        machine.io.refusal = refusal;
        let found = Rc::new(RefCell::new(None));
        let into = Rc::clone(&found);
        let engine = move |core: &BusCore<'_>, places: Places| {
            wait_until(core, BEGINS + 2_000);
            let begins = core.now();
            core.load(places.device);
            into.replace(Some(core.now().since(begins).picoseconds()));
        };
        let (_, counters) = took_on(&machine, Attachment::IoBus, engine, |core, places| {
            core.store(places.device, 3);
            wait_until(core, BEGINS + 2_000);
            core.register_read(places.registers);
        });
        assert_eq!(counters.refusals, 1);
        found.take().expect("the device has read it") / machine.core.cycles(1)
    };
    // The processor's load has its bus first, and ends as if nothing had been refused, unless the refusal is longer than its first part.
    let [none, short, long] = [0, 4, 60].map(span);
    assert!(none <= short && short < long, "{none}, {short} and {long} cycles");
}

#[test]
fn stores_go_as_fast_as_the_memory_bus_until_the_bridges_buffer_is_full() {
    let span = |buffer| {
        let mut machine = parameters();
        machine.io.buffer = buffer;
        let idle = |_: &BusCore<'_>, _: Places| {};
        let (span, _) = took_on(&machine, Attachment::IoBus, idle, |core, places| {
            (0..8).for_each(|value| core.register_write(places.registers, value));
            core.full_fence();
        });
        span
    };
    assert_eq!(span(16), 3 + 1 + 8 * 12);
    // With one place each store but the first waits until the one before it has had the I/O bus.
    assert!(span(1) >= 3 + 1 + 12 + 7 * 20, "{}", span(1));
}

#[test]
fn an_engine_that_was_busy_when_something_came_does_not_sleep_over_it() {
    let engine = |core: &BusCore<'_>, places: Places| {
        loop {
            while let Some(access) = core.next_access(places.registers) {
                if let RegisterAccess::Store(_, value) = access {
                    core.store(places.device, value);
                }
            }
            // Longer than a store takes: it comes between the look and the sleep.
            core.work(400);
            core.spin();
        }
    };
    let (_, counters) = took(Attachment::MemoryBus, engine, |core, places| {
        for value in 1..20 {
            core.register_write(places.registers, value);
            while core.load(places.device) != value {
                core.spin();
            }
        }
    });
    assert_eq!(counters.memory.of("store"), 19);
}

#[test]
fn a_store_to_the_device_does_not_pass_an_invalidation_that_was_before_it() {
    // The processor writes a block that the device has, and then rings; the device reads the block when it hears.
    let (layout, places) = places(4);
    let mut simulation = BusSimulation::new(&parameters(), &layout, 1, Attachment::IoBus);
    let shape = EngineShape { blocks: 4, lines: places.device..places.device + 256, registers: vec![places.registers] };
    let heard = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&heard);
    simulation.engine(0, "engine", &shape, move |core| {
        core.write_line(places.device, &Line([0; 8]));
        core.register_write(places.registers.word(1), 1);
        loop {
            match core.next_access(places.registers) {
                Some(RegisterAccess::Store(_, value)) => into.borrow_mut().push((value, core.load(places.device))),
                Some(RegisterAccess::Load(_)) => {}
                None => core.spin(),
            }
        }
    });
    simulation.processor(0, "processor", Role::Main, move |core| {
        while core.register_read(places.registers.word(1)) == 0 {
            core.spin();
        }
        for value in 1..30 {
            core.store(places.device, value);
            core.register_write(places.registers, value);
            core.work(200);
        }
    });
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    let heard = heard.take();
    assert!(heard.len() >= 28, "{heard:?}");
    assert!(heard.iter().all(|(rung, read)| rung <= read), "{heard:?}");
}

#[test]
fn what_was_refused_and_is_needed_no_more_keeps_nobody_from_the_bus() {
    let mut refusals = 0;
    for offset in (0..600).step_by(5) {
        let mut machine = parameters();
        // A processor with one line, whose write-back the device takes in where it had the line before.
        (machine.core.cache_bytes, machine.bus.snarfing) = (64, true);
        let engine = |core: &BusCore<'_>, places: Places| {
            core.load(places.device);
            wait_until(core, BEGINS + 1_300);
            core.load(places.device);
        };
        let (_, counters) = took_on(&machine, Attachment::IoBus, engine, move |core, places| {
            core.store(places.device, 3);
            wait_until(core, BEGINS + 1_000 + offset);
            core.load(places.memory);
            wait_until(core, BEGINS + 4_000);
            core.register_read(places.registers);
        });
        refusals += counters.refusals;
    }
    assert!(refusals > 0, "the two never met");
}
