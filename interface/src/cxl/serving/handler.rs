//! The device's half: answers requests from its own memory, and from the host's where it must.

use conic_fabric::{Address, Device, LINE_BYTES, Line, ReadTag, StateHint};

use super::database::{self, Database, Found};
use super::request::{Answer, Bytes, Request};

/// Keys of a bucket.
const WAYS: usize = 4;
/// Bits of a key's word that say which line of values is its.
const WAY_BITS: u32 = 2;

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
    /// Packets that were no request.
    pub refused: u64,
}

/// A key in the device's memory.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u64,
    stamp: u64,
    /// Which of the bucket's lines of values.
    way: u64,
}

/// The device's half. `local` reaches the device's memory, `remote` the host's.
#[derive(Debug)]
pub struct Handler<L, R> {
    local: L,
    remote: R,
    database: Database,
    through: Through,
    /// Work of a request besides its accesses, in cycles of the device: in, and out.
    work: (u32, u32),
    statistics: ServingStatistics,
}

/// A bucket's keys, the last used first: for each the word of the key, and the word of its stamp.
fn slots(line: &Line) -> Vec<Slot> {
    let words = line.0.chunks_exact(2).take_while(|pair| pair[0] != 0);
    let slot = |pair: &[u64]| Slot { key: (pair[0] >> WAY_BITS) - 1, stamp: pair[1], way: pair[0] & (WAYS as u64 - 1) };
    words.map(slot).collect()
}

fn line_of(slots: &[Slot]) -> Line {
    let mut line = Line::ZERO;
    for (pair, slot) in line.0.chunks_exact_mut(2).zip(slots) {
        pair[0] = (slot.key + 1) << WAY_BITS | slot.way;
        pair[1] = slot.stamp;
    }
    line
}

impl<L: Device, R: Device> Handler<L, R> {
    /// The device's half of a database.
    pub fn new(local: L, remote: R, database: Database, through: Through, work: (u32, u32)) -> Handler<L, R> {
        Handler { local, remote, database, through, work, statistics: ServingStatistics::default() }
    }

    /// What it did.
    pub fn statistics(&self) -> ServingStatistics {
        self.statistics
    }

    /// Answers a packet; none if it is no request.
    pub fn serve(&mut self, packet: &[u8]) -> Option<Answer> {
        self.local.work(self.work.0);
        let answer = match Request::parse(packet) {
            Ok(Request::Get(key)) => self.get(key),
            Ok(Request::Put(key, value)) => self.put(key, &value),
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

    fn value_line(&self, bucket: u64, way: u64) -> Address {
        self.database.values.lines(WAYS as u64 * bucket + way)
    }

    /// Stamp and bucket of a key, read at once.
    fn look_up(&self, key: u64) -> (u64, Vec<Slot>) {
        let tag = self.ask_stamp(key);
        let keys = self.read_local(self.bucket_line(self.database.bucket(key)), StateHint::CacheableShared);
        (self.stamp(key, tag), slots(&keys))
    }

    fn get(&mut self, key: u64) -> Answer {
        let bucket = self.database.bucket(key);
        let (stamp, slots) = self.look_up(key);
        let place = slots.iter().position(|slot| slot.key == key);
        if let Some(place) = place
            && slots[place].stamp == stamp
            && stamp.is_multiple_of(2)
        {
            self.statistics.hits += 1;
            let line = self.read_local(self.value_line(bucket, slots[place].way), StateHint::NonCacheable);
            self.used(bucket, slots, place);
            return Answer::Found(database::value_of(&line));
        }
        self.statistics.misses += 1;
        self.statistics.outdated += u64::from(place.is_some());
        match self.fetch(key) {
            Some((_, line)) => {
                let value = database::value_of(&line);
                self.take_in(key, stamp, slots, &value);
                Answer::Found(value)
            }
            None => Answer::Absent,
        }
    }

    /// The entry of a key in the host's memory, and where it is.
    fn fetch(&self, key: u64) -> Option<(Address, Line)> {
        let hint = match self.through {
            Through::Coherent { read, .. } => read,
            Through::Remote => StateHint::NonCacheable,
        };
        for at in self.database.probes(key) {
            let tag = self.remote.start_read(at, LINE_BYTES, hint);
            let line = self.remote.finish_line(tag, at);
            match database::is_entry_of(&line, key) {
                Found::Yes => return Some((at, line)),
                Found::Nobody => return None,
                Found::Other => {}
            }
        }
        None
    }

    fn put(&mut self, key: u64, value: &Bytes) -> Answer {
        let (stamp, slots) = self.look_up(key);
        let known = slots.iter().any(|slot| slot.key == key);
        self.statistics.hits += u64::from(known);
        self.statistics.misses += u64::from(!known);
        // Where the entry is must be known; nothing of it is used.
        let Some((at, _)) = self.fetch(key) else { return Answer::Absent };
        let hint = match self.through {
            Through::Coherent { write, .. } => write,
            Through::Remote => StateHint::NonCacheable,
        };
        self.remote.publish_line(at, &database::entry(key, value), hint);
        // Whoever is told that it is stored may look for it in the host's memory: the write must be there.
        let tag = self.remote.start_read(at, LINE_BYTES, StateHint::NonCacheable);
        let _ = self.remote.finish_line(tag, at);
        self.take_in(key, stamp, slots, value);
        Answer::Stored
    }

    /// Notes that a key was used: it comes first. The answer does not wait for it.
    fn used(&self, bucket: u64, mut slots: Vec<Slot>, place: usize) {
        if place > 0 {
            slots[..=place].rotate_right(1);
            self.local.publish_line(self.bucket_line(bucket), &line_of(&slots), StateHint::CacheableOwned);
        }
    }

    /// Takes a copy in, in the place of its last, or of the key that was not used for longest. The answer does not wait for it. A
    /// copy of an odd stamp would never count.
    fn take_in(&mut self, key: u64, stamp: u64, mut slots: Vec<Slot>, value: &Bytes) {
        if !stamp.is_multiple_of(2) {
            return;
        }
        let bucket = self.database.bucket(key);
        let way = match slots.iter().position(|slot| slot.key == key) {
            Some(place) => slots.remove(place).way,
            None if slots.len() < WAYS => slots.len() as u64,
            None => {
                self.statistics.evictions += 1;
                slots.pop().map_or(0, |oldest| oldest.way)
            }
        };
        slots.insert(0, Slot { key, stamp, way });
        let line = database::entry(key, value);
        self.local.publish_line(self.value_line(bucket, way), &line, StateHint::NonCacheable);
        self.local.publish_line(self.bucket_line(bucket), &line_of(&slots), StateHint::CacheableOwned);
    }
}
