//! Regions: sealed, pre-faulted memory that two processes can share.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use conic_fabric::{Home, Layout};

use crate::{about_to, pages, place};

/// Bytes of a plain page.
const PAGE: u64 = pages::PAGE as u64;

/// Bytes of a huge page.
const HUGE_PAGE: u64 = pages::HUGE_PAGE as u64;

/// From so many bytes on a region is put on huge pages whatever the system's setting is. To give plain pages back takes 0.1 to 0.2 ms for
/// each MiB, in which a dead client's memory is missing; to collect huge ones delays others now and then, which no smaller region is
/// worth (`daemon/README.md` has the figures).
const COLLAPSED_FROM: u64 = 16 << 20;

/// The seals a region carries: nobody can truncate it under the other side's feet, nor seal it further.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Which pages a region is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 2 MiB pages, if the system has enough of them free; plain pages otherwise. Not for a region whose descriptor goes to
    /// a process that is not trusted: no seal keeps it from giving pages back to the system, and where no other huge page is
    /// free then, the next access to that place ends the process that makes it.
    HugeIfAvailable,
    /// Plain pages; where the system makes huge ones of them for who asks (`shmem_enabled` among the kernel's settings for
    /// transparent huge pages), it is asked. So is it for a region of 16 MiB or more whatever that setting, which Linux 6.1 and newer
    /// grants to everybody, unless there are several NUMA nodes, of which each segment has its own. A page that a peer gave back
    /// comes again, empty, at the next access.
    Plain,
}

/// Why a region could not be made or attached.
#[derive(Debug)]
pub enum MemoryError {
    /// A system call failed.
    System {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// A descriptor handed over by a peer is not a region of the size and seals that were agreed.
    Refused(String),
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryError::System { doing, error } => write!(f, "{doing}: {error}"),
            MemoryError::Refused(why) => write!(f, "the memory offered was refused: {why}"),
        }
    }
}

impl std::error::Error for MemoryError {}

fn system(doing: &'static str) -> MemoryError {
    MemoryError::System { doing, error: io::Error::last_os_error() }
}

/// A mapped region, backed by a sealed memfd.
///
/// Its contents start as zeroes. Dropping it unmaps this process's view; the memory goes with the last view.
#[derive(Debug)]
pub struct Memory {
    base: *mut u8,
    bytes: u64,
    descriptor: OwnedFd,
    pages: Pages,
}

// SAFETY: a mapping belongs to the process, not to a thread; what lies in it is reached through `NativeCore` alone.
unsafe impl Send for Memory {}
// SAFETY: as above; `Memory` itself changes nothing after it is made.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes a region for a layout: places each segment on its home's NUMA node where there are several nodes (a huge page in which
    /// segments of both meet on that of the last), touches every page, and seals it.
    ///
    /// # Errors
    ///
    /// If the system refuses the memory, the mapping, or the seals.
    pub fn create(layout: &Layout, pages: Pages) -> Result<Memory, MemoryError> {
        let bytes = layout.bytes().max(1);
        let huge = match pages {
            Pages::HugeIfAvailable => Memory::create_huge(layout, bytes.next_multiple_of(HUGE_PAGE)),
            Pages::Plain => None,
        };
        match huge {
            Some(memory) => Ok(memory),
            None => Memory::fill(layout, anonymous_file(0)?, bytes.next_multiple_of(PAGE), Pages::Plain),
        }
    }

    fn create_huge(layout: &Layout, bytes: u64) -> Option<Memory> {
        if free_huge_pages() * HUGE_PAGE < bytes {
            return None;
        }
        let descriptor = anonymous_file(libc::MFD_HUGETLB | libc::MFD_HUGE_2MB).ok()?;
        Memory::fill(layout, descriptor, bytes, Pages::HugeIfAvailable).ok()
    }

    fn fill(layout: &Layout, descriptor: OwnedFd, bytes: u64, pages: Pages) -> Result<Memory, MemoryError> {
        about_to("size a region");
        // SAFETY: a call on a descriptor that is ours.
        if unsafe { libc::ftruncate(descriptor.as_raw_fd(), bytes as libc::off_t) } != 0 {
            return Err(system("setting the size of a region"));
        }
        let memory = Memory::map(descriptor, bytes, pages)?;
        let scattered = memory.bind_homes(layout);
        if pages == Pages::Plain && !scattered && bytes >= COLLAPSED_FROM {
            pages::collapse(memory.descriptor(), memory.base, bytes as usize);
        }
        // Before what allocates without a look at this mapping's wish for huge pages.
        memory.populate();
        about_to("allocate a region");
        // Allocation, not `ftruncate`, is what can fail for want of memory; better here than by a signal later.
        // SAFETY: a call on a descriptor that is ours.
        let failed = unsafe { libc::posix_fallocate(memory.descriptor.as_raw_fd(), 0, bytes as libc::off_t) };
        if failed != 0 {
            let error = io::Error::from_raw_os_error(failed);
            return Err(MemoryError::System { doing: "allocating a region's pages", error });
        }
        about_to("seal a region");
        // SAFETY: a call on a descriptor that is ours.
        if unsafe { libc::fcntl(memory.descriptor.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(system("sealing a region"));
        }
        Ok(memory)
    }

    /// Maps a region that a peer made and passed over, after checking that it is what was agreed: sealed against
    /// shrinking, and at least `bytes` bytes long. Of a longer one no more is mapped than was agreed, in whole pages.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Refused`] if it is not, [`MemoryError::System`] if it cannot be mapped.
    pub fn attach(descriptor: OwnedFd, bytes: u64) -> Result<Memory, MemoryError> {
        // SAFETY: a call on a descriptor that is ours; it reads no memory.
        let seals = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 {
            return Err(MemoryError::Refused("it is not a memfd (it has no seals)".to_owned()));
        }
        if seals & libc::F_SEAL_SHRINK == 0 {
            return Err(MemoryError::Refused("it is not sealed against shrinking".to_owned()));
        }
        // SAFETY: `stat` is plain data for which zeroes are valid.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a call on a descriptor that is ours, into a structure that is ours.
        if unsafe { libc::fstat(descriptor.as_raw_fd(), &raw mut status) } != 0 {
            return Err(system("reading the size of a region"));
        }
        if (status.st_size as u64) < bytes {
            let size = status.st_size;
            return Err(MemoryError::Refused(format!("it has {size} bytes where {bytes} were agreed")));
        }
        // What such a file says of its blocks is the size of its pages.
        let huge = status.st_blksize as u64 >= HUGE_PAGE;
        let (page, pages) = if huge { (HUGE_PAGE, Pages::HugeIfAvailable) } else { (PAGE, Pages::Plain) };
        let agreed = bytes.max(1).next_multiple_of(page).min(status.st_size as u64);
        let memory = Memory::map(descriptor, agreed, pages)?;
        memory.populate();
        Ok(memory)
    }

    fn map(descriptor: OwnedFd, bytes: u64, pages: Pages) -> Result<Memory, MemoryError> {
        about_to("map a region");
        let mapped = pages::map(descriptor.as_fd(), bytes as usize, 0, 0);
        let base = mapped.map_err(|error| MemoryError::System { doing: "mapping a region", error })?;
        if pages == Pages::Plain && bytes >= HUGE_PAGE {
            // SAFETY: the range is the new mapping; the advice changes no contents, and a system that does not take it
            // leaves plain pages.
            unsafe { libc::madvise(base.cast(), bytes as usize, libc::MADV_HUGEPAGE) };
        }
        Ok(Memory { base, bytes, descriptor, pages })
    }

    fn populate(&self) {
        about_to("touch a region's pages");
        pages::populate(self.base, self.bytes as usize);
    }

    /// Wants each segment on its home's node; true where there are several nodes.
    fn bind_homes(&self, layout: &Layout) -> bool {
        let nodes = place::numa_nodes();
        if nodes.len() < 2 {
            return false;
        }
        // Where a system knows no such wishes, pages lie where they are touched first.
        let _ = self.prefer(layout, [nodes[0], nodes[1]]);
        true
    }

    /// Wants what is homed at the host on the first of these nodes, and at the network interface on the other.
    fn prefer(&self, layout: &Layout, [host, nic]: [usize; 2]) -> io::Result<()> {
        let page = if self.pages == Pages::Plain { PAGE } else { HUGE_PAGE };
        homes(layout, page, self.bytes).into_iter().try_for_each(|(pages, home)| {
            let node = if home == Home::Host { host } else { nic };
            let start = self.base.wrapping_add(pages.start as usize);
            place::prefer_node(start, (pages.end - pages.start) as usize, node)
        })
    }

    /// The region's first byte in this process.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// The region's size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Which pages it got.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Gives its pages back to the system, whoever has the region too: from then on there are zeroes in it, for everybody. Who keeps a copy of
    /// the descriptor keeps no memory by that.
    pub fn empty(&self) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // Where the system cannot, the memory goes with the last who has it.
        // SAFETY: a call on a descriptor that is ours; mappings of it stay, with other contents, as those of any region may have at any time.
        unsafe { libc::fallocate(self.descriptor.as_raw_fd(), mode, 0, self.bytes as libc::off_t) };
    }

    /// The descriptor to pass to a peer.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        about_to("unmap a region");
        // SAFETY: the mapping is ours, and every `NativeCore` on it borrows this value.
        unsafe { libc::munmap(self.base.cast(), self.bytes as usize) };
    }
}

/// Runs of pages of one home, of a region of so many bytes: all of it, in order. Homes are kept apart by plain pages; a larger one in which
/// several meet is the last one's.
fn homes(layout: &Layout, page: u64, bytes: u64) -> Vec<(Range<u64>, Home)> {
    let mut runs: Vec<(Range<u64>, Home)> = Vec::new();
    for segment in layout.segments() {
        let start = segment.start.0 / page * page;
        match runs.last_mut() {
            Some((_, home)) if *home == segment.home => continue,
            Some((pages, _)) => pages.end = start,
            None => {}
        }
        runs.push((start..bytes, segment.home));
    }
    runs.retain(|(pages, _)| !pages.is_empty());
    runs
}

fn anonymous_file(flags: u32) -> Result<OwnedFd, MemoryError> {
    // SAFETY: the name is a C string that the call only reads.
    let raw = unsafe { libc::memfd_create(c"conic".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flags) };
    if raw < 0 {
        return Err(system("making a memfd"));
    }
    // SAFETY: the call just returned this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn free_huge_pages() -> u64 {
    std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NativeCore;
    use conic_fabric::{Address, Core, Line, SynchronisingWords};

    fn layout(bytes: u64) -> Layout {
        let mut layout = Layout::new();
        layout.add("test", bytes, 64, Home::Host, SynchronisingWords::NONE);
        layout
    }

    #[test]
    fn two_mappings_show_the_same_bytes_at_every_alignment() {
        let ours = Memory::create(&layout(8192), Pages::Plain).expect("a region of two pages");
        let copy = ours.descriptor().try_clone_to_owned().expect("a second descriptor");
        let theirs = Memory::attach(copy, 8192).expect("the same region");
        let (us, them) = (NativeCore::new(&ours), NativeCore::new(&theirs));
        let pattern: Vec<u8> = (0..400).map(|index| (index * 7 + 3) as u8).collect();
        for start in 0..130 {
            for length in [0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 200, 399] {
                us.write_bytes(Address(start), &pattern[..length]);
                let mut seen = vec![0; length];
                them.read_bytes(Address(start), &mut seen);
                assert_eq!(seen, pattern[..length], "{length} bytes at {start}");
            }
        }
        let line = Line([1, 2, 3, 4, 5, 6, 7, 8]);
        // By words too: what writes halves of a line in each other's place may read them so.
        let words_at = |at: Address| std::array::from_fn(|index| them.load(at.word(index)));
        us.publish_line(Address(4096), &line);
        us.write_line(Address(4160), &line);
        us.write_nontemporal(Address(4224), &[line]);
        us.fence();
        for at in [Address(4096), Address(4160), Address(4224)] {
            assert_eq!((them.read_line(at), Line(words_at(at))), (line, line), "at {at}");
        }
    }

    #[test]
    fn pages_are_wanted_where_their_segments_are_at_home() {
        let mut layout = Layout::new();
        let mut add = |bytes, home| layout.add("test", bytes, 64, home, SynchronisingWords::NONE);
        // The third begins within a page.
        let starts = [add(5000, Home::Host), add(5000, Home::Nic), add(5000, Home::Nic), add(3 << 20, Home::Host)];
        assert_eq!(starts.map(|at| at.0), [0, 8192, 8192 + 5056, 20_480]);
        let plain = [(0..8192, Home::Host), (8192..20_480, Home::Nic), (20_480..3_166_208, Home::Host)];
        assert_eq!(homes(&layout, PAGE, 3_166_208), plain);
        // All meet in the first of two huge pages.
        assert_eq!(homes(&layout, HUGE_PAGE, 2 * HUGE_PAGE), [(0..2 * HUGE_PAGE, Home::Host)]);
        for pages in [Pages::Plain, Pages::HugeIfAvailable] {
            let region = Memory::create(&layout, pages).expect("a region");
            let node = place::numa_nodes()[0];
            match region.prefer(&layout, [node, node]) {
                Err(error) if [libc::ENOSYS, libc::EPERM].contains(&error.raw_os_error().unwrap_or(0)) => {
                    println!("skipped: this system takes no wishes for nodes: {error}");
                }
                asked => asked.unwrap_or_else(|error| panic!("{:?}: {error}", region.pages())),
            }
        }
    }

    #[test]
    fn plain_pages_are_huge_ones_where_the_system_makes_them_for_who_asks() {
        let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
        if !["[always]", "[advise]", "[within_size]"].iter().any(|setting| enabled.contains(setting)) {
            println!("skipped: the system makes no transparent huge pages of shared memory: {}", enabled.trim());
            return;
        }
        let memory = Memory::create(&layout(8 << 20), Pages::Plain).expect("a region");
        let mappings = std::fs::read_to_string("/proc/self/smaps").expect("this process's mappings");
        let start = format!("{:x}-", memory.base() as usize);
        let mut lines = mappings.lines().skip_while(|line| !line.starts_with(&start));
        let huge = lines.find(|line| line.starts_with("ShmemPmdMapped:")).expect("what the kernel says of it");
        assert!(huge.contains(" 8192 kB"), "{huge}");
    }

    #[test]
    fn pages_that_a_peer_gives_back_come_again_empty() {
        // On plain pages, and on what the system makes huge ones of.
        for bytes in [64 << 10, COLLAPSED_FROM] {
            let region = Memory::create(&layout(bytes), Pages::Plain).expect("a region");
            let copy = region.descriptor().try_clone_to_owned().expect("a second descriptor");
            let peer = Memory::attach(copy, region.bytes()).expect("the same region");
            let word = |memory: &Memory, place: u64| memory.base().wrapping_add(place as usize);
            let places = [0, 4096 + 8, bytes / 2, bytes - 1];
            // SAFETY: each place is in the mapping, which this thread alone uses.
            places.iter().for_each(|&place| unsafe { word(&region, place).write_volatile(7) });
            let give_back = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // One page of two in the first part, and the other half whole.
            for (from, length) in [(4096, 4096), (bytes / 2, bytes / 2)] {
                let raw = peer.descriptor().as_raw_fd();
                // SAFETY: a call on a descriptor that is ours.
                let failed = unsafe { libc::fallocate(raw, give_back, from as libc::off_t, length as libc::off_t) };
                assert_eq!(failed, 0, "{}", io::Error::last_os_error());
            }
            // SAFETY: as above.
            let read = |memory: &Memory| places.map(|place| unsafe { word(memory, place).read_volatile() });
            assert_eq!(read(&region), [7, 0, 0, 0], "{bytes} bytes");
            // SAFETY: as above.
            places.iter().for_each(|&place| unsafe { word(&region, place).write_volatile(9) });
            assert_eq!(read(&peer), [9; 4], "{bytes} bytes");
        }
    }

    #[test]
    fn nobody_can_shrink_a_region() {
        let memory = Memory::create(&layout(8192), Pages::Plain).expect("a region of two pages");
        // SAFETY: a call on a descriptor that is ours.
        let result = unsafe { libc::ftruncate(memory.descriptor().as_raw_fd(), 0) };
        assert_eq!(result, -1, "a sealed region was truncated");
    }

    #[test]
    fn what_is_not_an_agreed_region_is_refused() {
        let unsealed = anonymous_file(0).expect("a memfd");
        assert!(matches!(Memory::attach(unsealed, 1), Err(MemoryError::Refused(_))));
        let file = std::fs::File::open("/dev/zero").expect("a device").into();
        assert!(matches!(Memory::attach(file, 1), Err(MemoryError::Refused(_))));
        let short = Memory::create(&layout(4096), Pages::Plain).expect("a region of a page");
        let copy = short.descriptor().try_clone_to_owned().expect("a second descriptor");
        assert!(matches!(Memory::attach(copy, 4097), Err(MemoryError::Refused(_))));
    }

    #[test]
    fn no_more_of_a_region_is_mapped_than_was_agreed() {
        let long = Memory::create(&layout(1 << 20), Pages::Plain).expect("a region of a mebibyte");
        let copy = long.descriptor().try_clone_to_owned().expect("a second descriptor");
        let attached = Memory::attach(copy, 5000).expect("it is long enough");
        assert_eq!((attached.bytes(), attached.pages()), (8192, Pages::Plain));
    }
}
