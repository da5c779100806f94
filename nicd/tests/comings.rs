//! Ports come and go while a network is served, on one thread and on several: nobody else notices, and nothing of them is left.

use std::sync::{Arc, Mutex};

use crate::support::clients::{Client, EVERYBODY, Outside, frame, mac, plain, port, port_of};
use crate::support::threads::Threads;
use conic_fabric::Time;
use conic_native::KeptCore;
use conic_nicd::switch::{Circuit, Mirror, Party, Rules, Station, Switch, SwitchOptions};

/// A station behind the port that comes and goes.
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 200];

/// Threads with a port 0 of one queue and so many clients: client `n` on thread `n - 1`.
fn world(threads: usize) -> (Threads, Outside, Vec<Client>) {
    let stays = Outside::default();
    let mut network = Threads::bridge(threads, vec![port(&stays, None)]);
    let clients = network.attach_all(threads as u64, 1, plain);
    (network, stays, clients)
}

fn known(threads: &Threads, now: Time) -> usize {
    let find = |switch: &Switch<KeptCore>| switch.table().find(now, Station::new(FAR, 0));
    threads.switches.iter().filter_map(find).count()
}

#[test]
fn a_port_that_comes_is_reached_by_all_and_by_none_when_it_has_gone() {
    for (count, queues) in (1..=3).flat_map(|count| (1..=4).map(move |queues| (count, queues))) {
        let (mut threads, stays, mut clients) = world(count);
        // Each time with another number, so that it begins on another thread.
        for number in 1..=5 {
            let comes: Vec<Outside> = (0..queues).map(|_| Outside::default()).collect();
            let left = |from: &[Outside]| from.iter().map(|one| one.take().len()).sum::<usize>();
            threads.attach_port(Time::ZERO, number, port_of(&comes, None));
            for (index, from) in comes.iter().enumerate() {
                from.give(frame(FAR, EVERYBODY, index as u16, 1, 300));
                threads.settle(Time::ZERO);
                assert_eq!((left(&comes), stays.take().len()), (0, 1), "{count} threads, {queues} queues");
                clients.iter_mut().for_each(|client| assert_eq!(client.receive().len(), 1));
            }
            assert_eq!(known(&threads, Time::ZERO), count, "all know where the station is");
            for sender in 0..count {
                let (own, flow) = (mac(sender as u64 + 1), sender as u16);
                for (to, elsewhere, others) in [(FAR, 0, 0), (EVERYBODY, 1, count - 1), (mac(99), 1, 0)] {
                    assert!(clients[sender].send(0, &frame(own, to, flow, 2, 300), 1));
                    threads.settle(Time::ZERO);
                    let got: usize = clients.iter_mut().map(|client| client.receive().len()).sum();
                    let expected = (1, elsewhere, others);
                    assert_eq!((left(&comes), stays.take().len(), got), expected, "{count} threads, from {sender}");
                }
            }
            assert_eq!((threads.detach_port(number), threads.detach_port(number)), (queues, 0));
            assert_eq!(known(&threads, Time::ZERO), 0, "nobody knows where it is now");
            comes.iter().for_each(|one| one.give(frame(FAR, EVERYBODY, 1, 3, 300)));
            for sender in 0..count {
                for (to, others) in [(FAR, 0), (EVERYBODY, count - 1)] {
                    assert!(clients[sender].send(0, &frame(mac(sender as u64 + 1), to, 1, 4, 300), 1));
                    threads.settle(Time::ZERO);
                    let got: usize = clients.iter_mut().map(|client| client.receive().len()).sum();
                    assert_eq!((left(&comes), stays.take().len(), got), (0, 1, others), "{count} threads");
                }
            }
            let numbers = threads.switches.iter().flat_map(Switch::ports).map(|port| port.number);
            assert_eq!(numbers.collect::<Vec<_>>(), [0], "and the other is what it was");
        }
    }
}

#[test]
fn what_is_on_its_way_when_a_port_goes_teaches_nothing_behind_it() {
    let (mut threads, stays, mut clients) = world(2);
    let comes = Outside::default();
    // Of two threads the second has it.
    threads.attach_port(Time::ZERO, 1, port(&comes, None));
    comes.give(frame(FAR, mac(1), 1, 1, 300));
    comes.give(frame(mac(201), EVERYBODY, 1, 2, 300));
    // It goes over the trunk, with news of two stations, and waits there.
    assert!(threads.switches[1].step(Time::ZERO) > 0);
    assert_eq!(threads.detach_port(1), 1);
    // Another comes, to the same place in the switch.
    let next = Outside::default();
    threads.attach_port(Time::ZERO, 3, port(&next, None));
    threads.settle(Time::ZERO);
    assert_eq!(clients[0].receive().len(), 2, "they come all the same");
    assert_eq!((known(&threads, Time::ZERO), stays.take().len()), (0, 1));
    for sender in [1, 2] {
        assert!(clients[sender - 1].send(0, &frame(mac(sender as u64), FAR, 1, 3, 300), 1));
        threads.settle(Time::ZERO);
        assert_eq!((next.take().len(), stays.take().len(), comes.take().len()), (1, 1, 0), "it is looked for");
    }
}

#[test]
fn a_port_has_its_vlan_its_circuit_and_its_mirror_until_it_goes() {
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<usize>>);
    impl Mirror for Seen {
        fn copy(&mut self, _now: Time, _frame: &[u8]) -> bool {
            *self.0.lock().expect("nobody panicked") += 1;
            true
        }
    }
    let end = |far| Some(Circuit { number: 1, far });
    let stays = Outside::default();
    let mut threads = Threads::bridge(2, vec![port(&stays, None)]);
    let rules = |number| Rules { vlan: (number == 1).then_some(7), ..plain(number) };
    let mut clients = threads.attach_all(2, 1, rules);
    let comes = Outside::default();
    threads.attach_port(Time::ZERO, 1, port(&comes, Some(7)));
    comes.give(frame(FAR, EVERYBODY, 1, 1, 300));
    threads.settle(Time::ZERO);
    assert_eq!(clients[0].receive(), [frame(FAR, EVERYBODY, 1, 1, 300)], "it is of the same VLAN");
    assert_eq!((clients[1].receive()[0].len(), stays.take()[0].len()), (304, 304), "they get its tag");
    let seen = Seen::default();
    threads.switches[1].mirror(Party::Port(1), Box::new(seen.clone()));
    assert!(threads.connect(Party::Port(1), end(false)) && threads.connect(Party::Client(1), end(true)));
    assert!(clients[0].send(0, &frame(mac(1), mac(2), 1, 2, 300), 1));
    threads.settle(Time::ZERO);
    assert_eq!((comes.take().len(), clients[1].receive().len(), *seen.0.lock().expect("nobody panicked")), (1, 0, 1));
    assert_eq!(threads.detach_port(1), 1);
    assert_eq!(Arc::strong_count(&seen.0), 1, "nobody copies any more");
    // The other end is one of a circuit still, as where a client has left: what it sent to the port alone goes to nobody else.
    assert!(clients[0].send(0, &frame(mac(1), mac(2), 1, 3, 300), 1));
    threads.settle(Time::ZERO);
    let circuits: Vec<_> = threads.switches.iter().flat_map(Switch::circuits).collect();
    assert_eq!(circuits, [(Party::Client(1), Circuit { number: 1, far: true }, None)]);
    assert_eq!((comes.take().len(), clients[1].receive().len(), threads.counters(1).dropped_no_way), (0, 0, 1));
    // Whoever comes next to its place is in none of these.
    threads.attach_port(Time::ZERO, 3, port(&comes, None));
    comes.give(frame(FAR, EVERYBODY, 1, 4, 300));
    threads.settle(Time::ZERO);
    assert_eq!((clients[0].receive().len(), clients[1].receive().len(), stays.take().len()), (0, 1, 1));
}

#[test]
fn clients_lose_nothing_while_ports_come_and_go() {
    for count in [1, 3] {
        let (mut threads, _stays, mut clients) = world(count);
        let mut other = threads.attach(count - 1, Time::ZERO, 50, 1, plain(50));
        let (mut expected, mut there) = (0u64, None);
        for round in 0..200u64 {
            let now = Time::from_nanoseconds(round * 1000);
            assert!(clients[0].send(0, &frame(mac(1), mac(50), 1, round, 300), 1));
            match there.take() {
                None => {
                    let comes: Vec<Outside> = (0..2).map(|_| Outside::default()).collect();
                    comes[0].give(frame(FAR, mac(1), 1, round, 300));
                    threads.attach_port(now, round as usize + 1, port_of(&comes, None));
                    there = Some(round as usize + 1);
                }
                Some(number) => assert_eq!(threads.detach_port(number), 2),
            }
            threads.settle(now);
            for got in other.receive() {
                assert_eq!(got, frame(mac(1), mac(50), 1, expected, 300), "each once, and in order");
                expected += 1;
            }
        }
        assert_eq!(expected, 200);
    }
}

#[test]
fn places_of_ports_that_have_gone_are_taken_again() {
    let outside = Outside::default();
    let mut switch: Switch<KeptCore> = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let mut client = Client::attach(&mut switch, Time::ZERO, 1, 1, plain(1));
    assert_eq!(switch.detach_port(0).map(|queues| queues.len()), Some(1));
    assert!(client.send(0, &frame(mac(1), EVERYBODY, 1, 1, 300), 1));
    switch.step(Time::ZERO);
    for number in 1..100 {
        switch.attach_port(conic_nicd::switch::Parts::new(number, 1, 1), port(&outside, None));
        outside.give(frame(FAR, mac(1), 1, 1, 300));
        switch.step(Time::ZERO);
        let places: Vec<_> = switch.table().stations(Time::ZERO).into_iter().map(|(_, place)| place).collect();
        assert_eq!(places, [conic_nicd::switch::Place::Client(0), conic_nicd::switch::Place::Port(0)]);
        assert!(switch.detach_port(number).is_some());
    }
    assert_eq!((switch.ports().count(), outside.take().len(), client.receive().len()), (0, 0, 99));
}
