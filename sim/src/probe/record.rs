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
    /// A core asks for something, and answers nobody: where the message has a cause, an access waited to leave until that came.
    pub asks: bool,
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

/// A change of a line's state in one cache, or with a home that is told of as an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnershipRecord {
    /// The line, counted from the region's start.
    pub line: u64,
    /// Whose cache, or which home.
    pub place: PlaceName,
    /// `M`, `E`, `S` or `I`; `L` for what a home has recalled and gives nobody yet.
    pub state: char,
    /// From when on.
    pub at: Time,
}

/// A queue or a pool of credits whose level is written down: an index into [`Recording::queues`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueName(pub u16);

/// A change of how full a queue is, or of how many credits of a pool are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelRecord {
    /// Which queue.
    pub queue: QueueName,
    /// Entries inside from then on.
    pub inside: u64,
    /// From when on.
    pub at: Time,
}

/// Everything that a traced run wrote down, in the order in which it happened.
///
/// A cause stands before what it caused. Whoever reads a recording takes an index that points nowhere for a place without a
/// name, or for no cause.
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
    /// The queues' names: `host to NIC request credits`, ...
    pub queues: Vec<String>,
    /// Changes of queues' levels.
    pub levels: Vec<LevelRecord>,
    /// How many more there would have been: recording stops at a limit.
    pub dropped: u64,
}

impl Recording {
    /// The name of a place.
    pub fn place(&self, place: PlaceName) -> String {
        self.places.get(usize::from(place.0)).cloned().unwrap_or_else(|| format!("place {}", place.0))
    }

    /// The name of a queue.
    pub fn queue(&self, queue: QueueName) -> String {
        self.queues.get(usize::from(queue.0)).cloned().unwrap_or_else(|| format!("queue {}", queue.0))
    }

    /// The segment that a line lies in, and the line's number in it; none before the first segment.
    pub fn segment(&self, line: u64) -> Option<(&str, u64)> {
        let (first, name) = self.segments.iter().rev().find(|(first, _)| *first <= line)?;
        Some((name, line - first))
    }

    /// What a line is called: `tx ring 3` is the segment's fourth line, `line 17` lies in no segment.
    pub fn line(&self, line: u64) -> String {
        match self.segment(line) {
            Some((name, number)) => format!("{name} {number}"),
            None => format!("line {line}"),
        }
    }

    /// The message that caused one, if it stands before it as it must.
    pub fn cause_of(&self, message: usize) -> Option<usize> {
        let cause = self.messages.get(message)?.cause?.0 as usize;
        (cause < message).then_some(cause)
    }

    /// When the last of it happened.
    pub fn end(&self) -> Time {
        let messages = self.messages.iter().map(|message| message.arrives.max(message.sent));
        let spans = self.spans.iter().map(|span| span.ends.max(span.begins));
        let changes = self.ownership.iter().map(|change| change.at).chain(self.levels.iter().map(|level| level.at));
        messages.chain(spans).chain(changes).max().unwrap_or(Time::ZERO)
    }
}
