//! What lies where in a region: segments, their home, their memory type, and which of their words synchronise.

use crate::{Address, LINE_BYTES};

/// The side in whose memory a line lives (the socket, or the device).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Home {
    /// The host's memory.
    Host,
    /// The network interface's memory.
    Nic,
}

/// How a core's accesses to a segment behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryType {
    /// Cached and coherent.
    WriteBack,
    /// Uncached; stores gather in write-combining buffers.
    WriteCombining,
    /// Uncached; one access in flight.
    Uncached,
}

/// Which words of each line of a segment synchronise; bit `i` is word `i`. The others are owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynchronisingWords(pub u8);

impl SynchronisingWords {
    /// None: the protocol says who may touch the segment, and when.
    pub const NONE: SynchronisingWords = SynchronisingWords(0);
    /// The first word of each line.
    pub const FIRST: SynchronisingWords = SynchronisingWords(1);
    /// The first word of each 16-byte descriptor.
    pub const EVERY_DESCRIPTOR: SynchronisingWords = SynchronisingWords(0b0101_0101);
    /// All words.
    pub const ALL: SynchronisingWords = SynchronisingWords(0xff);

    /// Whether word `index` of a line synchronises.
    pub const fn contains(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }
}

/// A run of lines that serve one purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// What it is, for traces and errors.
    pub name: String,
    /// Where it starts.
    pub start: Address,
    /// How long it is, a multiple of a line.
    pub bytes: u64,
    /// In whose memory it lives.
    pub home: Home,
    /// How cores reach it.
    pub memory: MemoryType,
    /// Which of its words synchronise.
    pub synchronising: SynchronisingWords,
}

impl Segment {
    /// The first address after it.
    pub fn end(&self) -> Address {
        self.start + self.bytes
    }
}

/// A region's segments, in order of address.
///
/// Homes are kept apart by [`Layout::HOME_ALIGNMENT`], so that a world that binds memory to NUMA nodes can do it by page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    segments: Vec<Segment>,
    bytes: u64,
}

impl Layout {
    /// The alignment of a segment whose home differs from that of the one before it.
    pub const HOME_ALIGNMENT: u64 = 4096;

    /// A layout without segments.
    pub fn new() -> Layout {
        Layout::default()
    }

    /// Appends a segment of at least `bytes` bytes, at a multiple of `alignment` (a power of two), and returns its start.
    ///
    /// # Panics
    ///
    /// If `alignment` is not a power of two.
    pub fn add(&mut self, name: &str, bytes: u64, alignment: u64, home: Home, words: SynchronisingWords) -> Address {
        assert!(alignment.is_power_of_two(), "an alignment is a power of two, not {alignment}");
        let new_home = self.segments.last().is_some_and(|last| last.home != home);
        let alignment = alignment.max(if new_home { Self::HOME_ALIGNMENT } else { LINE_BYTES });
        let start = Address(self.bytes.next_multiple_of(alignment));
        let bytes = bytes.next_multiple_of(LINE_BYTES);
        self.segments.push(Segment {
            name: name.to_owned(),
            start,
            bytes,
            home,
            memory: MemoryType::WriteBack,
            synchronising: words,
        });
        self.bytes = start.0 + bytes;
        start
    }

    /// Appends a segment as [`Layout::add`] does, which cores reach as `memory` says: a device's packet buffer.
    pub fn add_mapped(
        &mut self,
        name: &str,
        bytes: u64,
        home: Home,
        memory: MemoryType,
        words: SynchronisingWords,
    ) -> Address {
        let start = self.add(name, bytes, LINE_BYTES, home, words);
        if let Some(last) = self.segments.last_mut() {
            last.memory = memory;
        }
        start
    }

    /// Appends a segment of device registers.
    pub fn add_registers(&mut self, name: &str, bytes: u64, home: Home, memory: MemoryType) -> Address {
        self.add_mapped(name, bytes, home, memory, SynchronisingWords::ALL)
    }

    /// The same with the host's and the network interface's memory exchanged, of the segments so far: for a host on the other side.
    #[must_use]
    pub fn with_homes_exchanged(mut self) -> Layout {
        for segment in &mut self.segments {
            segment.home = match segment.home {
                Home::Host => Home::Nic,
                Home::Nic => Home::Host,
            };
        }
        self
    }

    /// The segments, in order of address.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The size of the region that holds them all, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The segment that holds an address.
    pub fn segment_of(&self, at: Address) -> Option<&Segment> {
        let after = self.segments.partition_point(|segment| segment.start <= at);
        self.segments[..after].last().filter(|segment| at < segment.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_do_not_overlap_and_are_found_by_any_address_in_them() {
        let mut layout = Layout::new();
        let ring = layout.add("ring", 100, 64, Home::Host, SynchronisingWords::FIRST);
        let other = layout.add("other ring", 64, 64, Home::Nic, SynchronisingWords::FIRST);
        let buffers = layout.add("buffers", 8192, 4096, Home::Nic, SynchronisingWords::NONE);
        assert_eq!((ring, other, buffers), (Address(0), Address(4096), Address(8192)));
        assert_eq!(layout.bytes(), 8192 + 8192);
        assert_eq!(layout.segment_of(Address(127)).map(|s| s.name.as_str()), Some("ring"));
        assert_eq!(layout.segment_of(Address(128)), None);
        assert_eq!(layout.segment_of(Address(4096 + 63)).map(|s| s.name.as_str()), Some("other ring"));
        assert_eq!(layout.segment_of(Address(16384)), None);
    }

    #[test]
    fn registers_carry_their_memory_type() {
        let mut layout = Layout::new();
        let doorbell = layout.add_registers("doorbell", 8, Home::Nic, MemoryType::Uncached);
        let segment = layout.segment_of(doorbell).expect("the segment that was just added");
        assert_eq!(segment.memory, MemoryType::Uncached);
        assert!(segment.synchronising.contains(7));
    }
}
