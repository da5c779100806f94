//! Figures 11 and 12: the formula against the simulator, from the simulator's own counters.

use conic_sim::Failure;
use conic_sim::host::{Domain, HostParameters, HostReport};

use super::{CORES, Curve, chart, most, over_cores};
use crate::experiment::Findings;
use crate::host_network::formula::{Form, Inputs, Parts, Timing, throughput};
use crate::host_network::quadrants::Quadrant;
use crate::host_network::runs::Runs;

/// What the formula says of a run, in nanoseconds and bytes a second, and what the run itself does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    /// Of cores: reads, and in stores the write behind each.
    pub(super) cores: Parts,
    pub(super) devices: Parts,
    /// What each waits to be admitted by the home agent, which the formula leaves out.
    pub(super) admission: [f64; 2],
    constants: [f64; 2],
    credits: [f64; 2],
    simulated: [f64; 2],
    /// Bytes of a core's round over a line's.
    round: f64,
    /// No more than the devices bring.
    device_limit: f64,
}

impl Estimate {
    pub(super) fn of(host: &HostParameters, quadrant: Quadrant, report: &HostReport) -> Estimate {
        let (inputs, timing) = (Inputs::of(report), Timing::of(host));
        // The coded formula counts the reads that wait at the home agent in the fourth quadrant alone.
        let form = if quadrant == Quadrant::Fourth { Form::Coded } else { Form::Printed };
        let reads = inputs.read(&timing, form);
        let stores = quadrant.cores().writes;
        let nanoseconds = |picoseconds: u64| picoseconds as f64 / 1000.0;
        let (of_cores, of_devices) = match quadrant.device_domain() {
            Domain::DeviceRead => (reads, (reads, host.formula.device_read, host.iio.read_credits)),
            _ => (reads, (inputs.write(&timing, Form::Coded), host.formula.device_write, host.iio.write_credits)),
        };
        let core_constant = if stores { host.formula.core_read_write } else { host.formula.core_read };
        let admission = |domain: Domain| report.domain(domain).admission.mean_residence_nanoseconds;
        let core_admission = admission(Domain::CoreRead) + if stores { admission(Domain::CoreWrite) } else { 0.0 };
        let megabits = match quadrant.device_domain() {
            Domain::DeviceRead => host.device.read_megabits_per_second,
            _ => host.device.write_megabits_per_second,
        };
        Estimate {
            cores: of_cores,
            devices: of_devices.0,
            admission: [core_admission, admission(quadrant.device_domain())],
            constants: [nanoseconds(core_constant), nanoseconds(of_devices.1)],
            credits: [report.fill_buffers.mean_occupancy, f64::from(of_devices.2)],
            simulated: [report.core_bytes_per_second(), report.device_bytes_per_second()],
            round: if stores { 2.0 } else { 1.0 },
            device_limit: megabits as f64 * 1e6 / 8.0,
        }
    }

    /// How far the formula's throughput of cores is off: more than 0 where it says too much.
    pub(super) fn core_error(&self, with_admission: bool) -> f64 {
        let latency = self.constants[0] + self.cores.sum() + if with_admission { self.admission[0] } else { 0.0 };
        throughput(self.credits[0], latency) * self.round / self.simulated[0] - 1.0
    }

    /// The same of devices.
    pub(super) fn device_error(&self, with_admission: bool) -> f64 {
        let latency = self.constants[1] + self.devices.sum() + if with_admission { self.admission[1] } else { 0.0 };
        throughput(self.credits[1], latency).min(self.device_limit) / self.simulated[1] - 1.0
    }
}

fn estimates(runs: &mut Runs<'_>, quadrant: Quadrant) -> Vec<Estimate> {
    CORES.iter().map(|cores| Estimate::of(runs.host, quadrant, &runs.together(quadrant, *cores))).collect()
}

fn largest(errors: impl Iterator<Item = f64>) -> f64 {
    errors.map(f64::abs).fold(0.0, f64::max)
}

/// Figure 11.
pub(super) fn errors(runs: &mut Runs<'_>) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let all = Quadrant::ALL.map(|quadrant| estimates(runs, quadrant));
    let [first, second, third, fourth] = &all;
    for (id, of) in [("host.fig11.q1.error", first), ("host.fig11.q2.error", second), ("host.fig11.q4.error", fourth)] {
        findings.number(id, "fraction", Some(largest(of.iter().map(|one| one.core_error(false)))));
    }
    let to_four = &third[..4];
    findings.number("host.fig11.q3.c2m_error_to_four", "fraction", {
        Some(largest(to_four.iter().map(|one| one.core_error(false))))
    });
    findings.number("host.fig11.q3.p2m_error_to_four", "fraction", {
        Some(largest(to_four.iter().map(|one| one.device_error(false))))
    });
    findings
        .holds("host.fig11.q3.says_too_much_beyond", Some(third[4..].iter().all(|one| one.core_error(false) > 0.0)));
    findings.number("host.fig11.q3.c2m_error_with_admission", "fraction", {
        Some(largest(third.iter().map(|one| one.core_error(true))))
    });
    findings.number("host.fig11.q3.p2m_error_with_admission", "fraction", {
        Some(largest(third.iter().map(|one| one.device_error(true))))
    });
    let percent = |of: &[Estimate], error: fn(&Estimate) -> f64| -> Curve {
        CORES.iter().zip(of).map(|(cores, one)| (*cores as f64, 100.0 * error(one))).collect()
    };
    let cores: fn(&Estimate) -> f64 = |one| one.core_error(false);
    let series = [
        ("quadrant 1", percent(first, cores)),
        ("quadrant 2", percent(second, cores)),
        ("quadrant 4", percent(fourth, cores)),
    ];
    findings.plot("fig11", chart("C2M throughput by the formula", ("Error", "%"), series));
    let series = [
        ("C2M", percent(third, cores)),
        ("C2M with admission", percent(third, |one| one.core_error(true))),
        ("P2M", percent(third, |one| one.device_error(false))),
        ("P2M with admission", percent(third, |one| one.device_error(true))),
    ];
    findings.plot("fig11-q3", chart("Quadrant 3 by the formula", ("Error", "%"), series));
    Ok(findings)
}

/// Whether one of the parts is more than each of the others.
fn leads(part: f64, of: &Parts, admission: f64) -> bool {
    let all = [of.switching, of.other_direction, of.same_direction, of.top_of_queue, admission];
    part > 0.0 && all.iter().all(|other| part >= *other)
}

/// Figure 12.
pub(super) fn breakdown(runs: &mut Runs<'_>) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let [first, second, third, fourth] = Quadrant::ALL.map(|quadrant| estimates(runs, quadrant));
    let one = first[0].cores;
    findings.holds("host.fig12.q1.writes_lead_at_one", Some(leads(one.other_direction, &one, 0.0)));
    let grows =
        first[5].cores.other_direction > one.other_direction && first[5].cores.same_direction > one.same_direction;
    findings.holds("host.fig12.q1.both_grow", Some(grows));
    findings.holds("host.fig12.q2.no_writes", Some(second.iter().all(|one| one.cores.other_direction == 0.0)));
    let of = |all: &[Estimate]| most(&over(all, |one| one.cores.same_direction));
    findings.holds("host.fig12.q2.more_reads_than_q1", Some(of(&second) > of(&first)));
    let reads = fourth.iter().all(|one| leads(one.cores.same_direction, &one.cores, 0.0));
    findings.holds("host.fig12.q4.reads_lead", Some(reads));
    let writes = third[..4].iter().all(|one| leads(one.cores.other_direction, &one.cores, one.admission[0]));
    findings.holds("host.fig12.q3.writes_lead_to_four", Some(writes));
    let admission = third[4..].iter().all(|one| leads(one.admission[0], &one.cores, one.admission[0]));
    findings.holds("host.fig12.q3.admission_leads_beyond", Some(admission));
    let names = ["fig12-q1", "fig12-q2", "fig12-q3-c2m", "fig12-q4", "fig12-q3-p2m"];
    for (name, all, title) in [
        (names[0], &first, "Quadrant 1, C2M"),
        (names[1], &second, "Quadrant 2, C2M"),
        (names[2], &third, "Quadrant 3, C2M"),
        (names[3], &fourth, "Quadrant 4, C2M"),
    ] {
        findings.plot(name, parts(title, all, |one| (one.cores, one.admission[0])));
    }
    findings.plot(names[4], parts("Quadrant 3, P2M", &third, |one| (one.devices, one.admission[1])));
    Ok(findings)
}

fn over(all: &[Estimate], of: impl Fn(&Estimate) -> f64) -> Curve {
    let values: Vec<f64> = all.iter().map(of).collect();
    over_cores(|cores| values[cores - 1])
}

/// A chart of a latency's parts.
fn parts(title: &str, all: &[Estimate], of: fn(&Estimate) -> (Parts, f64)) -> conic_chart::Chart {
    let series = [
        ("switching", over(all, |one| of(one).0.switching)),
        ("other direction", over(all, |one| of(one).0.other_direction)),
        ("same direction", over(all, |one| of(one).0.same_direction)),
        ("top of queue", over(all, |one| of(one).0.top_of_queue)),
        ("CHA admission", over(all, |one| of(one).1)),
    ];
    chart(title, ("Latency inflation", "ns"), series)
}
