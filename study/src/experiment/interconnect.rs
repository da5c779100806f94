//! Slower interconnects: Figure 21, on Sapphire Rapids.
//!
//! As in the paper, the uncore of the NIC's socket is slowed, and with it what is local there.

use conic_chart::{Axis, Chart, Series};
use conic_sim::Parameters;

use super::findings::Findings;
use super::loops::{gbps, interpolate, minimum, peak};
use super::memory::{latency, read_only_rate};
use super::setting::{CC_NIC, LARGE, SMALL, Setting};
use crate::ask::Ask;
use crate::workload::{Holder, Home, Interface};

/// The interconnect latency, over the default's, at which loopbacks are compared.
const LATENCY: f64 = 1.11;
/// The interconnect throughput, over the default's, at which loopbacks are compared.
const THROUGHPUT: f64 = 0.4;

const INTERFACES: [(&str, Interface); 2] = [("CC-NIC", CC_NIC), ("unoptimised", Interface::UnoptimisedRing)];

/// The machine with the uncore of the NIC's socket at this share of its clock.
fn slower(machine: &Parameters, share: f64) -> Parameters {
    let mut machine = machine.clone();
    let uncore = machine.uncore.as_mut().expect("Sapphire Rapids has an uncore's clock");
    uncore.second_node_megahertz = (f64::from(uncore.frequency_megahertz) * share).round() as u32;
    machine
}

/// The points that are known, over the first one; empty without the first.
fn relative(points: &[Option<(f64, f64)>]) -> Vec<(f64, f64)> {
    let Some(&Some((x, y))) = points.first() else {
        return Vec::new();
    };
    points.iter().flatten().map(|point| (point.0 / x, point.1 / y)).collect()
}

/// Figure 21: latency by the interconnect's latency, and throughput by its throughput.
pub(super) fn sensitivity(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let mut findings = Findings::default();
    let base = &setting.platforms.spr;
    let clocks = setting.pick(&[1.0, 0.85, 0.7, 0.55, 0.4, 0.32, 0.28][..], &[1.0, 0.7, 0.4, 0.28][..]);
    let mut chart = Chart::xy(
        "Loopback latency by the interconnect's",
        Axis::linear("Latency of remote memory, over the default", ""),
        Axis::linear("Loopback latency, over the default", ""),
    )
    .note("Sapphire Rapids, 64-byte packets, one in flight; the uncore of the NIC's socket slowed.");
    for ((name, interface), id) in
        INTERFACES.into_iter().zip(["ccnic.fig21.latency_ccnic", "ccnic.fig21.latency_unopt"])
    {
        let points = clocks.iter().map(|&share| {
            let machine = slower(base, share);
            let access = latency(setting, ask, &machine, Holder::Memory, Home::Other);
            let loopback = minimum(ask, setting, &setting.loopback(&machine, interface, SMALL));
            access.zip(loopback)
        });
        let points: Vec<_> = points.collect();
        let known = points.iter().all(Option::is_some);
        let relative = relative(&points);
        findings.number(id, "ratio", interpolate(&relative, LATENCY).filter(|_| known));
        chart = chart.series(Series::line(name, relative));
    }
    findings.plot("fig21-latency", chart);

    let mut chart = Chart::xy(
        "Loopback throughput by the interconnect's",
        Axis::linear("Read-only rate, over the default", ""),
        Axis::linear("Loopback throughput, over the default", ""),
    )
    .note("Sapphire Rapids, 1.5 KB packets, all cores; the uncore of the NIC's socket slowed.");
    for (name, interface) in INTERFACES {
        let points = clocks.iter().map(|&share| {
            let machine = slower(base, share);
            let wire = read_only_rate(setting, ask, &machine, machine.core.cores as usize);
            let loopback = peak(ask, setting, &setting.loopback(&machine, interface, LARGE));
            wire.zip(loopback.map(|peak| gbps(&peak.outcome)))
        });
        let points: Vec<_> = points.collect();
        let known = points.iter().all(Option::is_some);
        let relative = relative(&points);
        if interface == CC_NIC {
            let rising: Vec<(f64, f64)> = relative.iter().rev().copied().collect();
            let kept = interpolate(&rising, THROUGHPUT).filter(|_| known);
            findings.number("ccnic.fig21.bandwidth", "fraction", kept);
        }
        chart = chart.series(Series::line(name, relative));
    }
    findings.plot("fig21-throughput", chart);
    findings
}
