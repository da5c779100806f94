//! A network of several threads is one network: each has a switch of its own, and what they do together is what one would do.

use std::sync::{Arc, Mutex};

use crate::support::clients::{Client, EVERYBODY, Outside, frame, mac, plain, port};
use crate::support::threads::Threads;
use conic_fabric::{Address, Core, Time};
use conic_interface::ccnic::{Descriptor, Flags};
use conic_interface::metadata::{Begun, Metadata};
use conic_nicd::switch::{Circuit, Mirror, Offloads, Party, Pin, Ring, Rules, Station, SwitchOptions};
use conic_port::offload::checksum::{Verdict, fill, verify};

fn bridge(count: usize, ports: &[&Outside]) -> Threads {
    Threads::bridge(count, ports.iter().map(|outside| port(outside, None)).collect())
}

#[test]
fn a_frame_for_everybody_reaches_each_once_whatever_thread_it_comes_from() {
    let outside: [Outside; 3] = Default::default();
    let mut threads = bridge(3, &outside.each_ref());
    let mut clients = threads.attach_all(6, 2, plain);
    for number in 0..6 {
        let sent = frame(mac(number + 1), EVERYBODY, 1, number, 60 + 900 * number as usize);
        assert!(clients[number as usize].send(0, &sent, 1 + number as usize % 2));
        threads.settle(Time::ZERO);
        for (index, client) in clients.iter_mut().enumerate() {
            let expected = if index as u64 == number { vec![] } else { vec![sent.clone()] };
            assert_eq!(client.receive(), expected, "from {number}, to {index}");
        }
        outside.iter().for_each(|one| assert_eq!(one.take(), std::slice::from_ref(&sent)));
    }
    for (number, from) in outside.iter().enumerate() {
        let sent = frame(mac(200), EVERYBODY, 1, 1, 700);
        from.give(sent.clone());
        threads.settle(Time::ZERO);
        clients.iter_mut().for_each(|client| assert_eq!(client.receive(), std::slice::from_ref(&sent)));
        for (index, one) in outside.iter().enumerate() {
            assert_eq!(one.take().len(), usize::from(index != number), "from port {number} to port {index}");
        }
    }
}

#[test]
fn a_station_behind_a_port_of_one_thread_is_known_to_all() {
    let outside: [Outside; 3] = Default::default();
    let mut threads = bridge(3, &outside.each_ref());
    let mut clients = threads.attach_all(3, 2, plain);
    // It speaks to a client of its own thread alone, and the others are told.
    outside[0].give(frame(mac(200), mac(1), 1, 1, 100));
    threads.settle(Time::ZERO);
    let sent = frame(mac(2), mac(200), 1, 2, 100);
    assert!(clients[1].send(0, &sent, 1));
    threads.settle(Time::ZERO);
    let gone = |outside: &[Outside; 3]| outside.each_ref().map(Outside::take);
    assert_eq!(gone(&outside), [vec![sent], vec![], vec![]]);
    assert_eq!((threads.trunk(1, 0).sent_frames, threads.trunk(1, 2).sent_frames), (1, 0));
    // It moves, to a port of another thread, and again speaks to one there alone.
    outside[2].give(frame(mac(200), mac(3), 1, 3, 100));
    threads.settle(Time::ZERO);
    let sent = frame(mac(1), mac(200), 1, 4, 9600);
    assert!(clients[0].send(0, &sent, 1));
    threads.settle(Time::ZERO);
    assert_eq!(gone(&outside), [vec![], vec![], vec![sent]]);
}

/// A virtual bridge or a router is one: it may send from addresses that are not its own.
#[test]
fn stations_behind_a_client_that_leaves_are_asked_for_again() {
    let outside: [Outside; 1] = Default::default();
    let mut threads = bridge(2, &outside.each_ref());
    let mut clients = threads.attach_all(4, 1, |number| Rules { own_address_only: number != 2, ..plain(number) });
    // Beside its own.
    assert!(clients[1].send(0, &frame(mac(200), mac(1), 1, 1, 100), 1));
    threads.settle(Time::ZERO);
    let sent = frame(mac(1), mac(200), 1, 2, 100);
    // Who leaves beside it, and has nobody behind it, changes nothing.
    assert!(threads.detach(4).is_some());
    assert!(clients[0].send(0, &sent, 1));
    threads.settle(Time::ZERO);
    assert_eq!((clients[1].receive(), outside[0].take().len()), (vec![sent.clone()], 0));
    assert!(threads.detach(2).is_some());
    // It is behind the port now, and has said nothing yet.
    assert!(clients[0].send(0, &sent, 1));
    threads.settle(Time::ZERO);
    assert_eq!(outside[0].take(), [sent]);
}

#[test]
fn who_was_forgotten_is_asked_for_once() {
    let outside: [Outside; 2] = Default::default();
    let mut threads = bridge(3, &outside.each_ref());
    let mut clients = threads.attach_all(3, 2, plain);
    outside[0].give(frame(mac(200), EVERYBODY, 1, 1, 100));
    threads.settle(Time::ZERO);
    // Thread 0 hears of it again, the others do not.
    let late = Time::from_nanoseconds(200_000_000_000);
    outside[0].give(frame(mac(200), mac(1), 1, 2, 100));
    threads.settle(late);
    let later = late + Time::from_nanoseconds(150_000_000_000);
    let known = |threads: &Threads| {
        let station = Station::new(mac(200), 0);
        threads.switches.iter().map(|switch| switch.table().find(later, station).is_some()).collect::<Vec<_>>()
    };
    assert_eq!(known(&threads), [true, false, false]);
    outside.iter().for_each(|one| drop(one.take()));
    for number in 3..6 {
        assert!(clients[1].send(0, &frame(mac(2), mac(200), 1, number, 100), 1));
        threads.settle(later);
    }
    assert_eq!((outside[0].take().len(), threads.trunk(1, 2).sent_frames), (3, 1));
    assert_eq!(known(&threads), [true, true, false]);
    // The one that was asked as well has no port but its own, where the station may be.
    assert!(outside[1].take().len() <= 1 && clients[2].receive().len() <= 2);
}

#[test]
fn what_everybody_is_asked_for_is_missed_by_no_thread_that_knows_who_else_has_it() {
    let outside: [Outside; 1] = Default::default();
    let mut threads = bridge(3, &outside.each_ref());
    let mut clients = threads.attach_all(3, 2, plain);
    outside[0].give(frame(mac(200), EVERYBODY, 1, 1, 100));
    threads.settle(Time::ZERO);
    // Threads 0 and 2 hear of it again, thread 1 does not.
    let late = Time::from_nanoseconds(200_000_000_000);
    outside[0].give(frame(mac(200), mac(3), 1, 2, 100));
    threads.settle(late);
    assert_eq!(clients[2].receive().len(), 2);
    let later = late + Time::from_nanoseconds(150_000_000_000);
    let sent = frame(mac(2), mac(200), 1, 3, 100);
    assert!(clients[1].send(0, &sent, 1));
    threads.settle(later);
    assert_eq!((outside[0].take(), clients[2].receive()), (vec![sent], vec![]));
    let (asked, lost) = (threads.trunk(1, 2).sent_frames, threads.trunk(2, 1).dropped_no_way);
    assert_eq!((asked, lost), (1, 0), "thread 2 was asked, and what it left to thread 0 is not lost");
}

#[test]
fn a_client_has_its_address_on_every_thread() {
    let outside = Outside::default();
    let mut threads = bridge(2, &[&outside]);
    let mut clients = threads.attach_all(3, 2, |number| Rules { own_address_only: number != 2, ..plain(number) });
    // One that may send from any address, on the other thread.
    assert!(clients[1].send(0, &frame(mac(1), mac(3), 1, 1, 100), 1));
    threads.settle(Time::ZERO);
    assert_eq!(clients[2].receive().len(), 1);
    let sent = frame(mac(3), mac(1), 1, 2, 100);
    outside.give(sent.clone());
    assert!(clients[2].send(0, &sent, 1));
    threads.settle(Time::ZERO);
    assert_eq!((clients[0].receive(), clients[1].receive()), (vec![sent.clone(), sent], vec![]));
    // One that may not is stopped where it is.
    assert!(clients[2].send(0, &frame(mac(1), mac(2), 1, 3, 100), 1));
    threads.settle(Time::ZERO);
    assert_eq!((clients[1].receive().len(), threads.counters(3).dropped_spoofed), (0, 1));
    // Who is gone is forgotten everywhere, and what is for it asks everybody who may have it.
    assert!(threads.detach(1).is_some());
    assert!(clients[1].send(0, &frame(mac(2), mac(1), 1, 4, 100), 1));
    threads.settle(Time::ZERO);
    assert_eq!((clients[2].receive().len(), outside.take().len()), (0, 1));
}

#[test]
fn a_frame_keeps_its_vlan_from_thread_to_thread() {
    let outside: [Outside; 2] = Default::default();
    // Port 0 is a member of VLAN 7, port 1 passes tags.
    let ports = vec![port(&outside[0], Some(7)), port(&outside[1], None)];
    let mut threads = Threads::bridge(2, ports);
    let vlan = |number| [Some(7), Some(7), Some(8), None][number as usize - 1];
    let mut clients = threads.attach_all(4, 2, |number| Rules { vlan: vlan(number), ..plain(number) });
    let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    // Client 1 on thread 0, to everybody: 2 is of its VLAN on thread 1, 3 is not, 4 sees tags.
    for length in [60, 300, 9000] {
        let sent = frame(mac(1), EVERYBODY, 1, 1, length);
        assert!(clients[0].send(0, &sent, 1));
        threads.settle(Time::ZERO);
        assert_eq!((clients[1].receive(), clients[2].receive()), (vec![sent.clone()], vec![]));
        assert_eq!(clients[3].receive(), [tagged(&sent)]);
        assert_eq!((outside[0].take(), outside[1].take()), (vec![sent.clone()], vec![tagged(&sent)]));
    }
    // To one, with its tag taken out on the other side.
    let sent = frame(mac(4), mac(1), 1, 2, 500);
    assert!(clients[3].send(0, &tagged(&sent), 1));
    threads.settle(Time::ZERO);
    assert_eq!(clients[0].receive(), [sent]);
    // And nobody else gets it, though it is the VLAN of some.
    assert_eq!([1, 2].map(|other: usize| clients[other].receive().len()), [0, 0]);
    assert_eq!(outside.each_ref().map(|one| one.take().len()), [0, 0]);
    // Of another VLAN, to nobody.
    assert!(clients[2].send(0, &frame(mac(3), mac(2), 1, 3, 100), 1));
    threads.settle(Time::ZERO);
    assert_eq!(clients[1].receive(), [[0; 0]; 0]);
}

#[test]
fn a_pinned_flow_reaches_its_client_on_another_thread() {
    let outside = Outside::default();
    let mut threads = bridge(3, &[&outside]);
    let mut clients = threads.attach_all(6, 2, plain);
    let pin = |queue| Pin { pattern: "protocol=udp,source-port=80".parse().expect("a pattern"), queue };
    // 5 on thread 1 has it, and 3 on thread 2 where 5 sends it: it came first.
    assert!(threads.pin(5, &pin(Some(1))) && threads.pin(6, &pin(None)));
    let sent = frame(mac(1), mac(4), 80, 1, 100);
    assert!(clients[0].send(0, &sent, 1));
    outside.give(sent.clone());
    threads.settle(Time::ZERO);
    let mut packets = [Descriptor::BLANK; 4];
    assert_eq!(clients[4].hosts[0].rx_burst(&mut packets), 0, "the pin names queue 1");
    assert_eq!((clients[4].receive(), clients[3].receive()), (vec![sent.clone(), sent], vec![]));
    let own = frame(mac(5), mac(4), 80, 2, 100);
    assert!(clients[4].send(0, &own, 1));
    threads.settle(Time::ZERO);
    assert_eq!((clients[5].receive(), clients[3].receive()), (vec![own], vec![]));
    // Others go where they are addressed, and so do all when the pins are gone.
    let other = frame(mac(1), mac(5), 81, 3, 100);
    assert!(clients[0].send(0, &other, 1));
    threads.settle(Time::ZERO);
    assert_eq!(clients[4].receive(), [other]);
    assert!(threads.switches.iter_mut().all(|switch| switch.unpin(5) && switch.unpin(6)));
    assert!(clients[0].send(0, &frame(mac(1), mac(4), 80, 4, 100), 1));
    threads.settle(Time::ZERO);
    assert_eq!((clients[3].receive().len(), clients[4].receive().len()), (1, 0));
}

#[test]
fn a_pinned_flow_reaches_its_queue_on_another_thread_whoever_else_gets_it() {
    let outside = Outside::default();
    let mut threads = bridge(2, &[&outside]);
    let mut clients = threads.attach_all(2, 2, plain);
    for (queue, to) in [(0, EVERYBODY), (1, EVERYBODY), (0, mac(2)), (1, mac(2))] {
        let pattern = "protocol=udp,source-port=80".parse().expect("a pattern");
        assert!(threads.pin(2, &Pin { pattern, queue: Some(queue) }));
        let sent = frame(mac(1), to, 80, u64::from(queue), 300);
        assert!(clients[0].send(0, &sent, 1));
        outside.give(sent);
        threads.settle(Time::ZERO);
        let mut packets = [Descriptor::BLANK; 4];
        let counts = [0, 1].map(|queue| clients[1].hosts[queue].rx_burst(&mut packets));
        let expected = if queue == 0 { [2, 0] } else { [0, 2] };
        assert_eq!(counts, expected, "pinned to queue {queue}, sent to {to:?}");
        assert!(threads.switches.iter_mut().all(|switch| switch.unpin(2)));
    }
}

#[test]
fn a_circuit_joins_two_of_different_threads() {
    let outside: [Outside; 2] = Default::default();
    let mut threads = bridge(2, &outside.each_ref());
    let mut clients = threads.attach_all(3, 2, plain);
    let end = |number, far| Some(Circuit { number, far });
    assert!(threads.connect(Party::Client(1), end(9, false)) && threads.connect(Party::Client(2), end(9, true)));
    assert!(threads.connect(Party::Client(3), end(10, false)) && threads.connect(Party::Port(1), end(10, true)));
    // Whatever it is addressed to, tags and all.
    let tagged = [&frame(mac(1), mac(3), 1, 1, 400)[..12], &[0x81, 0, 0, 7, 8, 0], &[5; 100]].concat();
    assert!(clients[0].send(0, &tagged, 1));
    let back = frame(mac(2), EVERYBODY, 1, 2, 80);
    assert!(clients[1].send(0, &back, 1));
    let out = frame(mac(3), mac(1), 1, 3, 1500);
    assert!(clients[2].send(0, &out, 1));
    let into = frame(mac(200), mac(2), 1, 4, 9600);
    outside[1].give(into.clone());
    threads.settle(Time::ZERO);
    assert_eq!((clients[0].receive(), clients[1].receive()), (vec![back], vec![tagged]));
    assert_eq!((clients[2].receive(), outside[1].take(), outside[0].take()), (vec![into], vec![out], vec![]));
    let circuits: Vec<_> = threads.switches.iter().flat_map(|switch| switch.circuits()).collect();
    assert!(circuits.contains(&(Party::Client(1), Circuit { number: 9, far: false }, Some(Party::Client(2)))));
    assert!(circuits.contains(&(Party::Port(1), Circuit { number: 10, far: true }, Some(Party::Client(3)))));
    assert_eq!(circuits.len(), 4, "each end is told of once");
    // Nobody else reaches them, nor they when the other end is gone.
    outside[0].give(frame(mac(201), mac(1), 1, 5, 100));
    outside[0].give(frame(mac(201), EVERYBODY, 1, 6, 100));
    assert!(threads.detach(2).is_some());
    assert!(clients[0].send(0, &frame(mac(1), mac(2), 1, 7, 100), 1));
    threads.settle(Time::ZERO);
    assert_eq!((clients[0].receive().len(), threads.counters(1).dropped_no_way), (0, 1));
    assert!(threads.connect(Party::Client(1), None) && threads.connect(Party::Client(3), None));
    outside[0].give(frame(mac(201), mac(1), 1, 8, 100));
    threads.settle(Time::ZERO);
    assert_eq!(clients[0].receive().len(), 1);
}

/// A TCP packet of client 1 to somebody, with so many bytes of payload and a checksum that is begun.
fn unfinished(to: [u8; 6], payload: usize) -> Vec<u8> {
    let mut packet = [&to[..], &mac(1), &[8, 0, 0x45, 0]].concat();
    packet.extend((40 + payload as u16).to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0]);
    // The pseudo-header: addresses, protocol, length.
    let sum = 2 * 0x0a00 + 1 + 2 + 6 + 20 + payload as u32;
    packet.extend(((sum & 0xffff) as u16 + (sum >> 16) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend((0..payload).map(|at| (at * 7 + at / 256) as u8));
    packet
}

#[test]
fn what_one_client_gets_from_another_thread_is_finished_and_said_as_it_wants() {
    let mut threads = bridge(2, &[]);
    let requests = Offloads { requests: true, ..Offloads::default() };
    let offloads =
        |number| [requests, Offloads::default(), requests, Offloads { verify: true, ..requests }][number - 1];
    let mut clients = threads.attach_all(4, 2, |number| Rules { offloads: offloads(number as usize), ..plain(number) });
    let begun = Metadata::NONE.with_begun(Begun { start: 34, offset: 16 }).with(Metadata::NETWORK);
    // Client 2 wants frames, client 4 wants to know what they are worth; both are on the other thread.
    for taker in [1, 3] {
        let sent = unfinished(clients[taker].mac, 100);
        let mut at = [Address(0)];
        assert_eq!(clients[0].hosts[0].buf_alloc(sent.len() as u64, &mut at), 1);
        clients[0].core.write_bytes(at[0], &sent);
        let packet = Descriptor::new(at[0], sent.len() as u16).with_metadata(begun.0);
        assert_eq!(clients[0].hosts[0].tx_burst(&[packet]), 1);
        threads.settle(Time::ZERO);
        let mut packets = [Descriptor::BLANK; 1];
        let client = &mut clients[taker];
        assert_eq!(client.hosts.iter_mut().map(|host| host.rx_burst(&mut packets)).sum::<usize>(), 1);
        let mut frame = vec![0; usize::from(packets[0].length())];
        client.core.read_bytes(packets[0].address(), &mut frame);
        assert_eq!((verify(&frame).network, verify(&frame).transport), (Verdict::Good, Verdict::Good));
        let is_said = Metadata(packets[0].metadata).has(Metadata::TRANSPORT_GOOD);
        assert_eq!((&frame[54..], is_said), (&sent[54..], taker == 3), "client {}", taker + 1);
    }
    // The same of a frame that is finished.
    let mut sent = frame(mac(1), mac(4), 1, 1, 100);
    fill(&mut sent);
    assert!(clients[0].send(0, &sent, 1));
    threads.settle(Time::ZERO);
    let mut packets = [Descriptor::BLANK; 1];
    assert_eq!(clients[3].hosts.iter_mut().map(|host| host.rx_burst(&mut packets)).sum::<usize>(), 1);
    assert!(Metadata(packets[0].metadata).has(Metadata::TRANSPORT_GOOD), "it was looked at");
}

#[test]
fn what_is_on_its_way_to_somebody_who_goes_is_counted() {
    let mut threads = bridge(2, &[]);
    let mut clients = threads.attach_all(4, 2, plain);
    let end = |far| Some(Circuit { number: 9, far });
    assert!(threads.connect(Party::Client(1), end(false)) && threads.connect(Party::Client(2), end(true)));
    // By a circuit, and by an address.
    assert!(clients[0].send(0, &frame(mac(1), mac(2), 1, 1, 100), 1));
    assert!(clients[2].send(0, &frame(mac(3), mac(4), 1, 2, 100), 1));
    threads.answer_calls();
    assert_eq!(threads.switches[0].step(Time::ZERO), 2);
    assert!(threads.detach(2).is_some() && threads.detach(4).is_some());
    threads.settle(Time::ZERO);
    let (sent, got) = (threads.trunk(0, 1), threads.trunk(1, 0));
    assert_eq!((sent.sent_frames, got.received_frames, got.dropped_no_way), (2, 2, 2));
}

#[test]
fn unfinished_packets_cross_as_they_are_and_are_finished_for_who_wants_that() {
    let mut threads = bridge(2, &[]);
    let requests = Offloads { requests: true, ..Offloads::default() };
    let offloads = |number| [requests, requests, Offloads { unfinished: true, verify: true, ..requests }][number - 1];
    let mut clients = threads.attach_all(3, 2, |number| Rules { offloads: offloads(number as usize), ..plain(number) });
    // One more that takes them unfinished, on the other thread.
    let all = Rules { offloads: offloads(3), ..plain(4) };
    clients.push(threads.attach(1, Time::ZERO, 4, 1, all));
    let payload: usize = 20_000;
    let packet = unfinished(EVERYBODY, payload);
    let begun = Metadata::NONE.with_begun(Begun { start: 34, offset: 16 });
    let request = begun.with(Metadata::NETWORK).with_large(1448);
    let mut pieces = Vec::new();
    for part in packet.chunks(8192) {
        let mut at = [Address(0)];
        assert_eq!(clients[0].hosts[0].buf_alloc(part.len() as u64, &mut at), 1);
        clients[0].core.write_bytes(at[0], part);
        pieces.push(Descriptor::new(at[0], part.len() as u16).with(Flags::NEXT).with_metadata(request.0));
    }
    let last = pieces.len() - 1;
    pieces[last] = pieces[last].without(Flags::NEXT);
    assert_eq!(clients[0].hosts[0].tx_burst(&pieces), pieces.len());
    threads.settle(Time::ZERO);
    assert_eq!(threads.trunk(0, 1).sent_frames, 1, "once, whoever gets it there");
    // Client 2 is on the other thread and wants frames.
    let frames = clients[1].receive();
    assert_eq!(frames.len(), payload.div_ceil(1448));
    for frame in &frames {
        assert_eq!((verify(frame).transport, verify(frame).network), (Verdict::Good, Verdict::Good));
    }
    let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame[54..].to_vec()).collect();
    assert_eq!(bytes, packet[54..]);
    // Of those that take it as it is, one on each thread.
    for taker in [2, 3] {
        let got = clients[taker].receive().concat();
        assert_eq!((got.len(), &got[54..]), (packet.len(), &packet[54..]), "client {}", taker + 1);
    }
}

#[test]
fn a_full_way_loses_frames_by_count_and_never_their_order() {
    let mut threads = bridge(2, &[]);
    let mut clients = threads.attach_all(2, 2, plain);
    let mut numbers = Vec::new();
    let mut sent = 0;
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..400 {
        for _ in 0..20 {
            let length = if random.u8(..8) == 0 { 9600 } else { random.usize(60..600) };
            sent += u64::from(clients[0].send(0, &frame(mac(1), mac(2), 1, sent, length), 1));
        }
        // The other thread is late.
        for thread in 0..if round % 5 == 0 { 2 } else { 1 } {
            threads.switches[thread].step(Time::ZERO);
        }
        numbers
            .extend(clients[1].receive().iter().map(|frame| u64::from_be_bytes(frame[42..50].try_into().expect("8"))));
    }
    threads.settle(Time::ZERO);
    numbers.extend(clients[1].receive().iter().map(|frame| u64::from_be_bytes(frame[42..50].try_into().expect("8"))));
    let (way, here) = (threads.trunk(0, 1), threads.counters(2));
    assert!(numbers.is_sorted_by(|a, b| a < b), "each once, in order");
    assert!(way.dropped_full > 100 && numbers.len() > 100, "{way:?}");
    let lost = way.dropped_full + here.dropped_full + here.dropped_no_buffer;
    assert_eq!(numbers.len() as u64 + lost, threads.counters(1).sent_frames);
    assert_eq!(threads.trunk(1, 0).received_frames, way.sent_frames);
}

#[test]
fn what_lies_behind_a_short_frame_is_of_no_other_frame() {
    let outside = Outside::default();
    let options = SwitchOptions::default();
    let mut threads = Threads::new(2, 64, &options, vec![port(&outside, None)]);
    let mut clients = threads.attach_all(2, 2, plain);
    // Over the whole of the way, each line full of what is somebody else's.
    for _ in 0..8 {
        let mut secret = frame(mac(200), mac(2), 1, 1, 1472);
        secret[42..].fill(0xff);
        outside.give(secret);
        threads.settle(Time::ZERO);
    }
    assert_eq!(clients[1].receive().len(), 8);
    for length in [61, 63, 65, 127] {
        for number in 0..20 {
            outside.give(frame(mac(200), mac(2), 1, number, length));
            threads.settle(Time::ZERO);
            let mut packets = [Descriptor::BLANK; 1];
            let client = &mut clients[1];
            let received: usize = client.hosts.iter_mut().map(|host| host.rx_burst(&mut packets)).sum();
            assert_eq!(received, 1);
            let at = packets[0].address();
            let mut behind = vec![0; length.next_multiple_of(64) - length];
            client.core.read_bytes(at + length as u64, &mut behind);
            assert!(!behind.contains(&0xff), "frame {number} of {length} bytes: {behind:?}");
            client.hosts[0].buf_free(&[at]);
        }
    }
}

/// Keeps each copy.
struct Copies(Arc<Mutex<Vec<Vec<u8>>>>);

impl Mirror for Copies {
    fn copy(&mut self, _now: Time, frame: &[u8]) -> bool {
        self.0.lock().expect("nobody panicked").push(frame.to_vec());
        true
    }
}

#[test]
fn a_mirror_sees_what_comes_from_another_thread() {
    let mut threads = bridge(2, &[]);
    let mut clients = threads.attach_all(2, 2, plain);
    let copies = Arc::new(Mutex::new(Vec::new()));
    threads.switches[1].mirror(Party::Client(2), Box::new(Copies(Arc::clone(&copies))));
    let (sent, back) = (frame(mac(1), mac(2), 1, 1, 300), frame(mac(2), mac(1), 1, 2, 400));
    assert!(clients[0].send(0, &sent, 1) && clients[1].send(0, &back, 1));
    threads.settle(Time::ZERO);
    assert_eq!((clients[1].receive(), clients[0].receive()), (vec![sent.clone()], vec![back.clone()]));
    let mut seen = copies.lock().expect("nobody panicked").clone();
    seen.sort_by_key(Vec::len);
    assert_eq!(seen, [sent, back]);
}

#[test]
fn a_thread_that_sleeps_is_rung_once() {
    let mut threads = bridge(2, &[]);
    let mut clients = threads.attach_all(3, 2, plain);
    let mut rings = Vec::new();
    let mut send = |threads: &mut Threads, clients: &mut Vec<Client>, to| {
        assert!(clients[0].send(0, &frame(mac(1), mac(to), 1, 1, 100), 1));
        threads.switches[0].step(Time::ZERO);
        rings.clear();
        threads.switches[0].take_rings(&mut rings);
        rings.clone()
    };
    assert_eq!(send(&mut threads, &mut clients, 2), [], "it is awake");
    // It is about to sleep, and finds that.
    threads.switches[1].arm();
    assert_eq!(threads.switches[1].step(Time::ZERO), 1);
    assert_eq!(send(&mut threads, &mut clients, 2), [], "it did not sleep");
    threads.switches[1].step(Time::ZERO);
    threads.switches[1].arm();
    assert_eq!(threads.switches[1].step(Time::ZERO), 0);
    assert_eq!(send(&mut threads, &mut clients, 3), [], "it is for a client of the first");
    assert_eq!(send(&mut threads, &mut clients, 2), [Ring::Thread(1)]);
    assert_eq!(send(&mut threads, &mut clients, 2), [], "it has been rung");
    threads.settle(Time::ZERO);
    assert_eq!((clients[1].receive().len(), clients[2].receive().len()), (4, 1));
}
