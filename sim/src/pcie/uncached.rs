//! A core's uncached stores and loads: registers of a device, one access at a time.

use super::{PcieLink, TlpKind};
use crate::parameters::PcieParameters;

/// An uncached store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UncachedStore {
    /// When it leaves the core's store buffer: at once, or when the one before it is done.
    pub leaves: u64,
    /// When it is at the root port: there its write goes on.
    pub at_root: u64,
    /// When the next one may leave.
    pub done: u64,
}

/// The uncached path of one core to the root port: one access is under way at a time.
///
/// Calls are made in nondecreasing order of `now`. Times are picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncached {
    store_time: u64,
    to_root: u64,
    busy_until: u64,
}

impl Uncached {
    /// An idle path.
    pub fn new(parameters: &PcieParameters) -> Uncached {
        Uncached { store_time: parameters.uncached_store, to_root: parameters.core_to_root, busy_until: 0 }
    }

    /// Stores. The write is posted: the core itself goes on, and its store buffer when the store is done.
    pub fn store(&mut self, now: u64) -> UncachedStore {
        let leaves = self.busy_until.max(now);
        self.busy_until = leaves + self.store_time;
        UncachedStore { leaves, at_root: leaves + self.to_root, done: self.busy_until }
    }

    /// Begins a load; says when it is at the root port, behind every store before it.
    pub fn load(&mut self, now: u64) -> u64 {
        self.busy_until.max(now) + self.to_root
    }

    /// The load's answer is at the root port; says when the core has it and goes on.
    pub fn loaded(&mut self, at_root: u64) -> u64 {
        self.busy_until = self.busy_until.max(at_root + self.to_root);
        at_root + self.to_root
    }

    /// How long a core waits for a load of `bytes` of a device's registers when nothing else is under way: to the root
    /// port, across the link, the device's own time, and all the way back.
    pub fn unloaded_load(parameters: &PcieParameters, bytes: u32) -> u64 {
        let link = PcieLink::new(parameters);
        let request = link.wire_time(link.tlps().overhead(TlpKind::Read));
        let answer = link.wire_time(link.tlps().overhead(TlpKind::Completion) + u64::from(bytes));
        2 * parameters.core_to_root + 2 * parameters.crossing + request + answer + parameters.register_read
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sent;
    use super::super::tests::{gen4, wire_time};
    use super::*;

    #[test]
    fn a_store_waits_for_the_one_before_it_and_not_a_picosecond_longer() {
        let p = gen4();
        for (ready, leaves) in [
            (p.uncached_store - 1, p.uncached_store),
            (p.uncached_store, p.uncached_store),
            (p.uncached_store + 1, p.uncached_store + 1),
        ] {
            let mut path = Uncached::new(&p);
            let first = UncachedStore { leaves: 0, at_root: p.core_to_root, done: p.uncached_store };
            assert_eq!(path.store(0), first);
            let next = UncachedStore { leaves, at_root: leaves + p.core_to_root, done: leaves + p.uncached_store };
            assert_eq!(path.store(ready), next, "ready at {ready}");
        }
    }

    #[test]
    fn a_load_takes_every_part_of_the_way_twice_and_the_devices_time() {
        let p = gen4();
        for bytes in [8, 64] {
            let (mut path, mut link) = (Uncached::new(&p), PcieLink::new(&p));
            let now = 1_000;
            let at_device = link.request_register_read(path.load(now));
            let Sent::Arrives(at_root) = link.complete_register_read(bytes, 0, at_device + p.register_read) else {
                panic!("nothing is in its way");
            };
            let took = path.loaded(at_root) - now;
            let wire = wire_time(&p, 24) + wire_time(&p, 20 + u64::from(bytes));
            assert_eq!(took, 2 * (p.core_to_root + p.crossing) + wire + p.register_read);
            assert_eq!(took, Uncached::unloaded_load(&p, bytes));
        }
    }

    #[test]
    fn a_load_is_behind_the_stores_and_stores_are_behind_the_load() {
        let p = gen4();
        let mut path = Uncached::new(&p);
        let store = path.store(0);
        assert_eq!(path.load(10), store.done + p.core_to_root);
        let answered = 2_000_000;
        let done = path.loaded(answered);
        assert_eq!(done, answered + p.core_to_root);
        assert_eq!(path.store(done - 1).leaves, done);
    }
}
