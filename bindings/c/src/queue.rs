//! Queues: the burst calls of CC-NIC's Figure 5.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;

use crate::burst::Queue;
use crate::memory::{Plain, write_sized};
use crate::status::Status;

/// In a packet's `flags`: it goes on in the next one of the array. A chain has at most 4 parts.
pub const CONIC_BUF_NEXT: u32 = 1;

/// A packet in memory that the program shares with the daemon, or room for one.
///
/// Whose the bytes are: the program's from `conic_buf_alloc` or `conic_rx_burst` on, until it gives them away with
/// `conic_tx_burst` or back with `conic_buf_free`. Afterwards they must not be touched. Nobody else writes them while they are the
/// program's, but a daemon that is not to be trusted could. The structure itself is the program's own and may be copied.
///
/// `data` may be moved within the buffer, as when a header is taken away.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Buf {
    /// The first byte.
    pub data: *mut c_void,
    /// Bytes of the packet.
    pub length: u32,
    /// Bytes from `data` to the end of the buffer, as the library said it; not read by the library.
    pub capacity: u32,
    /// `CONIC_BUF_NEXT`, or 0.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// What the NIC is asked for, or says of the packet: `CONIC_META_` bits and what belongs to them. Zero in all parts of a
    /// chain but the first; zero and not looked at where the client has no `offloads`.
    pub metadata: u64,
}

/// In `metadata`, to the NIC: complete TCP's or UDP's checksum, whose field holds the sum of the pseudo-header, not complemented.
/// From it: the checksum is not complete, and need not be. Bits 0 to 7 say where the transport header begins, in bytes from the
/// frame's beginning, and bits 8 to 15 where the checksum lies, in bytes from there.
pub const CONIC_META_BEGUN: u64 = 1u64 << 48;
/// In `metadata`, to the NIC: fill in the checksum of the IPv4 header.
pub const CONIC_META_NETWORK: u64 = 1u64 << 49;
/// In `metadata`, with `CONIC_META_BEGUN`: the packet is to be cut into several, or stands for several, each with as many bytes of
/// payload as bits 16 to 31 say. The sum of the pseudo-header is made anew.
pub const CONIC_META_LARGE: u64 = 1u64 << 50;
/// In `metadata`: a VLAN tag is to be put in, or was taken out; bits 32 to 47 are its control information.
pub const CONIC_META_VLAN: u64 = 1u64 << 51;
/// In `metadata` of a received packet without `CONIC_META_BEGUN`: bits 0 to 31 are the hash of its flow (Toeplitz, with the key of
/// Microsoft's verification suite).
pub const CONIC_META_HASH: u64 = 1u64 << 52;
/// In `metadata` of a received packet: TCP's or UDP's checksum is right.
pub const CONIC_META_TRANSPORT_GOOD: u64 = 1u64 << 53;
/// In `metadata` of a received packet: TCP's or UDP's checksum is wrong. Neither: there is none, or nobody looked.
pub const CONIC_META_TRANSPORT_BAD: u64 = 1u64 << 54;
/// In `metadata` of a received packet: the IPv4 header's checksum is right.
pub const CONIC_META_NETWORK_GOOD: u64 = 1u64 << 55;
/// In `metadata` of a received packet: the IPv4 header's checksum is wrong.
pub const CONIC_META_NETWORK_BAD: u64 = 1u64 << 56;

const _: () = {
    use conic_client::Metadata;
    assert!(CONIC_META_BEGUN == Metadata::BEGUN && CONIC_META_NETWORK == Metadata::NETWORK);
    assert!(CONIC_META_LARGE == Metadata::LARGE && CONIC_META_VLAN == Metadata::VLAN);
    assert!(CONIC_META_HASH == Metadata::HASH);
    assert!(CONIC_META_TRANSPORT_GOOD == Metadata::TRANSPORT_GOOD);
    assert!(CONIC_META_TRANSPORT_BAD == Metadata::TRANSPORT_BAD);
    assert!(CONIC_META_NETWORK_GOOD == Metadata::NETWORK_GOOD);
    assert!(CONIC_META_NETWORK_BAD == Metadata::NETWORK_BAD);
};

/// What one queue has done.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Packets that the NIC took.
    pub sent_frames: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Packets received.
    pub received_frames: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// Buffers asked for that there were none of.
    pub no_buffer: u64,
    /// Packets that were offered and for which there was no room, or no link; each time that they were offered.
    pub not_taken: u64,
    /// Packets from the NIC that lay in no buffer, which were dropped; and those of more than 4 parts, which were cut.
    pub refused: u64,
    /// Impossible positions that the NIC wrote to the rings.
    pub ring_faults: u64,
    /// Buffers that the program freed, or the NIC handed over, that were free already.
    pub freed_twice: u64,
    /// Packets in a region of a daemon that is gone, sent by copying them.
    pub copied: u64,
}

// SAFETY: integers of one size.
unsafe impl Plain for Counters {}

/// Arrays longer than this are cut where a call says how much it did: it may do less than it is asked for.
const MOST: c_uint = 1 << 16;

/// Allocates buffers for packets of `bytes` each (at most 16384), small ones if those are large enough, and puts them into
/// `bufs`, which has room for `count`: `length` is `bytes`, `flags` and `metadata` are 0. The bytes themselves are unspecified.
/// Never waits. One thread at a time.
///
/// Returns how many, less than `count` where there are no more free; or `CONIC_ERROR_ARGUMENT` if `queue` is NULL, `bufs` is NULL
/// or not aligned where `count` is not 0, or `bytes` is 0 or too many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_buf_alloc(queue: *mut Queue, bytes: u32, bufs: *mut Buf, count: c_uint) -> c_int {
    // SAFETY: as the caller says.
    let (Some(queue), Some(room)) = (unsafe { queue.as_mut() }, unsafe { room(bufs, count) }) else {
        return Status::Argument as c_int;
    };
    queue.allocate(bytes, room).map_or(Status::Argument as c_int, |got| got as c_int)
}

/// Frees `count` buffers of any queue of the same client. One thread at a time.
///
/// Returns 0; `CONIC_ERROR_BUFFER` if some were no buffers of the client, and the others were freed; or `CONIC_ERROR_ARGUMENT` if `queue` is
/// NULL, or `bufs` is NULL or not aligned where `count` is not 0. A buffer that is freed twice is counted where it is noticed
/// (`freed_twice`): when it has come back to the pool before. Where it is not, two packets may come to lie in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_buf_free(queue: *mut Queue, bufs: *const Buf, count: c_uint) -> c_int {
    // SAFETY: as the caller says.
    let (Some(queue), Some(bufs)) = (unsafe { queue.as_mut() }, unsafe { given(bufs, count) }) else {
        return Status::Argument as c_int;
    };
    if queue.free(bufs) { 0 } else { Status::Buffer as c_int }
}

/// Sends packets, from the front. What was taken is the NIC's, and what was not is still the program's, which offers it again
/// or frees it. Never waits. While the link is down nothing is taken. A packet from before the daemon died and came back is
/// sent by copying it. One thread at a time.
///
/// Returns how many of `bufs` were taken (parts of chains count by themselves, and a chain is taken whole or not at all), less
/// than `count` where there is no room for more or where one of them cannot be sent; `CONIC_ERROR_BUFFER` if it is the first that cannot:
/// it lies in no buffer of the client, has no bytes, ends behind its buffer, has unknown flags, or is a chain of more than 4 or
/// without an end; or `CONIC_ERROR_ARGUMENT` if `queue` is NULL, or `bufs` is NULL or not aligned where `count` is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_tx_burst(queue: *mut Queue, bufs: *const Buf, count: c_uint) -> c_int {
    // SAFETY: as the caller says.
    let (Some(queue), Some(bufs)) = (unsafe { queue.as_mut() }, unsafe { given(bufs, count.min(MOST)) }) else {
        return Status::Argument as c_int;
    };
    queue.send(bufs).map_or(Status::Buffer as c_int, |taken| taken as c_int)
}

/// Receives up to `count` packets into `bufs`. Their buffers are the program's. Never waits. One thread at a time.
///
/// Returns how many; or `CONIC_ERROR_ARGUMENT` if `queue` is NULL, or `bufs` is NULL or not aligned where `count` is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_rx_burst(queue: *mut Queue, bufs: *mut Buf, count: c_uint) -> c_int {
    // SAFETY: as the caller says.
    let (Some(queue), Some(room)) = (unsafe { queue.as_mut() }, unsafe { room(bufs, count) }) else {
        return Status::Argument as c_int;
    };
    queue.receive(room) as c_int
}

/// Says what a queue has done. `counters` has room for `size` bytes, `sizeof(struct conic_counters)`. One thread at a time.
///
/// Returns 0, or `CONIC_ERROR_ARGUMENT` if one is NULL, `counters` is not aligned, or `size` is less than the structure ever had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_get_counters(queue: *mut Queue, counters: *mut Counters, size: usize) -> c_int {
    // SAFETY: as the caller says.
    let Some(queue) = (unsafe { queue.as_mut() }) else { return Status::Argument as c_int };
    if counters.is_null() || !counters.is_aligned() {
        return Status::Argument as c_int;
    }
    // SAFETY: the caller says that there is room for `size` bytes.
    let written = unsafe { write_sized(counters, size, size_of::<Counters>(), queue.counters()) };
    if written { 0 } else { Status::Argument as c_int }
}

/// # Safety
///
/// `bufs` is NULL or there are `count`, for as long as the caller looks at them.
unsafe fn given<'a>(bufs: *const Buf, count: c_uint) -> Option<&'a [Buf]> {
    if count == 0 {
        return Some(&[]);
    }
    let there = !bufs.is_null() && bufs.is_aligned();
    // SAFETY: as the caller says.
    there.then(|| unsafe { std::slice::from_raw_parts(bufs, count as usize) })
}

/// # Safety
///
/// `bufs` is NULL or has room for `count`, for as long as the caller writes there.
unsafe fn room<'a>(bufs: *mut Buf, count: c_uint) -> Option<&'a mut [MaybeUninit<Buf>]> {
    if count == 0 {
        return Some(&mut []);
    }
    let there = !bufs.is_null() && bufs.is_aligned();
    // SAFETY: as the caller says; whatever lies there is room.
    there.then(|| unsafe { std::slice::from_raw_parts_mut(bufs.cast(), count.min(MOST) as usize) })
}
