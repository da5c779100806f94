//! What a core's private cache does with the messages of its home agent.

use super::{Copy, Found, Snoop, Version};

/// A private cache's copy of one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Held {
    /// The state.
    pub copy: Copy,
    /// The data.
    pub version: Version,
}

/// Answers a snoop and changes the copy.
pub fn snooped(held: &mut Held, snoop: Snoop) -> Found {
    let was = held.copy;
    held.copy = match (snoop, was) {
        (Snoop::Current, _) => was,
        (Snoop::Invalidate | Snoop::Own | Snoop::Recall, _) => Copy::Invalid,
        (Snoop::Migrate, Copy::Modified) | (_, Copy::Invalid) => Copy::Invalid,
        (Snoop::Migrate | Snoop::Share, _) => Copy::Shared,
    };
    Found { was, keeps: held.copy != Copy::Invalid, data: was != Copy::Invalid, version: held.version }
}

/// Takes what was asked for.
pub fn granted(held: &mut Held, copy: Copy, version: Version) {
    *held = Held { copy, version };
}
