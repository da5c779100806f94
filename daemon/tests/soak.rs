//! Clients that come and go for ever: attaching, a burst of every size through a loopback, detaching, beside bystanders of a bridge.
//!
//! Each cycle has 1 to 8 queue pairs; a burst of 1 to 1024 frames (mostly few), of all sizes from 60 to 9600 in turn, is sent on one
//! of them and must come back whole, in order and unchanged. At the end descriptors and mappings are what they were, no bystander has
//! lost a frame, and every size and every power of two of a burst was there.
//!
//! `cargo test -p conic-daemon --test soak` runs for some seconds; `make soak CYCLES=1000000` as long as it takes, optimised.
//! `--seed` chooses queues and bursts.

mod support;

use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use conic_client::{Buffer, Client, Name, Options};
use conic_daemon::{Daemon, Stop};
use conic_interface::ccnic::Geometry;
use conic_native::clock;
use conic_nicd::config::{Config, NetworkConfig, NetworkMode};

use support::arguments::numbers;
use support::bystanders::Bystanders;
use support::waiting::wait_until;
use support::{ONE, OTHER, numbered, settled, write_frame};

/// Cycles where the command line does not say.
const CYCLES: u64 = 1000;

/// The shortest and the longest frame.
const SIZES: std::ops::RangeInclusive<u64> = 60..=9600;

/// One cycle in so many has a burst of any length up to the longest, of frames up to a page; the others have few frames of any size.
const CYCLES_FOR_A_LONG_BURST: u64 = 64;
const LONGEST_BURST: u64 = 1024;
const SHORT_BURST: u64 = 24;

/// How long the bystanders rest between two steps. They are there to lose a frame if one can be lost, not to take the cores from
/// who comes and goes.
const BYSTANDERS_REST: Duration = Duration::from_micros(200);

/// What was there.
#[derive(Default)]
struct Seen {
    frames: u64,
    /// The size of the next frame, and how often all were there.
    size: u64,
    sizes_complete: u64,
    /// By the logarithm of its length.
    bursts: [u64; 11],
    queues: [u64; 9],
}

impl Seen {
    fn next_size(&mut self) -> usize {
        let size = SIZES.start() + self.size;
        self.size += 1;
        if size == *SIZES.end() {
            (self.size, self.sizes_complete) = (0, self.sizes_complete + 1);
        }
        size as usize
    }
}

fn main() -> ExitCode {
    let Some(given) = numbers("soak", ["--cycles", "--seed"]) else { return ExitCode::SUCCESS };
    let (cycles, seed) = (given[0].unwrap_or(CYCLES), given[1].unwrap_or(2026));
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let stop = Stop::new().expect("a descriptor");
    let daemon = Daemon::start(config(&socket), stop.clone(), Box::new(|_| {})).expect("it starts");
    let daemon = std::thread::spawn(move || daemon.run());
    let (end, ended) = channel::<()>();
    let mut all = Bystanders::attach(&socket, false).expect("the bystanders attach");
    let bystanders = std::thread::spawn(move || {
        while ended.recv_timeout(BYSTANDERS_REST) == Err(RecvTimeoutError::Timeout) {
            all.step();
        }
        (all.lost(), all.sessions(), all.received())
    });
    let seen = soak(&socket, cycles, seed);
    drop(end);
    let bystanders = bystanders.join().expect("the bystanders end");
    stop.raise();
    daemon.join().expect("the daemon's thread").expect("the daemon ends in order");
    assert_eq!((bystanders.0, bystanders.1), (0, [0; 3]), "the bystanders lost frames, or their sessions");
    println!("  {} frames came back, all {} sizes {} times over", seen.frames, 9541, seen.sizes_complete);
    println!(
        "  bursts by length, 1, 2 to 3, 4 to 7, ... 1024: {:?}; clients by queue pairs: {:?}",
        seen.bursts,
        &seen.queues[1..]
    );
    println!("  bystanders exchanged {} frames and lost none", bystanders.2);
    ExitCode::SUCCESS
}

fn config(socket: &Path) -> Config {
    let bridge = NetworkConfig::default();
    let mode = NetworkMode::Loopback;
    let loopback = NetworkConfig { name: "loop".to_owned(), mode, ..NetworkConfig::default() };
    let config = Config { socket: socket.to_owned(), networks: vec![bridge, loopback], ..Config::default() };
    config.checked().expect("a sound configuration")
}

fn soak(socket: &Path, cycles: u64, seed: u64) -> Seen {
    let (mut random, mut seen) = (fastrand::Rng::with_seed(seed), Seen::default());
    // What is passed at the first time stays: a place for the network's name, and so on.
    cycle(socket, &mut random, &mut seen, 1);
    let before = at_rest(socket);
    let begun = clock::now();
    let mut told = begun;
    for number in 1..=cycles {
        let long = number.is_multiple_of(CYCLES_FOR_A_LONG_BURST);
        let burst = random.u64(1..=if long { LONGEST_BURST } else { SHORT_BURST });
        cycle(socket, &mut random, &mut seen, if number == CYCLES_FOR_A_LONG_BURST { LONGEST_BURST } else { burst });
        let now = clock::now();
        if now.since(told).seconds() > 60.0 {
            told = now;
            println!("  {number} cycles, {:.0} a second", number as f64 / now.since(begun).seconds());
        }
    }
    let seconds = clock::now().since(begun).seconds();
    assert_eq!(at_rest(socket), before, "descriptors and mappings are as many as before");
    println!("soak, seed {seed}: {cycles} cycles in {seconds:.1} s, {:.0} a second", cycles as f64 / seconds);
    seen
}

/// Attaches, sends a burst, gets it back, and detaches.
fn cycle(socket: &Path, random: &mut fastrand::Rng, seen: &mut Seen, burst: u64) {
    let long = burst > SHORT_BURST;
    let queues = random.u32(1..=if long { 2 } else { 8 });
    // What is on its way both ways, and what idle queue pairs keep.
    let (descriptors, buffers) = if long { (2048, [256, 4096, 0]) } else { (64, [64, 64, 64]) };
    let geometry = Geometry { queues, descriptors, buffers, object_bytes: 0 };
    let network = Name::new("loop").expect("a name");
    let (client, mut all) =
        Client::attach(socket, &Options { geometry, network, ..Options::default() }).expect("the daemon lets it in");
    let queue = &mut all[random.usize(..queues as usize)];
    let (mut sent, mut came): (u64, u64) = (0, 0);
    let mut lengths = std::collections::VecDeque::new();
    let mut outgoing: Vec<Buffer> = Vec::new();
    wait_until("the burst comes back", || {
        while sent + (outgoing.len() as u64) < burst {
            let length = if long { 60 + lengths.len() * 3 } else { seen.next_size() };
            let mut frame = queue.allocate(length).expect("buffers for all of them");
            write_frame(&mut frame, ONE, OTHER, sent + outgoing.len() as u64);
            lengths.push_back(length);
            outgoing.push(frame);
        }
        sent += queue.transmit(&mut outgoing) as u64;
        let mut incoming = Vec::new();
        queue.receive(&mut incoming, 32);
        for frame in incoming {
            let bytes = frame.to_vec();
            let what = (numbered(&bytes), Some(bytes.len()));
            assert_eq!(what, (came, lengths.pop_front()), "a frame was lost, or came twice");
            came += 1;
        }
        came == burst
    });
    seen.frames += burst;
    seen.bursts[burst.ilog2() as usize] += 1;
    seen.queues[queues as usize] += 1;
    drop((all, client));
}

/// Descriptors and mappings where nobody is there but the bystanders, and the daemon keeps a region for the next client: of a layout
/// that is asked for again and again, so that there is one.
fn at_rest(socket: &Path) -> (usize, usize) {
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 0, 0], object_bytes: 0 };
    let mut least = (0, 0);
    wait_until("the bystanders' regions are mapped twice, and one that is kept once", || {
        drop(Client::attach(socket, &Options { geometry, ..Options::default() }).expect("the daemon lets it in"));
        least = settled();
        least.1 == 2 * 3 + 1
    });
    least
}
