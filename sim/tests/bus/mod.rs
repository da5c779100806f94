//! Nodes on snooping buses: what a transaction takes by the paper's Table 2, what the bridge does, and random programs whose every value
//! is checked.

mod bridge;
mod occupancy;
mod queues;
mod random;

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Home, Layout, MemoryType, SynchronisingWords, Time};
use conic_sim::Role;
use conic_sim::bus::{Attachment, BusCore, BusParameters, BusSimulation, Counters, EngineShape};
use conic_sim::platform::Platform;

fn parameters() -> BusParameters {
    Platform::<BusParameters>::load_as("hypersparc").unwrap_or_else(|error| panic!("{error}")).parameters().clone()
}

/// Lines of the device's and of main memory, and registers.
#[derive(Clone, Copy, Debug)]
struct Places {
    device: Address,
    memory: Address,
    registers: Address,
}

fn places(lines: u64) -> (Layout, Places) {
    let mut layout = Layout::new();
    let device = layout.add("device", 64 * lines, 64, Home::Nic, SynchronisingWords::ALL);
    let memory = layout.add("memory", 64 * lines, 64, Home::Host, SynchronisingWords::ALL);
    let registers = layout.add_registers("registers", 64, Home::Nic, MemoryType::Uncached);
    (layout, Places { device, memory, registers })
}

/// Waits until a time in nanoseconds, whatever comes.
fn wait_until(core: &BusCore<'_>, nanoseconds: u64) {
    let until = Time::from_nanoseconds(nanoseconds);
    while core.now() < until {
        core.spin_until(until);
    }
}

/// When the processor begins what is measured, in nanoseconds, at a cycle of both buses.
const BEGINS: u64 = 10_000;

/// What the processor's program took from [`BEGINS`] on, in cycles, and what the buses carried meanwhile; the engine's program has run
/// before.
fn took(
    attachment: Attachment,
    engine: impl FnOnce(&BusCore<'_>, Places) + 'static,
    processor: impl Fn(&BusCore<'_>, Places) + 'static,
) -> (u64, Counters) {
    took_on(&parameters(), attachment, engine, processor)
}

/// The same on a machine of one's own.
fn took_on(
    parameters: &BusParameters,
    attachment: Attachment,
    engine: impl FnOnce(&BusCore<'_>, Places) + 'static,
    processor: impl Fn(&BusCore<'_>, Places) + 'static,
) -> (u64, Counters) {
    let (layout, places) = places(4);
    let cycle = parameters.core.cycles(1);
    let mut simulation = BusSimulation::new(parameters, &layout, 1, attachment);
    simulation.set_limit(Time::from_nanoseconds(10_000_000));
    let shape = EngineShape { blocks: 4, lines: places.device..places.device + 256, registers: vec![places.registers] };
    simulation.engine(0, "engine", &shape, move |core| engine(core, places));
    let found = Rc::new(RefCell::new((0, Counters::default())));
    let into = Rc::clone(&found);
    simulation.processor(0, "processor", Role::Main, move |core| {
        wait_until(core, BEGINS);
        let before = core.machine().borrow().counters[0].clone();
        let begins = core.now();
        processor(core, places);
        let span = core.now().since(begins).picoseconds();
        // The bridge finishes what it has buffered.
        wait_until(core, core.now().nanoseconds() + 5_000);
        let counters = core.machine().borrow().counters[0].since(&before);
        into.replace((span / cycle, counters));
    });
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    found.take()
}
