//! From a line's address to where it lies.

use super::parameters::HostParameters;
use crate::link::mix;

/// Where a line lies in memory, and which slice is its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slice: u16,
    pub(super) channel: u8,
    /// Of the channel: `(rank * groups + group) * banks + bank`.
    pub(super) bank: u8,
    pub(super) row: u32,
}

/// The map of a machine's memory. Neighbouring lines alternate between the channels, in a channel between bank groups; above a row's columns come the
/// bank's other bits, which are hashed with the row's, then the row. Pages lie anywhere.
#[derive(Clone, Debug)]
pub(super) struct AddressMap {
    channels: u64,
    slices: u64,
    page_lines: u64,
    interleaved: u64,
    row_lines: u64,
    groups: u64,
    banks: u64,
    ranks: u64,
    seed: u64,
}

/// Pages are drawn from so many lines: 64 GiB.
const MEMORY_LINES: u64 = 1 << 30;

impl AddressMap {
    pub(super) fn new(parameters: &HostParameters, seed: u64) -> AddressMap {
        let dram = &parameters.dram;
        AddressMap {
            channels: parameters.controller.channels.into(),
            slices: parameters.home.slices.into(),
            page_lines: dram.page_bytes / 64,
            interleaved: dram.interleaved_groups.into(),
            row_lines: dram.row_bytes / 64,
            groups: dram.bank_groups.into(),
            banks: dram.banks.into(),
            ranks: dram.ranks.into(),
            seed,
        }
    }

    /// The place of a line of a buffer.
    pub(super) fn place(&self, buffer: u64, line: u64) -> Place {
        self.of_physical(self.physical(buffer, line))
    }

    /// A line of a buffer by its number in memory.
    pub(super) fn physical(&self, buffer: u64, line: u64) -> u64 {
        let page = mix(self.seed ^ mix((buffer << 40) ^ (line / self.page_lines)));
        let pages = MEMORY_LINES / self.page_lines;
        page % pages * self.page_lines + line % self.page_lines
    }

    /// The place of a line by that number.
    pub(super) fn of_physical(&self, line: u64) -> Place {
        let slice = mix(line) % self.slices;
        let (channel, rest) = (line % self.channels, line / self.channels);
        let (low_group, rest) = (rest % self.interleaved, rest / self.interleaved);
        let above = rest / self.row_lines;
        // All of these are powers of two, so that a hash by XOR only changes the order of the banks of a row's number.
        let others = self.groups / self.interleaved * self.banks * self.ranks;
        let (high, row) = (above % others, above / others);
        let hashed = high ^ ((row ^ (row >> 4) ^ (row >> 8)) % others);
        let low_group = low_group ^ ((row >> 2) % self.interleaved);
        let (bank, hashed) = (hashed % self.banks, hashed / self.banks);
        let (rank, high_group) = (hashed % self.ranks, hashed / self.ranks);
        let group = high_group * self.interleaved + low_group;
        let bank = (rank * self.groups + group) * self.banks + bank;
        Place { slice: slice as u16, channel: channel as u8, bank: bank as u8, row: row as u32 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::AddressMap;

    fn map() -> AddressMap {
        AddressMap {
            channels: 2,
            slices: 18,
            page_lines: 256,
            interleaved: 4,
            row_lines: 128,
            groups: 4,
            banks: 4,
            ranks: 2,
            seed: 1,
        }
    }

    #[test]
    fn no_two_lines_share_a_place_more_often_than_a_row_has_columns() {
        let map = map();
        let lines = 1 << 20;
        let mut seen = std::collections::BTreeMap::new();
        for line in 0..lines {
            let place = map.of_physical(line);
            *seen.entry((place.channel, place.bank, place.row)).or_insert(0) += 1;
        }
        assert!(seen.values().all(|count| *count == 128), "every row is full, and none is more than full");
        assert_eq!(seen.len() as u64, lines / 128);
    }

    #[test]
    fn neighbours_alternate_between_channels_and_in_a_channel_between_groups() {
        let map = map();
        let of = |line| map.of_physical(line);
        assert_ne!(of(0).channel, of(1).channel);
        let groups: BTreeSet<u8> = (0..4).map(|line| of(2 * line).bank / 4 % 4).collect();
        assert_eq!(groups.len(), 4);
        assert_eq!((of(0).bank, of(0).row), (of(8).bank, of(8).row));
    }

    #[test]
    fn a_page_lies_together_and_pages_lie_anywhere() {
        let map = map();
        let [first, last, other] = [0, 255, 256].map(|line| map.place(3, line));
        assert_eq!(first.row, last.row);
        assert_ne!(first.row, other.row);
        assert_ne!(map.place(4, 0), first, "buffers lie elsewhere");
        let banks: BTreeSet<u8> = (0..4096).map(|page| map.place(3, page * 256).bank).collect();
        assert_eq!(banks.len(), 32, "a page's first line is in any bank");
    }
}
