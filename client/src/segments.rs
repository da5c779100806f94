//! The segments of received packets.

use conic_interface::burst::Packet;
use conic_interface::ccnic::{Flags, MAX_SEGMENTS};

/// Follows which packet a received segment belongs to, so that a daemon that lies cannot make one that has no end.
#[derive(Debug, Default)]
pub struct Segments {
    /// Of the packet that goes on, how many have come.
    so_far: usize,
    /// Packets that were cut.
    pub cut: u64,
}

impl Segments {
    /// The next segment. The last that a packet may have is made its end.
    #[inline(always)]
    pub fn follow(&mut self, segment: Packet) -> Packet {
        if !segment.has(Flags::NEXT) {
            self.so_far = 0;
            return segment;
        }
        self.so_far += 1;
        if self.so_far < MAX_SEGMENTS {
            return segment;
        }
        self.so_far = 0;
        self.cut += 1;
        segment.without(Flags::NEXT)
    }
}
