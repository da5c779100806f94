//! What a port sleeps on, and how it wakes the other side.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use conic_native::Ringer;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};

/// Adds a descriptor to those that are waited for.
pub(crate) fn watch(waiter: &OwnedFd, descriptor: BorrowedFd<'_>, flags: epoll::EventFlags) -> std::io::Result<()> {
    Ok(epoll::add(waiter, descriptor, epoll::EventData::new_u64(0), flags)?)
}

/// Forgets interrupts that have come.
pub(crate) fn forget(waiter: &OwnedFd) {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 8];
    // What is not forgotten wakes once more.
    let _ = epoll::wait(waiter, &mut events[..], Some(&NOW));
}

/// Tells the other side that there is something.
pub(crate) fn ring_peer(ringer: Option<&Ringer>, interrupt: &impl AsFd) {
    match ringer {
        // It is an eventfd: that was looked at when it came.
        Some(ringer) => {
            let _ = ringer.ring(interrupt.as_fd());
        }
        None => ring_bell(interrupt),
    }
}

/// Rings a bell of this process's own; or, where nothing better is there, another's, which may fill it behind the look and make it wait.
pub(crate) fn ring_bell(descriptor: &impl AsFd) {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut poll = [PollFd::new(descriptor, PollFlags::OUT)];
    if rustix::event::poll(&mut poll, Some(&NOW)).is_ok_and(|ready| ready > 0) {
        // A bell that has rung too often to count is as good as one that rings.
        let _ = rustix::io::write(descriptor, &1u64.to_ne_bytes());
    }
}
