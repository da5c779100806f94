//! What the protocols would give over CXL.mem 3.0 with back-invalidate: nothing that was measured, on a platform of guesses.

use conic_chart::{Axis, Chart, Series};

use super::figures::{Run, SIZES};
use super::{percentile, streams};
use crate::experiment::Findings;
use crate::workload::Failure;

/// What the ids of all such results begin with.
pub const WHAT_IF: &str = "pio.whatif.";

/// Runs on the machine of a coming generation what the other experiments run on Enzian.
pub(super) fn what_if(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let line_on_enzian = run.line();
    there(run, |run| findings(run, line_on_enzian))
}

/// Asks something of that machine.
pub(super) fn there<T>(run: &mut Run<'_>, ask: impl FnOnce(&mut Run<'_>) -> T) -> T {
    let enzian = run.machine;
    run.machine = &run.machines.cxl;
    let found = ask(run);
    run.machine = enzian;
    found
}

/// The highest throughput, in GiB a second, over sizes around the one that has it.
pub(super) fn peak(run: &mut Run<'_>) -> Result<f64, Failure> {
    [8192, 16384, 32768, 65536].into_iter().try_fold(0.0, |most, bytes| Ok(run.throughput(bytes)?.max(most)))
}

fn findings(run: &mut Run<'_>, line_on_enzian: usize) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    findings.number("pio.whatif.exclusive", "ns", Some(run.calls(run.line(), true)?.median_nanoseconds()));
    findings.number("pio.whatif.shared", "ns", Some(run.calls(run.line(), false)?.median_nanoseconds()));
    let same = run.calls(line_on_enzian, true)?.median_nanoseconds();
    findings.number("pio.whatif.exclusive_128_bytes", "ns", Some(same));
    let mut latencies = Vec::new();
    let mut rates = Vec::new();
    for bytes in SIZES {
        latencies.push((bytes as f64, run.calls(bytes, true)?.median_nanoseconds()));
        rates.push((bytes as f64, run.throughput(bytes)?));
    }
    let peak = rates.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1));
    findings.list("pio.whatif.peak", "GiB/s, bytes", peak.map(|(bytes, rate)| vec![rate, bytes]));
    for (id, bytes) in [("pio.whatif.nic_64", 64), ("pio.whatif.nic_1536", 1536), ("pio.whatif.nic_9600", 9600)] {
        // As the published driver, and one that prefetches.
        let received = [false, true].map(|prefetch| run.receive(bytes, prefetch));
        let [plain, prefetching] = received;
        let times = [plain?, prefetching?, run.transmit(bytes)?];
        findings.list(id, "us", Some(times.iter().map(|times| percentile(times, 0.5) / 1000.0).collect()));
    }
    let element = streams::bloom_per_element(run.machine).map_err(|fault| Failure(fault.to_string()))?;
    findings.number("pio.whatif.bloom_per_element", "us", element);
    let chart = Chart::xy(
        "What if: invocation latency",
        Axis::log("Request and response", "bytes"),
        Axis::linear("Median", "ns"),
    )
    .note("CXL.mem 3.0 with back-invalidate; nearly every value of the platform is a guess.")
    .series(Series::line("coherent PIO, cxl3-mem", latencies));
    findings.plot("whatif-latency", chart);
    Ok(findings)
}
