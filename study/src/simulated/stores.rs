//! What accesses to a device's registers and stores to each kind of memory cost a core.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, MemoryType, SynchronisingWords, Time};
use conic_sim::{Options, Parameters, Role, SimCore, Simulation};

use super::{failure, median_nanoseconds};
use crate::workload::{
    BurstOutcome, Failure, RegisterOutcome, RegisterRead, StoreBurst, StoreTarget, StoreThroughput, ThroughputOutcome,
};

/// Runs one core's program and gives what it returned.
fn alone<T: 'static>(
    machine: &Parameters,
    layout: &Layout,
    program: impl FnOnce(&SimCore<'_>) -> T + 'static,
) -> Result<T, Failure> {
    let mut simulation = Simulation::new(machine, layout, Options::default());
    let result = Rc::new(RefCell::new(None));
    let into = Rc::clone(&result);
    simulation.core("core", 0, Role::Main, Time::ZERO, move |core| *into.borrow_mut() = Some(program(core)));
    simulation.run().map_err(failure)?;
    let value = result.borrow_mut().take();
    value.ok_or_else(|| Failure("the program ended without a result".to_owned()))
}

/// That a machine has a device to be accessed.
fn needs_device(machine: &Parameters) -> Result<(), Failure> {
    let text = || format!("{} has no PCIe link: take a platform that has one, such as icx-e810", machine.name);
    machine.pcie.as_ref().map(|_| ()).ok_or_else(|| Failure(text()))
}

/// Times loads of a device's register, one after the other.
pub(super) fn register_read(question: &RegisterRead) -> Result<RegisterOutcome, Failure> {
    needs_device(&question.machine)?;
    let whole = match question.bytes {
        8 => false,
        64 => true,
        bytes => return Err(Failure(format!("a register is loaded as 8 or 64 bytes at once, not {bytes}"))),
    };
    let mut layout = Layout::new();
    let at = layout.add_registers("register", LINE_BYTES, Home::Nic, MemoryType::Uncached);
    let accesses = question.accesses;
    let mut times = alone(&question.machine, &layout, move |core| {
        let load = |_| {
            let before = core.now();
            if whole {
                core.register_read_line(at);
            } else {
                core.register_read(at);
            }
            core.now().since(before).picoseconds()
        };
        (0..accesses).map(load).collect::<Vec<u64>>()
    })?;
    Ok(RegisterOutcome { median_nanoseconds: median_nanoseconds(&mut times) })
}

fn store_line(core: &SimCore<'_>, target: StoreTarget, at: Address, line: &Line) {
    match target {
        StoreTarget::MemoryWriteBack => core.write_line(at, line),
        StoreTarget::DeviceWriteCombining | StoreTarget::MemoryWriteCombining => core.register_write_line(at, line),
    }
}

/// Measures one core's stores with a fence after every so many bytes.
pub(super) fn throughput(question: &StoreThroughput) -> Result<ThroughputOutcome, Failure> {
    let each = question.bytes_per_barrier / LINE_BYTES;
    if each == 0 || !question.bytes_per_barrier.is_multiple_of(LINE_BYTES) {
        let bytes = question.bytes_per_barrier;
        return Err(Failure(format!("bytes_per_barrier is {bytes}, and must be a multiple of {LINE_BYTES}, not 0")));
    }
    let target = question.target;
    // Every line once: what is written is in no cache before, however large the caches are.
    let region = question.bytes.0 + question.bytes.1;
    let mut layout = Layout::new();
    let at = match target {
        StoreTarget::DeviceWriteCombining => {
            needs_device(&question.machine)?;
            layout.add_registers("device", region, Home::Nic, MemoryType::WriteCombining)
        }
        StoreTarget::MemoryWriteCombining => {
            layout.add_registers("memory", region, Home::Host, MemoryType::WriteCombining)
        }
        StoreTarget::MemoryWriteBack => layout.add("memory", region, 4096, Home::Host, SynchronisingWords::NONE),
    };
    let (warm, measured) = question.bytes;
    let bits_per_second = alone(&question.machine, &layout, move |core| {
        let mut next = 0;
        let mut store = |bytes: u64| {
            let end = next + bytes / LINE_BYTES;
            while next < end {
                store_line(core, target, at.lines(next), &Line([next; 8]));
                next += 1;
                if next % each == 0 {
                    core.fence();
                }
            }
        };
        store(warm);
        core.fence();
        let begins = core.now();
        store(measured);
        core.fence();
        measured as f64 * 8.0 / core.now().since(begins).seconds()
    })?;
    Ok(ThroughputOutcome { bits_per_second })
}

/// Times bursts of 4-byte stores to a device, each to a block of its own.
pub(super) fn burst(question: &StoreBurst) -> Result<BurstOutcome, Failure> {
    needs_device(&question.machine)?;
    let mut layout = Layout::new();
    let bytes = u64::from(question.stores.max(1)) * LINE_BYTES;
    let at = layout.add_registers("device", bytes, Home::Nic, MemoryType::WriteCombining);
    let (stores, bursts) = (question.stores, question.bursts);
    let mut times = alone(&question.machine, &layout, move |core| {
        let burst = |_| {
            let begins = core.now();
            for index in 0..stores {
                core.write_bytes(at.lines(index.into()), &index.to_ne_bytes());
            }
            let took = core.now().since(begins).picoseconds();
            core.fence();
            took
        };
        (0..bursts).map(burst).collect::<Vec<u64>>()
    })?;
    Ok(BurstOutcome { total_nanoseconds: median_nanoseconds(&mut times) })
}
