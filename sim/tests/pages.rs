//! Large tables are on huge pages where the system has them.

use conic_sim::engine::pages::{collect, with_capacity};

/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

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
