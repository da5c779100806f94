//! Many connections over a slow network, on a clock of the test's: nothing is sent again that was not lost.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

use crate::common::{Ground, Over, SMALL, TimedCore};
use conic_fabric::Time;
use conic_interface::burst::{HostQueue, NicQueue};
use conic_interface::ccnic::Features;
use conic_load::FarEnd;
use conic_native::NativeCore;
use conic_tcp::segment::Segment;
use conic_tcp::{Acknowledge, Application, Clients, FastPath, Load, Shape};

const MICROSECOND: Time = Time::from_nanoseconds(1000);

fn milliseconds(count: u64) -> Time {
    Time::from_nanoseconds(1_000_000 * count)
}

/// One direction of a network that passes one frame after the other, and keeps all that wait.
#[derive(Default)]
struct Way {
    takes: Time,
    delay: Time,
    free_at: Time,
    under_way: VecDeque<(Time, Vec<u8>)>,
    /// By the client's port: behind the last byte that was ever sent.
    ends: BTreeMap<u16, u32>,
    /// Bytes that were sent again.
    again: u64,
    longest_queue: usize,
}

impl Way {
    fn send(&mut self, frame: Vec<u8>, client: fn(&Segment) -> u16, now: Time) {
        let segment = Segment::of_frame(&frame).expect("a segment");
        let end = segment.sequence.wrapping_add(segment.payload_bytes.into());
        let before = self.ends.entry(client(&segment)).or_insert(segment.sequence);
        let new = end.wrapping_sub(*before) as i32;
        *before = before.wrapping_add(new.max(0) as u32);
        self.again += u64::from(segment.payload_bytes) - new.max(0) as u64;
        self.free_at = self.free_at.max(now) + self.takes;
        self.under_way.push_back((self.free_at + self.delay, frame));
        self.longest_queue = self.longest_queue.max(self.under_way.len());
    }

    fn arrived(&mut self, now: Time) -> Option<Vec<u8>> {
        let is_there = self.under_way.front().is_some_and(|(arrives, _)| *arrives <= now);
        is_there.then(|| self.under_way.pop_front().expect("it is there").1)
    }
}

/// A network: how long it takes for a frame, and for how long one is under way beside; and who uses it.
struct Run {
    takes: Time,
    delay: Time,
    flows: u32,
    window: u32,
}

/// A service, its clients, and two ways of a network between them.
struct World<'a> {
    clients: Clients,
    fast_path: FastPath<Box<dyn HostQueue<Core = TimedCore<'a, NativeCore<'a>>> + 'a>>,
    application: Application<NativeCore<'a>>,
    nic: Box<dyn NicQueue + 'a>,
    clock: &'a Cell<Time>,
    /// To the service, and from there.
    ways: [Way; 2],
}

impl<'a> World<'a> {
    fn new(run: &Run, ground: &'a Ground, [clock, sleeps_until]: &'a [Cell<Time>; 2]) -> World<'a> {
        let queue = ground.host_of(TimedCore::new(ground.core(), clock, sleeps_until), 0);
        let load = Load { window: run.window, requests_a_segment: 1 };
        let way = || Way { takes: run.takes, delay: run.delay, ..Way::default() };
        World {
            clients: Clients::new(&ground.connections, SMALL.buffers[0], load, 5),
            fast_path: FastPath::new(vec![queue], &ground.service, 0, Acknowledge::AtOnce),
            application: Application::new(ground.core(), &ground.service, 0),
            nic: ground.nic(0),
            clock,
            ways: [way(), way()],
        }
    }

    /// Has everybody do what there is to do now.
    fn turn(&mut self, now: Time) {
        self.clock.set(now);
        let [to_service, to_clients] = &mut self.ways;
        loop {
            let frames = self.clients.packets(now).to_vec();
            if frames.is_empty() {
                break;
            }
            self.clients.delivered(frames.len());
            frames.into_iter().for_each(|frame| to_service.send(frame, |segment| segment.from.port, now));
        }
        while let Some(frame) = to_service.arrived(now) {
            assert!(self.nic.deliver_frame(&frame), "the ring has room for what comes in a turn");
        }
        let mut into = vec![0; 2048];
        while self.fast_path.step() + self.application.step() > 0 {
            while let Some(length) = self.nic.take_frame(&mut into) {
                to_clients.send(into[..length].to_vec(), |segment| segment.to.port, now);
            }
        }
        while let Some(frame) = to_clients.arrived(now) {
            self.clients.came_back(&frame, now);
        }
    }
}

/// What came of a run.
#[derive(Debug)]
struct Found {
    /// Bytes that were sent again, by clients and by the service, until half of the answers were there and from then on.
    again: [[u64; 2]; 2],
    /// Frames on one way at once.
    longest_queue: usize,
    timeouts: u64,
}

impl Run {
    /// Everybody by turns, until so many answers are there for each connection.
    fn exchange(&self, answers: u64) -> Found {
        let ground = Ground::new(Over::CcNic(Features::best()), Shape { flows: self.flows, ..SMALL }, [5, 6]);
        let clock = Default::default();
        let mut world = World::new(self, &ground, &clock);
        let (mut now, mut half) = (MICROSECOND, None);
        let all = answers * u64::from(self.flows);
        let fewest = |world: &World<'_>| world.clients.answered().into_iter().min().expect("there are some");
        let mut turns = 0;
        while fewest(&world) < answers {
            world.turn(now);
            now += self.takes;
            turns += 1;
            assert!(turns < 20 * all, "it has collapsed after {} answers", world.clients.account().received());
            if half.is_none() && world.clients.account().received() > all / 2 {
                half = Some(world.ways.each_ref().map(|way| way.again));
            }
        }
        assert_eq!(world.clients.account().corrupt(), 0);
        let (half, again) = (half.expect("half of all is less"), world.ways.each_ref().map(|way| way.again));
        Found {
            again: [half, [again[0] - half[0], again[1] - half[1]]],
            longest_queue: world.ways.iter().map(|way| way.longest_queue).max().unwrap_or(0),
            timeouts: world.fast_path.counted().timeouts,
        }
    }
}

/// Each frame waits for longer than any minimum of a timeout behind those of all other connections.
#[test]
fn what_waits_behind_others_is_not_sent_again() {
    for (flows, window) in [(1000, 1), (200, 4)] {
        let slow = Run { takes: Time::from_nanoseconds(25_000), delay: milliseconds(15), flows, window };
        let found = slow.exchange(20);
        assert_eq!((found.again, found.timeouts), ([[0; 2]; 2], 0), "{flows} {window}: {found:?}");
        assert!(found.longest_queue > 1000, "25 ms of them: {found:?}");
    }
}

/// A queue that grows from nothing to far more than was ever measured has each connection send a few times again, and then no more.
#[test]
fn a_queue_that_grows_at_once_is_learnt() {
    let found = Run { takes: Time::from_nanoseconds(50_000), delay: Time::ZERO, flows: 2000, window: 1 }.exchange(12);
    assert!(found.timeouts > 2000 && found.longest_queue > 4000, "it is a queue: {found:?}");
    assert!(found.again[0].iter().all(|&bytes| bytes <= 3 * 64 * 2000), "{found:?}");
    assert_eq!(found.again[1], [0; 2], "{found:?}");
}
