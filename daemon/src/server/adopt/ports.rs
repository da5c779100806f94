//! Ports that another daemon goes on with: promised by the old one while it serves, given when its threads stand still.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use conic_nicd::config::EndConfig;
use conic_nicd::switch::{Party, PassedEnd};
use conic_port::{Legacy, Port};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::Daemon;
use super::super::mirror::Asked;
use super::super::network::{NetworkPort, go_on};
use super::super::ports::MISTAKE;
use super::super::region::{aside, unless_it_panics};
use super::Last;
use super::circuits::passed_end;
use super::link::Link;
use crate::event::Event;
use crate::order::News;

/// What is said of a port of the old one, which serves nobody else meanwhile: operators are heard by the thread that speaks here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::server) struct Promise {
    pub(super) network: String,
    /// Its number there, which it keeps where an operator has attached it.
    pub(super) number: usize,
    pub spec: String,
    /// What it is a member of; a configuration says so itself of its own ports.
    pub vlan: Option<u16>,
    /// An operator has attached it.
    pub(super) attached: bool,
    /// It can be given; otherwise it is opened anew.
    pub given: bool,
    /// The circuit that it is an end of, and the configuration's.
    pub(super) wired: PassedEnd,
    /// Its mirror, if an operator asked for one.
    pub(super) mirror: Option<Asked>,
}

/// What is said of a queue of a port that is given; its descriptors follow.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Given {
    /// Which promise it keeps.
    pub promise: usize,
    pub peer: String,
    pub words: Vec<u64>,
    pub descriptors: usize,
}

/// A port of the old one, for the new one.
pub(super) struct Promised {
    promise: Promise,
    /// The network and the port here that is the same.
    place: Option<(usize, usize)>,
    legacies: Vec<Legacy>,
}

/// A port of this one that was opened aside, or cannot be.
pub(crate) struct Anew {
    place: (usize, usize),
    /// Locked by nobody: news may be what several threads have a part in, and a port is one thread's.
    queues: Mutex<Result<Vec<Box<dyn Port>>, String>>,
}

/// The ports of the old one.
#[derive(Default)]
pub(super) struct Expected(Vec<Promised>);

impl Expected {
    pub(super) fn of(promises: Vec<Promise>) -> Expected {
        let promised = |promise| Promised { promise, place: None, legacies: Vec::new() };
        Expected(promises.into_iter().map(promised).collect())
    }

    /// What is promised of a port, if the old one has it; it is then the place's, and nobody else's.
    pub(super) fn claim(&mut self, network: &str, spec: &str, place: (usize, usize)) -> Option<Promise> {
        let is_it =
            |one: &&mut Promised| one.place.is_none() && one.promise.network == network && one.promise.spec == spec;
        let found = self.0.iter_mut().find(is_it)?;
        found.place = Some(place);
        Some(found.promise.clone())
    }

    /// What is promised of those that an operator has attached and no configuration names, which are then of the network and at the places of
    /// these numbers here: their own, but not before the first that is given.
    pub(super) fn claim_attached(&mut self, network: &str, (own, first): (usize, usize)) -> Vec<(usize, Promise)> {
        let is_it = |one: &&mut Promised| one.place.is_none() && one.promise.attached && one.promise.network == network;
        let mut claimed: Vec<(usize, Promise)> = Vec::new();
        // They stand in the order of their numbers.
        for one in self.0.iter_mut().filter(is_it) {
            let next = claimed.last().map_or(first, |(number, _)| number + 1);
            let number = one.promise.number.max(next);
            one.place = Some((own, number));
            claimed.push((number, one.promise.clone()));
        }
        claimed
    }

    /// How the port at a place here was connected, if the old one has it.
    pub(super) fn wired(&self, place: (usize, usize)) -> Option<PassedEnd> {
        self.0.iter().find(|one| one.place == Some(place)).map(|one| one.promise.wired)
    }

    /// The ports that are to be given, by their numbers.
    pub(super) fn claimed(&self) -> Vec<usize> {
        let wanted = |one: &Promised| one.place.is_some() && one.promise.given;
        self.0.iter().enumerate().filter(|(_, one)| wanted(one)).map(|(number, _)| number).collect()
    }

    /// Takes away the ports of these numbers.
    pub(super) fn split_off(&mut self, numbers: &[usize]) -> Expected {
        let all = std::mem::take(&mut self.0).into_iter().enumerate();
        let (apart, kept): (Vec<_>, Vec<_>) = all.partition(|(number, _)| numbers.contains(number));
        self.0 = kept.into_iter().map(|(_, one)| one).collect();
        Expected(apart.into_iter().map(|(_, one)| one).collect())
    }

    /// Takes what is given of a port.
    pub(super) fn take(&mut self, link: &Link<'_>, given: Given) -> io::Result<()> {
        let Given { promise, peer, words, descriptors } = given;
        let descriptors = link.hear_descriptors(descriptors)?;
        if let Some(one) = self.0.get_mut(promise) {
            one.legacies.push(Legacy { peer, words, descriptors });
        }
        Ok(())
    }
}

impl Daemon {
    /// Where each port is that is promised.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let networks = self.networks.iter().enumerate();
        networks.flat_map(|(network, one)| one.ports.keys().map(move |&port| (network, port)))
    }

    pub(super) fn promises(&self) -> Vec<Promise> {
        let reports: Vec<_> = self.networks.iter().map(|network| network.report()).collect();
        let promise = |(network, number): (usize, usize)| {
            let (one, report, party) = (&self.networks[network], &reports[network], Party::Port(number));
            let NetworkPort { config, is_attached, can_bequeath, .. } = &one.ports[&number];
            Promise {
                network: one.config.name.clone(),
                number,
                spec: config.spec.clone(),
                vlan: config.vlan,
                attached: *is_attached,
                given: *can_bequeath,
                wired: passed_end(report, party, one.config.circuit_of_port(number)),
                mirror: one.mirror_to_pass(party, &report.mirrors),
            }
        };
        self.places().map(promise).collect()
    }

    /// The ports of a network that are wanted, by promise and place.
    pub(super) fn wanted(&self, network: usize, claimed: &[usize]) -> Vec<(usize, usize)> {
        let places = self.places().enumerate();
        let own = places.filter(|(promise, (of, _))| *of == network && claimed.contains(promise));
        own.map(|(promise, (_, port))| (promise, port)).collect()
    }

    /// Goes on with the ports that were given, and with an operator's mirrors of any that are here too. One that was promised and not
    /// given, because it broke or was closed, is opened.
    pub(super) fn inherit_ports(&mut self, expected: Expected) {
        for Promised { promise, place, legacies } in expected.0 {
            let Some((network, port)) = place else {
                if promise.attached {
                    let Promise { network, spec, .. } = promise;
                    let text = format!("{spec}, which an operator attached, has no such network with ports any more");
                    self.journal.say(&Event::PortFailed { network, text });
                }
                continue;
            };
            if let Some(passed) = promise.mirror
                && let Some(event) =
                    self.networks[network].begin_mirror(Party::Port(port), &EndConfig::Port(port), Some(passed))
            {
                self.journal.say(&event);
            }
            if !promise.given {
                continue;
            }
            self.inherit_port((network, port), legacies);
        }
    }

    /// Goes on with a port by what was given of it, which may be nothing but that the other one has closed its own.
    fn inherit_port(&mut self, (network, port): (usize, usize), legacies: Vec<Legacy>) {
        let queues = go_on(&self.networks[network].ports[&port].config, legacies);
        self.go_on_with_port((network, port), queues);
    }

    /// Goes on with a port that is opened when the other one has closed all of its own.
    pub(super) fn open_late(&mut self, (network, port): (usize, usize)) {
        let spec = self.networks[network].ports[&port].config.spec();
        if spec.is_ok_and(|spec| spec.may_wait()) {
            self.open_aside((network, port));
        } else {
            self.inherit_port((network, port), Vec::new());
        }
    }

    /// Has a thread open a port, for as long as that takes.
    fn open_aside(&mut self, place: (usize, usize)) {
        let (network, port) = place;
        let (own, config) = (self.reports.clone(), self.networks[network].ports[&port].config.clone());
        let begun = aside(move || {
            let opened = unless_it_panics(|| go_on(&config, Vec::new()));
            let queues = opened.unwrap_or_else(|| Err(MISTAKE.to_owned()));
            own.tell(News::PortAnew(Box::new(Anew { place, queues: Mutex::new(queues) })));
        });
        if begun.is_none() {
            self.go_on_with_port(place, Err("there is no thread to open it".to_owned()));
        }
    }

    /// Gives a port to its network that was opened aside.
    pub(in crate::server) fn port_is_there_anew(&mut self, anew: Anew) {
        self.go_on_with_port(anew.place, anew.queues.into_inner().unwrap_or_else(PoisonError::into_inner));
    }

    /// Gives a port its queues, or says why it has none; an operator may have detached it meanwhile.
    fn go_on_with_port(&mut self, (network, port): (usize, usize), queues: Result<Vec<Box<dyn Port>>, String>) {
        let one = &self.networks[network];
        match queues {
            Ok(queues) => one.inherit(port, queues),
            Err(text) => {
                let network = one.config.name.clone();
                self.journal.say(&Event::PortFailed { network, text });
            }
        }
    }
}

/// Gives what a port's queue was asked for.
pub(super) fn give(link: &Link<'_>, promise: usize, legacy: &Legacy) -> io::Result<()> {
    let Legacy { peer, words, descriptors } = legacy;
    let (peer, words) = (peer.clone(), words.clone());
    let given = Given { promise, peer, words, descriptors: descriptors.len() };
    link.say(&json!(Last::Port(given)), &[])?;
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    link.say_descriptors(&descriptors)
}
