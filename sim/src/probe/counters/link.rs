//! One direction of a link.

use super::grown;
use conic_fabric::Time;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// What crossed one direction of a link, messages by kind.
///
/// The kinds are the protocol's: the link is made with their names, and a message is counted by its kind's index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    kinds: &'static [&'static str],
    messages: Vec<u64>,
    /// Slots that messages took.
    pub slots: u64,
    /// Flits that were sent.
    pub flits: u64,
    /// Bytes that were sent: flits, or packets of PCIe with all that goes around them.
    pub bytes: u64,
    /// Time for which the wires were taken, all links side by side together.
    pub busy: Time,
}

impl LinkCounters {
    /// Counters for messages of the given kinds.
    pub fn new(kinds: &'static [&'static str]) -> LinkCounters {
        LinkCounters { kinds, messages: vec![0; kinds.len()], ..LinkCounters::default() }
    }

    /// Counts a message of the kind with an index, and the slots that it takes.
    ///
    /// # Panics
    ///
    /// Where the index is not below the number of kinds.
    #[inline]
    pub fn message(&mut self, kind: usize, slots: u32) {
        self.messages[kind] += 1;
        self.slots += u64::from(slots);
    }

    /// Counts what goes over the wire, which messages may share.
    #[inline]
    pub fn wire(&mut self, flits: u64, bytes: u64, busy: Time) {
        self.flits += flits;
        self.bytes += bytes;
        self.busy += busy;
    }

    /// Messages of the kind with a name; none of a kind that the link does not know.
    pub fn messages_of(&self, kind: &str) -> u64 {
        self.messages().filter(|(name, _)| *name == kind).map(|(_, count)| count).sum()
    }

    /// Each kind's name and messages, in the order of the kinds.
    pub fn messages(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.kinds.iter().copied().zip(self.messages.iter().copied())
    }

    /// Messages of every kind.
    pub fn all_messages(&self) -> u64 {
        self.messages.iter().sum()
    }

    /// The share of a span for which the wires of `links` links side by side were taken; zero for no span.
    pub fn utilisation(&self, span: Time, links: u32) -> f64 {
        let wires = span.picoseconds() as f64 * f64::from(links);
        if wires > 0.0 { self.busy.picoseconds() as f64 / wires } else { 0.0 }
    }

    /// What crossed since an earlier snapshot of the same link.
    ///
    /// # Panics
    ///
    /// Where the two are not snapshots of one link in order.
    pub fn since(&self, earlier: &LinkCounters) -> LinkCounters {
        assert_eq!(self.kinds, earlier.kinds, "snapshots of links of two protocols");
        let messages =
            self.messages.iter().zip(&earlier.messages).map(|(now, before)| grown(*now, *before, "messages"));
        let busy = grown(self.busy.picoseconds(), earlier.busy.picoseconds(), "busy");
        LinkCounters {
            kinds: self.kinds,
            messages: messages.collect(),
            slots: grown(self.slots, earlier.slots, "slots"),
            flits: grown(self.flits, earlier.flits, "flits"),
            bytes: grown(self.bytes, earlier.bytes, "bytes"),
            busy: Time::from_picoseconds(busy),
        }
    }
}

/// The kinds of messages and their counts, as a map.
struct Kinds<'a>(&'a LinkCounters);

impl Serialize for Kinds<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.messages())
    }
}

impl Serialize for LinkCounters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(5))?;
        map.serialize_entry("slots", &self.slots)?;
        map.serialize_entry("flits", &self.flits)?;
        map.serialize_entry("bytes", &self.bytes)?;
        map.serialize_entry("busy_picoseconds", &self.busy.picoseconds())?;
        map.serialize_entry("messages", &Kinds(self))?;
        map.end()
    }
}
