//! The modelled host with a device behind CXL: unloaded latencies as the platform's relations have them, streams against slot
//! arithmetic, ordering, capacity, and random programs whose every value is checked.

mod checks;
mod installs;
mod interrupt;
mod latency;
mod link;
mod order;
mod pushed;
mod queues;
mod random;
mod recorded;
mod stream;

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Home, Layout, MemoryType, SynchronisingWords};
use conic_sim::Role;
use conic_sim::cxl::{CxlCore, CxlDevice, CxlParameters, CxlSimulation};
use conic_sim::platform::Platform;

/// A platform that comes with the simulator.
fn machine(name: &str) -> CxlParameters {
    Platform::<CxlParameters>::load_as(name).unwrap_or_else(|error| panic!("{error}")).parameters().clone()
}

/// The same, whose memories stand still for no refresh: what is calibrated is what most accesses find.
fn between_refreshes(name: &str) -> CxlParameters {
    CxlParameters { refresh: None, device_refresh: None, ..machine(name) }
}

/// Lines of the host, lines of the device, lines of the host without words that synchronise, and a register.
#[derive(Clone, Copy, Debug)]
struct Places {
    host: Address,
    device: Address,
    packets: Address,
    register: Address,
}

fn places(lines: u64) -> (Layout, Places) {
    let mut layout = Layout::new();
    let host = layout.add("host", 64 * lines, 64, Home::Host, SynchronisingWords::ALL);
    let device = layout.add("device", 64 * lines, 64, Home::Nic, SynchronisingWords::ALL);
    let packets = layout.add("packets", 64 * lines, 64, Home::Host, SynchronisingWords::NONE);
    let register = layout.add_registers("register", 64, Home::Nic, MemoryType::Uncached);
    (layout, Places { host, device, packets, register })
}

/// Runs a core and an engine of the device that take turns: each is told when the other has done its step.
fn run<T: 'static>(
    parameters: &CxlParameters,
    lines: u64,
    host: impl Fn(&CxlCore<'_>, Places) + 'static,
    device: impl Fn(&CxlDevice<'_>, Places) -> T + 'static,
) -> T {
    let (layout, places) = places(lines);
    let mut simulation = CxlSimulation::new(parameters, &layout);
    let result = Rc::new(RefCell::new(None));
    let into = Rc::clone(&result);
    simulation.core("host", Role::Service, move |core| host(core, places));
    simulation.device("device", Role::Main, move |engine| {
        *into.borrow_mut() = Some(device(engine, places));
    });
    simulation.run().expect("it ends");
    drop(simulation);
    result.take().expect("the device's program ended")
}
