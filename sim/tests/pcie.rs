//! A core and a device behind PCIe: registers, reads and writes of host memory, and their order.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Home, Layout, Line, MemoryType, StateHint, SynchronisingWords, Time};
use conic_sim::parameters::PcieParameters;
use conic_sim::pcie::{PcieLink, TlpKind, Way};
use conic_sim::platform::Platform;
use conic_sim::{Options, Parameters, Role, SimCore, SimDevice, Simulation};

const HINT: StateHint = StateHint::NonCacheablePush;

fn platform(name: &str) -> Parameters {
    let mut parameters = Platform::load(name).expect("a platform that comes with the crate").parameters().clone();
    (parameters.core.prefetch_next_line, parameters.core.prefetch_adjacent) = (false, false);
    parameters.core.prefetch_stride = false;
    parameters
}

fn checked() -> Options {
    Options { checked: true, ..Options::default() }
}

/// A region with registers, write-combining device memory and host memory.
struct Region {
    layout: Layout,
    registers: Address,
    combining: Address,
    memory: Address,
    flag: Address,
}

fn region() -> Region {
    let mut layout = Layout::new();
    let registers = layout.add_registers("registers", 4096, Home::Nic, MemoryType::Uncached);
    let combining = layout.add_registers("device memory", 1 << 16, Home::Nic, MemoryType::WriteCombining);
    let memory = layout.add("memory", 1 << 20, 4096, Home::Host, SynchronisingWords::ALL);
    let flag = layout.add("flag", 64, 64, Home::Host, SynchronisingWords::FIRST);
    Region { layout, registers, combining, memory, flag }
}

/// Runs a core's program on node 0 and a device's, both to their ends, and gives what each returned.
fn run<A: 'static, B: 'static>(
    parameters: &Parameters,
    options: Options,
    core: impl FnOnce(&SimCore<'_>) -> A + 'static,
    device: impl FnOnce(&SimDevice<'_>) -> B + 'static,
) -> (A, B, Simulation) {
    let mut simulation = Simulation::new(parameters, &region().layout, options);
    let (one, other) = (Rc::new(RefCell::new(None)), Rc::new(RefCell::new(None)));
    let (into, into_other) = (Rc::clone(&one), Rc::clone(&other));
    simulation.core("core", 0, Role::Main, Time::ZERO, move |agent| *into.borrow_mut() = Some(core(agent)));
    simulation.device("device", Role::Main, Time::ZERO, move |agent| *into_other.borrow_mut() = Some(device(agent)));
    simulation.run().expect("both programs end");
    let results = (one.borrow_mut().take(), other.borrow_mut().take());
    (results.0.expect("the core's result"), results.1.expect("the device's result"), simulation)
}

#[test]
fn a_message_goes_there_and_back_with_all_its_bytes() {
    let Region { registers, memory, flag, .. } = region();
    for name in ["icx-e810", "icx-cx6"] {
        let sent: Vec<u8> = (0..1500_u32).map(|index| (index * 7 + 3) as u8).collect();
        let expected = sent.clone();
        let ((), (), simulation) = run(
            &platform(name),
            checked(),
            move |core| {
                core.write_bytes(memory + 10, &sent);
                core.register_write(registers, 1500);
                while core.load_acquire(flag) == 0 {
                    core.spin();
                }
                let mut answer = vec![0; 1500];
                core.read_bytes(memory + 8192 + 30, &mut answer);
                assert_eq!(answer, sent);
            },
            move |device| {
                while device.own_register(registers) == 0 {
                    device.spin();
                }
                let mut bytes = vec![0; device.own_register(registers) as usize];
                device.read(memory + 10, &mut bytes, HINT);
                assert_eq!(bytes, expected);
                device.write(memory + 8192 + 30, &bytes, HINT);
                device.write_word(flag, 1, HINT);
            },
        );
        let machine = simulation.machine().borrow();
        let link = machine.pcie_link().expect("the platform has one");
        let (tlps, up, down) = (link.tlps(), link.counters(Way::ToRoot), link.counters(Way::ToDevice));
        let (requests, completions) = tlps.read_bytes(memory.0 + 10, 1500);
        let writes = tlps.write_bytes(memory.0 + 8192 + 30, 1500) + tlps.write_bytes(flag.0, 8);
        assert_eq!(up.wire_bytes, requests + writes);
        assert_eq!(down.wire_bytes, completions + tlps.write_bytes(registers.0, 8));
    }
}

fn pcie(parameters: &Parameters) -> &PcieParameters {
    parameters.pcie.as_ref().expect("the platform has a PCIe link")
}

/// Picoseconds of a TLP with so much data on an idle link.
fn wire(parameters: &Parameters, kind: TlpKind, data_bytes: u64) -> u64 {
    let link = PcieLink::new(pcie(parameters));
    link.wire_time(link.tlps().overhead(kind) + data_bytes)
}

/// Picoseconds from a device's request for a line that memory alone has until the last of its data is back.
fn read_of_memory(parameters: &Parameters, bytes: u64) -> u64 {
    let link = pcie(parameters);
    let way = wire(parameters, TlpKind::Read, 0) + wire(parameters, TlpKind::Completion, bytes) + 2 * link.crossing;
    way + 2 * link.root_to_home + parameters.node.home_lookup + parameters.memory.latency
}

#[test]
fn a_load_of_a_register_takes_what_was_measured() {
    let Region { registers, .. } = region();
    let parameters = platform("icx-e810");
    let (times, (), _) = run(
        &parameters,
        checked(),
        move |core| {
            let mut load = |_| {
                let before = core.now();
                assert_eq!(core.register_read(registers), 0);
                core.now().since(before).picoseconds()
            };
            [0; 5].map(&mut load)
        },
        |_| (),
    );
    let expected = conic_sim::pcie::uncached::Uncached::unloaded_load(pcie(&parameters), 8);
    assert_eq!(times, [expected; 5]);
    assert!(expected.abs_diff(982_000) <= 10, "{expected}");
}

#[test]
fn stores_to_registers_are_one_in_flight_and_do_not_stop_the_core() {
    let Region { registers, .. } = region();
    let parameters = platform("icx-cx6");
    let (took, arrivals, _) = run(
        &parameters,
        checked(),
        move |core| {
            core.work(1000);
            let before = core.now();
            (1..=4).for_each(|value| core.register_write(registers, value));
            core.now().since(before).picoseconds()
        },
        move |device| {
            let mut arrivals = Vec::new();
            for value in 1..=4 {
                while device.own_register(registers) != value {
                    device.spin();
                }
                arrivals.push(device.now().picoseconds());
            }
            arrivals
        },
    );
    assert_eq!(took, 4 * parameters.core.cycles(1));
    let spacing: Vec<u64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(spacing, [pcie(&parameters).uncached_store; 3]);
}

#[test]
fn a_store_to_a_register_follows_the_stores_before_it_and_holds_back_those_after_it() {
    let Region { registers, memory, .. } = region();
    let parameters = platform("icx-cx6");
    let (done, rang, _) = run(
        &parameters,
        checked(),
        move |core| {
            core.store(memory, 5);
            core.register_write(registers, 1);
            core.store(memory + 8, 6);
            core.full_fence();
            core.now().picoseconds()
        },
        move |device| {
            while device.own_register(registers) == 0 {
                device.spin();
            }
            let rang = device.now().picoseconds();
            assert_eq!(device.read_word(memory, HINT), 5);
            rang
        },
    );
    let node = &parameters.node;
    let issue = parameters.core.cycles(1);
    let owned = issue + node.core_to_home + node.home_lookup + parameters.memory.latency + node.home_to_core;
    let link = pcie(&parameters);
    assert_eq!(rang, owned + link.core_to_root + link.crossing + wire(&parameters, TlpKind::Posted, 8));
    assert_eq!(done, owned + link.uncached_store);
}

#[test]
fn write_combining_stores_are_cheap_until_the_buffers_are_full() {
    let Region { combining, .. } = region();
    let parameters = platform("icx-e810");
    let (times, (), _) = run(
        &parameters,
        checked(),
        move |core| {
            let mut store = |index: u64| {
                let before = core.now();
                core.write_bytes(combining.lines(index), &[1; 4]);
                core.now().since(before).picoseconds()
            };
            (0..26).map(&mut store).collect::<Vec<u64>>()
        },
        |_| (),
    );
    let (issue, flush) = (parameters.core.cycles(1), pcie(&parameters).write_combining_flush);
    assert_eq!(times[..24], [issue; 24]);
    assert_eq!(times[24..], [issue + flush; 2]);
}

#[test]
fn write_combining_stores_arrive_whole_and_a_fence_waits_for_them() {
    let Region { registers, combining, .. } = region();
    let ((), (), simulation) = run(
        &platform("icx-cx6"),
        checked(),
        move |core| {
            core.register_write_line(combining, &Line([7; 8]));
            core.write_bytes(combining.lines(1) + 3, &[9; 10]);
            core.write_bytes(combining.lines(1) + 20, &[8; 4]);
            core.fence();
            core.register_write(registers, 1);
        },
        move |device| {
            while device.own_register(registers) == 0 {
                device.spin();
            }
            assert_eq!(device.own_register(combining + 56), 7);
            let words = [0, 8, 16].map(|offset| device.own_register(combining.lines(1) + offset).to_le_bytes());
            assert_eq!(words.concat(), [&[0; 3][..], &[9; 10], &[0; 7], &[8; 4]].concat());
        },
    );
    let machine = simulation.machine().borrow();
    let down = machine.pcie_link().expect("the platform has one").counters(Way::ToDevice);
    // A whole line; bytes 3 to 12 in words of 4; bytes 20 to 23; the register.
    assert_eq!((down.writes, down.data_bytes), (4, 64 + 16 + 4 + 8));
}

#[test]
fn reads_overlap_while_there_are_tags() {
    let Region { memory, .. } = region();
    for (tags, apart) in [(1, true), (2, false)] {
        let mut parameters = platform("icx-cx6");
        parameters.pcie.as_mut().expect("the platform has a PCIe link").tags = tags;
        let one = read_of_memory(&parameters, 64);
        let ((), times, _) = run(
            &parameters,
            checked(),
            |_| (),
            move |device| {
                let reads = [memory, memory + 64].map(|at| device.start_read(at, 64, HINT));
                reads.map(|read| {
                    device.finish_read(read, memory, &mut [0; 64]);
                    device.now().picoseconds()
                })
            },
        );
        // The second request is behind the first on the wire, or behind its completion for want of a tag.
        let second = if apart { 2 * one } else { one + wire(&parameters, TlpKind::Completion, 64) };
        assert_eq!(times[0], one, "{tags} tags");
        // The wire carries parts of a picosecond on from one TLP to the next.
        assert!((second..=second + 1).contains(&times[1]), "{times:?}, not {second}, with {tags} tags");
    }
}

#[test]
fn a_devices_write_is_found_in_the_last_level_cache_or_in_memory() {
    let Region { memory, flag, .. } = region();
    for ways in [2, 0] {
        let mut parameters = platform("icx-cx6");
        parameters.cache.device_write_ways = ways;
        let (took, (), _) = run(
            &parameters,
            checked(),
            move |core| {
                while core.load_acquire(flag) == 0 {
                    core.spin();
                }
                let before = core.now();
                assert_eq!(core.load_acquire(memory), 3);
                core.now().since(before).picoseconds()
            },
            move |device| {
                device.write(memory, &[3, 0, 0, 0, 0, 0, 0, 0].repeat(8), HINT);
                device.write_word(flag, 1, HINT);
            },
        );
        let node = &parameters.node;
        let from = if ways > 0 { node.llc_read } else { parameters.memory.latency };
        assert_eq!(took, node.core_to_home + node.home_lookup + from + node.home_to_core, "{ways} ways");
    }
}

#[test]
fn a_device_fills_no_more_than_its_ways_of_the_last_level_cache() {
    let Region { memory, flag, .. } = region();
    let (sets, lines) = (4, 48);
    let mut parameters = platform("icx-cx6");
    (parameters.cache.llc_bytes, parameters.cache.llc_ways) = (sets * 12 * 64, 12);
    let node = parameters.node;
    let hit = node.core_to_home + node.home_lookup + node.llc_read + node.home_to_core;
    let (hits, (), _) = run(
        &parameters,
        checked(),
        move |core| {
            while core.load_acquire(flag) == 0 {
                core.spin();
            }
            let took = |line: u64| {
                let before = core.now();
                core.load_acquire(memory.lines(line));
                core.now().since(before).picoseconds()
            };
            (0..lines).map(took).filter(|&took| took == hit).count() as u64
        },
        move |device| {
            (0..lines).for_each(|line| device.write(memory.lines(line), &[1; 64], HINT));
            // Every write before it is seen before it.
            device.write_word(flag, 1, HINT);
        },
    );
    // The flag's line is in a set of its own making: it takes the place of one of them at most.
    let most = sets * u64::from(parameters.cache.device_write_ways);
    assert!((most - 1..=most).contains(&hits), "{hits} of {lines} lines");
}

#[test]
#[should_panic(expected = "icx has no PCIe link")]
fn a_device_without_a_link_is_refused() {
    let mut simulation = Simulation::new(&platform("icx"), &Layout::new(), checked());
    simulation.device("device", Role::Main, Time::ZERO, |_| ());
}

#[test]
fn no_prefetcher_brings_a_line_that_is_not_cached_memory() {
    let mut parameters = platform("icx-cx6");
    (parameters.core.prefetch_next_line, parameters.core.prefetch_adjacent) = (true, true);
    let mut layout = Layout::new();
    let before = layout.add("before", 64, 128, Home::Host, SynchronisingWords::ALL);
    let combining = layout.add_registers("combining", 64, Home::Host, MemoryType::WriteCombining);
    assert_eq!(combining, before.lines(1), "its pair, and the next line");
    let mut simulation = Simulation::new(&parameters, &layout, checked());
    let core = simulation.core("core", 0, Role::Main, Time::ZERO, move |core| {
        core.load_acquire(before);
        core.work(1_000);
        core.load_acquire(before.word(1));
    });
    simulation.run().expect("the program ends");
    assert_eq!(simulation.machine().borrow().counters(core).hardware_prefetches, 0);
}
