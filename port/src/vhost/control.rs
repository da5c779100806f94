//! Who connects to a port, and what is said.

use std::os::fd::AsFd;

use conic_fabric::Time;
use conic_native::{Closer, Held};
use rustix::event::epoll;
use rustix::net::SocketType;

use super::channel::{Channel, Heard};
use super::device::{Device, Outside};
use super::message::{Answer, Header, Request, answer};
use super::{Counts, VhostOptions};
use crate::peer::socket::{Listener, connect};
use crate::peer::{Door, RETRY, watch};

/// How long a frontend that has connected may be silent before its first message, and a message may take to come.
const STEP: Time = Time::from_nanoseconds(2_000_000_000);
/// Messages of a frontend that are heard at once, at most, and how many more with each millisecond: one may map memory, some ten microseconds,
/// and who goes on and on is not to have this thread for itself. A frontend of one pair of rings says some forty to begin, one of sixteen 500.
const AT_ONCE: u64 = 256;
const EACH_MILLISECOND: u64 = 4;

/// A frontend that is connected.
#[derive(Debug)]
pub(super) struct Frontend {
    pub(super) channel: Channel,
    pub(super) device: Device,
    /// By then its first message, or the rest of one, must be there.
    deadline: Option<Time>,
    /// How many messages may be heard, as of then.
    budget: u64,
    counted: Time,
}

impl Frontend {
    /// One that another process has talked to.
    pub(super) fn resumed(channel: Channel, device: Device) -> Frontend {
        Frontend { channel, device, deadline: None, budget: AT_ONCE, counted: Time::ZERO }
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
pub(super) struct Control {
    pub(super) door: Door,
    closer: Closer,
    pub(super) frontend: Option<Frontend>,
    /// When a client tries again to connect.
    retry: Time,
    /// Why the last frontend went.
    last_end: Option<String>,
}

impl Control {
    pub(super) fn new(listener: Option<Listener>, closer: Closer) -> Control {
        let door = Door::new(listener, closer.clone());
        Control { door, closer, frontend: None, retry: Time::ZERO, last_end: None }
    }

    pub(super) fn device(&self) -> Option<&Device> {
        self.frontend.as_ref().map(|frontend| &frontend.device)
    }

    pub(super) fn device_mut(&mut self) -> Option<&mut Device> {
        self.frontend.as_mut().map(|frontend| &mut frontend.device)
    }

    /// Ends the connection.
    pub(super) fn end(&mut self, now: Time, why: &str, outside: &Outside, counts: &mut Counts) {
        let Some(Frontend { channel, device, .. }) = self.frontend.take() else { return };
        // It would leave the waiter by itself when it is closed, which may be much later.
        let _ = epoll::delete(&outside.waiter, &channel);
        device.end(outside);
        counts.ended += 1;
        self.last_end = Some(why.to_owned());
        self.retry = now + RETRY;
    }

    /// Looks for connections and messages, and does what they ask for.
    pub(super) fn attend(&mut self, now: Time, options: &VhostOptions, outside: &Outside, counts: &mut Counts) {
        let is_open = self.door.is_open(now, &outside.waiter);
        counts.shut = self.door.times_shut;
        if is_open {
            self.greet(now, options, outside, counts);
        }
        self.frontend.iter_mut().for_each(|frontend| frontend.refill(now));
        while let Some(frontend) = self.frontend.as_mut().filter(|frontend| frontend.budget > 0) {
            match frontend.channel.hear() {
                Heard::Nothing => break,
                Heard::End => return self.end(now, "the frontend is gone", outside, counts),
                Heard::Broken(why) => {
                    counts.refused += 1;
                    return self.end(now, why, outside, counts);
                }
                Heard::Message(header, body, descriptors) => {
                    frontend.deadline = None;
                    frontend.budget -= 1;
                    if let Err(why) = frontend.answer(header, &body, descriptors, options, outside, counts) {
                        counts.refused += 1;
                        return self.end(now, why, outside, counts);
                    }
                }
            }
        }
        let Some(frontend) = &mut self.frontend else { return };
        if frontend.channel.is_amid() && frontend.deadline.is_none() {
            frontend.deadline = Some(now + STEP);
        }
        if frontend.deadline.is_some_and(|deadline| now >= deadline) {
            counts.timed_out += 1;
            self.end(now, "the frontend takes too long to say something", outside, counts);
        }
    }

    /// Accepts who waits, or connects.
    fn greet(&mut self, now: Time, options: &VhostOptions, outside: &Outside, counts: &mut Counts) {
        if self.door.listener.is_some() {
            let Some((socket, allowed)) = self.door.accept(options.any_user) else { return };
            if allowed.is_err() || self.frontend.is_some() {
                counts.refused += 1;
                // There is no message by which it could be told why: it is hung up on.
                drop(Channel::of(socket, &self.closer));
                return;
            }
            self.meet(now, socket, options, outside, counts);
        } else if self.frontend.is_none() && now >= self.retry {
            match connect(&options.socket, SocketType::STREAM) {
                Ok(socket) => self.meet(now, Held::passed(socket, &self.closer), options, outside, counts),
                Err(error) => {
                    self.last_end = Some(error.to_string());
                    self.retry = now + RETRY;
                }
            }
        }
    }

    fn meet(&mut self, now: Time, socket: Held, options: &VhostOptions, outside: &Outside, counts: &mut Counts) {
        let channel = Channel::of(socket, &self.closer);
        if watch(&outside.waiter, channel.as_fd(), epoll::EventFlags::IN).is_ok() {
            counts.sessions += 1;
            // Who was connected to may take its time: it has asked for nothing.
            let deadline = self.door.listener.is_some().then_some(now + STEP);
            let frontend = Frontend::resumed(channel, Device::new(options));
            self.frontend = Some(Frontend { deadline, counted: now, ..frontend });
        }
    }

    /// When something is to be done without anybody at the other end.
    pub(super) fn next_due(&self) -> Option<Time> {
        match &self.frontend {
            Some(frontend) => frontend.deadline,
            None if self.door.listener.is_none() => {
                Some(self.door.shut().map_or(self.retry, |shut| shut.max(self.retry)))
            }
            None => self.door.shut(),
        }
    }

    /// Role and state, for people.
    pub(super) fn description(&self, options: &VhostOptions) -> String {
        let role = if self.door.listener.is_some() { "server" } else { "client" };
        let state = match (&self.frontend, &self.last_end) {
            (Some(Frontend { device, .. }), _) => {
                let (out, inward) = device.pairs();
                let memory: u64 = device.regions.0.iter().map(|region| region.place.bytes).sum();
                match (out, inward) {
                    (0, 0) => "connected, no driver yet".to_owned(),
                    _ => format!("connected, {inward} rings in and {out} out, {} MiB of memory", memory >> 20),
                }
            }
            _ if self.door.shut().is_some() => {
                format!("letting nobody in: {} things that others left are still being closed", self.door.unclosed())
            }
            (None, Some(why)) => format!("waiting; last: {why}"),
            (None, None) => "waiting".to_owned(),
        };
        let offload = if options.offload { ", with offloads" } else { "" };
        format!("vhost-user {role} at {}{offload}, {state}", options.socket)
    }
}

impl Frontend {
    /// Does what a message asks for, and answers.
    fn answer(
        &mut self,
        header: Header,
        body: &[u8],
        descriptors: Vec<Held>,
        options: &VhostOptions,
        outside: &Outside,
        counts: &mut Counts,
    ) -> Result<(), &'static str> {
        let heard = Request::read(header.request, body)
            .and_then(|request| self.device.hear(request, descriptors, options, outside));
        let wants_reply = header.needs_reply && self.device.replies();
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
                self.channel.send(&bytes).map_err(|_| "an answer cannot be sent")
            }
            None => Ok(()),
        }
    }
}
