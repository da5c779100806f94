//! One queue pair of a client, for one thread.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use conic_fabric::{Address, Core, Time};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::ccnic::notify::PACKETS;
use conic_interface::ccnic::{Flags, Host, HostFaults, PhaseCredit};
use conic_native::{KeptCore, clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::client::{Link, Shared};
use crate::session::Region;
use crate::{Buffer, Client, MAX_SEGMENTS, Segments, SharedMemory};

/// Empty polls after which a queue asks the kernel whether the daemon still lives: a few microseconds of polling.
const POLLS_BETWEEN_LOOKS: u32 = 2048;

/// The same while an attempt to attach again waits for the daemon's next word.
const POLLS_WHILE_ATTACHING: u32 = 32;

/// Packets that one call of [`Queue::receive`] or [`Queue::transmit`] moves at once.
const BURST: usize = 32;

/// How long a queue looks again before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// How long it sleeps at most where nobody would wake it.
const NAP: Duration = Duration::from_millis(1);

/// What the daemon did that it should not have, and what had to be copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFaults {
    /// On the rings and in the pool.
    pub host: HostFaults,
    /// Packets that named no buffer; they were dropped.
    pub no_buffer: u64,
    /// Packets of more segments than one may have; they were cut.
    pub cut: u64,
    /// Packets of another region that were sent by copying them.
    pub copied: u64,
}

/// Why [`Queue::wait_here`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There is a packet.
    Packets,
    /// The time is over.
    Time,
    /// A handler of a signal has run.
    Signal,
    /// There is another region to move on to.
    Stale,
}

/// So much time, in which a program does not live to see its end.
fn span(duration: Duration) -> Time {
    const LONGEST: Duration = Duration::from_secs(1 << 20);
    Time::from_nanoseconds(duration.min(LONGEST).as_nanos() as u64)
}

/// A queue pair.
///
/// | call | takes | gives | waits |
/// |---|---|---|---|
/// | [`Queue::allocate`] | a size | a buffer | no |
/// | [`Queue::transmit`] | buffers, from the front; those taken are gone | how many | no |
/// | [`Queue::receive`] | room | buffers | no |
/// | [`Queue::free`] | buffers | - | no |
///
/// It is also a [`HostQueue`]: the same calls on addresses in the region, for bindings and for what must be fast. Those addresses
/// are good for one [`Queue::generation`]: after the daemon has died and come back there is another region, to which
/// [`Queue::renew`] moves on; the calls on addresses never do so by themselves. Until then nothing is sent, and what was
/// delivered before is received.
#[derive(Debug)]
pub struct Queue {
    host: Host<KeptCore, PhaseCredit>,
    region: Arc<Region>,
    shared: Arc<Shared>,
    index: usize,
    generation: u64,
    /// Empty polls since the kernel was last asked.
    polls: u32,
    /// In the regions before this one.
    earlier: HostFaults,
    no_buffer: u64,
    segments: Segments,
    copied: u64,
    packets: Vec<Packet>,
    /// Received in the region before this one, and not taken yet.
    kept: Vec<Buffer>,
    /// Payloads are not asked for ahead.
    leaves_payloads: bool,
    /// Another half receives.
    only_sends: bool,
}

impl Queue {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Queue {
        let (region, generation) = shared
            .with_session(|session, generation| (Arc::clone(&session.region), generation))
            .expect("a link that has just come up");
        Queue::of(shared, region, index, generation)
    }

    fn of(shared: Arc<Shared>, region: Arc<Region>, index: usize, generation: u64) -> Queue {
        let host = Host::new(region.core.clone(), &region.map, index);
        let packets = vec![Packet::BLANK; BURST];
        Queue {
            host,
            region,
            shared,
            index,
            generation,
            polls: 0,
            earlier: HostFaults::default(),
            no_buffer: 0,
            segments: Segments::default(),
            copied: 0,
            packets,
            kept: Vec::new(),
            leaves_payloads: false,
            only_sends: false,
        }
    }

    /// A buffer for a packet of `bytes`, of that length; none if none is free now.
    pub fn allocate(&mut self, bytes: usize) -> Option<Buffer> {
        self.follow();
        let length = u16::try_from(bytes).ok()?;
        let mut at = [Address(0)];
        let got = self.buf_alloc(bytes as u64, &mut at);
        (got == 1).then(|| Buffer::new(&self.region, Packet::new(at[0], length)))
    }

    /// Sends packets, as many as there is room for from the front, takes those away from `buffers`, and returns how many. An
    /// empty packet is freed and counts as sent. One of several segments ([`Buffer::has_next`]) is sent whole; while its last is
    /// not there yet it stays.
    ///
    /// # Panics
    ///
    /// If the first that is not sent yet has more than [`MAX_SEGMENTS`], or an empty one among them: a mistake of the program.
    pub fn transmit(&mut self, buffers: &mut Vec<Buffer>) -> usize {
        self.follow();
        let mut sent = 0;
        while sent < buffers.len() {
            let some = &mut buffers[sent..];
            let Some(last) = some.iter().position(|segment| !segment.has_next()) else { break };
            if let Some(fault) = fault_of(&some[..=last]) {
                // Those before it are the NIC's, and leave `buffers` first.
                assert!(sent > 0, "{fault}");
                break;
            }
            if !some[..=last].iter_mut().all(|segment| self.bring_over(segment)) {
                break;
            }
            if last == 0 && some[0].is_empty() {
                sent += 1;
                continue;
            }
            let own = some.iter().take_while(|buffer| !buffer.is_empty() && buffer.is_of(&self.region));
            let filled = own.zip(&mut self.packets).map(|(buffer, packet)| *packet = buffer.packet()).count();
            // What goes on is sent in the next round, with its end.
            let whole = self.packets[..filled].iter().rposition(|packet| !packet.has(Flags::NEXT));
            let filled = whole.map_or(0, |end| end + 1);
            let taken = {
                let packets = std::mem::take(&mut self.packets);
                let taken = self.tx_burst(&packets[..filled]);
                self.packets = packets;
                taken
            };
            sent += taken;
            if taken < filled {
                break;
            }
        }
        for buffer in buffers.drain(..sent) {
            if !buffer.is_empty() {
                buffer.release();
            }
        }
        sent
    }

    /// Makes a buffer of another region one of this, unless it is empty; false if there is none free.
    fn bring_over(&mut self, buffer: &mut Buffer) -> bool {
        if buffer.is_empty() || buffer.is_of(&self.region) {
            return true;
        }
        let Some(mut own) = self.allocate(buffer.len()) else { return false };
        let packet = own.packet();
        self.region.copy_from(packet.address(), buffer.region(), buffer.packet().address(), packet.length());
        own.set_metadata(buffer.metadata());
        own.set_has_next(buffer.has_next());
        // The other one is dropped here, and so freed in its own region.
        *buffer = own;
        self.copied += 1;
        true
    }

    /// Receives up to `most` packets, puts them behind what is in `into`, and returns how many.
    pub fn receive(&mut self, into: &mut Vec<Buffer>, most: usize) -> usize {
        let before = into.len();
        into.extend(self.kept.drain(..most.min(self.kept.len())));
        while into.len() - before < most {
            let room = (most - (into.len() - before)).min(BURST);
            let mut packets = std::mem::take(&mut self.packets);
            let count = self.rx_burst(&mut packets[..room]);
            for &packet in &packets[..count] {
                into.extend(self.accept(packet));
            }
            self.packets = packets;
            if count < room {
                break;
            }
        }
        if into.len() == before {
            self.follow();
        }
        into.len() - before
    }

    /// A packet from the NIC, if it lies where packets lie.
    #[inline(always)]
    fn accept(&mut self, packet: Packet) -> Option<Buffer> {
        if !self.region.is_in_a_buffer(packet.address(), packet.length()) {
            self.no_buffer += 1;
            return None;
        }
        Some(Buffer::new(&self.region, self.segments.follow(packet)))
    }

    /// Frees buffers; cheaper than to drop them one by one.
    pub fn free(&mut self, buffers: &mut Vec<Buffer>) {
        for buffer in buffers.drain(..) {
            if buffer.is_of(&self.region) {
                self.host.buf_free(&[buffer.packet().address()]);
                buffer.release();
            }
        }
    }

    /// The link as it was last seen.
    pub fn link(&self) -> Link {
        self.shared.link()
    }

    /// Which region this queue works in: a number that changes when [`Queue::renew`] has moved on.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether there is another region to move on to.
    pub fn is_stale(&self) -> bool {
        let generation = self.shared.generation();
        generation != self.generation && generation % 2 == 1
    }

    /// Moves on to the region of the present session, if there is another; whether it did. What had been delivered in the old
    /// one and was not received is freed, and addresses in it mean nothing any more; for who has its [`Queue::memory`], the buffers
    /// are free there that this queue kept, and those that it had sent and the daemon cannot have passed on.
    pub fn renew(&mut self) -> bool {
        if !self.is_stale() {
            return false;
        }
        let found = self.shared.with_session(|session, generation| (Arc::clone(&session.region), generation));
        let Some((region, generation)) = found else { return false };
        // What was delivered is the other half's where this one only sends. Bounded, should somebody deliver still.
        let bursts = if self.only_sends { 0 } else { self.most_delivered().div_ceil(BURST) };
        let mut packets = [Packet::BLANK; BURST];
        for _ in 0..bursts {
            let count = self.host.rx_burst(&mut packets);
            packets[..count].iter().for_each(|packet| self.host.buf_free(&[packet.address()]));
        }
        self.host.leave();
        // Behind it: what was freed twice is found when it goes back to the pool.
        self.earlier = self.earlier.plus(&self.host.faults());
        self.host = Host::new(region.core.clone(), &region.map, self.index);
        if self.leaves_payloads {
            self.host.leave_payloads();
        }
        if self.only_sends {
            self.host.only_sends();
        }
        (self.region, self.generation) = (region, generation);
        true
    }

    /// More packets than this cannot lie in the ring: who has received as many and goes on gets what somebody delivers meanwhile.
    pub fn most_delivered(&self) -> usize {
        2 * self.region.map.geometry.descriptors as usize
    }

    /// Waits until a packet has come, for `most` at the longest, and says whether one has: looks again for a while, then sleeps
    /// until the NIC rings.
    pub fn wait(&mut self, most: Duration) -> bool {
        let until = clock::now() + span(most);
        loop {
            self.follow();
            if !self.kept.is_empty() {
                return true;
            }
            match self.wait_here(Duration::from_nanos(until.since(clock::now()).nanoseconds())) {
                Woken::Packets => return true,
                Woken::Time => return false,
                Woken::Signal | Woken::Stale => {}
            }
        }
    }

    /// As [`Queue::wait`], for the calls on addresses: it stays in this region, and ends when there is another one to move on to
    /// or when a handler of a signal has run.
    pub fn wait_here(&mut self, most: Duration) -> Woken {
        let begun = clock::now();
        let (spin_until, until) = (begun + span(most.min(SPIN)), begun + span(most));
        let mut interrupted = false;
        loop {
            if self.host.has_packets() {
                return Woken::Packets;
            }
            if self.is_stale() {
                return Woken::Stale;
            }
            if interrupted {
                return Woken::Signal;
            }
            let now = clock::now();
            if now >= until {
                return Woken::Time;
            }
            if now < spin_until {
                self.host.core().spin();
                continue;
            }
            if self.arm() {
                return Woken::Packets;
            }
            interrupted = self.sleep(Duration::from_nanos(until.since(now).nanoseconds()));
            self.disarm();
        }
    }

    /// Asks the NIC to ring this queue's [`Queue::bell`] at the next packet; true, and it is not asked, if one is there already.
    pub fn arm(&mut self) -> bool {
        let Region { notices, core, .. } = &*self.region;
        notices.wish_for(core, self.index, PACKETS);
        if self.host.has_packets() {
            notices.wish_no_more(core, self.index);
            return true;
        }
        false
    }

    /// Takes back what [`Queue::arm`] asked for, and silences the bell; looks after the connection where the daemon is gone, as
    /// [`Client::look`] does.
    pub fn disarm(&mut self) {
        self.region.notices.wish_no_more(&self.region.core, self.index);
        let mut rung = [0; 16];
        // Nothing to read is as good as silence.
        loop {
            match recv(&self.region.bells[self.index], &mut rung, RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    self.shared.look();
                    return;
                }
                Ok((16, _)) => {}
                _ => return,
            }
        }
    }

    /// A descriptor that is readable when the NIC has rung, for programs that wait for others too: [`Queue::arm`], wait,
    /// [`Queue::disarm`]. It is readable, and stays so, when the daemon is gone.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.region.bells[self.index].as_fd()
    }

    /// How many descriptors have come that were not received, `most` at most: packets, or parts of such as stand for several.
    pub fn waiting(&self, most: usize) -> usize {
        self.host.waiting(most)
    }

    /// How many descriptors there is room to send, in bursts; one that is sent alone takes the place of up to four. The NIC says late what
    /// it has read: a quarter of the ring may be free that is not counted.
    pub fn room(&mut self) -> usize {
        self.host.tx_room()
    }

    /// Whether the NIC may miss that it is to ring, for want of a fence that reaches it: then a sleeper looks again after a
    /// millisecond.
    pub fn may_miss_bells(&self) -> bool {
        !self.region.fences
    }

    /// Sleeps until the bell rings or the daemon is gone; whether a signal ended it.
    fn sleep(&mut self, most: Duration) -> bool {
        // Without the heavy half a ring may be missed: then it is a nap.
        let most = if self.region.fences { most } else { most.min(NAP) };
        let stale = self.shared.generation() != self.generation;
        // A bell whose other end is gone rings for ever.
        let most = if stale { most.min(NAP) } else { most };
        let timeout = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
        let mut waited = [PollFd::from_borrowed_fd(self.bell(), PollFlags::IN)];
        // Whatever else wakes it, the caller looks at everything.
        let woken = if stale { poll(&mut [], Some(&timeout)) } else { poll(&mut waited, Some(&timeout)) };
        if stale || waited[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            self.shared.look();
        }
        woken == Err(Errno::INTR)
    }

    /// From now on does not ask for payloads of received packets ahead: for programs that may pass them on without a look, and ask for
    /// what they look at.
    pub fn leave_payloads(&mut self) {
        self.leaves_payloads = true;
        self.host.leave_payloads();
    }

    /// Which of the client's queues it is.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Where an address lies in this process.
    pub fn pointer(&self, at: Address) -> *mut u8 {
        self.region.pointer(at)
    }

    /// Whether so many bytes at an address lie in one buffer, as those of a packet from a sound daemon do, and those of one
    /// that is to be sent must.
    #[inline(always)]
    pub fn is_in_a_buffer(&self, at: Address, length: u16) -> bool {
        self.region.is_in_a_buffer(at, length)
    }

    /// Bytes from an address to the end of its buffer; zero if it lies in none.
    #[inline(always)]
    pub fn capacity_at(&self, at: Address) -> u32 {
        self.region.capacity_at(at)
    }

    /// The start of the region in this process, and its bytes: what a binding needs to turn pointers into addresses.
    pub fn region(&self) -> (*mut u8, u64) {
        let memory = self.region.core.memory();
        (memory.base(), memory.bytes())
    }

    /// The region, for whoever frees buffers from other threads, or keeps it mapped for longer than this queue.
    pub fn memory(&self) -> SharedMemory {
        SharedMemory::new(Arc::clone(&self.region))
    }

    /// The queue pair as two, for two threads: one that sends and one that receives. Each allocates and frees. Only for a queue that
    /// was not used yet; neither may be used for the other's direction.
    pub fn split(mut self) -> (Queue, Queue) {
        self.only_sends = true;
        self.host.only_sends();
        let other = Queue::of(Arc::clone(&self.shared), Arc::clone(&self.region), self.index, self.generation);
        (self, other)
    }

    /// What the daemon did that it should not have, in every region since the queue was made.
    pub fn faults(&self) -> QueueFaults {
        let host = self.earlier.plus(&self.host.faults());
        QueueFaults { host, no_buffer: self.no_buffer, cut: self.segments.cut, copied: self.copied }
    }

    /// The client that it belongs to.
    pub fn client(&self) -> Client {
        Client::of(Arc::clone(&self.shared))
    }

    /// Moves on to a new region where there is one, with what was delivered in the old one.
    #[inline(always)]
    fn follow(&mut self) {
        if self.shared.generation() != self.generation {
            self.move_on();
        }
    }

    #[cold]
    fn move_on(&mut self) {
        if !self.is_stale() {
            return;
        }
        let mut packets = [Packet::BLANK; BURST];
        // As in `renew`.
        let bursts = if self.only_sends { 0 } else { self.most_delivered().div_ceil(BURST) };
        for _ in 0..bursts {
            let count = self.host.rx_burst(&mut packets);
            for &packet in &packets[..count] {
                let buffer = self.accept(packet);
                self.kept.extend(buffer);
            }
            if count == 0 {
                break;
            }
        }
        self.renew();
    }

    /// Asks the kernel now and then whether the daemon still lives.
    #[inline(always)]
    fn count_empty_poll(&mut self) {
        self.polls += 1;
        if self.polls >= POLLS_BETWEEN_LOOKS {
            let is_attaching = self.shared.look();
            self.polls = if is_attaching { POLLS_BETWEEN_LOOKS - POLLS_WHILE_ATTACHING } else { 0 };
        }
    }
}

/// Why the segments of a packet cannot be sent, if they cannot.
fn fault_of(segments: &[Buffer]) -> Option<String> {
    let count = segments.len();
    if count > MAX_SEGMENTS {
        return Some(format!("a packet of {count} segments, and not of {MAX_SEGMENTS} at most"));
    }
    let has_empty = count > 1 && segments.iter().any(Buffer::is_empty);
    has_empty.then(|| format!("a packet of {count} segments has an empty one"))
}

impl HostQueue for Queue {
    type Core = KeptCore;
    #[inline(always)]
    fn core(&self) -> &KeptCore {
        self.host.core()
    }
    #[inline(always)]
    fn buf_alloc(&mut self, bytes: u64, out: &mut [Address]) -> usize {
        let got = self.host.buf_alloc(bytes, out);
        if got < out.len() {
            // Who only sends comes no further than here while the buffers are with a daemon that is gone.
            self.count_empty_poll();
        }
        got
    }
    #[inline(always)]
    fn buf_free(&mut self, buffers: &[Address]) {
        self.host.buf_free(buffers);
    }
    #[inline(always)]
    fn tx_burst(&mut self, packets: &[Packet]) -> usize {
        if self.shared.generation() != self.generation {
            self.count_empty_poll();
            return 0;
        }
        let sent = self.host.tx_burst(packets);
        if sent == 0 {
            self.count_empty_poll();
        } else {
            self.region.announce(self.index);
        }
        sent
    }
    #[inline(always)]
    fn rx_burst(&mut self, out: &mut [Packet]) -> usize {
        let received = self.host.rx_burst(out);
        if received == 0 {
            self.count_empty_poll();
        }
        received
    }
    #[inline(always)]
    fn bytes_to_end(&self, at: Address) -> u64 {
        HostQueue::bytes_to_end(&self.host, at)
    }
}

impl Drop for Queue {
    /// Gives what lies on this side's stacks back to the pool, for the client's other queues.
    fn drop(&mut self) {
        self.host.drain();
    }
}
