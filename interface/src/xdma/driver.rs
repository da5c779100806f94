//! The driver: what a call does from its entry to its return.

use std::fmt;

use conic_fabric::{Core, LINE_BYTES};

use super::{
    Channel, Completion, DESCRIPTOR_BYTES, Direction, MAGIC, Overhead, PAGE_BYTES, REFUSED, STRUCTURE_BYTES, word,
};

/// Where the n-th of so many structures lies: each place once, and in no order that a prefetcher could foresee, as a step of one length
/// from each to the next would be.
fn scattered(structure: u64, structures: u64) -> u64 {
    let bits = structures.next_power_of_two().trailing_zeros().max(1);
    let within = u64::MAX >> (64 - bits);
    let mut place = structure % structures;
    loop {
        // Odd factors and shifts to the right can be undone, so this only changes the order.
        for factor in [0x9e37_79b9_7f4a_7c15_u64, 0xd1b5_4a32_d192_ed03] {
            place = place.wrapping_mul(factor) & within;
            place ^= place >> bits.div_ceil(2);
        }
        if place < structures {
            return place;
        }
    }
}

/// A transfer that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferError {
    /// It has no byte, or more than the buffer holds: it, and the most.
    Length(u64, u64),
    /// The last call has not returned.
    UnderWay,
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransferError::Length(bytes, most) => write!(f, "a transfer has 1 to {most} bytes here, not {bytes}"),
            TransferError::UnderWay => write!(f, "the last call has not returned; poll it first"),
        }
    }
}

impl std::error::Error for TransferError {}

/// What the driver was told that cannot be, or that the device refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverStatistics {
    /// Reports that could not be; they were ignored.
    pub refused_reports: u64,
    /// Transfers that the device refused.
    pub refused_transfers: u64,
}

/// The driver of one engine.
#[derive(Debug)]
pub struct Driver<C> {
    core: C,
    channel: Channel,
    completion: Completion,
    overhead: Overhead,
    /// The last transfer that was started, and its length while it is under way.
    transfer: u32,
    under_way: Option<u64>,
    /// Bytes that the last one brought.
    came: u64,
    /// The next line of the structures.
    walked: u64,
    wrong: u64,
    statistics: DriverStatistics,
}

impl<C: Core> Driver<C> {
    pub(super) fn new(channel: Channel, core: C, completion: Completion, overhead: Overhead) -> Driver<C> {
        Driver {
            core,
            channel,
            completion,
            overhead,
            transfer: 0,
            under_way: None,
            came: 0,
            walked: 0,
            wrong: 0,
            statistics: DriverStatistics::default(),
        }
    }

    /// Walks lines of the kernel's structures.
    fn walk(&mut self, lines: u32) {
        let structures = self.channel.shape.structure_lines / 2;
        for _ in 0..lines {
            let (structure, second) = (self.walked / 2, self.walked % 2);
            // Nothing of one structure's place follows from the last one's but by a pointer.
            let place = scattered(structure, structures);
            let line = (self.channel.structures + place * STRUCTURE_BYTES).lines(second);
            self.walked += 1;
            self.core.work(self.overhead.line_work);
            if second == 0 {
                // The pointer to the next one.
                let _ = self.core.load(line);
            } else {
                let _ = self.core.read_line(line);
            }
        }
    }

    /// Starts to send bytes to the device, which have lain in the caller's buffer.
    ///
    /// # Errors
    ///
    /// They are none or too many, or the last call has not returned.
    pub fn begin_write(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        self.check(bytes.len() as u64)?;
        self.core.write_bytes(self.channel.buffer, bytes);
        self.begin(bytes.len() as u64);
        Ok(())
    }

    /// Starts to receive at most so many bytes from the device.
    ///
    /// # Errors
    ///
    /// They are none or too many, or the last call has not returned.
    pub fn begin_read(&mut self, bytes: u64) -> Result<(), TransferError> {
        self.check(bytes)?;
        self.begin(bytes);
        Ok(())
    }

    fn check(&self, bytes: u64) -> Result<(), TransferError> {
        if self.under_way.is_some() {
            return Err(TransferError::UnderWay);
        }
        let most = self.channel.shape.bytes;
        if (1..=most).contains(&bytes) { Ok(()) } else { Err(TransferError::Length(bytes, most)) }
    }

    /// Pins and maps the pages, builds the list, and starts the engine.
    fn begin(&mut self, bytes: u64) {
        let pages = bytes.div_ceil(PAGE_BYTES);
        self.walk(self.overhead.call_lines + self.overhead.page_lines * pages as u32);
        self.transfer = self.transfer.wrapping_add(1);
        for page in 0..pages {
            let length = (bytes - page * PAGE_BYTES).min(PAGE_BYTES);
            let at = self.channel.descriptors + page * DESCRIPTOR_BYTES;
            self.core.store(at, MAGIC << 48 | (pages - page - 1) << 32 | length);
            self.core.store(at.word(1), (self.channel.buffer + page * PAGE_BYTES).0);
            self.core.store(at.word(2), self.transfer.into());
            self.core.store(at.word(3), 0);
        }
        self.core.register_write(self.channel.list, self.channel.descriptors.0);
        // Release: the list register, the descriptors and the buffer, for the device that acquires it.
        self.core.register_write(self.channel.run, word(self.transfer, pages));
        self.under_way = Some(bytes);
    }

    /// Whether the transfer is done: then the call has returned, with so many bytes; 0 if the device refused it.
    pub fn poll(&mut self) -> Option<u64> {
        let asked = self.under_way?;
        let at = match self.completion {
            Completion::Polled => self.channel.report,
            Completion::Interrupt => self.channel.message,
        };
        // Acquire: the buffer, and that the engine has read its list.
        let report = self.core.load_acquire(at);
        let length = self.judge(report, asked)?;
        let length = match self.completion {
            Completion::Polled => length,
            Completion::Interrupt => self.handle_interrupt(asked)?,
        };
        self.walk(self.overhead.completion_lines);
        self.under_way = None;
        let is_refused = length == REFUSED;
        self.statistics.refused_transfers += u64::from(is_refused);
        self.came = if is_refused { 0 } else { length };
        Some(self.came)
    }

    /// The handler asks the device, which of its engines it was, and wakes the sleeper.
    fn handle_interrupt(&mut self, asked: u64) -> Option<u64> {
        self.core.work(self.overhead.interrupt_work);
        let [status, _] = self.core.register_read_pair(self.channel.status);
        self.judge(status, asked)
    }

    /// The length that a report of this transfer says.
    fn judge(&mut self, report: u64, asked: u64) -> Option<u64> {
        let length = report & 0xffff_ffff;
        let fits = match self.channel.direction {
            Direction::ToDevice => length == asked,
            Direction::ToHost => (1..=asked).contains(&length),
        };
        match (report >> 32) as u32 {
            now if now == self.transfer && (fits || length == REFUSED) => Some(length),
            last if last == self.transfer.wrapping_sub(1) => None,
            _ => {
                self.statistics.refused_reports += u64::from(report != self.wrong);
                self.wrong = report;
                None
            }
        }
    }

    /// Loads the first bytes of what came, as many as there is room for.
    pub fn read(&mut self, into: &mut [u8]) {
        let length = into.len().min(self.came as usize);
        self.core.read_bytes(self.channel.buffer, &mut into[..length]);
        // Bulk data: the caller has them in its registers when the last line is there.
        let last = (self.channel.buffer + length.saturating_sub(1) as u64).0 / LINE_BYTES * LINE_BYTES;
        self.core.depends_on(conic_fabric::Address(last));
    }

    /// What was refused.
    pub fn statistics(&self) -> DriverStatistics {
        self.statistics
    }

    /// The core that it runs on.
    pub fn core(&self) -> &C {
        &self.core
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::scattered;

    #[test]
    fn each_structure_has_a_place_of_its_own_and_none_follows_from_the_one_before() {
        for structures in [1, 2, 3, 100, 4096, 10_007] {
            let places: Vec<u64> = (0..structures).map(|structure| scattered(structure, structures)).collect();
            let all: BTreeSet<u64> = places.iter().copied().collect();
            assert_eq!((all.len() as u64, all.last().copied()), (structures, Some(structures - 1)));
            assert_eq!(scattered(structures, structures), places[0], "round and round");
            let steps: Vec<u64> = places.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
            let alike = steps.windows(2).filter(|pair| pair[0] == pair[1]).count();
            assert!(
                structures < 100 || alike * 20 < steps.len(),
                "{alike} of {} steps are as the one before",
                steps.len()
            );
        }
    }
}
