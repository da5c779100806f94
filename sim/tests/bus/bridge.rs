//! What the bridge refuses, buffers and orders.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Core, Line, Time};
use conic_sim::Role;
use conic_sim::bus::{Attachment, BusCore, BusSimulation, EngineShape, RegisterAccess};

use super::{BEGINS, Places, parameters, places, took};

#[test]
fn a_device_that_meets_the_processor_is_refused_once_and_then_comes_through() {
    // The processor reads from the device over and over; the device reads a line that the processor has modified.
    let found = Rc::new(RefCell::new(None));
    let into = Rc::clone(&found);
    let engine = move |core: &BusCore<'_>, places: Places| {
        core.spin_until(Time::from_nanoseconds(BEGINS + 2_000));
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
