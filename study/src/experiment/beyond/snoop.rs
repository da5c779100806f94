//! A NIC core that serves many queue pairs of which one is busy: it polls each, or acts on snoops (section 3.2).

use conic_chart::{Axis, Chart, Point, Series};

use super::super::findings::Findings;
use super::super::loops::{minimum, mpps, peak, ratio};
use super::super::setting::{CC_NIC, SMALL, Setting};
use crate::ask::Ask;
use crate::workload::{Attention, Loopback, Serving};

/// Queue pairs of the NIC core.
const QUEUE_PAIRS: [usize; 5] = [1, 4, 16, 64, 256];

/// Queue pairs, the minimum latency in nanoseconds, and the highest rate in million packets a second.
type Reached = (usize, Option<f64>, Option<f64>);

fn curve(ask: &mut Ask<'_>, setting: &Setting, attention: Attention) -> Vec<Reached> {
    let point = |queue_pairs: usize| {
        let mut question = Loopback { threads: 1, ..setting.loopback(&setting.platforms.spr, CC_NIC, SMALL) };
        question.switches.serving = Serving::Shared { queue_pairs, attention };
        let latency = minimum(ask, setting, &question);
        (queue_pairs, latency, peak(ask, setting, &question).map(|peak| mpps(&peak.outcome)))
    };
    QUEUE_PAIRS.into_iter().map(point).collect()
}

/// What acting on snoops changes.
pub(super) fn find(setting: &Setting, ask: &mut Ask<'_>, findings: &mut Findings) {
    let [polling, snoops] = [Attention::Polling, Attention::Snoops].map(|how| curve(ask, setting, how));
    let latencies = |curve: &[Reached]| curve.iter().map(|point| point.1).collect();
    let rates = |curve: &[Reached]| curve.iter().map(|point| point.2).collect();
    findings.list("beyond.snoop.polling_latency", "ns", latencies(&polling));
    findings.list("beyond.snoop.latency", "ns", latencies(&snoops));
    findings.list("beyond.snoop.polling_rate", "Mpps", rates(&polling));
    findings.list("beyond.snoop.rate", "Mpps", rates(&snoops));
    if let (Some(polling), Some(snoops)) = (polling.last(), snoops.last()) {
        findings.number("beyond.snoop.latency_ratio", "ratio", ratio(snoops.1, polling.1));
        findings.number("beyond.snoop.rate_ratio", "ratio", ratio(snoops.2, polling.2));
    }
    let note = "Sapphire Rapids: one NIC core, one of its queue pairs busy; 64-byte packets; queue pairs 1 to 256.";
    let chart = |title: &str, axis: Axis, value: fn(&Reached) -> Option<f64>| {
        let series = |name: &str, curve: &[Reached]| {
            let point = |point: &Reached| Some(Point::new(point.0 as f64, value(point)?));
            Series::line(name, curve.iter().filter_map(point).collect::<Vec<_>>())
        };
        Chart::xy(title, Axis::log("Queue pairs", ""), axis)
            .series(series("polls each", &polling))
            .series(series("acts on snoops", &snoops))
            .note(note)
    };
    let latency = chart("Latency by queue pairs of a NIC core", Axis::log("Median latency", "ns"), |point| point.1);
    findings.plot("beyond-snoop-latency", latency);
    let rate = chart("Highest rate by queue pairs of a NIC core", Axis::linear("Packets", "Mpps"), |point| point.2);
    findings.plot("beyond-snoop-rate", rate);
}
