//! Coherent memory by itself: Figures 7, 8 and 9, and the interconnect's read-only rate.

use conic_chart::{Axis, Bar, Chart, Series};
use conic_sim::Parameters;

use super::findings::{Across, Findings};
use super::loops::ratio;
use super::setting::Setting;
use crate::ask::Ask;
use crate::workload::{AccessLatency, Holder, Home, PingPong, PingPongLayout, ReadOnly, Stream, StreamStores};

/// What slightly longer may mean at most.
const SLIGHTLY: f64 = 1.15;

/// The median latency of a load.
pub(super) fn latency(
    setting: &Setting,
    ask: &mut Ask<'_>,
    machine: &Parameters,
    holder: Holder,
    home: Home,
) -> Option<f64> {
    let accesses = setting.pick(2000, 500);
    let question = AccessLatency { machine: machine.clone(), holder, home, accesses, seed: setting.seed };
    Some(ask.of(question)?.median_nanoseconds)
}

/// Figure 7: loads by the state of the line.
pub(super) fn latencies(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let mut findings = Findings::default();
    let mut bars = Vec::new();
    let ids = [
        (
            "ICX",
            &setting.platforms.icx,
            "ccnic.fig7.icx.remote_l2",
            "ccnic.fig7.icx.reader_homed_slower",
            "ccnic.fig7.icx.remote_over_local_memory",
        ),
        (
            "SPR",
            &setting.platforms.spr,
            "ccnic.fig7.spr.remote_l2",
            "ccnic.fig7.spr.reader_homed_slower",
            "ccnic.fig7.spr.remote_over_local_memory",
        ),
    ];
    for (platform, machine, remote_l2, slower, over_local) in ids {
        let mut of = |name: &str, holder, home| {
            let latency = latency(setting, ask, machine, holder, home);
            bars.extend(latency.map(|latency| Bar::new(format!("{platform}, {name}"), latency)));
            latency
        };
        of("L2 of a neighbour", Holder::NeighbourCore, Home::Reader);
        let local = of("local memory", Holder::Memory, Home::Reader);
        let writer_homed = of("remote L2, home there", Holder::OtherNodeCore, Home::Other);
        let reader_homed = of("remote L2, home here", Holder::OtherNodeCore, Home::Reader);
        let remote = of("remote memory", Holder::Memory, Home::Other);
        findings.number(remote_l2, "ns", writer_homed);
        let factor = ratio(reader_homed, writer_homed);
        findings.holds(slower, factor.map(|factor| factor > 1.0 && factor <= SLIGHTLY));
        findings.number(over_local, "ratio", ratio(remote, local));
        if platform == "SPR" {
            findings.number("ccnic.fig7.spr.remote_memory", "ns", remote);
        }
    }
    let chart = Chart::bars("Loads by where the line is", Axis::linear("Median latency", "ns"), bars)
        .note("One dependent load at a time, prefetchers off.");
    findings.plot("fig7", chart).reference("ccnic.fig7.icx.remote_l2", Across::X, "ICX, remote cache").reference(
        "ccnic.fig7.spr.remote_l2",
        Across::X,
        "SPR, remote cache",
    );
    findings
}

/// The read-only rate of one machine with all cores of a node, in gigabits a second.
pub(super) fn read_only_rate(
    setting: &Setting,
    ask: &mut Ask<'_>,
    machine: &Parameters,
    threads: usize,
) -> Option<f64> {
    let lines = setting.pick((1000, 4000), (300, 1000));
    let question = ReadOnly { machine: machine.clone(), threads, lines, seed: setting.seed };
    Some(ask.of(question)?.bits_per_second / 1e9)
}

/// Section 3.3: how much the interconnect carries where nobody writes.
pub(super) fn read_only(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let mut findings = Findings::default();
    let mut chart = Chart::xy(
        "Reads across the interconnect by reading cores",
        Axis::linear("Cores", ""),
        Axis::linear("Data", "Gb/s"),
    )
    .note("Every core reads lines of the other node's memory, which nobody writes.");
    let ids = [
        ("ICX", &setting.platforms.icx, "ccnic.read_only.icx"),
        ("SPR", &setting.platforms.spr, "ccnic.read_only.spr"),
    ];
    for (platform, machine, id) in ids {
        let all = machine.core.cores as usize;
        let counts = setting.pick(vec![1, 2, 4, 8, all / 2, 3 * all / 4, all], vec![1, all / 2, all]);
        let mut rates = Vec::new();
        for threads in counts.into_iter().filter(|&threads| threads > 0) {
            let rate = read_only_rate(setting, ask, machine, threads);
            rates.extend(rate.map(|rate| (threads as f64, rate)));
        }
        // All cores are asked last: without them, the highest rate is not known.
        let complete = rates.last().is_some_and(|point| point.0 == all as f64);
        let highest = rates.iter().map(|point| point.1).max_by(f64::total_cmp);
        findings.number(id, "Gb/s", highest.filter(|_| complete));
        chart = chart.series(Series::line(platform, rates));
    }
    findings.plot("read-only", chart).reference("ccnic.read_only.icx", Across::Y, "ICX").reference(
        "ccnic.read_only.spr",
        Across::Y,
        "SPR",
    );
    findings
}

/// The layouts of Figure 8 with the paper's names for them; those with one line last.
const LAYOUTS: [(&str, PingPongLayout); 6] = [
    ("S0", PingPongLayout::SeparateLines { node: 0 }),
    ("S1", PingPongLayout::SeparateLines { node: 1 }),
    ("Rd", PingPongLayout::ReaderHomed),
    ("Wr", PingPongLayout::WriterHomed),
    ("S0C", PingPongLayout::OneLine { node: 0 }),
    ("S1C", PingPongLayout::OneLine { node: 1 }),
];

/// Figure 8: ping-pong by memory layout.
pub(super) fn ping_pong(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let mut bars = Vec::new();
    let (mut lowest, mut highest, mut writers_first) = (Some(f64::MAX), Some(0.0), Some(true));
    let (mut apart, mut together) = (Vec::new(), Vec::new());
    for (platform, machine) in [("ICX", &setting.platforms.icx), ("SPR", &setting.platforms.spr)] {
        let outcomes = LAYOUTS.map(|(_, layout)| {
            let rounds = setting.pick((200, 2000), (50, 300));
            ask.of(PingPong { machine: machine.clone(), layout, rounds, seed: setting.seed })
        });
        for ((name, _), outcome) in LAYOUTS.iter().zip(&outcomes) {
            let bar = outcome.map(|outcome| Bar::new(format!("{platform}, {name}"), outcome.median_nanoseconds));
            bars.extend(bar.map(|bar| if name.ends_with('C') { bar.highlight() } else { bar }));
        }
        let trips = outcomes.map(|outcome| outcome.map(|outcome| outcome.median_nanoseconds));
        let (separate, one_line) = trips.split_at(4);
        for (apart, together) in
            separate.iter().flat_map(|apart| one_line.iter().map(move |together| (apart, together)))
        {
            let factor = ratio(*apart, *together);
            lowest = lowest.zip(factor).map(|(lowest, factor)| lowest.min(factor));
            highest = highest.zip(factor).map(|(highest, factor)| f64::max(highest, factor));
        }
        for other in separate {
            let first = separate[3].zip(*other).map(|(writers, other)| writers <= other);
            writers_first = writers_first.zip(first).map(|(so_far, first)| so_far && first);
        }
        let requests = outcomes.map(|outcome| outcome.map(|outcome| outcome.remote_requests));
        apart.extend_from_slice(&requests[..4]);
        together.extend_from_slice(&requests[4..]);
    }
    let mean = |requests: Vec<Option<f64>>| {
        let count = requests.len() as f64;
        requests.into_iter().sum::<Option<f64>>().map(|sum| sum / count)
    };
    let mut findings = Findings::default();
    findings.number("ccnic.fig8.separate_over_one_line_lowest", "ratio", lowest);
    findings.number("ccnic.fig8.separate_over_one_line_highest", "ratio", highest);
    findings.holds("ccnic.fig8.writer_homed_lowest", writers_first);
    findings.number("ccnic.fig8.requests_separate", "requests", mean(apart));
    findings.number("ccnic.fig8.requests_one_line", "requests", mean(together));
    let chart = Chart::bars("Ping-pong by where the two words lie", Axis::linear("Median round trip", "ns"), bars)
        .note("S0, S1: separate lines home to one node; Rd, Wr: home to the reader, the writer; S0C, S1C: one line.");
    findings.plot("fig8", chart);
    findings
}

/// Figure 9: streams from node to node.
pub(super) fn streams(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let mut findings = Findings::default();
    let mut chart = Chart::xy(
        "Streams through caches and through memory",
        Axis::linear("Pairs of threads", ""),
        Axis::linear("Data", "Gb/s"),
    )
    .note("Writers on one node, readers on the other, a signal a chunk.");
    let mut shares = Vec::new();
    let ids = [
        (
            "ICX",
            &setting.platforms.icx,
            ["ccnic.fig9.icx.caching_over_nontemporal", "ccnic.fig9.icx.share_of_read_only"],
        ),
        (
            "SPR",
            &setting.platforms.spr,
            ["ccnic.fig9.spr.caching_over_nontemporal", "ccnic.fig9.spr.share_of_read_only"],
        ),
    ];
    for (platform, machine, [id, own_share]) in ids {
        let all = machine.core.cores as usize;
        let counts = setting.pick(vec![1, all / 4, all / 2, 3 * all / 4, all], vec![all / 2, all]);
        let mut best = |stores: StreamStores| {
            let mut rates = Vec::new();
            for &pairs in &counts {
                let question = Stream {
                    machine: machine.clone(),
                    stores,
                    pairs,
                    chunk_bytes: setting.pick(1 << 20, 128 << 10),
                    region_chunks: 2,
                    chunks: (2, 2),
                    seed: setting.seed,
                };
                let outcome = ask.of(question);
                rates.extend(outcome.map(|outcome| (pairs as f64, outcome.bits_per_second / 1e9)));
            }
            let highest = rates.iter().map(|point| point.1).max_by(f64::total_cmp);
            (highest.filter(|_| rates.len() == counts.len()), rates)
        };
        let (caching, caching_rates) = best(StreamStores::Caching);
        let (nontemporal, nontemporal_rates) = best(StreamStores::NonTemporal);
        findings.number(id, "ratio", ratio(caching, nontemporal));
        let share = ratio(caching, read_only_rate(setting, ask, machine, all));
        findings.number(own_share, "fraction", share);
        shares.push(share);
        chart = chart
            .series(Series::line(format!("{platform}, caching"), caching_rates))
            .series(Series::line(format!("{platform}, non-temporal"), nontemporal_rates));
    }
    let count = shares.len() as f64;
    let share = shares.into_iter().sum::<Option<f64>>().map(|sum| sum / count);
    findings.number("ccnic.fig9.share_of_read_only", "fraction", share);
    findings.plot("fig9", chart);
    findings
}
