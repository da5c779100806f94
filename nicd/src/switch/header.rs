//! What a frame says of itself, read from a private copy of its first bytes.

use conic_fabric::{LINE_BYTES, Line};

use super::table::Station;

/// Lines of a frame that are copied out before anything is decided: Ethernet with two tags, IPv6 and ports fit.
pub const HEADER_LINES: usize = 2;

/// Bytes of these.
pub const HEADER_BYTES: usize = HEADER_LINES * LINE_BYTES as usize;

/// Bytes of an Ethernet header without a tag.
pub const ETHERNET_HEADER: usize = 14;

/// The first bytes of a frame, in memory that nobody else writes.
#[derive(Clone, Debug)]
pub struct Header {
    bytes: [u8; HEADER_BYTES],
    /// Its first 16 bytes, the first of them the lowest: the addresses are in a register before the bytes are copied, since a load
    /// over what was just stored in pieces waits until all stores before it are done.
    first: u128,
    /// Bytes of the frame.
    whole: usize,
}

impl Header {
    /// Of a frame that is all there. Always inlined: given back by value its bytes would be loaded anew from where they were just stored,
    /// in wider pieces, which was a fifth of the time of a frame that comes by a port.
    #[inline(always)]
    pub fn of_frame(frame: &[u8]) -> Header {
        let mut bytes = [0; HEADER_BYTES];
        let length = frame.len().min(HEADER_BYTES);
        let first = frame.first_chunk().map(|first| u128::from_le_bytes(*first));
        bytes[..length].copy_from_slice(&frame[..length]);
        let first = first.unwrap_or_else(|| u128::from_le_bytes(*bytes.first_chunk().expect("it is longer")));
        Header { bytes, first, whole: frame.len() }
    }

    /// Of lines that were read, of a frame of `length` bytes.
    #[inline(always)]
    pub fn of_lines(lines: &[Line; HEADER_LINES], length: usize) -> Header {
        let mut bytes = [0; HEADER_BYTES];
        // Word by word, which is a store a line: `Line::to_bytes` is a call, and inlined everywhere it costs the loopback a tenth.
        for (part, word) in bytes.chunks_exact_mut(size_of::<u64>()).zip(lines.iter().flat_map(|line| line.0)) {
            part.copy_from_slice(&word.to_ne_bytes());
        }
        let [low, high] = [lines[0].0[0], lines[0].0[1]].map(|word| u128::from(u64::from_le_bytes(word.to_ne_bytes())));
        Header { bytes, first: low | high << 64, whole: length }
    }

    /// The bytes that there are.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.whole.min(HEADER_BYTES)]
    }

    /// How many bytes the whole frame has.
    pub fn whole(&self) -> usize {
        self.whole
    }

    #[inline(always)]
    fn mac(&self, at: usize) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = (self.first >> (8 * at)).to_le_bytes();
        [a, b, c, d, e, f]
    }

    /// Both addresses.
    #[inline(always)]
    pub fn addresses(&self) -> [u64; 2] {
        [self.first as u64, (self.first >> 64) as u64 & 0xffff_ffff]
    }

    /// Whom it is for. Zeroes where the frame is shorter.
    #[inline(always)]
    pub fn destination(&self) -> [u8; 6] {
        self.mac(0)
    }

    /// Whom it is from.
    #[inline(always)]
    pub fn source(&self) -> [u8; 6] {
        self.mac(6)
    }

    /// Whether it is for more than one station.
    #[inline(always)]
    pub fn is_multicast(&self) -> bool {
        self.first & 1 == 1
    }

    /// Whether it says that it is from more than one station, which none can be.
    #[inline(always)]
    pub fn is_from_multicast(&self) -> bool {
        self.first >> 48 & 1 == 1
    }

    /// The destination as the table knows it.
    #[inline(always)]
    pub fn to(&self, vlan: u16) -> Station {
        Station::new(self.destination(), vlan)
    }

    /// The source as the table knows it.
    #[inline(always)]
    pub fn from(&self, vlan: u16) -> Station {
        Station::new(self.source(), vlan)
    }
}
