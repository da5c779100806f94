//! What one access costs when nothing else runs.

use conic_sim::Parameters;
use serde::{Deserialize, Serialize};

/// Where the accessed line is just before the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// In no cache: in the memory of its home node alone.
    Memory,
    /// Modified, in the private caches of another core of the reader's node.
    NeighbourCore,
    /// Modified, in the private caches of a core of the other node, which wrote it and kept it.
    OtherNodeCore,
}

/// Which node the accessed line is home to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Home {
    /// The reader's.
    Reader,
    /// The other one; the writer's, where a core of that node holds the line.
    Other,
}

/// How long does a dependent load of one cold line take (CC-NIC Figure 7)? The reader runs on node 0. Each access is to a line
/// that this reader never touched before, or that was brought back to the same state; prefetchers are off.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLatency {
    /// The machine.
    pub machine: Parameters,
    /// Who holds the line.
    pub holder: Holder,
    /// Where it is home.
    pub home: Home,
    /// Accesses, one after the other.
    pub accesses: u64,
    /// The seed of everything that is drawn.
    pub seed: u64,
}

/// What the accesses took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AccessOutcome {
    /// Median, from the load's issue to its use, nanoseconds.
    pub median_nanoseconds: f64,
    /// The lowest, nanoseconds.
    pub minimum_nanoseconds: f64,
}

/// How long does a core's load of a device register over PCIe take (CC-NIC section 2.2)?
#[derive(Clone, Debug, PartialEq)]
pub struct RegisterRead {
    /// The machine, with a PCIe link.
    pub machine: Parameters,
    /// Bytes of the load: 8, or 64 for one vector register.
    pub bytes: u32,
    /// Loads, one after the other.
    pub accesses: u64,
}

/// What the loads took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegisterOutcome {
    /// Median, nanoseconds.
    pub median_nanoseconds: f64,
}
