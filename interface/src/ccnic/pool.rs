//! The buffers: a pool that both sides allocate from and free to, and each side's recycling stack (section 3.4).
//!
//! # The pool
//!
//! Buffers come in classes of one size each. A class's free buffers are the set bits of an array of words; each word is a
//! synchronising word in a line of its own. Every move is one atomic operation on one word:
//!
//! | move | operation | what it yields |
//! |---|---|---|
//! | allocate | load a word, choose some of its set bits, `fetch_and` them away | those that were still set: they are ours |
//! | free | `fetch_or` the buffers' bits | any that were set already were free: a fault, counted |
//!
//! So a buffer cannot be named that does not exist, none is handed out twice, a buffer freed twice is noticed, and a side
//! that dies between two operations leaves the pool consistent: it lacks what the dead side held, and
//! [`Allocator::reclaim`] puts that back.
//!
//! # The recycling stacks
//!
//! Each side keeps what it freed last on a stack of its own and allocates from there first, because those buffers' lines
//! are in its cache (section 3.3). The host's transmit buffers become the NIC's receive buffers and come back. A stack that
//! runs empty takes a batch from the pool, one that runs over gives a batch back. No stack holds more than a quarter of
//! its queue pair's share of a class, so that nobody starves another of buffers that it does not use.
//!
//! # Who owns a buffer
//!
//! | place | owner | leaves by |
//! |---|---|---|
//! | bit set in the pool | nobody | allocation by either side |
//! | a side's stack | that side | allocation, or a batch to the pool |
//! | a side's reserve (one buffer, where payloads travel in the ring) | that side | receiving a payload from the ring when the pool is dry |
//! | handed out by `allocate` | the caller | sending it, or `free` |
//! | named by a descriptor not yet received | the receiver, once it receives it | - |
//! | posted by a host that manages the pool alone, or taken by the NIC and not filled | the NIC | receiving a packet into it |
//! | named by a descriptor with `RETAIN` | the sender; what it writes before its slot is released may be sent in part | completion |

mod map;
mod reserve;
mod stack;

use conic_fabric::{Address, Core};

use super::descriptor::Descriptor;
use super::ledger::Ledger;
use crate::work;

use map::lowest_bits;
pub use map::{BadMemory, CLASSES, ClassMap, PoolMap};
use stack::{STACK, Stack};

/// Buffers moved between a stack and the pool at once.
const BATCH: usize = 32;

/// Words of a class's free set that one look for buffers goes through at most, where the peer is not trusted: it may have taken all
/// of a large pool, and each frame for it would take as long as that has words. The next look begins where this one ended.
const MOST_LOOKS: u64 = 64;

/// What an allocator is asked to do, of the switches in [`super::Features`].
#[derive(Clone, Copy, Debug)]
pub struct AllocatorFeatures {
    /// Keep a stack.
    pub recycling: bool,
    /// Hand out addresses that do not run on.
    pub scattered: bool,
    /// Use the small class.
    pub small_buffers: bool,
}

/// One side's way to the buffers.
#[derive(Debug)]
pub struct Allocator {
    map: PoolMap,
    features: AllocatorFeatures,
    stacks: Box<[Stack; CLASSES]>,
    /// The word of each class to look at first; the two sides start at opposite ends, so as not to meet.
    next_word: [u64; CLASSES],
    /// Where nothing is kept on a stack, the bit of that word to look at first: buffers are taken in rotation, as out of a queue.
    next_bit: [u32; CLASSES],
    /// Queue pairs that share the pool.
    queues: u64,
    /// A buffer set aside for a payload that came in a ring; see [`Allocator::keep_reserve`].
    reserve: Option<Address>,
    keeps_reserve: bool,
    /// Bytes that the buffer set aside holds at least.
    reserve_bytes: u64,
    /// What this side holds, where the other one cannot change it; none where that one is trusted.
    ledger: Option<Ledger>,
    freed_twice: u64,
    not_a_buffer: u64,
    found_held: u64,
}

impl Allocator {
    /// An allocator for one side; `from_the_end` for the NIC's.
    pub fn new(map: PoolMap, features: AllocatorFeatures, from_the_end: bool) -> Allocator {
        let stacks = map.classes.map(|class| {
            let most = (class.count / 4).min(STACK as u64) as usize;
            let limit = if features.recycling { most } else { 0 };
            Stack { entries: [Address(0); STACK], height: 0, limit, batch: most.clamp(1, BATCH) }
        });
        let next_word = map.classes.map(|class| if from_the_end { class.words().saturating_sub(1) } else { 0 });
        Allocator {
            map,
            features,
            stacks: Box::new(stacks),
            next_word,
            next_bit: [0; CLASSES],
            queues: 1,
            reserve: None,
            keeps_reserve: false,
            reserve_bytes: 0,
            ledger: None,
            freed_twice: 0,
            not_a_buffer: 0,
            found_held: 0,
        }
    }

    /// The same, with a ledger of what this side holds: for a side whose peer is not trusted. Nothing is held yet.
    pub(crate) fn with_ledger(mut self) -> Allocator {
        self.ledger = Some(Ledger::new(&self.map));
        self
    }

    /// Keeps no ledger from here on.
    pub(crate) fn without_ledger(&mut self) {
        self.ledger = None;
    }

    /// Enters a buffer that the peer sent, by an address in it; false if this side holds it already, and so cannot have lent it.
    #[inline(always)]
    pub(crate) fn accept(&mut self, at: Address) -> bool {
        match (&mut self.ledger, self.map.class_of(at)) {
            (Some(ledger), Some(class)) => ledger.take(&self.map, class, at),
            _ => true,
        }
    }

    /// Checks packets that the peer sent and enters their buffers, from the front, up to the first that has other segments, is retained,
    /// does not lie in one buffer, or names what this side holds; how many.
    #[inline(always)]
    pub(crate) fn accept_packets(&mut self, packets: &[Descriptor]) -> usize {
        match &mut self.ledger {
            Some(ledger) => ledger.take_packets(&self.map, packets),
            None => {
                let is_good =
                    |packet: &&Descriptor| self.map.check(packet.address_if_plain(), packet.length(), false).is_ok();
                packets.iter().take_while(is_good).count()
            }
        }
    }

    /// Strikes a buffer out that comes back as if from the peer.
    #[inline(always)]
    pub(crate) fn lend(&mut self, at: Address) {
        if let (Some(ledger), Some(class)) = (&mut self.ledger, self.map.class_of(at)) {
            ledger.give(&self.map, class, at);
        }
    }

    /// Strikes the buffers of packets out that were sent to the peer.
    #[inline(always)]
    pub(crate) fn lend_packets(&mut self, packets: &[Descriptor]) {
        if let Some(ledger) = &mut self.ledger {
            ledger.give_packets(&self.map, packets);
        }
    }

    /// Buffers that were found free, or were sent, while this side held them.
    pub fn found_held(&self) -> u64 {
        self.found_held
    }

    /// Counts a buffer that was sent while this side held it.
    pub(crate) fn count_held(&mut self) {
        self.found_held += 1;
    }

    /// The same, for queue pair `queue` of `queues`: each starts to look in a part of the pool of its own, so that they do not
    /// meet either, and keeps a quarter of such a part at most, so that idle ones leave the others their buffers.
    pub fn of_queue(mut self, queue: usize, queues: usize) -> Allocator {
        self.queues = queues.max(1) as u64;
        for (stack, class) in self.stacks.iter_mut().zip(&self.map.classes) {
            let most = (class.count / (4 * self.queues)) as usize;
            stack.limit = stack.limit.min(most);
            stack.batch = stack.batch.min(most.max(1));
        }
        for (next, class) in self.next_word.iter_mut().zip(&self.map.classes) {
            let apart = class.words() * queue as u64 / self.queues;
            *next = if *next == 0 { apart } else { *next - apart.min(*next) };
        }
        self
    }

    /// Where the buffers lie.
    #[inline(always)]
    pub fn map(&self) -> &PoolMap {
        &self.map
    }

    /// Buffers that were freed while they were free.
    pub fn freed_twice(&self) -> u64 {
        self.freed_twice
    }

    /// Frees of what is no buffer.
    pub fn not_a_buffer(&self) -> u64 {
        self.not_a_buffer
    }

    /// Allocates a buffer of the smallest class that holds `bytes`, or of a larger one if that has none left.
    #[inline(always)]
    pub fn allocate<C: Core>(&mut self, core: &C, bytes: u64) -> Option<Address> {
        let first = usize::from(!self.features.small_buffers);
        for class in first..CLASSES {
            if bytes > self.map.classes[class].room {
                continue;
            }
            if self.stacks[class].height > 0 || self.refill(core, class, 1) {
                core.work(work::BUFFER);
                return self.stacks[class].pop();
            }
        }
        None
    }

    /// Where nothing is kept: takes a buffer from the pool for each of these lengths, from the front, that is of the first one's class, all
    /// of them together; the next allocations of that class are given those. Nothing if some are there.
    #[inline(always)]
    pub(crate) fn claim_for<C: Core>(&mut self, core: &C, lengths: impl IntoIterator<Item = u16>) {
        if self.features.recycling {
            return;
        }
        let mut lengths = lengths.into_iter().map(|length| self.class_for(length));
        let Some(Some(class)) = lengths.next() else { return };
        if self.stacks[class].height == 0 {
            let wanted = 1 + lengths.take(BATCH - 1).take_while(|&other| other == Some(class)).count();
            while self.stacks[class].height < wanted && self.refill(core, class, wanted - self.stacks[class].height) {}
        }
    }

    /// Takes a buffer from the stacks for each of these packets, from the front, up to the first that has other segments, begins within
    /// a line, or for which the stack of its class has none; how many. `each` is given a packet's place among them, the packet, and its
    /// buffer. Where nothing is kept, a run of packets of one class has its buffers from the pool together.
    #[inline(always)]
    pub(crate) fn pop_for<C: Core>(
        &mut self,
        core: &C,
        packets: &[Descriptor],
        mut each: impl FnMut(usize, &Descriptor, Address),
    ) -> usize {
        let mut count = 0;
        while let Some(first) = packets.get(count)
            && let Some(class) = self.class_for(first.length())
        {
            self.claim_for(core, lengths_of(&packets[count..]));
            let until = self.pop_run(class, packets, count, &mut each);
            if until == count {
                break;
            }
            count = until;
        }
        count
    }

    /// The same for packets behind the first `count` that are received into buffers of one class; until which.
    #[inline(always)]
    fn pop_run(
        &mut self,
        class: usize,
        packets: &[Descriptor],
        mut count: usize,
        each: &mut impl FnMut(usize, &Descriptor, Address),
    ) -> usize {
        let smaller = &self.map.classes[usize::from(!self.features.small_buffers)..class];
        let below = smaller.iter().map(|class| class.room).max().unwrap_or(0);
        let (room, stack) = (self.map.classes[class].room, &mut self.stacks[class]);
        // Not in the stack's own word, which each buffer would have to wait for.
        let mut height = stack.height;
        for packet in &packets[count..] {
            let length = u64::from(packet.length());
            if !packet.is_of_whole_lines() || length <= below || length > room || height == 0 {
                break;
            }
            height -= 1;
            each(count, packet, stack.entries[height & (STACK - 1)]);
            count += 1;
        }
        stack.height = height;
        count
    }

    /// The smallest class that holds so many bytes.
    #[inline(always)]
    fn class_for(&self, bytes: u16) -> Option<usize> {
        let first = usize::from(!self.features.small_buffers);
        (first..CLASSES).find(|&class| u64::from(bytes) <= self.map.classes[class].room)
    }

    /// Allocates buffers for `bytes` each, as [`Allocator::allocate`] does, and returns how many.
    #[inline(always)]
    pub fn allocate_burst<C: Core>(&mut self, core: &C, bytes: u64, out: &mut [Address]) -> usize {
        let mut count = 0;
        for class in usize::from(!self.features.small_buffers)..CLASSES {
            if bytes > self.map.classes[class].room {
                continue;
            }
            while count < out.len() {
                if self.stacks[class].height == 0 && !self.refill(core, class, out.len() - count) {
                    break;
                }
                count += self.stacks[class].pop_into(&mut out[count..]);
            }
        }
        core.work(work::CALL + work::BUFFER * count as u32);
        count
    }

    /// From now on keeps no more than so many freed buffers of a class; the others are the pool's at once.
    pub(crate) fn keep_at_most(&mut self, count: usize) {
        self.stacks.iter_mut().for_each(|stack| stack.limit = stack.limit.min(count));
    }

    /// Allocates a buffer for a frame whose size is not known yet: a large one, or a jumbo one where there is none now; a small
    /// one where the pool has no others.
    pub fn allocate_blank<C: Core>(&mut self, core: &C) -> Option<Address> {
        self.allocate(core, self.blank_room())
    }

    /// Where nothing is kept: takes so many buffers from the pool together, for [`Allocator::allocate_blank`] to give.
    pub(crate) fn claim_blanks<C: Core>(&mut self, core: &C, count: usize) {
        self.claim_for(core, std::iter::repeat_n(self.blank_room() as u16, count));
    }

    /// Bytes that a blank buffer is to hold.
    fn blank_room(&self) -> u64 {
        let [small, large, jumbo] = self.map.classes;
        if large.count + jumbo.count == 0 { small.room } else { large.room }
    }

    /// Frees the buffer that an address lies in. What is no buffer is counted and otherwise ignored.
    #[inline(always)]
    pub fn free<C: Core>(&mut self, core: &C, at: Address) {
        core.work(work::BUFFER);
        let Some(class) = self.map.class_of(at) else {
            self.not_a_buffer += 1;
            return;
        };
        let start = self.map.classes[class].packet_start(at);
        if self.keeps_reserve && self.reserve.is_none() && self.map.classes[class].room >= self.reserve_bytes {
            self.reserve = Some(start);
            return;
        }
        if self.stacks[class].height >= self.stacks[class].limit {
            if self.stacks[class].limit == 0 {
                self.give(core, class, &[start]);
                return;
            }
            self.spill(core, class);
        }
        self.stacks[class].push(start);
    }

    /// Frees the buffers that some addresses lie in. Without a stack they go to the pool together, with one atomic operation for
    /// each word of the free set that they touch.
    #[inline(always)]
    pub fn free_burst<C: Core>(&mut self, core: &C, addresses: impl IntoIterator<Item = Address>) {
        let mut addresses = addresses.into_iter();
        if !self.features.recycling && !self.keeps_reserve {
            return self.free_together(core, &mut addresses);
        }
        let mut next = addresses.next();
        while let Some(first) = next {
            self.free(core, first);
            next = self.push_run(core, first, &mut addresses);
        }
    }

    /// Frees the buffers behind `first` that are of its class and for which there is room on the stack; gives the one after them.
    #[inline(always)]
    fn push_run<C: Core>(
        &mut self,
        core: &C,
        first: Address,
        addresses: &mut impl Iterator<Item = Address>,
    ) -> Option<Address> {
        let Some(class) = self.map.class_of(first).filter(|_| !self.keeps_reserve || self.reserve.is_some()) else {
            return addresses.next();
        };
        let (map, stack) = (self.map.classes[class], &mut self.stacks[class]);
        // Not in the stack's own word, which each buffer would have to wait for.
        let mut height = stack.height;
        let next = addresses.find(|&at| {
            if !map.contains(at) || height >= stack.limit {
                return true;
            }
            core.work(work::BUFFER);
            stack.entries[height & (STACK - 1)] = map.packet_start(at);
            height += 1;
            false
        });
        stack.height = height;
        next
    }

    #[inline(never)]
    fn free_together<C: Core>(&mut self, core: &C, addresses: &mut dyn Iterator<Item = Address>) {
        let (mut batch, mut count, mut of) = ([Address(0); BATCH], 0, 0);
        for at in addresses {
            core.work(work::BUFFER);
            let Some(class) = self.map.class_of(at) else {
                self.not_a_buffer += 1;
                continue;
            };
            if count == BATCH || class != of {
                self.give(core, of, &batch[..count]);
                (count, of) = (0, class);
            }
            batch[count] = self.map.classes[class].packet_start(at);
            count += 1;
        }
        self.give(core, of, &batch[..count]);
    }

    /// Gives everything on the stacks back to the pool, and what is set aside.
    pub fn drain<C: Core>(&mut self, core: &C) {
        self.keeps_reserve = false;
        if let Some(at) = self.reserve.take() {
            self.free(core, at);
        }
        for class in 0..CLASSES {
            while self.stacks[class].height > 0 {
                self.spill(core, class);
            }
        }
    }

    /// How many buffers of each class lie on this side's stacks, or are set aside.
    pub fn held(&self) -> [u64; CLASSES] {
        let reserved = self.reserve.and_then(|at| self.map.class_of(at));
        std::array::from_fn(|class| self.stacks[class].height as u64 + u64::from(reserved == Some(class)))
    }

    /// After the other side has died: makes the pool whole. Every buffer that is not in `held` becomes free, those on this
    /// side's stacks too (a hostile peer may have sent the same one twice, and the stacks hold it twice); how many had been
    /// lost with the other side is returned.
    ///
    /// Only when nobody else uses the region.
    pub fn reclaim<C: Core>(&mut self, core: &C, held: impl IntoIterator<Item = Address>) -> u64 {
        self.drain(core);
        let mut sets = self.map.classes.map(|class| (0..class.words()).map(|w| class.mask(w)).collect::<Vec<_>>());
        for at in held {
            if let Some(class) = self.map.class_of(at) {
                let (word, bit) = self.bit_of(class, at);
                sets[class][word as usize] &= !(1 << bit);
            }
        }
        let mut lost = 0;
        for (class, set) in self.map.classes.iter().zip(sets) {
            for (index, free) in set.into_iter().enumerate() {
                // Acquire and release: the other side is gone; its last operations on the word happened before.
                let before = core.load_acquire(class.word(index as u64));
                lost += u64::from((free & !before).count_ones());
                core.store_release(class.word(index as u64), free);
            }
        }
        lost
    }

    /// The buffer that a bit stands for.
    #[inline(always)]
    fn address_of(&self, class: usize, word: u64, bit: u64) -> Address {
        self.map.classes[class].packet_of(self.features.scattered, word, bit)
    }

    /// The bit that stands for a buffer: `(word, bit)`.
    #[inline(always)]
    fn bit_of(&self, class: usize, at: Address) -> (u64, u64) {
        self.map.classes[class].bit_of(self.features.scattered, at)
    }

    /// Takes buffers from the pool, of one word of its free set: a batch for the stack, or no more than are wanted where nothing is kept
    /// (section 5.4: "all allocations and frees access the buffer pool"). Whether there are some now.
    #[inline(never)]
    fn refill<C: Core>(&mut self, core: &C, class: usize, wanted: usize) -> bool {
        let map = self.map.classes[class];
        if map.count == 0 {
            return false;
        }
        let want = if self.features.recycling { self.stacks[class].batch } else { wanted.min(BATCH) };
        let height = self.stacks[class].height;
        // More rounds than there are words: the first may begin within its word, and where the other side was quicker, a word is
        // tried again.
        let looks = map.words() + 3;
        for _ in 0..if self.ledger.is_some() { looks.min(MOST_LOOKS) } else { looks } {
            let word = self.next_word[class];
            // Acquire, with the `fetch_and` below: whoever freed these buffers has done with them.
            let free = core.load_acquire(map.word(word)) & map.mask(word);
            let wanted = lowest_bits(free & (u64::MAX << self.next_bit[class]), want);
            let before = match wanted {
                0 => 0,
                // Acquire and release: as above; and nothing of ours moves before the claim.
                _ => core.fetch_and(map.word(word), !wanted) & map.mask(word),
            };
            let got = before & wanted;
            self.push_bits(class, word, got);
            let found = self.stacks[class].height > height;
            if found && !self.features.recycling {
                self.next_bit[class] = u64::BITS - wanted.leading_zeros();
            }
            if !found && before == 0 || self.next_bit[class] == u64::BITS {
                self.next_word[class] = if word + 1 == map.words() { 0 } else { word + 1 };
                self.next_bit[class] = 0;
            }
            if found {
                return true;
            }
        }
        false
    }

    fn push_bits(&mut self, class: usize, word: u64, mut bits: u64) {
        while bits != 0 {
            // What is pushed last is handed out first: out of a queue the lowest comes first.
            let bit = if self.features.recycling { bits.trailing_zeros() } else { bits.ilog2() };
            let at = self.address_of(class, word, bit.into());
            bits &= !(1 << bit);
            if let Some(ledger) = &mut self.ledger
                && !ledger.take(&self.map, class, at)
            {
                // The peer has freed what it does not have. It stays where it is, and is not here twice.
                self.found_held += 1;
                continue;
            }
            self.stacks[class].push(at);
        }
    }

    /// Gives the oldest batch of a stack back to the pool.
    #[inline(never)]
    fn spill<C: Core>(&mut self, core: &C, class: usize) {
        let count = self.stacks[class].height.min(self.stacks[class].batch);
        let mut batch = [Address(0); BATCH];
        batch[..count].copy_from_slice(&self.stacks[class].entries[..count]);
        let stack = &mut self.stacks[class];
        stack.entries.copy_within(count..stack.height, 0);
        stack.height -= count;
        self.give(core, class, &batch[..count]);
    }

    /// Gives buffers to the pool, one atomic operation for each word of the free set that they touch.
    fn give<C: Core>(&mut self, core: &C, class: usize, buffers: &[Address]) {
        let map = self.map.classes[class];
        let mut given = 0u64;
        debug_assert!(buffers.len() <= 64);
        if let Some(ledger) = &mut self.ledger {
            // Before the pool has them: whoever takes one from there may send it at once.
            buffers.iter().for_each(|&at| ledger.give(&self.map, class, at));
        }
        for first in 0..buffers.len() {
            if given >> first & 1 == 1 {
                continue;
            }
            let (word, _) = self.bit_of(class, buffers[first]);
            let mut bits = 0;
            for (index, &buffer) in buffers.iter().enumerate().skip(first) {
                let (other, bit) = self.bit_of(class, buffer);
                if other == word {
                    self.freed_twice += bits >> bit & 1;
                    bits |= 1 << bit;
                    given |= 1 << index;
                }
            }
            // Acquire and release: this side's accesses to the buffers happen before whoever allocates them next.
            let before = core.fetch_or(map.word(word), bits);
            self.freed_twice += u64::from((before & bits).count_ones());
        }
    }
}

/// The lengths of packets, from the front, up to the first that has other segments or begins within a line.
#[inline(always)]
pub(super) fn lengths_of(packets: &[Descriptor]) -> impl Iterator<Item = u16> {
    packets.iter().take_while(|packet| packet.is_of_whole_lines()).map(|packet| packet.length())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ccnic::{Features, Geometry, Headroom, Map, prepare};
    use conic_check::{CrashMemory, Does, ToldCore};
    use std::cell::Cell;

    #[test]
    fn without_a_stack_all_buffers_come_in_rotation() {
        let features = Features { recycling: false, scattered: false, ..Features::paper() };
        let geometry = Geometry { queues: 1, descriptors: 16, buffers: [256, 0, 0], object_bytes: 0 };
        let map = Map::new(geometry, features).expect("it can be");
        let core = CrashMemory::new(&map.layout).core("host");
        prepare(&core, &map);
        let mut allocator = Allocator::new(map.pool, AllocatorFeatures::of(&features), false);
        let small = map.pool.classes[0];
        // One after the other, each freed at once; and again from the first.
        for index in (0..256).cycle().take(600) {
            let at = allocator.allocate(&core, 64).expect("all are free");
            assert_eq!(small.index_of(at), index);
            allocator.free(&core, at);
        }
        allocator.drain(&core);
        // Those that are not free are passed over.
        let held: Vec<_> = (0..224).map(|_| allocator.allocate(&core, 64).expect("as many are free")).collect();
        let mut rest: Vec<_> = std::iter::from_fn(|| allocator.allocate(&core, 64)).collect();
        assert_eq!((held.len(), rest.len()), (224, 32));
        rest.extend(held);
        let distinct: std::collections::BTreeSet<_> = rest.iter().map(|at| at.0).collect();
        assert_eq!(distinct.len(), 256, "each once");
    }

    #[test]
    fn without_a_stack_a_call_takes_from_the_pool_what_it_wants_and_no_more() {
        let features = Features { recycling: false, ..Features::paper() };
        let geometry = Geometry { queues: 1, descriptors: 16, buffers: [256, 64, 0], object_bytes: 0 };
        let map = Map::new(geometry, features).expect("it can be");
        let memory = CrashMemory::new(&map.layout);
        prepare(&memory.core("builder"), &map);
        // A word of the free set is looked at, and what was chosen of it taken.
        let looks = Cell::new(0);
        let core = ToldCore::new(memory.core("host"), |does| {
            looks.set(looks.get() + u32::from(matches!(does, Does::Word(_))));
        });
        let mut allocator = Allocator::new(map.pool, AllocatorFeatures::of(&features), false);
        assert!(allocator.allocate(&core, 64).is_some());
        assert_eq!((looks.take(), allocator.held()), (2, [0; 3]), "one is taken for one that is wanted");
        assert_eq!(allocator.allocate_burst(&core, 64, &mut [Address(0); 20]), 20);
        assert_eq!((looks.take(), allocator.held()), (2, [0; 3]), "20 for a burst of 20, together");
        // Two runs: of five small packets and of three large ones; the last begins within a line, and is its receiver's to care for.
        let [small, large, within] =
            [(0, 64), (0, 1500), (8, 64)].map(|(at, length)| Descriptor::new(Address(at), length));
        let packets = [small, small, small, small, small, large, large, large, within];
        assert_eq!(allocator.pop_for(&core, &packets, |_, _, _| {}), 8);
        assert_eq!((looks.take(), allocator.held()), (4, [0; 3]), "each run's together");
        // More than one word of the free set has: 38 are left of the first one.
        assert_eq!(allocator.pop_for(&core, &[small; 32], |_, _, _| {}), 32);
        assert_eq!(allocator.pop_for(&core, &[small; 32], |_, _, _| {}), 32);
        assert_eq!(
            (looks.take(), allocator.held()),
            (6, [0; 3]),
            "the first of two words, then what is left of it and the next"
        );
    }

    #[test]
    fn only_a_buffer_that_holds_the_longest_payload_is_set_aside() {
        // Behind a headroom of a line a small buffer holds 64 bytes, and a payload in the ring may have 104.
        let geometry = Geometry { queues: 1, descriptors: 16, buffers: [64, 64, 0], object_bytes: 0 };
        let map = Map::with_headroom(geometry, Features::best(), Headroom { bytes: 64, places: 0 }).expect("it can be");
        let core = CrashMemory::new(&map.layout).core("host");
        prepare(&core, &map);
        let mut allocator = Allocator::new(map.pool, AllocatorFeatures::of(&map.features), false);
        allocator.keep_reserve(&core, 104);
        while allocator.allocate(&core, 104).is_some() {}
        let reserve = allocator.allocate_inline(&core, 104).expect("one was set aside");
        let small = allocator.allocate(&core, 60).expect("the small ones are there");
        allocator.free(&core, small);
        assert_eq!(allocator.allocate_inline(&core, 104), None, "a payload would run into the next buffer");
        allocator.free(&core, reserve);
        assert_eq!(allocator.allocate_inline(&core, 104), Some(reserve));
    }
}
