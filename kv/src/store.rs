//! The index and the values: a table of buckets, a slot for each key, and a place for each key's value.
//!
//! | part | what it is | written by | synchronising words |
//! |---|---|---|---|
//! | buckets | a line each: eight 16-bit signatures in words 0 and 1, eight 32-bit numbers of slots in words 2 to 5, 0 for none | whoever fills the store | none |
//! | slots | 32 bytes each: the value's word, the key, where its value lies and how much room is there, 0 | whoever fills the store; the value's word any server | 0 and 4 |
//! | values | each from a line's beginning on | the server that has marked the value's word | none |
//!
//! The shape is that of DPDK's `rte_hash`: a lookup reads a bucket's line, and the slot that its signature names. Keys do not come or
//! go while the store is served.
//!
//! # The value's word
//!
//! | bits | what |
//! |---|---|
//! | 0..32 | the value's checksum |
//! | 32..48 | its bytes |
//! | 63 | it is being replaced |
//!
//! | step | move of the word | who | forbidden meanwhile |
//! |---|---|---|---|
//! | a set begins | bit 63 from clear to set, by compare and exchange | the one server whose exchange succeeds; another is told that it is busy | to write the value without having set the bit |
//! | a set ends | checksum and bytes of the new value, bit 63 clear, by release | that server | - |
//! | a get | read once | anybody | to send a value whose bit 63 was set |
//!
//! Nobody waits: a value is sent from where it lies, and may be overwritten while it leaves. Its reader finds that by the checksum
//! ([`crate::message`]).

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, SynchronisingWords, lines_of};

use crate::catalogue::Catalogue;
use crate::message::{MOST_VALUE_BYTES, checksum_of_zeros};

/// Keys of a bucket.
const KEYS_OF_A_BUCKET: usize = 8;
/// Bytes of a slot.
const SLOT_BYTES: u64 = 32;
/// A value is being replaced.
const BUSY: u64 = 1 << 63;
const ROOM_SHIFT: u32 = 48;
const ADDRESS_MASK: u64 = (1 << ROOM_SHIFT) - 1;

/// Where a store lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    buckets: Address,
    mask: u64,
    slots: Address,
    keys: u64,
    values: Address,
    value_bytes: u64,
}

/// What a key is looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashed {
    key: u64,
    signature: u16,
    bucket: u64,
}

/// The slot of a key that is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(Address);

impl Slot {
    /// The line that it lies in.
    #[inline(always)]
    pub fn line(self) -> Address {
        self.0.line()
    }
}

/// A value as it lies in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Where it begins.
    pub at: Address,
    /// How many bytes it has.
    pub bytes: u16,
    /// Their checksum, as long as nobody has begun to replace them.
    pub checksum: u32,
}

/// Why there is no value to be had, or to be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is being replaced.
    Busy,
    /// It is longer than the room that its key has.
    TooLong,
}

impl Store {
    /// Places the index of so many keys in a layout, in the memory of `home`; their values will lie in `value_bytes` bytes from
    /// `values` on, which begin with a line and are somebody else's segment: the objects of a region, for one.
    ///
    /// # Panics
    ///
    /// If there are more keys than a slot's number can tell apart.
    pub fn place(layout: &mut Layout, keys: u64, values: (Address, u64), home: Home) -> Store {
        assert!(keys < u64::from(u32::MAX), "an index of {keys} keys: a bucket has 32 bits for a slot's number");
        // Half full at most, so that few keys are not in the bucket where they are looked for first.
        let buckets = keys.div_ceil(KEYS_OF_A_BUCKET as u64 / 2).next_power_of_two().max(2);
        let none = SynchronisingWords::NONE;
        Store {
            buckets: layout.add("key-value buckets", buckets * LINE_BYTES, LINE_BYTES, home, none),
            mask: buckets - 1,
            slots: layout.add(
                "key-value slots",
                keys.max(1) * SLOT_BYTES,
                LINE_BYTES,
                home,
                SynchronisingWords(0b0001_0001),
            ),
            keys,
            values: values.0,
            value_bytes: values.1,
        }
    }

    /// Puts all keys of a catalogue into a store whose memory is zeroed, before any server runs; false where one does not fit.
    pub fn fill(&self, core: &impl Core, catalogue: &Catalogue) -> bool {
        let mut filling = Filling::new(*self);
        catalogue.sizes().iter().enumerate().all(|(key, &bytes)| filling.insert(core, key as u64, bytes))
    }

    /// What a key is looked up by.
    #[inline(always)]
    pub fn hash(&self, key: u64) -> Hashed {
        let mixed = (key ^ key >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        Hashed { key, signature: (mixed >> 48) as u16, bucket: mixed & self.mask }
    }

    /// The line that a key is looked for first.
    #[inline(always)]
    pub fn first_bucket(&self, hashed: Hashed) -> Address {
        self.buckets.lines(hashed.bucket)
    }

    /// The other line that a key may be in.
    #[inline(always)]
    fn second_bucket(&self, hashed: Hashed) -> Address {
        let other = hashed.bucket ^ (u64::from(hashed.signature) << 1 | 1).wrapping_mul(0x5bd1_e995);
        self.buckets.lines(other & self.mask)
    }

    /// The slots in a bucket whose keys have a signature.
    #[inline(always)]
    fn candidates(&self, bucket: &Line, signature: u16) -> impl Iterator<Item = Slot> + use<> {
        let (this, [low, high, numbers @ .., _, _]) = (*self, bucket.0);
        (0..KEYS_OF_A_BUCKET).filter_map(move |place| {
            let signatures = if place < 4 { low } else { high };
            let number = (numbers[place / 2] >> (32 * (place % 2))) as u32;
            let found = (signatures >> (16 * (place % 4))) as u16 == signature && number != 0;
            found.then(|| this.slot(u64::from(number) - 1))
        })
    }

    #[inline(always)]
    fn slot(&self, number: u64) -> Slot {
        Slot(self.slots + number * SLOT_BYTES)
    }

    /// The slot that is most likely a key's, by its first bucket's line; none is read yet.
    #[inline(always)]
    pub fn likely(&self, core: &impl Core, hashed: Hashed) -> Option<Slot> {
        self.candidates(&bucket_at(core, self.first_bucket(hashed)), hashed.signature).next()
    }

    /// The slot of a key, if it is in the store; `likely` is what [`Store::likely`] gave.
    #[inline(always)]
    pub fn find(&self, core: &impl Core, hashed: Hashed, likely: Option<Slot>) -> Option<Slot> {
        let is_the_keys = |slot: &Slot| core.load(slot.0.word(1)) == hashed.key;
        likely.filter(is_the_keys).or_else(|| self.find_elsewhere(core, hashed))
    }

    #[cold]
    #[inline(never)]
    fn find_elsewhere(&self, core: &impl Core, hashed: Hashed) -> Option<Slot> {
        [self.first_bucket(hashed), self.second_bucket(hashed)].into_iter().find_map(|bucket| {
            let mut slots = self.candidates(&bucket_at(core, bucket), hashed.signature);
            slots.find(|slot| core.load(slot.0.word(1)) == hashed.key)
        })
    }

    /// A key's value.
    ///
    /// # Errors
    ///
    /// If it is being replaced.
    #[inline(always)]
    pub fn value(&self, core: &impl Core, slot: Slot) -> Result<Value, Refused> {
        // Acquire: pairs with the release that ended its last set, so what is sent from now on is not older than that.
        let word = core.load_acquire(slot.0);
        if word & BUSY != 0 {
            return Err(Refused::Busy);
        }
        let at = Address(core.load(slot.0.word(2)) & ADDRESS_MASK);
        Ok(Value { at, bytes: (word >> 32) as u16, checksum: word as u32 })
    }

    /// Puts another value of so many bytes to a key: `write` is told where its lines lie.
    ///
    /// # Errors
    ///
    /// If somebody else is doing so, or there is no room for so many.
    #[inline(always)]
    pub fn replace(
        &self,
        core: &impl Core,
        slot: Slot,
        (bytes, checksum): (u16, u32),
        write: impl FnOnce(Address),
    ) -> Result<(), Refused> {
        let place = core.load(slot.0.word(2));
        if u64::from(bytes) > place >> ROOM_SHIFT {
            return Err(Refused::TooLong);
        }
        // Acquire: pairs with the release below of whoever set it before, whose stores to the value these must follow.
        let word = core.load_acquire(slot.0);
        if word & BUSY != 0 || core.compare_exchange(slot.0, word, word | BUSY).is_err() {
            return Err(Refused::Busy);
        }
        write(Address(place & ADDRESS_MASK));
        // Release: the value before the word that says that it is whole.
        core.store_release(slot.0, u64::from(bytes) << 32 | u64::from(checksum));
        Ok(())
    }
}

/// Bytes of the lines that a value of so many bytes is given.
pub(crate) fn room_of(bytes: u16) -> u64 {
    lines_of(u64::from(bytes).max(1)) * LINE_BYTES
}

/// Puts keys into an empty store, whose memory is zeroed; no server may run yet.
#[derive(Debug)]
pub struct Filling {
    store: Store,
    slots: u64,
    bytes: u64,
}

impl Filling {
    /// Begins with none.
    pub fn new(store: Store) -> Filling {
        Filling { store, slots: 0, bytes: 0 }
    }

    /// Puts a key in, with a value of so many zeros, and as much room as their lines have. False, and the others are where they can be
    /// found as before, where it does not fit: its buckets are full, the slots or the values' bytes are used up, or no packet has room
    /// for such a value.
    pub fn insert(&mut self, core: &impl Core, key: u64, bytes: u16) -> bool {
        let store = self.store;
        let hashed = store.hash(key);
        let room = room_of(bytes);
        if self.slots == store.keys || self.bytes + room > store.value_bytes || bytes > MOST_VALUE_BYTES {
            return false;
        }
        // The key first: who moves it to its other bucket looks it up there.
        let Slot(slot) = store.slot(self.slots);
        core.store(slot.word(1), key);
        if !self.enter(core, hashed, self.slots as u32 + 1) {
            return false;
        }
        core.store(slot.word(2), (store.values + self.bytes).0 | room << ROOM_SHIFT);
        let checksum = checksum_of_zeros(bytes.into());
        core.store_release(slot, u64::from(bytes) << 32 | u64::from(checksum));
        self.slots += 1;
        self.bytes += room;
        true
    }

    /// Enters a slot's number in one of a key's buckets. Where both are full, one that is in the second is moved to its other bucket
    /// (cuckoo hashing, as `rte_hash` does), and so on. Where that comes to no end, all of them are moved back.
    fn enter(&self, core: &impl Core, mut hashed: Hashed, mut number: u32) -> bool {
        let store = &self.store;
        let hashed_of = |number: u32| store.hash(core.load(store.slot(u64::from(number) - 1).0.word(1)));
        let mut taken = Vec::new();
        let mut into = [store.first_bucket(hashed), store.second_bucket(hashed)];
        for moves in 0..MOST_MOVES {
            if into.into_iter().any(|bucket| put(core, bucket, hashed.signature, number)) {
                return true;
            }
            let (full, place) = (into[1], moves % KEYS_OF_A_BUCKET);
            let moved = replaced(core, full, place, hashed.signature, number);
            taken.push((full, place));
            (hashed, number) = (hashed_of(moved), moved);
            let [first, second] = [store.first_bucket(hashed), store.second_bucket(hashed)];
            // Its other one, twice: it must not come back to where it was.
            into = if full == first { [second; 2] } else { [first; 2] };
        }
        // The last first: who was put out of a place takes it again.
        for (full, place) in taken.into_iter().rev() {
            number = replaced(core, full, place, hashed.signature, number);
            hashed = hashed_of(number);
        }
        false
    }
}

/// Keys that are moved for one at most: with half of the places taken a few are enough.
const MOST_MOVES: usize = 256;

/// A bucket's line. What is read next is named in it: nothing of that begins before the line is there.
#[inline(always)]
fn bucket_at(core: &impl Core, bucket: Address) -> Line {
    let line = core.read_line(bucket);
    core.depends_on(bucket);
    line
}

/// Puts a slot's number in a bucket, if it has room.
fn put(core: &impl Core, bucket: Address, signature: u16, number: u32) -> bool {
    let line = core.read_line(bucket).0;
    let is_free = |place: &usize| (line[2 + place / 2] >> (32 * (place % 2))) as u32 == 0;
    let Some(place) = (0..KEYS_OF_A_BUCKET).find(is_free) else { return false };
    replaced(core, bucket, place, signature, number);
    true
}

/// Puts a slot's number in a place of a bucket, and gives the one that was there.
fn replaced(core: &impl Core, bucket: Address, place: usize, signature: u16, number: u32) -> u32 {
    let change = |word: usize, width: usize, mask: u64, value: u64| {
        let (at, shift) = (bucket.word(word + place / width), 64 / width * (place % width));
        let old = core.load(at);
        core.store(at, old & !(mask << shift) | value << shift);
        old >> shift
    };
    change(0, 4, 0xffff, signature.into());
    change(2, 2, 0xffff_ffff, number.into()) as u32
}

#[cfg(test)]
mod tests {
    use conic_native::{Memory, NativeCore, Pages};

    use super::*;

    /// A store for so many keys with a line for each value, and its memory.
    fn place(keys: u64, bytes_of_values: u64) -> (Store, Memory) {
        let mut layout = Layout::new();
        let values = layout.add("values", bytes_of_values, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
        let store = Store::place(&mut layout, keys, (values, bytes_of_values), Home::Host);
        (store, Memory::create(&layout, Pages::Plain).expect("a small region"))
    }

    /// Keys whose two buckets are these.
    fn keys_of(store: Store, buckets: [u64; 2]) -> impl Iterator<Item = u64> {
        (0..).filter(move |&key| {
            let hashed = store.hash(key);
            let mut both = [store.first_bucket(hashed), store.second_bucket(hashed)];
            both.sort_unstable();
            both == buckets.map(|bucket| store.buckets.lines(bucket))
        })
    }

    #[test]
    fn an_index_is_half_full_at_most() {
        for keys in 1..200 {
            let buckets = place(keys, LINE_BYTES).0.mask + 1;
            assert!(2 * keys <= buckets * KEYS_OF_A_BUCKET as u64, "{keys} keys in {buckets} buckets");
        }
    }

    #[test]
    fn a_key_that_finds_no_place_puts_no_other_out() {
        let (store, memory) = place(64, 64 * LINE_BYTES);
        let core = NativeCore::new(&memory);
        let mut filling = Filling::new(store);
        let mut inserted = Vec::new();
        // As many as two buckets hold, and a third one's, from which moves go on.
        let of_two: Vec<_> = keys_of(store, [0, 1]).take(17).collect();
        for &key in of_two.iter().take(16).chain(&keys_of(store, [2, 3]).take(5).collect::<Vec<_>>()) {
            assert!(filling.insert(&core, key, 10), "key {key}");
            inserted.push(key);
        }
        for _ in 0..3 {
            assert!(!filling.insert(&core, of_two[16], 10), "both buckets are full");
            for &key in &inserted {
                assert!(store.find(&core, store.hash(key), None).is_some(), "key {key} is lost");
            }
            assert_eq!(store.find(&core, store.hash(of_two[16]), None), None);
            // And whoever comes next has its slot alone.
            let next = keys_of(store, [2, 3]).find(|key| !inserted.contains(key)).expect("there are many");
            assert!(filling.insert(&core, next, 20));
            inserted.push(next);
        }
    }

    #[test]
    fn a_value_that_no_packet_holds_is_refused() {
        let (store, memory) = place(4, 4 << 16);
        let core = NativeCore::new(&memory);
        let mut filling = Filling::new(store);
        for bytes in [MOST_VALUE_BYTES + 1, u16::MAX] {
            assert!(!filling.insert(&core, 1, bytes), "{bytes} bytes");
        }
        assert!(filling.insert(&core, 1, MOST_VALUE_BYTES));
        let slot = store.find(&core, store.hash(1), None).expect("it was put in");
        assert_eq!(store.replace(&core, slot, (MOST_VALUE_BYTES + 1, 0), |_| ()), Err(Refused::TooLong));
    }
}
