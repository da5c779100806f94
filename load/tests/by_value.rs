//! Loopback over each interface with both sides stepped in turn by one thread: every run is the same.

use conic_fabric::{Home, Layout, PlayedByCore, Time};
use conic_interface::burst::NicQueue;
use conic_interface::pio::nic::NicLines;
use conic_interface::pio::{Features, Shape};
use conic_interface::{cachable_queue, fastforward, ring};
use conic_load::message_loop::{
    CachableReceiver, CachableSender, Echo, FastForwardReceiver, FastForwardSender, MessageLoop, ReceivePacket,
    SendPacket, line_pair_ends, message_lines, slots_of,
};
use conic_load::{Account, ClosedLoop, Traffic, Workload};
use conic_native::{Memory, NativeCore, Pages, clock};

const SIZES: [u16; 7] = [16, 60, 61, 64, 65, 120, 1500];

/// Long enough for anything that is still in flight.
fn soon() -> Time {
    clock::now() + Time::from_nanoseconds(50_000_000)
}

/// A fresh region.
fn region(layout: &Layout) -> Memory {
    Memory::create(layout, Pages::Plain).expect("a small region")
}

/// A pair of FastForward queues, there and back.
fn slots(slots: u64) -> ([fastforward::Queue; 2], Memory) {
    let mut layout = Layout::new();
    let shape = fastforward::Shape { slots, slip: None };
    let queues = [Home::Host, Home::Nic].map(|home| shape.place(&mut layout, home).expect("a queue"));
    (queues, region(&layout))
}

/// Steps both sides in turn; everything comes back.
fn exchange(
    mut application: MessageLoop<impl SendPacket, impl ReceivePacket>,
    mut echo: Echo<impl SendPacket, impl ReceivePacket>,
    rounds: usize,
    size: u16,
) {
    for _ in 0..rounds {
        application.step();
        echo.turn_around();
    }
    all_came_back(application.account(), size);
}

/// More than a thousand packets of `size` bytes came back, each as it was sent.
fn all_came_back(account: &Account, size: u16) {
    assert!(account.received() > 1000, "{} packets of {size} bytes", account.received());
    assert_eq!((account.lost(), account.corrupt()), (0, 0), "packets of {size} bytes");
}

#[test]
fn packets_of_every_size_come_back_over_cachable_queues() {
    for size in SIZES {
        let shape = cachable_queue::Shape { slots: 8, message_lines: message_lines(size), ..Default::default() };
        let mut layout = Layout::new();
        let there = shape.place(&mut layout, Home::Host, Home::Nic).expect("a queue");
        let back = shape.place(&mut layout, Home::Nic, Home::Host).expect("a queue");
        let memory = region(&layout);
        let core = || NativeCore::new(&memory);
        let (sender, receiver) = (there.sender(core()), back.receiver(core()));
        let (sender, receiver) = (CachableSender::new(sender, size), CachableReceiver::new(receiver, size));
        let application = MessageLoop::new(sender, receiver, size, 20, [5, 5]);
        let (sender, receiver) = (back.sender(core()), there.receiver(core()));
        let (sender, receiver) = (CachableSender::new(sender, size), CachableReceiver::new(receiver, size));
        exchange(application, Echo::new(sender, receiver, size), 500, size);
    }
}

#[test]
fn packets_of_every_size_come_back_over_fastforward_queues() {
    for size in SIZES {
        let ([there, back], memory) = slots((4 * slots_of(size)).next_power_of_two());
        let core = || NativeCore::new(&memory);
        let receiver = FastForwardReceiver::new(back.receiver(core()), size);
        let application = MessageLoop::new(FastForwardSender::new(there.sender(core())), receiver, size, 20, [5, 5]);
        let receiver = FastForwardReceiver::new(there.receiver(core()), size);
        exchange(application, Echo::new(FastForwardSender::new(back.sender(core())), receiver, size), 2000, size);
    }
}

#[test]
fn packets_of_every_size_come_back_over_line_pairs() {
    for size in SIZES {
        let mut layout = Layout::new();
        let shape = Shape::frames(u64::from(size).next_multiple_of(8));
        let lines = NicLines::place(&shape, &mut layout, Home::Nic).expect("a NIC");
        let memory = region(&layout);
        let core = || NativeCore::new(&memory);
        let (sender, receiver) = line_pair_ends(&lines, [core(), core()], Features::PLAYED, size);
        let mut application = MessageLoop::new(sender, receiver, size, 20, [5, 5]);
        let mut nic = lines.played([core(), core()]);
        for _ in 0..2000 {
            application.step();
            nic.turn_around();
        }
        all_came_back(application.account(), size);
        assert_eq!((nic.refused(), nic.dropped()), (0, 0));
    }
}

#[test]
fn a_packet_that_waits_for_room_is_the_last_that_a_drain_sends() {
    let shape = Shape::frames(64);
    let mut layout = Layout::new();
    let lines = NicLines::place(&shape, &mut layout, Home::Nic).expect("a NIC");
    let memory = region(&layout);
    let core = || NativeCore::new(&memory);
    let (sender, receiver) = line_pair_ends(&lines, [core(), core()], Features::PLAYED, 64);
    let mut application = MessageLoop::new(sender, receiver, 64, 20, [5, 5]);
    let mut nic = lines.played([core(), core()]);
    // The first is on its way, the second is written and does not fit.
    application.step();
    let mut frame = [0; 64];
    assert!(nic.take_frame(&mut frame).is_some());
    application.drain(Time::ZERO);
    assert_eq!(application.account().lost(), 2, "the two that were written, and none that a drain added");
}

#[test]
fn what_nobody_sends_back_is_lost() {
    let ([there, back], memory) = slots(64);
    let core = || NativeCore::new(&memory);
    let receiver = FastForwardReceiver::new(back.receiver(core()), 64);
    let mut application = MessageLoop::new(FastForwardSender::new(there.sender(core())), receiver, 64, 3, [5, 5]);
    application.step();
    application.drain(Time::ZERO);
    assert_eq!((application.account().received(), application.account().lost()), (0, 3));
}

#[test]
fn what_comes_back_changed_is_corrupt() {
    let ([there, back], memory) = slots(64);
    let core = || NativeCore::new(&memory);
    let receiver = FastForwardReceiver::new(back.receiver(core()), 64);
    let mut application = MessageLoop::new(FastForwardSender::new(there.sender(core())), receiver, 64, 1, [1, 1]);
    let (mut from, mut to) = (there.receiver(core()), back.sender(core()));
    application.step();
    while let Some(mut payload) = from.try_receive() {
        payload[0] ^= 1 << 63;
        assert!(to.try_send(&payload));
    }
    application.step();
    // Word 0 of the first slot is the time stamp; word 0 of the second is payload.
    assert_eq!((application.account().received(), application.account().corrupt()), (1, 1));
}

#[test]
fn a_receive_burst_bounds_what_a_step_receives() {
    for (receive, came) in [(1, 1), (3, 3), (20, 8)] {
        let ([there, back], memory) = slots(64);
        let core = || NativeCore::new(&memory);
        let receiver = FastForwardReceiver::new(back.receiver(core()), 64);
        let sender = FastForwardSender::new(there.sender(core()));
        let mut application = MessageLoop::new(sender, receiver, 64, 20, [8, receive]);
        let receiver = FastForwardReceiver::new(there.receiver(core()), 64);
        let mut echo = Echo::new(FastForwardSender::new(back.sender(core())), receiver, 64);
        assert_eq!(application.step(), 0);
        assert_eq!((application.account().sent(), echo.turn_around()), (8, 8));
        assert_eq!(application.step(), came);
    }
}

#[test]
fn packets_that_were_due_when_their_pace_ended_are_sent_and_no_others() {
    let ([there, back], memory) = slots(64);
    let core = || NativeCore::new(&memory);
    let receiver = FastForwardReceiver::new(back.receiver(core()), 64);
    let sender = FastForwardSender::new(there.sender(core()));
    let mut application = MessageLoop::new(sender, receiver, 64, 4, [4, 4]);
    assert_eq!(application.behind(), 0, "in a closed loop nothing is due");
    let receiver = FastForwardReceiver::new(there.receiver(core()), 64);
    let mut echo = Echo::new(FastForwardSender::new(back.sender(core())), receiver, 64);
    // A dozen are due, of which the window lets four out; so few that those which become due while this waits for a core do not take long.
    application.pace(clock::now() - Time::from_nanoseconds(12_000), Time::from_nanoseconds(1000));
    application.step();
    assert!(application.behind() >= 12);
    application.end_pace();
    while application.behind() > 0 {
        echo.turn_around();
        application.step();
    }
    let sent = application.account().sent();
    assert!(sent > 4 && application.account().latency().count() == sent, "{sent}");
    // None becomes due any more.
    application.step();
    assert_eq!(application.account().sent(), sent);
}

/// Has two packets of so many bytes sent back over a ring, the second changed where it says; how many came, and how many of them were
/// corrupt.
fn returned_over_a_ring(size: u16, changed: Option<usize>) -> (u64, u64) {
    let mut layout = Layout::new();
    let shape = ring::Shape { descriptors: 4, buffers: 12, ..Default::default() };
    let pair = shape.place(&mut layout).expect("a queue pair");
    let memory = region(&layout);
    let workload = Workload { packet_size: size, window: 1, transmit_burst: 1, receive_burst: 1, fetch_ahead: false };
    let mut application = ClosedLoop::new(pair.host(NativeCore::new(&memory)), workload);
    let mut wire = ring::Wire::new(pair.nic(PlayedByCore(NativeCore::new(&memory))), shape);
    let mut frame = vec![0; usize::from(size)];
    for number in 0..2 {
        while wire.take_frame(&mut frame).is_none() {
            application.step();
        }
        // The first one's payload is zeros, as the memory behind it.
        if let Some(byte) = changed.filter(|_| number == 1) {
            frame[byte] ^= 1;
        }
        assert!(wire.deliver_frame(&frame));
    }
    application.drain(soon());
    (application.account().received(), application.account().corrupt())
}

#[test]
fn every_byte_of_a_packet_is_checked_and_none_behind_it() {
    for size in [60, 61, 64, 67, 71, 127, 130] {
        assert_eq!(returned_over_a_ring(size, None), (2, 0), "{size} bytes");
        // All but the sequence number, which is judged by itself.
        for byte in (0..8).chain(16..usize::from(size)) {
            assert_eq!(returned_over_a_ring(size, Some(byte)), (2, 1), "byte {byte} of {size}");
        }
    }
}

#[test]
fn packets_of_every_size_come_back_over_the_ring() {
    for size in SIZES.into_iter().filter(|&size| size >= 60) {
        let mut layout = Layout::new();
        let shape = ring::Shape { descriptors: 64, buffers: 256, ..Default::default() };
        let pair = shape.place(&mut layout).expect("a queue pair");
        let memory = region(&layout);
        let workload =
            Workload { packet_size: size, window: 50, transmit_burst: 40, receive_burst: 40, fetch_ahead: true };
        let mut application = ClosedLoop::new(pair.host(NativeCore::new(&memory)), workload);
        let mut wire = ring::Wire::new(pair.nic(PlayedByCore(NativeCore::new(&memory))), shape);
        for _ in 0..500 {
            application.step();
            wire.turn_around();
        }
        for _ in 0..4 {
            wire.turn_around();
        }
        application.drain(soon());
        all_came_back(application.account(), size);
        assert_eq!((wire.refused(), wire.dropped()), (0, 0));
    }
}
