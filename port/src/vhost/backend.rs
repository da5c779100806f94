//! The backend, which is the device: what a frontend asks for, and what each message changes.
//!
//! It is driven by messages alone, and has no clock and no socket. What cannot be is refused with a reason.

use std::os::fd::AsFd;

use conic_native::Held;
use rustix::event::epoll;

use super::channel::Channel;
use super::half::{Device, Half, Outside, Queue, Side, feature, protocol};
use super::message::{Answer, Bell, Header, MOST_REGIONS, Request, answer};
use super::ring::{MOST_SLOTS, Ring};
use super::{Card, Counts, VhostOptions};
use crate::Legacy;
use crate::peer::{ring_peer, take_interrupt, watch};

/// The device's half: it is asked, and answers.
#[derive(Debug)]
pub struct Backend {
    offered: u64,
    pub(super) protocol: u64,
    pub(super) status: u64,
}

impl Half for Backend {
    type Ring = Ring;
    const KIND: &'static str = "vhost-user";
    const OUT: usize = 0;
    const CHECKSUM: u64 = feature::GUEST_CHECKSUM;
    const TCP: [u64; 2] = feature::GUEST_TCP;
    const SAYS_VALID: bool = true;

    fn new(options: &VhostOptions) -> Backend {
        Backend { offered: feature::offered(options), protocol: 0, status: 0 }
    }

    fn bell<R>(queue: &Queue<R>) -> Option<&Held> {
        queue.call.as_ref()
    }

    fn awaited<R>(queue: &Queue<R>) -> Option<&Held> {
        queue.kick.as_ref()
    }

    /// Does what a message asks for, and answers.
    fn hear(
        device: &mut Device<Backend>,
        (header, body, descriptors): (Header, &[u8], Vec<Held>),
        channel: &Channel,
        options: &VhostOptions,
        outside: &Outside,
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

    fn pass_on(card: &mut Card<Backend>) -> Option<Legacy> {
        card.pass_on().ok()
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
        outside: &Outside,
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
        if features & !self.half.offered != 0 {
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
                queue.forget_awaited::<Backend>(outside);
                queue.kick = None;
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

    /// As the driver's reset leaves it: memory and features stay.
    fn reset(&mut self, outside: &Outside) {
        self.stop_all(outside);
        let enabled = !self.has(feature::PROTOCOL);
        for queue in &mut self.queues {
            queue.forget_awaited::<Backend>(outside);
            let call = queue.call.take();
            *queue = Queue { is_enabled: enabled, call, ..Queue::new() };
        }
    }
}
