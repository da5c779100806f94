//! CC-NIC as one of the packet interfaces.

use conic_fabric::{Address, Core, lines_of};

use super::{Descriptor, Flags, Host, MAX_SEGMENTS, Map, Nic, Policy};
use crate::burst::{HostQueue, NicQueue, Packet, fetch_ahead};
use crate::{with_policy, work};

/// Packets that the NIC handles in one round at most.
pub(super) const ROUND: usize = 32;

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
    #[inline(always)]
    fn bytes_to_end(&self, at: Address) -> u64 {
        self.allocator().map().bytes_to_end(at)
    }
    fn completions(&mut self, out: &mut [Packet]) -> usize {
        self.completions(out)
    }
}

/// The host's half for switches that are known only when the program runs. A call through it costs an indirect jump a
/// burst; what is measured is compiled for its policy instead.
pub fn host_queue<'a, C: Core + 'a>(core: C, map: &Map, queue: usize) -> Box<dyn HostQueue<Core = C> + 'a> {
    with_policy!(map.features, P => Box::new(Host::<C, P>::new(core, map, queue)))
}

/// The NIC's half, likewise.
pub fn nic_queue<'a, C: Core + 'a>(core: C, map: &Map, queue: usize) -> Box<dyn NicQueue + 'a> {
    with_policy!(map.features, P => Box::new(Wire::new(Nic::<C, P>::new(core, map, queue))))
}

/// A NIC's queue pair with the packets that are on their way through it.
#[derive(Debug)]
pub struct Wire<C, P> {
    nic: Nic<C, P>,
    /// Polled and not completed, and a blank behind them; `next` is the first that `take_frame` has not taken.
    polled: [Descriptor; ROUND + 1],
    count: usize,
    next: usize,
    /// Room for what is to be delivered; kept, because clearing it anew costs more than a packet.
    delivered: [Descriptor; ROUND],
    /// Descriptors that are handled in a round at most, [`ROUND`] or fewer.
    round: usize,
    dropped: u64,
    turned: Turned,
}

/// What a wire has returned to its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turned {
    /// Frames that came from the host.
    pub frames: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Frames that went back to it: the others found no buffer.
    pub returned_frames: u64,
    /// Bytes of these.
    pub returned_bytes: u64,
}

impl<C: Core, P: Policy> Wire<C, P> {
    /// Puts a NIC's queue pair to work.
    pub fn new(nic: Nic<C, P>) -> Wire<C, P> {
        Wire {
            nic,
            polled: [Descriptor::BLANK; ROUND + 1],
            count: 0,
            next: 0,
            delivered: [Descriptor::BLANK; ROUND],
            round: ROUND,
            dropped: 0,
            turned: Turned::default(),
        }
    }

    /// The NIC's half.
    pub fn nic(&mut self) -> &mut Nic<C, P> {
        &mut self.nic
    }

    /// The core it runs on.
    #[inline(always)]
    pub fn core(&self) -> &C {
        self.nic.core()
    }

    /// What the host did that it should not have.
    pub fn faults(&self) -> super::NicFaults {
        self.nic.faults()
    }

    /// How many descriptors it handles in a round at most.
    pub(super) fn round(&self) -> usize {
        self.round
    }

    /// What it has returned.
    pub fn turned(&self) -> Turned {
        self.turned
    }

    /// Enters that a packet was dropped.
    pub(super) fn count_dropped(&mut self) {
        self.dropped += 1;
    }

    /// The NIC's half, given back.
    pub fn into_nic(self) -> Nic<C, P> {
        self.nic
    }

    /// Receives polled packets as [`Wire::receive`] does, from the front, for which that takes no more than a copy of whole lines into a
    /// buffer that is at hand; how many.
    #[inline(always)]
    fn receive_ready(&mut self) -> usize {
        let Wire { nic, polled, delivered, .. } = self;
        let fetches = nic.features().fetch_ahead;
        let mut bytes = 0;
        let ready = nic.rx_ready(&polled[..self.count.min(ROUND)], |core, index, packet, to| {
            if fetches {
                fetch_ahead(core, &polled[index + 1]);
            }
            core.work(work::BUFFER);
            let length = u64::from(packet.length());
            core.copy_lines(packet.address(), to, lines_of(length));
            delivered[index] = packet.received_at(to);
            bytes += length;
        });
        self.turned.frames += ready as u64;
        self.turned.bytes += bytes;
        self.turned.returned_bytes += bytes;
        ready
    }

    /// Receives a polled packet, whose segments start at `start`, as a wire would: into a receive buffer of its own. Gives
    /// how many segments it had, and the packet if there was a buffer for it.
    #[inline(always)]
    fn receive(&mut self, start: usize) -> (usize, Option<Descriptor>) {
        let packet = self.polled[start];
        if packet.has(Flags::NEXT) || !packet.address().is_line_aligned() {
            return self.receive_pieces(start);
        }
        let received = self.nic.rx_alloc(u64::from(packet.length())).map(|to| {
            self.nic.core().copy_lines(packet.address(), to, lines_of(u64::from(packet.length())));
            Descriptor::new(to, packet.length()).with_metadata(packet.metadata)
        });
        (1, received)
    }

    /// The same for a packet of several segments, or one that starts within a line.
    #[inline(never)]
    fn receive_pieces(&mut self, start: usize) -> (usize, Option<Descriptor>) {
        let rest = &self.polled[start..self.count];
        let segments = rest.iter().take_while(|segment| segment.has(Flags::NEXT)).count() + 1;
        let segments = segments.min(rest.len());
        let segments_of = &self.polled[start..start + segments];
        (segments, gather(&mut self.nic, segments_of))
    }

    /// As [`NicQueue::turn_around`]; each frame that goes back is shown before, where it lies then.
    #[inline(always)]
    pub fn turn_around_shown(&mut self, mut show: impl FnMut(&C, &Descriptor)) -> usize {
        let room = self.nic.rx_room(self.round).min(self.round).min(ROUND);
        if room < MAX_SEGMENTS {
            return 0;
        }
        self.count = self.nic.poll_tx(&mut self.polled[..room]);
        self.polled[self.count] = Descriptor::BLANK;
        if self.count == 0 {
            // Packets may have been refused; their slots go back.
            self.nic.complete_tx(&[]);
            return 0;
        }
        let ready = self.receive_ready();
        let (mut deliver, mut start) = (ready, ready);
        let mut turned = self.turned;
        while start < self.count {
            if self.nic.features().fetch_ahead
                && let Some(next) = self.polled[..self.count].get(start + 1)
            {
                fetch_ahead(self.nic.core(), next);
            }
            let (segments, received) = self.receive(start);
            turned.frames += 1;
            match received {
                Some(packet) => {
                    turned.bytes += u64::from(packet.length());
                    turned.returned_bytes += u64::from(packet.length());
                    self.delivered[deliver] = packet;
                    deliver += 1;
                }
                None => {
                    let lost = &self.polled[start..start + segments];
                    turned.bytes += lost.iter().map(|segment| u64::from(segment.length())).sum::<u64>();
                    self.dropped += 1;
                }
            }
            start += segments;
        }
        self.delivered[..deliver].iter().for_each(|packet| show(self.nic.core(), packet));
        turned.returned_frames += deliver as u64;
        self.turned = turned;
        let sent = self.nic.rx_burst(&self.delivered[..deliver]);
        debug_assert_eq!(sent, deliver, "room was asked for before");
        let count = std::mem::take(&mut self.count);
        self.nic.complete_tx(&self.polled[..count]);
        count
    }

    /// Delivers up to [`ROUND`] frames in one burst; how many, from the front, were delivered or dropped.
    fn deliver_each<'f>(&mut self, mut frames: impl ExactSizeIterator<Item = &'f [u8]> + Clone) -> usize {
        let room = self.nic.rx_room(frames.len()).min(ROUND);
        let (mut done, mut filled) = (0, 0);
        while filled < room {
            let lengths =
                frames.clone().map_while(|frame| u16::try_from(frame.len()).ok().filter(|&length| length > 0));
            self.nic.rx_claim(lengths.take(room - filled));
            let Some(frame) = frames.next() else { break };
            match u16::try_from(frame.len()) {
                Ok(length) if length > 0 && self.nic.holds(u64::from(length)) => {
                    let Some(at) = self.nic.rx_alloc(u64::from(length)) else { break };
                    self.nic.core().write_bytes(at, frame);
                    self.delivered[filled] = Descriptor::new(at, length);
                    filled += 1;
                }
                _ => self.dropped += 1,
            }
            done += 1;
        }
        let sent = self.nic.rx_burst(&self.delivered[..filled]);
        debug_assert_eq!(sent, filled, "room was asked for before");
        done
    }

    /// Copies the next polled packet into `frame`, as far as it fits, and returns its whole length.
    fn copy_frame(&mut self, frame: &mut [u8]) -> usize {
        let mut length = 0;
        loop {
            let segment = self.polled[self.next];
            let bytes = usize::from(segment.length());
            if self.nic.features().fetch_ahead
                && let Some(next) = self.polled[..self.count].get(self.next + 1)
            {
                fetch_ahead(self.nic.core(), next);
            }
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
}

/// Copies the segments of a packet into a receive buffer of its own; none if there is no buffer for it.
pub(super) fn gather<C: Core, P: Policy>(nic: &mut Nic<C, P>, segments: &[Descriptor]) -> Option<Descriptor> {
    let length: u64 = segments.iter().map(|segment| u64::from(segment.length())).sum();
    let short = u16::try_from(length).ok()?;
    let to = nic.rx_alloc(length)?;
    let (mut bytes, mut at) = ([0u8; 64], to);
    for segment in segments {
        let mut done = 0;
        while done < u64::from(segment.length()) {
            let piece = (u64::from(segment.length()) - done).min(64) as usize;
            nic.core().read_bytes(segment.address() + done, &mut bytes[..piece]);
            nic.core().write_bytes(at, &bytes[..piece]);
            (done, at) = (done + piece as u64, at + piece as u64);
        }
    }
    Some(Descriptor::new(to, short).with_metadata(segments[0].metadata))
}

impl<C: Core, P: Policy> NicQueue for Wire<C, P> {
    #[inline(always)]
    fn turn_around(&mut self) -> usize {
        self.turn_around_shown(|_, _| {})
    }

    fn handle_at_most(&mut self, packets: usize) {
        self.round = packets.clamp(MAX_SEGMENTS, ROUND);
    }

    fn awaited(&mut self) -> Option<Address> {
        self.nic.awaited(MAX_SEGMENTS)
    }

    fn take_frame(&mut self, frame: &mut [u8]) -> Option<usize> {
        if self.next == self.count {
            self.nic.complete_tx(&self.polled[..self.count]);
            self.next = 0;
            self.count = self.nic.poll_tx(&mut self.polled[..ROUND]);
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
        self.deliver_each(std::iter::once(frame)) == 1
    }

    fn deliver_frames(&mut self, frames: &[Vec<u8>]) -> usize {
        let mut done = 0;
        for some in frames.chunks(ROUND) {
            let count = self.deliver_each(some.iter().map(Vec::as_slice));
            done += count;
            if count < some.len() {
                break;
            }
        }
        done
    }

    fn drain(&mut self) {
        self.nic.drain();
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
