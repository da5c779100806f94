//! A client that writes anything into every word that it shares with the daemon, while others exchange frames: they lose none but those
//! for which the offender's own frames, some of which go to everybody, had taken the room, and these are counted; the offender is
//! detached, and nothing of it is left. Under AddressSanitizer this shows that no word of a client's is trusted.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conic_client::{Client, Link, Operator, Options, Reason};
use conic_daemon::{Daemon, Stop};
use conic_fabric::{Address, Core};
use conic_interface::burst::HostQueue;
use conic_native::{Count, Flag};
use conic_nicd::config::Config;

use support::bystanders::Bystanders;
use support::waiting::wait_until;
use support::{ECHO, VICTIM, held, layout, options, settled, write_frame};

/// Attachments of the hostile client; each scribbles in the next of the ways.
const ATTACHMENTS: u64 = 24;

/// Words that one attachment writes.
const WORDS: u64 = 400_000;

/// Words between two frames that it sends as if nothing were wrong.
const WORDS_BETWEEN_FRAMES: u64 = 64;

/// Values that checks are most likely to let through, or to trip over.
fn value(random: &mut fastrand::Rng, bytes: u64) -> u64 {
    match random.u8(..8) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << random.u8(..64),
        3 => random.u64(..bytes),
        4 => bytes + random.u64(..1 << 20),
        // A descriptor: an address in the low half, a length and flags above it.
        5 => (random.u64(..bytes) / 64 * 64) | (random.u64(..) << 40),
        6 => random.u64(..1024),
        _ => random.u64(..),
    }
}

#[test]
fn a_client_that_scribbles_over_every_shared_word_harms_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    // Few faults: most of what is scribbled is never looked at, or looks like nothing new.
    let config = Config { socket: socket.clone(), most_faults: 3, ..Config::default() }
        .checked()
        .expect("a sound configuration");
    let stop = Stop::new().expect("a descriptor");
    let daemon = Daemon::start(config, stop.clone(), Box::new(|_| {})).expect("it starts");
    let daemon = std::thread::spawn(move || daemon.run());
    // Some of what an offender sends goes to everybody, and may take the room that a bystander has.
    let mut all = Bystanders::attach(&socket, true).expect("the bystanders attach");
    let (ended, received) = (Arc::new(Flag::new()), Arc::new(Count::new(0)));
    let (own_end, own_count) = (Arc::clone(&ended), Arc::clone(&received));
    let bystanders = std::thread::spawn(move || {
        while !own_end.is_up() {
            all.step();
            own_count.set(all.received());
        }
        (all.lost(), all.sessions())
    });
    wait_until("a region is kept for the next one, beside both sides of three", || held().1 == 7);
    let before = settled();
    let mut detached = 0;
    for attachment in 0..ATTACHMENTS {
        let frames = received.get();
        detached += u64::from(scribble(&socket, attachment));
        wait_until("the bystanders go on", || {
            assert!(!bystanders.is_finished(), "the bystanders failed beside attachment {attachment}; see above");
            received.get() >= frames + 20
        });
    }
    assert!(detached > ATTACHMENTS / 8, "of {ATTACHMENTS} offenders {detached} were detached");
    wait_until("nothing of the offenders is left", || held() == before);
    let dropped = without_room(&socket);
    ended.raise();
    let (lost, sessions) = bystanders.join().expect("the bystanders end");
    assert_eq!(sessions, [0; 3], "sessions were lost");
    println!("{lost} frames of the bystanders were lost, {dropped} dropped for want of their room");
    assert!(lost <= dropped, "{lost} frames of the bystanders were lost, and {dropped} dropped for want of their room");
    stop.raise();
    daemon.join().expect("the daemon's thread").expect("the daemon ends in order");
}

/// Frames that were dropped because the two bystanders who count theirs had no room for them.
fn without_room(socket: &Path) -> u64 {
    let operator = Operator::connect(socket, Duration::from_secs(10)).expect("it listens");
    let listed = operator.ask("{\"ask\":\"list\"}").expect("it answers");
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let clients = listed["clients"].as_array().expect("the clients");
    assert_eq!(clients.len(), 3, "the bystanders");
    let of = |client: &serde_json::Value, name: &str| client["counters"][name].as_u64().expect("a counter");
    // The third one sends the offender's frames back, and counts none.
    let counting = clients.iter().filter(|client| client["mac"] != "02:00:00:00:00:0c");
    counting.map(|client| of(client, "dropped_full") + of(client, "dropped_no_buffer")).sum()
}

/// Attaches and scribbles, in the way that the seed stands for; whether the daemon detached it for its faults.
fn scribble(socket: &Path, seed: u64) -> bool {
    let options = Options { reconnect: false, ..options(VICTIM) };
    let (client, mut queues) = Client::attach(socket, &options).expect("the daemon lets it in");
    let queue = &mut queues[0];
    let core = queue.core().clone();
    let bytes = queue.memory().place().1;
    let layout = layout();
    let small: Vec<(u64, u64)> = layout
        .segments()
        .iter()
        .filter(|segment| segment.bytes > 0 && !segment.name.ends_with("buffers") || segment.name.starts_with("free"))
        .map(|segment| (segment.start.0, segment.bytes))
        .filter(|&(_, bytes)| bytes > 0)
        .collect();
    let calls = layout.segments().iter().find(|segment| segment.name == "calls").expect("a part for calls").start;
    let mut random = fastrand::Rng::with_seed(seed);
    for number in 0..WORDS {
        let word = match seed % 4 {
            // All of it in turn.
            0 => number * 8 % bytes,
            // Anywhere.
            1 => random.u64(..bytes / 8) * 8,
            // The first word of each line, which most signals are.
            2 => number * 64 % bytes,
            // Rings, credits, flags and the sets of free buffers alone, while they are read.
            _ => {
                let (start, bytes) = small[random.usize(..small.len())];
                start + random.u64(..bytes / 8) * 8
            }
        };
        let at = Address(word);
        let value = match seed / 4 % 3 {
            0 => value(&mut random, bytes),
            // One bit of what is there.
            1 => core.load_acquire(at) ^ (1 << random.u8(..64)),
            // What is there somewhere else: sound by itself, and wrong where it is.
            _ => core.load_acquire(Address(random.u64(..bytes / 8) * 8)),
        };
        core.store_release(at, value);
        if number.is_multiple_of(WORDS_BETWEEN_FRAMES) {
            let mut outgoing = Vec::new();
            if let Some(mut frame) = queue.allocate(random.usize(60..1460)) {
                write_frame(&mut frame, VICTIM, ECHO, number);
                outgoing.push(frame);
            }
            queue.transmit(&mut outgoing);
            // Whatever it says otherwise, it wants to be looked at.
            core.store_release(calls, u64::MAX);
            let mut incoming = Vec::new();
            queue.receive(&mut incoming, 8);
            if client.maintain() == Link::Down {
                break;
            }
        }
    }
    // The daemon counts faults now and then.
    for _ in 0..20 {
        queue.wait(Duration::from_millis(1));
        client.maintain();
    }
    client.detached().is_some_and(|refused| refused.reason == Reason::Faults)
}
