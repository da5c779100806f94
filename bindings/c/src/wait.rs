//! Waiting for packets.

use std::ffi::c_int;
use std::time::Duration;

use crate::burst::Queue;
use crate::status::Status;

/// Waits until `conic_rx_burst` has a packet to give: looks again for 50 microseconds, then sleeps until the NIC rings. `timeout` is
/// how many nanoseconds at the most; 0 looks once, and a negative one waits for as long as it takes. While the daemon is gone
/// it waits for it to come back, and goes on. It also ends when a handler of a signal has run. One thread at a time.
///
/// Returns 1 if there is a packet, 0 if there is none; or `CONIC_ERROR_ARGUMENT` if `queue` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_wait(queue: *mut Queue, timeout: i64) -> c_int {
    // SAFETY: as the caller says.
    let Some(queue) = (unsafe { queue.as_mut() }) else { return Status::Argument as c_int };
    c_int::from(queue.wait(u64::try_from(timeout).map_or(Duration::MAX, Duration::from_nanos)))
}

/// A descriptor for `poll`, `epoll` or an event loop, by which a program waits for several queues, or for a queue and something
/// else. It is readable when the NIC has rung for this queue, after `conic_arm` asked for that; and now and then while the daemon
/// is gone. It is the same for as long as the queue lives, whatever becomes of the daemon. It belongs to the library: it is
/// neither read nor closed. One thread at a time.
///
/// Returns the descriptor; `CONIC_ERROR_SYSTEM` if the kernel gives none; or `CONIC_ERROR_ARGUMENT` if `queue` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_get_fd(queue: *mut Queue) -> c_int {
    // SAFETY: as the caller says.
    let Some(queue) = (unsafe { queue.as_mut() }) else { return Status::Argument as c_int };
    queue.descriptor().unwrap_or(Status::System as c_int)
}

/// Asks the NIC to ring at the next packet, before the program sleeps on the descriptor of `conic_get_fd`. When it has woken, for
/// whatever reason, it calls `conic_disarm`, then `conic_rx_burst` until that gives nothing, and then this again. One thread at a
/// time.
///
/// Returns 0 if the program may sleep; 1 if there is a packet already, and nothing was asked for; `CONIC_ERROR_SYSTEM` if the
/// kernel has no descriptor to give; or `CONIC_ERROR_ARGUMENT` if `queue` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_arm(queue: *mut Queue) -> c_int {
    // SAFETY: as the caller says.
    let Some(queue) = (unsafe { queue.as_mut() }) else { return Status::Argument as c_int };
    queue.arm().map_or(Status::System as c_int, c_int::from)
}

/// Takes back what `conic_arm` asked for: the NIC does not ring, and the descriptor is not readable any more. Looks after the
/// connection where the daemon is gone, without waiting for it: each time a step further. One thread at a time.
///
/// Returns 0; `CONIC_ERROR_SYSTEM` if the kernel refuses; or `CONIC_ERROR_ARGUMENT` if `queue` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_disarm(queue: *mut Queue) -> c_int {
    // SAFETY: as the caller says.
    let Some(queue) = (unsafe { queue.as_mut() }) else { return Status::Argument as c_int };
    queue.disarm().map_or(Status::System as c_int, |()| 0)
}
