//! Frames that go to the network's other threads and come from them.
//!
//! What was checked where a frame came in is not checked again: its sender, its VLAN, what is left to do for it. Who sends it across says
//! for whom it is; which of those on this side get it, and in which form, is decided here. What came by a trunk leaves by none, and by no part
//! of a port that the sender's thread has itself.

use conic_fabric::{Address, Core, LINE_BYTES, Line, Time};
use conic_interface::ccnic::Descriptor;
use conic_interface::metadata::{Begun, Metadata};
use conic_port::MAX_FRAME;
use conic_port::offload::vlan::{TAG_BYTES, Tag};

use super::circuit::Party;
use super::counters::TrunkCounters;
use super::deliver::{Form, Route, Tagging, Targets};
use super::forward::{Last, Passing};
use super::header::Header;
use super::offload::Work;
use super::record::{Record, To, copy_frame};
use super::table::{Place, Station};
use super::{BURST, Ring, Switch};

/// What is said beside a frame of where it goes, and where its sender is: for whom it is, and the port behind which that is.
type Said = Option<(To, Option<u32>)>;

impl<C: Core> Switch<C> {
    /// The trunk to a place that is not here, and what is said there of a frame.
    pub(super) fn record(&self, route: &Route, place: Place) -> Option<(usize, Record)> {
        let (trunk, to) = match place {
            Place::Trunk(trunk) => {
                let everybody = matches!(route.targets, Targets::AllBut(_));
                (trunk as usize, To::Bridge { everybody, pinned: self.pinned_client(route) })
            }
            Place::Away(number) => {
                let end = self.aways[number as usize].as_ref()?;
                let to = match end.away.party {
                    // Who is in a circuit is in no other traffic.
                    party if end.away.rules.circuit.is_some() => To::Circuit(party),
                    Party::Client(session) => To::Client { session, queue: route.pinned_at(place) },
                    Party::Port(_) => return None,
                };
                (end.trunk, to)
            }
            Place::Client(_) | Place::Port(_) => return None,
        };
        let vlan = route.tagging.map(|tagging| tagging.vlan);
        let work = route.work.as_ref().map(Work::for_trunk);
        let known = if work.is_some() { Metadata::NONE } else { route.known };
        let behind = self.port_at(route.from);
        Some((trunk, Record { to, vlan, known, work, behind }))
    }

    /// The client and the queue that a frame's flow is pinned to.
    fn pinned_client(&self, route: &Route) -> Option<(u64, u32)> {
        let (place, queue) = route.pinned?;
        match self.party(place)? {
            Party::Client(session) => Some((session, queue?)),
            Party::Port(_) => None,
        }
    }

    /// Sends the frame that lies here to a place that another thread serves.
    pub(super) fn send_across(&mut self, route: &Route, place: Place, length: usize) {
        let Some((trunk, record)) = self.record(route, place) else { return };
        let (frame, trunk_of) = (&self.frame[..length], &mut self.trunks[trunk]);
        let write = |core: &C, at| core.write_bytes(at, frame);
        match route.from {
            Place::Port(port) => {
                trunk_of.offer_of_port(&record, length, write);
                self.ports[port as usize].across = Some(trunk);
            }
            _ => trunk_of.offer_of_client(&record, length, write),
        }
    }

    /// Copies a frame from a client's region to a place that another thread serves.
    pub(super) fn carry(&mut self, slot: usize, lane: usize, place: Place, passing: &Passing<'_>) {
        if let Some(across) = &self.record(passing.route, place) {
            self.carry_along(slot, lane, across, passing);
        }
    }

    /// The same with the trunk, and what is said there of a frame of whatever length.
    #[inline(always)]
    pub(super) fn carry_along(&mut self, slot: usize, lane: usize, across: &(usize, Record), passing: &Passing<'_>) {
        let (length, (trunk, record)) = (passing.packet.length(), across);
        let Some(sender) = &mut self.members[slot] else { return };
        let from = (sender.lanes[lane].wire.nic().core(), passing.packet.address());
        let write = |core: &C, at| copy_frame(from, passing.lines, length.into(), (core, at));
        self.trunks[*trunk].offer_of_client(record, length.into(), write);
    }

    /// Lets the other threads have what was put for them, and tells them where new stations are.
    #[inline(never)]
    pub(super) fn flush_trunks(&mut self) {
        let news: Vec<_> =
            self.table.take_news().into_iter().map(|(station, place)| (station, self.port_at(place))).collect();
        for trunk in &mut self.trunks {
            trunk.tell(&news);
            if trunk.publish() {
                self.rings.push(Ring::Thread(trunk.thread));
            }
        }
    }

    /// Takes frames from the other threads alone; how many. For a thread that is about to end.
    pub fn serve_trunks(&mut self, now: Time) -> usize {
        (0..self.trunks.len()).map(|trunk| self.serve_trunk(now, trunk)).sum()
    }

    /// Takes frames from another thread.
    pub(super) fn serve_trunk(&mut self, now: Time, index: usize) -> usize {
        let (mut taken, mut last) = (0, Last::none(None));
        while taken < BURST
            && let Some((record, length, at)) = self.trunks[index].take()
        {
            taken += 1;
            if let To::News(station) = record.to {
                if let Some(place) = self.place_of_sender(index, &record) {
                    self.table.hear_of(now, station, place);
                }
                last.route = None;
                continue;
            }
            self.trunks[index].counters.received_frames += 1;
            self.arrive(now, index, &record, (at, length), &mut last);
        }
        if taken > 0 {
            self.trunks[index].let_go();
            self.flush(now);
        }
        taken
    }

    /// Sends a frame on that came by a trunk, and lies there at an address; the `last` one of the same burst known.
    fn arrive(
        &mut self,
        now: Time,
        trunk: usize,
        record: &Record,
        (at, length): (Address, usize),
        last: &mut Last<Said>,
    ) {
        let core = self.trunks[trunk].core();
        let first = core.read_line(at);
        let second = if length > LINE_BYTES as usize { core.read_line(at.lines(1)) } else { Line::ZERO };
        let lines = [first, second];
        let header = Header::of_lines(&lines, length);
        let said = Some((record.to, record.behind));
        if !(record.is_plain() && last.is_of(&header, &said)) {
            let mut route = self.route_from(now, trunk, record, &header);
            if let Some(route) = &mut route {
                route.known = record.known;
            }
            let as_it_is = route.as_ref().is_some_and(|route| self.is_for_one_as_it_is(record, route));
            last.note(&header, said, route, as_it_is);
        }
        // As in `forward_packet`, it stays where it is.
        if let Some(route) = &last.route {
            match route.targets {
                Targets::One(Place::Client(to)) if last.as_it_is && length <= MAX_FRAME => {
                    let packet = Descriptor::new(at, length as u16);
                    let passing = Passing { lines: &lines, header: &header, packet, route };
                    if let Some(receiver) = &mut self.members[to as usize] {
                        let from = self.trunks[trunk].core();
                        receiver.copy_over(to as usize, from, &passing, &self.toeplitz, &mut self.dirty);
                    }
                }
                _ => self.arrive_along(now, trunk, record, (at, length), &header, route),
            }
            if !record.is_plain() || self.has_vlans {
                last.route = None;
            }
        }
    }

    /// Whether such frames go to one client, from where they lie.
    #[inline(never)]
    fn is_for_one_as_it_is(&self, record: &Record, route: &Route) -> bool {
        let Targets::One(place @ Place::Client(_)) = route.targets else { return false };
        let is_plain = record.is_plain() && self.mirrors.is_empty();
        is_plain && self.form_at(route, place) == Form::AsItIs && !self.is_looked_at(route)
    }

    /// Sends a frame on that came by a trunk, by way of here.
    fn arrive_along(
        &mut self,
        now: Time,
        trunk: usize,
        record: &Record,
        (at, length): (Address, usize),
        header: &Header,
        route: &Route,
    ) {
        self.trunks[trunk].core().read_bytes(at, &mut self.frame[..length]);
        let mut work = None;
        if let Some((Begun { start, offset }, size)) = record.work {
            let most = MAX_FRAME + TAG_BYTES;
            work = Work::of(&self.frame[..length], start.into(), offset.into(), size, most);
            if work.is_none() {
                // It was checked where it came in.
                return self.count_no_way(Place::Trunk(trunk as u32));
            }
        }
        self.send_unfinished(now, route, header, length, work);
    }

    /// Where a frame goes that came by a trunk; none if it goes nowhere, which is counted unless it goes there otherwise. Learns where its
    /// sender is.
    fn route_from(&mut self, now: Time, trunk: usize, record: &Record, header: &Header) -> Option<Route> {
        let from = Place::Trunk(trunk as u32);
        if let To::Circuit(party) = record.to {
            let place = self.place_of(party);
            if place.is_none() {
                self.count_no_way(from);
            }
            return place.map(|place| Route::to(from, Targets::One(place), None, None));
        }
        let tagging = self.has_vlans.then(|| {
            let tag = Tag::of(header.bytes());
            // A switch that knows of no VLANs yet passes tags, as one without VLANs does.
            Tagging { vlan: record.vlan.unwrap_or(tag.map_or(0, Tag::vlan)), tag }
        });
        let vlan = tagging.map_or(0, |tagging| tagging.vlan);
        let behind = self.place_of_sender(trunk, record);
        if let Some(behind) = behind
            && !header.is_from_multicast()
        {
            self.table.hear_of(now, header.from(vlan), behind);
        }
        let (everybody, pinned) = match record.to {
            To::Bridge { everybody, pinned } => (everybody, pinned),
            To::Client { session, queue } => {
                // Most frames are for the address of whoever gets them.
                let addressed = self.table.find(now, header.to(vlan));
                let addressed = addressed.filter(|&place| self.party(place) == Some(Party::Client(session)));
                let place = addressed.or_else(|| self.place_of(Party::Client(session)));
                return self.route_to(from, place, tagging, queue);
            }
            To::Circuit(_) | To::News(_) => return None,
        };
        if header.is_multicast() {
            let pinned =
                pinned.and_then(|(session, queue)| Some((self.place_of(Party::Client(session))?, Some(queue))));
            return Some(Route::to(from, Targets::AllBut(from), tagging, pinned));
        }
        let station = header.to(vlan);
        match self.table.find(now, station) {
            Some(place) if place.is_here() => {
                if everybody {
                    self.answer(trunk, station, place);
                }
                match place {
                    // It went there as well.
                    Place::Port(port) if everybody && self.has_left(trunk, port as usize) => None,
                    // It would go back to where it came from.
                    _ if Some(place) == behind => {
                        self.count_no_way(from);
                        None
                    }
                    _ => self.route_to(from, Some(place), tagging, None),
                }
            }
            // It went there as well.
            Some(_) if everybody => None,
            Some(_) => {
                self.count_no_way(from);
                None
            }
            None => self.ask_for(from, header, tagging),
        }
    }

    /// The way to one place here, and to a queue of it if that is said; none, and it is counted, where nobody is there.
    fn route_to(
        &mut self,
        from: Place,
        place: Option<Place>,
        tagging: Option<Tagging>,
        queue: Option<u32>,
    ) -> Option<Route> {
        // Who is in a circuit is in no other traffic.
        let Some(place) = place.filter(|&place| self.wired.is_empty() || self.circuit_of(place).is_none()) else {
            self.count_no_way(from);
            return None;
        };
        Some(Route::to(from, Targets::One(place), tagging, queue.map(|queue| (place, Some(queue)))))
    }

    fn place_of(&self, party: Party) -> Option<Place> {
        match party {
            Party::Client(session) => self.slot_of(session).map(|slot| Place::Client(slot as u32)),
            Party::Port(number) => self.port_of(number).map(|port| Place::Port(port as u32)),
        }
    }

    /// Where the sender of what came by a trunk is, or the station that it tells of. None behind a port that this thread knows nothing of, not
    /// yet or not any more: who is asked for then is found, and what was sent before the port went teaches nothing behind it.
    fn place_of_sender(&self, trunk: usize, record: &Record) -> Option<Place> {
        record.behind.map_or(Some(Place::Trunk(trunk as u32)), |port| self.place_behind(port))
    }

    /// Tells a thread that asked everybody that a station is at a place here.
    fn answer(&mut self, trunk: usize, station: Station, place: Place) {
        let behind = self.port_at(place);
        self.trunks[trunk].tell(&[(station, behind)]);
    }

    /// What each trunk counted, by the number of the thread at its other end.
    pub fn trunks(&self) -> impl Iterator<Item = (usize, TrunkCounters)> {
        self.trunks.iter().map(|trunk| (trunk.thread, trunk.counters))
    }
}
