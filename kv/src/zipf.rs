//! Zipf's law: the n-th most popular of some things is asked for as often as n to the power of minus an exponent says.

/// The law for so many things.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// By rank: the share of requests for it or one before it.
    up_to: Vec<f64>,
    /// For each of [`GUIDES`] equal parts of all requests, the rank at which it begins: where a search for a share begins too.
    guides: Vec<u32>,
}

/// Parts into which shares are sorted: a search then looks at a few neighbours instead of at twenty places of a long table.
const GUIDES: usize = 1 << 14;

impl Zipf {
    /// For so many things, one at least, with this exponent; with 0 all are asked for as often.
    pub fn new(things: u32, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=things.max(1))
            .map(|rank| {
                sum += f64::from(rank).powf(-exponent);
                sum
            })
            .collect();
        up_to.iter_mut().for_each(|part| *part /= sum);
        let mut rank = 0;
        let guide = |part: usize| {
            while rank + 1 < up_to.len() && up_to[rank] < part as f64 / GUIDES as f64 {
                rank += 1;
            }
            rank as u32
        };
        let guides = (0..GUIDES).map(guide).collect();
        Zipf { up_to, guides }
    }

    /// The rank, from 0 on, of what is asked for at a part of all requests, from 0 to below 1.
    #[inline]
    pub fn rank(&self, part: f64) -> usize {
        let guide = ((part * GUIDES as f64) as usize).min(GUIDES - 1);
        let from = self.guides[guide] as usize;
        let to = self.guides.get(guide + 1).map_or(self.up_to.len(), |&next| next as usize);
        let rank = from + self.up_to[from..to].partition_point(|up_to| *up_to < part);
        // The last share may have been rounded to less than 1.
        rank.min(self.up_to.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guided_search_finds_what_a_whole_one_does() {
        for (things, exponent) in [(1, 0.75), (7, 0.0), (1000, 0.75), (100_000, 1.2)] {
            let law = Zipf::new(things, exponent);
            let mut draws = fastrand::Rng::with_seed(things.into());
            for part in (0..3000).map(|_| draws.f64()).chain([0.0, 1.0 - f64::EPSILON / 2.0]) {
                let rank = law.up_to.partition_point(|up_to| *up_to < part).min(things as usize - 1);
                assert_eq!(law.rank(part), rank, "{things} {exponent} {part}");
            }
        }
    }

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        let (law, mut draws, mut count) = (Zipf::new(1000, 0.75), fastrand::Rng::with_seed(7), [0.0; 1000]);
        (0..200_000).for_each(|_| count[law.rank(draws.f64())] += 1.0);
        let sum: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.75)).sum();
        assert!((count[0] / 200_000.0 * sum - 1.0).abs() < 0.05, "{}", count[0]);
        assert!((count[0] / count[9] - 10_f64.powf(0.75)).abs() < 0.6, "{} and {}", count[0], count[9]);
    }
}
