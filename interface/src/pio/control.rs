//! The control word: word 0 of the first line of a group.
//!
//! | bits | what |
//! |---|---|
//! | 63 to 32 | the turn: how many answers came before |
//! | 31 to 24 | what it is, a [`Kind`] |
//! | 23 to 0 | the payload's length in bytes |
//!
//! Zero is none, so that fresh memory says nothing. Whoever reads one reads it once, and checks it.

/// What a control word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The CPU's: a request, which for the NIC's receive is "I have read the last one".
    Request = 1,
    /// The CPU's: it was told to try again, and does. Only where the load itself is no signal.
    Continue = 2,
    /// The device's: the response.
    Response = 3,
    /// The device's: nothing yet, load the other line.
    TryAgain = 4,
    /// The device's: the request cannot be.
    Refused = 5,
}

/// The most bytes of a payload that a control word can say.
pub const LONGEST: u64 = (1 << 24) - 1;

/// A control word.
#[inline(always)]
pub const fn word(turn: u32, kind: Kind, length: u32) -> u64 {
    (turn as u64) << 32 | (kind as u64) << 24 | length as u64
}

/// The length in a control word, if it is of that turn and kind; otherwise more than any length.
#[inline(always)]
pub const fn length_if(word: u64, turn: u32, kind: Kind) -> u64 {
    word.wrapping_sub(self::word(turn, kind, 0))
}

/// The length in a control word.
#[inline(always)]
pub const fn length_of(word: u64) -> u64 {
    word & LONGEST
}

/// The turn in a control word.
#[inline(always)]
pub const fn turn_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// What a control word is, if it is any.
pub const fn kind_of(word: u64) -> Option<Kind> {
    match (word >> 24) as u8 {
        1 => Some(Kind::Request),
        2 => Some(Kind::Continue),
        3 => Some(Kind::Response),
        4 => Some(Kind::TryAgain),
        5 => Some(Kind::Refused),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_gives_back_what_was_put_in() {
        for kind in [Kind::Request, Kind::Continue, Kind::Response, Kind::TryAgain, Kind::Refused] {
            for (turn, length) in [(0, 0), (u32::MAX, LONGEST as u32), (7, 9600)] {
                let word = word(turn, kind, length);
                assert_eq!((turn_of(word), kind_of(word), length_of(word)), (turn, Some(kind), u64::from(length)));
                assert_eq!(length_if(word, turn, kind), u64::from(length));
                for (other_turn, other_kind) in [(turn ^ 1, kind), (turn, Kind::Request), (turn, Kind::Refused)] {
                    let same = (other_turn, other_kind) == (turn, kind);
                    assert!(same || length_if(word, other_turn, other_kind) > LONGEST);
                }
            }
        }
        assert_eq!(kind_of(0), None);
        assert_eq!(kind_of(u64::MAX), None);
    }
}
