//! What the paper's figures and tables come out as.

use conic_chart::{Axis, Bar, Chart, Series};
use conic_interface::pio::Behaviour;
use conic_sim::eci::{Disturbances, EciParameters};
use conic_sim::parameters::TimerParameters;
use conic_sim::{Failure as SimFailure, Parameters};

use super::calling::Makes;
use super::exchange::{CONTROL_BYTES, Calls, CallsOutcome, calls};
use super::frames::{Around, Arrives, Frames, receive, transmit};
use super::over_pcie::{self, Coherent, FOUR, OverPcie, TICKING, TICKING_FRAMES, TICKING_UNIT, TWO};
use super::percentile;
use super::sockets::{Slots, slots};
use super::terms::decompositions;
use super::{streams, what_if::what_if};
use crate::experiment::{Across, Effort, Findings, Found, Named};
use crate::workload::Failure;

/// The machines that the experiments run on.
#[derive(Clone, Debug, PartialEq)]
pub struct Machines {
    /// Enzian.
    pub enzian: EciParameters,
    /// Enzian's CPU with the FPGA as a PCIe card.
    pub enzian_pcie: Parameters,
    /// The PC of the paper's calibration.
    pub pc_pcie: Parameters,
    /// Two sockets of Enzian's CPU.
    pub thunderx: Parameters,
    /// A machine of a coming generation: what if.
    pub cxl: EciParameters,
}

/// One experiment of this paper.
pub type Experiment = Named<fn(&mut Run<'_>) -> Result<Findings, Failure>>;

/// Every experiment, in the order of the paper.
pub const EXPERIMENTS: &[Experiment] = &[
    Named { name: "1", title: "Transfers by XDMA, on Enzian and on a PC", run: transfers },
    Named { name: "2", title: "Loads and stores over PCIe, on Enzian and on a PC", run: accesses },
    Named { name: "6", title: "One line there and back", run: one_line },
    Named { name: "7", title: "Invocation latency by size", run: latencies },
    Named { name: "8", title: "Invocation throughput by size", run: throughputs },
    Named { name: "10", title: "NIC latency by frame size", run: nic },
    Named { name: "table1", title: "NIC latency percentiles", run: table },
    Named { name: "terms", title: "What the latencies of one line consist of", run: decompositions },
    Named { name: "11", title: "31 filters on the device", run: filters },
    Named { name: "12", title: "Bloom filters on the device", run: bloom },
    Named { name: "cxl3-mem", title: "What if: CXL.mem 3.0 with back-invalidate", run: what_if },
];

/// What the experiments find on these machines.
pub fn findings(experiments: &[Experiment], machines: &Machines, effort: Effort) -> Vec<Found> {
    let found = |experiment: &Experiment| {
        let mut run = Run::new(machines, effort);
        let outcome = (experiment.run)(&mut run);
        experiment.found(outcome, run.asked)
    };
    experiments.iter().map(found).collect()
}

/// What an experiment is run with.
pub struct Run<'a> {
    pub(super) machines: &'a Machines,
    /// The one whose coherent lines are used.
    pub(super) machine: &'a EciParameters,
    effort: Effort,
    /// Runs so far.
    asked: usize,
}

impl<'a> Run<'a> {
    /// On Enzian.
    pub(super) fn new(machines: &'a Machines, effort: Effort) -> Run<'a> {
        Run { machines, machine: &machines.enzian, effort, asked: 0 }
    }

    fn rounds(&self) -> (u64, u64) {
        match self.effort {
            Effort::Quick => (4, 8),
            Effort::Full => (16, 64),
        }
    }

    pub(super) fn line(&self) -> usize {
        self.machine.cache.line_bytes as usize
    }

    /// What of some bytes of lines is payload.
    pub(super) fn payload(&self, bytes: usize) -> usize {
        if bytes < self.line() { bytes } else { bytes - CONTROL_BYTES }
    }

    /// Calls whose payload and control word fill so many bytes; less than a line is a payload in one line.
    pub(super) fn calls(&mut self, bytes: usize, exclusive: bool) -> Result<CallsOutcome, Failure> {
        calls(&self.invocation(bytes, exclusive)).map_err(failed)
    }

    /// What [`Run::calls`] asks.
    pub(super) fn invocation(&mut self, bytes: usize, exclusive: bool) -> Calls {
        self.asked += 1;
        let behaviour = Behaviour { exclusive, ..Behaviour::default() };
        Calls { behaviour, ..Calls::new(self.machine, self.payload(bytes), Makes::Inverted, self.rounds()) }
    }

    /// GiB a second of calls one after the other, both ways together.
    pub(super) fn throughput(&mut self, bytes: usize) -> Result<f64, Failure> {
        let payload = self.payload(bytes);
        Ok(self.calls(bytes, true)?.bytes_per_second(2 * payload) / f64::from(1 << 30))
    }

    /// FastForward's median, in nanoseconds.
    pub(super) fn slots(&mut self, at_sender: bool, ask_ahead: bool) -> Result<f64, Failure> {
        self.asked += 1;
        let machine = self.machines.thunderx.clone();
        // A queue's first lap is not the others: its slots were never emptied.
        let rounds = (64 + self.rounds().0, self.rounds().1);
        let outcome = slots(&Slots { machine, ask_ahead, at_sender, rounds }).map_err(failed)?;
        Ok(percentile(&outcome.latencies, 0.5))
    }

    /// Enzian's CPU with the card, and the PC.
    pub(super) fn over_pcie(&mut self) -> [OverPcie<'a>; 2] {
        self.asked += 1;
        let effort = self.effort;
        [&self.machines.enzian_pcie, &self.machines.pc_pcie].map(|machine| OverPcie { machine, effort })
    }

    pub(super) fn frames(&mut self, bytes: usize, prefetch: bool) -> Frames {
        self.asked += 1;
        Frames {
            machine: self.machine.on_nic_clock(),
            bytes,
            prefetch,
            exclusive: true,
            frames: self.rounds(),
            disturbances: Disturbances::default(),
            around: Around { clocks: true, timer: None, pauses: Some(1) },
        }
    }

    /// Percentiles of received, then of transmitted frames, in microseconds, where the kernel ticks or not.
    fn percentiles(
        &mut self,
        bytes: usize,
        timer: Option<TimerParameters>,
        parts: &[f64],
    ) -> Result<Vec<f64>, Failure> {
        let mut question = self.frames(bytes, false);
        if self.effort == Effort::Full {
            question.frames = if timer.is_some() { TICKING_FRAMES } else { (16, 400) };
        }
        question.around.timer = timer;
        let received = receive(&question, Arrives::Looped).map_err(failed)?;
        Ok(over_pcie::row(&received, &transmit(&question).map_err(failed)?, parts))
    }

    pub(super) fn receive(&mut self, bytes: usize, prefetch: bool) -> Result<Vec<u64>, Failure> {
        let frames = self.frames(bytes, prefetch);
        receive(&frames, Arrives::Looped).map_err(failed)
    }

    pub(super) fn transmit(&mut self, bytes: usize) -> Result<Vec<u64>, Failure> {
        let frames = self.frames(bytes, false);
        transmit(&frames).map_err(failed)
    }
}

pub(super) fn failed(failure: SimFailure) -> Failure {
    Failure(failure.to_string())
}

/// Figure 11.
fn filters(run: &mut Run<'_>) -> Result<Findings, Failure> {
    run.asked += 1;
    streams::filters(run.machines).map_err(|fault| Failure(fault.to_string()))
}

/// Figure 12.
fn bloom(run: &mut Run<'_>) -> Result<Findings, Failure> {
    run.asked += 1;
    streams::bloom(run.machines).map_err(|fault| Failure(fault.to_string()))
}

/// Figure 1.
fn transfers(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let [enzian, pc] = run.over_pcie();
    over_pcie::transfers(enzian, pc)
}

/// Figure 2.
fn accesses(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let [enzian, pc] = run.over_pcie();
    over_pcie::accesses(enzian, pc)
}

/// Figure 6.
fn one_line(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let exclusive = run.calls(run.line(), true)?.median_nanoseconds();
    let shared = run.calls(run.line(), false)?.median_nanoseconds();
    let mut findings = Findings::default();
    findings.number("pio.fig6.exclusive", "ns", Some(exclusive));
    findings.number("pio.fig6.shared", "ns", Some(shared));
    // The queue as it is: each direction in its sender's memory, nothing asked for ahead.
    let fastforward = run.slots(true, false)?;
    findings.number("pio.fig6.fastforward", "ns", Some(fastforward));
    findings.number("pio.beyond.fastforward_at_receiver", "ns", Some(run.slots(false, false)?));
    findings.number("pio.improved.fastforward_asking_ahead", "ns", Some(run.slots(true, true)?));
    let bars = [Bar::new("Exclusive", exclusive), Bar::new("Shared", shared), Bar::new("FastForward", fastforward)];
    let chart = Chart::bars("A line there and back", Axis::linear("Median latency", "ns"), bars);
    let plot = findings.plot("fig6", chart).reference("pio.fig6.exclusive", Across::X, "Exclusive");
    plot.reference("pio.fig6.shared", Across::X, "Shared").reference("pio.fig6.fastforward", Across::X, "FastForward");
    Ok(findings)
}

/// Payloads of an invocation.
pub(super) const SIZES: [usize; 11] = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];

/// Figure 7.
fn latencies(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let mut points = Vec::new();
    for bytes in SIZES.into_iter().filter(|bytes| *bytes <= 16384) {
        points.push((bytes as f64, run.calls(bytes, true)?.median_nanoseconds()));
    }
    let at = |bytes: f64| points.iter().find(|(size, _)| *size == bytes).map(|(_, time)| *time);
    let mut findings = Findings::default();
    let flat = at(256.0).zip(at(64.0)).map(|(two, one)| two < 1.1 * one);
    findings.holds("pio.fig7.eci_constant_to_256", flat);
    let slope = |low: f64, high: f64| Some((at(high)? - at(low)?) / (high - low));
    let linear = slope(1024.0, 4096.0).zip(slope(4096.0, 8192.0)).map(|(one, other)| (one / other - 1.0).abs() < 0.25);
    findings.holds("pio.fig7.eci_linear_beyond", linear);
    let [enzian, _] = run.over_pcie();
    let coherent = |bytes| Ok(run.calls(bytes, true)?.median_nanoseconds());
    let over_pcie = over_pcie::latencies(enzian, &points, coherent, &mut findings)?;
    let chart = Chart::xy("Invocation latency", Axis::log("Request and response", "bytes"), Axis::log("Median", "ns"))
        .note("Sizes are of the lines that a request fills, its control word among them.")
        .series(Series::line("coherent PIO", points));
    findings.plot("fig7", over_pcie.into_iter().fold(chart, Chart::series));
    Ok(findings)
}

/// Figure 8.
fn throughputs(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let mut points = Vec::new();
    for bytes in SIZES {
        points.push((bytes as f64, run.throughput(bytes)?));
    }
    let at = |bytes: f64| points.iter().find(|(size, _)| *size == bytes).map(|(_, rate)| *rate);
    let peak = points.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1));
    let mut findings = Findings::default();
    findings.list("pio.fig8.peak", "GiB/s, bytes", peak.map(|(bytes, rate)| vec![rate, bytes]));
    let rises = points.windows(2).filter(|pair| pair[1].0 <= 32768.0).all(|pair| pair[0].1 < pair[1].1);
    findings.holds("pio.fig8.eci_rises_to_32768", Some(rises));
    let drops = at(32768.0).zip(at(65536.0)).map(|(before, after)| after < before);
    findings.holds("pio.fig8.eci_drops_beyond", drops);
    let [enzian, _] = run.over_pcie();
    let over_pcie = over_pcie::throughputs(enzian, &points, &mut findings)?;
    let chart =
        Chart::xy("Invocation throughput", Axis::log("Request and response", "bytes"), Axis::linear("Data", "GiB/s"))
            .note("Requests and responses together, one core, back to back.")
            .series(Series::line("coherent PIO", points));
    findings.plot("fig8", over_pcie.into_iter().fold(chart, Chart::series));
    Ok(findings)
}

/// Figure 10, and a driver that prefetches beside the published one.
fn nic(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let (mut plain, mut prefetching, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for bytes in [64, 256, 1024, 1536, 4096, 8192, 9600] {
        let size = bytes as f64;
        plain.push((size, percentile(&run.receive(bytes, false)?, 0.5)));
        prefetching.push((size, percentile(&run.receive(bytes, true)?, 0.5)));
        out.push((size, percentile(&run.transmit(bytes)?, 0.5)));
    }
    let mut findings = Findings::default();
    let last = |points: &[(f64, f64)]| points.last().map(|point| point.1 / 1000.0);
    findings.number("pio.improved.prefetching_receive_9600", "us", last(&prefetching));
    let [enzian, _] = run.over_pcie();
    let eci = Coherent { receive: plain, transmit: out };
    let [received, sent] = over_pcie::nic(enzian, &eci, &mut findings)?;
    let chart = |title: &str| Chart::xy(title, Axis::log("Frame", "bytes"), Axis::log("Median", "ns"));
    let receive = chart("NIC receive latency")
        .note("Over the coherent lines, a frame's last beat comes when the CPU begins to ask for it, or later by what its lines after the first take to go out of the looped port.")
        .series(Series::line("coherent PIO", eci.receive))
        .series(Series::line("coherent PIO, prefetching driver (an improvement)", prefetching));
    findings.plot("fig10-receive", received.into_iter().fold(receive, Chart::series));
    let transmit = chart("NIC transmit latency").series(Series::line("coherent PIO", eci.transmit));
    findings.plot("fig10-transmit", sent.into_iter().fold(transmit, Chart::series));
    Ok(findings)
}

/// Table 1.
fn table(run: &mut Run<'_>) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    const SMALL: [&str; 8] = [
        "pio.table1.eci_64.receive_p50",
        "pio.table1.eci_64.receive_p95",
        "pio.table1.eci_64.receive_p99",
        "pio.table1.eci_64.receive_p100",
        "pio.table1.eci_64.transmit_p50",
        "pio.table1.eci_64.transmit_p95",
        "pio.table1.eci_64.transmit_p99",
        "pio.table1.eci_64.transmit_p100",
    ];
    let small = run.percentiles(64, None, FOUR)?;
    // Read as: less than a tenth above the median.
    findings.holds("pio.table1.eci_no_tail", Some(small[2] < 1.1 * small[0] && small[6] < 1.1 * small[4]));
    for (id, value) in SMALL.into_iter().zip(small) {
        findings.number(id, "us", Some(value));
    }
    findings.list("pio.table1.eci_1536", "us", Some(run.percentiles(1536, None, TWO)?));
    findings.list("pio.table1.eci_9600", "us", Some(run.percentiles(9600, None, TWO)?));
    let [enzian, _] = run.over_pcie();
    over_pcie::table(enzian, &mut findings)?;
    let ticking = run.percentiles(64, run.machines.enzian_pcie.timer.clone(), TICKING)?;
    findings.list("pio.beyond.ticking_eci_64", TICKING_UNIT, Some(ticking));
    Ok(findings)
}
