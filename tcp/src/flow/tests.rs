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
        since: u32::MAX - 1,
        round_trip: RoundTrip { smoothed: 13, deviation: 14, doublings: 15, timed: Some(Timed { end: 16, at: 17 }) },
        congestion: Congestion { window: 18, threshold: 19, is_used: false, recovers: true },
    };
    assert_eq!(Flow::from_line(&flow.to_line()), flow);
    // As large as each can be.
    let most = Flow {
        receive_room: 1 << 15,
        unsent: 1 << 15,
        unacknowledged: 1 << 15,
        window: u16::MAX.into(),
        apart_bytes: 1 << 15,
        duplicates: u8::MAX,
        round_trip: RoundTrip { smoothed: u32::MAX, deviation: u32::MAX, doublings: 31, timed: None },
        congestion: Congestion { window: 65535, threshold: 65535, is_used: true, recovers: false },
        ..flow
    };
    assert_eq!(Flow::from_line(&most.to_line()), most);
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
    assert!(flow.due(NOW, &Timeouts::default()) > Some(NOW));
    flow.run_out(LATER);
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
    assert_eq!(flow.due(NOW, &Timeouts::default()), None);
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

/// One with so many bytes to be sent and a transmit buffer, and a peer with room, for all there can be.
fn sender(bytes: u32) -> Flow {
    let mut flow = Flow::established(100, 500, 256, u16::MAX.into());
    assert!(flow.bump(0, bytes, [256, 1 << 15], NOW));
    flow
}

/// What the peer of a [`sender`] says that expects this byte.
fn says(acknowledged: u32) -> Segment {
    Segment { window: u16::MAX, ..segment(100, acknowledged, 0) }
}

/// Sends all that may be sent now, in whole segments; how many bytes.
fn send_all(flow: &mut Flow, now: Time) -> u32 {
    std::iter::from_fn(|| flow.next(SEGMENT, now)).map(|send| send.bytes).sum()
}

const SEGMENT: u32 = MOST_PAYLOAD as u32;

fn ticks(count: u64) -> Time {
    Time::from_nanoseconds(1024 * count)
}

#[test]
fn the_network_bounds_what_is_under_way_and_no_segment_is_cut_for_it() {
    let mut flow = sender(1 << 15);
    assert_eq!(send_all(&mut flow, NOW), 10 * SEGMENT);
    assert_eq!((flow.sendable(SEGMENT), flow.sendable(1)), (0, 0));
    // What is acknowledged makes room for itself and, in slow start, for as much again; a part of a segment waits.
    assert!(taken(&mut flow, &says(500 + SEGMENT)).may_send);
    assert_eq!(send_all(&mut flow, NOW), 2 * SEGMENT);
    assert!(!taken(&mut flow, &says(500 + SEGMENT + 700)).may_send);
    assert_eq!((flow.next(SEGMENT, NOW), flow.sendable(1400)), (None, 1400));
    assert_eq!(flow.unacknowledged, 11 * SEGMENT - 700);
    // The peer's window and the last bytes do cut one.
    let mut last = sender(SEGMENT + 5);
    assert_eq!(send_all(&mut last, NOW), SEGMENT + 5);
}

#[test]
fn a_loss_that_acknowledgements_tell_of_halves_what_is_under_way() {
    let mut flow = sender(1 << 15);
    let under_way = send_all(&mut flow, NOW);
    for _ in 0..DUPLICATES {
        assert_eq!(flow.unacknowledged, under_way);
        taken(&mut flow, &says(500));
    }
    assert_eq!((flow.congestion.window, flow.congestion.threshold), (SEGMENT, 5 * SEGMENT));
    assert_eq!(send_all(&mut flow, NOW), SEGMENT, "the one that was lost, and no other");
    // Another one was lost of them: its place in the window's growth is slow start's.
    taken(&mut flow, &says(500 + 4 * SEGMENT));
    assert_eq!((flow.congestion.window, flow.congestion.recovers), (2 * SEGMENT, true));
    assert_eq!(send_all(&mut flow, NOW), 2 * SEGMENT);
    taken(&mut flow, &says(500 + under_way));
    assert_eq!((flow.congestion.window, flow.congestion.recovers), (5 * SEGMENT, false));
    assert_eq!(send_all(&mut flow, NOW), 5 * SEGMENT);
}

#[test]
fn time_that_runs_out_leaves_a_segment_and_runs_twice_as_long() {
    let timeouts = Timeouts::new(ticks(100), ticks(10), ticks(300));
    let mut flow = sender(1 << 15);
    let under_way = send_all(&mut flow, ticks(7));
    for (at, next) in [(107, 307), (307, 607), (607, 907)] {
        assert_eq!(flow.due(ticks(at - 1), &timeouts), Some(ticks(at)));
        assert!(flow.due(ticks(at), &timeouts) <= Some(ticks(at)));
        flow.run_out(ticks(at));
        assert_eq!((flow.congestion.window, flow.congestion.threshold), (SEGMENT, 5 * SEGMENT), "{at}");
        assert_eq!(flow.due(ticks(at), &timeouts), None, "nothing is under way");
        assert_eq!(send_all(&mut flow, ticks(at)), SEGMENT);
        assert_eq!(flow.due(ticks(at), &timeouts), Some(ticks(next)));
    }
    // All of it had arrived: that says nothing of round trips, and the window grows by a segment.
    taken(&mut flow, &says(500 + under_way));
    assert_eq!((flow.congestion.window, flow.round_trip.smoothed), (2 * SEGMENT, 0));
}

/// Karn's rule: neither what was sent twice is timed, nor what was sent together with it.
#[test]
fn only_what_is_sent_for_the_first_time_is_timed() {
    let mut flow = sender(100);
    assert!(flow.next(100, ticks(5)).is_some());
    assert_eq!(flow.round_trip.timed, Some(Timed { end: 600, at: 5 }));
    flow.run_out(ticks(50));
    assert_eq!(flow.round_trip.timed, None);
    assert!(flow.bump(0, 100, [256, 1 << 15], ticks(50)));
    assert_eq!(flow.next(200, ticks(50)).map(|send| send.bytes), Some(200), "the old and the new");
    assert_eq!(flow.round_trip.timed, None);
    flow.take(&says(700), ticks(53)).expect("it can be");
    assert_eq!((flow.round_trip.smoothed, flow.round_trip.doublings), (0, 1));
    assert!(flow.bump(0, 100, [256, 1 << 15], ticks(60)));
    assert!(flow.next(100, ticks(60)).is_some());
    flow.take(&says(800), ticks(68)).expect("it can be");
    assert_eq!((flow.round_trip.smoothed, flow.round_trip.doublings), (8 * 8, 0));
}

#[test]
fn three_that_say_the_same_end_what_is_timed() {
    let mut flow = sender(200);
    while flow.next(50, NOW).is_some() {}
    (0..DUPLICATES).for_each(|_| _ = taken(&mut flow, &says(500)));
    assert_eq!(flow.round_trip, RoundTrip::default());
}

#[test]
fn a_window_that_the_peer_closes_says_nothing_of_the_network() {
    let mut flow = sender(200);
    taken(&mut flow, &Segment { window: 0, ..says(500) });
    let before = flow.congestion;
    flow.run_out(LATER);
    assert_eq!((flow.congestion, flow.round_trip.doublings), (before, 1));
    // Nor does the one byte that tried it and was lost, of how much may be under way.
    assert_eq!(flow.next(SEGMENT, LATER).map(|send| send.bytes), Some(1));
    flow.run_out(LATER);
    assert_eq!((flow.congestion.window, flow.congestion.threshold), (SEGMENT, before.threshold));
}

#[test]
fn a_byte_that_found_a_window_closed_goes_with_the_rest_when_it_opens() {
    let mut flow = sender(200);
    taken(&mut flow, &Segment { window: 0, ..says(500) });
    flow.run_out(LATER);
    assert_eq!(flow.next(SEGMENT, LATER).map(|send| send.bytes), Some(1));
    taken(&mut flow, &Segment { window: 0, ..says(500) });
    let waits = flow.due(LATER, &Timeouts::default());
    assert!(waits > Some(LATER) && !taken(&mut flow, &Segment { window: 0, ..says(500) }).may_send);
    assert_eq!(flow.due(LATER, &Timeouts::default()), waits, "hearing so again is no reason to wait for longer");
    let mut taken_after_all = flow;
    taken(&mut flow, &says(500));
    assert_eq!(flow.next(SEGMENT, LATER), Some(ToSend { sequence: 500, at: 0, bytes: 200 }));
    taken(&mut taken_after_all, &says(501));
    assert_eq!(taken_after_all.next(SEGMENT, LATER), Some(ToSend { sequence: 501, at: 1, bytes: 199 }));
}

#[test]
fn time_is_counted_where_ticks_go_round() {
    let timeouts = Timeouts::new(ticks(100), ticks(10), ticks(300));
    let around = 1 << 32;
    let mut flow = Flow::established(100, 500, 256, 1000);
    assert!(flow.bump(0, 64, [256; 2], ticks(around - 50)));
    assert!(flow.next(64, ticks(around - 50)).is_some());
    for now in [around - 50, around - 1, around, around + 49] {
        assert_eq!(flow.due(ticks(now), &timeouts), Some(ticks(around + 50)), "{now}");
    }
    assert!(flow.due(ticks(around + 50), &timeouts) <= Some(ticks(around + 50)));
    flow.take(&segment(100, 564, 0), ticks(around + 30)).expect("it can be");
    assert_eq!(flow.round_trip.smoothed, 8 * 80);
}

/// What a peer may say to have more sent than the network bears: parts of what it has, what it cannot have, and the same for ever.
#[test]
fn no_acknowledgements_blow_up_the_window() {
    let mut flow = sender(1 << 15);
    let under_way = send_all(&mut flow, NOW);
    let before = flow;
    for beyond in [under_way + 1, 1 << 20, i32::MAX as u32] {
        assert_eq!(flow.take(&says(500_u32.wrapping_add(beyond)), NOW), None, "{beyond}");
        assert_eq!(flow, before);
    }
    // Old ones, and those that say what others did.
    (1..1000).for_each(|old| _ = taken(&mut flow, &says(500_u32.wrapping_sub(old * 1000))));
    assert_eq!(flow, before);
    (0..100_000).for_each(|_| _ = taken(&mut flow, &says(500)));
    assert_eq!((flow.congestion.window, flow.congestion.threshold), (SEGMENT, 5 * SEGMENT));
    assert_eq!(send_all(&mut flow, NOW), SEGMENT);
    // A byte at a time gains no more than all at once.
    let grown = |part: u32| {
        let mut flow = sender(1 << 15);
        flow.congestion = Congestion { window: 4 * SEGMENT, threshold: 2 * SEGMENT, ..Congestion::default() };
        let under_way = send_all(&mut flow, NOW);
        (part..=under_way).step_by(part as usize).for_each(|bytes| _ = taken(&mut flow, &says(500 + bytes)));
        assert_eq!(flow.unacknowledged, 0);
        flow.congestion.window - 4 * SEGMENT
    };
    assert!(grown(SEGMENT) > SEGMENT * 3 / 4 && grown(SEGMENT) <= SEGMENT);
    assert!(grown(1) <= 4 * SEGMENT, "{}", grown(1));
    let mut slow_start = sender(1 << 15);
    let under_way = send_all(&mut slow_start, NOW);
    (1..=under_way).for_each(|bytes| _ = taken(&mut slow_start, &says(500 + bytes)));
    assert_eq!(slow_start.congestion.window, 2 * under_way, "no more than whole segments would");
}
