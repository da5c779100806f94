//! The cachable queue and FastForward against a model queue, and the lines they move.

use std::collections::VecDeque;

use crate::common::{Memory, line, replayed};
use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line};
use conic_interface::cachable_queue::{self, Arrival};
use conic_interface::fastforward::{self, Slip};
use proptest::prelude::*;

const ARRIVALS: [Arrival; 3] = [Arrival::TailPointer, Arrival::ValidBit, Arrival::SenseReverse];

fn shape(slots: u64, message_lines: u64, lazy_pointers: bool, arrival: Arrival) -> cachable_queue::Shape {
    cachable_queue::Shape { slots, message_lines, lazy_pointers, arrival }
}

fn place(shape: cachable_queue::Shape) -> (cachable_queue::Queue, Layout) {
    let mut layout = Layout::new();
    let queue = shape.place(&mut layout, Home::Host, Home::Nic).expect("a shape that can be");
    (queue, layout)
}

/// A message as it should arrive: word 0 belongs to the queue.
fn message(seed: u64, lines: u64) -> Vec<Line> {
    let mut message: Vec<Line> = (0..lines).map(|index| line(seed * 64 + index)).collect();
    message[0].0[0] = 0;
    message
}

fn any_arrival() -> impl Strategy<Value = Arrival> {
    prop::sample::select(&ARRIVALS[..])
}

proptest! {
    #![proptest_config(replayed(1000))]

    #[test]
    fn any_calls_to_a_cachable_queue_are_those_of_a_queue(
        slots in prop::sample::select(&[1u64, 2, 4, 8][..]),
        lines in 1..=4u64,
        lazy in any::<bool>(),
        arrival in any_arrival(),
        sends in prop::collection::vec(any::<bool>(), 0..200),
    ) {
        let (queue, layout) = place(shape(slots, lines, lazy, arrival));
        let memory = Memory::new(&layout);
        let (mut sender, mut receiver) = (queue.sender(memory.agent(0)), queue.receiver(memory.agent(1)));
        let mut model = VecDeque::new();
        for (seed, send) in sends.into_iter().enumerate() {
            if send {
                let mut sent = message(seed as u64, lines);
                let fits = (model.len() as u64) < slots;
                // What the caller leaves in word 0 must not matter.
                sent[0].0[0] = seed as u64 % 3;
                prop_assert_eq!(sender.try_send(&sent), fits);
                if fits {
                    model.push_back(message(seed as u64, lines));
                }
            } else {
                let mut received = vec![line(1 << 40); lines as usize];
                let expected = model.pop_front();
                prop_assert_eq!(receiver.try_receive(&mut received), expected.is_some());
                if let Some(expected) = expected {
                    prop_assert_eq!(received, expected);
                }
            }
            prop_assert_eq!(receiver.is_full(), model.len() as u64 == slots);
        }
        prop_assert_eq!((sender.refused_heads(), receiver.refused_tails()), (0, 0));
    }

    #[test]
    fn any_calls_to_a_fastforward_queue_are_those_of_a_queue(
        slots in prop::sample::select(&[1u64, 2, 4, 8][..]),
        sends in prop::collection::vec(any::<bool>(), 0..200),
    ) {
        let mut layout = Layout::new();
        let queue = fastforward::Shape { slots, slip: None }.place(&mut layout, Home::Host).expect("a shape that can be");
        let memory = Memory::new(&layout);
        let (mut sender, mut receiver) = (queue.sender(memory.agent(0)), queue.receiver(memory.agent(1)));
        let mut model = VecDeque::new();
        for (seed, send) in sends.into_iter().enumerate() {
            if send {
                let payload = payload(seed as u64);
                let fits = (model.len() as u64) < slots;
                prop_assert_eq!(sender.try_send(&payload), fits);
                if fits {
                    model.push_back(payload);
                }
            } else {
                prop_assert_eq!(receiver.try_receive(), model.pop_front());
            }
        }
    }

    #[test]
    fn a_slip_delays_messages_by_its_patience_at_most_and_keeps_their_order(
        slots in prop::sample::select(&[2u64, 4, 8][..]),
        distance in 2..=8u64,
        patience in 1..5u32,
        sends in prop::collection::vec(any::<bool>(), 0..200),
    ) {
        let slip = Slip { distance: distance.min(slots), patience };
        let mut layout = Layout::new();
        let shape = fastforward::Shape { slots, slip: Some(slip) };
        let queue = shape.place(&mut layout, Home::Host).expect("a shape that can be");
        let memory = Memory::new(&layout);
        let (mut sender, mut receiver) = (queue.sender(memory.agent(0)), queue.receiver(memory.agent(1)));
        let mut model = VecDeque::new();
        let mut refused = 0;
        for (seed, send) in sends.into_iter().enumerate() {
            if send {
                let payload = payload(seed as u64);
                let fits = (model.len() as u64) < slots;
                prop_assert_eq!(sender.try_send(&payload), fits);
                if fits {
                    model.push_back(payload);
                }
            } else if let Some(received) = receiver.try_receive() {
                refused = 0;
                prop_assert_eq!(Some(received), model.pop_front());
            } else if model.is_empty() {
                refused = 0;
            } else {
                refused += 1;
                prop_assert!(refused < patience, "message refused {} times", refused);
                prop_assert!((model.len() as u64) < slip.distance);
            }
        }
    }
}

fn payload(seed: u64) -> fastforward::Payload {
    let Line([_, payload @ ..]) = line(seed);
    payload
}

/// Moves of lines that a queue of 8 one-line messages, never more than half full, makes in 4 passes after a first one.
struct Moves {
    /// Of the messages: misses of the receiver, ownerships of the sender, ownerships of the receiver.
    messages: [u64; 3],
    /// Of the head: misses of the sender.
    head: u64,
    /// Of the tail: misses of the receiver.
    tail: u64,
}

fn moves(lazy: bool, arrival: Arrival) -> Moves {
    let (queue, layout) = place(shape(8, 1, lazy, arrival));
    let memory = Memory::new(&layout);
    let (mut sender, mut receiver) = (queue.sender(memory.agent(0)), queue.receiver(memory.agent(1)));
    let at = |index: usize| (layout.segments()[index].start, layout.segments()[index].bytes);
    let [messages, tail, head] = [at(0), at(1), at(2)];
    let count = || Moves {
        messages: [
            memory.read_misses(1, messages.0, messages.1),
            memory.ownerships(0, messages.0, messages.1),
            memory.ownerships(1, messages.0, messages.1),
        ],
        head: memory.read_misses(0, head.0, head.1),
        tail: memory.read_misses(1, tail.0, tail.1),
    };
    let mut pass = || {
        for _ in 0..8 {
            assert!(sender.try_send(&[line(7)]));
            assert!(receiver.try_receive(&mut [Line::ZERO]));
        }
    };
    pass();
    let before = count();
    (0..4).for_each(|_| pass());
    let after = count();
    Moves {
        messages: std::array::from_fn(|index| after.messages[index] - before.messages[index]),
        head: after.head - before.head,
        tail: after.tail - before.tail,
    }
}

#[test]
fn with_all_optimisations_a_message_moves_twice_and_the_head_at_most_twice_a_pass() {
    let moves = moves(true, Arrival::SenseReverse);
    assert_eq!(moves.messages, [32, 32, 0]);
    assert!((1..=2 * 4).contains(&moves.head), "{} misses of the head", moves.head);
    assert_eq!(moves.tail, 0);
}

#[test]
fn without_lazy_pointers_every_message_moves_the_head() {
    assert_eq!(moves(false, Arrival::SenseReverse).head, 32);
}

#[test]
fn without_sense_reverse_the_receiver_takes_ownership_of_every_message() {
    let moves = moves(true, Arrival::ValidBit);
    assert_eq!((moves.messages, moves.tail), ([32, 32, 32], 0));
}

#[test]
fn without_valid_bits_every_message_moves_the_tail() {
    assert_eq!(moves(true, Arrival::TailPointer).tail, 32);
}

#[test]
fn an_empty_queue_is_polled_without_moving_a_line() {
    for arrival in ARRIVALS {
        let (queue, layout) = place(shape(8, 2, true, arrival));
        let memory = Memory::new(&layout);
        let mut receiver = queue.receiver(memory.agent(1));
        for _ in 0..100 {
            assert!(!receiver.try_receive(&mut [Line::ZERO; 2]));
        }
        assert_eq!(memory.read_misses(1, Address(0), layout.bytes()), 1, "{arrival:?}");
    }
}

#[test]
fn a_head_that_cannot_be_is_ignored_and_counted() {
    for head in [3, u64::MAX, 1 << 63] {
        let (queue, layout) = place(shape(2, 1, true, Arrival::SenseReverse));
        let memory = Memory::new(&layout);
        let mut sender = queue.sender(memory.agent(0));
        assert!(sender.try_send(&[line(0)]) && sender.try_send(&[line(1)]));
        memory.poke(layout.segments()[2].start, head);
        assert!(!sender.try_send(&[line(2)]));
        assert_eq!(sender.refused_heads(), 1, "head {head:#x}");
        memory.poke(layout.segments()[2].start, 1);
        assert!(sender.try_send(&[line(2)]));
    }
}

#[test]
fn a_tail_that_cannot_be_is_ignored_and_counted() {
    for tail in [3, u64::MAX] {
        let (queue, layout) = place(shape(2, 1, true, Arrival::TailPointer));
        let memory = Memory::new(&layout);
        let mut receiver = queue.receiver(memory.agent(1));
        memory.poke(layout.segments()[1].start, tail);
        assert!(!receiver.try_receive(&mut [Line::ZERO]));
        assert_eq!(receiver.refused_tails(), 1, "tail {tail:#x}");
    }
}

#[test]
fn shapes_that_cannot_be_are_refused_with_their_reason() {
    let refused = |shape: cachable_queue::Shape| {
        shape.place(&mut Layout::new(), Home::Host, Home::Nic).expect_err("refused").to_string()
    };
    let good = cachable_queue::Shape::default();
    assert!(refused(cachable_queue::Shape { slots: 3, ..good }).contains("not 3"));
    assert!(refused(cachable_queue::Shape { slots: 0, ..good }).contains("not 0"));
    assert!(refused(cachable_queue::Shape { message_lines: 0, ..good }).contains("not 0"));
    assert!(refused(cachable_queue::Shape { message_lines: 65, ..good }).contains("not 65"));
    let refused =
        |shape: fastforward::Shape| shape.place(&mut Layout::new(), Home::Host).expect_err("refused").to_string();
    assert!(refused(fastforward::Shape { slots: 6, slip: None }).contains("not 6"));
    for (distance, patience) in [(1, 1), (5, 1), (2, 0)] {
        assert!(refused(fastforward::Shape { slots: 4, slip: Some(Slip { distance, patience }) }).contains("slip"));
    }
}

#[test]
fn the_messages_of_a_cachable_queue_lie_back_to_back() {
    let (_, layout) = place(shape(8, 4, true, Arrival::ValidBit));
    let messages = &layout.segments()[..16];
    assert_eq!(messages[0].start, Address(0));
    assert_eq!(messages[15].end(), Address(8 * 4 * LINE_BYTES));
    assert!(messages.windows(2).all(|pair| pair[0].end() == pair[1].start));
    // Words 0 of the other lines are payload, and must not be taken for synchronising ones.
    assert!(messages.iter().skip(1).step_by(2).all(|segment| !segment.synchronising.contains(0)));
}

#[test]
fn a_slip_takes_nothing_until_its_distance_waits() {
    let mut layout = Layout::new();
    let shape = fastforward::Shape { slots: 8, slip: Some(Slip { distance: 3, patience: 100 }) };
    let queue = shape.place(&mut layout, Home::Host).expect("a shape that can be");
    let memory = Memory::new(&layout);
    let (mut sender, mut receiver) = (queue.sender(memory.agent(0)), queue.receiver(memory.agent(1)));
    assert!(sender.try_send(&payload(0)));
    assert_eq!(receiver.try_receive(), Some(payload(0)));
    assert_eq!(receiver.try_receive(), None);
    for seed in 1..=2 {
        assert!(sender.try_send(&payload(seed)));
        assert_eq!(receiver.try_receive(), None);
    }
    assert!(sender.try_send(&payload(3)));
    for seed in 1..=3 {
        assert_eq!(receiver.try_receive(), Some(payload(seed)));
    }
}

#[test]
fn a_core_can_be_lent() {
    let (queue, layout) = place(shape(2, 1, true, Arrival::SenseReverse));
    let memory = Memory::new(&layout);
    let agent = memory.agent(0);
    let mut sender = queue.sender(&agent);
    assert!(sender.try_send(&[line(0)]));
    assert_eq!(sender.core().now(), agent.now());
}

#[test]
fn messages_of_bytes_and_short_ones_arrive_through_the_same_queue() {
    for arrival in ARRIVALS {
        let (queue, layout) = place(shape(2, 4, true, arrival));
        let memory = Memory::new(&layout);
        let (mut sender, mut receiver) = (queue.sender(memory.agent(0)), queue.receiver(memory.agent(1)));
        for round in 0..20_usize {
            let bytes: Vec<u8> =
                (0..[0, 1, 4, 56, 57, 120, 248][round % 7]).map(|index| (index + round) as u8).collect();
            assert!(sender.has_room() && sender.try_send_bytes(&bytes), "{arrival:?}");
            assert!(sender.try_send(&message(round as u64, 1 + round as u64 % 4)), "{arrival:?}");
            assert!(!sender.has_room() && !sender.try_send_bytes(&bytes) && !sender.try_send(&[Line::ZERO]));
            let mut found = vec![0; bytes.len()];
            assert!(receiver.has_message());
            receiver.core().read_bytes(receiver.next_slot().word(1), &mut found);
            assert_eq!(found, bytes, "{arrival:?}");
            receiver.release();
            assert!(receiver.has_message());
            for (index, line) in message(round as u64, 1 + round as u64 % 4).iter().enumerate() {
                let found = receiver.core().read_line(receiver.next_slot().lines(index as u64));
                assert_eq!(found.0[1..], line.0[1..], "{arrival:?}");
            }
            receiver.release();
            assert!(!receiver.has_message(), "{arrival:?}");
        }
        let [begin, end] = queue.messages();
        assert_eq!(end - begin, 2 * 4 * LINE_BYTES);
    }
}
