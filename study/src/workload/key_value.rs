//! A key-value store behind a PCIe NIC, reached directly or through an overlay (CC-NIC section 5.7).

use conic_kv::{Demand, Sizes};
use conic_sim::Parameters;
use serde::{Deserialize, Serialize};

use super::Reached;

/// A run of the store.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyValue {
    /// The machine, with a NIC behind PCIe.
    pub machine: Parameters,
    /// How its threads reach the NIC.
    pub reached: Reached,
    /// What is asked for.
    pub demand: Demand,
    /// Threads of the store.
    pub threads: usize,
    /// Values of up to so many bytes are copied to be sent, and not sent from where they lie.
    pub copied_up_to: u16,
    /// Requests under way at most, of each of the NIC's queues.
    pub window: u64,
    /// Requests of each queue before measuring starts, and those measured.
    pub requests: (u64, u64),
    /// The seed of what is drawn.
    pub seed: u64,
}

impl KeyValue {
    /// A store of one thread that drives the NIC itself, as in the paper: every value is sent from where it lies.
    pub fn new(machine: &Parameters, sizes: Sizes) -> KeyValue {
        KeyValue {
            machine: machine.clone(),
            reached: Reached::Directly,
            demand: Demand::of_sizes(sizes),
            threads: 1,
            copied_up_to: 0,
            window: 64,
            requests: (500, 1000),
            seed: 1,
        }
    }
}

/// What a run found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyValueOutcome {
    /// Requests answered a second, all threads together.
    pub requests_per_second: f64,
    /// Bits of values in the answers of gets a second.
    pub value_bits_per_second: f64,
    /// Median time from a request at the NIC to its answer there, nanoseconds.
    pub median_nanoseconds: f64,
    /// 99th percentile, nanoseconds.
    pub p99_nanoseconds: f64,
    /// Requests that were answered while measuring.
    pub requests: u64,
    /// Those from the beginning whose value was overwritten while it left, and those refused because it was being replaced.
    pub asked_again: u64,
    /// Requests lost, or answered with anything but what was asked for: must be zero.
    pub wrong: u64,
    /// Share of the PCIe link's time that was used, from the host to the NIC and back.
    pub link_utilisation: [f64; 2],
    /// Memory operations that were simulated.
    pub operations: u64,
    /// Events of the engine.
    pub events: u64,
}
