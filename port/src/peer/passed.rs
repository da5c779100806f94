//! Memory and eventfds that the other side has passed, and what is asked of them before they are used.

use std::os::fd::{AsFd, AsRawFd};

use conic_native::Mapping;
use rustix::fs::{FileType, OFlags, SealFlags};

/// The file system of files on reserved huge pages (statfs(2)).
const HUGE_PAGES: rustix::fs::FsWord = 0x9584_58f6;
/// Bytes of a page of any other.
const PAGE: u64 = 4096;

/// Maps so many bytes, from an offset on, of memory that the other side has passed, if it cannot take them away again; or whatever memory it
/// is, where `unsealed`. With the mapping, which begins with a page, comes where in it the offset is. The sum of offset and bytes must be a
/// number.
///
/// # Errors
/// Why it is not mapped, for the other side.
pub(crate) fn map_region(
    offset: u64,
    bytes: u64,
    memory: &impl AsFd,
    unsealed: bool,
) -> Result<(Mapping, usize), &'static str> {
    let no_memory = "the region is no memory of this size";
    // Asked for before the size: with a seal that came in between, memory would stay small that was cut behind the look at its size. And
    // before all else: the kernel answers by itself, and for files of tmpfs and of reserved huge pages alone. Another file's system (a FUSE)
    // would be asked for its size, and for itself, and might never answer.
    let seals = rustix::fs::fcntl_get_seals(memory).map_err(|_| no_memory)?;
    // Without the seal the other side could cut the memory under our feet, and the next access would end this process.
    if !seals.contains(SealFlags::SHRINK) && !unsealed {
        return Err("the region is not sealed against shrinking");
    }
    let status = rustix::fs::fstat(memory).map_err(|_| "the region cannot be looked at")?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile || (status.st_size as u64) < offset + bytes {
        return Err(no_memory);
    }
    // No seal keeps a peer from giving reserved huge pages back, after which an access ends this process too.
    let status = rustix::fs::fstatfs(memory).map_err(|_| "the region cannot be looked at")?;
    let is_huge = status.f_type == HUGE_PAGES;
    if is_huge && !unsealed {
        return Err("the region lies on reserved huge pages, which its owner can take away");
    }
    let page = if is_huge { status.f_bsize as u64 } else { PAGE };
    let inside = offset % page;
    let mapping = Mapping::on_demand(memory.as_fd(), (inside + bytes) as usize, offset - inside);
    mapping.map(|mapping| (mapping, inside as usize)).map_err(|_| "the region cannot be mapped")
}

/// Readies an eventfd to be rung and waited for.
///
/// # Errors
/// It is none, or cannot be used.
pub(crate) fn take_interrupt(descriptor: &impl AsFd) -> Result<(), &'static str> {
    if !is_eventfd(descriptor) {
        return Err("the interrupt descriptor is no eventfd");
    }
    // A peer that clears this again may make us wait for it when it asks for interrupts.
    let flags = rustix::fs::fcntl_getfl(descriptor).map_err(|_| "the interrupt descriptor cannot be used")?;
    rustix::fs::fcntl_setfl(descriptor, flags | OFlags::NONBLOCK).map_err(|_| "the interrupt descriptor cannot be used")
}

/// Whether it is an eventfd, by what the kernel says of it without asking anybody.
fn is_eventfd(descriptor: &impl AsFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd()));
    link.is_ok_and(|target| target.as_os_str().as_encoded_bytes() == b"anon_inode:[eventfd]")
}
