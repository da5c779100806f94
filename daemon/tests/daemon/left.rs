//! What a client keeps that has left: its share of what its user may have as long as its words lie unread, and none of its memory.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::spoken::{greeted, hear, hear_message, say};
use crate::waiting::wait_until;
use conic_control::{Attach, Message, Name, Reason};
use conic_daemon::{Daemon, DaemonError, Ended, Event, Log, Stop};
use conic_interface::ccnic::{Geometry, Headroom};
use conic_native::channel::Channel;
use conic_nicd::config::{Config, Limits};

/// As many as a client may have here, and a user.
const QUEUES: u32 = 256;

/// A daemon that says when a client has come and when nothing is left of one.
struct Told {
    limits: Limits,
    folder: tempfile::TempDir,
    stop: Stop,
    thread: JoinHandle<Result<Ended, DaemonError>>,
    /// The word, and whether the client's memory is there.
    told: Receiver<(&'static str, bool)>,
}

impl Told {
    fn start() -> Told {
        let limits = Limits { queues_per_client: QUEUES, queues_per_user: QUEUES, ..Limits::default() };
        Told::start_with(limits)
    }

    fn start_with(limits: Limits) -> Told {
        Told::begin(tempfile::tempdir().expect("a folder"), limits, Daemon::start)
    }

    /// Another daemon takes over.
    fn taken_over(self) -> Told {
        let heir = Told::begin(self.folder, self.limits, Daemon::adopt);
        assert!(matches!(self.thread.join(), Ok(Ok(Ended { heir: Some(_), .. }))));
        heir
    }

    fn begin(
        folder: tempfile::TempDir,
        limits: Limits,
        begin: fn(Config, Stop, Log) -> Result<Daemon, DaemonError>,
    ) -> Told {
        let config = Config { socket: folder.path().join("nic.sock"), limits, ..Config::default() };
        let (stop, (tell, told)) = (Stop::new().expect("a descriptor"), channel());
        let log = Box::new(move |event: &Event| {
            let word = match event {
                Event::Attached { .. } => ("attached", true),
                Event::Detached { kept, .. } => ("detached", *kept),
                _ => return,
            };
            // The test is still there, or has failed.
            let _ = tell.send(word);
        });
        let config = config.checked().expect("a sound configuration");
        let daemon = begin(config, stop.clone(), log).expect("it begins");
        Told { limits, folder, stop, thread: std::thread::spawn(move || daemon.run()), told }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("nic.sock")
    }

    /// Whether the client's memory is there still.
    fn tells(&self, word: &str) -> bool {
        let (told, is_there) = self.told.recv_timeout(Duration::from_secs(20)).expect("it tells");
        assert_eq!(told, word);
        is_there
    }

    fn end(self) {
        self.stop.raise();
        assert!(matches!(self.thread.join(), Ok(Ok(_))));
    }
}

/// Somebody who has said what it wants.
fn asking(socket: &Path, queues: u32) -> Channel {
    asking_for(socket, Geometry { queues, descriptors: 4, buffers: [64, 64, 0], object_bytes: 0 })
}

fn asking_for(socket: &Path, geometry: Geometry) -> Channel {
    let client = greeted(socket);
    say(&client, &Message::Attach(Attach { geometry, headroom: Headroom::NONE, network: Name::default(), mac: None }));
    client
}

/// Somebody who has left, and has read nothing of what it was told.
fn left(told: &Told) -> Channel {
    let client = asking(&told.socket(), QUEUES);
    told.tells("attached");
    say(&client, &Message::Detach);
    told.tells("detached");
    client
}

#[test]
fn who_has_not_read_of_its_queues_has_its_share_until_it_has() {
    let told = Told::start();
    for reads in [true, false] {
        let client = left(&told);
        // Its bells and its region's memory are still on their way, and the system counts them.
        let refused = hear_message(&asking(&told.socket(), QUEUES));
        let Message::Refused(refused) = refused else { panic!("nothing is free: {refused:?}") };
        assert_eq!(refused.reason, Reason::Quota, "{}", refused.text);
        if reads {
            // To the end, which has come though the other side's words were kept.
            wait_until("it ends", || client.receive().is_err());
        } else {
            drop(client);
        }
        let mut next = None;
        wait_until("its share is back", || {
            let asked = asking(&told.socket(), QUEUES);
            next = matches!(hear_message(&asked), Message::Attached(_)).then_some(asked);
            next.is_some()
        });
        told.tells("attached");
        drop(next);
        told.tells("detached");
    }
    told.end();
}

#[test]
fn a_copy_of_its_memory_holds_none() {
    let told = Told::start();
    let client = asking(&told.socket(), 1);
    let memory = hear(&client).descriptors.swap_remove(0);
    told.tells("attached");
    let blocks = || rustix::fs::fstat(&memory).expect("a file").st_blocks;
    assert!(blocks() > 0);
    say(&client, &Message::Detach);
    told.tells("detached");
    assert_eq!(blocks(), 0);
    told.end();
}

#[test]
fn the_log_tells_memory_that_is_kept_from_memory_that_is_back() {
    let told = Told::start();
    for holds in [true, false] {
        let client = asking(&told.socket(), 1);
        let passed = hear(&client);
        told.tells("attached");
        let held = holds.then_some(passed);
        say(&client, &Message::Detach);
        assert_eq!(told.tells("detached"), holds);
        drop(held);
    }
    told.end();
}

#[test]
fn who_has_not_read_of_its_queues_has_its_share_with_the_daemon_that_takes_over_as_well() {
    // Two regions of these have no room beside each other.
    let large = Geometry { queues: 1, descriptors: 256, buffers: [1024, 256, 16], object_bytes: 0 };
    let mut told = Told::start_with(Limits { queues_per_user: 2, mib_per_user: 2, ..Limits::default() });
    let client = asking_for(&told.socket(), large);
    told.tells("attached");
    say(&client, &Message::Detach);
    assert!(told.tells("detached"), "its program may use its region still");
    // Its region goes for the next one's, and counts still, since what it was told lies unread. Who takes over passes that on again.
    for round in 0..3 {
        let refused = hear_message(&asking_for(&told.socket(), large));
        let Message::Refused(refused) = refused else { panic!("round {round}: nothing is free: {refused:?}") };
        assert_eq!(refused.reason, Reason::Quota, "{}", refused.text);
        told = told.taken_over();
    }
    wait_until("it ends", || client.receive().is_err());
    wait_until("its share is back", || {
        matches!(hear_message(&asking_for(&told.socket(), large)), Message::Attached(_))
    });
    told.end();
}
