//! The rings that a socket shares with the kernel: the fill and transmit rings, in which this process produces, and the
//! receive and completion rings, in which it consumes.
//!
//! A ring's two indexes count on for ever; entries lie at the index modulo the ring's size. The producer's index is written
//! with release behind the entries and read with acquire before them, the consumer's the other way round.

use conic_native::Mapping;

/// Where a ring's parts lie in its mapping, as the kernel says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    pub(super) producer: usize,
    pub(super) consumer: usize,
    pub(super) entries: usize,
    pub(super) flags: usize,
}

/// The kernel is to be told by a call that there is something in this ring.
const NEED_WAKEUP: u32 = 1;

/// A packet, or a piece of one, in the receive or transmit ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) length: u32,
    /// Whether the packet goes on in the next descriptor.
    pub(super) more: bool,
}

/// The packet goes on in the next descriptor: `XDP_PKT_CONTD`.
const CONTINUED: u32 = 1;
/// Bytes of a descriptor.
pub(super) const DESCRIPTOR: usize = 16;
/// Bytes of an address, the entries of the other two rings.
pub(super) const ADDRESS: usize = 8;

struct Ring {
    memory: Mapping,
    offsets: Offsets,
    size: u32,
}

impl Ring {
    fn entry(&self, index: u32, bytes: usize) -> usize {
        self.offsets.entries + (index & (self.size - 1)) as usize * bytes
    }

    fn needs_wakeup(&self) -> bool {
        self.memory.load_u32(self.offsets.flags) & NEED_WAKEUP != 0
    }
}

/// A ring in which this process produces.
pub(super) struct Producer {
    ring: Ring,
    /// Up to where entries have been written; the kernel knows of those before `published`.
    next: u32,
    published: u32,
    /// The kernel was shown something since it was last looked whether it sleeps.
    unasked: bool,
    /// The consumer's index when it was last read.
    consumed: u32,
}

impl Producer {
    pub(super) fn new(memory: Mapping, offsets: Offsets, size: u32) -> Producer {
        // Where whoever had the ring before stopped; zero in a new one. Acquire: the kernel has read the entries before its index.
        let (next, consumed) = (memory.load_u32(offsets.producer), memory.load_acquire_u32(offsets.consumer));
        Producer { ring: Ring { memory, offsets, size }, next, published: next, unasked: false, consumed }
    }

    /// Whether `wanted` entries fit.
    pub(super) fn has_room(&mut self, wanted: u32) -> bool {
        let room = |consumed: u32, next: u32, size: u32| size.saturating_sub(next.wrapping_sub(consumed));
        if room(self.consumed, self.next, self.ring.size) >= wanted {
            return true;
        }
        // Acquire: the kernel has read the entries before it says so.
        self.consumed = self.ring.memory.load_acquire_u32(self.ring.offsets.consumer);
        room(self.consumed, self.next, self.ring.size) >= wanted
    }

    pub(super) fn put_address(&mut self, address: u64) {
        self.ring.memory.store_u64(self.ring.entry(self.next, ADDRESS), address);
        self.next = self.next.wrapping_add(1);
    }

    pub(super) fn put(&mut self, descriptor: Descriptor) {
        let at = self.ring.entry(self.next, DESCRIPTOR);
        self.ring.memory.store_u64(at, descriptor.address);
        self.ring.memory.store_u32(at + 8, descriptor.length);
        self.ring.memory.store_u32(at + 12, if descriptor.more { CONTINUED } else { 0 });
        self.next = self.next.wrapping_add(1);
    }

    /// Shows the kernel what has been put; gives how much that was.
    pub(super) fn publish(&mut self) -> u32 {
        let count = self.next.wrapping_sub(self.published);
        if count > 0 {
            // Release: the entries, and the frames that they name, are there before the kernel may read them.
            self.ring.memory.store_release_u32(self.ring.offsets.producer, self.next);
            self.published = self.next;
            self.unasked = true;
        }
        count
    }

    /// How many entries have been put and not been shown.
    pub(super) fn unpublished(&self) -> u32 {
        self.next.wrapping_sub(self.published)
    }

    /// Whether the kernel sleeps, and must be told of what was published.
    pub(super) fn needs_wakeup(&mut self) -> bool {
        if self.unasked {
            // Full: the index is shown before the flag is read, or both sides might wait for each other.
            self.ring.memory.full_fence();
            self.unasked = false;
        }
        self.ring.needs_wakeup()
    }
}

/// A ring in which this process consumes.
pub(super) struct Consumer {
    ring: Ring,
    next: u32,
    released: u32,
    /// The producer's index when it was last read.
    produced: u32,
}

impl Consumer {
    pub(super) fn new(memory: Mapping, offsets: Offsets, size: u32) -> Consumer {
        // Where whoever had the ring before stopped; zero in a new one.
        let next = memory.load_u32(offsets.consumer);
        Consumer { ring: Ring { memory, offsets, size }, next, released: next, produced: next }
    }

    fn available(&mut self) -> bool {
        if self.next != self.produced {
            return true;
        }
        // Acquire: pairs with the kernel's release behind the entries and the frames that they name.
        self.produced = self.ring.memory.load_acquire_u32(self.ring.offsets.producer);
        self.next != self.produced
    }

    pub(super) fn take_address(&mut self) -> Option<u64> {
        if !self.available() {
            return None;
        }
        let address = self.ring.memory.load_u64(self.ring.entry(self.next, ADDRESS));
        self.next = self.next.wrapping_add(1);
        Some(address)
    }

    pub(super) fn take(&mut self) -> Option<Descriptor> {
        if !self.available() {
            return None;
        }
        let at = self.ring.entry(self.next, DESCRIPTOR);
        let options = self.ring.memory.load_u32(at + 12);
        let descriptor = Descriptor {
            address: self.ring.memory.load_u64(at),
            length: self.ring.memory.load_u32(at + 8),
            more: options & CONTINUED != 0,
        };
        self.next = self.next.wrapping_add(1);
        Some(descriptor)
    }

    /// Gives back to the kernel the room of what has been taken.
    pub(super) fn release(&mut self) {
        if self.released != self.next {
            // Release: the entries have been read before the kernel may write over them.
            self.ring.memory.store_release_u32(self.ring.offsets.consumer, self.next);
            self.released = self.next;
        }
    }

    /// How much has been taken and not been given back.
    pub(super) fn unreleased(&self) -> u32 {
        self.next.wrapping_sub(self.released)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_producer_and_a_consumer_of_one_memory_pass_entries_in_order_over_the_wrap_of_the_indexes() {
        let (ours, descriptor) = Mapping::sealed(4096).expect("a page");
        let theirs = Mapping::of(descriptor.as_fd(), 4096, 0).expect("the same page");
        let offsets = Offsets { producer: 0, consumer: 64, entries: 128, flags: 4 };
        let (mut producer, mut consumer) = (Producer::new(ours, offsets, 8), Consumer::new(theirs, offsets, 8));
        for index in [0, u32::MAX - 20] {
            (producer.next, producer.published, producer.consumed) = (index, index, index);
            (consumer.next, consumer.released, consumer.produced) = (index, index, index);
            producer.ring.memory.store_u32(0, index);
            producer.ring.memory.store_u32(64, index);
            for round in 0..10u64 {
                assert!(producer.has_room(8) && !producer.has_room(9));
                for number in 0..8 {
                    producer.put(Descriptor { address: round * 8 + number, length: 60, more: number % 3 == 0 });
                }
                assert!(!producer.has_room(1) && consumer.take().is_none(), "not shown yet");
                assert_eq!((producer.unpublished(), producer.publish(), producer.publish()), (8, 8, 0));
                for number in 0..8 {
                    let expected = Descriptor { address: round * 8 + number, length: 60, more: number % 3 == 0 };
                    assert_eq!(consumer.take(), Some(expected));
                }
                assert!(consumer.take().is_none() && !producer.has_room(1), "not given back yet");
                assert_eq!(consumer.unreleased(), 8);
                consumer.release();
            }
        }
        assert!(!producer.needs_wakeup());
        producer.ring.memory.store_u32(4, NEED_WAKEUP);
        assert!(producer.needs_wakeup());
    }

    #[test]
    fn whoever_goes_on_with_a_ring_begins_where_the_one_before_stopped() {
        let offsets = Offsets { producer: 0, consumer: 64, entries: 128, flags: 4 };
        let memory = || {
            let memory = Mapping::anonymous(4096).expect("a page");
            // Three of eight are under way.
            memory.store_u32(offsets.producer, 20);
            memory.store_u32(offsets.consumer, 17);
            memory
        };
        let mut producer = Producer::new(memory(), offsets, 8);
        assert_eq!((producer.unpublished(), producer.publish()), (0, 0));
        assert!(producer.has_room(5) && !producer.has_room(6));
        producer.put_address(77);
        assert_eq!((producer.publish(), producer.ring.memory.load_u32(offsets.producer)), (1, 21));
        assert_eq!(producer.ring.memory.load_u64(producer.ring.entry(20, ADDRESS)), 77);
        let mut consumer = Consumer::new(memory(), offsets, 8);
        assert_eq!(consumer.unreleased(), 0);
        assert_eq!(std::iter::from_fn(|| consumer.take_address()).count(), 3);
        consumer.release();
        assert_eq!(consumer.ring.memory.load_u32(offsets.consumer), 20);
    }
}
