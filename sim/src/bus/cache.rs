//! A direct-mapped cache with data of its own.

use std::collections::BTreeMap;
use std::ops::Range;

use conic_fabric::Line;

use crate::protocol::snooping::Copy;

/// A block of a cache. One whose copy is invalid keeps its place, as a tag does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) line: u32,
    pub(super) copy: Copy,
    pub(super) data: Line,
}

/// The cache of a processor, or of a network interface's engine.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    /// The lines that share the blocks; others have a block each.
    shared: Range<u32>,
    blocks: Vec<Option<Block>>,
    others: BTreeMap<u32, Block>,
}

impl Cache {
    /// An empty cache whose `blocks` blocks are for the lines of `shared`. What is outside, an engine's queue pointers, has a block of its own.
    pub(super) fn new(blocks: usize, shared: Range<u32>) -> Cache {
        Cache { shared, blocks: vec![None; blocks], others: BTreeMap::new() }
    }

    fn place(&self, line: u32) -> Option<usize> {
        self.shared.contains(&line).then(|| (line - self.shared.start) as usize % self.blocks.len())
    }

    fn find(&self, line: u32) -> Option<&Block> {
        let block = match self.place(line) {
            Some(place) => self.blocks[place].as_ref(),
            None => self.others.get(&line),
        };
        block.filter(|block| block.line == line)
    }

    /// The block of a line, if there is one.
    pub(super) fn block(&mut self, line: u32) -> Option<&mut Block> {
        let block = match self.place(line) {
            Some(place) => self.blocks[place].as_mut(),
            None => self.others.get_mut(&line),
        };
        block.filter(|block| block.line == line)
    }

    /// The copy that there is of a line.
    pub(super) fn copy(&self, line: u32) -> Copy {
        self.find(line).map_or(Copy::Invalid, |block| block.copy)
    }

    /// The line that must be given up before another can be put in.
    pub(super) fn in_the_way_of(&self, line: u32) -> Option<Block> {
        self.blocks[self.place(line)?].filter(|block| block.line != line && block.copy != Copy::Invalid)
    }

    /// Puts a line in, in the place of what is there.
    pub(super) fn install(&mut self, block: Block) {
        match self.place(block.line) {
            Some(place) => self.blocks[place] = Some(block),
            None => {
                self.others.insert(block.line, block);
            }
        }
    }

    /// Drops a line.
    pub(super) fn drop_line(&mut self, line: u32) {
        if let Some(block) = self.block(line) {
            block.copy = Copy::Invalid;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(line: u32) -> Block {
        Block { line, copy: Copy::Exclusive, data: Line([line.into(); 8]) }
    }

    #[test]
    fn lines_of_one_place_displace_each_other_and_pointers_nothing() {
        let mut cache = Cache::new(4, 8..24);
        cache.install(block(8));
        cache.install(block(3));
        assert_eq!(cache.in_the_way_of(12).map(|block| block.line), Some(8));
        assert!(cache.in_the_way_of(9).is_none() && cache.in_the_way_of(8).is_none());
        assert!(cache.in_the_way_of(4).is_none(), "a line outside has a block of its own");
        cache.install(block(12));
        assert_eq!([8, 12, 3].map(|line| cache.copy(line)), [Copy::Invalid, Copy::Exclusive, Copy::Exclusive]);
        cache.drop_line(12);
        assert!(cache.in_the_way_of(8).is_none(), "an invalid copy is in nobody's way");
        assert_eq!(cache.block(3).map(|block| block.data.0[0]), Some(3));
    }
}
