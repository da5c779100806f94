//! What the host sent and keeps: which of it has been read.

use std::collections::VecDeque;

use super::descriptor::Descriptor;

/// Descriptors in the order they were sent, each with the position up to which the ring must be released before it has
/// been read. Its memory is fixed.
#[derive(Debug)]
pub(crate) struct Retained {
    waiting: VecDeque<(u64, Descriptor)>,
    returned: VecDeque<Descriptor>,
    capacity: usize,
}

impl Retained {
    /// Room for `capacity` descriptors and a packet more.
    pub(crate) fn new(capacity: u64) -> Retained {
        let capacity = capacity as usize + super::queue::MAX_SEGMENTS;
        Retained { waiting: VecDeque::with_capacity(capacity), returned: VecDeque::with_capacity(capacity), capacity }
    }

    /// Descriptors that it has room for when it is empty.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn room(&self) -> usize {
        self.capacity - self.waiting.len() - self.returned.len()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn push(&mut self, until: u64, descriptor: Descriptor) {
        self.waiting.push_back((until, descriptor));
    }

    /// The next descriptor that has been read, now that the ring is released up to `released`. One that the caller
    /// retained is also kept for [`Retained::take_returned`].
    pub(crate) fn pop_released(&mut self, released: u64) -> Option<Descriptor> {
        let &(until, descriptor) = self.waiting.front()?;
        if until > released {
            return None;
        }
        self.waiting.pop_front();
        if descriptor.has(super::descriptor::Flags::RETAIN) {
            self.returned.push_back(descriptor);
        }
        Some(descriptor)
    }

    pub(crate) fn take_returned(&mut self, out: &mut [Descriptor]) -> usize {
        let count = self.returned.len().min(out.len());
        for space in &mut out[..count] {
            *space = self.returned.pop_front().expect("as many as were counted");
        }
        count
    }
}
