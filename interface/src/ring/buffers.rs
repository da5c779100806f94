//! The buffers that a host manages alone: free ones in a pool, and what is touched of each as it passes.

use conic_fabric::{Address, Core};

use super::Shape;
use super::pool::Pool;
use crate::{buffer_metadata, work};

/// A host's buffers.
#[derive(Debug)]
pub(crate) struct Buffers {
    pool: Pool,
    metadata: bool,
    room: u64,
    /// Buffers that were freed when all were free already, and addresses in no buffer that were freed.
    pub refused: u64,
    /// Times a blank buffer was to be posted and the pool had none.
    pub lacked: u64,
}

impl Buffers {
    /// All buffers of a shape, free; they lie from `start` on.
    pub fn full(shape: &Shape, start: Address) -> Buffers {
        let first_payload = start.0 + shape.metadata_bytes();
        let pool = Pool::full(start.0, first_payload, shape.buffers, shape.buffer_bytes, shape.pool_order);
        Buffers { pool, metadata: shape.metadata, room: shape.room(), refused: 0, lacked: 0 }
    }

    /// How many are free.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.pool.len()
    }

    /// Takes one for the program.
    #[inline(always)]
    pub fn allocate<C: Core>(&mut self, core: &C) -> Option<u64> {
        let address = self.pool.take()?;
        self.touch(core, address, buffer_metadata::reset);
        Some(address)
    }

    /// Takes one that the device gets blank; counts that there is none.
    #[inline(always)]
    pub fn post<C: Core>(&mut self, core: &C) -> Option<u64> {
        let Some(address) = self.pool.take() else {
            self.lacked += 1;
            return None;
        };
        self.touch(core, address, buffer_metadata::post);
        Some(address)
    }

    /// Returns the buffer that an address lies in to the pool, once its metadata have been read: what was sent may begin anywhere in it.
    #[inline(always)]
    pub fn free_buffer_of<C: Core>(&mut self, core: &C, at: u64) {
        let Some(payload) = self.pool.payload_of(at) else {
            self.refused += 1;
            return;
        };
        self.touch(core, payload, buffer_metadata::consult);
        self.free(core, payload);
    }

    /// Returns a buffer, by its payload's address, that nobody but the device had.
    #[inline(always)]
    pub fn free<C: Core>(&mut self, core: &C, address: u64) {
        core.work(work::BUFFER);
        if !self.pool.give_back(address) {
            self.refused += 1;
        }
    }

    /// Enters the length of a packet that begins anywhere in a buffer in that buffer's metadata, if there are any.
    #[inline(always)]
    pub fn describe<C: Core>(&self, core: &C, at: u64, length: u64) {
        if self.metadata
            && let Some(payload) = self.pool.payload_of(at)
        {
            buffer_metadata::enter(core, Address(payload), length);
        }
    }

    /// Bytes from an address to the end of the buffer that it lies in; none where it lies in none.
    #[inline(always)]
    pub fn bytes_to_end(&self, at: Address) -> u64 {
        self.pool.payload_of(at.0).map_or(0, |payload| payload + self.room - at.0)
    }

    /// Does something to the metadata in front of a payload, if there are any.
    #[inline(always)]
    fn touch<C: Core>(&self, core: &C, payload: u64, how: impl Fn(&C, Address)) {
        if self.metadata {
            how(core, Address(payload));
        }
    }
}
