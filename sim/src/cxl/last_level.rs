//! The last-level cache: its lines, what becomes of those that a device has put there, and what the host's monitoring tells of it.

use conic_fabric::{Address, LINE_BYTES};

use super::machine::Machine;
use super::parameters::CxlParameters;
use crate::machine::tags::{Gone, Tags};
use crate::protocol::cxl::{Copy, Side};

/// Lines that a device has put into the last-level cache, by a push over CXL or by DMA, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushedLines {
    /// Put there.
    pub pushed: u64,
    /// Of those, the ones that a core has had from there, or has asked to write.
    pub read: u64,
    /// The ones that had to go for another line before.
    pub evicted: u64,
    /// The ones that the device wrote anew before, or that were flushed.
    pub overwritten: u64,
}

impl PushedLines {
    /// What was counted since an earlier state.
    pub fn since(&self, earlier: &PushedLines) -> PushedLines {
        PushedLines {
            pushed: self.pushed - earlier.pushed,
            read: self.read - earlier.read,
            evicted: self.evicted - earlier.evicted,
            overwritten: self.overwritten - earlier.overwritten,
        }
    }
}

/// What the host's monitoring tells of its last-level cache: bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheMonitoring {
    /// Of it that hold something.
    pub occupied: u64,
    /// That it can hold.
    pub capacity: u64,
    /// That some cores have had brought in from memory so far, the host's or the device's.
    pub brought_in: u64,
}

/// The mark of a line that a device put there and that no core has had since.
const UNREAD: u8 = 1;

/// The cache's tags, and how many of them are used.
#[derive(Debug)]
pub(super) struct LastLevel {
    tags: Tags,
    lines: u64,
    occupied: u64,
    /// Ways of each set that a device's lines go to.
    device_ways: usize,
}

impl LastLevel {
    pub(super) fn new(parameters: &CxlParameters) -> LastLevel {
        let cache = &parameters.cache;
        let tags = Tags::new(cache.llc_bytes, cache.llc_ways);
        let lines = tags.sets() as u64 * u64::from(cache.llc_ways);
        LastLevel { tags, lines, occupied: 0, device_ways: cache.device_write_ways as usize }
    }

    pub(super) fn has(&self, line: u32) -> bool {
        self.tags.find(line).is_some()
    }

    /// Takes a line out; whether a device put it there and no core has had it since.
    pub(super) fn remove(&mut self, line: u32) -> bool {
        let Some(place) = self.tags.find(line) else { return false };
        let is_unread = self.tags.mark(place) == UNREAD;
        self.tags.remove(place);
        self.occupied -= 1;
        is_unread
    }

    /// A core has a line from here; whether it is the first that has what a device put there.
    fn is_read(&mut self, line: u32) -> bool {
        let Some(place) = self.tags.find(line) else { return false };
        let is_unread = self.tags.mark(place) == UNREAD;
        self.tags.set_mark(place, 0);
        is_unread
    }

    /// Puts a line in, for a device or for a core; what has to go for it. None of those goes that `may_go` keeps.
    fn insert(&mut self, line: u32, by_device: bool, may_go: impl FnMut(u32) -> bool) -> Option<Gone> {
        if let Some(place) = self.tags.find(line) {
            self.tags.touch(place);
            return None;
        }
        let put = if by_device {
            self.tags.insert_within(self.device_ways, line, UNREAD, may_go)
        } else {
            self.tags.insert(line, 0, may_go)
        };
        let (_, gone) = put?;
        self.occupied += u64::from(gone.is_none());
        gone
    }
}

impl Machine {
    /// Puts a line into the last-level cache; the one that has to go is written back if no core has it.
    pub(super) fn install_last_level(&mut self, line: u32, by_device: bool) {
        let running = &self.running;
        let gone = self.last_level.insert(line, by_device, |other| !running.contains_key(&other));
        self.counters.pushed_lines.pushed += u64::from(by_device);
        let Some(Gone { line: victim, mark }) = gone else { return };
        self.counters.pushed_lines.evicted += u64::from(mark == UNREAD);
        self.note_owners(victim);
        if self.lines[victim as usize].holders == 0 && self.lines[victim as usize].host.copy != Copy::Invalid {
            self.counters.evictions += 1;
            self.give_up(victim);
        }
    }

    /// A core has what the last-level cache has of a line.
    pub(super) fn reads_last_level(&mut self, line: u32) {
        self.counters.pushed_lines.read += u64::from(self.last_level.is_read(line));
    }

    /// The last-level cache loses a line, to a core that writes it or to the device.
    pub(super) fn leaves_last_level(&mut self, line: u32, to_core: bool) {
        let unread = u64::from(self.last_level.remove(line));
        let counters = &mut self.counters.pushed_lines;
        *(if to_core { &mut counters.read } else { &mut counters.overwritten }) += unread;
    }

    /// What its monitoring tells now; `cores` are a group, whose lines from memory are counted.
    pub(super) fn monitor_cache(&self, cores: &[u16]) -> CacheMonitoring {
        let brought_in: u64 = cores.iter().map(|core| self.cores[usize::from(*core)].brought_in).sum();
        CacheMonitoring {
            occupied: self.last_level.occupied * LINE_BYTES,
            capacity: self.last_level.lines * LINE_BYTES,
            brought_in: brought_in * LINE_BYTES,
        }
    }

    /// Leaves lines of the host's memory in the last-level cache, as a program does that has read them before: those that find no room
    /// displace earlier ones.
    ///
    /// # Panics
    ///
    /// If a cache has one of them, or a line is the device's.
    pub fn leave_in_last_level(&mut self, from: Address, lines: u64) {
        let first = (from.0 / LINE_BYTES) as u32;
        for line in first..first + lines as u32 {
            let host = &mut self.lines[line as usize].host;
            assert!(
                host.home == Side::Host && host.copy == Copy::Invalid,
                "line {line} is the device's, or in a cache"
            );
            host.data = host.memory;
            host.copy = Copy::Exclusive;
            if let Some(gone) = self.last_level.insert(line, false, |_| true) {
                let gone = &mut self.lines[gone.line as usize].host;
                assert!(gone.copy != Copy::Modified, "nothing but what was left here is displaced");
                gone.copy = Copy::Invalid;
            }
        }
    }
}
