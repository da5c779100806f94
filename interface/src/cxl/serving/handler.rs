//! The device's half: answers requests from its own memory, and from the host's where it must.

use conic_fabric::{Address, Device, LINE_BYTES, Line, ReadTag, StateHint, lines_of};

use super::database::{Database, WAYS};
use super::entry::{self, Found, INLINE_BYTES, Owner, Stored};
use super::request::{Answer, Request};

/// Bits of a key's word that say which of the bucket's values is its.
const WAY_BITS: u32 = 2;
/// The bit of a key's word that says that the device alone has its value; keys end below it.
const DIRTY: u64 = 1 << 63;
/// Bits of a stamp's word that say how long the value is.
const LENGTH_BITS: u32 = 13;
/// How often a value is read that changes meanwhile, until its client is told to ask again: a host that never stops must not keep
/// the handler from everybody else.
const MOST_TRIES: u64 = 32;

/// How the handler reaches the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// Coherently: it knows of the host's updates.
    Coherent {
        /// How entries are read.
        read: StateHint,
        /// How they are written.
        write: StateHint,
    },
    /// By reads and writes that leave it without news: what the host updates, the device does not see.
    Remote,
}

/// Where a PUT's value is when its client is told that it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Puts {
    /// In the host's memory as well.
    Through,
    /// In the device's memory, until its place is needed or the host asks for it.
    Back,
}

/// What the handler did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServingStatistics {
    /// Requests whose key had a copy that counted.
    pub hits: u64,
    /// Requests that needed the host's memory.
    pub misses: u64,
    /// Of those, requests whose copy was of an older stamp.
    pub outdated: u64,
    /// Keys that had to go for others.
    pub evictions: u64,
    /// Values that the device alone had, and that it wrote to the host's memory.
    pub written_back: u64,
    /// Values that changed while they were read from the host's memory, and were read once more.
    pub changed: u64,
    /// Entries that nobody can have written who keeps to the rules: taken for none.
    pub damaged: u64,
    /// Packets that were no request, and values that are too long for the database.
    pub refused: u64,
}

/// A key in the device's memory.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    stamp: u64,
    /// Which of the bucket's values.
    way: u64,
    /// Bytes of the value.
    length: usize,
    /// The host's memory has an older value: this one counts, whatever the stamp.
    dirty: bool,
}

/// A value that is to be taken in where the device alone has that of the key which has to go for it.
#[derive(Clone, Debug)]
struct Swap {
    bucket: u64,
    gone: Slot,
    /// The bucket's keys from then on, the new one first.
    slots: Vec<Slot>,
    value: Vec<u8>,
}

/// What the host's memory has of a key.
enum Fetched {
    Value(Vec<u8>),
    Absent,
    /// It changed whenever it was read.
    Busy,
}

/// The device's half. `local` reaches the device's memory, `remote` the host's.
#[derive(Debug)]
pub struct Handler<L, R> {
    local: L,
    remote: R,
    database: Database,
    through: Through,
    puts: Puts,
    /// Put off until the answer has left.
    swap: Option<Swap>,
    /// What the host had asked for when it was last given everything.
    recalled: u64,
    /// Work of a request besides its accesses, in cycles of the device: in, and out.
    work: (u32, u32),
    /// Long values that it has stored in the host's memory: the versions of their entries.
    version: u64,
    statistics: ServingStatistics,
}

/// A bucket's keys, the last used first: for each the word of the key, and the word of its stamp and length. Where a word cannot be
/// one of this database, whose values have at most so many bytes, the bucket ends.
fn slots(line: &Line, most: u64) -> Vec<Slot> {
    let words = line.0.chunks_exact(2).take_while(|pair| (pair[0] & !DIRTY) >> WAY_BITS != 0);
    let slot = |pair: &[u64]| Slot {
        key: ((pair[0] & !DIRTY) >> WAY_BITS) - 1,
        stamp: pair[1] >> LENGTH_BITS,
        way: pair[0] & (WAYS as u64 - 1),
        length: (pair[1] & ((1 << LENGTH_BITS) - 1)) as usize,
        dirty: pair[0] & DIRTY != 0,
    };
    words.map(slot).take_while(|slot| slot.length as u64 <= most).collect()
}

fn line_of(slots: &[Slot]) -> Line {
    let mut line = Line::ZERO;
    for (pair, slot) in line.0.chunks_exact_mut(2).zip(slots) {
        pair[0] = (u64::from(slot.dirty) * DIRTY) | ((slot.key + 1) << WAY_BITS) | slot.way;
        pair[1] = slot.stamp << LENGTH_BITS | slot.length as u64;
    }
    line
}

impl<L: Device, R: Device> Handler<L, R> {
    /// The device's half of a database, which writes through. Where another served it before, no core of the host may be looking for a
    /// value when this one begins: it counts its versions anew.
    pub fn new(local: L, remote: R, database: Database, through: Through, work: (u32, u32)) -> Handler<L, R> {
        let (puts, statistics) = (Puts::Through, ServingStatistics::default());
        Handler { local, remote, database, through, puts, swap: None, recalled: 0, work, version: 0, statistics }
    }

    /// The same, which writes back: a PUT's value stays on the device until its place is needed or the host asks for it
    /// ([`Database::recall`]). The host must not update a key meanwhile; [`super`] says what it may. A database is served in one mode
    /// at a time: [`Handler::write_out`] comes between two.
    #[must_use]
    pub fn writing_back(self) -> Handler<L, R> {
        Handler { puts: Puts::Back, ..self }
    }

    /// What it did.
    pub fn statistics(&self) -> ServingStatistics {
        self.statistics
    }

    /// Answers a packet; none if it is no request. What is left to do behind the answer, [`Handler::settle`] does, or else the next
    /// call before it begins.
    pub fn serve(&mut self, packet: &[u8]) -> Option<Answer> {
        self.settle();
        self.local.work(self.work.0);
        let answer = match Request::parse(packet) {
            Ok(Request::Get(key)) => self.get(key),
            Ok(Request::Put(key, value)) => self.put(key, value),
            Err(_) => {
                self.statistics.refused += 1;
                return None;
            }
        };
        self.local.work(self.work.1);
        Some(answer)
    }

    fn read_local(&self, at: Address, hint: StateHint) -> Line {
        let tag = self.local.start_read(at, LINE_BYTES, hint);
        self.local.finish_line(tag, at)
    }

    /// The stamp of a key, asked for; it is shared, so that it is in the device's cache until the host changes it.
    fn ask_stamp(&self, key: u64) -> Option<ReadTag> {
        matches!(self.through, Through::Coherent { .. })
            .then(|| self.remote.start_read(self.database.stamp(key), LINE_BYTES, StateHint::CacheableShared))
    }

    fn stamp(&self, key: u64, tag: Option<ReadTag>) -> u64 {
        tag.map_or(0, |tag| self.remote.finish_line(tag, self.database.stamp(key)).0[0])
    }

    fn bucket_line(&self, bucket: u64) -> Address {
        self.database.buckets.lines(bucket)
    }

    /// Stamp and bucket of a key, read at once.
    fn look_up(&self, key: u64) -> (u64, Vec<Slot>) {
        let tag = self.ask_stamp(key);
        let slots = self.slots_of(self.database.bucket(key));
        (self.stamp(key, tag), slots)
    }

    fn slots_of(&self, bucket: u64) -> Vec<Slot> {
        slots(&self.read_local(self.bucket_line(bucket), StateHint::CacheableShared), self.database.shape.value_bytes)
    }

    /// The device's value of a key.
    fn read_copy(&self, bucket: u64, slot: Slot) -> Vec<u8> {
        self.read(&self.local, self.database.copy(bucket, slot.way), slot.length, self.local_hints().0)
    }

    fn get(&mut self, key: u64) -> Answer {
        let bucket = self.database.bucket(key);
        let (stamp, slots) = self.look_up(key);
        let place = slots.iter().position(|slot| slot.key == key);
        if let Some(place) = place
            && (slots[place].dirty || (slots[place].stamp == stamp && stamp.is_multiple_of(2)))
        {
            self.statistics.hits += 1;
            let value = self.read_copy(bucket, slots[place]);
            self.used(bucket, slots, place);
            return Answer::Found(value);
        }
        self.statistics.misses += 1;
        self.statistics.outdated += u64::from(place.is_some());
        match self.fetch(key) {
            Fetched::Value(value) => {
                self.take_in(key, stamp, slots, &value, false);
                Answer::Found(value)
            }
            Fetched::Absent => Answer::Absent,
            Fetched::Busy => Answer::Busy,
        }
    }

    /// A value's bytes, out of whole lines.
    fn read<D: Device>(&self, from: &D, at: Address, length: usize, hint: StateHint) -> Vec<u8> {
        let mut value = vec![0; (lines_of(length as u64).max(1) * LINE_BYTES) as usize];
        from.read(at, &mut value, hint);
        value.truncate(length);
        value
    }

    /// How the host's memory is read, and written.
    fn hints(&self) -> (StateHint, StateHint) {
        match self.through {
            Through::Coherent { read, write } => (read, write),
            Through::Remote => (StateHint::NonCacheable, StateHint::NonCacheable),
        }
    }

    /// How values are read in the device's memory, and written. The paper's handler does both past its cache; what software on cores
    /// reads and writes is in theirs.
    fn local_hints(&self) -> (StateHint, StateHint) {
        match self.through {
            Through::Coherent { .. } => (StateHint::NonCacheable, StateHint::NonCacheable),
            Through::Remote => (StateHint::CacheableShared, StateHint::CacheableOwned),
        }
    }

    fn read_entry(&self, at: Address) -> Line {
        let tag = self.remote.start_read(at, LINE_BYTES, self.hints().0);
        self.remote.finish_line(tag, at)
    }

    /// The entry of a key in the host's memory, and where it is.
    fn find(&self, key: u64) -> Option<(Address, Line)> {
        for at in self.database.probes(key) {
            let line = self.read_entry(at);
            match entry::is_entry_of(&line, key) {
                Found::Yes => return Some((at, line)),
                Found::Nobody => return None,
                Found::Other => {}
            }
        }
        None
    }

    /// The value of a key in the host's memory. One in a buffer counts if its entry is still the same when it has been read: a
    /// buffer is filled anew only after its owner has pointed to the other one.
    fn fetch(&mut self, key: u64) -> Fetched {
        let Some((at, mut line)) = self.find(key) else { return Fetched::Absent };
        for _ in 0..MOST_TRIES {
            let (buffer, length) = match self.database.stored(&line) {
                Some(Stored::Inline(value)) => return Fetched::Value(value),
                Some(Stored::Apart(buffer, length)) => (buffer, length),
                None => {
                    self.statistics.damaged += 1;
                    return Fetched::Absent;
                }
            };
            let value = self.read(&self.remote, self.database.buffer(at, buffer), length, self.hints().0);
            let again = self.read_entry(at);
            if again.0[0] == line.0[0] {
                return Fetched::Value(value);
            }
            self.statistics.changed += 1;
            line = again;
        }
        Fetched::Busy
    }

    fn put(&mut self, key: u64, value: &[u8]) -> Answer {
        if !self.database.has_room_for(value) {
            self.statistics.refused += 1;
            return Answer::TooLong;
        }
        let (stamp, slots) = self.look_up(key);
        let known = slots.iter().any(|slot| slot.key == key);
        self.statistics.hits += u64::from(known);
        self.statistics.misses += u64::from(!known);
        if known && self.puts == Puts::Back {
            self.take_in(key, stamp, slots, value, true);
            return Answer::Stored;
        }
        // Where the entry is must be known, and of a long value which buffer is free.
        let Some((at, line)) = self.find(key) else { return Answer::Absent };
        if self.puts == Puts::Back {
            self.take_in(key, stamp, slots, value, true);
            return Answer::Stored;
        }
        self.store(at, &line, key, value);
        // Whoever is told that it is stored may look for it in the host's memory: the write must be there.
        let tag = self.remote.start_read(at, LINE_BYTES, StateHint::NonCacheable);
        let _ = self.remote.finish_line(tag, at);
        self.take_in(key, stamp, slots, value, false);
        Answer::Stored
    }

    /// Stores a value in the host's memory, whose entry is this line, and its entry last.
    fn store(&mut self, at: Address, line: &Line, key: u64, value: &[u8]) {
        let hint = self.hints().1;
        let stored = if value.len() <= INLINE_BYTES {
            entry::inline(key, value)
        } else {
            let buffer = entry::spare(line, Owner::Device);
            self.version += 1;
            self.remote.write(self.database.buffer(at, buffer), &whole_lines(value), hint);
            entry::apart(key, buffer, self.version, value.len())
        };
        self.remote.publish_line(at, &stored, hint);
    }

    /// Writes what the device alone had to the host's memory.
    fn write_back(&mut self, key: u64, value: &[u8]) {
        match self.find(key) {
            Some((at, line)) => {
                self.store(at, &line, key, value);
                self.statistics.written_back += 1;
            }
            // It was there when the value came.
            None => self.statistics.damaged += 1,
        }
    }

    /// Does what was put off behind the last answer: where a value had to go that the device alone had, it is written to the host's
    /// memory, and the new one is taken in. Nobody need call it; who does when there is nothing to serve keeps the next request from
    /// waiting for it.
    pub fn settle(&mut self) {
        let Some(Swap { bucket, gone, slots, value }) = self.swap.take() else { return };
        // Before its place is written.
        let old = self.read_copy(bucket, gone);
        self.keep(bucket, &slots, &value);
        self.write_back(gone.key, &old);
    }

    /// Writes to the host's memory whatever the device alone has. When it returns, the host finds there every value that was stored;
    /// copies stay on the device.
    pub fn write_out(&mut self) {
        self.settle();
        for bucket in 0..self.database.shape.buckets {
            let mut slots = self.slots_of(bucket);
            let dirty: Vec<Slot> = slots.iter().filter(|slot| slot.dirty).copied().collect();
            for slot in &dirty {
                let value = self.read_copy(bucket, *slot);
                self.write_back(slot.key, &value);
            }
            if !dirty.is_empty() {
                slots.iter_mut().for_each(|slot| slot.dirty = false);
                self.local.publish_line(self.bucket_line(bucket), &line_of(&slots), StateHint::CacheableOwned);
            }
        }
        // Seen after every write before it; and read again, as it is then there.
        self.remote.write_word(self.database.written_out(), self.recalled, self.hints().1);
        self.remote.read_word(self.database.written_out(), StateHint::NonCacheable);
    }

    /// Looks whether the host asks for what the device alone has ([`Database::recall`]), and if so writes it out; whether it did. To be
    /// called between requests; a look costs no message where the handler reads coherently and nobody asks.
    pub fn attend(&mut self) -> bool {
        let hint = match self.through {
            Through::Coherent { .. } => StateHint::CacheableShared,
            Through::Remote => StateHint::NonCacheable,
        };
        let asked = self.remote.read_word(self.database.recalls(), hint);
        let asks = asked != self.recalled;
        if asks {
            self.recalled = asked;
            self.write_out();
        }
        asks
    }

    /// Notes that a key was used: it comes first. The answer does not wait for it.
    fn used(&self, bucket: u64, mut slots: Vec<Slot>, place: usize) {
        if place > 0 {
            slots[..=place].rotate_right(1);
            self.local.publish_line(self.bucket_line(bucket), &line_of(&slots), StateHint::CacheableOwned);
        }
    }

    /// Takes a value in, in the place of the key's last, or of the key that was not used for longest. The answer does not wait for it. A
    /// copy of an odd stamp would never count, unless it is the newest that there is (`dirty`).
    fn take_in(&mut self, key: u64, stamp: u64, mut slots: Vec<Slot>, value: &[u8], dirty: bool) {
        if !dirty && !stamp.is_multiple_of(2) {
            return;
        }
        let bucket = self.database.bucket(key);
        let mut gone = None;
        let way = match slots.iter().position(|slot| slot.key == key) {
            Some(place) => slots.remove(place).way,
            None if slots.len() < WAYS => slots.len() as u64,
            None => {
                self.statistics.evictions += 1;
                gone = slots.pop();
                gone.map_or(0, |oldest| oldest.way)
            }
        };
        slots.insert(0, Slot { key, stamp, way, length: value.len(), dirty });
        match gone {
            Some(gone) if gone.dirty => self.swap = Some(Swap { bucket, gone, slots, value: value.to_vec() }),
            _ => self.keep(bucket, &slots, value),
        }
    }

    /// Writes the value of a bucket's first key, and the bucket's keys.
    fn keep(&self, bucket: u64, slots: &[Slot], value: &[u8]) {
        self.local.write(self.database.copy(bucket, slots[0].way), &whole_lines(value), self.local_hints().1);
        self.local.publish_line(self.bucket_line(bucket), &line_of(slots), StateHint::CacheableOwned);
    }
}

/// A value's bytes, and zeroes up to the end of their last line.
fn whole_lines(value: &[u8]) -> Vec<u8> {
    let mut lines = value.to_vec();
    lines.resize((lines_of(value.len() as u64).max(1) * LINE_BYTES) as usize, 0);
    lines
}
