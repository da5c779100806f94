//! Calls at their limits: full rings, dry pools, empty slices, packets that fit nowhere.

use conic_check::CrashMemory;
use conic_fabric::{Address, Core};
use conic_interface::ccnic::{
    Consumer, Descriptor, Features, Flags, Geometry, Headroom, Host, Map, Nic, Packing, PhaseCredit, Producer, Signal,
    prepare,
};
use conic_interface::with_policy;

use crate::common::*;
use crate::erased::{host, nic};
use crate::guard::{Guard, Side};

#[test]
fn a_chain_is_received_whole_wherever_the_room_ends() {
    for features in all_features() {
        for singles in 0..8 {
            for segments in 2..=4 {
                let mut pair = Pair::new(features, geometry(64, [64, 256, 4], 0));
                let mut burst = Vec::new();
                for sequence in 0..singles + segments {
                    burst.push(packet(&mut *pair.host, sequence, 64).expect("a full pool"));
                }
                for segment in &mut burst[singles as usize..(singles + segments - 1) as usize] {
                    *segment = segment.with(Flags::NEXT);
                }
                assert_eq!(pair.host.tx_burst(&burst), burst.len(), "{features}");
                let mut expected = 0;
                let mut out = [Descriptor::BLANK; 8];
                for _ in 0..8 {
                    let count = pair.nic.poll_tx(&mut out);
                    for segment in &out[..count] {
                        assert_eq!(segment.metadata, !expected, "{features}: after {singles} singles");
                        expected += 1;
                    }
                    assert!(count == 0 || !out[count - 1].has(Flags::NEXT), "{features}: a chain was cut");
                    pair.nic.complete_tx(&out[..count]);
                }
                assert_eq!(expected, singles + segments, "{features}: after {singles} singles");
                assert_eq!(pair.nic.faults().total(), 0, "{features}");
            }
        }
    }
}

#[test]
fn receiving_into_nothing_loses_nothing() {
    for features in all_features() {
        let (mut client, mut wire) = Pair::new(features, geometry(16, [64, 64, 4], 0)).wire();
        for sequence in 0..2 {
            assert!(client.send(sequence, 64), "{features}");
            wire.turn_around();
        }
        for _ in 0..5 {
            assert_eq!(client.host.rx_burst(&mut []), 0, "{features}");
        }
        assert_eq!(client.receive(0, 64), 2, "{features}");
    }
}

#[test]
fn a_payload_in_the_ring_never_waits_for_the_buffers_behind_it() {
    // The payload's own buffer is free again when it has been written into the ring, and goes into a packet behind it, as all others do.
    for features in all_features() {
        for buffers in [[0, 2, 0], [0, 8, 0], [4, 8, 0], [8, 8, 0], [0, 16, 0], [16, 16, 0], [0, 0, 8]] {
            let mut pair = Pair::new(features, geometry(64, buffers, 0));
            let mut sent = 0;
            while let Some(short) = packet(&mut *pair.host, sent, if sent == 0 { 40 } else { 1500 }) {
                sent += pair.host.tx_burst(&[short]) as u64;
            }
            let mut out = [Descriptor::BLANK; 64];
            let mut received = 0;
            for _ in 0..64 {
                // The NIC's own buffers go to the peer only when all have come.
                received += pair.nic.poll_tx(&mut out[received..]);
            }
            assert_eq!(received as u64, sent, "{features}: {buffers:?}");
        }
    }
}

#[test]
fn a_packet_that_no_longer_fits_inline_goes_in_a_buffer() {
    // A ring of one line holds no payload of two; and the last free line of a longer ring holds none either.
    for descriptors in [4, 8, 16] {
        let (mut client, mut wire) = Pair::new(Features::best(), geometry(descriptors, [64, 64, 4], 0)).wire();
        let mut sequence = 0;
        for first in [0, 1, 2, 3] {
            // Leave `first` packets of one line waiting, so that the two-line ones end at every place of the ring.
            for _ in 0..first {
                client.send(sequence, 16);
                wire.turn_around();
                sequence += client.receive(sequence, 16);
            }
            let start = sequence;
            for _ in 0..6 {
                if client.send(sequence, 100) {
                    sequence += 1;
                }
                wire.turn_around();
            }
            assert!(sequence > start, "nothing went through a ring of {descriptors}");
            let mut received = 0;
            for _ in 0..8 {
                received += client.receive(start + received, 100);
                wire.turn_around();
            }
            assert_eq!((received, wire.dropped()), (sequence - start, 0));
        }
    }
}

#[test]
fn a_host_that_manages_the_pool_alone_sends_on_without_being_asked_to_reclaim() {
    for features in all_features().into_iter().filter(|features| !features.shared_pool) {
        let (mut client, mut wire) = Pair::new(features, geometry(16, [512, 512, 4], 0)).wire();
        for sequence in 0..200 {
            // The buffer is there before the ring has room, and never allocated again: as a burst that waits.
            let waiting = packet(&mut *client.host, sequence, 64).expect("a pool larger than the ring");
            let mut rounds = 0;
            while client.host.tx_burst(&[waiting]) == 0 {
                wire.turn_around();
                client.receive(sequence, 64);
                rounds += 1;
                assert!(rounds < 10, "{features}: packet {sequence} never goes");
            }
            wire.turn_around();
            assert_eq!(client.receive(sequence, 64), 1, "{features}");
        }
    }
}

#[test]
fn a_host_that_manages_the_pool_alone_takes_sent_buffers_back_32_at_a_time() {
    // Without a stack, what the pool lacks is in a ring or was taken out in a batch.
    let features = Features { shared_pool: false, recycling: false, ..Features::paper() };
    let map = Map::new(geometry(256, [1024, 1024, 4], 0), features).expect("a geometry that can be");
    let pool = map.pool;
    let (mut client, mut wire) = Pair::of(map).wire();
    let (mut before, mut batches) = (pool.free(client.host.core())[0], 0);
    for sequence in 0..2000 {
        assert!(client.send(sequence, 64));
        wire.turn_around();
        assert_eq!(client.receive(sequence, 64), 1);
        let free = pool.free(client.host.core())[0];
        assert!(free >= 1024 - 256 - 2 * 32, "after {sequence} packets {free} are free");
        assert!(free <= before + 32, "{free} are free after {before}");
        batches += u64::from(free > before);
        before = free;
    }
    assert!(batches >= (2000 - 256) / 32 / 2, "{batches} batches came back");
}

#[test]
fn a_host_that_manages_a_pool_of_small_buffers_alone_posts_those() {
    for features in all_features().into_iter().filter(|features| !features.shared_pool && features.small_buffers) {
        let (mut client, mut wire) = Pair::new(features, geometry(16, [128, 0, 0], 0)).wire();
        for sequence in 0..40 {
            assert!(client.send(sequence, 64), "{features}");
            wire.turn_around();
            assert_eq!(client.receive(sequence, 64), 1, "{features}: nothing was posted to receive into");
        }
    }
}

#[test]
fn frames_that_are_too_long_are_dropped_without_end_of_stack() {
    let features = Features { packing: Packing::Packed, ..Features::paper() };
    let (mut client, mut wire) = Pair::new(features, geometry(1 << 16, [1 << 16, 64, 4], 0)).wire();
    for sequence in 0..60_000 {
        assert!(client.send(sequence, 128));
    }
    assert!(client.send(60_000, 64));
    let mut frame = [0; 64];
    let mut calls = 0;
    let length = loop {
        if let Some(length) = wire.take_frame(&mut frame) {
            break length;
        }
        calls += 1;
        assert!(calls < 60_000, "the frame that fits never comes");
    };
    assert_eq!((length, wire.dropped()), (64, 60_000));
    assert_eq!(frame[..], bytes(60_000, 64)[..]);
    assert_eq!(wire.take_frame(&mut frame), None);
    assert_eq!(client.receive(0, 64), 0);
}

#[test]
fn a_frame_that_no_buffer_holds_is_dropped_and_not_tried_again() {
    for features in all_features() {
        let (mut client, mut wire) = Pair::new(features, geometry(16, [64, 64, 4], 0)).wire();
        assert!(wire.deliver_frame(&[0; 20_000]), "{features}: to be tried again for ever");
        assert!(wire.deliver_frame(&[0; 100_000]), "{features}: to be tried again for ever");
        assert!(wire.deliver_frame(&[]), "{features}: to be tried again for ever");
        assert_eq!(wire.dropped(), 3, "{features}");
        let mut out = [Descriptor::BLANK; 8];
        assert_eq!(client.host.rx_burst(&mut out), 0, "{features}");
        // Where the host posts the buffers, what it posted decides; then a jumbo frame is dropped, not stuck.
        for sequence in 0..8 {
            let delivered = wire.dropped();
            assert!(wire.deliver_frame(&bytes(sequence, 9600)), "{features}: to be tried again for ever");
            let count = client.host.rx_burst(&mut out);
            assert_eq!(count as u64 + wire.dropped() - delivered, 1, "{features}");
            assert!(!features.shared_pool || count == 1, "{features}");
            for packet in &out[..count] {
                verify(client.host.core(), packet.address(), sequence, 9600);
                client.host.buf_free(&[packet.address()]);
            }
        }
    }
}

#[test]
fn frames_of_every_size_go_in_and_out_unchanged() {
    for features in all_features() {
        let (mut client, mut wire) = Pair::new(features, geometry(16, [64, 64, 16], 0)).wire();
        let most = if features.shared_pool { 9600 } else { 4096 };
        let mut frame = [0; 9600];
        for length in (1..200).chain([1023, 1500, 1514, 4095, 4096, 4097, 9000, 9599, 9600]).filter(|&at| at <= most) {
            let sequence = u64::from(length);
            assert!(client.send(sequence, length), "{features}: {length}");
            assert_eq!(wire.take_frame(&mut frame), Some(usize::from(length)), "{features}: {length}");
            assert!(frame[..usize::from(length)] == bytes(sequence, usize::from(length)), "{features}: {length}");
            assert_eq!(wire.take_frame(&mut frame), None);
            assert!(wire.deliver_frame(&bytes(sequence, usize::from(length))), "{features}: {length}");
            let mut out = [Descriptor::BLANK; 4];
            assert_eq!(client.host.rx_burst(&mut out), 1, "{features}: {length}");
            assert_eq!(out[0].length(), length);
            verify(client.host.core(), out[0].address(), sequence, length);
            client.host.buf_free(&[out[0].address()]);
        }
        assert_eq!(wire.dropped() + wire.refused(), 0, "{features}");
    }
}

#[test]
fn refused_packets_cost_their_sender_no_slot_and_no_buffer() {
    for features in all_features() {
        let (mut client, mut wire) = Pair::new(features, geometry(16, [64, 64, 4], 0)).wire();
        let mut sequence = 0;
        for round in 0..200 {
            let mut at = [Address(0)];
            assert_eq!(client.host.buf_alloc(64, &mut at), 1, "{features}: lost by round {round}");
            let bad = match round % 3 {
                0 => Descriptor::new(at[0], 0),
                1 => Descriptor::new(at[0], 20_000),
                _ => Descriptor::new(at[0], 0).with(Flags::NEXT),
            };
            let burst = [bad, Descriptor::new(Address((1 << 40) - 1), 64)];
            assert_eq!(client.host.tx_burst(&burst[..1]), (round % 3 != 2).into(), "{features}");
            if round % 3 == 2 {
                assert_eq!(client.host.tx_burst(&burst), 2, "{features}: stuck in round {round}");
            }
            let before = wire.refused();
            wire.turn_around();
            wire.turn_around();
            assert!(wire.refused() > before, "{features}: not counted in round {round}");
        }
        assert!(client.send(sequence, 64), "{features}");
        wire.turn_around();
        sequence += client.receive(sequence, 64);
        assert_eq!(sequence, 1, "{features}");
    }
}

const FLAGS_OF_THE_RING: u8 = Flags::INLINE | Flags::CONTINUED | Flags::PHASE | Flags::POSTED;

#[test]
fn flags_that_belong_to_the_ring_do_not_pass_through_it() {
    for features in all_features() {
        let mut pair = Pair::new(features, geometry(16, [64, 64, 4], 0));
        for sequence in 0..40 {
            // As an application might that sends on what it made up itself.
            let plain: Vec<_> = (0..3).map(|_| packet(&mut *pair.host, sequence, 300).expect("a buffer")).collect();
            let odd: Vec<_> = plain.iter().map(|packet| packet.with(FLAGS_OF_THE_RING)).collect();
            assert_eq!(pair.host.tx_burst(&odd), 3, "{features}");
            let mut out = [Descriptor::BLANK; 8];
            assert_eq!(pair.nic.poll_tx(&mut out), 3, "{features}");
            assert_eq!(out[..3], plain[..], "{features}");
            pair.nic.complete_tx(&out[..3]);
            let to = pair.nic.rx_alloc(300).expect("a buffer");
            let packet = Descriptor::new(to, 300);
            assert_eq!(pair.nic.rx_burst(&[packet.with(FLAGS_OF_THE_RING)]), 1);
            assert_eq!(pair.host.rx_burst(&mut out), 1, "{features}");
            assert_eq!(out[0], packet, "{features}");
            pair.host.buf_free(&[to]);
        }
    }
}

#[test]
fn a_small_pool_is_not_hoarded_by_one_side() {
    // The host sends from every buffer; the NIC must come to one of them to receive into.
    for features in all_features().into_iter().filter(|features| features.shared_pool) {
        for buffers in [[4, 0, 0], [64, 0, 0], [0, 16, 0], [256, 0, 0]] {
            let small = buffers[1] == 0;
            if small && !features.small_buffers {
                continue;
            }
            let (mut client, mut wire) = Pair::new(features, geometry(16, buffers, 0)).wire();
            let mut at = vec![Address(0); buffers.iter().sum::<u64>() as usize];
            let count = client.host.buf_alloc(64, &mut at);
            // The NIC may have set one aside, and come by a batch.
            assert!(count >= at.len() / 2, "{features}");
            client.host.buf_free(&at[..count]);
            let mut received = 0;
            for sequence in 0..20 {
                assert!(client.send(sequence, 64), "{features}");
                wire.turn_around();
                received += client.receive(sequence, 64);
            }
            assert_eq!((received, wire.dropped()), (20, 0), "{features} with {buffers:?}");
        }
    }
}

#[test]
fn retained_segments_come_back_in_order_once_read() {
    for features in all_features() {
        let mut pair = Pair::new(features, geometry(16, [64, 64, 4], 4096));
        let objects = pair.map.pool.objects;
        let mut next = 0;
        for round in 0..50u64 {
            let header = packet(&mut *pair.host, round, 64).expect("a buffer").with(Flags::NEXT);
            let object = objects + 64 * (round % 64);
            write(pair.host.core(), object, round, 64);
            let payload = Descriptor::new(object, 64).with(Flags::RETAIN);
            assert_eq!(pair.host.tx_burst(&[header, payload]), 2, "{features}");
            let mut out = [Descriptor::BLANK; 8];
            let mut back = [Descriptor::BLANK; 8];
            assert_eq!(pair.host.completions(&mut back), 0, "{features}: before it was read");
            let count = pair.nic.poll_tx(&mut out);
            assert_eq!(count, 2, "{features}");
            assert_eq!(pair.host.completions(&mut back), 0, "{features}: before it was read");
            verify(pair.nic.core(), out[1].address(), round, 64);
            pair.nic.complete_tx(&out[..count]);
            // Credits come in batches, or with the next poll.
            assert_eq!(pair.nic.poll_tx(&mut out), 0);
            let count = pair.host.completions(&mut back);
            for done in &back[..count] {
                assert_eq!(done.address(), objects + 64 * (next % 64), "{features}");
                next += 1;
            }
            assert_eq!(next, round + 1, "{features}");
        }
    }
}

#[test]
fn a_slot_of_which_a_part_is_still_to_be_handed_out_is_not_released() {
    for features in all_features().into_iter().filter(|features| features.packing == Packing::Grouped) {
        let (map, memory) = world(features, geometry(16, [64, 64, 4], 0));
        let (ring, sender, receiver) = (map.queues[0].transmit, memory.core("sender"), memory.core("receiver"));
        let packets = [1, 2, 3].map(|index| Descriptor::new(map.pool.classes[0].start.lines(2 * index), 64));
        with_policy!(features, P => {
            let (mut producer, mut consumer) = (Producer::<P>::new(ring), Consumer::<P>::new(ring, false, true));
            assert_eq!(producer.send(&sender, &packets), 3);
            for packet in &packets {
                // A payload that was retained may be read until its slot is released.
                assert_eq!(producer.released(&sender), 0, "{features}: released before it was received");
                let mut out = [Descriptor::BLANK; 1];
                assert_eq!(consumer.receive(&receiver, &mut out, || None), 1, "{features}");
                assert_eq!(out[0], *packet, "{features}");
                consumer.release(&receiver);
            }
            // Credits come in batches, or when there is nothing more.
            assert_eq!(consumer.receive(&receiver, &mut [Descriptor::BLANK; 1], || None), 0);
            assert_eq!(producer.released(&sender), 1, "{features}");
        });
    }
}

#[test]
fn a_payload_in_the_ring_does_not_wait_for_buffers_behind_it() {
    for features in all_features() {
        // Towards the NIC: one alone, then a burst with every buffer that is left.
        let mut pair = Pair::new(features, geometry(64, [16, 128, 0], 0));
        let mut first = 0;
        let mut burst = Vec::new();
        assert!(send(&mut *pair.host, first, 16), "{features}");
        while let Some(packet) = packet(&mut *pair.host, first + 1 + burst.len() as u64, 16) {
            burst.push(packet);
        }
        let sent = 1 + pair.host.tx_burst(&burst) as u64;
        let mut out = [Descriptor::BLANK; 8];
        for _ in 0..50 {
            let count = pair.nic.poll_tx(&mut out);
            for packet in &out[..count] {
                assert_eq!(packet.metadata, !first);
                verify(pair.nic.core(), packet.address(), first, 16);
                first += 1;
            }
            pair.nic.complete_tx(&out[..count]);
        }
        assert_eq!(first, sent, "{features}: towards the NIC");
        // Towards the host the same, with every buffer the NIC can get.
        pair.host.buf_free(&burst[sent as usize - 1..].iter().map(|packet| packet.address()).collect::<Vec<_>>());
        let mut frames = Vec::new();
        while let Some(at) = pair.nic.rx_alloc(16) {
            write(pair.nic.core(), at, frames.len() as u64, 16);
            frames.push(Descriptor::new(at, 16).with_metadata(!(frames.len() as u64)));
        }
        let sent = pair.nic.rx_burst(&frames[..1]) + pair.nic.rx_burst(&frames[1..]);
        let mut received = 0;
        for _ in 0..50 {
            let count = pair.host.rx_burst(&mut out);
            for packet in &out[..count] {
                verify(pair.host.core(), packet.address(), received, 16);
                received += 1;
                pair.host.buf_free(&[packet.address()]);
            }
        }
        assert_eq!(received, sent as u64, "{features}: towards the host");
    }
}

#[test]
fn a_register_signal_says_nothing_in_the_ring() {
    let features = Features { signal: Signal::Register, ..Features::paper() };
    let mut pair = Pair::new(features, geometry(16, [64, 64, 4], 0));
    assert!(send(&mut *pair.host, 0, 64));
    let core = pair.memory.core("onlooker");
    assert_eq!(core.load_acquire(pair.map.queues[0].transmit.doorbell), 1);
    let mut out = [Descriptor::BLANK; 4];
    assert_eq!(pair.nic.poll_tx(&mut out), 1);
}

#[test]
fn many_idle_queue_pairs_leave_a_busy_one_its_buffers() {
    let geometry = Geometry { queues: 256, descriptors: 64, buffers: [2048, 64, 64], object_bytes: 0 };
    let map = Map::new(geometry, Features::best()).expect("a region");
    let memory = CrashMemory::new(&map.layout);
    let core = || memory.core("both");
    prepare(&core(), &map);
    let mut hosts: Vec<_> = (0..256).map(|queue| Host::<_, PhaseCredit>::new(core(), &map, queue)).collect();
    let _nics: Vec<_> = (0..256).map(|queue| Nic::<_, PhaseCredit>::new(core(), &map, queue)).collect();
    let mut packets = [Address(0); 256];
    // Each was busy once, and keeps next to nothing of it.
    for host in &mut hosts {
        let taken = host.buf_alloc(64, &mut packets[..64]);
        host.buf_free(&packets[..taken]);
    }
    let taken = hosts[7].buf_alloc(64, &mut packets);
    assert_eq!(taken, 256, "buffers that the busy queue pair got of 2048");
}

#[test]
fn the_host_enters_lengths_in_the_metadata_of_its_buffers() {
    for features in all_features() {
        let map = Map::with_metadata(geometry(16, [64, 64, 4], 0), features).expect("a geometry that can be");
        let pool = map.pool;
        let (mut client, mut nic) = Pair::of(map).wire();
        let entered = |core: &Guard, at: Address| {
            core.load(Address(
                pool.buffer_of(at).expect("it lies in a buffer").0 - conic_interface::buffer_metadata::FIRST,
            ))
        };
        // Each buffer is sent and received several times, whatever it last held.
        for (sequence, length) in (0..).zip((1..=128).cycle().take(500)) {
            let host = &mut *client.host;
            let packet = packet(host, sequence, length).expect("all are free");
            assert_eq!(entered(host.core(), packet.address()), 0, "{features}: it is reset");
            assert_eq!(host.tx_burst(&[packet]), 1, "{features}");
            assert_eq!(entered(host.core(), packet.address()), length.into(), "{features}");
            assert_eq!(nic.turn_around(), 1, "{features}");
            let mut received = [Descriptor::BLANK];
            assert_eq!(host.rx_burst(&mut received), 1, "{features}");
            verify(host.core(), received[0].address(), sequence, length);
            assert_eq!(entered(host.core(), received[0].address()), length.into(), "{features}");
            host.buf_free(&[received[0].address()]);
        }
    }
}

#[test]
fn what_is_set_aside_for_payloads_in_the_ring_leaves_buffers_to_send() {
    // Eight queue pairs with a buffer for each half; and two buffers that hold the longest of such payloads.
    let many = Map::new(Geometry { queues: 8, ..geometry(16, [16, 0, 0], 0) }, Features::best());
    let headroom = Headroom { bytes: 64, places: 0 };
    let few = Map::with_headroom(geometry(16, [2048, 2, 0], 0), Features::best(), headroom);
    for (map, bytes) in [(many, 64), (few, 1000)] {
        let map = map.expect("a geometry that can be");
        let memory = CrashMemory::new(&map.layout);
        prepare(&memory.core("builder"), &map);
        let halves = |queue| {
            let nic = nic(Features::best(), Guard::new(&memory, &map, "nic", Side::Nic), &map, queue);
            (nic, host(Features::best(), Guard::new(&memory, &map, "host", Side::Host), &map, queue))
        };
        let mut pairs: Vec<_> = (0..map.queues.len()).map(halves).collect();
        let mut at = [Address(0)];
        assert_eq!(pairs[0].1.buf_alloc(bytes, &mut at), 1, "every buffer is set aside");
    }
}

#[test]
fn a_packet_that_came_is_seen_without_being_received() {
    for features in all_features() {
        let (map, memory) = world(features, geometry(16, [64, 64, 4], 0));
        with_policy!(features, P => {
            let mut host = Host::<_, P>::new(memory.core("host"), &map, 0);
            let mut nic = Nic::<_, P>::new(memory.core("nic"), &map, 0);
            for round in 0..40 {
                assert!(!host.has_packets(), "{features}: nothing came, {round}");
                let to = nic.rx_alloc(300).expect("a buffer");
                assert_eq!(nic.rx_burst(&[Descriptor::new(to, 300)]), 1, "{features}");
                assert!(host.has_packets(), "{features}: one came, {round}");
                assert_eq!(host.rx_burst(&mut [Descriptor::BLANK; 4]), 1, "{features}");
                host.buf_free(&[to]);
            }
        });
    }
}
