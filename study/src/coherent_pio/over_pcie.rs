//! What the figures and tables come out as over PCIe, beside the coherent lines.

use conic_chart::{Axis, Chart, Series};
use conic_fabric::Time;
use conic_interface::xdma::Completion;
use conic_sim::Parameters;

use super::calling::Makes;
use super::exchange::CONTROL_BYTES;
use super::pcie::Transport;
use super::pcie::calls::{Calls, CallsOutcome, calls};
use super::pcie::frames::{Frames, FramesOutcome, frames};
use super::percentile;
use crate::experiment::{Effort, Findings};
use crate::workload::Failure;

/// Points of a curve: bytes, and a time or a rate.
pub(super) type Curve = Vec<(f64, f64)>;

/// DMA whose driver polls.
pub(super) const POLLED: Transport = Transport::Dma(Completion::Polled);
const INTERRUPT: Transport = Transport::Dma(Completion::Interrupt);

/// A host with a card, and with how much effort it is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverPcie<'a> {
    pub(super) machine: &'a Parameters,
    pub(super) effort: Effort,
}

/// What a curve is at some bytes.
pub(super) fn at(curve: &[(f64, f64)], bytes: usize) -> Option<f64> {
    curve.iter().find(|(size, _)| *size == bytes as f64).map(|(_, value)| *value)
}

/// Whether one curve is below another wherever both have a point that `of` takes.
pub(super) fn below(one: &[(f64, f64)], other: &[(f64, f64)], of: impl Fn(f64) -> bool) -> Option<bool> {
    let both = |&(bytes, value): &(f64, f64)| Some((value, at(other, bytes as usize)?));
    let pairs: Vec<(f64, f64)> = one.iter().filter(|(bytes, _)| of(*bytes)).filter_map(both).collect();
    (!pairs.is_empty()).then(|| pairs.iter().all(|(one, other)| one < other))
}

/// Up to how many bytes one curve is below another that it starts below: between two points on straight lines over the bytes.
pub(super) fn crosses(one: &[(f64, f64)], other: &[(f64, f64)]) -> Option<f64> {
    let gap = |&(bytes, value): &(f64, f64)| Some((bytes, at(other, bytes as usize)? - value));
    let gaps: Vec<(f64, f64)> = one.iter().filter_map(gap).collect();
    let pair = gaps.windows(2).find(|pair| pair[0].1 > 0.0 && pair[1].1 <= 0.0)?;
    let ((low, before), (high, after)) = (pair[0], pair[1]);
    Some(low + (high - low) * before / (before - after))
}

impl OverPcie<'_> {
    /// Calls of so many bytes each way, whose cold lines and refreshes many calls spread.
    fn ask(&self, transport: Transport, bytes: usize) -> Result<CallsOutcome, Failure> {
        let calls_ = match (self.effort, transport) {
            (Effort::Quick, _) => (1, 4),
            (Effort::Full, Transport::Pio) => (2, 8),
            (Effort::Full, Transport::Dma(_)) => (4, 40),
        };
        let payload = match transport {
            Transport::Pio => bytes - CONTROL_BYTES,
            Transport::Dma(_) => bytes,
        };
        let (machine, makes, service) = (self.machine.clone(), Makes::Inverted, Time::ZERO);
        let question = Calls { machine, transport, request: payload, response: payload, makes, service, calls: calls_ };
        calls(&question).map_err(|failure| Failure(failure.to_string()))
    }

    /// Median latency of a call in nanoseconds, by bytes.
    pub(super) fn latency(&self, transport: Transport, sizes: &[usize]) -> Result<Curve, Failure> {
        let point = |&bytes: &usize| Ok((bytes as f64, self.ask(transport, bytes)?.median_nanoseconds()));
        sizes.iter().map(point).collect()
    }

    /// GiB a second of calls one after the other, both ways together, by bytes.
    pub(super) fn throughput(&self, transport: Transport, sizes: &[usize]) -> Result<Curve, Failure> {
        let point = |&bytes: &usize| {
            let outcome = self.ask(transport, bytes)?;
            let moved = 2.0 * bytes as f64 * outcome.latencies.len() as f64;
            Ok((bytes as f64, moved / outcome.elapsed.seconds() / f64::from(1 << 30)))
        };
        sizes.iter().map(point).collect()
    }

    /// Frames of so many bytes through the looped port.
    pub(super) fn frames(&self, transport: Transport, bytes: usize) -> Result<FramesOutcome, Failure> {
        self.so_many_frames(transport, bytes, (4, 400))
    }

    /// The same with so many of them, where there is effort.
    fn so_many_frames(&self, transport: Transport, bytes: usize, many: (u64, u64)) -> Result<FramesOutcome, Failure> {
        let count = match self.effort {
            Effort::Quick => (2, 30),
            Effort::Full => many,
        };
        let question = Frames { machine: self.machine.clone(), transport, bytes, frames: count, seed: 1 };
        frames(&question).map_err(|failure| Failure(failure.to_string()))
    }

    /// Median latency of received frames of so many bytes, in microseconds.
    pub(super) fn received(&self, transport: Transport, bytes: usize) -> Result<f64, Failure> {
        Ok(percentile(&self.frames(transport, bytes)?.receive, 0.5) / 1000.0)
    }

    /// Median latency of received and of transmitted frames in nanoseconds, by bytes.
    pub(super) fn directions(&self, transport: Transport, sizes: &[usize]) -> Result<[Curve; 2], Failure> {
        let mut both = [Vec::new(), Vec::new()];
        for &bytes in sizes {
            let outcome = self.frames(transport, bytes)?;
            for (curve, times) in both.iter_mut().zip([&outcome.receive, &outcome.transmit]) {
                curve.push((bytes as f64, percentile(times, 0.5)));
            }
        }
        Ok(both)
    }
}

/// By how much calls of so many bytes take longer on the first host than on the second.
pub(super) fn apart(hosts: [OverPcie<'_>; 2], transport: Transport, bytes: usize) -> Result<Option<f64>, Failure> {
    let [slow, fast] = hosts.map(|host| host.latency(transport, &[bytes]));
    Ok(at(&slow?, bytes).zip(at(&fast?, bytes)).map(|(slow, fast)| slow / fast))
}

/// Bytes of the calibration's transfers.
const TRANSFERS: [usize; 9] = [64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536];

/// Figure 1: the device's copy engines on Enzian and on the PC.
pub(super) fn transfers(enzian: OverPcie<'_>, pc: OverPcie<'_>) -> Result<Findings, Failure> {
    let [slow, fast] = [enzian, pc].map(|host| host.latency(POLLED, &TRANSFERS));
    let [slow_late, fast_late] = [enzian, pc].map(|host| host.latency(INTERRUPT, &TRANSFERS));
    let (slow, fast, slow_late, fast_late) = (slow?, fast?, slow_late?, fast_late?);
    let mut findings = Findings::default();
    let ratio = |one: &Curve, other: &Curve, bytes| Some(at(one, bytes)? / at(other, bytes)?);
    findings.number("pio.fig1.enzian_over_pc", "ratio", ratio(&slow, &fast, 64));
    let step = |curve: &Curve, low: usize, high: usize| Some(at(curve, high)? / at(curve, low)?);
    let flat = step(&slow, 64, 4096).zip(step(&fast, 64, 4096)).map(|(one, other)| one.max(other) < 1.1);
    findings.holds("pio.fig1.constant_to_4096", flat);
    let grows = step(&slow, 4096, 65536).zip(step(&fast, 4096, 65536)).map(|(one, other)| one.min(other) > 1.2);
    findings.holds("pio.fig1.increases_beyond", grows);
    let late = ratio(&slow_late, &slow, 64).zip(ratio(&fast_late, &fast, 64));
    let small =
        late.zip(ratio(&slow, &fast, 64)).map(|((one, other), apart)| one.max(other) - 1.0 < (apart - 1.0) / 4.0);
    findings.holds("pio.fig1.polling_matters_less", small);
    let chart = Chart::xy("Transfers there and back by XDMA", Axis::log("Bytes", ""), Axis::log("Median", "ns"))
        .series(Series::line("Enzian, interrupt", slow_late))
        .series(Series::line("Enzian, polled", slow))
        .series(Series::line("PC, interrupt", fast_late))
        .series(Series::line("PC, polled", fast));
    findings.plot("fig1", chart);
    Ok(findings)
}

/// Bytes of the calibration's calls by loads and stores, control word among them.
const ACCESSES: [usize; 9] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// Figure 2: loads and stores on Enzian and on the PC.
pub(super) fn accesses(enzian: OverPcie<'_>, pc: OverPcie<'_>) -> Result<Findings, Failure> {
    let (slow, fast) = (enzian.latency(Transport::Pio, &ACCESSES)?, pc.latency(Transport::Pio, &ACCESSES)?);
    let mut findings = Findings::default();
    let ratios: Vec<f64> = slow.iter().zip(&fast).filter(|(one, _)| one.0 > 32.0).map(|(a, b)| a.1 / b.1).collect();
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    findings.number("pio.fig2.enzian_over_pc", "ratio", Some(mean));
    let chart = Chart::xy("Calls by loads and stores over PCIe", Axis::log("Bytes", ""), Axis::log("Median", "ns"))
        .note("Bytes are those of the request and of the response, the control word among them.")
        .series(Series::line("Enzian", slow))
        .series(Series::line("PC", fast));
    findings.plot("fig2", chart);
    Ok(findings)
}

/// Below how many bytes calls by loads and stores are looked at closely.
const SMALL: [usize; 6] = [16, 32, 48, 64, 96, 128];

/// Figure 7 over PCIe, beside the coherent lines: their latency in nanoseconds at [`super::figures::SIZES`], and at small ones.
pub(super) fn latencies(
    host: OverPcie<'_>,
    coherent: &[(f64, f64)],
    mut coherent_of: impl FnMut(usize) -> Result<f64, Failure>,
    findings: &mut Findings,
) -> Result<Vec<Series>, Failure> {
    let sizes: Vec<usize> = coherent.iter().map(|(bytes, _)| *bytes as usize).collect();
    let (loads, polled) = (host.latency(Transport::Pio, &sizes)?, host.latency(POLLED, &sizes)?);
    let late = host.latency(INTERRUPT, &sizes)?;
    let flat = at(&polled, 64).zip(at(&polled, 8192)).map(|(small, large)| large < 1.25 * small);
    findings.holds("pio.fig7.dma_flat_to_8192", flat);
    let lowest = [&loads, &polled, &late].map(|curve| below(coherent, curve, |bytes| bytes <= 8192.0));
    findings.holds(
        "pio.fig7.eci_lowest",
        lowest.into_iter().collect::<Option<Vec<_>>>().map(|all| all.iter().all(|one| *one)),
    );
    let small = host.latency(Transport::Pio, &SMALL)?;
    let mut best = None;
    for (bytes, time) in small {
        if time <= coherent_of(bytes as usize)? {
            best = Some(bytes);
        }
    }
    findings.number("pio.fig7.pcie_not_worse_than_eci_to", "bytes", best);
    findings.number("pio.fig7.pcie_below_dma_to", "bytes", crosses(&loads, &polled));
    Ok(vec![
        Series::line("PIO over PCIe", loads),
        Series::line("DMA, polled", polled),
        Series::line("DMA, interrupt", late),
    ])
}

/// Figure 8 over PCIe, beside the coherent lines' GiB a second.
pub(super) fn throughputs(
    host: OverPcie<'_>,
    coherent: &[(f64, f64)],
    findings: &mut Findings,
) -> Result<Vec<Series>, Failure> {
    let sizes: Vec<usize> = coherent.iter().map(|(bytes, _)| *bytes as usize).collect();
    let polled = host.throughput(POLLED, &sizes)?;
    findings.holds("pio.fig8.eci_above_dma", below(&polled, coherent, |_| true));
    // Both directions of the link together, after its own overheads; "far" is read as less than half of it.
    let link = host.machine.pcie.as_ref().map(|pcie| 2.0 * pcie.megabits_per_second as f64 * 1e6 / 8.0);
    let far = at(&polled, 65536).zip(link).map(|(rate, link)| rate * f64::from(1 << 30) < link / 2.0);
    findings.holds("pio.fig8.dma_far_from_saturated", far);
    Ok(vec![Series::line("DMA, polled", polled)])
}

/// A NIC's latencies over the coherent lines, in nanoseconds by bytes.
pub(super) struct Coherent {
    pub(super) receive: Curve,
    pub(super) transmit: Curve,
}

/// Figure 10 over PCIe, beside the coherent lines: series of received and of transmitted frames.
pub(super) fn nic(host: OverPcie<'_>, eci: &Coherent, findings: &mut Findings) -> Result<[Vec<Series>; 2], Failure> {
    let sizes: Vec<usize> = eci.receive.iter().map(|(bytes, _)| *bytes as usize).collect();
    let [loads_in, stores_out] = host.directions(Transport::Pio, &sizes)?;
    let [dma_in, dma_out] = host.directions(POLLED, &sizes)?;
    let [late_in, late_out] = host.directions(INTERRUPT, &sizes)?;
    let last = sizes.last().copied().unwrap_or_default();
    let flat = at(&dma_in, 64).zip(at(&dma_in, last)).map(|(small, large)| large < 1.25 * small);
    findings.holds("pio.fig10.receive_dma_stable", flat);
    let both = |one: Option<bool>, other: Option<bool>| one.zip(other).map(|(one, other)| one && other);
    let small = |bytes: f64| bytes <= 1024.0;
    let low = both(below(&loads_in, &dma_in, small), below(&eci.receive, &dma_in, small));
    findings.holds("pio.fig10.receive_pio_below_dma_to_1024", low);
    let lowest = both(below(&eci.receive, &loads_in, |_| true), below(&eci.receive, &dma_in, |_| true));
    findings.holds("pio.fig10.receive_eci_lowest", lowest);
    findings.number("pio.beyond.receive_pcie_below_dma_to", "bytes", crosses(&loads_in, &dma_in));
    findings.number("pio.beyond.receive_pcie_8192", "us", at(&loads_in, 8192).map(|time| time / 1000.0));
    let shares: Curve = stores_out.iter().zip(&eci.transmit).map(|(pcie, eci)| (pcie.0, pcie.1 / eci.1)).collect();
    // Small frames are the next statement's.
    let mut longer = shares.iter().filter(|(bytes, _)| !small(*bytes)).map(|(_, share)| *share);
    findings.holds("pio.fig10.transmit_pcie_competes", Some(longer.all(|share| (0.5..2.0).contains(&share))));
    findings.holds("pio.fig10.transmit_eci_higher_for_small", below(&stores_out, &eci.transmit, small));
    let unit = "ratio: 64, 256, 1024, 1536, 4096, 8192, 9600 bytes";
    findings.list("pio.beyond.fig10_transmit_pcie_over_eci", unit, Some(shares.iter().map(|one| one.1).collect()));
    let below_dma = both(below(&stores_out, &dma_out, |_| true), below(&eci.transmit, &dma_out, |_| true));
    findings.holds("pio.fig10.transmit_pio_below_dma", below_dma);
    let series = |loads, dma, late| {
        vec![
            Series::line("PIO over PCIe", loads),
            Series::line("DMA, polled", dma),
            Series::line("DMA, interrupt", late),
        ]
    };
    Ok([series(loads_in, dma_in, late_in), series(stores_out, dma_out, late_out)])
}

/// Medians and 99th percentiles: what a row of frames that are not small is.
pub(super) const TWO: &[f64] = &[0.5, 0.99];
/// With the 95th, and the largest: what the rows of the smallest frames are.
pub(super) const FOUR: &[f64] = &[0.5, 0.95, 0.99, 1.0];
/// What is said of frames on a kernel that ticks. The ticks are few, and what one costs is seen in the largest.
pub(super) const TICKING: &[f64] = &[0.5, 0.99, 1.0];
/// The unit of those, received frames before transmitted ones.
pub(super) const TICKING_UNIT: &str = "us: receive p50, p99, largest, transmit p50, p99, largest";
/// Frames before the first that counts, and those that count, for ten ticks of 250 Hz at the least: a pause between two frames is
/// 5 us, and two frames by DMA take some 75.
pub(super) const TICKING_FRAMES: (u64, u64) = (16, 8_200);
const TICKING_FRAMES_BY_DMA: (u64, u64) = (4, 600);

/// Percentiles of received, then of transmitted frames, in microseconds.
pub(super) fn row(received: &[u64], transmitted: &[u64], parts: &[f64]) -> Vec<f64> {
    let both = [received, transmitted].into_iter();
    both.flat_map(|times| parts.iter().map(|part| percentile(times, *part) / 1000.0)).collect()
}

/// Ids of the 64-byte rows, in the order of [`row`] with [`FOUR`].
const SMALL_ROWS: [(Transport, [&str; 8]); 2] = [
    (
        POLLED,
        [
            "pio.table1.dma_64.receive_p50",
            "pio.table1.dma_64.receive_p95",
            "pio.table1.dma_64.receive_p99",
            "pio.table1.dma_64.receive_p100",
            "pio.table1.dma_64.transmit_p50",
            "pio.table1.dma_64.transmit_p95",
            "pio.table1.dma_64.transmit_p99",
            "pio.table1.dma_64.transmit_p100",
        ],
    ),
    (
        Transport::Pio,
        [
            "pio.table1.pcie_64.receive_p50",
            "pio.table1.pcie_64.receive_p95",
            "pio.table1.pcie_64.receive_p99",
            "pio.table1.pcie_64.receive_p100",
            "pio.table1.pcie_64.transmit_p50",
            "pio.table1.pcie_64.transmit_p95",
            "pio.table1.pcie_64.transmit_p99",
            "pio.table1.pcie_64.transmit_p100",
        ],
    ),
];

/// Table 1 over PCIe, on a tickless kernel; and what its first rows are where the kernel ticks.
pub(super) fn table(ticking: OverPcie<'_>, findings: &mut Findings) -> Result<(), Failure> {
    let of = |outcome: &FramesOutcome| row(&outcome.receive, &outcome.transmit, TWO);
    let tickless = Parameters { timer: None, ..ticking.machine.clone() };
    let host = OverPcie { machine: &tickless, ..ticking };
    for (id, transport, many) in [
        ("pio.beyond.ticking_dma_64", POLLED, TICKING_FRAMES_BY_DMA),
        ("pio.beyond.ticking_pcie_64", Transport::Pio, TICKING_FRAMES),
    ] {
        let outcome = ticking.so_many_frames(transport, 64, many)?;
        findings.list(id, TICKING_UNIT, Some(row(&outcome.receive, &outcome.transmit, TICKING)));
    }
    let mut tails = Vec::new();
    for (transport, ids) in SMALL_ROWS {
        let outcome = host.frames(transport, 64)?;
        let values = row(&outcome.receive, &outcome.transmit, FOUR);
        tails.push(values[2] - values[0]);
        for (id, value) in ids.into_iter().zip(values) {
            findings.number(id, "us", Some(value));
        }
    }
    findings.holds("pio.table1.pcie_tail_below_dma", Some(tails[1] < tails[0]));
    for (transport, bytes, id) in [
        (POLLED, 1536, "pio.table1.dma_1536"),
        (POLLED, 9600, "pio.table1.dma_9600"),
        (Transport::Pio, 1536, "pio.table1.pcie_1536"),
        (Transport::Pio, 9600, "pio.table1.pcie_9600"),
    ] {
        findings.list(id, "us", Some(of(&host.frames(transport, bytes)?)));
    }
    Ok(())
}
