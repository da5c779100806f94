//! Inputs that are nearly right: a kept corpus, and what a seeded generator makes of it.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::explore::message_of;

/// The longest input that mutation makes.
const LONGEST: usize = 16 << 10;

/// Mutations of one input, at most.
const MOST_MUTATIONS: usize = 6;

/// Values at which lengths, counts and offsets turn over.
const EDGES: [u64; 12] = [0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// Gives `target` each file of a corpus, by name, and then `rounds` mutations of them, all from one seed; how many inputs it took.
///
/// # Panics
///
/// If the corpus is empty or cannot be read, or if `target` panics: then the message has the input as hexadecimal digits, so that it can
/// be kept in the corpus.
pub fn fuzz(corpus: &Path, seed: u64, rounds: u64, mut target: impl FnMut(&[u8])) -> u64 {
    let entries = fs::read_dir(corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry of a folder").path()).collect();
    paths.sort();
    let kept: Vec<Vec<u8>> =
        paths.iter().map(|path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))).collect();
    assert!(!kept.is_empty(), "{} holds nothing to begin with", corpus.display());
    let mut attempt = |input: &[u8]| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
            let digits: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
            let why = message_of(panic.as_ref());
            panic!("seed {seed}: {why}\nof an input of {} bytes: {digits}", input.len());
        }
    };
    kept.iter().for_each(|input| attempt(input));
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..rounds {
        let mut input = kept[random.usize(..kept.len())].clone();
        for _ in 0..random.usize(1..=MOST_MUTATIONS) {
            let other = &kept[random.usize(..kept.len())];
            mutate(&mut random, &mut input, other);
        }
        attempt(&input);
    }
    kept.len() as u64 + rounds
}

fn mutate(random: &mut fastrand::Rng, input: &mut Vec<u8>, other: &[u8]) {
    let at = random.usize(..input.len().max(1));
    match random.u8(..7) {
        0 => input.truncate(at),
        1 if !input.is_empty() => input[at] ^= 1 << random.u8(..8),
        2 if !input.is_empty() => input[at] = random.u8(..),
        3 => put_an_edge(random, input, at),
        4 => {
            let count = random.usize(1..=64);
            let bytes: Vec<u8> = (0..count).map(|_| random.u8(..)).collect();
            input.splice(at..at, bytes);
        }
        5 => {
            let end = (at + random.usize(..32)).min(input.len());
            input.drain(at.min(end)..end);
        }
        // The beginning of one and the end of another.
        _ => {
            input.truncate(at);
            input.extend_from_slice(&other[random.usize(..other.len().max(1))..]);
        }
    }
    input.truncate(LONGEST);
}

/// Puts a number of 1, 2, 4 or 8 bytes, in either order, over what is there.
fn put_an_edge(random: &mut fastrand::Rng, input: &mut [u8], at: usize) {
    let value = EDGES[random.usize(..EDGES.len())];
    let width = 1 << random.u8(..4);
    let bytes = if random.bool() { value.to_le_bytes() } else { value.to_be_bytes() };
    let bytes = if random.bool() { &bytes[..width] } else { &bytes[8 - width..] };
    let room = input.len().saturating_sub(at).min(width);
    input[at..at + room].copy_from_slice(&bytes[..room]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
    }

    #[test]
    #[should_panic(expected = "of an input of")]
    fn a_fault_that_a_few_mutations_reach_is_found_and_its_input_told() {
        fuzz(&corpus(), 1, 100_000, |input| assert!(input.len() < 4 || input[2] != 0xff));
    }

    #[test]
    fn one_seed_gives_the_same_inputs() {
        let run = |seed| {
            let mut all = Vec::new();
            fuzz(&corpus(), seed, 200, |input| all.push(input.to_vec()));
            all
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}
