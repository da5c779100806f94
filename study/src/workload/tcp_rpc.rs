//! An echo server over a TCP service behind a PCIe NIC, reached directly or through an overlay (CC-NIC section 5.7).

use conic_sim::Parameters;
use conic_tcp::{Acknowledge, Load};
use serde::{Deserialize, Serialize};

use super::Reached;

/// A run of the service, with one application thread.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpRpc {
    /// The machine, with a NIC behind PCIe.
    pub machine: Parameters,
    /// How fast-path threads reach the NIC.
    pub reached: Reached,
    /// Fast-path threads; the application has a core beside them.
    pub threads: usize,
    /// Connections: at least one for each of the NIC's queues.
    pub flows: u32,
    /// What the clients of a connection ask.
    pub load: Load,
    /// When the service acknowledges.
    pub acknowledge: Acknowledge,
    /// Requests of each connection, in the mean, before measuring starts, and those measured.
    pub requests: (u64, u64),
    /// The seed of what is drawn.
    pub seed: u64,
}

impl TcpRpc {
    /// Section 5.7's 96 connections on one fast-path thread that drives the NIC itself. What the paper does not say is as in TAS and
    /// its benchmark's client: data is acknowledged at once, 64 requests of a connection are under way, and each is sent by itself.
    pub fn new(machine: &Parameters) -> TcpRpc {
        TcpRpc {
            machine: machine.clone(),
            reached: Reached::Directly,
            threads: 1,
            flows: 96,
            load: Load { window: 64, requests_a_segment: 1 },
            acknowledge: Acknowledge::AtOnce,
            requests: (256, 256),
            seed: 1,
        }
    }
}

/// What a run found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpRpcOutcome {
    /// Requests answered a second, all connections together.
    pub requests_per_second: f64,
    /// Median time from a request at its client to its answer there, nanoseconds.
    pub median_nanoseconds: f64,
    /// 99th percentile, nanoseconds.
    pub p99_nanoseconds: f64,
    /// Requests that were answered while measuring.
    pub requests: u64,
    /// Answers in each segment with data, in the mean.
    pub answers_a_segment: f64,
    /// Packets that the service sent for each request answered.
    pub sent_a_request: f64,
    /// Requests answered with anything but what was asked for: must be zero.
    pub wrong: u64,
    /// Share of the PCIe link's time that was used, from the host to the NIC and back.
    pub link_utilisation: [f64; 2],
    /// Memory operations that were simulated.
    pub operations: u64,
    /// Events of the engine.
    pub events: u64,
}
