//! A daemon in a thread of the test, that one daemon after the other takes over from.

use std::ops::RangeInclusive;
use std::path::Path;
use std::thread::JoinHandle;

use conic_client::{Client, Link};
use conic_daemon::{Daemon, DaemonError, Ended, Event, Stop};
use conic_nicd::config::Config;

use crate::waiting::wait_until;

/// The daemon that serves now.
pub struct Served {
    config: Config,
    stop: Stop,
    thread: JoinHandle<Result<Ended, DaemonError>>,
}

impl Served {
    pub fn start(config: Config) -> Served {
        let stop = Stop::new().expect("a descriptor");
        let daemon = Daemon::start(config.clone(), stop.clone(), Box::new(|_| {})).expect("it starts");
        Served { config, stop, thread: std::thread::spawn(move || daemon.run()) }
    }

    /// Where it listens.
    #[allow(dead_code, reason = "not every test program must be told")]
    pub fn socket(&self) -> &Path {
        &self.config.socket
    }

    /// The one that takes over next is another in this.
    #[allow(dead_code, reason = "not every test program changes it")]
    pub fn with(mut self, change: impl FnOnce(&mut Config)) -> Served {
        change(&mut self.config);
        self
    }

    /// Another takes over, while `step` is done again and again; the clients notice nothing.
    #[allow(dead_code, reason = "not every test program has only these clients")]
    pub fn taken_over(self, round: u32, clients: &[&Client], step: impl FnMut()) -> Served {
        self.taken_over_with_others(round, clients, 0..=0, step)
    }

    /// The same where so many sessions are there beside the clients'.
    pub fn taken_over_with_others(
        self,
        round: u32,
        clients: &[&Client],
        others: RangeInclusive<usize>,
        mut step: impl FnMut(),
    ) -> Served {
        let stop = Stop::new().expect("a descriptor");
        let (config, raised) = (self.config.clone(), stop.clone());
        let (tell, told) = std::sync::mpsc::channel();
        let log = Box::new(move |event: &Event| {
            if let Event::Adopted { clients, .. } = event {
                // The test waits for it.
                let _ = tell.send(*clients);
            }
        });
        let thread = std::thread::spawn(move || Daemon::adopt(config, raised, log)?.run());
        let mut adopted = None;
        wait_until("it has taken over", || {
            step();
            adopted = told.try_recv().ok();
            adopted.is_some() || thread.is_finished()
        });
        let Some(adopted) = adopted else { panic!("round {round}: {:?}", thread.join()) };
        let beside = adopted.checked_sub(clients.len());
        assert!(beside.is_some_and(|beside| others.contains(&beside)), "round {round}: {adopted} sessions");
        assert!(matches!(self.thread.join(), Ok(Ok(_))), "the old one ended");
        for client in clients {
            assert_eq!((client.maintain(), client.reconnects()), (Link::Up, 0), "round {round}");
        }
        Served { stop, thread, ..self }
    }

    /// It has given everything over to whoever asked for it.
    #[allow(dead_code, reason = "not every test program has another that asks")]
    pub fn given_over(self) {
        assert!(matches!(self.thread.join(), Ok(Ok(_))), "it ended");
    }

    pub fn end(self) {
        self.stop.raise();
        assert!(matches!(self.thread.join(), Ok(Ok(_))));
    }
}
