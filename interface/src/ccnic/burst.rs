//! CC-NIC as one of the packet interfaces.

use conic_fabric::{Address, Core, lines_of};

use super::{Descriptor, Flags, Host, MAX_SEGMENTS, Nic, Policy};
use crate::burst::{HostQueue, NicQueue, Packet};

/// Packets that the NIC handles in one round.
const ROUND: usize = 32;

impl<C: Core, P: Policy> HostQueue for Host<C, P> {
    type Core = C;
    #[inline(always)]
    fn core(&self) -> &C {
        self.core()
    }
    #[inline(always)]
    fn buf_alloc(&mut self, bytes: u64, out: &mut [Address]) -> usize {
        self.buf_alloc(bytes, out)
    }
    #[inline(always)]
    fn buf_free(&mut self, buffers: &[Address]) {
        self.buf_free(buffers);
    }
    #[inline(always)]
    fn tx_burst(&mut self, packets: &[Packet]) -> usize {
        self.tx_burst(packets)
    }
    #[inline(always)]
    fn rx_burst(&mut self, out: &mut [Packet]) -> usize {
        self.rx_burst(out)
    }
}

/// A NIC's queue pair with the packets that are on their way through it.
#[derive(Debug)]
pub struct Wire<C, P> {
    nic: Nic<C, P>,
    /// Polled and not completed; `next` is the first that `take_frame` has not taken.
    polled: [Descriptor; ROUND],
    count: usize,
    next: usize,
    dropped: u64,
}

impl<C: Core, P: Policy> Wire<C, P> {
    /// Puts a NIC's queue pair to work.
    pub fn new(nic: Nic<C, P>) -> Wire<C, P> {
        Wire { nic, polled: [Descriptor::BLANK; ROUND], count: 0, next: 0, dropped: 0 }
    }

    /// The NIC's half.
    pub fn nic(&mut self) -> &mut Nic<C, P> {
        &mut self.nic
    }

    /// The NIC's half, given back.
    pub fn into_nic(self) -> Nic<C, P> {
        self.nic
    }

    /// Copies a packet's segments, one behind the other, to `to`.
    fn gather(&self, segments: &[Descriptor], to: Address) {
        let core = self.nic.core();
        let mut bytes = [0u8; 64];
        let mut at = to;
        for segment in segments {
            let mut done = 0;
            while done < u64::from(segment.length()) {
                let piece = (u64::from(segment.length()) - done).min(64) as usize;
                core.read_bytes(segment.address() + done, &mut bytes[..piece]);
                core.write_bytes(at, &bytes[..piece]);
                (done, at) = (done + piece as u64, at + piece as u64);
            }
        }
    }

    /// Copies the next polled packet into `frame`, as far as it fits, and returns its whole length.
    fn copy_frame(&mut self, frame: &mut [u8]) -> usize {
        let mut length = 0;
        loop {
            let segment = self.polled[self.next];
            let bytes = usize::from(segment.length());
            if let Some(space) = frame.get_mut(length..length + bytes) {
                self.nic.core().read_bytes(segment.address(), space);
            }
            length += bytes;
            self.next += 1;
            if !segment.has(Flags::NEXT) || self.next == self.count {
                return length;
            }
        }
    }

    /// Receives a packet of several segments, and says where it now is.
    #[inline(never)]
    fn receive_chain(&mut self, segments: &[Descriptor]) -> Option<Descriptor> {
        let length: u64 = segments.iter().map(|segment| u64::from(segment.length())).sum();
        let length = u16::try_from(length).ok()?;
        let to = self.nic.rx_alloc(u64::from(length))?;
        self.gather(segments, to);
        Some(Descriptor::new(to, length).with_metadata(segments[0].metadata))
    }
}

impl<C: Core, P: Policy> NicQueue for Wire<C, P> {
    #[inline(always)]
    fn turn_around(&mut self) -> usize {
        let room = self.nic.rx_room(ROUND).min(ROUND);
        if room < MAX_SEGMENTS {
            return 0;
        }
        let mut polled = [Descriptor::BLANK; ROUND];
        let count = self.nic.poll_tx(&mut polled[..room]);
        if count == 0 {
            // Packets may have been refused; their slots go back.
            self.nic.complete_tx(&[]);
            return 0;
        }
        let mut delivered = [Descriptor::BLANK; ROUND];
        let mut deliver = 0;
        let mut start = 0;
        while start < count {
            let packet = polled[start];
            let received = if packet.has(Flags::NEXT) {
                let last = polled[start..count].iter().position(|segment| !segment.has(Flags::NEXT)).unwrap_or(0);
                let segments = &polled[start..=start + last];
                start += last + 1;
                self.receive_chain(segments)
            } else {
                start += 1;
                self.nic.rx_alloc(u64::from(packet.length())).map(|to| {
                    let (from, length) = (packet.address(), packet.length());
                    if from.is_line_aligned() {
                        self.nic.core().copy_lines(from, to, lines_of(u64::from(length)));
                    } else {
                        self.gather(&[packet], to);
                    }
                    Descriptor::new(to, length).with_metadata(packet.metadata)
                })
            };
            match received {
                Some(packet) => {
                    delivered[deliver] = packet;
                    deliver += 1;
                }
                None => self.dropped += 1,
            }
        }
        let sent = self.nic.rx_burst(&delivered[..deliver]);
        debug_assert_eq!(sent, deliver, "room was asked for before");
        self.nic.complete_tx(&polled[..count]);
        count
    }

    fn take_frame(&mut self, frame: &mut [u8]) -> Option<usize> {
        if self.next == self.count {
            self.nic.complete_tx(&self.polled[..self.count]);
            self.next = 0;
            self.count = self.nic.poll_tx(&mut self.polled);
        }
        // One round's packets at most, however many of them are too long.
        while self.next < self.count {
            let length = self.copy_frame(frame);
            if length <= frame.len() {
                return Some(length);
            }
            self.dropped += 1;
        }
        None
    }

    fn deliver_frame(&mut self, frame: &[u8]) -> bool {
        if self.nic.rx_room(1) == 0 {
            return false;
        }
        let length = match u16::try_from(frame.len()) {
            Ok(length) if length > 0 && self.nic.holds(u64::from(length)) => length,
            _ => {
                self.dropped += 1;
                return true;
            }
        };
        let Some(at) = self.nic.rx_alloc(u64::from(length)) else { return false };
        self.nic.core().write_bytes(at, frame);
        if self.nic.rx_burst(&[Descriptor::new(at, length)]) == 1 {
            return true;
        }
        self.nic.rx_free(at);
        false
    }

    #[inline(always)]
    fn spin(&self) {
        self.nic.core().spin();
    }

    fn refused(&self) -> u64 {
        self.nic.faults().total()
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}
