//! The whole database, in the host's memory: an entry a line, the buffers of long values, and the stamps.

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, SynchronisingWords, lines_of};

use super::entry::{self, Buffer, Found, INLINE_BYTES, Owner, Stored, is_entry_of};

/// Most bytes of a value that any database has.
pub const MOST_VALUE_BYTES: u64 = 4096;

/// How large database and the device's part of it are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseShape {
    /// Entries of the host's table, a power of two: at most four fifths of it should be keys.
    pub entries: u64,
    /// Stamps, a power of two, a line each: no more than the device's cache holds of the host's lines.
    pub stamps: u64,
    /// Buckets of four keys in the device's memory, a power of two.
    pub buckets: u64,
    /// Bytes of the longest value, at most [`MOST_VALUE_BYTES`]: up to [`INLINE_BYTES`] a value is in its entry's line, and from
    /// there on four buffers of this size belong to each entry.
    pub value_bytes: u64,
}

/// Where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Database {
    pub(super) shape: DatabaseShape,
    entries: Address,
    stamps: Address,
    /// Four buffers an entry: the host's two, and the device's.
    long_values: Address,
    /// The device's buckets: a line of keys each.
    pub(super) buckets: Address,
    /// The values of each bucket's four keys.
    values: Address,
    /// How often the host has asked for what the device alone has, and, a line further, which of these the device has answered.
    recalls: Address,
    bytes_of_device: u64,
}

/// Entries that are looked at for a key: more than a table that is not overfull needs.
const MOST_PROBES: u64 = 64;

/// Keys of a bucket.
pub(super) const WAYS: usize = 4;

/// A key's place among many, whatever keys are used.
fn hash(key: u64) -> u64 {
    let mixed = (key ^ key >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
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
        assert!(
            self.value_bytes <= MOST_VALUE_BYTES,
            "values of {} bytes: at most {MOST_VALUE_BYTES}",
            self.value_bytes
        );
        let (first, none) = (SynchronisingWords::FIRST, SynchronisingWords::NONE);
        let entries = layout.add("entries", self.entries * LINE_BYTES, LINE_BYTES, Home::Host, first);
        let stamps = layout.add("stamps", self.stamps * LINE_BYTES, LINE_BYTES, Home::Host, first);
        let long = 4 * self.entries * self.lines_of_buffer() * LINE_BYTES;
        let long_values = if long > 0 { layout.add("long values", long, LINE_BYTES, Home::Host, none) } else { stamps };
        let buckets = layout.add("buckets", self.buckets * LINE_BYTES, LINE_BYTES, Home::Nic, first);
        let bytes_of_values = WAYS as u64 * self.buckets * self.lines_of_copy() * LINE_BYTES;
        let values = layout.add("values", bytes_of_values, LINE_BYTES, Home::Nic, none);
        let bytes_of_device = values.0 + bytes_of_values - buckets.0;
        let recalls = layout.add("recalls", 2 * LINE_BYTES, LINE_BYTES, Home::Host, first);
        Database { shape: *self, entries, stamps, long_values, buckets, values, recalls, bytes_of_device }
    }

    /// Lines of a buffer of a value that its entry has no room for; none where there are no such values.
    fn lines_of_buffer(&self) -> u64 {
        if self.value_bytes > INLINE_BYTES as u64 { lines_of(self.value_bytes) } else { 0 }
    }

    /// Lines of the device's copy of a value.
    fn lines_of_copy(&self) -> u64 {
        lines_of(self.value_bytes).max(1)
    }
}

impl Database {
    /// Where the device's part lies, and how long it is: to be switched to device-bias.
    pub fn of_device(&self) -> (Address, u64) {
        (self.buckets, self.bytes_of_device)
    }

    /// Where the host counts what it has asked for.
    pub(super) fn recalls(&self) -> Address {
        self.recalls
    }

    /// Where the device says which of that it has answered.
    pub(super) fn written_out(&self) -> Address {
        self.recalls.lines(1)
    }

    /// Whether a value may be stored here.
    pub(super) fn has_room_for(&self, value: &[u8]) -> bool {
        value.len() as u64 <= self.shape.value_bytes
    }

    /// What an entry says of its value; none if it is damaged.
    pub(super) fn stored(&self, line: &Line) -> Option<Stored> {
        entry::stored(line, self.shape.value_bytes)
    }

    /// A buffer of an entry.
    pub(super) fn buffer(&self, entry: Address, buffer: Buffer) -> Address {
        let index = (entry.0 - self.entries.0) / LINE_BYTES;
        let place = 4 * index + 2 * buffer.owner as u64 + buffer.half;
        self.long_values.lines(place * self.shape.lines_of_buffer())
    }

    /// The device's copy of a value.
    pub(super) fn copy(&self, bucket: u64, way: u64) -> Address {
        self.values.lines((WAYS as u64 * bucket + way) * self.shape.lines_of_copy())
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

    /// Adds a key before the device serves. False if there is no room where it would be found, it is there, or the value is too
    /// long.
    pub fn insert<C: Core>(&self, core: &C, key: u64, value: &[u8]) -> bool {
        if !self.has_room_for(value) {
            return false;
        }
        for at in self.probes(key) {
            let line = core.read_line(at);
            match is_entry_of(&line, key) {
                Found::Nobody => {
                    self.store(core, at, &line, key, value, 0);
                    return true;
                }
                Found::Yes => return false,
                Found::Other => {}
            }
        }
        false
    }

    /// A key's value, as a core of the host sees it at any time.
    pub fn get<C: Core>(&self, core: &C, key: u64) -> Option<Vec<u8>> {
        let (at, mut line) = self.find(core, key)?;
        loop {
            let (buffer, length) = match self.stored(&line)? {
                Stored::Inline(value) => return Some(value),
                Stored::Apart(buffer, length) => (buffer, length),
            };
            let mut value = vec![0; length];
            core.read_bytes(self.buffer(at, buffer), &mut value);
            // The value before the second look at its entry: whoever fills this buffer anew has pointed elsewhere before.
            core.full_fence();
            let again = read_entry(core, at);
            if again.0[0] == line.0[0] {
                return Some(value);
            }
            line = again;
        }
    }

    /// A key's entry.
    fn find<C: Core>(&self, core: &C, key: u64) -> Option<(Address, Line)> {
        for at in self.probes(key) {
            let line = read_entry(core, at);
            match is_entry_of(&line, key) {
                Found::Yes => return Some((at, line)),
                Found::Nobody => return None,
                Found::Other => {}
            }
        }
        None
    }

    /// Stores a value, and its entry last. `line` is the entry as it is; no other core of the host stores this value meanwhile.
    fn store<C: Core>(&self, core: &C, at: Address, line: &Line, key: u64, value: &[u8], version: u64) {
        if value.len() <= INLINE_BYTES {
            return core.publish_line(at, &entry::inline(key, value));
        }
        let buffer = entry::spare(line, Owner::Host);
        core.write_bytes(self.buffer(at, buffer), value);
        core.publish_line(at, &entry::apart(key, buffer, version, value.len()));
    }

    /// Changes a key's value while no device serves, and no other core looks: what the device has taken in, it does not hear of.
    /// False if there is no such key, or the value is too long.
    pub fn overwrite<C: Core>(&self, core: &C, key: u64, value: &[u8]) -> bool {
        if !self.has_room_for(value) {
            return false;
        }
        let Some((at, line)) = self.find(core, key) else { return false };
        self.store(core, at, &line, key, value, 0);
        true
    }

    /// Changes a key's value while the device serves. False if there is no such key, or the value is too long.
    pub fn update<C: Core>(&self, core: &C, key: u64, value: &[u8]) -> bool {
        if !self.has_room_for(value) {
            return false;
        }
        let Some((at, _)) = self.find(core, key) else { return false };
        let stamp = self.stamp(key);
        let odd = loop {
            let now = core.load_acquire(stamp);
            // Odd: another core updates an entry of this stamp.
            if now.is_multiple_of(2) && core.compare_exchange(stamp, now, now + 1).is_ok() {
                break now + 1;
            }
            core.spin();
        };
        // As it is now that no other core changes it; the stamp is a version that this entry never had.
        let line = read_entry(core, at);
        self.store(core, at, &line, key, value, odd);
        // Release: the entry before the stamp at which copies count again.
        core.store_release(stamp, odd + 1);
        // The update is done when the device's copy of the stamp is gone.
        core.full_fence();
        true
    }

    /// Asks for what the device alone has, where it writes back; the number of this recall. Once [`Database::is_recalled`] says that
    /// it is answered, every value is in the host's memory whose client had been told before this call that it is stored.
    #[must_use]
    pub fn recall<C: Core>(&self, core: &C) -> u64 {
        let mut asked = core.load_acquire(self.recalls);
        loop {
            match core.compare_exchange(self.recalls, asked, asked.wrapping_add(1)) {
                Ok(_) => return asked.wrapping_add(1),
                Err(now) => asked = now,
            }
        }
    }

    /// Whether a recall is answered. The device does so when its program next attends to it ([`Handler::attend`](super::Handler::attend)).
    pub fn is_recalled<C: Core>(&self, core: &C, number: u64) -> bool {
        // Acquire: what was written out was there before the word. One answer is for all recalls before it.
        core.load_acquire(self.written_out()).wrapping_sub(number) < 1 << 63
    }
}

/// An entry's line.
fn read_entry<C: Core>(core: &C, at: Address) -> Line {
    loop {
        // Acquire: the entry and the buffer that it points to were there before word 0.
        let word = core.load_acquire(at);
        let line = core.read_line(at);
        // Else it was written in between, and the rest is another word's.
        if line.0[0] == word {
            return line;
        }
    }
}
