//! The backend, which is the device: what a frontend asks for, and what each message changes.
//!
//! It is driven by messages alone, and has no clock and no socket. What cannot be is refused with a reason.

use std::sync::Arc;

use conic_native::Held;

use super::channel::Channel;
use super::device_ring::DeviceRing;
use super::half::{Device, Half, Outside, Queue, Side, feature, protocol};
use super::log::Log;
use super::memory::Regions;
use super::message::{Answer, Bell, Header, MOST_REGIONS, Parts, Request, answer};
use super::packed::PackedRing;
use super::ring::{Agreed, MOST_SLOTS, Ring};
use super::{Card, Counts, VhostOptions};
use crate::Legacy;
use crate::peer::{ring_peer, take_interrupt};

/// The device's half: it is asked, and answers.
#[derive(Debug)]
pub struct Backend {
    pub(super) offered: u64,
    pub(super) protocol: u64,
    pub(super) status: u64,
    /// Where it is marked what is written in the memory, while the machine migrates.
    pub(super) log: Option<Arc<Log>>,
    pub(super) announced: Option<[u8; 6]>,
}

/// What a backend offers that a frontend does not ask another for: it is no machine.
const OF_MACHINES: u64 = feature::LOG_ALL | feature::GUEST_ANNOUNCE;

impl Half for Backend {
    type Ring = DeviceRing;
    const KIND: &'static str = "vhost-user";
    const OUT: usize = 0;
    const CHECKSUM: u64 = feature::GUEST_CHECKSUM;
    const TCP: [u64; 2] = feature::GUEST_TCP;
    const SAYS_VALID: bool = true;

    fn new(options: &VhostOptions) -> Backend {
        let offered = feature::offered(options) | OF_MACHINES;
        Backend { offered, protocol: 0, status: 0, log: None, announced: None }
    }

    fn bell(queue: &Queue) -> Option<&Arc<Held>> {
        queue.call.as_ref()
    }

    fn awaited(queue: &Queue) -> Option<&Arc<Held>> {
        queue.kick.as_ref()
    }

    /// Does what a message asks for, and answers.
    fn hear(
        device: &mut Device<Backend>,
        (header, body, descriptors): (Header, &[u8], Vec<Held>),
        channel: &Channel,
        options: &VhostOptions,
        outside: &Outside<DeviceRing>,
        counts: &mut Counts,
    ) -> Result<(), &'static str> {
        let heard =
            Request::read(header.request, body).and_then(|request| device.hear(request, descriptors, options, outside));
        let wants_reply = header.needs_reply && device.replies();
        let said = match heard {
            Ok(outcome) => outcome.or(wants_reply.then_some(Answer::Word(0))),
            // Who wants to hear it is told, and decides.
            Err(_) if wants_reply => {
                counts.failed += 1;
                Some(Answer::Word(1))
            }
            Err(why) => return Err(why),
        };
        match said {
            Some(said) => {
                let bytes = answer(header.request, said);
                channel.send(&bytes, None).map_err(|_| "an answer cannot be sent")
            }
            None => Ok(()),
        }
    }

    fn announced(device: &mut Device<Backend>) -> Option<[u8; 6]> {
        device.half.announced.take()
    }

    fn pass_on(card: &mut Card<Backend>) -> Option<Legacy> {
        let mut legacy = card.pass_on().ok()?;
        card.cutter.pass_on(&mut legacy.words);
        Some(legacy)
    }
}

impl Device<Backend> {
    /// Whether failures are to be answered instead of ending the session.
    pub(super) fn replies(&self) -> bool {
        self.half.protocol & protocol::REPLIES != 0
    }

    /// Takes a message with its descriptors; what is answered, where it has an answer of its own.
    pub(super) fn hear(
        &mut self,
        request: Request,
        descriptors: Vec<Held>,
        options: &VhostOptions,
        outside: &Outside<DeviceRing>,
    ) -> Result<Option<Answer>, &'static str> {
        // A frontend may say which region it takes away by its descriptor as well.
        if descriptors.len() != request.descriptors() && !matches!(request, Request::RemoveMemory(_)) {
            return Err("the descriptors do not belong to this message");
        }
        let answer = match &request {
            Request::GetFeatures => Some(self.half.offered),
            Request::GetProtocol => Some(protocol::ALL | if options.queues > 1 { protocol::SEVERAL_QUEUES } else { 0 }),
            Request::GetQueues => Some(options.queues as u64),
            Request::GetMostRegions => Some(MOST_REGIONS as u64),
            Request::GetStatus => Some(self.half.status),
            _ => None,
        };
        if let Some(word) = answer {
            return Ok(Some(Answer::Word(word)));
        }
        if let Request::GetBase { ring } = request {
            let number = self.number(ring)?;
            self.stop(number, outside);
            self.queues[number].is_started = false;
            let base = u32::from(self.queues[number].base);
            // Of a packed ring: where it takes and where it uses, which are the same.
            let base = if self.has(feature::PACKED) { base << 16 | base } else { base };
            return Ok(Some(Answer::Ring { ring: number as u8, base }));
        }
        // Whoever migrates waits for word that the log is this one, with the feature of replies or without.
        let is_log = matches!(request, Request::SetLog(_));
        self.change(request, descriptors, options, outside).map(|()| is_log.then_some(Answer::Word(0)))
    }

    /// Does what has no answer.
    fn change(
        &mut self,
        request: Request,
        mut descriptors: Vec<Held>,
        options: &VhostOptions,
        outside: &Outside<DeviceRing>,
    ) -> Result<(), &'static str> {
        match request {
            Request::SetFeatures(features) => self.set_features(features, outside)?,
            Request::SetProtocol(features) if features & !(protocol::ALL | protocol::SEVERAL_QUEUES) != 0 => {
                return Err("a feature of the protocol that was not offered");
            }
            Request::SetProtocol(features) => self.half.protocol = features,
            Request::SetStatus(status) => {
                self.half.status = status;
                // Zero is the driver's reset (VIRTIO 1.2, 2.1).
                if status == 0 {
                    self.reset(outside);
                }
            }
            Request::Reset => self.reset(outside),
            Request::SetMemory(places) => {
                places.iter().try_for_each(|place| self.is_covered(place))?;
                self.leave_memory(outside);
                for (place, memory) in places.into_iter().zip(descriptors) {
                    self.memory()?.add(place, memory, options.unsealed, options.most_bytes)?;
                }
                self.begin(outside);
            }
            Request::AddMemory(place) => {
                let memory = descriptors.pop().ok_or("a region of memory has no descriptor")?;
                if self.regions.0.len() == MOST_REGIONS {
                    return Err("there are too many regions of memory");
                }
                self.is_covered(&place)?;
                self.in_memory(outside, |regions| regions.add(place, memory, options.unsealed, options.most_bytes))?;
            }
            Request::RemoveMemory(place) => self.in_memory(outside, |regions| {
                if let Some(at) = regions.take_away(&place)? {
                    outside.closer.close(regions.0.remove(at));
                }
                Ok(())
            })?,
            Request::SetSlots { ring, slots } => {
                let number = self.stopped(ring, outside)?;
                if !slots.is_power_of_two() || !(2..=MOST_SLOTS).contains(&slots) {
                    return Err("a ring has 2 to 32,768 slots, a power of two");
                }
                self.queues[number].slots = slots;
            }
            Request::SetParts { ring, parts, log } => self.set_parts(ring, parts, log, outside)?,
            Request::SetBase { ring, base } => {
                let number = self.stopped(ring, outside)?;
                // A packed ring goes on where the last one took; DPDK does not say where it used. What is between was lost with it.
                let base = if self.has(feature::PACKED) { base & 0xffff } else { base };
                self.queues[number].base = base.try_into().map_err(|_| "a ring's index is too large")?;
            }
            Request::SetBell { ring, bell, .. } => return self.set_bell(ring, bell, descriptors.pop(), outside),
            Request::Enable { ring, is_on } => {
                let number = self.number(ring)?;
                self.enable(number, is_on, outside);
            }
            request => self.change_log(request, descriptors, options, outside)?,
        }
        Ok(())
    }

    fn set_bell(
        &mut self,
        ring: u32,
        bell: Bell,
        descriptor: Option<Held>,
        outside: &Outside<DeviceRing>,
    ) -> Result<(), &'static str> {
        let number = self.number(ring)?;
        if let (Some(descriptor), Bell::Kick | Bell::Call) = (&descriptor, bell) {
            take_interrupt(descriptor)?;
        }
        let descriptor = descriptor.map(Arc::new);
        match bell {
            Bell::Kick => {
                self.forget_awaited(number, outside);
                let queue = &mut self.queues[number];
                (queue.kick, queue.is_started) = (descriptor, true);
                self.await_word(number, outside).map_err(|_| "a ring's descriptor cannot be waited for")?;
                if self.queues[number].is_used {
                    let is_polled = number % 2 == 1 && self.queues[number].kick.is_none();
                    outside.rings.all().set_polled(number, is_polled);
                    outside.rings.all().wake(outside.rings.all().part_of(number));
                }
                self.begin(outside);
            }
            Bell::Call => {
                let mut entry = outside.rings.all().lock(number);
                if let Some(served) = &mut entry.served {
                    served.bell.clone_from(&descriptor);
                    // What was used before it came was told to nobody.
                    if let Some(call) = &descriptor {
                        ring_peer(outside.ringer.as_deref(), call);
                    }
                }
                drop(entry);
                self.queues[number].call = descriptor;
            }
            Bell::Error => {}
        }
        Ok(())
    }

    pub(super) fn number(&self, ring: u32) -> Result<usize, &'static str> {
        Some(ring as usize).filter(|&number| number < self.queues.len()).ok_or("there is no such ring")
    }

    /// A ring that is not in use. One that is only emptied makes way.
    pub(super) fn stopped(&mut self, ring: u32, outside: &Outside<DeviceRing>) -> Result<usize, &'static str> {
        let number = self.number(ring)?;
        if self.queues[number].discards {
            self.stop(number, outside);
        }
        if self.queues[number].is_used { Err("the ring is in use") } else { Ok(number) }
    }

    /// Switches a ring on or off. What lies in one from the driver that is off is used and thrown away (QEMU, docs/interop/vhost-user.rst,
    /// "Ring states").
    fn enable(&mut self, number: usize, is_on: bool, outside: &Outside<DeviceRing>) {
        let discards = !is_on && number % 2 != Backend::OUT;
        let queue = &mut self.queues[number];
        (queue.is_enabled, queue.discards) = (is_on, discards);
        if !is_on && !discards {
            return self.stop(number, outside);
        }
        // Under the lock: no packet comes out of it behind the answer.
        outside.rings.all().lock(number).served.iter_mut().for_each(|served| served.discards = discards);
        self.begin(outside);
    }

    /// Changes the memory, which no ring may lie in meanwhile.
    fn in_memory(
        &mut self,
        outside: &Outside<DeviceRing>,
        change: impl FnOnce(&mut Regions) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        self.stop_all(outside);
        let changed = self.memory().and_then(change);
        self.begin(outside);
        changed
    }

    /// Begins with every ring of which all is known. One that does not lie in the memory waits for other memory.
    pub(super) fn begin(&mut self, outside: &Outside<DeviceRing>) {
        let agreed = self.agreed();
        for number in 0..self.queues.len() {
            let queue = &self.queues[number];
            let is_wanted = queue.is_enabled || queue.discards;
            if let (true, true, false, Some(parts)) = (queue.is_started, is_wanted, queue.is_used, queue.parts)
                && queue.slots > 0
                && let Some(ring) = self.find(number, parts, agreed)
            {
                ring.interrupt(&self.regions, false);
                // Whoever served it before may have ended between showing what was used and saying so: one time too many does no harm.
                if let Some(call) = &queue.call {
                    ring_peer(outside.ringer.as_deref(), call);
                }
                self.serve(number, ring, outside);
            }
        }
    }

    /// A ring of whichever kind was agreed on, where it lies in the memory, and the log, if it is logged, has room for it.
    fn find(&self, number: usize, parts: Parts, agreed: Agreed) -> Option<DeviceRing> {
        let (regions, slots, base) = (&self.regions, self.queues[number].slots, self.queues[number].base);
        let ring = if self.has(feature::PACKED) {
            PackedRing::find(regions, slots, parts, agreed, base).map(DeviceRing::Packed)
        } else {
            Ring::find(regions, slots, parts, agreed).map(DeviceRing::Split)
        };
        Some(ring?.logged(self.pages(number).ok()?))
    }

    /// As the driver's reset leaves it: memory and features stay, and where each ring stood. QEMU 7.2 stops a machine pair by pair, resets the
    /// device with the first, and asks then where the rings of the others stand; it says where they begin before they are used again.
    fn reset(&mut self, outside: &Outside<DeviceRing>) {
        self.stop_all(outside);
        let enabled = !self.has(feature::PROTOCOL);
        for number in 0..self.queues.len() {
            self.forget_awaited(number, outside);
            let queue = &mut self.queues[number];
            let (call, base) = (queue.call.take(), queue.base);
            *queue = Queue { is_enabled: enabled, call, base, ..Queue::default() };
        }
    }
}
