//! Who is in which circuit goes on: who is connected to whom is settled with all at hand who come, before the old daemon serves no more.

use conic_nicd::switch::{Circuit, Party, PassedEnd};

use super::super::Daemon;
use super::Arriving;
use super::ports::Expected;
use crate::order::Report;

/// What is said of somebody, given what its network's threads say, and what the configuration says of it.
pub(super) fn passed_end(report: &Report, party: Party, configured: Option<Circuit>) -> PassedEnd {
    let own = report.circuits.iter().find(|(of, ..)| *of == party);
    PassedEnd { circuit: own.map(|(_, circuit, _)| *circuit), configured }
}

impl Daemon {
    /// Connects the ports as they are to be from here on, and says of each client in which circuit it is.
    pub(super) fn settle_circuits(&self, ports: &Expected, arriving: &mut [Arriving]) {
        for (index, network) in self.networks.iter().enumerate() {
            let mut all: Vec<(PassedEnd, Option<Circuit>)> = Vec::new();
            let end_of =
                |&port: &usize| (ports.wired((index, port)).unwrap_or_default(), network.config.circuit_of_port(port));
            all.extend(network.ports.keys().map(end_of));
            let clients = || arriving.iter().filter(|one| one.network == index);
            all.extend(clients().map(|one| (one.heir.wired, network.config.circuit_of_client(&one.heir.name))));
            let mut settled = PassedEnd::settled(&all).into_iter();
            for (&port, circuit) in network.ports.keys().zip(settled.by_ref()).filter(|(_, circuit)| circuit.is_some())
            {
                network.connect(Party::Port(port), circuit);
            }
            let clients = arriving.iter_mut().filter(|one| one.network == index);
            clients.zip(settled).for_each(|(one, circuit)| one.circuit = circuit);
        }
    }
}
