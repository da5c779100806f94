//! A region's memory, for mbufs that lie in it.

use conic_client::SharedMemory;
use conic_fabric::Address;
use conic_interface::ccnic::CLASSES;

/// Buffers of one size; `struct conic_class` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Class {
    /// The first buffer's address.
    pub start: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// How many.
    pub count: u64,
    /// Base-two logarithm of a buffer's bytes.
    pub shift: u64,
    /// The most bytes of a received packet.
    pub room: u64,
    /// Bytes before a received packet at least.
    pub headroom: u64,
    /// The lowest bits of a buffer's number that say how many lines more they are.
    pub places: u64,
}

/// A region; `struct conic_layout` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Where it begins in this process.
    pub base: *mut u8,
    /// Its bytes.
    pub bytes: u64,
    /// Buffers by size.
    pub classes: [Class; CLASSES],
}

/// Says where everything lies.
///
/// # Safety
///
/// `memory` came from `conic_half_memory`, and `layout` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_memory_layout(memory: *const SharedMemory, layout: *mut Layout) {
    // SAFETY: as this function's contract says.
    let (memory, layout) = unsafe { (&*memory, &mut *layout) };
    let (base, bytes) = memory.place();
    let classes = memory.pool().classes.map(|class| Class {
        start: class.start.0,
        bytes: class.bytes,
        count: class.count,
        shift: class.shift.into(),
        room: class.room,
        headroom: class.headroom,
        places: class.places,
    });
    *layout = Layout { base, bytes, classes };
}

/// Takes free buffers of a class, from any thread, and gives how many; `from` says where to begin to look, and is changed.
///
/// # Safety
///
/// `memory` came from `conic_half_memory`, `from` is valid, and `out` has room for `count` addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_memory_take(
    memory: *const SharedMemory,
    class: u32,
    from: *mut u64,
    out: *mut Address,
    count: u32,
) -> u32 {
    // SAFETY: as this function's contract says.
    let (memory, from, out) = unsafe { (&*memory, &mut *from, std::slice::from_raw_parts_mut(out, count as usize)) };
    memory.take(class as usize % CLASSES, from, out) as u32
}

/// Frees buffers, from any thread, and gives how many were none or were free already.
///
/// # Safety
///
/// `memory` came from `conic_half_memory`, and `buffers` has `count` addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_memory_give(memory: *const SharedMemory, buffers: *const Address, count: u32) -> u32 {
    // SAFETY: as this function's contract says.
    let (memory, buffers) = unsafe { (&*memory, std::slice::from_raw_parts(buffers, count as usize)) };
    memory.give_back(buffers) as u32
}

/// How many buffers of a class are free and on no queue's stack.
///
/// # Safety
///
/// `memory` came from `conic_half_memory`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_memory_free(memory: *const SharedMemory, class: u32) -> u64 {
    // SAFETY: as this function's contract says.
    unsafe { &*memory }.free()[class as usize % CLASSES]
}

/// Lets go of a region, which stays mapped as long as anything else holds it.
///
/// # Safety
///
/// `memory` came from `conic_half_memory` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_memory_close(memory: *mut SharedMemory) {
    // SAFETY: as this function's contract says.
    drop(unsafe { Box::from_raw(memory) });
}
