//! Links and PCIe by themselves: Table 1, section 2.2's loads, Figures 2 and 3.

use conic_chart::{Axis, Chart, Series};

use super::findings::{Across, Findings};
use super::loops::ratio;
use super::setting::Setting;
use crate::ask::Ask;
use crate::workload::{RegisterRead, StoreBurst, StoreTarget, StoreThroughput};

/// Table 1: what the platforms' links carry by construction.
pub(super) fn table(setting: &Setting, _: &mut Ask<'_>) -> Findings {
    let mut findings = Findings::default();
    let platforms = &setting.platforms;
    let ids = [
        (&platforms.icx, "ccnic.table1.icx.link", "ccnic.table1.icx.total"),
        (&platforms.spr, "ccnic.table1.spr.link", "ccnic.table1.spr.total"),
    ];
    for (machine, link, total) in ids {
        let wire = &machine.interconnect;
        // Bytes a picosecond are terabytes a second.
        let gigabytes = 1000.0 * f64::from(wire.flit_bytes) / wire.flit_time as f64;
        findings.number(link, "GB/s", Some(gigabytes));
        findings.number(total, "GB/s", Some(gigabytes * f64::from(wire.links)));
    }
    let pcie = platforms.icx_e810.pcie.as_ref().map(|pcie| pcie.megabits_per_second as f64 / 8000.0);
    findings.number("ccnic.table1.pcie4", "GB/s", pcie);
    findings
}

/// Section 2.2: loads from a device.
pub(super) fn register_reads(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let mut findings = Findings::default();
    for (id, bytes) in [("ccnic.mmio.read_8", 8), ("ccnic.mmio.read_64", 64)] {
        let question =
            RegisterRead { machine: setting.platforms.icx_e810.clone(), bytes, accesses: setting.pick(1000, 200) };
        findings.number(id, "ns", ask.of(question).map(|outcome| outcome.median_nanoseconds));
    }
    findings
}

/// Bytes between barriers, as in Figure 2.
const BARRIERS: [u64; 8] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];
/// What counts as near the highest throughput.
const NEAR: f64 = 0.9;

/// Gigabits a second that one core stores with a fence after every so many bytes.
fn throughput(setting: &Setting, ask: &mut Ask<'_>, target: StoreTarget, bytes_per_barrier: u64) -> Option<f64> {
    let machine = setting.platforms.icx_e810.clone();
    let bytes = setting.pick((1 << 20, 4 << 20), (64 << 10, 256 << 10));
    Some(ask.of(StoreThroughput { machine, target, bytes_per_barrier, bytes })?.bits_per_second / 1e9)
}

/// Throughput to the device with 4 KB between barriers over that to write-back memory with 64 bytes.
pub(super) fn batched_over_write_back(setting: &Setting, ask: &mut Ask<'_>) -> Option<f64> {
    let batched = throughput(setting, ask, StoreTarget::DeviceWriteCombining, 4096);
    ratio(batched, throughput(setting, ask, StoreTarget::MemoryWriteBack, 64))
}

/// Figure 2: one core's stores with a fence after every so many bytes.
pub(super) fn barriers(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let mut rates = |target: StoreTarget| -> Vec<(f64, f64)> {
        let outcomes = BARRIERS.map(|bytes| Some((bytes as f64, throughput(setting, ask, target, bytes)?)));
        outcomes.into_iter().flatten().collect()
    };
    let device = rates(StoreTarget::DeviceWriteCombining);
    let combining = rates(StoreTarget::MemoryWriteCombining);
    let back = rates(StoreTarget::MemoryWriteBack);

    let mut findings = Findings::default();
    let complete = |rates: &[(f64, f64)]| rates.len() == BARRIERS.len();
    let highest = |rates: &[(f64, f64)]| rates.iter().map(|point| point.1).max_by(f64::total_cmp);
    let lowest = |rates: &[(f64, f64)]| rates.iter().map(|point| point.1).min_by(f64::total_cmp);
    let near = highest(&device)
        .filter(|_| complete(&device))
        .and_then(|highest| Some(device.iter().find(|point| point.1 >= NEAR * highest)?.0));
    findings.number("ccnic.fig2.near_maximum_bytes", "bytes", near);
    findings.number("ccnic.fig2.batched_over_write_back", "fraction", batched_over_write_back(setting, ask));
    let steady = ratio(lowest(&back), highest(&back)).filter(|_| complete(&back));
    findings.holds("ccnic.fig2.write_back_steady", steady.map(|ratio| ratio >= NEAR));
    let limited = highest(&device).zip(highest(&combining)).zip(lowest(&back));
    let limited = limited.filter(|_| [&device, &combining, &back].into_iter().all(|rates| complete(rates)));
    findings.holds(
        "ccnic.fig2.write_combining_limited",
        limited.map(|((device, memory), back)| device.max(memory) <= back),
    );

    let bytes = Axis::log("Bytes between barriers", "B");
    let chart = Chart::xy("Write throughput by bytes between barriers", bytes, Axis::linear("Throughput", "Gb/s"))
        .note("One core of the Ice Lake server, a store fence after each run.")
        .series(Series::line("device, write-combining", device))
        .series(Series::line("memory, write-combining", combining))
        .series(Series::line("memory, write-back", back));
    findings.plot("fig2", chart).reference("ccnic.fig2.near_maximum_bytes", Across::X, "near the highest from here on");
    findings
}

/// Stores of a burst at most, as in Figure 3.
const STORES: u32 = 64;

/// Figure 3: stores to a device until its write-combining buffers are full.
pub(super) fn buffers(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let mut times = |machine: &conic_sim::Parameters| -> Vec<(f64, f64)> {
        let outcomes = (1..=STORES).map(|stores| {
            let bursts = setting.pick(50, 10);
            let outcome = ask.of(StoreBurst { machine: machine.clone(), stores, bursts })?;
            Some((f64::from(stores), outcome.total_nanoseconds))
        });
        outcomes.collect::<Vec<_>>().into_iter().flatten().collect()
    };
    let e810 = times(&setting.platforms.icx_e810);
    let cx6 = times(&setting.platforms.icx_cx6);

    let mut findings = Findings::default();
    // The buffers are full before the store that makes the largest difference.
    let growth = |pair: &[(f64, f64)]| pair[1].1 / pair[0].1;
    let knee = e810.windows(2).max_by(|one, other| growth(one).total_cmp(&growth(other)));
    let knee = knee.filter(|_| e810.len() == STORES as usize);
    findings.number("ccnic.fig3.flat_until", "stores", knee.map(|pair| pair[0].0));
    findings.number("ccnic.fig3.flat_latency", "ns", knee.map(|pair| pair[0].1));
    findings.number("ccnic.fig3.stall_ratio", "ratio", knee.map(growth));

    let chart = Chart::xy(
        "Stores to a device until the write-combining buffers are full",
        Axis::linear("Stores", ""),
        Axis::log("Time of all stores", "ns"),
    )
    .note("One core of the Ice Lake server; each store to a block of its own.")
    .series(Series::line("E810", e810))
    .series(Series::line("CX6", cx6));
    findings.plot("fig3", chart).reference("ccnic.fig3.flat_until", Across::X, "buffers");
    findings
}
