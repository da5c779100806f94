//! A port goes on in another process, with its frontend.
//!
//! | part of the legacy | where |
//! |---|---|
//! | words: whether it listens, whether there is a frontend | always |
//! | the listening socket; the connection | where there is one |
//! | words: features, the protocol's features, status, how many regions and rings | a frontend |
//! | of each region: its place in four words, how often it was brought, and its descriptor | a frontend |
//! | of each ring: slots, its parts in three words, where it stopped, what there is of it in bits; its descriptors | a frontend |
//!
//! The one that stops shows the driver what it has used, so that a ring's own index says where it stands. A frontend that is in the middle of
//! a message, or whose memory cannot be mapped again, has its connection closed, and comes again.

use std::io;

use conic_native::{Closer, Held};
use rustix::event::epoll;

use super::backend::Backend;
use super::channel::Channel;
use super::control::Peer;
use super::half::{Device, Half, Queue};
use super::message::{Bell, Parts, Place, Request};
use super::{VhostOptions, VhostUser};
use crate::legacy::{Heir, broken};
use crate::peer::socket::Listener;
use crate::peer::{Role, SocketError, watch};
use crate::{Legacy, PortError};
use std::os::fd::AsFd;

const STARTED: u64 = 1;
const ENABLED: u64 = 2;
const KICK: u64 = 4;
const CALL: u64 = 8;
const PARTS: u64 = 16;

impl VhostUser {
    /// Stops here.
    pub(super) fn pass_on(&mut self) -> io::Result<Legacy> {
        let mut legacy = Legacy::default();
        legacy.words.push(u64::from(self.control.door.listener.is_some()));
        legacy.descriptors.extend(self.control.door.listener.take().map(Listener::into_descriptor).transpose()?);
        let peer = self.control.peer.take();
        let Some(Peer { channel, device, .. }) = peer.filter(|peer| !peer.channel.is_amid()) else {
            legacy.words.push(0);
            return Ok(legacy);
        };
        let _ = epoll::delete(&self.outside.waiter, &channel);
        let Some(connection) = channel.into_descriptor()? else {
            legacy.words.push(0);
            return Ok(legacy);
        };
        legacy.descriptors.push(connection);
        legacy.words.extend([1, device.features, device.half.protocol, device.half.status]);
        legacy.words.extend([device.regions.0.len(), device.queues.len()].map(|count| count as u64));
        for region in &device.regions.0 {
            let Place { guest, bytes, user, offset } = region.place;
            legacy.words.extend([guest, bytes, user, offset, region.times.into()]);
            legacy.descriptors.push(region.descriptor.copy()?);
        }
        for queue in &device.queues {
            let Parts { descriptors, used, available } = queue.parts.unwrap_or_default();
            let bit = |bit, is_set| if is_set { bit } else { 0 };
            let bits = bit(STARTED, queue.is_started)
                | bit(ENABLED, queue.is_enabled)
                | bit(KICK, queue.kick.is_some())
                | bit(CALL, queue.call.is_some())
                | bit(PARTS, queue.parts.is_some());
            legacy.words.extend([queue.slots.into(), descriptors, used, available, queue.base.into(), bits]);
            for bell in [&queue.kick, &queue.call].into_iter().flatten() {
                legacy.descriptors.push(bell.copy()?);
            }
        }
        // The driver is shown what was used.
        device.end(&self.outside);
        Ok(legacy)
    }

    /// Goes on with the port of another process, which had the same options.
    ///
    /// # Errors
    /// What was given is not of such a port.
    pub fn inherit(options: &VhostOptions, legacies: Vec<Legacy>) -> Result<VhostUser, PortError> {
        let failed = |error| SocketError::of(Backend::KIND, &options.socket, error);
        let legacy = legacies.into_iter().next().ok_or_else(|| failed(broken()))?;
        Ok(VhostUser::of_heir(options, Heir::of(legacy)).map_err(failed)?)
    }

    fn of_heir(options: &VhostOptions, mut heir: Heir) -> io::Result<VhostUser> {
        let closer = Closer::start()?;
        let listens = heir.number::<u8>()? == 1;
        if listens != (options.role == Role::Server) {
            return Err(broken());
        }
        let listener =
            if listens { Some(Listener::inherit(heir.descriptor()?, &options.socket, &closer)) } else { None };
        let mut port = VhostUser::with_listener(options, listener, closer.clone())?;
        if heir.number::<u8>()? == 1 {
            let channel = Channel::of(Held::passed(heir.descriptor()?, &closer), &closer);
            let words = [heir.number()?, heir.number()?, heir.number()?];
            // What the frontend can bring about ends its connection and nothing else: the port is there for whoever comes next.
            if let Some(device) = port.device(&mut heir, words, &closer)? {
                watch(&port.outside.waiter, channel.as_fd(), epoll::EventFlags::IN)?;
                port.control.peer = Some(Peer::resumed(channel, device));
                port.counts.sessions = 1;
            }
        }
        Ok(port)
    }

    /// The device as the other process had it; none where its memory is not what it was.
    fn device(
        &self,
        heir: &mut Heir,
        [features, protocol, status]: [u64; 3],
        closer: &Closer,
    ) -> io::Result<Option<Device<Backend>>> {
        let mut device = Device::<Backend>::new(&self.options);
        device.features = features;
        (device.half.protocol, device.half.status) = (protocol, status);
        let (regions, queues) = (heir.number::<usize>()?, heir.number::<usize>()?);
        let mut is_sound = queues == device.queues.len();
        for _ in 0..regions {
            let [guest, bytes, user, offset] = [heir.number()?, heir.number()?, heir.number()?, heir.number()?];
            let place = Place { guest, bytes, user, offset };
            let times = heir.number()?;
            let memory = Held::passed(heir.descriptor()?, closer);
            is_sound &= place.is_sound()
                && device.regions.add(place, memory, self.options.unsealed, self.options.most_bytes).is_ok();
            device.regions.0.last_mut().into_iter().for_each(|region| region.times = times);
        }
        for number in 0..queues {
            let slots = heir.number::<u32>()?;
            let parts = Parts { descriptors: heir.number()?, used: heir.number()?, available: heir.number()? };
            let (base, bits) = (heir.number()?, heir.number::<u64>()?);
            let mut bell = |bit, bell, device: &mut Device<Backend>| -> io::Result<()> {
                if bits & bit != 0 {
                    let descriptor = Held::passed(heir.descriptor()?, closer);
                    let request = Request::SetBell { ring: number as u32, bell, is_none: false };
                    is_sound &= device.hear(request, vec![descriptor], &self.options, &self.outside).is_ok();
                }
                Ok(())
            };
            bell(KICK, Bell::Kick, &mut device)?;
            bell(CALL, Bell::Call, &mut device)?;
            let Some(queue) = device.queues.get_mut(number) else { continue };
            let (is_started, is_enabled) = (bits & STARTED != 0, bits & ENABLED != 0);
            let (kick, call) = (queue.kick.take(), queue.call.take());
            let parts = (bits & PARTS != 0).then_some(parts);
            *queue = Queue { slots, parts, kick, call, is_started, is_enabled, base, ring: None };
        }
        is_sound &= device.queues.iter().all(|queue| queue.slots == 0 || queue.slots.is_power_of_two());
        if !is_sound {
            device.end(&self.outside);
            return Ok(None);
        }
        device.begin(&self.outside);
        Ok(Some(device))
    }
}
