//! vhost-user: a virtual machine's network card, or that of a program with a virtio driver, over its own memory; and the driver, in front of
//! another's backend.
//!
//! | file | what is there |
//! |---|---|
//! | `options.rs` | how a port is opened |
//! | `message.rs` | the messages, as bytes |
//! | `channel.rs` | the socket: messages out of a stream, with descriptors |
//! | `control.rs` | who connects, and what is said |
//! | `half.rs` | what both halves of a card have, and what differs |
//! | `backend.rs` | the device's half: what each message changes |
//! | `frontend/` | the driver's half |
//! | `memory.rs` | the frontend's memory |
//! | `ring.rs` | split virtqueues from the device's side, and what is checked of them |
//! | `wish.rs` | who wants to be told of what |
//! | `unfinished.rs` | packets of which work is left |
//! | `legacy.rs` | a port goes on in another process |
//!
//! The other half is not trusted, as with memif: a frontend's memory must be sealed against shrinking, indexes and descriptors are read once and checked,
//! and one that goes on breaking the rules is disconnected. No call waits for it (see [`crate::peer`]).

mod backend;
mod channel;
mod control;
mod frontend;
mod half;
mod legacy;
mod memory;
mod message;
mod options;
mod ring;
mod unfinished;
mod wish;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
use crate::peer::{Role, SocketError, forget, ring_peer, watch};
use crate::vnet::{Cutter, Work};
use crate::{Counters, Legacy, MAX_FRAME, MIN_FRAME, Port, PortError, Receive, Transmit};
pub use backend::Backend;
use control::Control;
pub use frontend::Frontend;
pub use half::Half;
use half::{Device, Outside, Side};
pub use options::VhostOptions;
use ring::{Fault, LONG_HEADER, Put, Taken};

/// Milliseconds between two looks at the socket of a frontend.
const LOOK: u64 = 1;
/// Packets after which the other side is told of them.
const BATCH: u16 = 32;
/// Broken descriptors after which the other side is disconnected.
const PATIENCE: u64 = 64;

/// What other sides have done, since the port was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    sessions: u64,
    ended: u64,
    refused: u64,
    timed_out: u64,
    shut: u64,
    /// Requests that could not be done, and were answered so.
    failed: u64,
    faults: [u64; 5],
    interrupts: u64,
}

/// A port over vhost-user, as the backend, which is the device: packets to and from a virtual machine, or another program with a virtio driver.
pub type VhostUser = Card<Backend>;

/// A port over vhost-user, as the frontend, with the driver: packets to and from another program's backend.
pub type VirtioUser = Card<Frontend>;

/// One half of a virtio network card. Flows are spread over the rings that it transmits with.
pub struct Card<H: Half> {
    options: VhostOptions,
    outside: Outside,
    control: Control<H>,
    hash: Toeplitz,
    /// The pair of rings to receive from next.
    turn: usize,
    lookout: Lookout,
    /// Somebody is about to sleep: the other side has been asked for word.
    armed: bool,
    /// Broken descriptors of the one at the other side.
    strikes: u64,
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
    /// Opens the port. A server listens from now on; a client connects when it is first used, and again whenever it has lost the other side.
    ///
    /// # Errors
    /// The socket cannot be made, or another process listens there.
    pub fn open(options: &VhostOptions) -> Result<Card<H>, PortError> {
        let failed = |error| SocketError::of(H::KIND, &options.socket, error);
        let closer = Closer::start().map_err(failed)?;
        let listener = match options.role {
            Role::Server => {
                let opened = Listener::open(&options.socket, SocketType::STREAM, options.any_user, &closer);
                Some(opened.map_err(failed)?)
            }
            Role::Client => None,
        };
        Ok(Card::with_listener(options, listener, closer).map_err(failed)?)
    }

    fn with_listener(options: &VhostOptions, listener: Option<Listener>, closer: Closer) -> std::io::Result<Card<H>> {
        let waiter: OwnedFd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Some(listener) = &listener {
            watch(&waiter, listener.as_fd(), epoll::EventFlags::IN)?;
        }
        let ringer = Ringer::new().ok().map(Arc::new);
        Ok(Card {
            options: options.clone(),
            control: Control::new(listener, closer.clone()),
            outside: Outside { waiter, closer, ringer },
            hash: Toeplitz::default(),
            turn: 0,
            lookout: Lookout::every(LOOK),
            armed: false,
            strikes: 0,
            cutter: Cutter::new(),
            finished: vec![0; MAX_FRAME],
            work: Work::default(),
            counts: Counts::default(),
            counters: Counters::default(),
        })
    }

    /// Whether rings are in use.
    pub fn is_connected(&self) -> bool {
        self.control.device().is_some_and(|device| device.queues.iter().any(|queue| queue.ring.is_some()))
    }

    /// Looks who connects and what is said.
    fn attend(&mut self, now: Time) {
        let sessions = self.counts.sessions;
        self.control.attend(now, &self.options, &self.outside, &mut self.counts);
        if self.counts.sessions != sessions {
            self.strikes = 0;
        }
    }

    /// Ends what there is with the other side.
    fn end(&mut self, now: Time, why: &'static str) {
        self.control.end(now, why, &self.outside, &mut self.counts);
    }

    /// Counts what the other side did wrong, and ends the session when it is enough.
    fn fault(&mut self, now: Time, fault: Fault) {
        self.counts.faults[fault as usize] += 1;
        self.strikes += 1;
        if fault == Fault::Index {
            self.end(now, "an index of a ring cannot be");
        } else if self.strikes >= PATIENCE {
            self.end(now, "too many broken descriptors");
        }
    }

    /// Something was there again.
    fn active(&mut self) {
        if self.armed {
            self.wish(false);
            self.armed = false;
            forget(&self.outside.waiter);
        }
    }

    /// Asks the other side for word of news or for none.
    fn wish(&self, wanted: bool) {
        let Some(device) = self.control.device() else { return };
        let inward = device.queues.iter().skip(1 - H::OUT).step_by(2).filter_map(|queue| queue.ring.as_ref());
        inward.for_each(|ring| ring.interrupt(&device.regions, wanted));
    }

    /// Tells the other side of what was done in a ring.
    fn show(&mut self, number: usize) {
        let Some(device) = self.control.device_mut() else { return };
        let queue = &mut device.queues[number];
        if queue.ring.as_mut().is_some_and(|ring| ring.show(&device.regions))
            && let Some(bell) = H::bell(queue)
        {
            self.counts.interrupts += 1;
            ring_peer(self.outside.ringer.as_deref(), bell);
        }
    }

    /// Takes the next packet of any ring.
    fn take(&mut self, header: &mut [u8; LONG_HEADER], frame: &mut [u8]) -> Taken {
        let Some(device) = self.control.device_mut() else { return Taken::None };
        let pairs = device.queues.len() / 2;
        for _ in 0..pairs {
            let number = 2 * self.turn + 1 - H::OUT;
            let Some(device) = self.control.device_mut() else { return Taken::None };
            let Some(ring) = &mut device.queues[number].ring else {
                self.turn = (self.turn + 1) % pairs;
                continue;
            };
            let taken = ring.take(&device.regions, header, frame);
            let is_due = taken == Taken::None || ring.unshown() >= BATCH;
            if is_due {
                self.show(number);
                self.turn = (self.turn + 1) % pairs;
            }
            if taken != Taken::None {
                return taken;
            }
        }
        Taken::None
    }

    /// Takes the next packet, and looks at the socket now and then.
    fn next_packet(&mut self, now: Time, header: &mut [u8; LONG_HEADER], frame: &mut [u8]) -> Taken {
        if !self.is_connected() || self.lookout.is_due(now) {
            self.attend(now);
        }
        let mut taken = self.take(header, frame);
        if taken == Taken::None && self.armed {
            // A kick that comes behind this wakes the sleep; what it spoke of before is found now. Whoever is about to sleep looks once.
            forget(&self.outside.waiter);
            self.attend(now);
            taken = self.take(header, frame);
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
                self.fault(now, fault);
            }
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
        let Some(device) = self.control.device_mut() else { return Transmit::Refused };
        let Some(ring) = &mut device.queues[number].ring else { return Transmit::Refused };
        let put = ring.put(&device.regions, &mut header, packet);
        let is_due = put == Put::Full || ring.unshown() >= BATCH;
        if is_due {
            self.show(number);
        }
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
                self.fault(now, fault);
                Transmit::Refused
            }
        }
    }

    /// Which ring a packet's flow goes by, of those that are in use.
    fn ring_for(&self, packet: &[u8]) -> Option<usize> {
        let queues = &self.control.device()?.queues;
        let used = || (H::OUT..queues.len()).step_by(2).filter(|&number| queues[number].ring.is_some());
        match used().count() {
            0 => None,
            1 => used().next(),
            several => {
                let hash = self.hash.hash_frame(packet, Ports::default()).unwrap_or(0);
                used().nth(hash as usize % several)
            }
        }
    }
}

impl<H: Half> AsFd for Card<H> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.outside.waiter.as_fd()
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
            Taken::Refused(_) => Receive::Skipped,
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
            Taken::Refused(_) => return Ok(Receive::Skipped),
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
        let rings = self.control.device().map_or(0, |device| device.queues.len());
        (H::OUT..rings).step_by(2).for_each(|number| self.show(number));
        Ok(())
    }

    fn next_due(&self) -> Option<Time> {
        if self.cutter.is_busy() {
            return Some(Time::ZERO);
        }
        if self.is_connected() {
            // Until the other side has been asked for word, nobody would be woken.
            let is_polled = self.control.device().is_some_and(Device::is_polled);
            return (!self.armed || is_polled || self.has_unshown()).then_some(Time::ZERO);
        }
        self.control.next_due()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        let [index, flags, number, bounds, chain] = self.counts.faults;
        let mut details = vec![
            ("sessions", self.counts.sessions),
            ("sessions_ended", self.counts.ended),
            ("peers_refused", self.counts.refused),
            ("handshakes_timed_out", self.counts.timed_out),
            ("requests_failed", self.counts.failed),
            ("times_shut", self.counts.shut),
            ("fault_index", index),
            ("fault_flags", flags),
            ("fault_number", number),
            ("fault_bounds", bounds),
            ("fault_chain", chain),
            ("interrupts_sent", self.counts.interrupts),
            ("interrupts_may_wait", u64::from(self.outside.ringer.is_none())),
        ];
        details.extend(self.options.offload.then(|| self.work.named()).into_iter().flatten().take(2));
        details
    }

    fn is_up(&self) -> bool {
        self.is_connected()
    }

    fn description(&self) -> String {
        self.control.description(&self.options)
    }

    fn arm(&mut self) {
        if !self.armed {
            self.wish(true);
        }
        self.armed = true;
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.outside.waiter.as_fd())
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

impl<H: Half> Card<H> {
    /// Whether the other side was not told of something that was sent to it.
    fn has_unshown(&self) -> bool {
        let out = self.control.device().into_iter().flat_map(|device| device.queues.iter().skip(H::OUT).step_by(2));
        out.filter_map(|queue| queue.ring.as_ref()).any(|ring| ring.unshown() > 0)
    }
}

impl<H: Half> Drop for Card<H> {
    fn drop(&mut self) {
        self.end(Time::ZERO, "the port is closed");
        // The last one waits for the kernel's other cores, some milliseconds.
        self.outside.ringer.take().into_iter().for_each(|ringer| self.outside.closer.close(ringer));
    }
}

#[cfg(test)]
mod tests;
