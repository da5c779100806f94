//! Which slice and unit of the device's directory handles a line, and which unit of the CPU's cache.

use super::parameters::{EciCacheParameters, EciDirectoryParameters};

/// The address hash of Enzian's directory controller: the thirteen bits of a line's number that say where its entry is, each an
/// exclusive-or of bits of the number (`EciCmdDefs.aliasCachelineIndex` of the paper's artifact).
pub fn alias(line: u64) -> u16 {
    let bits = |high: u32, low: u32| (line >> low) & ((1 << (high - low + 1)) - 1);
    let a12_8 = bits(12, 8) ^ bits(17, 13);
    let a7_5 = bits(7, 5) ^ bits(20, 18);
    let a4_3 = bits(4, 3) ^ bits(17, 16) ^ bits(6, 5);
    let a2_0 = bits(2, 0) ^ bits(15, 13) ^ bits(7, 5);
    (a12_8 << 8 | a7_5 << 5 | a4_3 << 3 | a2_0) as u16
}

/// The slice of the directory that handles a line, from 0.
pub fn slice_of(parameters: &EciDirectoryParameters, line: u64) -> usize {
    usize::from(alias(line)) % parameters.slices as usize
}

/// The unit of the directory that handles a line, counted through all slices.
pub fn directory_unit_of(parameters: &EciDirectoryParameters, line: u64) -> usize {
    let (slices, units) = (parameters.slices as usize, parameters.units as usize);
    let alias = usize::from(alias(line));
    alias % slices * units + alias / slices % units
}

/// The unit of the CPU's second-level cache that handles a line: neighbours are spread.
pub fn transaction_unit_of(parameters: &EciCacheParameters, line: u64) -> usize {
    (line % u64::from(parameters.transaction_units)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // Each bit of a line's number alone, and which bits of the alias the formula says that it changes.
        let changes = |bit: u32| {
            let mut alias = 0_u16;
            for (target, sources) in [
                (12, &[12, 17][..]),
                (11, &[11, 16]),
                (10, &[10, 15]),
                (9, &[9, 14]),
                (8, &[8, 13]),
                (7, &[7, 20]),
                (6, &[6, 19]),
                (5, &[5, 18]),
                (4, &[4, 17, 6]),
                (3, &[3, 16, 5]),
                (2, &[2, 15, 7]),
                (1, &[1, 14, 6]),
                (0, &[0, 13, 5]),
            ] {
                alias |= u16::from(sources.contains(&bit)) << target;
            }
            alias
        };
        for bit in 0..30 {
            assert_eq!(alias(1 << bit), changes(bit), "bit {bit}");
        }
        assert_eq!(alias(0b1011 | 1 << 14), alias(0b1011) ^ alias(1 << 14), "it is linear");
    }

    #[test]
    fn neighbouring_lines_are_in_different_slices_and_thirty_two_in_different_units() {
        let parameters = super::super::tests::parameters();
        for line in 0..10_000 {
            let slices = [line, line + 1].map(|line| slice_of(&parameters.directory, line));
            assert!(line % 32 == 31 || slices[0] != slices[1], "lines {line} and the next");
        }
        for first in 0..2_000 {
            let units: std::collections::BTreeSet<usize> =
                (first * 32..first * 32 + 32).map(|line| directory_unit_of(&parameters.directory, line)).collect();
            assert_eq!(units.len(), 32, "from line {}", first * 32);
            assert!(units.iter().all(|unit| *unit < 64));
        }
    }
}
