//! What the host's caches should bring before it is needed.
//!
//! Random lines of a large modelled memory are in none of the host's caches. A message about one is on its way for many other
//! events; asked for when the message is sent, the line's record is there when it arrives.

/// Asks the host's caches for the cache line in which something begins. It changes nothing that a program can see.
#[inline(always)]
pub fn prefetch<T>(what: &T) {
    #[cfg(all(target_feature = "sse", not(miri)))]
    safe_arch::prefetch_t0(what);
    #[cfg(not(all(target_feature = "sse", not(miri))))]
    let _ = what;
}
