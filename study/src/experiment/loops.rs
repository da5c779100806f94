//! What most experiments ask of a loopback: the lowest latency, the highest rate, and the latency at a share of that rate.

use super::setting::Setting;
use crate::ask::Ask;
use crate::workload::{Interface, Loopback, LoopbackOutcome};

/// The highest rate, and the window that reached it.
#[derive(Clone, Debug, PartialEq)]
pub struct Peak {
    /// Packets in flight, each thread.
    pub window: u64,
    /// What was measured.
    pub outcome: LoopbackOutcome,
}

/// Windows that are tried for the highest rate: from one burst to several; over PCIe more, since a packet takes several times as
/// long.
fn windows(setting: &Setting, question: &Loopback) -> &'static [u64] {
    match (question.interface, question.packet_size) {
        (Interface::PcieRing, 0..=512) => setting.pick(&[64, 128, 256], &[64, 256]),
        (Interface::PcieRing, _) => setting.pick(&[32, 64, 128], &[32, 128]),
        (_, 0..=512) => setting.pick(&[32, 64, 128], &[64, 128]),
        (_, 513..=2048) => setting.pick(&[32, 64, 128], &[32, 64]),
        _ => setting.pick(&[16, 32, 64], &[16, 32]),
    }
}

/// The question with another window, and as many packets as that needs.
pub fn with_window(setting: &Setting, question: &Loopback, window: u64) -> Loopback {
    let mut question = Loopback { window, ..question.clone() };
    setting.count(&mut question);
    question
}

/// A closed loop's outcome by window, for those windows that are answered.
pub fn sweep(ask: &mut Ask<'_>, setting: &Setting, question: &Loopback) -> Vec<Peak> {
    let outcome = |&window: &u64| {
        let outcome = ask.of(with_window(setting, question, window))?;
        Some(Peak { window, outcome })
    };
    windows(setting, question).iter().filter_map(outcome).collect()
}

/// The highest rate over the windows; none until each is answered.
pub fn peak(ask: &mut Ask<'_>, setting: &Setting, question: &Loopback) -> Option<Peak> {
    let outcomes = sweep(ask, setting, question);
    let complete = outcomes.len() == windows(setting, question).len();
    let rate = |peak: &Peak| peak.outcome.packets_per_second;
    // Of equal rates the smallest window's: the last of the reversed ones.
    outcomes.into_iter().rev().filter(|_| complete).max_by(|one, other| rate(one).total_cmp(&rate(other)))
}

/// One packet in flight in the whole machine: its median latency in nanoseconds is what the paper calls minimum latency.
pub fn minimum(ask: &mut Ask<'_>, setting: &Setting, question: &Loopback) -> Option<f64> {
    Some(ask.of(alone(setting, question))?.median_nanoseconds)
}

/// The question with one packet in flight in the whole machine.
pub fn alone(setting: &Setting, question: &Loopback) -> Loopback {
    with_window(setting, &Loopback { threads: 1, ..question.clone() }, 1)
}

/// An open loop at this share of the peak's rate.
pub fn at_load(
    ask: &mut Ask<'_>,
    setting: &Setting,
    question: &Loopback,
    peak: &Peak,
    share: f64,
) -> Option<LoopbackOutcome> {
    let offered = share * peak.outcome.packets_per_second / question.threads as f64;
    ask.of(Loopback { offered: Some(offered), ..with_window(setting, question, peak.window) })
}

/// Million packets a second.
pub fn mpps(outcome: &LoopbackOutcome) -> f64 {
    outcome.packets_per_second / 1e6
}

/// Gigabits of payload a second.
pub fn gbps(outcome: &LoopbackOutcome) -> f64 {
    outcome.bits_per_second / 1e9
}

/// One number over another.
pub fn ratio(number: Option<f64>, over: Option<f64>) -> Option<f64> {
    Some(number? / over?)
}

/// By which share one number is below another.
pub fn below(number: Option<f64>, other: Option<f64>) -> Option<f64> {
    ratio(number, other).map(|ratio| 1.0 - ratio)
}

/// The value at `at` on the line through the points, which are in ascending order of their first number.
pub fn interpolate(points: &[(f64, f64)], at: f64) -> Option<f64> {
    points.windows(2).find_map(|pair| {
        let [(from, low), (to, high)] = [pair[0], pair[1]];
        let inside = from <= at && at <= to && from < to;
        inside.then(|| low + (high - low) * (at - from) / (to - from))
    })
}

/// What `run` finds with each of these numbers of threads, in their order, as far as it is known; and the fewest threads, of all numbers,
/// whose rate reaches a share of the highest one.
pub(super) fn fewest_threads<T>(
    counts: &[usize],
    share: f64,
    mut run: impl FnMut(usize) -> Option<T>,
    rate: impl Fn(&T) -> f64,
) -> (Vec<(usize, T)>, Option<usize>) {
    let outcomes: Vec<_> = counts.iter().map(|&threads| (threads, run(threads))).collect();
    let mut known: Vec<(usize, T)> = outcomes.into_iter().filter_map(|(threads, one)| Some((threads, one?))).collect();
    if known.len() < counts.len() {
        return (known, None);
    }
    let highest = known.iter().map(|(_, outcome)| rate(outcome)).fold(0.0, f64::max);
    let enough = |outcome: &T| rate(outcome) >= share * highest;
    let Some(first) = known.iter().position(|(_, outcome)| enough(outcome)) else {
        return (known, None);
    };
    // Between the last step that is too few and the first that is enough, halve.
    let mut high = known[first].0;
    let mut low = if first == 0 { 0 } else { known[first - 1].0 };
    while high - low > 1 {
        let middle = low.midpoint(high);
        let Some(outcome) = run(middle) else {
            return (known, None);
        };
        if enough(&outcome) {
            high = middle;
        } else {
            low = middle;
        }
        known.push((middle, outcome));
    }
    known.sort_by_key(|(threads, _)| *threads);
    (known, Some(high))
}
