//! Ports wait where the way to another thread is nearly full: their frames stay where nobody loses them, and others are served.

use conic_fabric::Time;
use conic_nicd::switch::SwitchOptions;

use crate::support::clients::{Client, Outside, frame, mac, plain, port};
use crate::support::threads::Threads;

/// Lines of a way between two threads: a dozen of the frames that cross here.
const LINES: u64 = 1 << 10;
/// Bytes of each, and how often the one thread goes on while the other does nothing.
const BYTES: usize = 4000;
const STEPS: usize = 200;

/// Two threads with a port each, behind which stations 200 and 201 are, and a client each, 1 and 2.
fn bridge() -> ([Outside; 2], Threads, Vec<Client>) {
    let outside: [Outside; 2] = Default::default();
    let ports = outside.iter().map(|one| port(one, None)).collect();
    let mut threads = Threads::new(2, LINES, &SwitchOptions::default(), ports);
    let mut clients = threads.attach_all(2, 1, plain);
    outside[0].give(frame(mac(200), mac(1), 1, 1, 60));
    outside[1].give(frame(mac(201), mac(2), 1, 1, 60));
    threads.settle(Time::ZERO);
    assert_eq!(clients.iter_mut().map(|client| client.receive().len()).sum::<usize>(), 2);
    (outside, threads, clients)
}

/// The numbers of frames, in the order in which they came.
fn numbers(frames: &[Vec<u8>]) -> Vec<u64> {
    frames.iter().map(|frame| u64::from_be_bytes(frame[42..50].try_into().expect("eight bytes"))).collect()
}

#[test]
fn a_port_waits_for_a_thread_that_is_late_and_loses_nothing() {
    let (outside, mut threads, _clients) = bridge();
    let sent: Vec<_> = (0..300).map(|number| frame(mac(200), mac(201), 1, number, BYTES)).collect();
    sent.iter().for_each(|frame| outside[0].give(frame.clone()));
    for _ in 0..STEPS {
        assert!(threads.switches[0].step(Time::ZERO) > 0, "something lies there, and nobody may sleep on it");
    }
    let crossed = threads.trunk(0, 1).sent_frames;
    assert!((8..20).contains(&crossed) && outside[1].take().is_empty(), "{crossed}");
    threads.settle(Time::ZERO);
    assert_eq!(outside[1].take(), sent);
    let way = threads.trunk(0, 1);
    assert_eq!((way.dropped_full, way.sent_frames), (0, 300));
    assert!(way.held > STEPS as u64, "{way:?}");
}

#[test]
fn who_floods_the_way_to_a_thread_leaves_room_to_a_port_that_waits() {
    // What the other thread takes of the short ones at once is not room enough for the longest frame that a port may give.
    for bytes in [60, 1400] {
        flood(bytes);
    }
}

/// A client sends frames of so many bytes, as fast as it can, the way that a port's frames go.
fn flood(bytes: usize) {
    let (outside, mut threads, mut clients) = bridge();
    let sent: Vec<_> = (0..300).map(|number| frame(mac(200), mac(201), 1, number, BYTES)).collect();
    sent.iter().for_each(|frame| outside[0].give(frame.clone()));
    let (mut arrived, mut rounds, mut flooded) = (Vec::new(), 0, 0);
    while arrived.len() < sent.len() {
        // The client has more for the other thread than that ever takes.
        for _ in 0..4 {
            while clients[0].send(0, &frame(mac(1), mac(2), 1, flooded, bytes), 1) {
                flooded += 1;
            }
            threads.switches[0].step(Time::ZERO);
        }
        threads.switches[1].step(Time::ZERO);
        clients[1].receive();
        arrived.extend(outside[1].take());
        rounds += 1;
        assert!(rounds < 1000, "{bytes}: the port starves: {} of {}", arrived.len(), sent.len());
    }
    assert_eq!(numbers(&arrived), (0..300).collect::<Vec<_>>());
    let (way, client) = (threads.trunk(0, 1), threads.counters(1));
    assert_eq!(client.sent_frames + 300, way.sent_frames + way.dropped_full, "who floods loses, and nobody else");
    let crossed = way.sent_frames - 300;
    assert!(way.dropped_full > 1000 && crossed > 300, "{crossed} of the flood crossed: {way:?}");
}

#[test]
fn a_port_whose_frames_stay_does_not_wait_for_the_way_to_another_thread() {
    let (outside, mut threads, mut clients) = bridge();
    for number in 0..2000 {
        clients[0].send(0, &frame(mac(1), mac(2), 1, number, BYTES), 1);
        threads.switches[0].step(Time::ZERO);
    }
    assert!(threads.trunk(0, 1).dropped_full > 0, "the way is full");
    outside[0].give(frame(mac(200), mac(1), 1, 7, BYTES));
    threads.switches[0].step(Time::ZERO);
    assert_eq!((clients[0].receive().len(), threads.trunk(0, 1).held), (1, 0));
    // Once its frames have gone that way they wait, and do no longer when there is room and none goes there.
    outside[0].give(frame(mac(200), mac(201), 1, 8, BYTES));
    for _ in 0..8 {
        threads.switches[1].step(Time::ZERO);
    }
    threads.settle(Time::ZERO);
    assert_eq!(numbers(&outside[1].take()), [8]);
    for _ in 0..STEPS {
        threads.switches[0].step(Time::ZERO);
    }
    for number in 0..2000 {
        clients[0].send(0, &frame(mac(1), mac(2), 1, number, BYTES), 1);
        threads.switches[0].step(Time::ZERO);
    }
    outside[0].give(frame(mac(200), mac(1), 1, 9, BYTES));
    threads.switches[0].step(Time::ZERO);
    assert_eq!((numbers(&clients[0].receive()), threads.trunk(0, 1).held), (vec![9], 0));
}

#[test]
fn a_way_that_never_holds_the_longest_is_waited_for_by_nobody() {
    let outside: [Outside; 2] = Default::default();
    let ports = outside.iter().map(|one| port(one, None)).collect();
    // Of 4 KiB: no frame of 9600 bytes would find room, and all that come do.
    let mut threads = Threads::new(2, 64, &SwitchOptions::default(), ports);
    for number in 0..100 {
        outside[0].give(frame(mac(200), mac(201), 1, number, 100));
    }
    threads.settle(Time::ZERO);
    assert_eq!(numbers(&outside[1].take()), (0..100).collect::<Vec<_>>());
}
