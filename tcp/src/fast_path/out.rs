//! One queue of a fast-path thread: buffers to be filled, and packets that wait for room in the ring.

use conic_fabric::{Address, Core, LINE_BYTES, Line};
use conic_interface::burst::{HostQueue, Packet};

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
    /// Packets to be sent, from `sent` on.
    packets: Vec<Packet>,
    sent: usize,
}

impl<Q: HostQueue> Port<Q> {
    pub fn new(queue: Q) -> Port<Q> {
        let (small, large) = (Blank::new(SMALL_BYTES), Blank::new(HEADER_BYTES + MOST_PAYLOAD));
        Port { queue, small, large, packets: Vec::with_capacity(2 * BURST), sent: 0 }
    }

    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Receives a burst. The other half named its packets: what is in no buffer, or not all of it with a whole line, is taken for a
    /// packet of no bytes, which is no segment.
    pub fn receive(&mut self, burst: &mut Burst) -> usize {
        let count = self.queue.rx_burst(&mut burst.packets);
        for packet in &mut burst.packets[..count] {
            if self.queue.bytes_to_end(packet.address()) < u64::from(packet.length()).max(LINE_BYTES) {
                *packet = Packet::new(packet.address(), 0);
            }
        }
        count
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
        if self.packets.is_empty() {
            return 0;
        }
        let count = self.queue.tx_burst(&self.packets[self.sent..]);
        self.sent += count;
        if self.sent == self.packets.len() {
            self.packets.clear();
            self.sent = 0;
        }
        count
    }
}
