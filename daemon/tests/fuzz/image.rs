//! Images of a shared region, as bytes.
//!
//! | input | what it says |
//! |---|---|
//! | the first record's value | what the peer was let in for: offloads and the like |
//! | a record whose tag is below [`ACTIONS`] | a word of the region, by its number, and what the peer writes there |
//! | any other | that its image is whole for now: what is done with it, and how much |
//!
//! So any bytes are images of a whole region, one after the other, and an exchange of a real peer is one of them: what it wrote each time,
//! word by word ([`Recorder`]).

use conic_check::{CrashCore, CrashMemory};
use conic_fabric::{Address, Core, LINE_BYTES};
use conic_interface::ccnic::notify::Notices;
use conic_interface::ccnic::{Features, Geometry, Map, prepare};

/// Bytes of a record: a tag of two, and a value.
pub const RECORD: usize = 10;

/// From here on tags are actions.
pub const ACTIONS: u16 = 0xff00;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// A word of the region, and its value.
    Word(u64, u64),
    /// An action, and how much of it.
    Action(u8, u64),
}

/// What the peer was let in for, and what it says.
pub fn read(input: &[u8]) -> (u64, impl Iterator<Item = Said>) {
    let mut records = input.chunks_exact(RECORD).map(|record| {
        let (tag, value) = record.split_at(2);
        (u16::from_le_bytes([tag[0], tag[1]]), u64::from_le_bytes(value.try_into().expect("eight bytes")))
    });
    let header = records.next().map_or(0, |(_, value)| value);
    let said = |(tag, value)| match tag {
        ACTIONS.. => Said::Action(tag as u8, value),
        _ => Said::Word(tag.into(), value),
    };
    (header, records.map(said))
}

/// A region that both sides have, which counts accesses and refuses those outside of it.
pub struct Region {
    pub map: Map,
    pub notices: Notices,
    pub memory: CrashMemory,
    /// Whoever writes whatever it likes.
    peer: CrashCore,
}

impl Region {
    pub fn new(geometry: Geometry) -> Region {
        let map = Map::new(geometry, Features::best()).expect("a geometry that can be");
        let (map, notices) = Notices::in_map(map);
        let memory = CrashMemory::new(&map.layout);
        let peer = memory.core("peer");
        prepare(&peer, &map);
        Region { map, notices, memory, peer }
    }

    pub fn words(&self) -> u64 {
        self.map.layout.bytes() / 8
    }

    /// Writes a word, whatever it is there for; nothing between two parts of the region.
    pub fn write(&self, word: u64, value: u64) {
        let at = Address(word % self.words() * 8);
        let Some(segment) = self.map.layout.segment_of(at) else { return };
        if segment.synchronising.contains((at.0 % LINE_BYTES / 8) as usize) {
            self.peer.store_release(at, value);
        } else {
            self.peer.store(at, value);
        }
    }

    fn contents(&self) -> Vec<u64> {
        (0..self.words()).map(|word| self.peer.peek(Address(8 * word)).expect("a word of this memory")).collect()
    }
}

/// Writes down what one side of a real exchange writes.
pub struct Recorder {
    pub input: Vec<u8>,
    before: Vec<u64>,
}

impl Recorder {
    pub fn new(header: u64) -> Recorder {
        let mut recorder = Recorder { input: Vec::new(), before: Vec::new() };
        recorder.record(0, header);
        recorder
    }

    fn record(&mut self, tag: u16, value: u64) {
        self.input.extend(tag.to_le_bytes());
        self.input.extend(value.to_le_bytes());
    }

    pub fn action(&mut self, action: u8, value: u64) {
        self.record(ACTIONS + u16::from(action), value);
    }

    /// A word was written.
    pub fn word(&mut self, word: u64, value: u64) {
        let tag = u16::try_from(word).ok().filter(|&tag| tag < ACTIONS);
        self.record(tag.expect("a small region"), value);
    }

    /// The side begins to write.
    pub fn begin(&mut self, region: &Region) {
        self.before = region.contents();
    }

    /// It has written.
    pub fn end(&mut self, region: &Region) {
        let after = region.contents();
        let changed = (0..).zip(after).zip(std::mem::take(&mut self.before));
        for ((word, now), _) in changed.filter(|((_, now), before)| now != before) {
            self.word(word, now);
        }
    }
}
