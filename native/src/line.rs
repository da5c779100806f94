//! Whole cache lines in one instruction each, and the few other instructions the compiler does not offer.
//!
//! Lines go through `asm!` and not through references or intrinsics: the other side may write the same line at any
//! moment, against the protocol or in step with it, and a Rust access that races is undefined behaviour where a machine
//! instruction is not. A portable version in relaxed atomics stands beside each.

use conic_fabric::Line;

#[cfg(all(target_arch = "x86_64", target_feature = "avx512f", not(feature = "portable")))]
mod wide {
    use super::Line;
    use std::arch::asm;
    use std::arch::x86_64::__m512i;

    // SAFETY of the transmutes below: `Line` and `__m512i` are both 64 plain bytes, and any bytes are valid for both.

    #[inline(always)]
    pub unsafe fn read(from: *const u8) -> Line {
        let line: __m512i;
        // SAFETY: the caller says that `from` is a mapped, aligned line.
        unsafe {
            asm!("vmovdqa64 {line}, [{from}]", line = out(zmm_reg) line, from = in(reg) from,
                options(readonly, nostack, preserves_flags));
        }
        // SAFETY: see above.
        unsafe { std::mem::transmute::<__m512i, Line>(line) }
    }

    #[inline(always)]
    pub unsafe fn write(to: *mut u8, line: &Line) {
        // SAFETY: see above.
        let line: __m512i = unsafe { std::mem::transmute::<Line, __m512i>(*line) };
        // SAFETY: the caller says that `to` is a mapped, aligned line.
        unsafe {
            asm!("vmovdqa64 [{to}], {line}", line = in(zmm_reg) line, to = in(reg) to,
                options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    pub unsafe fn write_nontemporal(to: *mut u8, line: &Line) {
        // SAFETY: see above.
        let line: __m512i = unsafe { std::mem::transmute::<Line, __m512i>(*line) };
        // SAFETY: the caller says that `to` is a mapped, aligned line.
        unsafe {
            asm!("vmovntdq [{to}], {line}", line = in(zmm_reg) line, to = in(reg) to,
                options(nostack, preserves_flags));
        }
    }
}

#[cfg(all(
    target_arch = "x86_64",
    target_feature = "avx2",
    not(target_feature = "avx512f"),
    not(feature = "portable")
))]
mod wide {
    use super::Line;
    use std::arch::asm;
    use std::arch::x86_64::__m256i;

    // SAFETY of the transmutes below: `Line` and two `__m256i` are both 64 plain bytes, and any bytes are valid for both.

    #[inline(always)]
    pub unsafe fn read(from: *const u8) -> Line {
        let (low, high): (__m256i, __m256i);
        // SAFETY: the caller says that `from` is a mapped, aligned line.
        unsafe {
            asm!("vmovdqa {low}, [{from}]", "vmovdqa {high}, [{from} + 32]",
                low = out(ymm_reg) low, high = out(ymm_reg) high, from = in(reg) from,
                options(readonly, nostack, preserves_flags));
        }
        // SAFETY: see above.
        unsafe { std::mem::transmute::<[__m256i; 2], Line>([low, high]) }
    }

    #[inline(always)]
    pub unsafe fn write(to: *mut u8, line: &Line) {
        // SAFETY: see above.
        let [low, high] = unsafe { std::mem::transmute::<Line, [__m256i; 2]>(*line) };
        // SAFETY: the caller says that `to` is a mapped, aligned line.
        unsafe {
            asm!("vmovdqa [{to}], {low}", "vmovdqa [{to} + 32], {high}",
                low = in(ymm_reg) low, high = in(ymm_reg) high, to = in(reg) to,
                options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    pub unsafe fn write_nontemporal(to: *mut u8, line: &Line) {
        // SAFETY: see above.
        let [low, high] = unsafe { std::mem::transmute::<Line, [__m256i; 2]>(*line) };
        // SAFETY: the caller says that `to` is a mapped, aligned line.
        unsafe {
            asm!("vmovntdq [{to}], {low}", "vmovntdq [{to} + 32], {high}",
                low = in(ymm_reg) low, high = in(ymm_reg) high, to = in(reg) to,
                options(nostack, preserves_flags));
        }
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "avx2", not(feature = "portable")))]
mod published {
    use super::Line;
    use std::arch::asm;
    use std::arch::x86_64::{__m128i, __m256i};

    #[inline(always)]
    pub unsafe fn publish(to: *mut u8, line: &Line) {
        let [a, b, c, d, e, f, g, h] = line.0;
        // SAFETY: plain bytes on both sides, of one size, for which any bytes are valid.
        let (high, middle, low): (__m256i, __m128i, __m128i) = unsafe {
            (
                std::mem::transmute::<[u64; 4], __m256i>([e, f, g, h]),
                std::mem::transmute::<[u64; 2], __m128i>([c, d]),
                std::mem::transmute::<[u64; 2], __m128i>([a, b]),
            )
        };
        // SAFETY: the caller says that `to` is a mapped, aligned line. x86 shows stores in program order, so the last
        // 16 bytes, which hold word 0, release the rest.
        unsafe {
            asm!(
                "vmovdqa [{to} + 32], {high}",
                "vmovdqa [{to} + 16], {middle}",
                "vmovdqa [{to}], {low}",
                high = in(ymm_reg) high, middle = in(xmm_reg) middle, low = in(xmm_reg) low, to = in(reg) to,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "avx2", not(feature = "portable"))))]
mod wide {
    use super::Line;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[inline(always)]
    unsafe fn words<'a>(line: *const u8) -> &'a [AtomicU64; 8] {
        // SAFETY: the caller says that `line` is a mapped, aligned line; atomics may alias other processes' accesses.
        unsafe { &*line.cast() }
    }

    #[inline(always)]
    pub unsafe fn read(from: *const u8) -> Line {
        // SAFETY: passed on.
        let words = unsafe { words(from) };
        // Relaxed: the caller acquired word 0 before, or owns the line.
        Line(std::array::from_fn(|index| words[index].load(Ordering::Relaxed)))
    }

    #[inline(always)]
    pub unsafe fn write(to: *mut u8, line: &Line) {
        // SAFETY: passed on.
        let words = unsafe { words(to) };
        for (word, value) in words.iter().zip(line.0) {
            // Relaxed: the caller owns the line and announces it with a release elsewhere.
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    pub unsafe fn publish(to: *mut u8, line: &Line) {
        // SAFETY: passed on.
        let words = unsafe { words(to) };
        for index in 1..8 {
            // Relaxed: word 0 releases them.
            words[index].store(line.0[index], Ordering::Relaxed);
        }
        // Release: whoever acquires word 0 sees words 1 to 7.
        words[0].store(line.0[0], Ordering::Release);
    }

    #[inline(always)]
    pub unsafe fn write_nontemporal(to: *mut u8, line: &Line) {
        // SAFETY: passed on. A cached store is a correct, if slower, non-temporal one.
        unsafe { write(to, line) }
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "avx2", not(feature = "portable")))]
pub(crate) use published::publish;
#[cfg(not(all(target_arch = "x86_64", target_feature = "avx2", not(feature = "portable"))))]
pub(crate) use wide::publish;
pub(crate) use wide::{read, write, write_nontemporal};

/// Asks for a line in a state fit for reading.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)] // `nomem` is true: a prefetch reads nothing the program can see.
pub(crate) fn prefetch_read(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program can see and never faults.
    unsafe {
        std::arch::asm!("prefetcht0 [{at}]", at = in(reg) at, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for a line in a state fit for writing.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)] // `nomem` is true: a prefetch reads nothing the program can see.
pub(crate) fn prefetch_write(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program can see and never faults.
    unsafe {
        std::arch::asm!("prefetchw [{at}]", at = in(reg) at, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// A word, in a general register here, whatever the compiler would have liked to do with its neighbours.
#[inline(always)]
pub(crate) fn in_register(word: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut word = word;
        // SAFETY: there is no instruction in it.
        unsafe {
            std::arch::asm!("/* {word} */", word = inout(reg) word, options(pure, nomem, nostack, preserves_flags));
        }
        word
    }
    #[cfg(not(target_arch = "x86_64"))]
    word
}

/// Writes a line back and drops it from every cache; nothing where the machine cannot.
#[inline(always)]
pub(crate) fn flush(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's line is mapped; flushing changes no contents.
    unsafe {
        std::arch::asm!("clflush [{at}]", at = in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Moves a line towards the shared cache. Its encoding is a no-operation on machines that do not know it.
#[inline(always)]
pub(crate) fn demote(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; `cldemote` is encoded in the space reserved for no-operations (Intel manual, CLDEMOTE).
    unsafe {
        std::arch::asm!(".byte 0x0f, 0x1c, 0x07", in("rdi") at, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Whether this processor demotes lines; if not, that is a no-operation.
pub fn demotes() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        // Leaf 7, subleaf 0: bit 25 of ECX is CLDEMOTE.
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx >> 25 & 1 == 1
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Orders earlier non-temporal and write-combining stores before later stores.
#[inline(always)]
pub(crate) fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a fence has no other effect. Memory is clobbered, so the compiler keeps the order too.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    // Release: without non-temporal stores, ordinary store order is what is asked for.
    std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
}
