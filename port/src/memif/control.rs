//! The control channel of a port: who connects, what is said, and the session that comes of it.

use std::os::fd::{AsFd, OwnedFd};

use conic_fabric::Time;
use conic_native::{Closer, Held};
use rustix::event::epoll;

use super::channel::{Channel, Heard};
use super::message::{MESSAGE, Message};
use super::session::{self, Acceptance, Offer, Reply, Session};
use super::{Counts, MemifOptions};
use crate::peer::socket::Listener;
use crate::peer::{Door, RETRY, watch};

/// How long a step of the handshake may take.
const STEP: Time = Time::from_nanoseconds(2_000_000_000);

#[derive(Debug)]
enum Handshake {
    Accepting(Acceptance),
    Offering(Offer),
}

#[derive(Debug)]
enum State {
    /// Nobody is there; a client tries again at this time.
    Alone(Time),
    /// By this time the next message must be there.
    Meeting {
        channel: Channel,
        handshake: Handshake,
        deadline: Time,
    },
    Together {
        channel: Channel,
        peer: Peer,
    },
}

/// Who is at the other end of a session.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// What it calls itself.
    pub(super) name: String,
    /// How many rings there are to receive and to transmit with.
    pub(super) rings: (usize, usize),
    /// The regions' descriptors, for a process that goes on with the session.
    pub(super) memory: Vec<Held>,
}

/// What a look at the control channel came to.
#[derive(Debug)]
pub(super) enum Change {
    None,
    /// A session stands: its memory and rings, whose other descriptors are kept here.
    Began(Session),
    /// The session has ended.
    Ended,
}

/// The control channel.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) door: Door,
    /// How many parts the port has: each needs a ring to transmit with.
    parts: usize,
    closer: Closer,
    state: State,
    /// Why the last session or attempt ended.
    last_end: Option<String>,
}

impl Control {
    pub(super) fn new(listener: Option<Listener>, parts: usize, closer: Closer) -> Control {
        let door = Door::new(listener, closer.clone());
        Control { door, parts, closer, state: State::Alone(Time::ZERO), last_end: None }
    }

    /// Goes on with a session of another process.
    pub(super) fn resume(&mut self, channel: Channel, peer: Peer) {
        self.state = State::Together { channel, peer };
    }

    /// Ends the connection; the other side is told why, where it can be. Whether there was a session.
    pub(super) fn end(&mut self, now: Time, why: &str, tell: bool, waiter: &OwnedFd) -> bool {
        if let State::Meeting { channel, .. } | State::Together { channel, .. } = &self.state {
            if tell {
                // It may be gone; then it needs no reason.
                let _ = channel.send(&Message::disconnect(why).write(), None);
            }
            // It would leave the waiter by itself when it is closed, which may be much later. One that was never added needs not be removed.
            let _ = epoll::delete(waiter, channel);
        }
        let together = matches!(self.state, State::Together { .. });
        self.last_end = Some(why.to_owned());
        self.state = State::Alone(now + RETRY);
        together
    }

    /// Stops here; another process has the session, which is given, or begins anew.
    pub(super) fn stop(&mut self, waiter: &OwnedFd) -> Option<(Channel, Peer)> {
        if let State::Meeting { .. } = self.state {
            self.end(Time::ZERO, "another process takes over", true, waiter);
        }
        match std::mem::replace(&mut self.state, State::Alone(Time::NEVER)) {
            State::Together { channel, peer } => Some((channel, peer)),
            _ => None,
        }
    }

    fn ended(&mut self, now: Time, why: &str, tell: bool, waiter: &OwnedFd) -> Change {
        if self.end(now, why, tell, waiter) { Change::Ended } else { Change::None }
    }

    /// Looks for connections and messages, and answers them, until something changes.
    pub(super) fn attend(
        &mut self,
        now: Time,
        options: &MemifOptions,
        waiter: &OwnedFd,
        counts: &mut Counts,
    ) -> Change {
        let is_open = self.door.is_open(now, waiter);
        counts.shut = self.door.times_shut;
        if is_open {
            self.greet(now, options, waiter, counts);
        }
        for _ in 0..2 * MESSAGE {
            let heard = match &self.state {
                State::Alone(_) => return Change::None,
                State::Meeting { channel, .. } | State::Together { channel, .. } => channel.hear(),
            };
            match heard {
                Heard::Nothing => break,
                Heard::End => {
                    let why = self.parting();
                    return self.ended(now, &why, false, waiter);
                }
                Heard::Packet(bytes, descriptors) => match self.answer(now, options, waiter, &bytes, descriptors) {
                    Ok(Change::None) => {}
                    Ok(change) => return change,
                    Err(why) => {
                        counts.refused += 1;
                        return self.ended(now, why, true, waiter);
                    }
                },
            }
        }
        if let State::Meeting { deadline, .. } = self.state
            && now >= deadline
        {
            counts.timed_out += 1;
            return self.ended(now, "the handshake takes too long", true, waiter);
        }
        Change::None
    }

    /// Accepts who waits, or connects.
    fn greet(&mut self, now: Time, options: &MemifOptions, waiter: &OwnedFd, counts: &mut Counts) {
        let alone = matches!(self.state, State::Alone(_));
        if self.door.listener.is_some() {
            let Some((socket, allowed)) = self.door.accept(options.any_user) else { return };
            let channel = Channel::of(socket, &self.closer);
            let refusal = if alone { allowed.err() } else { Some("already connected") };
            if let Some(why) = refusal {
                counts.refused += 1;
                // It may be gone; then it needs no reason.
                let _ = channel.send(&Message::disconnect(why).write(), None);
            } else if channel.send(&session::hello().write(), None).is_ok() {
                self.meet(now, waiter, channel, Handshake::Accepting(Acceptance::for_parts(self.parts)));
            }
        } else if let State::Alone(at) = self.state
            && now >= at
        {
            match Channel::connect(&options.socket, &self.closer) {
                Ok(channel) => self.meet(now, waiter, channel, Handshake::Offering(Offer::for_parts(self.parts))),
                Err(error) => {
                    self.last_end = Some(error.to_string());
                    self.state = State::Alone(now + RETRY);
                }
            }
        }
    }

    fn meet(&mut self, now: Time, waiter: &OwnedFd, channel: Channel, handshake: Handshake) {
        if watch(waiter, channel.as_fd(), epoll::EventFlags::IN).is_ok() {
            self.state = State::Meeting { channel, handshake, deadline: now + STEP };
        }
    }

    /// Does what a message asks for.
    fn answer(
        &mut self,
        now: Time,
        options: &MemifOptions,
        waiter: &OwnedFd,
        bytes: &[u8],
        descriptors: Vec<Held>,
    ) -> Result<Change, &'static str> {
        let message = Message::read(bytes)?;
        if let Message::Disconnect { reason, .. } = message {
            return Ok(self.ended(now, &format!("the other side says: {reason}"), false, waiter));
        }
        let State::Meeting { channel, handshake, deadline } = &mut self.state else {
            return Err("unexpected message");
        };
        *deadline = now + STEP;
        let reply = match handshake {
            Handshake::Accepting(acceptance) => acceptance.hear(message, descriptors, options)?,
            Handshake::Offering(offer) => offer.hear(message, &descriptors, options)?,
        };
        let said = match reply {
            Reply::Wait => Ok(()),
            Reply::Send(message) => channel.send(&message.write(), None),
            Reply::Pass(message, descriptor) => channel.send(&message.write(), Some(descriptor.as_fd())),
            Reply::Ready(session, message) => {
                match message.map_or(Ok(()), |message| channel.send(&message.write(), None)) {
                    Ok(()) => return self.begin(now, session),
                    Err(error) => Err(error),
                }
            }
        };
        if said.is_ok() {
            return Ok(Change::None);
        }
        let why = self.parting();
        Ok(self.ended(now, &why, false, waiter))
    }

    /// What is to be said of another side that has gone.
    fn parting(&self) -> String {
        match &self.state {
            State::Meeting { handshake: Handshake::Offering(offer), .. } => offer.parting(),
            _ => "the other side is gone".to_owned(),
        }
    }

    /// The handshake is over.
    fn begin(&mut self, now: Time, mut session: Session) -> Result<Change, &'static str> {
        let State::Meeting { channel, .. } = std::mem::replace(&mut self.state, State::Alone(now)) else {
            return Err("unexpected message");
        };
        let peer = Peer {
            name: std::mem::take(&mut session.peer),
            rings: (session.receive.len(), session.transmit.len()),
            memory: std::mem::take(&mut session.memory),
        };
        self.state = State::Together { channel, peer };
        Ok(Change::Began(session))
    }

    /// When something is to be done without anybody at the other end; none while a session stands.
    pub(super) fn next_due(&self) -> Option<Time> {
        match &self.state {
            State::Alone(at) if self.door.listener.is_none() => {
                Some(self.door.shut().map_or(*at, |shut| shut.max(*at)))
            }
            State::Alone(_) => self.door.shut(),
            State::Meeting { deadline, .. } => Some(*deadline),
            State::Together { .. } => None,
        }
    }

    /// Role, peer and state, for people.
    pub(super) fn description(&self, options: &MemifOptions) -> String {
        let role = if self.door.listener.is_some() { "server" } else { "client" };
        let state = match (&self.state, &self.last_end) {
            (State::Together { peer, .. }, _) => {
                format!("connected to {}, {} rings in and {} out", peer.name, peer.rings.0, peer.rings.1)
            }
            _ if self.door.shut().is_some() => {
                format!("letting nobody in: {} things that others left are still being closed", self.door.unclosed())
            }
            (_, Some(why)) => format!("waiting; last: {why}"),
            (_, None) => "waiting".to_owned(),
        };
        format!("memif {role} at {} id {}, {state}", options.socket, options.id)
    }
}
