//! Pages under memory that is shared: where it is mapped, huge ones made of plain ones, and all of them present.
//!
//! These huge pages are not of the reserved ones: nothing need be set aside, and one that is given back comes again.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes of a plain page.
pub(crate) const PAGE: usize = 4096;

/// What shared memory is mapped for.
const PROTECTION: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// How often a place for huge pages is looked for, where other threads map memory at the same time.
const TRIES: usize = 8;

/// Bytes of a huge page.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Maps shared memory for reading and writing, with further flags. What can hold a huge page begins at a multiple of its size:
/// only there does the kernel map one whole.
pub(crate) fn map(descriptor: BorrowedFd<'_>, bytes: usize, offset: u64, flags: i32) -> io::Result<*mut u8> {
    let (raw, offset, shared) = (descriptor.as_raw_fd(), offset as libc::off_t, libc::MAP_SHARED | flags);
    if bytes >= HUGE_PAGE {
        for _ in 0..TRIES {
            match map_aligned(raw, bytes, offset, shared) {
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                done => return done,
            }
        }
    }
    // SAFETY: a new mapping at a place of the kernel's choosing touches no memory that exists.
    mapped(unsafe { libc::mmap(std::ptr::null_mut(), bytes, PROTECTION, shared, raw, offset) })
}

/// Maps shared memory at a multiple of a huge page; `EEXIST` where another thread has mapped something there meanwhile.
fn map_aligned(raw: i32, bytes: usize, offset: libc::off_t, shared: i32) -> io::Result<*mut u8> {
    let (room, private) = (bytes + HUGE_PAGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place of the kernel's choosing touches no memory that exists.
    let begin = mapped(unsafe { libc::mmap(std::ptr::null_mut(), room, libc::PROT_NONE, private, -1, 0) })?;
    let place = begin.wrapping_add(begin.addr().next_multiple_of(HUGE_PAGE) - begin.addr());
    // Not over the room: a kernel that refuses the memory may have taken away what lay there, and what another thread then maps in its
    // place would go with the rest of the room.
    // SAFETY: the room that was just made, in which nothing lies.
    unsafe { libc::munmap(begin.cast(), room) };
    let free = shared | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping where nothing lies, or none; a kernel that is too old to know the flag takes the place for a wish.
    mapped(unsafe { libc::mmap(place.cast(), bytes, PROTECTION, free, raw, offset) })
}

/// What `mmap` answered.
pub(crate) fn mapped(base: *mut libc::c_void) -> io::Result<*mut u8> {
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base.cast()) }
}

/// Puts new memory that [`map`] has mapped on huge pages, as far as it fills them. Linux 6.1 and newer does so for who asks,
/// whatever the system's settings for huge pages of shared memory are (madvise(2), `MADV_COLLAPSE`), and plain pages remain where
/// it does not.
pub(crate) fn collapse(descriptor: BorrowedFd<'_>, base: *mut u8, bytes: usize) {
    const MADV_COLLAPSE: i32 = 25;
    for page in 0..bytes / HUGE_PAGE {
        // One plain page of it: the kernel collapses nothing that is empty, and this one is all that it then copies.
        // SAFETY: a call on a descriptor that the caller has.
        unsafe {
            libc::posix_fallocate(descriptor.as_raw_fd(), (page * HUGE_PAGE) as libc::off_t, PAGE as libc::off_t)
        };
    }
    // SAFETY: the range is the caller's mapping; collapsing changes no contents.
    unsafe { libc::madvise(base.cast(), bytes, MADV_COLLAPSE) };
}

/// Asks the kernel for this process's page-table entries, so that no packet waits for a fault. Older kernels lack the advice;
/// there the first access to each page faults, and nothing else changes.
pub(crate) fn populate(base: *mut u8, bytes: usize) {
    const MADV_POPULATE_WRITE: i32 = 23;
    // SAFETY: the range is the caller's mapping; populating changes no contents.
    unsafe { libc::madvise(base.cast(), bytes, MADV_POPULATE_WRITE) };
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use conic_fabric::{Home, Layout, SynchronisingWords};

    use super::*;
    use crate::{Mapping, Memory, Pages, place};

    /// Why this system makes no huge pages of shared memory for who asks, where it does not.
    fn missing() -> Option<&'static str> {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let release = read("/proc/sys/kernel/osrelease");
        let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let setting = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        match () {
            () if version < (6, 1) => Some("the kernel is older than 6.1"),
            () if setting.is_empty() || setting.contains("[deny]") => Some("the system makes none"),
            () => None,
        }
    }

    /// KiB of a mapping that lie on huge pages here.
    fn huge(base: *mut u8) -> u64 {
        let mappings = std::fs::read_to_string("/proc/self/smaps").expect("this process's mappings");
        let start = format!("{:x}-", base.addr());
        let mut lines = mappings.lines().skip_while(|line| !line.starts_with(&start));
        let huge = lines.find_map(|line| line.strip_prefix("ShmemPmdMapped:")).expect("what the kernel says of it");
        huge.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    #[test]
    fn shared_memory_lies_on_huge_pages_in_every_process_that_maps_it() {
        if let Some(why) = missing() {
            println!("skipped: {why}");
            return;
        }
        let (memory, descriptor) = Mapping::sealed(6 << 20).expect("memory");
        let again = Mapping::of(descriptor.as_fd(), 6 << 20, 0).expect("the same memory");
        assert_eq!([memory.base(), again.base()].map(huge), [6144, 6144], "KiB");
    }

    #[test]
    fn a_large_region_lies_on_huge_pages_on_both_sides() {
        let several =
            (place::numa_nodes().len() > 1).then_some("there are several nodes, and each page stays on its own");
        if let Some(why) = missing().or(several) {
            println!("skipped: {why}");
            return;
        }
        let mut layout = Layout::new();
        layout.add("test", (16 << 20) + 5000, 64, Home::Host, SynchronisingWords::NONE);
        let region = Memory::create(&layout, Pages::Plain).expect("a region");
        let copy = region.descriptor().try_clone_to_owned().expect("a second descriptor");
        let attached = Memory::attach(copy, region.bytes()).expect("the same region");
        assert_eq!([region.base(), attached.base()].map(huge), [16 << 10; 2], "KiB");
    }

    #[test]
    fn what_can_hold_a_huge_page_begins_where_one_can_and_ends_with_its_own_pages() {
        let bytes = HUGE_PAGE + 100;
        let (memory, _descriptor) = Mapping::sealed(bytes).expect("memory");
        let begin = memory.base().addr();
        assert!(begin.is_multiple_of(HUGE_PAGE));
        memory.write_bytes(bytes - 3, &[1, 2, 3]);
        let mappings = std::fs::read_to_string("/proc/self/maps").expect("this process's mappings");
        let expected = format!("{begin:x}-{:x} rw-s", begin + HUGE_PAGE + PAGE);
        assert!(mappings.lines().any(|line| line.starts_with(&expected)), "{expected}\n{mappings}");
    }
}
