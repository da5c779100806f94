//! Figures 3 and 10 to 12: the datapath of a NIC without memory of its own, against PCIe.

use conic_chart::{Axis, Bar, Chart, GuideKind};
use conic_fabric::{StateHint, Time};
use conic_interface::cxl::Requests;
use conic_sim::Failure;

use super::single::less;
use super::{LARGE, Run, SEEDS, SMALL, lines};
use crate::cxl_nic::loopback::{Design, Loopback, around, loopback};
use crate::cxl_nic::percentile;
use crate::cxl_nic::throughput::{Flow, Throughput, receive, transmit};
use crate::experiment::{Effort, Findings};

/// Rings of the PCIe NIC under load, each with a core: the fewest, in steps of four, that carry 64 Gb/s of 64-byte packets. With
/// 8 they come faster than they are taken, and the latency is that of a queue that grows for as long as it is measured.
const RINGS: usize = 12;
/// Descriptors that it fetches at once under load.
const FETCHED: usize = 64;

/// Packets that a generator on DPDK sends in one call, as delivered: testpmd and Pktgen send 32.
const TOGETHER: u64 = 32;

/// Packets of a size at a rate in Gb/s, so many of them together, over so many rings.
struct Offered {
    bytes: usize,
    rate: f64,
    together: u64,
    rings: usize,
}

/// The part of a packet's time that it is not at the host.
fn share_of(run: &mut Run<'_>, offered: &Offered) -> Result<f64, Failure> {
    let &Offered { bytes, rate, together, rings } = offered;
    let packets = if run.asked_for.effort == Effort::Quick { 1_600 } else { 8_000 };
    let gap = Time::from_picoseconds((8_000.0 * bytes as f64 / rate) as u64);
    let design = Design { rings, transmit_batch: FETCHED, ..Design::pcie() };
    run.asked += 1;
    let machine = run.machines.bluefield.clone();
    let packets = (around(&design, bytes).max(packets / 2), packets);
    let outcome = loopback(&Loopback { machine, design, bytes, gap, together, packets, seed: 0 })?;
    Ok(1.0 - percentile(&outcome.at_host, 0.5) / percentile(&outcome.latencies, 0.5))
}

/// The same of 64-byte packets that come one by one.
fn share_at(run: &mut Run<'_>, rate: f64) -> Result<f64, Failure> {
    share_of(run, &Offered { bytes: SMALL, rate, together: 1, rings: RINGS })
}

/// Figure 3.
pub(super) fn shares(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let mut points = Vec::new();
    for bytes in [SMALL, 256, 512, 1024, LARGE] {
        let outcome = run.unloaded(Design::pcie(), bytes)?;
        let (whole, host) = (percentile(&outcome.latencies, 0.5), percentile(&outcome.at_host, 0.5));
        points.push((bytes as f64, 1.0 - host / whole, whole));
    }
    let share = |bytes: usize| points.iter().find(|point| point.0 == bytes as f64).map(|point| point.1);
    let mut findings = Findings::default();
    findings.number("cxl.fig3.share_64", "fraction", share(SMALL));
    findings.number("cxl.fig3.share_1500", "fraction", share(LARGE));
    let falls = share(SMALL).zip(share(LARGE)).map(|(small, large)| large < small);
    findings.holds("cxl.fig3.share_falls_with_size", falls);
    let shares = points.iter().map(|point| (point.0, point.1)).collect();
    let chart = lines(
        "What is not the host's",
        Axis::linear("Packet", "bytes"),
        Axis::linear("Part of the latency", ""),
        [("PCIe NIC", shares)],
    );
    findings.plot("fig3", chart);
    let mut by_rate = Vec::new();
    for rate in [1.0, 4.0, 16.0, 32.0, 64.0] {
        by_rate.push((rate, share_at(run, rate)?));
    }
    let (slowest, fastest) = (by_rate[0].1, by_rate[by_rate.len() - 1].1);
    findings.number("cxl.fig3.share_at_1gbps", "fraction", Some(slowest));
    findings.number("cxl.fig3.share_at_64gbps", "fraction", Some(fastest));
    findings.holds("cxl.fig3.share_falls_with_rate", Some(fastest < slowest));
    let mut in_bursts = Vec::new();
    for (bytes, together) in [(SMALL, TOGETHER), (LARGE, TOGETHER), (SMALL, TOGETHER / 4), (LARGE, TOGETHER / 4)] {
        in_bursts.push(share_of(run, &Offered { bytes, rate: 1.0, together, rings: 1 })?);
    }
    findings.list("cxl.unpublished.fig3_bursts", "fraction", Some(in_bursts));
    let chart = lines(
        "What is not the host's",
        Axis::log("Rate", "Gb/s"),
        Axis::linear("Part of the latency", ""),
        [("PCIe NIC, 64 bytes", by_rate)],
    );
    findings.plot("fig3-rate", chart);
    Ok(findings)
}

/// A NIC's median and 99th percentile.
type Latency = (f64, f64);

/// Those of the PCIe NIC, and of each combination of the CXL NIC.
type BySize = (Latency, Vec<Latency>);

/// Each combination's latency over the PCIe NIC's, packets of 64 bytes first.
fn drawn_combinations(title: &str, results: &[BySize], pick: fn(&Latency) -> f64) -> Chart {
    let bars = results.iter().zip([SMALL, LARGE]).flat_map(|((pcie, all), bytes)| {
        all.iter().enumerate().map(move |(number, one)| {
            let bar = Bar::new(format!("{bytes} bytes, combination {number}"), pick(one) / pick(pcie));
            if number == 0 { bar.highlight() } else { bar }
        })
    });
    Chart::bars(title, Axis::linear("Of the PCIe NIC's", ""), bars)
        .note("combination: 4 for a receive packet by CO-write, 2 for polling by CO-read, 1 for a transmit packet by CS-read")
        .guide(GuideKind::X(1.0), "PCIe NIC")
}

/// Figure 10.
pub(super) fn combinations(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let mut results: Vec<BySize> = Vec::new();
    for bytes in [SMALL, LARGE] {
        let pcie = run.tail(Design::pcie(), bytes)?;
        let all: Result<Vec<_>, _> = (0..8).map(|number| run.tail(Design::combination(number), bytes)).collect();
        results.push((pcie, all?));
    }
    let of = |pick: &dyn Fn(&BySize) -> f64| results.iter().map(pick).collect::<Vec<f64>>();
    let more = |number: usize, than: usize| of(&|(_, all)| all[number].0 / all[than].0 - 1.0);
    let mut findings = Findings::default();
    let median = of(&|(pcie, all)| less(all[0].0, pcie.0));
    let p99 = of(&|(pcie, all)| less(all[0].1, pcie.1));
    findings.number("cxl.fig10.median_64", "fraction", median.first().copied());
    findings.number("cxl.fig10.median_1500", "fraction", median.last().copied());
    findings.number("cxl.fig10.p99_64", "fraction", p99.first().copied());
    findings.number("cxl.fig10.p99_1500", "fraction", p99.last().copied());
    findings.list("cxl.fig10.comb1", "fraction", Some(more(1, 0)));
    findings.list("cxl.fig10.comb4", "fraction", Some(more(4, 0)));
    findings.list("cxl.fig10.comb2_over_1", "fraction", Some(more(2, 1)));
    let lowest = results.iter().all(|(_, all)| all.iter().all(|one| all[0].0 <= one.0 && all[0].1 <= one.1));
    findings.holds("cxl.fig10.comb0_lowest", Some(lowest));
    findings.holds("cxl.fig10.comb2_above_comb1", Some(more(2, 1).iter().all(|&penalty| penalty > 0.0)));
    findings.list(
        "cxl.unpublished.p99_spread",
        "fraction",
        Some(vec![p99_spread(run, SMALL)?, p99_spread(run, LARGE)?]),
    );
    let asleep = Design { interrupts: true, ..Design::combination(0) };
    findings.number("cxl.unpublished.loopback_64_interrupts", "ns", Some(run.latency(asleep, SMALL)?.0));
    findings.number("cxl.unpublished.loopback_64", "ns", results.first().map(|(_, all)| all[0].0));
    findings.number("cxl.unpublished.loopback_64_pcie", "ns", results.first().map(|(pcie, _)| pcie.0));
    findings.plot("fig10", drawn_combinations("Median latency by request types", &results, |latency| latency.0));
    let title = "99th percentile of the latency by request types";
    findings.plot("fig10-p99", drawn_combinations(title, &results, |latency| latency.1));
    Ok(findings)
}

/// By how much the 99th percentiles of combination 0 differ at most between runs whose packets come at other moments.
fn p99_spread(run: &mut Run<'_>, bytes: usize) -> Result<f64, Failure> {
    let p99 = |seed| Ok(percentile(&run.seeded(Design::combination(0), bytes, seed)?.latencies, 0.99));
    let all: Vec<f64> = (0..SEEDS).map(p99).collect::<Result<_, Failure>>()?;
    let (least, most) = all.iter().fold((f64::MAX, 0.0_f64), |(least, most), one| (least.min(*one), most.max(*one)));
    Ok(most / least - 1.0)
}

/// What the paper's throughput is a part of: a line a cycle at 400 MHz.
fn limit(run: &Run<'_>) -> f64 {
    let p = &run.machines.agilex.dcoh;
    8.0 * 64.0 * f64::from(p.ports) * 1_000.0 / p.cycle as f64
}

fn throughput(run: &mut Run<'_>, design: Design, batch: usize) -> Throughput {
    run.asked += 1;
    let packets = if run.asked_for.effort == Effort::Quick { 300 } else { 1_500 };
    let design = Design { receive_batch: batch, transmit_batch: batch, ..design };
    let packets = (around(&design, LARGE).max(packets / 2), packets);
    Throughput { machine: run.machine(&design), design, bytes: LARGE, packets }
}

/// The best over batch sizes.
fn best(
    run: &mut Run<'_>,
    design: Design,
    direction: fn(&Throughput) -> Result<Flow, Failure>,
) -> Result<f64, Failure> {
    let mut best: f64 = 0.0;
    for batch in [16, 24, 64, 128] {
        let question = throughput(run, design, batch);
        best = best.max(direction(&question)?.gigabits);
    }
    Ok(best)
}

/// Figure 11.
pub(super) fn throughputs(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let limit = limit(run);
    let with = |requests| Design { requests, ..Design::combination(0) };
    let mut rx = Vec::new();
    for hint in [StateHint::NonCacheable, StateHint::CacheableOwned, StateHint::NonCacheablePush] {
        rx.push(best(run, with(Requests { rx_packet: hint, ..Requests::EVENT_DRIVEN }), receive)? / limit);
    }
    let mut tx = Vec::new();
    for hint in [StateHint::NonCacheable, StateHint::CacheableOwned, StateHint::CacheableShared] {
        tx.push(best(run, with(Requests { tx_packet: hint, ..Requests::EVENT_DRIVEN }), transmit)? / limit);
    }
    let mut findings = Findings::default();
    findings.number("cxl.fig11.limit", "Gb/s", Some(limit));
    findings.list("cxl.fig11.rx", "fraction", Some(rx[..2].to_vec()));
    findings.list("cxl.fig11.tx", "fraction", Some(tx[..2].to_vec()));
    let two = Design { rings: 2, ..with(Requests::EVENT_DRIVEN) };
    let of_two = [best(run, two, receive)? / limit, best(run, two, transmit)? / limit];
    findings.holds("cxl.sec7.second_ring_gains_little", Some(of_two[0] < 1.1 * rx[0] && of_two[1] < 1.1 * tx[0]));
    findings.list("cxl.unpublished.two_rings", "fraction", Some(of_two.to_vec()));
    let over_pcie = vec![best(run, Design::pcie(), receive)?, best(run, Design::pcie(), transmit)?];
    findings.list("cxl.unpublished.pcie_throughput", "Gb/s", Some(over_pcie));
    findings.number("cxl.unpublished.rx_push", "fraction", Some(rx[2]));
    findings.number("cxl.unpublished.tx_cs_read", "fraction", Some(tx[2]));
    let names = ["receive by NC-write", "receive by CO-write", "receive by NC-P"];
    let names = names.into_iter().chain(["transmit by NC-read", "transmit by CO-read", "transmit by CS-read"]);
    let bars = names.zip(rx.into_iter().chain(tx)).map(|(name, value)| Bar::new(name, value));
    let chart = Chart::bars("Highest throughput by request types", Axis::linear("Of the limit", ""), bars)
        .guide(GuideKind::X(1.0), "a line a cycle");
    findings.plot("fig11", chart);
    Ok(findings)
}

/// Figure 12.
pub(super) fn batches(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let design = Design { requests: Requests::EVENT_DRIVEN, ..Design::combination(0) };
    let (rx_most, tx_most) = (best(run, design, receive)?, best(run, design, transmit)?);
    let (mut rx, mut tx) = (Vec::new(), Vec::new());
    for batch in [1, 2, 4, 8, 16, 24, 32] {
        let question = throughput(run, design, batch);
        if batch <= conic_interface::cxl::MOST_IN_A_BATCH {
            rx.push((batch as f64, receive(&question)?.gigabits / rx_most));
        }
        tx.push((batch as f64, transmit(&question)?.gigabits / tx_most));
    }
    let at = |points: &[(f64, f64)], batch: f64| points.iter().find(|point| point.0 == batch).map(|point| point.1);
    let wanted = [at(&rx, 8.0), at(&tx, 32.0), at(&tx, 1.0)];
    let mut findings = Findings::default();
    findings.list("cxl.fig12.batch", "fraction", wanted.into_iter().collect());
    let chart = lines(
        "Throughput",
        Axis::log("Batch", "packets"),
        Axis::linear("Of the highest", ""),
        [("receive", rx), ("transmit", tx)],
    );
    findings.plot("fig12", chart);
    Ok(findings)
}
