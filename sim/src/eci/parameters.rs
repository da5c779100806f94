//! What such a machine is made of: every value that a mechanism of this room reads.
//!
//! The values come from a platform file, where each has its provenance. Times are integer picoseconds, capacities are bytes.

use crate::parameters::InterconnectParameters;

/// A CPU and a device that is home to lines which the CPU caches.
#[derive(Clone, Debug, PartialEq)]
pub struct EciParameters {
    /// The platform's name, as in `platforms/NAME.toml`.
    pub name: String,
    /// The CPU's cores.
    pub core: EciCoreParameters,
    /// Their first-level caches, and the second-level cache that they share.
    pub cache: EciCacheParameters,
    /// The links between the CPU and the device.
    pub link: EciLinkParameters,
    /// The directory controller of the device.
    pub directory: EciDirectoryParameters,
    /// The device's own logic.
    pub device: EciDeviceParameters,
    /// What the CPU's software takes that is not simulated instruction by instruction.
    pub software: EciSoftwareParameters,
}

/// A graph of Timely Dataflow on a core of this machine, in picoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct EciSoftwareParameters {
    /// A batch's way through a graph of one operator, its input and its probe among it, records apart.
    pub batch: u64,
    /// Each operator more, records apart.
    pub operator: u64,
    /// Each operator more that only states what a device says of it.
    pub stand_in: u64,
    /// A record in an operator.
    pub record: u64,
    /// A Bloom filter's hashes of an element of 128 bytes, computed on the core.
    pub bloom_element: u64,
}

/// A core that executes in order: a load that misses stops it, stores and prefetches do not.
#[derive(Clone, Debug, PartialEq)]
pub struct EciCoreParameters {
    /// Cores.
    pub cores: u32,
    /// Clock, in megahertz.
    pub frequency_megahertz: u32,
    /// Cycles that a load, store or prefetch takes to issue.
    pub issue_cycles: u32,
    /// Most bytes of one load or store.
    pub access_bytes: u32,
    /// Cycles from a load to its use when it hits the first-level cache.
    pub l1_hit_cycles: u32,
    /// Stores, each of at most 64 bytes of one line, that wait until the second-level cache has them.
    pub store_buffer: u32,
    /// Prefetches that may be on their way at once; a further one waits.
    pub prefetches: u32,
}

/// The caches. The first level is written through, so a line is where the second level has it.
#[derive(Clone, Debug, PartialEq)]
pub struct EciCacheParameters {
    /// Bytes of a line: 64 or 128.
    pub line_bytes: u64,
    /// First level, data, of each core.
    pub l1_bytes: u64,
    /// Its ways.
    pub l1_ways: u32,
    /// From a core, past its first level, to the second level.
    pub core_to_l2: u64,
    /// From the second level to a core.
    pub l2_to_core: u64,
    /// Between two stores of one core that the second level takes.
    pub store_interval: u64,
    /// From a recall's arrival to its answer's departure.
    pub recall_lookup: u64,
    /// Whether a recalled line that was changed is first written back, and the recall answered only when the home has said that it
    /// has the data.
    pub writes_back_first: bool,
    /// Transaction units (TADs), over which neighbouring lines are spread.
    pub transaction_units: u32,
    /// Transactions that each of them handles at once: requests without an answer, and recalls.
    pub unit_transactions: u32,
    /// The longest that a request waits for its answer before the CPU faults.
    pub patience: u64,
}

/// The links, side by side, each with two directions.
#[derive(Clone, Debug, PartialEq)]
pub struct EciLinkParameters {
    /// Links; a line's messages always take the same one.
    pub links: u32,
    /// From one end to the other, besides the time on the wire.
    pub crossing: u64,
    /// Bytes of a word, in which messages are counted: one for a message without a line.
    pub word_bytes: u32,
    /// Time of a word on the wire of one link.
    pub word_time: u64,
    /// Words of a message that carries a line, its header among them.
    pub line_words: u32,
}

impl EciLinkParameters {
    /// The same in the terms of [`crate::link`], where a word is a flit of one slot, so that nothing rides.
    pub fn wires(&self) -> InterconnectParameters {
        InterconnectParameters {
            links: self.links,
            crossing: self.crossing,
            flit_time: self.word_time,
            flit_bytes: self.word_bytes,
            flit_slots: 1,
            data_flits: self.line_words,
            data_slots: self.line_words,
            header_slots: 1,
            request_credits: u32::MAX,
        }
    }
}

/// The directory controller: slices, each with units that handle a few transactions at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct EciDirectoryParameters {
    /// Slices; the address hash's lowest bit says which, so there are one or two.
    pub slices: u32,
    /// Units of a slice, a power of two of at most 32.
    pub units: u32,
    /// Transactions that a unit handles at once: requests that were not answered, and recalls until the line is unlocked.
    pub transactions: u32,
    /// A message's way through the controller, from the link to the device's logic or back.
    pub pass: u64,
    /// Time for which a message without a line occupies its slice, in each direction.
    pub header_time: u64,
    /// The same of a message with a line.
    pub line_time: u64,
}

/// The device's own logic.
#[derive(Clone, Debug, PartialEq)]
pub struct EciDeviceParameters {
    /// Its clock's period.
    pub cycle: u64,
    /// Time that it takes for each message that it hears of, and for each recall that is done.
    pub message_time: u64,
    /// How often at least it looks at its timers.
    pub timer_resolution: u64,
    /// The period of the clock of a NIC's logic, and of the directory controller that it is built with.
    pub nic_cycle: u64,
    /// From the link's clock to that one, or back: what each message takes longer where they are two.
    pub nic_crossing: u64,
    /// Between two messages that cross so, at the least.
    pub nic_crossing_interval: u64,
    /// The period of the network port's clock.
    pub port_cycle: u64,
    /// From an element of 128 bytes to its eight hashes, where the device computes them, in cycles of its clock.
    pub hash_latency: u32,
    /// From one such element to the next, in cycles of its clock.
    pub hash_interval: u32,
    /// From a number to whether it passes a trivial filter on the device, in cycles of its clock; each takes one a cycle.
    pub filter_latency: u32,
    /// From a frame's last beat at the device's network port to the interface's logic, besides the next.
    pub receive_stage: u64,
    /// The same for each 128 bytes of the frame.
    pub receive_line: u64,
    /// From the interface's logic to a frame's last beat at the port, besides the next.
    pub transmit_stage: u64,
    /// The same for each 128 bytes of the frame.
    pub transmit_line: u64,
}

impl EciParameters {
    /// The same machine with the directory controller on the clock of a NIC's logic instead of the link's: what takes cycles there
    /// takes as many of the other clock, and every message crosses between the two.
    #[must_use]
    pub fn on_nic_clock(&self) -> EciParameters {
        let EciDeviceParameters { cycle, nic_cycle, nic_crossing, nic_crossing_interval, .. } = self.device;
        let same_cycles = |time: u64| time * nic_cycle / cycle;
        let mut nic = self.clone();
        // Once for each message: between the link and the directory.
        nic.link.crossing += nic_crossing;
        nic.directory.pass = same_cycles(self.directory.pass);
        nic.directory.header_time = same_cycles(self.directory.header_time).max(nic_crossing_interval);
        nic.directory.line_time = same_cycles(self.directory.line_time).max(nic_crossing_interval);
        nic.device.message_time = same_cycles(self.device.message_time);
        nic.device.cycle = nic_cycle;
        nic
    }
}

impl EciCoreParameters {
    /// The time of some cycles, in picoseconds, rounded to the nearest.
    pub fn cycles(&self, cycles: u64) -> u64 {
        (cycles * 1_000_000 + u64::from(self.frequency_megahertz) / 2) / u64::from(self.frequency_megahertz)
    }
}
