//! Ports that another daemon goes on with: promised by the old one while it serves, given when its threads have ended.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use conic_port::Legacy;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::{Daemon, open};
use super::{Last, Link};
use crate::event::Event;

/// What is said of a port that the old one can give.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Promise {
    network: String,
    spec: String,
}

/// What is said of a queue of a port that is given; its descriptors follow.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Given {
    /// Which promise it keeps.
    promise: usize,
    peer: String,
    words: Vec<u64>,
    descriptors: usize,
}

/// A port that was promised, for the new one.
pub(super) struct Promised {
    promise: Promise,
    /// The network and the port here that it is for.
    place: Option<(usize, usize)>,
    legacies: Vec<Legacy>,
}

/// The ports that were promised.
#[derive(Default)]
pub(super) struct Expected(Vec<Promised>);

impl Expected {
    pub(super) fn of(promises: Vec<Promise>) -> Expected {
        let promised = |promise| Promised { promise, place: None, legacies: Vec::new() };
        Expected(promises.into_iter().map(promised).collect())
    }

    /// Whether a port is promised; it is then the place's, and nobody else's.
    pub(super) fn claim(&mut self, network: &str, spec: &str, place: (usize, usize)) -> bool {
        let is_it =
            |one: &&mut Promised| one.place.is_none() && one.promise.network == network && one.promise.spec == spec;
        let found = self.0.iter_mut().find(is_it);
        found.is_some_and(|one| one.place.replace(place).is_none())
    }

    /// The promises that are to be kept.
    pub(super) fn claimed(&self) -> Vec<usize> {
        self.0.iter().enumerate().filter(|(_, one)| one.place.is_some()).map(|(number, _)| number).collect()
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
    /// The ports that another daemon can go on with, and where they are.
    fn bequeathable(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.networks.iter().enumerate().flat_map(|(network, one)| {
            let ports = one.can_bequeath.iter().enumerate().filter(|(_, can)| **can);
            ports.map(move |(port, _)| (network, port))
        })
    }

    pub(super) fn promises(&self) -> Vec<Promise> {
        let promise = |(network, port): (usize, usize)| {
            let config = &self.networks[network].config;
            Promise { network: config.name.clone(), spec: config.ports[port].spec.clone() }
        };
        self.bequeathable().map(promise).collect()
    }

    /// The ports of a network that are wanted, by promise and place.
    pub(super) fn wanted(&self, network: usize, claimed: &[usize]) -> Vec<(usize, usize)> {
        let places = self.bequeathable().enumerate();
        let own = places.filter(|(promise, (of, _))| *of == network && claimed.contains(promise));
        own.map(|(promise, (_, port))| (promise, port)).collect()
    }

    /// Goes on with the ports that were given. One that was promised and not given, because it broke, is opened anew.
    pub(super) fn inherit_ports(&mut self, expected: Expected) {
        for Promised { promise, place, legacies } in expected.0 {
            let Some((network, port)) = place else { continue };
            let config = &self.networks[network].config;
            let inherited = open(&config.ports[port], config.circuit_of_port(port), legacies);
            match inherited {
                Ok(port_of_switch) => self.networks[network].worker.inherit(port, port_of_switch.queues),
                Err(text) => {
                    let network = promise.network;
                    (self.log)(&Event::PortFailed { network, text });
                }
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
