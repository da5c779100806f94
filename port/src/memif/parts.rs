//! A port's parts, each of which a thread of its own may serve: the first has the control channel, and deals a session's rings.
//!
//! Parts share nothing but the memory of a session. What the first tells the others, and they it, goes through channels that
//! nobody waits for; whoever is told something has a bell in what it sleeps on.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{EventfdFlags, epoll, eventfd};

use super::ring::Regions;
use super::session::{Link, Session};
use crate::peer::{ring_bell, watch};

/// The rings of a session that one part has, and the memory that all of its rings lie in.
#[derive(Debug)]
pub(super) struct Rings {
    /// Which session of the port it is, from 1.
    pub(super) session: u64,
    pub(super) regions: Arc<Regions>,
    pub(super) receive: Vec<Link>,
    pub(super) transmit: Vec<Link>,
}

impl Rings {
    /// Deals a session's rings to so many parts: ring `n` of either direction to part `n` modulo their number.
    pub(super) fn deal(number: u64, session: Session, parts: usize) -> Vec<Rings> {
        let Session { regions, receive, transmit, .. } = session;
        let (session, regions) = (number, Arc::new(regions));
        let none = || Rings { session, regions: Arc::clone(&regions), receive: Vec::new(), transmit: Vec::new() };
        let mut dealt: Vec<Rings> = (0..parts).map(|_| none()).collect();
        receive.into_iter().enumerate().for_each(|(number, link)| dealt[number % parts].receive.push(link));
        transmit.into_iter().enumerate().for_each(|(number, link)| dealt[number % parts].transmit.push(link));
        dealt
    }

    /// Readies the rings that are received from.
    pub(super) fn begin(&self, waiter: &OwnedFd) -> io::Result<()> {
        for link in &self.receive {
            link.ring.post(&self.regions);
            link.ring.interrupt(&self.regions, false);
            // Told once for each time that it is written: it is never read, which could be made to wait.
            watch(waiter, link.interrupt.as_fd(), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        }
        Ok(())
    }

    /// Waits for these rings no longer. The other side has the same descriptors: closing ours alone would leave them in the waiter.
    pub(super) fn leave(&self, waiter: &OwnedFd) {
        for link in &self.receive {
            // One that was never added needs not be removed.
            let _ = epoll::delete(waiter, &link.interrupt);
        }
    }
}

/// What a part says of a session that it cannot go on with.
#[derive(Debug)]
pub(super) struct Complaint {
    pub(super) session: u64,
    pub(super) why: &'static str,
}

/// What the first part has of the others.
#[derive(Debug)]
pub(super) struct Others {
    orders: Vec<(Sender<Option<Rings>>, Arc<OwnedFd>)>,
    complaints: Receiver<Complaint>,
}

impl Others {
    /// Gives each its rings, in order.
    pub(super) fn give(&self, rings: impl IntoIterator<Item = Rings>) {
        self.orders.iter().zip(rings).for_each(|(other, rings)| tell(other, Some(rings)));
    }

    /// How many others there are.
    pub(super) fn count(&self) -> usize {
        self.orders.len()
    }

    /// Takes a session's rings from all.
    pub(super) fn stop(&self) {
        self.orders.iter().for_each(|other| tell(other, None));
    }

    /// What one of them says about this session, if there is something.
    pub(super) fn complaint(&self, session: u64) -> Option<&'static str> {
        self.complaints.try_iter().find(|complaint| complaint.session == session).map(|complaint| complaint.why)
    }
}

fn tell((other, bell): &(Sender<Option<Rings>>, Arc<OwnedFd>), order: Option<Rings>) {
    // One that has stopped for good needs no rings; the session then ends with the first part.
    if other.send(order).is_ok() {
        ring_bell(bell);
    }
}

/// What another part has of the first.
#[derive(Debug)]
pub(super) struct First {
    orders: Receiver<Option<Rings>>,
    complaints: Sender<Complaint>,
    bell: Arc<OwnedFd>,
}

impl First {
    /// What the first part has said since the last look, the last word of it: other rings, or none.
    pub(super) fn order(&self) -> Option<Option<Rings>> {
        self.orders.try_iter().last()
    }

    /// Says that a session cannot go on.
    pub(super) fn complain(&self, complaint: Complaint) {
        // A first part that is gone has ended the session.
        if self.complaints.send(complaint).is_ok() {
            ring_bell(&self.bell);
        }
    }
}

/// Joins parts by what each of them sleeps on, that of the first one first: what it has of the others, and what each of these has of it.
pub(super) fn join(waiters: &[OwnedFd]) -> io::Result<(Others, Vec<First>)> {
    let bell = |waiter| {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Told once for each time that it is written: nobody reads it.
        watch(waiter, bell.as_fd(), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        io::Result::Ok(Arc::new(bell))
    };
    let (complain, complaints) = channel();
    let (mut orders, mut others) = (Vec::new(), Vec::new());
    if let [first, behind @ ..] = waiters
        && !behind.is_empty()
    {
        let of_first = bell(first)?;
        for waiter in behind {
            let (order, taken) = channel();
            orders.push((order, bell(waiter)?));
            others.push(First { orders: taken, complaints: complain.clone(), bell: Arc::clone(&of_first) });
        }
    }
    Ok((Others { orders, complaints }, others))
}
