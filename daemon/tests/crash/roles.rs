//! What the processes do that are stopped: a client's whole life, and a daemon's.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use conic_client::{Buffer, Client, Queue};
use conic_daemon::{Daemon, DaemonError, Event, Log, Stop};
use conic_nicd::config::{Config, Limits};

use crate::returned;
use crate::stops::{Plan, Step, Stops};
use crate::support::waiting::try_until;
use crate::support::{ECHO, VICTIM, options, write_frame};

/// How many clients the daemon has room for: the bystanders and the victim.
pub const CLIENTS: u32 = 4;

/// How long a client may take for a step of attaching.
pub const STEP_TIMEOUT: Duration = Duration::from_millis(1000);

/// What a daemon's last words begin with.
pub const SAYS: &str = "the daemon: ";

/// A client that was not let in, or lost its place.
pub const REFUSED: u8 = 4;

/// Plays a part that `arguments` name; none if they name none.
pub fn play(arguments: &[String]) -> Option<ExitCode> {
    let [role, part, socket, plan] = arguments else { return None };
    if role != "--role" {
        return None;
    }
    if part == "loader" {
        return Some(conclude(part, returned::live_under_load(Path::new(socket), plan.parse().unwrap_or(1))));
    }
    let stops = Stops::begin(Plan::of_text(plan));
    let done = match part.as_str() {
        "client" => live_as_client(Path::new(socket), &stops),
        "heir" => live_as_daemon(Daemon::adopt, Path::new(socket), &stops),
        _ => live_as_daemon(Daemon::start, Path::new(socket), &stops),
    };
    for (Step { phase, name, place }, count) in stops.seen() {
        println!("{phase}|{name}|{place}|{count}|kill");
    }
    Some(conclude(part, done))
}

fn conclude(part: &str, done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, why)) => {
            eprintln!("{part}: {why}");
            ExitCode::from(code)
        }
    }
}

/// An exit code, and why.
pub type Failure = (u8, String);

/// A client that does all that clients do.
fn live_as_client(socket: &Path, stops: &Stops) -> Result<(), Failure> {
    stops.enter("handshake");
    let (client, mut queues) =
        Client::attach(socket, &options(VICTIM)).map_err(|error| (REFUSED, error.to_string()))?;
    let queue = &mut queues[0];
    let lengths: Vec<usize> = (0..24).map(|n| 60 + 2 * n).chain((0..12).map(|n| 200 + 300 * n)).chain([9600]).collect();
    stops.enter("allocate");
    let mut outgoing = allocate(queue, &lengths)?;
    // Long enough for the NIC to look away, so that it must be called.
    queue.wait(Duration::from_millis(2));
    stops.enter("transmit");
    let mut alone = vec![outgoing.remove(0)];
    transmit(queue, &mut alone)?;
    transmit(queue, &mut outgoing)?;
    stops.enter("receive");
    let mut incoming = Vec::new();
    wait_until("the echo comes", || {
        queue.receive(&mut incoming, 32);
        incoming.len() >= lengths.len()
    })?;
    stops.enter("free");
    let mut together = incoming.split_off(incoming.len() / 2);
    drop(incoming);
    queue.free(&mut together);
    stops.enter("sleep");
    for _ in 0..2 {
        queue.arm();
        queue.disarm();
        let mut one = allocate(queue, &[100])?;
        transmit(queue, &mut one)?;
        let mut back = Vec::new();
        wait_until("the echo wakes it", || {
            queue.wait(Duration::from_millis(50));
            queue.receive(&mut back, 4) > 0
        })?;
    }
    stops.enter("give back");
    drop(queues);
    stops.enter("detach");
    drop(client);
    Ok(())
}

fn allocate(queue: &mut Queue, lengths: &[usize]) -> Result<Vec<Buffer>, Failure> {
    let mut frames = Vec::new();
    for (number, &length) in lengths.iter().enumerate() {
        let mut found = None;
        wait_until("a buffer is free", || {
            found = queue.allocate(length);
            found.is_some()
        })?;
        let mut frame = found.ok_or((1, "no buffer".to_owned()))?;
        write_frame(&mut frame, VICTIM, ECHO, number as u64);
        frames.push(frame);
    }
    Ok(frames)
}

fn transmit(queue: &mut Queue, frames: &mut Vec<Buffer>) -> Result<(), Failure> {
    wait_until("there is room to send", || {
        queue.transmit(frames);
        frames.is_empty()
    })
}

fn wait_until(what: &str, done: impl FnMut() -> bool) -> Result<(), Failure> {
    try_until(what, done).map(drop).map_err(|why| (1, why))
}

/// How a daemon begins.
type Begin = fn(Config, Stop, Log) -> Result<Daemon, DaemonError>;

/// A daemon with one bridge, until its standard input ends or another has taken over.
fn live_as_daemon(begin: Begin, socket: &Path, stops: &Stops) -> Result<(), Failure> {
    let failed = |why: String| (1, why);
    stops.enter("daemon");
    let config = Config {
        socket: socket.to_owned(),
        step_timeout_ms: STEP_TIMEOUT.as_millis() as u64,
        // Without a spare region, whose making is at no named step of the client that is watched.
        limits: Limits { clients_per_user: CLIENTS, spare_mib: 0, ..Limits::default() },
        ..Config::default()
    };
    let config = config.checked().map_err(|error| failed(error.to_string()))?;
    let stop = Stop::new().map_err(|error| failed(error.to_string()))?;
    let (tell, told) = std::sync::mpsc::channel();
    let log = move |event: &Event| {
        if let Event::Detached { microseconds, .. } = event {
            // It is heard at the end, or this process is killed before.
            let _ = tell.send(*microseconds);
        }
    };
    let daemon = begin(config, stop.clone(), Box::new(log)).map_err(|error| failed(error.to_string()))?;
    let ready = writeln!(std::io::stdout(), "ready").and_then(|()| std::io::stdout().flush());
    ready.map_err(|error| failed(error.to_string()))?;
    let listening = std::thread::spawn(move || {
        // Whatever is said, it is the end that counts.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop.raise();
    });
    let ended = daemon.run().map_err(|error| failed(error.to_string()))?;
    if ended.heir.is_some() {
        // Who listens to this one ends with the process.
        return Ok(());
    }
    listening.join().map_err(|_| failed("the thread that listens panicked".to_owned()))?;
    let mut took: Vec<u64> = told.try_iter().collect();
    took.sort_unstable();
    if let Some(&most) = took.last() {
        let at = |share: usize| took[(took.len() - 1) * share / 1000];
        println!(
            "{SAYS}of {} clients that went, from when it knew to when it held nothing of them: median {} us, 99% {} us, most {most} us",
            took.len(),
            at(500),
            at(990)
        );
    }
    Ok(())
}
