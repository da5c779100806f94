//! The core face over a mapped region.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use conic_fabric::{Address, Core, LINE_BYTES, Line, Time};

use crate::{Memory, clock, copy, line};

/// A core's view of a mapped region: a base pointer, and natively nothing else.
#[derive(Clone, Copy, Debug)]
pub struct NativeCore<'memory> {
    base: *mut u8,
    #[cfg(debug_assertions)]
    bytes: u64,
    memory: PhantomData<&'memory Memory>,
}

// SAFETY: the region is shared memory; every access goes through an atomic or a single instruction, from any thread.
unsafe impl Send for NativeCore<'_> {}
// SAFETY: as above; a view itself never changes.
unsafe impl Sync for NativeCore<'_> {}

impl<'memory> NativeCore<'memory> {
    /// A view of a region, for one thread.
    pub fn new(memory: &'memory Memory) -> NativeCore<'memory> {
        NativeCore::of_parts(memory.base(), memory.bytes())
    }

    /// A view of a mapping that whoever calls keeps, here or in [`crate::KeptCore`], for as long as the view is used.
    pub(crate) fn of_parts(base: *mut u8, bytes: u64) -> NativeCore<'static> {
        let _ = bytes;
        NativeCore {
            base,
            #[cfg(debug_assertions)]
            bytes,
            memory: PhantomData,
        }
    }

    #[inline(always)]
    fn pointer(&self, at: Address, bytes: u64, alignment: u64) -> *mut u8 {
        #[cfg(debug_assertions)]
        assert!(
            at.0.is_multiple_of(alignment) && at.0 + bytes <= self.bytes,
            "{bytes} bytes at {at} do not lie in the region"
        );
        let _ = (bytes, alignment);
        // SAFETY: the contract of `Core`: the address lies in the region, which is one mapping.
        unsafe { self.base.add(at.0 as usize) }
    }

    #[inline(always)]
    fn word(&self, at: Address) -> &AtomicU64 {
        // SAFETY: in the region (see `pointer`), aligned, and only ever reached through atomics or single instructions.
        unsafe { &*self.pointer(at, 8, 8).cast() }
    }

    #[inline(always)]
    fn line(&self, at: Address) -> *mut u8 {
        self.pointer(at, LINE_BYTES, LINE_BYTES)
    }
}

impl Core for NativeCore<'_> {
    #[inline(always)]
    fn load_acquire(&self, at: Address) -> u64 {
        // Acquire: the method's contract; the interface says at each call what it pairs with.
        self.word(at).load(Ordering::Acquire)
    }
    #[inline(always)]
    fn store_release(&self, at: Address, value: u64) {
        // Release: the method's contract; the interface says at each call what it pairs with.
        self.word(at).store(value, Ordering::Release);
    }
    #[inline(always)]
    fn fetch_and(&self, at: Address, bits: u64) -> u64 {
        // AcqRel: the method's contract (what the bits stand for changes hands both ways).
        self.word(at).fetch_and(bits, Ordering::AcqRel)
    }
    #[inline(always)]
    fn fetch_or(&self, at: Address, bits: u64) -> u64 {
        // AcqRel: as for `fetch_and`.
        self.word(at).fetch_or(bits, Ordering::AcqRel)
    }
    #[inline(always)]
    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
        // AcqRel on success as for `fetch_and`; Acquire on failure, because the caller goes on with what it saw.
        self.word(at).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    #[inline(always)]
    fn load(&self, at: Address) -> u64 {
        // Relaxed: an owned word; the protocol ordered it by a synchronising one.
        self.word(at).load(Ordering::Relaxed)
    }
    #[inline(always)]
    fn store(&self, at: Address, value: u64) {
        // Relaxed: an owned word; a synchronising one announces it.
        self.word(at).store(value, Ordering::Relaxed);
    }
    #[inline(always)]
    fn read_line(&self, at: Address) -> Line {
        // SAFETY: a mapped, aligned line (see `pointer`).
        unsafe { line::read(self.line(at)) }
    }
    #[inline(always)]
    fn write_line(&self, at: Address, from: &Line) {
        // SAFETY: a mapped, aligned line (see `pointer`).
        unsafe { line::write(self.line(at), from) }
    }
    #[inline(always)]
    fn publish_line(&self, at: Address, from: &Line) {
        // SAFETY: a mapped, aligned line (see `pointer`).
        unsafe { line::publish(self.line(at), from) }
    }
    #[inline(always)]
    fn write_nontemporal(&self, at: Address, from: &[Line]) {
        for (index, one) in from.iter().enumerate() {
            // SAFETY: a mapped, aligned line (see `pointer`).
            unsafe { line::write_nontemporal(self.line(at.lines(index as u64)), one) }
        }
    }
    #[inline(always)]
    fn read_bytes(&self, at: Address, into: &mut [u8]) {
        let from = self.pointer(at, into.len() as u64, 1);
        // SAFETY: both lie in mapped memory of this length (see `pointer`); `into` is borrowed for writing, so they do not overlap.
        unsafe { copy::copy(from, into.as_mut_ptr(), into.len()) }
    }
    #[inline(always)]
    fn write_bytes(&self, at: Address, from: &[u8]) {
        let to = self.pointer(at, from.len() as u64, 1);
        // SAFETY: both lie in mapped memory of this length (see `pointer`); nobody holds a Rust reference into the region, so they do
        // not overlap.
        unsafe { copy::copy(from.as_ptr(), to, from.len()) }
    }

    #[inline(always)]
    fn prefetch_read(&self, at: Address) {
        line::prefetch_read(self.base.wrapping_add(at.0 as usize));
    }
    #[inline(always)]
    fn prefetch_write(&self, at: Address) {
        line::prefetch_write(self.base.wrapping_add(at.0 as usize));
    }
    #[inline(always)]
    fn peek(&self, at: Address) -> Option<u64> {
        // Relaxed: it is a hint alone, and whoever acts on it acquires the word first.
        Some(self.word(at).load(Ordering::Relaxed))
    }
    #[inline(always)]
    fn in_register(&self, word: u64) -> u64 {
        line::in_register(word)
    }
    #[inline(always)]
    fn flush(&self, at: Address) {
        line::flush(self.pointer(at, 1, 1));
    }
    #[inline(always)]
    fn demote(&self, at: Address) {
        line::demote(self.pointer(at, 1, 1));
    }
    #[inline(always)]
    fn fence(&self) {
        line::store_fence();
    }

    #[inline(always)]
    fn full_fence(&self) {
        // SeqCst: the method's contract, the one ordering that keeps a load behind an earlier store.
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn light_fence(&self) {
        crate::fences::light();
    }
    fn heavy_fence(&self) {
        crate::fences::heavy();
    }

    #[inline(always)]
    fn spin(&self) {
        std::hint::spin_loop();
    }
    #[inline(always)]
    fn now(&self) -> Time {
        clock::now()
    }
}
