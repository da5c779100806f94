//! How a frame gets to whom it goes: in which form, into which queue.

use conic_fabric::{Core, Time};
use conic_interface::ccnic::Descriptor;
use conic_interface::ccnic::notify::PACKETS;
use conic_port::offload::rss::{Ports, Toeplitz};
use conic_port::offload::vlan::{TAG_BYTES, Tag, insert, strip};
use conic_port::{MIN_FRAME, Transmit};

use super::header::Header;
use super::member::{Lane, Member};
use super::table::Place;
use super::{BURST, Switch};

/// Entries of a NIC's table from hashes to queues; here entry `i` is queue `i` modulo their number.
const INDIRECTIONS: usize = 512;

/// Who gets a frame.
pub(super) enum Targets {
    One(Place),
    AllBut(Place),
}

impl Targets {
    fn include(&self, place: Place) -> bool {
        match *self {
            Targets::One(one) => one == place,
            Targets::AllBut(from) => from != place,
        }
    }
}

/// A frame's VLAN, and the tag that it came with.
#[derive(Clone, Copy)]
pub(super) struct Tagging {
    pub vlan: u16,
    pub tag: Option<Tag>,
}

/// Where a frame goes.
pub(super) struct Route {
    pub targets: Targets,
    /// Its VLAN, where there are some; without, everybody gets it as it is.
    pub tagging: Option<Tagging>,
    /// A client and the queue that this flow is to go to there.
    pub pinned: Option<(u32, Option<u32>)>,
}

impl Route {
    /// The queue of a client that the flow is pinned to.
    #[inline(always)]
    pub fn pinned_at(&self, slot: usize) -> Option<u32> {
        self.pinned.filter(|(pinned, _)| *pinned as usize == slot).and_then(|(_, queue)| queue)
    }
}

/// How a frame of a VLAN gets to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    AsItIs,
    /// With its tag put in, or taken out.
    Changed,
    /// Not at all.
    Never,
}

/// How a frame of VLAN `vlan`, which came with a tag or without, gets to a place that is a member of `own`, or passes tags.
fn form(own: Option<u16>, vlan: u16, tag: Option<Tag>) -> Form {
    match own {
        Some(own) if own != vlan => Form::Never,
        Some(_) => {
            if tag.is_some() {
                Form::Changed
            } else {
                Form::AsItIs
            }
        }
        None if vlan != 0 && tag.is_none() => Form::Changed,
        None => Form::AsItIs,
    }
}

impl<C: Core> Switch<C> {
    /// In which form a frame gets to a place.
    #[inline(always)]
    pub(super) fn form_at(&self, route: &Route, place: Place) -> Form {
        if !route.targets.include(place) {
            return Form::Never;
        }
        let flooded = matches!(route.targets, Targets::AllBut(_));
        if flooded && !self.wired.is_empty() && self.circuit_of(place).is_some() {
            return Form::Never;
        }
        let Some(Tagging { vlan, tag }) = route.tagging else { return Form::AsItIs };
        let own = match place {
            Place::Client(slot) => match &self.members[slot as usize] {
                Some(member) => member.rules.vlan,
                None => return Form::Never,
            },
            Place::Port(port) => self.ports[port as usize].vlan,
        };
        form(own, vlan, tag)
    }

    /// Whether somebody gets a frame otherwise than it is, or nobody does, who was asked for.
    #[inline(always)]
    pub(super) fn is_changed_on(&self, route: &Route) -> bool {
        if route.tagging.is_none() {
            return false;
        }
        match route.targets {
            Targets::One(place) => self.form_at(route, place) != Form::AsItIs,
            Targets::AllBut(_) => self.places().any(|place| self.form_at(route, place) == Form::Changed),
        }
    }

    /// Every place that there is.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> + use<C> {
        let clients = (0..self.members.len() as u32).map(Place::Client);
        clients.chain((0..self.ports.len() as u32).map(Place::Port))
    }

    /// Sends the frame that lies here out of a port: frames of one flow by one of its queues.
    pub(super) fn send(&mut self, now: Time, to: usize, length: usize) {
        let end = &mut self.ports[to];
        let queue = match end.queues.len() {
            1 => 0,
            queues => (crate::flow_hash(&self.frame[..length]) % queues.max(1) as u64) as usize,
        };
        let Some(queue) = end.queues.get_mut(queue) else { return };
        end.unflushed = true;
        match queue.transmit(now, &self.frame[..length]) {
            Ok(Transmit::Accepted) => {}
            Ok(Transmit::Full) => end.counters.dropped_full += 1,
            Ok(Transmit::Refused) => end.counters.dropped_refused += 1,
            Err(error) => {
                end.counters.dropped_failed += 1;
                end.failures.push(error);
            }
        }
    }

    /// Sends the frame that lies here where it goes: first to whoever gets it as it is, then to those for whom it is changed.
    pub(super) fn send_on(&mut self, now: Time, route: &Route, header: &Header, length: usize) {
        let changed = self.send_in_form(now, route, header, length, Form::AsItIs);
        let Some(Tagging { vlan, tag }) = route.tagging.filter(|_| changed) else { return };
        let length = match tag {
            Some(_) => strip(&mut self.frame[..length]).map(|_| length - TAG_BYTES),
            None => insert(&mut self.frame[..], length, Tag::new(vlan)),
        };
        if let Some(length) = length {
            self.frame[length..length.max(MIN_FRAME)].fill(0);
            let length = length.max(MIN_FRAME);
            let header = Header::of_frame(&self.frame[..length]);
            self.send_in_form(now, route, &header, length, Form::Changed);
        }
    }

    /// Sends the frame that lies here to those who get it in this form; whether there are some who get it changed.
    fn send_in_form(&mut self, now: Time, route: &Route, header: &Header, length: usize, wanted: Form) -> bool {
        if let Targets::One(place) = route.targets {
            return self.send_to(now, route, place, header, length, wanted);
        }
        let mut changed = false;
        for place in self.places() {
            changed |= self.send_to(now, route, place, header, length, wanted);
        }
        changed
    }

    #[inline(always)]
    fn send_to(
        &mut self,
        now: Time,
        route: &Route,
        place: Place,
        header: &Header,
        length: usize,
        wanted: Form,
    ) -> bool {
        let form = self.form_at(route, place);
        if form == wanted {
            match place {
                Place::Client(to) => self.deliver(to as usize, route, header, length),
                Place::Port(to) => self.send(now, to as usize, length),
            }
        }
        form == Form::Changed
    }

    /// Copies the frame that lies here into a client's region.
    fn deliver(&mut self, to: usize, route: &Route, header: &Header, length: usize) {
        let Some(receiver) = &mut self.members[to] else { return };
        let queue = receiver.queue_of(header, route.pinned_at(to), &self.toeplitz);
        let Some((target, at)) = receiver.make_room(queue, length as u64, to, &mut self.dirty) else { return };
        target.wire.nic().core().write_bytes(at, &self.frame[..length]);
        target.push(Descriptor::new(at, length as u16));
        receiver.counters.received_frames += 1;
        receiver.counters.received_bytes += length as u64;
    }

    /// Delivers what was copied, and lets ports send.
    pub(super) fn flush(&mut self, now: Time) {
        for (slot, queue) in self.dirty.drain(..) {
            let Some(member) = &mut self.members[slot as usize] else { continue };
            let lane = &mut member.lanes[queue as usize];
            lane.flush();
            if member.notices.must_ring(lane.wire.core(), queue as usize, PACKETS) {
                self.rings.push((member.session, queue));
            }
        }
        for end in &mut self.ports {
            if !std::mem::take(&mut end.unflushed) {
                continue;
            }
            for queue in &mut end.queues {
                if let Err(error) = queue.flush(now) {
                    end.failures.push(error);
                }
            }
        }
    }
}

impl<C: Core> Member<C> {
    /// The queue that a frame for this client goes to.
    #[inline(always)]
    pub(super) fn queue_of(&self, header: &Header, pinned: Option<u32>, toeplitz: &Toeplitz) -> usize {
        match self.lanes.len() {
            1 => 0,
            lanes if pinned.is_some_and(|queue| (queue as usize) < lanes) => pinned.unwrap_or(0) as usize,
            // What is no IP packet has no flow, and goes to the first.
            lanes => {
                toeplitz.hash_beginning(header.bytes(), header.whole(), Ports::default()).unwrap_or(0) as usize
                    % INDIRECTIONS
                    % lanes
            }
        }
    }

    /// A place in a queue's burst and a buffer for a frame; counts why there is none.
    #[inline(always)]
    pub(super) fn make_room(
        &mut self,
        queue: usize,
        length: u64,
        slot: usize,
        dirty: &mut Vec<(u32, u32)>,
    ) -> Option<(&mut Lane<C>, conic_fabric::Address)> {
        let lane = &mut self.lanes[queue];
        if lane.waiting == BURST {
            lane.flush();
        }
        if lane.wire.nic().rx_room(lane.waiting + 1) <= lane.waiting {
            self.counters.dropped_full += 1;
            return None;
        }
        let Some(at) = lane.wire.nic().rx_alloc(length) else {
            self.counters.dropped_no_buffer += 1;
            return None;
        };
        if lane.waiting == 0 {
            dirty.push((slot as u32, queue as u32));
        }
        Some((lane, at))
    }
}

impl<C: Core> Lane<C> {
    #[inline(always)]
    pub(super) fn push(&mut self, packet: Descriptor) {
        self.out[self.waiting] = packet;
        self.waiting += 1;
    }

    /// Delivers what waits; room was asked for before.
    pub(super) fn flush(&mut self) {
        if self.waiting == 0 {
            return;
        }
        let sent = self.wire.nic().rx_burst(&self.out[..self.waiting]);
        debug_assert_eq!(sent, self.waiting, "room was asked for before");
        self.waiting = 0;
    }
}
