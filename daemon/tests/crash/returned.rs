//! How long it takes until the memory of a client is back that is killed under load.

use std::path::Path;
use std::time::Duration;

use conic_client::{Client, Options};
use conic_fabric::Time;
use conic_interface::ccnic::Geometry;
use conic_native::clock;

use crate::matrix::Clients;
use crate::roles::{Failure, REFUSED};
use crate::served::Player;
use crate::support::{ECHO, VICTIM, options, write_frame};

/// Frames that the client has on their way, so that it never stops.
const WINDOW: usize = 16;

/// A client of a region of so many MiB, which sends to the echo until it is killed.
pub fn live_under_load(socket: &Path, mebibytes: u64) -> Result<(), Failure> {
    // Large buffers are a page of 4 KiB each.
    let geometry = Geometry { queues: 1, descriptors: 256, buffers: [256, 256 * mebibytes, 0], object_bytes: 0 };
    let options = Options { geometry, ..options(VICTIM) };
    let (_client, mut queues) = Client::attach(socket, &options).map_err(|error| (REFUSED, error.to_string()))?;
    println!("ready");
    let queue = &mut queues[0];
    let mut outgoing = Vec::new();
    let mut incoming = Vec::new();
    loop {
        while outgoing.len() < WINDOW
            && let Some(mut frame) = queue.allocate(1500)
        {
            write_frame(&mut frame, VICTIM, ECHO, 0);
            outgoing.push(frame);
        }
        queue.transmit(&mut outgoing);
        queue.receive(&mut incoming, 32);
        queue.free(&mut incoming);
        queue.wait(Duration::from_micros(20));
    }
}

/// Kills so many such clients beside bystanders, and prints how long it took until the daemon held nothing of them.
pub fn measure(kills: u64, mebibytes: u64) {
    let clients = Clients::begin();
    let mut times = Vec::new();
    for number in 0..kills {
        let mut client = Player::start("loader", &clients.socket(), Some(&mebibytes.to_string()));
        assert!(client.is_ready(), "the client attaches");
        let until = clock::now() + Time::from_nanoseconds(3_000_000 + number * 977_131 % 5_000_000);
        clients.traffic_goes_on_until(until);
        let begun = clock::now();
        client.kill();
        clients.wait_for_baseline();
        times.push(clock::now().since(begun).nanoseconds() / 1000);
    }
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 1000];
    println!(
        "{kills} clients of {mebibytes} MiB killed under load, from the signal until the daemon held nothing of them: median {} us, \
         90% {} us, 99% {} us, most {} us",
        at(500),
        at(900),
        at(990),
        at(1000)
    );
    println!("bystanders exchanged {} frames meanwhile and lost none", clients.end());
}
