//! When a network's thread looks, sleeps and obeys.

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, SynchronisingWords};
use conic_native::{Pages, yield_core};
use conic_port::{
    CaptureFormat, CapturePort, CaptureWriter, Counters, Pace, Receive, Replay, Speed, Timestamp, Transmit,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};

use super::*;

/// Frames that were received, which one thread counts and another reads.
#[derive(Clone)]
struct Received(KeptCore, Address);

impl Received {
    fn none() -> Received {
        let mut layout = Layout::new();
        let at = layout.add("received", LINE_BYTES, LINE_BYTES, Home::Host, SynchronisingWords::ALL);
        let memory = Memory::create(&layout, Pages::Plain).expect("a page");
        Received(KeptCore::new(Arc::new(memory)), at)
    }
    // Acquire and release: nothing else is read by the number, and the two always go together.
    fn count(&self) -> u64 {
        self.0.load_acquire(self.1)
    }
    fn one_more(&self) {
        self.0.store_release(self.1, self.count() + 1);
    }
}

/// Each frame of it takes a tenth of a millisecond, and there is always another.
struct Slow(Received, Counters);

impl Port for Slow {
    fn receive(&mut self, _now: Time, _frame: &mut [u8]) -> Result<Receive, PortError> {
        let begun = clock::now();
        while clock::now().since(begun) < BETWEEN_ORDERS {
            spin();
        }
        self.0.one_more();
        Ok(Receive::Skipped)
    }
    fn transmit(&mut self, _now: Time, _frame: &[u8]) -> Result<Transmit, PortError> {
        Ok(Transmit::Accepted)
    }
    fn next_due(&self) -> Option<Time> {
        Some(Time::ZERO)
    }
    fn counters(&self) -> &Counters {
        &self.1
    }
}

/// Has nothing, or is gone, which its descriptor says for ever.
struct Silent(OwnedFd, Receive, Counters);

impl Port for Silent {
    fn receive(&mut self, _now: Time, _frame: &mut [u8]) -> Result<Receive, PortError> {
        Ok(self.1)
    }
    fn transmit(&mut self, _now: Time, _frame: &[u8]) -> Result<Transmit, PortError> {
        Ok(Transmit::Refused)
    }
    fn next_due(&self) -> Option<Time> {
        None
    }
    fn counters(&self) -> &Counters {
        &self.2
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// Has nothing, and counts how often it is told that its descriptor is about to be slept on.
struct Still(Received, Counters);

impl Port for Still {
    fn receive(&mut self, _now: Time, _frame: &mut [u8]) -> Result<Receive, PortError> {
        Ok(Receive::None)
    }
    fn transmit(&mut self, _now: Time, _frame: &[u8]) -> Result<Transmit, PortError> {
        Ok(Transmit::Accepted)
    }
    fn next_due(&self) -> Option<Time> {
        None
    }
    fn arm(&mut self) {
        self.0.one_more();
    }
    fn counters(&self) -> &Counters {
        &self.1
    }
}

/// Has something to do at one time, far away, and counts how often it is looked at before, and from then on.
struct Due {
    at: Time,
    before: Received,
    since: Received,
    counters: Counters,
}

impl Port for Due {
    fn receive(&mut self, now: Time, _frame: &mut [u8]) -> Result<Receive, PortError> {
        if now < self.at {
            self.before.one_more()
        } else {
            self.since.one_more()
        }
        Ok(Receive::None)
    }
    fn transmit(&mut self, _now: Time, _frame: &[u8]) -> Result<Transmit, PortError> {
        Ok(Transmit::Accepted)
    }
    fn next_due(&self) -> Option<Time> {
        (self.since.count() == 0).then_some(self.at)
    }
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// Another port, whose looks and frames are counted.
struct Counted<P> {
    port: P,
    looks: Received,
    frames: Received,
}

impl<P: Port> Port for Counted<P> {
    fn receive(&mut self, now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        self.looks.one_more();
        let received = self.port.receive(now, frame)?;
        if matches!(received, Receive::Frame { .. }) {
            self.frames.one_more();
        }
        Ok(received)
    }
    fn transmit(&mut self, now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        self.port.transmit(now, frame)
    }
    fn next_due(&self) -> Option<Time> {
        self.port.next_due()
    }
    fn arm(&mut self) {
        self.port.arm();
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.port.descriptor()
    }
    fn counters(&self) -> &Counters {
        self.port.counters()
    }
}

/// Has something to do once, so long after the first look at it as a thread looks again without a nap, and a part of a millisecond; tells how
/// late it was looked at then.
struct Soon {
    at: Option<Time>,
    over: bool,
    told: Sender<u64>,
    counters: Counters,
}

impl Port for Soon {
    fn receive(&mut self, _now: Time, _frame: &mut [u8]) -> Result<Receive, PortError> {
        let now = clock::now();
        let at = *self.at.get_or_insert(now + PATIENCE + Time::from_nanoseconds(130_000));
        if now >= at && !self.over {
            self.over = true;
            self.told.send(now.since(at).nanoseconds()).expect("the test waits for it");
        }
        Ok(Receive::None)
    }
    fn transmit(&mut self, _now: Time, _frame: &[u8]) -> Result<Transmit, PortError> {
        Ok(Transmit::Accepted)
    }
    fn next_due(&self) -> Option<Time> {
        self.at.filter(|_| !self.over)
    }
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// A thread with these ports.
fn worker(wait: WaitMode, ports: Vec<Box<dyn Port>>) -> (Worker, Receiver<News>) {
    let (news, heard) = channel();
    let port =
        |(number, queue)| (Parts::new(number, 1, 1), SwitchPort { queues: vec![queue], vlan: None, circuit: None });
    let worker = Worker::start(WorkerOptions {
        network: 0,
        wake: Bell::new().expect("a descriptor"),
        neighbours: Vec::new(),
        aways: Vec::new(),
        core: None,
        wait,
        switch: SwitchOptions::default(),
        ports: ports.into_iter().enumerate().map(port).collect(),
        held_back: false,
        news,
        bell: Bell::new().expect("a descriptor"),
    });
    (worker.expect("a thread"), heard)
}

#[test]
fn a_port_that_is_gone_keeps_no_thread_awake() {
    let (slept, rung) = (Received::none(), eventfd(1, EventfdFlags::NONBLOCK).expect("a descriptor"));
    let gone = Silent(rung, Receive::End, Counters::default());
    let still = Still(slept.clone(), Counters::default());
    let (_worker, _heard) = worker(WaitMode::Interrupt, vec![Box::new(gone), Box::new(still)]);
    must_sleep(&slept, 0);
}

/// Fails if a thread that had slept so often wakes again and again.
fn must_sleep(slept: &Received, before: u64) {
    let late = clock::now() + Time::from_nanoseconds(20_000_000_000);
    while slept.count() == before {
        assert!(clock::now() < late, "it does not look");
        spin();
    }
    let (begun, before) = (clock::now(), slept.count());
    while clock::now().since(begun).seconds() < 0.1 {
        yield_core();
    }
    let times = slept.count() - before;
    assert!(times < 10, "it has slept {times} times");
}

/// A descriptor that is closed leaves no epoll as long as there is a copy of it, and the port that goes on has one.
#[test]
fn a_port_that_goes_on_behind_a_take_over_that_failed_wakes_its_thread_by_one_descriptor() {
    let (slept, bell) = (Received::none(), eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor"));
    let copy = bell.try_clone().expect("a copy");
    let lasting = Silent(bell, Receive::None, Counters::default());
    let still = Still(slept.clone(), Counters::default());
    let (worker, _heard) = worker(WaitMode::Interrupt, vec![Box::new(lasting), Box::new(still)]);
    worker.suspend(vec![0]).recv().expect("it stands still");
    rustix::io::write(&copy, &1u64.to_ne_bytes()).expect("it is rung");
    worker.take_up(Vec::new());
    worker.inherit(0, vec![Box::new(Silent(copy, Receive::End, Counters::default()))]);
    let before = slept.count();
    worker.begin();
    must_sleep(&slept, before);
}

#[test]
fn a_thread_that_never_sleeps_does_not_sleep_on_ports_either() {
    let (looks, slept) = (Received::none(), Received::none());
    let port =
        Counted { port: Still(slept.clone(), Counters::default()), looks: looks.clone(), frames: Received::none() };
    let (_worker, _heard) = worker(WaitMode::Spin, vec![Box::new(port)]);
    while looks.count() < 10_000 && slept.count() == 0 {
        yield_core();
    }
    assert_eq!(slept.count(), 0, "it was about to sleep after {} looks", looks.count());
}

#[test]
fn a_thread_sleeps_until_a_port_is_due_and_no_longer() {
    // More than a second, and not a whole one.
    let wait = Time::from_nanoseconds(1_300_000_000);
    let (before, since) = (Received::none(), Received::none());
    let at = clock::now() + wait;
    let due = Due { at, before: before.clone(), since: since.clone(), counters: Counters::default() };
    let (worker, _heard) = worker(WaitMode::Interrupt, vec![Box::new(due)]);
    while since.count() == 0 {
        assert!(clock::now().since(at).seconds() < 20.0, "it is late");
        yield_core();
    }
    assert!(before.count() < 20, "it was looked at {} times before its time", before.count());
    let report = worker.report().recv().expect("it is told");
    // 2^40 picoseconds are 1.1 seconds.
    assert!(report.looks[0].1.buckets().all(|(below, _)| below <= 1 << 40), "its sleep is nobody's wait");
}

/// What is not due yet keeps a pipe readable, and so does its other end when it is gone.
#[test]
fn a_thread_sleeps_through_what_lies_in_a_pipe_until_that_is_due() {
    let mut capture = Vec::new();
    let mut writer = CaptureWriter::new(&mut capture, CaptureFormat::Pcap, "bytes");
    for nanoseconds in [0, 600_000_000, 1_300_000_000] {
        writer.write(Timestamp::from_nanoseconds(nanoseconds), &[7; 60]).expect("there is room");
    }
    writer.finish().expect("there is room");
    drop(writer);
    let last = capture.split_off(capture.len() - 76);
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("a.pcap");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    let write = {
        let pipe = pipe.clone();
        std::thread::spawn(move || {
            let mut end = OpenOptions::new().write(true).open(pipe)?;
            end.write_all(&capture).map(|()| end)
        })
    };
    let replay = Replay { pace: Pace::Recorded(Speed::RECORDED), ..Replay::default() };
    let port = CapturePort::replay(&pipe, replay).expect("a capture");
    let mut end = write.join().expect("it writes").expect("a pipe");
    let (looks, frames) = (Received::none(), Received::none());
    let begun = clock::now();
    let port = Counted { port, looks: looks.clone(), frames: frames.clone() };
    let (_worker, _heard) = worker(WaitMode::Interrupt, vec![Box::new(port)]);
    let until = |count| {
        while frames.count() < count {
            assert!(clock::now().since(begun).seconds() < 20.0, "{count} frames do not come");
            yield_core();
        }
    };
    until(2);
    // What comes while nothing lies in the pipe wakes it.
    end.write_all(&last).expect("a pipe");
    drop(end);
    until(3);
    assert!(clock::now().since(begun).seconds() >= 1.3, "a frame came before its time");
    assert!(looks.count() < 100, "it was looked at {} times", looks.count());
}

#[test]
fn a_port_that_is_due_within_a_millisecond_is_looked_at_then() {
    let mut late: Vec<u64> = (0..20)
        .map(|_| {
            let (told, hears) = channel();
            let soon = Soon { at: None, over: false, told, counters: Counters::default() };
            let (_worker, _heard) = worker(WaitMode::Adaptive, vec![Box::new(soon)]);
            hears.recv().expect("it is looked at")
        })
        .collect();
    late.sort_unstable();
    // By whole milliseconds all but one were 0.9 ms late. Other programs and tests have the core as well.
    assert!(late[2] < 500_000, "{late:?} ns late");
}

#[test]
fn an_order_waits_for_a_step_and_not_for_many() {
    let received = Received::none();
    let slow = Slow(received.clone(), Counters::default());
    let (worker, _heard) = worker(WaitMode::Spin, vec![Box::new(slow)]);
    let mut beside = 0;
    for _ in 0..10 {
        let before = received.count();
        // It is in the middle of a step.
        while received.count() == before {
            spin();
        }
        worker.report().recv().expect("it is told");
        beside += received.count() - before;
    }
    // A step is at most a burst of 32, and the answer may be heard late; by steps alone an order waited for 32 of them.
    assert!(beside <= 10 * 8 * 32, "{beside} frames beside ten orders");
}
