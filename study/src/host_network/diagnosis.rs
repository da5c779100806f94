//! Which domain holds a host back, from its counters: the regime, each domain's credits and latency, what the latency is made of, who suffers, what to do.
//!
//! | regime | by what it is told |
//! |---|---|
//! | idle | no domain has used up its credits, and reads are about as fast as unloaded |
//! | not memory | cores have used up their credits, and reads are about as fast as unloaded: they ask for no more than their buffers allow |
//! | blue | cores have used up their credits and reads are slower than unloaded, or have not and reads wait for more than the rows that they open: loads that wait for each other; devices have credits to spare and write queues are not full |
//! | onset of red | write queues are full for much of the time, and devices still have credits to spare |
//! | red | write queues are full and devices have used up their credits |
//!
//! Bandwidth alone tells none of these apart, nor does the I/O controller's occupancy alone: queues, credits and latency are looked at together. What
//! was published of a host is not read here: unloaded latencies and limits are the platform's.

use conic_sim::host::HostParameters;
use serde::Serialize;

use super::counters::{Counters, QUEUES};
use super::formula::{Form, Inputs, Parts, Timing, throughput};

/// Credits in use, as a part of all, from which on they count as used up: between two of a line fill buffer's lines it is free for a moment.
const USED_UP: f64 = 0.9;
/// Latency over unloaded from which on it counts as inflated.
const INFLATED: f64 = 1.1;
/// Part of the time for which a write queue is full: from here on it holds devices back now and then, and nearly always.
const SOMETIMES_FULL: f64 = 0.5;
/// What of the channels' rate traffic can use: refreshes, rows, changes of direction.
const USABLE: f64 = 0.85;
/// How much more lines the home agent may have seen than the controllers, or less, before counters cannot belong together.
const MISMATCH: f64 = 0.25;

/// What the host is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Regime {
    /// There is little to do.
    Idle,
    /// What limits it is not the way to memory.
    NotMemory,
    /// Cores are slowed, devices are not.
    Blue,
    /// Devices are about to be.
    OnsetOfRed,
    /// Both are.
    Red,
}

impl Regime {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Regime::Idle => "idle",
            Regime::NotMemory => "not memory",
            Regime::Blue => "blue",
            Regime::OnsetOfRed => "onset of red",
            Regime::Red => "red",
        }
    }
}

/// A domain as the counters show it. Latencies are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DomainView {
    /// Its name in the paper.
    pub name: &'static str,
    /// Credits in use on average, and how many there are.
    pub credits: [f64; 2],
    /// Lines that memory moves for each credit that is taken: of cores, one and the part that is written back.
    pub lines: f64,
    /// Mean time for which one is taken.
    pub latency_ns: f64,
    /// The same without load.
    pub unloaded_ns: f64,
    /// What the formula makes of the difference.
    pub parts: Parts,
    /// What it waits for admission to the home agent, where that was counted.
    pub admission_ns: Option<f64>,
    /// The difference that neither explains.
    pub unexplained_ns: f64,
    /// Throughput in GB/s.
    pub gb_s: f64,
    /// What its credits allow at this latency.
    pub limit_gb_s: f64,
}

impl DomainView {
    /// Part of the credits that is in use.
    pub fn used(&self) -> f64 {
        self.credits[0] / self.credits[1]
    }

    /// Latency over unloaded.
    pub fn inflation(&self) -> f64 {
        self.latency_ns / self.unloaded_ns
    }

    fn is_used_up(&self) -> bool {
        self.used() >= USED_UP
    }

    fn is_of_cores(&self) -> bool {
        self.name.starts_with("C2M")
    }

    /// Whether it is slower than its own rows make it: random lines have to open theirs, whoever else is there.
    fn waits_for_others(&self) -> bool {
        self.latency_ns >= INFLATED * (self.unloaded_ns + self.parts.top_of_queue)
    }
}

/// A diagnosis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The machine.
    pub platform: String,
    /// What it is in.
    pub regime: Regime,
    /// What says so.
    pub evidence: Vec<String>,
    /// The domain whose credits are used up and whose latency is inflated most; where none is, that of cores whose loads wait for each other.
    pub bottleneck: Option<&'static str>,
    /// The domains that were counted.
    pub domains: Vec<DomainView>,
    /// Memory's traffic in GB/s, and what its channels move at most.
    pub memory_gb_s: [f64; 2],
    /// Part of the time for which write queues are full.
    pub write_queue_full: f64,
    /// Activations for each line read.
    pub row_misses: Option<f64>,
    /// By how much cores are slowed, between what of it is sure to be others' traffic and all that is above unloaded; measured where alone is known.
    pub core_slowdown: Option<[f64; 2]>,
    /// The same of devices.
    pub device_slowdown: Option<[f64; 2]>,
    /// GB/s that devices could still add in the direction whose credits they use most, by these, their link and memory.
    pub device_headroom_gb_s: Option<f64>,
    /// GB/s that memory could still take.
    pub memory_headroom_gb_s: f64,
    /// What to do.
    pub advice: Vec<String>,
    /// Counters that are missing, with what counts them, or that cannot be right.
    pub warnings: Vec<String>,
}

/// Diagnoses a host of this platform.
pub fn diagnose(host: &HostParameters, counters: &Counters) -> Diagnosis {
    let channels = f64::from(host.controller.channels);
    let inputs = counters.inputs(channels);
    let domains = domains(host, counters, &inputs);
    let lines = counters.memory.lines_read + counters.memory.lines_written;
    let memory_gb_s = [lines * 64.0 / counters.seconds / 1e9, host.memory_bytes_per_second() / 1e9];
    let (regime, evidence) = regime(&domains, &inputs, memory_gb_s);
    let held_back = |view: &&DomainView| view.is_used_up() && view.inflation() >= INFLATED;
    let worst = |one: &&DomainView, other: &&DomainView| one.inflation().total_cmp(&other.inflation());
    // Loads that wait for each other leave credits unused, and are slowed by all that slows their domain.
    let waits = |view: &&DomainView| regime == Regime::Blue && view.is_of_cores();
    let bottleneck = domains.iter().filter(held_back).max_by(worst).or_else(|| domains.iter().find(waits));
    let memory_headroom_gb_s = (USABLE * memory_gb_s[1] - memory_gb_s[0]).max(0.0);
    let find = |names: [&str; 2]| domains.iter().find(|view| names.contains(&view.name));
    let of_devices = domains.iter().filter(|view| !view.is_of_cores());
    let devices = of_devices.clone().max_by(|one, other| one.used().total_cmp(&other.used()));
    // What devices get alone is that of both directions together.
    let of_devices_gb_s = devices.is_some().then(|| of_devices.map(|view| view.gb_s).sum::<f64>());
    let link = |view: &DomainView| match view.name {
        "P2M-Read" => host.device.read_megabits_per_second as f64 / 8e3,
        _ => host.device.write_megabits_per_second as f64 / 8e3,
    };
    let headroom = |view: &DomainView| (view.limit_gb_s.min(link(view)) - view.gb_s).max(0.0).min(memory_headroom_gb_s);
    let core_gb_s = find(["C2M-Read", "C2M-ReadWrite"]).map(|view| view.gb_s);
    let mut diagnosis = Diagnosis {
        platform: host.name.clone(),
        regime,
        evidence,
        bottleneck: bottleneck.map(|view| view.name),
        memory_gb_s,
        write_queue_full: inputs.write_queue_full,
        row_misses: (inputs.lines[0] > 0.0).then(|| inputs.activations[0] / inputs.lines[0]),
        core_slowdown: slowdown(find(["C2M-Read", "C2M-ReadWrite"]), counters.c2m_alone_gb_s, core_gb_s),
        device_slowdown: slowdown(devices, counters.p2m_alone_gb_s, of_devices_gb_s),
        device_headroom_gb_s: devices.map(headroom),
        memory_headroom_gb_s,
        advice: Vec::new(),
        warnings: warnings(counters, &inputs, channels),
        domains,
    };
    diagnosis.advice = advice(&diagnosis);
    diagnosis
}

/// The domains that were counted.
fn domains(host: &HostParameters, counters: &Counters, inputs: &Inputs) -> Vec<DomainView> {
    let timing = Timing::of(host);
    let nanoseconds = |picoseconds: u64| picoseconds as f64 / 1000.0;
    let reads = inputs.read(&timing, Form::Coded);
    // Lines written back for each that is read: between none and all, on a machine that does other things as well.
    let inserts = |queue| counters.queue(queue).map_or(0.0, |queue| queue.inserts);
    let (reads_of_cores, writes_of_cores) = (inserts("c2m_read"), inserts("c2m_write"));
    let written = match writes_of_cores > 0.0 {
        true => (writes_of_cores / reads_of_cores).min(1.0),
        false => 0.0,
    };
    let name = if written >= 0.5 { "C2M-ReadWrite" } else { "C2M-Read" };
    let [read, read_write] = [host.formula.core_read, host.formula.core_read_write].map(nanoseconds);
    let core = read + written * (read_write - read);
    let buffers = f64::from(host.core.line_fill_buffers) * counters.cores;
    let (iio, formula) = (&host.iio, &host.formula);
    let of = [
        ("lfb", name, buffers, core, reads, "c2m_admission", 1.0 + written),
        (
            "iio_read",
            "P2M-Read",
            iio.read_credits.into(),
            nanoseconds(formula.device_read),
            reads,
            "p2m_admission",
            1.0,
        ),
        (
            "iio_write",
            "P2M-Write",
            iio.write_credits.into(),
            nanoseconds(formula.device_write),
            inputs.write(&timing, Form::Coded),
            "p2m_admission",
            1.0,
        ),
    ];
    let view = |(queue, name, limit, unloaded_ns, parts, admission, lines): (_, _, f64, f64, Parts, _, f64)| {
        let queue = counters.queue(queue)?;
        let latency_ns = queue.latency(counters.seconds)?;
        let admission_ns = counters.queue(admission).and_then(|queue| queue.latency(counters.seconds));
        Some(DomainView {
            name,
            credits: [queue.mean(), limit],
            lines,
            latency_ns,
            unloaded_ns,
            parts,
            admission_ns,
            unexplained_ns: latency_ns - unloaded_ns - parts.sum() - lines * admission_ns.unwrap_or(0.0),
            gb_s: lines * throughput(queue.mean(), latency_ns) / 1e9,
            limit_gb_s: lines * throughput(limit, latency_ns) / 1e9,
        })
    };
    of.into_iter().filter_map(view).collect()
}

/// What the host is in, and what says so.
fn regime(domains: &[DomainView], inputs: &Inputs, memory: [f64; 2]) -> (Regime, Vec<String>) {
    let full = inputs.write_queue_full;
    // Devices read and write in domains of their own: one of them is enough.
    let any =
        |core: bool, is: fn(&DomainView) -> bool| domains.iter().any(|view| view.is_of_cores() == core && is(view));
    let held_back = |view: &DomainView| view.is_used_up() && view.inflation() >= INFLATED;
    let regime = match [true, false].map(|core| any(core, DomainView::is_used_up)) {
        _ if any(false, held_back) && full >= SOMETIMES_FULL => Regime::Red,
        _ if full >= SOMETIMES_FULL => Regime::OnsetOfRed,
        _ if any(true, held_back) => Regime::Blue,
        [true, _] | [_, true] => Regime::NotMemory,
        _ if any(true, DomainView::waits_for_others) => Regime::Blue,
        _ => Regime::Idle,
    };
    let mut evidence = vec![format!("write queues are full for {:.0}% of the time", 100.0 * full)];
    for view in domains {
        evidence.push(format!(
            "{}: {:.0} of {:.0} credits in use, {:.0} ns instead of {:.0} unloaded",
            view.name, view.credits[0], view.credits[1], view.latency_ns, view.unloaded_ns
        ));
    }
    evidence.push(format!(
        "memory moves {:.1} of {:.1} GB/s, which alone says nothing of the regime",
        memory[0], memory[1]
    ));
    (regime, evidence)
}

/// By how much somebody is slowed: measured where alone is known; else from what others' traffic adds to the latency to all that is above unloaded.
fn slowdown(view: Option<&DomainView>, alone: Option<f64>, now: Option<f64>) -> Option<[f64; 2]> {
    if let (Some(alone), Some(now)) = (alone, now) {
        return Some([alone / now; 2]);
    }
    let view = view?;
    let others = view.parts.other_direction + view.parts.switching;
    let without = (view.latency_ns - others).max(view.unloaded_ns);
    // Devices that have credits to spare send as much as without load; cores that have may wait for each of their loads, or for none.
    let part = |latency: f64| (view.latency_ns / latency).max(1.0);
    Some(match (view.is_used_up(), view.is_of_cores()) {
        (true, _) => [part(without), part(view.unloaded_ns)],
        (false, true) => [1.0, part(view.unloaded_ns)],
        (false, false) => [1.0, 1.0],
    })
}

/// What to do, the most useful first.
fn advice(diagnosis: &Diagnosis) -> Vec<String> {
    let mut advice = Vec::new();
    let mut say = |text: &str| advice.push(text.to_owned());
    match diagnosis.regime {
        Regime::Idle => say("nothing: each domain has credits to spare, and memory is as fast as unloaded"),
        Regime::NotMemory => say(
            "look elsewhere: a sender's own credits limit it at unloaded latency; more cores, or more requests at once, bring more",
        ),
        Regime::Blue => {
            say(
                "slow the devices, or move them or the cores to another socket: cores pay for each line of theirs with latency, and devices do not notice",
            );
            say("more channels or faster ones lower the latency; a higher limit for devices does not help anybody");
        }
        Regime::OnsetOfRed => {
            say(
                "throttle cores that store before devices run out of credits: write queues are close to holding them back",
            );
        }
        Regime::Red => {
            say(
                "throttle cores that store: their write-backs fill the write queues, which hold back devices and not the cores themselves",
            );
            say(
                "have NICs' congestion control see the host (receive windows, ECN) before their buffers overflow or they send pause frames",
            );
            say("more channels, or another socket for one of the two; more credits for devices only let more wait");
        }
    }
    let largest = diagnosis.domains.iter().find(|view| Some(view.name) == diagnosis.bottleneck).map(|view| {
        let parts = [
            ("changes between reading and writing", view.parts.switching),
            ("lines of the other direction", view.parts.other_direction),
            ("lines of the same direction", view.parts.same_direction),
            ("rows that have to be opened", view.parts.top_of_queue),
            ("admission to the home agent", view.admission_ns.unwrap_or(0.0)),
        ];
        let most = parts.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
        most.map(|(what, time)| format!("most of what {} waits is {what}: {time:.0} ns", view.name))
    });
    advice.extend(largest.flatten());
    advice
}

/// Counters that are missing or cannot be right.
fn warnings(counters: &Counters, inputs: &Inputs, channels: f64) -> Vec<String> {
    let mut warnings = Vec::new();
    for (name, command) in QUEUES.iter().filter(|(name, _)| counters.queue(name).is_none()) {
        warnings.push(format!("queues.{name} is missing: {command}"));
    }
    if inputs.write_queue_full > 1.0 {
        warnings.push(format!(
            "memory.write_full_cycles is more than all cycles of {channels} channels: give `memory.cycles` of one channel, and the other of all"
        ));
    }
    let of_home =
        |names: [&str; 2]| names.iter().filter_map(|name| counters.queue(name)).map(|one| one.inserts).sum::<f64>();
    for (what, seen, lines) in [
        ("reads", of_home(["c2m_read", "p2m_read"]), inputs.lines[0]),
        ("writes", of_home(["c2m_write", "p2m_write"]), inputs.lines[1]),
    ] {
        if seen > 0.0 && (lines / seen - 1.0).abs() > MISMATCH {
            warnings.push(format!(
                "the home agent saw {seen:.0} {what} and memory {lines:.0}: were they counted at the same time, and for the same socket?"
            ));
        }
    }
    for (name, queue) in &counters.queues {
        if queue.inserts == 0.0 && queue.occupancy > 0.0 {
            warnings.push(format!("queues.{name} has entries, and none came: its latency cannot be told"));
        }
    }
    warnings
}
