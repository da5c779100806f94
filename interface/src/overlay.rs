//! An overlay: a thread between one interface's NIC side and another one's host side, which copies packets from each to the other
//! (CC-NIC sections 4 and 5.1).
//!
//! An application on the first then reaches the network by whatever NIC the second one drives, and the cost of driving it is the overlay
//! thread's.

use conic_fabric::{Address, Core, LINE_BYTES};

use crate::burst::{HostQueue, NicQueue, Packet, fetch_ahead};

/// Packets that are copied at once, each way.
const BURST: usize = 32;

/// One overlay thread's work for a queue pair of each interface.
#[derive(Debug)]
pub struct Overlay<N, H> {
    above: N,
    below: H,
    /// Blank buffers of the interface below, and how many there are.
    blank: [Address; BURST],
    blanks: usize,
    /// Packets that are to be sent below, from `sent` up to `written`.
    leaving: [Packet; BURST],
    sent: usize,
    written: usize,
    /// Frames that are to be delivered above, from `delivered` up to `read`.
    arriving: Vec<Vec<u8>>,
    delivered: usize,
    read: usize,
    frame: Vec<u8>,
}

impl<N: NicQueue, H: HostQueue> Overlay<N, H> {
    /// Between the NIC's half of one queue pair and the host's half of another, for frames of up to `most` bytes.
    ///
    /// # Panics
    ///
    /// If the interface below has no buffer for such a frame: none would ever be sent.
    pub fn new(above: N, mut below: H, most: u16) -> Overlay<N, H> {
        let frame = vec![0; usize::from(most).next_multiple_of(LINE_BYTES as usize)];
        let mut blank = [Address(0); BURST];
        let blanks = below.buf_alloc(frame.len() as u64, &mut blank);
        assert!(blanks > 0, "no buffer below holds a frame of {most} bytes");
        Overlay {
            above,
            below,
            blank,
            blanks,
            leaving: [Packet::BLANK; BURST],
            sent: 0,
            written: 0,
            arriving: vec![Vec::new(); BURST],
            delivered: 0,
            read: 0,
            frame,
        }
    }

    /// The half above: what it refused and dropped.
    pub fn above(&self) -> &N {
        &self.above
    }

    /// The half below.
    pub fn below(&self) -> &H {
        &self.below
    }

    /// Copies what there is, a burst each way at most, and returns how many packets went on; spins where none did.
    pub fn step(&mut self) -> usize {
        let moved = self.send() + self.receive();
        if moved == 0 {
            self.below.core().spin();
        }
        moved
    }

    /// From above to below.
    fn send(&mut self) -> usize {
        if self.sent == self.written {
            (self.sent, self.written) = (0, 0);
            self.write();
        }
        if self.sent == self.written {
            return 0;
        }
        let count = self.below.tx_burst(&self.leaving[self.sent..self.written]);
        self.sent += count;
        count
    }

    /// Takes frames from above into buffers of the interface below.
    fn write(&mut self) {
        if self.blanks < BURST {
            // The largest size: whose frame comes next is not known before it is taken.
            self.blanks += self.below.buf_alloc(self.frame.len() as u64, &mut self.blank[self.blanks..]);
        }
        while self.blanks > 0
            && self.written < BURST
            && let Some(length) = self.above.take_frame(&mut self.frame)
        {
            self.blanks -= 1;
            let at = self.blank[self.blanks];
            self.below.core().write_bytes(at, &self.frame[..length]);
            self.leaving[self.written] = Packet::new(at, length as u16);
            self.written += 1;
        }
    }

    /// From below to above.
    fn receive(&mut self) -> usize {
        if self.delivered == self.read {
            (self.delivered, self.read) = (0, 0);
            self.read();
        }
        if self.delivered == self.read {
            return 0;
        }
        let count = self.above.deliver_frames(&self.arriving[self.delivered..self.read]);
        self.delivered += count;
        count
    }

    /// Takes frames from below, and gives their buffers back.
    fn read(&mut self) {
        let mut packets = [Packet::BLANK; BURST];
        self.read = self.below.rx_burst(&mut packets);
        let packets = &packets[..self.read];
        let core = self.below.core();
        for (index, (packet, frame)) in packets.iter().zip(&mut self.arriving).enumerate() {
            if let Some(next) = packets.get(index + 1) {
                fetch_ahead(core, next);
            }
            frame.resize(packet.length().into(), 0);
            core.read_bytes(packet.address(), frame);
        }
        let mut read = [Address(0); BURST];
        read.iter_mut().zip(packets).for_each(|(at, packet)| *at = packet.address());
        self.below.buf_free(&read[..packets.len()]);
    }
}
