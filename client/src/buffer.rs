//! Owned packet buffers.

use std::sync::Arc;

use conic_fabric::{Address, Core};
use conic_interface::burst::Packet;
use conic_interface::ccnic::Flags;
use conic_interface::metadata::Metadata;

use crate::session::Region;

/// A packet in shared memory that this process owns: nobody else writes it. Dropping it frees it; sending it hands it over, and
/// the compiler refuses to touch it afterwards:
///
/// ```compile_fail
/// # fn send(mut queue: conic_client::Queue, frame: conic_client::Buffer) {
/// let mut outgoing = vec![frame];
/// queue.transmit(&mut outgoing);
/// frame.len();
/// # }
/// ```
#[derive(Debug)]
pub struct Buffer {
    at: Address,
    length: u16,
    capacity: u16,
    metadata: Metadata,
    has_next: bool,
    /// None once it was handed over.
    region: Option<Arc<Region>>,
}

impl Buffer {
    pub(crate) fn new(region: &Arc<Region>, packet: Packet) -> Buffer {
        let at = packet.address();
        let capacity = u16::try_from(region.capacity_at(at)).unwrap_or(u16::MAX);
        Buffer {
            at,
            length: packet.length(),
            capacity,
            metadata: Metadata(packet.metadata),
            has_next: packet.has(Flags::NEXT),
            region: Some(Arc::clone(region)),
        }
    }

    /// The packet, for whoever takes it over from here. Its address means something in its own region alone.
    pub(crate) fn packet(&self) -> Packet {
        let packet = Packet::new(self.at, self.length).with_metadata(self.metadata.0);
        if self.has_next { packet.with(Flags::NEXT) } else { packet }
    }

    pub(crate) fn is_of(&self, region: &Arc<Region>) -> bool {
        self.region.as_ref().is_some_and(|own| Arc::ptr_eq(own, region))
    }

    /// Hands the memory over: it is not freed any more.
    pub(crate) fn release(mut self) {
        self.region = None;
    }

    pub(crate) fn region(&self) -> &Region {
        self.region.as_ref().expect("a buffer that was not handed over")
    }

    /// Bytes of the packet.
    pub fn len(&self) -> usize {
        usize::from(self.length)
    }

    /// Whether it has no bytes; such a packet cannot be sent.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The most bytes that there is room for.
    pub fn capacity(&self) -> usize {
        usize::from(self.capacity)
    }

    /// Sets the packet's length; what lies beyond what was written is unspecified.
    ///
    /// # Panics
    ///
    /// Beyond its capacity: a mistake of the program.
    pub fn set_len(&mut self, length: usize) {
        assert!(length <= self.capacity(), "a buffer of {} bytes has no room for {length}", self.capacity);
        self.length = length as u16;
    }

    /// Takes bytes away from the packet's front, as a header that was looked at; they cannot come back.
    ///
    /// # Panics
    ///
    /// If it has fewer: a mistake of the program.
    pub fn trim_front(&mut self, count: usize) {
        let cut = u16::try_from(count).ok().filter(|cut| *cut <= self.length);
        let cut = cut.unwrap_or_else(|| panic!("a packet of {} bytes has no {count} to take away", self.length));
        // Not beyond the buffer's last byte, where the next buffer begins, which would be freed instead.
        let moved = cut.min(self.capacity.saturating_sub(1));
        self.at = self.at + u64::from(moved);
        self.length -= cut;
        self.capacity -= moved;
    }

    /// Makes the packet what `bytes` are.
    ///
    /// # Panics
    ///
    /// If they are more than its capacity.
    pub fn fill(&mut self, bytes: &[u8]) {
        self.set_len(bytes.len());
        self.write(0, bytes);
    }

    /// Writes some of the packet's bytes.
    ///
    /// # Panics
    ///
    /// If they do not all lie within its length.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.check(at, bytes.len());
        self.region().core.write_bytes(self.at + at as u64, bytes);
    }

    /// Reads some of the packet's bytes.
    ///
    /// # Panics
    ///
    /// If they do not all lie within its length.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        self.check(at, into.len());
        self.region().core.read_bytes(self.at + at as u64, into);
    }

    /// A copy of the packet.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes);
        bytes
    }

    fn check(&self, at: usize, count: usize) {
        let fits = at.checked_add(count).is_some_and(|end| end <= self.len());
        assert!(fits, "{count} bytes at {at} do not lie in a packet of {} bytes", self.length);
    }

    /// What the NIC said of the packet, or is told. See [`crate::Offloads`].
    pub fn metadata(&self) -> Metadata {
        self.metadata
    }

    /// Tells the NIC something of the packet, or asks it for something. See [`crate::Offloads`].
    pub fn set_metadata(&mut self, metadata: Metadata) {
        self.metadata = metadata;
    }

    /// Whether the packet goes on in the next buffer. One of several segments has at most [`crate::MAX_SEGMENTS`], and its metadata
    /// with the first. The NIC gives such packets to clients that take joined or unfinished ones ([`crate::Offloads`]), for whom
    /// one packet may stand for several and be longer than any buffer.
    pub fn has_next(&self) -> bool {
        self.has_next
    }

    /// Makes the packet go on in the next buffer, or end here.
    pub fn set_has_next(&mut self, has_next: bool) {
        self.has_next = has_next;
    }

    /// Where the packet's first byte lies in this process; it is there as long as the buffer is.
    pub fn pointer(&self) -> *mut u8 {
        self.region().pointer(self.at)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(region) = &self.region {
            region.give_back(self.at);
        }
    }
}
