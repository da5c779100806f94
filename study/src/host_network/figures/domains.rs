//! Figure 6 and section 4.2: what the domains are, and their credits and latencies.

use conic_sim::Failure;
use conic_sim::host::{Domain, HostReport};

use super::{CORES, chart, over_cores};
use crate::experiment::Findings;
use crate::host_network::quadrants::Quadrant;
use crate::host_network::runs::Runs;

/// Time between two lines of devices that bring little: 0.4 GB/s.
const FEW: u64 = 160_000;

const LATENCIES: [&str; 6] = [
    "host.fig6.c2m_read_latency_1",
    "host.fig6.c2m_read_latency_2",
    "host.fig6.c2m_read_latency_3",
    "host.fig6.c2m_read_latency_4",
    "host.fig6.c2m_read_latency_5",
    "host.fig6.c2m_read_latency_6",
];
const RATES: [&str; 6] = [
    "host.fig6.c2m_read_rate_1",
    "host.fig6.c2m_read_rate_2",
    "host.fig6.c2m_read_rate_3",
    "host.fig6.c2m_read_rate_4",
    "host.fig6.c2m_read_rate_5",
    "host.fig6.c2m_read_rate_6",
];
const MISSES: [&str; 6] = [
    "host.fig7.row_miss_alone_1",
    "host.fig7.row_miss_alone_2",
    "host.fig7.row_miss_alone_3",
    "host.fig7.row_miss_alone_4",
    "host.fig7.row_miss_alone_5",
    "host.fig7.row_miss_alone_6",
];

/// A domain's mean latency, from its first credit to its last, in nanoseconds.
pub(super) fn latency(report: &HostReport, domain: Domain) -> f64 {
    report.domain(domain).credits.mean_residence_nanoseconds
}

/// The part of it that is at the home agent and behind.
pub(super) fn at_home(report: &HostReport, domain: Domain) -> f64 {
    report.domain(domain).home.mean_residence_nanoseconds
}

/// Figure 6.
pub(super) fn evidence(runs: &mut Runs<'_>) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    for (index, cores) in CORES.into_iter().enumerate() {
        let report = runs.cores_alone(Quadrant::First, cores);
        findings.number(LATENCIES[index], "ns", Some(latency(&report, Domain::CoreRead)));
        findings.number(RATES[index], "GB/s", Some(report.core_bytes_per_second() / 1e9));
        findings.number(MISSES[index], "fraction", Some(report.row_miss_ratio()));
    }
    let one = runs.cores_alone(Quadrant::Third, 1);
    findings.number("host.fig6.c2m_write_unloaded", "ns", Some(latency(&one, Domain::CoreWrite)));
    let alone = runs.devices_alone(Quadrant::First);
    findings.number("host.fig6.p2m_write_unloaded", "ns", Some(latency(&alone, Domain::DeviceWrite)));
    findings.number(
        "host.sec5.p2m_write_credits_alone",
        "lines",
        Some(alone.domain(Domain::DeviceWrite).credits.mean_occupancy),
    );
    let six = runs.cores_alone(Quadrant::Third, 6);
    let beyond = at_home(&six, Domain::CoreWrite) > six.fill_buffers.mean_residence_nanoseconds;
    findings.holds("host.fig6.write_passes_the_buffer", Some(beyond));
    credits(runs, &mut findings);
    inflation(runs, &mut findings);
    plots(runs, &mut findings);
    Ok(findings)
}

/// The credits that are used at most.
fn credits(runs: &mut Runs<'_>, findings: &mut Findings) {
    let mean = |report: &HostReport, domain| report.domain(domain).credits.mean_occupancy;
    let writes = runs.together(Quadrant::Third, 6);
    findings.number("host.sec4.p2m_write_credits", "lines", Some(mean(&writes, Domain::DeviceWrite)));
    let reads =
        CORES.map(|cores| runs.together(Quadrant::Fourth, cores).domain(Domain::DeviceRead).home.mean_occupancy);
    findings.number("host.sec4.p2m_read_at_home", "lines", reads.into_iter().reduce(f64::max));
    let buffers = runs.cores_alone(Quadrant::First, 6).fill_buffers.mean_occupancy / 6.0;
    findings.number("host.sec4.lfb_occupancy", "lines", Some(buffers));
}

/// Figure 6(d): a device's write is slower by what it waits at the home agent.
fn inflation(runs: &mut Runs<'_>, findings: &mut Findings) {
    let idle = runs.beside_few(Quadrant::Third, 0, FEW);
    let mut inflations = |of: fn(&HostReport, Domain) -> f64| {
        over_cores(|cores| {
            of(&runs.beside_few(Quadrant::Third, cores, FEW), Domain::DeviceWrite) - of(&idle, Domain::DeviceWrite)
        })
    };
    let (domain, home) = (inflations(latency), inflations(at_home));
    let matches =
        domain.iter().zip(&home).all(|((_, domain), (_, home))| (domain - home).abs() <= 0.1 * domain.max(10.0));
    findings.holds("host.fig6.p2m_write_includes_controller", Some(matches));
    let series = [("IIO latency", domain), ("CHA to MC latency", home)];
    findings.plot("fig6-inflation", chart("P2M-Write beside C2M-ReadWrite", ("Latency inflation", "ns"), series));
}

fn plots(runs: &mut Runs<'_>, findings: &mut Findings) {
    let buffer = over_cores(|cores| latency(&runs.cores_alone(Quadrant::First, cores), Domain::CoreRead));
    let home = over_cores(|cores| at_home(&runs.cores_alone(Quadrant::First, cores), Domain::CoreRead));
    let series = [("LFB latency", buffer), ("CHA to DRAM read latency", home)];
    findings.plot("fig6-read", chart("C2M-Read alone", ("Latency", "ns"), series));
    let buffer = over_cores(|cores| runs.cores_alone(Quadrant::Third, cores).fill_buffers.mean_residence_nanoseconds);
    let read = over_cores(|cores| at_home(&runs.cores_alone(Quadrant::Third, cores), Domain::CoreRead));
    let write = over_cores(|cores| at_home(&runs.cores_alone(Quadrant::Third, cores), Domain::CoreWrite));
    let series = [("LFB latency", buffer), ("CHA to DRAM read latency", read), ("CHA to MC write latency", write)];
    findings.plot("fig6-write", chart("C2M-ReadWrite alone", ("Latency", "ns"), series));
}
