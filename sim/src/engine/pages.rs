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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the system was asked to put the mapping that an address lies in on huge pages (`hg` among its flags).
    fn is_advised(at: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux lists a process's memory");
        let mut here = false;
        for line in maps.lines() {
            let bounds = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let bounds = bounds.map(|(from, to)| (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)));
            if let Some((Ok(from), Ok(to))) = bounds {
                here = (from..to).contains(&at);
            } else if here && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.split_whitespace().any(|flag| flag == "hg");
            }
        }
        false
    }

    #[test]
    fn a_large_table_holds_its_items_and_is_wished_on_huge_pages() {
        let table = collect((0..HUGE_PAGE as u32).map(|item| u64::from(item) * 3));
        assert!(table.iter().zip(0..).all(|(&item, place)| item == place * 3));
        if std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            assert!(is_advised(table.as_ptr().addr().next_multiple_of(HUGE_PAGE)));
        } else {
            eprintln!("skipped: this system has no transparent huge pages");
        }
    }

    #[test]
    fn small_tables_and_those_without_items_are_vectors() {
        assert_eq!(collect([1_u8, 2].into_iter()), [1, 2]);
        assert!(with_capacity::<u64>(0).is_empty() && collect(std::iter::empty::<u64>()).is_empty());
    }
}
