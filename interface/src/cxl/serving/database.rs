//! The whole database, in the host's memory: an entry a line, and the stamps.

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, SynchronisingWords};

use super::request::{Bytes, MOST_VALUE_BYTES};

/// How large database and the device's part of it are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseShape {
    /// Entries of the host's table, a power of two: at most four fifths of it should be keys.
    pub entries: u64,
    /// Stamps, a power of two, a line each: no more than the device's cache holds of the host's lines.
    pub stamps: u64,
    /// Buckets of four keys in the device's memory, a power of two.
    pub buckets: u64,
}

/// Where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Database {
    pub(super) shape: DatabaseShape,
    entries: Address,
    stamps: Address,
    /// The device's buckets: a line of keys each.
    pub(super) buckets: Address,
    /// Four lines of values for each.
    pub(super) values: Address,
    bytes_of_device: u64,
}

/// Entries that are looked at for a key: more than a table that is not overfull needs.
const MOST_PROBES: u64 = 64;

/// A key's place among many, whatever keys are used.
fn hash(key: u64) -> u64 {
    let mixed = (key ^ key >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
}

/// An entry's line.
pub(super) fn entry(key: u64, value: &Bytes) -> Line {
    let mut bytes = [0; LINE_BYTES as usize];
    bytes[..8].copy_from_slice(&(key + 1).to_le_bytes());
    bytes[16..].copy_from_slice(value);
    Line::from_bytes(&bytes)
}

/// The value in an entry's line.
pub(super) fn value_of(line: &Line) -> Bytes {
    let bytes = line.to_bytes();
    let mut value = [0; MOST_VALUE_BYTES];
    value.copy_from_slice(&bytes[16..]);
    value
}

/// What an entry is of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is its entry.
    Yes,
    /// It is another's: the next may be its.
    Other,
    /// It is nobody's, so there is none.
    Nobody,
}

pub(super) fn is_entry_of(line: &Line, key: u64) -> Found {
    match line.0[0] {
        0 => Found::Nobody,
        word if word == key + 1 => Found::Yes,
        _ => Found::Other,
    }
}

impl DatabaseShape {
    /// Appends a database to a layout.
    ///
    /// # Panics
    ///
    /// If one of the numbers is no power of two.
    pub fn place(&self, layout: &mut Layout) -> Database {
        for number in [self.entries, self.stamps, self.buckets] {
            assert!(number.is_power_of_two(), "{number} is no power of two");
        }
        let first = SynchronisingWords::FIRST;
        let entries = layout.add("entries", self.entries * LINE_BYTES, LINE_BYTES, Home::Host, first);
        let stamps = layout.add("stamps", self.stamps * LINE_BYTES, LINE_BYTES, Home::Host, first);
        let buckets = layout.add("buckets", self.buckets * LINE_BYTES, LINE_BYTES, Home::Nic, first);
        let values = layout.add("values", 4 * self.buckets * LINE_BYTES, LINE_BYTES, Home::Nic, first);
        let bytes_of_device = values.0 + 4 * self.buckets * LINE_BYTES - buckets.0;
        Database { shape: *self, entries, stamps, buckets, values, bytes_of_device }
    }
}

impl Database {
    /// Where the device's part lies, and how long it is: to be switched to device-bias.
    pub fn of_device(&self) -> (Address, u64) {
        (self.buckets, self.bytes_of_device)
    }

    /// The entries that may be a key's, in the order in which they are looked at.
    pub(super) fn probes(&self, key: u64) -> impl Iterator<Item = Address> + use<> {
        let (start, mask, entries) = (hash(key), self.shape.entries - 1, self.entries);
        (0..MOST_PROBES.min(self.shape.entries)).map(move |probe| entries.lines(start.wrapping_add(probe) & mask))
    }

    /// A key's stamp. Neighbours in the table do not share it, so that an update takes few others with it.
    pub(super) fn stamp(&self, key: u64) -> Address {
        self.stamps.lines(hash(key) & (self.shape.stamps - 1))
    }

    /// A key's bucket.
    pub(super) fn bucket(&self, key: u64) -> u64 {
        hash(key) >> 8 & (self.shape.buckets - 1)
    }

    /// Adds a key before the device serves. False if there is no room where it would be found, or it is there.
    pub fn insert<C: Core>(&self, core: &C, key: u64, value: &Bytes) -> bool {
        for at in self.probes(key) {
            match is_entry_of(&core.read_line(at), key) {
                Found::Nobody => {
                    core.publish_line(at, &entry(key, value));
                    return true;
                }
                Found::Yes => return false,
                Found::Other => {}
            }
        }
        false
    }

    /// A key's value, as a core of the host sees it at any time.
    pub fn get<C: Core>(&self, core: &C, key: u64) -> Option<Bytes> {
        for at in self.probes(key) {
            // Acquire: the entry was there before whoever told of it.
            let word = core.load_acquire(at);
            let mut line = core.read_line(at);
            line.0[0] = word;
            match is_entry_of(&line, key) {
                Found::Yes => return Some(value_of(&line)),
                Found::Nobody => return None,
                Found::Other => {}
            }
        }
        None
    }

    /// Where a key's entry is.
    fn find<C: Core>(&self, core: &C, key: u64) -> Option<Address> {
        for at in self.probes(key) {
            match is_entry_of(&core.read_line(at), key) {
                Found::Yes => return Some(at),
                Found::Nobody => return None,
                Found::Other => {}
            }
        }
        None
    }

    /// Changes a key's value while no device serves: what it has taken in, it does not hear of. False if there is no such key.
    pub fn overwrite<C: Core>(&self, core: &C, key: u64, value: &Bytes) -> bool {
        let Some(at) = self.find(core, key) else { return false };
        core.publish_line(at, &entry(key, value));
        true
    }

    /// Changes a key's value while the device serves. False if there is no such key.
    pub fn update<C: Core>(&self, core: &C, key: u64, value: &Bytes) -> bool {
        let Some(at) = self.find(core, key) else { return false };
        let stamp = self.stamp(key);
        let even = loop {
            let now = core.load_acquire(stamp);
            // Odd: another core updates an entry of this stamp.
            if now.is_multiple_of(2) && core.compare_exchange(stamp, now, now + 1).is_ok() {
                break now;
            }
            core.spin();
        };
        core.publish_line(at, &entry(key, value));
        // Release: the entry before the stamp at which copies count again.
        core.store_release(stamp, even + 2);
        // The update is done when the device's copy of the stamp is gone.
        core.full_fence();
        true
    }
}
