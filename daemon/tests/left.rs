//! What a client keeps that has left: none of its memory.

#[path = "support/spoken.rs"]
mod spoken;
#[path = "support/waiting.rs"]
mod waiting;

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use conic_control::{Attach, Message, Name};
use conic_daemon::{Daemon, DaemonError, Event, Stop};
use conic_interface::ccnic::{Geometry, Headroom};
use conic_native::channel::Channel;
use conic_nicd::config::{Config, Limits};
use spoken::{greeted, hear, say};

/// As many as a client may have here, and a user.
const QUEUES: u32 = 256;

/// A daemon that says when a client has come and when nothing is left of one.
struct Told {
    folder: tempfile::TempDir,
    stop: Stop,
    thread: JoinHandle<Result<(), DaemonError>>,
    told: Receiver<&'static str>,
}

impl Told {
    fn start() -> Told {
        let folder = tempfile::tempdir().expect("a folder");
        let limits = Limits { queues_per_client: QUEUES, queues_per_user: QUEUES, ..Limits::default() };
        let config = Config { socket: folder.path().join("nic.sock"), limits, ..Config::default() };
        let (stop, (tell, told)) = (Stop::new().expect("a descriptor"), channel());
        let log = Box::new(move |event: &Event| {
            let word = match event {
                Event::Attached { .. } => "attached",
                Event::Detached { .. } => "detached",
                _ => return,
            };
            // The test is still there, or has failed.
            let _ = tell.send(word);
        });
        let config = config.checked().expect("a sound configuration");
        let daemon = Daemon::start(config, stop.clone(), log).expect("it starts");
        Told { folder, stop, thread: std::thread::spawn(move || daemon.run()), told }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("nic.sock")
    }

    fn tells(&self, word: &str) {
        assert_eq!(self.told.recv_timeout(Duration::from_secs(20)).expect("it tells"), word);
    }

    fn end(self) {
        self.stop.raise();
        assert!(matches!(self.thread.join(), Ok(Ok(()))));
    }
}

/// Somebody who has said what it wants.
fn asking(socket: &Path, queues: u32) -> Channel {
    let client = greeted(socket);
    let geometry = Geometry { queues, descriptors: 4, buffers: [64, 64, 0], object_bytes: 0 };
    say(&client, &Message::Attach(Attach { geometry, headroom: Headroom::NONE, network: Name::default(), mac: None }));
    client
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
