//! The backend of a machine that migrates: what it asks for meanwhile, and what is then marked in its log.
//!
//! | a frontend says | when | what is done |
//! |---|---|---|
//! | here is the log | before all else, and a larger one before there is more memory | all rings mark in this one, from the answer on in no other |
//! | features, with the one that all writes are logged | rings go | what packets are put into is marked from then on |
//! | a ring's addresses, as they were, with a flag | rings go | what the device uses of that ring is marked too |
//! | where does a ring stand? | the processors of the machine stand still | the ring is shown, marked and stopped, before the answer |
//! | features without it | it did not migrate after all | the log is left |

use std::sync::Arc;

use conic_native::Held;

use super::VhostOptions;
use super::announce::is_of_a_station;
use super::backend::Backend;
use super::device_ring::DeviceRing;
use super::half::{Device, Outside, feature};
use super::log::{Log, Pages};
use super::message::{LogPlace, Parts, Place, Request};
use super::packed::WISH;
use super::ring::used_bytes;
use super::rings::Served;
use crate::peer::take_interrupt;

impl Device<Backend> {
    /// Does what only machines that migrate ask for, and nothing about anything else.
    pub(super) fn change_log(
        &mut self,
        request: Request,
        mut descriptors: Vec<Held>,
        options: &VhostOptions,
        outside: &Outside<DeviceRing>,
    ) -> Result<(), &'static str> {
        match (request, descriptors.pop()) {
            (Request::SetLog(place), Some(log)) => self.set_log(place, log, options, outside),
            (Request::SetLogBell, Some(bell)) => take_interrupt(&bell),
            (Request::Announce(station), _) if is_of_a_station(station) => {
                self.half.announced = Some(station);
                Ok(())
            }
            (Request::Announce(_), _) => Err("an address that no station has"),
            _ => Ok(()),
        }
    }

    /// Says where a ring's parts lie, and whether it is logged; of a ring in use, where they lie already.
    pub(super) fn set_parts(
        &mut self,
        ring: u32,
        parts: Parts,
        log: Option<u64>,
        outside: &Outside<DeviceRing>,
    ) -> Result<(), &'static str> {
        let number = self.number(ring)?;
        if self.queues[number].parts != Some(parts) {
            self.stopped(ring, outside)?;
        }
        let queue = &mut self.queues[number];
        let before = std::mem::replace(&mut queue.log, log);
        queue.parts = Some(parts);
        self.mark_pages(outside).inspect_err(|_| self.queues[number].log = before)
    }

    pub(super) fn set_features(&mut self, features: u64, outside: &Outside<DeviceRing>) -> Result<(), &'static str> {
        if features & !self.half.offered != 0 {
            return Err("a feature that was not offered");
        }
        // A frontend may say them again while rings go, to have them logged or not; how these are read does not change under them.
        let changed = (features ^ self.features) & !feature::LOG_ALL;
        if changed != 0 {
            let emptied = (0..self.queues.len()).filter(|&number| self.queues[number].discards).collect::<Vec<_>>();
            emptied.into_iter().for_each(|number| self.stop(number, outside));
        }
        if self.queues.iter().any(|queue| queue.is_used) && changed != 0 {
            return Err("features cannot change while a ring is in use");
        }
        self.features = features;
        let log = if self.has(feature::LOG_ALL) { None } else { self.half.log.take() };
        self.mark_pages(outside)?;
        outside.closer.close(log);
        if !self.has(feature::PROTOCOL) {
            self.queues.iter_mut().for_each(|queue| queue.is_enabled = true);
        }
        Ok(())
    }

    /// Takes a log, in place of the one that there was. Nothing is written in that one behind the answer.
    fn set_log(
        &mut self,
        place: LogPlace,
        descriptor: Held,
        options: &VhostOptions,
        outside: &Outside<DeviceRing>,
    ) -> Result<(), &'static str> {
        let log = Arc::new(Log::map(place, descriptor, options.unsealed, options.most_bytes)?);
        let before = self.half.log.replace(log);
        let mut regions = self.regions.0.iter();
        let is_right = regions.try_for_each(|region| self.is_covered(&region.place));
        let is_right = is_right.and_then(|()| self.mark_pages(outside));
        let unused = if is_right.is_ok() { before } else { std::mem::replace(&mut self.half.log, before) };
        outside.closer.close(unused);
        is_right
    }

    /// That there is room in the log, if there is one, for all of a region.
    pub(super) fn is_covered(&self, place: &Place) -> Result<(), &'static str> {
        let is_covered = self.half.log.as_ref().is_none_or(|log| log.covers(place.guest, place.bytes));
        if is_covered { Ok(()) } else { Err("the log is too small for the memory") }
    }

    /// Where a ring's writes are marked; nowhere, where they are not logged or there is no log: a frontend that starts a machine anew while it
    /// migrates says that they are before it brings one.
    pub(super) fn pages(&self, number: usize) -> Result<Option<Pages>, &'static str> {
        let (queue, is_packed, is_of_packets) =
            (&self.queues[number], self.has(feature::PACKED), self.has(feature::LOG_ALL));
        let Some(log) = self.half.log.as_ref().filter(|_| is_of_packets || queue.log.is_some()) else {
            return Ok(None);
        };
        let bytes = if is_packed { WISH as u64 } else { used_bytes(queue.slots) };
        if queue.log.is_some_and(|used| !log.covers(used, bytes)) {
            return Err("the log is too small for a ring");
        }
        let descriptors = queue.parts.filter(|_| is_packed);
        let descriptors = descriptors.and_then(|parts| self.regions.guest_of_user(parts.descriptors));
        Ok(Some(Pages { log: Arc::clone(log), is_of_packets, used: queue.log, descriptors }))
    }

    /// Has each ring in use mark its writes, from now on, where they are to be marked.
    fn mark_pages(&self, outside: &Outside<DeviceRing>) -> Result<(), &'static str> {
        let used = (0..self.queues.len()).filter(|&number| self.queues[number].is_used);
        let pages = used.map(|number| Ok((number, self.pages(number)?))).collect::<Result<Vec<_>, _>>()?;
        for (number, pages) in pages {
            let mut entry = outside.rings.all().lock(number);
            if let Some(served) = entry.served.take() {
                entry.served = Some(Served { ring: served.ring.logged(pages), ..served });
            }
        }
        Ok(())
    }
}
