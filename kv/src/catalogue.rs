//! Which keys there are, how large their values, and how often each is asked for.
//!
//! The sizes are laws, not traces. CC-NIC section 5.7 took two of Google's from CliqueMap and says of them that 61% of the objects of
//! one and 13% of the other's are smaller than 100 bytes, and that a ten-thousandth of the first's are larger than a jumbo frame.
//! A lognormal law through these points stands for each, and must not be taken for Google's.

use crate::message::MOST_VALUE_BYTES;
use crate::store::room_of;
use crate::zipf::Zipf;

/// How large values are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sizes {
    /// All alike.
    Bytes(u16),
    /// Their logarithms are normal, with this mean and deviation, for sizes in bytes; those above the largest are drawn again.
    Lognormal {
        /// The mean of the logarithm.
        mean: f64,
        /// Its deviation.
        deviation: f64,
    },
}

impl Sizes {
    /// Small objects: 61% under 100 bytes and 0.01% over 9600, which are the law's two parameters.
    pub const ADS_LIKE: Sizes = Sizes::Lognormal { mean: 4.235, deviation: 1.327 };
    /// Larger ones: 13% under 100 bytes. One point leaves the law one parameter short; a mean of 900 bytes is a guess, of which the
    /// paper says nothing.
    pub const GEO_LIKE: Sizes = Sizes::Lognormal { mean: 6.088, deviation: 1.31 };

    fn draw(self, draws: &mut fastrand::Rng) -> u16 {
        let Sizes::Lognormal { mean, deviation } = self else {
            let Sizes::Bytes(bytes) = self else { return 0 };
            return bytes.min(MOST_VALUE_BYTES);
        };
        loop {
            // Box and Muller's transform; 1 - f64() is never 0.
            let (radius, angle) = ((-2.0 * (1.0 - draws.f64()).ln()).sqrt(), std::f64::consts::TAU * draws.f64());
            let bytes = (mean + deviation * radius * angle.cos()).exp().ceil();
            if bytes <= f64::from(MOST_VALUE_BYTES) {
                return bytes.max(1.0) as u16;
            }
        }
    }
}

/// What is asked of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Keys: numbers from 0 on.
    pub keys: u32,
    /// How large their values are.
    pub sizes: Sizes,
    /// The exponent of Zipf's law: the n-th most popular key is asked for as often as n to the power of minus that says. 0: all as often.
    pub zipf: f64,
    /// Sets among a thousand requests.
    pub sets: u16,
    /// The seed of everything that is drawn.
    pub seed: u64,
}

impl Demand {
    /// CC-NIC section 5.7: a million objects, 95% gets, an exponent of 0.75.
    pub fn of_sizes(sizes: Sizes) -> Demand {
        Demand { keys: 1_000_000, sizes, zipf: 0.75, sets: 50, seed: 1 }
    }
}

/// Keys by their popularity, with their sizes.
#[derive(Clone, Debug)]
pub struct Catalogue {
    demand: Demand,
    /// The most popular one first; which key that is, and so where its value lies, has nothing to do with it.
    by_rank: Vec<u32>,
    /// By key.
    sizes: Vec<u16>,
    popularity: Zipf,
}

impl Catalogue {
    /// Draws one.
    pub fn new(demand: Demand) -> Catalogue {
        let mut draws = fastrand::Rng::with_seed(demand.seed);
        let mut by_rank: Vec<u32> = (0..demand.keys).collect();
        draws.shuffle(&mut by_rank);
        let sizes = (0..demand.keys).map(|_| demand.sizes.draw(&mut draws)).collect();
        Catalogue { demand, by_rank, sizes, popularity: Zipf::new(demand.keys, demand.zipf) }
    }

    /// What it was drawn from.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// The keys, the most popular first.
    pub fn by_rank(&self) -> &[u32] {
        &self.by_rank
    }

    /// The size of each key's value, by key.
    pub fn sizes(&self) -> &[u16] {
        &self.sizes
    }

    /// Bytes of the lines that all values take.
    pub fn bytes_of_values(&self) -> u64 {
        self.sizes.iter().map(|&bytes| room_of(bytes)).sum()
    }

    /// Draws a key.
    pub fn draw(&self, draws: &mut fastrand::Rng) -> u32 {
        self.by_rank[self.popularity.rank(draws.f64())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_under(sizes: Sizes, bytes: u16) -> f64 {
        let catalogue = Catalogue::new(Demand { keys: 200_000, ..Demand::of_sizes(sizes) });
        let under = catalogue.sizes().iter().filter(|size| **size < bytes).count();
        under as f64 / 200_000.0
    }

    #[test]
    fn the_laws_go_through_the_published_points() {
        assert!((share_under(Sizes::ADS_LIKE, 100) - 0.61).abs() < 0.01);
        assert!((share_under(Sizes::GEO_LIKE, 100) - 0.13).abs() < 0.01);
    }

    #[test]
    fn every_key_has_one_rank_and_a_size_that_fits() {
        let catalogue = Catalogue::new(Demand { keys: 10_000, ..Demand::of_sizes(Sizes::GEO_LIKE) });
        let mut keys = catalogue.by_rank().to_vec();
        assert_ne!(keys, (0..10_000).collect::<Vec<_>>(), "popularity has nothing to do with the key");
        keys.sort_unstable();
        assert_eq!(keys, (0..10_000).collect::<Vec<_>>());
        assert!(catalogue.sizes().iter().all(|size| (1..=MOST_VALUE_BYTES).contains(size)));
    }
}
