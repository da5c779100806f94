//! What the host's caches should bring before it is needed.
//!
//! Random lines of a large modelled memory are in none of the host's caches. A message about one is on its way for many other
//! events; asked for when the message is sent, the line's record is there when it arrives.

/// Asks the host's caches for the cache line in which something begins. It changes nothing that a program can see.
#[inline(always)]
pub fn prefetch<T>(what: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction reads nothing into the program and does not fault, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = what;
}
