//! The rings of a ConnectX under every schedule and ordering, and each of its orderings weakened.
//!
//! Two receive descriptors, and few buffers, so that each of these and each completion is used again.

use conic_check::loom::thread;
use conic_check::{Exploration, LoomCore, LoomMemory, Mutation, Weaken, catches, explore};
use conic_fabric::{Address, Core, Device, Layout, PlayedByCore};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::mlx5::{Host, Nic, QueuePair, Shape};
use conic_interface::ring::{self, DeviceHalf, NoBuffer};

const PACKETS: u8 = 3;

fn place(compressed: bool) -> (QueuePair, Layout) {
    let common = ring::Shape {
        descriptors: 2,
        buffers: 3,
        buffer_bytes: 64,
        rx_refill_threshold: 1,
        fetch_ahead: false,
        ..ring::Shape::default()
    };
    let shape = Shape { compressed, report_interval: 1, fetch_batch: 2, ..Shape::of(common, 1) };
    let mut layout = Layout::new();
    (shape.place(&mut layout).expect("a shape that can be"), layout)
}

fn halves(memory: &LoomMemory, queues: QueuePair) -> (Host<LoomCore>, Nic<PlayedByCore<LoomCore>>) {
    (queues.host(memory.core("host")), queues.nic(PlayedByCore(memory.core("nic"))))
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

/// The host sends; the device takes.
fn transmit(memory: &LoomMemory, queues: QueuePair) {
    let (mut host, mut nic) = halves(memory, queues);
    let thread = thread::spawn(move || {
        for packet in 0..PACKETS {
            assert_eq!(take(&mut nic), packet);
            nic.flush();
        }
        assert_eq!(nic.refusals().by_host(), 0);
    });
    for byte in 0..PACKETS {
        let mut at = [Address(0)];
        while host.buf_alloc(16, &mut at) == 0 {
            host.core().spin();
        }
        host.core().write_bytes(at[0], &[byte; 16]);
        assert_eq!(host.tx_burst(&[Packet::new(at[0], 16)]), 1);
    }
    thread.join().expect("the device ends");
}

/// The device receives packets, as many as find buffers at once where they are told of together; the host takes them.
fn receive(memory: &LoomMemory, queues: QueuePair) {
    let (mut host, mut nic) = halves(memory, queues);
    let thread = thread::spawn(move || {
        for byte in 0..PACKETS {
            while nic.rx_push(&[byte; 16]) == Err(NoBuffer) {
                nic.flush();
                nic.device().spin();
            }
        }
        nic.flush();
        assert_eq!(nic.refusals().by_host(), 0);
    });
    let mut came = 0;
    while came < PACKETS {
        let mut packets = [Packet::BLANK; 2];
        let count = host.rx_burst(&mut packets);
        for packet in &packets[..count] {
            let mut content = [0; 16];
            host.core().read_bytes(packet.address(), &mut content);
            assert_eq!(content, [came; 16]);
            host.buf_free(&[packet.address()]);
            came += 1;
        }
        if count == 0 {
            host.core().spin();
        }
    }
    thread.join().expect("the device ends");
}

/// A weakening must be found as a race on an owned word.
fn races(compressed: bool, weaken: Weaken, (of, by): (&str, &str), model: fn(&LoomMemory, QueuePair)) {
    let (queues, layout) = place(compressed);
    let mutation = Mutation::new(weaken).of(of).by(by);
    let exploration = Exploration::full().weakened(mutation.clone());
    let message = catches(&layout, exploration, move |memory| model(memory, queues)).message;
    assert!(message.contains("Causality violation"), "{mutation:?}: {message}");
}

#[test]
fn packets_are_sent_under_every_schedule() {
    let (queues, layout) = place(false);
    assert!(explore(&layout, Exploration::full(), move |memory| transmit(memory, queues)) > 1);
}

#[test]
fn packets_are_received_under_every_schedule() {
    let (queues, layout) = place(false);
    assert!(explore(&layout, Exploration::full(), move |memory| receive(memory, queues)) > 1);
}

#[test]
fn packets_told_of_together_are_received_under_every_schedule() {
    let (queues, layout) = place(true);
    assert!(explore(&layout, Exploration::full(), move |memory| receive(memory, queues)) > 1);
}

#[test]
fn each_ordering_of_sending_is_needed() {
    let (doorbell, completions) = ("mlx5 doorbell", "mlx5 send completions");
    races(false, Weaken::RelaxedStore, (doorbell, "host"), transmit);
    races(false, Weaken::RelaxedLoad, (doorbell, "nic"), transmit);
    races(false, Weaken::RelaxedPublish, (completions, "nic"), transmit);
    races(false, Weaken::RelaxedLoad, (completions, "host"), transmit);
}

#[test]
fn each_ordering_of_receiving_is_needed() {
    let (record, completions) = ("mlx5 receive doorbell record", "mlx5 receive completions");
    for compressed in [false, true] {
        races(compressed, Weaken::RelaxedStore, (record, "host"), receive);
        races(compressed, Weaken::RelaxedLoad, (record, "nic"), receive);
        races(compressed, Weaken::RelaxedPublish, (completions, "nic"), receive);
        races(compressed, Weaken::RelaxedLoad, (completions, "host"), receive);
    }
}
