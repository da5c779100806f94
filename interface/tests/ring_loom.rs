//! The ring under every schedule and ordering, and each of its orderings weakened.
//!
//! Rings have two descriptors, or four where a packet has two segments, so one packet at most is on its way and each register is the
//! only edge of its kind.

use conic_check::loom::thread;
use conic_check::{Exploration, LoomCore, LoomMemory, Mutation, Weaken, catches, explore};
use conic_fabric::{Address, Core, Device, Home, LINE_BYTES, Layout, PlayedByCore, StateHint, SynchronisingWords};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::ccnic::Flags;
use conic_interface::ring::{Buffer, Host, Nic, NoBuffer, QueuePair, RxSignal, Shape};

/// Packets of a model: enough that each buffer and each descriptor is used again.
const PACKETS: u8 = 3;

fn place(rx_signal: RxSignal, payload_hint: StateHint) -> (QueuePair, Layout) {
    let shape = Shape {
        descriptors: 2,
        buffers: 2,
        buffer_bytes: 64,
        rx_refill_threshold: 1,
        rx_signal,
        payload_hint,
        ..Shape::default()
    };
    let mut layout = Layout::new();
    (shape.place(&mut layout).expect("a shape that can be"), layout)
}

/// A queue pair whose ring holds one packet of two segments, and a line for each packet's second one.
fn with_objects() -> (QueuePair, Layout, Address) {
    let shape = Shape { descriptors: 4, buffers: 4, buffer_bytes: 64, rx_refill_threshold: 1, ..Shape::default() };
    let mut layout = Layout::new();
    let queues = shape.place(&mut layout).expect("a shape that can be");
    let bytes = u64::from(PACKETS) * LINE_BYTES;
    let objects = layout.add("objects", bytes, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    (queues.with_objects(objects, bytes), layout, objects)
}

fn coherent(rx_signal: RxSignal) -> (QueuePair, Layout) {
    place(rx_signal, StateHint::NonCacheablePush)
}

fn halves(memory: &LoomMemory, queues: QueuePair) -> (Host<LoomCore>, Nic<PlayedByCore<LoomCore>>) {
    (queues.host(memory.core("host")), queues.nic(PlayedByCore(memory.core("nic"))))
}

fn send(host: &mut Host<LoomCore>, byte: u8) {
    let mut buffer = [Buffer::default()];
    while host.buf_alloc(&mut buffer) == 0 {
        host.core().spin();
    }
    host.write_packet(&mut buffer[0], &[byte; 16]);
    while host.tx_burst(&buffer) == 0 {
        host.core().spin();
    }
}

fn receive(host: &mut Host<LoomCore>, byte: u8, length: usize) {
    let mut buffer = [Buffer::default()];
    while host.rx_burst(&mut buffer) == 0 {
        host.core().spin();
    }
    let mut packet = [0; 64];
    assert_eq!(host.read_packet(&buffer[0], &mut packet), &[byte; 64][..length]);
    host.buf_free(&buffer);
}

fn take(nic: &mut Nic<PlayedByCore<LoomCore>>) -> u8 {
    while nic.poll_tx() == 0 {
        nic.device().spin();
    }
    let mut packet = [0; 64];
    assert_eq!(nic.take_tx(&mut packet), Some(16));
    assert_eq!(packet[..16], [packet[0]; 16]);
    packet[0]
}

fn push(nic: &mut Nic<PlayedByCore<LoomCore>>, packet: &[u8]) {
    while nic.rx_push(packet) == Err(NoBuffer) {
        nic.device().spin();
    }
    assert!(nic.flush());
}

/// The host sends; the device takes.
fn transmit(memory: &LoomMemory, queues: QueuePair) {
    let (mut host, mut nic) = halves(memory, queues);
    let thread = thread::spawn(move || {
        for packet in 0..PACKETS {
            assert_eq!(take(&mut nic), packet);
            assert!(nic.flush());
        }
        assert_eq!(nic.refusals().by_host(), 0);
    });
    (0..PACKETS).for_each(|packet| send(&mut host, packet));
    thread.join().expect("the device ends");
}

/// The host sends packets of eight bytes in a buffer, and eight that it keeps; the device takes them. A buffer is there for each
/// packet only after the one before was sent.
fn transmit_segments(memory: &LoomMemory, queues: QueuePair, objects: Address) {
    let (mut host, mut nic) = halves(memory, queues);
    let thread = thread::spawn(move || {
        let mut packet = [0; 16];
        for byte in 0..PACKETS {
            let mut length = None;
            while length.is_none() {
                while nic.poll_tx() == 0 {
                    nic.device().spin();
                }
                length = nic.take_tx(&mut packet);
            }
            assert_eq!((length, packet), (Some(16), [byte; 16]));
            assert!(nic.flush());
        }
        assert_eq!(nic.refusals().by_host(), 0);
    });
    for byte in 0..PACKETS {
        let (mut buffer, object) = ([Address(0)], objects.lines(byte.into()));
        while HostQueue::buf_alloc(&mut host, 8, &mut buffer) == 0 {
            host.core().spin();
        }
        host.core().write_bytes(buffer[0], &[byte; 8]);
        host.core().write_bytes(object, &[byte; 8]);
        let header = Packet::new(buffer[0], 8).with(Flags::NEXT);
        while HostQueue::tx_burst(&mut host, &[header, Packet::new(object, 8).with(Flags::RETAIN)]) == 0 {
            host.core().spin();
        }
    }
    thread.join().expect("the device ends");
}

/// The device receives packets of so many bytes; the host takes them.
fn receive_all(memory: &LoomMemory, queues: QueuePair, length: usize) {
    let (mut host, mut nic) = halves(memory, queues);
    let thread = thread::spawn(move || {
        (0..PACKETS).for_each(|packet| push(&mut nic, &[packet; 64][..length]));
        assert_eq!(nic.refusals().by_host(), 0);
    });
    (0..PACKETS).for_each(|packet| receive(&mut host, packet, length));
    thread.join().expect("the device ends");
}

/// The host sends a packet at a time; the device loops it back.
fn loop_back(memory: &LoomMemory, queues: QueuePair) {
    let (mut host, mut nic) = halves(memory, queues);
    let thread = thread::spawn(move || {
        for _ in 0..2 {
            let packet = take(&mut nic);
            push(&mut nic, &[packet; 16]);
        }
    });
    for packet in 0..2 {
        send(&mut host, packet);
        receive(&mut host, packet, 16);
    }
    thread.join().expect("the device ends");
}

/// How a weakening is found.
fn caught(
    (queues, layout): (QueuePair, Layout),
    mutation: &Mutation,
    model: impl Fn(&LoomMemory, QueuePair) + Send + Sync + 'static,
) -> String {
    let exploration = Exploration::full().weakened(mutation.clone());
    catches(&layout, exploration, move |memory| model(memory, queues)).message
}

/// A weakening must be found as a race on an owned word.
fn races(
    placed: (QueuePair, Layout),
    mutation: Mutation,
    model: impl Fn(&LoomMemory, QueuePair) + Send + Sync + 'static,
) {
    let message = caught(placed, &mutation, model);
    assert!(message.contains("Causality violation"), "{mutation:?}: {message}");
}

fn released(register: &str, by: &str) -> Mutation {
    Mutation::new(Weaken::RelaxedStore).of(register).by(by)
}

fn acquired(register: &str, by: &str) -> Mutation {
    Mutation::new(Weaken::RelaxedLoad).of(register).by(by)
}

#[test]
fn packets_are_sent_under_every_schedule() {
    let (queues, layout) = coherent(RxSignal::Register);
    assert!(explore(&layout, Exploration::full(), move |memory| transmit(memory, queues)) > 1);
}

#[test]
fn packets_of_two_segments_are_sent_under_every_schedule() {
    let (queues, layout, objects) = with_objects();
    let model = move |memory: &LoomMemory| transmit_segments(memory, queues, objects);
    assert!(explore(&layout, Exploration::full(), model) > 1);
}

#[test]
fn packets_are_received_under_every_schedule() {
    for signal in [RxSignal::Register, RxSignal::DescriptorDone] {
        for (hint, length) in [(StateHint::NonCacheablePush, 16), (StateHint::NonCacheable, 64)] {
            let (queues, layout) = place(signal, hint);
            let executions = explore(&layout, Exploration::full(), move |memory| receive_all(memory, queues, length));
            assert!(executions > 1);
        }
    }
}

#[test]
fn packets_are_looped_back_under_every_schedule_of_three_preemptions() {
    for signal in [RxSignal::Register, RxSignal::DescriptorDone] {
        let (queues, layout) = coherent(signal);
        assert!(explore(&layout, Exploration::bounded(3), move |memory| loop_back(memory, queues)) > 1);
    }
}

#[test]
fn each_ordering_of_the_tx_registers_is_needed() {
    for mutation in [
        released("ring TX tail", "host"),
        acquired("ring TX tail", "nic"),
        released("ring TX head", "nic"),
        acquired("ring TX head", "host"),
    ] {
        races(coherent(RxSignal::Register), mutation, transmit);
    }
}

#[test]
fn each_ordering_of_the_tx_registers_is_needed_for_segments() {
    for mutation in [
        released("ring TX tail", "host"),
        acquired("ring TX tail", "nic"),
        released("ring TX head", "nic"),
        acquired("ring TX head", "host"),
    ] {
        let (queues, layout, objects) = with_objects();
        races((queues, layout), mutation, move |memory, queues| transmit_segments(memory, queues, objects));
    }
}

#[test]
fn each_ordering_of_the_rx_registers_is_needed() {
    let model = |memory: &LoomMemory, queues| receive_all(memory, queues, 16);
    for mutation in [
        released("ring RX head", "host"),
        acquired("ring RX head", "nic"),
        released("ring RX tail", "nic"),
        acquired("ring RX tail", "host"),
    ] {
        races(coherent(RxSignal::Register), mutation, model);
    }
}

#[test]
fn each_ordering_of_the_done_bit_is_needed() {
    let model = |memory: &LoomMemory, queues| receive_all(memory, queues, 16);
    for mutation in [released("ring RX descriptors", "nic"), acquired("ring RX descriptors", "host")] {
        races(coherent(RxSignal::DescriptorDone), mutation, model);
    }
}

#[test]
fn payloads_written_past_the_caches_need_their_fence() {
    let model = |memory: &LoomMemory, queues| receive_all(memory, queues, 64);
    for signal in [RxSignal::Register, RxSignal::DescriptorDone] {
        // The host finds what the buffer held before, or reads it while it is written.
        let message = caught(place(signal, StateHint::NonCacheable), &Mutation::new(Weaken::NoFence), model);
        assert!(message.contains("of `ring buffers`"), "{message}");
    }
}
