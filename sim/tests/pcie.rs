//! A core and a device behind PCIe: registers, reads and writes of host memory, and their order.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Home, Layout, MemoryType, StateHint, SynchronisingWords, Time};
use conic_sim::pcie::Way;
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
    memory: Address,
    flag: Address,
}

fn region() -> Region {
    let mut layout = Layout::new();
    let registers = layout.add_registers("registers", 4096, Home::Nic, MemoryType::Uncached);
    layout.add_registers("device memory", 1 << 16, Home::Nic, MemoryType::WriteCombining);
    let memory = layout.add("memory", 1 << 20, 4096, Home::Host, SynchronisingWords::ALL);
    let flag = layout.add("flag", 64, 64, Home::Host, SynchronisingWords::FIRST);
    Region { layout, registers, memory, flag }
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
