//! What several tests share: numbers drawn from a seed, and machines that are hard on their protocol.

use conic_sim::Parameters;
use conic_sim::draws::Draws;
use conic_sim::parameters::SnoopFilterParameters;
use conic_sim::platform::Platform;

/// Numbers drawn from a seed.
#[derive(Clone, Debug)]
pub struct Random(Draws);

impl Random {
    /// The `stream`-th sequence of a seed.
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random(Draws::new(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ stream << 48));
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0.number()
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    pub fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }
}

/// A platform that comes with the crate.
pub fn platform(name: &str) -> Parameters {
    Platform::load(name).expect("a platform that comes with the crate").parameters().clone()
}

/// The same without its prefetchers, so that accesses are those of the program.
pub fn without_prefetchers(name: &str) -> Parameters {
    let mut parameters = platform(name);
    let core = &mut parameters.core;
    (core.prefetch_next_line, core.prefetch_adjacent, core.prefetch_stride) = (false, false, false);
    parameters
}

/// A platform with caches of a few lines, few buffers, and choices of the protocol drawn from the seed.
pub fn tiny(name: &str, seed: u64) -> Parameters {
    let mut random = Random::new(seed, 99);
    let mut parameters = platform(name);
    let core = &mut parameters.core;
    core.line_fill_buffers = 1 + random.below(3) as u32;
    core.load_buffer = 1 + random.below(4) as u32;
    core.store_buffer = 1 + random.below(6) as u32;
    (core.prefetch_next_line, core.prefetch_adjacent) = (random.coin(), random.coin());
    let cache = &mut parameters.cache;
    cache.l1_ways = 1 + random.below(2) as u32;
    cache.l1_bytes = 64 * u64::from(cache.l1_ways);
    // A set must have room for what is on its way.
    cache.l2_ways = core.line_fill_buffers + 1 + random.below(3) as u32;
    cache.l2_bytes = 64 * u64::from(cache.l2_ways) * (1 + random.below(2));
    cache.llc_ways = 1 + random.below(4) as u32;
    cache.llc_bytes = 64 * u64::from(cache.llc_ways) * (1 + random.below(2));
    let protocol = &mut parameters.protocol;
    protocol.migratory_between_nodes = random.coin();
    protocol.migratory_within_node = random.coin();
    protocol.exclusive_grant = random.coin();
    protocol.directory_write = random.coin();
    protocol.speculative_memory_read = random.coin();
    protocol.full_line_store_without_data = random.coin();
    parameters.core.store_fill_buffers = 1 + random.below(parameters.core.line_fill_buffers.into()) as u32;
    let protocol = &mut parameters.protocol;
    (protocol.forwards_clean, protocol.snoops_shared) = (random.coin(), random.coin());
    // The fewest that may be in half of the runs, so that requests wait for them.
    let spare = if random.coin() { 0 } else { random.below(4) as u32 };
    parameters.node.home_own_entries = 1 + spare;
    parameters.node.home_entries = parameters.node.home_own_entries + 1 + spare;
    // A snoop filter of a few ways, down to one for all lines, in half of the runs: lines are recalled, and requests wait for a way.
    parameters.snoop_filter = random.coin().then(|| {
        parameters.node.home_slices = 1 + random.below(3) as u32;
        SnoopFilterParameters { sets: 1 + random.below(3) as u32, ways: 1 + random.below(4) as u32 }
    });
    parameters
}
