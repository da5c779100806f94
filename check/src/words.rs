//! What a layout says of each word, with errors that name the segment.

use conic_fabric::{Address, LINE_BYTES, LINE_WORDS, Layout, Segment};

/// A layout, asked about words.
#[derive(Debug)]
pub(crate) struct Words(Layout);

/// A part of a byte range that lies in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The word.
    pub at: Address,
    /// The first of its bytes.
    pub offset: usize,
    /// How many of its bytes.
    pub bytes: usize,
}

impl Words {
    pub fn new(layout: &Layout) -> Words {
        Words(layout.clone())
    }

    /// The number of words of the region.
    pub fn count(&self) -> usize {
        (self.0.bytes() / 8) as usize
    }

    /// The segment that holds a word.
    ///
    /// # Panics
    ///
    /// If the address is not that of a word of a segment.
    #[track_caller]
    pub fn segment(&self, at: Address) -> &Segment {
        assert!(at.0.is_multiple_of(8), "{at} is not the address of a word");
        self.0.segment_of(at).unwrap_or_else(|| panic!("{at} lies in no segment of the layout"))
    }

    /// The segment that holds a line.
    ///
    /// # Panics
    ///
    /// If the address is not that of a line of a segment.
    #[track_caller]
    pub fn line(&self, at: Address) -> &Segment {
        assert!(at.is_line_aligned(), "{at} is not the address of a line");
        self.segment(at)
    }

    /// Whether a word synchronises.
    #[track_caller]
    pub fn is_synchronising(&self, at: Address) -> bool {
        self.segment(at).synchronising.contains(word_of_line(at))
    }

    /// Refuses a synchronising access to an owned word.
    #[track_caller]
    pub fn expect_synchronising(&self, at: Address, access: &str) {
        assert!(self.is_synchronising(at), "{access}: {} is an owned word", self.describe(at));
    }

    /// Refuses an owner's access to a synchronising word.
    #[track_caller]
    pub fn expect_owned(&self, at: Address, access: &str) {
        assert!(!self.is_synchronising(at), "{access}: {} is a synchronising word", self.describe(at));
    }

    /// Refuses an owner's access to a line that has synchronising words.
    #[track_caller]
    pub fn expect_owned_line(&self, at: Address, access: &str) {
        let words = self.line(at).synchronising;
        if let Some(index) = (0..LINE_WORDS).find(|&index| words.contains(index)) {
            self.expect_owned(at.word(index), access);
        }
    }

    /// The name of a word: its segment, its line and word there, its address.
    pub fn describe(&self, at: Address) -> String {
        match self.0.segment_of(at) {
            Some(segment) => {
                let line = (at - segment.start) / LINE_BYTES;
                format!("word {} of line {line} of `{}` (at {at})", word_of_line(at), segment.name)
            }
            None => format!("{at}, outside every segment"),
        }
    }
}

/// Which word of its line an address is in.
pub(crate) fn word_of_line(at: Address) -> usize {
    ((at.0 % LINE_BYTES) / 8) as usize
}

/// Which word of the region an address is in.
pub(crate) fn word_of_region(at: Address) -> usize {
    (at.0 / 8) as usize
}

/// The words that `bytes` bytes from an address touch, and which of their bytes.
pub(crate) fn parts(at: Address, bytes: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let here = at + done as u64;
        let offset = (here.0 % 8) as usize;
        let part = Part { at: Address(here.0 - offset as u64), offset, bytes: (8 - offset).min(bytes - done) };
        done += part.bytes;
        (part.bytes > 0).then_some(part)
    })
}

/// Copies bytes out of words that `load` gives.
pub(crate) fn read_bytes(at: Address, into: &mut [u8], mut load: impl FnMut(Address) -> u64) {
    let mut rest = into;
    for part in parts(at, rest.len()) {
        let (here, after) = rest.split_at_mut(part.bytes);
        here.copy_from_slice(&load(part.at).to_ne_bytes()[part.offset..][..part.bytes]);
        rest = after;
    }
}

/// Copies bytes into words: `change` gets a word's address, and a function from its old to its new value.
pub(crate) fn write_bytes(at: Address, from: &[u8], mut change: impl FnMut(Address, &dyn Fn(u64) -> u64)) {
    let mut rest = from;
    for part in parts(at, rest.len()) {
        let (here, after) = rest.split_at(part.bytes);
        change(part.at, &|old| {
            let mut bytes = old.to_ne_bytes();
            bytes[part.offset..][..part.bytes].copy_from_slice(here);
            u64::from_ne_bytes(bytes)
        });
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_at_any_alignment_fall_into_words() {
        let found: Vec<_> = parts(Address(5), 12).map(|part| (part.at.0, part.offset, part.bytes)).collect();
        assert_eq!(found, [(0, 5, 3), (8, 0, 8), (16, 0, 1)]);
        assert_eq!(parts(Address(7), 0).count(), 0);
    }
}
