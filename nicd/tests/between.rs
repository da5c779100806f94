//! What crosses between a network's threads besides a frame, and what a thread does that does not know yet what another one knows.

use crate::support::clients::{Client, EVERYBODY, Outside, frame, mac, plain, port};
use crate::support::threads::Threads;
use conic_fabric::Time;
use conic_interface::ccnic::Descriptor;
use conic_interface::metadata::Metadata;
use conic_nicd::switch::{Circuit, Offloads, Party, Place, Rules, Station, SwitchPort};

#[test]
fn what_a_port_found_of_a_frame_is_told_to_a_client_of_another_thread() {
    let outside = Outside::default();
    outside.check();
    let mut threads = Threads::bridge(2, vec![port(&outside, None)]);
    let requests = Offloads { requests: true, unfinished: true, ..Offloads::default() };
    let mut clients = threads.attach_all(2, 1, |number| Rules { offloads: requests, ..plain(number) });
    for to in [mac(2), EVERYBODY] {
        outside.give(frame(mac(200), to, 1, 1, 100));
        threads.settle(Time::ZERO);
        let mut packets = [Descriptor::BLANK; 2];
        assert_eq!(clients[1].hosts[0].rx_burst(&mut packets), 1);
        assert!(Metadata(packets[0].metadata).has(Metadata::TRANSPORT_GOOD), "to {to:?}");
    }
}

#[test]
fn what_is_known_of_a_frame_is_not_told_of_the_next_between_the_same_two() {
    let outside = Outside::default();
    outside.check();
    let mut threads = Threads::bridge(2, vec![port(&outside, None)]);
    let requests = Offloads { requests: true, unfinished: true, ..Offloads::default() };
    let mut clients = threads.attach_all(2, 1, |number| Rules { offloads: requests, ..plain(number) });
    // In one burst, and checked by turns.
    let checked = [true, false, false, true, false];
    for (number, &is_checked) in (0..).zip(&checked) {
        let frame = frame(mac(200), mac(2), 1, number, 100);
        if is_checked { outside.give(frame) } else { outside.give_unchecked(frame) }
    }
    threads.settle(Time::ZERO);
    let mut packets = [Descriptor::BLANK; 8];
    assert_eq!(clients[1].hosts[0].rx_burst(&mut packets), checked.len());
    let told: Vec<bool> =
        packets[..checked.len()].iter().map(|packet| Metadata(packet.metadata).has(Metadata::TRANSPORT_GOOD)).collect();
    assert_eq!(told, checked);
}

#[test]
fn a_tag_says_the_vlan_where_the_senders_thread_knows_of_none_yet() {
    let mut threads = Threads::bridge(2, vec![]);
    let mut sender = threads.attach(0, Time::ZERO, 1, 1, plain(1));
    // The first thread has not been told of it.
    let member = Rules { vlan: Some(7), ..plain(2) };
    let mut member = Client::attach(&mut threads.switches[1], Time::ZERO, 2, 1, member);
    let sent = frame(mac(1), EVERYBODY, 1, 1, 100);
    for (vlan, expected) in [(7, vec![sent.clone()]), (8, vec![])] {
        assert!(sender.send(0, &[&sent[..12], &[0x81, 0, 0, vlan], &sent[12..]].concat(), 1));
        threads.settle(Time::ZERO);
        assert_eq!(member.receive(), expected, "of VLAN {vlan}");
    }
}

#[test]
fn frames_for_everybody_of_one_burst_reach_their_own_vlans_on_another_thread() {
    let mut threads = Threads::bridge(2, vec![]);
    let mut sender = threads.attach(0, Time::ZERO, 1, 1, plain(1));
    let mut members: Vec<(u8, Client)> = Vec::new();
    for (session, vlan) in [(2, 7), (3, 8)] {
        let rules = Rules { vlan: Some(vlan.into()), ..plain(session) };
        members.push((vlan, threads.attach(1, Time::ZERO, session, 1, rules)));
    }
    let sent = |number| frame(mac(1), EVERYBODY, 1, number, 100);
    let vlans = [7, 8, 8, 7, 8];
    for (number, vlan) in (0..).zip(vlans) {
        let sent = sent(number);
        assert!(sender.send(0, &[&sent[..12], &[0x81, 0, 0, vlan], &sent[12..]].concat(), 1));
    }
    threads.settle(Time::ZERO);
    for (own, member) in &mut members {
        let expected: Vec<_> =
            (0..).zip(vlans).filter(|(_, vlan)| vlan == own).map(|(number, _)| sent(number)).collect();
        assert_eq!(member.receive(), expected, "of VLAN {own}");
    }
}

#[test]
fn a_thread_without_vlans_of_its_own_knows_those_of_the_others() {
    let mut threads = Threads::bridge(2, vec![]);
    let vlan = |number| if number == 2 { Some(7) } else { None };
    let mut clients = threads.attach_all(4, 1, |number| Rules { vlan: vlan(number), ..plain(number) });
    let sent = frame(mac(1), mac(2), 1, 1, 100);
    assert!(clients[0].send(0, &[&sent[..12], &[0x81, 0, 0, 7], &sent[12..]].concat(), 1));
    threads.settle(Time::ZERO);
    assert_eq!(clients[1].receive(), [sent]);
    assert_eq!([2, 3].map(|other: usize| clients[other].receive().len()), [0, 0], "it is known where it goes");
}

#[test]
fn a_client_that_comes_with_an_end_of_a_circuit_has_it_on_every_thread() {
    let outside = Outside::default();
    let end = |far| Some(Circuit { number: 1, far });
    let mut threads = Threads::bridge(2, vec![SwitchPort { circuit: end(false), ..port(&outside, None) }]);
    let mut client = threads.attach(1, Time::ZERO, 2, 1, Rules { circuit: end(true), ..plain(2) });
    let sent = frame(mac(200), EVERYBODY, 1, 1, 100);
    outside.give(sent.clone());
    threads.settle(Time::ZERO);
    assert_eq!(client.receive(), [sent]);
}

#[test]
fn who_is_in_a_circuit_gets_nothing_from_a_thread_that_does_not_know_it_yet() {
    let mut threads = Threads::bridge(2, vec![]);
    let mut clients = threads.attach_all(2, 1, plain);
    assert!(threads.switches[1].connect(Party::Client(2), Some(Circuit { number: 1, far: false })));
    for to in [mac(2), EVERYBODY] {
        assert!(clients[0].send(0, &frame(mac(1), to, 1, 1, 100), 1));
        threads.settle(Time::ZERO);
        assert_eq!(clients[1].receive(), [[0; 0]; 0], "to {to:?}");
    }
    assert_eq!(threads.trunk(1, 0).dropped_no_way, 1, "the one that was for it alone");
}

#[test]
fn a_frame_for_a_station_that_has_left_for_a_third_thread_is_counted() {
    let outside: [Outside; 3] = Default::default();
    let mut threads = Threads::bridge(3, outside.each_ref().map(|one| port(one, None)).into());
    let mut clients = threads.attach_all(3, 1, plain);
    outside[1].give(frame(mac(200), EVERYBODY, 1, 1, 100));
    threads.settle(Time::ZERO);
    // It moves from the second thread's port to the third's, and the first hears of that behind what it sends there.
    outside[2].give(frame(mac(200), mac(3), 1, 2, 100));
    threads.switches[2].step(Time::ZERO);
    threads.switches[1].step(Time::ZERO);
    outside[0].give(frame(mac(201), mac(200), 1, 3, 100));
    outside.iter().for_each(|one| drop(one.take()));
    threads.settle(Time::ZERO);
    assert_eq!(outside.each_ref().map(|one| one.take().len()), [0; 3]);
    assert_eq!((threads.trunk(0, 1).sent_frames, threads.trunk(1, 0).dropped_no_way), (1, 1));
    assert_eq!(clients.iter_mut().map(|client| client.receive().len()).sum::<usize>(), 4, "the first two");
}

#[test]
fn no_address_of_many_is_learned() {
    let mut threads = Threads::bridge(2, vec![]);
    let mut clients = threads.attach_all(2, 1, |number| Rules { own_address_only: false, ..plain(number) });
    let many = [3, 0, 0, 0, 0, 1];
    for from in [many, mac(9)] {
        assert!(clients[0].send(0, &frame(from, EVERYBODY, 1, 1, 100), 1));
    }
    threads.settle(Time::ZERO);
    for (thread, place) in [(0, Place::Client(0)), (1, Place::Trunk(0))] {
        let table = threads.switches[thread].table();
        let found = [many, mac(9)].map(|station| table.find(Time::ZERO, Station::new(station, 0)));
        assert_eq!(found, [None, Some(place)], "on thread {thread}");
    }
}

#[test]
fn what_is_known_of_who_has_gone_makes_room_for_the_next() {
    let mut threads = Threads::bridge(2, vec![]);
    let mut places = Vec::new();
    for number in 1..=50 {
        threads.attach(1, Time::ZERO, number, 1, plain(number));
        places.push(threads.switches[0].table().find(Time::ZERO, Station::new(mac(number), 0)));
        threads.detach(number);
    }
    assert_eq!(places, [Some(Place::Away(0)); 50]);
}
