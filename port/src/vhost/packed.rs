//! A packed virtqueue, as the driver writes it and this side, the device, checks it.
//!
//! | part | what | written by |
//! |---|---|---|
//! | descriptors, 16 bytes each, in a ring | address; length, number of the buffer, flags (those of a split ring's, 128: available, 32,768: used) | driver, and device |
//! | the driver's wish | at which descriptor it wants to be interrupted, in which round; flags (0: always, 1: never, 2: there) | driver |
//! | the device's | the same, of kicks | device |
//!
//! A descriptor is available where the one bit is, and the other is not, what the driver's round says, which turns with each time round the ring; it
//! is used where both are. A chain lies in neighbours. This side uses chains in the order in which they are available, each where it began,
//! so that one position, a place and a round, says all. Each descriptor's second word is read once, with acquire, and written once, with
//! release: what was used is seen at once, and to show it is to tell of it. Of a packet in several buffers the first is used last.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.2, 2.8 (packed virtqueues).

use super::half::Side;
use super::log::{Entries, Pages, Writes};
use super::memory::{Regions, Spot, set_merged};
use super::message::Parts;
use super::ring::{AHEAD, Agreed, DESCRIPTOR, Fault, INDIRECT, LONG_HEADER, MOST_PIECES, NEXT, Put, Taken, WRITE};

/// Of a descriptor's flags.
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// Bytes of a wish, and in it its flags: never, and at a descriptor.
pub(super) const WISH: usize = 4;
const NEVER: u16 = 1;
const AT_DESCRIPTOR: u16 = 2;

/// The round of a position, and what of it is the place.
const ROUND: u16 = 1 << 15;

/// A place in the ring, and the round in which it is: both bits of one word, as frontends say them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position(u16);

impl Position {
    #[inline(always)]
    fn place(self) -> u16 {
        self.0 & !ROUND
    }

    /// Goes so many places on, at most once round.
    #[inline(always)]
    fn behind(self, places: u16, slots: u32) -> Position {
        let place = u32::from(self.place()) + u32::from(places);
        if place < slots {
            Position(place as u16 | self.0 & ROUND)
        } else {
            Position((place - slots) as u16 | !self.0 & ROUND)
        }
    }

    /// The two bits of a descriptor here that is available, and those of one that is used.
    #[inline(always)]
    fn bits(self) -> (u16, u16) {
        if self.0 & ROUND != 0 { (AVAILABLE, AVAILABLE | USED) } else { (USED, 0) }
    }
}

/// Bytes of a buffer.
#[derive(Clone, Copy, Debug)]
struct Piece {
    address: u64,
    length: u32,
    flags: u16,
}

/// A chain: where it began, how many descriptors of the ring it has, and the number that it goes by.
#[derive(Clone, Copy, Debug)]
struct Chain {
    at: Position,
    descriptors: u16,
    number: u16,
    /// How many of the pieces are its own or those of chains before it.
    pieces: usize,
}

/// One side of a packed ring, with its parts found in the frontend's memory.
#[derive(Debug)]
pub struct PackedRing {
    slots: u32,
    descriptors: Spot,
    driver: Spot,
    device: Spot,
    agreed: Agreed,
    next: Position,
    /// Descriptors that were used since the driver was told.
    untold: u16,
    /// What is being taken or put; kept between packets.
    pieces: Vec<Piece>,
    chains: Vec<Chain>,
}

impl PackedRing {
    /// Finds a ring's parts; none where one does not lie in the memory, or not at a place that words may have, or where it is to go on behind
    /// its end.
    pub(super) fn find(regions: &Regions, slots: u32, parts: Parts, agreed: Agreed, base: u16) -> Option<PackedRing> {
        let find = |address: u64, bytes, aligned: usize| {
            regions.of_user(address, bytes).filter(|spot| spot.at.is_multiple_of(aligned))
        };
        let next = Some(Position(base)).filter(|next| u32::from(next.place()) < slots)?;
        Some(PackedRing {
            slots,
            descriptors: find(parts.descriptors, DESCRIPTOR * slots as usize, DESCRIPTOR)?,
            driver: find(parts.available, WISH, 4)?,
            device: find(parts.used, WISH, 4)?,
            agreed,
            next,
            untold: 0,
            pieces: Vec::new(),
            chains: Vec::new(),
        })
    }

    #[inline(always)]
    fn at(&self, position: Position) -> usize {
        self.descriptors.at + DESCRIPTOR * usize::from(position.place())
    }

    /// The second word of a descriptor: its length, number and flags.
    #[inline(always)]
    fn word(&self, regions: &Regions, position: Position) -> (u32, u16, u16) {
        // Acquire: pairs with the driver's barrier before it makes a chain's first available; the rest of it, and what it holds, lie before.
        let word = regions.memory(self.descriptors.region).load_acquire_u64(self.at(position) + 8);
        (word as u32, (word >> 32) as u16, (word >> 48) as u16)
    }

    #[inline(always)]
    fn is_available(position: Position, flags: u16) -> bool {
        flags & (AVAILABLE | USED) == position.bits().0
    }

    /// Reads the chain at a position, if one is available, behind those that were read: its pieces.
    ///
    /// # Errors
    /// What is wrong, with the chain, which can be given back. A chain without an end is an index that cannot be: nothing says what comes next.
    #[inline(always)]
    fn read(&mut self, regions: &Regions, at: Position) -> Result<Option<Chain>, (Fault, Chain)> {
        let (mut fault, mut place, mut descriptors) = (None, at, 0);
        loop {
            let (length, number, flags) = self.word(regions, place);
            if descriptors == 0 && !Self::is_available(at, flags) {
                return Ok(None);
            }
            descriptors += 1;
            let address = regions.memory(self.descriptors.region).load_u64(self.at(place));
            let piece = Piece { address, length, flags };
            fault = fault.or(self.enter(regions, piece, descriptors).err());
            place = place.behind(1, self.slots);
            let chain = Chain { at, descriptors, number, pieces: self.pieces.len() };
            if flags & NEXT == 0 {
                return fault.map_or(Ok(Some(chain)), |fault| Err((fault, chain)));
            }
            if u32::from(descriptors) == self.slots || usize::from(descriptors) == MOST_PIECES {
                return Err((Fault::Index, chain));
            }
        }
    }

    /// Takes in a descriptor of the ring.
    #[inline(always)]
    fn enter(&mut self, regions: &Regions, piece: Piece, descriptors: u16) -> Result<(), Fault> {
        if piece.flags & !(NEXT | WRITE | INDIRECT | AVAILABLE | USED) != 0 {
            return Err(Fault::Flags);
        }
        if piece.flags & INDIRECT != 0 {
            return self.enter_table(regions, piece, descriptors);
        }
        if self.pieces.len() == MOST_PIECES {
            return Err(Fault::Chain);
        }
        self.pieces.push(piece);
        Ok(())
    }

    /// Takes in a table of descriptors elsewhere in the guest's memory, all of which count (2.8.7).
    #[cold]
    fn enter_table(&mut self, regions: &Regions, table: Piece, descriptors: u16) -> Result<(), Fault> {
        if descriptors > 1 || table.flags & NEXT != 0 {
            return Err(Fault::Flags);
        }
        let count = table.length as usize / DESCRIPTOR;
        if !(table.length as usize).is_multiple_of(DESCRIPTOR) || count == 0 {
            return Err(Fault::Number);
        }
        if self.pieces.len() + count > MOST_PIECES {
            return Err(Fault::Chain);
        }
        for number in 0..count {
            let mut bytes = [0; DESCRIPTOR];
            regions.read(table.address.wrapping_add((DESCRIPTOR * number) as u64), &mut bytes)?;
            let [address, word] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte])));
            let flags = (word >> 48) as u16;
            if flags & INDIRECT != 0 {
                return Err(Fault::Flags);
            }
            self.pieces.push(Piece { address, length: word as u32, flags });
        }
        Ok(())
    }

    /// Says that a chain has been used, and how many bytes were written.
    #[inline(always)]
    fn use_up(&mut self, regions: &Regions, chain: Chain, written: u32) {
        // Without the flag the length would mean nothing (2.8.4).
        let flags = chain.at.bits().1 | if written > 0 { WRITE } else { 0 };
        let word = u64::from(written) | u64::from(chain.number) << 32 | u64::from(flags) << 48;
        // Release: what was read, and what was written, was so before the driver sees it as used.
        regions.memory(self.descriptors.region).store_release_u64(self.at(chain.at) + 8, word);
        self.untold = self.untold.saturating_add(chain.descriptors);
    }

    /// Asks for what is taken soon: the first line of a packet a few descriptors ahead. A hint: what is read here is read again, and checked.
    #[inline(always)]
    fn ask_ahead(&self, regions: &Regions) {
        let ahead = self.next.behind(AHEAD.min(self.slots as u16 - 1), self.slots);
        if Self::is_available(ahead, self.word(regions, ahead).2) {
            regions.prefetch(regions.memory(self.descriptors.region).load_u64(self.at(ahead)));
        }
    }

    /// Copies what the pieces hold: the header, then the packet.
    #[inline(always)]
    fn gather(&self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &mut [u8]) -> Result<Taken, Fault> {
        let before = self.agreed.header();
        // Bytes of header and packet that have been copied.
        let mut come = 0;
        for piece in &self.pieces {
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

    /// How much room pieces have, all of which the driver must let be written and have in its memory.
    #[inline(always)]
    fn room(regions: &Regions, pieces: &[Piece]) -> Result<usize, Fault> {
        let mut bytes = 0;
        for &Piece { address, length, flags } in pieces {
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
            bytes += length as usize;
        }
        Ok(bytes)
    }

    /// Finds room for so many bytes: where the ring goes on behind it.
    #[inline(always)]
    fn find_room(&mut self, regions: &Regions, wanted: usize) -> Result<Position, Put> {
        let (mut at, mut bytes) = (self.next, 0);
        while bytes < wanted {
            if !self.chains.is_empty() && !self.agreed.merges {
                return Err(Put::TooLong);
            }
            // More than once round there is nothing that could be available.
            let descriptors: u32 = self.chains.iter().map(|chain| u32::from(chain.descriptors)).sum();
            let begin = self.pieces.len();
            let read = if descriptors < self.slots { self.read(regions, at) } else { Ok(None) };
            let found = match read {
                // No waiting makes more room than all of the ring.
                Ok(None) => return Err(if descriptors == self.slots { Put::TooLong } else { Put::Full }),
                // It runs on through descriptors of those before it: nothing says what comes next.
                Ok(Some(chain)) | Err((_, chain)) if descriptors + u32::from(chain.descriptors) > self.slots => {
                    Err((Fault::Index, chain))
                }
                Ok(Some(chain)) => {
                    Self::room(regions, &self.pieces[begin..]).map_err(|fault| (fault, chain)).map(|more| (chain, more))
                }
                Err(wrong) => Err(wrong),
            };
            match found {
                Ok((chain, more)) => {
                    bytes += more;
                    at = at.behind(chain.descriptors, self.slots);
                    self.chains.push(chain);
                }
                Err((fault, chain)) => {
                    if fault != Fault::Index {
                        // It is given back with nothing in it, and those before it too.
                        self.chains.push(chain);
                        self.next = at.behind(chain.descriptors, self.slots);
                        (0..self.chains.len()).for_each(|number| self.use_up(regions, self.chains[number], 0));
                    }
                    return Err(Put::Refused(fault));
                }
            }
        }
        Ok(at)
    }

    /// Writes header and packet into room that is large enough, and uses up its chains, the first one last.
    #[inline(always)]
    fn scatter(&mut self, regions: &Regions, header: &[u8; LONG_HEADER], mut frame: &[u8]) {
        let (before, mut gone) = (self.agreed.header(), 0);
        let (mut begin, mut first) = (0, None);
        for number in 0..self.chains.len() {
            let (chain, mut written) = (self.chains[number], 0);
            for piece in &self.pieces[begin..chain.pieces] {
                let (mut address, mut left) = (piece.address, piece.length as usize);
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
                written += piece.length - left as u32;
            }
            begin = chain.pieces;
            match first {
                None => first = Some((chain, written)),
                Some(_) => self.use_up(regions, chain, written),
            }
        }
        first.into_iter().for_each(|(chain, written)| self.use_up(regions, chain, written));
    }
}

impl Side for PackedRing {
    /// Takes the next packet, with the header before it.
    #[inline]
    fn take(&mut self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &mut [u8]) -> Taken {
        self.pieces.clear();
        let (taken, chain) = match self.read(regions, self.next) {
            Ok(None) => return Taken::None,
            Ok(Some(chain)) => (self.gather(regions, header, frame).unwrap_or_else(Taken::Refused), chain),
            Err((Fault::Index, _)) => return Taken::Refused(Fault::Index),
            Err((fault, chain)) => (Taken::Refused(fault), chain),
        };
        self.use_up(regions, chain, 0);
        self.next = self.next.behind(chain.descriptors, self.slots);
        self.ask_ahead(regions);
        taken
    }

    /// Puts a packet behind a header into as many chains as it takes. The header's count of them is set here.
    #[inline]
    fn put(&mut self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &[u8]) -> Put {
        self.pieces.clear();
        self.chains.clear();
        match self.find_room(regions, self.agreed.header() + frame.len()) {
            Ok(behind) => {
                set_merged(header, self.chains.len() as u16);
                self.scatter(regions, header, frame);
                self.next = behind;
                Put::Done
            }
            Err(put) => put,
        }
    }

    /// Whether the driver wants to be interrupted for what has been used since it was last asked.
    fn show(&mut self, regions: &Regions) -> bool {
        let used = std::mem::take(&mut self.untold);
        if used == 0 {
            return false;
        }
        let memory = regions.memory(self.driver.region);
        // Full: what was used is shown before the wish is read, or both sides might wait for each other.
        memory.full_fence();
        let wish = memory.load_u32(self.driver.at);
        match ((wish >> 16) as u16, wish as u16) {
            (NEVER, _) => false,
            (AT_DESCRIPTOR, wanted) if self.agreed.event_index => {
                let new = self.next.place();
                // One of the round before lies as many places behind.
                let round = if (wanted ^ self.next.0) & ROUND == 0 { 0 } else { self.slots as u16 };
                let wanted = (wanted & !ROUND).wrapping_sub(round);
                new.wrapping_sub(wanted).wrapping_sub(1) < used
            }
            _ => true,
        }
    }

    fn unshown(&self) -> u16 {
        self.untold
    }

    /// Asks the driver for kicks or for none.
    fn interrupt(&self, regions: &Regions, wanted: bool) {
        let memory = regions.memory(self.device.region);
        memory.store_u32(self.device.at, if wanted { 0 } else { u32::from(NEVER) << 16 });
        // Full: the wish is visible before the ring is looked at once more.
        memory.full_fence();
    }

    fn position(&self) -> u16 {
        self.next.0
    }
}

impl Writes for PackedRing {
    fn buffers(&self) -> impl Iterator<Item = (u64, u32)> {
        self.pieces.iter().map(|piece| (piece.address, piece.length))
    }

    /// The first descriptor of each chain, of which those between are neighbours.
    fn mark_used(&self, pages: &Pages, from: u16) {
        let Some(begin) = pages.descriptors else { return };
        let place = u32::from(Position(from).place());
        let (behind, is_round) = (u32::from(self.next.place()), (from ^ self.next.0) & ROUND != 0);
        let count = if is_round { behind + self.slots - place } else { behind - place };
        Entries { size: DESCRIPTOR, slots: self.slots, place, count }.mark(&pages.log, begin);
    }

    /// What was used is seen at once.
    fn mark_shown(&self, _pages: &Pages) {}

    fn mark_wish(&self, pages: &Pages) {
        pages.used.into_iter().for_each(|used| pages.log.mark(used, WISH as u64));
    }

    fn header(&self) -> usize {
        self.agreed.header()
    }
}

#[cfg(test)]
#[path = "packed_tests.rs"]
mod tests;
