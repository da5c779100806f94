//! How a program reaches a NIC behind PCIe (CC-NIC section 5.7).

use super::Interface;

/// How a program's threads reach the NIC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reached {
    /// They drive it themselves, on its socket.
    Directly,
    /// They are on the other socket and have this interface, over the coherent interconnect, to threads on the NIC's socket that copy
    /// packets between it and the NIC's rings.
    Overlay {
        /// CC-NIC, or the unoptimised ring.
        interface: Interface,
        /// Threads on the NIC's socket, each with a queue pair of either kind; the program's threads share these queue pairs.
        threads: usize,
    },
}

impl Reached {
    /// How many queues the NIC has for so many of the program's threads.
    pub fn queues(&self, threads: usize) -> usize {
        match self {
            Reached::Directly => threads,
            Reached::Overlay { threads, .. } => *threads,
        }
    }
}
