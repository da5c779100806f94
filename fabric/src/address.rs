//! Addresses and cache lines.

use std::fmt;
use std::ops::{Add, Sub};

/// Bytes of a cache line, the unit in which memory moves between caches.
///
/// A world whose coherence unit is larger (ECI on Enzian: 128 bytes) moves two of these together; layouts ask the world
/// for its unit through [`crate::Core::coherence_unit`].
pub const LINE_BYTES: u64 = 64;

/// 64-bit words of a cache line.
pub const LINE_WORDS: usize = 8;

/// A place in the memory that both sides share: a byte offset from the start of its region.
///
/// It is never a pointer, so that it means the same to every process, and so that one from a peer can be checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Address(pub u64);

impl Address {
    /// The start of the line that holds this address.
    #[inline(always)]
    pub const fn line(self) -> Address {
        Address(self.0 & !(LINE_BYTES - 1))
    }

    /// The `index`-th 64-bit word from here.
    #[inline(always)]
    pub const fn word(self, index: usize) -> Address {
        Address(self.0 + 8 * index as u64)
    }

    /// The `index`-th line from here.
    #[inline(always)]
    pub const fn lines(self, index: u64) -> Address {
        Address(self.0 + LINE_BYTES * index)
    }

    /// Whether this is the start of a line.
    #[inline(always)]
    pub const fn is_line_aligned(self) -> bool {
        self.0.is_multiple_of(LINE_BYTES)
    }
}

impl Add<u64> for Address {
    type Output = Address;
    #[inline(always)]
    fn add(self, bytes: u64) -> Address {
        Address(self.0 + bytes)
    }
}

impl Sub for Address {
    type Output = u64;
    #[inline(always)]
    fn sub(self, start: Address) -> u64 {
        self.0 - start.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The contents of one cache line, carried by value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Line(pub [u64; LINE_WORDS]);

impl Line {
    /// A line of zeroes.
    pub const ZERO: Line = Line([0; LINE_WORDS]);

    /// The line's bytes, in memory order.
    pub fn to_bytes(&self) -> [u8; LINE_BYTES as usize] {
        let mut bytes = [0; LINE_BYTES as usize];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Its first `bytes` bytes, and zeroes behind them.
    #[inline(always)]
    #[must_use]
    pub fn beginning(&self, bytes: u64) -> Line {
        let kept = &BEGINNINGS[bytes.min(LINE_BYTES) as usize];
        Line(std::array::from_fn(|word| self.0[word] & kept.0[word]))
    }

    /// A line from its bytes in memory order.
    pub fn from_bytes(bytes: &[u8; LINE_BYTES as usize]) -> Line {
        let mut line = Line::ZERO;
        for (word, chunk) in line.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(chunk.try_into().expect("a chunk of eight bytes"));
        }
        line
    }
}

/// For each number of bytes that a line has, a line in which so many of the first are ones and the others zeroes: one load and
/// one instruction where to make it would take a dozen.
static BEGINNINGS: [Line; LINE_BYTES as usize + 1] = beginnings();

const fn beginnings() -> [Line; LINE_BYTES as usize + 1] {
    let mut all = [Line::ZERO; LINE_BYTES as usize + 1];
    let mut bytes = 1;
    while bytes < all.len() {
        all[bytes] = all[bytes - 1];
        let last = bytes - 1;
        let mut word = all[last].0[last / 8].to_ne_bytes();
        word[last % 8] = 0xff;
        all[bytes].0[last / 8] = u64::from_ne_bytes(word);
        bytes += 1;
    }
    all
}

/// How many lines `bytes` bytes that start at a line boundary occupy.
#[inline(always)]
pub const fn lines_of(bytes: u64) -> u64 {
    // Where a caller's bytes are known to be few, as a packet's are, this is an addition and a shift.
    bytes.saturating_add(LINE_BYTES - 1) / LINE_BYTES
}
