//! What one core is by itself: how fast its clock is, and what its caches hold.

use std::hint::black_box;
use std::path::Path;

use conic_fabric::Time;

use crate::clock;

/// Additions between two looks at the clock.
const BETWEEN_LOOKS: u64 = 4096;

/// Lets the core do instructions of one cycle, each of which waits for the one before, until `until`: how many cycles in what time.
///
/// An addition and a rotation in turn. Both take a cycle on x86 cores of the last ten years and on Arm's, and no compiler makes
/// fewer of them; additions of a constant alone would be no measure, as present cores do several of those in a cycle.
pub fn cycles(until: Time) -> (u64, Time) {
    let step = black_box(0x9e37_79b9_7f4a_7c15_u64);
    let (mut value, mut cycles) = (step, 0);
    let start = clock::now();
    loop {
        for _ in 0..BETWEEN_LOOKS {
            value = value.wrapping_add(step).rotate_left(7);
        }
        value = black_box(value);
        cycles += 2 * BETWEEN_LOOKS;
        let now = clock::now();
        if now >= until {
            return (cycles, now.since(start));
        }
    }
}

/// A level of a core's caches that holds data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// From 1.
    pub level: u32,
    /// What it holds.
    pub bytes: u64,
    /// Its ways.
    pub ways: u32,
}

/// A core's caches that hold data, from the first level on, as the system lists them; none where it does not.
pub fn caches(core: usize) -> Vec<Cache> {
    caches_in(&Path::new("/sys/devices/system/cpu").join(format!("cpu{core}/cache")))
}

fn caches_in(folder: &Path) -> Vec<Cache> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut caches: Vec<Cache> = entries.flatten().filter_map(|entry| cache(&entry.path())).collect();
    caches.sort_unstable_by_key(|cache| cache.level);
    caches
}

fn cache(folder: &Path) -> Option<Cache> {
    let word = |name: &str| Some(std::fs::read_to_string(folder.join(name)).ok()?.trim().to_owned());
    if word("type")? == "Instruction" {
        return None;
    }
    let size = word("size")?;
    let bytes = size.strip_suffix('K')?.parse::<u64>().ok()? << 10;
    Some(Cache { level: word("level")?.parse().ok()?, bytes, ways: word("ways_of_associativity")?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_does_a_cycle_in_a_plausible_time() {
        let (cycles, span) = cycles(clock::now() + Time::from_nanoseconds(1_000_000));
        let each = cycles as f64 / span.nanoseconds() as f64;
        // Ten, as an optimising compiler that found a shortcut would show more; few, as tests share their core.
        assert!((0.05..10.0).contains(&each), "{each} cycles a nanosecond");
    }

    #[test]
    fn caches_of_data_are_listed_by_level() {
        let folder = std::env::temp_dir().join(format!("conic-caches-{}", std::process::id()));
        let list = [
            ("index0", "2", "Unified", "2048K", "16"),
            ("index1", "1", "Instruction", "32K", "8"),
            ("index2", "1", "Data", "48K", "12"),
        ];
        for (index, level, kind, size, ways) in list {
            std::fs::create_dir_all(folder.join(index)).expect("a folder");
            for (name, word) in [("level", level), ("type", kind), ("size", size), ("ways_of_associativity", ways)] {
                std::fs::write(folder.join(index).join(name), format!("{word}\n")).expect("a file");
            }
        }
        let found = caches_in(&folder);
        std::fs::remove_dir_all(&folder).expect("it is ours");
        let expected = [(1, 48 << 10, 12), (2, 2 << 20, 16)];
        assert_eq!(found, expected.map(|(level, bytes, ways)| Cache { level, bytes, ways }));
        assert!(caches_in(Path::new("/nonexistent")).is_empty());
    }
}
