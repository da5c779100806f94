//! The system calls of a packet socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use conic_native::Mapping;
use conic_native::socket::{Plain, option, set_option};

use super::PacketOptions;
use super::ring::Geometry;
use crate::netdevice;

/// A packet socket that is not bound yet.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    block_size: u32,
    blocks: u32,
    frame_size: u32,
    frames: u32,
}

// SAFETY: four integers.
unsafe impl Plain for Request {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Membership {
    interface: i32,
    kind: u16,
    length: u16,
    address: [u8; 8],
}

// SAFETY: integers at their natural places, 16 bytes in all.
unsafe impl Plain for Membership {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Statistics {
    packets: u32,
    drops: u32,
}

// SAFETY: two integers.
unsafe impl Plain for Statistics {}

/// A classic BPF program as the kernel takes it, `struct sock_fprog`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Program {
    length: u16,
    unused: [u16; 3],
    /// Where its instructions are.
    address: usize,
}

// SAFETY: integers at their natural places, 16 bytes in all.
unsafe impl Plain for Program {}

impl Socket {
    /// A socket with its rings, on no interface yet.
    pub(super) fn open(options: &PacketOptions, index: u32, geometry: &Geometry) -> io::Result<Socket> {
        // Protocol 0: nothing is received before the socket is bound.
        let socket = Socket(netdevice::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?);
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        socket.set(libc::PACKET_VERSION, &version)?;
        socket.set(libc::PACKET_VNET_HDR, &1)?;
        // What the kernel's own stack sends is not what this interface receives; kernels before 4.20 cannot tell.
        let _ = socket.set(libc::PACKET_IGNORE_OUTGOING, &1);
        // A frame that cannot be sent is dropped instead of blocking those behind it.
        socket.set(libc::PACKET_LOSS, &1)?;
        if !options.traffic_control {
            socket.set(libc::PACKET_QDISC_BYPASS, &1)?;
        }
        if options.promiscuous {
            let kind = libc::PACKET_MR_PROMISC as u16;
            let membership = Membership { interface: index as i32, kind, length: 0, address: [0; 8] };
            socket.set(libc::PACKET_ADD_MEMBERSHIP, &membership)?;
        }
        let request = Request {
            block_size: geometry.block_bytes as u32,
            blocks: geometry.blocks as u32,
            frame_size: geometry.slot_bytes as u32,
            frames: geometry.slots() as u32,
        };
        socket.set(libc::PACKET_RX_RING, &request)?;
        socket.set(libc::PACKET_TX_RING, &request)?;
        Ok(socket)
    }

    fn set<T: Plain>(&self, name: i32, value: &T) -> io::Result<()> {
        set_option(self.0.as_fd(), libc::SOL_PACKET, name, value)
    }

    /// Maps both rings.
    pub(super) fn map(&self, geometry: &Geometry) -> io::Result<Mapping> {
        Mapping::of(self.0.as_fd(), 2 * geometry.bytes(), 0)
    }

    /// Begins to receive what the interface receives.
    pub(super) fn bind(&self, index: u32) -> io::Result<()> {
        // SAFETY: all members are integers or arrays of them, for which zeros are a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        let size = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the address is of the size given and outlives the call.
        let result = unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), size) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes nothing that the interface receives, until it is to take all.
    pub(super) fn take_nothing(&self) -> io::Result<()> {
        // It gives how many bytes of a frame are taken.
        let returns = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
        let address = (&raw const returns).expose_provenance();
        let program = Program { length: 1, unused: [0; 3], address };
        set_option(self.0.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// Takes what the interface receives.
    pub(super) fn take_all(&self) -> io::Result<()> {
        set_option(self.0.as_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0i32)
    }

    /// Makes this socket the first of a group over which the interface's flows are spread; gives the group.
    pub(super) fn found_group(&self) -> io::Result<u16> {
        let kind = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_UNIQUEID;
        self.set(libc::PACKET_FANOUT, &(kind << 16))?;
        let given: u32 = option(self.0.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT)?;
        Ok(given as u16)
    }

    /// Joins such a group.
    pub(super) fn join_group(&self, group: u16) -> io::Result<()> {
        self.set(libc::PACKET_FANOUT, &(libc::PACKET_FANOUT_HASH << 16 | u32::from(group)))
    }

    /// Lets the kernel send what has been filled in.
    pub(super) fn send(&self) -> io::Result<()> {
        // SAFETY: no memory is passed: what is sent is in the ring.
        let result = unsafe { libc::send(self.0.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Frames dropped for want of a free slot since this was last asked.
    pub(super) fn dropped(&self) -> io::Result<u32> {
        option::<Statistics>(self.0.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS)
            .map(|statistics| statistics.drops)
    }

    /// What the kernel has to say of the interface: it is gone, or down.
    pub(super) fn error(&self) -> io::Result<()> {
        match option::<i32>(self.0.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR)? {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
