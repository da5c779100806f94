//! What a traced run writes down, for whoever draws it.

use conic_fabric::Time;

/// A place where messages come from and go to: an index into [`Recording::places`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlaceName(pub u16);

/// The message that caused another: an index into [`Recording::messages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause(pub u32);

/// One message between two agents of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRecord {
    /// What it is, in the protocol's words: `Read`, `SnoopInvalidate`, `Data`, ...
    pub name: &'static str,
    /// The line that it is about, counted from the region's start.
    pub line: u64,
    /// Who sent it.
    pub from: PlaceName,
    /// Who receives it.
    pub to: PlaceName,
    /// When it left.
    pub sent: Time,
    /// When it is there.
    pub arrives: Time,
    /// The message that caused it; none for an access of a core's program.
    pub cause: Option<Cause>,
}

/// Something that an agent's program did, over some time: a load that missed, a burst call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanRecord {
    /// What: `load`, `store`, `prefetch`, ...
    pub name: &'static str,
    /// Which agent's.
    pub place: PlaceName,
    /// The line it touched, if one.
    pub line: Option<u64>,
    /// When it began.
    pub begins: Time,
    /// When it ended.
    pub ends: Time,
    /// The first message that it caused.
    pub first: Option<Cause>,
}

/// A change of a line's state in one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnershipRecord {
    /// The line, counted from the region's start.
    pub line: u64,
    /// Whose cache.
    pub place: PlaceName,
    /// `M`, `E`, `S` or `I`.
    pub state: char,
    /// From when on.
    pub at: Time,
}

/// Everything that a traced run wrote down, in the order in which it happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The places' names: `host core 0`, `host home`, `host to NIC link`, ...
    pub places: Vec<String>,
    /// The name of the segment that a line lies in, by the first line of the segment, in order: `(first line, name)`.
    pub segments: Vec<(u64, String)>,
    /// Messages.
    pub messages: Vec<MessageRecord>,
    /// What the agents' programs did.
    pub spans: Vec<SpanRecord>,
    /// Changes of lines' states.
    pub ownership: Vec<OwnershipRecord>,
    /// How many more there would have been: recording stops at a limit.
    pub dropped: u64,
}
