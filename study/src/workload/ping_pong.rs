//! Two words, two nodes, one message at a time.

use conic_sim::Parameters;
use serde::{Deserialize, Serialize};

/// Where the two words lie (CC-NIC Figure 8). The first word is written by the thread on node 0 and polled on node 1, the second
/// the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PingPongLayout {
    /// Each in a line of its own, both home to this node (the paper's S0 and S1).
    SeparateLines {
        /// 0 or 1.
        node: u8,
    },
    /// Each in a line of its own, home to the node that reads it (Rd).
    ReaderHomed,
    /// Each in a line of its own, home to the node that writes it (Wr).
    WriterHomed,
    /// Both in one line, home to this node (S0C and S1C).
    OneLine {
        /// 0 or 1.
        node: u8,
    },
}

/// How long is a round trip between two cores, one on each node? One increments the first word and polls the second, the other
/// polls the first and then increments the second.
#[derive(Clone, Debug, PartialEq)]
pub struct PingPong {
    /// The machine.
    pub machine: Parameters,
    /// Where the words lie.
    pub layout: PingPongLayout,
    /// Round trips before measuring starts, and round trips measured.
    pub rounds: (u64, u64),
    /// The seed of everything that is drawn.
    pub seed: u64,
}

/// What the round trips took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PingPongOutcome {
    /// Median round trip, nanoseconds: from writing the first word to reading the same value in the second.
    pub median_nanoseconds: f64,
    /// Requests of both cores, reads and reads for ownership, that crossed the interconnect or were answered across it, a
    /// round trip.
    pub remote_requests: f64,
}
