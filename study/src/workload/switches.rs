//! Switches beyond the paper that change how a loopback runs, rather than its interface.

use conic_fabric::Time;
pub use conic_interface::serve::Attention;
pub use conic_load::Touch;

/// Which NIC cores serve a loopback's queue pairs. Over PCIe a chip does, and none of this applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serving {
    /// A NIC core for each queue pair, as in the paper.
    #[default]
    OneEach,
    /// One NIC core for all queue pairs, of which there are more than host threads: the others are idle.
    Shared {
        /// Queue pairs, at least as many as host threads.
        queue_pairs: usize,
        /// How the core finds those that have work.
        attention: Attention,
    },
}

/// Who makes the packets, and what the host does to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Application {
    /// The host makes them, the NIC turns them around, and the host reads them: the paper's loopback.
    #[default]
    Loopback,
    /// The same with data of the host's own: it copies each packet into a buffer to send it, and out of one when it has come
    /// back, of which it then reads the first line.
    Copying,
    /// The NIC makes them, and the host sends them on in the same buffers. Latency is the NIC's, from before a packet is
    /// written to after it has come back.
    Forwarding(Touch),
}

/// Which side has an engine that copies payloads for its cores. The engines of a node are shared by its cores in turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Engines {
    /// The host, for the copies of [`Application::Copying`].
    pub host: bool,
    /// The NIC, for the copies with which CC-NIC's turns packets around.
    pub nic: bool,
}

/// How far apart buffers of 4 KB lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// 4096 bytes, metadata included: they share few sets of a cache.
    Pages,
    /// 4 KB and the metadata, an odd number of lines, as DPDK's pools lay them out.
    OddLines,
}

/// What goes beyond the paper; by default nothing does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Which NIC cores serve the queue pairs.
    pub serving: Serving,
    /// Who makes the packets.
    pub application: Application,
    /// Whose copies of payloads an engine makes.
    pub engines: Engines,
    /// CC-NIC's host keeps no metadata in front of its buffers, as programs of ours do on memory; the paper's does, which is one
    /// of DPDK's (section 2.1). [`super::Interface`] says it of the rings.
    pub bare_buffers: bool,
    /// How far apart the buffers lie, where it is to be another way than the interface's own: the unoptimised ring's are pages, and
    /// CC-NIC's lie an odd number of lines apart.
    pub spacing: Option<Spacing>,
    /// For how long each queue pair's own NIC core stands still before its first round, as a real one does now and then whose
    /// system, or a hypervisor, takes it away. A closed loop that sends a burst for each that it receives never again has fewer
    /// packets in flight than it once had: what came of such a stop stays, as more latency, however short the run is.
    pub late: Time,
}
