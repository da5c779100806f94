//! The device that a frontend sees: what was agreed, its memory, its rings.
//!
//! It is driven by messages alone, and has no clock and no socket. What cannot be is refused with a reason.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use conic_native::{Closer, Held, Ringer};
use rustix::event::epoll;

use super::VhostOptions;
use super::memory::Regions;
use super::message::{Answer, Bell, MOST_REGIONS, Parts, Request};
use super::ring::{Agreed, MOST_SLOTS, Ring};
use crate::peer::{ring_peer, take_interrupt, watch};

/// Bits of the device's features (VIRTIO 1.2, 5.1.3 and 6).
pub(super) mod feature {
    /// Packets may come whose checksum is begun.
    pub(crate) const CHECKSUM: u64 = 1 << 0;
    /// The driver takes packets whose checksum is begun.
    pub(crate) const GUEST_CHECKSUM: u64 = 1 << 1;
    /// The driver takes TCP packets over IPv4, and over IPv6, that stand for several.
    pub(crate) const GUEST_TCP: [u64; 2] = [1 << 7, 1 << 8];
    /// Such may come.
    pub(crate) const HOST_TCP: [u64; 2] = [1 << 11, 1 << 12];
    pub(crate) const MERGED_BUFFERS: u64 = 1 << 15;
    pub(crate) const SEVERAL_QUEUES: u64 = 1 << 22;
    pub(crate) const ANY_LAYOUT: u64 = 1 << 27;
    pub(crate) const INDIRECT: u64 = 1 << 28;
    pub(crate) const EVENT_INDEX: u64 = 1 << 29;
    /// vhost-user's own: there are further features, of the protocol, and rings begin switched off.
    pub(crate) const PROTOCOL: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
}

/// Bits of the protocol's features.
mod protocol {
    pub(crate) const SEVERAL_QUEUES: u64 = 1 << 0;
    pub(crate) const REPLIES: u64 = 1 << 3;
    pub(crate) const MTU: u64 = 1 << 4;
    pub(crate) const MEMORY_SLOTS: u64 = 1 << 15;
    pub(crate) const STATUS: u64 = 1 << 16;
    pub(crate) const ALL: u64 = REPLIES | MTU | MEMORY_SLOTS | STATUS;
}

/// What a device needs of this process.
#[derive(Debug)]
pub(super) struct Outside {
    /// What is slept on.
    pub(super) waiter: OwnedFd,
    /// Closes what the frontend has passed.
    pub(super) closer: Closer,
    /// Rings the frontend's interrupts; none where the system has nothing that does so without waiting.
    pub(super) ringer: Option<Arc<Ringer>>,
}

/// One ring, as far as the frontend has said what it is.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) slots: u32,
    pub(super) parts: Option<Parts>,
    pub(super) kick: Option<Held>,
    pub(super) call: Option<Held>,
    /// Kicked, or said to be polled, since it was stopped.
    pub(super) is_started: bool,
    pub(super) is_enabled: bool,
    /// Where it stopped, or is to begin.
    pub(super) base: u16,
    /// While it is started and enabled, and all of it lies in the memory.
    pub(super) ring: Option<Ring>,
}

impl Queue {
    /// Waits for its kicks no longer. The frontend has the same descriptor: closing this one alone would leave it in the waiter.
    fn forget_kick(&mut self, outside: &Outside) {
        if let Some(kick) = self.kick.take() {
            // One that was never added needs not be removed.
            let _ = epoll::delete(&outside.waiter, &kick);
        }
    }
}

/// The device.
#[derive(Debug)]
pub(super) struct Device {
    offered: u64,
    pub(super) features: u64,
    pub(super) protocol: u64,
    pub(super) status: u64,
    pub(super) regions: Regions,
    /// Two for each pair: to the driver, from the driver.
    pub(super) queues: Vec<Queue>,
}

impl Device {
    /// A device to which nobody has said anything.
    pub(super) fn new(options: &VhostOptions) -> Device {
        use feature::*;
        let mut offered = MERGED_BUFFERS | ANY_LAYOUT | INDIRECT | EVENT_INDEX | PROTOCOL | VERSION_1;
        if options.queues > 1 {
            offered |= SEVERAL_QUEUES;
        }
        if options.offload {
            offered |= CHECKSUM | GUEST_CHECKSUM;
            GUEST_TCP.iter().chain(&HOST_TCP).for_each(|bit| offered |= bit);
        }
        let queues = (0..2 * options.queues).map(|_| Queue::default()).collect();
        Device { offered, features: 0, protocol: 0, status: 0, regions: Regions::default(), queues }
    }

    /// Whether both sides agreed on a feature.
    pub(super) fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Whether failures are to be answered instead of ending the session.
    pub(super) fn replies(&self) -> bool {
        self.protocol & protocol::REPLIES != 0
    }

    pub(super) fn agreed(&self) -> Agreed {
        let merges = self.has(feature::MERGED_BUFFERS);
        Agreed {
            event_index: self.has(feature::EVENT_INDEX),
            merges,
            long_header: merges || self.has(feature::VERSION_1),
        }
    }

    /// Takes a message with its descriptors; what is answered, where it has an answer of its own.
    pub(super) fn hear(
        &mut self,
        request: Request,
        descriptors: Vec<Held>,
        options: &VhostOptions,
        outside: &Outside,
    ) -> Result<Option<Answer>, &'static str> {
        // A frontend may say which region it takes away by its descriptor as well.
        if descriptors.len() != request.descriptors() && !matches!(request, Request::RemoveMemory(_)) {
            return Err("the descriptors do not belong to this message");
        }
        let answer = match &request {
            Request::GetFeatures => Some(self.offered),
            Request::GetProtocol => Some(protocol::ALL | if options.queues > 1 { protocol::SEVERAL_QUEUES } else { 0 }),
            Request::GetQueues => Some(options.queues as u64),
            Request::GetMostRegions => Some(MOST_REGIONS as u64),
            Request::GetStatus => Some(self.status),
            _ => None,
        };
        if let Some(word) = answer {
            return Ok(Some(Answer::Word(word)));
        }
        if let Request::GetBase { ring } = request {
            let number = self.number(ring)?;
            self.stop(number, outside);
            self.queues[number].is_started = false;
            let base = self.queues[number].base;
            return Ok(Some(Answer::Ring { ring: number as u8, base }));
        }
        self.change(request, descriptors, options, outside).map(|()| None)
    }

    /// Does what has no answer.
    fn change(
        &mut self,
        request: Request,
        mut descriptors: Vec<Held>,
        options: &VhostOptions,
        outside: &Outside,
    ) -> Result<(), &'static str> {
        match request {
            Request::SetFeatures(features) => self.set_features(features)?,
            Request::SetProtocol(features) if features & !(protocol::ALL | protocol::SEVERAL_QUEUES) != 0 => {
                return Err("a feature of the protocol that was not offered");
            }
            Request::SetProtocol(features) => self.protocol = features,
            Request::SetStatus(status) => {
                self.status = status;
                // Zero is the driver's reset (VIRTIO 1.2, 2.1).
                if status == 0 {
                    self.reset(outside);
                }
            }
            Request::Reset => self.reset(outside),
            Request::SetMemory(places) => {
                self.leave_memory(outside);
                for (place, memory) in places.into_iter().zip(descriptors) {
                    self.regions.add(place, memory, options.unsealed, options.most_bytes)?;
                }
                self.begin(outside);
            }
            Request::AddMemory(place) => {
                let memory = descriptors.pop().ok_or("a region of memory has no descriptor")?;
                if self.regions.0.len() == MOST_REGIONS {
                    return Err("there are too many regions of memory");
                }
                self.regions.add(place, memory, options.unsealed, options.most_bytes)?;
                self.begin(outside);
            }
            Request::RemoveMemory(place) => {
                if let Some(at) = self.regions.take_away(&place)? {
                    self.stop_all(outside);
                    outside.closer.close(self.regions.0.remove(at));
                    self.begin(outside);
                }
            }
            Request::SetSlots { ring, slots } => {
                let number = self.stopped(ring)?;
                if !slots.is_power_of_two() || !(2..=MOST_SLOTS).contains(&slots) {
                    return Err("a ring has 2 to 32,768 slots, a power of two");
                }
                self.queues[number].slots = slots;
            }
            Request::SetParts { ring, parts } => {
                let number = self.stopped(ring)?;
                self.queues[number].parts = Some(parts);
            }
            Request::SetBase { ring, base } => {
                let number = self.stopped(ring)?;
                self.queues[number].base = base.try_into().map_err(|_| "a ring's index is too large")?;
            }
            Request::SetBell { ring, bell, .. } => return self.set_bell(ring, bell, descriptors.pop(), outside),
            Request::Enable { ring, is_on } => {
                let number = self.number(ring)?;
                self.queues[number].is_enabled = is_on;
                if is_on { self.begin(outside) } else { self.stop(number, outside) }
            }
            _ => {}
        }
        Ok(())
    }

    fn set_features(&mut self, features: u64) -> Result<(), &'static str> {
        if features & !self.offered != 0 {
            return Err("a feature that was not offered");
        }
        // A frontend may say them again while rings go; how these are read does not change under them.
        if self.queues.iter().any(|queue| queue.ring.is_some()) && features != self.features {
            return Err("features cannot change while a ring is in use");
        }
        self.features = features;
        if !self.has(feature::PROTOCOL) {
            self.queues.iter_mut().for_each(|queue| queue.is_enabled = true);
        }
        Ok(())
    }

    fn set_bell(
        &mut self,
        ring: u32,
        bell: Bell,
        descriptor: Option<Held>,
        outside: &Outside,
    ) -> Result<(), &'static str> {
        let number = self.number(ring)?;
        if let (Some(descriptor), Bell::Kick | Bell::Call) = (&descriptor, bell) {
            take_interrupt(descriptor)?;
        }
        let queue = &mut self.queues[number];
        match bell {
            Bell::Kick => {
                queue.forget_kick(outside);
                // A driver's kick that says that there are buffers is never waited for.
                if let (Some(kick), 1) = (&descriptor, number % 2) {
                    // Told once for each time that it is written: it is never read, which could be made to wait.
                    watch(&outside.waiter, kick.as_fd(), epoll::EventFlags::IN | epoll::EventFlags::ET)
                        .map_err(|_| "a ring's descriptor cannot be waited for")?;
                }
                (queue.kick, queue.is_started) = (descriptor, true);
                self.begin(outside);
            }
            Bell::Call => {
                queue.call = descriptor;
                // What was used before it came was told to nobody.
                if let (Some(call), true) = (&queue.call, queue.ring.is_some()) {
                    ring_peer(outside.ringer.as_deref(), call);
                }
            }
            Bell::Error => {}
        }
        Ok(())
    }

    fn number(&self, ring: u32) -> Result<usize, &'static str> {
        Some(ring as usize).filter(|&number| number < self.queues.len()).ok_or("there is no such ring")
    }

    /// A ring that is not in use.
    fn stopped(&self, ring: u32) -> Result<usize, &'static str> {
        let number = self.number(ring)?;
        if self.queues[number].ring.is_some() { Err("the ring is in use") } else { Ok(number) }
    }

    /// Begins with every ring of which all is known. One that does not lie in the memory waits for other memory.
    pub(super) fn begin(&mut self, outside: &Outside) {
        let agreed = self.agreed();
        for queue in &mut self.queues {
            if let (true, true, None, Some(parts)) = (queue.is_started, queue.is_enabled, &queue.ring, queue.parts)
                && queue.slots > 0
            {
                queue.ring = Ring::find(&self.regions, queue.slots, parts, agreed);
                if let Some(ring) = &queue.ring {
                    ring.interrupt(&self.regions, false);
                    // Whoever served it before may have ended between showing what was used and saying so: one time too many does no harm.
                    if let Some(call) = &queue.call {
                        ring_peer(outside.ringer.as_deref(), call);
                    }
                }
            }
        }
    }

    /// Stops a ring, and shows the driver what was used.
    fn stop(&mut self, number: usize, outside: &Outside) {
        let queue = &mut self.queues[number];
        if let Some(mut ring) = queue.ring.take() {
            if ring.show(&self.regions)
                && let Some(call) = &queue.call
            {
                ring_peer(outside.ringer.as_deref(), call);
            }
            queue.base = ring.next();
        }
    }

    fn stop_all(&mut self, outside: &Outside) {
        (0..self.queues.len()).for_each(|number| self.stop(number, outside));
    }

    /// Leaves all rings and the memory that they lie in.
    fn leave_memory(&mut self, outside: &Outside) {
        self.stop_all(outside);
        // Whoever unmaps the last of memory gives all its pages back, and others wait for this thread.
        outside.closer.close(std::mem::take(&mut self.regions));
    }

    /// The frontend is gone.
    pub(super) fn end(mut self, outside: &Outside) {
        self.leave_memory(outside);
        self.queues.iter_mut().for_each(|queue| queue.forget_kick(outside));
    }

    /// As the driver's reset leaves it: memory and features stay.
    fn reset(&mut self, outside: &Outside) {
        self.stop_all(outside);
        let enabled = !self.has(feature::PROTOCOL);
        for queue in &mut self.queues {
            queue.forget_kick(outside);
            let call = queue.call.take();
            *queue = Queue { is_enabled: enabled, call, ..Queue::default() };
        }
    }

    /// Whether a driver says of a ring from it that it will not kick.
    pub(super) fn is_polled(&self) -> bool {
        self.queues.iter().skip(1).step_by(2).any(|queue| queue.ring.is_some() && queue.kick.is_none())
    }

    /// How many pairs can be sent to, and received from.
    pub(super) fn pairs(&self) -> (usize, usize) {
        let used = |from: usize| self.queues.iter().skip(from).step_by(2).filter(|queue| queue.ring.is_some()).count();
        (used(0), used(1))
    }
}
