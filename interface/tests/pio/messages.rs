//! The halves over coherence messages: lines given up at any moment, prefetches dropped and in any order, time-outs.

use std::thread;

use conic_check::{RendezvousCore, RendezvousDevice, RendezvousMemory};
use conic_fabric::{Core, Home, Layout, Time};
use conic_interface::burst::NicQueue;
use conic_interface::pio::nic::{NicDevice, NicLines};
use conic_interface::pio::protocol::Recalls;
use conic_interface::pio::{Behaviour, Device, Features, Homed, Host, Poll, Shape, Sorted};

use crate::calls::place;
use crate::common::bytes;

/// A run of calls.
#[derive(Clone, Copy, Debug)]
struct Run {
    shape: Shape,
    seed: u64,
    eviction_percent: u64,
    behaviour: Behaviour,
    prefetch: bool,
    /// The device works until it has said "try again" so many times, once in eight calls.
    slow: u64,
    calls: u64,
}

/// What a run counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    served: u64,
    try_agains: u64,
    recalled: u64,
}

fn length(seed: u64, most: u64) -> usize {
    (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % (most as usize + 1)
}

/// What the device computes: bytes of another length that tell which request they answer.
fn function(request: &[u8], most: u64) -> Vec<u8> {
    let sum = request.iter().fold(request.len() as u64, |sum, &byte| sum.rotate_left(9) ^ u64::from(byte));
    bytes(sum, length(sum, most))
}

impl Run {
    fn new(shape: Shape, seed: u64, eviction_percent: u64) -> Run {
        let behaviour = Behaviour { patience: Time::from_nanoseconds(300), ..Behaviour::default() };
        Run { shape, seed, eviction_percent, behaviour, prefetch: true, slow: 0, calls: 300 }
    }

    fn run(&self) -> Tally {
        let (lines, layout) = place(self.shape);
        let memory = RendezvousMemory::with_unit(&layout, self.seed, self.eviction_percent, self.shape.unit);
        let (core, device) = memory.ends();
        let most = self.shape.capacity();
        thread::scope(|scope| {
            let device = scope.spawn(move || {
                let mut device = Homed::<_, 4>::new(device, lines, self.behaviour).expect("a few lines");
                let (mut served, mut request) = (0, vec![0; most as usize]);
                let mut work = None;
                loop {
                    let gone = device.device().core_is_gone();
                    if let Some(length) = device.poll() {
                        assert!(work.is_none(), "{self:?}: a request before the last was answered");
                        assert_eq!(device.read(&mut request), length);
                        let slow = if served % 8 == 3 { self.slow } else { 0 };
                        work = Some((device.try_agains() + slow, function(&request[..length], most)));
                    }
                    match &work {
                        Some((until, response)) if device.try_agains() >= *until => {
                            assert!(device.respond(response));
                            (work, served) = (None, served + 1);
                        }
                        None if gone => break,
                        _ => device.spin(),
                    }
                }
                assert_eq!((device.refusals().total(), device.violations()), (0, (0, None)), "{self:?}");
                Tally { served, try_agains: device.try_agains(), recalled: device.recalled() }
            });
            self.call(Host::new(core, lines, Features { prefetch: self.prefetch, ..Features::HOMED }));
            device.join().expect("the device ends")
        })
    }

    fn call(&self, mut host: Host<RendezvousCore>) {
        let most = self.shape.capacity();
        let mut response = vec![0; most as usize];
        for call in 0..self.calls {
            let request = bytes(call, length(call ^ self.seed, most));
            let expected = function(&request, most);
            // Half of the callers know how long the response will be; the others ask for more, or less, ahead.
            let hint = if call % 2 == 0 { expected.len() } else { length(call, most) };
            host.begin(&request, hint).expect("the last call was answered");
            let length = loop {
                match host.poll() {
                    Poll::Response(length) => break length,
                    Poll::NotYet => host.core().spin(),
                    Poll::Refused => panic!("{self:?}: refused"),
                }
            };
            assert_eq!(host.read(&mut response), length);
            assert_eq!(response[..length], expected, "{self:?}, call {call}");
        }
        assert_eq!(host.refused(), 0, "{self:?}");
    }
}

/// What a device makes of a byte of a request that it answers byte by byte.
fn byte(place: usize, byte: u8) -> u8 {
    byte.rotate_left(3) ^ place as u8
}

/// A run in which the device answers what it has of a request while the rest is on its way; once in eight it takes longer than the cache
/// waits, with any part of the response filled.
fn flowing(shape: Shape, seed: u64, eviction_percent: u64, calls: u64) -> (u64, u64) {
    let (lines, layout) = place(shape);
    let memory = RendezvousMemory::with_unit(&layout, seed, eviction_percent, shape.unit);
    let (core, device) = memory.ends();
    let behaviour = Behaviour { patience: Time::from_nanoseconds(300), ..Behaviour::default() };
    thread::scope(|scope| {
        let device = scope.spawn(move || {
            let mut device = Homed::<_, 4>::new(device, lines, behaviour).expect("a few lines");
            let (mut served, mut early, mut made, mut until) = (0_u64, 0, Vec::new(), None);
            while served < calls {
                let stepped = device.step();
                let Some(come) = device.come() else {
                    device.spin();
                    continue;
                };
                let whole = come.bytes.len() == come.of;
                made.extend((made.len()..come.bytes.len()).map(|place| byte(place, come.bytes[place])));
                // Any number of bytes at a time, none of them twice otherwise.
                let some = length(seed ^ served << 8 ^ made.len() as u64, made.len() as u64);
                early += u64::from(!whole && some > 0);
                device.fill(0, &made[..some]);
                let again = device.try_agains();
                let until_now = *until.get_or_insert(again + if served % 8 == 3 { 3 } else { 0 });
                if whole && again >= until_now && device.is_working() {
                    device.poll();
                    if device.respond(&made) {
                        (served, until) = (served + 1, None);
                        made.clear();
                    }
                } else if !stepped {
                    device.spin();
                }
            }
            while !device.device().core_is_gone() {
                device.poll();
                device.spin();
            }
            assert_eq!((device.refusals().total(), device.violations()), (0, (0, None)));
            (early, device.try_agains())
        });
        let mut host = Host::new(core, lines, Features::HOMED);
        let mut response = vec![0; shape.capacity() as usize];
        for call in 0..calls {
            let request = bytes(call, length(call ^ seed, shape.capacity()));
            host.begin(&request, request.len()).expect("the last call was answered");
            let length = loop {
                match host.poll() {
                    Poll::Response(length) => break length,
                    Poll::NotYet => host.core().spin(),
                    Poll::Refused => panic!("{shape:?}: refused"),
                }
            };
            assert_eq!(host.read(&mut response), length);
            let expected: Vec<u8> = request.iter().enumerate().map(|(place, of)| byte(place, *of)).collect();
            assert_eq!(response[..length], expected, "{shape:?}, seed {seed}, call {call}");
        }
        drop(host);
        device.join().expect("the device ends")
    })
}

#[test]
fn calls_that_are_answered_while_they_come_keep_their_payloads() {
    for shape in shapes() {
        let (mut early, mut try_agains) = (0, 0);
        for (seed, percent) in [(1, 0), (2, 3), (3, 30)] {
            let (filled, again) = flowing(shape, seed, percent, 160);
            (early, try_agains) = (early + filled, try_agains + again);
        }
        assert!(shape.group == 1 || early > 0, "{shape:?}: nothing was answered before all had come");
        assert!(try_agains >= 3 * 3 * 20, "{shape:?}: {try_agains} times \"try again\"");
    }
}

fn shapes() -> [Shape; 5] {
    let wide = Shape { unit: 128, header: 64, alignment: 128, ..Shape::pair() };
    [
        Shape::pair(),
        Shape { overflow: 3, ..wide },
        Shape { group: 4, ..wide },
        Shape::groups(400),
        Shape { group: 2, overflow: 2, ..Shape::pair() },
    ]
}

#[test]
fn calls_keep_their_payloads_whatever_the_cache_gives_up() {
    for shape in shapes() {
        for (seed, percent) in [(1, 0), (2, 3), (3, 30)] {
            for exclusive in [true, false] {
                let run = Run::new(shape, seed, percent);
                let run = Run { behaviour: Behaviour { exclusive, ..run.behaviour }, ..run };
                assert_eq!(run.run().served, run.calls, "{run:?}");
            }
        }
    }
}

#[test]
fn calls_keep_their_payloads_in_every_order_of_recalls_and_without_prefetches() {
    for (shape, recalls) in [(shapes()[1], Recalls::OverflowFirst), (shapes()[4], Recalls::OverflowLast)] {
        for prefetch in [true, false] {
            let run = Run::new(shape, 7, 10);
            let run = Run { behaviour: Behaviour { recalls, ..run.behaviour }, prefetch, ..run };
            assert_eq!(run.run().served, run.calls, "{run:?}");
        }
    }
}

#[test]
fn a_device_that_takes_longer_than_the_cache_waits_says_try_again_and_loses_nothing() {
    for shape in shapes() {
        for percent in [0, 20] {
            let run = Run { slow: 5, calls: 100, ..Run::new(shape, 11, percent) };
            let tally = run.run();
            assert_eq!(tally.served, run.calls, "{run:?}");
            // Thirteen slow calls.
            assert!(tally.try_agains >= 5 * 13, "{run:?}: {tally:?}");
        }
    }
}

#[test]
fn without_evictions_each_line_is_recalled_once_an_exchange() {
    let run = Run { prefetch: false, ..Run::new(Shape::pair(), 0, 0) };
    let Tally { served, recalled, try_agains } = run.run();
    // Each but the first finds the line that the last one answered, each the line that was written.
    assert_eq!((served, try_agains), (300, 0));
    assert_eq!(recalled, 300);
}

/// Frames both ways over messages, as fast as either side takes them.
fn frames(shape: Shape, seed: u64, percent: u64, prefetch: bool, count: u64) -> u64 {
    let mut layout = Layout::new();
    let lines = NicLines::place(&shape, &mut layout, Home::Nic).expect("a shape that can be");
    let memory = RendezvousMemory::with_unit(&layout, seed, percent, shape.unit);
    let (core, device) = memory.ends();
    let most = shape.capacity();
    let frame = |number: u64| {
        let mut frame = bytes(number, 8 + length(number ^ seed, most - 8));
        frame[..8].copy_from_slice(&number.to_le_bytes());
        frame
    };
    thread::scope(|scope| {
        let device = scope.spawn(move || echo(device, lines, count));
        let mut host = lines.host([&core, &core], Features { prefetch, ..Features::HOMED });
        let (mut into, mut sent, mut received) = (vec![0; most as usize], 0, 0);
        while received < count {
            // Several at once, as far as the device takes them.
            while sent < count && sent - received < 3 && host.transmit.try_transmit(&frame(sent)).expect("it fits") {
                sent += 1;
            }
            if let Some(length) = host.receive.receive(&mut into) {
                assert_eq!(into[..length], frame(received), "frame {received}");
                received += 1;
            }
        }
        // The device ends when the core has gone.
        drop(core);
        device.join().expect("the device ends")
    })
}

/// A loopback with room for a few frames; says how often it said "try again".
fn echo(device: RendezvousDevice, lines: NicLines, count: u64) -> u64 {
    let sorted = Sorted::new(device, &[lines.transmit, lines.receive]);
    let behaviour = Behaviour { patience: Time::from_nanoseconds(400), ..Behaviour::default() };
    let transmit = Behaviour { recalls: Recalls::OverflowLast, ..behaviour };
    let receive = Behaviour { recalls: Recalls::OverflowFirst, bare: true, ..behaviour };
    let mut nic = NicDevice::new(
        Homed::<_, 4>::new(sorted.exchange(0), lines.transmit, transmit).expect("a few lines"),
        Homed::<_, 4>::new(sorted.exchange(1), lines.receive, receive).expect("a few lines"),
        &lines,
    );
    let mut queue = std::collections::VecDeque::new();
    let mut into = vec![0; lines.transmit.shape().capacity() as usize];
    // Every sixteenth frame comes only when the CPU has been told to try again.
    let (mut delivered, mut held_back) = (0, 1);
    while delivered < count || !sorted.agent().core_is_gone() {
        if queue.len() < 4
            && let Some(length) = nic.take_frame(&mut into)
        {
            queue.push_back(into[..length].to_vec());
        }
        if let Some(frame) = queue.front()
            && (delivered % 16 != 5 || nic.receiver().try_agains() >= held_back)
            && nic.deliver_frame(frame)
        {
            queue.pop_front();
            delivered += 1;
            held_back = nic.receiver().try_agains() + 1;
        }
        nic.receiver().poll();
        nic.spin();
    }
    assert_eq!((nic.refused(), nic.dropped(), delivered), (0, 0, count));
    assert_eq!((nic.transmitter().violations(), nic.receiver().violations()), ((0, None), (0, None)));
    nic.receiver().try_agains()
}

#[test]
fn frames_come_back_once_each_in_order_whatever_the_cache_gives_up() {
    let wide = Shape { unit: 128, header: 64, overflow: 6, alignment: 128, ..Shape::pair() };
    let mut try_agains = 0;
    for shape in [Shape::frames(300), wide] {
        for (seed, percent, prefetch) in [(1, 0, false), (2, 2, true), (3, 30, false), (4, 30, true)] {
            try_agains += frames(shape, seed, percent, prefetch, 400);
        }
    }
    assert!(try_agains >= 8 * 25, "{try_agains} times \"try again\"");
}
