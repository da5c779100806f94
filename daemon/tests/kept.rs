//! The region of a client that was detached or has left, which the program may use still: its buffers keep their contents, and count against
//! its user's quota, until nobody in the program has it or the program has ended.

#[path = "support/served.rs"]
mod served;
mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conic_client::{Buffer, Client, Link, Operator, Options, Queue};
use conic_interface::ccnic::Geometry;
use conic_native::clock;
use conic_nicd::config::{Config, Limits};
use served::Served;
use support::waiting::{self, wait_until};
use support::{ECHO, ONE, VICTIM, held, numbered, options, settled, wait_until_held, write_frame};

/// The daemon's socket in its folder. A program of this that runs there is the daemon's client.
const SOCKET: &str = "nic.sock";

/// What is held is counted by process: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config(folder: &Path, limits: Limits) -> Config {
    Config { socket: folder.join(SOCKET), limits, ..Config::default() }.checked().expect("a sound configuration")
}

fn ask(socket: &Path, question: &str) -> serde_json::Value {
    let operator = Operator::connect(socket, Duration::from_secs(20)).expect("it listens");
    serde_json::from_str(&operator.ask(question).expect("it answers")).expect("JSON")
}

/// An operator detaches a client; what it may not use any more is emptied when this returns, or never.
fn detach(socket: &Path, session: u64) {
    let answer = ask(socket, &format!(r#"{{"ask": "detach", "client": {session}}}"#));
    assert_eq!(answer["done"], true, "{answer}");
    // A region of a few MiB is emptied in less.
    let begun = clock::now();
    wait_until("a while is over", || clock::now().since(begun).seconds() > 0.02);
}

fn comes_back(client: &Client, times: u64) {
    wait_until("it attaches again", || client.maintain() == Link::Up && client.reconnects() == times);
}

/// A client whose region is of a mebibyte at least, with its queue.
fn large(socket: &Path, mac: [u8; 6]) -> (Client, Queue) {
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 1 << 20 };
    let options = Options { geometry, mac: Some(mac), ..Options::default() };
    let (client, mut queues) = Client::attach(socket, &options).expect("it is let in");
    (client, queues.remove(0))
}

fn frame(queue: &mut Queue, number: u64) -> Buffer {
    let mut frame = queue.allocate(1000).expect("a buffer is free");
    write_frame(&mut frame, VICTIM, ECHO, number);
    frame
}

fn is_whole(frame: &Buffer) -> bool {
    let bytes = frame.to_vec();
    let is_empty = bytes.iter().all(|&byte| byte == 0);
    if !is_empty {
        numbered(&bytes);
    }
    !is_empty
}

/// Sends a frame, and waits for it.
fn passes(frame: Buffer, from: &mut Queue, to: &mut Queue) -> u64 {
    let (mut outgoing, mut incoming) = (vec![frame], Vec::new());
    wait_until("the frame comes", || {
        from.transmit(&mut outgoing);
        to.receive(&mut incoming, 1) == 1
    });
    numbered(&incoming[0].to_vec())
}

#[test]
fn what_a_detached_client_had_written_is_sent_when_it_has_come_back_and_then_its_region_goes() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(folder.path(), Limits { spare_mib: 0, ..Limits::default() });
    let served = Served::start(config.clone());
    let (_receiver, mut theirs) = Client::attach(&config.socket, &options(ECHO)).expect("it is let in");
    let (client, mut queues) = Client::attach(&config.socket, &options(VICTIM)).expect("it is let in");
    let before = settled();
    for round in 1..=3 {
        let mut written = queues[0].allocate(1000).expect("a buffer is free");
        write_frame(&mut written, VICTIM, ECHO, round);
        detach(&config.socket, client.attached().session);
        comes_back(&client, round);
        assert!(is_whole(&written), "round {round}: it is empty");
        // What has been sent lies in the present region, and nobody has the one before.
        assert_eq!(passes(written, &mut queues[0], &mut theirs[0]), round);
        queues.iter_mut().for_each(|queue| while queue.renew() {});
        wait_until_held(before);
    }
    served.end();
}

#[test]
fn what_a_client_had_written_that_has_left_is_there_as_long_as_its_program_has_it() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(folder.path(), Limits { spare_mib: 0, ..Limits::default() });
    let served = Served::start(config.clone());
    let before = settled();
    let (client, mut queues) = Client::attach(&config.socket, &options(VICTIM)).expect("it is let in");
    let written = frame(&mut queues[0], 7);
    drop((client, queues));
    wait_until("it has left", || {
        ask(&config.socket, r#"{"ask": "list"}"#)["clients"].as_array().is_some_and(Vec::is_empty)
    });
    let begun = clock::now();
    wait_until("a while is over", || clock::now().since(begun).seconds() > 0.02);
    assert!(is_whole(&written), "it is empty");
    drop(written);
    wait_until_held(before);
    served.end();
}

#[test]
fn regions_that_a_program_keeps_count_against_its_users_quota_and_the_oldest_goes_for_the_next() {
    const ROUNDS: u64 = 12;
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    // Of somewhat more than a mebibyte each there is room for six.
    let limits = Limits { spare_mib: 0, mib_per_user: 8, clients: 4, ..Limits::default() };
    let config = config(folder.path(), limits);
    let served = Served::start(config.clone());
    let (other, mut theirs) = large(&config.socket, ECHO);
    let before = settled();
    let (client, mut queue) = large(&config.socket, VICTIM);
    let mut kept = Vec::new();
    for round in 1..=ROUNDS {
        kept.push(frame(&mut queue, round));
        detach(&config.socket, client.attached().session);
        comes_back(&client, round);
        let next = frame(&mut queue, round);
        assert_eq!(passes(next, &mut queue, &mut theirs), round);
    }
    let whole: Vec<bool> = kept.iter().map(is_whole).collect();
    let there = whole.iter().filter(|whole| **whole).count();
    assert!((2..=6).contains(&there), "{there} are there: {whole:?}");
    assert!(whole.is_sorted(), "the oldest go first: {whole:?}");
    // A newcomer of the user gets its place likewise, and nobody's session ends.
    let newcomer = large(&config.socket, ONE);
    let left = kept.iter().filter(|frame| is_whole(frame)).count();
    assert!((there - 1..=there).contains(&left), "{left} of {there} are left");
    assert_eq!((other.maintain(), other.reconnects()), (Link::Up, 0));
    drop((newcomer, kept, queue, client));
    wait_until_held(before);
    // All that the user may have is free again.
    let all: Vec<(Client, Queue)> = (0..3).map(|last| large(&config.socket, [2, 0, 0, 0, 1, last])).collect();
    drop(all);
    served.end();
}

#[test]
fn a_region_that_is_kept_goes_on_with_the_daemon_that_takes_over_and_is_counted_there() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits { spare_mib: 0, mib_per_user: 6, ..Limits::default() };
    let config = config(folder.path(), limits);
    let served = Served::start(config.clone());
    let before = settled();
    let (other, mut theirs) = large(&config.socket, ECHO);
    let (client, mut queue) = large(&config.socket, VICTIM);
    let [first, second] = [1, 2].map(|round| {
        let written = frame(&mut queue, round);
        detach(&config.socket, client.attached().session);
        comes_back(&client, round);
        // It moves on to the present region.
        drop(frame(&mut queue, round));
        written
    });
    let served = served.taken_over_with_others(0, &[&other], 1..=1, || {});
    assert!(is_whole(&first) && is_whole(&second));
    // As long as it is there, its user may have so much less.
    let newcomer = large(&config.socket, ONE);
    assert!(!is_whole(&first), "it is not counted");
    assert_eq!(passes(second, &mut queue, &mut theirs), 2);
    drop((newcomer, first, queue, client, theirs, other));
    wait_until_held(before);
    served.end();
}

/// A program that keeps a frame of each region that it has had, and says so; until its end.
#[test]
fn the_client_that_another_test_has_started() {
    if !Path::new(SOCKET).exists() {
        return;
    }
    let (client, mut queue) = large(Path::new(SOCKET), VICTIM);
    let mut kept = Vec::new();
    for round in 1.. {
        kept.push(frame(&mut queue, round));
        println!("kept {}", client.attached().session);
        comes_back(&client, round);
        assert!(kept.iter().all(is_whole));
    }
}

fn keeper(folder: &Path) -> (Child, impl FnMut() -> u64) {
    let name = "the_client_that_another_test_has_started";
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command.args(["--exact", name, "--nocapture"]).current_dir(folder).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let session = move || loop {
        let line = lines.next().expect("it goes on").expect("text");
        if let Some((_, session)) = line.split_once("kept ") {
            return session.parse().expect("a number");
        }
    };
    (child, session)
}

#[test]
fn all_that_a_program_kept_is_given_back_when_it_ends() {
    const ROUNDS: usize = 4;
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(folder.path(), Limits { spare_mib: 0, ..Limits::default() });
    let served = Served::start(config.clone());
    let before = settled();
    let (mut child, mut session) = keeper(folder.path());
    for _ in 0..ROUNDS {
        detach(&config.socket, session());
    }
    session();
    let (_, regions) = held();
    assert_eq!(regions, before.1 + ROUNDS + 1, "its regions and the present one");
    let begun = clock::now();
    child.kill().expect("it runs");
    wait_until_held(before);
    let took = clock::now().since(begun).seconds();
    child.wait().expect("it has ended");
    assert!(took < 1.0, "it took {took} s");
    println!("{ROUNDS} kept regions were given back {:.1} ms after the signal", took * 1e3);
    served.end();
}
