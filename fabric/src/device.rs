//! The device face of the seam: requests with hints, several in flight, and the coherence messages themselves.

use crate::{Address, Core, LINE_BYTES, Line, Time, lines_of};

/// An access of the processor to a register of a device, as the device sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAccess {
    /// It loaded what the register held.
    Load(Address),
    /// It stored.
    Store(Address, u64),
}

impl RegisterAccess {
    /// Which register.
    pub fn address(&self) -> Address {
        match *self {
            RegisterAccess::Load(at) | RegisterAccess::Store(at, _) => at,
        }
    }
}

/// What a device says about the state in which it wants a line, or leaves it (CXL-NIC section 2.2, CXL.cache).
///
/// | hint | read | write |
/// |---|---|---|
/// | `NonCacheable` | RdCurr: data only, no state changes | WOWrInv: to memory, every cache loses the line |
/// | `NonCacheablePush` | as `NonCacheable` | ItoMWr: into the host's last-level cache |
/// | `CacheableShared` | RdShared: a shared copy in the device's cache | not a write |
/// | `CacheableOwned` | RdOwn: an exclusive copy in the device's cache | RdOwn or RdOwnNoData, written later by an eviction |
///
/// A PCIe DMA engine ignores it. A core that plays the device maps it to loads, stores and non-temporal stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateHint {
    /// NC.
    NonCacheable,
    /// NC-P.
    NonCacheablePush,
    /// CS.
    CacheableShared,
    /// CO.
    CacheableOwned,
}

/// A read in flight, by the number the device gave it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a read in flight holds a tag until it is finished"]
pub struct ReadTag(pub u64);

/// A device's view of memory: requests that take time, with several in flight.
///
/// Reads are split in two so that a device's pipeline is written as it is: everything it can ask for is asked for, then
/// the answers are taken. Writes are posted, and seen in any order; a [`Device::write_word`] is seen after every write before
/// it, whatever its hint.
pub trait Device {
    /// Starts to read `bytes` bytes. Waits only where the device has no tag left.
    fn start_read(&self, at: Address, bytes: u64, hint: StateHint) -> ReadTag;
    /// Whether a read has its data.
    fn is_ready(&self, tag: &ReadTag) -> bool;
    /// Waits for a read and takes its data; `into` has the length that was asked for.
    fn finish_read(&self, tag: ReadTag, at: Address, into: &mut [u8]);
    /// Waits for a read of a line whose word 0 synchronises, and takes it: what its publisher wrote before word 0 is seen after it.
    fn finish_line(&self, tag: ReadTag, at: Address) -> Line {
        let mut bytes = [0; LINE_BYTES as usize];
        self.finish_read(tag, at, &mut bytes);
        Line::from_bytes(&bytes)
    }
    /// Reads bytes at once: a start and a finish.
    fn read(&self, at: Address, into: &mut [u8], hint: StateHint) {
        let tag = self.start_read(at, into.len() as u64, hint);
        self.finish_read(tag, at, into);
    }
    /// Reads a synchronising word (a polled tail, a doorbell in memory).
    fn read_word(&self, at: Address, hint: StateHint) -> u64;
    /// Writes bytes.
    fn write(&self, at: Address, from: &[u8], hint: StateHint);
    /// Writes a synchronising word (a completion, a head), after every write before it.
    fn write_word(&self, at: Address, value: u64, hint: StateHint);
    /// Writes a whole line after every write before it, its word 0, a synchronising one, last.
    fn publish_line(&self, at: Address, line: &Line, hint: StateHint) {
        self.write(at.word(1), &line.to_bytes()[8..], hint);
        self.write_word(at, line.0[0], hint);
    }
    /// Reads one of the device's own registers, which the host wrote.
    fn own_register(&self, at: Address) -> u64;
    /// Says that this round made no progress.
    fn spin(&self);
    /// The time.
    fn now(&self) -> Time;
    /// Says that what follows depends on bytes that were read: a core that plays the device goes no further before they have come.
    /// A device of its own has waited for them in [`Device::finish_read`].
    fn depends_on(&self, _at: Address) {}
    /// Says that the device worked for `cycles` of its own clock.
    fn work(&self, _cycles: u32) {}
    /// The period of that clock, for what a host sets in cycles of it. A nanosecond where a core plays the device, which has none.
    fn cycle(&self) -> Time {
        Time::from_nanoseconds(1)
    }
}

/// A device with memory that the host loads from and stores to: registers, a packet buffer.
///
/// What a host stores there is read by [`Device::own_register`], where it synchronises, and by [`DeviceMemory::own_bytes`]. What
/// the device shows there, the host finds with its next load; where the interconnect lets a device answer a load when it
/// chooses (PCIe does, up to the completion time-out), the device may withhold the answer until there is something to show.
pub trait DeviceMemory: Device {
    /// Reads bytes of the device's own memory that a host stored before a word which the device acquired.
    fn own_bytes(&self, at: Address, into: &mut [u8]);
    /// Changes owned bytes of the device's own memory.
    fn set_own_bytes(&self, at: Address, from: &[u8]);
    /// Sets two neighbouring synchronising words, 16-byte aligned, which one load of a host sees together; a host that sees
    /// the first one's new value sees every change of own memory before. A withheld load of them is answered.
    fn set_own_pair(&self, at: Address, words: [u64; 2]);
    /// From now on the answers to loads of these two words wait for [`DeviceMemory::set_own_pair`] or [`DeviceMemory::answer`].
    /// Nothing where a load cannot be withheld, as natively: the host looks again.
    fn withhold(&self, _at: Address) {}
    /// Answers the withheld loads of these two words with what they hold, and withholds no more.
    fn answer(&self, _at: Address) {}
    /// Since when a load of these two words has waited for its answer, if one does.
    fn withheld_since(&self, _at: Address) -> Option<Time> {
        None
    }
}

/// How a device answers a request for one of its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// The asker may read.
    Shared,
    /// The asker may write without asking again (coherent PIO section 4, the optimised exchange).
    Exclusive,
}

/// What the other side's cache asked of the home of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A load missed.
    Shared,
    /// A store missed, or hit a shared copy.
    Exclusive,
    /// The cache gave the line up by itself; if it had changed it, the device's copy is the new one.
    Evicted {
        /// It had changed it.
        changed: bool,
    },
}

/// A coherence message that arrived at the device's home agent. [`Ask::Evicted`] alone needs no answer.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a request that is never answered stops the core that made it"]
pub struct Arrival {
    /// The line.
    pub line: Address,
    /// What is asked.
    pub ask: Ask,
    /// Which request it is, for the answer.
    pub id: u64,
}

/// A device that sees the coherence messages for the lines it is home of, and answers when it chooses: now, later, or
/// after it has fetched another line (coherent PIO sections 3 and 4).
///
/// The device keeps the data of its lines where no cache has them: [`HomeAgent::own_line`] and [`HomeAgent::set_own_line`]. What
/// comes back from a cache is there before the device hears that it came, and an answer carries what is there. A world whose
/// coherence unit is larger than a line names a unit by its first line, in arrivals, answers and recalls.
pub trait HomeAgent: Device {
    /// The next message that arrived, if one has.
    fn next_arrival(&self) -> Option<Arrival>;
    /// Answers a request for a line with the device's copy of it.
    fn answer(&self, arrival: Arrival, grant: Grant);
    /// The device's copy of a line. While a cache may have changed the line, it is not what the line holds.
    fn own_line(&self, at: Address) -> Line;
    /// Changes the device's copy of a line that no cache has.
    fn set_own_line(&self, at: Address, line: &Line);
    /// Starts to fetch a line of the device's own back from whoever caches it, leaving no copy there.
    ///
    /// Where the cache gives the line up by itself meanwhile, its [`Ask::Evicted`] arrives before the recall is answered.
    fn start_recall(&self, at: Address) -> ReadTag;
    /// Whether a recall has its answer.
    fn is_recalled(&self, tag: &ReadTag) -> bool;
    /// Waits for a recall, and says whether the cache had changed the line until then; the line may be asked for again.
    fn finish_recall(&self, tag: ReadTag) -> bool;
}

/// A reference to a device is a device.
impl<D: Device + ?Sized> Device for &D {
    fn start_read(&self, at: Address, bytes: u64, hint: StateHint) -> ReadTag {
        (**self).start_read(at, bytes, hint)
    }
    fn is_ready(&self, tag: &ReadTag) -> bool {
        (**self).is_ready(tag)
    }
    fn finish_read(&self, tag: ReadTag, at: Address, into: &mut [u8]) {
        (**self).finish_read(tag, at, into);
    }
    fn finish_line(&self, tag: ReadTag, at: Address) -> Line {
        (**self).finish_line(tag, at)
    }
    fn read(&self, at: Address, into: &mut [u8], hint: StateHint) {
        (**self).read(at, into, hint);
    }
    fn read_word(&self, at: Address, hint: StateHint) -> u64 {
        (**self).read_word(at, hint)
    }
    fn write(&self, at: Address, from: &[u8], hint: StateHint) {
        (**self).write(at, from, hint);
    }
    fn write_word(&self, at: Address, value: u64, hint: StateHint) {
        (**self).write_word(at, value, hint);
    }
    fn publish_line(&self, at: Address, line: &Line, hint: StateHint) {
        (**self).publish_line(at, line, hint);
    }
    fn own_register(&self, at: Address) -> u64 {
        (**self).own_register(at)
    }
    fn spin(&self) {
        (**self).spin();
    }
    fn now(&self) -> Time {
        (**self).now()
    }
    fn depends_on(&self, at: Address) {
        (**self).depends_on(at);
    }
    fn work(&self, cycles: u32) {
        (**self).work(cycles);
    }
    fn cycle(&self) -> Time {
        (**self).cycle()
    }
}

/// A reference to such a device is one.
impl<D: DeviceMemory + ?Sized> DeviceMemory for &D {
    fn own_bytes(&self, at: Address, into: &mut [u8]) {
        (**self).own_bytes(at, into);
    }
    fn set_own_bytes(&self, at: Address, from: &[u8]) {
        (**self).set_own_bytes(at, from);
    }
    fn set_own_pair(&self, at: Address, words: [u64; 2]) {
        (**self).set_own_pair(at, words);
    }
    fn withhold(&self, at: Address) {
        (**self).withhold(at);
    }
    fn answer(&self, at: Address) {
        (**self).answer(at);
    }
    fn withheld_since(&self, at: Address) -> Option<Time> {
        (**self).withheld_since(at)
    }
}

/// A core that plays a device: start is a prefetch, finish a load, a write a store. An NC-write of whole lines is a non-temporal
/// store, and what is pushed (NC-P) is stored and then demoted to the cache that the host shares.
#[derive(Clone, Copy, Debug)]
pub struct PlayedByCore<C>(
    /// The core.
    pub C,
);

impl<C: Core> Device for PlayedByCore<C> {
    #[inline(always)]
    fn start_read(&self, at: Address, bytes: u64, hint: StateHint) -> ReadTag {
        for index in 0..lines_of(at.0 % LINE_BYTES + bytes) {
            let line = at.line().lines(index);
            match hint {
                StateHint::CacheableOwned => self.0.prefetch_write(line),
                _ => self.0.prefetch_read(line),
            }
        }
        ReadTag(at.0)
    }
    #[inline(always)]
    fn is_ready(&self, _tag: &ReadTag) -> bool {
        true
    }
    #[inline(always)]
    fn finish_read(&self, _tag: ReadTag, at: Address, into: &mut [u8]) {
        self.0.read_bytes(at, into);
    }
    #[inline(always)]
    fn finish_line(&self, _tag: ReadTag, at: Address) -> Line {
        // Acquire, pairs with the release of word 0: the rest of the line is read after it, and is what it announces or newer.
        let word = self.0.load_acquire(at);
        let mut line = self.0.read_line(at);
        line.0[0] = word;
        line
    }
    #[inline(always)]
    fn read_word(&self, at: Address, _hint: StateHint) -> u64 {
        self.0.load_acquire(at)
    }
    #[inline(always)]
    fn write(&self, at: Address, from: &[u8], hint: StateHint) {
        let whole_lines = at.is_line_aligned() && (from.len() as u64).is_multiple_of(LINE_BYTES);
        if hint == StateHint::NonCacheable && whole_lines {
            for (index, chunk) in from.chunks_exact(LINE_BYTES as usize).enumerate() {
                let line = Line::from_bytes(chunk.try_into().expect("a chunk of a line"));
                self.0.write_nontemporal(at.lines(index as u64), &[line]);
            }
            // The next word written announces these bytes; non-temporal stores would otherwise pass it.
            self.0.fence();
        } else {
            self.0.write_bytes(at, from);
            if hint == StateHint::NonCacheablePush {
                (0..lines_of(at.0 % LINE_BYTES + from.len() as u64))
                    .for_each(|index| self.0.demote(at.line().lines(index)));
            }
        }
    }
    #[inline(always)]
    fn write_word(&self, at: Address, value: u64, hint: StateHint) {
        self.0.store_release(at, value);
        if hint == StateHint::NonCacheablePush {
            self.0.demote(at.line());
        }
    }
    #[inline(always)]
    fn publish_line(&self, at: Address, line: &Line, hint: StateHint) {
        self.0.publish_line(at, line);
        if hint == StateHint::NonCacheablePush {
            self.0.demote(at);
        }
    }
    #[inline(always)]
    fn own_register(&self, at: Address) -> u64 {
        self.0.register_read(at)
    }
    #[inline(always)]
    fn spin(&self) {
        self.0.spin();
    }
    #[inline(always)]
    fn now(&self) -> Time {
        self.0.now()
    }
    #[inline(always)]
    fn depends_on(&self, at: Address) {
        self.0.depends_on(at);
    }
    #[inline(always)]
    fn work(&self, cycles: u32) {
        self.0.work(cycles);
    }
}

/// The device's memory is memory that both sides share: nothing is withheld.
impl<C: Core> DeviceMemory for PlayedByCore<C> {
    #[inline(always)]
    fn own_bytes(&self, at: Address, into: &mut [u8]) {
        self.0.read_bytes(at, into);
    }
    #[inline(always)]
    fn set_own_bytes(&self, at: Address, from: &[u8]) {
        self.0.write_bytes(at, from);
    }
    #[inline(always)]
    fn set_own_pair(&self, at: Address, words: [u64; 2]) {
        // Release, the first word last: a host that acquires it sees the second, and every change before.
        self.0.store_release(at.word(1), words[1]);
        self.0.store_release(at, words[0]);
    }
}
