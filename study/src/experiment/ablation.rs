//! What each feature of CC-NIC is worth: Figures 14a, 14b and 15, on Sapphire Rapids.

use conic_chart::{Axis, Bar, Chart, Point, Series};
use conic_interface::ccnic::{Features, Packing, Signal};

use super::findings::Findings;
use super::loops::{alone, below, minimum, mpps, peak, ratio, sweep, with_window};
use super::setting::{SMALL, Setting};
use crate::ask::Ask;
use crate::workload::{Interface, Loopback, LoopbackOutcome};

/// Minimum latencies that differ by less than this share match.
const SAME: f64 = 0.05;
/// The least share by which a step of Figure 15 changes something.
const CHANGED: f64 = 0.01;

/// What one variant reached.
struct Variant {
    minimum: Option<f64>,
    rate: Option<f64>,
    outcomes: Vec<LoopbackOutcome>,
}

fn variant(ask: &mut Ask<'_>, setting: &Setting, features: Features) -> Variant {
    let question = setting.loopback(&setting.platforms.spr, Interface::CcNic(features), SMALL);
    let minimum = minimum(ask, setting, &question);
    let rate = peak(ask, setting, &question).map(|peak| mpps(&peak.outcome));
    let mut outcomes: Vec<LoopbackOutcome> = ask.of(alone(setting, &question)).into_iter().collect();
    outcomes.extend([1, 2, 4, 8, 16].iter().filter_map(|&window| ask.of(with_window(setting, &question, window))));
    outcomes.extend(sweep(ask, setting, &question).into_iter().map(|peak| peak.outcome));
    Variant { minimum, rate, outcomes }
}

impl Variant {
    fn series(&self, name: &str) -> Series {
        Series::line(name, self.outcomes.iter().map(|outcome| Point::new(mpps(outcome), outcome.median_nanoseconds)))
    }
}

fn chart(title: &str) -> Chart {
    Chart::xy(title, Axis::linear("Packets", "Mpps"), Axis::log("Median latency", "ns"))
        .note("Sapphire Rapids, all cores, 64-byte packets, closed loops with rising windows; first point: one packet in flight.")
}

/// Figure 14a: signals inlined in descriptors, or registers.
pub(super) fn signals(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let inline = variant(ask, setting, Features::paper());
    let register = variant(ask, setting, Features { signal: Signal::Register, ..Features::paper() });
    let mut findings = Findings::default();
    let reduction = below(inline.minimum, register.minimum);
    findings.number("ccnic.fig14a.min_latency_reduction", "fraction", reduction);
    findings.number("ccnic.fig14a.peak_rate_ratio", "ratio", ratio(inline.rate, register.rate));
    let chart = chart("Signals in descriptors and in registers")
        .series(inline.series("in descriptors"))
        .series(register.series("registers"));
    findings.plot("fig14a", chart);
    findings
}

/// Figure 14b: how descriptors lie in lines.
pub(super) fn layouts(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let grouped = variant(ask, setting, Features::paper());
    let packed = variant(ask, setting, Features { packing: Packing::Packed, ..Features::paper() });
    let padded = variant(ask, setting, Features { packing: Packing::Padded, ..Features::paper() });
    let mut findings = Findings::default();
    findings.number("ccnic.fig14b.packed_rate_ratio", "ratio", ratio(packed.rate, padded.rate));
    findings.number("ccnic.fig14b.grouped_rate_ratio", "ratio", ratio(grouped.rate, padded.rate));
    let matches = ratio(grouped.minimum, padded.minimum).map(|ratio| (ratio - 1.0).abs() <= SAME);
    findings.holds("ccnic.fig14b.grouped_latency_matches", matches);
    let higher = packed.minimum.zip(padded.minimum).map(|(packed, padded)| packed > padded);
    findings.holds("ccnic.fig14b.packed_latency_higher", higher);
    let chart = chart("Layouts of descriptors")
        .series(grouped.series("grouped"))
        .series(packed.series("packed"))
        .series(padded.series("padded"));
    findings.plot("fig14b", chart);
    findings
}

/// The steps of Figure 15, each without one feature more. In the last the host posts blank buffers in the receive ring's own descriptors
/// (sections 2.1 and 5.4), which the NIC overwrites one after the other, whatever bursts it has.
pub(super) fn steps() -> [(&'static str, Features); 4] {
    let paper = Features::paper();
    let no_recycling = Features { recycling: false, scattered: false, ..paper };
    let no_small = Features { small_buffers: false, ..no_recycling };
    let no_shared_pool = Features { shared_pool: false, ..no_small };
    [
        ("all features", paper),
        ("no reuse, no scattering", no_recycling),
        ("no small buffers", no_small),
        ("no shared pool", no_shared_pool),
    ]
}

/// The loopback after all of the pool has been round.
///
/// Without reuse, buffers come round only after the whole pool has been through: a longer warm-up, and where the host alone manages
/// the pool, which is larger by the blank buffers, the longest (391 million packets a second after 2500, 411 after 4700).
fn warmed(setting: &Setting, question: &Loopback) -> Loopback {
    let warm = setting.pick(2500, 1100).max(question.rotation().unwrap_or(0));
    Loopback { packets: (question.packets.0.max(warm), question.packets.1), ..question.clone() }
}

/// The highest rate of a step of Figure 15, million packets a second.
pub(super) fn managed_rate(ask: &mut Ask<'_>, setting: &Setting, question: &Loopback) -> Option<f64> {
    let windows = setting.pick(&[32, 64, 128][..], &[64][..]);
    let outcomes = windows.iter().map(|&window| ask.of(warmed(setting, &with_window(setting, question, window))));
    let outcomes: Vec<_> = outcomes.collect();
    let known = outcomes.iter().flatten().count() == windows.len();
    outcomes.iter().flatten().map(mpps).max_by(f64::total_cmp).filter(|_| known)
}

/// Figure 15: buffer management, one feature less at a time, on all cores.
pub(super) fn buffers(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let (mut rates, mut latencies) = (Vec::new(), Vec::new());
    for (_, features) in steps() {
        let question = setting.loopback(&setting.platforms.spr, Interface::CcNic(features), SMALL);
        rates.push(managed_rate(ask, setting, &question));
        latencies.push(ask.of(warmed(setting, &question)).map(|outcome| outcome.median_nanoseconds));
    }
    let mut findings = Findings::default();
    for (id, step) in [("ccnic.fig15.no_recycle", 1), ("ccnic.fig15.no_small", 2), ("ccnic.fig15.no_shared_pool", 3)] {
        findings.number(id, "fraction", below(rates[step], rates[step - 1]));
    }
    let all: Option<Vec<f64>> = rates.iter().copied().collect();
    let each_loses = all.map(|rates| rates.is_sorted_by(|one, next| *next <= (1.0 - CHANGED) * one));
    findings.holds("ccnic.fig15.each_step_loses", each_loses);
    let slower = ratio(latencies[3], latencies[2]);
    findings.number("ccnic.fig15.no_shared_latency", "ratio", slower);
    findings.holds("ccnic.fig15.no_shared_slower", slower.map(|ratio| ratio >= 1.0 + CHANGED));
    let bars = steps().into_iter().zip(&rates).enumerate().filter_map(|(index, ((name, _), rate))| {
        let bar = Bar::new(name, (*rate)?);
        Some(if index == 0 { bar.highlight() } else { bar })
    });
    let bars: Vec<Bar> = bars.collect();
    let note = "Sapphire Rapids, all cores, 64-byte packets; each bar without what those above it lost.";
    let chart = Chart::bars("Buffer management, one feature less at a time", Axis::linear("Packets", "Mpps"), bars);
    findings.plot("fig15", chart.note(note));
    findings
}
