//! Figures 6 and 7: round trips and bandwidth of the five interfaces on three buses.

use conic_chart::{Axis, Chart, Series};
use conic_interface::cni::Kind;
use conic_sim::Failure;
use conic_sim::bus::{Attachment, BusParameters};

use super::{Configuration, Run, better};
use crate::cni::messages::{self, Traffic};
use crate::experiment::Findings;

/// Sizes of Figure 6, of which the text's ranges are.
const SMALL: [u64; 6] = [8, 16, 32, 64, 128, 256];
/// Sizes of Figure 7.
const ALL: [u64; 10] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// What one interface gives at each size.
#[derive(Clone, Debug)]
struct Curve {
    kind: Kind,
    points: Vec<(u64, f64)>,
}

impl Curve {
    fn at(&self, bytes: u64) -> f64 {
        let point = self.points.iter().find(|(size, _)| *size == bytes);
        point.map_or(f64::NAN, |(_, value)| *value)
    }

    fn highest(&self) -> f64 {
        self.points.iter().map(|(_, value)| *value).fold(f64::NAN, f64::max)
    }
}

/// What all that are compared on a bus give.
struct Curves(Vec<Curve>);

impl Curves {
    fn of(&self, kind: Kind) -> &Curve {
        self.0.iter().find(|curve| curve.kind == kind).expect("an interface that was asked")
    }

    /// What `of` says of two interfaces' values at each size.
    fn each(&self, one: Kind, other: Kind, of: fn(f64, f64) -> f64) -> Vec<f64> {
        let (one, other) = (self.of(one), self.of(other));
        one.points.iter().map(|(bytes, value)| of(*value, other.at(*bytes))).collect()
    }

    /// Whether `is` holds of two interfaces at every size.
    fn always(&self, one: Kind, other: Kind, is: fn(&f64, &f64) -> bool) -> bool {
        let (one, other) = (self.of(one), self.of(other));
        one.points.iter().all(|(bytes, value)| is(value, &other.at(*bytes)))
    }
}

/// Interfaces on a bus.
fn on(attachment: Attachment) -> &'static [Kind] {
    match attachment {
        Attachment::CacheBus => &Kind::ALL[..1],
        Attachment::MemoryBus => &Kind::ALL,
        // An I/O bus does not let a device cache the processor's memory (section 2.3).
        Attachment::IoBus => &Kind::ALL[..4],
    }
}

/// Asks for every interface on a bus at these sizes.
fn curves(
    run: &mut Run<'_>,
    attachment: Attachment,
    sizes: &[u64],
    ask: impl Fn(&Traffic) -> Result<f64, Failure>,
) -> Result<Curves, Failure> {
    let mut all = Vec::new();
    for kind in on(attachment) {
        let configuration = Configuration::new(attachment, *kind);
        let points = sizes.iter().map(|bytes| Ok((*bytes, ask(&run.traffic(configuration, *bytes))?)));
        all.push(Curve { kind: *kind, points: points.collect::<Result<_, Failure>>()? });
    }
    Ok(Curves(all))
}

fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::min)
}

fn most(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

/// How much better an interface is than NI2w: at 64 bytes, and the least and the most over all sizes.
fn improvement(findings: &mut Findings, ids: [&'static str; 3], sizes: &[u64], values: &[f64]) {
    let small = sizes.iter().position(|bytes| *bytes == 64).map(|place| values[place]);
    for (id, value) in ids.into_iter().zip([small, least(values), most(values)]) {
        findings.number(id, "fraction", value);
    }
}

fn chart(title: &str, y: Axis, curves: &[&Curve], scale: f64) -> Chart {
    curves.iter().fold(Chart::xy(title, Axis::log("Message", "bytes"), y), |chart, curve| {
        let points = curve.points.iter().map(|(bytes, value)| (*bytes as f64, value * scale));
        chart.series(Series::line(curve.kind.name(), points))
    })
}

fn refs(curves: &Curves) -> Vec<&Curve> {
    curves.0.iter().collect()
}

/// The three that the paper puts beside each other: NI2w on the cache bus, CNI16Qm on the memory bus, CNI512Q on the I/O bus.
fn beside(title: &str, y: Axis, [cache, memory, io]: [&Curves; 3], scale: f64) -> Chart {
    let named = [
        ("NI2w, cache bus", cache.of(Kind::Ni2w)),
        ("CNI16Qm, memory bus", memory.of(Kind::Cni16Qm)),
        ("CNI512Q, I/O bus", io.of(Kind::Cni512Q)),
    ];
    named.into_iter().fold(Chart::xy(title, Axis::log("Message", "bytes"), y), |chart, (name, curve)| {
        let points = curve.points.iter().map(|(bytes, value)| (*bytes as f64, value * scale));
        chart.series(Series::line(name, points))
    })
}

/// Figure 6.
pub(super) fn round_trips(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let ask = |traffic: &Traffic| messages::round_trips(traffic).map(|found| found.median);
    let memory = curves(run, Attachment::MemoryBus, &SMALL, ask)?;
    let io = curves(run, Attachment::IoBus, &SMALL, ask)?;
    let cache = curves(run, Attachment::CacheBus, &SMALL, ask)?;
    let mut findings = Findings::default();
    let on_memory = memory.each(Kind::Cni16Qm, Kind::Ni2w, better);
    improvement(
        &mut findings,
        ["cni.fig6.memory.64", "cni.fig6.memory.least", "cni.fig6.memory.most"],
        &SMALL,
        &on_memory,
    );
    let on_io = io.each(Kind::Cni512Q, Kind::Ni2w, better);
    improvement(&mut findings, ["cni.fig6.io.64", "cni.fig6.io.least", "cni.fig6.io.most"], &SMALL, &on_io);
    let queues = [Kind::Cni16Q, Kind::Cni512Q];
    let slower = |curves: &Curves, one: Kind, than: &[Kind]| than.iter().all(|kind| curves.always(one, *kind, f64::gt));
    findings.holds("cni.fig6.memory.cni4_worst", {
        Some(slower(&memory, Kind::Cni4, &[Kind::Cni16Q, Kind::Cni512Q, Kind::Cni16Qm]))
    });
    findings.holds("cni.fig6.io.cni4_worst", Some(slower(&io, Kind::Cni4, &queues)));
    findings.holds("cni.fig6.memory.cni16qm_above_queues", Some(slower(&memory, Kind::Cni16Qm, &queues)));
    findings.holds("cni.fig6.memory.all_below_ni2w", {
        Some(Kind::ALL[1..].iter().all(|kind| slower(&memory, Kind::Ni2w, &[*kind])))
    });
    findings.holds(
        "cni.fig6.io.all_below_ni2w",
        Some(Kind::ALL[1..4].iter().all(|kind| slower(&io, Kind::Ni2w, &[*kind]))),
    );
    let above: Vec<f64> = {
        let fastest = cache.of(Kind::Ni2w);
        memory.of(Kind::Cni16Qm).points.iter().map(|(bytes, value)| value / fastest.at(*bytes) - 1.0).collect()
    };
    findings.list("cni.fig6.cache_bus", "fraction", least(&above).zip(most(&above)).map(|(low, high)| vec![low, high]));
    let y = || Axis::linear("Round trip", "us");
    findings.plot("fig6a", chart("Round trips on the memory bus", y(), &refs(&memory), 1e-3));
    findings.plot("fig6b", chart("Round trips on the I/O bus", y(), &refs(&io), 1e-3));
    findings.plot("fig6c", beside("Round trips on three buses", y(), [&cache, &memory, &io], 1e-3));
    Ok(findings)
}

/// Figure 7.
pub(super) fn bandwidths(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let ask = |traffic: &Traffic| messages::stream(traffic).map(|found| found.megabytes);
    let memory = curves(run, Attachment::MemoryBus, &ALL, ask)?;
    let io = curves(run, Attachment::IoBus, &ALL, ask)?;
    let cache = curves(run, Attachment::CacheBus, &ALL, ask)?;
    let local = run.local_bandwidth()?;
    let mut findings = Findings::default();
    let more = |one: f64, other: f64| one / other - 1.0;
    let on_memory = memory.each(Kind::Cni16Qm, Kind::Ni2w, more);
    improvement(
        &mut findings,
        ["cni.fig7.memory.64", "cni.fig7.memory.least", "cni.fig7.memory.most"],
        &ALL,
        &on_memory,
    );
    let on_io = io.each(Kind::Cni512Q, Kind::Ni2w, more);
    improvement(&mut findings, ["cni.fig7.io.64", "cni.fig7.io.least", "cni.fig7.io.most"], &ALL, &on_io);
    let highest = memory.of(Kind::Cni512Q).highest();
    findings.number("cni.fig7.memory.highest", "MB/s", Some(highest));
    findings.number("cni.fig7.memory.highest_share", "fraction", Some(highest / local));
    let less = |curves: &Curves, one: Kind, than: &[Kind]| than.iter().all(|kind| curves.always(one, *kind, f64::lt));
    findings.holds("cni.fig7.memory.cni4_worst", {
        Some(less(&memory, Kind::Cni4, &[Kind::Cni16Q, Kind::Cni512Q, Kind::Cni16Qm]))
    });
    findings.holds("cni.fig7.io.cni4_worst", Some(less(&io, Kind::Cni4, &[Kind::Cni16Q, Kind::Cni512Q])));
    findings.holds("cni.fig7.memory.cni16qm_below_cni512q", Some(memory.always(Kind::Cni16Qm, Kind::Cni512Q, f64::le)));
    findings.holds("cni.fig7.io.cni16q_dips", {
        let [small, large] = [Kind::Cni16Q, Kind::Cni512Q].map(|kind| io.of(kind).at(2048) / io.of(kind).at(1024));
        Some(small < 1.0 && large >= 1.0)
    });
    let above = |curves: &Curves, of: &[Kind]| of.iter().all(|kind| curves.always(*kind, Kind::Ni2w, f64::gt));
    findings.holds("cni.fig7.memory.all_above_ni2w", Some(above(&memory, &Kind::ALL[1..])));
    findings.holds("cni.fig7.io.all_above_ni2w", Some(above(&io, &Kind::ALL[1..4])));
    let over: Vec<f64> = {
        let fastest = cache.of(Kind::Ni2w);
        memory.of(Kind::Cni16Qm).points.iter().map(|(bytes, value)| fastest.at(*bytes) / value - 1.0).collect()
    };
    findings.list("cni.fig7.cache_bus", "fraction", least(&over).zip(most(&over)).map(|(low, high)| vec![low, high]));
    findings.number("cni.fig7.snarfing", "fraction", most(&snarfed(run, memory.of(Kind::Cni16Qm))?));
    let y = || Axis::linear("Bandwidth, of two processors' on a bus", "");
    findings.plot("fig7a", chart("Bandwidth on the memory bus", y(), &refs(&memory), 1.0 / local));
    findings.plot("fig7b", chart("Bandwidth on the I/O bus", y(), &refs(&io), 1.0 / local));
    findings.plot("fig7c", beside("Bandwidth on three buses", y(), [&cache, &memory, &io], 1.0 / local));
    Ok(findings)
}

/// How much more CNI16Qm carries at each size where the processor's cache takes in what the device writes back (data snarfing).
fn snarfed(run: &mut Run<'_>, without: &Curve) -> Result<Vec<f64>, Failure> {
    let mut machine: BusParameters = run.machine.clone();
    machine.bus.snarfing = true;
    let mut copy = Run { machine: &machine, ..*run };
    let configuration = Configuration::new(Attachment::MemoryBus, Kind::Cni16Qm);
    let each = without
        .points
        .iter()
        .map(|(bytes, value)| Ok(messages::stream(&copy.traffic(configuration, *bytes))?.megabytes / value - 1.0));
    let gains = each.collect();
    run.asked = copy.asked;
    gains
}
