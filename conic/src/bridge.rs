//! `conic bridge`: frames from one port to another, to try a port.

use std::error::Error;
use std::io;
use std::os::fd::BorrowedFd;
use std::process::ExitCode;
use std::sync::Arc;

use conic_fabric::Time;
use conic_native::{Flag, clock, pin};
use conic_port::{Kind, MAX_FRAME, Port, PortError, PortSpec, Receive, SYNTAX, Transmit};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serde_json::{Map, Value, json};

use crate::value::{grouped, span};

/// How long it spins without work before it sleeps.
const SPIN: Time = Time::from_nanoseconds(50_000);
/// How long a frame waits for a port that is full before it is dropped.
const PATIENCE: Time = Time::from_nanoseconds(1_000_000);
/// How long it sleeps at most, so that ports without a descriptor are looked after.
const SLEEP: Time = Time::from_nanoseconds(100_000_000);
const SECOND: Time = Time::from_nanoseconds(1_000_000_000);

/// Carry frames between two ports, or return those of one.
///
/// Every frame that one port receives is sent through the other, in both directions. A single port gets its frames back,
/// with source and destination address swapped. Where a port is an interface of this machine, give that no address: the
/// kernel's own network stack would answer too.
#[derive(clap::Args)]
#[command(after_help = examples())]
pub struct Options {
    /// A port; once or twice
    #[arg(long = "port", value_name = "PORT", required = true, num_args = 1)]
    ports: Vec<PortSpec>,
    /// How long to run, such as 10s; without it, until interrupted or a capture ends
    #[arg(long, value_name = "TIME", value_parser = span)]
    duration: Option<Time>,
    /// Frames that are moved from a queue before the next one has its turn
    #[arg(long, value_name = "FRAMES", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    burst: u16,
    /// The core to run on; without it, wherever the kernel puts it
    #[arg(long)]
    core: Option<usize>,
    /// Never sleep: lower latency, a whole core
    #[arg(long)]
    spin: bool,
    /// Print one JSON object at the end instead of text
    #[arg(long)]
    json: bool,
}

/// The kinds of ports, a line each, as a list in a help text.
pub fn kinds_of_ports() -> String {
    SYNTAX.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

fn examples() -> String {
    format!("A PORT is one of:\n{}\n\n{EXAMPLES}", kinds_of_ports())
}

const EXAMPLES: &str = "Examples:
  conic bridge --port tap:t0 --port tap:t1                two interfaces of the kernel, joined
  conic bridge --port af-xdp:veth0                        what comes is sent back
  conic bridge --port impair:loss=1%,delay=5ms+tap:t0 --port tap:t1
  conic bridge --port capture:replay=a.pcap --port af-packet:veth0";

/// Runs the command.
///
/// # Errors
///
/// A port cannot be opened or breaks.
pub fn run(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    if options.ports.len() > 2 {
        return Err("give --port once or twice: more ports are a switch, which is `conic nic`".into());
    }
    let ends: Result<Vec<End>, PortError> = options.ports.iter().map(End::open).collect();
    let mut ends = ends?;
    if let Some(core) = options.core {
        pin(core)?;
    }
    let stop = Arc::new(Flag::new());
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (raised, rung) = (stop.clone(), bell.clone());
    ctrlc::set_handler(move || {
        raised.raise();
        // A bell that has rung too often to count is as good as one that rings.
        let _ = rustix::io::write(&rung, &1u64.to_ne_bytes());
    })?;
    if !options.json {
        for end in &ends {
            println!("{}", end.queues[0].port.description());
        }
        println!("Ctrl-C ends it.");
    }
    let mut buffer = vec![0; MAX_FRAME];
    let begun = clock::now();
    let result = carry(&mut ends, options, &stop, &bell, &mut buffer);
    let finished: Result<(), PortError> =
        ends.iter_mut().flat_map(|end| &mut end.queues).try_for_each(|queue| queue.port.finish());
    let ended = result.and(finished.map_err(Into::into));
    report(&ends, options, clock::now().since(begun), ended.as_ref().err().map(ToString::to_string));
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The object says why.
        Err(_) if options.json => Ok(ExitCode::FAILURE),
        Err(error) => Err(error),
    }
}

/// One of the two ports.
struct End {
    text: String,
    queues: Vec<Queue>,
    /// Frames for it that were dropped because it was full.
    dropped: u64,
    /// It only records: that it gives no frames is not its end.
    mute: bool,
}

/// A queue of a port.
struct Queue {
    port: Box<dyn Port>,
    ended: bool,
    /// The length of a frame of its that waits, and since when; the bytes are in `held`.
    waiting: Option<(usize, Time)>,
    held: Vec<u8>,
}

impl End {
    fn open(spec: &PortSpec) -> Result<End, PortError> {
        let mute = matches!(spec.kind(), Kind::Record { .. });
        let queue = |port| Queue { port, ended: false, waiting: None, held: vec![0; MAX_FRAME] };
        Ok(End { text: spec.to_string(), queues: spec.open()?.into_iter().map(queue).collect(), dropped: 0, mute })
    }

    fn is_over(&self) -> bool {
        !self.mute && self.queues.iter().all(|queue| queue.ended && queue.waiting.is_none())
    }
}

/// Carries frames until the time is over, a port ends or breaks, or it is told to stop.
fn carry(
    ends: &mut [End],
    options: &Options,
    stop: &Flag,
    bell: &impl std::os::fd::AsFd,
    buffer: &mut [u8],
) -> Result<(), Box<dyn Error>> {
    let begun = clock::now();
    let end = options.duration.map_or(Time::NEVER, |duration| begun + duration);
    let mut active = begun;
    let mut seconds = Seconds { begun, next: begun + SECOND, before: 0 };
    while !stop.is_up() {
        let now = clock::now();
        if now >= end {
            break;
        }
        let moved = step(ends, now, usize::from(options.burst), buffer)?;
        if ends.iter().any(End::is_over) {
            // What the other port still holds back leaves it when it is finished.
            break;
        }
        if !options.json {
            seconds.show(now, ends);
        }
        if moved > 0 {
            active = now;
        } else if !options.spin && now.since(active) >= SPIN {
            // What came before the other ends knew is found by one more look.
            ends.iter_mut().flat_map(|end| &mut end.queues).for_each(|queue| queue.port.arm());
            if step(ends, clock::now(), usize::from(options.burst), buffer)? > 0 {
                continue;
            }
            sleep(ends, bell, now, end.min(seconds.next))?;
        }
    }
    Ok(())
}

/// A burst of every queue in both directions; how many frames moved or were skipped.
fn step(ends: &mut [End], now: Time, burst: usize, buffer: &mut [u8]) -> Result<usize, PortError> {
    let mut moved = 0;
    match ends {
        [alone] => {
            for queue in 0..alone.queues.len() {
                moved += reflect(alone, queue, now, burst, buffer)?;
            }
        }
        [one, other] => {
            moved += forward(one, other, now, burst)?;
            moved += forward(other, one, now, burst)?;
        }
        _ => {}
    }
    Ok(moved)
}

/// From each queue of one port to a queue of the other.
fn forward(from: &mut End, to: &mut End, now: Time, burst: usize) -> Result<usize, PortError> {
    let mut moved = 0;
    let outgoing = to.queues.len();
    for (number, queue) in from.queues.iter_mut().enumerate() {
        let port = &mut to.queues[number % outgoing].port;
        // Frames that were sent, dropped or skipped.
        let mut done = 0;
        while done < burst {
            let (length, since) = match queue.waiting.take() {
                Some(waiting) => waiting,
                None => match queue.port.receive(now, &mut queue.held)? {
                    Receive::Frame { length, .. } => (length, now),
                    Receive::Skipped => {
                        done += 1;
                        continue;
                    }
                    Receive::None => break,
                    Receive::End => {
                        queue.ended = true;
                        break;
                    }
                },
            };
            match port.transmit(now, &queue.held[..length])? {
                Transmit::Full if now.since(since) < PATIENCE => {
                    queue.waiting = Some((length, since));
                    break;
                }
                Transmit::Full => to.dropped += 1,
                Transmit::Accepted | Transmit::Refused => {}
            }
            done += 1;
        }
        if done > 0 {
            port.flush(now)?;
            moved += done;
        }
    }
    Ok(moved)
}

/// From a queue back to itself.
fn reflect(end: &mut End, number: usize, now: Time, burst: usize, buffer: &mut [u8]) -> Result<usize, PortError> {
    let queue = &mut end.queues[number];
    let mut moved = 0;
    while moved < burst {
        match queue.port.receive(now, buffer)? {
            Receive::Frame { length, .. } => {
                let (destination, rest) = buffer.split_at_mut(6);
                destination.swap_with_slice(&mut rest[..6]);
                end.dropped += u64::from(queue.port.transmit(now, &buffer[..length])? == Transmit::Full);
                moved += 1;
            }
            Receive::Skipped => moved += 1,
            Receive::None => break,
            Receive::End => {
                queue.ended = true;
                break;
            }
        }
    }
    if moved > 0 {
        queue.port.flush(now)?;
    }
    Ok(moved)
}

/// Sleeps until a port may have something, or until `most`.
fn sleep(ends: &[End], bell: &impl std::os::fd::AsFd, now: Time, most: Time) -> io::Result<()> {
    let queues = || ends.iter().flat_map(|end| &end.queues);
    let due = queues().filter_map(|queue| queue.port.next_due()).min().unwrap_or(Time::NEVER);
    if due <= now || queues().any(|queue| queue.waiting.is_some()) {
        return Ok(());
    }
    let span = due.min(most).min(now + SLEEP).since(now).nanoseconds();
    let timeout = Timespec { tv_sec: (span / 1_000_000_000) as i64, tv_nsec: (span % 1_000_000_000) as i64 };
    let descriptors: Vec<BorrowedFd<'_>> = queues().filter_map(|queue| queue.port.descriptor()).collect();
    let mut waited: Vec<PollFd<'_>> =
        descriptors.iter().map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN)).collect();
    waited.push(PollFd::new(bell, PollFlags::IN));
    match poll(&mut waited, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Shows what moved in each second in which something did.
struct Seconds {
    begun: Time,
    next: Time,
    before: u64,
}

impl Seconds {
    fn show(&mut self, now: Time, ends: &[End]) {
        if now < self.next {
            return;
        }
        let queues = ends.iter().flat_map(|end| &end.queues);
        let received: u64 = queues.map(|queue| queue.port.counters().received_frames).sum();
        if received != self.before {
            let moved = grouped(received - self.before);
            println!("{:5.0} s  {moved} frames", now.since(self.begun).seconds());
        }
        self.before = received;
        while self.next <= now {
            self.next += SECOND;
        }
    }
}

/// The counters of a queue that are not 0.
fn counted(queue: &Queue) -> Vec<(&'static str, u64)> {
    let mut counted = queue.port.counters().named().to_vec();
    counted.extend(queue.port.details());
    counted.retain(|(_, count)| *count > 0);
    counted
}

fn report(ends: &[End], options: &Options, took: Time, error: Option<String>) {
    if options.json {
        let queue = |queue: &Queue| {
            let counters: Map<String, Value> =
                counted(queue).into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
            json!({ "description": queue.port.description(), "counters": counters })
        };
        let end = |end: &End| {
            let queues: Vec<Value> = end.queues.iter().map(queue).collect();
            json!({ "port": end.text, "queues": queues, "dropped_full": end.dropped })
        };
        let ports: Vec<Value> = ends.iter().map(end).collect();
        let seconds = took.seconds();
        println!("{}", json!({ "schema": "conic.bridge/1", "seconds": seconds, "ports": ports, "error": error }));
        return;
    }
    for end in ends {
        println!("{}", end.text);
        for queue in &end.queues {
            let text: Vec<String> =
                counted(queue).iter().map(|(name, count)| format!("{name} {}", grouped(*count))).collect();
            println!(
                "  {}: {}",
                queue.port.description(),
                if text.is_empty() { "nothing".into() } else { text.join(", ") }
            );
        }
        if end.dropped > 0 {
            println!("  {} frames dropped because it was full", grouped(end.dropped));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conic_port::Counters;

    /// A port of which every frame is one to skip, without end.
    struct Skipping(Counters);

    impl Port for Skipping {
        fn receive(&mut self, _now: Time, _frame: &mut [u8]) -> Result<Receive, PortError> {
            self.0.skipped_oversized += 1;
            assert!(self.0.skipped_oversized < 10_000, "a burst has no end");
            Ok(Receive::Skipped)
        }
        fn transmit(&mut self, _now: Time, _frame: &[u8]) -> Result<Transmit, PortError> {
            Ok(Transmit::Accepted)
        }
        fn next_due(&self) -> Option<Time> {
            Some(Time::ZERO)
        }
        fn counters(&self) -> &Counters {
            &self.0
        }
    }

    #[test]
    fn a_port_that_skips_for_ever_has_its_turn_and_no_more() {
        for count in [1, 2] {
            let end = |_| {
                let port: Box<dyn Port> = Box::new(Skipping(Counters::default()));
                let queue = Queue { port, ended: false, waiting: None, held: vec![0; MAX_FRAME] };
                End { text: "skipping".to_owned(), queues: vec![queue], dropped: 0, mute: false }
            };
            let mut ends: Vec<End> = (0..count).map(end).collect();
            let moved = step(&mut ends, Time::ZERO, 32, &mut vec![0; MAX_FRAME]).expect("it does not break");
            assert_eq!(moved, 32 * count);
        }
    }
}
