//! The receive ring into which the host posts its buffers.

use std::cell::RefCell;
use std::collections::BTreeSet;

use conic_check::{CrashMemory, Does, ToldCore};
use conic_fabric::{Address, Core};
use conic_interface::ccnic::{Descriptor, Features, Flags, Host, Map, Nic, Packing, Paper, Signal, prepare};

use crate::common::{Pair, all_features, geometry, verify, write};

fn posted_features() -> impl Iterator<Item = Features> {
    all_features().into_iter().filter(|features| !features.shared_pool)
}

/// How many descriptors the receive ring has.
fn descriptors(map: &Map) -> u64 {
    let per_slot = if map.features.packing == Packing::Grouped { 4 } else { 1 };
    map.queues[0].receive.slots * per_slot
}

#[test]
fn a_buffer_is_taken_once_however_long_it_is_held() {
    for features in posted_features() {
        let Pair { map, mut nic, mut host, .. } = Pair::new(features, geometry(16, [64, 64, 0], 0));
        // Three laps. Descriptors that were taken and not filled say that they are posted all the while.
        for _ in 0..3 {
            let all: Vec<_> = std::iter::from_fn(|| nic.rx_alloc(64)).collect();
            let distinct: BTreeSet<_> = all.iter().map(|at| at.0).collect();
            assert_eq!((all.len() as u64, distinct.len()), (descriptors(&map), all.len()), "{features}");
            assert_eq!(nic.rx_room(usize::MAX), all.len(), "{features}");
            let packets: Vec<_> = all.iter().map(|&at| Descriptor::new(at, 64)).collect();
            assert_eq!(nic.rx_burst(&packets), all.len(), "{features}");
            assert_eq!((nic.rx_room(1), nic.rx_alloc(64)), (0, None), "{features}: no more were posted");
            assert_eq!(nic.rx_burst(&packets[..1]), 0, "{features}: a descriptor that was not taken is not filled");
            let mut out = vec![Descriptor::BLANK; all.len() + 1];
            assert_eq!(host.rx_burst(&mut out), all.len(), "{features}");
            assert_eq!(out[..all.len()], packets[..], "{features}");
            host.buf_free(&all);
            // Where the pool was dry, now it is not.
            assert_eq!(host.rx_burst(&mut out), 0, "{features}");
        }
    }
}

#[test]
fn what_was_sent_is_posted_again_by_a_host_that_only_passes_on_what_it_receives() {
    for features in posted_features() {
        // Fewer than the ring has descriptors: all of them are in packets that were sent, again and again.
        let Pair { mut nic, mut host, .. } = Pair::new(features, geometry(64, [16, 32, 0], 0));
        for round in 0..20 {
            let all: Vec<_> = std::iter::from_fn(|| nic.rx_alloc(64)).map(|at| Descriptor::new(at, 64)).collect();
            assert!(all.len() >= 28, "{features}, round {round}: {} were posted", all.len());
            assert_eq!(nic.rx_burst(&all), all.len(), "{features}");
            let mut out = [Descriptor::BLANK; 64];
            let count = host.rx_burst(&mut out);
            assert_eq!((count, host.tx_burst(&out[..count])), (all.len(), count), "{features}");
            let taken = nic.poll_tx(&mut out);
            nic.complete_tx(&out[..taken]);
            assert_eq!((taken, host.rx_burst(&mut out)), (count, 0), "{features}");
        }
    }
}

#[test]
fn a_burst_goes_on_where_the_one_before_ended() {
    for features in posted_features() {
        let Pair { mut nic, mut host, .. } = Pair::new(features, geometry(16, [64, 64, 0], 0));
        let (mut sent, mut received) = (0u64, 0u64);
        // Bursts of each length begin and end everywhere in a line, and packets of up to four segments span two.
        for length in [1, 3, 2, 4, 5, 1, 7, 6, 11, 1, 1, 13, 2, 9, 16, 4].repeat(8) {
            let segments = 1 + length % 4;
            let room = nic.rx_room(length);
            let mut burst = Vec::new();
            while burst.len() + segments <= room.min(length.max(segments)) {
                for index in 0..segments {
                    let at = nic.rx_alloc(64).expect("there was room");
                    write(nic.core(), at, sent, 64);
                    let flag = if index + 1 < segments { Flags::NEXT } else { 0 };
                    burst.push(Descriptor::new(at, 64).with(flag).with_metadata(sent));
                    sent += 1;
                }
            }
            assert_eq!(nic.rx_burst(&burst), burst.len(), "{features}");
            let mut out = [Descriptor::BLANK; 16];
            let count = host.rx_burst(&mut out);
            for packet in &out[..count] {
                assert_eq!((packet.metadata, packet.length()), (received, 64), "{features}");
                verify(host.core(), packet.address(), received, 64);
                host.buf_free(&[packet.address()]);
                received += 1;
            }
            assert_eq!(received, sent, "{features}: what was published is there");
        }
        assert!(sent > 500, "{features}: {sent}");
        assert_eq!((host.faults(), nic.faults().total()), (Default::default(), 0));
    }
}

/// Lines of rings, registers and credits that the two halves touch for so many received packets, without those of the transmit ring.
fn lines_touched(features: Features, packets: usize) -> (usize, usize) {
    let map = Map::new(geometry(64, [64, 128, 0], 0), features).expect("a geometry that can be");
    let memory = CrashMemory::new(&map.layout);
    prepare(&memory.core("builder"), &map);
    let touched = [RefCell::default(), RefCell::default()];
    let told = |index: usize| {
        let (touched, layout): (&RefCell<BTreeSet<u64>>, _) = (&touched[index], &map.layout);
        move |does| {
            if let Does::Word(at) | Does::ReadLine(at) | Does::WriteLine(at) = does
                && layout.segment_of(at).is_some_and(|segment| segment.name.contains("queue 0"))
            {
                touched.borrow_mut().insert(at.line().0);
            }
        }
    };
    let mut host = Host::<_, Paper>::new(ToldCore::new(memory.core("host"), told(0)), &map, 0);
    let mut nic = Nic::<_, Paper>::new(ToldCore::new(memory.core("nic"), told(1)), &map, 0);
    touched.iter().for_each(|lines| lines.borrow_mut().clear());
    assert!(nic.rx_room(packets) >= packets);
    let frames: Vec<_> = (0..packets).map(|_| Descriptor::new(nic.rx_alloc(64).expect("a buffer"), 64)).collect();
    assert_eq!(nic.rx_burst(&frames), packets);
    assert_eq!(host.rx_burst(&mut vec![Descriptor::BLANK; packets]), packets);
    let [host, nic] = touched.map(|lines| lines.into_inner().len());
    (host, nic)
}

#[test]
fn blanks_travel_in_the_receive_rings_own_lines() {
    for features in [Features::paper(), Features { shared_pool: false, ..Features::paper() }] {
        assert_eq!(lines_touched(features, 32), (8, 8), "{features}: eight lines of four descriptors there and back");
    }
}

#[test]
fn what_a_host_posts_is_checked() {
    let features = Features { shared_pool: false, packing: Packing::Packed, ..Features::paper() };
    let Pair { map, memory, mut nic, .. } = Pair::new(features, geometry(16, [64, 64, 0], 0));
    let scribbler = memory.core("scribbler");
    let ring = map.queues[0].receive.ring;
    let good = map.pool.classes[1].start;
    let outside = Address(map.layout.bytes());
    // Within a buffer, in none, in a ring, and beyond the region.
    for (slot, at) in [good + 8, Address(0), ring, outside].into_iter().enumerate() {
        let posted = Descriptor::new(at, 1).without(Flags::VALID).with(Flags::POSTED);
        scribbler.store_release(ring + 16 * slot as u64, posted.word);
    }
    let taken: Vec<_> = std::iter::from_fn(|| nic.rx_alloc(64)).collect();
    assert_eq!((taken.len(), nic.faults().address), (12, 4), "the other buffers are taken");
    assert!(taken.iter().all(|&at| map.pool.check(at, 64, false).is_ok()));
}

#[test]
fn a_head_register_that_cannot_be_is_ignored_and_counted() {
    let features = Features { shared_pool: false, signal: Signal::Register, ..Features::paper() };
    let Pair { map, memory, mut nic, mut host, .. } = Pair::new(features, geometry(16, [64, 64, 0], 0));
    let scribbler = memory.core("scribbler");
    let credit = map.queues[0].receive.credit;
    for wrong in [17, u64::MAX] {
        scribbler.register_write(credit, wrong);
        assert_eq!((nic.rx_room(1), nic.rx_alloc(64)), (0, None));
    }
    assert!(nic.faults().receive.credit >= 2);
    scribbler.register_write(credit, 16);
    let at = nic.rx_alloc(64).expect("one that was posted");
    assert_eq!(nic.rx_burst(&[Descriptor::new(at, 64)]), 1);
    // Nor does the host believe a tail behind its head, or beyond what it has posted.
    let tail = map.queues[0].receive.doorbell;
    let mut out = [Descriptor::BLANK; 4];
    for wrong in [17, u64::MAX] {
        scribbler.register_write(tail, wrong);
        assert_eq!(host.rx_burst(&mut out), 0);
    }
    assert_eq!(host.faults().receive.doorbell, 2);
    scribbler.register_write(tail, 1);
    assert_eq!(host.rx_burst(&mut out), 1);
}
