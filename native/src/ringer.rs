//! Ringing another process's eventfd without ever waiting for it.
//!
//! A `write(2)` waits at an eventfd that is full, unless its `O_NONBLOCK` is set. That flag is the open file's, and so the other process's too:
//! it can fill the eventfd and clear the flag between any look at it and the write. The kernel's own signal never waits. It comes with each
//! request of asynchronous I/O that is done (`io_submit(2)`, `IOCB_FLAG_RESFD`); the request here is to read nothing from an empty file of
//! ours, which is done before the call returns. It takes as long as a look and a write.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};

/// Rings that may be done before they are cleared away, at the least.
const ROOM: libc::c_long = 8;

/// How often room is made for one ring at the most.
const TRIES: usize = 16;

/// `struct iocb` of `linux/aio_abi.h`, on a machine whose lowest byte comes first.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    flags_of_reading: u32,
    /// To read at a place in the file.
    command: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    place: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

/// An eventfd is to be rung when the request is done.
const IOCB_FLAG_RESFD: u32 = 1;
const _: () = assert!(size_of::<Request>() == 64 && cfg!(target_endian = "little"));

/// `struct io_event` of the same header.
type Event = [u64; 4];

/// What rings other processes' eventfds, from any thread. To drop it takes the kernel some milliseconds.
#[derive(Debug)]
pub struct Ringer {
    context: libc::c_ulong,
    nothing: OwnedFd,
}

impl Ringer {
    /// Something to ring with.
    ///
    /// # Errors
    ///
    /// The system has no asynchronous I/O, allows none, or no more of it (`fs.aio-max-nr`), or no descriptor more.
    pub fn new() -> io::Result<Ringer> {
        let nothing = memfd_create("nothing", MemfdFlags::CLOEXEC)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the call writes one word, which is ours.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, ROOM, &raw mut context) };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Ringer { context, nothing })
    }

    /// Adds one to an eventfd; one that is full stays so. Never waits, whatever others do to it.
    ///
    /// # Errors
    ///
    /// It is no eventfd, or the system has no memory.
    pub fn ring(&self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        let mut done = self.submit(eventfd);
        // Again where other threads have taken the room meanwhile, and not for ever.
        for _ in 0..TRIES {
            if !matches!(&done, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                break;
            }
            self.clear_away();
            done = self.submit(eventfd);
        }
        done
    }

    fn submit(&self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        let [file, eventfd] = [self.nothing.as_fd(), eventfd].map(|one| one.as_raw_fd() as u32);
        let mut request = Request { file, eventfd, flags: IOCB_FLAG_RESFD, ..Request::default() };
        let mut requests = [&raw mut request];
        // SAFETY: the kernel copies the request, and writes its key, before the call returns; no byte is read into its empty buffer.
        let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, requests.as_mut_ptr()) };
        if taken == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Takes what is done, which nobody wants to know of.
    fn clear_away(&self) {
        let mut done = [Event::default(); 64];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let room = done.len() as libc::c_long;
            // SAFETY: the call writes as many events at most as there is room for, and reads the time.
            let taken = unsafe {
                libc::syscall(libc::SYS_io_getevents, self.context, 0, room, done.as_mut_ptr(), &raw const now)
            };
            if taken < room {
                return;
            }
        }
    }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        // SAFETY: nobody uses the context any more. Nothing is under way in it that would be waited for.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn read(eventfd: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(eventfd, &mut bytes).expect("it was rung");
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn an_eventfd_that_is_full_and_blocks_keeps_nobody_waiting() {
        let ringer = Ringer::new().expect("there is asynchronous I/O");
        let bell = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        for _ in 0..10_000 {
            ringer.ring(bell.as_fd()).expect("it is an eventfd");
        }
        assert_eq!(read(&bell), 10_000);
        rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).expect("there is room");
        for _ in 0..10_000 {
            // A write would wait here for ever.
            ringer.ring(bell.as_fd()).expect("it is an eventfd");
        }
        assert_eq!(read(&bell), u64::MAX);
        let (_, pipe) = io::pipe().expect("a pipe");
        ringer.ring(pipe.as_fd()).expect_err("it is none");
    }
}
