//! The rings of a packet socket, as version 2 lays them out.
//!
//! | who owns a slot | receive ring: status | transmit ring: status |
//! |---|---|---|
//! | this process | bit 0 (USER) is set | 0 (AVAILABLE), or bit 2 (WRONG FORMAT) |
//! | the kernel | bit 0 is clear | bit 0 (SEND REQUEST) or bit 1 (SENDING) |
//!
//! A slot changes hands by its status alone, which is read with acquire and written with release.

use conic_native::Mapping;

use crate::offload::virtio::{HEADER_BYTES, Metadata};
use crate::offload::vlan::Tag;

/// Offsets in a slot's header: `struct tpacket2_hdr`.
const STATUS: usize = 0;
const LENGTH: usize = 4;
const CAPTURED: usize = 8;
const DATA: usize = 12;
const TAG_CONTROL: usize = 24;
const TAG_KIND: usize = 26;

/// Where a frame to transmit begins in its slot: behind `struct tpacket2_hdr`, aligned to 16.
const TRANSMIT_DATA: usize = 32;
/// Bytes before a received frame at most: the header, a `sockaddr_ll`, alignment, a virtio header, 16 of hardware header.
const BEFORE_RECEIVED: usize = 128;

const USER: u32 = 1;
const LOSING: u32 = 4;
const TAG_VALID: u32 = 1 << 4;
const TAG_KIND_VALID: u32 = 1 << 6;

const AVAILABLE: u32 = 0;
const SEND_REQUEST: u32 = 1;
const WRONG_FORMAT: u32 = 4;

const PAGE: usize = 4096;
/// Blocks are pieces of contiguous memory, of which a machine that has run long has few large ones.
const BLOCK: usize = 128 * 1024;

/// How the rings lie in memory: first the receive ring, then the transmit ring, both alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) block_bytes: usize,
    pub(super) blocks: usize,
    pub(super) slot_bytes: usize,
    slots_per_block: usize,
}

impl Geometry {
    /// Rings of at least `frames` slots for frames of up to `longest` bytes.
    pub(super) fn of(longest: usize, frames: usize) -> Geometry {
        let slot_bytes = (longest + BEFORE_RECEIVED).next_multiple_of(64);
        let slot_bytes = if slot_bytes <= 2048 { slot_bytes.next_power_of_two() } else { slot_bytes };
        let block_bytes = BLOCK.max(slot_bytes.next_multiple_of(PAGE).next_power_of_two());
        let slots_per_block = block_bytes / slot_bytes;
        Geometry { block_bytes, blocks: frames.div_ceil(slots_per_block).max(1), slot_bytes, slots_per_block }
    }

    pub(super) fn slots(&self) -> usize {
        self.blocks * self.slots_per_block
    }

    /// Bytes of one ring.
    pub(super) fn bytes(&self) -> usize {
        self.blocks * self.block_bytes
    }

    fn at(&self, slot: usize) -> usize {
        slot / self.slots_per_block * self.block_bytes + slot % self.slots_per_block * self.slot_bytes
    }
}

/// A received frame in its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Where its bytes are.
    pub(super) at: usize,
    /// How many of them are there.
    pub(super) captured: usize,
    /// How many there were.
    pub(super) length: usize,
    /// `None` where the header has no meaning, or what the slot says lies outside of it.
    pub(super) metadata: Option<Metadata>,
    /// The tag that the kernel took out.
    pub(super) tag: Option<Tag>,
    /// The kernel has dropped frames since it was last asked.
    pub(super) losing: bool,
}

/// Both rings.
pub(super) struct Rings {
    memory: Mapping,
    geometry: Geometry,
    /// The slot that is received next.
    receive: usize,
    receive_at: usize,
    /// The slot that is filled next.
    transmit: usize,
    transmit_at: usize,
    malformed: u64,
}

impl Rings {
    pub(super) fn new(memory: Mapping, geometry: Geometry) -> Rings {
        let transmit_at = geometry.bytes();
        Rings { memory, geometry, receive: 0, receive_at: 0, transmit: 0, transmit_at, malformed: 0 }
    }

    /// Frames that one direction holds at most.
    pub(super) fn slots(&self) -> usize {
        self.geometry.slots()
    }

    /// The next received frame; it stays until [`Rings::release`].
    pub(super) fn received(&mut self) -> Option<Slot> {
        let base = self.receive_at;
        // Acquire: pairs with the kernel's release of the slot; what it says of the frame is read behind it.
        let status = self.memory.load_acquire_u32(base + STATUS);
        if status & USER == 0 {
            return None;
        }
        let data = usize::from(self.memory.load_u16(base + DATA));
        let captured = self.memory.load_u32(base + CAPTURED) as usize;
        let inside = data >= HEADER_BYTES && data + captured <= self.geometry.slot_bytes;
        let metadata = if inside {
            // By words: a load of what was stored in other pieces waits until all of it has reached the cache.
            let at = base + data - HEADER_BYTES;
            let mut header = [0; HEADER_BYTES];
            header[..8].copy_from_slice(&self.memory.read_u64(at).to_ne_bytes());
            header[8..].copy_from_slice(&self.memory.read_u16(at + 8).to_ne_bytes());
            Metadata::read(&header)
        } else {
            None
        };
        let tag = (status & TAG_VALID != 0).then(|| Tag {
            kind: if status & TAG_KIND_VALID != 0 { self.memory.load_u16(base + TAG_KIND) } else { 0x8100 },
            control: self.memory.load_u16(base + TAG_CONTROL),
        });
        let length = self.memory.load_u32(base + LENGTH) as usize;
        Some(Slot { at: base + data, captured, length, metadata, tag, losing: status & LOSING != 0 })
    }

    /// Copies a received frame.
    pub(super) fn read(&self, at: usize, into: &mut [u8]) {
        self.memory.read_bytes(at, into);
    }

    /// Gives the slot of the frame received last back to the kernel.
    pub(super) fn release(&mut self) {
        // Release: the frame has been read before the kernel may write over it.
        self.memory.store_release_u32(self.receive_at + STATUS, 0);
        self.receive += 1;
        if self.receive == self.geometry.slots() {
            self.receive = 0;
        }
        self.receive_at = self.geometry.at(self.receive);
    }

    /// Fills the next slot; `false` where the kernel still has it.
    pub(super) fn fill(&mut self, frame: &[u8]) -> bool {
        let base = self.transmit_at;
        // Acquire: pairs with the kernel's release of the slot, which it no longer reads.
        let status = self.memory.load_acquire_u32(base + STATUS);
        match status {
            AVAILABLE => {}
            // It was refused when it was sent; what to say of that is too late, but it is counted.
            status if status & WRONG_FORMAT != 0 => self.malformed += 1,
            _ => return false,
        }
        const { assert!(HEADER_BYTES == 8 + 2) };
        self.memory.write_u64(base + TRANSMIT_DATA, 0);
        self.memory.write_u16(base + TRANSMIT_DATA + 8, 0);
        self.memory.write_bytes(base + TRANSMIT_DATA + HEADER_BYTES, frame);
        self.memory.store_u32(base + LENGTH, (HEADER_BYTES + frame.len()) as u32);
        // Release: the frame and its length are there before the kernel may read them.
        self.memory.store_release_u32(base + STATUS, SEND_REQUEST);
        self.transmit += 1;
        if self.transmit == self.geometry.slots() {
            self.transmit = 0;
        }
        self.transmit_at = self.geometry.bytes() + self.geometry.at(self.transmit);
        true
    }

    /// The slot that was filled last, and where it lies.
    fn last_filled(&self) -> (usize, usize) {
        let slots = self.geometry.slots();
        let last = (self.transmit + slots - 1) % slots;
        (last, self.geometry.bytes() + self.geometry.at(last))
    }

    /// Whether the kernel has not begun with the frame that was filled in last.
    pub(super) fn is_waiting(&self) -> bool {
        // Acquire: as in `fill`.
        self.memory.load_acquire_u32(self.last_filled().1 + STATUS) == SEND_REQUEST
    }

    /// Takes back the slots that the kernel was asked to send and has not begun with, because the interface is down; gives
    /// the number of their frames, and the bytes of these.
    pub(super) fn take_back(&mut self) -> (u64, u64) {
        let (mut frames, mut bytes) = (0, 0);
        for _ in 0..self.geometry.slots() {
            let (before, at) = self.last_filled();
            // Acquire: as in `fill`. The kernel takes slots only in a call of ours, and none is in progress.
            if self.memory.load_acquire_u32(at + STATUS) != SEND_REQUEST {
                break;
            }
            // Release: as in `release`; nothing is to be seen before.
            self.memory.store_release_u32(at + STATUS, AVAILABLE);
            (self.transmit, self.transmit_at) = (before, at);
            frames += 1;
            // As `fill` wrote it: only the kernel has this memory too, and it changes no more than the status.
            bytes += u64::from(self.memory.load_u32(at + LENGTH)) - HEADER_BYTES as u64;
        }
        (frames, bytes)
    }

    /// Frames that the kernel refused as malformed when it was to send them.
    pub(super) fn malformed(&self) -> u64 {
        self.malformed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_lie_in_their_blocks_and_do_not_overlap() {
        for (longest, frames) in [(1522, 256), (9600, 256), (65_557, 64), (1522, 16), (5000, 1)] {
            let geometry = Geometry::of(longest, frames);
            assert!(geometry.slots() >= frames && geometry.block_bytes.is_power_of_two());
            assert_eq!(geometry.slot_bytes % 16, 0);
            let mut end = 0;
            for slot in 0..geometry.slots() {
                let at = geometry.at(slot);
                assert!(at >= end, "slot {slot} of {geometry:?}");
                assert_eq!(at / geometry.block_bytes, (at + geometry.slot_bytes - 1) / geometry.block_bytes);
                end = at + geometry.slot_bytes;
            }
            assert!(end <= geometry.bytes());
        }
    }

    #[test]
    fn what_a_slot_says_is_checked_against_its_bounds() {
        let geometry = Geometry::of(1522, 16);
        let room = geometry.slot_bytes as u32 - 76;
        for (data, captured, good) in [
            (76, 60, true),
            (9, 60, false),
            (76, room, true),
            (76, room + 1, false),
            (76, 2000, false),
            (65_535, 1, false),
        ] {
            let memory = Mapping::anonymous(2 * geometry.bytes()).expect("memory");
            memory.store_u16(DATA, data);
            memory.store_u32(CAPTURED, captured);
            memory.store_u32(LENGTH, captured);
            memory.store_u32(STATUS, USER);
            let mut rings = Rings::new(memory, geometry);
            let slot = rings.received().expect("a frame");
            assert_eq!(slot.metadata.is_some(), good, "{data} {captured}");
            rings.release();
            assert!(rings.received().is_none());
        }
    }

    #[test]
    fn a_full_ring_says_so_and_unsent_slots_come_back() {
        let geometry = Geometry::of(1522, 16);
        let memory = Mapping::anonymous(2 * geometry.bytes()).expect("memory");
        let mut rings = Rings::new(memory, geometry);
        let (mut filled, mut bytes) = (0, 0);
        while rings.fill(&[7; 100][..60 + filled as usize % 40]) {
            bytes += 60 + filled % 40;
            filled += 1;
        }
        assert_eq!((filled, rings.take_back()), (geometry.slots() as u64, (filled, bytes)));
        assert_eq!(rings.take_back(), (0, 0));
        assert!(rings.fill(&[7; 60]));
    }

    #[test]
    fn a_slot_that_the_kernel_refused_is_counted_and_filled_again_with_nothing_before_the_frame() {
        let geometry = Geometry::of(1522, 16);
        let memory = Mapping::anonymous(2 * geometry.bytes()).expect("memory");
        let mut rings = Rings::new(memory, geometry);
        let first = geometry.bytes();
        rings.memory.write_bytes(first + TRANSMIT_DATA, &[0xff; HEADER_BYTES]);
        while rings.fill(&[7; 60]) {}
        let mut header = [1; HEADER_BYTES];
        rings.memory.read_bytes(first + TRANSMIT_DATA, &mut header);
        assert_eq!(header, [0; HEADER_BYTES], "the kernel would do what is asked for there");
        rings.memory.store_u32(first + STATUS, WRONG_FORMAT);
        assert!(rings.fill(&[7; 60]) && !rings.fill(&[7; 60]));
        assert_eq!((rings.malformed(), rings.memory.load_u32(first + STATUS)), (1, SEND_REQUEST));
    }
}
