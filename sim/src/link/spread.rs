//! Which of several equal parts serves a line.

/// Mixes a number's bits, so that neighbours and strided numbers differ everywhere; the finaliser of SplitMix64 (Steele,
/// Lea and Flood, 2014).
#[inline]
pub const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Shares lines out to equal parts: links, channels, home agents.
///
/// Of each aligned group of as many lines as there are parts every part serves one, in an order that the group's number
/// rotates. So neighbouring lines are shared out exactly, and strided ones as evenly as if drawn by lot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    parts: u64,
    /// 2^64 / `parts`, rounded up: a multiplication in the place of a division.
    reciprocal: u128,
    salt: u64,
}

/// Most parts that a [`Spread`] knows.
pub const MOST_PARTS: u32 = 64;
/// Lines that a [`Spread`] knows: all that 64 bits of address in bytes have.
const LINES: u64 = 1 << 58;

impl Spread {
    /// Shares out to `parts`; another `salt` shares out independently.
    ///
    /// # Panics
    /// Where `parts` is 0 or more than [`MOST_PARTS`].
    pub const fn new(parts: u32, salt: u64) -> Spread {
        assert!(0 < parts && parts <= MOST_PARTS, "lines are shared out to 1 to 64 parts");
        let parts = parts as u64;
        Spread { parts, reciprocal: (1_u128 << 64).div_ceil(parts as u128), salt: mix(salt ^ 0x9e37_79b9_7f4a_7c15) }
    }

    /// The part, from 0, that serves `line`: always the same one.
    #[inline]
    pub const fn part(&self, line: u64) -> usize {
        debug_assert!(line < LINES, "a line's number is its address in bytes / 64");
        // Exact while line x parts < 2^64, which holds for the lines and parts above.
        let group = ((line as u128 * self.reciprocal) >> 64) as u64;
        let within = line - group * self.parts;
        let rotation = ((mix(group ^ self.salt) >> 32) * self.parts) >> 32;
        let part = within + rotation;
        (if part >= self.parts { part - self.parts } else { part }) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares of `parts` in 12,000 lines, `stride` apart.
    fn shares(parts: u32, stride: u64) -> Vec<u32> {
        let spread = Spread::new(parts, 1);
        let mut shares = vec![0; parts as usize];
        for index in 0..12_000 {
            shares[spread.part(index * stride)] += 1;
        }
        shares
    }

    #[test]
    fn neighbouring_lines_are_shared_out_exactly() {
        for parts in [1, 2, 3, 4, 6, 8, 12] {
            assert_eq!(shares(parts, 1), vec![12_000 / parts; parts as usize]);
        }
    }

    #[test]
    fn every_stride_is_shared_out_evenly() {
        for parts in [1, 2, 3, 4, 8] {
            for stride in [2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 33, 64, 96, 128, 1024, 4096, 6765, 1 << 20, (1 << 32) + 1]
            {
                let fair = 12_000 / parts;
                let shares = shares(parts, stride);
                // Five standard deviations of a fair draw of 12,000.
                let slack = (5.0 * (12_000.0 / f64::from(parts)).sqrt()) as u32;
                let even = shares.iter().all(|share| share.abs_diff(fair) <= slack);
                assert!(even, "{parts} parts, stride {stride}: {shares:?}, each should be within {slack} of {fair}");
            }
        }
    }

    #[test]
    fn parts_are_in_range_up_to_the_last_line() {
        for parts in 1..=MOST_PARTS {
            let spread = Spread::new(parts, 3);
            for line in [0, 1, u64::from(parts) - 1, u64::from(parts), u64::from(parts) + 1, LINES / 3, LINES - 1] {
                assert!(spread.part(line) < parts as usize, "line {line} of {parts} parts");
            }
            // The last whole group: every part once.
            let first = (LINES / u64::from(parts) - 1) * u64::from(parts);
            let mut last_group: Vec<_> = (first..first + u64::from(parts)).map(|line| spread.part(line)).collect();
            last_group.sort_unstable();
            assert_eq!(last_group, (0..parts as usize).collect::<Vec<_>>());
        }
    }

    #[test]
    fn another_salt_shares_out_independently() {
        let (links, channels) = (Spread::new(4, 1), Spread::new(8, 2));
        let mut lines = [0; 8];
        for line in (0..32_000).filter(|&line| links.part(line) == 1) {
            lines[channels.part(line)] += 1;
        }
        assert!(lines.iter().all(|&lines| (850..1_150).contains(&lines)), "{lines:?}");
    }

    #[test]
    #[should_panic(expected = "1 to 64 parts")]
    fn no_part_is_refused() {
        Spread::new(0, 0);
    }
}
