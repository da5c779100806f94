//! The other end of a socket, which says anything, with any descriptors.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use conic_fabric::Layout;
use conic_native::{Memory, Pages};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, sendmsg, shutdown, socket_with,
};

/// More than any message may have.
pub const MOST_DESCRIPTORS: usize = 24;

/// How long a peer may take that is to say something or to hang up, in seconds.
const PATIENCE: i64 = 20;

pub struct Wire(OwnedFd);

impl Wire {
    pub fn connect(path: &Path, kind: SocketType) -> std::io::Result<Wire> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Wire(socket))
    }

    pub fn of(socket: OwnedFd) -> Wire {
        Wire(socket)
    }

    /// Says something, without descriptors where they cannot come (Linux 6.16 lets a socket refuse them); false if nobody hears it.
    pub fn say(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        let send = |descriptors: &[BorrowedFd<'_>]| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() {
                assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "there is space");
            }
            sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
        };
        send(descriptors).or_else(|_| send(&[])).is_ok()
    }

    /// Says no more.
    pub fn say_no_more(&self) {
        let _ = shutdown(&self.0, Shutdown::Write);
    }

    /// What was said, if anything; an end is nothing.
    pub fn hear(&self, into: &mut [u8]) -> Option<usize> {
        recv(&self.0, into, RecvFlags::DONTWAIT).ok().map(|(length, _)| length).filter(|&length| length > 0)
    }

    /// Waits until the other side has hung up, and hears all that it says before.
    pub fn hear_out(&self) {
        let mut bytes = vec![0; 1 << 16];
        loop {
            match recv(&self.0, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((1.., _)) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    let timeout = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
                    let woken = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout));
                    assert_ne!(woken, Ok(0), "nobody hangs up behind a word that is the last");
                }
                _ => return,
            }
        }
    }
}

/// How many kinds of descriptors there are.
pub const KINDS: u8 = 10;

/// A descriptor of a kind: what a region may be is as long as a layout, and longer than any is asked to be.
pub fn descriptor(kind: u8, layout: &Layout) -> OwnedFd {
    let memory = |bytes: u64| {
        let memory = memfd_create("test", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&memory, bytes).expect("its size");
        memory
    };
    let open = |path: &str| OwnedFd::from(File::open(path).expect("it is there"));
    match kind % KINDS {
        0 => {
            let region = Memory::create(layout, Pages::Plain).expect("a region");
            region.descriptor().as_fd().try_clone_to_owned().expect("a copy")
        }
        1 => UnixStream::pair().expect("a pair").0.into(),
        2 => memory(layout.bytes().next_multiple_of(4096)),
        3 => {
            let short = memory(64);
            rustix::fs::fcntl_add_seals(&short, rustix::fs::SealFlags::SHRINK).expect("its seal");
            short
        }
        4 => eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd"),
        5 => open("/dev/zero"),
        6 => open("/"),
        7 => open("/proc/self/maps"),
        8 => std::io::pipe().expect("a pipe").1.into(),
        _ => {
            let sealed = memory(1 << 20);
            rustix::fs::fcntl_add_seals(&sealed, rustix::fs::SealFlags::SHRINK).expect("its seal");
            sealed
        }
    }
}
