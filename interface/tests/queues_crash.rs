//! The cachable queue and FastForward when either side dies before any of its memory operations.
//!
//! The survivor must not hang, and must not read a message that was not sent whole.

use crate::common::line;
use conic_check::{CrashCore, CrashMemory, for_every_death, run_until_death};
use conic_fabric::{Home, Layout, Line};
use conic_interface::cachable_queue::{Arrival, Shape};
use conic_interface::fastforward;

const MESSAGES: u64 = 12;

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Sender,
    Receiver,
}

/// A queue of either kind: sends or receives the message of that number.
struct Halves<'queue> {
    send: Box<dyn FnMut(u64) -> bool + 'queue>,
    receive: Box<dyn FnMut() -> Option<u64> + 'queue>,
}

/// Exchanges messages, `burst` at a time, with a death at each operation of the victim; returns how many deaths.
fn every_death(
    layout: &Layout,
    victim: Victim,
    slots: u64,
    burst: u64,
    halves: impl for<'core> Fn(&'core CrashCore, &'core CrashCore) -> Halves<'core>,
) -> u64 {
    for_every_death(|n| {
        let memory = CrashMemory::new(layout);
        let (sender, receiver) = (memory.core("sender"), memory.core("receiver"));
        if victim == Victim::Sender { &sender } else { &receiver }.die_at(n);
        let mut halves = halves(&sender, &receiver);
        let (mut sent, mut received) = (0, 0);
        let outcome = run_until_death(|| {
            while received < MESSAGES {
                for _ in 0..burst {
                    sent += u64::from(sent < MESSAGES && (halves.send)(sent));
                }
                for _ in 0..burst {
                    if let Some(number) = (halves.receive)() {
                        assert_eq!(number, received);
                        received += 1;
                    }
                }
            }
        });
        if sender.is_dead() {
            let mut idle = 0;
            while idle < 10 {
                match (halves.receive)() {
                    Some(number) => {
                        assert_eq!(number, received);
                        received += 1;
                    }
                    None => idle += 1,
                }
            }
            // The last message may have been announced before the death, and its sender not have heard of it.
            assert!(received == sent || received == sent + 1, "{received} received of {sent} sent");
        }
        if receiver.is_dead() {
            while (halves.send)(sent) {
                sent += 1;
            }
            // The last message may have been taken by a receiver that then died.
            assert!(sent - received <= slots + 1, "{sent} sent, {received} received");
            assert!(sent - received >= slots, "{sent} sent, {received} received: room was lost");
        }
        outcome
    })
}

fn message(number: u64, lines: u64) -> Vec<Line> {
    let mut message: Vec<Line> = (0..lines).map(|index| line(number * 64 + index)).collect();
    message[0].0[0] = 0;
    message
}

#[test]
fn a_cachable_queue_survives_either_sides_death_anywhere() {
    let mut deaths = 0;
    for arrival in [Arrival::TailPointer, Arrival::ValidBit, Arrival::SenseReverse] {
        for (lazy_pointers, slots, message_lines) in
            [(false, 1, 1), (true, 1, 3), (false, 2, 4), (true, 4, 1), (true, 4, 2)]
        {
            let mut layout = Layout::new();
            let shape = Shape { slots, message_lines, lazy_pointers, arrival };
            let queue = shape.place(&mut layout, Home::Host, Home::Nic).expect("a shape that can be");
            for burst in [1, 3] {
                for victim in [Victim::Sender, Victim::Receiver] {
                    deaths += every_death(&layout, victim, slots, burst, |sender, receiver| {
                        let (mut sender, mut receiver) = (queue.sender(sender), queue.receiver(receiver));
                        let mut count = 0;
                        Halves {
                            send: Box::new(move |number| sender.try_send(&message(number, message_lines))),
                            receive: Box::new(move || {
                                let mut into = vec![Line::ZERO; message_lines as usize];
                                receiver.try_receive(&mut into).then(|| {
                                    assert_eq!(into, message(count, message_lines));
                                    count += 1;
                                    count - 1
                                })
                            }),
                        }
                    });
                }
            }
        }
    }
    assert!(deaths > 3000, "{deaths} deaths");
}

#[test]
fn a_fastforward_queue_survives_either_sides_death_anywhere() {
    let mut deaths = 0;
    for (slots, slip) in [(1, None), (4, None), (4, Some(fastforward::Slip { distance: 3, patience: 4 }))] {
        let mut layout = Layout::new();
        let queue = fastforward::Shape { slots, slip }.place(&mut layout, Home::Host).expect("a shape that can be");
        for burst in [1, 3] {
            for victim in [Victim::Sender, Victim::Receiver] {
                deaths += every_death(&layout, victim, slots, burst, |sender, receiver| {
                    let (mut sender, mut receiver) = (queue.sender(sender), queue.receiver(receiver));
                    Halves {
                        send: Box::new(move |number| sender.try_send(&[number; 7])),
                        receive: Box::new(move || {
                            receiver.try_receive().map(|payload| {
                                assert_eq!(payload, [payload[0]; 7]);
                                payload[0]
                            })
                        }),
                    }
                });
            }
        }
    }
    assert!(deaths > 300, "{deaths} deaths");
}
