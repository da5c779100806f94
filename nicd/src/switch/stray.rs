//! Frames for a station of which nobody knows where it is: who is asked.
//!
//! Who may send from its own address alone has no other station behind it, and gets none of them unless it is promiscuous, which its
//! operator has to allow. Ports and other clients may have any station behind them. A frame for several stations goes to everybody.

use conic_fabric::Core;

use super::circuit::Party;
use super::deliver::{Form, Route, Tagging, Targets};
use super::header::Header;
use super::table::Place;
use super::{Away, Rules, Switch};

impl Rules {
    /// Whether a station may be behind whoever has these rules.
    fn may_have(&self, station: [u8; 6]) -> bool {
        // Its own address may be unknown in a VLAN whose tags it passes as they are.
        !self.own_address_only || self.promiscuous || self.mac == station
    }
}

impl<C: Core> Switch<C> {
    /// Has a client get frames for stations that nobody is known to have, or not; whoever serves it. False if there is no such client.
    /// Whether it may is for the caller to see to.
    pub fn set_promiscuous(&mut self, session: u64, promiscuous: bool) -> bool {
        let Some((_, rules)) = self.client(session) else { return false };
        rules.promiscuous = promiscuous;
        true
    }

    /// Its promiscuous clients.
    pub fn promiscuous(&self) -> impl Iterator<Item = u64> {
        let members = self.members.iter().flatten();
        members.filter(|member| member.rules.promiscuous).map(|member| member.session)
    }

    /// The way of a frame for a station of which nobody knows where it is; none, and it is counted, where it can be nowhere. Other threads
    /// are asked wherever it may be: one of them may know it, and answers.
    pub(super) fn ask_for(&mut self, from: Place, header: &Header, tagging: Option<Tagging>) -> Option<Route> {
        let stray = Some(header.destination());
        let route = Route { stray, ..Route::to(from, Targets::AllBut(from), tagging, None) };
        // What came by a trunk may have reached others where it came in.
        let is_for_others = matches!(from, Place::Trunk(_));
        if is_for_others || self.places().any(|place| self.may_be_at(&route, place)) {
            return Some(route);
        }
        self.count_no_way(from);
        None
    }

    /// Whether the station that a frame is for may be at a place.
    fn may_be_at(&self, route: &Route, place: Place) -> bool {
        let Place::Trunk(trunk) = place else { return self.form_at(route, place) != Form::Never };
        let thread = self.trunks[trunk as usize].thread;
        let mut theirs = self.aways_by_place().filter(|(_, away)| away.thread == thread);
        theirs.any(|(place, Away { party, rules, .. })| {
            let may_have =
                matches!(party, Party::Port(_)) || route.stray.is_some_and(|station| rules.may_have(station));
            let is_of_it = route.tagging.is_none_or(|tagging| tagging.form_for(rules.vlan) != Form::Never);
            may_have && is_of_it && self.circuit_of(place).is_none()
        })
    }

    /// Whether a station that nobody is known to have may be behind a client.
    pub(super) fn may_be_behind(&self, slot: u32, station: [u8; 6]) -> bool {
        self.members[slot as usize].as_ref().is_some_and(|member| member.rules.may_have(station))
    }
}
