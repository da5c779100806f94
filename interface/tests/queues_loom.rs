//! The cachable queue and FastForward under every schedule and ordering, and each of their orderings weakened.

use conic_check::loom::thread;
use conic_check::{Exploration, LoomCore, LoomMemory, Mutation, Weaken, catches, explore};
use conic_fabric::{Core, Home, Layout, Line};
use conic_interface::cachable_queue::{Arrival, Queue, Receiver, Shape};
use conic_interface::fastforward;

const MESSAGES: &str = "cachable queue messages";
const HEAD: &str = "cachable queue head";
const TAIL: &str = "cachable queue tail";
const SLOTS: &str = "FastForward slots";

fn place(slots: u64, message_lines: u64, lazy_pointers: bool, arrival: Arrival) -> (Queue, Layout) {
    let mut layout = Layout::new();
    let shape = Shape { slots, message_lines, lazy_pointers, arrival };
    (shape.place(&mut layout, Home::Host, Home::Nic).expect("a shape that can be"), layout)
}

fn message(number: u64, lines: usize) -> [Line; 2] {
    let mut message = [Line::ZERO; 2];
    for line in &mut message[..lines] {
        *line = Line([number + 1; 8]);
    }
    message[0].0[0] = 0;
    message
}

fn receive(receiver: &mut Receiver<LoomCore>, number: u64, lines: usize) {
    let mut into = [Line::ZERO; 2];
    while !receiver.try_receive(&mut into[..lines]) {
        receiver.core().spin();
    }
    assert_eq!(into, message(number, lines));
}

/// One thread sends so many messages, the other receives them.
fn exchange(memory: &LoomMemory, queue: Queue, messages: u64) {
    let lines = queue.shape().message_lines as usize;
    let (mut sender, mut receiver) = (queue.sender(memory.core("sender")), queue.receiver(memory.core("receiver")));
    let thread = thread::spawn(move || {
        for number in 0..messages {
            while !sender.try_send(&message(number, lines)[..lines]) {
                sender.core().spin();
            }
        }
    });
    for number in 0..messages {
        receive(&mut receiver, number, lines);
    }
    thread.join().expect("the sender ends");
}

fn passes(slots: u64, lines: u64, lazy: bool, arrival: Arrival, messages: u64) -> u64 {
    let (queue, layout) = place(slots, lines, lazy, arrival);
    explore(&layout, Exploration::full(), move |memory| exchange(memory, queue, messages))
}

/// With one slot, each message's announcement and each head are the only edges there are. A weakening must be found as a
/// race on an owned word.
fn races(arrival: Arrival, mutation: Mutation) {
    for lazy in [false, true] {
        for lines in [1, 2] {
            let (queue, layout) = place(1, lines, lazy, arrival);
            let exploration = Exploration::full().weakened(mutation.clone());
            let caught = catches(&layout, exploration, move |memory| exchange(memory, queue, 2));
            assert!(caught.message.contains("Causality violation"), "{mutation:?}: {}", caught.message);
        }
    }
}

const ARRIVALS: [Arrival; 3] = [Arrival::TailPointer, Arrival::ValidBit, Arrival::SenseReverse];

#[test]
fn one_slot_delivers_under_every_schedule() {
    for arrival in ARRIVALS {
        for lazy in [false, true] {
            // Three passes through the slot: both senses, and back again.
            assert!(passes(1, 2, lazy, arrival, 3) > passes(1, 2, lazy, arrival, 2));
        }
    }
}

#[test]
fn two_slots_deliver_under_every_schedule() {
    for arrival in ARRIVALS {
        assert!(passes(2, 1, true, arrival, 3) > 1);
    }
}

#[test]
fn the_announcement_of_a_message_must_release_and_its_poll_acquire() {
    for arrival in [Arrival::ValidBit, Arrival::SenseReverse] {
        races(arrival, Mutation::new(Weaken::RelaxedPublish).of(MESSAGES).by("sender"));
        races(arrival, Mutation::new(Weaken::SignalFirst).of(MESSAGES).by("sender"));
        races(arrival, Mutation::new(Weaken::RelaxedLoad).of(MESSAGES).by("receiver"));
    }
    races(Arrival::TailPointer, Mutation::new(Weaken::RelaxedStore).of(TAIL).by("sender"));
    races(Arrival::TailPointer, Mutation::new(Weaken::RelaxedLoad).of(TAIL).by("receiver"));
}

#[test]
fn the_head_must_be_released_and_acquired() {
    for arrival in ARRIVALS {
        races(arrival, Mutation::new(Weaken::RelaxedStore).of(HEAD).by("receiver"));
        races(arrival, Mutation::new(Weaken::RelaxedLoad).of(HEAD).by("sender"));
    }
}

fn fastforward_exchange(memory: &LoomMemory, queue: fastforward::Queue, messages: u64) {
    let (mut sender, mut receiver) = (queue.sender(memory.core("sender")), queue.receiver(memory.core("receiver")));
    let thread = thread::spawn(move || {
        for number in 0..messages {
            while !sender.try_send(&[number + 1; 7]) {
                sender.core().spin();
            }
        }
    });
    for number in 0..messages {
        let payload = loop {
            if let Some(payload) = receiver.try_receive() {
                break payload;
            }
            receiver.core().spin();
        };
        assert_eq!(payload, [number + 1; 7]);
    }
    thread.join().expect("the sender ends");
}

fn place_fastforward(slots: u64, slip: Option<fastforward::Slip>) -> (fastforward::Queue, Layout) {
    let mut layout = Layout::new();
    let shape = fastforward::Shape { slots, slip };
    (shape.place(&mut layout, Home::Host).expect("a shape that can be"), layout)
}

#[test]
fn fastforward_delivers_under_every_schedule() {
    for (slots, slip, messages) in
        [(1, None, 3), (2, None, 4), (2, Some(fastforward::Slip { distance: 2, patience: 2 }), 3)]
    {
        let (queue, layout) = place_fastforward(slots, slip);
        let executions =
            explore(&layout, Exploration::full(), move |memory| fastforward_exchange(memory, queue, messages));
        assert!(executions > 1);
    }
}

#[test]
fn each_ordering_of_fastforward_is_needed() {
    for mutation in [
        Mutation::new(Weaken::RelaxedPublish).by("sender"),
        Mutation::new(Weaken::SignalFirst).by("sender"),
        Mutation::new(Weaken::RelaxedLoad).by("receiver"),
        Mutation::new(Weaken::RelaxedStore).by("receiver"),
        Mutation::new(Weaken::RelaxedLoad).by("sender"),
    ] {
        let (queue, layout) = place_fastforward(1, None);
        let exploration = Exploration::full().weakened(mutation.clone().of(SLOTS));
        let caught = catches(&layout, exploration, move |memory| fastforward_exchange(memory, queue, 2));
        assert!(caught.message.contains("Causality violation"), "{mutation:?}: {}", caught.message);
    }
}
