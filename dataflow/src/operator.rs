//! Operators that both a CPU and a device can run, and the elements they take.

use std::collections::BTreeMap;

use conic_load::Function;

/// Something of a fixed number of bytes that can cross to a device.
pub trait Element: Copy + Send + 'static {
    /// Its bytes on the wire.
    const BYTES: usize;
    /// Writes it, little-endian; `into` has [`Element::BYTES`] bytes.
    fn write(&self, into: &mut [u8]);
    /// Reads it from [`Element::BYTES`] bytes.
    fn read(from: &[u8]) -> Self;
}

impl Element for u64 {
    const BYTES: usize = 8;
    #[inline(always)]
    fn write(&self, into: &mut [u8]) {
        into.copy_from_slice(&self.to_le_bytes());
    }
    #[inline(always)]
    fn read(from: &[u8]) -> u64 {
        from.try_into().map_or(0, u64::from_le_bytes)
    }
}

impl<const N: usize> Element for [u8; N] {
    const BYTES: usize = N;
    #[inline(always)]
    fn write(&self, into: &mut [u8]) {
        into.copy_from_slice(self);
    }
    #[inline(always)]
    fn read(from: &[u8]) -> [u8; N] {
        from.try_into().unwrap_or([0; N])
    }
}

impl<const N: usize> Element for [u64; N] {
    const BYTES: usize = 8 * N;
    #[inline(always)]
    fn write(&self, into: &mut [u8]) {
        for (word, place) in self.iter().zip(into.chunks_exact_mut(8)) {
            word.write(place);
        }
    }
    #[inline(always)]
    fn read(from: &[u8]) -> [u64; N] {
        let mut words = from.chunks_exact(8).map(u64::read);
        std::array::from_fn(|_| words.next().unwrap_or(0))
    }
}

/// An operator without a state: what it makes of an element depends on nothing else, so that batches may be split.
pub trait Operator: Clone + Send + Sync + 'static {
    /// What comes in.
    type Input: Element;
    /// What goes out.
    type Output: Element;
    /// Its name, for Timely's logs.
    fn name(&self) -> String;
    /// What it makes of an element: at most one.
    fn apply(&self, element: &Self::Input) -> Option<Self::Output>;
}

/// An operator with a state: it takes the elements of a time, and gives what it makes of them when the time is complete.
pub trait Gathering: Clone + Send + Sync + 'static {
    /// What comes in.
    type Input: Element;
    /// What goes out.
    type Output: Element;
    /// What it keeps of a time, beginning with nothing.
    type State: Default + Send + 'static;
    /// Its name, for Timely's logs.
    fn name(&self) -> String;
    /// Takes an element.
    fn take(&self, state: &mut Self::State, element: &Self::Input);
    /// What it makes of a time of which nothing more comes: of a time of which nothing came, it is not asked.
    fn finish(&self, state: &Self::State) -> Vec<Self::Output>;
}

/// How often each number came, of those of a time: pairs of number and count, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts;

impl Gathering for Counts {
    type Input = u64;
    type Output = [u64; 2];
    type State = BTreeMap<u64, u64>;
    fn name(&self) -> String {
        "counts".to_owned()
    }
    fn take(&self, state: &mut BTreeMap<u64, u64>, element: &u64) {
        *state.entry(*element).or_insert(0) += 1;
    }
    fn finish(&self, state: &BTreeMap<u64, u64>) -> Vec<[u64; 2]> {
        state.iter().map(|(number, count)| [*number, *count]).collect()
    }
}

/// A trivial filter: drops the numbers that are `value` in the bits of `mask`. With mask 0 it drops all (value 0) or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drops {
    /// The bits that are looked at.
    pub mask: u64,
    /// What they are in those that are dropped.
    pub value: u64,
}

impl Operator for Drops {
    type Input = u64;
    type Output = u64;
    fn name(&self) -> String {
        format!("drops {:#x} in {:#x}", self.value, self.mask)
    }
    #[inline(always)]
    fn apply(&self, element: &u64) -> Option<u64> {
        (element & self.mask != self.value).then_some(*element)
    }
}

/// So many filters, each of which drops one number of 1024, another one each.
pub fn trivial_filters(count: u64) -> Vec<Drops> {
    (0..count).map(|value| Drops { mask: 1023, value: value % 1024 }).collect()
}

/// Eight 64-bit hashes of each element of 128 bytes, what a Bloom filter with k = 8 looks up (section 5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bloom;

impl Operator for Bloom {
    type Input = [u8; 128];
    type Output = [u64; 8];
    fn name(&self) -> String {
        "bloom".to_owned()
    }
    #[inline]
    fn apply(&self, element: &[u8; 128]) -> Option<[u64; 8]> {
        let mut hashes = [0; 64];
        Function::Bloom.apply(element, &mut hashes);
        Some(Element::read(&hashes))
    }
}
