//! Interrupts over CXL.io.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Core, Device, StateHint, Time};
use conic_sim::Role;
use conic_sim::cxl::CxlSimulation;

use super::{machine, places};

#[test]
fn an_interrupt_comes_after_what_was_written_before_it_and_takes_what_the_platform_says() {
    let p = machine("agilex7");
    let (layout, places) = places(8);
    let mut simulation = CxlSimulation::new(&p, &layout);
    let raised = Rc::new(RefCell::new(Vec::new()));
    let (of_device, seen) = (Rc::clone(&raised), Rc::new(RefCell::new(Vec::new())));
    let into = Rc::clone(&seen);
    simulation.core("host", Role::Main, move |core| {
        for number in 1..=5 {
            core.await_interrupt();
            into.borrow_mut().push(core.now().picoseconds());
            assert_eq!(core.load(places.host), number, "the word was written before");
        }
    });
    simulation.device("NIC", Role::Main, move |device| {
        for number in 1..=5 {
            device.wait_until(Time::from_nanoseconds(20_000 * number));
            device.write_word(places.host, number, StateHint::NonCacheable);
            device.interrupt(0);
            of_device.borrow_mut().push(device.now().picoseconds());
        }
    });
    simulation.run().expect("it ends");
    for (from, to) in raised.borrow().iter().zip(seen.borrow().iter()) {
        let on_the_way = p.pcie.crossing + p.pcie.root_to_home + p.host.interrupt;
        // Besides, four bytes with their overhead on the wire.
        assert!((0..2_000).contains(&(to - from - on_the_way)), "{} ps instead of {on_the_way}", to - from);
    }
    assert_eq!(simulation.machine().borrow().counters.messages.of("MSI"), 5);
}

#[test]
fn an_interrupt_that_comes_before_its_core_waits_is_not_lost() {
    let (layout, places) = places(8);
    let mut simulation = CxlSimulation::new(&machine("agilex7"), &layout);
    simulation.core("host", Role::Main, move |core| {
        core.wait_until(Time::from_nanoseconds(50_000));
        core.await_interrupt();
        assert_eq!(core.now(), Time::from_nanoseconds(50_000));
        assert_eq!(core.load(places.host), 0);
    });
    simulation.device("NIC", Role::Service, move |device| device.interrupt(0));
    simulation.run().expect("it ends");
}
