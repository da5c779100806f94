//! One queue of a fast-path thread: buffers to be filled, and packets that wait for room in the ring.

use conic_fabric::{Address, Core, Line};
use conic_interface::burst::{HostQueue, Packet, Waiting, receive_whole};

use super::WORK_HEADER;
use super::burst::{BURST, Burst};
use crate::segment::{HEADER_BYTES, MOST_PAYLOAD};

/// Bytes of a frame that a small buffer holds: CC-NIC's are 128 bytes (CC-NIC section 3.3).
const SMALL_BYTES: u16 = 128;

/// Blank buffers of one size, taken from the interface a burst at a time.
#[derive(Debug)]
struct Blank {
    bytes: u64,
    buffers: [Address; BURST],
    count: usize,
}

impl Blank {
    fn new(bytes: u16) -> Blank {
        Blank { bytes: bytes.into(), buffers: [Address(0); BURST], count: 0 }
    }

    fn take(&mut self, queue: &mut impl HostQueue) -> Option<Address> {
        if self.count == 0 {
            self.count = queue.buf_alloc(self.bytes, &mut self.buffers);
        }
        self.count = self.count.checked_sub(1)?;
        Some(self.buffers[self.count])
    }
}

/// A queue.
#[derive(Debug)]
pub(super) struct Port<Q> {
    queue: Q,
    small: Blank,
    large: Blank,
    packets: Waiting,
}

impl<Q: HostQueue> Port<Q> {
    pub fn new(queue: Q) -> Port<Q> {
        let (small, large) = (Blank::new(SMALL_BYTES), Blank::new(HEADER_BYTES + MOST_PAYLOAD));
        Port { queue, small, large, packets: Waiting::default() }
    }

    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Receives a burst; a packet that the other half named wrongly is no segment.
    pub fn receive(&mut self, burst: &mut Burst) -> usize {
        receive_whole(&mut self.queue, &mut burst.packets)
    }

    /// Gives buffers back.
    pub fn free(&mut self, buffers: &[Address]) {
        if !buffers.is_empty() {
            self.queue.buf_free(buffers);
        }
    }

    /// A buffer for a frame of so many bytes; none where the interface has none, or too many packets wait already.
    pub fn blank(&mut self, bytes: u16) -> Option<Address> {
        if self.packets.len() >= 2 * BURST {
            return None;
        }
        let blank = if bytes <= SMALL_BYTES { &mut self.small } else { &mut self.large };
        blank.take(&mut self.queue)
    }

    /// Has a packet sent.
    pub fn put(&mut self, packet: Packet) {
        self.packets.push(packet);
    }

    /// Writes an acknowledgement over a packet that came, and has it sent.
    pub fn acknowledge_in(&mut self, packet: Packet, header: &Line) {
        self.queue.core().work(WORK_HEADER);
        self.queue.core().write_line(packet.address(), header);
        self.packets.push(Packet::new(packet.address(), HEADER_BYTES));
    }

    /// Sends what waits, and returns how many packets were taken.
    pub fn send(&mut self) -> usize {
        self.packets.send(&mut self.queue)
    }
}
