//! What every packet interface offers, so that a program, a benchmark or a study can be written once over all of them.

use conic_fabric::{Address, Core, LINE_BYTES};

/// A packet, or one segment of one, in the shared region.
pub type Packet = crate::ccnic::Descriptor;

/// Lines of a packet that are fetched ahead at most: about what a core can have on its way at once.
const FETCH_AHEAD: u64 = 32;

/// Starts to fetch a received packet's lines behind the first, which its interface has asked for already. For the packet
/// that comes after the one being read: between cores without a shared cache this raised 1500-byte packets from 4.9 to 8
/// million a second.
#[inline(always)]
pub fn fetch_ahead<C: Core>(core: &C, packet: &Packet) {
    if packet.length() > LINE_BYTES as u16 {
        for line in 1..packet.lines().min(FETCH_AHEAD) {
            core.prefetch_read(packet.address().line().lines(line));
        }
    }
}

/// The host's half of a queue pair: the calls of CC-NIC's Figure 5. None blocks, none spins.
pub trait HostQueue {
    /// The core it runs on.
    type Core: Core;
    /// The core it runs on.
    fn core(&self) -> &Self::Core;
    /// Allocates buffers for `bytes` each and returns how many.
    fn buf_alloc(&mut self, bytes: u64, out: &mut [Address]) -> usize;
    /// Frees buffers.
    fn buf_free(&mut self, buffers: &[Address]);
    /// Sends packets and returns how many were taken, from the front. Where an interface has packets of several segments, each of
    /// these counts, and a packet's are taken all or none.
    fn tx_burst(&mut self, packets: &[Packet]) -> usize;
    /// Receives packets and returns how many.
    fn rx_burst(&mut self, out: &mut [Packet]) -> usize;
    /// Bytes from an address to the end of the buffer that it lies in; none where it lies in none. For who does not trust whoever wrote
    /// the descriptor of a received packet, or writes behind one.
    fn bytes_to_end(&self, at: Address) -> u64;
    /// Takes retained segments that the NIC has read, where the interface tells of them, and returns how many. Who retains must
    /// take them now and then: what waits for that takes the place of what could be sent. Where the interface does not (the ring),
    /// a segment may be read for as long as its descriptor is in use, and who changes it before must bear that.
    fn completions(&mut self, _out: &mut [Packet]) -> usize {
        0
    }
}

/// Receives packets that the NIC's half is not trusted to have named, and returns how many: one that is in no buffer, or not all of it with
/// a whole line, becomes one of no bytes. Who takes no packet that is shorter than its headers then reads nothing but buffers.
#[inline]
pub fn receive_whole(queue: &mut impl HostQueue, out: &mut [Packet]) -> usize {
    let count = queue.rx_burst(out);
    for packet in &mut out[..count] {
        if queue.bytes_to_end(packet.address()) < u64::from(packet.length()).max(LINE_BYTES) {
            *packet = Packet::new(packet.address(), 0);
        }
    }
    count
}

/// Packets that wait for room in a queue, in their order.
#[derive(Debug, Default)]
pub struct Waiting {
    packets: Vec<Packet>,
    /// How many of them were sent; they go when all were.
    sent: usize,
}

impl Waiting {
    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// How many there are with those that were sent since there were none.
    #[inline]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Has a packet, or one segment of one, sent behind the others.
    #[inline]
    pub fn push(&mut self, packet: Packet) {
        self.packets.push(packet);
    }

    /// Sends what there is room for, and returns how many were taken.
    #[inline]
    pub fn send(&mut self, queue: &mut impl HostQueue) -> usize {
        if self.packets.is_empty() {
            return 0;
        }
        let count = queue.tx_burst(&self.packets[self.sent..]);
        self.sent += count;
        if self.sent == self.packets.len() {
            self.packets.clear();
            self.sent = 0;
        }
        count
    }
}

/// The NIC's half of a queue pair, for a NIC that is a loopback or that stands before a port.
pub trait NicQueue {
    /// Receives what was transmitted as a wire would: reads each payload and writes it into a receive buffer taken from
    /// the interface's pool, and delivers that. Returns how many packets; zero is no progress.
    fn turn_around(&mut self) -> usize;
    /// From now on handles so many packets in a round of [`NicQueue::turn_around`] at most, where it otherwise handles more: a NIC that
    /// works in smaller bursts. Never fewer than one packet of the most segments that the interface has.
    fn handle_at_most(&mut self, _packets: usize) {}
    /// The line by whose change work would come for [`NicQueue::turn_around`], after a call that made no progress. None where
    /// it cannot say: then it must be called again whatever happens.
    fn awaited(&mut self) -> Option<Address> {
        None
    }
    /// Takes the next transmitted frame into `frame` and returns its length; longer ones are dropped and counted. None:
    /// there is none, or those that were looked at were all too long.
    fn take_frame(&mut self, frame: &mut [u8]) -> Option<usize>;
    /// Delivers a frame; false, and nothing is kept, if there is no room now. One that no buffer will ever hold, or an empty
    /// one, is dropped and counted, and that is true too.
    fn deliver_frame(&mut self, frame: &[u8]) -> bool;
    /// Delivers frames at once, and returns how many, from the front, were delivered or dropped as [`NicQueue::deliver_frame`]
    /// does.
    fn deliver_frames(&mut self, frames: &[Vec<u8>]) -> usize {
        frames.iter().take_while(|frame| self.deliver_frame(frame)).count()
    }
    /// Gives free buffers that this side keeps back to whoever else may want them.
    fn drain(&mut self) {}
    /// Says that this round made no progress.
    fn spin(&self);
    /// Violations by the host that were refused.
    fn refused(&self) -> u64;
    /// Frames that were dropped: too long, or without a buffer to receive them into.
    fn dropped(&self) -> u64;
}

impl<Q: HostQueue + ?Sized> HostQueue for Box<Q> {
    type Core = Q::Core;
    fn core(&self) -> &Q::Core {
        (**self).core()
    }
    fn buf_alloc(&mut self, bytes: u64, out: &mut [Address]) -> usize {
        (**self).buf_alloc(bytes, out)
    }
    fn buf_free(&mut self, buffers: &[Address]) {
        (**self).buf_free(buffers);
    }
    fn tx_burst(&mut self, packets: &[Packet]) -> usize {
        (**self).tx_burst(packets)
    }
    fn rx_burst(&mut self, out: &mut [Packet]) -> usize {
        (**self).rx_burst(out)
    }
    fn bytes_to_end(&self, at: Address) -> u64 {
        (**self).bytes_to_end(at)
    }
    fn completions(&mut self, out: &mut [Packet]) -> usize {
        (**self).completions(out)
    }
}

impl<Q: NicQueue + ?Sized> NicQueue for Box<Q> {
    fn turn_around(&mut self) -> usize {
        (**self).turn_around()
    }
    fn handle_at_most(&mut self, packets: usize) {
        (**self).handle_at_most(packets);
    }
    fn awaited(&mut self) -> Option<Address> {
        (**self).awaited()
    }
    fn take_frame(&mut self, frame: &mut [u8]) -> Option<usize> {
        (**self).take_frame(frame)
    }
    fn deliver_frame(&mut self, frame: &[u8]) -> bool {
        (**self).deliver_frame(frame)
    }
    fn deliver_frames(&mut self, frames: &[Vec<u8>]) -> usize {
        (**self).deliver_frames(frames)
    }
    fn drain(&mut self) {
        (**self).drain();
    }
    fn spin(&self) {
        (**self).spin();
    }
    fn refused(&self) -> u64 {
        (**self).refused()
    }
    fn dropped(&self) -> u64 {
        (**self).dropped()
    }
}
