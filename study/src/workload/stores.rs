//! What a core's stores cost by the memory they go to.

use conic_sim::Parameters;
use serde::{Deserialize, Serialize};

/// Where stores go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreTarget {
    /// A device's memory behind PCIe, mapped write-combining.
    DeviceWriteCombining,
    /// The node's memory, mapped write-combining.
    MemoryWriteCombining,
    /// The node's memory, mapped write-back, as always.
    MemoryWriteBack,
}

/// How many bytes a second does one core store, with a store fence after every so many (CC-NIC Figure 2)? It stores whole lines in
/// order, each of them once: none is in a cache before.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreThroughput {
    /// The machine; with a PCIe link where the stores go to a device.
    pub machine: Parameters,
    /// Where the stores go.
    pub target: StoreTarget,
    /// Bytes stored before each fence; a multiple of 64.
    pub bytes_per_barrier: u64,
    /// Bytes stored before measuring starts, and bytes measured.
    pub bytes: (u64, u64),
}

/// What was stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThroughputOutcome {
    /// Bits stored a second.
    pub bits_per_second: f64,
}

/// How long do some 4-byte stores to a device take the core, each to a 64-byte block of its own, mapped write-combining, with every
/// write-combining buffer empty at first (CC-NIC Figure 3)?
#[derive(Clone, Debug, PartialEq)]
pub struct StoreBurst {
    /// The machine, with a PCIe link.
    pub machine: Parameters,
    /// Stores of a burst.
    pub stores: u32,
    /// Bursts; between two of them every buffer drains.
    pub bursts: u32,
}

/// What the stores took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BurstOutcome {
    /// Median over the bursts of the time from the first store until the core has got rid of the last, without a fence,
    /// nanoseconds.
    pub total_nanoseconds: f64,
}
