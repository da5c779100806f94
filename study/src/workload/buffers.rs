//! How many buffers a loopback has, and how many packets go by until each of them has been used.

use conic_interface::ccnic::Features;

use super::{Interface, Loopback, Serving};

/// Descriptors of each ring of a queue pair, over coherence as behind PCIe.
pub const DESCRIPTORS: u64 = 1024;

impl Loopback {
    /// Buffers of each queue pair of a ring: for what is in flight, and for what both rings hold.
    pub fn ring_buffers(&self) -> u64 {
        (2 * self.window).max(DESCRIPTORS) + 2 * DESCRIPTORS
    }

    /// Buffers of CC-NIC's pool: for what is in flight and what both sides keep on their stacks.
    pub fn pool_buffers(&self, features: &Features) -> u64 {
        // Where the host alone manages the pool, a ring of posted buffers and one of sent ones that it has not taken back.
        let in_rings = if features.shared_pool { 0 } else { 2 * DESCRIPTORS };
        let each = (2 * self.window + 4 * 256).max(DESCRIPTORS) + in_rings;
        // An idle queue pair holds a few for what may come.
        let idle = match self.switches.serving {
            Serving::OneEach => 0,
            Serving::Shared { queue_pairs, .. } => queue_pairs.saturating_sub(self.threads) as u64,
        };
        (each * self.threads as u64 + 64 * idle).next_power_of_two()
    }

    /// Packets of each thread until every buffer has carried one each way, where buffers are taken in rotation: a packet takes one to
    /// be sent and one to be received in, so that these are two laps of the pool. None where recently freed buffers are taken first.
    pub fn rotation(&self) -> Option<u64> {
        match self.interface {
            Interface::UnoptimisedRing => Some(self.ring_buffers()),
            Interface::CcNic(features) if !features.recycling => {
                Some(self.pool_buffers(&features).div_ceil(self.threads as u64))
            }
            Interface::CcNic(_) | Interface::Ring | Interface::PcieRing => None,
        }
    }
}
