//! Who goes leaves nothing behind, and a switch that stops leaves everything for the next.

use crate::support::clients::{Client, Outside, frame, mac, plain, port};
use crate::support::threads::Threads;
use conic_fabric::Time;
use conic_interface::ccnic::notify::{PACKETS, ROOM};
use conic_native::KeptCore;
use conic_nicd::switch::{Ring, Rules, Station, Switch, SwitchOptions, SwitchPort};

fn bridge(outside: &Outside) -> Switch<KeptCore> {
    Switch::new(SwitchOptions::default(), vec![port(outside, None)])
}

fn rings(switch: &mut Switch<KeptCore>) -> Vec<(u64, u32)> {
    let mut rings = Vec::new();
    switch.take_rings(&mut rings);
    let client = |ring| match ring {
        Ring::Client { session, queue } => (session, queue),
        Ring::Thread(other) => panic!("there is no thread {other}"),
    };
    rings.into_iter().map(client).collect()
}

#[test]
fn a_client_that_goes_leaves_neither_its_address_nor_a_ring_to_the_next_in_its_place() {
    let outside = Outside::default();
    let mut switch = bridge(&outside);
    let gone = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    let mut stays = Client::attach(&mut switch, Time::ZERO, 2, 1, plain(2));
    gone.notices.wish_for(&gone.core, 0, PACKETS);
    assert!(stays.send(0, &frame(mac(2), mac(1), 1, 1, 100), 1));
    switch.step(Time::ZERO);
    assert!(switch.detach(1).is_some());
    assert_eq!((switch.table().find(Time::ZERO, Station::new(mac(1), 0)), rings(&mut switch)), (None, vec![]));
    let mut next = Client::attach(&mut switch, Time::ZERO, 3, 1, plain(3));
    // Nobody has that address now: it is looked for everywhere, and found outside.
    outside.give(frame(mac(1), mac(2), 1, 2, 100));
    switch.step(Time::ZERO);
    assert!(stays.send(0, &frame(mac(2), mac(1), 1, 3, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!((next.receive().len(), outside.take().len()), (0, 1));
    assert!(switch.detach(1).is_none());
}

#[test]
fn a_client_that_waits_is_rung_once_for_what_came() {
    let outside = Outside::default();
    let mut switch = bridge(&outside);
    let mut client = Client::attach(&mut switch, Time::ZERO, 1, 2, plain(1));
    client.notices.wish_for(&client.core, 0, ROOM);
    outside.give(frame(mac(200), mac(1), 1, 1, 100));
    switch.step(Time::ZERO);
    assert_eq!(rings(&mut switch), [], "it waits for room, and not for packets");
    assert!(client.send(0, &frame(mac(1), mac(200), 1, 2, 100), 1));
    switch.step(Time::ZERO);
    assert_eq!((rings(&mut switch), rings(&mut switch)), (vec![(1, 0)], vec![]));
    let queue = (0..2).find(|&queue| client.hosts[queue].has_packets()).expect("a packet");
    client.receive();
    client.notices.wish_for(&client.core, queue, PACKETS);
    for number in 0..3 {
        outside.give(frame(mac(200), mac(1), 1, number, 100));
        switch.step(Time::ZERO);
    }
    assert_eq!(rings(&mut switch), [(1, queue as u32)]);
}

#[test]
fn a_switch_goes_on_where_another_stopped() {
    let outside = Outside::default();
    let mut switch = bridge(&outside);
    let mut client = Client::attach(&mut switch, Time::ZERO, 1, 70, plain(1));
    let rest = SwitchOptions::default().rest_after;
    for number in 0..5 {
        outside.give(frame(mac(200), mac(1), number as u16, number, 100));
        assert!(client.send(69, &frame(mac(1), mac(200), 1, number, 100), 1));
    }
    switch.step(Time::ZERO);
    switch.step(Time::from_nanoseconds(1));
    switch.step(rest + rest);
    assert!(switch.is_resting());
    assert_eq!(outside.take().len(), 5);
    // Sent, and nobody has looked at it yet.
    assert!(client.hosts[0].has_packets() || client.hosts.iter().any(|host| host.has_packets()));
    assert!(client.send(3, &frame(mac(1), mac(200), 1, 9, 100), 1));
    client.notices.wish_for(&client.core, 5, PACKETS | ROOM);
    let mut suspended = switch.suspend();
    assert_eq!((suspended.len(), switch.clients().count(), rings(&mut switch)), (1, 0, vec![(1, 5)]));
    let suspended = suspended.remove(0);
    let resume = |next: &mut Switch<KeptCore>, suspended| {
        next.resume(rest, suspended, (&client.map, client.notices), || client.core.clone())
    };
    let mut next = bridge(&outside);
    for wrong in [&suspended.positions[1..], &[&suspended.positions[..], &[[0; 3]]].concat()] {
        let wrong = conic_nicd::switch::Suspended { positions: wrong.to_vec(), ..suspended.clone() };
        assert!(!resume(&mut next, wrong));
    }
    assert!(resume(&mut next, suspended) && !next.is_resting());
    for queue in [0, 3, 63, 64, 69] {
        assert!(!client.notices.call_if_resting(&client.core, queue), "queue {queue} is looked at again");
    }
    next.step(rest);
    assert_eq!(outside.take(), [frame(mac(1), mac(200), 1, 9, 100)]);
    outside.give(frame(mac(200), mac(1), 7, 9, 100));
    next.step(rest);
    let mut numbers: Vec<u8> = client.receive().iter().map(|frame| frame[49]).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 9], "what was delivered before is there, once");
    assert_eq!(next.clients().next().expect("it").2.total(), 0);
}

#[test]
fn a_port_that_is_inherited_has_the_vlan_that_it_was_given() {
    let outside = Outside::default();
    let SwitchPort { queues, .. } = port(&outside, None);
    let empty = SwitchPort { queues: Vec::new(), ..port(&outside, Some(8)) };
    let mut switch = Switch::new(SwitchOptions::default(), vec![empty]);
    let mut trunk = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    switch.inherit(0, queues);
    let sent = frame(mac(200), mac(1), 1, 1, 100);
    outside.give(sent.clone());
    switch.step(Time::ZERO);
    assert_eq!(trunk.receive(), [[&sent[..12], &[0x81, 0, 0, 8], &sent[12..]].concat()]);
}

#[test]
fn as_many_queues_stay_awake_as_the_switch_is_told() {
    let options = SwitchOptions { always_awake: 3, ..SwitchOptions::default() };
    let rest = options.rest_after;
    let mut switch = Switch::new(options, Vec::new());
    let client = Client::attach(&mut switch, Time::ZERO, 1, 5, plain(1));
    (0..3).for_each(|round| _ = switch.step(rest + Time::from_nanoseconds(round * rest.nanoseconds())));
    let resting = (0..5).filter(|&queue| client.notices.call_if_resting(&client.core, queue)).count();
    assert_eq!((resting, switch.is_resting()), (2, false));
}

#[test]
fn tags_pass_as_they_are_once_the_last_member_of_a_vlan_has_left() {
    let vlan = |number, vlan| Rules { vlan, promiscuous: true, ..plain(number) };
    // A client of this thread, one of another, and a port.
    for who in ["client", "away", "port"] {
        let outside: [Outside; 2] = Default::default();
        let mut threads = Threads::bridge(2, vec![port(&outside[0], None)]);
        let mut clients: Vec<_> =
            (1..=3).map(|number| threads.attach(0, Time::ZERO, number, 1, vlan(number, None))).collect();
        let tagged = [&mac(2)[..], &mac(1), &[0x81, 0, 0, 9], &frame(mac(1), mac(2), 1, 1, 100)[12..]].concat();
        // Whoever is not found in a VLAN is looked for everywhere: the number of clients that get it.
        let mut reached = |threads: &mut Threads| {
            assert!(clients[0].send(0, &tagged, 1));
            threads.settle(Time::ZERO);
            [1, 2].map(|client: usize| clients[client].receive().len())
        };
        assert_eq!(reached(&mut threads), [1, 0], "{who}: there is none yet");
        match who {
            "client" => drop(threads.attach(0, Time::ZERO, 7, 1, vlan(7, Some(5)))),
            "away" => drop(threads.attach(1, Time::ZERO, 7, 1, vlan(7, Some(5)))),
            _ => threads.attach_port(Time::ZERO, 1, port(&outside[1], Some(5))),
        }
        assert_eq!(reached(&mut threads), [1, 1], "{who}: there is one");
        match who {
            "port" => assert_eq!(threads.detach_port(1), 1),
            _ => assert!(threads.detach(7).is_some()),
        }
        assert_eq!(reached(&mut threads), [1, 0], "{who}: it has left");
    }
}
