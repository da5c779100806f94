//! How many host threads an interface needs (section 5.3).

use conic_chart::{Axis, Chart, Series};

use super::findings::Findings;
use super::loops::{fewest_threads, gbps, mpps, peak};
use super::setting::{CC_NIC, PAGE, SMALL, Setting};
use crate::ask::Ask;
use crate::workload::{Loopback, LoopbackOutcome};

/// Share of the highest rate that is asked for.
const SHARE: f64 = 0.9;

/// The rate with some threads, over the windows.
fn rate(ask: &mut Ask<'_>, setting: &Setting, question: &Loopback, threads: usize) -> Option<LoopbackOutcome> {
    let mut question = Loopback { threads, ..question.clone() };
    setting.count(&mut question);
    Some(peak(ask, setting, &question)?.outcome)
}

/// Rates by threads as far as they are known, and the fewest threads that reach 90% of the highest rate.
fn fewest(ask: &mut Ask<'_>, setting: &Setting, question: &Loopback) -> (Vec<(usize, LoopbackOutcome)>, Option<usize>) {
    let all = question.threads;
    let steps = setting.pick(8, 4);
    let mut counts: Vec<usize> = (1..=steps).map(|step| (all * step).div_ceil(steps)).collect();
    counts.dedup();
    fewest_threads(
        &counts,
        SHARE,
        |threads| rate(ask, setting, question, threads),
        |outcome| outcome.packets_per_second,
    )
}

/// Host threads for 90% of the highest rate, small packets and 4 KB, on both platforms.
pub(super) fn cores(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let mut findings = Findings::default();
    let mut small = Chart::xy(
        "Rate by host threads, 64-byte packets",
        Axis::linear("Host threads", ""),
        Axis::linear("Packets", "Mpps"),
    )
    .note("CC-NIC; the best of several windows at each number of threads.");
    let mut large =
        Chart::xy("Rate by host threads, 4 KB packets", Axis::linear("Host threads", ""), Axis::linear("Data", "Gb/s"))
            .note("CC-NIC; the best of several windows at each number of threads.");
    let platforms = [
        ("SPR", &setting.platforms.spr, "ccnic.cores.spr64", "ccnic.cores.spr4k"),
        ("ICX", &setting.platforms.icx, "ccnic.cores.icx64", "ccnic.cores.icx4k"),
    ];
    for (name, machine, id64, id4k) in platforms {
        let mut of = |id, size, rate: fn(&LoopbackOutcome) -> f64| {
            let question = setting.loopback(machine, CC_NIC, size);
            let (known, fewest) = fewest(ask, setting, &question);
            findings.number(id, "threads", fewest.map(|threads| threads as f64));
            Series::line(name, known.iter().map(|(threads, outcome)| (*threads as f64, rate(outcome))))
        };
        small = small.series(of(id64, SMALL, mpps));
        large = large.series(of(id4k, PAGE, gbps));
    }
    findings.plot("cores-64", small);
    findings.plot("cores-4096", large);
    findings
}
