//! A ring in shared memory and its descriptors, as the other side writes them and this one checks them.
//!
//! | bytes | what | written by |
//! |---|---|---|
//! | 0 | cookie | client, once |
//! | 4 | flags: bit 0, "do not interrupt me" | receiver |
//! | 6 | head | client |
//! | 64 | tail | server |
//! | 128 onwards | descriptors of 16 bytes: flags (bit 0: the packet goes on in the next), region, length, offset, metadata | producer |
//!
//! Both indexes count on for ever, modulo 65,536. The client owns all buffers: in a ring to the server it puts full ones at the
//! head and the server's tail follows; in a ring to the client it puts empty ones at the head, and the server fills them and
//! moves the tail. So a descriptor is the client's from tail to head minus ring size, and so on; whoever reads an index of
//! the other's reads it once, with acquire, and refuses what cannot be.

use conic_native::Mapping;

use super::message::COOKIE;
use crate::MAX_FRAME;

const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;
const DESCRIPTORS: usize = 128;
const DESCRIPTOR: usize = 16;
const NO_INTERRUPT: u16 = 1;
const NEXT: u16 = 1;

/// How many slots ahead a buffer's first line is asked for, which the other side's core has; descriptors twice as far.
const AHEAD: u16 = 8;

/// The most slots of a ring, as a power of two: its indexes must tell full from empty.
pub(super) const MOST_LOG2_SLOTS: u8 = 14;

/// Bytes that a buffer holds at least where a packet takes several: with fewer, the descriptors would be more work than the bytes. DPDK, VPP
/// and libmemif have 2048 unless they are told otherwise.
pub(super) const LEAST_BUFFER: usize = 64;
/// Descriptors of a packet at most, which bounds what one call does for a peer: as many as the longest frame takes in the smallest of such
/// buffers. Pieces that come may be shorter, as a header's is in DPDK's zero copy, but not all of so many.
const MOST_PIECES: u16 = MAX_FRAME.div_ceil(LEAST_BUFFER) as u16;

/// What is wrong with what the other side says, by kind. None of it can be an accident of timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// An index is further ahead than the ring is long.
    Index,
    /// A descriptor has flags that nobody knows.
    Flags,
    /// A descriptor names a region that there is not.
    Region,
    /// A descriptor's bytes lie outside of its region, or are so few that a longer packet is not put there.
    Bounds,
    /// A packet goes on behind the last descriptor that is shown, or through more of them than a packet may have.
    Chain,
    /// A descriptor has no bytes.
    Empty,
}

/// What is wrong with a buffer that the other side gives to be filled: one without a byte holds nothing, and would stand in the way for good.
fn of_a_buffer(fault: Fault) -> Fault {
    if fault == Fault::Empty { Fault::Bounds } else { fault }
}

/// The memory of a session.
#[derive(Debug, Default)]
pub(super) struct Regions(pub(super) Vec<Mapping>);

impl Regions {
    /// The region of a descriptor, if its bytes lie in it.
    #[inline(always)]
    fn find(&self, descriptor: &Descriptor) -> Result<&Mapping, Fault> {
        let region = self.0.get(usize::from(descriptor.region)).ok_or(Fault::Region)?;
        let end = u64::from(descriptor.offset) + u64::from(descriptor.length);
        if end > region.bytes() as u64 {
            return Err(Fault::Bounds);
        }
        if descriptor.length == 0 { Err(Fault::Empty) } else { Ok(region) }
    }
}

/// A descriptor, read once.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    flags: u16,
    region: u16,
    length: u32,
    offset: u32,
}

/// Where a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) region: u16,
    pub(super) offset: u32,
    pub(super) log2_slots: u8,
}

impl Place {
    /// Bytes of a ring.
    pub(super) const fn bytes(log2_slots: u8) -> usize {
        DESCRIPTORS + DESCRIPTOR * (1 << log2_slots)
    }

    /// Whether the ring lies in its region, where its words can be reached.
    pub(super) fn is_in(&self, regions: &Regions) -> bool {
        let fits =
            |region: &Mapping| self.offset as u64 + Place::bytes(self.log2_slots) as u64 <= region.bytes() as u64;
        self.log2_slots <= MOST_LOG2_SLOTS
            && self.offset.is_multiple_of(8)
            && regions.0.get(usize::from(self.region)).is_some_and(fits)
    }

    /// Whether the client has made a ring here.
    pub(super) fn has_cookie(&self, regions: &Regions) -> bool {
        let region = &regions.0[usize::from(self.region)];
        region.load_acquire_u32(self.offset as usize) == COOKIE
    }
}

/// Which side this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client {
        /// Where the buffer of the first slot lies in region 0; the others follow.
        buffers: u32,
        /// Bytes of each.
        buffer_bytes: u32,
    },
}

/// One side of a ring.
///
/// Numbers of 16 bits are kept in 32, to be loaded as wide as they are stored: a compiler loads 16 bits with what lies beside them where it
/// may, and a load across what was stored a moment ago waits for every store before it. It waited for each packet's payload, which was half
/// of the time of sending one.
#[derive(Debug)]
pub(super) struct Ring {
    place: Place,
    side: Side,
    slots: u32,
    /// The next slot to read or to fill.
    next: u32,
    /// Up to where the other side has been told.
    told: u32,
    /// Up to where this side may go, as the other side's index said when it was last read.
    limit: u32,
    /// How many of the other side's descriptors were read.
    #[cfg(test)]
    reads: std::cell::Cell<usize>,
}

/// What taking a packet came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// There is none.
    None,
    /// It lies in the first so many bytes.
    Packet(usize),
    /// It is longer than there is room, and was left out.
    TooLong,
    /// It was left out: what its descriptors say cannot be.
    Refused(Fault),
}

/// What putting a packet came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Done,
    /// There are too few slots now.
    Full,
    /// The whole ring holds less.
    TooLong,
}

impl Ring {
    pub(super) fn new(place: Place, side: Side) -> Ring {
        Ring {
            place,
            side,
            slots: 1 << place.log2_slots,
            next: 0,
            told: 0,
            limit: 0,
            #[cfg(test)]
            reads: std::cell::Cell::default(),
        }
    }

    /// The same, where another process has stopped: everything before this slot was read or filled, and the other side was told.
    pub(super) fn at_slot(self, next: u16) -> Ring {
        let next = next.into();
        Ring { next, told: next, limit: next, ..self }
    }

    /// What another process needs to go on, when the other side was told of everything: region, offset, slots as a power of two,
    /// next slot, and a client's buffers with the bytes of each.
    pub(super) fn position(&self) -> [u64; 6] {
        let Place { region, offset, log2_slots } = self.place;
        let (buffers, buffer_bytes) = match self.side {
            Side::Server => (0, 0),
            Side::Client { buffers, buffer_bytes } => (buffers, buffer_bytes),
        };
        [region.into(), offset.into(), log2_slots.into(), self.next.into(), buffers.into(), buffer_bytes.into()]
    }

    /// Lays out a ring of this client in its zeroed memory: to receive with, where `receives`. Whether interrupts are wanted is the
    /// receiver's to say, in either direction; libmemif's server never asks for them, and waits for them from the start.
    pub(super) fn prepare(&self, regions: &Regions, receives: bool) {
        let Side::Client { buffers, buffer_bytes } = self.side else { return };
        let memory = self.memory(regions);
        for slot in 0..self.slots() {
            let at = self.slot(slot);
            memory.store_u32(at + 4, buffer_bytes);
            memory.store_u32(at + 8, buffers + u32::from(slot) * buffer_bytes);
        }
        // Nobody looks at it yet: the descriptor of the memory has not been passed.
        memory.store_u16(self.at(FLAGS), if receives { NO_INTERRUPT } else { 0 });
        memory.store_u16(self.at(HEAD), if receives { self.slots() } else { 0 });
        memory.store_release_u32(self.at(0), COOKIE);
    }

    /// Its length, a power of two.
    #[inline(always)]
    fn slots(&self) -> u16 {
        self.slots as u16
    }

    #[inline(always)]
    fn next(&self) -> u16 {
        self.next as u16
    }

    #[inline(always)]
    fn told(&self) -> u16 {
        self.told as u16
    }

    #[inline(always)]
    fn limit(&self) -> u16 {
        self.limit as u16
    }

    #[inline(always)]
    fn memory<'a>(&self, regions: &'a Regions) -> &'a Mapping {
        &regions.0[usize::from(self.place.region)]
    }

    #[inline(always)]
    fn at(&self, field: usize) -> usize {
        self.place.offset as usize + field
    }

    #[inline(always)]
    fn slot(&self, index: u16) -> usize {
        self.at(DESCRIPTORS) + usize::from(index & (self.slots() - 1)) * DESCRIPTOR
    }

    /// Reads a slot's descriptor, each of its words once. A client knows where its buffers are, and does not ask the other side.
    #[inline(always)]
    fn read(&self, memory: &Mapping, index: u16) -> Descriptor {
        #[cfg(test)]
        self.reads.set(self.reads.get() + 1);
        let at = self.slot(index);
        let word = memory.load_u64(at);
        let (flags, region, length) = (word as u16, (word >> 16) as u16, (word >> 32) as u32);
        match self.side {
            Side::Server => Descriptor { flags, region, length, offset: memory.load_u32(at + 8) },
            Side::Client { buffer_bytes, .. } => {
                let offset = self.own_buffer(index);
                // A length beyond the buffer must not reach the next one: it fails the region's bounds.
                let length = if length <= buffer_bytes { length } else { u32::MAX };
                Descriptor { flags, region: 0, length, offset }
            }
        }
    }

    /// Writes flags, region and length of a slot's descriptor, in one word.
    #[inline(always)]
    fn write(&self, memory: &Mapping, index: u16, flags: u16, region: u16, length: u32) {
        memory.store_u64(self.slot(index), u64::from(flags) | u64::from(region) << 16 | u64::from(length) << 32);
    }

    /// Looks how far this side may go: `limit` is then at most a ring's length ahead of `next`.
    #[inline(always)]
    fn look(&mut self, theirs: u16) -> Result<u16, Fault> {
        let ahead = theirs.wrapping_sub(self.next());
        if ahead > self.slots() {
            return Err(Fault::Index);
        }
        self.limit = theirs.into();
        Ok(ahead)
    }

    /// How many slots the other side has filled that have not been read.
    #[inline(always)]
    fn look_filled(&mut self, regions: &Regions) -> Result<u16, Fault> {
        let field = if self.side == Side::Server { HEAD } else { TAIL };
        // Acquire: pairs with the other side's release behind the descriptors and the payload.
        let theirs = self.memory(regions).load_acquire_u16(self.at(field));
        self.look(theirs)
    }

    /// Where the buffer of a slot probably lies: a hint for a prefetch, and nothing else. What is read of a peer's descriptor here
    /// is read again, and checked, when it is used.
    #[inline(always)]
    fn hint(&self, memory: &Mapping, index: u16) -> usize {
        let offset = match self.side {
            Side::Server => memory.load_u32(self.slot(index) + 8),
            Side::Client { .. } => self.own_buffer(index),
        };
        offset as usize
    }

    /// Where the buffer of a client's slot lies.
    #[inline(always)]
    fn own_buffer(&self, index: u16) -> u32 {
        match self.side {
            Side::Server => 0,
            Side::Client { buffers, buffer_bytes } => buffers + u32::from(index & (self.slots() - 1)) * buffer_bytes,
        }
    }

    /// Looks for packets, and asks for the first lines of the first ones.
    #[inline(always)]
    fn look_for_packets(&mut self, regions: &Regions) -> Result<u16, Fault> {
        let filled = self.look_filled(regions)?;
        let memory = self.memory(regions);
        for ahead in 0..filled.min(AHEAD) {
            // Most peers have one region; where it is another, nothing is lost but the hint.
            memory.prefetch(self.hint(memory, self.next().wrapping_add(ahead)));
        }
        Ok(filled)
    }

    /// Takes the next packet.
    #[inline]
    pub(super) fn take(&mut self, regions: &Regions, frame: &mut [u8]) -> Taken {
        if self.limit() == self.next() {
            // The other side's index is read again only when what it last said is used up: its line is that side's to write.
            match self.look_for_packets(regions) {
                Ok(0) => return Taken::None,
                Ok(_) => {}
                Err(fault) => return Taken::Refused(fault),
            }
        }
        let memory = self.memory(regions);
        let descriptor = self.read(memory, self.next());
        if descriptor.flags != 0 {
            return self.take_chain(regions, descriptor, frame);
        }
        let taken = match regions.find(&descriptor) {
            Ok(region) => {
                if self.limit().wrapping_sub(self.next()) > AHEAD {
                    region.prefetch(self.hint(memory, self.next().wrapping_add(AHEAD)));
                }
                match frame.get_mut(..descriptor.length as usize) {
                    Some(into) => {
                        region.read_bytes(descriptor.offset as usize, into);
                        Taken::Packet(into.len())
                    }
                    None => Taken::TooLong,
                }
            }
            Err(fault) => Taken::Refused(fault),
        };
        self.next = u32::from(self.next().wrapping_add(1));
        taken
    }

    /// Takes a packet of several buffers, whose first descriptor has been read; or one whose flags nobody knows.
    #[cold]
    fn take_chain(&mut self, regions: &Regions, first: Descriptor, frame: &mut [u8]) -> Taken {
        // A packet is shown whole: all that is there is wanted, not what there was at the last look.
        let filled = match self.look_filled(regions) {
            // There was something a moment ago: an index has gone back.
            Ok(0) => return Taken::Refused(Fault::Index),
            Ok(filled) => filled,
            Err(fault) => return Taken::Refused(fault),
        };
        let memory = self.memory(regions);
        let (mut length, mut problem, mut used, mut descriptor) = (0, Taken::None, 0, first);
        loop {
            used += 1;
            let known = if descriptor.flags & !NEXT == 0 { Ok(()) } else { Err(Fault::Flags) };
            match known.and_then(|()| regions.find(&descriptor)) {
                Ok(region) if problem == Taken::None => {
                    let piece = descriptor.length as usize;
                    match frame.get_mut(length..length + piece) {
                        Some(into) => region.read_bytes(descriptor.offset as usize, into),
                        None => problem = Taken::TooLong,
                    }
                    length += piece;
                }
                Ok(_) => {}
                Err(fault) => problem = Taken::Refused(fault),
            }
            if descriptor.flags & NEXT == 0 {
                break;
            }
            if used == filled.min(MOST_PIECES) {
                // Producers move the index behind whole packets only, and back where a packet finds no room: DPDK's and VPP's drivers, and
                // libmemif with whole packets of its program. So there is nothing to wait for. Where the next packet begins nobody knows: all
                // that is shown goes with this one, and is not walked again.
                self.next = self.limit;
                return Taken::Refused(Fault::Chain);
            }
            descriptor = self.read(memory, self.next().wrapping_add(used));
        }
        self.next = u32::from(self.next().wrapping_add(used));
        if problem == Taken::None { Taken::Packet(length) } else { problem }
    }

    /// Gives the slots that have been read back to the other side.
    pub(super) fn release(&mut self, regions: &Regions) {
        if self.told() == self.next() {
            return;
        }
        let memory = self.memory(regions);
        match self.side {
            // Release: the payload has been read before it may be written over.
            Side::Server => memory.store_release_u16(self.at(TAIL), self.next()),
            Side::Client { buffer_bytes, .. } => {
                while self.told() != self.next() {
                    self.write(memory, self.told(), 0, 0, buffer_bytes);
                    self.told = u32::from(self.told().wrapping_add(1));
                }
                // Release: as above, and the buffers' lengths are there. All slots that are not full are empty buffers.
                memory.store_release_u16(self.at(HEAD), self.next().wrapping_add(self.slots()));
            }
        }
        self.told = self.next;
    }

    /// Puts the empty buffers of a client's receiving ring at its head again: DPDK's server sets both indexes to zero when it
    /// connects, whatever is there.
    pub(super) fn post(&self, regions: &Regions) {
        if let Side::Client { .. } = self.side {
            // Release: as in `release`.
            self.memory(regions).store_release_u16(self.at(HEAD), self.next().wrapping_add(self.slots()));
        }
    }

    /// How many slots have been read and not been given back.
    pub(super) fn unreleased(&self) -> u16 {
        self.next().wrapping_sub(self.told())
    }

    /// How many slots there are to fill.
    #[inline(always)]
    fn look_room(&mut self, regions: &Regions) -> Result<u16, Fault> {
        let memory = self.memory(regions);
        // Acquire: pairs with the other side's release when it was done with the buffers.
        let theirs = match self.side {
            Side::Server => memory.load_acquire_u16(self.at(HEAD)),
            Side::Client { .. } => memory.load_acquire_u16(self.at(TAIL)).wrapping_add(self.slots()),
        };
        self.look(theirs)
    }

    /// Where a packet's next piece may be put.
    #[inline(always)]
    fn buffer(&self, memory: &Mapping, index: u16) -> Descriptor {
        match self.side {
            Side::Server => self.read(memory, index),
            Side::Client { buffer_bytes, .. } => {
                Descriptor { flags: 0, region: 0, length: buffer_bytes, offset: self.own_buffer(index) }
            }
        }
    }

    /// Puts a packet into as many slots as it takes.
    #[inline]
    pub(super) fn put(&mut self, regions: &Regions, frame: &[u8]) -> Result<Put, Fault> {
        debug_assert!(frame.len() <= MAX_FRAME);
        if self.limit() == self.next() && self.look_room(regions)? == 0 {
            return Ok(Put::Full);
        }
        let memory = self.memory(regions);
        let buffer = self.buffer(memory, self.next());
        if frame.len() > buffer.length as usize {
            return self.put_chain(regions, buffer, frame);
        }
        let region = regions.find(&buffer).map_err(of_a_buffer)?;
        if self.limit().wrapping_sub(self.next()) > 2 * AHEAD {
            memory.prefetch_write(self.slot(self.next().wrapping_add(2 * AHEAD)));
            region.prefetch_write(self.hint(memory, self.next().wrapping_add(AHEAD)));
        }
        region.write_bytes(buffer.offset as usize, frame);
        self.write(memory, self.next(), 0, buffer.region, frame.len() as u32);
        self.next = u32::from(self.next().wrapping_add(1));
        Ok(Put::Done)
    }

    /// Puts a packet that is longer than the first buffer, or nothing of it where there is too little room.
    fn put_chain(&mut self, regions: &Regions, first: Descriptor, frame: &[u8]) -> Result<Put, Fault> {
        let room = self.look_room(regions)?;
        if room == 0 {
            // There was room a moment ago: an index has gone back.
            return Err(Fault::Index);
        }
        let memory = self.memory(regions);
        // Each descriptor is read once, and what it said is kept.
        let mut buffers = [first; MOST_PIECES as usize];
        let (mut held, mut used) = (0, 0);
        loop {
            let buffer = buffers[used];
            regions.find(&buffer).map_err(of_a_buffer)?;
            if (buffer.length as usize) < LEAST_BUFFER {
                return Err(Fault::Bounds);
            }
            held += buffer.length as usize;
            used += 1;
            if held >= frame.len() {
                break;
            }
            if used == usize::from(room) {
                // No waiting makes more room than all slots.
                return Ok(if room == self.slots() { Put::TooLong } else { Put::Full });
            }
            // As many buffers as there may be hold any frame: no index is out of bounds.
            buffers[used] = self.buffer(memory, self.next().wrapping_add(used as u16));
        }
        let mut rest = frame;
        for buffer in &buffers[..used] {
            let (piece, behind) = rest.split_at(rest.len().min(buffer.length as usize));
            regions.find(buffer)?.write_bytes(buffer.offset as usize, piece);
            let flags = if behind.is_empty() { 0 } else { NEXT };
            self.write(memory, self.next(), flags, buffer.region, piece.len() as u32);
            self.next = u32::from(self.next().wrapping_add(1));
            rest = behind;
        }
        Ok(Put::Done)
    }

    /// Shows the other side what has been put; whether it wants to be interrupted for that.
    pub(super) fn show(&mut self, regions: &Regions) -> bool {
        if self.told() == self.next() {
            return false;
        }
        let memory = self.memory(regions);
        let field = if self.side == Side::Server { TAIL } else { HEAD };
        // Release: descriptors and payload are there before the index.
        memory.store_release_u16(self.at(field), self.next());
        self.told = self.next;
        // Full: the index is shown before the flag is read, or both sides might wait for each other.
        memory.full_fence();
        memory.load_u16(self.at(FLAGS)) & NO_INTERRUPT == 0
    }

    /// How many slots have been filled and not been shown.
    pub(super) fn unshown(&self) -> u16 {
        self.next().wrapping_sub(self.told())
    }

    /// Asks the other side for interrupts or for none. Behind the former a look into the ring is due.
    pub(super) fn interrupt(&self, regions: &Regions, wanted: bool) {
        let memory = self.memory(regions);
        memory.store_u16(self.at(FLAGS), if wanted { 0 } else { NO_INTERRUPT });
        // Full: the wish is visible before the ring is looked at once more.
        memory.full_fence();
    }
}

#[cfg(test)]
impl Ring {
    /// Says of this client's ring whatever is to be said of its head.
    pub(super) fn scribble_head(&self, regions: &Regions, head: u16) {
        self.memory(regions).store_release_u16(self.at(HEAD), head);
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
