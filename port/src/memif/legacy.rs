//! A port goes on in another process, with its session: the other side notices a pause, and nothing else.
//!
//! | in order | where it is there |
//! |---|---|
//! | descriptors: the socket that listens | a server |
//! | the connection, each region, each ring's interrupt | a session |
//! | words: whether it listens, how many regions, receiving rings and sending rings | always; no regions: no session |
//! | bytes of each region | a session |
//! | of each ring: region, offset, slots as a power of two, next slot, a client's buffers and the bytes of each | a session |
//!
//! The one that stops gives back what it has read and shows what it has put, so that one position says all of a ring.

use std::io;
use std::os::fd::AsFd;

use conic_fabric::Time;
use rustix::event::epoll;

use super::channel::{Channel, Listener};
use super::ring::{Place, Regions, Ring, Side};
use super::session::{Link, Session, map_region};
use super::{Memif, MemifError, MemifOptions, MemifProblem, MemifRole, State, begin, ring_bell, watch};
use crate::legacy::{Heir, broken};
use crate::{Legacy, PortError};

impl Memif {
    /// Stops here. A handshake that is under way ends; the other side begins it anew with whoever goes on.
    pub(super) fn pass_on(&mut self) -> io::Result<Legacy> {
        if let State::Meeting { .. } = self.state {
            self.end(Time::ZERO, "another process takes over", true);
        }
        let mut legacy = Legacy { words: vec![u64::from(self.listener.is_some())], ..Legacy::default() };
        legacy.descriptors.extend(self.listener.take().map(Listener::into_descriptor).transpose()?);
        let State::Together { channel, session } = std::mem::replace(&mut self.state, State::Alone(Time::NEVER)) else {
            legacy.words.extend([0; 3]);
            return Ok(legacy);
        };
        let Session { regions, memory, receive, transmit, peer } = session;
        legacy.peer = peer;
        legacy.words.extend([regions.0.len(), receive.len(), transmit.len()].map(|count| count as u64));
        legacy.words.extend(regions.0.iter().map(|region| region.bytes() as u64));
        legacy.descriptors.push(channel.into_descriptor());
        legacy.descriptors.extend(memory);
        let receive = receive.into_iter().map(|mut link| {
            link.ring.release(&regions);
            link
        });
        let transmit = transmit.into_iter().map(|mut link| {
            if link.ring.show(&regions) {
                ring_bell(&link.interrupt);
            }
            link
        });
        for Link { ring, interrupt } in receive.chain(transmit) {
            legacy.words.extend(ring.position());
            legacy.descriptors.push(interrupt);
        }
        Ok(legacy)
    }

    /// Goes on with the port of another process, which had the same options.
    ///
    /// # Errors
    /// What was given is not of such a port.
    pub fn inherit(options: &MemifOptions, legacies: Vec<Legacy>) -> Result<Vec<Memif>, PortError> {
        let failed = |error| MemifError { socket: options.socket.clone(), problem: MemifProblem::of(error) };
        let inherit = |legacy| Memif::of_heir(options, Heir::of(legacy)).map_err(|error| failed(error).into());
        legacies.into_iter().map(inherit).collect()
    }

    fn of_heir(options: &MemifOptions, mut heir: Heir) -> io::Result<Memif> {
        let listens = heir.number::<u8>()? == 1;
        if listens != (options.role == MemifRole::Server) {
            return Err(broken());
        }
        let listener = if listens { Some(Listener::inherit(heir.descriptor()?, &options.socket)) } else { None };
        let mut memif = Memif::with_listener(options, listener)?;
        let counts = [heir.number::<usize>()?, heir.number()?, heir.number()?];
        if counts[0] > 0 {
            let channel = Channel::of_descriptor(heir.descriptor()?);
            let session = session(options, heir, counts)?;
            watch(&memif.waiter, channel.as_fd(), epoll::EventFlags::IN)?;
            begin(&memif.waiter, &session)?;
            memif.counts.sessions = 1;
            memif.state = State::Together { channel, session };
        }
        Ok(memif)
    }
}

/// The session, with so many regions, receiving and sending rings.
fn session(options: &MemifOptions, mut heir: Heir, [regions, receive, transmit]: [usize; 3]) -> io::Result<Session> {
    let peer = std::mem::take(&mut heir.peer);
    let mut session = Session { peer, ..Session::default() };
    for _ in 0..regions {
        let (bytes, memory) = (heir.number()?, heir.descriptor()?);
        // What the other process had checked is checked again: what it takes lies in the options of both.
        session.regions.0.push(map_region(bytes, &memory, options).map_err(io::Error::other)?);
        session.memory.push(memory);
    }
    for number in 0..receive.saturating_add(transmit) {
        let link = Link { ring: ring(&mut heir, options, &session.regions)?, interrupt: heir.descriptor()? };
        if number < receive { session.receive.push(link) } else { session.transmit.push(link) }
    }
    Ok(session)
}

fn ring(heir: &mut Heir, options: &MemifOptions, regions: &Regions) -> io::Result<Ring> {
    let place = Place { region: heir.number()?, offset: heir.number()?, log2_slots: heir.number()? };
    let next = heir.number()?;
    let (buffers, buffer_bytes) = (heir.number()?, heir.number()?);
    let side = match options.role {
        MemifRole::Server => Side::Server,
        MemifRole::Client => Side::Client { buffers, buffer_bytes },
    };
    let sound = place.is_in(regions) && place.has_cookie(regions);
    if sound { Ok(Ring::new(place, side).at_slot(next)) } else { Err(broken()) }
}
