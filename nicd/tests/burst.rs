//! Frames of one burst: where the last one went, the next one goes too if nothing that decides has changed, and else not.

use crate::support::clients::{Client, Outside, REQUEST, frame, mac, plain, port, tcp};
use crate::support::threads::Threads;
use conic_fabric::Time;
use conic_interface::metadata::Offloads;
use conic_nicd::switch::{Pin, Rules};

/// A bridge of so many threads with three clients of two queues, which may send from any address, and a port.
fn bridge(count: usize) -> (Threads, Vec<Client>, Outside) {
    let outside = Outside::default();
    let mut threads = Threads::bridge(count, vec![port(&outside, None)]);
    let rules = |number| Rules { own_address_only: false, ..plain(number) };
    let clients = threads.attach_all(3, 2, rules);
    (threads, clients, outside)
}

/// The numbers of the frames that came, as [`frame`] writes them.
fn numbers(frames: &[Vec<u8>]) -> Vec<u64> {
    let number = |frame: &Vec<u8>| u64::from_be_bytes(frame[42..50].try_into().expect("eight bytes"));
    frames.iter().map(number).collect()
}

#[test]
fn each_frame_goes_where_its_own_addresses_say() {
    for count in [1, 2, 3] {
        let (mut threads, mut clients, outside) = bridge(count);
        // To each by turns and twice, and to one of whom nobody has heard.
        let to = [2, 2, 3, 2, 3, 3, 9, 9, 2];
        for (number, &to) in (0..).zip(&to) {
            assert!(clients[0].send(0, &frame(mac(1), mac(to), 1, number, 100), 1));
        }
        threads.settle(Time::ZERO);
        assert_eq!(numbers(&clients[1].receive()), [0, 1, 3, 6, 7, 8], "{count} threads");
        assert_eq!(numbers(&clients[2].receive()), [2, 4, 5, 6, 7], "{count} threads");
        assert_eq!(numbers(&outside.take()), [6, 7], "{count} threads");
    }
}

#[test]
fn a_sender_that_is_not_itself_is_found_behind_one_that_is() {
    let (mut threads, mut clients, _) = bridge(2);
    let mut strict = threads.attach(0, Time::ZERO, 4, 1, plain(4));
    for (number, source) in (0..).zip([4, 4, 5, 5, 4, 132]) {
        assert!(strict.send(0, &frame(mac(source), mac(2), 1, number, 100), 1));
    }
    threads.settle(Time::ZERO);
    assert_eq!(numbers(&clients[1].receive()), [0, 1, 4]);
    assert_eq!(threads.counters(4).dropped_spoofed, 3);
}

#[test]
fn a_station_that_moves_within_a_burst_is_where_it_was_seen_last() {
    // In one segment as it lies there, or in two, which are put together first.
    for segments in [1, 2] {
        for count in [1, 2, 3] {
            let (mut threads, mut clients, outside) = bridge(count);
            outside.give(frame(mac(50), mac(1), 1, 99, 100));
            threads.settle(Time::ZERO);
            assert_eq!(numbers(&clients[0].receive()), [99]);
            let frames =
                [(mac(1), mac(50)), (mac(1), mac(50)), (mac(50), mac(2)), (mac(1), mac(50)), (mac(1), mac(50))];
            for (number, (source, to)) in (0..).zip(frames) {
                let segments = if number == 2 { segments } else { 1 };
                assert!(clients[0].send(0, &frame(source, to, 1, number, 100), segments));
            }
            threads.settle(Time::ZERO);
            assert_eq!(numbers(&outside.take()), [0, 1], "{count} threads: it is behind its own sender now");
            assert_eq!(numbers(&clients[1].receive()), [2], "{count} threads");
            assert_eq!(threads.counters(1).dropped_no_way, 2, "{count} threads");
        }
    }
}

#[test]
fn a_station_that_moves_by_a_frame_that_goes_nowhere_or_asks_for_work_has_moved_all_the_same() {
    for asks in [false, true] {
        for count in [1, 2] {
            let outside = Outside::default();
            let mut threads = Threads::bridge(count, vec![port(&outside, None)]);
            let offloads = Offloads { requests: true, ..Offloads::default() };
            let mut sender =
                threads.attach(0, Time::ZERO, 1, 1, Rules { own_address_only: false, offloads, ..plain(1) });
            outside.give(frame(mac(50), mac(1), 1, 99, 100));
            threads.settle(Time::ZERO);
            assert_eq!(numbers(&sender.receive()), [99]);
            assert!(sender.send(0, &frame(mac(1), mac(50), 1, 0, 100), 1));
            if asks {
                sender.ask(&tcp(50, 1, 100), REQUEST);
            } else {
                assert!(sender.send(0, &frame(mac(50), mac(1), 1, 1, 100), 1));
            }
            assert!(sender.send(0, &frame(mac(1), mac(50), 1, 2, 100), 1));
            threads.settle(Time::ZERO);
            assert_eq!(numbers(&outside.take()), [0], "{count} threads: it is behind its own sender now");
            assert_eq!(threads.counters(1).dropped_no_way, 2, "{count} threads");
        }
    }
}

#[test]
fn flows_that_are_pinned_go_apart_from_others_between_the_same_two() {
    for count in [1, 2] {
        let (mut threads, mut clients, _) = bridge(count);
        for (flow, queue) in [(81, 0), (82, 1)] {
            let pattern = format!("protocol=udp,source-port={flow}").parse().expect("a pattern");
            assert!(threads.pin(2, &Pin { pattern, queue: Some(queue) }));
        }
        for (number, flow) in (0..).zip([81, 81, 82, 82, 81, 82]) {
            assert!(clients[0].send(0, &frame(mac(1), mac(2), flow, number, 100), 1));
        }
        threads.settle(Time::ZERO);
        // Queue by queue.
        assert_eq!(numbers(&clients[1].receive()), [0, 1, 4, 2, 3, 5], "{count} threads");
    }
}

#[test]
fn a_tag_is_looked_at_in_each_frame() {
    for count in [1, 2] {
        let (mut threads, mut clients, outside) = bridge(count);
        let mut member = threads.attach(0, Time::ZERO, 4, 1, Rules { vlan: Some(7), ..plain(4) });
        // The port passes tags, and so do the others, who have no VLAN of their own.
        for (number, vlan) in (0..).zip([7_u16, 7, 8, 8, 7]) {
            let mut tagged = frame(mac(50), mac(4), 1, number, 100);
            tagged.splice(12..12, [0x81, 0, 0, vlan as u8]);
            outside.give(tagged);
            let mut tagged = frame(mac(1), mac(4), 1, 10 + number, 100);
            tagged.splice(12..12, [0x81, 0, 0, vlan as u8]);
            assert!(clients[0].send(0, &tagged, 1));
        }
        threads.settle(Time::ZERO);
        let mut got = numbers(&member.receive());
        got.sort_unstable();
        assert_eq!(got, [0, 1, 4, 10, 11, 14], "{count} threads");
    }
}
