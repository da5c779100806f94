//! Control words: which turn it is, and how many bytes.

/// Set in every word that somebody wrote, so that none is 0, which fresh memory holds.
const WRITTEN: u64 = 1 << 31;

/// The word of a turn with so many bytes, fewer than 2^31.
pub(super) fn word(turn: u32, length: u32) -> u64 {
    u64::from(turn) << 32 | WRITTEN | u64::from(length)
}

/// A word's turn.
pub(super) fn turn_of(word: u64) -> u32 {
    (word >> 32) as u32
}

fn length_of(word: u64) -> u64 {
    word & (WRITTEN - 1)
}

/// What a word is to whoever waits for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is that turn's, with so many bytes.
    New(usize),
    /// It is what stood there before: nothing has come.
    Old,
    /// It is of no turn that can be, or too long.
    Wrong,
}

/// Judges a word that was read while `turn` is waited for and at most `capacity` bytes can come, where a word is written over
/// every `step` turns.
pub(super) fn judge(word: u64, turn: u32, step: u32, capacity: u64) -> Verdict {
    if word == 0 {
        return Verdict::Old;
    }
    let fits = word & WRITTEN != 0 && length_of(word) <= capacity;
    match turn_of(word) {
        now if now == turn && fits => Verdict::New(length_of(word) as usize),
        last if last == turn.wrapping_sub(step) && fits => Verdict::Old,
        _ => Verdict::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_new_old_or_wrong() {
        assert_eq!(judge(0, 1, 1, 64), Verdict::Old);
        assert_eq!(judge(word(1, 64), 1, 1, 64), Verdict::New(64));
        assert_eq!(judge(word(1, 65), 1, 1, 64), Verdict::Wrong);
        assert_eq!(judge(word(7, 9), 8, 1, 64), Verdict::Old);
        assert_eq!(judge(word(4, 9), 8, 4, 64), Verdict::Old);
        for turn in [6, 9, 0, u32::MAX] {
            assert_eq!(judge(word(turn, 1), 8, 1, 64), Verdict::Wrong, "{turn}");
        }
        assert_eq!(judge(5, 1, 1, 64), Verdict::Wrong, "nobody wrote it");
        assert_eq!(judge(word(0, 0), 0, 1, 64), Verdict::New(0), "after 2^32 turns");
    }
}
