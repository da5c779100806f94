//! Large tables on huge pages of the host.
//!
//! A random line of a large modelled memory is on a page that the host's translation buffers do not hold, so that even a
//! prefetch waits for a walk through the page tables. On pages of 2 MiB those of a whole region fit.

/// Bytes of a huge page; what is smaller than one gains nothing.
const HUGE_PAGE: usize = 2 << 20;

/// An empty vector with room for so many items, on huge pages where it is large and the system has some.
pub fn with_capacity<T>(items: usize) -> Vec<T> {
    let mut table = Vec::with_capacity(items);
    advise(table.spare_capacity_mut());
    table
}

/// A vector of the items of an iterator that knows how many it has, likewise.
pub fn collect<T>(items: impl ExactSizeIterator<Item = T>) -> Vec<T> {
    let mut table = with_capacity(items.len());
    table.extend(items);
    table
}

/// Asks for huge pages where a span of memory has whole ones. It is a wish: whether it is granted changes only times.
fn advise<T>(span: &mut [std::mem::MaybeUninit<T>]) {
    let range = span.as_mut_ptr_range();
    let begins = range.start.addr().next_multiple_of(HUGE_PAGE);
    let ends = range.end.addr() / HUGE_PAGE * HUGE_PAGE;
    #[cfg(all(target_os = "linux", not(miri)))]
    if begins < ends {
        let first = range.start.with_addr(begins);
        // SAFETY: the whole pages from `begins` to `ends` lie in memory that this span borrows, and the advice changes neither
        // their contents nor who may use them.
        unsafe { libc::madvise(first.cast(), ends - begins, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (begins, ends);
}
