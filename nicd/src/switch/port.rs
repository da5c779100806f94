//! A port of a switch, or its part of one: what it gives, what was counted of it, and how ports come and go.

use conic_fabric::{Core, Time};
use conic_port::offload::segment::LONGEST;
use conic_port::offload::virtio;
use conic_port::{Legacy, MAX_FRAME, Port, PortError, Receive};

use super::circuit::{Circuit, Party};
use super::counters::PortCounters;
use super::deliver::Lately;
use super::forward::Last;
use super::parts::Parts;
use super::table::Place;
use super::{BURST, Switch};

/// A port, for a switch.
pub struct SwitchPort {
    /// Its queues, or those of the part that the switch has; none yet if they come from another switch ([`Switch::inherit`]).
    pub queues: Vec<Box<dyn Port>>,
    /// The VLAN that it is a member of, its frames without tags; tags pass as they are if there is none.
    pub vlan: Option<u16>,
    /// The circuit that it is an end of.
    pub circuit: Option<Circuit>,
}

/// A port of a switch, or its part of one.
pub(super) struct PortEnd {
    /// Which port of the network, and who has the parts of it.
    pub parts: Parts,
    /// Its queues here.
    pub queues: Vec<Box<dyn Port>>,
    pub counters: PortCounters,
    /// For each queue, whether no more will come from it.
    pub ended: Vec<bool>,
    /// Something was given to a queue and may not have left.
    pub unflushed: bool,
    /// How each queue has sent.
    pub lately: Vec<Lately>,
    pub failures: Vec<PortError>,
    pub vlan: Option<u16>,
    pub circuit: Option<Circuit>,
    /// It takes packets for which work is left.
    pub takes_unfinished: bool,
    /// The trunk that its frames have gone by lately.
    pub across: Option<usize>,
    /// It was detached: nobody reaches it, and its place among the others is the next one's.
    pub is_gone: bool,
}

/// Queues of a port that somebody else may go on with, and for each whether no more would come from it.
pub(super) struct Bequeathed {
    port: usize,
    queues: Vec<Box<dyn Port>>,
    ended: Vec<bool>,
}

/// What a port is and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortReport {
    /// Its number in the network.
    pub number: usize,
    /// What it is, for people.
    pub description: String,
    /// Whether there is somebody at the other end.
    pub up: bool,
    /// What it counts itself, of all its queues.
    pub own: Vec<(&'static str, u64)>,
    /// What the switch counts of it.
    pub switch: PortCounters,
}

impl PortEnd {
    pub fn new((parts, SwitchPort { queues, vlan, circuit }): (Parts, SwitchPort)) -> PortEnd {
        let (ended, counters) = (vec![false; queues.len()], PortCounters::default());
        let takes_unfinished = !queues.is_empty() && queues.iter().all(|queue| queue.takes_unfinished());
        let (lately, failures) = (vec![Lately::default(); queues.len()], Vec::new());
        PortEnd {
            parts,
            queues,
            counters,
            ended,
            unflushed: false,
            lately,
            failures,
            vlan,
            circuit,
            takes_unfinished,
            across: None,
            is_gone: false,
        }
    }

    fn report(&self) -> PortReport {
        let mut own: Vec<(&'static str, u64)> = Vec::new();
        for queue in &self.queues {
            add(&mut own, queue.counters().named().into_iter().chain(queue.details()));
        }
        PortReport {
            number: self.parts.port(),
            description: self.queues.first().map(|queue| queue.description()).unwrap_or_default(),
            up: self.queues.iter().any(|queue| queue.is_up()),
            own,
            switch: self.counters,
        }
    }
}

/// Adds counts to others, by their names.
fn add(own: &mut Vec<(&'static str, u64)>, more: impl IntoIterator<Item = (&'static str, u64)>) {
    for (name, count) in more {
        match own.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => own.push((name, count)),
        }
    }
}

impl PortReport {
    /// Takes in what another thread says of its part of the same port.
    pub fn join(&mut self, other: PortReport) {
        if self.description.is_empty() {
            self.description = other.description;
        }
        self.up |= other.up;
        add(&mut self.own, other.own);
        self.switch += other.switch;
    }
}

impl<C: Core> Switch<C> {
    /// Serves a port, or its part of one, from the next step on. Those that it has keep their places, and their numbers.
    pub fn attach_port(&mut self, parts: Parts, port: SwitchPort) {
        let end = PortEnd::new((parts, port));
        let index = self.ports.iter().position(|end| end.is_gone).unwrap_or(self.ports.len());
        match self.ports.get_mut(index) {
            Some(place) => *place = end,
            None => self.ports.push(end),
        }
        self.enter_forwarding(index);
        self.rewire();
    }

    /// Lets the port of this number in the network go, or its part of it: what is for it has no way from here on, and where stations behind
    /// it are is not known any more. Its queues, which the caller closes: that may take long. None if it has no such port. No other
    /// port of the network has its number ever after: frames that are on their way from other threads say from behind which port they are.
    pub fn detach_port(&mut self, number: usize) -> Option<Vec<Box<dyn Port>>> {
        let index = self.port_of(number)?;
        self.leave_forwarding(index);
        let end = &mut self.ports[index];
        let nothing = SwitchPort { queues: Vec::new(), vlan: None, circuit: None };
        let gone = std::mem::replace(end, PortEnd { is_gone: true, ..PortEnd::new((end.parts, nothing)) });
        self.finished.retain(|&(port, _)| port != index);
        self.unmirror(Party::Port(number));
        let place = Place::Port(index as u32);
        self.table.forget(place);
        // Who has its place next has crowded nobody out.
        self.members.iter_mut().flatten().for_each(|member| member.crowd.forget(place));
        self.rewire();
        Some(gone.queues)
    }

    /// Has all ports write out what they hold, behind the last step: those that could not, by their numbers in the network, with the first
    /// reason of each.
    pub fn finish_ports(&mut self) -> Vec<(usize, PortError)> {
        let finish = |end: &mut PortEnd| {
            // Each queue is finished, whatever became of the others.
            let errors: Vec<PortError> = end.queues.iter_mut().filter_map(|queue| queue.finish().err()).collect();
            Some((end.parts.port(), errors.into_iter().next()?))
        };
        self.ports.iter_mut().filter_map(finish).collect()
    }

    /// Stops using the queues that it has of a port of the network; what they give to whoever goes on with them, or nothing if one of them cannot. They
    /// are kept until nobody can come back to them, and dropped with this switch: a device that cannot be passed is free then, and closing it may take long.
    pub fn bequeath(&mut self, port: usize) -> Vec<Legacy> {
        let Some(index) = self.port_of(port) else { return Vec::new() };
        self.pass_forwarding_on(index);
        let end = &mut self.ports[index];
        let mut queues = std::mem::take(&mut end.queues);
        let ended = std::mem::take(&mut end.ended);
        let legacies = queues.iter_mut().map(|queue| queue.bequeath()).collect::<Option<_>>().unwrap_or_default();
        self.bequeathed.push(Bequeathed { port, queues, ended });
        legacies
    }

    /// Goes on with the queues of a port that have given nothing to anybody, behind [`Switch::bequeath`]: nobody else has gone on with them.
    pub fn take_back(&mut self, port: usize) {
        let Some(index) = self.port_of(port) else { return };
        let Some(place) = self.bequeathed.iter().position(|one| one.port == port) else { return };
        let Bequeathed { queues, ended, .. } = self.bequeathed.swap_remove(place);
        let end = &mut self.ports[index];
        (end.queues, end.ended) = (queues, ended);
        self.enter_forwarding(index);
        self.rewire();
    }

    /// The queues of a port that have given what others go on with, for the caller to close.
    pub fn take_bequeathed(&mut self, port: usize) -> Vec<Box<dyn Port>> {
        let place = self.bequeathed.iter().position(|one| one.port == port);
        place.map(|place| self.bequeathed.swap_remove(place).queues).unwrap_or_default()
    }

    /// Begins with the queues of its part of a port of the network, which another switch has stopped using.
    pub fn inherit(&mut self, port: usize, queues: Vec<Box<dyn Port>>) {
        let Some(index) = self.port_of(port) else { return };
        let end = &mut self.ports[index];
        let (parts, vlan, circuit, counters) = (end.parts, end.vlan, end.circuit, end.counters);
        *end = PortEnd { counters, ..PortEnd::new((parts, SwitchPort { queues, vlan, circuit })) };
        self.enter_forwarding(index);
        self.rewire();
    }

    /// Takes frames from a port's queues. A port that waits for room counts as one that moved: nobody may sleep on what lies there.
    pub(super) fn serve_port(&mut self, now: Time, index: usize) -> usize {
        let (mut moved, mut held) = (0, 0);
        for queue in 0..self.ports[index].queues.len() {
            let (mut taken, mut last) = (0, Last::none(()));
            while taken < BURST && !self.ports[index].ended[queue] {
                if self.is_held_back(index) {
                    held = 1;
                    break;
                }
                let end = &mut self.ports[index];
                let (received, metadata) = if self.has_unfinished && end.takes_unfinished {
                    let mut metadata = virtio::Metadata::NONE;
                    (end.queues[queue].receive_unfinished(now, &mut self.frame[..LONGEST], &mut metadata), metadata)
                } else {
                    (end.queues[queue].receive(now, &mut self.frame[..MAX_FRAME]), virtio::Metadata::NONE)
                };
                match received {
                    Ok(Receive::Frame { length, .. }) if metadata == virtio::Metadata::NONE => {
                        self.forward_received(now, Place::Port(index as u32), length, &mut last);
                    }
                    Ok(Receive::Frame { length, .. }) => {
                        last.route = None;
                        let sound = self.forward_from_port(now, index as u32, length, metadata);
                        self.ports[index].counters.dropped_offload += u64::from(!sound);
                    }
                    Ok(Receive::Skipped) => {}
                    Ok(Receive::None) => break,
                    Ok(Receive::End) => {
                        end.ended[queue] = true;
                        self.finished.push((index, queue));
                    }
                    Err(error) => {
                        end.ended[queue] = true;
                        end.failures.push(error);
                        end.lately[queue].note_told();
                        self.finished.push((index, queue));
                    }
                }
                taken += 1;
            }
            moved += taken;
        }
        if moved > 0 {
            self.flush(now);
        }
        moved + held
    }

    /// The ports that it has, or has a part of.
    pub fn ports(&self) -> impl Iterator<Item = PortReport> {
        let ends = self.ports.iter().enumerate().filter(|(_, end)| !end.is_gone);
        ends.map(|(index, end)| self.with_forwarded(index, end.report()))
    }

    /// How ports have failed since this was asked last. One that goes on to fail where it sends has failed once.
    pub fn take_failures(&mut self) -> Vec<String> {
        let failures = self.ports.iter_mut().flat_map(|end| end.failures.drain(..));
        failures.map(|error| error.to_string()).collect()
    }
}
