//! A client with its queues.

use conic_fabric::Core;
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::{Descriptor, Map, Nic, NicFaults, PhaseCredit, Wire};

use super::BURST;
use super::counters::MemberCounters;

/// What a client may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Its address.
    pub mac: [u8; 6],
    /// It may send from this address alone.
    pub own_address_only: bool,
}

/// A client.
pub(super) struct Member<C> {
    pub session: u64,
    pub rules: Rules,
    pub lanes: Vec<Lane<C>>,
    pub counters: MemberCounters,
    /// It was named an offender.
    pub accused: bool,
}

/// One of its queue pairs.
pub(super) struct Lane<C> {
    pub wire: Wire<C, PhaseCredit>,
    /// Copied into buffers of its region, and to be delivered.
    pub out: [Descriptor; BURST],
    pub waiting: usize,
}

impl<C: Core> Member<C> {
    pub fn new(session: u64, rules: Rules, map: &Map, mut cores: impl FnMut() -> C) -> Member<C> {
        let lane = |queue| {
            let wire = Wire::new(Nic::new(cores(), map, queue));
            Lane { wire, out: [Descriptor::BLANK; BURST], waiting: 0 }
        };
        let lanes = (0..map.queues.len()).map(lane).collect();
        Member { session, rules, lanes, counters: MemberCounters::default(), accused: false }
    }

    pub fn counters(&self) -> MemberCounters {
        let dropped: u64 = self.lanes.iter().map(|lane| lane.wire.dropped()).sum();
        MemberCounters { dropped_no_buffer: self.counters.dropped_no_buffer + dropped, ..self.counters }
    }

    pub fn faults(&self) -> NicFaults {
        self.lanes.iter().fold(NicFaults::default(), |sum, lane| sum.plus(&lane.wire.faults()))
    }
}
