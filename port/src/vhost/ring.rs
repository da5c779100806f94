//! A split virtqueue, as the driver writes it and this side, the device, checks it.
//!
//! | part | what | written by |
//! |---|---|---|
//! | descriptors, 16 bytes each | address, length, flags (1: goes on in the next, 2: to be written, 4: a table of further ones), the next | driver |
//! | available | flags (bit 0: "do not interrupt me"), index, a descriptor's number in each slot, the index at which it wants to be interrupted | driver |
//! | used | flags (bit 0: "do not kick me"), index, number and bytes written in each slot, the index at which this side wants to be kicked | device |
//!
//! Both indexes count on for ever, modulo 65,536. This side uses what is available in order, so that one position says all: the slot that is
//! used next is the one that was taken next. Whoever reads an index of the driver's reads it once, with acquire, and refuses what cannot be.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.2, 2.7 (split virtqueues) and 5.1.6 (headers and merged buffers).

use conic_native::Mapping;

use super::half::Side;
use super::log::{Entries, Pages, Writes};
use super::memory::{Regions, Spot, set_merged};
use super::message::Parts;
use super::wish::Wish;

/// Flags of a descriptor.
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;

pub(super) const INDEX: usize = 2;
pub(super) const SLOTS: usize = 4;
pub(super) const DESCRIPTOR: usize = 16;
pub(super) const USED: usize = 8;

/// The most slots of a ring (VIRTIO 1.2, 2.7).
pub(super) const MOST_SLOTS: u32 = 32_768;
/// Bytes of the header before a packet where buffers may be merged, or the driver is one of version 1; two fewer otherwise.
pub const LONG_HEADER: usize = 12;
/// Where the header counts merged buffers.
pub(super) const MERGED: usize = 10;
/// Descriptors of a chain, and pieces that a packet is put into, at most, which bounds what one call does for a driver: Linux has up to 19
/// pieces in what it sends, and posts buffers of 1.5 KiB or more.
pub(super) const MOST_PIECES: usize = 256;
/// How many slots ahead a packet's first line is asked for.
pub(super) const AHEAD: u16 = 8;

/// What is wrong with what the driver says, by kind. None of it can be an accident of timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An index is further ahead than the ring is long.
    Index,
    /// A descriptor has flags that cannot be there.
    Flags,
    /// A number of a descriptor, or a table, is beyond what there is.
    Number,
    /// A descriptor's bytes lie outside of the memory, or are none.
    Bounds,
    /// A chain of descriptors has no end, or more pieces than a packet may have.
    Chain,
}

/// Bytes of the part of a ring that the device writes.
pub(super) fn used_bytes(slots: u32) -> u64 {
    SLOTS as u64 + USED as u64 * u64::from(slots) + 2
}

/// What both sides have agreed on that changes how a ring is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// Who wants to be woken says at which index, instead of whether.
    pub(super) event_index: bool,
    /// A packet may be put into several chains.
    pub(super) merges: bool,
    /// The header has a count of merged buffers, whether or not they may be merged.
    pub(super) long_header: bool,
}

impl Agreed {
    /// Bytes of the header before each packet.
    pub(super) fn header(self) -> usize {
        if self.long_header { LONG_HEADER } else { MERGED }
    }
}

/// A descriptor, read once.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    address: u64,
    length: u32,
    flags: u16,
    next: u16,
}

/// What taking a packet came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// There is none.
    None,
    /// It lies in the first so many bytes.
    Packet(usize),
    /// It is longer than there is room, and was left out.
    TooLong,
    /// It was left out: what its descriptors say cannot be.
    Refused(Fault),
    /// It was left out: the driver has switched the ring off.
    Discarded,
}

/// What putting a packet came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    Done,
    /// There is too little room now.
    Full,
    /// The driver's buffers are too small for it, and it takes no packet in several, or has given all that it can.
    TooLong,
    Refused(Fault),
}

/// One side of a ring, with its parts found in the frontend's memory.
///
/// Numbers of 16 bits are kept in 32, to be loaded as wide as they are stored: see memif's rings.
#[derive(Debug)]
pub struct Ring {
    slots: u32,
    descriptors: Spot,
    available: Spot,
    used: Spot,
    agreed: Agreed,
    /// The next slot to take and to use.
    next: u32,
    /// Up to where the driver has been told.
    told: u32,
    /// Up to where this side may go, as the driver's index said when it was last read.
    limit: u32,
    /// Where the packet that is being put goes; kept between packets.
    room: Vec<Slot>,
}

/// A place for some of a packet.
#[derive(Clone, Copy, Debug)]
struct Slot {
    address: u64,
    length: u32,
    /// The number of the chain that ends with it, if one does.
    ends: Option<u16>,
}

impl Ring {
    /// Finds a ring's parts; none where one does not lie in the memory, or not at a place that words may have. It goes on behind what was
    /// used last, which is in its memory: whoever served it before may have ended without a word.
    pub(super) fn find(regions: &Regions, slots: u32, parts: Parts, agreed: Agreed) -> Option<Ring> {
        let length = slots as usize;
        let find = |address: u64, bytes, aligned: usize| {
            regions.of_user(address, bytes).filter(|spot| spot.at.is_multiple_of(aligned))
        };
        let descriptors = find(parts.descriptors, DESCRIPTOR * length, DESCRIPTOR)?;
        let available = find(parts.available, SLOTS + 2 * length + 2, 2)?;
        let used = find(parts.used, used_bytes(slots) as usize, 4)?;
        let next = regions.memory(used.region).load_u16(used.at + INDEX).into();
        Some(Ring { slots, descriptors, available, used, agreed, next, told: next, limit: next, room: Vec::new() })
    }

    /// The slot behind the last that was taken.
    #[inline(always)]
    fn next(&self) -> u16 {
        self.next as u16
    }

    #[inline(always)]
    fn limit(&self) -> u16 {
        self.limit as u16
    }

    #[inline(always)]
    fn slot(&self, index: u16) -> usize {
        usize::from(index) & (self.slots as usize - 1)
    }

    /// Looks how many slots the driver has made available that have not been taken.
    #[inline(always)]
    fn look(&mut self, regions: &Regions) -> Result<u16, Fault> {
        let Spot { region, at } = self.available;
        // Acquire: pairs with the driver's barrier before its index, behind descriptors and slots.
        let theirs = regions.memory(region).load_acquire_u16(at + INDEX);
        let ahead = theirs.wrapping_sub(self.next());
        if u32::from(ahead) > self.slots {
            return Err(Fault::Index);
        }
        self.limit = theirs.into();
        Ok(ahead)
    }

    /// The number of the first descriptor in a slot.
    #[inline(always)]
    fn head(&self, regions: &Regions, index: u16) -> u16 {
        let Spot { region, at } = self.available;
        regions.memory(region).load_u16(at + SLOTS + 2 * self.slot(index))
    }

    /// Says that what was in a slot has been used; it is not shown before [`Ring::show`].
    #[inline(always)]
    fn use_up(&self, regions: &Regions, index: u16, head: u16, written: u32) {
        let Spot { region, at } = self.used;
        let (memory, at) = (regions.memory(region), at + SLOTS + USED * self.slot(index));
        memory.store_u32(at, head.into());
        memory.store_u32(at + 4, written);
    }

    /// Asks for what is taken soon: the first line of a packet a few slots ahead. A hint: what is read here is read again, and checked.
    #[inline(always)]
    fn ask_ahead(&self, regions: &Regions, ahead: u16) {
        let head = self.head(regions, self.next().wrapping_add(ahead));
        if u32::from(head) < self.slots {
            let Spot { region, at } = self.descriptors;
            regions.prefetch(regions.memory(region).load_u64(at + DESCRIPTOR * usize::from(head)));
        }
    }

    /// Copies what a chain holds: the header, then the packet.
    #[inline(always)]
    fn gather(
        &self,
        regions: &Regions,
        head: u16,
        header: &mut [u8; LONG_HEADER],
        frame: &mut [u8],
    ) -> Result<Taken, Fault> {
        let before = self.agreed.header();
        // Bytes of header and packet that have been copied.
        let mut come = 0;
        let mut chain = self.chain(regions, head);
        while let Some(piece) = chain.next()? {
            if piece.flags & WRITE != 0 {
                return Err(Fault::Flags);
            }
            let (mut address, mut length) = (piece.address, piece.length as usize);
            if come < before {
                let part = length.min(before - come);
                if part == before {
                    regions.read_header(address, part, header)?;
                } else {
                    regions.read(address, &mut header[come..come + part])?;
                }
                (address, length, come) = (address.wrapping_add(part as u64), length - part, come + part);
            }
            if length > 0 {
                let begin = come - before;
                let Some(into) = frame.get_mut(begin..begin + length) else { return Ok(Taken::TooLong) };
                regions.read(address, into)?;
                come += length;
            }
        }
        // What ends within its header is no packet.
        come.checked_sub(before).map(Taken::Packet).ok_or(Fault::Bounds)
    }

    /// Finds room for so many bytes: in how many chains.
    #[inline(always)]
    fn find_chains(&mut self, regions: &Regions, wanted: usize, room: &mut Vec<Slot>) -> Result<u16, Put> {
        let (mut heads, mut bytes, mut descriptors) = (0, 0, 0);
        while bytes < wanted {
            let index = self.next().wrapping_add(heads);
            if heads > 0 && !self.agreed.merges {
                return Err(Put::TooLong);
            }
            if index == self.limit() {
                match self.look(regions) {
                    Ok(filled) if filled > heads => {}
                    // No waiting makes more room than all descriptors of the ring.
                    Ok(_) if descriptors >= self.slots as usize => return Err(Put::TooLong),
                    Ok(_) => return Err(Put::Full),
                    Err(fault) => return Err(Put::Refused(fault)),
                }
            }
            match self.find_room(regions, self.head(regions, index), room) {
                Ok((more, own)) => (bytes, descriptors) = (bytes + more, descriptors + own),
                Err(fault) => {
                    // It is given back with nothing in it, and those before it too.
                    (0..=heads).for_each(|number| self.give_back(regions, number));
                    self.next = u32::from(index.wrapping_add(1));
                    return Err(Put::Refused(fault));
                }
            }
            heads += 1;
        }
        Ok(heads)
    }

    fn give_back(&self, regions: &Regions, number: u16) {
        let index = self.next().wrapping_add(number);
        self.use_up(regions, index, self.head(regions, index), 0);
    }

    /// Finds the room of one chain, all of which the driver must let be written and have in its memory: its bytes, and how many descriptors of
    /// the ring it has.
    #[inline(always)]
    fn find_room(&self, regions: &Regions, head: u16, room: &mut Vec<Slot>) -> Result<(usize, usize), Fault> {
        let (mut chain, mut bytes) = (self.chain(regions, head), 0);
        while let Some(Piece { address, length, flags, .. }) = chain.next()? {
            if flags & WRITE == 0 {
                return Err(Fault::Flags);
            }
            if length == 0 {
                return Err(Fault::Bounds);
            }
            let mut inside = 0;
            while inside < length as usize {
                inside += regions.of_guest(address.wrapping_add(inside as u64), length as usize - inside)?.1;
            }
            if room.len() == MOST_PIECES {
                return Err(Fault::Chain);
            }
            room.push(Slot { address, length, ends: None });
            bytes += length as usize;
        }
        // A chain has one piece at least.
        room.last_mut().ok_or(Fault::Chain)?.ends = Some(head);
        Ok((bytes, chain.of_ring()))
    }

    /// Writes header and packet into a room that is large enough, and uses up its chains.
    #[inline(always)]
    fn scatter(&self, regions: &Regions, room: &[Slot], header: &[u8; LONG_HEADER], mut frame: &[u8]) {
        let before = self.agreed.header();
        let (mut index, mut written, mut gone) = (self.next(), 0, 0);
        for slot in room {
            let (mut address, mut left) = (slot.address, slot.length as usize);
            // All of it was found to lie in the memory.
            if gone < before {
                let part = left.min(before - gone);
                let _ = if part == before {
                    regions.write_header(address, part, header)
                } else {
                    regions.write(address, &header[gone..gone + part])
                };
                (address, left, gone) = (address.wrapping_add(part as u64), left - part, gone + part);
            }
            let (now, later) = frame.split_at(frame.len().min(left));
            let _ = regions.write(address, now);
            (frame, left) = (later, left - now.len());
            written += slot.length as usize - left;
            if let Some(head) = slot.ends {
                self.use_up(regions, index, head, written as u32);
                (index, written) = (index.wrapping_add(1), 0);
            }
        }
    }

    fn chain<'a>(&self, regions: &'a Regions, head: u16) -> Chain<'a> {
        let Spot { region, at } = self.descriptors;
        let memory = regions.memory(region);
        Chain {
            regions,
            table: Table::Ring { memory, at },
            count: self.slots,
            next: Some(head.into()),
            left: MOST_PIECES,
        }
    }
}

impl Side for Ring {
    /// Takes the next packet, with the header before it.
    #[inline]
    fn take(&mut self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &mut [u8]) -> Taken {
        if self.limit() == self.next() {
            // The driver's index is read again only when what it last said is used up: its line is the driver's to write.
            match self.look(regions) {
                Ok(0) => return Taken::None,
                Ok(filled) => (0..filled.min(AHEAD)).for_each(|ahead| self.ask_ahead(regions, ahead)),
                Err(fault) => return Taken::Refused(fault),
            }
        } else if self.limit().wrapping_sub(self.next()) > AHEAD {
            self.ask_ahead(regions, AHEAD);
        }
        let head = self.head(regions, self.next());
        let taken = self.gather(regions, head, header, frame);
        self.use_up(regions, self.next(), head, 0);
        self.next = u32::from(self.next().wrapping_add(1));
        taken.unwrap_or_else(Taken::Refused)
    }

    /// Puts a packet behind a header into as many chains as it takes. The header's count of them is set here.
    #[inline]
    fn put(&mut self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &[u8]) -> Put {
        let wanted = self.agreed.header() + frame.len();
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        let found = self.find_chains(regions, wanted, &mut room);
        let put = match found {
            Ok(heads) => {
                set_merged(header, heads);
                self.scatter(regions, &room, header, frame);
                self.next = u32::from(self.next().wrapping_add(heads));
                Put::Done
            }
            Err(put) => put,
        };
        self.room = room;
        put
    }

    /// Shows the driver what has been used; whether it wants to be interrupted for that.
    fn show(&mut self, regions: &Regions) -> bool {
        if self.told == self.next {
            return false;
        }
        let (old, new) = (self.told as u16, self.next());
        let Spot { region, at } = self.used;
        // Release: what was used, and what was written, is there before the index.
        regions.memory(region).store_release_u16(at + INDEX, new);
        self.told = self.next;
        let event = self.available.at + SLOTS + 2 * self.slots as usize;
        Wish { flags: self.available, event }.wants(regions, self.agreed, old, new)
    }

    /// How many slots have been used and not been shown.
    fn unshown(&self) -> u16 {
        self.next().wrapping_sub(self.told as u16)
    }

    /// Asks the driver for kicks or for none.
    fn interrupt(&self, regions: &Regions, wanted: bool) {
        let event = self.used.at + SLOTS + USED * self.slots as usize;
        Wish { flags: self.used, event }.set(regions, self.agreed, wanted, self.next());
    }

    fn position(&self) -> u16 {
        self.next()
    }
}

impl Writes for Ring {
    fn buffers(&self) -> impl Iterator<Item = (u64, u32)> {
        self.room.iter().map(|slot| (slot.address, slot.length))
    }

    fn mark_used(&self, pages: &Pages, from: u16) {
        let Some(used) = pages.used else { return };
        let (place, count) = (self.slot(from) as u32, self.next().wrapping_sub(from).into());
        Entries { size: USED, slots: self.slots, place, count }.mark(&pages.log, used + SLOTS as u64);
    }

    fn mark_shown(&self, pages: &Pages) {
        pages.used.into_iter().for_each(|used| pages.log.mark(used + INDEX as u64, 2));
    }

    fn mark_wish(&self, pages: &Pages) {
        let event = used_bytes(self.slots) - 2;
        let said = if self.agreed.event_index { event } else { 0 };
        pages.used.into_iter().for_each(|used| pages.log.mark(used + said, 2));
    }

    fn header(&self) -> usize {
        self.agreed.header()
    }
}

/// Where a chain's descriptors are.
enum Table<'a> {
    Ring {
        memory: &'a Mapping,
        at: usize,
    },
    /// Elsewhere in the guest's memory, and how many descriptors led there.
    Indirect(u64, usize),
}

/// The descriptors of a chain, one after the other.
struct Chain<'a> {
    regions: &'a Regions,
    table: Table<'a>,
    /// Descriptors of the table.
    count: u32,
    next: Option<u32>,
    /// How many more there may be: a chain that is longer may run in a circle.
    left: usize,
}

impl Chain<'_> {
    /// The next piece; none behind the last.
    #[inline(always)]
    fn next(&mut self) -> Result<Option<Piece>, Fault> {
        loop {
            let Some(number) = self.next.take() else { return Ok(None) };
            if number >= self.count {
                return Err(Fault::Number);
            }
            self.left = self.left.checked_sub(1).ok_or(Fault::Chain)?;
            let piece = self.read(number)?;
            if piece.flags & INDIRECT != 0 {
                self.enter(&piece)?;
                continue;
            }
            if piece.flags & !(NEXT | WRITE) != 0 {
                return Err(Fault::Flags);
            }
            self.next = (piece.flags & NEXT != 0).then_some(piece.next.into());
            return Ok(Some(piece));
        }
    }

    /// Reads a descriptor, each of its words once.
    #[inline(always)]
    fn read(&self, number: u32) -> Result<Piece, Fault> {
        let (address, word) = match &self.table {
            Table::Ring { memory, at } => {
                let at = at + DESCRIPTOR * number as usize;
                (memory.load_u64(at), memory.load_u64(at + 8))
            }
            Table::Indirect(table, _) => {
                let mut words = [0; 2];
                for (word, address) in words.iter_mut().zip([0, 8]) {
                    let mut bytes = [0; 8];
                    let at = table.wrapping_add(DESCRIPTOR as u64 * u64::from(number)).wrapping_add(address);
                    self.regions.read(at, &mut bytes)?;
                    *word = u64::from_le_bytes(bytes);
                }
                (words[0], words[1])
            }
        };
        Ok(Piece { address, length: word as u32, flags: (word >> 32) as u16, next: (word >> 48) as u16 })
    }

    /// Goes on in another table, which ends the chain.
    #[cold]
    fn enter(&mut self, piece: &Piece) -> Result<(), Fault> {
        // That the table is to be written means nothing (2.7.5.3.2).
        if matches!(self.table, Table::Indirect(..)) || piece.flags & NEXT != 0 {
            return Err(Fault::Flags);
        }
        let count = piece.length / DESCRIPTOR as u32;
        if !piece.length.is_multiple_of(DESCRIPTOR as u32) || count == 0 {
            return Err(Fault::Number);
        }
        (self.table, self.count, self.next) = (Table::Indirect(piece.address, self.of_ring()), count, Some(0));
        Ok(())
    }

    /// How many descriptors of the ring were read.
    #[inline(always)]
    fn of_ring(&self) -> usize {
        match self.table {
            Table::Ring { .. } => MOST_PIECES - self.left,
            Table::Indirect(_, of_ring) => of_ring,
        }
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
pub(super) mod tests;
