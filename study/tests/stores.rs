//! Loads and stores of a device's registers, and stores with fences, as the study asks for them.

use conic_sim::Parameters;
use conic_sim::platform::Platform;
use conic_study::simulated::Simulator;
use conic_study::workload::{Machine, RegisterRead, StoreBurst, StoreTarget, StoreThroughput};

fn platform(name: &str) -> Parameters {
    Platform::load(name).expect("a platform that comes with the simulator").parameters().clone()
}

fn burst(machine: &Parameters, stores: u32) -> f64 {
    let question = StoreBurst { machine: machine.clone(), stores, bursts: 5 };
    Simulator.store_burst(&question).expect("the run ends").total_nanoseconds
}

fn throughput(target: StoreTarget, bytes_per_barrier: u64) -> f64 {
    let machine = platform("icx-e810");
    let question = StoreThroughput { machine, target, bytes_per_barrier, bytes: (1 << 18, 1 << 18) };
    Simulator.store_throughput(&question).expect("the run ends").bits_per_second
}

#[test]
fn a_register_read_takes_what_was_measured_and_a_line_the_time_of_its_bytes_more() {
    let [word, line] = [8, 64].map(|bytes| {
        let question = RegisterRead { machine: platform("icx-e810"), bytes, accesses: 9 };
        Simulator.register_read(&question).expect("the run ends").median_nanoseconds
    });
    assert!((word - 982.0).abs() < 0.01, "{word} ns");
    // 56 bytes more at 227.4 Gb/s.
    assert!((line - word - 56.0 * 8.0 / 227.4).abs() < 0.01, "{line} and {word} ns");
}

#[test]
fn a_burst_is_cheap_until_every_write_combining_buffer_is_taken() {
    for name in ["icx-cx6", "icx-e810"] {
        let machine = platform(name);
        let buffers = machine.core.write_combining_buffers;
        let flush = machine.pcie.as_ref().expect("a PCIe link").write_combining_flush as f64 / 1e3;
        let issue = machine.core.cycles(1) as f64 / 1e3;
        let full = burst(&machine, buffers);
        assert!((full - f64::from(buffers) * issue).abs() < 0.01, "{name}: {full} ns");
        let beyond = burst(&machine, buffers + 1);
        assert!((beyond - full - issue - flush).abs() < 0.01, "{name}: {beyond} after {full} ns");
    }
}

#[test]
fn a_fence_after_each_line_costs_a_flush_and_the_issue_of_the_store() {
    let machine = platform("icx-e810");
    let flush = machine.pcie.as_ref().expect("a PCIe link").write_combining_flush;
    let picoseconds = 512e12 / throughput(StoreTarget::DeviceWriteCombining, 64);
    assert!((picoseconds - (flush + machine.core.cycles(1)) as f64).abs() < 1.0, "{picoseconds} ps a line");
}

#[test]
fn fences_slow_write_combining_stores_and_leave_write_back_stores_alone() {
    for target in [StoreTarget::DeviceWriteCombining, StoreTarget::MemoryWriteCombining] {
        let rates = [64, 512, 4096].map(|bytes| throughput(target, bytes));
        assert!(rates.is_sorted() && rates[2] > 4.0 * rates[0], "{target:?}: {rates:?}");
    }
    let [often, seldom] = [64, 4096].map(|bytes| throughput(StoreTarget::MemoryWriteBack, bytes));
    assert!((often / seldom - 1.0).abs() < 0.01, "{often} and {seldom}");
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let machine = platform("icx");
    let error = Simulator.store_burst(&StoreBurst { machine, stores: 1, bursts: 1 }).expect_err("icx has no device");
    assert!(error.0.contains("icx has no PCIe link"), "{error}");
    let machine = platform("icx-e810");
    let question = RegisterRead { machine: machine.clone(), bytes: 16, accesses: 1 };
    assert!(Simulator.register_read(&question).expect_err("no such load").0.contains("8 or 64 bytes"));
    let target = StoreTarget::MemoryWriteBack;
    let question = StoreThroughput { machine, target, bytes_per_barrier: 100, bytes: (64, 64) };
    assert!(Simulator.store_throughput(&question).expect_err("no multiple").0.contains("multiple of 64"));
}
