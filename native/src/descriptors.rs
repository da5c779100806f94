//! A table of descriptors: a thread's own, and what of it programs get that are started.

use std::io;

/// `CLOSE_RANGE_UNSHARE` of `linux/close_range.h`.
const CLOSE_RANGE_UNSHARE: libc::c_uint = 1 << 1;

/// `CLOSE_RANGE_CLOEXEC` of the same.
const CLOSE_RANGE_CLOEXEC: libc::c_uint = 1 << 2;

/// Has programs that are started from now on inherit none of the descriptors that there are, but standard input, output and error.
///
/// # Errors
///
/// What the system said.
pub fn keep_to_this_program() -> io::Result<()> {
    let (first, last) = (libc::STDERR_FILENO as libc::c_uint + 1, libc::c_uint::MAX);
    // SAFETY: the call takes numbers alone, and closes nothing here.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, CLOSE_RANGE_CLOEXEC) } == 0 {
        return Ok(());
    }
    // Before Linux 5.11.
    for descriptor in std::fs::read_dir("/proc/self/fd")? {
        let number = descriptor?.file_name().to_str().and_then(|name| name.parse::<libc::c_int>().ok());
        if let Some(number) = number.filter(|number| *number > libc::STDERR_FILENO) {
            // SAFETY: the call takes numbers alone. It closes nothing; a descriptor that is gone meanwhile is an error that says nothing.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

/// From now on this thread has copies of the process's descriptors, and is told of no other; they are closed as it ends. What is closed so
/// does not wait: the kernel gives up what lingers (`SO_LINGER`) where the one that closes it is ending.
///
/// # Errors
///
/// What the system said.
///
/// # Safety
///
/// The thread closes none of them, and makes none that another thread is to have: a number means something else in either table.
pub unsafe fn copy_for_this_thread() -> io::Result<()> {
    // The range has nothing in it: it is closed for what comes with it, in sandboxes too that allow no `unshare` (Docker's).
    let last = libc::c_uint::MAX;
    // SAFETY: the call takes numbers alone; what becomes of the table is this function's contract.
    if unsafe { libc::syscall(libc::SYS_close_range, last, last, CLOSE_RANGE_UNSHARE) } == 0 {
        return Ok(());
    }
    // Before Linux 5.9.
    // SAFETY: as above.
    if unsafe { libc::unshare(libc::CLONE_FILES) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
