//! The buffers that a side freed last.

use conic_fabric::Address;

/// Most buffers that one side's stack of a class holds, a power of two.
pub(super) const STACK: usize = 256;

/// A stack of buffers.
#[derive(Debug)]
pub(super) struct Stack {
    pub entries: [Address; STACK],
    pub height: usize,
    /// The most that it may hold of what is freed: zero where nothing is to be kept.
    pub limit: usize,
    /// How many buffers go to and from the pool at once.
    pub batch: usize,
}

impl Stack {
    /// Pushes a buffer; there is room, for whoever calls has looked. The mask tells the compiler so.
    #[inline(always)]
    pub fn push(&mut self, at: Address) {
        debug_assert!(self.height < STACK);
        self.entries[self.height & (STACK - 1)] = at;
        self.height += 1;
    }

    /// Pops as many as there are, or there is room for.
    #[inline(always)]
    pub fn pop_into(&mut self, out: &mut [Address]) -> usize {
        let count = self.height.min(out.len());
        let top = &self.entries[..self.height.min(STACK)];
        for (space, at) in out[..count].iter_mut().zip(top.iter().rev()) {
            *space = *at;
        }
        self.height -= count;
        count
    }

    /// Pops the buffer pushed last, if there is one.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Address> {
        self.height = self.height.checked_sub(1)?;
        Some(self.entries[self.height & (STACK - 1)])
    }
}
