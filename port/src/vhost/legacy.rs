//! A port goes on in another process, with its frontend.
//!
//! | part of the legacy | where |
//! |---|---|
//! | words: whether it listens, whether there is a frontend | always |
//! | the listening socket; the connection | where there is one |
//! | words: features, the protocol's features, status, how many regions and rings | a frontend |
//! | words: bytes and offset of the log, if there is one (0: none); its descriptor | a frontend |
//! | of each region: its place in four words, how often it was brought, and its descriptor | a frontend |
//! | of each ring: slots, its parts in three words, by which address it is logged, where it stopped, what there is of it in bits; its descriptors | a frontend |
//! | which session it is | the first of several parts |
//! | words: which session (0: none), how many rings it had in use; of each its number and where it stopped | any other part |
//! | words: the rest of a packet that is being cut (`crate::vnet`) | last of each part, where there is one |
//!
//! The one that stops shows the driver what it has used, so that a split ring's own index says where it stands. Parts stop one after the other,
//! each its own rings: those of a part that goes on for a while are marked, and where they stopped is in what that part gives. A
//! frontend whose rings are not all accounted for has its connection closed, and comes again; so has one that is in the middle of a message, or
//! whose memory cannot be mapped again.

use std::io;

use conic_native::{Closer, Held};
use rustix::event::epoll;

use super::backend::Backend;
use super::channel::Channel;
use super::control::Peer;
use super::half::{Device, Half, Queue, Side};
use super::log::Log;
use super::memory::Regions;
use super::message::{Bell, LogPlace, Parts, Place, Request};
use super::rings::bits;
use super::{VhostOptions, VhostUser};
use crate::legacy::{Heir, broken};
use crate::peer::socket::Listener;
use crate::peer::{Role, SocketError, watch};
use crate::{Legacy, PortError};
use std::os::fd::AsFd;
use std::sync::Arc;

const STARTED: u64 = 1;
const ENABLED: u64 = 2;
const KICK: u64 = 4;
const CALL: u64 = 8;
const PARTS: u64 = 16;
/// Where it stopped is said by the part that it belongs to.
const ELSEWHERE: u64 = 32;
const LOGGED: u64 = 64;
const DISCARDS: u64 = 128;
/// The number of a session that another process had.
const FIRST_SESSION: u64 = 1;

impl VhostUser {
    /// Stops here, as this part.
    pub(super) fn pass_on(&mut self) -> io::Result<Legacy> {
        let mut legacy = Legacy::default();
        let Some(control) = &mut self.control else {
            legacy.words = self.leave_rings();
            return Ok(legacy);
        };
        legacy.words.push(u64::from(control.door.listener.is_some()));
        legacy.descriptors.extend(control.door.listener.take().map(Listener::into_descriptor).transpose()?);
        let Some(Peer { channel, device, .. }) = control.peer.take() else {
            legacy.words.push(0);
            return Ok(legacy);
        };
        let _ = epoll::delete(self.outside.waiter(), &channel);
        let Some(connection) = channel.into_descriptor()? else {
            device.end(&self.outside);
            legacy.words.push(0);
            return Ok(legacy);
        };
        legacy.descriptors.push(connection);
        legacy.words.extend([1, device.features, device.half.protocol, device.half.status]);
        let log = device.half.log.as_deref();
        let LogPlace { bytes, offset } = log.map(|log| log.place).unwrap_or_default();
        legacy.words.extend([bytes, offset]);
        legacy.descriptors.extend(log.map(|log| log.descriptor.copy()).transpose()?);
        legacy.words.extend([device.regions.0.len(), device.queues.len()].map(|count| count as u64));
        for region in &device.regions.0 {
            let Place { guest, bytes, user, offset } = region.place;
            legacy.words.extend([guest, bytes, user, offset, region.times.into()]);
            legacy.descriptors.push(region.descriptor.copy()?);
        }
        let session = device.session;
        self.pass_rings_on(device, &mut legacy)?;
        legacy.words.extend((self.outside.rings.all().parts() > 1).then_some(session));
        Ok(legacy)
    }

    /// Says of each ring what there is of it, and stops those that are not for another part to stop.
    fn pass_rings_on(&self, mut device: Device<Backend>, legacy: &mut Legacy) -> io::Result<()> {
        let rings = self.outside.rings.all();
        for number in 0..device.queues.len() {
            let is_elsewhere = rings.part_of(number) != 0 && !rings.lock(number).is_left;
            let is_elsewhere = is_elsewhere && device.queues[number].is_used;
            if !is_elsewhere {
                device.stop(number, &self.outside);
                device.forget_awaited(number, &self.outside);
            }
            let queue = &device.queues[number];
            let Parts { descriptors, used, available } = queue.parts.unwrap_or_default();
            let bit = |bit, is_set| if is_set { bit } else { 0 };
            let bits = bit(STARTED, queue.is_started)
                | bit(ENABLED, queue.is_enabled)
                | bit(KICK, queue.kick.is_some())
                | bit(CALL, queue.call.is_some())
                | bit(PARTS, queue.parts.is_some())
                | bit(ELSEWHERE, is_elsewhere)
                | bit(LOGGED, queue.log.is_some())
                | bit(DISCARDS, queue.discards);
            let (slots, log, base) = (queue.slots.into(), queue.log.unwrap_or(0), queue.base.into());
            legacy.words.extend([slots, descriptors, used, available, log, base, bits]);
            for bell in [&queue.kick, &queue.call].into_iter().flatten() {
                legacy.descriptors.push(bell.copy()?);
            }
        }
        // Whoever unmaps the last of memory gives all its pages back, and others wait for this thread.
        self.outside.closer.close((device.regions, device.half.log));
        Ok(())
    }

    /// Stops this part's rings; what it says of them.
    fn leave_rings(&self) -> Vec<u64> {
        let (rings, mut session, mut stood) = (self.outside.rings.all(), 0, Vec::new());
        for number in bits(self.own[0] | self.own[1]) {
            let mut entry = rings.lock(number);
            entry.is_left = true;
            if let Some(mut served) = entry.served.take() {
                served.show(self.outside.ringer.as_deref());
                let position = served.ring.position();
                (session, entry.stood) = (served.session, Some(position));
                stood.extend([number as u64, position.into()]);
                self.outside.closer.close(served);
            }
        }
        [&[session, stood.len() as u64 / 2], &stood[..]].concat()
    }

    /// Goes on with the parts of the port of another process, which had the same options.
    ///
    /// # Errors
    /// What was given is not of such a port.
    pub fn inherit(options: &VhostOptions, legacies: Vec<Legacy>) -> Result<Vec<VhostUser>, PortError> {
        let failed = |error| SocketError::of(Backend::KIND, &options.socket, error);
        Ok(VhostUser::of_heirs(options, legacies.into_iter().map(Heir::of).collect()).map_err(failed)?)
    }

    fn of_heirs(options: &VhostOptions, mut heirs: Vec<Heir>) -> io::Result<Vec<VhostUser>> {
        let count = heirs.len();
        let (first, others) = heirs.split_first_mut().ok_or_else(broken)?;
        let others: Vec<Stood> = others.iter_mut().map(Stood::read).collect::<Result<_, _>>()?;
        let closer = Closer::start()?;
        let listens = first.number::<u8>()? == 1;
        if listens != (options.role == Role::Server) {
            return Err(broken());
        }
        let listener =
            if listens { Some(Listener::inherit(first.descriptor()?, &options.socket, &closer)) } else { None };
        let mut ports = VhostUser::with_listener(options, count, listener, &closer)?;
        if first.number::<u8>()? == 1 {
            let channel = Channel::of(Held::passed(first.descriptor()?, &closer), &closer);
            let words = [first.number()?, first.number()?, first.number()?];
            // What the frontend can bring about ends its connection and nothing else: the port is there for whoever comes next.
            let port = &mut ports[0];
            if let Some(device) = port.device(first, words, &others, &closer)?
                && let Some(control) = &mut port.control
            {
                watch(port.outside.waiter(), channel.as_fd(), epoll::EventFlags::IN)?;
                control.peer = Some(Peer::resumed(channel, device));
                port.counts.sessions = FIRST_SESSION;
            }
        }
        for (port, heir) in ports.iter_mut().zip(&mut heirs) {
            port.cutter.go_on(heir)?;
        }
        Ok(ports)
    }

    /// The device as the other process had it; none where its memory is not what it was.
    fn device(
        &self,
        heir: &mut Heir,
        [features, protocol, status]: [u64; 3],
        others: &[Stood],
        closer: &Closer,
    ) -> io::Result<Option<Device<Backend>>> {
        let mut device = Device::<Backend>::new(&self.options, FIRST_SESSION);
        device.features = features;
        (device.half.protocol, device.half.status) = (protocol, status);
        let log = self.log(heir, closer)?;
        let (regions, queues) = (heir.number::<usize>()?, heir.number::<usize>()?);
        let mut is_sound = queues == device.queues.len() && log.is_ok();
        device.half.log = log.ok().flatten();
        for _ in 0..regions {
            let [guest, bytes, user, offset] = [heir.number()?, heir.number()?, heir.number()?, heir.number()?];
            let place = Place { guest, bytes, user, offset };
            let times = heir.number()?;
            let memory = Held::passed(heir.descriptor()?, closer);
            let add = |all: &mut Regions| {
                all.add(place, memory, self.options.unsealed, self.options.most_bytes)?;
                all.0.last_mut().into_iter().for_each(|region| region.times = times);
                Ok(())
            };
            is_sound &= place.is_sound() && device.memory().and_then(add).is_ok();
        }
        let mut elsewhere = Vec::new();
        for number in 0..queues {
            let (queue, is_elsewhere, is_right) = self.queue(heir, number, &mut device, closer)?;
            is_sound &= is_right;
            elsewhere.extend(is_elsewhere.then_some(number));
            if let Some(place) = device.queues.get_mut(number) {
                *place = queue;
            }
        }
        let session = if others.is_empty() { FIRST_SESSION } else { heir.number()? };
        for number in elsewhere {
            match others.iter().filter(|other| other.session == session).find_map(|other| other.of(number)) {
                Some(position) if is_sound => device.queues[number].base = position,
                // It ended, or began, while the parts stopped one after the other.
                _ => is_sound = false,
            }
        }
        is_sound &= device.queues.iter().all(|queue| queue.slots == 0 || queue.slots.is_power_of_two());
        if !is_sound {
            device.end(&self.outside);
            return Ok(None);
        }
        device.begin(&self.outside);
        Ok(Some(device))
    }

    /// The log of the other process, if it had one, or why it cannot be mapped again.
    fn log(&self, heir: &mut Heir, closer: &Closer) -> io::Result<Result<Option<Arc<Log>>, &'static str>> {
        let place = LogPlace { bytes: heir.number()?, offset: heir.number()? };
        if place.bytes == 0 {
            return Ok(Ok(None));
        }
        let descriptor = Held::passed(heir.descriptor()?, closer);
        let log = Log::map(place, descriptor, self.options.unsealed, self.options.most_bytes);
        Ok(log.map(|log| Some(Arc::new(log))))
    }

    /// A ring of the other process, whether it was for another part to say where it stopped, and whether what was passed for it can be used.
    fn queue(
        &self,
        heir: &mut Heir,
        number: usize,
        device: &mut Device<Backend>,
        closer: &Closer,
    ) -> io::Result<(Queue, bool, bool)> {
        let slots = heir.number::<u32>()?;
        let parts = Parts { descriptors: heir.number()?, used: heir.number()?, available: heir.number()? };
        let (log, base, bits, mut is_right) = (heir.number()?, heir.number()?, heir.number::<u64>()?, true);
        for (bit, bell) in [(KICK, Bell::Kick), (CALL, Bell::Call)] {
            if bits & bit != 0 {
                let descriptor = Held::passed(heir.descriptor()?, closer);
                let request = Request::SetBell { ring: number as u32, bell, is_none: false };
                is_right &= device.hear(request, vec![descriptor], &self.options, &self.outside).is_ok();
            }
        }
        let Some(queue) = device.queues.get_mut(number) else { return Ok((Queue::default(), false, false)) };
        let (is_started, is_enabled, discards) = (bits & STARTED != 0, bits & ENABLED != 0, bits & DISCARDS != 0);
        let (kick, call) = (queue.kick.take(), queue.call.take());
        let parts = (bits & PARTS != 0).then_some(parts);
        let log = (bits & LOGGED != 0).then_some(log);
        let queue = Queue { slots, parts, log, kick, call, is_started, is_enabled, discards, base, is_used: false };
        Ok((queue, bits & ELSEWHERE != 0, is_right))
    }
}

/// Where a part's rings stopped, and in which session.
struct Stood {
    session: u64,
    rings: Vec<(usize, u16)>,
}

impl Stood {
    fn read(heir: &mut Heir) -> io::Result<Stood> {
        let (session, count) = (heir.number()?, heir.number::<usize>()?);
        let rings = (0..count).map(|_| Ok((heir.number()?, heir.number()?)));
        Ok(Stood { session, rings: rings.collect::<io::Result<_>>()? })
    }

    fn of(&self, number: usize) -> Option<u16> {
        self.rings.iter().find(|(ring, _)| *ring == number).map(|(_, position)| *position)
    }
}
