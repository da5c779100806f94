//! The ring as one of the packet interfaces.

use conic_fabric::{Address, Core, Device};

use super::host::{Buffer, Host, Segment};
use super::{Nic, NoBuffer, Shape};
use crate::burst::{HostQueue, NicQueue, Packet};
use crate::ccnic::Flags;

/// Packets that are handed over at once.
const ROUND: usize = 32;

impl<C: Core> HostQueue for Host<C> {
    type Core = C;
    #[inline(always)]
    fn core(&self) -> &C {
        self.core()
    }
    #[inline(always)]
    fn buf_alloc(&mut self, bytes: u64, out: &mut [Address]) -> usize {
        if bytes > self.buffer_bytes() {
            return 0;
        }
        let mut count = 0;
        for space in out.chunks_mut(ROUND) {
            let mut buffers = [Buffer::default(); ROUND];
            let taken = self.buf_alloc(&mut buffers[..space.len()]);
            for (at, buffer) in space.iter_mut().zip(&buffers[..taken]) {
                *at = buffer.address;
            }
            count += taken;
            if taken < space.len() {
                break;
            }
        }
        count
    }
    #[inline(always)]
    fn buf_free(&mut self, buffers: &[Address]) {
        for &address in buffers {
            self.buf_free(&[Buffer { address, length: 0 }]);
        }
    }
    #[inline(always)]
    fn tx_burst(&mut self, packets: &[Packet]) -> usize {
        // One look at all of them, so that plain packets cost no more than that.
        let all = packets.iter().fold(Packet::BLANK, |all, packet| Packet { word: all.word | packet.word, ..all });
        if all.has(Flags::NEXT | Flags::RETAIN) {
            return self.send_segments(packets);
        }
        self.send(packets, |packet| Segment {
            address: packet.address().0,
            length: packet.length().into(),
            goes_on: false,
            retained: false,
        })
    }
    #[inline(always)]
    fn rx_burst(&mut self, out: &mut [Packet]) -> usize {
        let mut count = 0;
        for space in out.chunks_mut(ROUND) {
            let mut buffers = [Buffer::default(); ROUND];
            let received = self.rx_burst(&mut buffers[..space.len()]);
            for (packet, buffer) in space.iter_mut().zip(&buffers[..received]) {
                // A buffer, and so a packet in one, is at most 2^16 - 64 bytes (`Wire::new` sees to it).
                *packet = Packet::new(buffer.address, buffer.length as u16);
            }
            count += received;
            if received < space.len() {
                break;
            }
        }
        count
    }
    #[inline(always)]
    fn bytes_to_end(&self, at: Address) -> u64 {
        self.bytes_to_end(at)
    }
}

impl<C: Core> Host<C> {
    /// Sends packets of which some have several segments, or are retained.
    #[inline(never)]
    fn send_segments(&mut self, packets: &[Packet]) -> usize {
        self.send(packets, |packet| Segment {
            address: packet.address().0,
            length: packet.length().into(),
            goes_on: packet.has(Flags::NEXT),
            retained: packet.has(Flags::RETAIN),
        })
    }
}

/// The device's half of a queue pair of rings, as whoever has frames uses it.
pub trait DeviceHalf {
    /// The device it runs on.
    type Device: Device;
    /// The device it runs on.
    fn device(&self) -> &Self::Device;
    /// Looks for packets to send and asks for their payloads; zero if none may be taken now.
    fn poll_tx(&mut self) -> usize;
    /// Takes the next packet to send into the front of `into`, and returns its length. None where it has not come: all of it, or the
    /// rest of what is in `into` then, and the next call must come with the same `into`, unchanged.
    fn take_tx(&mut self, into: &mut [u8]) -> Option<usize>;
    /// Whether [`DeviceHalf::take_tx`] would take a packet.
    fn has_next_tx(&self) -> bool;
    /// Writes a received packet into the next posted buffer, for the host to see from the next flush on; counts and drops one that
    /// no buffer holds.
    ///
    /// # Errors
    ///
    /// If no buffer is there now; the packet may be offered again.
    fn rx_push(&mut self, packet: &[u8]) -> Result<(), NoBuffer>;
    /// Tells the host of what was sent and received, once a burst.
    fn flush(&mut self);
    /// How often the host did wrong.
    fn refused_of_host(&self) -> u64;
    /// Received packets that were dropped.
    fn dropped_here(&self) -> u64;
}

impl<D: Device> DeviceHalf for Nic<D> {
    type Device = D;
    #[inline(always)]
    fn device(&self) -> &D {
        self.device()
    }
    #[inline(always)]
    fn poll_tx(&mut self) -> usize {
        self.poll_tx()
    }
    #[inline(always)]
    fn take_tx(&mut self, into: &mut [u8]) -> Option<usize> {
        self.take_tx(into)
    }
    #[inline(always)]
    fn has_next_tx(&self) -> bool {
        self.next_tx_length().is_some()
    }
    #[inline(always)]
    fn rx_push(&mut self, packet: &[u8]) -> Result<(), NoBuffer> {
        self.rx_push(packet)
    }
    #[inline(always)]
    fn flush(&mut self) {
        self.flush();
    }
    fn refused_of_host(&self) -> u64 {
        self.refusals().by_host()
    }
    fn dropped_here(&self) -> u64 {
        self.refusals().rx_length
    }
}

/// A device half with room for the frame that is on its way through it.
#[derive(Debug)]
pub struct Wire<N> {
    nic: N,
    frame: Box<[u8]>,
    /// Bytes of a frame that was taken and finds no blank buffer yet.
    held: Option<usize>,
    /// Packets that are handled in a round at most.
    round: usize,
    dropped: u64,
}

impl<N: DeviceHalf> Wire<N> {
    /// Puts a device half to work.
    ///
    /// # Panics
    ///
    /// If a buffer holds more than a [`Packet`] can say.
    pub fn new(nic: N, shape: Shape) -> Wire<N> {
        assert!(shape.room() <= u64::from(u16::MAX), "a packet's length has 16 bits");
        Wire { nic, frame: vec![0; shape.longest_packet() as usize].into(), held: None, round: ROUND, dropped: 0 }
    }

    /// The device half.
    pub fn nic(&mut self) -> &mut N {
        &mut self.nic
    }
}

impl<N: DeviceHalf> NicQueue for Wire<N> {
    #[inline(always)]
    fn turn_around(&mut self) -> usize {
        let mut count = 0;
        while count < self.round {
            if self.held.is_none() {
                if self.nic.poll_tx() == 0 {
                    break;
                }
                self.held = self.nic.take_tx(&mut self.frame);
            }
            let Some(length) = self.held else { break };
            if self.nic.rx_push(&self.frame[..length]).is_err() {
                break;
            }
            self.held = None;
            count += 1;
        }
        self.nic.flush();
        count
    }

    fn handle_at_most(&mut self, packets: usize) {
        self.round = packets.clamp(1, ROUND);
    }

    fn take_frame(&mut self, frame: &mut [u8]) -> Option<usize> {
        loop {
            let taken = if self.nic.poll_tx() == 0 { None } else { self.nic.take_tx(&mut self.frame) };
            // The host is told once a batch: its register's line is the dearest thing here.
            if !self.nic.has_next_tx() {
                self.nic.flush();
            }
            let length = taken?;
            match frame.get_mut(..length) {
                Some(space) => {
                    space.copy_from_slice(&self.frame[..length]);
                    return Some(length);
                }
                None => self.dropped += 1,
            }
        }
    }

    fn deliver_frame(&mut self, frame: &[u8]) -> bool {
        let delivered = self.nic.rx_push(frame).is_ok();
        self.nic.flush();
        delivered
    }

    fn deliver_frames(&mut self, frames: &[Vec<u8>]) -> usize {
        let delivered = frames.iter().take_while(|frame| self.nic.rx_push(frame).is_ok()).count();
        self.nic.flush();
        delivered
    }

    #[inline(always)]
    fn spin(&self) {
        self.nic.device().spin();
    }

    fn refused(&self) -> u64 {
        self.nic.refused_of_host()
    }

    fn dropped(&self) -> u64 {
        self.dropped + self.nic.dropped_here()
    }
}
