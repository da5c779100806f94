//! A split virtqueue from the driver's side (`../ring.rs` has its parts, and the device's side).
//!
//! Each descriptor has a buffer of its own, for ever. What is under way is remembered outside of the memory that the device may write:
//!
//! | who has a descriptor | when | told by |
//! |---|---|---|
//! | the driver | free, or a packet is being written | the list of the free |
//! | the device | from being made available | how many descriptors its chain has, at the chain's first |
//! | the driver again | used: an element with its number, and bytes that were written | the used index |
//!
//! A ring to the driver begins with all descriptors available, and each is made available again as soon as its buffer has been read. A ring
//! to the device takes back what was used when it has no descriptor left. Elements may come in any order. One with a number that the device does
//! not have is a fault, and so are more of them than there are under way.

use conic_native::Mapping;

use super::BEGIN;
use crate::vhost::half::Side;
use crate::vhost::memory::{Regions, Spot, load_header, store_header};
use crate::vhost::message::Parts;
use crate::vhost::ring::{
    AHEAD, Agreed, DESCRIPTOR, Fault, INDEX, LONG_HEADER, MERGED, NEXT, Put, SLOTS, Taken, USED, WRITE,
};
use crate::vhost::wish::Wish;

/// Bytes of each buffer: header and packet of an Ethernet frame fit into one.
pub(super) const BUFFER: usize = 2048;

/// Bytes of a line.
const LINE: usize = 64;

/// Where the parts of rings of so many slots lie, one ring behind the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    slots: usize,
    available: usize,
    used: usize,
    buffers: usize,
}

impl Layout {
    pub(super) fn of(slots: usize) -> Layout {
        let available = DESCRIPTOR * slots;
        // Each side writes lines of its own.
        let used = (available + SLOTS + 2 * slots + 2).next_multiple_of(LINE);
        // A packet begins with a line, behind its header: copied elsewhere than along lines, each of its loads and stores would be of two.
        let buffers = (used + SLOTS + USED * slots + 2).next_multiple_of(4096) + LINE - LONG_HEADER;
        Layout { slots, available, used, buffers }
    }

    /// Bytes of a ring with its buffers.
    pub(super) fn bytes(&self) -> usize {
        (self.buffers + self.slots * BUFFER).next_multiple_of(4096)
    }

    /// Where the used ring begins, and a buffer, for tests of what is there.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used
    }

    #[cfg(test)]
    pub(super) fn available(&self) -> usize {
        self.available
    }

    #[cfg(test)]
    pub(super) fn buffer(&self, descriptor: usize) -> usize {
        self.buffers + descriptor * BUFFER
    }

    /// Where the backend finds a ring.
    pub(super) fn parts(&self, number: usize) -> Parts {
        let begin = BEGIN + (number * self.bytes()) as u64;
        Parts { descriptors: begin, used: begin + self.used as u64, available: begin + self.available as u64 }
    }
}

/// The driver's side of a ring.
#[derive(Debug)]
pub struct DriverRing {
    layout: Layout,
    /// Where it begins in the memory.
    begin: usize,
    agreed: Agreed,
    /// The next slot to make available in, and up to where the device has been shown.
    next: u16,
    shown: u16,
    /// The next element whose use was not seen, and up to where they are there, as the device's index said when it was last read.
    seen: u16,
    limit: u16,
    /// Descriptors that may be used.
    free: Vec<u16>,
    /// Descriptors of the chain that begins with this one and is under way; none: no such chain is.
    chains: Vec<u16>,
    /// Which descriptor follows in a chain.
    links: Vec<u16>,
}

impl DriverRing {
    /// Makes a ring in fresh memory, the one with this number.
    pub(super) fn make(regions: &Regions, layout: Layout, number: usize, agreed: Agreed) -> DriverRing {
        let slots = layout.slots;
        let mut ring = DriverRing {
            layout,
            begin: number * layout.bytes(),
            agreed,
            next: 0,
            shown: 0,
            seen: 0,
            limit: 0,
            // The last is taken first.
            free: (0..slots as u16).rev().collect(),
            chains: vec![0; slots],
            links: vec![0; slots],
        };
        let memory = regions.memory(0);
        for descriptor in 0..slots {
            let address = BEGIN + (ring.begin + layout.buffers + descriptor * BUFFER) as u64;
            memory.store_u64(ring.begin + DESCRIPTOR * descriptor, address);
        }
        if number.is_multiple_of(2) {
            while let Some(descriptor) = ring.free.pop() {
                ring.describe(memory, descriptor, BUFFER, WRITE, 0);
                ring.make_available(memory, descriptor, 1);
            }
            // Nobody else looks yet.
            ring.show(regions);
        }
        ring
    }

    #[inline(always)]
    fn buffer(&self, descriptor: u16) -> usize {
        self.begin + self.layout.buffers + usize::from(descriptor) * BUFFER
    }

    #[inline(always)]
    fn slot(&self, index: u16) -> usize {
        usize::from(index) & (self.layout.slots - 1)
    }

    /// Slots that the device has.
    #[inline(always)]
    fn under_way(&self) -> u16 {
        self.next.wrapping_sub(self.seen)
    }

    /// Writes length, flags and successor of a descriptor; its address never changes.
    #[inline(always)]
    fn describe(&self, memory: &Mapping, descriptor: u16, length: usize, flags: u16, next: u16) {
        let at = self.begin + DESCRIPTOR * usize::from(descriptor) + 8;
        memory.store_u64(at, length as u64 | u64::from(flags) << 32 | u64::from(next) << 48);
    }

    /// Makes a chain available, without showing it.
    #[inline(always)]
    fn make_available(&mut self, memory: &Mapping, head: u16, descriptors: u16) {
        let at = self.begin + self.layout.available + SLOTS + 2 * self.slot(self.next);
        memory.store_u16(at, head);
        self.chains[usize::from(head)] = descriptors;
        self.next = self.next.wrapping_add(1);
    }

    /// Looks how many elements are there that were not seen.
    #[inline(always)]
    fn look(&mut self, memory: &Mapping) -> Result<u16, Fault> {
        // Acquire: pairs with the device's barrier before its index, behind elements and buffers.
        let theirs = memory.load_acquire_u16(self.begin + self.layout.used + INDEX);
        let ahead = theirs.wrapping_sub(self.seen);
        if ahead > self.under_way() {
            return Err(Fault::Index);
        }
        self.limit = theirs;
        Ok(ahead)
    }

    /// An element: which descriptor, as it says, and how many bytes.
    #[inline(always)]
    fn element(&self, memory: &Mapping, index: u16) -> (u32, u32) {
        let at = self.begin + self.layout.used + SLOTS + USED * self.slot(index);
        (memory.load_u32(at), memory.load_u32(at + 4))
    }

    /// Takes the next element: the first descriptor of a chain that was under way, how many descriptors it has, and how many bytes were written.
    #[inline(always)]
    fn take_back(&mut self, memory: &Mapping) -> Result<(u16, u16, usize), Fault> {
        let (number, bytes) = self.element(memory, self.seen);
        self.seen = self.seen.wrapping_add(1);
        let chain = self.chains.get_mut(number as usize).ok_or(Fault::Number)?;
        match std::mem::take(chain) {
            0 => Err(Fault::Number),
            descriptors => Ok((number as u16, descriptors, bytes as usize)),
        }
    }

    /// Asks for what is taken soon: the header and the first line of a packet a few elements ahead. A hint: what is read here is read again, and checked.
    #[inline(always)]
    fn ask_ahead(&self, memory: &Mapping, ahead: u16) {
        let (number, _) = self.element(memory, self.seen.wrapping_add(ahead));
        if (number as usize) < self.layout.slots {
            let header = self.buffer(number as u16);
            memory.prefetch(header);
            memory.prefetch(header + LONG_HEADER);
        }
    }

    /// Copies a packet out of the buffers that it came in, and makes these available again.
    #[inline(always)]
    fn gather(&mut self, memory: &Mapping, header: &mut [u8; LONG_HEADER], frame: &mut [u8]) -> Result<Taken, Fault> {
        let before = self.agreed.header();
        let (mut come, mut left) = (0, 1);
        while left > 0 {
            if self.seen == self.limit {
                // All of a packet is shown at once.
                return Err(Fault::Chain);
            }
            let is_first = come == 0;
            let (descriptor, _, bytes) = self.take_back(memory)?;
            let at = self.buffer(descriptor);
            let is_sound = bytes <= BUFFER && (bytes >= before || !is_first);
            let mut skipped = 0;
            if is_sound && is_first {
                load_header(memory, at, before, header);
                if self.agreed.merges {
                    left = usize::from(u16::from_le_bytes([header[MERGED], header[MERGED + 1]]));
                }
                (skipped, come) = (before, before);
            }
            let length = if is_sound { bytes - skipped } else { 0 };
            let begin = come - before.min(come);
            // What finds no room is left out with all the rest.
            if let Some(into) = frame.get_mut(begin..begin + length) {
                memory.read_bytes(at + skipped, into);
            }
            come += length;
            self.make_available(memory, descriptor, 1);
            if !is_sound {
                return Err(Fault::Bounds);
            }
            if left == 0 {
                return Err(Fault::Chain);
            }
            left -= 1;
        }
        let length = come - before;
        Ok(if length > frame.len() { Taken::TooLong } else { Taken::Packet(length) })
    }

    /// Takes back what was used.
    fn reclaim(&mut self, memory: &Mapping) -> Result<(), Fault> {
        for _ in 0..self.look(memory)? {
            let (mut descriptor, descriptors, _) = self.take_back(memory)?;
            for _ in 0..descriptors {
                self.free.push(descriptor);
                descriptor = self.links[usize::from(descriptor)];
            }
        }
        Ok(())
    }

    /// Writes header and packet into so many free descriptors; the first of them.
    #[inline(always)]
    fn write(&mut self, memory: &Mapping, header: &[u8; LONG_HEADER], packet: &[u8], pieces: usize) -> u16 {
        let chain = self.free.len() - pieces;
        let head = self.free[chain];
        let (mut rest, mut skipped) = (packet, self.agreed.header());
        store_header(memory, self.buffer(head), skipped, header);
        for place in chain..self.free.len() {
            let descriptor = self.free[place];
            let (now, later) = rest.split_at(rest.len().min(BUFFER - skipped));
            memory.write_bytes(self.buffer(descriptor) + skipped, now);
            let (flags, next) = self.free.get(place + 1).map_or((0, 0), |&next| (NEXT, next));
            self.describe(memory, descriptor, skipped + now.len(), flags, next);
            self.links[usize::from(descriptor)] = next;
            (rest, skipped) = (later, 0);
        }
        self.free.truncate(chain);
        head
    }

    fn wish(&self, part: usize, element: usize) -> Wish {
        let at = self.begin + part;
        Wish { flags: Spot { region: 0, at }, event: at + SLOTS + element * self.layout.slots }
    }
}

impl Side for DriverRing {
    #[inline]
    fn take(&mut self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &mut [u8]) -> Taken {
        let memory = regions.memory(0);
        if self.limit == self.seen {
            // The device's index is read again only when what it last said is used up: its line is the device's to write.
            match self.look(memory) {
                Ok(0) => return Taken::None,
                Ok(filled) => (0..filled.min(AHEAD)).for_each(|ahead| self.ask_ahead(memory, ahead)),
                Err(fault) => return Taken::Refused(fault),
            }
        } else if self.limit.wrapping_sub(self.seen) > AHEAD {
            self.ask_ahead(memory, AHEAD);
        }
        self.gather(memory, header, frame).unwrap_or_else(Taken::Refused)
    }

    #[inline]
    fn put(&mut self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &[u8]) -> Put {
        let memory = regions.memory(0);
        let pieces = (self.agreed.header() + frame.len()).div_ceil(BUFFER);
        if pieces > self.layout.slots {
            return Put::TooLong;
        }
        if self.free.len() < pieces {
            if let Err(fault) = self.reclaim(memory) {
                return Put::Refused(fault);
            }
            if self.free.len() < pieces {
                return Put::Full;
            }
        }
        let head = self.write(memory, header, frame, pieces);
        self.make_available(memory, head, pieces as u16);
        Put::Done
    }

    /// Shows the device what is available; whether it wants to be kicked for that.
    fn show(&mut self, regions: &Regions) -> bool {
        let (old, new) = (self.shown, self.next);
        if old == new {
            return false;
        }
        // Release: slots, descriptors and buffers are there before the index.
        regions.memory(0).store_release_u16(self.begin + self.layout.available + INDEX, new);
        self.shown = new;
        self.wish(self.layout.used, USED).wants(regions, self.agreed, old, new)
    }

    fn unshown(&self) -> u16 {
        self.next.wrapping_sub(self.shown)
    }

    /// Asks the device to ring when something was used, or not to.
    fn interrupt(&self, regions: &Regions, wanted: bool) {
        self.wish(self.layout.available, 2).set(regions, self.agreed, wanted, self.seen);
    }

    fn position(&self) -> u16 {
        self.seen
    }
}
