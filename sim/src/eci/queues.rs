//! The machine's queues, each with a probe ([`crate::probe::queues`]): which there are, and what they say of themselves.

use super::directory::{IN, OUT};
use super::machine::{Machine, What};
use crate::link::Direction;
use crate::probe::queues::{Name, Probed, Queues, probed};

/// A queue of the machine; of a core, a unit, a slice, a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Queue {
    /// A core's stores that were not performed.
    StoreBuffer(u16),
    /// A core's prefetches that are under way.
    Prefetches(u16),
    /// Accesses that wait for their line at the second level.
    Waiters,
    /// Lines that the second level has asked for.
    Asked,
    /// Transactions of a unit of the second level (TAD).
    CacheUnit(u16),
    /// What waits for one to end.
    CacheUnitWaits(u16),
    /// A link, to the home or to the cache.
    Link(bool, u8),
    /// A direction of a slice of the directory.
    Slice(u8, u8),
    /// Transactions of a unit of the directory.
    DirectoryUnit(u16),
    /// What waits for one to end.
    DirectoryUnitWaits(u16),
    /// What the device's logic has not taken.
    Arrivals,
    /// Recalls that it has begun and not ended.
    Recalls,
}

/// Names of the kinds of queues, in the order of its variants.
pub const KINDS: [&str; 12] = [
    "store buffer",
    "prefetches",
    "accesses for a line",
    "lines asked for",
    "transactions of a cache unit",
    "waits for a cache unit",
    "link",
    "directory slice",
    "transactions of a directory unit",
    "waits for a directory unit",
    "arrivals",
    "recalls",
];

impl Name for Queue {
    fn kind(self) -> &'static str {
        let place = match self {
            Queue::StoreBuffer(_) => 0,
            Queue::Prefetches(_) => 1,
            Queue::Waiters => 2,
            Queue::Asked => 3,
            Queue::CacheUnit(_) => 4,
            Queue::CacheUnitWaits(_) => 5,
            Queue::Link(..) => 6,
            Queue::Slice(..) => 7,
            Queue::DirectoryUnit(_) => 8,
            Queue::DirectoryUnitWaits(_) => 9,
            Queue::Arrivals => 10,
            Queue::Recalls => 11,
        };
        KINDS[place]
    }
}

probed!(Machine);

impl Machine {
    /// A message about a line takes a link from now on, and its last word is on the other side at `there`.
    pub(super) fn takes_link(&mut self, what: &What, unit: u32, there: u64) {
        let to_home = matches!(what, What::ToHome(_));
        let link = self.direction(to_home).link_of(unit.into()) as u8;
        self.serves(Queue::Link(to_home, link), self.agenda.now, there - self.parameters.link.crossing);
    }

    fn direction(&self, to_home: bool) -> &Direction {
        if to_home { &self.to_home } else { &self.to_cache }
    }
}

impl Probed for Machine {
    type Queue = Queue;

    fn probes(&self) -> &Option<Box<Queues<Queue>>> {
        &self.queues
    }

    fn probes_mut(&mut self) -> &mut Option<Box<Queues<Queue>>> {
        &mut self.queues
    }

    fn present(&self) -> u64 {
        self.agenda.now
    }

    fn all_queues(&self) -> Vec<Queue> {
        let mut all = vec![Queue::Waiters, Queue::Asked, Queue::Arrivals, Queue::Recalls];
        let of_core = [Queue::StoreBuffer, Queue::Prefetches];
        all.extend((0..self.cores.len() as u16).flat_map(|core| of_core.map(|queue| queue(core))));
        let of_unit = [Queue::CacheUnit, Queue::CacheUnitWaits];
        all.extend((0..self.cache_units.number() as u16).flat_map(|unit| of_unit.map(|queue| queue(unit))));
        let of_unit = [Queue::DirectoryUnit, Queue::DirectoryUnitWaits];
        all.extend((0..self.directory_units.number() as u16).flat_map(|unit| of_unit.map(|queue| queue(unit))));
        for to_home in [true, false] {
            all.extend((0..self.direction(to_home).links() as u8).map(|link| Queue::Link(to_home, link)));
        }
        let ways = [IN as u8, OUT as u8];
        all.extend((0..self.slices.len() as u8).flat_map(|slice| ways.map(|way| Queue::Slice(slice, way))));
        all
    }

    fn owner(&self, queue: Queue) -> String {
        match queue {
            Queue::StoreBuffer(core) | Queue::Prefetches(core) => format!("core {core}"),
            Queue::Waiters | Queue::Asked => "L2".to_owned(),
            Queue::CacheUnit(unit) | Queue::CacheUnitWaits(unit) => format!("L2 {unit}"),
            Queue::Link(true, link) => format!("CPU to device {link}"),
            Queue::Link(false, link) => format!("device to CPU {link}"),
            Queue::Slice(slice, way) if usize::from(way) == IN => format!("to the device {slice}"),
            Queue::Slice(slice, _) => format!("from the device {slice}"),
            Queue::DirectoryUnit(unit) | Queue::DirectoryUnitWaits(unit) => format!("directory {unit}"),
            Queue::Arrivals | Queue::Recalls => "device".to_owned(),
        }
    }

    fn limit_of(&self, queue: Queue) -> Option<u64> {
        let p = &self.parameters;
        Some(u64::from(match queue {
            Queue::StoreBuffer(_) => p.core.store_buffer,
            Queue::Prefetches(_) => p.core.prefetches,
            Queue::CacheUnit(_) => p.cache.unit_transactions,
            Queue::DirectoryUnit(_) => p.directory.transactions,
            _ => return None,
        }))
    }

    fn says(&self, queue: Queue) -> Option<u64> {
        let core = |core: u16| &self.cores[usize::from(core)];
        Some(match queue {
            Queue::StoreBuffer(id) => core(id).stores.len(),
            Queue::Prefetches(id) => core(id).prefetches as usize,
            Queue::CacheUnit(unit) => self.cache_units.used(unit.into()) as usize,
            Queue::CacheUnitWaits(unit) => self.cache_units.waiting_at(unit.into()),
            Queue::DirectoryUnit(unit) => self.directory_units.used(unit.into()) as usize,
            Queue::DirectoryUnitWaits(unit) => self.directory_units.waiting_at(unit.into()),
            Queue::Arrivals => self.arrivals.len(),
            Queue::Recalls => self.recalls.len(),
            _ => return None,
        } as u64)
    }

    fn holds_at_end(&self, queue: Queue, _end: u64) -> Option<u64> {
        Some(match queue {
            Queue::Waiters => self.cache.iter().map(|unit| unit.waiters.len() as u64).sum(),
            Queue::Asked => self.cache.iter().filter(|unit| unit.cached.asked.is_some()).count() as u64,
            _ => self.says(queue)?,
        })
    }

    fn served_by(&self, queue: Queue) -> Option<(u64, Option<u64>)> {
        match queue {
            Queue::Link(to_home, link) => {
                let counters = self.direction(to_home).link_counters(link.into());
                Some((counters.messages(), Some(counters.busy_picoseconds)))
            }
            Queue::Slice(slice, way) => {
                let slice = &self.slices[usize::from(slice)][usize::from(way)];
                Some((slice.messages, Some(slice.busy)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
