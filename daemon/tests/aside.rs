//! Making and unmapping a region takes long, and nobody else waits for it.

use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use conic_client::{AttachError, Client, Name, Options, Queue, Reason};
use conic_control::{Attach, Extensions, Hello, Message, OLDEST, VERSION};
use conic_daemon::{Daemon, Stop};
use conic_interface::ccnic::{Geometry, Headroom};
use conic_native::channel::Channel;
use conic_native::{clock, yield_core};
use conic_nicd::config::{Config, Limits};

/// The step at which the daemon's next thread is held up, none if none is; and whether one is.
static GATE: Mutex<(Option<&str>, bool)> = Mutex::new((None, false));
static CHANGED: Condvar = Condvar::new();

/// The step at which the daemon's next thread fails.
static FAILS_AT: Mutex<Option<&str>> = Mutex::new(None);

/// What all ask for.
const GEOMETRY: Geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 0 };

fn hold_up_at(step: Option<&'static str>) {
    *GATE.lock().expect("nobody panics with it") = (step, false);
    CHANGED.notify_all();
}

fn wait_until_one_is_held_up() {
    let gate = GATE.lock().expect("nobody panics with it");
    let (_gate, timeout) =
        CHANGED.wait_timeout_while(gate, Duration::from_secs(20), |gate| !gate.1).expect("nobody panics with it");
    assert!(!timeout.timed_out(), "the step was not reached");
}

/// Long enough for what could go on wrongly to do so.
fn others_run() {
    let begun = clock::now();
    while clock::now().since(begun).seconds() < 0.1 {
        yield_core();
    }
}

/// Called before each step of this process; the clients' threads have names.
fn pass(step: &'static str) {
    let of_a_client = std::thread::current().name().is_some_and(|name| !name.starts_with("nic"));
    if !of_a_client && FAILS_AT.lock().expect("nobody panics with it").take_if(|at| *at == step).is_some() {
        panic!("the test has it fail");
    }
    let mut gate = GATE.lock().expect("nobody panics with it");
    if of_a_client || gate.0 != Some(step) || gate.1 {
        return;
    }
    gate.1 = true;
    CHANGED.notify_all();
    drop(CHANGED.wait_while(gate, |gate| gate.0 == Some(step)).expect("nobody panics with it"));
}

fn attach(socket: &Path) -> Result<(Client, Vec<Queue>), AttachError> {
    Client::attach(socket, &Options { geometry: GEOMETRY, patience: Duration::from_secs(20), ..Options::default() })
}

/// A client that attaches in a thread of its own.
fn attach_aside(socket: &Path) -> std::thread::JoinHandle<Result<(Client, Vec<Queue>), AttachError>> {
    let socket = socket.to_owned();
    std::thread::Builder::new().name("client".to_owned()).spawn(move || attach(&socket)).expect("a thread")
}

#[test]
fn others_attach_while_a_region_is_made_or_unmapped_and_a_quota_waits_for_what_comes_back() {
    assert!(conic_native::watch(Box::new(|step, _| pass(step))), "nobody else watches");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let limits = Limits { clients_per_user: 2, ..Limits::default() };
    let config = Config { socket: socket.clone(), limits, ..Config::default() }.checked().expect("sound");
    let stop = Stop::new().expect("a descriptor");
    let daemon = Daemon::start(config, stop.clone(), Box::new(|_| {})).expect("it starts");
    let run = move || daemon.run();
    let thread = std::thread::Builder::new().name("nic-control".to_owned()).spawn(run).expect("a thread");

    hold_up_at(Some("seal a region"));
    let slow = attach_aside(&socket);
    wait_until_one_is_held_up();
    let quick = attach(&socket).expect("it does not wait for the other's region");
    let third = attach(&socket).expect_err("a region that is being made has its place in the quota");
    assert!(matches!(third, AttachError::Refused(ref refused) if refused.reason == Reason::Quota), "{third}");
    hold_up_at(None);
    let slow = slow.join().expect("it does not panic").expect("it gets its region in the end");

    hold_up_at(Some("unmap a region"));
    drop(slow);
    wait_until_one_is_held_up();
    // Its user's other place is on its way back, and is waited for.
    let next = attach_aside(&socket);
    others_run();
    assert!(!next.is_finished(), "{:?}", next.join().map(|attached| attached.map(|_| ())));
    // Who waits for it asks once.
    let twice = Channel::connect(&socket).expect("the daemon listens");
    ask(&twice);
    others_run();
    wish(&twice);
    others_run();
    let refused = twice.receive().expect("it answers").expect("it answers at once");
    let refused = Message::decode(&refused.bytes, 0);
    assert!(matches!(refused, Ok(Message::Refused(ref why)) if why.reason == Reason::Malformed), "{refused:?}");
    hold_up_at(None);
    let next = next.join().expect("it does not panic").expect("it gets the place that came back");

    // A client that dies while its region is made leaves nothing.
    drop(next);
    hold_up_at(Some("seal a region"));
    let channel = Channel::connect(&socket).expect("the daemon listens");
    ask(&channel);
    wait_until_one_is_held_up();
    drop(channel);
    let heir = attach_aside(&socket);
    others_run();
    hold_up_at(None);
    let heir = heir.join().expect("it does not panic").expect("the place of who died");
    drop((quick, heir));

    // A thread that fails while it makes a region leaves nothing in the quota, and the client is told; one that makes the spare region
    // leaves nothing either, nor one that fails where it unmaps one.
    for step in ["make bells", "seal a region", "unmap a region", "make bells", "seal a region", "unmap a region"] {
        *FAILS_AT.lock().expect("nobody panics with it") = Some(step);
        for attached in [attach(&socket), attach(&socket)] {
            let Err(error) = attached else { continue };
            assert!(matches!(error, AttachError::Refused(ref why) if why.reason == Reason::Resources), "{error}");
        }
        let is_to_fail = FAILS_AT.lock().expect("nobody panics with it").is_some();
        assert!(step != "make bells" || !is_to_fail, "no thread has come by there");
    }
    *FAILS_AT.lock().expect("nobody panics with it") = None;
    let two = [attach(&socket), attach(&socket)];
    assert!(two.iter().all(Result::is_ok), "a place is lost");
    drop(two);
    stop.raise();
    assert!(matches!(thread.join(), Ok(Ok(_))));
}

/// A client's first two words, and no more.
fn ask(channel: &Channel) {
    let hello = Hello { versions: (OLDEST, VERSION), extensions: Extensions::KNOWN, name: Name::default() };
    channel.send(&Message::Hello(hello).encode(), &[]).expect("the daemon listens");
    while channel.receive().expect("it answers").is_none() {
        channel.wait(Duration::from_secs(1)).expect("it answers");
    }
    wish(channel);
}

/// The second of them.
fn wish(channel: &Channel) {
    let wish = Attach { geometry: GEOMETRY, headroom: Headroom::NONE, network: Name::default(), mac: None };
    channel.send(&Message::Attach(wish).encode(), &[]).expect("the daemon listens");
}
