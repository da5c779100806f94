//! One direction of a queue pair.

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use conic_client::{Link, Queue, SharedMemory};
use conic_fabric::Address;
use conic_interface::burst::{HostQueue, Packet};

/// One direction of a queue pair, for one thread at a time; opaque in C. Addresses are good for the region that it is in, until
/// [`conic_half_renew`] moves on.
#[derive(Debug)]
pub struct Half {
    pub(crate) queue: Queue,
}

impl Half {
    pub(crate) fn new(queue: Queue) -> Half {
        Half { queue }
    }
}

/// What went wrong on a half; `struct conic_half_faults` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct HalfFaults {
    /// Impossible things in the ring.
    pub ring: u64,
    /// Freed, and no buffer.
    pub not_a_buffer: u64,
    /// Freed, and free already.
    pub freed_twice: u64,
}

/// Closes a half.
///
/// # Safety
///
/// `half` came from `conic_port_open` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_close(half: *mut Half) {
    // SAFETY: as this function's contract says.
    drop(unsafe { Box::from_raw(half) });
}

/// Receives packets into `out` and gives how many.
///
/// # Safety
///
/// `half` is a receiver of this thread's, and `out` has room for `most` packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_receive(half: *mut Half, out: *mut Packet, most: u32) -> u32 {
    // SAFETY: as this function's contract says; zeroes are packets.
    let (half, out) = unsafe { (&mut *half, std::slice::from_raw_parts_mut(out, most as usize)) };
    half.queue.rx_burst(out) as u32
}

/// Sends packets and gives how many, from the front, were taken.
///
/// # Safety
///
/// `half` is a sender of this thread's, and `packets` has `count` packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_send(half: *mut Half, packets: *const Packet, count: u32) -> u32 {
    // SAFETY: as this function's contract says.
    let (half, packets) = unsafe { (&mut *half, std::slice::from_raw_parts(packets, count as usize)) };
    half.queue.tx_burst(packets) as u32
}

/// Allocates buffers for `bytes` each and gives how many.
///
/// # Safety
///
/// `half` is of this thread's, and `out` has room for `count` addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_allocate(half: *mut Half, bytes: u64, out: *mut Address, count: u32) -> u32 {
    // SAFETY: as this function's contract says.
    let (half, out) = unsafe { (&mut *half, std::slice::from_raw_parts_mut(out, count as usize)) };
    half.queue.buf_alloc(bytes, out) as u32
}

/// Frees buffers.
///
/// # Safety
///
/// `half` is of this thread's, and `buffers` has `count` addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_free(half: *mut Half, buffers: *const Address, count: u32) {
    // SAFETY: as this function's contract says.
    let (half, buffers) = unsafe { (&mut *half, std::slice::from_raw_parts(buffers, count as usize)) };
    half.queue.buf_free(buffers);
}

/// Whether there is another region to move on to.
///
/// # Safety
///
/// `half` is of this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_is_stale(half: *const Half) -> bool {
    // SAFETY: as this function's contract says.
    unsafe { &*half }.queue.is_stale()
}

/// Whether the daemon was there when it was last looked.
///
/// # Safety
///
/// `half` is of this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_is_up(half: *const Half) -> bool {
    // SAFETY: as this function's contract says.
    unsafe { &*half }.queue.link() == Link::Up
}

/// Moves on to the region of the present connection, if there is another; whether it did. What had been delivered in the old one and
/// was not received is gone, and addresses in it mean nothing to this half any more.
///
/// # Safety
///
/// `half` is of this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_renew(half: *mut Half) -> bool {
    // SAFETY: as this function's contract says.
    unsafe { &mut *half }.queue.renew()
}

/// How many packets, or segments of such, wait to be received; `most` at most. Nothing is taken.
///
/// # Safety
///
/// `half` is a receiver of this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_waiting(half: *const Half, most: u32) -> u32 {
    // SAFETY: as this function's contract says.
    unsafe { &*half }.queue.waiting(most as usize) as u32
}

/// How many packets there is room to send, in bursts.
///
/// # Safety
///
/// `half` is a sender of this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_room(half: *mut Half) -> u32 {
    // SAFETY: as this function's contract says.
    unsafe { &mut *half }.queue.room() as u32
}

/// Asks the NIC to ring the half's bell at the next packet; true, and it is not asked, if one is there already.
///
/// # Safety
///
/// `half` is a receiver of this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_arm(half: *mut Half) -> bool {
    // SAFETY: as this function's contract says.
    unsafe { &mut *half }.queue.arm()
}

/// Takes back what `conic_half_arm` asked for, and silences the bell.
///
/// # Safety
///
/// `half` is a receiver of this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_disarm(half: *mut Half) {
    // SAFETY: as this function's contract says.
    unsafe { &mut *half }.queue.disarm();
}

/// The descriptor that is readable when the NIC has rung, and when the daemon is gone. It is the half's, and another one after
/// [`conic_half_renew`].
///
/// # Safety
///
/// `half` is of this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_bell(half: *const Half) -> c_int {
    // SAFETY: as this function's contract says.
    unsafe { &*half }.queue.bell().as_raw_fd()
}

/// The region that a half is in; to be let go of by `conic_memory_close`.
///
/// # Safety
///
/// `half` is of this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_memory(half: *const Half) -> *mut SharedMemory {
    // SAFETY: as this function's contract says.
    Box::into_raw(Box::new(unsafe { &*half }.queue.memory()))
}

/// What went wrong on a half.
///
/// # Safety
///
/// `half` is valid and `faults` too; read while another thread uses the half, the figures may be of different moments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_half_faults(half: *const Half, faults: *mut HalfFaults) {
    // SAFETY: as this function's contract says.
    let (all, faults) = unsafe { ((*half).queue.faults().host, &mut *faults) };
    *faults = HalfFaults {
        ring: all.transmit.total() + all.receive.total(),
        not_a_buffer: all.not_a_buffer,
        freed_twice: all.freed_twice,
    };
}
