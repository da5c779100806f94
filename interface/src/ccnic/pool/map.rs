//! Where buffers lie, and what a peer may name of them.

use conic_fabric::{Address, Core, LINE_BYTES};

/// Buffer classes: small, large, jumbo.
pub const CLASSES: usize = 3;

/// One class of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassMap {
    /// The first buffer; a multiple of the size where nothing lies between the buffers.
    pub start: Address,
    /// Base-two logarithm of a buffer's size in bytes.
    pub shift: u32,
    /// Bytes of the host's own in front of each buffer and no part of it; zero, or [`crate::buffer_metadata::BYTES`].
    pub metadata: u32,
    /// How many buffers, zero or a power of two.
    pub count: u64,
    /// Bytes of all buffers together, from the first one's beginning to the last one's end.
    pub bytes: u64,
    /// The first word of the free set; each word is in its own line.
    pub bits: Address,
    /// The most bytes of a received packet.
    pub room: u64,
    /// Bytes before a received packet at least.
    pub headroom: u64,
    /// How many lines more they may be: the lowest bits of the buffer's number that are set here say how many.
    pub places: u64,
}

// The classes are looked at for each packet: each is in one line of the cache, and found by a shift.
const _: () = assert!(size_of::<ClassMap>() == LINE_BYTES as usize);

impl ClassMap {
    /// A class without buffers.
    pub(in crate::ccnic) const EMPTY: ClassMap = ClassMap {
        start: Address(0),
        shift: 0,
        metadata: 0,
        count: 0,
        bytes: 0,
        bits: Address(0),
        room: 0,
        headroom: 0,
        places: 0,
    };

    /// Where a received packet begins in the buffer that an address lies in.
    #[inline(always)]
    pub const fn packet_start(&self, at: Address) -> Address {
        if self.metadata != 0 {
            let index = self.index_of(at) as u64;
            return Address(
                self.start.0 + index * self.distance() + self.headroom + (index & self.places) * LINE_BYTES,
            );
        }
        let buffer = at.0 & !(self.size() - 1);
        Address(buffer + self.headroom + (at.0 >> self.shift & self.places) * LINE_BYTES)
    }

    /// Where the buffer that an address lies in begins: its metadata, where there are such, end there.
    #[inline(always)]
    pub const fn buffer_of(&self, at: Address) -> Address {
        Address(at.0 - self.within(at))
    }

    /// Where a received packet begins in the buffer that a bit of the free set stands for.
    #[inline(always)]
    pub(super) fn packet_of(&self, scattered: bool, word: u64, bit: u64) -> Address {
        let index = 64 * word + bit;
        let index = if scattered { index.wrapping_mul(SCATTER) & (self.count - 1) } else { index };
        self.packet_start(self.start + index * self.distance())
    }

    /// Bytes of a buffer.
    #[inline(always)]
    pub const fn size(&self) -> u64 {
        1 << self.shift
    }

    /// Bytes from one buffer's beginning to the next one's.
    #[inline(always)]
    pub const fn distance(&self) -> u64 {
        self.size() + self.metadata as u64
    }

    /// How far into the buffer an address lies that is one of the class's; behind its end are the next one's metadata.
    #[inline(always)]
    const fn within(&self, at: Address) -> u64 {
        if self.metadata != 0 {
            return at.0.wrapping_sub(self.start.0) % self.distance();
        }
        at.0 & (self.size() - 1)
    }

    pub(super) const fn words(&self) -> u64 {
        self.count.div_ceil(64)
    }

    /// Whether an address lies in one of its buffers.
    #[inline(always)]
    pub(super) const fn contains(&self, at: Address) -> bool {
        at.0.wrapping_sub(self.start.0) < self.bytes
    }

    /// The bits of word `index` that stand for a buffer.
    pub(super) const fn mask(&self, index: u64) -> u64 {
        let remaining = self.count - 64 * index;
        if remaining >= 64 { u64::MAX } else { (1 << remaining) - 1 }
    }

    /// The bit of the free set that stands for the buffer at an address, as `(word, bit)`.
    #[inline(always)]
    pub(super) fn bit_of(&self, scattered: bool, at: Address) -> (u64, u64) {
        let index = self.index_of(at) as u64;
        let index = if scattered { index.wrapping_mul(inverse(SCATTER)) & (self.count - 1) } else { index };
        (index / 64, index % 64)
    }

    /// The number of the buffer that an address lies in, by its place in memory.
    #[inline(always)]
    pub(in crate::ccnic) const fn index_of(&self, at: Address) -> usize {
        let offset = at.0.wrapping_sub(self.start.0);
        (if self.metadata != 0 { offset / self.distance() } else { offset >> self.shift }) as usize
    }

    /// The same for any address, with how far into the buffer it lies; none where it lies in no buffer of this class.
    #[inline(always)]
    pub(in crate::ccnic) const fn find(&self, at: Address) -> Option<(usize, u64)> {
        if !self.contains(at) {
            return None;
        }
        Some((self.index_of(at), self.within(at)))
    }

    /// The word of the free set at `index`.
    pub(super) fn word(&self, index: u64) -> Address {
        self.bits.lines(index)
    }
}

/// Where every class lies, and the memory beside them that senders may name in descriptors that they retain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolMap {
    /// Small, large, jumbo, by size.
    pub classes: [ClassMap; CLASSES],
    /// Objects of the host's own, for zero-copy transmission: where they start.
    pub objects: Address,
    /// How many bytes of them there are.
    pub object_bytes: u64,
}

/// Why a piece of memory that a descriptor names is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BadMemory {
    /// It starts in no buffer and in no object.
    Address,
    /// It has no bytes, or runs past the end of its buffer.
    Length,
    /// It is an object, and is not retained, so that the receiver would have to free it.
    NotABuffer,
}

impl PoolMap {
    /// The class of the buffer that an address lies in.
    #[inline(always)]
    pub fn class_of(&self, at: Address) -> Option<usize> {
        self.classes.iter().position(|class| class.contains(at))
    }

    /// The bytes of the buffer that an address lies in; zero if it lies in none.
    pub fn size_of(&self, at: Address) -> u64 {
        self.class_of(at).map_or(0, |class| self.classes[class].size())
    }

    /// The bytes from an address to the end of the buffer that it lies in; zero if it lies in none.
    #[inline(always)]
    pub fn bytes_to_end(&self, at: Address) -> u64 {
        // Behind a buffer are the next one's metadata, where there are such: they are in none.
        self.class_of(at).map_or(0, |class| self.classes[class].size().saturating_sub(self.classes[class].within(at)))
    }

    /// The most bytes that are received into the buffer that an address lies in; zero if it lies in none.
    pub fn room_of(&self, at: Address) -> u64 {
        self.class_of(at).map_or(0, |class| self.classes[class].room)
    }

    /// The beginning of the buffer that an address lies in, behind the host's metadata; none if it lies in none.
    #[inline(always)]
    pub fn buffer_of(&self, at: Address) -> Option<Address> {
        self.class_of(at).map(|class| self.classes[class].buffer_of(at))
    }

    /// Checks that `length` bytes at `at` lie in one buffer, or, if `retained`, in the objects.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    #[inline(always)]
    pub fn check(&self, at: Address, length: u16, retained: bool) -> Result<(), BadMemory> {
        let length = u64::from(length);
        if let Some(class) = self.class_of(at) {
            let size = self.classes[class].size();
            let offset = self.classes[class].within(at);
            return if length == 0 || offset + length > size { Err(BadMemory::Length) } else { Ok(()) };
        }
        let offset = at.0.wrapping_sub(self.objects.0);
        if offset >= self.object_bytes {
            Err(BadMemory::Address)
        } else if !retained {
            Err(BadMemory::NotABuffer)
        } else if length == 0 || offset + length > self.object_bytes {
            Err(BadMemory::Length)
        } else {
            Ok(())
        }
    }

    /// Gives the buffer that an address lies in back to the pool, with one atomic operation: for whoever has no stack, from any
    /// thread. `scattered` as the region's features have it. False if it lies in none, or the buffer was free already.
    pub fn give_back<C: Core>(&self, core: &C, scattered: bool, at: Address) -> bool {
        let Some(class) = self.class_of(at) else { return false };
        let (word, bit) = self.classes[class].bit_of(scattered, at);
        // Acquire and release: this side's accesses to the buffer happen before whoever allocates it next.
        core.fetch_or(self.classes[class].word(word), 1 << bit) >> bit & 1 == 0
    }

    /// Takes free buffers of a class, as many as there are, or there is room for in `out`: for whoever has no stack, from any thread.
    /// `from` is the word of the free set to look at first; it is left where something was found last. Gives how many, each as
    /// the place where a received packet begins in it.
    pub fn take<C: Core>(&self, core: &C, scattered: bool, class: usize, from: &mut u64, out: &mut [Address]) -> usize {
        let map = &self.classes[class];
        let mut count = 0;
        for _ in 0..map.words() {
            let index = if *from < map.words() { *from } else { 0 };
            // Acquire, with the `fetch_and` below: whoever freed these buffers has done with them.
            let free = core.load_acquire(map.word(index)) & map.mask(index);
            let wanted = lowest_bits(free, out.len() - count);
            if wanted != 0 {
                // Acquire and release: as above; and nothing of the caller's moves before the claim.
                let mut got = core.fetch_and(map.word(index), !wanted) & wanted;
                while got != 0 {
                    out[count] = map.packet_of(scattered, index, u64::from(got.trailing_zeros()));
                    got &= got - 1;
                    count += 1;
                }
            }
            if count == out.len() {
                *from = index;
                break;
            }
            *from = index + 1;
        }
        count
    }

    /// Sets every buffer free. For whoever makes the region, before anyone else sees it.
    pub fn fill<C: Core>(&self, core: &C) {
        for class in &self.classes {
            for index in 0..class.words() {
                // Release: nobody looks yet; who attaches later learns of the region by other means.
                core.store_release(class.word(index), class.mask(index));
            }
        }
    }

    /// How many buffers of each class are free in the pool.
    pub fn free<C: Core>(&self, core: &C) -> [u64; CLASSES] {
        self.classes.map(|class| {
            (0..class.words())
                .map(|index| {
                    // Acquire: a count for people; any order would do.
                    u64::from((core.load_acquire(class.word(index)) & class.mask(index)).count_ones())
                })
                .sum()
        })
    }
}

/// How far apart successive bits' buffers lie, in buffers: odd, so that it permutes a power of two of them, and far
/// enough that neither a next-line nor a stride prefetcher runs from one into the next.
pub(super) const SCATTER: u64 = 37;

/// The inverse of an odd number modulo 2^64, by Newton's iteration.
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut round = 0;
    while round < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        round += 1;
    }
    inverse
}

/// The lowest `count` set bits.
pub(super) fn lowest_bits(bits: u64, count: usize) -> u64 {
    if bits.count_ones() as usize <= count {
        return bits;
    }
    let mut rest = bits;
    for _ in 0..count {
        rest &= rest - 1;
    }
    bits & !rest
}
