//! Operations that load and store at once, on the machines that keep their data where it is.

/// An operation on a word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Combined {
    And(u64),
    Or(u64),
    CompareExchange(u64, u64),
}

impl Combined {
    /// Changes a word, and gives what it was.
    pub(crate) fn apply(self, word: &mut u64) -> u64 {
        let old = *word;
        *word = match self {
            Combined::And(bits) => old & bits,
            Combined::Or(bits) => old | bits,
            Combined::CompareExchange(current, new) if old == current => new,
            Combined::CompareExchange(..) => old,
        };
        old
    }
}
