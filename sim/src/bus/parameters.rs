//! What such a node is made of: every value that a mechanism of this machine reads.
//!
//! The values come from a platform file, where each has its provenance. Spans are cycles of the processor's clock, as in the paper's
//! Table 2, and capacities are bytes.

/// A parallel machine of nodes, each with a processor, its cache, memory, and a network interface on one of three buses.
#[derive(Clone, Debug, PartialEq)]
pub struct BusParameters {
    /// The platform's name, as in `platforms/NAME.toml`.
    pub name: String,
    /// The processor.
    pub core: BusCoreParameters,
    /// The memory bus.
    pub bus: MemoryBusParameters,
    /// The bus to the processor's cache.
    pub cache_bus: CacheBusParameters,
    /// The I/O bus, and the bridge to it.
    pub io: IoBusParameters,
    /// The network interface's own logic.
    pub device: BusDeviceParameters,
    /// The network between the nodes.
    pub network: NetworkParameters,
}

/// A processor that executes in order, and its cache. A load or store of coherent memory that misses stops it.
#[derive(Clone, Debug, PartialEq)]
pub struct BusCoreParameters {
    /// Clock, in megahertz.
    pub frequency_megahertz: u32,
    /// Cycles of a load of eight bytes that the cache has.
    pub load_cycles: u32,
    /// The same of a store.
    pub store_cycles: u32,
    /// Cycles until an access that the cache does not have asks for the bus.
    pub miss_cycles: u32,
    /// Uncached stores that wait for the bus while the processor goes on.
    pub store_buffer: u32,
    /// Bytes of the direct-mapped cache.
    pub cache_bytes: u64,
    /// Factor on what programs say that they work.
    pub work_scale: f64,
}

/// For how many cycles a transaction occupies the memory bus.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryBusParameters {
    /// Cycles of the processor in one of the bus.
    pub cycle: u32,
    /// An uncached load of eight bytes.
    pub load: u32,
    /// An uncached store of eight bytes.
    pub store: u32,
    /// A block, from whoever supplies it to whoever asked.
    pub block: u32,
    /// An invalidation.
    pub invalidate: u32,
    /// A block that is written back.
    pub write_back: u32,
    /// Whether a cache that has a block's tag, and no copy of it, takes in what another writes back (section 5.1.2).
    pub snarfing: bool,
}

/// The same for the bus between processor and cache, which no coherent transaction crosses.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheBusParameters {
    /// An uncached load of eight bytes.
    pub load: u32,
    /// An uncached store of eight bytes.
    pub store: u32,
}

/// The same for the I/O bus, beside what the transaction occupies of the memory bus; and the bridge between the two.
#[derive(Clone, Debug, PartialEq)]
pub struct IoBusParameters {
    /// Cycles of the processor in one of the bus.
    pub cycle: u32,
    /// An uncached load of eight bytes.
    pub load: u32,
    /// An uncached store of eight bytes.
    pub store: u32,
    /// A block from the device to the processor.
    pub block_to_core: u32,
    /// A block from the processor to the device.
    pub block_to_device: u32,
    /// An invalidation.
    pub invalidate: u32,
    /// Writes and invalidations that the bridge buffers in each direction.
    pub buffer: u32,
    /// What is lost when the bridge refuses a transaction of the device's, because the processor's comes the other way.
    pub refusal: u32,
}

/// The network interface's own logic.
#[derive(Clone, Debug, PartialEq)]
pub struct BusDeviceParameters {
    /// Cycles of the processor that a step takes: a block moved within the device, a register looked at.
    pub step: u32,
    /// Network messages that its send queue and its receive queue hold each, where they are hardware's alone (NI2w, CNI4).
    pub fifo_messages: u32,
}

/// A network without topology.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkParameters {
    /// Nodes.
    pub nodes: u32,
    /// Cycles from a message's injection to its arrival; and of an acknowledgement.
    pub latency: u32,
    /// Messages to a node that may be without acknowledgement.
    pub window: u32,
}

impl BusCoreParameters {
    /// Picoseconds of so many cycles.
    pub fn cycles(&self, cycles: u64) -> u64 {
        cycles * 1_000_000 / u64::from(self.frequency_megahertz)
    }
}
