//! Processes stopped at each of their steps, and what the others then find.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use conic_client::{AttachError, Client, Options, Reason};
use conic_fabric::Time;
use conic_native::{Count, Flag, clock};
use tempfile::TempDir;

use crate::roles::{REFUSED, STEP_TIMEOUT};
use crate::served::{Fate, Player, held_by};
use crate::stops::{Blow, Plan, Step};
use crate::support::bystanders::Bystanders;
use crate::support::waiting::{try_until, wait_until};
use crate::support::{ECHO, VICTIM, options, write_frame};

/// What became of the stops at one step.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub kills: u64,
    pub stops: u64,
    /// Times that the step was not reached so often as it was to be.
    pub missed: u64,
    /// From the death, as its parent saw it, to descriptors and mappings as before (of a client), or to frames that flow again (of a
    /// daemon), in microseconds.
    pub microseconds: Vec<u64>,
}

/// Rows by step.
pub type Table = BTreeMap<Step, Row>;

/// The bystanders, at work in a thread of their own.
struct Traffic {
    stop: Arc<Flag>,
    received: Arc<Count>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    fn start(socket: &Path) -> Traffic {
        let mut all = Bystanders::attach(socket, false).expect("the bystanders attach");
        let (stop, received) = (Arc::new(Flag::new()), Arc::new(Count::new(0)));
        let (own_stop, own_count) = (Arc::clone(&stop), Arc::clone(&received));
        let thread = std::thread::spawn(move || {
            while !own_stop.is_up() {
                all.step();
                own_count.set(all.received());
            }
            assert_eq!((all.lost(), all.sessions()), (0, [0; 3]), "the bystanders lost frames, or their sessions");
        });
        Traffic { stop, received, thread: Some(thread) }
    }

    /// Waits until so many more frames have come, each in its turn and unchanged.
    fn must_go_on(&self, frames: u64) {
        let before = self.received.get();
        wait_until("the bystanders' frames flow", || {
            assert!(!self.thread.as_ref().is_some_and(JoinHandle::is_finished), "the bystanders failed; see above");
            self.received.get() >= before + frames
        });
    }

    fn end(mut self) -> u64 {
        self.stop.raise();
        let ended = self.thread.take().expect("it is joined once").join();
        assert!(ended.is_ok(), "the bystanders failed; see above");
        self.received.get()
    }
}

/// The clients' half of the matrix: one daemon, its bystanders, and clients that are stopped.
pub struct Clients {
    daemon: Player,
    traffic: Traffic,
    folder: TempDir,
    baseline: (usize, usize),
}

impl Clients {
    pub fn begin() -> Clients {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("nic.sock");
        let daemon = start_daemon(&socket, None);
        let traffic = Traffic::start(&socket);
        let clients = Clients { daemon, traffic, folder, baseline: (0, 0) };
        // What was passed is closed a moment after its receiver has it.
        let mut baseline = clients.daemon.holds();
        for _ in 0..20 {
            clients.traffic.must_go_on(20);
            baseline = baseline.min(clients.daemon.holds());
        }
        Clients { baseline, ..clients }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("nic.sock")
    }

    /// All steps of a client's life, each with how often it comes at least.
    pub fn steps(&self) -> Vec<(Step, u64)> {
        let runs = [0; 3].map(|_| {
            let (fate, steps) = Player::start("client", &self.socket(), None).end();
            assert_eq!(fate, Fate::Ended(0), "a client that nobody stops");
            self.wait_for_baseline();
            steps.into_iter().collect::<BTreeMap<_, _>>()
        });
        let least = |step: &Step| runs.iter().map(|run| run.get(step).copied().unwrap_or(0)).min().unwrap_or(0);
        runs[0].keys().map(|step| (step.clone(), least(step))).filter(|&(_, count)| count > 0).collect()
    }

    /// Lets the bystanders go on for some time.
    pub fn traffic_goes_on_until(&self, until: Time) {
        while clock::now() < until {
            self.traffic.must_go_on(1);
        }
    }

    /// Waits until the daemon holds what it held in the beginning; microseconds that it took.
    pub fn wait_for_baseline(&self) -> u64 {
        try_until("the daemon holds what it held before", || self.daemon.holds() == self.baseline)
            .unwrap_or_else(|why| panic!("{why}: {:?} instead of {:?}", self.daemon.holds(), self.baseline))
    }

    /// Stops one client according to a plan, and checks what the others and the daemon make of it.
    pub fn attempt(&mut self, plan: &Plan, row: &mut Row) {
        let mut client = Player::start("client", &self.socket(), Some(&plan.to_text()));
        match client.fate(true).expect("it was waited for") {
            Fate::Killed => {
                row.kills += 1;
                row.microseconds.push(self.wait_for_baseline());
            }
            Fate::Stopped => {
                row.stops += 1;
                self.check_stopped(&mut client, plan);
                self.wait_for_baseline();
            }
            // It came to its end without the step, or the machine was too busy for it to be let in.
            Fate::Ended(code) if code == 0 || code == i32::from(REFUSED) => {
                row.missed += 1;
                self.wait_for_baseline();
            }
            other => panic!("{plan:?}: a client ended so: {other:?}"),
        }
        self.traffic.must_go_on(4);
        self.attach_again();
        self.wait_for_baseline();
    }

    /// A client that stands still: it harms nobody, keeps its place once it has one, and goes on, or was too slow to get one.
    fn check_stopped(&self, client: &mut Player, plan: &Plan) {
        self.traffic.must_go_on(100);
        let attaching = plan.step.phase == "handshake";
        if attaching && plan.occurrence.is_multiple_of(2) {
            // Either it was attached already, or its time for the step ends.
            let until = clock::now() + Time::from_nanoseconds(STEP_TIMEOUT.as_nanos() as u64 * 3 / 2);
            while clock::now() < until && self.daemon.holds() != self.baseline {
                self.traffic.must_go_on(1);
            }
        }
        if !attaching && plan.step.phase != "detach" {
            // Its place is its own as long as it lives: there is none for another.
            let other = Options { mac: None, ..options(VICTIM) };
            let refused = Client::attach(&self.socket(), &other).map(|_| ());
            let quota = matches!(&refused, Err(AttachError::Refused(refused)) if refused.reason == Reason::Quota);
            assert!(quota, "{plan:?}: another got the place of a client that stands still: {refused:?}");
        }
        client.go_on();
        let fate = client.fate(true).expect("it was waited for");
        let allowed = fate == Fate::Ended(0) || attaching && fate == Fate::Ended(REFUSED.into());
        assert!(allowed, "{plan:?}: a client that went on ended so: {fate:?}");
    }

    /// The victim's address is free again, and frames come through.
    fn attach_again(&self) {
        let (_client, mut queues) = Client::attach(&self.socket(), &options(VICTIM)).expect("there is room again");
        let mut frame = queues[0].allocate(100).expect("a fresh pool");
        write_frame(&mut frame, VICTIM, ECHO, 1);
        let mut outgoing = vec![frame];
        wait_until("there is room to send", || queues[0].transmit(&mut outgoing) == 1);
        let mut back = Vec::new();
        wait_until("the echo comes", || {
            queues[0].wait(Duration::from_millis(1));
            queues[0].receive(&mut back, 1) == 1
        });
    }

    /// Ends the daemon and the bystanders; how many frames they exchanged.
    pub fn end(self) -> u64 {
        let frames = self.traffic.end();
        let (fate, _) = self.daemon.end();
        assert_eq!(fate, Fate::Ended(0), "the daemon");
        frames
    }
}

/// A daemon that serves, or is to be stopped by a plan.
pub fn start_daemon(socket: &Path, plan: Option<&Plan>) -> Player {
    let mut daemon = Player::start("daemon", socket, plan.map(Plan::to_text).as_deref());
    // One that is to die early may never be.
    let ready = daemon.is_ready();
    assert!(ready || plan.is_some(), "the daemon starts");
    daemon
}

/// All steps of a daemon that serves bystanders and a client that comes and goes.
pub fn steps_of_a_daemon() -> Vec<(Step, u64)> {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let daemon = start_daemon(&socket, None);
    let mut all = Bystanders::attach(&socket, false).expect("the bystanders attach");
    for _ in 0..4 {
        let (fate, _) = Player::start("client", &socket, None).end_beside(&mut all);
        assert_eq!(fate, Fate::Ended(0), "a client that nobody stops");
        let target = all.received() + 50;
        wait_until("frames flow", || {
            all.step();
            all.received() >= target
        });
    }
    drop(all);
    let (fate, steps) = daemon.end();
    assert_eq!(fate, Fate::Ended(0), "the daemon");
    steps
}

/// Stops one daemon according to a plan, and checks what its clients make of it.
pub fn attempt_on_a_daemon(plan: &Plan, row: &mut Row) {
    let before = held_by("self");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let mut daemon = start_daemon(&socket, Some(plan));
    let all = Bystanders::attach(&socket, plan.blow == Blow::Kill);
    let blow = match all {
        Ok(mut all) => serve_until_the_blow(&mut daemon, &mut all, &socket, plan, row),
        // It went before all were attached.
        Err(_) => match daemon.fate(true).expect("it was waited for") {
            Fate::Stopped => {
                row.stops += 1;
                daemon.go_on();
                wait_until("it lets clients in again", || Bystanders::attach(&socket, false).is_ok());
                Fate::Stopped
            }
            fate => {
                row.kills += u64::from(fate == Fate::Killed);
                fate
            }
        },
    };
    assert!(!matches!(blow, Fate::Ended(_)), "{plan:?}: a daemon ended so: {blow:?}");
    drop(daemon);
    assert_eq!(held_by("self"), before, "{plan:?}: clients of a daemon that is gone hold something");
}

/// Traffic, and a client that comes and goes, until the daemon is stopped; then what a client must find.
fn serve_until_the_blow(daemon: &mut Player, all: &mut Bystanders, socket: &Path, plan: &Plan, row: &mut Row) -> Fate {
    let kept = all.keep();
    let contents = kept.as_ref().map(conic_client::Buffer::to_vec);
    let begun = clock::now();
    let mut visitor = None;
    let fate = loop {
        for _ in 0..20 {
            all.step();
        }
        if let Some(fate) = daemon.fate(false) {
            break fate;
        }
        visitor = match visitor {
            None => Some(Player::start_silent("client", socket)),
            Some(mut player) => match Player::fate(&mut player, false) {
                None => Some(player),
                Some(_) => None,
            },
        };
        if clock::now().since(begun).seconds() > 5.0 {
            row.missed += 1;
            return Fate::Stopped;
        }
    };
    drop(visitor);
    if fate == Fate::Stopped {
        row.stops += 1;
        let sessions = all.sessions();
        for _ in 0..20 {
            all.step();
        }
        daemon.go_on();
        let target = all.received() + 100;
        row.microseconds.push(wait_until(&format!("{plan:?}: frames flow again: {}", all.describe()), || {
            all.step();
            all.received() >= target
        }));
        assert_eq!((all.lost(), all.sessions()), (0, sessions), "{plan:?}: a daemon that stood still cost frames");
        return fate;
    }
    row.kills += 1;
    let died = clock::now();
    wait_until("all find that the daemon is gone", || all.have_noticed());
    assert_eq!(kept.as_ref().map(conic_client::Buffer::to_vec), contents, "{plan:?}: a buffer of a client has changed");
    let _next = start_daemon(socket, None);
    wait_until("all are attached again", || all.is_up());
    let target = all.received() + 64;
    wait_until(&format!("{plan:?}: frames flow again: {}", all.describe()), || {
        all.step();
        all.received() >= target
    });
    row.microseconds.push(clock::now().since(died).nanoseconds() / 1000);
    assert_eq!(kept.as_ref().map(conic_client::Buffer::to_vec), contents, "{plan:?}: a buffer of a client has changed");
    assert!(all.sessions().iter().all(|&count| count == 1), "{plan:?}: {:?} sessions", all.sessions());
    fate
}
