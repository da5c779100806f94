//! The device's engines.

use conic_fabric::{Address, DeviceMemory, ReadTag, StateHint};

use super::{Channel, Completion, DESCRIPTOR_BYTES, MAGIC, PAGE_BYTES, REFUSED, word};

/// Where the device wants what it writes: wherever the host's root port puts it.
const HINT: StateHint = StateHint::NonCacheablePush;

/// What an engine refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStatistics {
    /// Stores to the run register that could not be.
    pub refused_runs: u64,
    /// Lists with a descriptor that could not be; each was reported as refused.
    pub refused_lists: u64,
}

/// A list that was fetched: the engine knows where the transfer's pages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pieces: Vec<(Address, u64)>,
    bytes: u64,
}

impl Fetched {
    /// Bytes of the transfer.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// An engine.
#[derive(Debug)]
pub struct Engine<D> {
    device: D,
    channel: Channel,
    completion: Completion,
    /// The last transfer that was started.
    transfer: u32,
    wrong: u64,
    statistics: EngineStatistics,
}

impl<D: DeviceMemory> Engine<D> {
    pub(super) fn new(channel: Channel, device: D, completion: Completion) -> Engine<D> {
        Engine { device, channel, completion, transfer: 0, wrong: 0, statistics: EngineStatistics::default() }
    }

    /// Whether the host has started the engine since the last time; says how many descriptors it is to fetch. A transfer of so many as
    /// cannot be is over at once, and reported as refused; a number that is not the next transfer's starts none.
    pub fn started(&mut self) -> Option<u64> {
        // Acquire: the list register, the descriptors, the buffer.
        let run = self.device.own_register(self.channel.run);
        let (transfer, descriptors) = ((run >> 32) as u32, run & 0xffff_ffff);
        if transfer == self.transfer {
            return None;
        }
        if transfer != self.transfer.wrapping_add(1) {
            self.statistics.refused_runs += u64::from(run != self.wrong);
            self.wrong = run;
            return None;
        }
        self.transfer = transfer;
        if !(1..=self.channel.pages()).contains(&descriptors) {
            self.statistics.refused_runs += 1;
            self.report(REFUSED);
            return None;
        }
        Some(descriptors)
    }

    /// Fetches a started transfer's descriptors. None if one of them cannot be: then that is reported, and the transfer is over.
    pub fn fetch(&mut self, descriptors: u64) -> Option<Fetched> {
        let list = self.device.own_register(self.channel.list);
        let mut bytes = vec![0; (descriptors * DESCRIPTOR_BYTES) as usize];
        if list != self.channel.descriptors.0 {
            self.refuse();
            return None;
        }
        self.device.read(self.channel.descriptors, &mut bytes, HINT);
        let mut fetched = Fetched { pieces: Vec::new(), bytes: 0 };
        for (descriptor, left) in bytes.chunks_exact(DESCRIPTOR_BYTES as usize).zip((0..descriptors).rev()) {
            let words: [u64; 4] = std::array::from_fn(|index| {
                u64::from_ne_bytes(std::array::from_fn(|byte| descriptor[8 * index + byte]))
            });
            let length = words[0] & 0xffff_ffff;
            let head = MAGIC << 48 | left << 32 | length;
            let (start, end) = (self.channel.buffer.0, self.channel.buffer.0 + self.channel.pages() * PAGE_BYTES);
            let inside = words[1] >= start && words[1] < end && length <= end - words[1];
            let whole = (1..=PAGE_BYTES).contains(&length);
            if words[0] != head || words[2] != u64::from(self.transfer) || words[3] != 0 || !inside || !whole {
                self.refuse();
                return None;
            }
            fetched.pieces.push((Address(words[1]), length));
            fetched.bytes += length;
        }
        Some(fetched)
    }

    fn refuse(&mut self) {
        self.statistics.refused_lists += 1;
        self.report(REFUSED);
    }

    /// Reads a fetched transfer's bytes from the host: all pieces are asked for before the first is awaited.
    pub fn read(&mut self, fetched: &Fetched) -> Vec<u8> {
        let start = |&(at, length): &(Address, u64)| self.device.start_read(at, length, HINT);
        let tags: Vec<ReadTag> = fetched.pieces.iter().map(start).collect();
        let mut bytes = vec![0; fetched.bytes as usize];
        let mut rest = &mut bytes[..];
        for (tag, &(at, length)) in tags.into_iter().zip(&fetched.pieces) {
            let (piece, behind) = rest.split_at_mut(length as usize);
            self.device.finish_read(tag, at, piece);
            rest = behind;
        }
        bytes
    }

    /// Writes bytes to the host, as many as the transfer has room for.
    pub fn write(&mut self, fetched: &Fetched, bytes: &[u8]) {
        let mut rest = &bytes[..bytes.len().min(fetched.bytes as usize)];
        for &(at, length) in &fetched.pieces {
            let (piece, behind) = rest.split_at(rest.len().min(length as usize));
            if !piece.is_empty() {
                self.device.write(at, piece, HINT);
            }
            rest = behind;
        }
    }

    /// Reports that the transfer is done, with so many bytes.
    pub fn done(&mut self, bytes: u64) {
        self.report(bytes);
    }

    fn report(&mut self, length: u64) {
        let report = word(self.transfer, length);
        self.device.set_own_pair(self.channel.status, [report, 0]);
        // After every write before it, as posted writes are: the data are there, and the list was read.
        self.device.write_word(self.channel.report, report, HINT);
        if self.completion == Completion::Interrupt {
            self.device.write_word(self.channel.message, report, HINT);
        }
    }

    /// What was refused.
    pub fn statistics(&self) -> EngineStatistics {
        self.statistics
    }

    /// The device that it runs on.
    pub fn device(&self) -> &D {
        &self.device
    }
}
