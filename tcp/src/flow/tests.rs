//! Transitions of a connection against segments that are made by hand.

use super::*;
use crate::segment::{End, HEADER_BYTES};

const NOW: Time = Time::from_nanoseconds(1000);
const LATER: Time = Time::from_nanoseconds(2000);

fn segment(sequence: u32, acknowledged: u32, payload_bytes: u16) -> Segment {
    let end = End::default();
    Segment { from: end, to: end, sequence, acknowledged, window: 1000, payload_at: HEADER_BYTES, payload_bytes }
}

/// One that expects byte 100 and sends 500 next; 256 bytes of receive buffer.
fn flow() -> Flow {
    Flow::established(100, 500, 256, 1000)
}

fn taken(flow: &mut Flow, segment: &Segment) -> Taken {
    flow.take(segment, NOW).expect("it can be")
}

#[test]
fn a_line_holds_all_of_it() {
    let flow = Flow {
        received: 1,
        receive_at: 2,
        receive_room: 3,
        sent: 4,
        transmit_at: 5,
        unsent: 6,
        unacknowledged: 7,
        window: 8,
        apart: 9,
        apart_bytes: 10,
        duplicates: 11,
        highest: 12,
        recover: u32::MAX,
        since: u64::MAX - 1,
    };
    assert_eq!(Flow::from_line(&flow.to_line()), flow);
}

#[test]
fn data_in_order_goes_behind_what_is_there() {
    let mut flow = flow();
    let first = taken(&mut flow, &segment(100, 500, 64));
    assert_eq!((first.from, first.bytes, first.at, first.delivered), (0, 64, 0, 64));
    assert!(first.acknowledge && !first.out_of_order);
    let second = taken(&mut flow, &segment(164, 500, 10));
    assert_eq!((second.bytes, second.at, second.delivered), (10, 64, 10));
    assert_eq!((flow.received, flow.receive_room), (174, 182));
}

#[test]
fn what_came_before_is_dropped_and_acknowledged_and_what_is_new_of_it_kept() {
    let mut flow = flow();
    taken(&mut flow, &segment(100, 500, 64));
    let again = taken(&mut flow, &segment(100, 500, 64));
    assert_eq!((again.bytes, again.delivered, again.acknowledge, again.out_of_order), (0, 0, true, true));
    let half = taken(&mut flow, &segment(132, 500, 64));
    assert_eq!((half.from, half.bytes, half.at, half.delivered), (32, 32, 64, 32));
}

#[test]
fn one_interval_behind_a_gap_is_kept_and_joined() {
    let mut flow = flow();
    let apart = taken(&mut flow, &segment(150, 500, 20));
    assert_eq!((apart.bytes, apart.at, apart.delivered, apart.out_of_order), (20, 50, 0, true));
    // Next to it on either side; further away it is dropped.
    assert_eq!(taken(&mut flow, &segment(170, 500, 10)).bytes, 10);
    assert_eq!(taken(&mut flow, &segment(140, 500, 10)).bytes, 10);
    assert_eq!(taken(&mut flow, &segment(110, 500, 10)).bytes, 0);
    assert_eq!(taken(&mut flow, &segment(200, 500, 10)).bytes, 0);
    assert_eq!((flow.apart, flow.apart_bytes, flow.received), (140, 40, 100));
    let filled = taken(&mut flow, &segment(100, 500, 40));
    assert_eq!((filled.bytes, filled.delivered), (40, 80));
    assert_eq!((flow.received, flow.receive_at, flow.receive_room, flow.apart_bytes), (180, 80, 176, 0));
}

#[test]
fn data_over_what_lies_apart_counts_once() {
    for (bytes, delivered) in [(49, 49), (50, 70), (60, 70), (70, 70), (90, 90)] {
        let mut flow = flow();
        taken(&mut flow, &segment(150, 500, 20));
        let over = taken(&mut flow, &segment(100, 500, bytes));
        assert_eq!((over.bytes, over.delivered), (bytes.into(), delivered), "{bytes}");
        assert_eq!(flow.received, 100 + delivered);
        assert_eq!(flow.apart_bytes, if bytes < 50 { 20 } else { 0 });
    }
}

#[test]
fn nothing_is_written_beyond_the_room() {
    let mut flow = flow();
    let long = taken(&mut flow, &segment(100, 500, 300));
    assert_eq!((long.bytes, long.delivered, flow.receive_room), (256, 256, 0));
    assert_eq!(taken(&mut flow, &segment(356, 500, 1)).bytes, 0);
    assert_eq!(taken(&mut flow, &segment(400, 500, 1)).bytes, 0);
    let mut flow = self::flow();
    assert_eq!(taken(&mut flow, &segment(350, 500, 20)).bytes, 6, "the rest has no room");
    assert_eq!(taken(&mut flow, &segment(100 + (1 << 31), 500, 20)).bytes, 0);
}

#[test]
fn sequence_numbers_go_round() {
    let start = u32::MAX - 31;
    let mut flow = Flow::established(start, start, 256, 1000);
    assert!(flow.bump(0, 64, [256; 2], NOW));
    assert_eq!(flow.next(64, NOW), Some(ToSend { sequence: start, at: 0, bytes: 64 }));
    let apart = taken(&mut flow, &segment(16, 32, 16));
    assert_eq!((apart.at, apart.freed), (48, 64));
    let joined = taken(&mut flow, &segment(start, 32, 48));
    assert_eq!((joined.delivered, flow.received), (64, 32));
}

#[test]
fn what_is_acknowledged_is_free_and_what_was_never_sent_is_not() {
    let mut flow = flow();
    assert!(flow.bump(0, 100, [256; 2], NOW));
    assert_eq!(flow.next(60, NOW).map(|send| send.bytes), Some(60));
    assert_eq!(flow.take(&segment(100, 561, 64), NOW), None, "one more than was sent");
    assert_eq!(flow.received, 100, "and nothing of it was taken");
    assert_eq!(taken(&mut flow, &segment(100, 530, 0)).freed, 30);
    assert_eq!(taken(&mut flow, &segment(100, 510, 0)).freed, 0, "an older one");
    assert_eq!((flow.unacknowledged, flow.unsent), (30, 40));
}

#[test]
fn a_window_bounds_what_is_sent() {
    let mut flow = flow();
    assert!(flow.bump(0, 200, [256; 2], NOW));
    let narrow = Segment { window: 50, ..segment(100, 500, 0) };
    assert!(taken(&mut flow, &narrow).may_send);
    assert_eq!(flow.next(100, NOW).map(|send| send.bytes), Some(50));
    assert_eq!(flow.next(100, NOW), None);
    let closed = Segment { window: 0, ..segment(100, 550, 0) };
    assert!(!taken(&mut flow, &closed).may_send);
    // Nobody says that it has opened: in time one byte is sent.
    let timeout = Time::from_nanoseconds(10);
    assert_eq!(flow.due(timeout), Some(Time::from_nanoseconds(1010)));
    flow.go_back(LATER);
    assert_eq!(flow.next(100, LATER), Some(ToSend { sequence: 550, at: 50, bytes: 1 }));
    assert_eq!(flow.next(100, LATER), None);
    assert_eq!(taken(&mut flow, &segment(100, 551, 0)).freed, 1);
    assert_eq!(flow.next(100, LATER), Some(ToSend { sequence: 551, at: 51, bytes: 100 }));
}

#[test]
fn three_that_say_the_same_have_all_sent_again_once() {
    let mut flow = flow();
    assert!(flow.bump(0, 200, [256; 2], NOW));
    while flow.next(50, NOW).is_some() {}
    let same = segment(100, 500, 0);
    for _ in 0..2 {
        assert!(!taken(&mut flow, &same).may_send);
    }
    assert!(taken(&mut flow, &same).may_send);
    assert_eq!(flow.next(50, NOW), Some(ToSend { sequence: 500, at: 0, bytes: 50 }));
    // What follows it says the same, and is of the same loss.
    for _ in 0..10 {
        taken(&mut flow, &same);
    }
    assert_eq!(flow.unacknowledged, 50);
    // The rest had arrived: it is not sent again.
    assert_eq!(taken(&mut flow, &segment(100, 700, 0)).freed, 200);
    assert_eq!((flow.unsent, flow.unacknowledged, flow.sent, flow.transmit_at), (0, 0, 700, 200));
    assert_eq!(flow.due(NOW), None);
}

#[test]
fn acknowledgements_with_data_or_another_window_say_nothing_of_a_loss() {
    let mut flow = flow();
    assert!(flow.bump(0, 200, [256; 2], NOW));
    while flow.next(50, NOW).is_some() {}
    for step in 0..10 {
        taken(&mut flow, &segment(100 + step, 500, 1));
        taken(&mut flow, &Segment { window: 900 + step as u16, ..segment(110, 500, 0) });
    }
    assert_eq!(flow.unacknowledged, 200);
}

#[test]
fn an_application_reads_and_writes_no_more_than_there_is() {
    let mut flow = flow();
    taken(&mut flow, &segment(100, 500, 64));
    let before = flow;
    for (read, written) in [(65, 0), (0, 257), (u32::MAX, 0), (0, u32::MAX), (64, 257), (65, 1)] {
        assert!(!flow.bump(read, written, [256; 2], NOW), "{read} {written}");
        assert_eq!(flow, before);
    }
    assert!(flow.bump(64, 256, [256; 2], NOW));
    assert!(!flow.bump(1, 0, [256; 2], NOW) && !flow.bump(0, 1, [256; 2], NOW));
    assert!(flow.next(100, NOW).is_some());
    assert!(!flow.bump(0, 1, [256; 2], NOW), "what is under way is not free");
}

#[test]
fn a_loss_is_seen_however_much_was_sent_since_the_last() {
    let mut flow = flow();
    let mut acknowledged = 500_u32;
    // As much as half of all numbers, and then as much again.
    for _ in 0..2 {
        for _ in 0..(1 << 20) + 1 {
            assert!(flow.bump(0, 2048, [256, 2048], NOW));
            while let Some(sent) = flow.next(2048, NOW) {
                acknowledged = acknowledged.wrapping_add(sent.bytes);
                taken(&mut flow, &segment(100, acknowledged, 0));
            }
        }
        assert!(flow.bump(0, 200, [256, 2048], NOW) && flow.next(200, NOW).is_some());
        for _ in 0..DUPLICATES {
            taken(&mut flow, &segment(100, acknowledged, 0));
        }
        assert_eq!((flow.unsent, flow.unacknowledged), (200, 0), "all of it is sent again");
        acknowledged = acknowledged.wrapping_add(200);
        assert!(flow.next(200, NOW).is_some());
        taken(&mut flow, &segment(100, acknowledged, 0));
    }
}
