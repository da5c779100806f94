//! A core's write-combining buffers: stores to a device's memory, or to any write-combining memory.
//!
//! A buffer holds what was stored into one aligned region of 64 bytes. It is flushed when it is full, when all buffers hold
//! other regions and a store needs one, and by a fence; until the flush has reached its destination's port the buffer stays
//! taken. Nothing flushes a partly filled buffer before that, so no order holds between regions without a fence.

use crate::parameters::{CoreParameters, PcieParameters};

/// Bytes of a region.
const REGION: u64 = 64;

/// A buffer that is flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// The first address of its region.
    pub region: u64,
    /// Which of the region's bytes were stored, one bit each, the lowest for the first.
    pub bytes: u64,
    /// When it leaves the core, in picoseconds.
    pub leaves: u64,
    /// When it is at the root port, or at the home agents for memory: there its writes go on.
    pub at_port: u64,
    /// Until when its buffer stays taken.
    pub free_from: u64,
}

impl Flush {
    /// The writes that it becomes, one for each run of neighbouring bytes: `(address, bytes)`.
    pub fn writes(&self) -> Writes {
        Writes { region: self.region, left: self.bytes }
    }
}

/// The writes of a [`Flush`].
#[derive(Clone, Debug)]
pub struct Writes {
    region: u64,
    left: u64,
}

impl Iterator for Writes {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        if self.left == 0 {
            return None;
        }
        let first = self.left.trailing_zeros();
        let length = (self.left >> first).trailing_ones();
        self.left &= !mask(first, length);
        Some((self.region + u64::from(first), u64::from(length)))
    }
}

/// `length` bits from `first` on.
fn mask(first: u32, length: u32) -> u64 {
    (u64::MAX >> (u64::BITS - length)) << first
}

#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    region: u64,
    /// What it holds; none: it is free, or on its way out.
    bytes: u64,
    /// The number of the store that opened it, for its age.
    opened: u64,
    /// When its last flush was done.
    free_from: u64,
}

/// The write-combining buffers of one core.
///
/// Calls are made in nondecreasing order of `now`, by a core that goes on when it is told to. Times are picoseconds.
/// `port_free_from` is when the port takes another write ([`super::PcieLink::free_from`]): a buffer stays taken until then.
#[derive(Clone, Debug)]
pub struct WriteCombining {
    buffers: Vec<Buffer>,
    flush_time: u64,
    to_port: u64,
    opened: u64,
    flushes: u64,
    /// Time for which stores waited for a buffer.
    waited: u64,
}

impl WriteCombining {
    /// Empty buffers of a core, before a device behind PCIe.
    ///
    /// # Panics
    /// Where there is no buffer.
    pub fn to_device(core: &CoreParameters, pcie: &PcieParameters) -> WriteCombining {
        WriteCombining::new(core.write_combining_buffers, pcie.write_combining_flush, pcie.core_to_root)
    }

    /// Empty buffers, each taken for `flush_time` when it is flushed, after `to_port` of which its bytes are where they go.
    ///
    /// # Panics
    /// Where `buffers` is 0.
    pub fn new(buffers: u32, flush_time: u64, to_port: u64) -> WriteCombining {
        assert!(buffers > 0, "core.write_combining_buffers is 0: there must be a buffer");
        WriteCombining {
            buffers: vec![Buffer::default(); buffers as usize],
            flush_time,
            to_port,
            opened: 0,
            flushes: 0,
            waited: 0,
        }
    }

    /// Stores bytes of one region; says when the store is done and the core may go on, which is at once unless it has to
    /// wait for a buffer. `flush` is told of what that sends off: at most the oldest buffer and the stored one.
    ///
    /// # Panics
    /// Where the store is empty or does not lie within one region.
    pub fn store(
        &mut self,
        address: u64,
        bytes: u32,
        now: u64,
        port_free_from: u64,
        mut flush: impl FnMut(Flush),
    ) -> u64 {
        let first = (address % REGION) as u32;
        assert!(
            bytes > 0 && u64::from(first + bytes) <= REGION,
            "a store of {bytes} bytes at {address:#x} is empty or crosses a region of {REGION} bytes; split it"
        );
        let region = address - u64::from(first);
        let (index, now) = match self.holding(region) {
            Some(index) => (index, now),
            None => self.open(region, now, port_free_from, &mut flush),
        };
        self.buffers[index].bytes |= mask(first, bytes);
        if self.buffers[index].bytes == u64::MAX {
            self.flush(index, now, port_free_from, &mut flush);
        }
        now
    }

    /// The buffer that holds stores of a region.
    fn holding(&self, region: u64) -> Option<usize> {
        self.buffers.iter().position(|buffer| buffer.bytes != 0 && buffer.region == region)
    }

    /// A buffer for a region that none holds, and from when on.
    fn open(&mut self, region: u64, now: u64, port_free_from: u64, flush: &mut impl FnMut(Flush)) -> (usize, u64) {
        let empty = self.buffers.iter().enumerate().filter(|(_, buffer)| buffer.bytes == 0);
        let index = match empty.min_by_key(|(_, buffer)| buffer.free_from) {
            Some((index, _)) => index,
            None => {
                let oldest = self.buffers.iter().enumerate().min_by_key(|(_, buffer)| buffer.opened);
                let index = oldest.map_or(0, |(index, _)| index);
                self.flush(index, now, port_free_from, flush);
                index
            }
        };
        let buffer = &mut self.buffers[index];
        let from = buffer.free_from.max(now);
        self.opened += 1;
        self.waited += from - now;
        (buffer.region, buffer.opened) = (region, self.opened);
        (index, from)
    }

    fn flush(&mut self, index: usize, now: u64, port_free_from: u64, flush: &mut impl FnMut(Flush)) {
        let buffer = &mut self.buffers[index];
        self.flushes += 1;
        buffer.free_from = (now + self.flush_time).max(port_free_from);
        let Buffer { region, bytes, free_from, .. } = *buffer;
        flush(Flush { region, bytes, leaves: now, at_port: now + self.to_port, free_from });
        buffer.bytes = 0;
    }

    /// Flushes every buffer, the oldest first, without waiting: what an access to uncached memory does on its way.
    pub fn evict(&mut self, now: u64, port_free_from: u64, mut flush: impl FnMut(Flush)) {
        while self.evict_oldest(now, port_free_from, &mut flush) {}
    }

    /// Flushes the oldest buffer, without waiting, if one holds anything.
    pub fn evict_oldest(&mut self, now: u64, port_free_from: u64, flush: &mut impl FnMut(Flush)) -> bool {
        let held = self.buffers.iter().enumerate().filter(|(_, buffer)| buffer.bytes != 0);
        let oldest = held.min_by_key(|(_, buffer)| buffer.opened).map(|(index, _)| index);
        oldest.into_iter().for_each(|index| self.flush(index, now, port_free_from, flush));
        oldest.is_some()
    }

    /// A store fence: flushes every buffer and waits for all; says when the core may go on.
    pub fn fence(&mut self, now: u64, port_free_from: u64, flush: impl FnMut(Flush)) -> u64 {
        self.evict(now, port_free_from, flush);
        self.buffers.iter().fold(now, |until, buffer| until.max(buffer.free_from))
    }

    /// Buffers that hold stores which nothing has flushed yet.
    pub fn held(&self) -> usize {
        self.buffers.iter().filter(|buffer| buffer.bytes != 0).count()
    }

    /// Buffers that were flushed, in all.
    pub fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Buffers that were flushed and are still taken.
    pub fn leaving(&self, now: u64) -> usize {
        self.buffers.iter().filter(|buffer| buffer.free_from > now).count()
    }

    /// Time for which stores waited for a buffer, all together.
    pub fn waited(&self) -> u64 {
        self.waited
    }
}

#[cfg(test)]
mod tests;
