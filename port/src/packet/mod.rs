//! A packet socket: an interface of the kernel, any of them, through rings of frames that the kernel and this process share.
//!
//! What the interface receives is received here, beside the kernel's own network stack, which gets it too: give the
//! interface no address. What is transmitted here leaves through the interface. The rings are of version 2, one slot a
//! frame: version 3 fills blocks and hands them over when they are full or a timer of at least a millisecond runs out,
//! which is a poor price for latency.
//!
//! Sources: Linux, Documentation/networking/packet_mmap.rst; packet(7); `linux/if_packet.h`.

mod error;
mod kernel;
mod ring;

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};

use conic_fabric::Time;

pub use error::{PacketError, PacketProblem};

use crate::lookout::Lookout;
use crate::netdevice;
use crate::offload::segment::LONGEST;
use crate::offload::vlan;
use crate::vnet::{Cutter, Work, complete};
use crate::{Counters, MAX_FRAME, Port, PortError, Receive, Transmit};
use kernel::Socket;
use ring::{Geometry, Rings, Slot};

/// Milliseconds between two looks whether the interface is still there.
const LOOK: u64 = 10;
/// Milliseconds between two attempts to have the kernel send what it did not take.
const AGAIN: u64 = 1;

/// How a packet socket is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOptions {
    /// The interface's name.
    pub interface: String,
    /// Frames that each ring holds: a power of two from 16 to 16384.
    pub frames: usize,
    /// How many sockets share the interface's frames, each a queue: 1 to 64. The kernel spreads flows over them.
    pub queues: usize,
    /// Whether the interface takes frames for any address.
    pub promiscuous: bool,
    /// Whether frames pass the kernel's traffic control when they leave, and wait there.
    pub traffic_control: bool,
    /// Whether large TCP packets, which a neighbour on the same machine leaves to the hardware, are taken whole and cut
    /// here: slots are then of 64 KiB. Otherwise they are too long for a slot, and skipped and counted as truncated.
    pub offload: bool,
}

impl PacketOptions {
    /// One queue of 256 frames, promiscuous, past traffic control, without large packets.
    pub fn new(interface: &str) -> PacketOptions {
        PacketOptions {
            interface: interface.to_owned(),
            frames: 256,
            queues: 1,
            promiscuous: true,
            traffic_control: false,
            offload: false,
        }
    }
}

/// A packet socket on an interface: one queue.
pub struct PacketSocket {
    socket: Socket,
    rings: Rings,
    interface: String,
    index: u32,
    mtu: usize,
    gone: bool,
    /// The interface was down at the last look.
    is_down: bool,
    lookout: Lookout,
    /// Slots filled since the kernel last took all of them.
    filled: usize,
    again: Lookout,
    /// It was opened with offloads.
    offload: bool,
    /// There with offloads, and from the first small packet on that is to be cut.
    cutter: Option<Cutter>,
    work: Work,
    calls: u64,
    counters: Counters,
    /// Frames that the kernel dropped and that `counters` does not have yet.
    missed: Cell<u64>,
}

impl std::fmt::Debug for PacketSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketSocket").field("interface", &self.interface).finish_non_exhaustive()
    }
}

impl PacketSocket {
    /// Opens a socket of one queue.
    ///
    /// # Errors
    /// There is no such interface, the process may not do this, or there is no memory for the rings.
    pub fn open(options: &PacketOptions) -> Result<PacketSocket, PortError> {
        PacketSocket::open_queues(&PacketOptions { queues: 1, ..options.clone() }).map(|mut queues| queues.remove(0))
    }

    /// Opens all queues; at least one.
    ///
    /// # Errors
    /// As for [`PacketSocket::open`].
    pub fn open_queues(options: &PacketOptions) -> Result<Vec<PacketSocket>, PortError> {
        let mut queues = vec![PacketSocket::open_one(options, true)?];
        let failed = |problem| PacketError { interface: options.interface.clone(), problem };
        if options.queues > 1 {
            let group = queues[0].socket.found_group().map_err(PacketProblem::System).map_err(failed)?;
            for _ in 1..options.queues {
                let queue = PacketSocket::open_one(options, false)?;
                // A group is joined by who is bound, who until then would take what the others take, too.
                let joined = queue.socket.join_group(group).and_then(|()| queue.socket.take_all());
                joined.map_err(PacketProblem::System).map_err(failed)?;
                queues.push(queue);
            }
        }
        Ok(queues)
    }

    /// Opens a queue, which takes what comes from now on, or nothing yet.
    fn open_one(options: &PacketOptions, takes: bool) -> Result<PacketSocket, PacketError> {
        let interface = options.interface.clone();
        let failed = |problem| PacketError { interface: options.interface.clone(), problem };
        if !netdevice::is_name(&interface) {
            return Err(failed(PacketProblem::Name));
        }
        let index = netdevice::index(&interface).map_err(|error| failed(PacketProblem::of(error)))?;
        let mtu = netdevice::mtu(&interface).map_err(|error| failed(PacketProblem::of(error)))?;
        let longest = if options.offload { LONGEST } else { MAX_FRAME.min(mtu + 22) };
        let geometry = Geometry::of(longest, options.frames);
        let socket = Socket::open(options, index, &geometry).map_err(|error| failed(PacketProblem::of(error)))?;
        let memory = socket.map(&geometry).map_err(|error| failed(PacketProblem::Memory(error)))?;
        if !takes {
            socket.take_nothing().map_err(|error| failed(PacketProblem::System(error)))?;
        }
        // Bound last: what arrived before the rings were there would wait in a queue that nobody reads.
        socket.bind(index).map_err(|error| failed(PacketProblem::of(error)))?;
        Ok(PacketSocket {
            socket,
            rings: Rings::new(memory, geometry),
            interface,
            index,
            mtu,
            gone: false,
            is_down: false,
            lookout: Lookout::every(LOOK),
            filled: 0,
            again: Lookout::every(AGAIN),
            offload: options.offload,
            cutter: options.offload.then(Cutter::new),
            work: Work::default(),
            calls: 0,
            counters: Counters::default(),
            missed: Cell::new(0),
        })
    }

    /// The interface's name.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    fn lost(&mut self, error: std::io::Error) -> PortError {
        self.gone = true;
        PacketError { interface: self.interface.clone(), problem: PacketProblem::Gone(error) }.into()
    }

    /// Looks whether the interface is still there. One that has been removed says the same on the socket as one that has been taken down,
    /// once; and nothing more where it was down before.
    fn look(&mut self) -> Result<(), PortError> {
        let said = self.socket.error();
        if said.is_ok() && !self.is_down {
            return Ok(());
        }
        if netdevice::is_gone(self.socket.as_fd(), self.index) {
            return Err(self.lost(said.err().unwrap_or_else(|| std::io::Error::from_raw_os_error(libc::ENODEV))));
        }
        self.is_down = netdevice::is_down(self.socket.as_fd(), &self.interface);
        Ok(())
    }

    /// Takes the frame of a slot into the caller's buffer; its length, or `None` where it was skipped and counted, or is to
    /// be cut.
    fn take(&mut self, slot: Slot, frame: &mut [u8]) -> Option<usize> {
        let Some(metadata) = slot.metadata else {
            self.counters.skipped_malformed += 1;
            return None;
        };
        if slot.captured < slot.length {
            self.counters.skipped_truncated += 1;
            return None;
        }
        if metadata.segmentation.is_some() {
            // Without a cutter slots are too short for such packets, and were found truncated above, but for small ones.
            let cutter = self.cutter.get_or_insert_with(Cutter::new);
            let room = cutter.room();
            let packet = (slot.captured <= room.len()).then(|| {
                self.rings.read(slot.at, &mut room[..slot.captured]);
                // Here, so that every piece has it, and is measured with it.
                tagged(room, slot)
            });
            let begun =
                packet.flatten().is_some_and(|length| cutter.begin(length, metadata, frame.len(), &mut self.work));
            self.counters.skipped_malformed += u64::from(!begun);
            return None;
        }
        let whole = slot.captured + if slot.tag.is_some() { vlan::TAG_BYTES } else { 0 };
        if whole > frame.len() {
            self.counters.skipped_oversized += 1;
            return None;
        }
        self.rings.read(slot.at, &mut frame[..slot.captured]);
        if !complete(&mut frame[..slot.captured], metadata, &mut self.work) {
            self.counters.skipped_malformed += 1;
            return None;
        }
        tagged(frame, slot).or_else(|| {
            self.counters.skipped_short += 1;
            None
        })
    }

    /// Asks the kernel how many frames it has dropped since it was last asked.
    fn ask_missed(&self) {
        if let Ok(dropped) = self.socket.dropped() {
            self.missed.set(self.missed.get() + u64::from(dropped));
        }
    }

    fn kick(&mut self) -> Result<(), PortError> {
        if self.filled == 0 || self.gone {
            return Ok(());
        }
        self.calls += 1;
        match self.socket.send() {
            // It stops without a word where the socket has as much under way as it may have.
            Ok(()) if self.rings.is_waiting() => {}
            Ok(()) => self.filled = 0,
            Err(error) => match error.raw_os_error() {
                // It goes on when it is told again: what was filled stays so.
                Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM | libc::EBUSY) => {}
                // The interface is down: the kernel has let go of the slots, as of frames sent without a carrier.
                Some(libc::ENETDOWN) => {
                    let (frames, bytes) = self.rings.take_back();
                    // They were counted as transmitted when they were taken.
                    self.counters.refused_by_kernel += frames;
                    self.counters.transmitted_frames -= frames;
                    self.counters.transmitted_bytes -= bytes;
                    self.filled = 0;
                }
                Some(libc::EINVAL | libc::EMSGSIZE) => self.filled = 0,
                _ => return Err(self.lost(error)),
            },
        }
        Ok(())
    }
}

/// Puts the tag back into the frame of a slot, which is at the beginning of this room; its length, or `None` where it is no frame or
/// there is no room. The kernel takes the outermost tag out of a frame, whoever looks.
fn tagged(room: &mut [u8], slot: Slot) -> Option<usize> {
    match slot.tag {
        Some(tag) => vlan::insert(room, slot.captured, tag),
        None => Some(slot.captured),
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Port for PacketSocket {
    fn receive(&mut self, now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        if self.gone {
            return Ok(Receive::End);
        }
        let limit = frame.len().min(MAX_FRAME);
        let frame = &mut frame[..limit];
        let cut = self.cutter.as_mut().filter(|cutter| cutter.is_busy()).and_then(|cutter| cutter.next(frame));
        if let Some(length) = cut {
            return Ok(self.counters.receive_frame(frame, length));
        }
        let Some(slot) = self.rings.received() else {
            if self.filled > 0 && self.again.is_due(now) {
                self.kick()?;
            }
            if self.lookout.is_due(now) {
                self.look()?;
            }
            return Ok(Receive::None);
        };
        if slot.losing {
            self.ask_missed();
            self.counters.missed += self.missed.take();
        }
        let taken = self.take(slot, frame);
        self.rings.release();
        let length = match taken {
            Some(length) => length,
            None => match self.cutter.as_mut().and_then(|cutter| cutter.next(frame)) {
                Some(length) => length,
                None => return Ok(Receive::Skipped),
            },
        };
        Ok(self.counters.receive_frame(frame, length))
    }

    fn transmit(&mut self, _now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        if self.counters.refuse(frame, self.mtu, self.gone) {
            return Ok(Transmit::Refused);
        }
        if !self.rings.fill(frame) {
            self.kick()?;
            if !self.rings.fill(frame) {
                self.counters.transmit_full += 1;
                return Ok(Transmit::Full);
            }
        }
        self.filled += 1;
        self.counters.count_transmitted(frame.len());
        Ok(Transmit::Accepted)
    }

    fn flush(&mut self, _now: Time) -> Result<(), PortError> {
        self.kick()
    }

    fn next_due(&self) -> Option<Time> {
        if self.cutter.as_ref().is_some_and(Cutter::is_busy) {
            return Some(Time::ZERO);
        }
        let again = (self.filled > 0).then_some(self.again.next());
        // Nobody wakes a sleeper when an interface that is down is removed.
        again.into_iter().chain(self.is_down.then_some(self.lookout.next())).min()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        self.ask_missed();
        let mut details = self.work.named().to_vec();
        details.push(("transmit_calls", self.calls));
        details.push(("missed_lately", self.missed.get()));
        details.push(("transmit_malformed", self.rings.malformed()));
        details
    }

    fn is_up(&self) -> bool {
        !self.gone && netdevice::is_running(&self.interface)
    }

    fn description(&self) -> String {
        let offload = if self.offload { ", with offloads" } else { "" };
        format!("packet socket on {}{offload}", self.interface)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn forget_received(&mut self) {
        // No more than fits at one time: what comes meanwhile is nobody else's.
        for _ in 0..self.rings.slots() {
            if self.rings.received().is_none() {
                break;
            }
            self.rings.release();
        }
        // Nor was what the kernel dropped until now missed here: asked for once, it is forgotten there.
        let _ = self.socket.dropped();
        self.missed.set(0);
    }

    fn finish(&mut self) -> Result<(), PortError> {
        self.kick()?;
        self.ask_missed();
        self.counters.missed += self.missed.take();
        Ok(())
    }
}
