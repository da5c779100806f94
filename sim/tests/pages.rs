//! Large tables are on huge pages where the system has them.

use conic_check::skipped;
use conic_sim::engine::pages::{Room, collect};

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
        skipped("this system has no transparent huge pages");
    }
}

#[test]
fn small_tables_and_those_without_items_hold_their_items_too() {
    assert_eq!(*collect([1_u8, 2].into_iter()), [1, 2]);
    assert!(collect(std::iter::empty::<u64>()).is_empty());
}

#[test]
fn tables_of_one_room_lie_on_the_same_huge_page_apart_from_each_other_and_outlive_the_room() {
    let mut room = Room::for_many();
    let mut tables: Vec<_> =
        (0..40_u64).map(|table| room.collect((0..9_000_u32).map(|item| u64::from(item) + table))).collect();
    drop(room);
    let page = |table: &[u64]| table.as_ptr().addr() / HUGE_PAGE;
    assert_eq!(page(&tables[0]), page(&tables[28]));
    assert_ne!(page(&tables[0]), page(&tables[29]), "29 tables of 72,000 bytes fill a page");
    for (table, added) in tables.iter_mut().zip(0..) {
        assert!(table.as_ptr().addr().is_multiple_of(64));
        assert!(table.iter().zip(0..).all(|(&item, place)| item == place + added));
        table.fill(u64::MAX);
    }
    assert!(tables.iter().all(|table| table.len() == 9_000 && table.iter().all(|&item| item == u64::MAX)));
}
