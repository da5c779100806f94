//! What is run on a modelled machine: one question, one answer. Every experiment, `conic sim` and the tests ask here.

mod access;
mod buffers;
mod key_value;
mod machine;
mod ping_pong;
mod reached;
mod stores;
mod stream;
mod switches;
mod tcp_rpc;

pub use access::{AccessLatency, AccessOutcome, Holder, Home, RegisterOutcome, RegisterRead};
pub use buffers::DESCRIPTORS;
pub use key_value::{KeyValue, KeyValueOutcome};
pub use machine::{Answer, Asked, Failure, Machine, Question};
pub use ping_pong::{PingPong, PingPongLayout, PingPongOutcome};
pub use reached::Reached;
pub use stores::{BurstOutcome, StoreBurst, StoreTarget, StoreThroughput, ThroughputOutcome};
pub use stream::{ReadOnly, ReadOnlyOutcome, Stream, StreamOutcome, StreamStores};
pub use switches::{Application, Attention, Engines, Serving, Spacing, Switches, Touch};
pub use tcp_rpc::{TcpRpc, TcpRpcOutcome};

use conic_interface::ccnic::Features;
use conic_sim::Parameters;
use serde::{Deserialize, Serialize};

/// Which host-NIC interface runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interface {
    /// CC-NIC over the coherent interconnect, with its switches.
    CcNic(Features),
    /// The ring with head and tail registers over the coherent interconnect: the paper's unoptimised baseline.
    UnoptimisedRing,
    /// The same ring as `conic bench loopback` runs it: recently freed buffers are taken first, lines asked for ahead.
    Ring,
    /// The ring over PCIe to the platform's NIC chip.
    PcieRing,
}

/// Where the NIC's agents run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicPlace {
    /// On the other node.
    Remote,
    /// On cores of the host's own node (Figure 18).
    SameNode,
}

/// What one core's hardware prefetchers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefetching {
    /// The host's cores have them on.
    pub host: bool,
    /// The NIC's cores have them on.
    pub nic: bool,
}

/// Packets that a NIC core handles in one round at most, where nothing else is asked for.
pub const NIC_BURST: usize = 32;

/// A loopback: packets are written, sent, turned around by the NIC, received and read (CC-NIC section 5.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Loopback {
    /// The machine.
    pub machine: Parameters,
    /// The interface.
    pub interface: Interface,
    /// Where the NIC runs.
    pub nic_place: NicPlace,
    /// Host threads, each with a queue pair of its own and, over coherence, a NIC thread of its own.
    pub threads: usize,
    /// Bytes of a packet.
    pub packet_size: u16,
    /// Packets in flight at most, each thread.
    pub window: u64,
    /// Packets sent in one call at most.
    pub transmit_burst: usize,
    /// Packets received in one call at most.
    pub receive_burst: usize,
    /// Packets that a NIC core handles in one round at most, 4 to 32. A NIC behind PCIe is a chip, and has its own way.
    pub nic_burst: usize,
    /// A closed loop sends whole transmit bursts alone: it waits until the window has room for one.
    pub whole_bursts: bool,
    /// Offered load in packets a second, each thread: an open loop, latency from the intended time. Without it the loop is
    /// closed: as fast as the window allows.
    pub offered: Option<f64>,
    /// The hardware prefetchers.
    pub prefetching: Prefetching,
    /// The scale of the NIC's annotated work, where it is not the platform's.
    pub nic_work: Option<f64>,
    /// Packets of each thread before measuring starts, and packets measured of each thread.
    pub packets: (u64, u64),
    /// What goes beyond the paper.
    pub switches: Switches,
    /// The seed of everything that is drawn.
    pub seed: u64,
}

impl Loopback {
    /// A closed loop of one thread on another node's NIC: 64-byte packets, 32 in flight, in bursts of 32; the host's
    /// prefetchers are on, the NIC's off; 1200 packets after as many to warm up.
    pub fn new(machine: &Parameters, interface: Interface) -> Loopback {
        Loopback {
            machine: machine.clone(),
            interface,
            nic_place: NicPlace::Remote,
            threads: 1,
            packet_size: 64,
            window: 32,
            transmit_burst: 32,
            receive_burst: 32,
            nic_burst: NIC_BURST,
            whole_bursts: false,
            offered: None,
            prefetching: Prefetching { host: true, nic: false },
            nic_work: None,
            packets: (1200, 1200),
            switches: Switches::default(),
            seed: 1,
        }
    }
}

/// Accesses that crossed the interconnect, a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RemoteAccesses {
    /// Reads.
    pub reads: f64,
    /// Reads for ownership, upgrades included.
    pub rfos: f64,
}

/// What a loopback did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopbackOutcome {
    /// Packets a second, all threads together.
    pub packets_per_second: f64,
    /// Bits of payload a second, all threads together.
    pub bits_per_second: f64,
    /// Median round-trip latency, nanoseconds.
    pub median_nanoseconds: f64,
    /// The same from when packets were written, as the stamps in them say: in an open loop without the time for which what was
    /// due waited to be written.
    pub median_from_writing_nanoseconds: f64,
    /// 99th percentile, nanoseconds.
    pub p99_nanoseconds: f64,
    /// What 99.9% do not exceed, nanoseconds.
    pub p999_nanoseconds: f64,
    /// The lowest, nanoseconds.
    pub minimum_nanoseconds: f64,
    /// What the NIC's agents did, a packet.
    pub nic: RemoteAccesses,
    /// What the host's agents did, a packet.
    pub host: RemoteAccesses,
    /// Share of the interconnect's flit time that was used, from the host to the NIC and back.
    pub link_utilisation: [f64; 2],
    /// Bytes on the interconnect a packet, from the host to the NIC and back.
    pub link_bytes: [f64; 2],
    /// Packets measured.
    pub packets: u64,
    /// Packets lost: must be zero.
    pub lost: u64,
    /// Packets spoilt, out of order, or twice there: must be zero.
    pub corrupt: u64,
    /// Simulated time, seconds.
    pub simulated_seconds: f64,
    /// Memory operations that were simulated.
    pub operations: u64,
    /// Events of the engine.
    pub events: u64,
}

impl LoopbackOutcome {
    /// Packets lost or spoilt: must be zero.
    pub fn wrong(&self) -> u64 {
        self.lost + self.corrupt
    }
}
