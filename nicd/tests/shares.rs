//! Who gets how much: queues and clients take turns, and an operator's limit holds from when it is set.

use crate::support::clients::{Client, EVERYBODY, Outside, REQUEST, frame, mac, plain, port, tcp};
use conic_fabric::Time;
use conic_nicd::switch::{Offloads, RateLimit, Rules, Switch, SwitchOptions};

#[test]
fn a_queue_that_was_not_served_in_a_turn_is_the_first_in_the_next() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut a = Client::attach(&mut switch, Time::ZERO, 1, 3, plain(1));
    let mut bytes = [0; 3];
    for step in 0..300u64 {
        for queue in 0..3 {
            while a.send(queue, &frame(mac(1), mac(200), queue as u16, step, 1500), 1) {}
        }
        switch.step(Time::from_nanoseconds(step));
        outside.take().iter().for_each(|sent| bytes[usize::from(sent[35])] += sent.len());
    }
    let sum: usize = bytes.iter().sum();
    assert!(bytes.iter().all(|&one| one > sum / 4), "{bytes:?}: each queue has about a third");
}

#[test]
fn a_turn_is_overdrawn_by_one_burst_at_most_however_many_queues_there_are() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut client = Client::attach(&mut switch, Time::ZERO, 1, 8, plain(1));
    let (turn, burst) = (16 << 10, 32 * 1500);
    let mut sent = 0;
    for step in 1..=40u64 {
        for queue in 0..8 {
            while client.send(queue, &frame(mac(1), mac(200), queue as u16, step, 1500), 1) {}
        }
        switch.step(Time::from_nanoseconds(step));
        let at_once: usize = outside.take().iter().map(Vec::len).sum();
        assert!(at_once <= turn + burst, "{at_once} bytes in a turn");
        sent += at_once;
        // What a turn had too much is paid back by the ones behind it.
        assert!(sent <= step as usize * turn + burst, "{sent} bytes in {step} turns");
    }
    assert!(sent > 39 * turn, "{sent} bytes");
}

#[test]
fn two_that_send_more_than_a_third_takes_get_half_of_it_each() {
    let mut switch = Switch::new(SwitchOptions::default(), Vec::new());
    let mut senders = [1, 2].map(|number| Client::attach(&mut switch, Time::ZERO, number, 1, plain(number)));
    let mut receiver = Client::attach(&mut switch, Time::ZERO, 3, 1, plain(3));
    let mut frames = [0; 2];
    for step in 0..400 {
        for sender in &mut senders {
            let sent = frame(sender.mac, mac(3), 1, step, 1500);
            (0..10).for_each(|_| _ = sender.send(0, &sent, 1));
        }
        switch.step(Time::from_nanoseconds(step));
        // Room for no more than some of it comes back in a step.
        let mut packets = [conic_interface::ccnic::Descriptor::BLANK; 8];
        let count = receiver.hosts[0].rx_burst(&mut packets);
        for packet in &packets[..count] {
            let mut from = [0; 12];
            conic_fabric::Core::read_bytes(&receiver.core, packet.address(), &mut from);
            frames[usize::from(from[11] - 1)] += 1;
            receiver.hosts[0].buf_free(&[packet.address()]);
        }
    }
    let sum: usize = frames.iter().sum();
    assert!(frames.iter().all(|&one| one > 2 * sum / 5), "{frames:?}");
    assert!(switch.clients().any(|(_, counters, _)| counters.dropped_full + counters.dropped_no_buffer > 1000));
}

/// One that sends a frame to a receiver in each step, beside others that send a hundred each, where the receiver takes forty: how many
/// frames of each were lost in ten thousand steps. With one queue the receiver lacks buffers, with four places in its ring.
fn lost_beside_floods(floods: u64, queues: u32) -> Vec<u64> {
    let mut switch = Switch::new(SwitchOptions::default(), Vec::new());
    let mut attach = |number, queues| Client::attach(&mut switch, Time::ZERO, number, queues, plain(number));
    let mut senders: Vec<Client> = (1..=floods + 1).map(|number| attach(number, 1)).collect();
    let mut receiver = attach(9, queues);
    let (mut sent, mut came) = (vec![0; senders.len()], vec![0; senders.len()]);
    for step in 0..10_000 {
        for (index, sender) in senders.iter_mut().enumerate() {
            let mut one = frame(sender.mac, receiver.mac, 1, step, 60);
            // The same flow for all, whose addresses differ here: they share a ring.
            one[29] = 0;
            let wanted = if index == 0 { 1 } else { 100 };
            sent[index] += (0..wanted).filter(|_| sender.send(0, &one, 1)).count() as u64;
        }
        switch.step(Time::from_nanoseconds(step));
        // In large pieces, as one whose core is taken away at times.
        let pieces = if step % 8 == 7 { 10 } else { 0 };
        for _ in 0..pieces {
            let mut packets = [conic_interface::ccnic::Descriptor::BLANK; 32];
            for host in &mut receiver.hosts {
                let count = host.rx_burst(&mut packets);
                for packet in &packets[..count] {
                    let mut from = [0; 12];
                    conic_fabric::Core::read_bytes(&receiver.core, packet.address(), &mut from);
                    came[usize::from(from[11] - 1)] += 1;
                    host.buf_free(&[packet.address()]);
                }
            }
        }
    }
    sent.iter().zip(&came).map(|(sent, came)| sent - came).collect()
}

#[test]
fn who_sends_little_loses_little_beside_those_that_flood_its_receiver() {
    // Where all were served alike it lost 5,600 to 8,800. Nobody counts free buffers, so that now and then there are none.
    for (floods, queues, most) in [(1, 1, 600), (1, 4, 50), (2, 1, 800), (2, 4, 50)] {
        let lost = lost_beside_floods(floods, queues);
        assert!(lost[1..].iter().all(|&lost| lost > 500_000), "{floods}, {queues}: {lost:?}");
        assert!(lost[0] < most, "{floods}, {queues}: {lost:?}");
        // The receiver gets about what it takes, 400,000, all the same.
        let came = 10_000 * (100 * floods + 1) - lost.iter().sum::<u64>();
        assert!(came > 360_000, "{floods}, {queues}: {lost:?}");
    }
}

#[test]
fn a_limit_holds_from_when_it_is_set_until_it_is_taken_away() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut client = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    let mut in_a_millisecond = |switch: &mut Switch<_>, from: u64| {
        for step in 0..1000 {
            while client.send(0, &frame(mac(1), mac(200), 1, step, 1000), 1) {}
            switch.step(Time::from_nanoseconds(1_000_000 * from + 1000 * step));
        }
        outside.take().iter().map(Vec::len).sum::<usize>()
    };
    let free = in_a_millisecond(&mut switch, 1);
    assert_eq!(switch.next_due(), None);
    let limit = RateLimit { bytes_per_second: 50_000_000, burst_bytes: 10_000 };
    switch.limit(Time::from_nanoseconds(2_000_000), 1, Some(limit));
    // A millisecond's worth, what may be sent at once, and a burst of the ring that was begun.
    let limited = in_a_millisecond(&mut switch, 2);
    assert!((50_000..50_000 + 10_000 + 33_000).contains(&limited), "{limited} bytes");
    assert!(switch.next_due().expect("it may send again") > Time::from_nanoseconds(2_900_000));
    switch.limit(Time::from_nanoseconds(3_000_000), 1, None);
    let freed = in_a_millisecond(&mut switch, 3);
    assert!(freed > 4 * limited && freed > free / 2, "{free}, {limited}, {freed} bytes");
    switch.limit(Time::from_nanoseconds(4_000_000), 1, Some(limit));
    assert_eq!(switch.suspend().remove(0).rules.limit, Some(limit), "whoever goes on keeps it");
    switch.limit(Time::ZERO, 9, None);
}

#[test]
fn a_limited_client_that_rests_wakes_nobody() {
    let options = SwitchOptions::default();
    let (rest, limit) = (options.rest_after, Some(RateLimit { bytes_per_second: 1000, burst_bytes: 1 }));
    let mut switch = Switch::new(options, Vec::new());
    let mut client = Client::attach(&mut switch, Time::ZERO, 1, 1, Rules { limit, ..plain(1) });
    assert!(client.send(0, &frame(mac(1), mac(2), 1, 1, 1000), 1));
    switch.step(Time::ZERO);
    let due = switch.next_due().expect("it may send again");
    assert!(due > Time::from_nanoseconds(900_000_000), "{due}");
    switch.step(due);
    switch.step(due + rest);
    assert_eq!((switch.is_resting(), switch.next_due()), (true, None));
}

#[test]
fn a_port_gives_no_more_than_a_burst_at_a_time() {
    let outside = Outside::default();
    let mut switch: Switch<conic_native::KeptCore> = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    (0..100).for_each(|number| outside.give(frame(mac(200), mac(1), 1, number, 100)));
    let moved: Vec<usize> = (0..5).map(|_| switch.step(Time::ZERO)).collect();
    assert_eq!(moved, [32, 32, 32, 4, 0]);
}

/// One whose packets may stand for several.
fn asking(number: u64, limit: Option<RateLimit>) -> Rules {
    Rules { offloads: Offloads { requests: true, ..Offloads::default() }, limit, ..plain(number) }
}

fn bytes_of(frames: &[Vec<u8>]) -> usize {
    frames.iter().map(Vec::len).sum()
}

#[test]
fn who_has_large_packets_cut_small_gets_as_much_of_the_turns_as_who_sends_frames() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut large = Client::attach(&mut switch, Time::ZERO, 1, 1, asking(1, None));
    let mut small = Client::attach(&mut switch, Time::ZERO, 2, 8, plain(2));
    let mut bytes = [0; 2];
    let packet = tcp(1, 200, 60_000);
    for step in 0..400 {
        while large.may_ask(&packet, REQUEST.with_large(64)) {}
        (0..8).for_each(|queue| while small.send(queue, &frame(mac(2), mac(200), 1, step, 1500), 1) {});
        switch.step(Time::from_nanoseconds(step));
        let sent = outside.take();
        let own = |from: u64| sent.iter().filter(|one| one[6..12] == mac(from)).map(Vec::len).sum::<usize>();
        bytes[0] += own(1);
        bytes[1] += own(2);
    }
    let sum = bytes[0] + bytes[1];
    assert!(bytes.iter().all(|&one| one > 2 * sum / 5), "{bytes:?}: each has about a half");
}

#[test]
fn who_sends_what_is_too_short_to_be_a_frame_has_a_turn_like_anybody_else() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut client = Client::attach(&mut switch, Time::ZERO, 1, 4, plain(1));
    let turn = (16 << 10) / 60;
    for (length, leaves) in [(1, false), (13, false), (14, true), (60, true)] {
        let short = &frame(mac(1), mac(200), 1, 1, 60)[..length];
        (0..4).for_each(|queue| while client.send(queue, short, 1) {});
        let moved = switch.step(Time::ZERO);
        assert!((turn..turn + 32).contains(&moved), "{moved} frames of {length} bytes in a turn");
        assert_eq!(outside.take().len(), if leaves { moved } else { 0 });
        while switch.step(Time::ZERO) > 0 {}
        (0..4).for_each(|_| _ = switch.step(Time::ZERO));
        outside.take();
    }
}

#[test]
fn a_limit_is_charged_for_what_leaves() {
    for size in [64, 100, 1460, 5000] {
        let outside = Outside::default();
        let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
        let limit = RateLimit { bytes_per_second: 1000, burst_bytes: 1 };
        let mut client = Client::attach(&mut switch, Time::ZERO, 1, 1, asking(1, Some(limit)));
        // The last piece has a byte, and is filled up.
        client.ask(&tcp(1, 200, 3 * usize::from(size) + 1), REQUEST.with_large(size));
        switch.step(Time::ZERO);
        let left = bytes_of(&outside.take());
        assert_eq!(left, 3 * (54 + usize::from(size)) + 60);
        assert_eq!(switch.next_due(), Some(Time::from_nanoseconds(1_000_000 * left as u64)), "pieces of {size}");
    }
}

#[test]
fn nobody_has_a_packet_cut_into_tiny_pieces() {
    let outside = Outside::default();
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut client = Client::attach(&mut switch, Time::ZERO, 1, 1, asking(1, None));
    for (size, frames) in [(1, 0), (63, 0), (64, 157)] {
        client.ask(&tcp(1, 200, 10_000), REQUEST.with_large(size));
        // A turn may be paid back first.
        (0..4).for_each(|_| _ = switch.step(Time::ZERO));
        assert_eq!(outside.take().len(), frames, "pieces of {size} bytes");
    }
    assert_eq!(switch.clients().next().expect("it").1.dropped_offload, 2);
    // What is one frame is not cut.
    client.ask(&tcp(1, 200, 50), REQUEST.with_large(50));
    switch.step(Time::ZERO);
    assert_eq!(outside.take().len(), 1);
}

/// One that sends to everybody as fast as it can, beside two that send as much to each other, all others being silent: how many copies
/// were made of its frames for each of theirs.
fn copies_beside_a_flood() -> f64 {
    let mut switch = Switch::new(SwitchOptions::default(), Vec::new());
    let mut attach = |number| Client::attach(&mut switch, Time::ZERO, number, 1, plain(number));
    let mut clients: Vec<Client> = (1..=16).map(&mut attach).collect();
    let mut copies = [0; 2];
    for step in 0..4_000 {
        let goals = [EVERYBODY, mac(3), mac(2)];
        for (client, goal) in clients.iter_mut().zip(goals) {
            let one = frame(client.mac, goal, 1, step, 1500);
            while client.send(0, &one, 1) {}
        }
        switch.step(Time::from_nanoseconds(step));
        for client in &mut clients {
            for got in client.receive() {
                copies[usize::from(got[11] != 1)] += 1;
            }
        }
    }
    f64::from(copies[0]) / f64::from(copies[1])
}

#[test]
fn who_sends_to_everybody_takes_no_more_of_the_cores_time_than_others() {
    // Two others send, so that a third is its share: half of what they have.
    let ratio = copies_beside_a_flood();
    assert!((0.25..1.0).contains(&ratio), "{ratio} copies of its frames for each of the others'");
}
