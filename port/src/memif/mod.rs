//! memif 2.0, as server and as client: packets to and from another process over shared memory, in a protocol that DPDK, VPP
//! and libmemif speak.
//!
//! | file | what is there |
//! |---|---|
//! | `message.rs` | the messages of the control channel, as bytes |
//! | `channel.rs` | the socket, with descriptors |
//! | `session.rs` | what both sides agree on, and what a server checks of it |
//! | `ring.rs` | rings, descriptors, and what is checked of them |
//! | `legacy.rs` | a port goes on in another process |
//!
//! The other side is not trusted: memory must be sealed against shrinking, indexes and descriptors are read once and checked,
//! and a side that goes on breaking the rules is disconnected. One that asks for interrupts can make a server wait at most for
//! an eventfd that it has made unwritable and blocking at that moment; sides that poll, as DPDK's does, never can.

mod channel;
mod error;
mod legacy;
mod message;
mod ring;
mod session;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use conic_fabric::Time;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};

pub use error::{MemifError, MemifProblem};

use crate::lookout::Lookout;
use crate::offload::rss::{Ports, Toeplitz};
use crate::{Counters, Legacy, MAX_FRAME, Port, PortError, Receive, Transmit};
use channel::{Channel, Heard, Listener};
use message::{MESSAGE, Message};
use ring::{Fault, Taken};
use session::{Acceptance, Offer, Reply, Session};

/// What this side calls itself.
const NAME: &str = "conic";
/// How long a step of the handshake may take.
const STEP: Time = Time::from_nanoseconds(2_000_000_000);
/// How long a client waits before it tries to connect again.
const RETRY: Time = Time::from_nanoseconds(100_000_000);
/// Milliseconds between two looks at the control channel of a session.
const LOOK: u64 = 1;
/// Slots that are read or filled before the other side is told.
const BATCH: u16 = 32;
/// Broken descriptors after which the other side is disconnected.
const PATIENCE: u64 = 64;

/// Which side a port is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemifRole {
    /// It listens, and uses the other side's memory.
    #[default]
    Server,
    /// It connects, and brings the memory.
    Client,
}

impl std::str::FromStr for MemifRole {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<MemifRole, &'static str> {
        match text {
            "server" => Ok(MemifRole::Server),
            "client" => Ok(MemifRole::Client),
            _ => Err("a role is server or client"),
        }
    }
}

/// How a memif port is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemifOptions {
    /// The socket's path; an abstract name where it begins with `@`.
    pub socket: String,
    /// Which side this is.
    pub role: MemifRole,
    /// The interface's number, which both sides must give.
    pub id: u32,
    /// A secret of up to 24 bytes, which both sides must give.
    pub secret: Option<String>,
    /// As client: rings in each direction.
    pub queues: usize,
    /// As client: slots of each ring, as a power of two, 1 to 14.
    pub log2_slots: u8,
    /// As client: bytes of each buffer. A longer packet takes several.
    pub buffer_bytes: u32,
    /// As server: bytes of memory that a client may bring.
    pub most_bytes: u64,
    /// As server: whether memory is taken that the client can cut, or on reserved huge pages that it can give back: either ends
    /// this process.
    pub unsealed: bool,
    /// As server: whether clients of other users are served.
    pub any_user: bool,
}

impl MemifOptions {
    /// A server with id 0 at this socket; as a client, one ring of 1024 slots of 2048 bytes in each direction.
    pub fn new(socket: &str) -> MemifOptions {
        MemifOptions {
            socket: socket.to_owned(),
            role: MemifRole::Server,
            id: 0,
            secret: None,
            queues: 1,
            log2_slots: 10,
            buffer_bytes: 2048,
            most_bytes: 1 << 30,
            unsealed: false,
            any_user: false,
        }
    }
}

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
        session: Session,
    },
}

/// What the other sides have done, since the port was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    sessions: u64,
    ended: u64,
    refused: u64,
    timed_out: u64,
    faults: [u64; 5],
    interrupts: u64,
}

/// A memif port, with all its rings: flows are spread over those that it transmits with.
#[derive(Debug)]
pub struct Memif {
    options: MemifOptions,
    waiter: OwnedFd,
    listener: Option<Listener>,
    state: State,
    hash: Toeplitz,
    /// The ring to receive from next.
    turn: usize,
    lookout: Lookout,
    /// The other side has been asked for interrupts.
    armed: bool,
    /// Broken descriptors of this session.
    strikes: u64,
    /// Why the last session or attempt ended.
    last_end: Option<String>,
    counts: Counts,
    counters: Counters,
}

impl Memif {
    /// Opens the port. A server listens from now on; a client connects when it is first used, and again whenever it has
    /// lost its server.
    ///
    /// # Errors
    /// The socket cannot be made, or another process listens there.
    pub fn open(options: &MemifOptions) -> Result<Memif, PortError> {
        let failed = |error| MemifError { socket: options.socket.clone(), problem: MemifProblem::of(error) };
        let listener = match options.role {
            MemifRole::Server => Some(Listener::open(&options.socket).map_err(failed)?),
            MemifRole::Client => None,
        };
        Ok(Memif::with_listener(options, listener).map_err(failed)?)
    }

    fn with_listener(options: &MemifOptions, listener: Option<Listener>) -> std::io::Result<Memif> {
        let waiter = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Some(listener) = &listener {
            watch(&waiter, listener.as_fd(), epoll::EventFlags::IN)?;
        }
        Ok(Memif {
            options: options.clone(),
            waiter,
            listener,
            state: State::Alone(Time::ZERO),
            hash: Toeplitz::default(),
            turn: 0,
            lookout: Lookout::every(LOOK),
            armed: false,
            strikes: 0,
            last_end: None,
            counts: Counts::default(),
            counters: Counters::default(),
        })
    }

    /// Whether a peer is connected.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Together { .. })
    }

    /// Ends the connection; the other side is told why, where it can be.
    fn end(&mut self, now: Time, why: &str, tell: bool) {
        if let State::Meeting { channel, .. } | State::Together { channel, .. } = &self.state
            && tell
        {
            // It may be gone; then it needs no reason.
            let _ = channel.send(&Message::disconnect(why).write(), None);
        }
        self.counts.ended += u64::from(self.is_connected());
        self.last_end = Some(why.to_owned());
        // Descriptors that are closed leave the waiter by themselves.
        self.state = State::Alone(now + RETRY);
        (self.armed, self.strikes) = (false, 0);
    }

    /// Looks for connections and messages, and answers them.
    fn attend(&mut self, now: Time) {
        self.greet(now);
        for _ in 0..2 * MESSAGE {
            let heard = match &self.state {
                State::Alone(_) => return,
                State::Meeting { channel, .. } | State::Together { channel, .. } => channel.hear(),
            };
            match heard {
                Heard::Nothing => break,
                Heard::End => return self.end(now, "the other side is gone", false),
                Heard::Packet(bytes, descriptors) => {
                    if let Err(why) = self.answer(now, &bytes, descriptors) {
                        self.counts.refused += 1;
                        return self.end(now, why, true);
                    }
                }
            }
        }
        if let State::Meeting { deadline, .. } = self.state
            && now >= deadline
        {
            self.counts.timed_out += 1;
            self.end(now, "the handshake takes too long", true);
        }
    }

    /// Accepts who waits, or connects.
    fn greet(&mut self, now: Time) {
        let alone = matches!(self.state, State::Alone(_));
        if let Some(listener) = &self.listener {
            let Ok(Some((channel, user))) = listener.accept() else { return };
            let own = rustix::process::geteuid().as_raw();
            let refusal = if !alone {
                Some("already connected")
            } else if user != own && user != 0 && !self.options.any_user {
                Some("this user may not connect")
            } else {
                None
            };
            if let Some(why) = refusal {
                self.counts.refused += 1;
                // It may be gone; then it needs no reason.
                let _ = channel.send(&Message::disconnect(why).write(), None);
            } else if channel.send(&session::hello().write(), None).is_ok() {
                self.meet(now, channel, Handshake::Accepting(Acceptance::default()));
            }
        } else if let State::Alone(at) = self.state
            && now >= at
        {
            match Channel::connect(&self.options.socket) {
                Ok(channel) => self.meet(now, channel, Handshake::Offering(Offer::default())),
                Err(error) => {
                    self.last_end = Some(error.to_string());
                    self.state = State::Alone(now + RETRY);
                }
            }
        }
    }

    fn meet(&mut self, now: Time, channel: Channel, handshake: Handshake) {
        if watch(&self.waiter, channel.as_fd(), epoll::EventFlags::IN).is_ok() {
            self.state = State::Meeting { channel, handshake, deadline: now + STEP };
        }
    }

    /// Does what a message asks for.
    fn answer(&mut self, now: Time, bytes: &[u8], descriptors: Vec<OwnedFd>) -> Result<(), &'static str> {
        let message = Message::read(bytes)?;
        if let Message::Disconnect { reason, .. } = message {
            self.end(now, &format!("the other side says: {reason}"), false);
            return Ok(());
        }
        let State::Meeting { channel, handshake, deadline } = &mut self.state else {
            return Err("unexpected message");
        };
        *deadline = now + STEP;
        let reply = match handshake {
            Handshake::Accepting(acceptance) => acceptance.hear(message, descriptors, &self.options)?,
            Handshake::Offering(offer) => offer.hear(message, &descriptors, &self.options)?,
        };
        let said = |result: std::io::Result<()>| result.map_err(|_| "a message cannot be sent");
        match reply {
            Reply::Wait => Ok(()),
            Reply::Send(message) => said(channel.send(&message.write(), None)),
            Reply::Pass(message, descriptor) => said(channel.send(&message.write(), Some(descriptor.as_fd()))),
            Reply::Ready(session, message) => {
                begin(&self.waiter, &session).map_err(|_| "the interrupt descriptor cannot be used")?;
                if let Some(message) = message {
                    said(channel.send(&message.write(), None))?;
                }
                let State::Meeting { channel, .. } = std::mem::replace(&mut self.state, State::Alone(now)) else {
                    return Err("unexpected message");
                };
                self.counts.sessions += 1;
                (self.armed, self.strikes, self.turn) = (false, 0, 0);
                self.state = State::Together { channel, session };
                Ok(())
            }
        }
    }

    /// Counts what the other side did wrong, and ends the session when it is enough.
    fn fault(&mut self, now: Time, fault: Fault) {
        self.counts.faults[fault as usize] += 1;
        self.strikes += 1;
        if fault == Fault::Index {
            self.end(now, "an index of a ring cannot be", true);
        } else if self.strikes >= PATIENCE {
            self.end(now, "too many broken descriptors", true);
        }
    }

    /// Nothing was there in any ring: they have been given back by the look.
    fn idle(&mut self, now: Time) {
        // Whoever is about to sleep looks once.
        if self.armed {
            self.attend(now);
        }
    }

    /// Something was there again.
    fn active(&mut self) {
        if self.armed
            && let State::Together { session, .. } = &self.state
        {
            session.receive.iter().for_each(|link| link.ring.interrupt(&session.regions, false));
            self.armed = false;
            forget(&self.waiter);
        }
    }

    /// Takes the next packet of any ring.
    fn take(&mut self, frame: &mut [u8]) -> Taken {
        let State::Together { session, .. } = &mut self.state else { return Taken::None };
        let rings = session.receive.len();
        for _ in 0..rings {
            let link = &mut session.receive[self.turn];
            let taken = link.ring.take(&session.regions, frame);
            if taken != Taken::None {
                if link.ring.unreleased() >= BATCH {
                    link.ring.release(&session.regions);
                    self.turn = (self.turn + 1) % rings;
                }
                return taken;
            }
            link.ring.release(&session.regions);
            self.turn = (self.turn + 1) % rings;
        }
        Taken::None
    }
}

/// Readies the rings that are received from.
fn begin(waiter: &OwnedFd, session: &Session) -> std::io::Result<()> {
    for link in &session.receive {
        link.ring.post(&session.regions);
        link.ring.interrupt(&session.regions, false);
        // Told once for each time that it is written: it is never read, which could be made to wait.
        watch(waiter, link.interrupt.as_fd(), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    }
    Ok(())
}

/// Adds a descriptor to those that are waited for.
fn watch(waiter: &OwnedFd, descriptor: BorrowedFd<'_>, flags: epoll::EventFlags) -> std::io::Result<()> {
    Ok(epoll::add(waiter, descriptor, epoll::EventData::new_u64(0), flags)?)
}

/// Forgets interrupts that have come.
fn forget(waiter: &OwnedFd) {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 8];
    // What is not forgotten wakes once more.
    let _ = epoll::wait(waiter, &mut events[..], Some(&NOW));
}

/// Tells the other side that there is something, where that can be done without waiting.
fn ring_bell(descriptor: &OwnedFd) {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut poll = [PollFd::new(descriptor, PollFlags::OUT)];
    if rustix::event::poll(&mut poll, Some(&NOW)).is_ok_and(|ready| ready > 0) {
        // A bell that has rung too often to count is as good as one that rings.
        let _ = rustix::io::write(descriptor, &1u64.to_ne_bytes());
    }
}

impl AsFd for Memif {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}

impl Port for Memif {
    fn receive(&mut self, now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        if !self.is_connected() || self.lookout.is_due(now) {
            self.attend(now);
            if !self.is_connected() {
                return Ok(Receive::None);
            }
        }
        let limit = frame.len().min(MAX_FRAME);
        let frame = &mut frame[..limit];
        let mut taken = self.take(frame);
        if taken == Taken::None && self.armed {
            // An interrupt that comes behind this wakes the sleep; what it spoke of before is found now.
            forget(&self.waiter);
            taken = self.take(frame);
        }
        match taken {
            Taken::None => {
                self.idle(now);
                Ok(Receive::None)
            }
            Taken::Packet(length) => {
                self.active();
                Ok(self.counters.receive_frame(frame, length))
            }
            Taken::TooLong => {
                self.active();
                self.counters.skipped_oversized += 1;
                Ok(Receive::Skipped)
            }
            Taken::Refused(fault) => {
                self.counters.skipped_malformed += 1;
                self.fault(now, fault);
                Ok(Receive::Skipped)
            }
        }
    }

    fn transmit(&mut self, now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        if self.counters.refuse_length(frame) {
            return Ok(Transmit::Refused);
        }
        let State::Together { session, .. } = &mut self.state else {
            self.counters.refused_link_down += 1;
            return Ok(Transmit::Refused);
        };
        let number = match session.transmit.len() {
            0 => {
                self.counters.refused_link_down += 1;
                return Ok(Transmit::Refused);
            }
            1 => 0,
            rings => self.hash.hash_frame(frame, Ports::default()).unwrap_or(0) as usize % rings,
        };
        let link = &mut session.transmit[number];
        match link.ring.put(&session.regions, frame) {
            Ok(true) => {
                if link.ring.unshown() >= BATCH && link.ring.show(&session.regions) {
                    self.counts.interrupts += 1;
                    ring_bell(&link.interrupt);
                }
                self.counters.count_transmitted(frame.len());
                Ok(Transmit::Accepted)
            }
            Ok(false) => {
                self.counters.transmit_full += 1;
                self.flush(now)?;
                Ok(Transmit::Full)
            }
            Err(fault) => {
                self.counters.refused_link_down += 1;
                self.fault(now, fault);
                Ok(Transmit::Refused)
            }
        }
    }

    fn flush(&mut self, _now: Time) -> Result<(), PortError> {
        if let State::Together { session, .. } = &mut self.state {
            for link in &mut session.transmit {
                if link.ring.show(&session.regions) {
                    self.counts.interrupts += 1;
                    ring_bell(&link.interrupt);
                }
            }
        }
        Ok(())
    }

    fn next_due(&self) -> Option<Time> {
        match &self.state {
            State::Alone(at) => self.listener.is_none().then_some(*at),
            State::Meeting { deadline, .. } => Some(*deadline),
            // Until the other side has been asked for interrupts, nobody would be woken.
            State::Together { session, .. } => {
                let unshown = session.transmit.iter().any(|link| link.ring.unshown() > 0);
                (unshown || !self.armed).then_some(Time::ZERO)
            }
        }
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        let [index, flags, region, bounds, chain] = self.counts.faults;
        vec![
            ("sessions", self.counts.sessions),
            ("sessions_ended", self.counts.ended),
            ("peers_refused", self.counts.refused),
            ("handshakes_timed_out", self.counts.timed_out),
            ("fault_index", index),
            ("fault_flags", flags),
            ("fault_region", region),
            ("fault_bounds", bounds),
            ("fault_chain", chain),
            ("interrupts_sent", self.counts.interrupts),
        ]
    }

    fn is_up(&self) -> bool {
        self.is_connected()
    }

    fn description(&self) -> String {
        let role = if self.listener.is_some() { "server" } else { "client" };
        let state = match (&self.state, &self.last_end) {
            (State::Together { session, .. }, _) => format!(
                "connected to {}, {} rings in and {} out",
                session.peer,
                session.receive.len(),
                session.transmit.len()
            ),
            (_, Some(why)) => format!("waiting; last: {why}"),
            (_, None) => "waiting".to_owned(),
        };
        format!("memif {role} at {} id {}, {state}", self.options.socket, self.options.id)
    }

    fn arm(&mut self) {
        if let State::Together { session, .. } = &self.state
            && !self.armed
        {
            session.receive.iter().for_each(|link| link.ring.interrupt(&session.regions, true));
            self.armed = true;
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.waiter.as_fd())
    }

    fn can_bequeath(&self) -> bool {
        true
    }

    fn bequeath(&mut self) -> Option<Legacy> {
        self.pass_on().ok()
    }

    fn finish(&mut self) -> Result<(), PortError> {
        self.flush(Time::ZERO)
    }
}

impl Drop for Memif {
    fn drop(&mut self) {
        self.end(Time::ZERO, "the port is closed", true);
    }
}

#[cfg(test)]
mod tests;
