//! A descriptor's line.
//!
//! Word 0: the position in the ring (bits 63 to 32), a length (31 to 16), how many packets (15 to 8), and the state (7 to 0). How many
//! are 1 in a packet to be sent whose completion the host wants to be told of, and 0 in others.
//! Word 1: the buffer. Words 2 to 7: the lengths of a batch's further packets, 16 bits each.

use conic_fabric::{Address, Line};

use crate::burst::Packet;

/// Most packets that one line completes.
pub const MOST_IN_A_BATCH: usize = 25;

/// Whose turn a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The device's.
    Posted = 1,
    /// The host's.
    Done = 2,
}

/// Word 0.
pub(super) fn word(position: u64, state: State, count: usize, length: u16) -> u64 {
    position << 32 | u64::from(length) << 16 | (count as u64) << 8 | state as u64
}

/// Whether a word 0 is of this position and state.
pub(super) fn is(word: u64, position: u64, state: State) -> bool {
    word >> 32 == position & 0xffff_ffff && word & 0xff == state as u64
}

/// The length in a word 0.
pub(super) fn length(word: u64) -> u16 {
    (word >> 16) as u16
}

/// How many packets a word 0 speaks for.
pub(super) fn count(word: u64) -> usize {
    (word >> 8 & 0xff) as usize
}

/// A posted blank buffer.
pub(super) fn posted(position: u64, buffer: Address) -> Line {
    Line([word(position, State::Posted, 1, 0), buffer.0, 0, 0, 0, 0, 0, 0])
}

/// A packet to be sent; whether the host is told when it was.
pub(super) fn to_send(position: u64, packet: Packet, is_reported: bool) -> Line {
    Line([word(position, State::Posted, is_reported.into(), packet.length()), packet.address().0, 0, 0, 0, 0, 0, 0])
}

/// A line that completes packets of these lengths from a position on.
///
/// # Panics
///
/// If there are none, or more than [`MOST_IN_A_BATCH`].
pub(super) fn done(position: u64, lengths: &[u16]) -> Line {
    assert!((1..=MOST_IN_A_BATCH).contains(&lengths.len()), "a line completes 1 to {MOST_IN_A_BATCH} packets");
    let mut line = Line::ZERO;
    line.0[0] = word(position, State::Done, lengths.len(), lengths[0]);
    for (place, length) in lengths[1..].iter().enumerate() {
        line.0[2 + place / 4] |= u64::from(*length) << (place % 4 * 16);
    }
    line
}

/// A line that says that the packet of this position was read, and all before it.
pub(super) fn sent(position: u64) -> Line {
    let mut line = Line::ZERO;
    line.0[0] = word(position, State::Done, 1, 0);
    line
}

/// The length of packet `index` of a batch.
pub(super) fn length_of(line: &Line, index: usize) -> u16 {
    match index.checked_sub(1) {
        None => length(line.0[0]),
        Some(place) => (line.0[2 + place / 4] >> (place % 4 * 16)) as u16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_says_every_length() {
        let lengths: Vec<u16> = (0..MOST_IN_A_BATCH as u16).map(|index| 60 + 37 * index).collect();
        for many in [1, 2, 5, MOST_IN_A_BATCH] {
            let line = done(0x1_0000_0007, &lengths[..many]);
            assert!(is(line.0[0], 7, State::Done), "positions are told apart modulo 2^32");
            assert!(!is(line.0[0], 8, State::Done) && !is(line.0[0], 7, State::Posted));
            assert_eq!(count(line.0[0]), many);
            for (index, length) in lengths[..many].iter().enumerate() {
                assert_eq!(length_of(&line, index), *length);
            }
        }
    }

    #[test]
    #[should_panic(expected = "a line completes 1 to 25 packets")]
    fn a_batch_that_is_too_large_is_refused() {
        done(0, &[1; MOST_IN_A_BATCH + 1]);
    }
}
