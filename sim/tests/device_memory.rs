//! A device's memory that the host maps: narrow accesses, withheld answers, what overtakes what; refresh and timer interrupts.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{
    Address, Core, Device, DeviceMemory, Home, LINE_BYTES, Layout, Line, MemoryType, SynchronisingWords, Time,
};
use conic_sim::parameters::{PcieParameters, RefreshParameters, TimerParameters};
use conic_sim::pcie::uncached::Uncached;
use conic_sim::pcie::{PcieLink, TlpKind, Way};
use conic_sim::platform::Platform;
use conic_sim::{Options, Parameters, Role, SimCore, SimDevice, Simulation};

fn platform() -> Parameters {
    let mut machine = Platform::load("enzian-pcie").expect("it comes with the crate").parameters().clone();
    (machine.refresh, machine.timer) = (None, None);
    machine
}

fn pcie(machine: &Parameters) -> &PcieParameters {
    machine.pcie.as_ref().expect("the platform has a PCIe link")
}

struct Region {
    layout: Layout,
    registers: Address,
    window: Address,
    memory: Address,
}

fn region() -> Region {
    let mut layout = Layout::new();
    let registers = layout.add_registers("registers", 4096, Home::Nic, MemoryType::Uncached);
    let none = SynchronisingWords::NONE;
    let window = layout.add_mapped("window", 1 << 16, Home::Nic, MemoryType::WriteCombining, none);
    let memory = layout.add("memory", 1 << 20, 4096, Home::Host, none);
    Region { layout, registers, window, memory }
}

/// Runs a core's program to its end beside a device's, and gives what it returned.
fn run<A: 'static>(
    machine: &Parameters,
    core: impl FnOnce(&SimCore<'_>) -> A + 'static,
    device: impl FnOnce(&SimDevice<'_>) + 'static,
) -> (A, Simulation) {
    let options = Options { checked: true, ..Options::default() };
    let mut simulation = Simulation::new(machine, &region().layout, options);
    let result = Rc::new(RefCell::new(None));
    let into = Rc::clone(&result);
    simulation.core("core", 0, Role::Main, Time::ZERO, move |agent| *into.borrow_mut() = Some(core(agent)));
    simulation.device("device", Role::Service, Time::ZERO, move |agent| {
        device(agent);
        loop {
            agent.spin();
        }
    });
    simulation.run().expect("the core's program ends");
    let result = result.borrow_mut().take();
    (result.expect("the core's result"), simulation)
}

fn wait_until(device: &SimDevice<'_>, time: u64) {
    while device.now().picoseconds() < time {
        device.spin_until(Time::from_picoseconds(time));
    }
}

#[test]
fn bytes_of_a_device_are_loaded_16_at_a_time_and_stored_a_line_at_a_time() {
    let Region { window, .. } = region();
    let (bytes, simulation) = run(
        &platform(),
        move |core| {
            core.write_bytes(window, &[7; 256]);
            core.fence();
            let mut bytes = [0; 200];
            core.read_bytes(window + 8, &mut bytes);
            bytes
        },
        |_| (),
    );
    assert_eq!(bytes, [7; 200]);
    let machine = simulation.machine().borrow();
    let counters = machine.pcie_link().expect("the platform has one").counters(Way::ToDevice);
    // 8 to 208 touches the pieces of 16 bytes from 0 to 208.
    assert_eq!((counters.writes, counters.reads), (4, 13));
    assert_eq!(counters.data_bytes, 256);
}

#[test]
fn loads_of_a_device_wait_for_each_other() {
    let Region { window, .. } = region();
    let machine = platform();
    let (times, _) = run(
        &machine,
        move |core| {
            [16_usize, 32, 64].map(|length| {
                let before = core.now();
                core.read_bytes(window, &mut [0; 64][..length]);
                core.now().since(before).picoseconds()
            })
        },
        |_| (),
    );
    let one = Uncached::unloaded_load(pcie(&machine), 16);
    let cycle = machine.fpga.as_ref().expect("the platform has one").cycle;
    for (time, loads) in times.into_iter().zip([1, 2, 4]) {
        assert!((loads * one..=loads * (one + cycle)).contains(&time), "{loads} loads: {time}, {one} each");
    }
}

#[test]
fn a_withheld_load_is_answered_when_the_device_decides_and_not_a_cycle_later() {
    let Region { registers, .. } = region();
    let machine = platform();
    let p = pcie(&machine).clone();
    let decides = 5_000_000_u64;
    let (found, _) = run(
        &machine,
        move |core| {
            let pair = core.register_read_pair(registers);
            (pair, core.now().picoseconds())
        },
        move |device| {
            device.withhold(registers);
            wait_until(device, decides);
            assert!(device.withheld_since(registers).is_some_and(|since| since.picoseconds() < 1_000_000));
            device.set_own_pair(registers, [3, 4]);
            assert_eq!(device.withheld_since(registers), None);
        },
    );
    let link = PcieLink::new(&p);
    let answer = link.wire_time(link.tlps().overhead(TlpKind::Completion) + 16);
    let expected = decides + p.register_read / 2 + answer + p.crossing + p.core_to_root;
    assert_eq!(found.0, [3, 4]);
    assert!(found.1.abs_diff(expected) <= 1, "{} and {expected}", found.1);
}

#[test]
fn a_load_beside_a_withheld_pair_is_answered_at_once() {
    let Region { registers, .. } = region();
    let machine = platform();
    let (took, _) = run(
        &machine,
        move |core| {
            core.register_read(registers + 16);
            core.now().picoseconds()
        },
        move |device| device.withhold(registers),
    );
    assert!(took < 1_000_000, "{took}");
}

/// A payload that fills no line, then a control word in a line of its own; with the fence between them, or without.
fn control_after_payload(fenced: bool) -> u64 {
    let Region { window, registers, .. } = region();
    let seen = Rc::new(RefCell::new(None));
    let into = Rc::clone(&seen);
    run(
        &platform(),
        move |core| {
            core.write_bytes(window + 64, &[9; 8]);
            if fenced {
                core.fence();
            }
            core.publish_line(window, &Line([1; 8]));
            core.fence();
            // Until then the stores have come.
            core.register_read(registers);
        },
        move |device| {
            while device.own_register(window) == 0 {
                device.spin();
            }
            *into.borrow_mut() = Some(device.own_register(window + 64));
        },
    );
    let seen = seen.borrow_mut().take();
    seen.expect("the control word came")
}

#[test]
fn without_a_fence_a_control_word_overtakes_the_payload_that_waits_to_be_combined() {
    assert_eq!(control_after_payload(true), 0x0909_0909_0909_0909);
    assert_eq!(control_after_payload(false), 0, "the payload's line is still in its buffer");
}

#[test]
fn a_channel_that_is_refreshed_makes_loads_wait_until_it_is_done() {
    let Region { memory, .. } = region();
    let times = |refresh: Option<RefreshParameters>| {
        let machine = Parameters { refresh, ..platform() };
        let program = move |core: &SimCore<'_>| -> Vec<u64> {
            let load = |line: u64| {
                let before = core.now();
                core.load(memory + line * LINE_BYTES);
                core.now().since(before).picoseconds()
            };
            (0..2000).map(load).collect()
        };
        run(&machine, program, |_| ()).0
    };
    let still = times(None);
    let (interval, span) = (7_800_000, 350_000);
    let refreshed = times(Some(RefreshParameters { interval, span }));
    let usual = *still.iter().max().expect("there are loads");
    assert!(still.iter().all(|time| *time == usual), "memory that is not refreshed is always as fast");
    let late: Vec<u64> = refreshed.into_iter().filter(|time| *time > usual).collect();
    // So many of all loads as the part of the time, and none longer than a refresh.
    let expected = 2000 * span / interval;
    assert!((expected / 2..=2 * expected).contains(&(late.len() as u64)), "{}", late.len());
    assert!(late.iter().all(|time| *time <= usual + span));
}

#[test]
fn a_timer_takes_the_core_for_its_span_once_an_interval() {
    let elapsed = |timer: Option<TimerParameters>| {
        let machine = Parameters { timer, ..platform() };
        let program = |core: &SimCore<'_>| {
            (0..10_000).for_each(|_| core.work(1000));
            core.now().picoseconds()
        };
        run(&machine, program, |_| ()).0
    };
    let (still, interval, span) = (elapsed(None), 1_000_000_000, 5_000_000);
    let ticking = elapsed(Some(TimerParameters { interval, span }));
    let ticks = (ticking - still) / span;
    assert_eq!(ticking - still, ticks * span);
    assert!(ticks.abs_diff(ticking / interval) <= 1, "{ticks} in {ticking} ps");
}

#[test]
fn a_core_that_only_waits_loses_what_is_left_of_a_tick() {
    let Region { memory, registers, .. } = region();
    let machine = Parameters { timer: Some(TimerParameters { interval: 80_000_000, span: 5_000_000 }), ..platform() };
    // The first tick comes after an eighth of the interval: the word comes 2 us after it, or long after.
    for (comes, done) in [(12_000_000, 15_000_000), (60_000_000, 60_000_000)] {
        let (end, _) = run(
            &machine,
            move |core| {
                core.register_write(registers, 1);
                while core.load(memory) == 0 {
                    core.spin();
                }
                core.now().picoseconds()
            },
            move |device| {
                wait_until(device, comes);
                device.write_word(memory, 1, conic_fabric::StateHint::NonCacheablePush);
            },
        );
        assert!((done..done + 1_000_000).contains(&end), "comes at {comes}, done at {end}");
    }
}
