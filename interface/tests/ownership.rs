//! The NIC knows what it holds, whatever the host says of it; and how many buffers are in turn.

use std::collections::BTreeSet;

use conic_fabric::{Address, Core};
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::notify::{Notices, PACKETS};
use conic_interface::ccnic::{Descriptor, Features, Flags, Geometry, Host, Map, Nic, PhaseCredit, Wire, prepare};
use conic_native::{Memory, NativeCore, Pages};

const FEATURES: Features = Features { inline_payload: false, ..Features::best() };

fn map() -> Map {
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 0 };
    Map::new(geometry, FEATURES).expect("a geometry that can be")
}

fn with_pair(
    test: impl FnOnce(&Map, NativeCore<'_>, Host<NativeCore<'_>, PhaseCredit>, Nic<NativeCore<'_>, PhaseCredit>),
) {
    let map = map();
    let memory = Memory::create(&map.layout, Pages::Plain).expect("a region");
    let core = NativeCore::new(&memory);
    prepare(&core, &map);
    test(&map, core, Host::new(core, &map, 0), Nic::new(core, &map, 0));
}

fn poll(nic: &mut Nic<NativeCore<'_>, PhaseCredit>) -> Vec<Descriptor> {
    let mut out = [Descriptor::BLANK; 32];
    let count = nic.poll_tx(&mut out);
    out[..count].to_vec()
}

#[test]
fn a_buffer_that_is_sent_twice_arrives_once() {
    with_pair(|_, _, mut host, mut nic| {
        let mut at = [Address(0); 2];
        assert_eq!(host.buf_alloc(60, &mut at), 2);
        let [one, other] = at.map(|at| Descriptor::new(at, 60));
        assert_eq!(host.tx_burst(&[one, other, one, one]), 4);
        let polled = poll(&mut nic);
        assert_eq!(polled.iter().map(|packet| packet.address()).collect::<Vec<_>>(), at);
        assert_eq!(nic.faults().never_lent, 2);
        // While the NIC has it, or keeps it on its stack, it cannot be sent again.
        assert_eq!(host.tx_burst(&[one]), 1);
        assert_eq!(poll(&mut nic), []);
        nic.complete_tx(&polled);
        assert_eq!(host.tx_burst(&[other]), 1);
        assert_eq!(poll(&mut nic), []);
        assert_eq!((nic.faults().never_lent, nic.faults().total()), (4, 4));
    });
}

#[test]
fn a_buffer_that_comes_back_may_be_sent_again() {
    with_pair(|_, _, mut host, mut nic| {
        for round in 0..1000 {
            let mut at = [Address(0)];
            assert_eq!(host.buf_alloc(60, &mut at), 1, "round {round}");
            assert_eq!(host.tx_burst(&[Descriptor::new(at[0], 60)]), 1);
            let polled = poll(&mut nic);
            assert_eq!(polled.len(), 1);
            let to = nic.rx_alloc(60).expect("buffers are left");
            nic.complete_tx(&polled);
            assert_eq!(nic.rx_burst(&[Descriptor::new(to, 60)]), 1);
            let mut received = [Descriptor::BLANK; 4];
            assert_eq!(host.rx_burst(&mut received), 1);
            // Received, and sent on as it is.
            assert_eq!(host.tx_burst(&received[..1]), 1);
            let polled = poll(&mut nic);
            assert_eq!(polled.len(), 1);
            nic.complete_tx(&polled);
        }
        assert_eq!(nic.faults().total(), 0);
    });
}

#[test]
fn a_buffer_that_the_host_frees_without_having_it_is_not_handed_out_twice() {
    with_pair(|map, core, _host, mut nic| {
        let first = nic.rx_alloc(60).expect("a buffer");
        // The host says that every buffer is free.
        map.pool.fill(&core);
        let mut seen = vec![first];
        while let Some(at) = nic.rx_alloc(60) {
            assert!(!seen.contains(&at), "{at} was handed out twice");
            seen.push(at);
            map.pool.fill(&core);
        }
        // A host that goes on so may keep the NIC from finding the last ones; it is its own receive buffers that it hides.
        assert!((64..=128).contains(&seen.len()), "{} of 128", seen.len());
        assert!(nic.faults().never_lent > 0);
    });
}

#[test]
fn a_rest_and_a_call_meet() {
    let (map, notices) = Notices::in_map(map());
    let memory = Memory::create(&map.layout, Pages::Plain).expect("a region");
    let core = NativeCore::new(&memory);
    prepare(&core, &map);
    assert!(!notices.call_if_resting(&core, 0), "nobody rests");
    notices.rest(&core, 0, 1, 1);
    core.heavy_fence();
    assert!(notices.call_if_resting(&core, 0), "the first call kicks");
    assert!(!notices.call_if_resting(&core, 0), "the next one need not");
    assert_eq!((notices.calls(&core, 0), notices.calls(&core, 0)), (1, 0));
    // A call that the NIC did not answer, because it found the packet by itself, does not keep the next one from kicking.
    assert!(notices.call_if_resting(&core, 0));
    notices.rest(&core, 0, 0, 0);
    notices.rest(&core, 0, 1, 1);
    assert!(notices.call_if_resting(&core, 0), "a later rest is called anew");
    assert!(!notices.must_ring(&core, 0, PACKETS));
    notices.wish_for(&core, 0, PACKETS);
    assert_eq!((notices.must_ring(&core, 0, PACKETS), notices.must_ring(&core, 0, PACKETS)), (true, false));
}

/// Sends a burst of every kind of good packet with a bad one behind so many of them, to a NIC of its own: the good ones arrive, in
/// order, and one fault is counted.
fn send_among_good_ones(front: usize, bad: impl FnOnce(&[Descriptor; 8], Address) -> Descriptor) {
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 4096 };
    let map = Map::new(geometry, FEATURES).expect("a geometry that can be");
    let memory = Memory::create(&map.layout, Pages::Plain).expect("a region");
    let core = NativeCore::new(&memory);
    prepare(&core, &map);
    let mut host = Host::<_, PhaseCredit>::new(core, &map, 0);
    let mut nic = Nic::<_, PhaseCredit>::new(core, &map, 0);
    let (mut small, mut large) = ([Address(0); 4], [Address(0); 3]);
    assert_eq!((host.buf_alloc(60, &mut small), host.buf_alloc(1500, &mut large)), (4, 3));
    let object = map.pool.objects;
    let good = [
        Descriptor::new(small[0], 128),
        Descriptor::new(large[0] + 4000, 96),
        Descriptor::new(object, 4096).with(Flags::RETAIN),
        Descriptor::new(small[1] + 127, 1),
        Descriptor::new(small[2], 60).with(Flags::RETAIN),
        Descriptor::new(large[1], 60).with(Flags::NEXT),
        Descriptor::new(object + 4095, 1).with(Flags::RETAIN),
        Descriptor::new(large[2], 60),
    ];
    let bad = bad(&good, small[3]);
    let burst: Vec<Descriptor> = good[..front].iter().chain([&bad]).chain(&good[front..]).copied().collect();
    assert_eq!(host.tx_burst(&burst), burst.len());
    assert_eq!(poll(&mut nic), good, "{bad:?} behind {front}");
    assert_eq!(nic.faults().total(), 1, "{bad:?} behind {front}");
}

#[test]
fn what_is_bad_in_a_burst_costs_its_good_packets_nothing() {
    // None of them is in a chain: whatever is wrong with a segment is wrong with its packet.
    for front in [0, 1, 2, 3, 4, 5, 7, 8] {
        send_among_good_ones(front, |_, spare| Descriptor::new(spare, 129));
        send_among_good_ones(front, |_, spare| Descriptor::new(spare + 64, 65));
        send_among_good_ones(front, |_, spare| Descriptor::new(spare + 64, 0));
        send_among_good_ones(front, |good, _| Descriptor::new(good[2].address(), 60));
        send_among_good_ones(front, |good, _| Descriptor::new(good[6].address(), 2).with(Flags::RETAIN));
        send_among_good_ones(front, |good, _| Descriptor::new(good[6].address() + 1, 1).with(Flags::RETAIN));
        send_among_good_ones(front, |_, _| Descriptor::new(Address((1 << 40) - 64), 60));
    }
}

#[test]
fn a_buffer_is_sent_twice_by_whatever_address_in_it_and_whatever_packet() {
    for index in [0, 1, 3, 7] {
        send_among_good_ones(8, |good, _| Descriptor::new(Address(good[index].address().0 & !127), 1));
    }
    // As a segment of a packet of two it is refused likewise.
    send_among_good_ones(8, |good, _| good[5].without(Flags::NEXT));
}

#[test]
fn a_buffer_that_the_host_keeps_is_not_the_nics_and_may_be_given_to_it_later() {
    with_pair(|_, _, mut host, mut nic| {
        let mut at = [Address(0)];
        assert_eq!(host.buf_alloc(60, &mut at), 1);
        let kept = Descriptor::new(at[0], 60).with(Flags::RETAIN);
        for _ in 0..3 {
            assert_eq!(host.tx_burst(&[kept]), 1);
            assert_eq!(poll(&mut nic), [kept]);
            nic.complete_tx(&[kept]);
        }
        assert_eq!(host.tx_burst(&[kept.without(Flags::RETAIN)]), 1);
        assert_eq!(poll(&mut nic), [kept.without(Flags::RETAIN)]);
        assert_eq!(nic.faults().total(), 0);
    });
}

/// How many buffers a host's two halves receive one packet into that goes there and back, in the ring's lines.
fn in_turn(only_sends: bool) -> usize {
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [0, 4096, 0], object_bytes: 0 };
    let map = Map::new(geometry, Features::best()).expect("a geometry that can be");
    let memory = Memory::create(&map.layout, Pages::Plain).expect("a region");
    let core = NativeCore::new(&memory);
    prepare(&core, &map);
    let mut sender = Host::<_, PhaseCredit>::new(core, &map, 0);
    let mut receiver = Host::<_, PhaseCredit>::new(core, &map, 0);
    if only_sends {
        sender.only_sends();
    }
    let mut wire = Wire::new(Nic::<_, PhaseCredit>::new(core, &map, 0));
    let mut at = [Address(0)];
    assert_eq!(receiver.buf_alloc(64, &mut at), 1);
    let mut packets = [Descriptor::new(at[0], 64); 4];
    let mut seen = BTreeSet::new();
    for _ in 0..4096 {
        assert_eq!(sender.tx_burst(&packets[..1]), 1);
        assert_eq!(wire.turn_around(), 1);
        assert_eq!(receiver.rx_burst(&mut packets), 1);
        seen.insert(packets[0].address());
    }
    seen.len()
}

#[test]
fn few_buffers_are_in_turn_between_a_half_that_sends_and_one_that_receives() {
    // What the receiver takes from the pool at once, and what the sender keeps; a whole stack is 256.
    assert!(in_turn(true) <= 64, "{} buffers", in_turn(true));
    assert!(in_turn(false) > 256);
}
