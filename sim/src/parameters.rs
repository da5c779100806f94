//! What a modelled machine is made of: every value that a mechanism of this room reads.
//!
//! The values come from a platform file (`platforms/`), where each has its provenance. Times are integer picoseconds,
//! counts of a core's clock are cycles, capacities are bytes. Nothing here belongs to an experiment.

mod snoop_filter;
mod uncore;

pub use snoop_filter::SnoopFilterParameters;
pub use uncore::UncoreParameters;

/// A machine of two nodes: sockets, or a host and a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// The platform's name, as in `platforms/NAME.toml`.
    pub name: String,
    /// The cores, the same on every node.
    pub core: CoreParameters,
    /// The caches, the same on every node.
    pub cache: CacheParameters,
    /// What happens between a core's private caches and its node's home agents.
    pub node: NodeParameters,
    /// The snoop filter of each slice of home agents, where the lines that it knows have a limit.
    pub snoop_filter: Option<SnoopFilterParameters>,
    /// Each node's memory.
    pub memory: MemoryParameters,
    /// The coherent interconnect between the nodes.
    pub interconnect: InterconnectParameters,
    /// The clock of the nodes' uncore, where a node may have another than the one at which the times hold.
    pub uncore: Option<UncoreParameters>,
    /// Choices of the coherence protocol.
    pub protocol: ProtocolParameters,
    /// The PCIe link of node 0 and its root port, where there is one.
    pub pcie: Option<PcieParameters>,
    /// The network interface behind that link, where there is one.
    pub nic: Option<NicParameters>,
    /// The engines that copy memory, where the nodes have any; the same on each.
    pub engine: Option<EngineParameters>,
    /// The programmable device behind that link, where there is one.
    pub fpga: Option<FpgaParameters>,
    /// What the operating system's driver of its copy engines does, where there is one.
    pub driver: Option<DriverParameters>,
    /// The refresh of the memory; none: it is part of other values.
    pub refresh: Option<RefreshParameters>,
    /// The timer interrupt of the cores; none: a tickless kernel.
    pub timer: Option<TimerParameters>,
}

/// A core and the queues between it and its caches.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreParameters {
    /// Cores of a node.
    pub cores: u32,
    /// Clock, in megahertz.
    pub frequency_megahertz: u32,
    /// Cycles that an access to memory takes to issue, also when it hits: the throughput of independent accesses.
    pub issue_cycles: u32,
    /// Cycles from a load to its use when it hits the first-level cache and what follows depends on it.
    pub l1_hit_cycles: u32,
    /// The same for the second-level cache.
    pub l2_hit_cycles: u32,
    /// Cycles of a locked instruction, once it owns the line.
    pub atomic_cycles: u32,
    /// Cycles that it costs a core to leave a polling loop once a line that it polled has changed: loads of the line that it had
    /// begun too early are done again, and the branch was foreseen wrong.
    pub poll_exit_cycles: u32,
    /// Cycles of the instruction with which a program waits in a polling loop (`Core::spin`): x86's `pause`, or none.
    pub pause_cycles: u32,
    /// Cycles that reading the clock takes (`Core::now`): x86's `rdtsc` and the arithmetic behind it.
    pub clock_cycles: u32,
    /// Lines that may be on their way into the first-level cache at once.
    pub line_fill_buffers: u32,
    /// Of those, how many may be there for stores that wait in the store buffer.
    pub store_fill_buffers: u32,
    /// Requests for lines that wait for a line fill buffer without stopping the core (load buffer).
    pub load_buffer: u32,
    /// Instructions that a core may have under way behind the oldest one that is not done (reorder buffer).
    pub reorder_buffer: u32,
    /// Instructions that one cycle of annotated work stands for: how much work the reorder buffer spans.
    pub work_instructions: f64,
    /// Stores that wait to be performed.
    pub store_buffer: u32,
    /// Write-combining buffers, for write-combining memory and non-temporal stores.
    pub write_combining_buffers: u32,
    /// Cycles that one cycle of annotated work takes here (`Core::work`): the one value that is fitted, to one figure of one
    /// thread.
    pub work_scale: f64,
    /// Whether a load that misses asks for the next line too (DCU next-line prefetcher).
    pub prefetch_next_line: bool,
    /// Whether loads of one place in the code with a constant stride are run ahead of (DCU IP prefetcher).
    pub prefetch_stride: bool,
    /// Whether a miss asks for the other line of its 128-byte pair (L2 adjacent-line prefetcher).
    pub prefetch_adjacent: bool,
}

/// Sizes of the caches, in bytes, and their ways.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheParameters {
    /// First level, data, of each core.
    pub l1_bytes: u64,
    /// Its ways.
    pub l1_ways: u32,
    /// Second level, of each core.
    pub l2_bytes: u64,
    /// Its ways.
    pub l2_ways: u32,
    /// Last level, of each node.
    pub llc_bytes: u64,
    /// Its ways.
    pub llc_ways: u32,
    /// Ways of the last level that a device's writes may allocate (DDIO); zero: they go to memory.
    pub device_write_ways: u32,
}

/// The way from a core to the home agents of its node and back, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeParameters {
    /// From a core, past its private caches, to the home agent of a line.
    pub core_to_home: u64,
    /// From a home agent to a core, until the core may use what came.
    pub home_to_core: u64,
    /// A request's way through the home agent: looking up last-level cache, snoop filter and directory.
    pub home_lookup: u64,
    /// Slices of the home agents, each with its part of the lines.
    pub home_slices: u32,
    /// Time from one look-up of a slice to the next, in picoseconds; zero: there is no limit.
    pub home_service: u64,
    /// Requests that a slice is busy with at once: from when it has looked one up until it has answered it.
    pub home_entries: u32,
    /// Of these, those that requests of the node's own cores and devices may take: fewer, or two nodes whose own requests had all would wait
    /// for each other for ever.
    pub home_own_entries: u32,
    /// Reading a line out of the last-level cache.
    pub llc_read: u64,
    /// A snooped core's look into its private caches.
    pub snoop_lookup: u64,
    /// From when a home agent lets a core's write past the caches take effect until it says so to the core: the data is asked for and
    /// comes, and the memory's controller has it.
    pub write_latency: u64,
}

/// A node's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryParameters {
    /// From the home agent to memory and back, unloaded, in picoseconds.
    pub latency: u64,
    /// Channels; lines are spread over them.
    pub channels: u32,
    /// Time for which a line occupies its channel, in picoseconds.
    pub line_time: u64,
}

/// The coherent interconnect: links side by side, each with two directions.
#[derive(Clone, Debug, PartialEq)]
pub struct InterconnectParameters {
    /// Links; a line always takes the same one.
    pub links: u32,
    /// From one node to the other, in picoseconds, besides the time on the wire.
    pub crossing: u64,
    /// Time of a flit on the wire of one link, in picoseconds.
    pub flit_time: u64,
    /// Bytes of a flit.
    pub flit_bytes: u32,
    /// Slots of a flit.
    pub flit_slots: u32,
    /// Flits of a message that carries a line.
    pub data_flits: u32,
    /// Slots of those that the line and its header take; the others carry headers of other messages.
    pub data_slots: u32,
    /// Slots of a message without a line.
    pub header_slots: u32,
    /// Requests that one node may have on their way to the other at once, until they are answered (credits).
    pub request_credits: u32,
}

/// Choices that a coherence protocol has.
#[derive(Clone, Debug, PartialEq)]
pub struct ProtocolParameters {
    /// A load of a line that another node's cache has modified takes it over, modified (RdDataMigratory).
    pub migratory_between_nodes: bool,
    /// The same between cores of one node.
    pub migratory_within_node: bool,
    /// A remote read of a line that nobody caches gets it exclusive.
    pub exclusive_grant: bool,
    /// Granting a remote node a line that nobody has cached exclusive changes the directory's entry, which lies in memory with the
    /// line: both are read and written.
    pub directory_write: bool,
    /// A home that must ask the other node starts to read memory at the same time.
    pub speculative_memory_read: bool,
    /// Extra time of a snoop that a home sends for one of its own cores while that read is under way, in picoseconds.
    pub speculative_read_penalty: u64,
    /// A store of a whole line takes ownership without the old data.
    pub full_line_store_without_data: bool,
    /// A node that its line's home asks gives a clean line, if nobody else has it or it was the last to be given it (MESIF's E and F);
    /// otherwise memory does (MESI).
    pub forwards_clean: bool,
    /// A home's read asks the other node also where the directory says that it can only have clean copies.
    pub snoops_shared: bool,
}

/// A PCIe link, its root port, and the way to the home agents behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct PcieParameters {
    /// Usable raw rate of the link in one direction after line coding, in megabits a second.
    pub megabits_per_second: u64,
    /// From one end to the other, besides the time on the wire, in picoseconds.
    pub crossing: u64,
    /// Most bytes of a write, or of a completion's data.
    pub max_payload: u32,
    /// Most bytes that one read may ask for.
    pub max_read_request: u32,
    /// Completions end at multiples of this many bytes.
    pub read_completion_boundary: u32,
    /// Bytes of a memory write besides its data, framing and link layer included.
    pub write_overhead: u32,
    /// Bytes of a memory read.
    pub read_overhead: u32,
    /// Bytes of a completion besides its data.
    pub completion_overhead: u32,
    /// Thousandths of the link that acknowledgements, flow control and skips take.
    pub link_layer_permille: u32,
    /// Reads that the device may have on their way.
    pub tags: u32,
    /// Posted writes that the root port holds (write credits).
    pub posted_credits: u32,
    /// From the root port to the home agents, in picoseconds.
    pub root_to_home: u64,
    /// From a core's uncached load or store to the root port, in picoseconds.
    pub core_to_root: u64,
    /// The device's own time to answer a read of a register, in picoseconds.
    pub register_read: u64,
    /// Time between two uncached stores of a core, in picoseconds: only one is on its way to the root port.
    pub uncached_store: u64,
    /// Time for which a write-combining buffer that is flushed stays taken: the way to the root port, in picoseconds.
    pub write_combining_flush: u64,
    /// Most bytes of one load of a device's memory, and of one store to it: a power of two of at most 64.
    pub access_bytes: u32,
}

/// A programmable device behind PCIe: engines that copy between its memory and the host's, and a network port.
#[derive(Clone, Debug, PartialEq)]
pub struct FpgaParameters {
    /// Its clock's period, in picoseconds.
    pub cycle: u64,
    /// The period of its network port's clock, in picoseconds.
    pub port_cycle: u64,
    /// From the store that starts an engine to its first request, and from its last data to what it reports, in picoseconds.
    pub engine_time: u64,
    /// From a frame's last beat at the port to the interface's logic, besides the next, in picoseconds.
    pub receive_stage: u64,
    /// The same for each 128 bytes of the frame.
    pub receive_line: u64,
    /// From the interface's logic to a frame's last beat at the port, besides the next, in picoseconds.
    pub transmit_stage: u64,
    /// The same for each 128 bytes of the frame.
    pub transmit_line: u64,
    /// How long a transmitted frame is on its way until it is received, where the port is looped back, in picoseconds.
    pub loopback: u64,
}

/// What the driver of a device's copy engines does for a transfer: it walks the kernel's structures, which it finds in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct DriverParameters {
    /// Lines of structures from the call to the engine's start.
    pub call_lines: u32,
    /// Further ones for each page of the transfer.
    pub page_lines: u32,
    /// Lines of structures from the engine's report to the call's return.
    pub completion_lines: u32,
    /// Work with each of those lines, in cycles as `Core::work` counts them.
    pub line_work: u32,
    /// Work from an interrupt's message to the sleeper's wake-up, in the same cycles; polling has none of it.
    pub interrupt_work: u32,
}

/// Memory's refresh: a channel stands still for `span` once an `interval`. The channels take turns.
#[derive(Clone, Debug, PartialEq)]
pub struct RefreshParameters {
    /// In picoseconds.
    pub interval: u64,
    /// In picoseconds.
    pub span: u64,
}

/// A timer interrupt: it takes a core for `span` once an `interval`.
#[derive(Clone, Debug, PartialEq)]
pub struct TimerParameters {
    /// In picoseconds.
    pub interval: u64,
    /// In picoseconds.
    pub span: u64,
}

/// A network interface chip that stands behind a PCIe link.
#[derive(Clone, Debug, PartialEq)]
pub struct NicParameters {
    /// Packets that the chip moves in a second in each direction, all queues together.
    pub packets_per_second: u64,
    /// Bits of packet data that it moves in a second in each direction: its ports' rate.
    pub megabits_per_second: u64,
    /// Its rings are those of a ConnectX, as the driver `mlx5` has them; otherwise those of an E810.
    pub mlx5_rings: bool,
    /// Descriptors that it fetches at once at most; of a ConnectX's send queue, blocks of 64 bytes.
    pub descriptor_batch: u32,
    /// Received packets' descriptors that it writes back at once at most.
    pub write_back_batch: u32,
    /// How long it holds descriptors to be written back, waiting for more, in picoseconds.
    pub write_back_wait: u64,
    /// Its own time from a doorbell to the fetch of descriptors, in picoseconds.
    pub doorbell_time: u64,
    /// Its own time for a packet, from its last byte read to its first byte written, in picoseconds.
    pub pipeline_time: u64,
}

/// An engine that copies lines from one place in memory to another.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineParameters {
    /// Engines of a node.
    pub engines: u32,
    /// Lines that one has on their way at once, read and written together.
    pub lines_in_flight: u32,
    /// The least time from one line to the next, in picoseconds.
    pub line_time: u64,
    /// From a core's posting of a copy to the request for its first line, in picoseconds; those of several copies overlap.
    pub start_up: u64,
    /// Time of a core to post a copy, in picoseconds.
    pub post: u64,
}

impl CacheParameters {
    /// Bytes and ways of each level, first level first.
    pub fn sizes(&self) -> [(u64, u32); 3] {
        [(self.l1_bytes, self.l1_ways), (self.l2_bytes, self.l2_ways), (self.llc_bytes, self.llc_ways)]
    }
}

impl CoreParameters {
    /// For how long a core works while it fills its reorder buffer, in picoseconds.
    pub fn reorder_span(&self) -> u64 {
        let cycles = f64::from(self.reorder_buffer) / self.work_instructions * self.work_scale;
        (cycles * 1e6 / f64::from(self.frequency_megahertz)) as u64
    }

    /// The time of a thousand cycles of annotated work at a scale, in picoseconds.
    pub(crate) fn work_thousand(&self, scale: f64) -> u64 {
        (self.cycles(1_000_000) as f64 * scale / 1000.0) as u64
    }

    /// The time of some cycles, in picoseconds, rounded to the nearest.
    pub fn cycles(&self, cycles: u64) -> u64 {
        (cycles * 1_000_000 + u64::from(self.frequency_megahertz) / 2) / u64::from(self.frequency_megahertz)
    }
}
