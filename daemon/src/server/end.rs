//! The end: clients and ports are let go, and what ports hold is written out.

use super::kept::Kept;
use super::network::Network;
use super::{Connection, Daemon};
use crate::capture::Writers;
use crate::event::Event;
use crate::order::News;

/// How a daemon has ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    /// The process of the daemon that has taken over, if one has.
    pub heir: Option<i32>,
    /// How many records of what was sent to a port lack the last of it, as on a disk that is full. Each was logged, and so was each other
    /// port that could not pass on what it held: frames are lost on any network, but a record is kept to be whole.
    pub unfinished: usize,
}

impl Daemon {
    pub(super) fn end(&mut self) -> Ended {
        // Clients see their sockets closed.
        let (writers, unfinished) = self.end_networks();
        for Connection { channel, step, .. } in std::mem::take(&mut self.connections).into_values() {
            self.close(channel);
            step.into_bells().into_iter().for_each(|bell| self.close_bell(bell));
        }
        for Kept { bell, unread, .. } in std::mem::take(&mut self.kept).into_values() {
            self.close_bell(bell);
            unread.into_iter().for_each(|channel| self.close(channel));
        }
        let unread = std::mem::take(&mut self.unread).into_values().map(|(channel, _)| channel);
        unread.for_each(|channel| self.close(channel));
        self.closing.end(&self.reports);
        let _ = std::fs::remove_file(&self.config.socket);
        Writers::wait_for(writers);
        self.journal.end();
        Ended { heir: None, unfinished }
    }

    /// Ends all networks with their ports; who is still writing what mirrors have copied, and how many records
    /// are not whole.
    pub(super) fn end_networks(&mut self) -> (Vec<Writers>, usize) {
        let (writers, written): (Vec<_>, Vec<_>) = Network::end_all(&mut self.networks).into_iter().unzip();
        let mut unfinished = 0;
        for (network, _) in self.config.networks.iter().zip(&written).filter(|(_, written)| !**written) {
            unfinished += 1;
            let text = "what a port records was not written out within a second: its pipe takes no more".to_owned();
            self.journal.say(&Event::PortFailed { network: network.name.clone(), text });
        }
        // The other threads have ended: nothing else comes of them.
        while let Ok(news) = self.news.try_recv() {
            match news {
                News::PortUnfinished { network, port, is_recorded, text } => {
                    unfinished += usize::from(is_recorded);
                    let network = self.config.networks[network].name.clone();
                    self.journal.say(&Event::PortUnfinished { network, port, text });
                }
                News::PortFailed { network, text } => {
                    let network = self.config.networks[network].name.clone();
                    self.journal.say(&Event::PortFailed { network, text });
                }
                _ => {}
            }
        }
        (writers, unfinished)
    }
}
