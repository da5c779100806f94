//! Memory that the kernel or another process reads and writes at the same time: packet rings, memif regions.
//!
//! A region of our own layout is [`crate::Memory`], reached through `NativeCore`. This is for layouts that others have
//! defined, with words of 16 and 32 bits and payloads at any alignment.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::{copy, pages};

/// The seals of memory that is made here: nobody can change its size, nor seal it further.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Mapped memory. Every access is checked against its bounds and, where it is a word, its alignment: one that fails is a
/// mistake of the program and panics, so what a peer says is checked before.
///
/// Words are atomics; bytes move by machine instructions. Whatever the other side does at the same time, an access gives
/// some bytes that were there, never undefined behaviour. Offsets are in bytes from its beginning.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; every access is an atomic or a machine instruction.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` itself changes nothing after it is made.
unsafe impl Sync for Mapping {}

macro_rules! words {
    ($($word:ty, $atomic:ty, $load:ident, $load_acquire:ident, $store:ident, $store_release:ident;)*) => {$(
        /// Reads an owned word: something else orders it.
        #[inline(always)]
        pub fn $load(&self, at: usize) -> $word {
            let word = self.word(at, size_of::<$word>()).cast::<$atomic>();
            // Relaxed: the protocol orders it by another word.
            // SAFETY: in the mapping and aligned (see `word`), and only ever reached through atomics.
            unsafe { &*word }.load(Ordering::Relaxed)
        }
        /// Reads a word that announces others.
        #[inline(always)]
        pub fn $load_acquire(&self, at: usize) -> $word {
            let word = self.word(at, size_of::<$word>()).cast::<$atomic>();
            // Acquire: the method's contract; the caller says what it pairs with.
            // SAFETY: in the mapping and aligned (see `word`), and only ever reached through atomics.
            unsafe { &*word }.load(Ordering::Acquire)
        }
        /// Writes an owned word: something else announces it.
        #[inline(always)]
        pub fn $store(&self, at: usize, value: $word) {
            let word = self.word(at, size_of::<$word>()).cast::<$atomic>();
            // Relaxed: the protocol announces it by another word.
            // SAFETY: in the mapping and aligned (see `word`), and only ever reached through atomics.
            unsafe { &*word }.store(value, Ordering::Relaxed);
        }
        /// Writes a word that announces everything written before.
        #[inline(always)]
        pub fn $store_release(&self, at: usize, value: $word) {
            let word = self.word(at, size_of::<$word>()).cast::<$atomic>();
            // Release: the method's contract; the caller says what it pairs with.
            // SAFETY: in the mapping and aligned (see `word`), and only ever reached through atomics.
            unsafe { &*word }.store(value, Ordering::Release);
        }
    )*};
}

/// Words at any offset.
macro_rules! unaligned_words {
    ($($word:ty, $modifier:literal, $size:literal, $read:ident, $write:ident;)*) => {$(
        /// Copies a word out, at any offset, in one piece where the machine does so.
        #[inline(always)]
        pub fn $read(&self, at: usize) -> $word {
            let from = self.place(at, size_of::<$word>());
            #[cfg(all(target_arch = "x86_64", not(feature = "portable")))]
            {
                let word: $word;
                // SAFETY: the bytes lie in mapped memory (see `place`), and the machine loads words at any place.
                unsafe {
                    std::arch::asm!(
                        concat!("mov {word:", $modifier, "}, ", $size, " ptr [{from}]"),
                        word = out(reg) word, from = in(reg) from,
                        options(nostack, preserves_flags, readonly)
                    );
                }
                word
            }
            #[cfg(any(not(target_arch = "x86_64"), feature = "portable"))]
            {
                let mut bytes = [0; size_of::<$word>()];
                // SAFETY: both are as long, and the array is borrowed by nobody else.
                unsafe { copy::copy(from, bytes.as_mut_ptr(), bytes.len()) };
                <$word>::from_ne_bytes(bytes)
            }
        }
        /// Copies a word in, at any offset, in one piece where the machine does so.
        #[inline(always)]
        pub fn $write(&self, at: usize, word: $word) {
            let to = self.place(at, size_of::<$word>());
            #[cfg(all(target_arch = "x86_64", not(feature = "portable")))]
            // SAFETY: the bytes lie in mapped memory (see `place`) that nobody holds a Rust reference into, and the machine stores words at any
            // place.
            unsafe {
                std::arch::asm!(
                    concat!("mov ", $size, " ptr [{to}], {word:", $modifier, "}"),
                    word = in(reg) word, to = in(reg) to,
                    options(nostack, preserves_flags)
                );
            }
            #[cfg(any(not(target_arch = "x86_64"), feature = "portable"))]
            // SAFETY: both are as long, and nobody holds a Rust reference into the mapping.
            unsafe {
                copy::copy(word.to_ne_bytes().as_ptr(), to, size_of::<$word>());
            }
        }
    )*};
}

impl Mapping {
    /// Maps `bytes` bytes of a descriptor from `offset`, shared, for reading and writing.
    ///
    /// # Errors
    /// The kernel's: no memory, or a descriptor that cannot be mapped so.
    pub fn of(descriptor: BorrowedFd<'_>, bytes: usize, offset: u64) -> io::Result<Mapping> {
        pages::map(descriptor, bytes, offset, libc::MAP_POPULATE).map(|base| Mapping { base, bytes })
    }

    /// The same, from a page's beginning on, without a page made present: each comes when it is first touched. For memory that another process brings, whose
    /// size is what that process says and would otherwise be what this thread waits for.
    ///
    /// # Errors
    /// As [`Mapping::of`].
    pub fn on_demand(descriptor: BorrowedFd<'_>, bytes: usize, offset: u64) -> io::Result<Mapping> {
        pages::map(descriptor, bytes, offset, 0).map(|base| Mapping { base, bytes })
    }

    /// Memory of this process alone, zeroed and present, at a page boundary: for what the kernel is to be told of.
    ///
    /// # Errors
    /// No memory.
    pub fn anonymous(bytes: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choosing touches no memory that exists.
        let base = pages::mapped(unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) })?;
        Ok(Mapping { base, bytes })
    }

    /// New memory to share, zeroed, present, on huge pages where the system makes them for who asks, and sealed against any change
    /// of size; with the descriptor to pass on.
    ///
    /// # Errors
    /// No memory.
    pub fn sealed(bytes: usize) -> io::Result<(Mapping, OwnedFd)> {
        // SAFETY: the name is a C string that the call only reads.
        let raw = unsafe { libc::memfd_create(c"conic".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call just returned this descriptor, and nobody else has it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: a call on a descriptor that is ours.
        if unsafe { libc::ftruncate(raw, bytes as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mapping = Mapping::on_demand(descriptor.as_fd(), bytes, 0)?;
        pages::collapse(descriptor.as_fd(), mapping.base, bytes);
        // Allocation, not `ftruncate`, is what can fail for want of memory; better here than by a signal later.
        // SAFETY: a call on a descriptor that is ours.
        let failed = unsafe { libc::posix_fallocate(raw, 0, bytes as libc::off_t) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        pages::populate(mapping.base, bytes);
        // SAFETY: a call on a descriptor that is ours.
        if unsafe { libc::fcntl(raw, libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((mapping, descriptor))
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its first byte in this process, for the kernel.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    #[inline(always)]
    fn place(&self, at: usize, bytes: usize) -> *mut u8 {
        let inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(inside, "{bytes} bytes at {at} do not lie in a mapping of {}", self.bytes);
        // SAFETY: it was just checked that these bytes lie in the mapping.
        unsafe { self.base.add(at) }
    }

    #[inline(always)]
    fn word(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at.is_multiple_of(bytes), "a word of {bytes} bytes at {at} is not aligned");
        self.place(at, bytes)
    }

    words! {
        u16, AtomicU16, load_u16, load_acquire_u16, store_u16, store_release_u16;
        u32, AtomicU32, load_u32, load_acquire_u32, store_u32, store_release_u32;
        u64, AtomicU64, load_u64, load_acquire_u64, store_u64, store_release_u64;
    }

    unaligned_words! {
        u16, "x", "word", read_u16, write_u16;
        u32, "e", "dword", read_u32, write_u32;
        u64, "r", "qword", read_u64, write_u64;
    }

    /// Sets bits of a byte that the other side takes and clears meanwhile, behind everything written before.
    pub fn set_bits(&self, at: usize, bits: u8) {
        let byte = self.place(at, 1).cast::<AtomicU8>();
        // Release: whoever takes the bits, with acquire, and looks then at what they stand for, sees what was written before. One that took the
        // byte's old value finds them at its next look.
        // SAFETY: in the mapping (see `place`), and only ever reached through atomics.
        unsafe { &*byte }.fetch_or(bits, Ordering::Release);
    }

    /// Copies bytes out.
    #[inline]
    pub fn read_bytes(&self, at: usize, into: &mut [u8]) {
        let from = self.place(at, into.len());
        // SAFETY: both lie in mapped memory of this length; `into` is borrowed for writing, so they do not overlap.
        unsafe { copy::copy(from, into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in.
    #[inline]
    pub fn write_bytes(&self, at: usize, from: &[u8]) {
        let to = self.place(at, from.len());
        // SAFETY: both lie in mapped memory of this length; nobody holds a Rust reference into the mapping, so they do not
        // overlap.
        unsafe { copy::copy(from.as_ptr(), to, from.len()) }
    }

    /// Keeps later loads behind earlier stores: between announcing something and looking whether the other side sleeps.
    #[inline(always)]
    pub fn full_fence(&self) {
        // SeqCst: the method's contract, the one ordering that keeps a load behind an earlier store.
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Asks for the line at an offset in a state fit for reading; any offset will do.
    #[inline(always)]
    pub fn prefetch(&self, at: usize) {
        crate::line::prefetch_read(self.base.wrapping_add(at));
    }

    /// Asks for the line at an offset in a state fit for writing; any offset will do.
    #[inline(always)]
    pub fn prefetch_write(&self, at: usize) {
        crate::line::prefetch_write(self.base.wrapping_add(at));
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives a method.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn words_are_read_and_written_at_any_offset_and_nothing_beside_them() {
        let (ours, _descriptor) = Mapping::sealed(4096).expect("a page");
        for at in [0, 1, 59, 61, 63, 64, 4088] {
            for bytes in [2, 4, 8] {
                ours.write_bytes(0, &[0xee; 4096]);
                let word = 0x0807_0605_0403_0201_u64;
                match bytes {
                    2 => ours.write_u16(at, word as u16),
                    4 => ours.write_u32(at, word as u32),
                    _ => ours.write_u64(at, word),
                }
                let read = match bytes {
                    2 => ours.read_u16(at).into(),
                    4 => ours.read_u32(at).into(),
                    _ => ours.read_u64(at),
                };
                assert_eq!(read, word & u64::MAX >> (64 - 8 * bytes), "{bytes} bytes at {at}");
                let (mut expected, mut all) = ([0xee; 4096], [0; 4096]);
                expected[at..at + bytes].copy_from_slice(&word.to_ne_bytes()[..bytes]);
                ours.read_bytes(0, &mut all);
                assert!(all == expected, "{bytes} bytes at {at}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "8 bytes at 4089 do not lie in a mapping of 4096")]
    fn a_word_that_does_not_lie_in_the_mapping_is_not_read() {
        Mapping::sealed(4096).expect("a page").0.read_u64(4089);
    }

    #[test]
    fn bytes_pass_between_two_mappings_at_every_alignment_and_length() {
        let (ours, descriptor) = Mapping::sealed(8192).expect("two pages");
        let theirs = Mapping::of(descriptor.as_fd(), 8192, 0).expect("the same memory");
        let pattern: Vec<u8> = (0..700).map(|index| (index * 7 + 3) as u8).collect();
        for start in 0..70 {
            for length in (0..200).chain([255, 256, 257, 511, 640, 699]) {
                ours.write_bytes(start, &vec![0; length + 1]);
                ours.write_bytes(start, &pattern[..length]);
                let mut seen = vec![0xee; length + 2];
                theirs.read_bytes(start, &mut seen[1..=length]);
                assert_eq!(seen[1..=length], pattern[..length], "{length} bytes at {start}");
                assert_eq!((seen[0], seen[length + 1]), (0xee, 0xee), "{length} bytes at {start}: too much");
                let mut behind = [9];
                theirs.read_bytes(start + length, &mut behind);
                assert_eq!(behind, [0], "{length} bytes at {start}: too much was written");
            }
        }
        ours.store_release_u16(6, 0x1234);
        assert_eq!(theirs.load_acquire_u16(6), 0x1234);
        ours.store_u32(8, 0x8765_4321);
        assert_eq!(theirs.load_u32(8), 0x8765_4321);
        ours.store_u64(16, u64::MAX - 1);
        assert_eq!(theirs.load_acquire_u64(16), u64::MAX - 1);
        ours.set_bits(17, 0x81);
        ours.set_bits(19, 0x10);
        assert_eq!(theirs.load_u64(16), u64::MAX - 1, "all of them are set");
        ours.store_u64(16, 0);
        ours.set_bits(17, 0x80);
        theirs.set_bits(17, 1);
        ours.set_bits(23, 4);
        assert_eq!(theirs.load_acquire_u64(16), 0x0400_0000_0000_8100);
    }

    #[test]
    fn sealed_memory_cannot_be_cut() {
        let (_mapping, descriptor) = Mapping::sealed(4096).expect("a page");
        // SAFETY: a call on a descriptor that is ours.
        assert_eq!(unsafe { libc::ftruncate(descriptor.as_raw_fd(), 0) }, -1);
    }

    #[test]
    #[should_panic(expected = "do not lie in a mapping of 4096")]
    fn an_access_beyond_the_end_is_refused() {
        Mapping::anonymous(4096).expect("a page").write_bytes(4090, &[0; 7]);
    }

    #[test]
    #[should_panic(expected = "is not aligned")]
    fn a_word_that_is_not_aligned_is_refused() {
        Mapping::anonymous(4096).expect("a page").load_u32(2);
    }
}
