//! Static cross-connects: two places whose frames go to each other, unchanged and whatever their addresses, and to nobody else.

use std::collections::BTreeSet;

use conic_fabric::Core;
use serde::{Deserialize, Serialize};

use super::offload::Told;
use super::pinned::PinnedFlows;
use super::table::Place;
use super::{Pin, RateLimit, Rules, Switch};

/// One end of a circuit. A circuit carries frames when both its ends are there; until then what is sent into it is dropped and
/// counted. Where several places claim one end, the first that came has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Circuit {
    /// Which circuit of the network.
    pub number: u64,
    /// Which of its two ends.
    pub far: bool,
}

impl Circuit {
    /// Circuits that operators make are numbered from here on, one after the other; those of a configuration have numbers below.
    pub const FIRST_OF_OPERATORS: u64 = 1 << 63;

    fn is_of_operator(self) -> bool {
        self.number >= Circuit::FIRST_OF_OPERATORS
    }

    fn opposite(self) -> Circuit {
        Circuit { far: !self.far, ..self }
    }
}

/// Somebody as the daemon before this one had it. Where the two differ, an operator has put it where it is, or taken it out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedEnd {
    /// The circuit that it was in.
    pub circuit: Option<Circuit>,
    /// The one that the configuration there had it in.
    pub configured: Option<Circuit>,
}

impl PassedEnd {
    /// In which circuits all of a network are behind a take-over, each given with what the new configuration has it in; who was not there
    /// before is [`PassedEnd::default`].
    ///
    /// | it was | behind | why |
    /// |---|---|---|
    /// | in a circuit of an operator | in that | no file says anything of that |
    /// | in any other, or in none, and the new file says what the old one said | as it was | an operator has taken it out, or nothing is new |
    /// | the same, and the new file says something else | as the new one says | who wrote that wants it so |
    /// | to come into a circuit whose other end is here and stays elsewhere | in none | it would reach nobody |
    pub fn settled(all: &[(PassedEnd, Option<Circuit>)]) -> Vec<Option<Circuit>> {
        let by_itself = |&(passed, configured): &(PassedEnd, Option<Circuit>)| {
            let stays = passed.configured == configured || passed.circuit.is_some_and(Circuit::is_of_operator);
            if stays { passed.circuit } else { configured }
        };
        let each: Vec<Option<Circuit>> = all.iter().map(by_itself).collect();
        let taken: BTreeSet<Circuit> = each.iter().copied().flatten().collect();
        let named: BTreeSet<Circuit> = all.iter().filter_map(|(_, configured)| *configured).collect();
        let leads = |circuit: &Circuit| {
            let other = circuit.opposite();
            taken.contains(&other) || !named.contains(&other)
        };
        let settled = |(circuit, (passed, _)): (&Option<Circuit>, &(PassedEnd, _))| {
            circuit.filter(|circuit| passed.circuit == Some(*circuit) || leads(circuit))
        };
        each.iter().zip(all).map(settled).collect()
    }
}

/// Somebody whom a switch serves, as operators name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A port, by its number in the network.
    Port(usize),
    /// A client, by its session.
    Client(u64),
}

/// A place that is in a circuit, and the one at the other end if there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wired {
    place: Place,
    circuit: Circuit,
    /// Who it is: of ports the first, then of clients the one that came first, has an end that several claim.
    party: Party,
    other: Option<Place>,
}

impl<C: Core> Switch<C> {
    /// Puts somebody into a circuit, or takes it out of any; false if there is no such party. Who goes from one circuit to another and
    /// leaves nobody at its end frees the other end: that would be connected to nobody. Who is only taken out may be followed.
    pub fn connect(&mut self, party: Party, circuit: Option<Circuit>) -> bool {
        let had = self.wired.iter().find(|one| one.party == party).map(|one| one.circuit);
        let is_there = self.put_into(party, circuit);
        let is_left = |had: &Circuit| circuit.is_some_and(|circuit| circuit.number != had.number);
        if let Some(had) = had.filter(is_left)
            && self.wired.iter().all(|one| one.circuit != had)
        {
            let opposite = had.opposite();
            let alone = self.wired.iter().filter(|one| one.circuit == opposite);
            let alone: Vec<Party> = alone.map(|one| one.party).collect();
            alone.into_iter().for_each(|party| _ = self.put_into(party, None));
        }
        is_there
    }

    fn put_into(&mut self, party: Party, circuit: Option<Circuit>) -> bool {
        match party {
            Party::Client(session) => {
                let member = self.slot_of(session).and_then(|slot| self.members[slot].as_mut());
                let Some(member) = member else { return self.change_away(party, |rules| rules.circuit = circuit) };
                member.rules.circuit = circuit;
            }
            Party::Port(port) => {
                let end = self.port_of(port).and_then(|index| self.ports.get_mut(index));
                let Some(end) = end else { return self.change_away(party, |rules| rules.circuit = circuit) };
                end.circuit = circuit;
            }
        }
        self.rewire();
        true
    }

    /// Has a client get a flow in addition; false if there is no such client.
    pub fn pin(&mut self, session: u64, pin: Pin) -> bool {
        let member = self.slot_of(session).and_then(|slot| self.members[slot].as_mut());
        let Some(member) = member else {
            return self.change_away(Party::Client(session), |rules| rules.pins.push(pin));
        };
        member.rules.pins.push(pin);
        self.rewire();
        true
    }

    /// Has a client get no flow any more but by its address; false if there is no such client.
    pub fn unpin(&mut self, session: u64) -> bool {
        let member = self.slot_of(session).and_then(|slot| self.members[slot].as_mut());
        let Some(member) = member else {
            return self.change_away(Party::Client(session), |rules| rules.pins.clear());
        };
        member.rules.pins.clear();
        self.rewire();
        true
    }

    /// Who of those that it serves is in a circuit, and with whom.
    pub fn circuits(&self) -> impl Iterator<Item = (Party, Circuit, Option<Party>)> {
        self.wired.iter().filter(|one| one.place.is_here()).map(|one| {
            let other = one.other.and_then(|place| self.party(place));
            (one.party, one.circuit, other)
        })
    }

    /// The flows that its clients get, in the order in which they are looked at.
    pub fn pins(&self) -> impl Iterator<Item = (u64, &Pin)> {
        let mut clients: Vec<_> = self.members.iter().flatten().collect();
        clients.sort_unstable_by_key(|member| member.session);
        clients.into_iter().flat_map(|member| member.rules.pins.iter().map(|pin| (member.session, pin)))
    }

    /// Every client whose sending is limited, and how.
    pub fn limits(&self) -> impl Iterator<Item = (u64, RateLimit)> {
        self.members.iter().flatten().filter_map(|member| Some((member.session, member.rules.limit?)))
    }

    pub(super) fn party(&self, place: Place) -> Option<Party> {
        match place {
            Place::Client(slot) => Some(Party::Client(self.members[slot as usize].as_ref()?.session)),
            Place::Port(port) => Some(Party::Port(self.number_of(port as usize))),
            Place::Trunk(_) => None,
            Place::Away(number) => Some(self.aways[number as usize].as_ref()?.away.party),
        }
    }

    /// Finds out who is connected to whom, after somebody came, went, or was put elsewhere.
    pub(super) fn rewire(&mut self) {
        let ports =
            self.ports.iter().enumerate().filter_map(|(port, end)| Some((Place::Port(port as u32), end.circuit?)));
        let clients = self.clients_by_place();
        let clients = clients.filter_map(|(place, _, rules)| Some((place, rules.circuit?)));
        let away_ports = self.aways_by_place().filter(|(_, away)| matches!(away.party, Party::Port(_)));
        let away_ports = away_ports.filter_map(|(place, away)| Some((place, away.rules.circuit?)));
        let places = ports.chain(clients).chain(away_ports);
        let mut wired: Vec<Wired> = places
            .filter_map(|(place, circuit)| Some(Wired { place, circuit, party: self.party(place)?, other: None }))
            .collect();
        wired.sort_unstable_by_key(|one| (one.circuit, one.party));
        let first = |wired: &[Wired], circuit: Circuit| wired.iter().position(|one| one.circuit == circuit);
        for index in 0..wired.len() {
            let opposite = first(&wired, wired[index].circuit.opposite());
            if first(&wired, wired[index].circuit) == Some(index) {
                wired[index].other = opposite.map(|other| wired[other].place);
            }
        }
        self.wired = wired;
        let offloads = || self.members.iter().flatten().map(|member| member.rules.offloads);
        let port_vlans = self.ports.iter().map(|end| end.vlan);
        let away_vlans = self.aways_by_place().map(|(_, away)| away.rules.vlan);
        let client_vlans = self.clients_by_place().map(|(_, _, rules)| rules.vlan);
        let mut vlans = port_vlans.chain(away_vlans).chain(client_vlans).flatten();
        let has_vlans = vlans.next().is_some();
        drop(vlans);
        self.has_vlans = has_vlans;
        self.has_lookers = offloads().any(|offloads| offloads.need_a_look());
        self.has_joiners = offloads().any(|offloads| offloads.join);
        // A port of another thread may take them; that this is not known costs a checksum at most.
        let away_ports = self.aways_by_place().filter(|(_, away)| matches!(away.party, Party::Port(_))).count();
        let ports = self.ports.iter().filter(|end| end.takes_unfinished).count() + away_ports;
        self.has_unfinished = ports > 1 || self.clients_by_place().any(|(_, _, rules)| rules.offloads.unfinished);
        // Who is in a circuit is in no other traffic.
        let mut pins: Vec<_> = self.clients_by_place().filter(|(_, _, rules)| rules.circuit.is_none()).collect();
        pins.sort_unstable_by_key(|&(_, session, _)| session);
        let within = |(place, _, rules): (Place, u64, &Rules)| {
            let within = rules.pins.iter().filter_map(|pin| Some((place, pin.within(rules.vlan)?)));
            within.collect::<Vec<_>>()
        };
        let pins: Vec<(Place, Pin)> = pins.into_iter().flat_map(within).collect();
        self.pinned = PinnedFlows::of(pins.iter().map(|(place, pin)| (*place, pin)));
        self.set_ways();
    }

    /// Every client of the network: its place, its session, what it may do.
    fn clients_by_place(&self) -> impl Iterator<Item = (Place, u64, &Rules)> {
        let own = self.members.iter().enumerate().filter_map(|(slot, member)| {
            let member = member.as_ref()?;
            Some((Place::Client(slot as u32), member.session, &member.rules))
        });
        own.chain(self.aways_by_place().filter_map(|(place, away)| match away.party {
            Party::Client(session) => Some((place, session, &away.rules)),
            Party::Port(_) => None,
        }))
    }

    /// Whether a place is in a circuit, and so in no other traffic; and the other end, if it is there.
    #[inline(always)]
    pub(super) fn circuit_of(&self, place: Place) -> Option<Option<Place>> {
        self.wired.iter().find(|one| one.place == place).map(|one| one.other)
    }
}
