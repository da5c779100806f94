//! Switches beyond the paper that change how a loopback runs, rather than its interface.

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
    /// The NIC makes them, and the host sends them on in the same buffers. Latency is the NIC's, from before a packet is
    /// written to after it has come back.
    Forwarding(Touch),
}

/// What goes beyond the paper; by default nothing does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Which NIC cores serve the queue pairs.
    pub serving: Serving,
    /// Who makes the packets.
    pub application: Application,
}
