//! Many calls and frames between two threads on real memory: contents, order, each once.

use std::thread;

use conic_fabric::{Core, Home, Layout};
use conic_interface::burst::NicQueue;
use conic_interface::pio::nic::{NicHost, NicLines};
use conic_interface::pio::{Device, Features, Host, Played, Poll, Shape};
use conic_native::{Memory, NativeCore, Pages, yield_core};

use crate::calls::place;
use crate::common::bytes;

/// Frames of all sizes, and calls: millions in an optimised build, fewer where everything is checked twice.
const FRAMES: u64 = if cfg!(debug_assertions) { 60_000 } else { 3_000_000 };

/// Waits a little; the other thread may need this very core.
fn pause(core: &impl Core, round: &mut u32) {
    *round += 1;
    core.spin();
    if round.is_multiple_of(100) {
        yield_core();
    }
}

/// Contents for each number modulo a prime, of which the first bytes are then the number itself.
struct Contents {
    patterns: Vec<Vec<u8>>,
    most: usize,
}

impl Contents {
    fn new(most: usize) -> Contents {
        Contents { patterns: (0..97).map(|seed| bytes(seed, most)).collect(), most }
    }

    /// Mostly short, as frames are.
    fn length(&self, number: u64) -> usize {
        let most = if number.is_multiple_of(16) { self.most } else { self.most.min(300) };
        8 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30) as usize % (most - 7)
    }

    fn of(&self, number: u64, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(&number.to_le_bytes());
        into.extend_from_slice(&self.patterns[(number % 97) as usize][8..self.length(number)]);
    }

    fn is(&self, number: u64, frame: &[u8]) -> bool {
        frame.len() == self.length(number)
            && frame[..8] == number.to_le_bytes()
            && frame[8..] == self.patterns[(number % 97) as usize][8..frame.len()]
    }
}

#[test]
fn frames_come_back_once_each_and_whole() {
    let wide = Shape { unit: 128, header: 64, overflow: 76, alignment: 128, ..Shape::pair() };
    for shape in [Shape::frames(9600), wide] {
        let mut layout = Layout::new();
        let lines = NicLines::place(&shape, &mut layout, Home::Nic).expect("a shape that can be");
        let memory = Memory::create(&layout, Pages::Plain).expect("memory");
        let core = || NativeCore::new(&memory);
        let (mut host, mut nic) = (lines.host([core(), core()], Features::PLAYED), lines.played([core(), core()]));
        thread::scope(|scope| {
            let other = scope.spawn(move || {
                let (mut turned, mut round) = (0, 0);
                let core = core();
                while turned < FRAMES {
                    match nic.turn_around() {
                        0 => pause(&core, &mut round),
                        count => turned += count as u64,
                    }
                }
                assert_eq!((nic.refused(), nic.dropped()), (0, 0));
            });
            send_and_receive(&mut host);
            assert_eq!(
                (host.transmit.host().refused(), host.receive.host().refused(), host.transmit.dropped()),
                (0, 0, 0)
            );
            other.join().expect("the other thread ends");
        });
    }
}

fn send_and_receive<C: Core>(host: &mut NicHost<C>) {
    let contents = Contents::new(9600);
    let (mut sent, mut received, mut round) = (0, 0, 0);
    let (mut frame, mut into) = (Vec::new(), vec![0; 9664]);
    contents.of(0, &mut frame);
    while received < FRAMES {
        let mut progress = false;
        if sent < FRAMES && host.transmit.try_transmit(&frame).expect("it fits") {
            sent += 1;
            contents.of(sent, &mut frame);
            progress = true;
        }
        if let Some(length) = host.receive.receive(&mut into) {
            assert!(contents.is(received, &into[..length]), "frame {received} of {length} bytes");
            received += 1;
            progress = true;
        }
        if !progress {
            pause(host.transmit.host().core(), &mut round);
        }
    }
}

#[test]
fn calls_are_answered_once_each_and_whole() {
    for (shape, calls) in [(Shape::pair(), FRAMES), (Shape::groups(2000), FRAMES / 4), (Shape::groups(65_536), 2_000)] {
        let (lines, layout) = place(shape);
        let memory = Memory::create(&layout, Pages::Plain).expect("memory");
        let mut host = Host::new(NativeCore::new(&memory), lines, Features::PLAYED);
        let mut device = Played::new(NativeCore::new(&memory), lines);
        let most = shape.capacity() as usize;
        let contents = Contents::new(most);
        thread::scope(|scope| {
            let other = scope.spawn(move || {
                let (mut served, mut round, mut request) = (0, 0, vec![0; most]);
                while served < calls {
                    match device.poll() {
                        Some(length) => {
                            device.read(&mut request);
                            // Now and then it takes its time.
                            if served % 1000 == 7 {
                                device.try_again();
                            }
                            while !device.respond(&request[..length]) {
                                pause(device.core(), &mut round);
                            }
                            served += 1;
                        }
                        None => pause(device.core(), &mut round),
                    }
                }
                assert_eq!(device.refusals().total(), 0);
            });
            let (mut request, mut response, mut round) = (Vec::new(), vec![0; most], 0);
            for call in 0..calls {
                contents.of(call, &mut request);
                host.begin(&request, most).expect("the last call was answered");
                let length = loop {
                    match host.poll() {
                        Poll::Response(length) => break length,
                        Poll::NotYet => pause(host.core(), &mut round),
                        Poll::Refused => panic!("refused"),
                    }
                };
                host.read(&mut response);
                assert!(contents.is(call, &response[..length]), "call {call} of {length} bytes");
            }
            assert_eq!((host.refused(), host.try_agains()), (0, calls / 1000));
            other.join().expect("the other thread ends");
        });
    }
}
