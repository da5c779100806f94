//! Who is served by the network's other threads. Each thread has a switch of its own, and is told of all clients and ports of the others:
//! what it decides for its own is what one switch for all would decide.

use conic_fabric::{Core, Time};

use super::circuit::Party;
use super::table::{Place, Station};
use super::{Rules, Switch, Trunk};

/// Somebody whom another thread of the network serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Away {
    /// That thread's number.
    pub thread: usize,
    /// Who.
    pub party: Party,
    /// What it may do; of a port its VLAN and its circuit. A port of which the switch has a part of its own is none of these.
    pub rules: Rules,
}

/// The same, with the way there.
pub(super) struct AwayEnd {
    pub away: Away,
    /// The trunk's number in the switch.
    pub trunk: usize,
}

impl<C: Core> Switch<C> {
    /// Joins it to another thread's switch. Each has a trunk to each other before anybody comes.
    pub fn join(&mut self, trunk: Trunk<C>) {
        self.table.tell();
        self.trunks.push(trunk);
        self.set_ways();
    }

    /// Enters somebody whom another thread serves from here on.
    ///
    /// # Panics
    ///
    /// There is no trunk to that thread.
    pub fn enter_away(&mut self, now: Time, away: Away) {
        let trunk = self.trunks.iter().position(|trunk| trunk.thread == away.thread);
        let trunk = trunk.unwrap_or_else(|| panic!("there is no trunk to thread {}", away.thread));
        let number = self.aways.iter().position(Option::is_none).unwrap_or_else(|| {
            self.aways.push(None);
            self.aways.len() - 1
        });
        let rules = &away.rules;
        if let Party::Client(_) = away.party {
            let station = Station::new(rules.mac, rules.vlan.unwrap_or(0));
            self.table.fix(now, station, Place::Away(number as u32));
        }
        self.aways[number] = Some(AwayEnd { away, trunk });
        self.rewire();
    }

    /// Forgets somebody whom another thread no longer serves.
    pub fn forget_away(&mut self, party: Party) {
        let is_it = |end: &Option<AwayEnd>| end.as_ref().is_some_and(|end| end.away.party == party);
        let Some(number) = self.aways.iter().position(is_it) else { return };
        let gone = self.aways[number].take();
        self.table.forget(Place::Away(number as u32));
        if let Some(AwayEnd { trunk, away }) = gone
            && (matches!(party, Party::Port(_)) || !away.rules.own_address_only)
        {
            // Stations behind it are known by the way to its thread. Who else was learned to be on that way is asked for once more.
            self.table.forget(Place::Trunk(trunk as u32));
        }
        self.rewire();
    }

    /// Gives a client another address, whoever serves it; false if there is no such client. That no other client has it is for the caller
    /// to see to, as where a client comes.
    pub fn set_mac(&mut self, now: Time, session: u64, mac: [u8; 6]) -> bool {
        let Some((place, rules)) = self.client(session) else { return false };
        let vlan = rules.vlan.unwrap_or(0);
        let before = std::mem::replace(&mut rules.mac, mac);
        self.table.release(Station::new(before, vlan), place);
        self.table.fix(now, Station::new(mac, vlan), place);
        true
    }

    /// Where a client is, here or away, and what it may do.
    pub(super) fn client(&mut self, session: u64) -> Option<(Place, &mut Rules)> {
        if let Some(slot) = self.slot_of(session) {
            return Some((Place::Client(slot as u32), &mut self.members[slot].as_mut()?.rules));
        }
        let is_it = |end: &Option<AwayEnd>| end.as_ref().is_some_and(|end| end.away.party == Party::Client(session));
        let number = self.aways.iter().position(is_it)?;
        Some((Place::Away(number as u32), &mut self.aways[number].as_mut()?.away.rules))
    }

    /// Changes what somebody may do whom another thread serves; false if there is no such party.
    pub(super) fn change_away(&mut self, party: Party, change: impl FnOnce(&mut Rules)) -> bool {
        let mut ends = self.aways.iter_mut().flatten();
        let Some(end) = ends.find(|end| end.away.party == party) else { return false };
        change(&mut end.away.rules);
        self.rewire();
        true
    }

    /// Everybody whom other threads serve, by place.
    pub(super) fn aways_by_place(&self) -> impl Iterator<Item = (Place, &Away)> {
        let aways = self.aways.iter().enumerate();
        aways.filter_map(|(number, end)| Some((Place::Away(number as u32), &end.as_ref()?.away)))
    }

    /// The number in the network of a port that it serves, or a part of it.
    pub(super) fn number_of(&self, port: usize) -> usize {
        self.ports[port].parts.port()
    }

    /// The port that has this number in the network, if it serves that, or a part of it.
    pub(super) fn port_of(&self, number: usize) -> Option<usize> {
        self.ports.iter().position(|end| !end.is_gone && end.parts.port() == number)
    }

    /// The port of the network that a place is, by its number.
    pub(super) fn port_at(&self, place: Place) -> Option<u32> {
        match place {
            Place::Port(port) => Some(self.number_of(port as usize) as u32),
            Place::Client(_) | Place::Trunk(_) | Place::Away(_) => None,
        }
    }

    /// Where those are that another thread has behind a port of the network: behind the part here, or behind the trunk to the thread that
    /// sends there what comes from here.
    pub(super) fn place_behind(&self, number: u32) -> Option<Place> {
        let number = number as usize;
        let own = self.port_of(number).map(|port| Place::Port(port as u32));
        own.or_else(|| {
            // Most ports are there before clients come, and so are found soon.
            let mut ends = self.aways.iter().flatten();
            let end = ends.find(|end| end.away.party == Party::Port(number))?;
            Some(Place::Trunk(end.trunk as u32))
        })
    }

    /// Whether a frame for everybody goes to a port: it is there, and the frame has not left by it already where it came in.
    pub(super) fn is_asked(&self, from: Place, port: usize) -> bool {
        let has_left = |trunk: u32| self.has_left(trunk as usize, port);
        !self.ports[port].is_gone && !matches!(from, Place::Trunk(trunk) if has_left(trunk))
    }

    /// Whether a frame that a thread has sent to everybody has left by a port where it came in: that thread has a part of the port, or
    /// another has it for that thread.
    pub(super) fn has_left(&self, trunk: usize, port: usize) -> bool {
        self.ports[port].parts.way_from(self.trunks[trunk].thread) != self.options.thread
    }
}
