//! Throughput and latency of whole interfaces: Figures 11, 12 and 13.

use conic_chart::{Axis, Chart, Point, Series};
use conic_sim::Parameters;

use super::findings::{Across, Findings};
use super::loops::{alone, at_load, below, gbps, minimum, mpps, peak, ratio, sweep};
use super::memory::read_only_rate;
use super::setting::{CC_NIC, LARGE, SMALL, Setting};
use crate::ask::Ask;
use crate::workload::{Interface, Loopback, LoopbackOutcome};

/// The load at which the paper compares latencies.
const LOADED: f64 = 0.8;

/// An interface's latency by load.
#[derive(Clone, Debug, Default)]
pub(super) struct Curve {
    /// One packet in flight, nanoseconds.
    pub minimum: Option<f64>,
    /// At 80% of the highest rate, nanoseconds, from the stamps in the packets: the paper's generator "writes full, timestamped
    /// payloads for each TX packet burst" (section 5.1), and so does not see how long a packet waited to be written.
    pub loaded: Option<f64>,
    /// The highest rate.
    pub peak: Option<LoopbackOutcome>,
    /// What was measured, by rising load: the open loops, then the closed loop at its highest rate.
    pub outcomes: Vec<LoopbackOutcome>,
}

impl Curve {
    fn mpps(&self) -> Option<f64> {
        self.peak.as_ref().map(mpps)
    }

    fn gbps(&self) -> Option<f64> {
        self.peak.as_ref().map(gbps)
    }

    /// The curve in a plot: megapackets or gigabits a second against the median in nanoseconds.
    pub(super) fn series(&self, name: &str, rate: fn(&LoopbackOutcome) -> f64) -> Series {
        Series::line(
            name,
            self.outcomes.iter().map(|outcome| Point::new(rate(outcome), outcome.median_from_writing_nanoseconds)),
        )
    }
}

/// Asks for a whole curve.
pub(super) fn curve(ask: &mut Ask<'_>, setting: &Setting, question: &Loopback) -> Curve {
    let mut found = Curve { minimum: minimum(ask, setting, question), ..Curve::default() };
    found.outcomes.extend(ask.of(alone(setting, question)));
    let Some(peak) = peak(ask, setting, question) else {
        found.outcomes.extend(sweep(ask, setting, question).into_iter().map(|peak| peak.outcome));
        return found;
    };
    for &share in setting.pick(&[0.1, 0.3, 0.5, 0.7, LOADED, 0.9, 0.95][..], &[0.4, LOADED][..]) {
        let outcome = at_load(ask, setting, question, &peak, share);
        if share == LOADED {
            found.loaded = outcome.as_ref().map(|outcome| outcome.median_from_writing_nanoseconds);
        }
        found.outcomes.extend(outcome);
    }
    found.outcomes.push(peak.outcome.clone());
    found.peak = Some(peak.outcome);
    found
}

/// Median latency at 80% of the highest rate, as [`Curve::loaded`], without the rest of the curve.
pub(super) fn loaded(ask: &mut Ask<'_>, setting: &Setting, question: &Loopback) -> Option<f64> {
    let peak = peak(ask, setting, question)?;
    Some(at_load(ask, setting, question, &peak, LOADED)?.median_from_writing_nanoseconds)
}

fn of(ask: &mut Ask<'_>, setting: &Setting, machine: &Parameters, interface: Interface, size: u16) -> Curve {
    curve(ask, setting, &setting.loopback(machine, interface, size))
}

fn small_chart(title: &str) -> Chart {
    Chart::xy(title, Axis::linear("Packets", "Mpps"), Axis::log("Median latency", "ns"))
        .note("64-byte packets on all cores: one in flight, open loops, and the closed loop at its highest rate.")
}

fn large_chart(title: &str) -> Chart {
    Chart::xy(title, Axis::linear("Data", "Gb/s"), Axis::log("Median latency", "ns"))
        .note("1500-byte packets on all cores: one in flight, open loops, and the closed loop at its highest rate.")
}

/// The curves of Ice Lake, of one packet size.
struct IceLake {
    cc_nic: Curve,
    unoptimised: Curve,
    e810: Curve,
    cx6: Curve,
}

impl IceLake {
    fn of(ask: &mut Ask<'_>, setting: &Setting, size: u16) -> IceLake {
        let platforms = &setting.platforms;
        IceLake {
            cc_nic: of(ask, setting, &platforms.icx, CC_NIC, size),
            unoptimised: of(ask, setting, &platforms.icx, Interface::UnoptimisedRing, size),
            e810: of(ask, setting, &platforms.icx_e810, Interface::PcieRing, size),
            cx6: of(ask, setting, &platforms.icx_cx6, Interface::PcieRing, size),
        }
    }

    fn onto(&self, chart: Chart, rate: fn(&LoopbackOutcome) -> f64) -> Chart {
        chart
            .series(self.cc_nic.series("CC-NIC", rate))
            .series(self.unoptimised.series("unoptimised", rate))
            .series(self.e810.series("E810", rate))
            .series(self.cx6.series("CX6", rate))
    }
}

/// Figure 11: four interfaces on Ice Lake.
pub(super) fn four_interfaces(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let small = IceLake::of(ask, setting, SMALL);
    let large = IceLake::of(ask, setting, LARGE);
    let mut findings = Findings::default();
    let lowest = |curve: &Curve| curve.minimum;
    let ours = &small.cc_nic;
    for (id, other) in [
        ("ccnic.fig11.icx.min_latency_reduction_cx6", &small.cx6),
        ("ccnic.fig11.icx.min_latency_reduction_e810", &small.e810),
    ] {
        findings.number(id, "fraction", below(lowest(ours), lowest(other)));
    }
    for (id, other) in
        [("ccnic.fig11.icx.peak_rate_ratio_e810", &small.e810), ("ccnic.fig11.icx.peak_rate_ratio_cx6", &small.cx6)]
    {
        findings.number(id, "ratio", ratio(ours.mpps(), other.mpps()));
    }
    for (id, other) in [
        ("ccnic.fig11.icx.large_throughput_ratio_e810", &large.e810),
        ("ccnic.fig11.icx.large_throughput_ratio_cx6", &large.cx6),
    ] {
        findings.number(id, "ratio", ratio(large.cc_nic.gbps(), other.gbps()));
    }
    let plain = &small.unoptimised;
    findings.number("ccnic.fig11.icx.unopt_rate_reduction", "fraction", below(plain.mpps(), ours.mpps()));
    let slower = ratio(lowest(plain), lowest(ours));
    findings.number("ccnic.fig11.icx.unopt_min_latency_ratio", "ratio", slower);
    let fewer = plain.mpps().zip(small.e810.mpps()).map(|(plain, pcie)| plain < pcie);
    findings.holds("ccnic.fig11.icx.unopt_below_e810", fewer);
    findings.number("ccnic.introduction.cx6.latency_at_80", "ns", small.cx6.loaded);
    findings.number("ccnic.introduction.latency_at_80", "ns", ours.loaded);
    let reduction = below(lowest(ours), lowest(plain));
    findings.number("ccnic.introduction.unopt_min_latency_reduction", "fraction", reduction);

    let chart = small.onto(small_chart("Four interfaces on Ice Lake, 64-byte packets"), mpps);
    findings.plot("fig11-64", chart);
    let chart = large.onto(large_chart("Four interfaces on Ice Lake, 1.5 KB packets"), gbps);
    findings.plot("fig11-1500", chart);
    findings
}

/// Figure 12: CC-NIC and the PCIe NICs on Ice Lake, in detail.
pub(super) fn ice_lake(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let small = IceLake::of(ask, setting, SMALL);
    let large = IceLake::of(ask, setting, LARGE);
    let mut findings = Findings::default();
    findings.number("ccnic.fig12.icx.min_latency", "ns", small.cc_nic.minimum);
    findings.number("ccnic.fig12.cx6.min_latency", "ns", small.cx6.minimum);
    findings.number("ccnic.fig12.e810.min_latency", "ns", small.e810.minimum);
    let loaded = |curve: &Curve| curve.loaded;
    let lowest = |curve: &Curve| curve.minimum;
    for (id, ours, other) in [
        ("ccnic.fig12.icx.latency_at_80_reduction_cx6", loaded(&small.cc_nic), loaded(&small.cx6)),
        ("ccnic.fig12.icx.latency_at_80_reduction_e810", loaded(&small.cc_nic), loaded(&small.e810)),
        ("ccnic.fig12.icx.large_min_latency_reduction_cx6", lowest(&large.cc_nic), lowest(&large.cx6)),
        ("ccnic.fig12.icx.large_min_latency_reduction_e810", lowest(&large.cc_nic), lowest(&large.e810)),
        ("ccnic.fig12.icx.large_latency_at_80_reduction_cx6", loaded(&large.cc_nic), loaded(&large.cx6)),
        ("ccnic.fig12.icx.large_latency_at_80_reduction_e810", loaded(&large.cc_nic), loaded(&large.e810)),
    ] {
        findings.number(id, "fraction", below(ours, other));
    }
    findings.number("ccnic.fig12.icx.peak_rate", "Mpps", small.cc_nic.mpps());
    findings.number("ccnic.fig12.e810.peak_rate", "Mpps", small.e810.mpps());
    findings.number("ccnic.fig12.cx6.peak_rate", "Mpps", small.cx6.mpps());
    findings.number("ccnic.fig12.icx.large_throughput", "Gb/s", large.cc_nic.gbps());
    findings.number("ccnic.fig12.e810.large_throughput", "Gb/s", large.e810.gbps());
    findings.number("ccnic.fig12.cx6.large_throughput", "Gb/s", large.cx6.gbps());

    let chart = small_chart("CC-NIC and the CX6 on Ice Lake, 64-byte packets")
        .series(small.cc_nic.series("CC-NIC", mpps))
        .series(small.cx6.series("CX6", mpps));
    findings
        .plot("fig12-64", chart)
        .reference("ccnic.fig12.icx.peak_rate", Across::X, "CC-NIC, highest")
        .reference("ccnic.fig12.cx6.peak_rate", Across::X, "CX6, highest")
        .reference("ccnic.fig12.icx.min_latency", Across::Y, "CC-NIC, lowest")
        .reference("ccnic.fig12.cx6.min_latency", Across::Y, "CX6, lowest");
    let chart = large_chart("CC-NIC and the CX6 on Ice Lake, 1.5 KB packets")
        .series(large.cc_nic.series("CC-NIC", gbps))
        .series(large.cx6.series("CX6", gbps));
    findings
        .plot("fig12-1500", chart)
        .reference("ccnic.fig12.icx.large_throughput", Across::X, "CC-NIC, highest")
        .reference("ccnic.fig12.cx6.large_throughput", Across::X, "CX6, highest");
    findings
}

/// Bytes of a descriptor, which the paper counts with each 64-byte packet.
const DESCRIPTOR: f64 = 16.0;

/// Figure 13: CC-NIC on Sapphire Rapids, and the unoptimised interface beside it.
pub(super) fn sapphire_rapids(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let machine = &setting.platforms.spr;
    let small = of(ask, setting, machine, CC_NIC, SMALL);
    let large = of(ask, setting, machine, CC_NIC, LARGE);
    let plain = of(ask, setting, machine, Interface::UnoptimisedRing, SMALL);
    let plain_large = of(ask, setting, machine, Interface::UnoptimisedRing, LARGE);
    let wire = read_only_rate(setting, ask, machine, machine.core.cores as usize);

    let mut findings = Findings::default();
    findings.number("ccnic.fig13.spr.min_latency", "ns", small.minimum);
    findings.number("ccnic.fig13.spr.peak_rate", "Mpps", small.mpps());
    let with_descriptors = small.mpps().map(|mpps| mpps * (f64::from(SMALL) + DESCRIPTOR) * 8.0 / 1000.0);
    findings.number("ccnic.fig13.spr.interconnect_share", "fraction", ratio(with_descriptors, wire));
    findings.number("ccnic.fig13.spr.large_throughput", "Gb/s", large.gbps());
    findings.number("ccnic.fig13.spr.large_interconnect_share", "fraction", ratio(large.gbps(), wire));
    findings.number("ccnic.introduction.unopt_rate_ratio", "ratio", ratio(small.mpps(), plain.mpps()));

    let chart = small_chart("CC-NIC on Sapphire Rapids, 64-byte packets")
        .series(small.series("CC-NIC", mpps))
        .series(plain.series("unoptimised", mpps));
    findings.plot("fig13-64", chart).reference("ccnic.fig13.spr.peak_rate", Across::X, "CC-NIC, highest").reference(
        "ccnic.fig13.spr.min_latency",
        Across::Y,
        "CC-NIC, lowest",
    );
    let chart = large_chart("CC-NIC on Sapphire Rapids, 1.5 KB packets")
        .series(large.series("CC-NIC", gbps))
        .series(plain_large.series("unoptimised", gbps));
    findings.plot("fig13-1500", chart).reference("ccnic.fig13.spr.large_throughput", Across::X, "CC-NIC, highest");
    findings
}
