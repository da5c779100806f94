//! Options of sockets that hold plain data.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Plain data that the kernel reads and writes as bytes.
///
/// # Safety
///
/// Any bytes are a value, and there is no padding.
pub unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for i32 {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: three integers of 32 bits.
unsafe impl Plain for libc::ucred {}

/// Sets an option of a socket.
///
/// # Errors
///
/// What the system said.
pub fn set_option<T: Plain>(socket: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is plain data of the size given, borrowed for the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option of a socket; bytes that the kernel does not give stay zero.
///
/// # Errors
///
/// What the system said.
pub fn option<T: Plain>(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<T> {
    // SAFETY: plain data, for which zeros are a value.
    let mut value: T = unsafe { mem::zeroed() };
    let mut size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is plain data of the size given, borrowed for writing for the call.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, std::ptr::from_mut(&mut value).cast(), &raw mut size)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}
