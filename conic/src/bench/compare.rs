//! Several configurations side by side: rate and unloaded latency of each, and ratios to the first one's by pairs of
//! slices from the same round.

use std::process::ExitCode;

use conic_fabric::Time;
use conic_load::Workload;
use serde::Serialize;

use super::arena::Arena;
use super::common::{Choice, nanoseconds, range, three_digits};
use super::failure::{Failure, code_of};
use super::link::{Outcome, Setup, Span, run};
use super::placement::{Placement, Spread, rounded};
use super::progress::Progress;
use super::rounds::{Dropped, Slices, Until, alternate};

/// A configuration with a name.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is called.
    pub name: String,
    /// What runs for its rate; its latency is that with one packet in flight.
    pub setup: Setup,
}

impl Compared {
    /// How a command ends that found these, and so many packets lost and corrupt beside them.
    pub fn code_of<'a>(all: impl Iterator<Item = &'a Compared>, beside: (u64, u64)) -> ExitCode {
        let (lost, corrupt) = all.fold(beside, |sum, one| (sum.0 + one.lost, sum.1 + one.corrupt));
        code_of(lost, corrupt)
    }
}

impl Case {
    /// A configuration with a name.
    pub fn new(name: impl Into<String>, setup: Setup) -> Case {
        Case { name: name.into(), setup }
    }
}

/// How to compare.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds in one placement.
    pub rounds: usize,
    /// No new round after this long.
    pub limit: Time,
    /// Each slice.
    pub span: Span,
    /// Whether the latency with one packet in flight is measured too.
    pub latency: bool,
}

/// One configuration in one placement.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it is called.
    pub name: String,
    /// Its interface.
    pub interface: &'static str,
    /// CC-NIC's switches.
    pub features: Option<String>,
    /// Bytes of a packet.
    pub packet_size: u16,
    /// Packets in flight, for the rate.
    pub window: u64,
    /// Packets sent at once.
    pub burst: usize,
    /// Packets received at once.
    pub rx_burst: usize,
    /// Millions of packets a second.
    pub mpps: Spread,
    /// Packet bytes one way, in 10^9 bits a second.
    pub gbps: f64,
    /// The rate over the first configuration's.
    pub rate_ratio: Option<Spread>,
    /// Median latency with one packet in flight.
    pub p50_ns: Option<Spread>,
    /// The same over the first configuration's.
    pub latency_ratio: Option<Spread>,
    /// The same over the round trip beside it.
    pub p50_in_round_trips: Option<Spread>,
    /// Slices of its rate.
    pub slices: usize,
    /// Packets lost in any slice.
    pub lost: u64,
    /// Packets corrupt in any slice.
    pub corrupt: u64,
}

/// All configurations in one placement.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// `steady`, `near`, `far`, `between` or `restless`.
    pub placement: &'static str,
    /// One line's round trip.
    pub one_line_round_trip_ns: Spread,
    /// The configurations, the first the one that the others are compared with.
    pub rows: Vec<Row>,
}

/// A comparison in every placement that was asked for.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The headline's first.
    pub comparisons: Vec<Comparison>,
    /// What was left out.
    pub dropped: Dropped,
    /// Whether nothing could be left out.
    pub restless: bool,
    /// Packets lost in any slice.
    lost: u64,
    /// Packets corrupt in any slice.
    corrupt: u64,
}

/// Compares configurations.
///
/// # Errors
///
/// If one of them cannot be, or the machine refuses it.
pub fn compare(
    arena: &Arena,
    cases: &[Case],
    plan: Plan,
    choice: Choice,
    progress: &mut Progress,
) -> Result<Compared, Failure> {
    let per_case = if plan.latency { 2 } else { 1 };
    let subjects = cases.len() * per_case;
    let until = Until { rounds: plan.rounds, limit: plan.limit };
    let measured = alternate(arena, subjects, until, progress, |subject| {
        let case = &cases[subject / per_case];
        let setup = if subject % per_case == 0 { case.setup } else { unloaded(case.setup) };
        run(arena, &setup, plan.span)
    })?;
    let complete = measured.complete(subjects);
    let chosen = choice.of(&complete);
    let comparisons = chosen.iter().map(|place| comparison(&measured, place, cases, per_case)).collect();
    let sum = |figure: fn(&Outcome) -> u64| measured.all().map(|slice| figure(&slice.value)).sum();
    let (lost, corrupt) = (sum(|outcome| outcome.lost), sum(|outcome| outcome.corrupt));
    Ok(Compared { comparisons, dropped: measured.dropped, restless: measured.restless, lost, corrupt })
}

/// The same with one packet in flight.
pub fn unloaded(setup: Setup) -> Setup {
    Setup { workload: Workload { window: 1, ..setup.workload }, ..setup }
}

/// In nanoseconds; not a number, and so left out everywhere, where no packet came back.
fn median_latency(outcome: &Outcome) -> f64 {
    if outcome.latency.count() == 0 {
        return f64::NAN;
    }
    outcome.latency.quantile(0.5).picoseconds() as f64 / 1e3
}

fn comparison(measured: &Slices<Outcome>, place: &Placement, cases: &[Case], per_case: usize) -> Comparison {
    let row = |(index, case)| row(measured, place, index, case, per_case);
    Comparison {
        placement: place.label,
        one_line_round_trip_ns: place.round_trip.rounded(1),
        rows: cases.iter().enumerate().filter_map(row).collect(),
    }
}

fn row(measured: &Slices<Outcome>, place: &Placement, index: usize, case: &Case, per_case: usize) -> Option<Row> {
    let subject = index * per_case;
    let rates: Vec<f64> = measured.of(place, subject).map(|outcome| outcome.rate / 1e6).collect();
    let mpps = Spread::of(&rates)?.rounded(3);
    let unloaded = (per_case == 2).then_some(subject + 1);
    let spread = |figure: &dyn Fn(f64, &Outcome) -> f64| {
        let values: Vec<f64> = measured.beside(place, unloaded?).map(|(trip, outcome)| figure(trip, outcome)).collect();
        Spread::of(&values)
    };
    let outcomes = || measured.all().filter(|slice| slice.subject / per_case == index).map(|slice| &slice.value);
    let Workload { packet_size, window, transmit_burst, receive_burst, .. } = case.setup.workload;
    let is_ccnic = case.setup.interface == super::link::Interface::Ccnic;
    Some(Row {
        name: case.name.clone(),
        interface: case.setup.interface.name(),
        features: is_ccnic.then(|| case.setup.features.to_string()),
        packet_size,
        window,
        burst: transmit_burst,
        rx_burst: receive_burst,
        mpps,
        gbps: rounded(mpps.median * f64::from(packet_size) * 8.0 / 1e3, 3),
        rate_ratio: measured.ratios(place, subject, 0, |outcome| outcome.rate).map(|ratio| ratio.rounded(3)),
        p50_ns: spread(&|_, outcome| median_latency(outcome)).map(|spread| spread.rounded(1)),
        latency_ratio: unloaded
            .and_then(|one| measured.ratios(place, one, 1, median_latency))
            .map(|ratio| ratio.rounded(3)),
        p50_in_round_trips: spread(&|trip, outcome| median_latency(outcome) / trip).map(|spread| spread.rounded(2)),
        slices: rates.len(),
        lost: outcomes().map(|outcome| outcome.lost).sum(),
        corrupt: outcomes().map(|outcome| outcome.corrupt).sum(),
    })
}

/// A comparison as a table.
pub fn print(comparison: &Comparison) {
    let trip = comparison.one_line_round_trip_ns;
    let place = match comparison.placement {
        "steady" | "restless" => String::new(),
        label => format!("cores {label}, "),
    };
    println!(
        "  {place}one line's round trip {} {}",
        nanoseconds(trip.median),
        range(trip, |value| format!("{value:.0}"))
    );
    let latency = comparison.rows.iter().any(|row| row.p50_ns.is_some());
    let width = comparison.rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(20);
    let heads = if latency { format!("{:>10}  {:<24}", "latency", "ratio") } else { String::new() };
    println!("{}", format!("    {:width$}  {:>10}  {:<24}{heads}", "", "rate", "ratio").trim_end());
    for row in &comparison.rows {
        let rate = format!("{} Mpps", three_digits(row.mpps.median));
        let mut line = format!("    {:width$}  {rate:>10}  {:<24}", row.name, ratio(row.rate_ratio));
        if let Some(p50) = row.p50_ns {
            line += &format!("{:>10}  {:<24}", nanoseconds(p50.median), ratio(row.latency_ratio));
        }
        println!("{}", line.trim_end());
        if row.lost + row.corrupt > 0 {
            println!("    {:width$}  lost {}, corrupt {}", "", row.lost, row.corrupt);
        }
    }
}

/// `0.83 (0.79 to 0.85)`, or a dash.
fn ratio(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "-".to_owned(), ratio_text)
}

/// `0.83 (0.79 to 0.85)`.
pub fn ratio_text(spread: Spread) -> String {
    let text = |value: f64| format!("{value:.2}");
    format!("{} {}", text(spread.median), range(spread, text)).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_beside_comparisons_counts_as_what_was_lost_in_them() {
        let of = |lost, corrupt| Compared {
            comparisons: Vec::new(),
            dropped: Dropped::default(),
            restless: false,
            lost,
            corrupt,
        };
        let code = |all: &[Compared], beside| Compared::code_of(all.iter(), beside);
        assert_eq!(code(&[of(0, 0), of(0, 0)], (0, 0)), ExitCode::SUCCESS);
        for (all, beside) in
            [([of(0, 0), of(1, 0)], (0, 0)), ([of(0, 1), of(0, 0)], (0, 0)), ([of(0, 0), of(0, 0)], (0, 1))]
        {
            assert_eq!(code(&all, beside), ExitCode::FAILURE);
        }
    }
}
