//! What a host is made of, as far as lines on their way to memory see it. Times are picoseconds.

use super::traffic::{Application, Pattern, Phase};
use crate::entries::Limits;

/// One socket: cores, home agent, I/O controller, memory channels, and the devices behind them.
#[derive(Clone, Debug, PartialEq)]
pub struct HostParameters {
    /// The platform's name, as in `platforms/NAME.toml`.
    pub name: String,
    /// The cores.
    pub core: HostCoreParameters,
    /// The caching and home agent.
    pub home: HomeParameters,
    /// The integrated I/O controller.
    pub iio: IioParameters,
    /// The memory controller of each channel.
    pub controller: ControllerParameters,
    /// The memory behind each.
    pub dram: DramParameters,
    /// The devices, all together.
    pub device: HostDeviceParameters,
    /// A NIC in their place.
    pub nic: NicParameters,
    /// An in-memory database on a core.
    pub redis: RedisParameters,
    /// A traversal of a graph on a core.
    pub graph: GraphParameters,
    /// Constants of the analytic formula, which no part of the machine reads.
    pub formula: FormulaParameters,
}

/// A core, as far as its misses go.
#[derive(Clone, Debug, PartialEq)]
pub struct HostCoreParameters {
    /// Cores of the socket.
    pub cores: u32,
    /// Clock, in megahertz.
    pub frequency_megahertz: u32,
    /// Line fill buffers: the credits of reads and writes.
    pub line_fill_buffers: u32,
    /// From when a buffer is free until the next miss takes it.
    pub refill: u64,
    /// A miss's way to the home agent.
    pub to_home: u64,
    /// The same of an evicted line, until the core knows that it was taken.
    pub write_to_home: u64,
    /// Bytes of a write stream that the caches hold: what is evicted is so far behind what is stored.
    pub cached_bytes: u64,
}

/// The slices of the caching and home agent.
#[derive(Clone, Debug, PartialEq)]
pub struct HomeParameters {
    /// Slices, over which lines are hashed.
    pub slices: u32,
    /// Lines that a slice is busy with at once.
    pub entries: u32,
    /// Of these, those that writes may take.
    pub write_entries: u32,
    /// From a slice to a memory controller's read queue.
    pub to_memory: u64,
    /// From memory's data back, past the slice, to whoever asked.
    pub from_memory: u64,
    /// From a slice to a memory controller's write queue, for lines that cores evict.
    pub core_write_to_memory: u64,
    /// The same for lines that devices write.
    pub device_write_to_memory: u64,
}

/// The integrated I/O controller.
#[derive(Clone, Debug, PartialEq)]
pub struct IioParameters {
    /// Lines that it writes at once.
    pub write_credits: u32,
    /// Lines that it reads at once.
    pub read_credits: u32,
    /// A written line's way to the home agent, and of its answer back.
    pub write_to_home: u64,
    /// A read's way to the home agent.
    pub read_to_home: u64,
    /// A read line's way back, beyond that of a core's.
    pub read_return: u64,
    /// Whether a device's lines are written to the last-level cache (direct cache access), from where older ones are evicted.
    pub writes_to_cache: bool,
    /// Bytes of the last-level cache that they may take.
    pub cache_bytes: u64,
    /// Its ways that these are.
    pub cache_ways: u32,
}

/// A channel's controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerParameters {
    /// Channels, over which neighbouring lines are spread: a power of two.
    pub channels: u32,
    /// Entries of a channel's read pending queue.
    pub read_entries: u32,
    /// Entries of its write pending queue.
    pub write_entries: u32,
    /// Writes that wait when it begins to write.
    pub write_high: u32,
    /// Writes that still wait when it goes back to reading.
    pub write_low: u32,
    /// Most writes in a row while reads wait.
    pub most_writes: u32,
    /// Reads between two times of writing, at the least, while reads wait ...
    pub least_reads: u32,
    /// ... unless so much time has passed.
    pub least_read_time: u64,
    /// Writes that wait when it begins to write because no read does.
    pub idle_writes: u32,
    /// How long a request may be passed by younger ones that find their row open.
    pub age_cap: u64,
    /// A row that was not used for so long is closed.
    pub row_timer: u64,
    /// From how many entries on the counters count the read queue as full.
    pub read_full: u32,
    /// The same of the write queue.
    pub write_full: u32,
}

/// The memory of a channel: JEDEC's names in lower case.
#[derive(Clone, Debug, PartialEq)]
pub struct DramParameters {
    /// Ranks.
    pub ranks: u32,
    /// Bank groups of a rank.
    pub bank_groups: u32,
    /// Banks of a group.
    pub banks: u32,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Bank groups over which neighbouring lines of a channel alternate.
    pub interleaved_groups: u32,
    /// Bytes that lie side by side in memory: above that, pages are anywhere.
    pub page_bytes: u64,
    /// A cycle of the command clock: one command each.
    pub cycle: u64,
    /// CL: from a read to its data.
    pub read_latency: u64,
    /// CWL: from a write to its data.
    pub write_latency: u64,
    /// A line on the data bus.
    pub burst: u64,
    /// tRCD: from an activation to the first read or write.
    pub activate_to_access: u64,
    /// tRP: from a precharge to an activation.
    pub precharge: u64,
    /// tRAS: from an activation to a precharge.
    pub activate_to_precharge: u64,
    /// tCCD_S: between accesses of different groups.
    pub access_short: u64,
    /// tCCD_L: of the same.
    pub access_long: u64,
    /// tRRD_S: between activations of different groups.
    pub activate_short: u64,
    /// tRRD_L: of the same.
    pub activate_long: u64,
    /// tFAW: in which a rank has four activations at most.
    pub four_activates: u64,
    /// tWR: from a write's last data to a precharge.
    pub write_recovery: u64,
    /// tRTP: from a read to a precharge.
    pub read_to_precharge: u64,
    /// tWTR_S: from a write's last data to a read of another group.
    pub write_to_read_short: u64,
    /// tWTR_L: of the same.
    pub write_to_read_long: u64,
    /// On the data bus, between a read's data and a write's.
    pub read_to_write: u64,
    /// On the data bus, between data of two ranks.
    pub rank_to_rank: u64,
    /// tREFI: between two refreshes of a rank.
    pub refresh_interval: u64,
    /// tRFC: what one takes.
    pub refresh_span: u64,
}

/// Peripheral devices, which share one link.
#[derive(Clone, Debug, PartialEq)]
pub struct HostDeviceParameters {
    /// Bits a second that they write to memory at most.
    pub write_megabits_per_second: u64,
    /// The same of reads.
    pub read_megabits_per_second: u64,
    /// Devices, which take turns on the link.
    pub devices: u32,
    /// Transfers that each is at together.
    pub transfers: u32,
    /// Bytes of a turn: those of a packet.
    pub packet_bytes: u64,
    /// Bytes of a transfer that a device moves before it goes on with another.
    pub chunk_bytes: u64,
    /// Bytes of a transfer, which lie side by side.
    pub transfer_bytes: u64,
    /// Bytes of each device's buffers in memory.
    pub buffer_bytes: u64,
}

/// A NIC, whose way to memory is the devices' link.
#[derive(Clone, Debug, PartialEq)]
pub struct NicParameters {
    /// Bits a second of its network.
    pub megabits_per_second: u64,
    /// Bytes of a packet.
    pub packet_bytes: u64,
    /// Bytes of packets that it holds.
    pub buffer_bytes: u64,
    /// From how many on it has the sender pause (priority flow control).
    pub pause_bytes: u64,
    /// From how few on it has it go on.
    pub resume_bytes: u64,
    /// From when a pause or resume frame is sent until packets stop to come, or come again.
    pub pause_delay: u64,
    /// Bytes of memory that its packets go to, one after the other, or come from.
    pub memory_bytes: u64,
}

/// An in-memory database that answers queries for random keys (Redis).
#[derive(Clone, Debug, PartialEq)]
pub struct RedisParameters {
    /// Loads of a query that wait for each other: from the key's hash to the value.
    pub dependent_loads: u32,
    /// Lines of a value, which it copies.
    pub value_lines: u32,
    /// A query's instructions, in cycles without waits for memory.
    pub query_cycles: u32,
}

/// A traversal of a graph that adds up a word of each neighbour (PageRank of GAPBS).
#[derive(Clone, Debug, PartialEq)]
pub struct GraphParameters {
    /// Neighbours of a vertex.
    pub neighbours: u32,
    /// Lines of a vertex that are read in order: its neighbours' numbers, and its own words.
    pub vertex_lines: u32,
    /// Instructions of a neighbour, in cycles.
    pub neighbour_cycles: u32,
    /// Loads of neighbours that are on their way at once.
    pub loads_at_once: u32,
}

/// Constants of the analytic formula (the paper's section 6).
#[derive(Clone, Debug, PartialEq)]
pub struct FormulaParameters {
    /// What a change between reading and writing takes, either way.
    pub mode_switch: u64,
    /// A core's read without load.
    pub core_read: u64,
    /// The same with the write of an evicted line behind it.
    pub core_read_write: u64,
    /// A device's write without load.
    pub device_write: u64,
    /// A device's read without load.
    pub device_read: u64,
}

impl HomeParameters {
    /// Entries of a slice; writes leave some to reads.
    pub(crate) fn limits(&self) -> Limits {
        Limits { entries: self.entries, bounded: self.write_entries }
    }
}

impl HostParameters {
    /// The data rate of all channels, in bytes a second.
    pub fn memory_bytes_per_second(&self) -> f64 {
        f64::from(self.controller.channels) * 64.0 / self.dram.burst as f64 * 1e12
    }

    /// A number of the cores' cycles, in picoseconds.
    fn cycles(&self, cycles: u32) -> u64 {
        u64::from(cycles) * 1_000_000 / u64::from(self.core.frequency_megahertz.max(1))
    }

    /// The database's query: loads that wait for each other, then the value's lines, all at once; its instructions are spread over these steps.
    pub fn redis(&self) -> Application {
        let of = &self.redis;
        let step = self.cycles(of.query_cycles) / (u64::from(of.dependent_loads) + 1);
        let load = Phase { work: step, loads: 1, lines: 1, pattern: Pattern::Random, depends: true };
        let mut phases = vec![load; of.dependent_loads as usize];
        phases.push(Phase { lines: of.value_lines, ..load });
        Application { phases, at_once: self.core.line_fill_buffers }
    }

    /// The traversal's vertex: its own lines in order, then a random line for each neighbour; no load waits for another's data.
    pub fn graph(&self) -> Application {
        let of = &self.graph;
        let own = Phase { work: 0, loads: 1, lines: of.vertex_lines, pattern: Pattern::Sequential, depends: false };
        let work = self.cycles(of.neighbour_cycles);
        let neighbour = Phase { work, lines: 1, pattern: Pattern::Random, ..own };
        let phases = std::iter::once(own).chain((0..of.neighbours).map(|_| neighbour)).collect();
        Application { phases, at_once: of.loads_at_once }
    }

    /// The NIC's memory as a device's: one transfer, from its first line to its last.
    pub(crate) fn nic_memory(&self) -> HostDeviceParameters {
        let whole = self.nic.memory_bytes;
        HostDeviceParameters {
            devices: 1,
            transfers: 1,
            chunk_bytes: whole,
            transfer_bytes: whole,
            buffer_bytes: whole,
            ..self.device.clone()
        }
    }

    /// Banks of a channel.
    pub(crate) fn banks(&self) -> usize {
        (self.dram.ranks * self.dram.bank_groups * self.dram.banks) as usize
    }
}
