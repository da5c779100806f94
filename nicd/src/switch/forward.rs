//! From where a frame goes on to where.

use conic_fabric::{Core, LINE_BYTES, Line};
use conic_fabric::{Time, lines_of};
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::notify::{PACKETS, ROOM as WAIT_ROOM};
use conic_interface::ccnic::{Descriptor, Flags};
use conic_port::offload::rss::{Ports, Toeplitz};
use conic_port::offload::vlan::{TAG_BYTES, Tag, insert, strip};
use conic_port::{MAX_FRAME, MIN_FRAME, Transmit};

use super::header::{ETHERNET_HEADER, HEADER_LINES, Header};
use super::member::{Lane, Member};
use super::table::Place;
use super::{BURST, Mode, Switch};

/// Entries of a NIC's table from hashes to queues; here entry `i` is queue `i` modulo their number.
const INDIRECTIONS: usize = 512;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    To(Place),
    /// To all but where it came from.
    Flood,
    /// Nowhere; it was counted.
    Drop,
}

/// Who gets a frame.
enum Targets {
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

/// How a frame of a VLAN gets to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
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

/// A frame on its way: its beginning, in private memory, and where the rest is.
struct Passing<'frame> {
    lines: &'frame [Line; HEADER_LINES],
    header: &'frame Header,
    packet: Descriptor,
}

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
        // Passes over its queues, until one finds nothing at all.
        loop {
            let mut passed = 0;
            let mut index = 0;
            while let Some(member) = &self.members[slot]
                && let Some(&lane) = member.awake.get(index)
                && member.deficit > 0
            {
                passed += self.serve_lane(now, slot, lane as usize);
                index += 1;
            }
            moved += passed;
            let Some(member) = &mut self.members[slot] else { break };
            if index < member.awake.len() {
                // Who was not served is the first next time.
                member.awake.rotate_left(index);
            }
            if passed == 0 || member.deficit <= 0 {
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
            let queue = member.awake[index] as usize;
            let lane = &mut member.lanes[queue];
            let turned = lane.wire.turn_around();
            let idle = lane.note(now, turned);
            if turned > 0 {
                moved += turned;
                if member.notices.must_ring(lane.wire.core(), queue, PACKETS | WAIT_ROOM) {
                    self.rings.push((member.session, queue as u32));
                }
            }
            self.note_idle(now, slot, queue, idle);
        }
        if let Some(member) = &mut self.members[slot] {
            member.counters.sent_frames += moved as u64;
            member.counters.received_frames += moved as u64;
        }
        moved
    }

    /// Takes a burst from a queue and sends each frame on.
    fn serve_lane(&mut self, now: Time, slot: usize, queue: usize) -> usize {
        let Some(member) = &mut self.members[slot] else { return 0 };
        // Kept between rounds: clearing it anew costs more than a packet.
        let mut polled = std::mem::take(&mut self.polled);
        let count = member.lanes[queue].wire.nic().poll_tx(&mut polled);
        let idle = member.lanes[queue].note(now, count);
        let (mut start, mut frames, mut bytes) = (0, 0, 0);
        while start < count {
            let rest = &polled[start..count];
            let segments = rest.iter().take_while(|segment| segment.has(Flags::NEXT)).count() + 1;
            let segments = &rest[..segments.min(rest.len())];
            bytes += self.forward_packet(now, slot, queue, segments) as u64;
            start += segments.len();
            frames += 1;
        }
        if let Some(member) = &mut self.members[slot] {
            let lane = &mut member.lanes[queue];
            // Also where nothing was polled: what was refused took slots, and they go back.
            lane.wire.nic().complete_tx(&polled[..count]);
            if count > 0 && member.notices.must_ring(lane.wire.core(), queue, WAIT_ROOM) {
                self.rings.push((member.session, queue as u32));
            }
            member.has_sent(bytes);
        }
        self.polled = polled;
        self.note_idle(now, slot, queue, idle);
        frames
    }

    /// Sends a client's packet on, given by its segments; its bytes.
    fn forward_packet(&mut self, now: Time, slot: usize, lane: usize, segments: &[Descriptor]) -> usize {
        let Some(member) = &mut self.members[slot] else { return 0 };
        let length: usize = segments.iter().map(|segment| usize::from(segment.length())).sum();
        if !(ETHERNET_HEADER..=MAX_FRAME).contains(&length) {
            member.counters.dropped_length += 1;
            return length;
        }
        member.counters.sent_frames += 1;
        member.counters.sent_bytes += length as u64;
        let core = member.lanes[lane].wire.nic().core();
        let packet = segments[0];
        let in_one_piece = segments.len() == 1 && packet.address().is_line_aligned() && length >= MIN_FRAME;
        if !in_one_piece || self.has_vlans {
            let mut at = 0;
            for segment in segments {
                let bytes = usize::from(segment.length());
                core.read_bytes(segment.address(), &mut self.frame[at..at + bytes]);
                at += bytes;
            }
            self.frame[at..at.max(MIN_FRAME)].fill(0);
            self.forward_frame(now, Place::Client(slot as u32), length.max(MIN_FRAME));
            return length;
        }
        let mut lines = [core.read_line(packet.address()), Line::ZERO];
        if length > LINE_BYTES as usize {
            lines[1] = core.read_line(packet.address().lines(1));
        }
        let header = Header::of_lines(&lines, length);
        let passing = Passing { lines: &lines, header: &header, packet };
        match self.way_of(now, Place::Client(slot as u32), &header, 0) {
            Way::To(Place::Client(to)) => self.pass(slot, lane, to as usize, &passing),
            Way::To(Place::Port(to)) => self.leave(now, slot, lane, to as usize, &passing),
            Way::Flood => {
                for to in (0..self.members.len()).filter(|&to| to != slot) {
                    self.pass(slot, lane, to, &passing);
                }
                for to in 0..self.ports.len() {
                    self.leave(now, slot, lane, to, &passing);
                }
            }
            Way::Drop => {}
        }
        length
    }

    /// Where a frame goes; learns where its sender is.
    fn way_of(&mut self, now: Time, from: Place, header: &Header, vlan: u16) -> Way {
        if let Place::Client(slot) = from
            && let Some(member) = &mut self.members[slot as usize]
            && member.rules.own_address_only
            && header.source() != member.rules.mac
        {
            member.counters.dropped_spoofed += 1;
            return Way::Drop;
        }
        if !header.is_from_multicast() {
            self.table.learn(now, header.from(vlan), from);
        }
        if header.is_multicast() {
            return Way::Flood;
        }
        match self.table.find(now, header.to(vlan)) {
            Some(place) if place == from => {
                self.count_no_way(from);
                Way::Drop
            }
            Some(place) => Way::To(place),
            None => Way::Flood,
        }
    }

    fn count_no_way(&mut self, from: Place) {
        match from {
            Place::Client(slot) => {
                if let Some(member) = &mut self.members[slot as usize] {
                    member.counters.dropped_no_way += 1;
                }
            }
            Place::Port(port) => self.ports[port as usize].counters.dropped_no_way += 1,
        }
    }

    /// Copies a frame from a client's region to another's.
    fn pass(&mut self, slot: usize, lane: usize, to: usize, passing: &Passing<'_>) {
        let Ok([Some(sender), Some(receiver)]) = self.members.get_disjoint_mut([slot, to]) else { return };
        let length = u64::from(passing.packet.length());
        let queue = receiver.queue_of(passing.header, &self.toeplitz);
        let Some((target, first)) = receiver.make_room(queue, length, to, &mut self.dirty) else { return };
        let from = sender.lanes[lane].wire.nic().core();
        let into = target.wire.nic().core();
        for (index, line) in passing.lines.iter().enumerate().take(lines_of(length) as usize) {
            into.write_line(first.lines(index as u64), line);
        }
        for index in HEADER_LINES as u64..lines_of(length) {
            into.write_line(first.lines(index), &from.read_line(passing.packet.address().lines(index)));
        }
        target.push(Descriptor::new(first, passing.packet.length()));
        receiver.counters.received_frames += 1;
        receiver.counters.received_bytes += length;
    }

    /// Copies a frame from a client's region out of a port.
    fn leave(&mut self, now: Time, slot: usize, lane: usize, to: usize, passing: &Passing<'_>) {
        let Some(sender) = &mut self.members[slot] else { return };
        let length = usize::from(passing.packet.length());
        let from = sender.lanes[lane].wire.nic().core();
        let head = passing.header.bytes();
        self.frame[..head.len()].copy_from_slice(head);
        if length > head.len() {
            from.read_bytes(passing.packet.address() + head.len() as u64, &mut self.frame[head.len()..length]);
        }
        self.send(now, to, length);
    }

    /// Sends the frame that lies here out of a port: frames of one flow by one of its queues.
    fn send(&mut self, now: Time, to: usize, length: usize) {
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

    /// Sends the frame that lies here on.
    pub(super) fn forward_frame(&mut self, now: Time, from: Place, length: usize) {
        let header = Header::of_frame(&self.frame[..length]);
        let tag = Tag::of(header.bytes());
        let Some(vlan) = self.vlan_of(from, tag) else { return };
        let targets = match self.way_of(now, from, &header, vlan) {
            Way::To(place) => Targets::One(place),
            Way::Flood => Targets::AllBut(from),
            Way::Drop => return,
        };
        // First whoever gets it as it is, then, if there are any, those for whom it is changed.
        let changed = self.send_to_those(now, &targets, &header, length, |own| form(own, vlan, tag) == Form::AsItIs);
        if !changed {
            return;
        }
        let length = match tag {
            Some(_) => strip(&mut self.frame[..length]).map(|_| length - TAG_BYTES),
            None => insert(&mut self.frame[..], length, Tag::new(vlan)),
        };
        if let Some(length) = length {
            self.frame[length..length.max(MIN_FRAME)].fill(0);
            let length = length.max(MIN_FRAME);
            let header = Header::of_frame(&self.frame[..length]);
            self.send_to_those(now, &targets, &header, length, |own| form(own, vlan, tag) == Form::Changed);
        }
    }

    /// Sends the frame that lies here to those of the targets whose VLAN is as asked; whether there are others.
    fn send_to_those(
        &mut self,
        now: Time,
        targets: &Targets,
        header: &Header,
        length: usize,
        wanted: impl Fn(Option<u16>) -> bool,
    ) -> bool {
        let mut others = false;
        for to in 0..self.members.len() {
            let Some(member) = &self.members[to] else { continue };
            if targets.include(Place::Client(to as u32)) {
                if wanted(member.rules.vlan) {
                    self.deliver(to, header, length);
                } else {
                    others = true;
                }
            }
        }
        for to in 0..self.ports.len() {
            if targets.include(Place::Port(to as u32)) {
                if wanted(self.ports[to].vlan) {
                    self.send(now, to, length);
                } else {
                    others = true;
                }
            }
        }
        others
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
        };
        match (own, tag) {
            (Some(own), None) => Some(own),
            (Some(_), Some(_)) => {
                *counter += 1;
                None
            }
            // Where nobody has a VLAN tags are payload.
            (None, _) if !self.has_vlans => Some(0),
            (None, tag) => Some(tag.map_or(0, Tag::vlan)),
        }
    }

    /// Copies the frame that lies here into a client's region.
    fn deliver(&mut self, to: usize, header: &Header, length: usize) {
        let Some(receiver) = &mut self.members[to] else { return };
        let queue = receiver.queue_of(header, &self.toeplitz);
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
    fn queue_of(&self, header: &Header, toeplitz: &Toeplitz) -> usize {
        match self.lanes.len() {
            1 => 0,
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
    fn make_room(
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
    fn push(&mut self, packet: Descriptor) {
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
