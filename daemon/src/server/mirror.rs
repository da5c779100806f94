//! Mirrors that the configuration asks for: a port's from the daemon's start, a client's from its attaching.

use conic_nicd::config::{EndConfig, MIRROR_BYTES};
use conic_nicd::switch::Party;

use super::operator::party_text;
use super::{Daemon, Network};
use crate::capture::Capture;
use crate::event::Event;

/// Begins to copy what somebody sends and gets, if the configuration says so. One who cannot be mirrored is served all the same.
pub(super) fn begin(network: &Network, party: Party, end: &EndConfig) -> Option<Event> {
    let mirror = network.config.mirror_of(end)?;
    let (end, network_name) = (party_text(party), network.config.name.clone());
    let event = match Capture::start_beside_others(&mirror.file, mirror.most_bytes.unwrap_or(MIRROR_BYTES)) {
        Ok((capture, file)) => {
            network.worker.mirror(party, Some(Box::new(capture)));
            Event::Mirrored { network: network_name, end, file: file.display().to_string() }
        }
        Err(text) => Event::NotMirrored { network: network_name, end, text },
    };
    Some(event)
}

impl Daemon {
    /// Begins the mirrors of all ports.
    pub(super) fn mirror_ports(&mut self) {
        for network in &self.networks {
            for port in 0..network.config.ports.len() {
                if let Some(event) = begin(network, Party::Port(port), &EndConfig::Port(port)) {
                    (self.log)(&event);
                }
            }
        }
    }
}
