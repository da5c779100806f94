//! Data from node to node as fast as it goes.

use conic_sim::Parameters;
use serde::{Deserialize, Serialize};

/// How the writer of a stream stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamStores {
    /// Ordinary stores, into the writer's caches; the region is home to the writer's node.
    Caching,
    /// Non-temporal stores, into the memory of the reader's node, to which the region is home.
    NonTemporal,
}

/// How much does a stream carry (CC-NIC Figure 9)? Each pair is a writer on node 0 and a reader on node 1. The writer fills its
/// region chunk after chunk, one 64-byte store a line, and signals each chunk through a register; the reader copies each signalled
/// chunk into a buffer of its own, which stays in its caches' reach, and answers through a register. The writer does not write
/// over a chunk that is not read yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// The machine.
    pub machine: Parameters,
    /// How the writers store.
    pub stores: StreamStores,
    /// Pairs of threads.
    pub pairs: usize,
    /// Bytes that each signal stands for.
    pub chunk_bytes: u64,
    /// Chunks of a writer's region, used in turn.
    pub region_chunks: u64,
    /// Chunks of each pair before measuring starts, and chunks measured.
    pub chunks: (u64, u64),
    /// The seed of everything that is drawn.
    pub seed: u64,
}

/// What the streams carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamOutcome {
    /// Bits of data a second, all pairs together.
    pub bits_per_second: f64,
    /// Share of the interconnect's flit time that was used, from node 0 to node 1 and back.
    pub link_utilisation: [f64; 2],
}

/// How much can node 0's cores read from node 1's memory, with nobody writing (the read-only rate of section 3.3)? Each thread
/// reads lines of its own, in order, that are in no cache; prefetchers are on, as they are by default.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadOnly {
    /// The machine.
    pub machine: Parameters,
    /// Reading cores of node 0.
    pub threads: usize,
    /// Lines of each thread before measuring starts, and lines measured.
    pub lines: (u64, u64),
    /// The seed of everything that is drawn.
    pub seed: u64,
}

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadOnlyOutcome {
    /// Bits of data a second, all threads together.
    pub bits_per_second: f64,
    /// Share of the interconnect's flit time that was used, from node 0 to node 1 and back.
    pub link_utilisation: [f64; 2],
}
