//! A client that writes anything into every word that it shares with the daemon, while others exchange frames: they lose none, the
//! offender is detached, and nothing of it is left. Under AddressSanitizer this shows that no word of a client's is trusted.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conic_client::{Client, Link, Options, Reason};
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
    let mut all = Bystanders::attach(&socket, false).expect("the bystanders attach");
    let (ended, received) = (Arc::new(Flag::new()), Arc::new(Count::new(0)));
    let (own_end, own_count) = (Arc::clone(&ended), Arc::clone(&received));
    let bystanders = std::thread::spawn(move || {
        while !own_end.is_up() {
            all.step();
            own_count.set(all.received());
        }
        (all.lost(), all.sessions())
    });
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
    ended.raise();
    assert_eq!(bystanders.join().expect("the bystanders end"), (0, [0; 3]), "frames were lost, or sessions");
    stop.raise();
    daemon.join().expect("the daemon's thread").expect("the daemon ends in order");
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
