//! Counters of a host over an interval, as a file has them: what a modelled host writes and a measured one can be asked for.
//!
//! Counts are raw, summed over a socket's units (cores, slices, channels): latencies and means are made of them here, with the clock that the data have
//! and no other. A queue's `occupancy` is the sum of its entries over all cycles of `cycles`, which is one unit's clock.
//!
//! | name | hardware (Skylake and Cascade Lake servers) |
//! |---|---|
//! | `lfb` | `L1D_PEND_MISS.PENDING` over misses, core cycles |
//! | `c2m_read`, `c2m_write`, `p2m_read`, `p2m_write` | the home agent's `TOR_OCCUPANCY` (0x36) and `TOR_INSERTS` (0x35) with opcode filters |
//! | `c2m_admission`, `p2m_admission` | waits for an entry of the home agent: no such counter is public; a modelled host has it |
//! | `writes_waiting`, `reads_waiting` | of these, lines that wait for a controller's queue |
//! | `iio_write`, `iio_read` | the I/O controller's `IRP` occupancy (0x0F, umask 4); of reads none is public |
//! | `memory.read_queue` | iMC 0x80; `memory.read_full_cycles` with threshold 42 |
//! | `memory.write_full_cycles` | iMC 0x81 with threshold 34 |
//! | `memory.activations_*`, `memory.conflicts` | iMC 0x01 (RD 1, WR 2, BYP 8), 0x02 (umask 1) |
//! | `memory.mode_switches` | iMC 0xC0, umask 0x7 |

use std::collections::BTreeMap;
use std::fmt::Write;

use conic_sim::host::report::ChannelCounters;
use conic_sim::host::{Domain, HostParameters, HostReport};
use conic_sim::probe::occupancy::Little;
use serde::{Deserialize, Serialize};

use super::formula::Inputs;

/// A queue's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Entries, summed over the cycles.
    pub occupancy: f64,
    /// Entries that came.
    pub inserts: f64,
    /// Cycles of the unit's clock in the interval.
    pub cycles: f64,
}

impl Queue {
    /// Entries inside, on average.
    pub fn mean(&self) -> f64 {
        self.occupancy / self.cycles
    }

    /// How long one stays, in nanoseconds, by Little's law; none where none came.
    pub fn latency(&self, seconds: f64) -> Option<f64> {
        (self.inserts > 0.0).then(|| self.occupancy / self.inserts * seconds / self.cycles * 1e9)
    }
}

/// What the memory controllers count, all channels together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Cycles of one channel's clock in the interval.
    pub cycles: f64,
    /// Lines read.
    pub lines_read: f64,
    /// Lines written.
    pub lines_written: f64,
    /// Activations for reads.
    pub activations_read: f64,
    /// Activations for writes.
    pub activations_write: f64,
    /// Precharges because another row was open.
    pub conflicts: f64,
    /// Changes from writing to reading.
    pub mode_switches: f64,
    /// Entries of the read queues, summed over the cycles.
    pub read_queue: f64,
    /// Cycles in which a write queue is full, summed over the channels.
    pub write_full_cycles: f64,
    /// The same of read queues.
    #[serde(default)]
    pub read_full_cycles: f64,
}

/// Counters over an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// The machine: a platform of model `host`.
    pub platform: String,
    /// Length of the interval.
    pub seconds: f64,
    /// Cores that generate traffic.
    pub cores: f64,
    /// The memory controllers.
    pub memory: Memory,
    /// The queues that were counted, by the names above.
    #[serde(default)]
    pub queues: BTreeMap<String, Queue>,
    /// What cores get without devices, in GB/s, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub c2m_alone_gb_s: Option<f64>,
    /// What devices get without cores, both directions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p2m_alone_gb_s: Option<f64>,
}

/// Where a queue's counts come from.
const PERF: &str = "conic diagnose --perf prints the command that counts it";

/// Every queue's name, and what counts it on hardware.
pub const QUEUES: &[(&str, &str)] = &[
    ("lfb", PERF),
    ("c2m_read", PERF),
    ("c2m_write", PERF),
    ("c2m_admission", "no counter of this is public: it is left out of the latency's parts"),
    ("p2m_read", PERF),
    ("p2m_write", PERF),
    ("p2m_admission", "no counter of this is public: it is left out of the latency's parts"),
    ("reads_waiting", "the home agent's reads less those in the controllers' queues"),
    ("writes_waiting", "the home agent's writes while a controller's queue is full"),
    ("iio_write", PERF),
    ("iio_read", "no counter of this is public on these servers"),
];

/// Cycles a second of the clock that a modelled host counts with.
const CLOCK: f64 = 1e9;

impl Counters {
    /// A modelled host's.
    pub fn of(host: &HostParameters, cores: usize, report: &HostReport) -> Counters {
        let seconds = report.window as f64 / 1e12;
        let cycles = seconds * CLOCK;
        let queue = |all: &[Little]| Queue {
            occupancy: all.iter().map(|one| one.mean_occupancy).sum::<f64>() * cycles,
            inserts: all.iter().map(|one| one.arrivals as f64).sum(),
            cycles,
        };
        let of = |domain: Domain| report.domain(domain);
        let both = |one: Domain, other: Domain| [of(one), of(other)];
        let (reads, writes) =
            (both(Domain::CoreRead, Domain::DeviceRead), both(Domain::CoreWrite, Domain::DeviceWrite));
        let queues = [
            ("lfb", queue(&[report.fill_buffers])),
            ("c2m_read", queue(&[of(Domain::CoreRead).home])),
            ("c2m_write", queue(&[of(Domain::CoreWrite).home])),
            ("c2m_admission", queue(&both(Domain::CoreRead, Domain::CoreWrite).map(|one| one.admission))),
            ("p2m_read", queue(&[of(Domain::DeviceRead).home])),
            ("p2m_write", queue(&[of(Domain::DeviceWrite).home])),
            ("p2m_admission", queue(&both(Domain::DeviceRead, Domain::DeviceWrite).map(|one| one.admission))),
            ("reads_waiting", queue(&reads.map(|one| one.blocked))),
            ("writes_waiting", queue(&writes.map(|one| one.blocked))),
            ("iio_write", queue(&[of(Domain::DeviceWrite).credits])),
            ("iio_read", queue(&[of(Domain::DeviceRead).credits])),
        ];
        let memory = report.memory();
        Counters {
            platform: host.name.clone(),
            seconds,
            cores: cores as f64,
            memory: of_memory(&memory, report, cycles),
            queues: queues.into_iter().map(|(name, queue)| (name.to_owned(), queue)).collect(),
            c2m_alone_gb_s: None,
            p2m_alone_gb_s: None,
        }
    }

    /// A queue that was counted.
    pub fn queue(&self, name: &str) -> Option<&Queue> {
        self.queues.get(name)
    }

    /// What the formula takes, of a host with so many channels. Conflicts are shared out by activations, as no counter tells them apart.
    pub fn inputs(&self, channels: f64) -> Inputs {
        let memory = &self.memory;
        let activations = [memory.activations_read, memory.activations_write];
        let all = (activations[0] + activations[1]).max(1.0);
        let waiting = |name: &str| self.queue(name).map_or(0.0, |queue| queue.mean() / channels);
        Inputs {
            write_queue_full: memory.write_full_cycles / (memory.cycles * channels),
            writes_waiting: waiting("writes_waiting"),
            mode_switches: memory.mode_switches,
            lines: [memory.lines_read, memory.lines_written],
            read_queue: memory.read_queue / memory.cycles / channels,
            reads_waiting: waiting("reads_waiting"),
            conflicts: activations.map(|one| memory.conflicts * one / all),
            activations,
        }
    }

    /// Counters from a file's text: JSON, or lines of `name,value` with dotted names.
    ///
    /// # Errors
    ///
    /// What is wrong, with its line or its name.
    pub fn parse(text: &str) -> Result<Counters, String> {
        let counters = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| format!("line {}: {error}", error.line()))?
        } else {
            of_lines(text)?
        };
        check(counters)
    }

    /// The same as lines of `name,value`.
    pub fn to_lines(&self) -> String {
        let mut text = String::new();
        let value = serde_json::to_value(self).unwrap_or_default();
        flatten("", &value, &mut text);
        text
    }
}

fn of_memory(memory: &ChannelCounters, report: &HostReport, cycles: f64) -> Memory {
    let full = |picoseconds: u64| picoseconds as f64 / 1e12 * CLOCK;
    let [lines_read, lines_written] = memory.lines.map(|count| count as f64);
    let [activations_read, activations_write] = memory.activations.map(|count| count as f64);
    Memory {
        cycles,
        lines_read,
        lines_written,
        activations_read,
        activations_write,
        conflicts: (memory.conflicts[0] + memory.conflicts[1]) as f64,
        mode_switches: memory.mode_switches as f64,
        read_queue: report.read_queues.iter().map(|queue| queue.mean_occupancy).sum::<f64>() * cycles,
        write_full_cycles: full(memory.write_full),
        read_full_cycles: full(memory.read_full),
    }
}

fn flatten(name: &str, value: &serde_json::Value, text: &mut String) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, value, text);
            }
        }
        serde_json::Value::String(word) => drop(writeln!(text, "{name},{word}")),
        other => drop(writeln!(text, "{name},{other}")),
    }
}

/// Counters from lines of `name,value`; what begins with `#` says nothing.
fn of_lines(text: &str) -> Result<Counters, String> {
    let mut root = serde_json::Map::new();
    for (number, line) in text.lines().enumerate().map(|(number, line)| (number + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, value)) = line.split_once(',') else {
            return Err(format!("line {number}: \"{line}\" is no name,value"));
        };
        let (name, value) = (name.trim(), value.trim());
        let value = if name == "platform" {
            serde_json::Value::from(value)
        } else {
            let count: f64 = value.parse().map_err(|_| format!("line {number}: {name}: \"{value}\" is no number"))?;
            serde_json::Value::from(count)
        };
        put(&mut root, name, value).map_err(|what| format!("line {number}: {name}: {what}"))?;
    }
    serde_json::from_value(root.into()).map_err(|error| error.to_string())
}

fn put(
    at: &mut serde_json::Map<String, serde_json::Value>,
    name: &str,
    value: serde_json::Value,
) -> Result<(), String> {
    match name.split_once('.') {
        None => match at.insert(name.to_owned(), value) {
            None => Ok(()),
            Some(_) => Err("it is given twice".to_owned()),
        },
        Some((first, rest)) => match at.entry(first).or_insert_with(|| serde_json::Map::new().into()) {
            serde_json::Value::Object(inner) => put(inner, rest, value),
            _ => Err("it is a number, and has no parts".to_owned()),
        },
    }
}

/// What no counter can say.
pub(super) fn check(counters: Counters) -> Result<Counters, String> {
    let positive = |name: &str, value: f64| {
        if value.is_finite() && value > 0.0 {
            Ok(())
        } else {
            Err(format!("{name}: give a number above 0, not {value}"))
        }
    };
    let count = |name: String, value: f64| {
        if value.is_finite() && value >= 0.0 { Ok(()) } else { Err(format!("{name}: {value} is no count")) }
    };
    positive("seconds", counters.seconds)?;
    positive("cores", counters.cores)?;
    positive("memory.cycles", counters.memory.cycles)?;
    let memory = serde_json::to_value(counters.memory).unwrap_or_default();
    for (name, value) in memory.as_object().into_iter().flatten() {
        count(format!("memory.{name}"), value.as_f64().unwrap_or(f64::NAN))?;
    }
    for (name, queue) in &counters.queues {
        if !QUEUES.iter().any(|(known, _)| known == name) {
            let known: Vec<&str> = QUEUES.iter().map(|(known, _)| *known).collect();
            return Err(format!("queues.{name}: there is no such queue; there are {}", known.join(", ")));
        }
        positive(&format!("queues.{name}.cycles"), queue.cycles)?;
        count(format!("queues.{name}.occupancy"), queue.occupancy)?;
        count(format!("queues.{name}.inserts"), queue.inserts)?;
    }
    Ok(counters)
}
