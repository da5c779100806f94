//! A client with its queues.

use conic_fabric::{Core, Time};
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::notify::{Notices, PACKETS, ROOM};
use conic_interface::ccnic::{Descriptor, MAX_SEGMENTS, Map, Nic, NicFaults, NicPosition, PhaseCredit, Position, Wire};
use conic_interface::metadata::Offloads;
use serde::{Deserialize, Serialize};

use super::circuit::Circuit;
use super::counters::MemberCounters;
use super::crowd::Crowd;
use super::join::Joining;
use super::limit::{Bucket, RateLimit};
use super::pin::Pin;
use super::table::Place;
use super::{BURST, Ring};

/// What a client may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Its address.
    pub mac: [u8; 6],
    /// It may send from this address alone.
    pub own_address_only: bool,
    /// It gets frames for stations that nobody is known to have although it may send from its own address alone.
    pub promiscuous: bool,
    /// The VLAN that it is a member of, its frames without tags; it sends and gets tags as they are if there is none.
    pub vlan: Option<u16>,
    /// How much it may send.
    pub limit: Option<RateLimit>,
    /// The circuit that it is an end of: then it reaches nobody but the other end.
    pub circuit: Option<Circuit>,
    /// What it makes of metadata.
    #[serde(with = "super::offload::handed_over")]
    pub offloads: Offloads,
    /// The longest packet that stands for several which it takes, in bytes; none where it takes what its buffers hold.
    pub longest: Option<u32>,
    /// Flows that it gets whatever they are addressed to.
    pub pins: Vec<Pin>,
}

/// A client that a switch has stopped serving, so that another goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspended {
    /// Its session.
    pub session: u64,
    /// What it may do.
    pub rules: Rules,
    /// For each queue: slots consumed of its transmit ring; slots sent, and that may be written, of its receive ring.
    pub positions: Vec<[u64; 3]>,
}

/// Bytes that a client may send in its turn before it is the next one's.
const QUANTUM: i64 = 16 << 10;

/// A client.
pub(super) struct Member<C> {
    pub session: u64,
    pub rules: Rules,
    pub lanes: Vec<Lane<C>>,
    pub counters: MemberCounters,
    /// It was named an offender.
    pub accused: bool,
    pub bucket: Option<Bucket>,
    /// Bytes that it may still send in this turn; below zero it has sent more than it should have.
    pub deficit: i64,
    pub notices: Notices,
    /// Queues that are looked at, in turn.
    pub awake: Vec<u32>,
    /// Those that are not, a bit for each.
    pub resting: Vec<u64>,
    /// Bytes that a chain of its buffers holds, and those of a packet that stands for several at most.
    pub room: usize,
    pub longest: usize,
    /// Who has lost frames that were for it, for want of room.
    pub crowd: Crowd,
    /// Places in each of its rings.
    pub places: usize,
    /// Where its frames are joined, if it has that done.
    pub joining: Option<Box<Joining>>,
}

/// One of its queue pairs.
pub(super) struct Lane<C> {
    pub wire: Wire<C, PhaseCredit>,
    /// Copied into buffers of its region, and to be delivered.
    pub out: [Descriptor; BURST],
    pub waiting: usize,
    /// Places of its ring that whoever crowds others out leaves to them.
    pub left: usize,
    /// Since when nothing has come from it.
    pub idle_since: Option<Time>,
}

impl<C: Core> Member<C> {
    pub fn new(
        now: Time,
        session: u64,
        rules: Rules,
        (map, notices): (&Map, Notices),
        mut cores: impl FnMut() -> C,
    ) -> Member<C> {
        let nics = (0..map.queues.len()).map(|queue| Nic::new(cores(), map, queue)).collect();
        Member::with_nics(now, session, rules, (map, notices), nics)
    }

    /// A client whose queues another switch has served, up to where it stopped; none if it cannot have stopped there.
    pub fn resume(
        now: Time,
        suspended: Suspended,
        (map, notices): (&Map, Notices),
        mut cores: impl FnMut() -> C,
    ) -> Option<Member<C>> {
        let Suspended { session, rules, positions } = suspended;
        if positions.len() != map.queues.len() {
            return None;
        }
        let resumed = positions.iter().enumerate().map(|(queue, &[transmit, sent, free_until])| {
            let position = NicPosition { transmit, receive: Position { sent, free_until } };
            Nic::resume(cores(), map, queue, position)
        });
        let member = Member::with_nics(now, session, rules, (map, notices), resumed.collect::<Option<_>>()?);
        for (word, &resting) in member.resting.iter().enumerate() {
            // All its queues are looked at again.
            member.notices.rest(member.lanes[0].wire.core(), word, resting, u64::MAX);
        }
        Some(member)
    }

    /// Delivers what was copied for it, and enters it to be rung if it waits.
    pub fn flush_and_ring(&mut self, rings: &mut Vec<Ring>) {
        for (queue, lane) in self.lanes.iter_mut().enumerate() {
            lane.flush();
            if self.notices.must_ring(lane.wire.core(), queue, PACKETS | ROOM) {
                rings.push(Ring::Client { session: self.session, queue: queue as u32 });
            }
        }
    }

    /// Stops serving it. None where a queue cannot stop here.
    pub fn suspend(self) -> Option<Suspended> {
        let positions = self.lanes.into_iter().map(|lane| {
            let NicPosition { transmit, receive } = lane.wire.into_nic().suspend()?;
            Some([transmit, receive.sent, receive.free_until])
        });
        Some(Suspended { session: self.session, rules: self.rules, positions: positions.collect::<Option<_>>()? })
    }

    fn with_nics(
        now: Time,
        session: u64,
        rules: Rules,
        (map, notices): (&Map, Notices),
        nics: Vec<Nic<C, PhaseCredit>>,
    ) -> Member<C> {
        // A chain of buffers for each packet.
        let room = MAX_SEGMENTS * nics.first().map_or(0, Nic::largest_room);
        let lane = |nic| {
            let (wire, out) = (Wire::new(nic), [Descriptor::BLANK; BURST]);
            Lane { wire, out, waiting: 0, left: 0, idle_since: None }
        };
        let lanes: Vec<Lane<C>> = nics.into_iter().map(lane).collect();
        let joining = rules.offloads.join.then(|| Box::new(Joining::new(room)));
        let longest = rules.longest;
        let mut member = Member {
            session,
            room,
            longest: room,
            bucket: rules.limit.map(|limit| Bucket::new(now, limit)),
            rules,
            awake: (0..lanes.len() as u32).collect(),
            resting: vec![0; lanes.len().div_ceil(64)],
            lanes,
            counters: MemberCounters::default(),
            accused: false,
            deficit: 0,
            notices,
            crowd: Crowd::default(),
            places: map.geometry.descriptors as usize,
            joining,
        };
        if let Some(longest) = longest {
            member.limit_packets(longest);
        }
        member
    }

    /// From here on gives it no packet that stands for several and is longer than so many bytes. Between bursts: nothing is held.
    pub fn limit_packets(&mut self, longest: u32) {
        self.rules.longest = Some(longest);
        self.longest = self.room.min(longest as usize);
        if let Some(joining) = &mut self.joining {
            joining.limit(self.longest);
        }
    }

    pub fn counters(&self) -> MemberCounters {
        let mut sum = self.counters;
        for lane in &self.lanes {
            let turned = lane.wire.turned();
            sum.sent_frames += turned.frames;
            sum.sent_bytes += turned.bytes;
            sum.received_frames += turned.returned_frames;
            sum.received_bytes += turned.returned_bytes;
            sum.dropped_no_buffer += lane.wire.dropped();
        }
        sum
    }

    /// Bytes that the largest of its buffers holds.
    pub fn largest_room(&self) -> usize {
        self.room / MAX_SEGMENTS
    }

    /// Places of a queue's ring that a sender leaves to others.
    #[inline(always)]
    pub fn left_by(&self, queue: usize, from: Place) -> usize {
        if self.crowd.has(from) { self.lanes[queue].left } else { 0 }
    }

    /// Enters that a sender's frame found no room in a queue: from here on it leaves an eighth of the places to others.
    #[cold]
    pub fn has_no_room(&mut self, queue: usize, from: Place) {
        self.crowd.enter(from);
        let lane = &mut self.lanes[queue];
        lane.left = lane.left.max(self.places / 8);
    }

    /// The same where there were places and no buffer: if what lies in the ring has them, an eighth of that is left, with the places that
    /// were free. Where little lies there, the host has them, and no place that is left brings one back.
    #[cold]
    pub fn has_no_buffer(&mut self, queue: usize, from: Place) {
        self.crowd.enter(from);
        let lane = &mut self.lanes[queue];
        let taken = self.places.saturating_sub(lane.wire.nic().rx_room(self.places));
        if taken >= self.places / 8 {
            lane.left = lane.left.max(self.places - taken + taken / 8);
        }
    }

    /// Lets time pass for those that crowd others out. Places that were left for want of buffers are taken again bit by bit: who knows
    /// where the buffers are now.
    pub fn forgive(&mut self) {
        if self.crowd.is_empty() {
            return;
        }
        self.crowd.forget_half();
        let (nobody, least) = (self.crowd.is_empty(), self.places / 8);
        for lane in &mut self.lanes {
            lane.left = if nobody { 0 } else { (lane.left - lane.left / 8).max(least) };
        }
    }

    pub fn faults(&self) -> NicFaults {
        self.lanes.iter().fold(NicFaults::default(), |sum, lane| sum.plus(&lane.wire.faults()))
    }

    /// Whether its limit lets it send now.
    #[inline(always)]
    pub fn may_send(&mut self, now: Time) -> bool {
        self.bucket.as_mut().is_none_or(|bucket| bucket.is_open(now))
    }

    /// Whether it may send now; gives it its share of a turn.
    pub fn begins_turn(&mut self, now: Time) -> bool {
        if !self.may_send(now) {
            return false;
        }
        self.deficit = (self.deficit + QUANTUM).min(QUANTUM);
        self.deficit > 0
    }

    /// Enters what it sent in its turn.
    pub fn has_sent(&mut self, bytes: u64) {
        self.deficit -= bytes as i64;
        if let Some(bucket) = &mut self.bucket {
            bucket.take(bytes);
        }
    }

    /// Enters what frames for several cost in its turn beside the first copy of each: the core's time, which turns share out. A limit is
    /// of what it sends, however many get it.
    pub fn has_flooded(&mut self, bytes: u64) {
        self.deficit -= bytes as i64;
    }

    /// Says that a queue is no longer looked at: its host calls from here on.
    pub fn set_resting(&mut self, lane: usize, resting: bool) {
        let (word, bit) = (lane / 64, 1 << (lane % 64));
        if resting {
            self.resting[word] |= bit;
        } else {
            self.resting[word] &= !bit;
        }
        let new = if resting { bit } else { 0 };
        self.notices.rest(self.lanes[lane].wire.core(), word, self.resting[word], new);
    }

    /// Queues that their host has called are looked at again.
    pub fn answer_calls(&mut self) {
        for word in 0..self.resting.len() {
            if self.resting[word] == 0 {
                continue;
            }
            let Some(first) = self.lanes.first() else { return };
            let mut called = self.notices.calls(first.wire.core(), word) & self.resting[word];
            while called != 0 {
                let lane = 64 * word + called.trailing_zeros() as usize;
                called &= called - 1;
                self.set_resting(lane, false);
                self.lanes[lane].idle_since = None;
                self.awake.push(lane as u32);
            }
        }
    }
}

impl<C: Core> Lane<C> {
    /// Enters whether something came, and says since when nothing has.
    #[inline(always)]
    pub fn note(&mut self, now: Time, moved: usize) -> Option<Time> {
        self.idle_since = if moved > 0 { None } else { self.idle_since.or(Some(now)) };
        self.idle_since
    }
}
