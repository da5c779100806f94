//! Pushes while the host's last-level cache is under pressure, and the two mechanisms of section 5.3 against what they do then: adaptive
//! gating, and post-push write-back. The paper has no figure of them.

use conic_chart::{Axis, Chart};
use conic_fabric::Time;
use conic_interface::cxl::{GatePolicy, Homes, Requests};
use conic_sim::Failure;
use conic_sim::cxl::CxlParameters;

use super::{LARGE, Run, lines, optimal};
use crate::cxl_nic::percentile;
use crate::cxl_nic::pressure::{Pressure, PressureOutcome, pressure};
use crate::experiment::{Effort, Findings};

/// What is run is a sixteenth of the host: so much of its last-level and second-level caches, and two of its 32 cores, of which one
/// receives and one walks. A run of all of it takes sixteen times as long.
const PARTS: u64 = 16;

/// Time between two packets of the receiving core: ten gigabits a second, of the sixteen at which a core reads packets of 1500 bytes out
/// of the device's memory.
const GAP: Time = Time::from_nanoseconds(1_200);

/// Packets that wait, by their lines over those that a device's ways of the last-level cache hold: where the working set is varied, and
/// as they are varied.
const WAITING: f64 = 0.3;
const WAITINGS: [f64; 3] = [0.15, WAITING, 0.6];

/// What the neighbours walk through, over the last-level cache, where something else is varied: more than there is room for.
const CROWDED: f64 = 1.5;

/// The write-back of a pushed packet, over the time that it waits before it is read, where the host does not set another.
const WRITE_BACK: f64 = 1.25;
const WRITE_BACKS: [f64; 4] = [0.5, 0.9, WRITE_BACK, 4.0];

/// What the host has the device do with received packets.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Write,
    Push,
    Gated,
    /// After so many cycles.
    WrittenBack(u32),
}

impl How {
    fn name(self) -> &'static str {
        match self {
            How::Write => "NC-write",
            How::Push => "NC-P",
            How::Gated => "NC-P, gated",
            How::WrittenBack(_) => "NC-P, written back",
        }
    }
}

/// A sixteenth of a host's caches.
fn part_of(machine: &CxlParameters) -> CxlParameters {
    let mut part = machine.clone();
    part.cache.llc_bytes /= PARTS;
    part.cache.l2_bytes /= PARTS;
    part
}

/// The experiment's machine, and what was asked of it so far.
struct Host<'a, 'run> {
    machine: CxlParameters,
    run: &'a mut Run<'run>,
}

impl Host<'_, '_> {
    /// Packets whose lines are such a part of a device's ways.
    fn waiting(&self, part: f64) -> usize {
        let cache = &self.machine.cache;
        let ways = cache.llc_bytes as f64 * f64::from(cache.device_write_ways) / f64::from(cache.llc_ways);
        (part * ways / LARGE.next_multiple_of(64) as f64) as usize
    }

    /// The device's cycles in such a part of the time that packets wait.
    fn cycles(&self, part: f64, waiting: f64) -> u32 {
        let time = self.waiting(waiting) as f64 * GAP.picoseconds() as f64;
        (part * time / self.machine.device.cycle as f64) as u32
    }

    /// The write-back that is asked for, or that of packets of which so many wait.
    fn write_back(&self, waiting: f64) -> u32 {
        self.run.asked_for.write_back.unwrap_or_else(|| self.cycles(WRITE_BACK, waiting))
    }

    fn under(&mut self, how: How, working_set: f64, waiting: f64) -> Result<PressureOutcome, Failure> {
        self.run.asked += 1;
        let Homes { rx_ring, rx_buffers, .. } = optimal().homes;
        let waiting = self.waiting(waiting);
        // Before the first that counts, the ways have been filled more than once, and the gate has looked at least twice.
        let before = (2 * waiting as u64).max(200);
        pressure(&Pressure {
            machine: self.machine.clone(),
            requests: if how == How::Write { Requests::NON_COHERENT } else { Requests::PUSHED },
            homes: Homes { rx_ring, rx_buffers, ..Homes::HOST },
            gate: (how == How::Gated).then(GatePolicy::default),
            write_back: if let How::WrittenBack(cycles) = how { cycles } else { 0 },
            bytes: LARGE,
            rings: 1,
            gap: GAP,
            waiting,
            neighbours: 1,
            working_set,
            packets: (before, if self.run.asked_for.effort == Effort::Quick { 100 } else { 200 }),
        })
    }
}

/// Each way over the working sets.
type OverWorkingSets = Vec<(How, Vec<(f64, PressureOutcome)>)>;

fn drawn(
    over: &OverWorkingSets,
    title: &str,
    unit: (&str, &str),
    pick: impl Fn(usize, &PressureOutcome) -> f64,
) -> Chart {
    let series = over.iter().map(|(how, points)| {
        let points = points.iter().enumerate().map(|(place, (at, outcome))| (*at, pick(place, outcome))).collect();
        (how.name(), points)
    });
    lines(
        title,
        Axis::linear("Neighbours' working set", "of the last-level cache"),
        Axis::linear(unit.0, unit.1),
        series,
    )
}

fn median(outcome: &PressureOutcome) -> f64 {
    percentile(&outcome.reads, 0.5)
}

fn p99(outcome: &PressureOutcome) -> f64 {
    percentile(&outcome.reads, 0.99)
}

/// The experiment.
pub(super) fn under_pressure(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let machine = part_of(&run.machines.agilex);
    let working_sets = run.asked_for.working_sets.clone();
    let mut host = Host { machine, run };
    let mut findings = Findings::default();
    let mut over: OverWorkingSets = Vec::new();
    for how in [How::Write, How::Push, How::Gated, How::WrittenBack(host.write_back(WAITING))] {
        let at = |set: &f64| Ok((*set, host.under(how, *set, WAITING)?));
        over.push((how, working_sets.iter().map(at).collect::<Result<_, Failure>>()?));
    }
    by_working_set(&over, &mut findings);
    by_waiting(&mut host, &mut findings)?;
    by_write_back(&mut host, &mut findings)?;
    Ok(findings)
}

fn by_working_set(over: &OverWorkingSets, findings: &mut Findings) {
    let written = &over[0].1;
    let last = written.len() - 1;
    let ends = |pick: &dyn Fn(&PressureOutcome) -> f64, place: usize| {
        Some(over.iter().map(|(_, points)| pick(&points[place].1)).collect::<Vec<f64>>())
    };
    // The paper's: what was pushed is loaded out of the cache, what was written over the link.
    findings.holds("cxl.sec5.push_below_write", Some(median(&over[1].1[0].1) < median(&written[0].1)));
    findings.list("cxl.unpublished.pressure_median", "ns", ends(&median, last));
    findings.list("cxl.unpublished.pressure_p99", "ns", ends(&p99, last));
    let neighbours = |place: usize, outcome: &PressureOutcome| outcome.neighbours / written[place].1.neighbours;
    findings.list("cxl.unpublished.pressure_neighbours", "ratio", ends(&|outcome| neighbours(last, outcome), last));
    let of = ("Time to read a packet", "ns");
    findings.plot("pressure", drawn(over, "Median time to read a packet that waited", of, |_, one| median(one)));
    findings.plot("pressure-p99", drawn(over, "99th percentile of that time", of, |_, one| p99(one)));
    let of = ("Pushed lines evicted unread", "of all");
    findings.plot("pressure-evicted", drawn(over, "What is evicted before it is read", of, |_, one| one.evicted()));
    let of = ("Neighbours' rate", "of that beside NC-write");
    findings.plot("pressure-neighbours", drawn(over, "What pushes cost neighbours", of, neighbours));
}

/// What is evicted unread by how many packets wait.
fn by_waiting(host: &mut Host<'_, '_>, findings: &mut Findings) -> Result<(), Failure> {
    let (mut series, mut evicted) = (Vec::new(), Vec::new());
    for how in [How::Push, How::Gated, How::WrittenBack(0)] {
        let mut points = Vec::new();
        for waiting in WAITINGS {
            let how = if let How::WrittenBack(_) = how { How::WrittenBack(host.write_back(waiting)) } else { how };
            points.push((waiting, host.under(how, CROWDED, waiting)?.evicted()));
        }
        evicted.push(points.iter().map(|point| point.1).collect::<Vec<f64>>());
        series.push((how.name(), points));
    }
    // The paper's: pushes displace data that was not processed, and each of the mechanisms mitigates that, wherever it happens.
    let displaced = |at: &usize| evicted[0][*at] > 0.0;
    let mitigates = |how: usize| (0..WAITINGS.len()).filter(displaced).all(|at| evicted[how][at] < evicted[0][at]);
    findings.holds("cxl.sec5.pushes_displace_unread", Some((0..WAITINGS.len()).any(|at| displaced(&at))));
    findings.holds("cxl.sec5.gate_mitigates", Some(mitigates(1)));
    findings.holds("cxl.sec5.write_back_mitigates", Some(mitigates(2)));
    findings.list("cxl.unpublished.pressure_evicted", "fraction", Some(evicted.concat()));
    let x = Axis::linear("Packets that wait", "of the device's ways");
    let y = Axis::linear("Pushed lines evicted unread", "of all");
    findings.plot("pressure-waiting", lines("What is evicted before it is read", x, y, series));
    Ok(())
}

/// What a packet's write-back brings and takes, by when it is.
fn by_write_back(host: &mut Host<'_, '_>, findings: &mut Findings) -> Result<(), Failure> {
    let mut points = Vec::new();
    for part in WRITE_BACKS {
        let cycles = host.cycles(part, WAITING);
        points.push((part, host.under(How::WrittenBack(cycles), CROWDED, WAITING)?));
    }
    let (written, pushed) = (host.under(How::Write, CROWDED, WAITING)?, host.under(How::Push, CROWDED, WAITING)?);
    // The paper's: the host that comes after the window has no benefit of the push.
    findings.holds("cxl.sec5.early_write_back_loses", Some(median(&points[0].1) >= median(&written)));
    let medians = |points: &[(f64, PressureOutcome)]| points.iter().map(|(_, one)| median(one)).collect::<Vec<f64>>();
    findings.list("cxl.unpublished.pressure_write_back", "ns", Some(medians(&points)));
    let rates = points.iter().map(|(at, one)| (*at, one.neighbours / written.neighbours)).collect();
    let at_ends = |value: f64| vec![(WRITE_BACKS[0], value), (WRITE_BACKS[WRITE_BACKS.len() - 1], value)];
    let x = || Axis::log("Cycles until it is written back", "of the time that it waits");
    let reads = points.iter().map(|(at, one)| (*at, median(one))).collect();
    let series =
        [("written back", reads), ("NC-P alone", at_ends(median(&pushed))), ("NC-write", at_ends(median(&written)))];
    let title = "Median time to read a packet, by its write-back";
    findings.plot("pressure-write-back", lines(title, x(), Axis::linear("Time to read a packet", "ns"), series));
    let alone = pushed.neighbours / written.neighbours;
    let series = [("written back", rates), ("NC-P alone", at_ends(alone))];
    let y = Axis::linear("Neighbours' rate", "of that beside NC-write");
    findings.plot("pressure-write-back-neighbours", lines("Neighbours, by the write-back", x(), y, series));
    Ok(())
}
