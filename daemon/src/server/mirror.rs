//! Mirrors: those that the configuration asks for, a port's from the daemon's start, a client's from its attaching; and those that an
//! operator asks for, which a daemon that takes over goes on with.

use std::path::PathBuf;

use conic_nicd::config::{EndConfig, MIRROR_BYTES};
use conic_nicd::switch::{MirrorCounters, Party};
use serde::{Deserialize, Serialize};

use super::Daemon;
use super::network::Network;
use super::operator::party_text;
use crate::capture::Capture;
use crate::event::Event;

/// A mirror that an operator asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    /// Where its copies go.
    pub file: PathBuf,
    /// Bytes of frames that the file takes.
    pub most_bytes: u64,
}

impl Network {
    /// Copies what somebody sends and gets to a new file, as an operator asks.
    ///
    /// # Errors
    ///
    /// There is no such file to be made; the text says why.
    pub(super) fn mirror(&mut self, party: Party, asked: Asked) -> Result<(), String> {
        let capture = Capture::start(asked.file.clone(), asked.most_bytes, &self.writers)?;
        self.copy_to(party, Some(capture));
        self.forget_mirror(party);
        self.asked_mirrors.push((party, asked));
        Ok(())
    }

    /// Ends a mirror, whoever asked for it; false if there is none.
    pub(super) fn unmirror(&mut self, party: Party) -> bool {
        let is_there = self.report().mirrors.iter().any(|(one, _)| *one == party);
        if is_there {
            self.copy_to(party, None);
            self.forget_mirror(party);
        }
        is_there
    }

    /// Nobody goes on with the mirror of one who has left.
    pub(super) fn forget_mirror(&mut self, party: Party) {
        self.asked_mirrors.retain(|(one, _)| *one != party);
    }

    /// What another daemon goes on with of the mirror of somebody, given what all have copied: a file beside this one's, for as many
    /// bytes as this one may still take.
    pub(super) fn mirror_to_pass(&self, party: Party, copied: &[(Party, MirrorCounters)]) -> Option<Asked> {
        let (_, asked) = self.asked_mirrors.iter().find(|(one, _)| *one == party)?;
        let (_, counters) = copied.iter().find(|(one, _)| *one == party)?;
        Some(Asked { file: asked.file.clone(), most_bytes: asked.most_bytes.saturating_sub(counters.bytes) })
    }

    /// Begins to copy what somebody sends and gets, if the daemon before this one did so for an operator, or else if the configuration
    /// says so. One who cannot be mirrored is served all the same.
    pub(super) fn begin_mirror(&mut self, party: Party, end: &EndConfig, passed: Option<Asked>) -> Option<Event> {
        let configured = || {
            let mirror = self.config.mirror_of(end)?;
            Some(Asked { file: mirror.file.clone(), most_bytes: mirror.most_bytes.unwrap_or(MIRROR_BYTES) })
        };
        let asked = passed.clone().or_else(configured)?;
        let (end, network) = (party_text(party), self.config.name.clone());
        let event = match Capture::start_beside_others(&asked.file, asked.most_bytes, &self.writers) {
            Ok((capture, file)) => {
                self.copy_to(party, Some(capture));
                self.asked_mirrors.extend(passed.map(|asked| (party, asked)));
                Event::Mirrored { network, end, file: file.display().to_string() }
            }
            Err(text) => Event::NotMirrored { network, end, text },
        };
        Some(event)
    }
}

impl Daemon {
    /// Begins the mirrors of all ports that the configuration asks for, where none goes on already.
    pub(super) fn mirror_ports(&mut self) {
        for network in &mut self.networks {
            for port in 0..network.config.ports.len() {
                let party = Party::Port(port);
                if network.asked_mirrors.iter().any(|(one, _)| *one == party) {
                    continue;
                }
                if let Some(event) = network.begin_mirror(party, &EndConfig::Port(port), None) {
                    self.journal.say(&event);
                }
            }
        }
    }
}
