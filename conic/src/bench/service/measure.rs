//! The questions of `conic bench service`, each asked many times.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use conic_client::{Client, Options, Queue};
use conic_fabric::Time;
use conic_interface::ccnic::Geometry;
use conic_load::Account;
use conic_native::{Flag, clock, pin, spin};
use rustix::event::{EventfdFlags, eventfd};

use super::nic::{Member, Nic, frame, number, small};
use super::{Figure, Part, Unit};
use crate::bench::failure::Failure;
use crate::bench::temporary::Program;

/// Longer than it takes everybody to fall asleep.
const REST: Duration = Duration::from_millis(5);

/// How long a packet may take that is waited for.
const PATIENCE: Time = Time::from_nanoseconds(10_000_000_000);

/// Packets under way while a daemon is replaced.
const WINDOW: u64 = 64;

/// MiB of the region of a client that attaches and leaves beside others.
const LARGE: u64 = 256;

/// How long a process that plays a client lives that nobody kills.
const ALONE: Time = Time::from_nanoseconds(30_000_000_000);

/// A station that is not there: frames for it go to everybody.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Slices in which the daemon at rest is watched.
const SLICES: u64 = 8;

/// A client of so many MiB: large buffers are a page of 4 KiB each.
fn of_mebibytes(mebibytes: u64) -> Options {
    let geometry = Geometry { queues: 1, descriptors: 256, buffers: [256, 256 * mebibytes, 0], object_bytes: 0 };
    Options { geometry, ..Options::default() }
}

/// The share of a core that the daemon uses while nobody says anything.
pub fn at_rest(nic: &Nic, clients: usize, duration: Time) -> Result<Figure, Failure> {
    std::thread::sleep(20 * REST);
    let mut shares = Vec::new();
    for _ in 0..SLICES {
        let (begun, before) = (clock::now(), nic.processor_time()?);
        std::thread::sleep(Duration::from_nanos(duration.nanoseconds() / SLICES));
        let ran = nic.processor_time()?.saturating_sub(before);
        shares.push(ran.as_secs_f64() / clock::now().since(begun).seconds());
    }
    Ok(Figure::new("at_rest", format!("the daemon with {clients} clients at rest"), shares, Unit::Share, Some(0.01)))
}

fn late(what: &str) -> Failure {
    Failure::failed(format!("{what} did not come"))
}

/// Sends a frame; when it was given to the queue.
fn send(from: &mut Member, to: [u8; 6], value: u64) -> Result<Time, Failure> {
    let source = from.client.mac();
    let frame = frame(&mut from.queue, source, to, value).ok_or_else(|| Failure::failed("no buffer is free"))?;
    let (begun, mut outgoing) = (clock::now(), vec![frame]);
    while from.queue.transmit(&mut outgoing) == 0 {
        if clock::now().since(begun) > PATIENCE {
            return Err(late("room to send"));
        }
        spin();
    }
    Ok(begun)
}

/// Polls until the frame with a number is there; when that was.
fn receive(queue: &mut Queue, value: u64) -> Result<Time, Failure> {
    let (begun, mut incoming) = (clock::now(), Vec::new());
    loop {
        queue.receive(&mut incoming, 32);
        let now = clock::now();
        let found = incoming.iter().any(|frame| number(frame) == value);
        queue.free(&mut incoming);
        if found {
            return Ok(now);
        }
        if now.since(begun) > PATIENCE {
            return Err(late("a packet"));
        }
        spin();
    }
}

/// From a write to an eventfd until the thread that sleeps on it runs, which is waited for so long at most.
fn wake_ups(core: usize, rounds: usize, patience: Duration) -> Result<Vec<f64>, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("measuring a wake-up: {error}"));
    let bell = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let (tell, told) = channel();
    let over = Flag::new();
    std::thread::scope(|scope| {
        let (own, over) = (&bell, &over);
        scope.spawn(move || {
            if pin(core).is_err() {
                return;
            }
            loop {
                // An eventfd that is read is reset, and one at zero is waited for.
                let rung = rustix::io::read(own, &mut [0; 8]);
                if rung.is_err() || over.is_up() || tell.send(clock::now()).is_err() {
                    return;
                }
            }
        });
        let ring = || rustix::io::write(&bell, &1u64.to_ne_bytes()).map_err(|error| failed(error.into()));
        let measured = (0..rounds)
            .map(|_| {
                std::thread::sleep(REST);
                let begun = clock::now();
                ring()?;
                let woken = told.recv_timeout(patience).map_err(|_| late("a thread"))?;
                Ok(nanoseconds(begun, woken))
            })
            .collect();
        // Also where that ended early: the thread sleeps, and this one would wait for its end.
        over.raise();
        ring().and(measured)
    })
}

fn nanoseconds(from: Time, to: Time) -> f64 {
    to.since(from).picoseconds() as f64 / 1e3
}

/// The first packet from one client to another after a rest: to one that polls, and to one that sleeps; what this machine takes to
/// wake a thread on the NIC's core, which is in both; and a packet after pauses that are too short to fall asleep in, or just long enough.
pub fn first_packets(nic: &Nic, (own, core): (usize, usize), rounds: usize) -> Result<[Figure; 5], Failure> {
    let (from, to) = (nic.attach(small())?, nic.attach(small())?);
    std::thread::scope(|scope| {
        // A thread of its own, because it stays on its core.
        let measured = scope.spawn(move || {
            pin(own).map_err(|error| Failure::failed(format!("core {own}: {error}")))?;
            exchange(from, to, core, rounds)
        });
        measured.join().unwrap_or_else(|_| Err(Failure::failed("the measuring thread died; its message is above")))
    })
}

/// A packet each time that nothing was sent for so long.
fn after(from: &mut Member, to: &mut Member, pause: Time, rounds: usize) -> Result<Vec<f64>, Failure> {
    let station = to.client.mac();
    let packet = |round: usize| {
        let until = clock::now() + pause;
        while clock::now() < until {
            spin();
        }
        let sent = send(from, station, round as u64)?;
        Ok(nanoseconds(sent, receive(&mut to.queue, round as u64)?))
    };
    (0..rounds).map(packet).collect()
}

fn exchange(mut from: Member, mut to: Member, core: usize, rounds: usize) -> Result<[Figure; 5], Failure> {
    let woken = wake_ups(core, rounds, Duration::from_secs(10))?;
    let station = to.client.mac();
    let [short, longer] =
        [150_000, 500_000].map(|nanoseconds| after(&mut from, &mut to, Time::from_nanoseconds(nanoseconds), rounds));
    let mut awake = Vec::new();
    for round in 0..rounds as u64 {
        std::thread::sleep(REST);
        let sent = send(&mut from, station, round)?;
        awake.push(nanoseconds(sent, receive(&mut to.queue, round)?));
    }
    let (tell, told) = channel();
    let mut asleep = Vec::new();
    let stop = Flag::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut incoming = Vec::new();
            while !stop.is_up() {
                to.queue.wait(Duration::from_millis(100));
                if to.queue.receive(&mut incoming, 32) > 0 {
                    let now = clock::now();
                    // Who measures may have given up.
                    incoming.iter().for_each(|frame| {
                        let _ = tell.send((number(frame), now));
                    });
                }
                to.queue.free(&mut incoming);
            }
        });
        let measured = (0..rounds as u64).try_for_each(|round| {
            std::thread::sleep(REST);
            let sent = send(&mut from, station, round)?;
            let came = told.recv_timeout(Duration::from_secs(10)).map_err(|_| late("a packet to who sleeps"))?;
            if came.0 != round {
                return Err(Failure::failed(format!("packet {} came where {round} was sent", came.0)));
            }
            asleep.push(nanoseconds(sent, came.1));
            Ok(())
        });
        stop.raise();
        measured
    })?;
    let figure = |key: &str, what, values, goal| Figure::new(key, what, values, Unit::Nanoseconds, goal);
    Ok([
        figure("wake_up", "waking a thread of its core, alone", woken, None),
        figure("first_packet", "first packet after a rest, polled for", awake, Some(50_000.0)),
        figure("first_packet_both_asleep", "the same, to a client that sleeps", asleep, None),
        figure("packet_after_150_us", "a packet 150 us after the last", short?, Some(50_000.0)),
        figure("packet_after_500_us", "the same after 500 us", longer?, Some(50_000.0)),
    ])
}

/// From attaching until the first packet that the new client sends is with another; alone, and beside one that comes and goes with a
/// large region.
pub fn arrivals(nic: &Nic, rounds: usize) -> Result<[Figure; 2], Failure> {
    let mut peer = nic.attach(small())?;
    let alone = arrive(nic, &mut peer, rounds)?;
    let visitor = player("visitor", &nic.socket(), LARGE)?;
    let beside = arrive(nic, &mut peer, rounds);
    end(visitor)?;
    let beside = beside?;
    let figure = |key: &str, what: &str, values, goal| Figure::new(key, what, values, Unit::Nanoseconds, goal);
    Ok([
        figure("attach", "attaching to the first packet, 7 MiB", alone, Some(5e6)),
        figure("attach_beside", &format!("the same while {LARGE} MiB come and go"), beside, None),
    ])
}

/// A process that plays a client with a region of so many MiB.
fn player(part: &str, socket: &Path, mebibytes: u64) -> Result<Program, Failure> {
    let failed = |what: &str, error: std::io::Error| Failure::failed(format!("{what}: {error}"));
    let program = std::env::current_exe().map_err(|error| failed("finding this program", error))?;
    let mut command = Command::new(program);
    command.args(["bench", "service", "--mib", &mebibytes.to_string(), "--play", part, "--socket"]).arg(socket);
    command.stdout(Stdio::null());
    Program::start(command, |error| failed("starting a client", error))
}

/// Kills a process that plays a client.
fn end(mut player: Program) -> Result<(), Failure> {
    let status = player.kill().map_err(|error| Failure::failed(format!("a client's end: {error}")))?;
    if status.code().is_some() {
        return Err(Failure::failed("a client ended before it was killed; what it said is above"));
    }
    Ok(())
}

/// Plays a client at a socket until it is killed.
pub fn play(part: Part, socket: &Path, mebibytes: u64) -> Result<ExitCode, Failure> {
    let begun = clock::now();
    // Who started it kills it; it does not outlive that one for long.
    while clock::now().since(begun) < ALONE {
        let (client, mut queues) = nic_attach(socket, mebibytes)?;
        let (source, queue) = (client.mac(), &mut queues[0]);
        let mut outgoing = Vec::new();
        while part == Part::Loader && clock::now().since(begun) < ALONE {
            while outgoing.len() < 16
                && let Some(frame) = frame(queue, source, NOBODY, 0)
            {
                outgoing.push(frame);
            }
            queue.transmit(&mut outgoing);
            spin();
        }
    }
    Ok(ExitCode::FAILURE)
}

fn nic_attach(socket: &Path, mebibytes: u64) -> Result<(Client, Vec<Queue>), Failure> {
    Client::attach(socket, &of_mebibytes(mebibytes)).map_err(|error| Failure::failed(error.to_string()))
}

fn arrive(nic: &Nic, peer: &mut Member, rounds: usize) -> Result<Vec<f64>, Failure> {
    let mut times = Vec::new();
    for round in 0..rounds as u64 {
        let begun = clock::now();
        let mut new = nic.attach(Options::default())?;
        send(&mut new, peer.client.mac(), round)?;
        times.push(nanoseconds(begun, receive(&mut peer.queue, round)?));
        drop(new);
        std::thread::sleep(REST);
    }
    Ok(times)
}

/// What upgrades came to.
pub struct Upgrades {
    pub figures: [Figure; 3],
    pub packets_lost: u64,
    /// Packets that came twice, or after later ones.
    pub packets_twice: u64,
    pub sessions_lost: u64,
}

/// A stream of numbered packets between two clients, and the longest time between two that came.
struct Stream {
    from: Member,
    to: Member,
    account: Account,
    last: Time,
    longest: Time,
}

impl Stream {
    fn step(&mut self) {
        let (source, station) = (self.from.client.mac(), self.to.client.mac());
        if self.account.in_flight() < WINDOW
            && let Some(frame) = frame(&mut self.from.queue, source, station, self.account.sent())
        {
            let mut outgoing = vec![frame];
            if self.from.queue.transmit(&mut outgoing) > 0 {
                self.account.send();
            }
            self.from.queue.free(&mut outgoing);
        }
        self.receive();
    }

    /// Enters what has come, by its numbers: one that came twice stands for none that was lost.
    fn receive(&mut self) {
        let mut incoming = Vec::new();
        if self.to.queue.receive(&mut incoming, 32) > 0 {
            let now = clock::now();
            self.longest = self.longest.max(now.since(self.last));
            self.last = now;
            incoming.iter().for_each(|frame| self.account.enter(number(frame)));
            self.to.queue.free(&mut incoming);
        }
    }

    /// The longest gap since this was asked last.
    fn longest(&mut self) -> f64 {
        let now = clock::now();
        let longest = std::mem::replace(&mut self.longest, Time::ZERO).max(now.since(self.last));
        longest.picoseconds() as f64 / 1e3
    }

    /// Until the work is done in a thread of its own, as another process would do it: what starting a program and waiting for the end of
    /// one take is no gap of this stream's.
    fn run_beside<T: Send>(&mut self, work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
        std::thread::scope(|scope| {
            let beside = scope.spawn(work);
            while !beside.is_finished() {
                self.step();
            }
            beside.join().unwrap_or_else(|_| Err(Failure::failed("the thread that starts another NIC failed")))
        })
    }

    fn run_for(&mut self, time: Time) {
        let until = clock::now() + time;
        while clock::now() < until {
            self.step();
        }
    }
}

/// Replaces the daemon under load, several times.
pub fn upgrades(nic: &mut Nic, rounds: usize, others: &[Member]) -> Result<Upgrades, Failure> {
    let now = clock::now();
    let (from, to) = (nic.attach(small())?, nic.attach(small())?);
    let mut stream = Stream { from, to, account: Account::default(), last: now, longest: Time::ZERO };
    let slice = Time::from_nanoseconds(50_000_000);
    let (mut blackouts, mut gaps, mut usual) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        stream.run_for(slice);
        stream.longest();
        stream.run_for(slice);
        usual.push(stream.longest());
        let adopted = stream.run_beside(|| nic.upgrade())?;
        stream.run_for(slice);
        gaps.push(stream.longest());
        blackouts.push(adopted["microseconds"].as_f64().unwrap_or(f64::NAN) * 1e3);
    }
    let begun = clock::now();
    while stream.account.in_flight() > 0 && clock::now().since(begun) < Time::from_nanoseconds(1_000_000_000) {
        stream.receive();
    }
    let members = others.iter().chain([&stream.from, &stream.to]);
    let sessions_lost = members.filter(|member| member.client.reconnects() > 0).count() as u64;
    let packets_lost = stream.account.lost() + stream.account.in_flight();
    let packets_twice = stream.account.corrupt();
    let figure = |key: &str, what, values, goal| Figure::new(key, what, values, Unit::Nanoseconds, goal);
    let figures = [
        figure("upgrade_blackout", "an upgrade's blackout, as stated", blackouts, Some(20e6)),
        figure("upgrade_gap", "longest gap around one, under load", gaps, Some(20e6)),
        figure("usual_gap", "longest gap in 50 ms without one", usual, None),
    ];
    Ok(Upgrades { figures, packets_lost, packets_twice, sessions_lost })
}

/// From the signal that kills a client under load until the daemon says that it holds nothing of it.
pub fn deaths(nic: &Nic, rounds: usize, mebibytes: u64) -> Result<Figure, Failure> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        nic.forget();
        let loader = player("loader", &nic.socket(), mebibytes)?;
        let (_, attached) = nic.hear("attached", |said| said["process"] == loader.id())?;
        std::thread::sleep(2 * REST);
        let begun = clock::now();
        end(loader)?;
        let (back, _) = nic.hear("detached", |said| said["session"] == attached["session"])?;
        times.push(nanoseconds(begun, back));
    }
    // The goal is stated for regions as they usually are; a larger one takes as long as the kernel takes for its pages.
    let goal = (mebibytes <= 64).then_some(10e6);
    let what = format!("{mebibytes} MiB of a killed client are back");
    Ok(Figure::new(format!("killed_{mebibytes}_mib"), what, times, Unit::Nanoseconds, goal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_wakes_up_too_late_is_not_waited_for_for_ever() {
        let core = conic_native::cores()[0];
        // It never is there at once each time; if it is, there is nothing to see.
        let woken = wake_ups(core, 1000, Duration::ZERO);
        assert!(woken.map_or_else(|failure| failure.message.contains("a thread"), |all| all.len() == 1000));
        assert_eq!(wake_ups(core, 2, Duration::from_secs(10)).map_or(0, |all| all.len()), 2);
    }
}
