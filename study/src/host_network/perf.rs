//! What `perf stat -x,` says of a host, as its counters: the command that counts, and its output.
//!
//! Each event has one of our names, by perf's `name=`, so that no event is recognised by how a version of perf spells it. The events are those of Skylake
//! and Cascade Lake servers; numbers differ by generation. A queue's clock is one unit's (`uncore_cha_0`), its counts are sums over all units of a socket.
//!
//! A line is `[time,][socket,units,]value,unit,event,run time,percent,...` (`man perf-stat`, CSV FORMAT): times with `-I`, sockets with `--per-socket`.
//! Lines of one name are added, so that intervals become one. perf has scaled what it counted for a part of the time only.

use std::collections::BTreeMap;

use super::counters::{Counters, Memory, Queue, check};

/// Our name of each count, and the event of perf that counts it.
///
/// Opcodes are matched by `config1`: bits 9 to 18 and 20 to 29 hold one each, of which either matches; 0x33 stands for local and remote memory.
pub const EVENTS: &[(&str, &str)] = &[
    // Unhalted cycles, L1D_PEND_MISS.PENDING, MEM_LOAD_RETIRED.L1_MISS.
    ("core.cycles", "cpu/event=0x3c,umask=0x00/"),
    ("lfb.occupancy", "cpu/event=0x48,umask=0x01/"),
    ("lfb.inserts", "cpu/event=0xd1,umask=0x08/"),
    // TOR_OCCUPANCY and TOR_INSERTS: misses of cores with opcode DRd or RFO, their WbMtoI, the I/O's RdCur and ItoM.
    ("cha.cycles", "uncore_cha_0/event=0x00/"),
    ("c2m_read.occupancy", "uncore_cha/event=0x36,umask=0x21,config1=0x20040433/"),
    ("c2m_read.inserts", "uncore_cha/event=0x35,umask=0x21,config1=0x20040433/"),
    ("c2m_write.occupancy", "uncore_cha/event=0x36,umask=0x31,config1=0x48833/"),
    ("c2m_write.inserts", "uncore_cha/event=0x35,umask=0x31,config1=0x48833/"),
    ("p2m_read.occupancy", "uncore_cha/event=0x36,umask=0x24,config1=0x43c33/"),
    ("p2m_read.inserts", "uncore_cha/event=0x35,umask=0x24,config1=0x43c33/"),
    ("p2m_write.occupancy", "uncore_cha/event=0x36,umask=0x34,config1=0x49033/"),
    ("p2m_write.inserts", "uncore_cha/event=0x35,umask=0x34,config1=0x49033/"),
    ("irp.cycles", "uncore_irp_0/event=0x01/"),
    ("iio_write.occupancy", "uncore_irp/event=0x0f,umask=0x04/"),
    ("memory.cycles", "uncore_imc_0/event=0x00/"),
    ("memory.lines_read", "uncore_imc/event=0x04,umask=0x03/"),
    ("memory.lines_written", "uncore_imc/event=0x04,umask=0x0c/"),
    ("memory.activations_read", "uncore_imc/event=0x01,umask=0x09/"),
    ("memory.activations_write", "uncore_imc/event=0x01,umask=0x02/"),
    ("memory.conflicts", "uncore_imc/event=0x02,umask=0x01/"),
    ("memory.mode_switches", "uncore_imc/event=0xc0,umask=0x07/"),
    ("memory.read_queue", "uncore_imc/event=0x80/"),
    ("memory.read_full_cycles", "uncore_imc/event=0x80,thresh=42/"),
    ("memory.write_full_cycles", "uncore_imc/event=0x81,thresh=34/"),
];

/// How long perf counted, in nanoseconds.
const DURATION: &str = "duration_time";

/// The command that counts all of this for so many seconds, into a file; a shell's lines.
pub fn command(seconds: u32, file: &str) -> String {
    let mut text = format!("perf stat -a --per-socket -x, -o {file} \\\n  -e {DURATION} \\\n");
    for (name, event) in EVENTS {
        let event = event.strip_suffix('/').unwrap_or(event);
        text += &format!("  -e {event},name={name}/ \\\n");
    }
    text + &format!("  sleep {seconds}\n")
}

/// Whether a text is perf's rather than lines of `name,value`: its lines have more fields.
pub fn is_perf(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| line.split(',').count() > 3)
}

/// What a file of perf's belongs to, which perf does not say.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// The machine: a platform of model `host`.
    pub platform: &'a str,
    /// Cores that generate traffic.
    pub cores: f64,
    /// The socket, where the file has several.
    pub socket: Option<u32>,
}

/// Counters from perf's output, and what is to be known of them: events that were counted for a part of the time, not counted, or unknown here.
///
/// # Errors
///
/// What is wrong, with its line; an event that nothing can be said without; several sockets of which none is chosen.
pub fn parse(text: &str, of: Measured<'_>) -> Result<(Counters, Vec<String>), String> {
    let mut notes = Vec::new();
    let counts = Counts::of(text, of.socket, &mut notes)?;
    let seconds = counts.needed(DURATION)? / 1e9;
    let memory = |what: &str| counts.needed(&format!("memory.{what}"));
    let memory = Memory {
        cycles: memory("cycles")?,
        lines_read: memory("lines_read")?,
        lines_written: memory("lines_written")?,
        activations_read: memory("activations_read")?,
        activations_write: memory("activations_write")?,
        conflicts: memory("conflicts")?,
        mode_switches: memory("mode_switches")?,
        read_queue: memory("read_queue")?,
        write_full_cycles: memory("write_full_cycles")?,
        read_full_cycles: counts.get("memory.read_full_cycles").unwrap_or(0.0),
    };
    let queue = |occupancy: &str, inserts: &str, clock: &str, units: f64| {
        let (occupancy, inserts) = (counts.get(&format!("{occupancy}.occupancy"))?, counts.get(inserts)?);
        Some(Queue { occupancy, inserts, cycles: counts.get(clock)? / units })
    };
    // Every core has a clock of its own, that stands still while nothing runs: those that generate traffic run all the time.
    let queues = [
        ("lfb", queue("lfb", "lfb.inserts", "core.cycles", of.cores)),
        ("c2m_read", queue("c2m_read", "c2m_read.inserts", "cha.cycles", 1.0)),
        ("c2m_write", queue("c2m_write", "c2m_write.inserts", "cha.cycles", 1.0)),
        ("p2m_read", queue("p2m_read", "p2m_read.inserts", "cha.cycles", 1.0)),
        ("p2m_write", queue("p2m_write", "p2m_write.inserts", "cha.cycles", 1.0)),
        // The I/O controller does not count its lines; the home agent does.
        ("iio_write", queue("iio_write", "p2m_write.inserts", "irp.cycles", 1.0)),
    ];
    let counters = Counters {
        platform: of.platform.to_owned(),
        seconds,
        cores: of.cores,
        memory,
        queues: queues.into_iter().filter_map(|(name, queue)| Some((name.to_owned(), queue?))).collect(),
        c2m_alone_gb_s: None,
        p2m_alone_gb_s: None,
    };
    check(counters).map(|counters| (counters, notes))
}

/// Counts by name.
struct Counts(BTreeMap<String, f64>);

/// A line of perf's.
struct Line<'a> {
    socket: Option<u32>,
    value: &'a str,
    event: &'a str,
    /// Of the time, while the event was counted.
    percent: Option<f64>,
}

impl Counts {
    fn of(text: &str, wanted: Option<u32>, notes: &mut Vec<String>) -> Result<Counts, String> {
        let (mut counts, mut parts, mut sockets) = (BTreeMap::new(), Vec::new(), Vec::new());
        // perf counts how long it counted on the first processor alone, whatever socket is asked for.
        let mut durations = BTreeMap::new();
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        for (number, text) in lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#')) {
            let line =
                Line::of(text).ok_or_else(|| format!("line {number}: \"{text}\" is no line of perf stat -x,"))?;
            sockets.extend(line.socket.filter(|socket| !sockets.contains(socket)));
            if line.event != DURATION && wanted.is_some() && line.socket.is_some() && line.socket != wanted {
                continue;
            }
            if line.event != DURATION && !EVENTS.iter().any(|(name, _)| *name == line.event) {
                notes.push(format!("line {number}: {} is not known here, and left out", line.event));
                continue;
            }
            if line.value.starts_with('<') {
                notes.push(format!("line {number}: {} is {}", line.event, line.value.trim_matches(['<', '>'])));
                continue;
            }
            let value: f64 = line
                .value
                .parse()
                .map_err(|_| format!("line {number}: {}: \"{}\" is no number", line.event, line.value))?;
            match line.event {
                DURATION => *durations.entry(line.socket).or_insert(0.0) += value,
                event => *counts.entry(event.to_owned()).or_insert(0.0) += value,
            }
            parts.extend(line.percent.filter(|percent| *percent < 99.5));
        }
        counts.extend(durations.into_values().reduce(f64::max).map(|duration| (DURATION.to_owned(), duration)));
        match (wanted, &sockets[..]) {
            (None, [_, _, ..]) => return Err(format!("it has sockets {}: choose one with --socket", list(&sockets))),
            (Some(socket), []) => {
                return Err(format!("--socket {socket}: it tells no sockets apart (perf stat --per-socket)"));
            }
            (Some(socket), all) if !all.contains(&socket) => {
                return Err(format!("--socket {socket}: it has only {}", list(all)));
            }
            _ => {}
        }
        if let Some(least) = parts.iter().copied().reduce(f64::min) {
            notes.push(format!(
                "{} counts are of a part of the time, of {least:.0}% at least, and scaled by perf",
                parts.len()
            ));
        }
        Ok(Counts(counts))
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    fn needed(&self, name: &str) -> Result<f64, String> {
        self.get(name)
            .ok_or_else(|| format!("{name} was not counted: conic diagnose --perf prints the command that counts all"))
    }
}

fn list(sockets: &[u32]) -> String {
    sockets.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Option<Line<'a>> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let socket_of = |field: &str| field.strip_prefix('S')?.parse().ok();
        // A number before a socket, or before another value, is a time.
        let is_value = |field: &&&str| field.starts_with('<') || field.parse::<f64>().is_ok();
        let timed = fields.get(1).is_some_and(|second| socket_of(second).is_some() || is_value(&second));
        let rest = if timed && socket_of(fields[0]).is_none() { &fields[1..] } else { &fields[..] };
        let socket = socket_of(rest.first()?);
        let rest = if socket.is_some() { rest.get(2..)? } else { rest };
        let [value, _, event, ..] = rest else { return None };
        let percent = rest.get(4).and_then(|percent| percent.parse().ok());
        (is_value(&value) && !event.is_empty()).then_some(Line { socket, value, event, percent })
    }
}
