//! The log of a migration: a bit for each page of a guest's memory that was written here, which whoever copies the machine away reads and clears.
//!
//! | what is written | is marked where | by which address |
//! |---|---|---|
//! | a packet, in the driver's buffers | all writes are logged (a feature) | the descriptors' own |
//! | a split ring's used part: slots, index, the wish for kicks | the ring's are (a flag of its addresses) | the one that comes with the flag |
//! | a packed ring's wish for kicks | the same | the same |
//! | a packed ring's descriptors | either | that of the region in which they lie |
//!
//! Nothing else is written in a guest's memory. A ring whose writes are logged is another kind of ring ([`Logged`]), which marks what the plain one
//! in it has done: those that are not logged know nothing of it. The log changes under the ring's lock, so that none is written behind the answer
//! to the message that took it away.
//!
//! Source: QEMU, docs/interop/vhost-user.rst, "Migration".

use std::sync::Arc;

use conic_native::{Held, Mapping};

use super::device_ring::DeviceRing;
use super::half::Side;
use super::memory::Regions;
use super::message::LogPlace;
use super::ring::{LONG_HEADER, Put, Taken};
use crate::peer::map_region;

/// Bytes of guest memory that a bit stands for.
const PAGE: u64 = 4096;

/// A frontend's log, mapped.
#[derive(Debug)]
pub struct Log {
    pub(super) place: LogPlace,
    memory: Mapping,
    /// Where in the mapping it begins.
    begin: usize,
    /// For a process that goes on with the session.
    pub(super) descriptor: Held,
}

impl Log {
    /// Maps a log, under the rules for any memory of a frontend's: one that could be cut would end this process.
    ///
    /// # Errors
    /// It is no memory of this size, or of more bytes than a port takes.
    pub(super) fn map(place: LogPlace, descriptor: Held, unsealed: bool, most_bytes: u64) -> Result<Log, &'static str> {
        if place.bytes == 0 || place.offset.checked_add(place.bytes).is_none() {
            return Err("the log is empty or has no end");
        }
        if place.bytes > most_bytes {
            return Err("the log is larger than the memory that this port takes");
        }
        let (memory, begin) = map_region(place.offset, place.bytes, &descriptor, unsealed)
            .map_err(|_| "the log is no memory of this size that is sealed against shrinking")?;
        Ok(Log { place, memory, begin, descriptor })
    }

    /// Whether there is a bit for each page of so many bytes from an address on.
    pub(super) fn covers(&self, address: u64, bytes: u64) -> bool {
        address.checked_add(bytes).is_some_and(|end| end.div_ceil(8 * PAGE) <= self.place.bytes)
    }

    /// Marks the pages of so many bytes from an address on, which have been written. Those for which there is no bit have been asked for before
    /// ([`Log::covers`]).
    ///
    /// A bit that is set already is set again. Seen set, it might be one that the reader has just taken, before it copies the page, and what
    /// was written here might come behind that copy; only a change of the byte itself is in one order with the reader's.
    pub(super) fn mark(&self, address: u64, bytes: u64) {
        let Some(last) = bytes.checked_sub(1).map(|more| address.saturating_add(more)) else { return };
        for page in address / PAGE..=last / PAGE {
            if page / 8 < self.place.bytes {
                self.memory.set_bits(self.begin + (page / 8) as usize, 1 << (page % 8));
            }
        }
    }
}

/// Where a ring's writes are marked.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    pub(super) log: Arc<Log>,
    /// Whether packets are.
    pub(super) is_of_packets: bool,
    /// By which address what the device uses is, if it is: the used part of a split ring, a packed one's wish.
    pub(super) used: Option<u64>,
    /// By which address the descriptors of a packed ring are.
    pub(super) descriptors: Option<u64>,
}

/// So many entries of a ring, from a place on, and perhaps from its beginning again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries {
    /// Bytes of each.
    pub(super) size: usize,
    pub(super) slots: u32,
    pub(super) place: u32,
    pub(super) count: u32,
}

impl Entries {
    /// Marks them in a ring that begins at an address.
    pub(super) fn mark(self, log: &Log, begin: u64) {
        let first = self.count.min(self.slots - self.place);
        for (place, count) in [(self.place, first), (0, self.count - first)] {
            log.mark(begin + self.size as u64 * u64::from(place), self.size as u64 * u64::from(count));
        }
    }
}

/// What a ring says of what it has written.
pub(super) trait Writes: Side {
    /// Where the packet went that was put last: the address and the length of each of its buffers, the last of which it may not have filled.
    fn buffers(&self) -> impl Iterator<Item = (u64, u32)>;
    /// Marks what was used since it stood at a position.
    fn mark_used(&self, pages: &Pages, from: u16);
    /// Marks by what it shows what was used.
    fn mark_shown(&self, pages: &Pages);
    /// Marks its wish.
    fn mark_wish(&self, pages: &Pages);
    /// Bytes of the header before a packet.
    fn header(&self) -> usize;
}

/// A ring whose writes are logged.
#[derive(Debug)]
pub struct Logged {
    /// One that is not.
    ring: DeviceRing,
    pages: Pages,
}

/// Does something with a ring of either kind, as of its own kind.
macro_rules! of_its_kind {
    ($ring:expr, $name:ident => $does:expr) => {
        match $ring {
            DeviceRing::Split($name) => $does,
            DeviceRing::Packed($name) => $does,
            // There is none within another.
            DeviceRing::Logged(_) => {}
        }
    };
}

impl Logged {
    /// A ring, logged.
    pub(super) fn new(ring: DeviceRing, pages: Pages) -> Logged {
        Logged { ring: ring.into_plain(), pages }
    }

    /// It, not logged.
    pub(super) fn into_plain(self) -> DeviceRing {
        self.ring
    }

    fn mark_packet(&self, ring: &impl Writes, frame: &[u8]) {
        let mut left = ring.header() + frame.len();
        for (address, length) in ring.buffers() {
            let part = left.min(length as usize);
            self.pages.log.mark(address, part as u64);
            left -= part;
        }
    }
}

impl Side for Logged {
    fn take(&mut self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &mut [u8]) -> Taken {
        let from = self.ring.position();
        let taken = self.ring.take(regions, header, frame);
        of_its_kind!(&self.ring, ring => ring.mark_used(&self.pages, from));
        taken
    }

    fn put(&mut self, regions: &Regions, header: &mut [u8; LONG_HEADER], frame: &[u8]) -> Put {
        let from = self.ring.position();
        let put = self.ring.put(regions, header, frame);
        if put == Put::Done && self.pages.is_of_packets {
            of_its_kind!(&self.ring, ring => self.mark_packet(ring, frame));
        }
        of_its_kind!(&self.ring, ring => ring.mark_used(&self.pages, from));
        put
    }

    fn show(&mut self, regions: &Regions) -> bool {
        let is_new = self.ring.unshown() > 0;
        let wants = self.ring.show(regions);
        if is_new {
            of_its_kind!(&self.ring, ring => ring.mark_shown(&self.pages));
        }
        wants
    }

    fn unshown(&self) -> u16 {
        self.ring.unshown()
    }

    fn interrupt(&self, regions: &Regions, wanted: bool) {
        self.ring.interrupt(regions, wanted);
        of_its_kind!(&self.ring, ring => ring.mark_wish(&self.pages));
    }

    fn position(&self) -> u16 {
        self.ring.position()
    }
}
