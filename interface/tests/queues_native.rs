//! The queues and the ring between two threads over real shared memory: order and contents of many messages.

use std::thread;

use crate::common::{bytes, line};
use conic_fabric::{Core, Home, Layout, Line, PlayedByCore, StateHint};
use conic_interface::cachable_queue::{self, Arrival};
use conic_interface::fastforward::{self, Slip};
use conic_interface::ring::{Buffer, RxSignal, Shape};
use conic_native::{Memory, NativeCore, Pages, yield_core};

const MESSAGES: u64 = 50_000;

/// Waits a little; the other thread may need this very core.
fn pause(core: &impl Core, round: &mut u32) {
    *round += 1;
    core.spin();
    if round.is_multiple_of(100) {
        yield_core();
    }
}

#[test]
fn cachable_queues_deliver_between_threads() {
    for arrival in [Arrival::TailPointer, Arrival::ValidBit, Arrival::SenseReverse] {
        for (lazy_pointers, slots, message_lines) in [(true, 2, 1), (false, 8, 4), (true, 64, 4)] {
            let mut layout = Layout::new();
            let shape = cachable_queue::Shape { slots, message_lines, lazy_pointers, arrival };
            let queue = shape.place(&mut layout, Home::Host, Home::Nic).expect("a shape that can be");
            let memory = Memory::create(&layout, Pages::Plain).expect("memory");
            let message = |number: u64| {
                let mut message: Vec<Line> = (0..message_lines).map(|index| line(number * 64 + index)).collect();
                message[0].0[0] = 0;
                message
            };
            let mut sender = queue.sender(NativeCore::new(&memory));
            let mut receiver = queue.receiver(NativeCore::new(&memory));
            thread::scope(|scope| {
                let other = scope.spawn(move || {
                    let mut round = 0;
                    for number in 0..MESSAGES {
                        while !sender.try_send(&message(number)) {
                            pause(sender.core(), &mut round);
                        }
                    }
                    assert_eq!(sender.refused_heads(), 0);
                });
                let mut into = vec![Line::ZERO; message_lines as usize];
                let mut round = 0;
                for number in 0..MESSAGES {
                    while !receiver.try_receive(&mut into) {
                        pause(receiver.core(), &mut round);
                    }
                    assert_eq!(into, message(number), "{shape:?}");
                }
                other.join().expect("the other thread ends");
            });
        }
    }
}

#[test]
fn fastforward_delivers_between_threads() {
    for (slots, slip) in [(2, None), (64, None), (64, Some(Slip { distance: 16, patience: 64 }))] {
        let mut layout = Layout::new();
        let queue = fastforward::Shape { slots, slip }.place(&mut layout, Home::Host).expect("a shape that can be");
        let memory = Memory::create(&layout, Pages::Plain).expect("memory");
        let mut sender = queue.sender(NativeCore::new(&memory));
        let mut receiver = queue.receiver(NativeCore::new(&memory));
        thread::scope(|scope| {
            let other = scope.spawn(move || {
                let mut round = 0;
                for number in 0..MESSAGES {
                    while !sender.try_send(&[number; 7]) {
                        pause(sender.core(), &mut round);
                    }
                }
            });
            let mut round = 0;
            for number in 0..MESSAGES {
                let payload = loop {
                    if let Some(payload) = receiver.try_receive() {
                        break payload;
                    }
                    pause(receiver.core(), &mut round);
                };
                assert_eq!(payload, [number; 7]);
            }
            other.join().expect("the other thread ends");
        });
    }
}

/// A loopback of packets of many sizes, and who writes them how.
fn ring(rx_signal: RxSignal, payload_hint: StateHint, largest: usize) {
    let shape = Shape {
        descriptors: 64,
        buffers: 160,
        rx_signal,
        payload_hint,
        ..Shape::for_packets(largest as u64).expect("a size that can be")
    };
    let packets = MESSAGES / if largest > 2048 { 20 } else { 2 };
    // Whole lines now and then, so that they go past the caches where the hint says so.
    let length =
        |number: u64| (number as usize * 61 % largest + 1).next_multiple_of(1 + number as usize % 2 * 63).min(largest);
    let contents: Vec<Vec<u8>> = (0..97).map(|seed| bytes(seed, largest)).collect();
    let contents = |number: u64| &contents[number as usize % 97][..length(number)];
    let mut layout = Layout::new();
    let queues = shape.place(&mut layout).expect("a shape that can be");
    let memory = Memory::create(&layout, Pages::Plain).expect("memory");
    let (mut host, mut nic) =
        (queues.host(NativeCore::new(&memory)), queues.nic(PlayedByCore(NativeCore::new(&memory))));
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            let mut packet = vec![0; largest];
            let (mut looped, mut round) = (0, 0);
            while looped < packets {
                for _ in 0..nic.poll_tx().min(nic.poll_rx()) {
                    let length = nic.take_tx(&mut packet).expect("a packet that the poll announced");
                    assert_eq!(packet[..length], *contents(looped));
                    nic.rx_push(&packet[..length]).expect("a buffer that the poll announced");
                    looped += 1;
                }
                if !nic.flush() {
                    pause(&nic.device().0, &mut round);
                }
            }
            assert_eq!(nic.refusals().by_host(), 0);
        });
        let (mut sent, mut received, mut round) = (0, 0, 0);
        let mut buffers = [Buffer::default(); 8];
        let mut packet = vec![0; largest];
        while received < packets {
            let count = host.buf_alloc(&mut buffers[..8.min(packets - sent) as usize]);
            for (number, buffer) in (sent..).zip(&mut buffers[..count]) {
                host.write_packet(buffer, contents(number));
            }
            let transmitted = host.tx_burst(&buffers[..count]);
            host.buf_free(&buffers[transmitted..count]);
            sent += transmitted as u64;
            let count = host.rx_burst(&mut buffers);
            for buffer in &buffers[..count] {
                assert_eq!(host.read_packet(buffer, &mut packet), contents(received));
                received += 1;
            }
            host.buf_free(&buffers[..count]);
            if transmitted + count == 0 {
                pause(host.core(), &mut round);
            }
        }
        let statistics = host.statistics();
        assert_eq!((statistics.refused_registers, statistics.refused_packets, statistics.refused_frees), (0, 0, 0));
        host.reclaim();
        assert_eq!((host.free_buffers() + host.device_buffers()) as u64, shape.buffers);
        other.join().expect("the other thread ends");
    });
}

#[test]
fn the_ring_delivers_between_threads() {
    for signal in [RxSignal::Register, RxSignal::DescriptorDone] {
        for hint in [StateHint::NonCacheablePush, StateHint::NonCacheable] {
            for largest in [128, 2048, 9600] {
                ring(signal, hint, largest);
            }
        }
    }
}
