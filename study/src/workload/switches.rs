//! Switches beyond the paper that change how a loopback runs, rather than its interface.

pub use conic_interface::serve::Attention;

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

/// What goes beyond the paper; by default nothing does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Which NIC cores serve the queue pairs.
    pub serving: Serving,
}
