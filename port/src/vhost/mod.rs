//! vhost-user: a virtual machine's network card, or that of a program with a virtio driver, over its own memory; and the driver, in front of
//! another's backend.
//!
//! | file | what is there |
//! |---|---|
//! | `options.rs` | how a port is opened |
//! | `message.rs` | the messages, as bytes |
//! | `channel.rs` | the socket: messages out of a stream, with descriptors |
//! | `control.rs`, `counts.rs` | who connects, and what is said; what is counted of it |
//! | `half.rs` | what both halves of a card have, and what differs |
//! | `backend.rs` | the device's half: what each message changes |
//! | `frontend/` | the driver's half |
//! | `memory.rs` | the frontend's memory |
//! | `ring.rs` | split virtqueues from the device's side, and what is checked of them |
//! | `packed.rs`, `device_ring.rs` | packed ones, and either |
//! | `rings.rs` | which thread touches a ring when |
//! | `log.rs`, `migration.rs` | which pages of a machine that migrates were written, and what it asks for meanwhile |
//! | `announce.rs` | a station that has come, and does not say so itself |
//! | `wish.rs` | who wants to be told of what |
//! | `unfinished.rs` | packets of which work is left |
//! | `legacy.rs` | a port goes on in another process |
//!
//! The other half is not trusted, as with memif: a frontend's memory must be sealed against shrinking, indexes and descriptors are read once and checked,
//! and one that goes on breaking the rules is disconnected. No call waits for it (see [`crate::peer`]).

mod announce;
mod backend;
mod channel;
mod control;
mod counts;
mod device_ring;
mod frontend;
mod half;
mod legacy;
mod log;
mod memory;
mod message;
mod migration;
mod options;
mod packed;
mod ring;
mod rings;
mod unfinished;
mod wish;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use conic_fabric::Time;
use conic_native::{Closer, Ringer};
use rustix::event::epoll;
use rustix::net::SocketType;

use crate::lookout::Lookout;
use crate::offload::Headers;
use crate::offload::rss::{Ports, Toeplitz};
use crate::offload::segment::LONGEST;
use crate::offload::virtio::{HEADER_BYTES, Metadata, set_header_length};
use crate::peer::socket::Listener;
use crate::peer::{Role, SocketError, forget, watch};
use crate::vnet::{Cutter, Work};
use crate::{Counters, Legacy, MAX_FRAME, MIN_FRAME, Port, PortError, Receive, Transmit};
pub use backend::Backend;
use control::Control;
pub use counts::Counts;
pub use frontend::Frontend;
pub use half::Half;
use half::{Outside, Side};
pub use options::VhostOptions;
use ring::{Fault, LONG_HEADER, Put, Taken};
use rings::{Reach, Served, bits, next_of};

/// Milliseconds between two looks at the socket of a frontend.
const LOOK: u64 = 1;
/// Packets after which the other side is told of them.
const BATCH: u16 = 32;
/// Broken descriptors after which the other side is disconnected.
const PATIENCE: u64 = 64;

/// A port over vhost-user, as the backend, which is the device: packets to and from a virtual machine, or another program with a virtio driver.
pub type VhostUser = Card<Backend>;

/// A port over vhost-user, as the frontend, with the driver: packets to and from another program's backend.
pub type VirtioUser = Card<Frontend>;

/// One half of a virtio network card. Flows are spread over the rings that it transmits with.
pub struct Card<H: Half> {
    options: VhostOptions,
    outside: Outside<H::Ring>,
    /// Who connects and what is said; the first part of a port has it.
    control: Option<Box<Control<H>>>,
    /// Bits of the rings that this part receives from, of those that it transmits with, and of all that are transmitted with.
    own: [u32; 2],
    out: u32,
    /// Of those that it transmits with, which the other side has not been shown something of.
    unshown: u32,
    hash: Toeplitz,
    /// The ring to receive from next.
    turn: usize,
    lookout: Lookout,
    /// Somebody is about to sleep: the other side has been asked for word.
    armed: bool,
    /// Broken descriptors of the one at the other side, and in which session.
    strikes: u64,
    session: u64,
    /// Of which ring the last one was, and in which session.
    refused: (usize, u64),
    /// What a packet that is put was made ready for: features that the other side has agreed on.
    features: u64,
    cutter: Cutter,
    /// A packet whose checksum is completed for a peer that does not do so itself.
    finished: Vec<u8>,
    work: Work,
    counts: Counts,
    counters: Counters,
}

impl<H: Half> std::fmt::Debug for Card<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(H::KIND).field("options", &self.options).field("control", &self.control).finish_non_exhaustive()
    }
}

impl<H: Half> Card<H> {
    /// Opens the port, with all its pairs of rings in one. A server listens from now on; a client connects when it is first used, and again
    /// whenever it has lost the other side.
    ///
    /// # Errors
    /// The socket cannot be made, or another process or port listens there.
    pub fn open(options: &VhostOptions) -> Result<Card<H>, PortError> {
        Ok(Card::open_parts(options, 1)?.remove(0))
    }

    /// Opens the port in as many parts as it has queues, each of which a thread of its own may serve: part `n` has pair `n` of rings. One
    /// whose pair is not in use transmits with those that are. The control channel is looked at by the first, which the others need to go on.
    ///
    /// # Errors
    /// As for [`Card::open`].
    pub fn open_queues(options: &VhostOptions) -> Result<Vec<Card<H>>, PortError> {
        Card::open_parts(options, options.queues)
    }

    fn open_parts(options: &VhostOptions, parts: usize) -> Result<Vec<Card<H>>, PortError> {
        let failed = |error| SocketError::of(H::KIND, &options.socket, error);
        let closer = Closer::start().map_err(failed)?;
        let listener = match options.role {
            Role::Server => {
                let opened = Listener::open(&options.socket, SocketType::STREAM, options.any_user, &closer);
                Some(opened.map_err(failed)?)
            }
            Role::Client => None,
        };
        Ok(Card::with_listener(options, parts, listener, &closer).map_err(failed)?)
    }

    fn with_listener(
        options: &VhostOptions,
        parts: usize,
        listener: Option<Listener>,
        closer: &Closer,
    ) -> std::io::Result<Vec<Card<H>>> {
        let reaches = Reach::deal(options.queues, parts.max(1))?;
        if let (Some(listener), Some(first)) = (&listener, reaches.first()) {
            watch(first.all().waiter(0), listener.as_fd(), epoll::EventFlags::IN)?;
        }
        let ringer = Ringer::new().ok().map(Arc::new);
        let mut control = Some(Box::new(Control::new(listener, closer.clone())));
        let card = |(part, rings): (usize, Reach<H::Ring>)| {
            let all = 0..2 * options.queues;
            let of = |wanted: &dyn Fn(usize) -> bool| {
                all.clone().filter(|&number| wanted(number)).map(|number| 1 << number).sum::<u32>()
            };
            let is_own = |number| rings.all().part_of(number) == part;
            let own = [1 - H::OUT, H::OUT].map(|way| of(&|number| number % 2 == way && is_own(number)));
            let out = of(&|number| number % 2 == H::OUT);
            Card {
                options: options.clone(),
                control: control.take(),
                outside: Outside { part, rings, closer: closer.clone(), ringer: ringer.clone() },
                own,
                out,
                unshown: 0,
                hash: Toeplitz::default(),
                turn: 2 * part + 1 - H::OUT,
                lookout: Lookout::every(LOOK),
                armed: false,
                strikes: 0,
                refused: (0, 0),
                session: 0,
                features: 0,
                cutter: Cutter::new(),
                finished: vec![0; MAX_FRAME],
                work: Work::default(),
                counts: Counts::default(),
                counters: Counters::default(),
            }
        };
        Ok(reaches.into_iter().enumerate().map(card).collect())
    }

    /// Whether rings are in use.
    pub fn is_connected(&self) -> bool {
        self.outside.rings.all().used() != 0
    }

    /// Whether the other side has agreed on a feature.
    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Looks who connects and what is said.
    fn attend(&mut self, now: Time) {
        if let Some(control) = &mut self.control {
            control.attend(now, &self.options, &self.outside, &mut self.counts);
        }
    }

    /// Ends what there is with the other side, as far as this part can: another one asks the first to, and lets go of the ring.
    fn end(&mut self, now: Time, number: usize, why: &'static str) {
        match &mut self.control {
            Some(control) => control.end(now, why, &self.outside, &mut self.counts),
            None => {
                // In its place may be one of the next session by now.
                let of_session = |served: &mut Served<_>| served.session == self.session;
                let served = self.outside.rings.all().lock(number).served.take_if(of_session);
                // Whoever unmaps the last of memory gives all its pages back, and others wait for this thread.
                self.outside.closer.close(served);
                self.outside.rings.all().complain(self.session, why);
            }
        }
    }

    /// Counts what the other side did wrong in a ring of this session, and ends it when it is enough.
    fn fault(&mut self, now: Time, (number, session): (usize, u64), fault: Fault) {
        self.counts.faults[fault as usize] += 1;
        if session != self.session {
            (self.session, self.strikes) = (session, 0);
        }
        self.strikes += 1;
        if fault == Fault::Index {
            self.end(now, number, "an index of a ring cannot be");
        } else if self.strikes >= PATIENCE {
            self.end(now, number, "too many broken descriptors");
        }
    }

    /// Something was there again.
    fn active(&mut self) {
        if self.armed {
            self.wish(false);
            self.armed = false;
            forget(self.outside.waiter());
        }
    }

    /// Asks the other side for word of news or for none.
    fn wish(&mut self, wanted: bool) {
        let own = self.own[0] & self.outside.rings.all().used();
        for number in bits(own) {
            if let Some(served) = self.outside.rings.reach(number).served() {
                served.ring.interrupt(&served.regions, wanted);
            }
        }
    }

    /// Tells the other side of what was done in a ring.
    fn show(&mut self, number: usize) {
        let Outside { rings, ringer, .. } = &mut self.outside;
        if let Some(served) = rings.reach(number).served() {
            self.counts.interrupts += u64::from(served.show(ringer.as_deref()));
        }
    }

    /// Takes the next packet of any ring.
    // What it returns fits into registers: what is returned in memory is written in parts and read whole, and such a load waits until every
    // store before it is in the caches, those to the rings' lines included (a tenth of a round trip).
    fn take(&mut self, header: &mut [u8; LONG_HEADER], frame: &mut [u8]) -> Taken {
        let Outside { rings, ringer, .. } = &mut self.outside;
        let own = self.own[0] & rings.all().used();
        for _ in 0..own.count_ones() {
            let number = next_of(own, self.turn);
            self.turn = number;
            let mut reached = rings.reach(number);
            let Some(served) = reached.served() else {
                self.turn = number + 1;
                continue;
            };
            let taken = served.ring.take(&served.regions, header, frame);
            if taken == Taken::None || served.ring.unshown() >= BATCH {
                self.counts.interrupts += u64::from(served.show(ringer.as_deref()));
                self.turn = number + 1;
            }
            match taken {
                Taken::None => {}
                Taken::Refused(_) => {
                    self.refused = (number, served.session);
                    return taken;
                }
                _ if served.discards => return Taken::Discarded,
                _ => return taken,
            }
        }
        Taken::None
    }

    /// Takes the next packet, and looks at the socket now and then.
    fn next_packet(&mut self, now: Time, header: &mut [u8; LONG_HEADER], frame: &mut [u8]) -> Taken {
        if !self.is_connected() || self.lookout.is_due(now) {
            self.attend(now);
            if let taken @ Taken::Packet(_) = self.announced(frame) {
                return taken;
            }
        }
        let mut taken = self.take(header, frame);
        if taken == Taken::None && self.armed {
            // A kick that comes behind this wakes the sleep; what it spoke of before is found now. Whoever is about to sleep looks once.
            forget(self.outside.waiter());
            self.attend(now);
            taken = self.announced(frame);
            if taken == Taken::None {
                taken = self.take(header, frame);
            }
            if taken == Taken::None {
                // The other side may be another one by now.
                self.wish(true);
                taken = self.take(header, frame);
            }
        }
        match taken {
            Taken::None => {}
            Taken::Refused(fault) => {
                self.counters.skipped_malformed += 1;
                self.fault(now, self.refused, fault);
            }
            Taken::Discarded => self.counts.discarded += 1,
            Taken::Packet(_) | Taken::TooLong => self.active(),
        }
        taken
    }

    /// Puts a packet into one of the rings to the other side.
    fn put(&mut self, now: Time, metadata: Metadata, headers: Option<&Headers>, packet: &[u8]) -> Transmit {
        let mut header = [0; LONG_HEADER];
        if metadata != Metadata::NONE
            && let Some(first) = header.first_chunk_mut::<HEADER_BYTES>()
        {
            metadata.write(headers, first);
            set_header_length(first, headers.map_or(0, |headers| headers.transport + headers.transport_length(packet)));
        }
        let Some(number) = self.ring_for(packet) else {
            self.counters.refused_link_down += 1;
            return Transmit::Refused;
        };
        let Outside { rings, ringer, .. } = &mut self.outside;
        let mut reached = rings.reach(number);
        let Some(served) = reached.served() else {
            self.counters.refused_link_down += 1;
            return Transmit::Refused;
        };
        if metadata != Metadata::NONE && served.features != self.features {
            // It began anew meanwhile, with a driver that may not take the packet as it is: it is made ready again.
            self.counters.transmit_full += 1;
            return Transmit::Full;
        }
        let session = served.session;
        let put = served.ring.put(&served.regions, &mut header, packet);
        self.unshown |= u32::from(served.ring.unshown() > 0) << number;
        if put == Put::Full || served.ring.unshown() >= BATCH {
            self.counts.interrupts += u64::from(served.show(ringer.as_deref()));
            self.unshown &= !(1 << number);
        }
        drop(reached);
        match put {
            Put::Done => Transmit::Accepted,
            Put::Full => {
                self.counters.transmit_full += 1;
                Transmit::Full
            }
            Put::TooLong => {
                self.counters.refused_over_mtu += 1;
                Transmit::Refused
            }
            Put::Refused(fault) => {
                self.counters.refused_link_down += 1;
                self.fault(now, (number, session), fault);
                Transmit::Refused
            }
        }
    }

    /// Which ring a packet's flow goes by, of those that are in use: this part's own, or, where there is none, any.
    fn ring_for(&self, packet: &[u8]) -> Option<usize> {
        let used = self.outside.rings.all().used();
        let own = used & self.own[1];
        let rings = if own == 0 { used & self.out } else { own };
        match rings.count_ones() {
            0 => None,
            1 => Some(rings.trailing_zeros() as usize),
            several => {
                let hash = self.hash.hash_frame(packet, Ports::default()).unwrap_or(0);
                bits(rings).nth((hash % several) as usize)
            }
        }
    }
}

impl<H: Half> AsFd for Card<H> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.outside.waiter().as_fd()
    }
}

impl<H: Half> Port for Card<H> {
    fn receive(&mut self, now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        let limit = frame.len().min(MAX_FRAME);
        let frame = &mut frame[..limit];
        if self.options.offload {
            return Ok(self.receive_and_finish(now, frame));
        }
        let mut header = [0; LONG_HEADER];
        Ok(match self.next_packet(now, &mut header, frame) {
            Taken::None => Receive::None,
            Taken::Packet(length) if self.said(&header).is_some() => self.counters.receive_frame(frame, length),
            Taken::Packet(_) => {
                self.counters.skipped_malformed += 1;
                Receive::Skipped
            }
            Taken::TooLong => {
                self.counters.skipped_oversized += 1;
                Receive::Skipped
            }
            Taken::Refused(_) | Taken::Discarded => Receive::Skipped,
        })
    }

    fn takes_unfinished(&self) -> bool {
        self.options.offload
    }

    fn receive_unfinished(
        &mut self,
        now: Time,
        frame: &mut [u8],
        metadata: &mut Metadata,
    ) -> Result<Receive, PortError> {
        *metadata = Metadata::NONE;
        // What was begun to be cut is given to its end first.
        if self.cutter.is_busy() || !self.options.offload {
            let room = frame.len().min(MAX_FRAME);
            return self.receive(now, &mut frame[..room]);
        }
        let mut header = [0; LONG_HEADER];
        let length = match self.next_packet(now, &mut header, frame) {
            Taken::None => return Ok(Receive::None),
            Taken::Packet(length) => length,
            Taken::TooLong => {
                self.counters.skipped_oversized += 1;
                return Ok(Receive::Skipped);
            }
            Taken::Refused(_) | Taken::Discarded => return Ok(Receive::Skipped),
        };
        let Some(said) = self.said(&header) else {
            self.counters.skipped_malformed += 1;
            return Ok(Receive::Skipped);
        };
        if said.segmentation.is_none() && length > MAX_FRAME {
            self.counters.skipped_oversized += 1;
            return Ok(Receive::Skipped);
        }
        *metadata = said;
        Ok(self.counters.receive_frame(frame, length))
    }

    fn transmit(&mut self, now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        if self.counters.refuse_length(frame) {
            return Ok(Transmit::Refused);
        }
        let transmit = self.put(now, Metadata::NONE, None, frame);
        if transmit == Transmit::Accepted {
            self.counters.count_transmitted(frame.len());
        }
        Ok(transmit)
    }

    fn transmit_unfinished(&mut self, now: Time, packet: &[u8], metadata: Metadata) -> Result<Transmit, PortError> {
        let headers = Headers::of(packet);
        let (true, Some(headers)) = ((MIN_FRAME..=LONGEST).contains(&packet.len()), headers) else {
            self.counters.refused_length += 1;
            return Ok(Transmit::Refused);
        };
        self.features = self.outside.rings.all().features();
        let metadata = self.known_to_peer(metadata);
        let transmit = if self.peer_takes(metadata, &headers) {
            self.put(now, metadata, Some(&headers), packet)
        } else {
            self.put_finished(now, packet, metadata)
        };
        if transmit == Transmit::Accepted {
            self.counters.count_transmitted(packet.len());
        }
        Ok(transmit)
    }

    fn flush(&mut self, _now: Time) -> Result<(), PortError> {
        let unshown = std::mem::take(&mut self.unshown);
        bits(unshown).for_each(|number| self.show(number));
        Ok(())
    }

    fn next_due(&self) -> Option<Time> {
        if self.cutter.is_busy() {
            return Some(Time::ZERO);
        }
        if self.is_connected() {
            // Until the other side has been asked for word, nobody would be woken.
            let is_polled = self.own[0] & self.outside.rings.all().polled() != 0;
            return (!self.armed || is_polled || self.unshown != 0).then_some(Time::ZERO);
        }
        // Another part is woken by the first.
        self.control.as_ref().and_then(|control| control.next_due())
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        let mut details = self.counts.named();
        details.push(("interrupts_may_wait", u64::from(self.outside.ringer.is_none())));
        details.extend(self.options.offload.then(|| self.work.named()).into_iter().flatten().take(2));
        details
    }

    fn is_up(&self) -> bool {
        self.is_connected()
    }

    fn description(&self) -> String {
        // The first part speaks for all.
        self.control.as_ref().map_or_else(String::new, |control| control.description(&self.options))
    }

    fn arm(&mut self) {
        if !self.armed {
            self.wish(true);
        }
        self.armed = true;
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.outside.waiter().as_fd())
    }

    fn can_bequeath(&self) -> bool {
        true
    }

    fn bequeath(&mut self) -> Option<Legacy> {
        H::pass_on(self)
    }

    fn finish(&mut self) -> Result<(), PortError> {
        self.flush(Time::ZERO)
    }
}

impl<H: Half> Drop for Card<H> {
    fn drop(&mut self) {
        if let Some(control) = &mut self.control {
            control.end(Time::ZERO, "the port is closed", &self.outside, &mut self.counts);
        }
        // The last one waits for the kernel's other cores, some milliseconds.
        self.outside.ringer.take().into_iter().for_each(|ringer| self.outside.closer.close(ringer));
    }
}

#[cfg(test)]
mod migration_tests;
#[cfg(test)]
mod parts_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unfinished_tests;
