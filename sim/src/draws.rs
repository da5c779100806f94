//! Numbers that look random, from a seed: the same ones in every run.

use crate::link::mix;

/// Draws numbers, one after the other (SplitMix64).
#[derive(Clone, Debug)]
pub struct Draws {
    state: u64,
}

impl Draws {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Draws {
        Draws { state: seed }
    }

    /// A number, each of 64 bits as likely.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `bound`; zero where that is.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound.max(1)
    }

    /// A part: at least zero, and less than one.
    pub fn part(&mut self) -> f64 {
        part(self.number())
    }
}

/// What part of all numbers of 64 bits are less than one of them: at least zero, and less than one.
pub(crate) fn part(number: u64) -> f64 {
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::Draws;

    #[test]
    fn the_numbers_are_those_of_splitmix64_and_spread_evenly() {
        // The first outputs of the published reference program for the seed 1234567.
        let mut draws = Draws::new(1_234_567);
        assert_eq!([draws.number(), draws.number()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        let parts: Vec<f64> = (0..10_000).map(|_| draws.part()).collect();
        assert!(parts.iter().all(|part| (0.0..1.0).contains(part)));
        let mean = parts.iter().sum::<f64>() / 10_000.0;
        assert!((0.48..0.52).contains(&mean), "a mean of {mean}");
        assert!((0..10_000).all(|_| draws.below(7) < 7));
        assert_eq!((draws.below(1), draws.below(0)), (0, 0));
    }
}
