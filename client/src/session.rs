//! What one attachment consists of.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use conic_control::{Attached, Extensions};
use conic_fabric::{Address, Core};
use conic_interface::ccnic::Map;
use conic_interface::ccnic::notify::Notices;
use conic_native::KeptCore;
use conic_native::channel::Channel;

/// A region with what lies in it. It stays mapped as long as a queue or a buffer of it lives.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) core: KeptCore,
    pub(crate) map: Map,
    pub(crate) notices: Notices,
    /// The NIC may sleep, and is then kicked.
    pub(crate) kick: Option<OwnedFd>,
    /// What this side is rung by, one for each queue.
    pub(crate) bells: Vec<OwnedFd>,
    /// Heavy fences of this side reach the NIC.
    pub(crate) fences: bool,
}

impl Region {
    /// Says that something was sent: calls the NIC if it does not look, and kicks it if it may sleep.
    #[inline(always)]
    pub(crate) fn announce(&self, queue: usize) {
        if !self.fences {
            // This process may be registered for the sake of another NIC; this one's heavy fences do not reach it.
            self.core.full_fence();
        }
        if self.notices.call_if_resting(&self.core, queue)
            && let Some(kick) = &self.kick
        {
            // A kick too many to count is as good as one that is counted.
            let _ = rustix::io::write(kick, &1u64.to_ne_bytes());
        }
    }

    /// Where an address lies in this process.
    pub(crate) fn pointer(&self, at: Address) -> *mut u8 {
        self.core.memory().base().wrapping_add(at.0 as usize)
    }

    /// Gives a buffer back to the pool, from any thread; false if it is none, or was free already.
    pub(crate) fn give_back(&self, at: Address) -> bool {
        self.map.pool.give_back(&self.core, self.map.features.scattered, at)
    }

    /// Whether a received packet lies in a buffer, as one from a sound daemon does.
    pub(crate) fn is_in_a_buffer(&self, at: Address, length: u16) -> bool {
        self.map.pool.check(at, length, false).is_ok()
    }

    /// Bytes from an address to the end of its buffer; zero if it lies in none.
    pub(crate) fn capacity_at(&self, at: Address) -> u32 {
        let size = self.map.pool.size_of(at);
        // Buffers lie at multiples of their size.
        if size == 0 { 0 } else { (size - at.0 % size) as u32 }
    }

    /// Copies a buffer's contents from another region.
    pub(crate) fn copy_from(&self, to: Address, other: &Region, from: Address, length: u16) {
        let (mut piece, mut done) = ([0; 512], 0);
        while done < usize::from(length) {
            let count = (usize::from(length) - done).min(piece.len());
            other.core.read_bytes(from + done as u64, &mut piece[..count]);
            self.core.write_bytes(to + done as u64, &piece[..count]);
            done += count;
        }
    }
}

/// One attachment.
#[derive(Debug)]
pub(crate) struct Session {
    // Dropped before the channel: a daemon that a client leaves finds nothing held any more.
    pub(crate) region: Arc<Region>,
    pub(crate) channel: Arc<Channel>,
    pub(crate) attached: Attached,
    /// What both sides have.
    pub(crate) extensions: Extensions,
    /// It was granted frames for stations that nobody is known to have when it attached.
    pub(crate) promiscuous: bool,
}
