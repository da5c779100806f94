//! `conic bridge`: frames from one port to another, to try a port.

use std::error::Error;
use std::io;
use std::os::fd::BorrowedFd;
use std::process::ExitCode;
use std::sync::Arc;

use conic_fabric::Time;
use conic_native::{Flag, clock, pin};
use conic_port::{ARGUMENTS, Kind, MAX_FRAME, Port, PortError, PortSpec, Receive, SYNTAX, Transmit};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serde_json::{Map, Value, json};

use crate::status_line::StatusLine;
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
#[command(after_help = examples(), after_long_help = explained())]
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

/// The same, and what the arguments of each mean.
pub fn ports_explained() -> String {
    let arguments = ARGUMENTS.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n");
    format!("{}\n\nTheir arguments:\n{arguments}", kinds_of_ports())
}

fn explained() -> String {
    format!("A PORT is one of:\n{}\n\n{EXAMPLES}", ports_explained())
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
    if let Some(port) = options.ports.iter().find(|port| port.forwards_by_itself()) {
        return Err(format!("port '{port}': forward=kernel is for a switch that learns, which is `conic nic`").into());
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
    let begun = clock::now();
    let result = carry(&mut ends, options, &stop, &bell, &mut Taken::new());
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

    /// What it is called where there is little room: without options, and without impairments in front.
    fn name(&self) -> &str {
        let below = self.text.rsplit_once('+').map_or(&*self.text, |(_, below)| below);
        below.split_once(',').map_or(below, |(name, _)| name)
    }

    fn received(&self) -> u64 {
        self.queues.iter().map(|queue| queue.port.counters().received_frames).sum()
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
    taken: &mut Taken,
) -> Result<(), Box<dyn Error>> {
    let begun = clock::now();
    let end = options.duration.map_or(Time::NEVER, |duration| begun + duration);
    let mut active = begun;
    let (line, mut rates) = (StatusLine::new(), Rates::since(begun, ends.len()));
    while !stop.is_up() {
        let now = clock::now();
        if now >= end {
            break;
        }
        let moved = step(ends, now, usize::from(options.burst), taken)?;
        if ends.iter().any(End::is_over) {
            // What the other port still holds back leaves it when it is finished.
            break;
        }
        if now >= rates.next {
            line.show(&rates.line(now, ends));
        }
        if moved > 0 {
            active = now;
        } else if !options.spin && now.since(active) >= SPIN {
            // What came before the other ends knew is found by one more look.
            ends.iter_mut().flat_map(|end| &mut end.queues).for_each(|queue| queue.port.arm());
            if step(ends, clock::now(), usize::from(options.burst), taken)? > 0 {
                continue;
            }
            sleep(ends, bell, now, end.min(rates.next))?;
        }
    }
    Ok(())
}

/// A burst of every queue in both directions; how many frames moved or were skipped.
fn step(ends: &mut [End], now: Time, burst: usize, taken: &mut Taken) -> Result<usize, PortError> {
    let mut moved = 0;
    match ends {
        [alone] => {
            for queue in 0..alone.queues.len() {
                moved += reflect(alone, queue, now, burst, taken)?;
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

/// From a queue back to itself. Several are taken before the first is given back: an address that was changed a moment ago is loaded in other
/// pieces than it was stored in, and such a load waits for every store before it, those to the peer's lines included.
fn reflect(end: &mut End, number: usize, now: Time, burst: usize, taken: &mut Taken) -> Result<usize, PortError> {
    let queue = &mut end.queues[number];
    let mut moved = 0;
    while moved < burst && !queue.ended {
        taken.clear();
        let mut came = 0;
        while moved + came < burst
            && let Some(room) = taken.room()
        {
            match queue.port.receive(now, room)? {
                Receive::Frame { length, .. } => taken.add_swapped(length),
                Receive::Skipped => {}
                Receive::None => break,
                Receive::End => {
                    queue.ended = true;
                    break;
                }
            }
            came += 1;
        }
        for frame in taken.frames() {
            end.dropped += u64::from(queue.port.transmit(now, frame)? == Transmit::Full);
        }
        moved += came;
        if !taken.is_full() {
            break;
        }
    }
    if moved > 0 {
        queue.port.flush(now)?;
    }
    Ok(moved)
}

/// Frames that go back to where they came from: more would lie in no near cache.
struct Taken {
    bytes: Vec<u8>,
    /// Where each begins, and its length.
    frames: Vec<(usize, usize)>,
    /// Where the next begins.
    next: usize,
}

impl Taken {
    /// So many bytes have room for another.
    const MOST: usize = 4096;
    /// Each begins with a line of its own.
    const LINE: usize = 64;

    fn new() -> Taken {
        Taken { bytes: vec![0; Taken::MOST + MAX_FRAME], frames: Vec::new(), next: 0 }
    }

    fn clear(&mut self) {
        self.frames.clear();
        self.next = 0;
    }

    fn is_full(&self) -> bool {
        self.next >= Taken::MOST
    }

    /// Where the next goes; none when there are enough.
    fn room(&mut self) -> Option<&mut [u8]> {
        (!self.is_full()).then(|| &mut self.bytes[self.next..self.next + MAX_FRAME])
    }

    /// Takes in a frame that lies there, its addresses swapped.
    fn add_swapped(&mut self, length: usize) {
        let (destination, rest) = self.bytes[self.next..].split_at_mut(6);
        destination.swap_with_slice(&mut rest[..6]);
        self.frames.push((self.next, length));
        self.next += length.next_multiple_of(Taken::LINE);
    }

    fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().map(|&(at, length)| &self.bytes[at..at + length])
    }
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

/// The ports between which frames go, as pairs of where they come from and where they go to.
fn directions(ends: &[End]) -> impl Iterator<Item = (&End, &End)> {
    ends.iter().zip(ends.iter().rev())
}

/// How many frames have come in each direction since the last look, about once a second.
struct Rates {
    begun: Time,
    /// The last look.
    looked: Time,
    /// When the next is due.
    next: Time,
    /// What each end had received then.
    before: Vec<u64>,
}

impl Rates {
    fn since(begun: Time, ends: usize) -> Rates {
        Rates { begun, looked: begun, next: begun + SECOND, before: vec![0; ends] }
    }

    /// Looks again.
    fn line(&mut self, now: Time, ends: &[End]) -> String {
        let seconds = now.since(self.looked).seconds();
        let mut parts = Vec::new();
        for ((from, to), before) in directions(ends).zip(&mut self.before) {
            let frames = from.received() - std::mem::replace(before, from.received());
            parts.push(format!("{} to {}: {} frames/s", from.name(), to.name(), per_second(frames, seconds)));
        }
        (self.looked, self.next) = (now, now + SECOND);
        format!("{:.0} s  {}", now.since(self.begun).seconds(), parts.join(", "))
    }
}

fn per_second(frames: u64, seconds: f64) -> String {
    grouped((frames as f64 / seconds).round() as u64)
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
        let direction = |(from, to): (&End, &End)| {
            let frames = from.received();
            json!({ "from": from.text, "to": to.text, "frames": frames, "frames_per_second": frames as f64 / seconds })
        };
        let directions: Vec<Value> = directions(ends).map(direction).collect();
        let object = json!({
            "schema": "conic.bridge/1",
            "seconds": seconds,
            "directions": directions,
            "ports": ports,
            "error": error,
        });
        println!("{object}");
        return;
    }
    for (from, to) in directions(ends) {
        let rate = per_second(from.received(), took.seconds());
        println!("{} to {}: {} frames, {rate} frames/s", from.text, to.text, grouped(from.received()));
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
    use std::sync::mpsc::{Sender, channel};

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

    /// Gives frames of these lengths, whose bytes are their own, and tells of those that it gets.
    struct Giving {
        lengths: Vec<usize>,
        given: usize,
        got: Sender<Vec<u8>>,
        counters: Counters,
    }

    /// A frame's bytes, by its number.
    fn content(number: usize, length: usize) -> impl Iterator<Item = u8> {
        (0..length).map(move |at| (at * 7 + number) as u8)
    }

    impl Port for Giving {
        fn receive(&mut self, _now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
            let Some(&length) = self.lengths.get(self.given) else { return Ok(Receive::None) };
            frame[..length].iter_mut().zip(content(self.given, length)).for_each(|(byte, content)| *byte = content);
            self.given += 1;
            Ok(Receive::Frame { length, captured: None })
        }
        fn transmit(&mut self, _now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
            self.got.send(frame.to_vec()).expect("the test goes on");
            Ok(Transmit::Accepted)
        }
        fn next_due(&self) -> Option<Time> {
            Some(Time::ZERO)
        }
        fn counters(&self) -> &Counters {
            &self.counters
        }
    }

    #[test]
    fn frames_come_back_in_their_order_with_their_addresses_swapped_and_a_burst_at_a_time() {
        let lengths: Vec<usize> = (0..200).map(|number| [60, 64, 1500, MAX_FRAME, 61, 2000, 60][number % 7]).collect();
        let (got, gets) = channel();
        let port = Giving { lengths: lengths.clone(), given: 0, got, counters: Counters::default() };
        let queue = Queue { port: Box::new(port), ended: false, waiting: None, held: Vec::new() };
        let mut ends = [End { text: "giving".to_owned(), queues: vec![queue], dropped: 0, mute: false }];
        let (mut taken, mut came) = (Taken::new(), 0);
        for burst in [1, 32, 3, 1024] {
            let moved = step(&mut ends, Time::ZERO, burst, &mut taken).expect("it does not break");
            assert_eq!(moved, burst.min(lengths.len() - came), "a burst of {burst}");
            for (number, &length) in lengths.iter().enumerate().skip(came).take(moved) {
                let mut expected: Vec<u8> = content(number, length).collect();
                expected[..12].rotate_left(6);
                assert!(gets.try_recv().expect("it was sent") == expected, "frame {number} of {length} bytes");
            }
            came += moved;
            assert!(gets.try_recv().is_err(), "more was sent than was moved");
        }
        assert_eq!(came, lengths.len());
    }

    /// A port that has received so many frames.
    fn end(text: &str, received: u64) -> End {
        let port: Box<dyn Port> = Box::new(Skipping(Counters { received_frames: received, ..Counters::default() }));
        let queue = Queue { port, ended: false, waiting: None, held: Vec::new() };
        End { text: text.to_owned(), queues: vec![queue], dropped: 0, mute: false }
    }

    #[test]
    fn what_moves_in_each_direction_is_said_once_a_second_by_the_ports_names() {
        let at = |milliseconds: u64| Time::from_nanoseconds(1_000_000 * milliseconds);
        let mut rates = Rates::since(at(500), 2);
        let ends = |one, other| [end("tap:t0,offload", one), end("impair:loss=1%,delay=5ms+af-xdp:v1,queues=2", other)];
        let line = rates.line(at(2500), &ends(3000, 10));
        assert_eq!(line, "2 s  tap:t0 to af-xdp:v1: 1,500 frames/s, af-xdp:v1 to tap:t0: 5 frames/s");
        assert_eq!(rates.next, at(3500));
        let line = rates.line(at(3500), &ends(3000, 1_000_010));
        assert_eq!(line, "3 s  tap:t0 to af-xdp:v1: 0 frames/s, af-xdp:v1 to tap:t0: 1,000,000 frames/s");
        let line = Rates::since(at(0), 1).line(at(1000), &[end("loopback", 7)]);
        assert_eq!(line, "1 s  loopback to loopback: 7 frames/s");
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
            let moved = step(&mut ends, Time::ZERO, 32, &mut Taken::new()).expect("it does not break");
            assert_eq!(moved, 32 * count);
        }
    }
}
