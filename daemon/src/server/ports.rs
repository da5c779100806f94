//! Ports that an operator attaches and detaches while the daemon serves.
//!
//! | step | attaching | detaching |
//! |---|---|---|
//! | 1 | what can be said against the port is said | its number is nobody's any more |
//! | 2 | a thread of its own opens it, for as long as that takes | each thread of the network gives its queues back and forgets what it knew of it |
//! | 3 | its queues are dealt to the network's threads, and the others are told | a thread of its own closes them, for as long as that takes |
//! | 4 | the operator is told its number | the operator is told |
//!
//! An operator that leaves before step 3 leaves no port behind; a port that is to go is gone whoever waits for it.

use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};

use conic_fabric::Time;
use conic_nicd::config::PortConfig;
use conic_port::{Made, Port};
use serde_json::json;

use super::Daemon;
use super::network::open;
use super::region::{aside, unless_it_panics};
use crate::connection::{PortMove, Step, Unsaid};
use crate::event::Event;
use crate::order::News;

/// What is said of a port whose opening panicked.
pub(super) const MISTAKE: &str = "a mistake of the NIC in opening it, which its standard error tells of";

/// A port is open, or cannot be.
pub(crate) struct Opened {
    /// Who asked for it.
    connection: u64,
    network: usize,
    config: PortConfig,
    /// Locked by nobody: news may be what several threads have a part in, and a port is one thread's.
    queues: Mutex<Result<Vec<Box<dyn Port>>, String>>,
}

impl Daemon {
    /// Begins to open a port for an operator, who is told more when it is open.
    pub(super) fn begin_to_attach_port(
        &mut self,
        number: u64,
        name: Option<&str>,
        config: PortConfig,
    ) -> Result<(), String> {
        let network = self.network_named(name)?;
        self.check_port(network, &config)?;
        let own = self.reports.clone();
        let begun = aside(move || {
            let opened = unless_it_panics(|| open(&config));
            let queues = opened.unwrap_or_else(|| Err(MISTAKE.to_owned()));
            let queues = Mutex::new(queues);
            own.tell(News::PortOpened(Box::new(Opened { connection: number, network, config, queues })));
        });
        begun.ok_or("there is no thread to open it: try again")?;
        self.wait_for_port(number, PortMove::Opening);
        Ok(())
    }

    /// What can be said against a port before it is opened.
    fn check_port(&self, network: usize, config: &PortConfig) -> Result<(), String> {
        let spec = self.networks[network].config.check_port(config).map_err(|error| error.to_string())?;
        if let Some(path) = spec.relative_path() {
            return Err(format!(
                "port '{spec}': the NIC is elsewhere: name the whole path, and not {}",
                path.display()
            ));
        }
        let others =
            self.networks.iter().flat_map(|network| network.ports.values()).filter_map(|port| port.config.spec().ok());
        let made: Vec<String> = others.filter_map(|other| other.makes().map(str::to_owned)).collect();
        match spec.makes().filter(|name| made.iter().any(|one| one == name)) {
            Some(name) => {
                Err(format!("port '{spec}': the NIC has the TAP interface {name} already: choose another name"))
            }
            None => {
                let made = |what: Made<'_>| made.iter().any(|name| what == Made::Interface(name));
                spec.check(&made).map_err(|error| error.to_string())
            }
        }
    }

    /// Gives a port that is open to its network, or says why there is none. Whoever asked for it may have gone: then it goes too.
    pub(super) fn port_is_open(&mut self, opened: Opened) {
        let Opened { connection: number, network, config, queues } = opened;
        let queues = queues.into_inner().unwrap_or_else(PoisonError::into_inner);
        let waits = |step: &Step| matches!(step, Step::Asking(unsaid) if unsaid.is_early);
        if !self.connections.get(&number).is_some_and(|connection| waits(&connection.step)) {
            // To close it may take as long as to open it; without a thread for that it is closed here.
            aside(move || drop(queues));
            return;
        }
        let queues = match queues {
            Ok(queues) => queues,
            Err(why) => return self.answer_at_once(number, &json!({ "error": why })),
        };
        let spec = config.spec.clone();
        let one = &mut self.networks[network];
        let (port, name) = (one.attach_port(config, queues), one.config.name.clone());
        self.journal.say(&Event::PortAttached { network: name, port, spec });
        self.answer_when_heard(number, json!({ "done": true, "port": port }), network);
    }

    /// Takes a port from its network for an operator, who is told when it is closed.
    pub(super) fn begin_to_detach_port(&mut self, number: u64, name: Option<&str>, port: usize) -> Result<(), String> {
        let network = self.network_named(name)?;
        if !self.networks[network].ports.contains_key(&port) {
            return Err(format!("there is no port:{port} on network {}", self.networks[network].config.name));
        }
        let (queues, given) = channel::<Vec<Box<dyn Port>>>();
        let own = self.reports.clone();
        let begun = aside(move || {
            let mut failed = None;
            // Until no thread has anything of it, or has ended, by a bug.
            while let Ok(queues) = given.recv() {
                let finished = unless_it_panics(|| finish(queues)).unwrap_or(Ok(()));
                failed = failed.or(finished.err());
            }
            own.tell(News::PortClosed { connection: number, failed });
        });
        begun.ok_or("there is no thread to close it: try again")?;
        self.wait_for_port(number, PortMove::Closing);
        if let Some(PortConfig { spec, .. }) = self.networks[network].detach_port(port, &queues) {
            let network = self.networks[network].config.name.clone();
            self.journal.say(&Event::PortDetached { network, port, spec });
        }
        Ok(())
    }

    /// Tells an operator that a port is closed, and where not all that was sent to it is written out.
    pub(super) fn port_is_closed(&mut self, number: u64, failed: Option<String>) {
        let answer = match failed {
            None => json!({ "done": true }),
            Some(why) => json!({ "error": format!("it is detached, and what was sent to it last is lost: {why}") }),
        };
        self.answer_at_once(number, &answer);
    }

    /// Hears an operator no more until a port is open or closed: that takes as long as it takes.
    fn wait_for_port(&mut self, number: u64, port: PortMove) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.step = Step::Asking(Unsaid { is_early: true, port: Some(port), ..Unsaid::default() });
        connection.deadline = Time::NEVER;
        self.hear_only_the_end_of(number);
    }
}

/// Writes out what a port's queues hold, and closes them; the error is the first.
fn finish(mut queues: Vec<Box<dyn Port>>) -> Result<(), String> {
    let finished: Vec<_> = queues.iter_mut().map(|queue| queue.finish()).collect();
    finished.into_iter().collect::<Result<(), _>>().map_err(|error| error.to_string())
}
