//! The system calls of an AF_XDP socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use conic_native::socket::{Plain, option, set_option};
use conic_native::{Mapping, clock};

use super::ring::{ADDRESS, Consumer, DESCRIPTOR, Offsets, Producer};
use crate::netdevice;

/// Attempts while a queue or an interface is busy, with a pause between two: what was closed, by this process or another
/// that has ended, is let go of a little later: on a loaded machine by more than half a second.
const ATTEMPTS: u32 = 200;
/// Nanoseconds of that pause.
const PAUSE: u64 = 10_000_000;

/// Does something that may be busy for a while; gives also how often it was tried again.
pub(super) fn patiently<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<(T, u32)> {
    let mut again = 0;
    loop {
        match attempt() {
            Ok(value) => return Ok((value, again)),
            Err(error) if error.raw_os_error() != Some(libc::EBUSY) || again == ATTEMPTS => return Err(error),
            Err(_) => again += 1,
        }
        pause();
    }
}

/// Waits for a pause, to its end also where signals come: else a program that gets many would have no patience.
fn pause() {
    let end = clock::now().nanoseconds() + PAUSE;
    let mut left = PAUSE;
    while left > 0 {
        let time = libc::timespec { tv_sec: 0, tv_nsec: left as i64 };
        // SAFETY: the time outlives the call, and the rest is not asked for.
        unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
        left = end.saturating_sub(clock::now().nanoseconds());
    }
}

/// An AF_XDP socket.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

/// The four rings of a socket.
pub(super) struct Rings {
    pub(super) fill: Producer,
    pub(super) receive: Consumer,
    pub(super) transmit: Producer,
    pub(super) completion: Consumer,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Memory {
    address: u64,
    length: u64,
    frame_size: u32,
    headroom: u32,
    flags: u32,
    metadata: u32,
}

// SAFETY: integers at their natural places, 32 bytes in all.
unsafe impl Plain for Memory {}

#[repr(C)]
#[derive(Clone, Copy)]
struct RingOffsets {
    producer: u64,
    consumer: u64,
    entries: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct MapOffsets {
    receive: RingOffsets,
    transmit: RingOffsets,
    fill: RingOffsets,
    completion: RingOffsets,
}

// SAFETY: integers alone.
unsafe impl Plain for MapOffsets {}

/// What the kernel counts for a socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Statistics {
    /// Dropped for other reasons than those below.
    pub(super) receive_dropped: u64,
    pub(super) receive_invalid: u64,
    pub(super) transmit_invalid: u64,
    /// Dropped because the receive ring was full.
    pub(super) receive_ring_full: u64,
    /// Dropped because there was no frame to receive into.
    pub(super) fill_ring_empty: u64,
    pub(super) transmit_ring_empty: u64,
}

// SAFETY: six integers.
unsafe impl Plain for Statistics {}

impl Statistics {
    /// Packets that did not get into the receive ring.
    pub(super) fn missed(&self) -> u64 {
        self.receive_dropped + self.receive_ring_full
    }
}

impl Socket {
    pub(super) fn open() -> io::Result<Socket> {
        netdevice::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map(Socket)
    }

    fn set<T: Plain>(&self, name: i32, value: &T) -> io::Result<()> {
        set_option(self.0.as_fd(), libc::SOL_XDP, name, value)
    }

    /// A socket of another process, which passed it.
    pub(super) fn of_descriptor(socket: OwnedFd) -> Socket {
        Socket(socket)
    }

    /// Registers the memory, which must outlive the socket, and makes the rings.
    pub(super) fn make_rings(&self, memory: &Mapping, frame_bytes: usize, size: u32) -> io::Result<()> {
        let registration = Memory {
            address: memory.base() as u64,
            length: memory.bytes() as u64,
            frame_size: frame_bytes as u32,
            headroom: 0,
            flags: 0,
            metadata: 0,
        };
        self.set(libc::XDP_UMEM_REG, &registration)?;
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING] {
            self.set(ring, &size)?;
        }
        Ok(())
    }

    /// Maps the rings, from where they stand. Linux 6.4 and newer map those of a bound socket too.
    pub(super) fn map_rings(&self, size: u32) -> io::Result<Rings> {
        let offsets: MapOffsets = option(self.0.as_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let map = |at: &RingOffsets, page_offset: u64, entry: usize| {
            let offsets = Offsets {
                producer: at.producer as usize,
                consumer: at.consumer as usize,
                entries: at.entries as usize,
                flags: at.flags as usize,
            };
            let bytes = offsets.entries + size as usize * entry;
            Mapping::of(self.0.as_fd(), bytes, page_offset).map(|memory| (memory, offsets))
        };
        let (fill, fill_at) = map(&offsets.fill, libc::XDP_UMEM_PGOFF_FILL_RING, ADDRESS)?;
        let (done, done_at) = map(&offsets.completion, libc::XDP_UMEM_PGOFF_COMPLETION_RING, ADDRESS)?;
        let (receive, receive_at) = map(&offsets.receive, libc::XDP_PGOFF_RX_RING as u64, DESCRIPTOR)?;
        let (transmit, transmit_at) = map(&offsets.transmit, libc::XDP_PGOFF_TX_RING as u64, DESCRIPTOR)?;
        Ok(Rings {
            fill: Producer::new(fill, fill_at, size),
            receive: Consumer::new(receive, receive_at, size),
            transmit: Producer::new(transmit, transmit_at, size),
            completion: Consumer::new(done, done_at, size),
        })
    }

    /// Binds the socket to a queue of an interface; gives how often it was tried again because the queue was busy.
    pub(super) fn bind(&self, interface: u32, queue: u32, flags: u16) -> io::Result<u32> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let size = size_of::<libc::sockaddr_xdp>() as u32;
        let bind = || {
            // SAFETY: the address is of the size given and outlives the call.
            let result = unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), size) };
            if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        };
        patiently(bind).map(|((), again)| again)
    }

    /// Whether the kernel passes frames without copying them.
    pub(super) fn is_zero_copy(&self) -> bool {
        option::<u32>(self.0.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS)
            .is_ok_and(|options| options & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Lets the kernel send what is in the transmit ring.
    pub(super) fn send(&self) -> io::Result<()> {
        // SAFETY: no memory is passed: what is sent is in the ring.
        let result =
            unsafe { libc::sendto(self.0.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Lets the kernel look into the fill ring.
    pub(super) fn wake_receive(&self) {
        // What it answers is of no use: it has looked, or will when it is asked again.
        // SAFETY: no memory is passed.
        unsafe {
            libc::recvfrom(
                self.0.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    pub(super) fn statistics(&self) -> io::Result<Statistics> {
        option(self.0.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
