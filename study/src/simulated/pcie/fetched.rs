//! Descriptors of one ring that a chip has fetched before they are needed.

use std::collections::VecDeque;

use conic_fabric::{Address, Device, ReadTag, StateHint};
use conic_interface::ring::DESCRIPTOR_BYTES;
use conic_sim::SimDevice;

/// Batches of descriptors that a queue has on the chip, or on their way to it, at most.
const BATCHES: u64 = 2;

/// A fetch under way.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    read: u64,
    first: u64,
    count: u64,
}

/// What a chip has of a ring's descriptors.
#[derive(Debug)]
pub(super) struct Fetched {
    ring: Address,
    descriptors: u64,
    batch: u64,
    fetches: VecDeque<Fetch>,
    /// Up to where descriptors were asked for, are here, and are used.
    asked: u64,
    here: u64,
    used: u64,
    words: Vec<[u64; 2]>,
}

impl Fetched {
    /// Nothing of a ring; fetches take `batch` descriptors at most.
    pub(super) fn new(ring: Address, descriptors: u64, batch: u64) -> Fetched {
        let words = vec![[0; 2]; descriptors as usize];
        Fetched { ring, descriptors, batch, fetches: VecDeque::new(), asked: 0, here: 0, used: 0, words }
    }

    fn mask(&self) -> u64 {
        self.descriptors - 1
    }

    /// The index of the descriptor at an address, if it is of this ring.
    pub(super) fn index(&self, at: Address) -> Option<u64> {
        let inside = at >= self.ring && at < self.ring + self.descriptors * DESCRIPTOR_BYTES;
        inside.then(|| (at - self.ring) / DESCRIPTOR_BYTES)
    }

    /// The descriptor at an index.
    pub(super) fn at(&self, index: u64) -> Address {
        self.ring + index * DESCRIPTOR_BYTES
    }

    /// Up to where descriptors are here.
    pub(super) fn here(&self) -> u64 {
        self.here
    }

    /// The words of a descriptor that is here.
    pub(super) fn words(&self, index: u64) -> [u64; 2] {
        self.words[(index & self.mask()) as usize]
    }

    /// Notes that all descriptors before an index are used: there is room for others.
    pub(super) fn use_up_to(&mut self, index: u64) {
        self.used = index & self.mask();
    }

    /// Takes fetches that have come.
    pub(super) fn take(&mut self, device: &SimDevice<'_>) {
        while let Some(fetch) = self.fetches.front().copied().filter(|fetch| device.is_ready(&ReadTag(fetch.read))) {
            let mut bytes = vec![0; (fetch.count * DESCRIPTOR_BYTES) as usize];
            device.finish_read(ReadTag(fetch.read), self.at(fetch.first), &mut bytes);
            for (index, words) in bytes.chunks_exact(DESCRIPTOR_BYTES as usize).enumerate() {
                let word = |half: &[u8]| u64::from_ne_bytes(half.try_into().expect("eight bytes"));
                self.words[fetch.first as usize + index] = [word(&words[..8]), word(&words[8..])];
            }
            self.here = (fetch.first + fetch.count) & self.mask();
            self.fetches.pop_front();
        }
    }

    /// Fetches descriptors up to `announced`, a ring index, as far as there is room for them; `patient`: fewer than a batch only
    /// where that is all there is, so that room is not filled by a few at a time.
    pub(super) fn fetch(&mut self, device: &SimDevice<'_>, announced: u64, patient: bool) {
        if announced > self.mask() {
            return;
        }
        loop {
            let first = self.asked;
            let room = (BATCHES * self.batch).saturating_sub(first.wrapping_sub(self.used) & self.mask());
            let there = (announced.wrapping_sub(first) & self.mask()).min(self.descriptors - first).min(self.batch);
            if there == 0 || room == 0 || patient && room < there {
                return;
            }
            let count = there.min(room);
            let ReadTag(read) = device.start_read(self.at(first), count * DESCRIPTOR_BYTES, StateHint::NonCacheable);
            self.fetches.push_back(Fetch { read, first, count });
            self.asked = (first + count) & self.mask();
        }
    }
}
