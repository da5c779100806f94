//! A port goes on in another process, with its session: the other side notices a pause, and nothing else.
//!
//! | in order | where it is there |
//! |---|---|
//! | descriptors: the socket that listens | a server's first part |
//! | the connection, each region | a session, the first part |
//! | each own ring's interrupt | a session |
//! | words: whether it listens, how many regions, own receiving rings and own sending rings | the first part; no regions: no session |
//! | which session it is (0: none), how many own receiving rings and sending rings | any other part |
//! | bytes of each region | a session, the first part |
//! | of each own ring: region, offset, slots as a power of two, next slot, a client's buffers and the bytes of each | a session |
//! | which session it is | a session, the first of several parts |
//!
//! The one that stops gives back what it has read and shows what it has put, so that one position says all of a ring. Parts stop
//! one after the other: a session of which one has no rings any more, or those of another session, ends. So does one whose memory
//! cannot be mapped again: it is the other side's. The port goes on.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use conic_fabric::Time;
use conic_native::{Closer, Held};
use rustix::event::epoll;

use super::channel::Channel;
use super::control::Peer;
use super::message::Message;
use super::parts::Rings;
use super::ring::{Place as RingPlace, Regions, Ring, Side};
use super::session::Link;
use super::{Memif, MemifOptions, Place};
use crate::legacy::{Heir, broken};
use crate::peer::socket::Listener;
use crate::peer::{Role, SocketError, map_region, ring_peer, watch};
use crate::{Legacy, PortError};

impl Memif {
    /// Stops here. A handshake that is under way ends; the other side begins it anew with whoever goes on.
    pub(super) fn pass_on(&mut self) -> io::Result<Legacy> {
        let mut legacy = Legacy::default();
        let several = match &mut self.place {
            Place::First { control, others } => {
                legacy.words.push(u64::from(control.door.listener.is_some()));
                legacy.descriptors.extend(control.door.listener.take().map(Listener::into_descriptor).transpose()?);
                let Some((channel, peer)) = control.stop(&self.waiter) else {
                    legacy.words.extend([0; 3]);
                    return Ok(legacy);
                };
                legacy.peer = peer.name;
                legacy.words.push(peer.memory.len() as u64);
                legacy.descriptors.push(channel.into_descriptor()?);
                legacy.descriptors.extend(peer.memory.into_iter().map(Held::into_inner));
                others.count() > 0
            }
            Place::Other(first) => {
                // What it has been given last it has not begun with; what has been taken from it has ended.
                if let Some(order) = first.order() {
                    self.rings = order;
                }
                legacy.words.push(self.rings.as_ref().map_or(0, |rings| rings.session));
                false
            }
        };
        let Some(rings) = self.rings.take() else {
            legacy.words.extend([0; 2]);
            return Ok(legacy);
        };
        let Rings { session, regions, receive, transmit } = rings;
        legacy.words.extend([receive.len(), transmit.len()].map(|count| count as u64));
        if let Place::First { .. } = self.place {
            legacy.words.extend(regions.0.iter().map(|region| region.bytes() as u64));
        }
        let receive = receive.into_iter().map(|mut link| {
            link.ring.release(&regions);
            link
        });
        let transmit = transmit.into_iter().map(|mut link| {
            if link.ring.show(&regions) {
                ring_peer(self.ringer.as_deref(), &link.interrupt);
            }
            link
        });
        for Link { ring, interrupt } in receive.chain(transmit) {
            legacy.words.extend(ring.position());
            legacy.descriptors.push(interrupt.into_inner());
        }
        legacy.words.extend(several.then_some(session));
        Ok(legacy)
    }

    /// Goes on with the parts of the port of another process, which had the same options.
    ///
    /// # Errors
    /// What was given is not of such a port.
    pub fn inherit(options: &MemifOptions, legacies: Vec<Legacy>) -> Result<Vec<Memif>, PortError> {
        let failed = |error| SocketError::of("memif", &options.socket, error);
        Ok(Memif::of_heirs(options, legacies.into_iter().map(Heir::of).collect()).map_err(failed)?)
    }

    fn of_heirs(options: &MemifOptions, mut heirs: Vec<Heir>) -> io::Result<Vec<Memif>> {
        let (count, first) = (heirs.len(), heirs.first_mut().ok_or_else(broken)?);
        let listens = first.number::<u8>()? == 1;
        if listens != (options.role == Role::Server) {
            return Err(broken());
        }
        let closer = Closer::start()?;
        let listener =
            if listens { Some(Listener::inherit(first.descriptor()?, &options.socket, &closer)) } else { None };
        let mut parts = Memif::with_listener(options, count, listener, &closer)?;
        let regions = first.number::<usize>()?;
        if regions > 0 {
            let channel = Channel::of_descriptor(first.descriptor()?, &closer);
            match session(options, heirs, regions, &closer)? {
                Ok((peer, rings)) => {
                    parts[0].resume(channel, peer)?;
                    // At once in all of them: what is sent to one is not to find it without rings.
                    parts.iter_mut().zip(rings).for_each(|(part, rings)| part.take_up(Time::ZERO, rings));
                }
                // It may be gone; then it needs no reason. Otherwise it comes again.
                Err(why) => drop(channel.send(&Message::disconnect(why).write(), None)),
            }
        }
        Ok(parts)
    }

    /// Goes on with a session's control channel, as the first part of the port.
    fn resume(&mut self, channel: Channel, peer: Peer) -> io::Result<()> {
        let Place::First { control, .. } = &mut self.place else { return Err(broken()) };
        watch(&self.waiter, channel.as_fd(), epoll::EventFlags::IN)?;
        control.resume(channel, peer);
        self.counts.sessions = FIRST_SESSION;
        Ok(())
    }
}

/// The number of a session that another process had.
const FIRST_SESSION: u64 = 1;

/// The session, with so many regions: the peer and each part's rings, or why it ends here. What the other side can bring about ends
/// its session and nothing else: the port is there for whoever comes next.
fn session(
    options: &MemifOptions,
    heirs: Vec<Heir>,
    regions: usize,
    closer: &Closer,
) -> io::Result<Result<(Peer, Vec<Rings>), &'static str>> {
    let mut heirs = heirs.into_iter();
    let mut first = heirs.next().ok_or_else(broken)?;
    let several = heirs.len() > 0;
    let mut peer = Peer { name: std::mem::take(&mut first.peer), ..Peer::default() };
    let own = [first.number::<usize>()?, first.number()?];
    let mut all = Regions::default();
    for _ in 0..regions {
        let (bytes, memory) = (first.number()?, Held::passed(first.descriptor()?, closer));
        // What the other process had checked is checked again, and may have changed: the memory is the other side's.
        match map_region(0, bytes, &memory, options.unsealed) {
            Ok((region, _)) => all.0.push(region),
            Err(why) => return Ok(Err(why)),
        }
        peer.memory.push(memory);
    }
    let regions = Arc::new(all);
    let mut dealt = vec![rings(&mut first, options, &regions, own, closer)?];
    let which = if several { first.number::<u64>()? } else { FIRST_SESSION };
    for mut heir in heirs {
        if heir.number::<u64>()? != which {
            return Ok(Err("the session has ended in a take-over"));
        }
        let own = [heir.number::<usize>()?, heir.number()?];
        dealt.push(rings(&mut heir, options, &regions, own, closer)?);
    }
    let sum = |count: fn(&Rings) -> usize| dealt.iter().map(count).sum();
    peer.rings = (sum(|rings| rings.receive.len()), sum(|rings| rings.transmit.len()));
    Ok(Ok((peer, dealt)))
}

/// So many receiving and sending rings of a part.
fn rings(
    heir: &mut Heir,
    options: &MemifOptions,
    regions: &Arc<Regions>,
    [receive, transmit]: [usize; 2],
    closer: &Closer,
) -> io::Result<Rings> {
    let mut links = |count: usize| -> io::Result<Vec<Link>> {
        let one = |_| {
            let ring = ring(heir, options, regions)?;
            Ok(Link { ring, interrupt: Held::passed(heir.descriptor()?, closer) })
        };
        (0..count).map(one).collect()
    };
    let (receive, transmit) = (links(receive)?, links(transmit)?);
    Ok(Rings { session: FIRST_SESSION, regions: Arc::clone(regions), receive, transmit })
}

fn ring(heir: &mut Heir, options: &MemifOptions, regions: &Regions) -> io::Result<Ring> {
    let place = RingPlace { region: heir.number()?, offset: heir.number()?, log2_slots: heir.number()? };
    let next = heir.number()?;
    let (buffers, buffer_bytes) = (heir.number()?, heir.number()?);
    let side = match options.role {
        Role::Server => Side::Server,
        Role::Client => Side::Client { buffers, buffer_bytes },
    };
    // It had its cookie when the session began. By now the other side may have written there what it likes, as into the rest of a ring.
    if place.is_in(regions) { Ok(Ring::new(place, side).at_slot(next)) } else { Err(broken()) }
}
