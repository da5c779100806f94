//! From where a frame goes on to where.

use conic_fabric::{Core, LINE_BYTES, Line, Time};
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::notify::{PACKETS, ROOM as WAIT_ROOM};
use conic_interface::ccnic::{Descriptor, Flags, MAX_SEGMENTS, PhaseCredit, Wire};
use conic_interface::metadata::Metadata;
use conic_port::offload::rss::Toeplitz;
use conic_port::offload::vlan::Tag;
use conic_port::{MAX_FRAME, MIN_FRAME};

use super::circuit::Party;
use super::deliver::{Form, Route, Tagging, Targets, Way};
use super::header::{ETHERNET_HEADER, HEADER_LINES, Header};
use super::member::Member;
use super::mirror::Mirrored;
use super::record::{Record, copy_frame};
use super::table::Place;
use super::{BURST, Mode, Ring, Switch};

/// A frame on its way: its beginning, in private memory, and where the rest is.
pub(super) struct Passing<'frame> {
    pub lines: &'frame [Line; HEADER_LINES],
    pub header: &'frame Header,
    pub packet: Descriptor,
    pub route: &'frame Route,
}

/// Where the last frame of a burst went. The next one goes there too if its addresses are the same, and what was said beside it where it
/// came by a trunk: nothing else decides, and nothing has happened since.
pub(super) struct Last<S> {
    addresses: [u64; 2],
    said: S,
    /// None where there was none, or more decides.
    pub route: Option<Route>,
    /// It went as it is, and nobody looked at it.
    pub as_it_is: bool,
    /// By which trunk it went, and what was said beside it, where it went by one.
    pub across: Option<(usize, Record)>,
}

impl<S: PartialEq> Last<S> {
    /// None yet.
    pub fn none(said: S) -> Last<S> {
        Last { addresses: [0; 2], said, route: None, as_it_is: false, across: None }
    }

    /// Whether the next one goes where the last one went.
    #[inline(always)]
    pub fn is_of(&self, header: &Header, said: &S) -> bool {
        self.route.is_some() && self.addresses == header.addresses() && self.said == *said
    }

    /// Notes where one went, or that more decides than what is noted.
    pub fn note(&mut self, header: &Header, said: S, route: Option<Route>, as_it_is: bool) {
        *self = Last { addresses: header.addresses(), said, route, as_it_is, across: None };
    }
}

/// Sends a queue's frames back to it, and offers copies. Not inlined: nothing of it is to be in the way of those without a mirror.
#[inline(never)]
fn turn_around_mirrored<C: Core>(
    now: Time,
    wire: &mut Wire<C, PhaseCredit>,
    mirror: &mut Mirrored,
    frame: &mut [u8],
) -> usize {
    wire.turn_around_shown(|core, packet| {
        let frame = &mut frame[..usize::from(packet.length())];
        core.read_bytes(packet.address(), frame);
        mirror.offer(now, frame);
    })
}

/// Full bursts of a queue that are turned around in one turn: what a step costs beside them, most of it reading the clock, is a tenth of
/// one burst of short frames.
const BURSTS_TURNED: u32 = 4;

impl<C: Core> Switch<C> {
    /// Serves a client's queues: bursts from each in turn, until nothing is left or its share of the turn is sent.
    pub(super) fn serve_member(&mut self, now: Time, slot: usize) -> usize {
        let Some(member) = &mut self.members[slot] else { return 0 };
        if member.awake.is_empty() {
            return 0;
        }
        if self.options.mode == Mode::Loopback {
            return self.turn_around(now, slot);
        }
        if !member.begins_turn(now) {
            return 0;
        }
        let mut moved = 0;
        // Passes over its queues, until one leaves nothing. What came meanwhile is the next step's: a look for it that finds nothing, as most do
        // where few frames are under way, would keep from their receivers what is here.
        loop {
            let (mut passed, mut is_over) = (0, true);
            let mut index = 0;
            while let Some(member) = &self.members[slot]
                && let Some(&lane) = member.awake.get(index)
                && member.deficit > 0
            {
                let (frames, is_empty) = self.serve_lane(now, slot, lane as usize);
                passed += frames;
                is_over &= is_empty;
                index += 1;
            }
            moved += passed;
            let Some(member) = &mut self.members[slot] else { break };
            if index < member.awake.len() {
                // Who was not served is the first next time.
                member.awake.rotate_left(index);
            }
            if is_over || member.deficit <= 0 {
                break;
            }
        }
        if moved > 0 {
            self.flush(now);
        }
        moved
    }

    /// Sends each queue's frames back to it.
    fn turn_around(&mut self, now: Time, slot: usize) -> usize {
        let mut moved = 0;
        for index in 0..self.members[slot].as_ref().map_or(0, |member| member.awake.len()) {
            let Some(member) = &mut self.members[slot] else { break };
            if !member.may_send(now) {
                break;
            }
            let queue = member.awake[index] as usize;
            let mut bursts = 0;
            let idle = loop {
                let lane = &mut member.lanes[queue];
                let before = lane.wire.turned().bytes;
                let turned = match self.mirrors.iter_mut().find(|one| one.is_of(Party::Client(member.session))) {
                    None => lane.wire.turn_around(),
                    Some(mirror) => turn_around_mirrored(now, &mut lane.wire, mirror, &mut self.frame),
                };
                let bytes = lane.wire.turned().bytes - before;
                let idle = lane.note(now, turned);
                if turned > 0 {
                    moved += turned;
                    member.has_sent(bytes);
                    if member.notices.must_ring(member.lanes[queue].wire.core(), queue, PACKETS | WAIT_ROOM) {
                        self.rings.push(Ring::Client { session: member.session, queue: queue as u32 });
                    }
                }
                bursts += 1;
                // With room for a whole slot left, nothing more was there.
                if turned + MAX_SEGMENTS <= BURST || bursts == BURSTS_TURNED || !member.may_send(now) {
                    break idle;
                }
            };
            self.note_idle(now, slot, queue, idle);
        }
        if let Some(member) = &mut self.members[slot]
            && moved > 0
            && member.bucket.is_some()
        {
            // Who was not served within the limit is the first next time.
            member.awake.rotate_left(1);
        }
        moved
    }

    /// Takes a burst from a queue and sends each frame on: how many, and whether nothing more was there.
    fn serve_lane(&mut self, now: Time, slot: usize, queue: usize) -> (usize, bool) {
        let Some(member) = &mut self.members[slot] else { return (0, true) };
        // Kept between rounds: clearing it anew costs more than a packet.
        let mut polled = std::mem::take(&mut self.polled);
        let count = member.lanes[queue].wire.nic().poll_tx(&mut polled);
        let idle = member.lanes[queue].note(now, count);
        let (mut start, mut frames, mut bytes, mut last) = (0, 0, 0, Last::none(()));
        self.flooded = 0;
        while start < count {
            let rest = &polled[start..count];
            let segments = rest.iter().take_while(|segment| segment.has(Flags::NEXT)).count() + 1;
            let segments = &rest[..segments.min(rest.len())];
            // One that is too short to be a frame takes as long.
            bytes += self.forward_packet(now, slot, queue, segments, &mut last).max(MIN_FRAME) as u64;
            start += segments.len();
            frames += 1;
        }
        if let Some(member) = &mut self.members[slot] {
            let lane = &mut member.lanes[queue];
            // Also where nothing was polled: what was refused took slots, and they go back.
            lane.wire.nic().complete_tx(&polled[..count]);
            if count > 0 && member.notices.must_ring(lane.wire.core(), queue, WAIT_ROOM) {
                self.rings.push(Ring::Client { session: member.session, queue: queue as u32 });
            }
            member.has_sent(bytes);
            member.has_flooded(self.flooded);
        }
        self.polled = polled;
        self.note_idle(now, slot, queue, idle);
        // With room for a whole slot left.
        (frames, count + MAX_SEGMENTS <= BURST)
    }

    /// Sends a client's packet on, given by its segments, the `last` one of the same burst known; the bytes for which it stands.
    fn forward_packet(
        &mut self,
        now: Time,
        slot: usize,
        lane: usize,
        segments: &[Descriptor],
        last: &mut Last<()>,
    ) -> usize {
        let Some(member) = &mut self.members[slot] else { return 0 };
        let request = Metadata(segments[0].metadata);
        if request != Metadata::NONE && member.rules.offloads.requests {
            last.route = None;
            return self.forward_request(now, slot, lane, segments, request);
        }
        let length: usize = segments.iter().map(|segment| usize::from(segment.length())).sum();
        if !(ETHERNET_HEADER..=MAX_FRAME).contains(&length) {
            member.counters.dropped_length += 1;
            return length;
        }
        member.counters.sent_frames += 1;
        member.counters.sent_bytes += length as u64;
        let core = member.lanes[lane].wire.nic().core();
        let (from, packet) = (Place::Client(slot as u32), segments[0]);
        let in_one_piece = segments.len() == 1 && packet.address().is_line_aligned() && length >= MIN_FRAME;
        if !in_one_piece || !self.mirrors.is_empty() {
            gather(core, segments, &mut self.frame);
            last.route = None;
            self.forward_frame(now, from, length.max(MIN_FRAME));
            return length;
        }
        // Each is read into registers: a line that is changed where it lies is stored and loaded again before its next use.
        let first = core.read_line(packet.address());
        let second = if length > LINE_BYTES as usize { core.read_line(packet.address().lines(1)) } else { Line::ZERO };
        let lines = [first, second];
        let header = Header::of_lines(&lines, length);
        if !last.is_of(&header, &()) {
            let route = self.route(now, from, &header);
            self.begin_run(&header, route, last);
        }
        // Taken out of the option it would be copied, a line at a time, from what was just stored in parts, and such a load waits
        // until all of it has reached the cache: that was a third of a frame's time.
        if let Some(route) = &last.route {
            let passing = Passing { lines: &lines, header: &header, packet, route };
            match &last.across {
                _ if !last.as_it_is => self.forward_along(now, slot, lane, &passing),
                Some(across) => self.carry_along(slot, lane, across, &passing),
                None => self.forward_as_it_is(now, slot, lane, &passing),
            }
            if !self.is_by_addresses() {
                last.route = None;
            }
        }
        length
    }

    /// Notes where a frame goes, and with it those behind that have the same addresses.
    #[inline(never)]
    fn begin_run(&self, header: &Header, route: Option<Route>, last: &mut Last<()>) {
        let as_it_is = route.as_ref().is_some_and(|route| !self.is_changed_on(route) && !self.is_looked_at(route));
        last.note(header, (), route, as_it_is);
        if let Some(route) = &last.route
            && let Targets::One(place) = route.targets
        {
            last.across = self.record(route, place);
        }
    }

    /// Whether a client's next frame goes where its last one did if both have the same addresses.
    fn is_by_addresses(&self) -> bool {
        !self.has_vlans && self.pinned.is_empty()
    }

    /// Sends a client's packet of one piece on, of which it is known where it goes.
    #[inline(always)]
    fn forward_along(&mut self, now: Time, slot: usize, lane: usize, passing: &Passing<'_>) {
        let Passing { header, route, packet, .. } = passing;
        let length = usize::from(packet.length());
        let changed = self.is_changed_on(route);
        if let (true, Targets::One(Place::Client(to)), Some(tagging)) = (changed, route.targets, route.tagging)
            && self.form_at(route, Place::Client(to)) == Form::Changed
            && !self.is_looked_at(route)
        {
            return self.pass_retagged(slot, lane, to as usize, passing, tagging);
        }
        if changed || self.is_looked_at(route) {
            self.lay_out(slot, lane, passing);
            return self.send_on(now, route, header, length);
        }
        self.forward_as_it_is(now, slot, lane, passing);
    }

    /// The same where everybody gets it as it is, and nobody looks at it.
    #[inline(always)]
    fn forward_as_it_is(&mut self, now: Time, slot: usize, lane: usize, passing: &Passing<'_>) {
        let route = passing.route;
        match route.targets {
            Targets::One(Place::Client(to)) => self.pass(slot, lane, to as usize, passing),
            Targets::One(Place::Port(to)) => self.leave(now, slot, lane, to as usize, passing),
            Targets::One(away) => self.carry(slot, lane, away, passing),
            Targets::AllBut(_) => {
                let mut copies = self.trunks.len();
                for to in 0..self.members.len() {
                    if self.form_at(route, Place::Client(to as u32)) == Form::AsItIs {
                        self.pass(slot, lane, to, passing);
                        copies += 1;
                    }
                }
                for to in 0..self.ports.len() {
                    if self.form_at(route, Place::Port(to as u32)) == Form::AsItIs {
                        self.leave(now, slot, lane, to, passing);
                        copies += 1;
                    }
                }
                for to in 0..self.trunks.len() {
                    self.carry(slot, lane, Place::Trunk(to as u32), passing);
                }
                self.note_flood(copies, passing.packet.length().into());
            }
        }
    }

    /// Enters that a frame of so many bytes was copied so often.
    pub(super) fn note_flood(&mut self, copies: usize, length: usize) {
        self.flooded += (copies.saturating_sub(1) * length) as u64;
    }

    /// Where a frame goes, and in which form; none if it goes nowhere, which is counted. Learns where its sender is.
    pub(super) fn route(&mut self, now: Time, from: Place, header: &Header) -> Option<Route> {
        if let Place::Client(slot) = from
            && let Some(member) = &mut self.members[slot as usize]
            && member.rules.own_address_only
            && header.source() != member.rules.mac
        {
            member.counters.dropped_spoofed += 1;
            return None;
        }
        if !self.wired.is_empty()
            && let Some(other) = self.circuit_of(from)
        {
            if other.is_none() {
                self.count_no_way(from);
            }
            return other.map(|other| Route::to(from, Targets::One(other), None, None));
        }
        let (vlan, tagging) = if self.has_vlans {
            let tag = Tag::of(header.bytes());
            let vlan = self.vlan_of(from, tag)?;
            (vlan, Some(Tagging { vlan, tag }))
        } else {
            (0, None)
        };
        if !header.is_from_multicast() {
            self.table.learn(now, header.from(vlan), from);
        }
        let pinned = if self.pinned.is_empty() { None } else { self.pin_of(header, vlan, from) };
        if header.is_multicast() {
            return Some(Route::to(from, Targets::AllBut(from), tagging, pinned));
        }
        let place = match pinned {
            Some((place, _)) => Some(place),
            None => self.table.find(now, header.to(vlan)),
        };
        match place {
            Some(place) if place == from || !self.wired.is_empty() && self.circuit_of(place).is_some() => {
                self.count_no_way(from);
                None
            }
            Some(place) => Some(Route::to(from, Targets::One(place), tagging, pinned)),
            None => self.ask_for(from, header, tagging),
        }
    }

    /// The client that is to get a frame's flow, and the queue if that is said too.
    #[inline(never)]
    fn pin_of(&self, header: &Header, vlan: u16, from: Place) -> Option<(Place, Option<u32>)> {
        self.pinned.find(header, vlan, from)
    }

    pub(super) fn count_no_way(&mut self, from: Place) {
        match from {
            Place::Client(slot) => {
                if let Some(member) = &mut self.members[slot as usize] {
                    member.counters.dropped_no_way += 1;
                }
            }
            Place::Port(port) => self.ports[port as usize].counters.dropped_no_way += 1,
            Place::Trunk(trunk) => self.trunks[trunk as usize].counters.dropped_no_way += 1,
            // What another thread serves sends there.
            Place::Away(_) => {}
        }
    }

    /// Copies a frame from a client's region to another's.
    fn pass(&mut self, slot: usize, lane: usize, to: usize, passing: &Passing<'_>) {
        let Ok([Some(sender), Some(receiver)]) = self.members.get_disjoint_mut([slot, to]) else { return };
        let from = sender.lanes[lane].wire.nic().core();
        receiver.copy_over(to, from, passing, &self.toeplitz, &mut self.dirty);
    }

    /// Copies a frame from a client's region to here; its beginning is what was decided upon.
    fn lay_out(&mut self, slot: usize, lane: usize, passing: &Passing<'_>) {
        let Some(sender) = &mut self.members[slot] else { return };
        let length = usize::from(passing.packet.length());
        let from = sender.lanes[lane].wire.nic().core();
        let head = passing.header.bytes();
        self.frame[..head.len()].copy_from_slice(head);
        if length > head.len() {
            from.read_bytes(passing.packet.address() + head.len() as u64, &mut self.frame[head.len()..length]);
        }
    }

    /// Copies a frame from a client's region out of a port.
    fn leave(&mut self, now: Time, slot: usize, lane: usize, to: usize, passing: &Passing<'_>) {
        self.lay_out(slot, lane, passing);
        self.send(now, to, usize::from(passing.packet.length()), None);
    }

    /// Sends the frame that lies here on.
    pub(super) fn forward_frame(&mut self, now: Time, from: Place, length: usize) {
        self.show(now, from, length);
        let header = Header::of_frame(&self.frame[..length]);
        if let Some(route) = &self.route(now, from, &header) {
            self.send_on(now, route, &header, length);
        }
    }

    /// Sends the frame that lies here on, which came by a queue of a port, the `last` one of the same burst known.
    pub(super) fn forward_received(&mut self, now: Time, from: Place, length: usize, last: &mut Last<()>) {
        if !self.is_by_addresses() || !self.mirrors.is_empty() {
            last.route = None;
            return self.forward_frame(now, from, length);
        }
        let header = Header::of_frame(&self.frame[..length]);
        if !last.is_of(&header, &()) {
            last.note(&header, (), self.route(now, from, &header), false);
        }
        if let Some(route) = &last.route {
            self.send_on(now, route, &header, length);
        }
    }

    /// The VLAN that a frame belongs to, by where it comes from and its tag; none, and it is counted, if it may not come so.
    fn vlan_of(&mut self, from: Place, tag: Option<Tag>) -> Option<u16> {
        let (own, counter) = match from {
            Place::Client(slot) => {
                let member = self.members[slot as usize].as_mut()?;
                (member.rules.vlan, &mut member.counters.dropped_vlan)
            }
            Place::Port(port) => {
                let end = &mut self.ports[port as usize];
                (end.vlan, &mut end.counters.dropped_vlan)
            }
            // Said beside the frame, and checked where it came in.
            Place::Trunk(_) | Place::Away(_) => return None,
        };
        match (own, tag) {
            (Some(own), None) => Some(own),
            (Some(_), Some(_)) => {
                *counter += 1;
                None
            }
            (None, tag) => Some(tag.map_or(0, Tag::vlan)),
        }
    }
}

impl<C: Core> Member<C> {
    /// Copies a frame from another region, where it lies in one piece; `slot` is the client's own.
    #[inline(always)]
    pub(super) fn copy_over<F: Core>(
        &mut self,
        slot: usize,
        from: &F,
        passing: &Passing<'_>,
        toeplitz: &Toeplitz,
        dirty: &mut Vec<(u32, u32)>,
    ) {
        let length = u64::from(passing.packet.length());
        let pinned = passing.route.pinned_at(Place::Client(slot as u32));
        let (queue, hash) = self.queue_of(passing.header, pinned, toeplitz);
        let way = Way { from: passing.route.from, slot, queue };
        let Some((target, first)) = self.make_room(way, length, dirty) else { return };
        let into = target.wire.nic().core();
        copy_frame((from, passing.packet.address()), passing.lines, length, (into, first));
        let metadata = hash.map_or(Metadata::NONE, |hash| Metadata::NONE.with_hash(hash));
        target.push(Descriptor::new(first, passing.packet.length()).with_metadata(metadata.0));
        self.counters.received_frames += 1;
        self.counters.received_bytes += length;
    }
}

/// Copies a packet out of its segments, whose lengths together were checked, and fills it up to the shortest frame.
pub(super) fn gather(core: &impl Core, segments: &[Descriptor], frame: &mut [u8]) {
    let mut at = 0;
    for segment in segments {
        let bytes = usize::from(segment.length());
        core.read_bytes(segment.address(), &mut frame[at..at + bytes]);
        at += bytes;
    }
    frame[at..at.max(MIN_FRAME)].fill(0);
}
