//! What lies behind the burst calls: from the program's pointers to addresses in the region, and on to the queue.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use conic_client::{Link, Segments, SharedMemory, Woken};
use conic_fabric::{Address, Core};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::ccnic::{Flags, MAX_SEGMENTS};
use conic_native::clock;
use rustix::io::Errno;

use crate::alarm::Alarm;
use crate::queue::{Buf, CONIC_BUF_NEXT, Counters};
use crate::regions::Regions;

/// Packets that are moved at once.
const CHUNK: usize = 32;

/// The longest buffer that can be asked for.
const LONGEST: u32 = 16384;

/// A queue pair of a client. Its functions may be called by any thread, but by one at a time for each queue.
#[derive(Debug)]
pub struct Queue {
    inner: conic_client::Queue,
    /// The region that the queue works in.
    memory: SharedMemory,
    /// Buffers of that region that the program got from this queue, less those that it gave back to it.
    lent: i64,
    regions: Arc<Regions>,
    /// Received in a region that the queue has left.
    kept: VecDeque<Buf>,
    /// What the program waits on, once it has asked for that.
    alarm: Option<Alarm>,
    segments: Segments,
    counters: Counters,
}

/// Packets on their way to the ring.
struct Burst {
    packets: [Packet; CHUNK],
    count: usize,
    /// A bit for each that is a copy, made from a region that is gone.
    copies: u32,
    /// What comes behind them cannot be sent.
    bad: bool,
}

/// What became of one packet on its way to the ring.
enum Prepared {
    Own(Packet),
    Copy(Packet),
    /// There is no buffer to copy it to now.
    Dry,
    Bad,
}

impl Queue {
    pub(crate) fn new(inner: conic_client::Queue, regions: Arc<Regions>) -> Queue {
        let memory = inner.memory();
        regions.enter(&memory);
        let (segments, counters) = (Segments::default(), Counters::default());
        Queue { inner, memory, lent: 0, regions, kept: VecDeque::new(), alarm: None, segments, counters }
    }

    /// Where a pointer of the program lies in the region, if it does.
    #[inline(always)]
    fn address_of(&self, data: *const c_void) -> Option<Address> {
        let (base, bytes) = self.memory.place();
        let offset = (data as u64).wrapping_sub(base as u64);
        (offset < bytes).then_some(Address(offset))
    }

    /// A packet as the program sees it.
    #[inline(always)]
    fn buf_of(&self, packet: Packet) -> Buf {
        Buf {
            data: self.inner.pointer(packet.address()).cast(),
            length: packet.length().into(),
            capacity: self.inner.capacity_at(packet.address()),
            flags: if packet.has(Flags::NEXT) { CONIC_BUF_NEXT } else { 0 },
            reserved: 0,
            metadata: packet.metadata,
        }
    }

    /// Buffers for packets of so many bytes; `None` if there are none of that size at all.
    pub(crate) fn allocate(&mut self, bytes: u32, out: &mut [MaybeUninit<Buf>]) -> Option<usize> {
        if bytes == 0 || bytes > LONGEST {
            return None;
        }
        self.follow();
        let mut addresses = [Address(0); CHUNK];
        let mut count = 0;
        while count < out.len() {
            let room = (out.len() - count).min(CHUNK);
            let got = self.inner.buf_alloc(bytes.into(), &mut addresses[..room]);
            for (&at, out) in addresses[..got].iter().zip(&mut out[count..]) {
                out.write(self.buf_of(Packet::new(at, bytes as u16)));
            }
            count += got;
            if got < room {
                self.counters.no_buffer += (out.len() - count) as u64;
                break;
            }
        }
        self.lent += count as i64;
        Some(count)
    }

    /// Takes buffers back; whether all were buffers.
    pub(crate) fn free(&mut self, bufs: &[Buf]) -> bool {
        // What another queue received in a newer region is to be found there.
        self.follow();
        let mut sound = true;
        for chunk in bufs.chunks(CHUNK) {
            let mut addresses = [Address(0); CHUNK];
            let mut count = 0;
            for buf in chunk {
                match self.address_of(buf.data) {
                    Some(at) if self.inner.is_in_a_buffer(at, 1) => {
                        addresses[count] = at;
                        count += 1;
                    }
                    Some(_) => sound = false,
                    None => sound &= self.regions.give_back(buf.data as usize),
                }
            }
            self.inner.buf_free(&addresses[..count]);
            self.lent -= count as i64;
        }
        sound
    }

    /// Sends packets and returns how many were taken; an error if the first cannot be sent.
    pub(crate) fn send(&mut self, bufs: &[Buf]) -> Result<usize, ()> {
        self.follow();
        let mut sent = 0;
        while sent < bufs.len() {
            let rest = &bufs[sent..];
            let burst = self.prepare(rest);
            let taken = if burst.count > 0 { self.inner.tx_burst(&burst.packets[..burst.count]) } else { 0 };
            self.settle(&burst, taken, rest);
            sent += taken;
            if sent == 0 && burst.count == 0 && burst.bad {
                return Err(());
            }
            if taken < burst.count || burst.bad || taken == 0 {
                break;
            }
        }
        self.counters.not_taken += (bufs.len() - sent) as u64;
        Ok(sent)
    }

    /// Checks and converts packets from the front, whole chains only.
    fn prepare(&mut self, bufs: &[Buf]) -> Burst {
        let mut burst = Burst { packets: [Packet::BLANK; CHUNK], count: 0, copies: 0, bad: false };
        let (mut filled, mut parts, mut dry) = (0, 0, false);
        for buf in bufs.iter().take(CHUNK) {
            parts += 1;
            let (packet, copy) = match self.prepare_one(buf) {
                Prepared::Own(packet) => (packet, false),
                Prepared::Copy(packet) => (packet, true),
                Prepared::Dry => {
                    dry = true;
                    break;
                }
                Prepared::Bad => {
                    burst.bad = true;
                    break;
                }
            };
            burst.packets[filled] = packet;
            burst.copies |= u32::from(copy) << filled;
            filled += 1;
            if !packet.has(Flags::NEXT) {
                (burst.count, parts) = (filled, 0);
            } else if parts == MAX_SEGMENTS {
                burst.bad = true;
                break;
            }
        }
        // A chain that goes on behind the array has no end; one that goes on behind this chunk begins the next.
        burst.bad |= parts > 0 && !dry && filled == bufs.len();
        for index in burst.count..filled {
            self.forget_copy(&burst, index);
        }
        burst
    }

    fn prepare_one(&mut self, buf: &Buf) -> Prepared {
        let Ok(length) = u16::try_from(buf.length) else { return Prepared::Bad };
        if buf.flags & !CONIC_BUF_NEXT != 0 || length == 0 {
            return Prepared::Bad;
        }
        let finish = |at| {
            let packet = Packet::new(at, length).with_metadata(buf.metadata);
            if buf.flags & CONIC_BUF_NEXT != 0 { packet.with(Flags::NEXT) } else { packet }
        };
        if let Some(at) = self.address_of(buf.data) {
            return if self.inner.is_in_a_buffer(at, length) { Prepared::Own(finish(at)) } else { Prepared::Bad };
        }
        if !self.regions.contain(buf.data as usize, length.into()) {
            return Prepared::Bad;
        }
        let mut at = [Address(0)];
        if self.inner.buf_alloc(length.into(), &mut at) == 0 {
            return Prepared::Dry;
        }
        // SAFETY: the bytes lie in a region that is mapped, because the program holds this buffer of it, and nobody writes
        // them: the daemon of that region is gone.
        let bytes = unsafe { std::slice::from_raw_parts(buf.data.cast::<u8>(), length.into()) };
        self.inner.core().write_bytes(at[0], bytes);
        Prepared::Copy(finish(at[0]))
    }

    fn forget_copy(&mut self, burst: &Burst, index: usize) {
        if burst.copies >> index & 1 == 1 {
            self.inner.buf_free(&[burst.packets[index].address()]);
        }
    }

    /// Accounts for what was taken, and takes back what was copied in vain.
    fn settle(&mut self, burst: &Burst, taken: usize, bufs: &[Buf]) {
        for (index, packet) in burst.packets[..taken].iter().enumerate() {
            self.counters.sent_frames += u64::from(!packet.has(Flags::NEXT));
            self.counters.sent_bytes += u64::from(packet.length());
            if burst.copies >> index & 1 == 1 {
                self.counters.copied += 1;
                self.regions.give_back(bufs[index].data as usize);
            } else {
                self.lent -= 1;
            }
        }
        for index in taken..burst.count {
            self.forget_copy(burst, index);
        }
    }

    /// Receives packets and returns how many.
    pub(crate) fn receive(&mut self, out: &mut [MaybeUninit<Buf>]) -> usize {
        let mut count = 0;
        while count < out.len()
            && let Some(buf) = self.kept.pop_front()
        {
            out[count].write(buf);
            count += 1;
        }
        while count < out.len() {
            let mut packets = [Packet::BLANK; CHUNK];
            let room = (out.len() - count).min(CHUNK);
            let got = self.inner.rx_burst(&mut packets[..room]);
            for &packet in &packets[..got] {
                if let Some(buf) = self.accept(packet) {
                    out[count].write(buf);
                    count += 1;
                }
            }
            if got < room {
                break;
            }
        }
        if count == 0 {
            self.follow();
        }
        count
    }

    /// A packet from the NIC, if it lies where packets lie.
    #[inline(always)]
    fn accept(&mut self, packet: Packet) -> Option<Buf> {
        if !self.inner.is_in_a_buffer(packet.address(), packet.length()) {
            self.counters.refused += 1;
            return None;
        }
        let packet = self.segments.follow(packet);
        self.lent += 1;
        self.counters.received_frames += u64::from(!packet.has(Flags::NEXT));
        self.counters.received_bytes += u64::from(packet.length());
        Some(self.buf_of(packet))
    }

    /// Moves on to the region of the present session if there is another, with what was delivered in the old one.
    #[inline(always)]
    fn follow(&mut self) {
        if self.inner.is_stale() {
            self.move_on();
        }
    }

    #[cold]
    fn move_on(&mut self) {
        let mut packets = [Packet::BLANK; CHUNK];
        // Bounded, should somebody deliver still.
        for _ in 0..self.inner.most_delivered().div_ceil(CHUNK) {
            let got = self.inner.rx_burst(&mut packets);
            for &packet in &packets[..got] {
                let buf = self.accept(packet);
                self.kept.extend(buf);
            }
            if got == 0 {
                break;
            }
        }
        if self.inner.renew() {
            let memory = self.inner.memory();
            self.regions.enter(&memory);
            self.regions.leave(&self.memory, self.lent);
            (self.memory, self.lent) = (memory, 0);
        }
    }

    /// Waits until there is a packet, no longer than `most`; whether there is one.
    pub(crate) fn wait(&mut self, most: Duration) -> bool {
        let begun = clock::now();
        loop {
            self.follow();
            if !self.kept.is_empty() {
                return true;
            }
            let passed = Duration::from_nanos(clock::now().since(begun).nanoseconds());
            match self.inner.wait_here(most.saturating_sub(passed)) {
                Woken::Packets => return true,
                Woken::Time | Woken::Signal => return false,
                Woken::Stale => {}
            }
        }
    }

    /// The descriptor to wait on.
    pub(crate) fn descriptor(&mut self) -> Result<RawFd, Errno> {
        match &mut self.alarm {
            Some(alarm) => Ok(alarm.descriptor()),
            none => Ok(none.insert(Alarm::new()?).descriptor()),
        }
    }

    /// Asks for a wake-up at the next packet; whether there is one already, and nothing was asked for.
    pub(crate) fn arm(&mut self) -> Result<bool, Errno> {
        self.follow();
        if !self.kept.is_empty() {
            return Ok(true);
        }
        self.descriptor()?;
        if let Some(alarm) = &mut self.alarm {
            alarm.set(&self.inner)?;
        }
        Ok(self.inner.arm())
    }

    /// Takes that back, and makes the descriptor silent; looks after the connection where the daemon is gone.
    pub(crate) fn disarm(&mut self) -> Result<(), Errno> {
        self.inner.disarm();
        if self.inner.link() == Link::Down {
            // Without waiting: the next time is soon, and a program with an event loop has others to serve.
            self.inner.client().look();
        }
        self.alarm.as_mut().map_or(Ok(()), Alarm::clear)
    }

    /// What the queue has done.
    pub(crate) fn counters(&self) -> Counters {
        let faults = self.inner.faults().host;
        let ring_faults = faults.transmit.total() + faults.receive.total();
        let refused = self.counters.refused + self.segments.cut;
        Counters { refused, ring_faults, freed_twice: faults.freed_twice, ..self.counters }
    }
}
