//! A client that changes its address has the new one on every thread, and no longer the old one.

use crate::support::clients::{Client, Outside, frame, mac, plain, port};
use crate::support::threads::Threads;
use conic_fabric::Time;
use conic_nicd::switch::{Rules, Station, Switch, SwitchOptions};

/// A bridge of so many threads with three clients and a port.
fn bridge(count: usize, vlan: Option<u16>) -> (Threads, Vec<Client>, Outside) {
    let outside = Outside::default();
    let mut threads = Threads::bridge(count, vec![port(&outside, vlan)]);
    let clients = threads.attach_all(3, 1, |number| Rules { vlan, ..plain(number) });
    (threads, clients, outside)
}

/// How many frames each client and the port get of one that client `from` sends.
fn reached(
    (threads, clients, outside): &mut (Threads, Vec<Client>, Outside),
    from: usize,
    source: [u8; 6],
    to: [u8; 6],
) -> ([usize; 3], usize) {
    assert!(clients[from].send(0, &frame(source, to, 1, 1, 100), 1));
    threads.settle(Time::ZERO);
    ([0, 1, 2].map(|client| clients[client].receive().len()), outside.take().len())
}

#[test]
fn the_new_address_is_the_clients_everywhere_and_the_old_one_is_nobodys() {
    for (count, vlan) in [(1, None), (1, Some(7)), (2, None), (3, None), (3, Some(7))] {
        let mut all = bridge(count, vlan);
        assert!(all.0.set_mac(Time::ZERO, 2, mac(50)));
        // From its own thread's clients, from other threads', and from outside.
        assert_eq!(reached(&mut all, 0, mac(1), mac(50)), ([0, 1, 0], 0), "{count} threads");
        assert_eq!(reached(&mut all, 2, mac(3), mac(50)), ([0, 1, 0], 0), "{count} threads");
        all.2.give(frame(mac(200), mac(50), 1, 1, 100));
        all.0.settle(Time::ZERO);
        assert_eq!(all.1.iter_mut().map(|client| client.receive().len()).collect::<Vec<_>>(), [0, 1, 0]);
        // It may send from this one, and no longer from that.
        assert_eq!(reached(&mut all, 1, mac(50), mac(1)), ([1, 0, 0], 0));
        assert_eq!(reached(&mut all, 1, mac(2), mac(1)), ([0, 0, 0], 0));
        assert_eq!(all.0.counters(2).dropped_spoofed, 1);
        // Whoever has the old one is asked for: behind the port it may be, and behind no client.
        assert_eq!(reached(&mut all, 0, mac(1), mac(2)), ([0, 0, 0], 1), "{count} threads");
        // The next may have it.
        assert!(all.0.set_mac(Time::ZERO, 3, mac(2)));
        assert_eq!(reached(&mut all, 0, mac(1), mac(2)), ([0, 0, 1], 0), "{count} threads");
        // And takes it with it when it goes.
        assert!(all.0.detach(3).is_some());
        let station = Station::new(mac(2), vlan.unwrap_or(0));
        assert!(all.0.switches.iter().all(|switch| switch.table().find(Time::ZERO, station).is_none()));
    }
}

#[test]
fn a_station_that_was_seen_elsewhere_is_the_clients_from_there_on() {
    let mut all = bridge(2, None);
    all.2.give(frame(mac(50), mac(1), 1, 1, 100));
    all.0.settle(Time::ZERO);
    assert_eq!(all.1[0].receive().len(), 1);
    assert_eq!(reached(&mut all, 2, mac(3), mac(50)), ([0, 0, 0], 1));
    assert!(all.0.set_mac(Time::ZERO, 2, mac(50)));
    assert_eq!(reached(&mut all, 2, mac(3), mac(50)), ([0, 1, 0], 0));
    // Whoever says outside that it has it does not get it.
    all.2.give(frame(mac(50), mac(1), 1, 1, 100));
    all.0.settle(Time::ZERO);
    all.1[0].receive();
    assert_eq!(reached(&mut all, 0, mac(1), mac(50)), ([0, 1, 0], 0));
}

#[test]
fn who_is_not_there_gets_none_and_the_same_once_more_changes_nothing() {
    for count in [1, 2] {
        let mut all = bridge(count, None);
        assert!(!all.0.set_mac(Time::ZERO, 9, mac(50)));
        assert!(all.0.set_mac(Time::ZERO, 3, mac(3)));
        assert_eq!(reached(&mut all, 0, mac(1), mac(3)), ([0, 0, 1], 0));
        assert_eq!(reached(&mut all, 2, mac(3), mac(1)), ([1, 0, 0], 0));
    }
}

#[test]
fn whoever_goes_on_with_a_client_knows_its_new_address() {
    let mut all = bridge(1, None);
    assert!(all.0.set_mac(Time::ZERO, 2, mac(50)));
    let left = all.0.switches[0].suspend();
    assert_eq!(left.iter().map(|one| one.rules.mac).collect::<Vec<_>>(), [mac(1), mac(50), mac(3)]);
}

#[test]
fn no_choice_of_addresses_has_a_clients_frames_sent_to_everybody() {
    // One set of the table, in which all addresses meet.
    let options = SwitchOptions { stations: 1, ..SwitchOptions::default() };
    let outside = Outside::default();
    let mut switch = Switch::new(options, vec![port(&outside, None)]);
    let mut clients: Vec<Client> =
        (1..=8).map(|number| Client::attach(&mut switch, Time::ZERO, number, 1, plain(number))).collect();
    // Whom the port sees is remembered as well.
    outside.give(frame(mac(200), mac(1), 1, 0, 100));
    switch.step(Time::ZERO);
    assert_eq!(clients[0].receive().len(), 1);
    for to in (2..=8).chain([200]) {
        assert!(clients[0].send(0, &frame(mac(1), mac(to), 1, 1, 100), 1));
        switch.step(Time::ZERO);
        let got: Vec<usize> = clients.iter_mut().map(|client| client.receive().len()).collect();
        let wanted: Vec<usize> = (1..=8).map(|number| usize::from(number == to)).collect();
        assert_eq!((got, outside.take().len()), (wanted, usize::from(to == 200)), "to {to}");
    }
}
