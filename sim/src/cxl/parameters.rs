//! What such a machine is made of: every value that a mechanism of this room reads.
//!
//! The values come from a platform file, where each has its provenance. Times are integer picoseconds, capacities are bytes.

use crate::parameters::{CacheParameters, InterconnectParameters, MemoryParameters, PcieParameters, RefreshParameters};

/// A host, and a device behind a CXL or a PCIe link.
#[derive(Clone, Debug, PartialEq)]
pub struct CxlParameters {
    /// The platform's name, as in `platforms/NAME.toml`.
    pub name: String,
    /// The host's cores.
    pub core: HostCoreParameters,
    /// Their caches.
    pub cache: CacheParameters,
    /// The way from a core to the home agents and back.
    pub host: HostParameters,
    /// The host's memory.
    pub memory: MemoryParameters,
    /// Its refresh; none: it is part of other values.
    pub refresh: Option<RefreshParameters>,
    /// The CXL link.
    pub link: CxlLinkParameters,
    /// The device's coherence engine.
    pub dcoh: DcohParameters,
    /// The device's own memory.
    pub device_memory: MemoryParameters,
    /// Its refresh; none: it is part of other values.
    pub device_refresh: Option<RefreshParameters>,
    /// The device's logic: a NIC.
    pub device: CxlDeviceParameters,
    /// The PCIe link, on which registers and a DMA engine are.
    pub pcie: PcieParameters,
    /// DMA engines.
    pub dma: DmaParameters,
    /// Cores on the device, where it has some.
    pub software: Option<SoftwareParameters>,
}

/// A core of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostCoreParameters {
    /// Cores.
    pub cores: u32,
    /// Clock, in megahertz.
    pub frequency_megahertz: u32,
    /// Cycles that a load or store of up to a line takes to issue.
    pub issue_cycles: u32,
    /// Cycles from a load to its use when it hits the first-level cache.
    pub l1_hit_cycles: u32,
    /// The same when it hits the second-level cache.
    pub l2_hit_cycles: u32,
    /// Cycles of an atomic operation on an owned line.
    pub atomic_cycles: u32,
    /// Lines that may be on their way to a core at once, for loads and stores.
    pub line_fill_buffers: u32,
    /// Instructions that a core may have under way behind the oldest one that is not done (reorder buffer).
    pub reorder_buffer: u32,
    /// Instructions that one cycle of annotated work stands for: how much work the reorder buffer spans.
    pub work_instructions: f64,
    /// Stores, each of at most a line, that wait to be performed.
    pub store_buffer: u32,
    /// Non-temporal stores that may be on their way at once.
    pub write_combining_buffers: u32,
    /// Cycles that one cycle of annotated work takes here.
    pub work_scale: f64,
}

/// Between cores and home agents.
#[derive(Clone, Debug, PartialEq)]
pub struct HostParameters {
    /// From a core, past its private caches, to the home agent of a line.
    pub core_to_home: u64,
    /// From a home agent to a core, until the core may use what came.
    pub home_to_core: u64,
    /// A request's way through the home agent.
    pub home_lookup: u64,
    /// Reading a line out of the last-level cache.
    pub llc_read: u64,
    /// A snooped core's look into its private caches.
    pub snoop_lookup: u64,
    /// From an interrupt's message at the home agents until the program that waited for it goes on.
    pub interrupt: u64,
    /// Reading a counter of the last-level cache's monitoring: occupancy, or what a group of cores has brought in.
    pub monitor_read: u64,
    /// The memory controllers take a read's data out of their queue of writes where its line still waits there.
    pub reads_pending_writes: bool,
}

/// The CXL link. Messages are counted in quarters of a slot: the finest that the packing rules tell apart.
#[derive(Clone, Debug, PartialEq)]
pub struct CxlLinkParameters {
    /// The device speaks CXL; if not, it reaches the host by DMA alone.
    pub present: bool,
    /// From one end to the other, besides the time on the wire.
    pub crossing: u64,
    /// Time of a quarter of a slot on the wire, the flit's own bytes shared out.
    pub quarter_time: u64,
    /// Quarters of 64 bytes of data.
    pub line_quarters: u32,
    /// Quarters of a data header, in either direction.
    pub data_header_quarters: u32,
    /// Quarters of a request of the device (CXL.cache).
    pub device_request_quarters: u32,
    /// Quarters of a snoop.
    pub snoop_quarters: u32,
    /// Quarters of an answer without data, in either direction.
    pub answer_quarters: u32,
    /// Quarters of a request of the host (CXL.mem).
    pub memory_request_quarters: u32,
    /// Quarters of a flit.
    pub flit_quarters: u32,
    /// The part of the flits that arrive damaged, below 1.
    pub flit_error_rate: f64,
    /// Flits that a sender keeps until they are acknowledged.
    pub retry_flits: u32,
    /// From a flit's arrival until its acknowledgement, or the request to send it again, is on the link.
    pub acknowledge: u64,
    /// From a message's arrival at its receiver until the credit for another is on the link.
    pub credit_return: u64,
    /// CXL.cache requests, or snoops, that a receiver has room for.
    pub request_credits: u32,
    /// Its answers without data.
    pub answer_credits: u32,
    /// Its lines of data.
    pub data_credits: u32,
    /// Messages of CXL.mem that a receiver has room for.
    pub memory_credits: u32,
}

impl CxlLinkParameters {
    /// The same in the terms of [`crate::link`], where a quarter is a flit.
    pub fn wires(&self) -> InterconnectParameters {
        InterconnectParameters {
            links: 1,
            crossing: self.crossing,
            flit_time: self.quarter_time,
            flit_bytes: 4,
            flit_slots: 1,
            data_flits: self.line_quarters,
            data_slots: self.line_quarters,
            header_slots: 1,
            request_credits: u32::MAX,
        }
    }
}

/// The device's coherence engine (DCOH), with its cache of host lines (HMC) and that of its own (DMC).
#[derive(Clone, Debug, PartialEq)]
pub struct DcohParameters {
    /// The device's clock period.
    pub cycle: u64,
    /// Requests of the device's logic for packets that it takes in a cycle.
    pub ports: u32,
    /// Those for descriptors, which come through a port of their own.
    pub descriptor_ports: u32,
    /// Requests that it may have under way.
    pub requests_in_flight: u32,
    /// From a request's issue to its answer when its line is in the device's cache.
    pub hit: u64,
    /// From a request's issue to the link when it is not.
    pub miss: u64,
    /// From the link to the device's logic.
    pub completion: u64,
    /// From a pull's arrival to its data's departure.
    pub pull: u64,
    /// From a snoop's arrival to its answer's departure.
    pub snoop: u64,
    /// From the arrival of the host's request for the device's memory to the memory, and from there to the link.
    pub memory_pass: u64,
    /// What an answer takes longer whose line is put into the device's cache.
    pub install: u64,
    /// Time between two lines that are put into the device's cache.
    pub install_interval: u64,
    /// Bytes of the cache of host lines.
    pub hmc_bytes: u64,
    /// Its ways.
    pub hmc_ways: u32,
    /// Bytes of the cache of the device's lines.
    pub dmc_bytes: u64,
    /// Its ways.
    pub dmc_ways: u32,
}

/// The device's logic, a NIC's.
#[derive(Clone, Debug, PartialEq)]
pub struct CxlDeviceParameters {
    /// Its clock's period, a core's where it has cores.
    pub cycle: u64,
    /// Its own time for a packet that comes in, before the first request.
    pub receive_stage: u64,
    /// Its own time for a packet that goes out, after the last answer.
    pub transmit_stage: u64,
    /// From a register write's arrival until its logic acts on it.
    pub doorbell: u64,
    /// Its logic's time to take a request of a key-value store out of a packet and hash its key, and to make the answer's packet.
    pub request: u64,
}

/// DMA over PCIe.
#[derive(Clone, Debug, PartialEq)]
pub struct DmaParameters {
    /// The device's own time of a read, before its request is on the link.
    pub engine_read: u64,
    /// The device's own time of a write, before it is on the link.
    pub engine_write: u64,
    /// Time between two transfers' lines in the engine.
    pub line_time: u64,
    /// What software on the device adds to a read that it sets up: descriptor, doorbell, and seeing that it is done.
    pub read_software: u64,
    /// The same of a write.
    pub write_software: u64,
}

/// Cores on the device, with memory of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftwareParameters {
    /// A load that hits their caches.
    pub hit: u64,
    /// A load that does not.
    pub memory: u64,
    /// Bytes of their last-level cache.
    pub cache_bytes: u64,
    /// Its ways.
    pub cache_ways: u32,
    /// From a request's last beat at the port until a core has taken it apart.
    pub request_in: u64,
    /// From its answer until that is at the port.
    pub request_out: u64,
    /// What a core adds to a read of the host's memory that it asks for by RDMA.
    pub rdma_read: u64,
    /// The same of a write.
    pub rdma_write: u64,
}

impl DcohParameters {
    /// Bytes and ways of the cache of host lines.
    pub fn hmc(&self) -> (u64, u32) {
        (self.hmc_bytes, self.hmc_ways)
    }

    /// Bytes and ways of the cache of the device's lines.
    pub fn dmc(&self) -> (u64, u32) {
        (self.dmc_bytes, self.dmc_ways)
    }
}

impl CxlParameters {
    /// The device as its own cores see it: their caches and memory in the place of the coherence engine's. None if it has no cores.
    pub fn seen_by_software(&self) -> Option<CxlParameters> {
        let software = self.software.clone()?;
        let mut seen = self.clone();
        seen.dcoh.hit = software.hit;
        seen.dcoh.miss = software.hit / 2;
        seen.dcoh.completion = 0;
        (seen.dcoh.install, seen.dcoh.install_interval) = (0, 0);
        (seen.dcoh.dmc_bytes, seen.dcoh.dmc_ways) = (software.cache_bytes, software.cache_ways);
        seen.device_memory.latency = software.memory - software.hit / 2;
        Some(seen)
    }
}

impl HostCoreParameters {
    /// The time of some cycles, in picoseconds, rounded to the nearest.
    pub fn cycles(&self, cycles: u64) -> u64 {
        (cycles * 1_000_000 + u64::from(self.frequency_megahertz) / 2) / u64::from(self.frequency_megahertz)
    }

    /// For how long a core works while it fills its reorder buffer, in picoseconds.
    pub fn reorder_span(&self) -> u64 {
        let cycles = f64::from(self.reorder_buffer) / self.work_instructions * self.work_scale;
        (cycles * 1e6 / f64::from(self.frequency_megahertz)) as u64
    }

    /// The time of so many cycles of annotated work, in picoseconds.
    pub fn work(&self, cycles: u32) -> u64 {
        (f64::from(cycles) * self.work_scale * 1e6 / f64::from(self.frequency_megahertz)) as u64
    }
}
