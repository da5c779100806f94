//! Copying bytes that the other side may write meanwhile.
//!
//! As in `line`: a Rust access that races is undefined behaviour, a machine instruction is not.

/// Copies `bytes` bytes.
///
/// # Safety
///
/// Both places are mapped for as many bytes, and do not overlap.
#[cfg(all(target_arch = "x86_64", target_feature = "avx512bw", not(feature = "portable")))]
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    let whole = bytes & !63;
    let mut at = 0;
    while at < whole {
        // SAFETY: the caller's: 64 bytes from `at` lie in both.
        unsafe {
            std::arch::asm!(
                "vmovdqu64 {line}, [{from} + {at}]",
                "vmovdqu64 [{to} + {at}], {line}",
                line = out(zmm_reg) _, from = in(reg) from, to = in(reg) to, at = in(reg) at,
                options(nostack, preserves_flags)
            );
        }
        at += 64;
    }
    if whole < bytes {
        let mask = (1u64 << (bytes - whole)) - 1;
        // SAFETY: the caller's: only the bytes of the mask are touched, and those lie in both.
        unsafe {
            std::arch::asm!(
                "kmovq {k}, {mask}",
                "vmovdqu8 {line}{{{k}}}{{z}}, [{from} + {at}]",
                "vmovdqu8 [{to} + {at}]{{{k}}}, {line}",
                k = out(kreg) _, mask = in(reg) mask, line = out(zmm_reg) _,
                from = in(reg) from, to = in(reg) to, at = in(reg) whole,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Copies `bytes` bytes.
///
/// # Safety
///
/// Both places are mapped for as many bytes, and do not overlap.
#[cfg(all(
    target_arch = "x86_64",
    target_feature = "avx2",
    not(target_feature = "avx512bw"),
    not(feature = "portable")
))]
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    let half = |at: usize| {
        // SAFETY: whoever calls says that 32 bytes from `at` lie in both.
        unsafe {
            std::arch::asm!(
                "vmovdqu {half}, [{from} + {at}]",
                "vmovdqu [{to} + {at}], {half}",
                half = out(ymm_reg) _, from = in(reg) from, to = in(reg) to, at = in(reg) at,
                options(nostack, preserves_flags)
            );
        }
    };
    let whole = bytes & !31;
    let mut at = 0;
    while at < whole {
        half(at);
        at += 32;
    }
    if whole < bytes {
        if bytes >= 32 {
            // Some bytes a second time, as they are now.
            half(bytes - 32);
        } else {
            // SAFETY: the caller's.
            unsafe { strings(from, to, bytes) }
        }
    }
}

/// Copies `bytes` bytes.
///
/// # Safety
///
/// Both places are mapped for as many bytes, and do not overlap.
#[cfg(all(target_arch = "x86_64", not(target_feature = "avx2"), not(feature = "portable")))]
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's.
    unsafe { strings(from, to, bytes) }
}

/// The same by the string instruction.
#[cfg(all(target_arch = "x86_64", not(target_feature = "avx512bw"), not(feature = "portable")))]
#[inline(always)]
unsafe fn strings(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's. The direction flag is clear at every point that Rust sees.
    unsafe {
        std::arch::asm!("rep movsb", inout("rcx") bytes => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags));
    }
}

/// Copies `bytes` bytes.
///
/// # Safety
///
/// Both places are mapped for as many bytes, and do not overlap.
#[cfg(any(not(target_arch = "x86_64"), feature = "portable"))]
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
    let words =
        if from.cast::<AtomicU64>().is_aligned() && to.cast::<AtomicU64>().is_aligned() { bytes / 8 } else { 0 };
    for at in 0..words {
        // SAFETY: the caller's; both are aligned, and atomics may alias other processes' accesses.
        let (from, to) = unsafe { (&*from.cast::<AtomicU64>().add(at), &*to.cast::<AtomicU64>().add(at)) };
        // Relaxed: the words that announce the bytes order them.
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    for at in 8 * words..bytes {
        // SAFETY: as above; bytes are always aligned.
        let (from, to) = unsafe { (&*from.add(at).cast::<AtomicU8>(), &*to.add(at).cast::<AtomicU8>()) };
        // Relaxed: as above.
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
