//! Static cross-connects: two places whose frames go to each other, unchanged and whatever their addresses, and to nobody else.

use conic_fabric::Core;
use serde::{Deserialize, Serialize};

use super::offload::Told;
use super::pinned::PinnedFlows;
use super::table::Place;
use super::{Pin, Switch};

/// One end of a circuit. A circuit carries frames when both its ends are there; until then what is sent into it is dropped and
/// counted. Where several places claim one end, the first that came has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Circuit {
    /// Which circuit of the network.
    pub number: u64,
    /// Which of its two ends.
    pub far: bool,
}

/// Somebody whom a switch serves, as operators name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// A client, by its session.
    Client(u64),
    /// A port, by its number in the network.
    Port(usize),
}

/// A place that is in a circuit, and the one at the other end if there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wired {
    place: Place,
    circuit: Circuit,
    /// The session, for the order in which clients came.
    came: u64,
    other: Option<Place>,
}

impl<C: Core> Switch<C> {
    /// Puts somebody into a circuit, or takes it out of any; false if there is no such party.
    pub fn connect(&mut self, party: Party, circuit: Option<Circuit>) -> bool {
        match party {
            Party::Client(session) => {
                let member = self.slot_of(session).and_then(|slot| self.members[slot].as_mut());
                let Some(member) = member else { return false };
                member.rules.circuit = circuit;
            }
            Party::Port(port) => {
                let Some(end) = self.ports.get_mut(port) else { return false };
                end.circuit = circuit;
            }
        }
        self.rewire();
        true
    }

    /// Has a client get a flow in addition; false if there is no such client.
    pub fn pin(&mut self, session: u64, pin: Pin) -> bool {
        let member = self.slot_of(session).and_then(|slot| self.members[slot].as_mut());
        let Some(member) = member else { return false };
        member.rules.pins.push(pin);
        self.rewire();
        true
    }

    /// Has a client get no flow any more but by its address; false if there is no such client.
    pub fn unpin(&mut self, session: u64) -> bool {
        let member = self.slot_of(session).and_then(|slot| self.members[slot].as_mut());
        let Some(member) = member else { return false };
        member.rules.pins.clear();
        self.rewire();
        true
    }

    /// Who is in a circuit, and with whom.
    pub fn circuits(&self) -> impl Iterator<Item = (Party, Circuit, Option<Party>)> {
        self.wired.iter().filter_map(|one| {
            let other = one.other.and_then(|place| self.party(place));
            Some((self.party(one.place)?, one.circuit, other))
        })
    }

    /// The flows that clients get, in the order in which they are looked at.
    pub fn pins(&self) -> impl Iterator<Item = (u64, &Pin)> {
        let clients = self.members.iter().flatten();
        clients.flat_map(|member| member.rules.pins.iter().map(|pin| (member.session, pin)))
    }

    pub(super) fn party(&self, place: Place) -> Option<Party> {
        match place {
            Place::Client(slot) => Some(Party::Client(self.members[slot as usize].as_ref()?.session)),
            Place::Port(port) => Some(Party::Port(port as usize)),
        }
    }

    /// Finds out who is connected to whom, after somebody came, went, or was put elsewhere.
    pub(super) fn rewire(&mut self) {
        let ports = self.ports.iter().enumerate();
        let ports = ports.filter_map(|(port, end)| Some((Place::Port(port as u32), end.circuit?, 0)));
        let members = self.members.iter().enumerate().filter_map(|(slot, member)| {
            let member = member.as_ref()?;
            Some((Place::Client(slot as u32), member.rules.circuit?, member.session))
        });
        let mut wired: Vec<Wired> =
            ports.chain(members).map(|(place, circuit, came)| Wired { place, circuit, came, other: None }).collect();
        wired.sort_unstable_by_key(|one| (one.circuit, one.came, one.place));
        let first = |wired: &[Wired], circuit: Circuit| wired.iter().position(|one| one.circuit == circuit);
        for index in 0..wired.len() {
            let Circuit { number, far } = wired[index].circuit;
            let opposite = first(&wired, Circuit { number, far: !far });
            if first(&wired, wired[index].circuit) == Some(index) {
                wired[index].other = opposite.map(|other| wired[other].place);
            }
        }
        self.wired = wired;
        let offloads = || self.members.iter().flatten().map(|member| member.rules.offloads);
        self.has_lookers = offloads().any(|offloads| offloads.need_a_look());
        self.has_joiners = offloads().any(|offloads| offloads.join);
        let ports = self.ports.iter().filter(|end| end.takes_unfinished).count();
        self.has_unfinished = ports > 1 || offloads().any(|offloads| offloads.unfinished);
        // Who is in a circuit is in no other traffic.
        let pins = self.members.iter().enumerate().filter_map(|(slot, member)| Some((slot as u32, member.as_ref()?)));
        let pins = pins.filter(|(_, member)| member.rules.circuit.is_none());
        self.pinned =
            PinnedFlows::of(pins.flat_map(|(slot, member)| member.rules.pins.iter().map(move |pin| (slot, pin))));
    }

    /// Whether a place is in a circuit, and so in no other traffic; and the other end, if it is there.
    #[inline(always)]
    pub(super) fn circuit_of(&self, place: Place) -> Option<Option<Place>> {
        self.wired.iter().find(|one| one.place == place).map(|one| one.other)
    }
}
