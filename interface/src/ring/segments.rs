//! Which TX descriptors make a packet, and what is refused of them.

use super::{MORE, QueuePair};
use crate::ccnic::MAX_SEGMENTS;

/// Why a TX descriptor is refused, and with it its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its length, or its packet's, or that it is one segment too many.
    Length,
    /// Its bytes do not lie where the host may send from.
    Address,
}

/// What a descriptor makes of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is good so far, and goes on.
    GoesOn,
    /// It is good and whole.
    Whole,
    /// It is refused because of this descriptor.
    Refused(Refused),
    /// It was refused before.
    Skipped,
}

/// The packet that is being put together of descriptors, which are looked at once each, in their order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chain {
    segments: usize,
    /// Bytes of the segments that are good.
    bytes: u64,
    refused: bool,
}

impl Chain {
    /// Takes the next descriptor, by its two words.
    pub fn look(&mut self, pair: &QueuePair, address: u64, word: u64) -> Verdict {
        let (length, goes_on) = segment_of(word);
        let verdict = match self.judge(pair, address, length) {
            _ if self.refused => Verdict::Skipped,
            Err(refused) => Verdict::Refused(refused),
            Ok(bytes) => {
                self.bytes = bytes;
                if goes_on { Verdict::GoesOn } else { Verdict::Whole }
            }
        };
        self.refused = matches!(verdict, Verdict::Refused(_) | Verdict::Skipped);
        self.segments = self.segments.saturating_add(1);
        if !goes_on {
            *self = Chain::default();
        }
        verdict
    }

    /// The packet's bytes with another segment.
    fn judge(&self, pair: &QueuePair, address: u64, length: u64) -> Result<u64, Refused> {
        pair.sources().may_send(address, length)?;
        // Neither sum is large: what is above these limits is refused, and nothing is added to it.
        let bytes = self.bytes + length;
        if self.segments == MAX_SEGMENTS || bytes > pair.shape.longest_packet() {
            return Err(Refused::Length);
        }
        Ok(bytes)
    }

    /// Whether the last descriptor's packet goes on.
    pub fn is_open(&self) -> bool {
        self.segments > 0
    }

    /// Ends a packet where its last descriptor was to follow: the host announces whole packets, so none will. Returns whether it
    /// was good so far, and so is refused by this.
    pub fn break_off(&mut self) -> bool {
        let chain = std::mem::take(self);
        chain.is_open() && !chain.refused
    }
}

/// Where a host may send from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sources {
    /// Where its buffers lie, how many bytes they have together, and the largest packet in one.
    pub buffers: u64,
    pub buffers_bytes: u64,
    pub room: u64,
    /// Bytes of the longest packet.
    pub longest: u64,
    /// Where the program's objects lie, and how many bytes they have.
    pub objects: u64,
    pub object_bytes: u64,
}

impl Sources {
    /// Whether a segment is one that the buffers may have: all of it in them, and no longer than one.
    #[inline(always)]
    pub fn is_in_buffers(&self, address: u64, length: u64) -> bool {
        // Bits that are set above the length make it one that no segment has. A length of 0 wraps to the largest number.
        length.wrapping_sub(1) < self.room && within(address, length, self.buffers, self.buffers_bytes)
    }

    /// Whether a segment lies where the host may send from.
    pub fn may_send(&self, address: u64, length: u64) -> Result<(), Refused> {
        if self.is_in_buffers(address, length) {
            return Ok(());
        }
        if length == 0 || length > self.longest {
            return Err(Refused::Length);
        }
        if within(address, length, self.objects, self.object_bytes) {
            return Ok(());
        }
        Err(if length > self.room { Refused::Length } else { Refused::Address })
    }
}

/// The length that word 1 of a TX descriptor has, and whether its packet goes on. Reserved bits make it a length that none may have.
#[inline(always)]
pub fn segment_of(word: u64) -> (u64, bool) {
    (word & !MORE, word & MORE != 0)
}

/// Whether so many bytes from an address on all lie in a range. No sum of the host's numbers is formed, which could overflow.
#[inline(always)]
fn within(address: u64, length: u64, start: u64, bytes: u64) -> bool {
    // An address before the range wraps to an offset behind it.
    let offset = address.wrapping_sub(start);
    offset < bytes && length <= bytes - offset
}
