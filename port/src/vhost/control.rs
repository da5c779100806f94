//! Who connects to a port, and what is said.

use std::os::fd::AsFd;

use conic_fabric::Time;
use conic_native::{Closer, Held};
use rustix::event::epoll;
use rustix::net::SocketType;

use super::channel::{Channel, Heard};
use super::half::{Device, Half, Outside, feature};
use super::{Counts, VhostOptions};
use crate::peer::socket::{Listener, connect};
use crate::peer::{Door, RETRY, watch};

/// How long who has connected may be silent before its first message, an answer may take, and the rest of a message.
const STEP: Time = Time::from_nanoseconds(2_000_000_000);
/// Messages of a frontend that are heard at once, at most, and how many more with each millisecond: one may map memory, some ten microseconds,
/// and who goes on and on is not to have this thread for itself. A frontend of one pair of rings says some forty to begin, one of sixteen 500.
const AT_ONCE: u64 = 256;
const EACH_MILLISECOND: u64 = 4;

/// The other half, connected.
#[derive(Debug)]
pub(super) struct Peer<H: Half> {
    pub(super) channel: Channel,
    pub(super) device: Device<H>,
    /// By then its next message, or the rest of one, must be there.
    deadline: Option<Time>,
    /// How many messages may be heard, as of then.
    budget: u64,
    counted: Time,
}

impl<H: Half> Peer<H> {
    /// One that another process has talked to.
    pub(super) fn resumed(channel: Channel, device: Device<H>) -> Peer<H> {
        Peer { channel, device, deadline: None, budget: AT_ONCE, counted: Time::ZERO }
    }

    /// Gives it what has come of messages that it may have heard.
    fn refill(&mut self, now: Time) {
        let passed = now.since(self.counted).nanoseconds() / 1_000_000;
        if passed > 0 {
            self.budget = (self.budget + EACH_MILLISECOND * passed).min(AT_ONCE);
            self.counted = now;
        }
    }
}

/// The control channel of a port.
#[derive(Debug)]
pub(super) struct Control<H: Half> {
    pub(super) door: Door,
    closer: Closer,
    pub(super) peer: Option<Peer<H>>,
    /// When a client tries again to connect.
    retry: Time,
    /// Why the last one went.
    last_end: Option<String>,
}

impl<H: Half> Control<H> {
    pub(super) fn new(listener: Option<Listener>, closer: Closer) -> Control<H> {
        let door = Door::new(listener, closer.clone());
        Control { door, closer, peer: None, retry: Time::ZERO, last_end: None }
    }

    pub(super) fn device(&self) -> Option<&Device<H>> {
        self.peer.as_ref().map(|peer| &peer.device)
    }

    pub(super) fn device_mut(&mut self) -> Option<&mut Device<H>> {
        self.peer.as_mut().map(|peer| &mut peer.device)
    }

    /// Ends the connection.
    pub(super) fn end(&mut self, now: Time, why: &str, outside: &Outside<H::Ring>, counts: &mut Counts) {
        let Some(Peer { channel, device, .. }) = self.peer.take() else { return };
        // It would leave the waiter by itself when it is closed, which may be much later.
        let _ = epoll::delete(outside.waiter(), &channel);
        device.end(outside);
        counts.ended += 1;
        self.last_end = Some(why.to_owned());
        self.retry = now + RETRY;
    }

    /// Looks for connections and messages, and does what they ask for.
    pub(super) fn attend(
        &mut self,
        now: Time,
        options: &VhostOptions,
        outside: &Outside<H::Ring>,
        counts: &mut Counts,
    ) {
        let is_open = self.door.is_open(now, outside.waiter());
        counts.shut = self.door.times_shut;
        if is_open {
            self.greet(now, options, outside, counts);
        }
        if let Some(why) = self.complaint(outside) {
            self.end(now, why, outside, counts);
        }
        self.peer.iter_mut().for_each(|peer| peer.refill(now));
        while let Some(peer) = self.peer.as_mut().filter(|peer| peer.budget > 0) {
            match peer.channel.hear() {
                Heard::Nothing => break,
                Heard::End => return self.end(now, "the other side is gone", outside, counts),
                Heard::Broken(why) => {
                    counts.refused += 1;
                    return self.end(now, why, outside, counts);
                }
                Heard::Message(header, body, descriptors) => {
                    peer.budget -= 1;
                    let Peer { channel, device, .. } = peer;
                    let message = (header, &body[..], descriptors);
                    let heard = H::hear(device, message, channel, options, outside, counts);
                    peer.deadline = H::is_expecting(&peer.device).then_some(now + STEP);
                    if let Err(why) = heard {
                        counts.refused += 1;
                        return self.end(now, why, outside, counts);
                    }
                }
            }
        }
        let Some(peer) = &mut self.peer else { return };
        if peer.channel.is_amid() && peer.deadline.is_none() {
            peer.deadline = Some(now + STEP);
        }
        if peer.deadline.is_some_and(|deadline| now >= deadline) {
            counts.timed_out += 1;
            self.end(now, "the other side takes too long to say something", outside, counts);
        }
    }

    /// What another part says of the session, if it is still this one.
    fn complaint(&self, outside: &Outside<H::Ring>) -> Option<&'static str> {
        outside.rings.all().complaint(self.device()?.session)
    }

    /// Accepts who waits, or connects.
    fn greet(&mut self, now: Time, options: &VhostOptions, outside: &Outside<H::Ring>, counts: &mut Counts) {
        if self.door.listener.is_some() {
            let Some((socket, allowed)) = self.door.accept(options.any_user) else { return };
            if allowed.is_err() || self.peer.is_some() {
                counts.refused += 1;
                // There is no message by which it could be told why: it is hung up on.
                drop(Channel::of(socket, &self.closer));
                return;
            }
            self.meet(now, socket, options, outside, counts);
        } else if self.peer.is_none() && now >= self.retry {
            match connect(&options.socket, SocketType::STREAM) {
                Ok(socket) => self.meet(now, Held::passed(socket, &self.closer), options, outside, counts),
                Err(error) => {
                    self.last_end = Some(error.to_string());
                    self.retry = now + RETRY;
                }
            }
        }
    }

    fn meet(
        &mut self,
        now: Time,
        socket: Held,
        options: &VhostOptions,
        outside: &Outside<H::Ring>,
        counts: &mut Counts,
    ) {
        let channel = Channel::of(socket, &self.closer);
        if watch(outside.waiter(), channel.as_fd(), epoll::EventFlags::IN).is_err() {
            return;
        }
        counts.sessions += 1;
        let mut device = Device::new(options, counts.sessions);
        let greeted = H::greet(&mut device, &channel);
        // A frontend that was connected to may take its time: it has asked for nothing.
        let is_expected = self.door.listener.is_some() || H::is_expecting(&device);
        let deadline = is_expected.then_some(now + STEP);
        self.peer = Some(Peer { deadline, counted: now, ..Peer::resumed(channel, device) });
        if let Err(why) = greeted {
            self.end(now, why, outside, counts);
        }
    }

    /// When something is to be done without anybody at the other end.
    pub(super) fn next_due(&self) -> Option<Time> {
        match &self.peer {
            Some(peer) => peer.deadline,
            None if self.door.listener.is_none() => {
                Some(self.door.shut().map_or(self.retry, |shut| shut.max(self.retry)))
            }
            None => self.door.shut(),
        }
    }

    /// Role and state, for people.
    pub(super) fn description(&self, options: &VhostOptions) -> String {
        let role = if self.door.listener.is_some() { "server" } else { "client" };
        let state = match (&self.peer, &self.last_end) {
            (Some(Peer { device, .. }), _) => {
                let (out, inward) = device.pairs();
                let memory: u64 = device.regions.0.iter().map(|region| region.place.bytes).sum();
                match (out, inward) {
                    (0, 0) => "connected, not yet in use".to_owned(),
                    _ => {
                        let kind = if device.has(feature::PACKED) { ", packed" } else { "" };
                        format!("connected, {inward} rings in and {out} out{kind}, {} MiB of memory", memory >> 20)
                    }
                }
            }
            _ if self.door.shut().is_some() => {
                format!("letting nobody in: {} things that others left are still being closed", self.door.unclosed())
            }
            (None, Some(why)) => format!("waiting; last: {why}"),
            (None, None) => "waiting".to_owned(),
        };
        let offload = if options.offload { ", with offloads" } else { "" };
        format!("{} {role} at {}{offload}, {state}", H::KIND, options.socket)
    }
}
