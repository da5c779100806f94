//! How a frame gets to whom it goes: in which form, into which queue.

use conic_fabric::{Core, Time};
use conic_interface::ccnic::notify::PACKETS;
use conic_interface::ccnic::{Descriptor, Flags, MAX_SEGMENTS};
use conic_interface::metadata::Metadata;
use conic_port::offload::rss::{Ports, Toeplitz};
use conic_port::offload::vlan::{TAG_BYTES, Tag, insert, strip};
use conic_port::{MIN_FRAME, PortError, Transmit};

use super::header::Header;
use super::member::{Lane, Member};
use super::offload::{Told, Work};
use super::table::Place;
use super::{BURST, Ring, Switch};

/// Entries of a NIC's table from hashes to queues; here entry `i` is queue `i` modulo their number.
const INDIRECTIONS: usize = 512;

/// Bytes of a frame's two addresses, behind which a tag stands.
pub(super) const ADDRESSES: usize = 12;

/// Who gets a frame.
#[derive(Clone, Copy)]
pub(super) enum Targets {
    One(Place),
    AllBut(Place),
}

impl Targets {
    fn include(&self, place: Place) -> bool {
        match *self {
            Targets::One(one) => one == place,
            // Split horizon: each thread has a trunk to each other, so that what came by one has no need of another.
            Targets::AllBut(Place::Trunk(_)) => place.is_here(),
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

impl Tagging {
    /// In which form such a frame gets to a member of a VLAN, or to who passes tags.
    pub fn form_for(&self, own: Option<u16>) -> Form {
        form(own, self.vlan, self.tag)
    }
}

/// Where a frame goes.
#[derive(Clone, Copy)]
pub(super) struct Route {
    pub from: Place,
    pub targets: Targets,
    /// Its VLAN, where there are some; without, everybody gets it as it is.
    pub tagging: Option<Tagging>,
    /// A client and the queue that this flow is to go to there.
    pub pinned: Option<(Place, Option<u32>)>,
    /// What is known of it.
    pub known: Metadata,
    /// What is left to do for it: it goes to whoever takes it so.
    pub work: Option<Work>,
    /// Whoever takes it unfinished has it already.
    pub served: bool,
    /// Its bytes where it stands for several frames, or is one of those that it was cut into; else 0.
    pub large: usize,
    /// The station that it is for, where nobody is known to have that: it goes to those who may.
    pub stray: Option<[u8; 6]>,
}

impl Route {
    /// To these, of a frame that is finished and of which nothing is known.
    pub fn to(from: Place, targets: Targets, tagging: Option<Tagging>, pinned: Option<(Place, Option<u32>)>) -> Route {
        let known = Metadata::NONE;
        Route { from, targets, tagging, pinned, known, work: None, served: false, large: 0, stray: None }
    }

    /// The queue of a client that the flow is pinned to.
    #[inline(always)]
    pub fn pinned_at(&self, place: Place) -> Option<u32> {
        self.pinned.as_ref().and_then(|pinned| pinned_at(pinned, place))
    }
}

/// The queue, if it is of this client. Not inlined: read beside whether there is one, it would be a wider word than was just stored, and
/// such a load waits until the store has reached the cache.
#[cold]
#[inline(never)]
fn pinned_at((pinned, queue): &(Place, Option<u32>), place: Place) -> Option<u32> {
    queue.filter(|_| *pinned == place)
}

/// How a queue of a port has sent of late: its failure is told once, until it has sent something again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lately {
    /// Since it was flushed last it took a frame, or failed.
    accepted: bool,
    failed: bool,
    /// Its failure was told.
    told: bool,
}

impl Lately {
    #[cold]
    fn fails(&mut self, error: PortError, failures: &mut Vec<PortError>) {
        self.failed = true;
        if !self.told {
            self.told = true;
            failures.push(error);
        }
    }

    /// Enters that it has failed otherwise, which was told: who then sends into it learns nothing new.
    #[cold]
    pub fn note_told(&mut self) {
        self.told = true;
    }

    /// Enters that it has let go of what it took.
    fn note_flush(&mut self) {
        let Lately { accepted, failed, told } = *self;
        *self = Lately { told: told && (failed || !accepted), ..Lately::default() };
    }
}

/// From whom a frame comes to which queue of a client, who has this slot.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub from: Place,
    pub slot: usize,
    pub queue: usize,
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
        if let (Some(station), Place::Client(slot)) = (route.stray, place)
            && !self.may_be_behind(slot, station)
        {
            return Form::Never;
        }
        if let (Targets::AllBut(from), Place::Port(port)) = (route.targets, place)
            && !self.is_asked(from, port as usize)
        {
            return Form::Never;
        }
        let form = self.form_of_tags(route, place);
        if !route.served && route.work.is_none() {
            return form;
        }
        let takes = form == Form::AsItIs && self.takes_unfinished(place, route.large);
        match route.served {
            true if takes => Form::Never,
            false if !takes => Form::Never,
            _ => form,
        }
    }

    #[inline(always)]
    fn form_of_tags(&self, route: &Route, place: Place) -> Form {
        let Some(Tagging { vlan, tag }) = route.tagging else { return Form::AsItIs };
        let own = match place {
            Place::Client(slot) => match &self.members[slot as usize] {
                Some(member) => member.rules.vlan,
                None => return Form::Never,
            },
            Place::Port(port) => self.ports[port as usize].vlan,
            // Its VLAN is said beside it.
            Place::Trunk(_) | Place::Away(_) => return Form::AsItIs,
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

    /// Every place that there is: all that is behind a trunk is one.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> + use<C> {
        let clients = (0..self.members.len() as u32).map(Place::Client);
        let ports = (0..self.ports.len() as u32).map(Place::Port);
        clients.chain(ports).chain((0..self.trunks.len() as u32).map(Place::Trunk))
    }

    /// Sends the frame that lies here out of a port, with what is left to do for it: frames of one flow by one of its queues.
    pub(super) fn send(&mut self, now: Time, to: usize, length: usize, work: Option<&Work>) {
        let end = &mut self.ports[to];
        let index = match end.queues.len() {
            1 => 0,
            queues => (crate::flow_hash(&self.frame[..length]) % queues.max(1) as u64) as usize,
        };
        let Some(queue) = end.queues.get_mut(index) else {
            // It was to come from another daemon, and did not.
            end.counters.dropped_failed += 1;
            return;
        };
        end.unflushed = true;
        let lately = &mut end.lately[index];
        let sent = match work {
            None => queue.transmit(now, &self.frame[..length]),
            Some(work) => queue.transmit_unfinished(now, &self.frame[..length], work.for_port()),
        };
        match sent {
            Ok(Transmit::Accepted) => lately.accepted = true,
            Ok(Transmit::Full) => end.counters.dropped_full += 1,
            Ok(Transmit::Refused) => end.counters.dropped_refused += 1,
            Err(error) => {
                end.counters.dropped_failed += 1;
                lately.fails(error, &mut end.failures);
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
    pub(super) fn send_in_form(
        &mut self,
        now: Time,
        route: &Route,
        header: &Header,
        length: usize,
        wanted: Form,
    ) -> bool {
        if let Targets::One(place) = route.targets {
            return self.send_to(now, route, place, header, length, wanted) == Form::Changed;
        }
        let (mut changed, mut copies) = (false, 0);
        for place in self.places() {
            let form = self.send_to(now, route, place, header, length, wanted);
            changed |= form == Form::Changed;
            copies += usize::from(form == wanted);
        }
        self.note_flood(copies, length);
        changed
    }

    /// Sends it to one of them; in which form that one gets it.
    #[inline(always)]
    fn send_to(
        &mut self,
        now: Time,
        route: &Route,
        place: Place,
        header: &Header,
        length: usize,
        wanted: Form,
    ) -> Form {
        let form = self.form_at(route, place);
        if form == wanted {
            self.show(now, place, length);
            match place {
                Place::Client(to) => self.deliver(to as usize, route, header, length),
                Place::Port(to) => self.send(now, to as usize, length, route.work.as_ref()),
                Place::Trunk(_) | Place::Away(_) => self.send_across(route, place, length),
            }
        }
        form
    }

    /// Copies the frame that lies here into a client's region, with what the client is told of it.
    fn deliver(&mut self, to: usize, route: &Route, header: &Header, length: usize) {
        let Some(receiver) = &mut self.members[to] else { return };
        let (queue, hash) = receiver.queue_of(header, route.pinned_at(Place::Client(to as u32)), &self.toeplitz);
        let (offloads, frame) = (receiver.rules.offloads, &self.frame[..length]);
        let tag = offloads.stripped(frame);
        let left = if tag.is_some() { length - TAG_BYTES } else { length };
        // What must be filled up could not be joined to.
        let joinable = route.work.is_none() && left >= MIN_FRAME;
        let way = Way { from: route.from, slot: to, queue };
        if offloads.join && receiver.join(way, frame, joinable, &self.toeplitz, &mut self.dirty) {
            return;
        }
        let mut metadata = Metadata::NONE;
        if offloads.requests {
            metadata = offloads.describe(frame, route.known, tag);
            metadata = hash.map_or(metadata, |hash| metadata.with_hash(hash));
        }
        let stands_for_several = route.work.is_some_and(|work| work.is_to_be_cut());
        if stands_for_several && left > receiver.largest_room() {
            if tag.is_some() {
                strip(&mut self.frame[..length]);
            }
            receiver.copy_in_pieces(way, &self.frame[..left], metadata, 1, &mut self.dirty);
            if let Some(tag) = tag {
                // What lies here goes to others too, and is then cut for the rest.
                insert(&mut self.frame[..], left, tag);
            }
            return;
        }
        if tag.is_none() {
            return receiver.copy_in(way, frame, metadata, &mut self.dirty);
        }
        let bytes = left.max(MIN_FRAME);
        let Some((target, at)) = receiver.make_room(way, bytes as u64, &mut self.dirty) else { return };
        let core = target.wire.nic().core();
        core.write_bytes(at, &frame[..ADDRESSES]);
        core.write_bytes(at + ADDRESSES as u64, &frame[ADDRESSES + TAG_BYTES..]);
        core.write_bytes(at + left as u64, &[0; TAG_BYTES][..bytes - left]);
        target.push(Descriptor::new(at, bytes as u16).with_metadata(metadata.0));
        receiver.counters.received_frames += 1;
        receiver.counters.received_bytes += bytes as u64;
    }

    /// Delivers what was copied, and lets ports send.
    pub(super) fn flush(&mut self, now: Time) {
        if self.has_joiners {
            for (slot, member) in self.members.iter_mut().enumerate() {
                if let Some(member) = member.as_mut().filter(|member| member.holds_joined()) {
                    member.let_go_of_joined(slot, &self.toeplitz, &mut self.dirty);
                }
            }
        }
        for (slot, queue) in self.dirty.drain(..) {
            let Some(member) = &mut self.members[slot as usize] else { continue };
            let lane = &mut member.lanes[queue as usize];
            lane.flush();
            if member.notices.must_ring(lane.wire.core(), queue as usize, PACKETS) {
                self.rings.push(Ring::Client { session: member.session, queue });
            }
        }
        if !self.trunks.is_empty() {
            self.flush_trunks();
        }
        for end in &mut self.ports {
            if !std::mem::take(&mut end.unflushed) {
                continue;
            }
            for (queue, lately) in end.queues.iter_mut().zip(&mut end.lately) {
                if let Err(error) = queue.flush(now) {
                    lately.fails(error, &mut end.failures);
                }
                lately.note_flush();
            }
        }
    }
}

impl<C: Core> Member<C> {
    /// The queue that a frame for this client goes to, and the hash of its flow if the client is told that.
    #[inline(always)]
    pub(super) fn queue_of(&self, header: &Header, pinned: Option<u32>, toeplitz: &Toeplitz) -> (usize, Option<u32>) {
        let (lanes, told) = (self.lanes.len(), self.rules.offloads.are_hashed());
        if lanes == 1 && !told {
            return (0, None);
        }
        let hash = toeplitz.hash_beginning(header.bytes(), header.whole(), Ports::default());
        let queue = match pinned {
            Some(queue) if (queue as usize) < lanes => queue as usize,
            // What is no IP packet has no flow, and goes to the first.
            _ => hash.unwrap_or(0) as usize % INDIRECTIONS % lanes,
        };
        (queue, hash.filter(|_| told))
    }

    /// A place in a queue's burst and a buffer for a frame; counts why there is none.
    #[inline(always)]
    pub(super) fn make_room(
        &mut self,
        way: Way,
        length: u64,
        dirty: &mut Vec<(u32, u32)>,
    ) -> Option<(&mut Lane<C>, conic_fabric::Address)> {
        let Way { from, slot, queue } = way;
        let left = self.left_by(queue, from);
        let lane = &mut self.lanes[queue];
        if lane.waiting == BURST {
            lane.flush();
        }
        let wanted = lane.waiting + 1 + left;
        if lane.wire.nic().rx_room(wanted) < wanted {
            self.counters.dropped_full += 1;
            self.has_no_room(queue, from);
            return None;
        }
        let Some(at) = lane.wire.nic().rx_alloc(length) else {
            self.counters.dropped_no_buffer += 1;
            // What no buffer of this client holds finds none however many others leave.
            if length <= self.largest_room() as u64 {
                self.has_no_buffer(queue, from);
            }
            return None;
        };
        let lane = &mut self.lanes[queue];
        if lane.waiting == 0 {
            dirty.push((slot as u32, queue as u32));
        }
        Some((lane, at))
    }
}

impl<C: Core> Member<C> {
    /// Copies a frame of at least the shortest length into a queue's region; counts why it cannot be.
    #[inline(always)]
    pub(super) fn copy_in(&mut self, way: Way, frame: &[u8], metadata: Metadata, dirty: &mut Vec<(u32, u32)>) {
        let Some((target, at)) = self.make_room(way, frame.len() as u64, dirty) else { return };
        target.wire.nic().core().write_bytes(at, frame);
        target.push(Descriptor::new(at, frame.len() as u16).with_metadata(metadata.0));
        self.counters.received_frames += 1;
        self.counters.received_bytes += frame.len() as u64;
    }

    /// The same of a packet that no buffer may hold, in a chain of them; it stands for so many `frames` that came by themselves.
    pub(super) fn copy_in_pieces(
        &mut self,
        way: Way,
        packet: &[u8],
        metadata: Metadata,
        frames: u64,
        dirty: &mut Vec<(u32, u32)>,
    ) {
        let Way { from, slot, queue } = way;
        let wanted = MAX_SEGMENTS + self.left_by(queue, from);
        let lane = &mut self.lanes[queue];
        // Alone at the front of a burst, so that the chain is in one slot.
        lane.flush();
        let nic = lane.wire.nic();
        let room = nic.largest_room().min(packet.len());
        if nic.rx_room(wanted) < wanted {
            self.counters.dropped_full += frames;
            return self.has_no_room(queue, from);
        }
        let pieces = packet.len().div_ceil(room.max(1));
        let mut chain = [Descriptor::BLANK; MAX_SEGMENTS];
        let mut filled = 0;
        for (piece, out) in packet.chunks(room.max(1)).zip(&mut chain) {
            let Some(at) = nic.rx_alloc(piece.len() as u64) else { break };
            nic.core().write_bytes(at, piece);
            *out = Descriptor::new(at, piece.len() as u16).with(Flags::NEXT);
            filled += 1;
        }
        if filled < pieces {
            chain[..filled].iter().for_each(|piece| nic.rx_free(piece.address()));
            self.counters.dropped_no_buffer += frames;
            return self.has_no_buffer(queue, from);
        }
        chain[0] = chain[0].with_metadata(metadata.0);
        chain[filled - 1] = chain[filled - 1].without(Flags::NEXT);
        dirty.push((slot as u32, queue as u32));
        chain[..filled].iter().for_each(|&piece| lane.push(piece));
        self.counters.received_frames += 1;
        self.counters.received_bytes += packet.len() as u64;
        self.counters.joined_frames += frames - 1;
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
