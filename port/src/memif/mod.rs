//! memif 2.0, as server and as client: packets to and from another process over shared memory, in a protocol that DPDK, VPP
//! and libmemif speak.
//!
//! | file | what is there |
//! |---|---|
//! | `message.rs` | the messages of the control channel, as bytes |
//! | `channel.rs` | the socket, with descriptors |
//! | `control.rs` | who connects, what is said, and the session that comes of it |
//! | `session.rs` | what both sides agree on, and what a server checks of it |
//! | `parts.rs` | a session's rings, dealt to threads |
//! | `ring.rs` | rings, descriptors, and what is checked of them |
//! | `legacy.rs` | a port goes on in another process |
//!
//! The other side is not trusted: memory must be sealed against shrinking, indexes and descriptors are read once and checked,
//! and a side that goes on breaking the rules is disconnected. No call waits for it: what it passes is looked at only in ways that the kernel
//! answers by itself, and closed by a thread that each port has for that ([`conic_native::Closer`]), because to close may take as long as the
//! other side likes. While that thread has too much to do, nobody new is let in. Its interrupts are rung by the kernel, which does not
//! wait where a write would ([`conic_native::Ringer`]). What is left: a process that has no descriptor left for what is passed to it waits while
//! the kernel closes that; and where the system has no asynchronous I/O, which `interrupts_may_wait` among a port's details says, one that asks
//! for interrupts can make this side wait for an eventfd that it has filled and made blocking between a look at it and the write.

mod channel;
mod control;
mod legacy;
mod message;
mod parts;
mod ring;
mod session;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use conic_fabric::Time;
use conic_native::{Closer, Ringer};
use rustix::event::epoll;
use rustix::net::SocketType;

use crate::lookout::Lookout;
use crate::offload::rss::{Ports, Toeplitz};
use crate::peer::socket::Listener;
use crate::peer::{Role, SocketError, forget, ring_peer, watch};
use crate::{Counters, Legacy, MAX_FRAME, Port, PortError, Receive, Transmit};
use control::{Change, Control};
use parts::{Complaint, First, Others, Rings};
use ring::{Fault, Put, Taken};

/// What this side calls itself.
const NAME: &str = "conic";
/// Milliseconds between two looks at the control channel of a session.
const LOOK: u64 = 1;
/// Slots that are read or filled before the other side is told.
const BATCH: u16 = 32;
/// Broken descriptors after which the other side is disconnected.
const PATIENCE: u64 = 64;

/// How a memif port is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemifOptions {
    /// The socket's path; an abstract name where it begins with `@`.
    pub socket: String,
    /// Which side this is: a server uses the memory that a client brings.
    pub role: Role,
    /// The interface's number, which both sides must give.
    pub id: u32,
    /// A secret of up to 23 bytes, which both sides must give.
    pub secret: Option<String>,
    /// As client: rings in each direction. Of [`Memif::open_queues`]: the parts.
    pub queues: usize,
    /// As client: slots of each ring, as a power of two, 1 to 14.
    pub log2_slots: u8,
    /// As client: bytes of each buffer, 64 at least. A longer packet takes several.
    pub buffer_bytes: u32,
    /// As server: bytes of memory that a client may bring.
    pub most_bytes: u64,
    /// As server: whether memory is taken that the client can cut, or on reserved huge pages that it can give back: either ends
    /// this process. It must be a file of tmpfs or of reserved huge pages all the same: of another one each look and each access could
    /// make this process wait for as long as whoever serves that file likes.
    pub unsealed: bool,
    /// As server: whether clients of other users are served. They may then connect to the socket's file too.
    pub any_user: bool,
}

impl MemifOptions {
    /// A server with id 0 at this socket; as a client, one ring of 1024 slots of 2048 bytes in each direction.
    pub fn new(socket: &str) -> MemifOptions {
        MemifOptions {
            socket: socket.to_owned(),
            role: Role::Server,
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

/// What the other sides have done, since the port was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    sessions: u64,
    ended: u64,
    refused: u64,
    timed_out: u64,
    /// How often nobody more was let in, because too much was left to close.
    shut: u64,
    faults: [u64; 6],
    interrupts: u64,
}

/// Which part of its port one is.
#[derive(Debug)]
enum Place {
    /// The first has the control channel.
    First {
        control: Box<Control>,
        others: Others,
    },
    Other(First),
}

/// A memif port, or a part of one that a thread of its own may serve: flows are spread over the rings that it transmits with.
#[derive(Debug)]
pub struct Memif {
    options: MemifOptions,
    waiter: OwnedFd,
    /// Closes what the other side has passed.
    closer: Closer,
    /// Rings the other side's interrupts; none where the system has nothing that does so without waiting.
    ringer: Option<Arc<Ringer>>,
    place: Place,
    /// This part's rings, while there is a session.
    rings: Option<Rings>,
    hash: Toeplitz,
    /// The ring to receive from next.
    turn: usize,
    lookout: Lookout,
    /// Somebody is about to sleep: in a session, the other side has been asked for interrupts.
    armed: bool,
    /// Broken descriptors of this session.
    strikes: u64,
    counts: Counts,
    counters: Counters,
}

impl Memif {
    /// Opens the port, with all its rings in one. A server listens from now on; a client connects when it is first used, and again
    /// whenever it has lost its server.
    ///
    /// # Errors
    /// The socket cannot be made, or another process or port listens there.
    pub fn open(options: &MemifOptions) -> Result<Memif, PortError> {
        Ok(Memif::open_parts(options, 1)?.remove(0))
    }

    /// Opens the port in as many parts as it has queues, each of which a thread of its own may serve. A session's rings are dealt to
    /// them in turn, and one with fewer to transmit with than there are parts is refused. The control channel is looked at by
    /// the first, which the others need to go on.
    ///
    /// # Errors
    /// As for [`Memif::open`].
    pub fn open_queues(options: &MemifOptions) -> Result<Vec<Memif>, PortError> {
        Memif::open_parts(options, options.queues)
    }

    fn open_parts(options: &MemifOptions, parts: usize) -> Result<Vec<Memif>, PortError> {
        let failed = |error| SocketError::of("memif", &options.socket, error);
        let closer = Closer::start().map_err(failed)?;
        let listener = match options.role {
            Role::Server => {
                let opened = Listener::open(&options.socket, SocketType::SEQPACKET, options.any_user, &closer);
                Some(opened.map_err(failed)?)
            }
            Role::Client => None,
        };
        Ok(Memif::with_listener(options, parts, listener, &closer).map_err(failed)?)
    }

    fn with_listener(
        options: &MemifOptions,
        parts: usize,
        listener: Option<Listener>,
        closer: &Closer,
    ) -> std::io::Result<Vec<Memif>> {
        let waiter = |_| epoll::create(epoll::CreateFlags::CLOEXEC);
        let waiters: Vec<OwnedFd> = (0..parts.max(1)).map(waiter).collect::<Result<_, _>>()?;
        if let Some(listener) = &listener {
            watch(&waiters[0], listener.as_fd(), epoll::EventFlags::IN)?;
        }
        let (others, firsts) = parts::join(&waiters)?;
        let first = Place::First { control: Box::new(Control::new(listener, parts, closer.clone())), others };
        let places = std::iter::once(first).chain(firsts.into_iter().map(Place::Other));
        let ringer = Ringer::new().ok().map(Arc::new);
        let part = |(waiter, place)| Memif {
            options: options.clone(),
            waiter,
            closer: closer.clone(),
            ringer: ringer.clone(),
            place,
            rings: None,
            hash: Toeplitz::default(),
            turn: 0,
            lookout: Lookout::every(LOOK),
            armed: false,
            strikes: 0,
            counts: Counts::default(),
            counters: Counters::default(),
        };
        Ok(waiters.into_iter().zip(places).map(part).collect())
    }

    /// Whether a peer is connected.
    pub fn is_connected(&self) -> bool {
        self.rings.is_some()
    }

    /// Ends the session, here and, by the first part, everywhere; the other side is told why, where it can be.
    fn end(&mut self, now: Time, why: &'static str) {
        match &mut self.place {
            Place::First { control, .. } => {
                if control.end(now, why, true, &self.waiter) {
                    self.ended();
                }
            }
            Place::Other(first) => {
                if let Some(rings) = &self.rings {
                    first.complain(Complaint { session: rings.session, why });
                }
                self.put_away();
            }
        }
    }

    /// The first part's: the session has ended.
    fn ended(&mut self) {
        self.counts.ended += 1;
        self.put_away();
        if let Place::First { others, .. } = &self.place {
            others.stop();
        }
    }

    /// Leaves the rings.
    fn put_away(&mut self) {
        if let Some(rings) = self.rings.take() {
            rings.leave(&self.waiter);
            // Whoever unmaps the last of memory gives all its pages back, and others wait for this thread.
            self.closer.close(rings.regions);
        }
        (self.armed, self.strikes, self.turn) = (false, 0, 0);
    }

    /// Goes on with these rings.
    fn take_up(&mut self, now: Time, rings: Rings) {
        self.put_away();
        let begun = rings.begin(&self.waiter);
        self.rings = Some(rings);
        if begun.is_err() {
            self.end(now, "the interrupt descriptor cannot be used");
        }
    }

    /// Looks for what concerns the session: the first part at the control channel, the others at what the first says.
    fn attend(&mut self, now: Time) {
        loop {
            let (control, others) = match &mut self.place {
                Place::First { control, others } => (control, others),
                Place::Other(first) => {
                    match first.order() {
                        Some(Some(rings)) => self.take_up(now, rings),
                        Some(None) => self.put_away(),
                        None => {}
                    }
                    return;
                }
            };
            match control.attend(now, &self.options, &self.waiter, &mut self.counts) {
                Change::None => {
                    let session = self.rings.as_ref().map_or(0, |rings| rings.session);
                    if let Some(why) = others.complaint(session) {
                        self.end(now, why);
                    }
                    return;
                }
                Change::Ended => return self.ended(),
                // What else its peer has said is heard at once.
                Change::Began(session) => {
                    self.counts.sessions += 1;
                    let mut dealt = Rings::deal(self.counts.sessions, session, 1 + others.count()).into_iter();
                    let own = dealt.next();
                    others.give(dealt);
                    own.into_iter().for_each(|rings| self.take_up(now, rings));
                }
            }
        }
    }

    /// Counts what the other side did wrong, and ends the session when it is enough.
    fn fault(&mut self, now: Time, fault: Fault) {
        self.counts.faults[fault as usize] += 1;
        // A packet without its end tries nobody's patience: it is no more work than one with it, and DPDK 22.11, which leaves flags behind
        // that say that a packet goes on, would not come again. Nor does one without a byte, which others count and drop.
        self.strikes += u64::from(!matches!(fault, Fault::Chain | Fault::Empty));
        if fault == Fault::Index {
            self.end(now, "an index of a ring cannot be");
        } else if self.strikes >= PATIENCE {
            self.end(now, "too many broken descriptors");
        }
    }

    /// Something was there again.
    fn active(&mut self) {
        if self.armed
            && let Some(rings) = &self.rings
        {
            rings.receive.iter().for_each(|link| link.ring.interrupt(&rings.regions, false));
            self.armed = false;
            forget(&self.waiter);
        }
    }

    /// Takes the next packet of any ring.
    fn take(&mut self, frame: &mut [u8]) -> Taken {
        let Some(own) = &mut self.rings else { return Taken::None };
        let rings = own.receive.len();
        for _ in 0..rings {
            let link = &mut own.receive[self.turn];
            let taken = link.ring.take(&own.regions, frame);
            if taken != Taken::None {
                if link.ring.unreleased() >= BATCH {
                    link.ring.release(&own.regions);
                    self.turn = (self.turn + 1) % rings;
                }
                return taken;
            }
            link.ring.release(&own.regions);
            self.turn = (self.turn + 1) % rings;
        }
        Taken::None
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
            let armed = self.armed;
            self.attend(now);
            if !self.is_connected() {
                self.armed = false;
                if armed {
                    // A bell that rings behind this wakes the sleep; what it spoke of before is found now.
                    forget(&self.waiter);
                    self.attend(now);
                }
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
                // Whoever is about to sleep looks once.
                if self.armed {
                    self.attend(now);
                }
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
        let Some(own) = &mut self.rings else {
            self.counters.refused_link_down += 1;
            return Ok(Transmit::Refused);
        };
        let number = match own.transmit.len() {
            0 => {
                self.counters.refused_link_down += 1;
                return Ok(Transmit::Refused);
            }
            1 => 0,
            rings => self.hash.hash_frame(frame, Ports::default()).unwrap_or(0) as usize % rings,
        };
        let link = &mut own.transmit[number];
        match link.ring.put(&own.regions, frame) {
            Ok(Put::Done) => {
                if link.ring.unshown() >= BATCH && link.ring.show(&own.regions) {
                    self.counts.interrupts += 1;
                    ring_peer(self.ringer.as_deref(), &link.interrupt);
                }
                self.counters.count_transmitted(frame.len());
                Ok(Transmit::Accepted)
            }
            Ok(Put::Full) => {
                self.counters.transmit_full += 1;
                self.flush(now)?;
                Ok(Transmit::Full)
            }
            Ok(Put::TooLong) => {
                self.counters.refused_over_mtu += 1;
                Ok(Transmit::Refused)
            }
            Err(fault) => {
                self.counters.refused_link_down += 1;
                self.fault(now, fault);
                Ok(Transmit::Refused)
            }
        }
    }

    fn flush(&mut self, _now: Time) -> Result<(), PortError> {
        if let Some(own) = &mut self.rings {
            for link in &mut own.transmit {
                if link.ring.show(&own.regions) {
                    self.counts.interrupts += 1;
                    ring_peer(self.ringer.as_deref(), &link.interrupt);
                }
            }
        }
        Ok(())
    }

    fn next_due(&self) -> Option<Time> {
        if let Some(own) = &self.rings {
            // Until the other side has been asked for interrupts, nobody would be woken.
            let unshown = own.transmit.iter().any(|link| link.ring.unshown() > 0);
            return (unshown || !self.armed).then_some(Time::ZERO);
        }
        match &self.place {
            Place::First { control, .. } => control.next_due(),
            Place::Other(_) => None,
        }
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        let [index, flags, region, bounds, chain, empty] = self.counts.faults;
        vec![
            ("sessions", self.counts.sessions),
            ("sessions_ended", self.counts.ended),
            ("peers_refused", self.counts.refused),
            ("handshakes_timed_out", self.counts.timed_out),
            ("times_shut", self.counts.shut),
            ("fault_index", index),
            ("fault_flags", flags),
            ("fault_region", region),
            ("fault_bounds", bounds),
            ("fault_chain", chain),
            ("fault_empty", empty),
            ("interrupts_sent", self.counts.interrupts),
            ("interrupts_may_wait", u64::from(self.ringer.is_none())),
        ]
    }

    fn is_up(&self) -> bool {
        self.is_connected()
    }

    fn description(&self) -> String {
        match &self.place {
            Place::First { control, .. } => control.description(&self.options),
            // The first part speaks for all.
            Place::Other(_) => String::new(),
        }
    }

    fn arm(&mut self) {
        if let Some(own) = &self.rings
            && !self.armed
        {
            own.receive.iter().for_each(|link| link.ring.interrupt(&own.regions, true));
        }
        self.armed = true;
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
        self.end(Time::ZERO, "the port is closed");
        // The last one waits for the kernel's other cores, some milliseconds.
        self.ringer.take().into_iter().for_each(|ringer| self.closer.close(ringer));
    }
}

#[cfg(test)]
mod tests;
