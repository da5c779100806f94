//! Figures 7 and 8: queues, row misses and credits behind the two regimes.

use conic_sim::Failure;
use conic_sim::host::{Domain, HostReport};

use super::domains::latency;
use super::{CORES, Curve, chart, most, over_cores};
use crate::experiment::Findings;
use crate::host_network::quadrants::Quadrant;
use crate::host_network::runs::Runs;

/// The curves of a quadrant that both figures show: with devices and without.
struct Curves {
    /// Of the C2M-Read domain, which bounds cores that also write (section 5.2).
    latency: [Curve; 2],
    read_queue: [Curve; 2],
    row_misses: [Curve; 2],
    devices: [Curve; 2],
    write_full: Curve,
    credits: Curve,
}

impl Curves {
    fn of(runs: &mut Runs<'_>, quadrant: Quadrant) -> Curves {
        let mut both = |of: fn(&HostReport) -> f64| {
            [
                over_cores(|cores| of(&runs.together(quadrant, cores))),
                over_cores(|cores| of(&runs.cores_alone(quadrant, cores))),
            ]
        };
        let (misses, queue) = (both(HostReport::row_miss_ratio), both(HostReport::read_queue));
        let reads = both(|report| latency(report, Domain::CoreRead));
        let alone = latency(&runs.devices_alone(quadrant), Domain::DeviceWrite);
        let mut together = |of: fn(&HostReport) -> f64| over_cores(|cores| of(&runs.together(quadrant, cores)));
        Curves {
            latency: reads,
            read_queue: queue,
            row_misses: misses,
            devices: [together(|report| latency(report, Domain::DeviceWrite)), over_cores(|_| alone)],
            write_full: together(HostReport::write_queue_full),
            credits: together(|report| report.domain(Domain::DeviceWrite).credits.mean_occupancy),
        }
    }

    /// A plot for each.
    fn plot(&self, findings: &mut Findings, names: [&'static str; 6], limit: f64) {
        const WITH: [&str; 2] = ["with P2M", "without P2M"];
        let two = |names: [&'static str; 2], curves: &[Curve; 2]| names.into_iter().zip(curves.clone());
        findings.plot(names[0], chart("C2M-Read latency", ("Latency", "ns"), two(WITH, &self.latency)));
        findings.plot(names[1], chart("RPQ occupancy", ("Entries", ""), two(WITH, &self.read_queue)));
        findings.plot(names[2], chart("Row misses of reads", ("Fraction", ""), two(WITH, &self.row_misses)));
        let devices = two(["with C2M", "without C2M"], &self.devices);
        findings.plot(names[3], chart("P2M-Write latency", ("Latency", "ns"), devices));
        let full = [("WPQ full", self.write_full.clone())];
        findings.plot(names[4], chart("Time for which the WPQ is full", ("Fraction", ""), full));
        let credits = [("in use", self.credits.clone()), ("limit", over_cores(|_| limit))];
        findings.plot(names[5], chart("IIO write credits", ("Lines", ""), credits));
    }
}

/// The most of a curve over the most of another at the same number of cores.
fn inflation(with: &Curve, without: &Curve) -> f64 {
    with.iter().zip(without).map(|((_, with), (_, without))| with / without).fold(f64::MIN, f64::max)
}

/// Figure 7.
pub(super) fn first_quadrant(runs: &mut Runs<'_>) -> Result<Findings, Failure> {
    let curves = Curves::of(runs, Quadrant::First);
    let limit = f64::from(runs.host.iio.write_credits);
    let mut findings = Findings::default();
    let names = ["fig7-latency", "fig7-rpq", "fig7-row-misses", "fig7-p2m-latency", "fig7-wpq-full", "fig7-credits"];
    curves.plot(&mut findings, names, limit);
    findings.number("host.fig7.row_miss_most", "fraction", Some(most(&curves.row_misses[0])));
    findings.number(
        "host.fig7.c2m_latency_inflation",
        "ratio",
        Some(inflation(&curves.latency[0], &curves.latency[1])),
    );
    findings.number(
        "host.fig7.p2m_latency_inflation",
        "ratio",
        Some(inflation(&curves.devices[0], &curves.devices[1])),
    );
    findings.number("host.fig7.wpq_full_most", "fraction", Some(most(&curves.write_full)));
    let more = curves.row_misses[0].iter().zip(&curves.row_misses[1]).all(|((_, with), (_, without))| with > without);
    findings.holds("host.fig7.p2m_adds_row_misses", Some(more));
    // "Near zero", where the counter calls a queue full from 34 entries on.
    findings.holds("host.fig7.wpq_not_full_at_one", Some(curves.write_full[0].1 < 0.05));
    findings.holds("host.fig7.spare_credits", Some(most(&curves.credits) < 0.95 * limit));
    deviations(runs, &mut findings);
    Ok(findings)
}

/// Figure 7(d): how unevenly banks are loaded.
fn deviations(runs: &mut Runs<'_>, findings: &mut Findings) {
    let [with, without] = [runs.together(Quadrant::First, 1), runs.cores_alone(Quadrant::First, 1)];
    let part = |report: &HostReport, bound: f64| {
        let all = &report.bank_deviations;
        all.iter().filter(|one| **one >= bound).count() as f64 / all.len().max(1) as f64
    };
    findings.number("host.fig7.bank_deviation_1_5", "fraction", Some(part(&with, 1.5)));
    findings.number("host.fig7.bank_deviation_2", "fraction", Some(part(&with, 2.0)));
    let distribution = |report: &HostReport| -> Curve {
        let mut all = report.bank_deviations.clone();
        all.sort_by(f64::total_cmp);
        let count = all.len().max(1) as f64;
        all.into_iter().enumerate().map(|(index, value)| (value, (index + 1) as f64 / count)).collect()
    };
    let series = [("with P2M", distribution(&with)), ("without P2M", distribution(&without))];
    let chart = conic_chart::Chart::xy(
        "Load of the most loaded bank over the mean",
        conic_chart::Axis::linear("Bank deviation", "ratio"),
        conic_chart::Axis::linear("Fraction of samples", ""),
    );
    let chart =
        series.into_iter().fold(chart, |chart, (name, points)| chart.series(conic_chart::Series::line(name, points)));
    findings.plot("fig7-banks", chart);
}

/// Figure 8.
pub(super) fn third_quadrant(runs: &mut Runs<'_>) -> Result<Findings, Failure> {
    let curves = Curves::of(runs, Quadrant::Third);
    let limit = f64::from(runs.host.iio.write_credits);
    let mut findings = Findings::default();
    let names = ["fig8-latency", "fig8-rpq", "fig8-row-misses", "fig8-p2m-latency", "fig8-wpq-full", "fig8-credits"];
    curves.plot(&mut findings, names, limit);
    let at = |curve: &Curve, cores: usize| curve[cores - 1].1;
    let (cores, devices) = (&curves.latency[0], &curves.devices[0]);
    findings.number("host.fig8.p2m_inflation_at_two", "ratio", Some(at(devices, 2) / at(&curves.devices[1], 2)));
    findings.number("host.fig8.wpq_full_at_three", "fraction", Some(at(&curves.write_full, 3)));
    findings.number("host.fig8.p2m_latency_three_to_four", "ratio", Some(at(devices, 4) / at(devices, 3)));
    findings.number("host.fig8.c2m_latency_three_to_four", "ratio", Some(at(cores, 4) / at(cores, 3)));
    findings.number("host.fig8.p2m_latency_five_to_six", "ratio", Some(at(devices, 6) / at(devices, 5)));
    findings.number("host.fig8.c2m_latency_five_to_six", "ratio", Some(at(cores, 6) / at(cores, 5)));
    let full = CORES[3..].iter().all(|cores| at(&curves.write_full, *cores) > 0.85);
    findings.holds("host.fig8.wpq_full_from_four", Some(full));
    findings.holds("host.fig8.credits_used_up", Some(at(&curves.credits, 4) > 0.95 * limit));
    findings.holds("host.fig8.spare_credits_at_two", Some(at(&curves.credits, 2) < 0.95 * limit));
    let [with, without] = &curves.read_queue;
    findings.holds("host.fig8.rpq_saturates", Some(at(with, 6) < 1.1 * at(with, 4) && at(with, 6) < at(without, 6)));
    let more = curves.row_misses[0].iter().zip(&curves.row_misses[1]).all(|((_, with), (_, without))| with > without);
    findings.holds("host.fig8.p2m_adds_row_misses", Some(more));
    let spreads = (at(devices, 4) / at(devices, 3)) > (at(cores, 4) / at(cores, 3));
    findings.holds("host.fig8.backpressure_meets_p2m_first", Some(spreads));
    Ok(findings)
}
