//! Inputs that are nearly right: a kept corpus, and what a seeded generator makes of it.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::coverage::Coverage;
use crate::explore::message_of;

/// The longest input that mutation makes.
const LONGEST: usize = 16 << 10;

/// Mutations of one input, at most.
const MOST_MUTATIONS: usize = 6;

/// Values at which lengths, counts and offsets turn over.
const EDGES: [u64; 12] = [0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// A corpus, and what a seeded generator makes of it.
///
/// | program | what is mutated |
/// |---|---|
/// | built with the compiler's counters (`make fuzz`) | the corpus, and every input that went where none had gone before |
/// | any other | the corpus |
#[derive(Debug)]
pub struct Inputs {
    /// The corpus's files, by name, and their contents; and behind them what was learned.
    names: Vec<PathBuf>,
    kept: Vec<Vec<u8>>,
    random: fastrand::Rng,
    /// Bytes of a record; 1 for an input without any.
    record: usize,
    coverage: Coverage,
}

impl Inputs {
    /// The files of a folder, and all that follows from a seed. They consist of records of so many bytes, a tag of two and a value.
    ///
    /// # Panics
    ///
    /// If the folder is empty or cannot be read.
    pub fn new(corpus: &Path, seed: u64, record: usize) -> Inputs {
        let entries = fs::read_dir(corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
        let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry of a folder").path()).collect();
        names.sort();
        let read = |path: &PathBuf| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let kept: Vec<Vec<u8>> = names.iter().map(read).collect();
        assert!(!kept.is_empty(), "{} holds nothing to begin with", corpus.display());
        Inputs { names, kept, random: fastrand::Rng::with_seed(seed), record, coverage: Coverage::new() }
    }

    /// The corpus's files with their contents.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.names.iter().map(PathBuf::as_path).zip(self.kept.iter().map(Vec::as_slice))
    }

    /// The next input.
    pub fn next_input(&mut self) -> Vec<u8> {
        let (random, kept) = (&mut self.random, &self.kept);
        let mut input = kept[random.usize(..kept.len())].clone();
        for _ in 0..random.usize(1..=MOST_MUTATIONS) {
            let other = &kept[random.usize(..kept.len())];
            if self.record > 1 && random.u8(..4) > 0 {
                mutate_records(random, &mut input, other, self.record);
            } else {
                mutate(random, &mut input, other);
            }
        }
        input
    }

    /// Keeps an input that has just been tried, if it went where none had gone before.
    pub fn learn(&mut self, input: Vec<u8>) {
        if self.coverage.is_counted() && self.coverage.learn() {
            self.kept.push(input);
        }
    }

    /// How many inputs are mutated, and how many branches were reached, if they are counted.
    pub fn learned(&self) -> (usize, Option<usize>) {
        (self.kept.len(), self.coverage.is_counted().then(|| self.coverage.reached()))
    }
}

/// Gives an input to `target`; why it panicked, if it did.
///
/// # Errors
///
/// With the panic's message.
pub fn attempt(input: &[u8], target: impl FnOnce(&[u8])) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| target(input))).map_err(|panic| message_of(panic.as_ref()))
}

/// Gives `target` each file of a corpus, by name, and then `rounds` mutations of them, all from one seed; how many inputs it took.
///
/// # Panics
///
/// If the corpus is empty or cannot be read, or if `target` panics: then the message has the input as hexadecimal digits, so that it can
/// be kept in the corpus.
pub fn fuzz(corpus: &Path, seed: u64, rounds: u64, mut target: impl FnMut(&[u8])) -> u64 {
    let mut inputs = Inputs::new(corpus, seed, 1);
    let mut try_one = |input: &[u8]| {
        if let Err(why) = attempt(input, &mut target) {
            let digits: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
            panic!("seed {seed}: {why}\nof an input of {} bytes: {digits}", input.len());
        }
    };
    inputs.files().for_each(|(_, input)| try_one(input));
    for _ in 0..rounds {
        let input = inputs.next_input();
        try_one(&input);
        inputs.learn(input);
    }
    inputs.files().count() as u64 + rounds
}

/// Changes whole records, and values in their places.
fn mutate_records(random: &mut fastrand::Rng, input: &mut Vec<u8>, other: &[u8], record: usize) {
    let any = |random: &mut fastrand::Rng, of: &[u8]| random.usize(..(of.len() / record).max(1)) * record;
    let (at, from) = (any(random, input), any(random, other));
    let end = (at + record * random.usize(1..=4)).min(input.len());
    let value = at + 2..(at + record).min(input.len());
    match random.u8(..9) {
        0 => drop(input.drain(at.min(end)..end)),
        // The same once more, here or later.
        1 => {
            let again = input[at.min(end)..end].to_vec();
            let to = any(random, input).min(input.len());
            input.splice(to..to, again);
        }
        // What others say, in between; and what they go on to say.
        2 => {
            let some = (from + record * random.usize(1..=16)).min(other.len());
            input.splice(at.min(input.len())..at.min(input.len()), other[from.min(some)..some].iter().copied());
        }
        3 => {
            input.truncate(at);
            input.extend_from_slice(&other[from.min(other.len())..]);
        }
        // One value: a bit, an edge, a neighbour's, a little more or less.
        _ if value.len() < record - 2 => {}
        4 | 5 => input[random.usize(value)] ^= 1 << random.u8(..8),
        6 => {
            let place = random.usize(value.clone());
            put_an_edge(random, &mut input[..value.end], place);
        }
        7 if from + record <= other.len() => {
            let whose = if random.bool() { from } else { from + 2 };
            let tagged = at + (whose - from);
            input[tagged..at + record].copy_from_slice(&other[whose..from + record]);
        }
        _ => {
            let place = at + random.usize(..record);
            input[place] = input[place].wrapping_add(random.u8(..16)).wrapping_sub(8);
        }
    }
    input.truncate(LONGEST);
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

    #[test]
    fn records_are_moved_whole() {
        const RECORD: usize = 10;
        let said: Vec<u8> = (0..RECORD as u8 * 20).collect();
        let mut random = fastrand::Rng::with_seed(5);
        let (mut whole, mut changed) = (0, 0);
        for _ in 0..10_000 {
            let mut input = said.clone();
            mutate_records(&mut random, &mut input, &said, RECORD);
            assert_eq!(input.len() % RECORD, 0);
            let is_whole = |record: &[u8]| said.chunks(RECORD).any(|known| known == record);
            let strange = input.chunks(RECORD).filter(|record| !is_whole(record)).count();
            assert!(strange <= 1, "one value is changed at most");
            (whole, changed) = (whole + usize::from(strange == 0 && input != said), changed + strange);
        }
        assert!(whole > 2000 && changed > 2000, "{whole} with other records, {changed} with another value");
        // What is too short for one is survived.
        for length in 0..RECORD {
            (0..200).for_each(|_| mutate_records(&mut random, &mut said[..length].to_vec(), &said, RECORD));
        }
    }
}
