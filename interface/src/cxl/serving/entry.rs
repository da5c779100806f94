//! An entry's line, and where the bytes of its value are.
//!
//! Word 0: the version (bits 63 to 16), the value's length (15 to 3), which of its owner's two buffers has it (2), whose buffer
//! that is (1: the device's), and 1 (0); zero where there is no entry. Word 1: the key. Words 2 to 7: a value of up to
//! [`INLINE_BYTES`]; its entry has neither version nor buffer.

use conic_fabric::{LINE_BYTES, Line};

/// Bytes of a value that an entry's own line has room for.
pub const INLINE_BYTES: usize = 48;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Cores of the host, one at a time.
    Host = 0,
    /// The device's handler.
    Device = 1,
}

/// One of the four buffers of an entry's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer {
    pub(super) owner: Owner,
    /// 0 or 1.
    pub(super) half: u64,
}

/// A value as its entry tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// In the entry's own line.
    Inline(Vec<u8>),
    /// So many bytes in a buffer.
    Apart(Buffer, usize),
}

/// What an entry is of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is its entry.
    Yes,
    /// It is another's: the next may be its.
    Other,
    /// It is nobody's, so there is none.
    Nobody,
}

pub(super) fn is_entry_of(line: &Line, key: u64) -> Found {
    match line.0 {
        [0, ..] => Found::Nobody,
        [_, other, ..] if other == key => Found::Yes,
        _ => Found::Other,
    }
}

/// The line of an entry whose value it has itself.
pub(super) fn inline(key: u64, value: &[u8]) -> Line {
    let mut bytes = [0; LINE_BYTES as usize];
    bytes[..8].copy_from_slice(&((value.len() as u64) << 3 | 1).to_le_bytes());
    bytes[8..16].copy_from_slice(&key.to_le_bytes());
    bytes[16..16 + value.len()].copy_from_slice(value);
    Line::from_bytes(&bytes)
}

/// The line of an entry whose value is in a buffer.
pub(super) fn apart(key: u64, buffer: Buffer, version: u64, length: usize) -> Line {
    let mut line = Line::ZERO;
    line.0[0] = version << 16 | (length as u64) << 3 | buffer.half << 2 | (buffer.owner as u64) << 1 | 1;
    line.0[1] = key;
    line
}

fn buffer(word: u64) -> Buffer {
    Buffer { owner: if word >> 1 & 1 == 0 { Owner::Host } else { Owner::Device }, half: word >> 2 & 1 }
}

/// What an entry says of its value; none if it says that it is longer than any value of this database.
pub(super) fn stored(line: &Line, most: u64) -> Option<Stored> {
    let length = (line.0[0] >> 3 & 0x1fff) as usize;
    if length as u64 > most {
        return None;
    }
    if length <= INLINE_BYTES {
        return Some(Stored::Inline(line.to_bytes()[16..16 + length].to_vec()));
    }
    Some(Stored::Apart(buffer(line.0[0]), length))
}

/// The buffer that an owner may fill while the entry is this one: not that which it points to.
pub(super) fn spare(line: &Line, owner: Owner) -> Buffer {
    let now = buffer(line.0[0]);
    Buffer { owner, half: if now.owner == owner { 1 - now.half } else { 0 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_where_its_value_is() {
        let short = inline(7, &[9; INLINE_BYTES]);
        assert_eq!(stored(&short, 48), Some(Stored::Inline(vec![9; INLINE_BYTES])));
        assert_eq!(is_entry_of(&short, 7), Found::Yes);
        assert_eq!(is_entry_of(&short, 8), Found::Other);
        assert_eq!(is_entry_of(&Line::ZERO, 0), Found::Nobody);
        assert_eq!(stored(&inline(0, &[]), 48), Some(Stored::Inline(Vec::new())), "no bytes are a value");
        let buffer = Buffer { owner: Owner::Device, half: 1 };
        let long = apart(u64::MAX, buffer, 1 << 47, 4096);
        assert_eq!(stored(&long, 4096), Some(Stored::Apart(buffer, 4096)));
        assert_eq!(stored(&long, 4095), None, "longer than any value");
        assert_eq!(is_entry_of(&long, u64::MAX), Found::Yes);
    }

    #[test]
    fn the_buffer_that_is_pointed_to_is_never_filled() {
        for owner in [Owner::Host, Owner::Device] {
            for half in [0, 1] {
                let line = apart(1, Buffer { owner, half }, 3, 100);
                assert_eq!(spare(&line, owner), Buffer { owner, half: 1 - half });
            }
        }
    }
}
