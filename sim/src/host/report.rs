//! What a run shows.

use serde::{Deserialize, Serialize};

use super::cache::CacheCounters;
use super::nic::NicCounters;
use crate::probe::occupancy::Little;

/// Whose lines, and which way they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Domain {
    /// Reads of cores (C2M-Read).
    CoreRead,
    /// Evicted lines (C2M-Write).
    CoreWrite,
    /// Reads of devices (P2M-Read).
    DeviceRead,
    /// Writes of devices (P2M-Write).
    DeviceWrite,
}

impl Domain {
    /// All of them.
    pub const ALL: [Domain; 4] = [Domain::CoreRead, Domain::CoreWrite, Domain::DeviceRead, Domain::DeviceWrite];

    /// Whether lines go to memory.
    pub fn writes(self) -> bool {
        matches!(self, Domain::CoreWrite | Domain::DeviceWrite)
    }

    /// Its name in the paper.
    pub fn name(self) -> &'static str {
        match self {
            Domain::CoreRead => "C2M-Read",
            Domain::CoreWrite => "C2M-Write",
            Domain::DeviceRead => "P2M-Read",
            Domain::DeviceWrite => "P2M-Write",
        }
    }
}

/// What happened on a channel in the window. Pairs are of reads and of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelCounters {
    /// Lines.
    pub lines: [u64; 2],
    /// Activations.
    pub activations: [u64; 2],
    /// Precharges because another row was open.
    pub conflicts: [u64; 2],
    /// Lines whose row had to be opened for them.
    pub row_misses: [u64; 2],
    /// Precharges of rows that nobody used.
    pub closes: u64,
    /// Changes from writing to reading.
    pub mode_switches: u64,
    /// Refreshes of a rank.
    pub refreshes: u64,
    /// For how long the read queue was full, in picoseconds.
    pub read_full: u64,
    /// The same of the write queue.
    pub write_full: u64,
}

impl ChannelCounters {
    /// Both together.
    #[must_use]
    pub fn and(&self, other: &ChannelCounters) -> ChannelCounters {
        let sum = |a: [u64; 2], b: [u64; 2]| [a[0] + b[0], a[1] + b[1]];
        ChannelCounters {
            lines: sum(self.lines, other.lines),
            activations: sum(self.activations, other.activations),
            conflicts: sum(self.conflicts, other.conflicts),
            row_misses: sum(self.row_misses, other.row_misses),
            closes: self.closes + other.closes,
            mode_switches: self.mode_switches + other.mode_switches,
            refreshes: self.refreshes + other.refreshes,
            read_full: self.read_full + other.read_full,
            write_full: self.write_full + other.write_full,
        }
    }
}

/// The queues on a domain's way, each with Little's law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DomainReport {
    /// Lines that came to the end of the domain in the window.
    pub lines: u64,
    /// The domain's credits, from when each is taken until it is given back. A core's write has the buffer of the read before it.
    pub credits: Little,
    /// At the home agent, waiting for an entry of a slice.
    pub admission: Little,
    /// From the entry until memory's data is back, or until the controller has the line.
    pub home: Little,
    /// Of these, those that wait because the controller's queue is full.
    pub blocked: Little,
}

/// What a run shows.
#[derive(Clone, Debug, PartialEq)]
pub struct HostReport {
    /// The window, in picoseconds.
    pub window: u64,
    /// The domains, in the order of [`Domain::ALL`].
    pub domains: [DomainReport; 4],
    /// Line fill buffers of all cores, from when one is taken until it is free: reads, and the writes behind them.
    pub fill_buffers: Little,
    /// Each channel's counters.
    pub channels: Vec<ChannelCounters>,
    /// Each channel's read queue.
    pub read_queues: Vec<Little>,
    /// Each channel's write queue.
    pub write_queues: Vec<Little>,
    /// For each thousand reads of a channel's: those of the most loaded of four banks over the mean of the four.
    pub bank_deviations: Vec<f64>,
    /// Operations of applications: those whose loads have all begun.
    pub operations: u64,
    /// What devices' writes met in the last-level cache; nothing without direct cache access.
    pub cache: CacheCounters,
    /// What the NIC saw, where there is one that receives.
    pub nic: Option<NicCounters>,
}

impl HostReport {
    /// A domain's part.
    pub fn domain(&self, domain: Domain) -> &DomainReport {
        &self.domains[domain as usize]
    }

    /// Bytes a second of a domain.
    pub fn bytes_per_second(&self, domain: Domain) -> f64 {
        self.domain(domain).lines as f64 * 64.0 / self.window as f64 * 1e12
    }

    /// Bytes a second of all lines to and from cores.
    pub fn core_bytes_per_second(&self) -> f64 {
        self.bytes_per_second(Domain::CoreRead) + self.bytes_per_second(Domain::CoreWrite)
    }

    /// The same of devices.
    pub fn device_bytes_per_second(&self) -> f64 {
        self.bytes_per_second(Domain::DeviceRead) + self.bytes_per_second(Domain::DeviceWrite)
    }

    /// Operations a second of all applications.
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 / self.window as f64 * 1e12
    }

    /// Part of the time for which the NIC's sender was stopped.
    pub fn paused(&self) -> f64 {
        self.nic.map_or(0.0, |nic| nic.paused as f64 / self.window as f64)
    }

    /// All channels' counters together.
    pub fn memory(&self) -> ChannelCounters {
        self.channels.iter().fold(ChannelCounters::default(), |sum, one| sum.and(one))
    }

    /// Mean entries of a channel's read queue.
    pub fn read_queue(&self) -> f64 {
        mean(&self.read_queues)
    }

    /// The same of the write queue.
    pub fn write_queue(&self) -> f64 {
        mean(&self.write_queues)
    }

    /// Part of the time for which a write queue is full.
    pub fn write_queue_full(&self) -> f64 {
        self.memory().write_full as f64 / (self.window * self.channels.len() as u64) as f64
    }

    /// The same of a read queue.
    pub fn read_queue_full(&self) -> f64 {
        self.memory().read_full as f64 / (self.window * self.channels.len() as u64) as f64
    }

    /// Reads that need an activation of their own, as a part of all.
    pub fn row_miss_ratio(&self) -> f64 {
        let memory = self.memory();
        if memory.lines[0] == 0 { 0.0 } else { memory.activations[0] as f64 / memory.lines[0] as f64 }
    }

    /// Every queue with its law, by name.
    pub fn queues(&self) -> Vec<(String, Little)> {
        let mut all = vec![("line fill buffers".to_owned(), self.fill_buffers)];
        for (domain, report) in Domain::ALL.into_iter().zip(&self.domains) {
            let of = |what: &str| format!("{} {what}", domain.name());
            all.push((of("credits"), report.credits));
            all.push((of("admission"), report.admission));
            all.push((of("home"), report.home));
            all.push((of("blocked"), report.blocked));
        }
        for (name, queues) in [("read", &self.read_queues), ("write", &self.write_queues)] {
            all.extend(queues.iter().enumerate().map(|(channel, one)| (format!("{name} queue {channel}"), *one)));
        }
        all
    }
}

fn mean(queues: &[Little]) -> f64 {
    queues.iter().map(|queue| queue.mean_occupancy).sum::<f64>() / queues.len().max(1) as f64
}
