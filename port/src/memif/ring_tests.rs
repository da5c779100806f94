//! Rings: what passes, and what is refused of what another process may write into shared memory.

use std::os::fd::AsFd;

use super::*;

const SLOTS: u8 = 3;
const BUFFER: u32 = 128;
/// Where the buffers of the two rings begin.
const BUFFERS: [u32; 2] = [4096, 8192];

/// Both sides of a ring in each direction, each side with its own mapping.
struct Pair {
    ours: Regions,
    theirs: Regions,
    /// Client to server: the client's and the server's side.
    up: (Ring, Ring),
    /// Server to client: the server's and the client's side.
    down: (Ring, Ring),
}

fn pair() -> Pair {
    let (memory, descriptor) = Mapping::sealed(16_384).expect("memory");
    let copy = Mapping::of(descriptor.as_fd(), 16_384, 0).expect("the same memory");
    let place = |number: u32| Place { region: 0, offset: number * 512, log2_slots: SLOTS };
    let client = |number: usize| Side::Client { buffers: BUFFERS[number], buffer_bytes: BUFFER };
    let pair = Pair {
        ours: Regions(vec![memory]),
        theirs: Regions(vec![copy]),
        up: (Ring::new(place(0), client(0)), Ring::new(place(0), Side::Server)),
        down: (Ring::new(place(1), Side::Server), Ring::new(place(1), client(1))),
    };
    pair.up.0.prepare(&pair.ours, false);
    pair.down.1.prepare(&pair.ours, true);
    pair.up.1.interrupt(&pair.theirs, false);
    assert!(place(0).has_cookie(&pair.theirs) && place(1).is_in(&pair.theirs));
    pair
}

#[test]
fn packets_of_every_length_pass_both_ways_over_the_wrap_of_slots_and_indexes() {
    let mut pair = pair();
    for (producer, consumer) in [(&mut pair.up.0, &mut pair.up.1), (&mut pair.down.0, &mut pair.down.1)] {
        let mut buffer = [0; 2048];
        // 65,536 indexes wrap several times: a packet takes up to 8 slots.
        for number in 0..60_000usize {
            let length = 1 + number * 37 % 1024;
            let packet: Vec<u8> = (0..length).map(|at| (at * 3 + number) as u8).collect();
            assert_eq!(producer.put(&pair.ours, &packet), Ok(Put::Done), "{number}: {length} bytes");
            assert_eq!(consumer.take(&pair.theirs, &mut buffer), Taken::None, "not shown yet");
            assert!(!producer.show(&pair.ours) && producer.unshown() == 0);
            assert_eq!(consumer.take(&pair.theirs, &mut buffer), Taken::Packet(length));
            assert_eq!(buffer[..length], packet[..]);
            consumer.release(&pair.theirs);
        }
        // Full, and room again.
        let mut filled = 0;
        while producer.put(&pair.ours, &[7; 100]) == Ok(Put::Done) {
            filled += 1;
        }
        assert_eq!(filled, 8);
        producer.show(&pair.ours);
        assert_eq!(consumer.take(&pair.theirs, &mut buffer), Taken::Packet(100));
        assert_eq!(producer.put(&pair.ours, &[7; 100]), Ok(Put::Full), "not given back yet");
        consumer.release(&pair.theirs);
        assert_eq!(producer.put(&pair.ours, &[7; 100]), Ok(Put::Done));
        assert_eq!(producer.put(&pair.ours, &[7; 100]), Ok(Put::Full));
    }
}

#[test]
fn what_the_whole_ring_cannot_hold_is_too_long_as_soon_as_all_of_it_is_free() {
    let mut pair = pair();
    let most = (BUFFER as usize) << SLOTS;
    for (producer, consumer) in [(&mut pair.up.0, &mut pair.up.1), (&mut pair.down.0, &mut pair.down.1)] {
        for _ in 0..3 {
            assert_eq!(producer.put(&pair.ours, &vec![1; most + 1]), Ok(Put::TooLong));
            assert_eq!(producer.unshown(), 0, "nothing of it was put");
            assert_eq!(producer.put(&pair.ours, &[7; 60]), Ok(Put::Done));
            assert_eq!(producer.put(&pair.ours, &vec![1; most + 1]), Ok(Put::Full), "one slot is not free");
            producer.show(&pair.ours);
            assert_eq!(consumer.take(&pair.theirs, &mut [0; 60]), Taken::Packet(60));
            consumer.release(&pair.theirs);
            assert_eq!(producer.put(&pair.ours, &vec![1; most]), Ok(Put::Done));
            producer.show(&pair.ours);
            assert_eq!(consumer.take(&pair.theirs, &mut vec![0; most]), Taken::Packet(most));
            consumer.release(&pair.theirs);
        }
    }
}

#[test]
fn a_packet_that_is_too_long_is_left_out_and_the_next_is_whole() {
    let mut pair = pair();
    let Pair { ours, theirs, up: (producer, consumer), .. } = &mut pair;
    for length in [500, 60] {
        assert_eq!(producer.put(ours, &vec![length as u8; length]), Ok(Put::Done));
    }
    producer.show(ours);
    let mut buffer = [0; 499];
    assert_eq!(consumer.take(theirs, &mut buffer), Taken::TooLong);
    assert_eq!(consumer.take(theirs, &mut buffer), Taken::Packet(60));
    assert_eq!(buffer[..60], [60; 60]);
}

#[test]
fn a_server_is_interrupted_until_it_says_that_it_needs_not_be() {
    // libmemif's says nothing, and waits for interrupts; DPDK's and VPP's, which poll, say so.
    let (memory, descriptor) = Mapping::sealed(16_384).expect("memory");
    let copy = Regions(vec![Mapping::of(descriptor.as_fd(), 16_384, 0).expect("the same memory")]);
    let ours = Regions(vec![memory]);
    let place = Place { region: 0, offset: 0, log2_slots: SLOTS };
    let mut producer = Ring::new(place, Side::Client { buffers: BUFFERS[0], buffer_bytes: BUFFER });
    producer.prepare(&ours, false);
    producer.put(&ours, &[1; 60]).expect("room");
    assert!(producer.show(&ours));
    Ring::new(place, Side::Server).interrupt(&copy, false);
    producer.put(&ours, &[1; 60]).expect("room");
    assert!(!producer.show(&ours));
}

#[test]
fn interrupts_are_asked_for_by_whoever_sleeps() {
    let mut pair = pair();
    let Pair { ours, theirs, up: (producer, consumer), .. } = &mut pair;
    consumer.interrupt(theirs, true);
    producer.put(ours, &[1; 60]).expect("room");
    assert!(producer.show(ours) && !producer.show(ours), "once for what is new");
    consumer.interrupt(theirs, false);
    producer.put(ours, &[1; 60]).expect("room");
    assert!(!producer.show(ours));
}

/// A packet of one descriptor in the ring to the server, with one field changed.
fn refused(change: impl Fn(&Mapping, usize)) -> Taken {
    let mut pair = pair();
    let Pair { ours, theirs, up: (producer, consumer), .. } = &mut pair;
    producer.put(ours, &[1; 60]).expect("room");
    producer.show(ours);
    change(&ours.0[0], 128);
    consumer.take(theirs, &mut [0; 2048])
}

#[test]
fn a_server_refuses_every_descriptor_that_cannot_be() {
    for flags in [2, 4, 0x8000, 0xfffe] {
        assert_eq!(refused(|memory, at| memory.store_u16(at, flags)), Taken::Refused(Fault::Flags));
    }
    for region in [1, 2, u16::MAX] {
        assert_eq!(refused(|memory, at| memory.store_u16(at + 2, region)), Taken::Refused(Fault::Region));
    }
    for length in [16_384 - 4096 + 1, u32::MAX] {
        assert_eq!(refused(|memory, at| memory.store_u32(at + 4, length)), Taken::Refused(Fault::Bounds), "{length}");
    }
    for offset in [16_384 - 59, 16_384, u32::MAX, u32::MAX - 59] {
        assert_eq!(refused(|memory, at| memory.store_u32(at + 8, offset)), Taken::Refused(Fault::Bounds), "{offset}");
    }
    assert_eq!(refused(|memory, at| memory.store_u32(at + 8, 16_384 - 60)), Taken::Packet(60));
    // Indexes further ahead than the ring is long.
    for head in [9, 0x8000, u16::MAX] {
        assert_eq!(refused(|memory, _| memory.store_u16(6, head)), Taken::Refused(Fault::Index));
    }
    // A packet without an end, in a ring that is not full and in one that is.
    assert_eq!(refused(|memory, at| memory.store_u16(at, 1)), Taken::Refused(Fault::Chain));
    let endless = |memory: &Mapping, at: usize| {
        (0..8).for_each(|slot| memory.store_u16(at + 16 * slot, 1));
        memory.store_u16(6, 8);
    };
    assert_eq!(refused(endless), Taken::Refused(Fault::Chain));
}

#[test]
fn a_client_does_not_ask_where_its_own_buffers_are() {
    let mut pair = pair();
    let Pair { ours, theirs, down: (producer, consumer), .. } = &mut pair;
    producer.put(theirs, &[9; 60]).expect("room");
    producer.show(theirs);
    // Region and offset belong to the client, whatever the server writes there.
    theirs.0[0].store_u16(512 + 128 + 2, 7);
    theirs.0[0].store_u32(512 + 128 + 8, 0);
    let mut buffer = [0; 2048];
    assert_eq!(consumer.take(ours, &mut buffer), Taken::Packet(60));
    assert_eq!(buffer[..60], [9; 60]);
    producer.put(theirs, &[9; 60]).expect("room");
    producer.show(theirs);
    // The next buffer must not be read as part of this one.
    theirs.0[0].store_u32(512 + 128 + 16 + 4, BUFFER + 1);
    assert_eq!(consumer.take(ours, &mut buffer), Taken::Refused(Fault::Bounds));
    theirs.0[0].store_u16(512 + 64, 11);
    assert_eq!(consumer.take(ours, &mut buffer), Taken::Refused(Fault::Index));
}

#[test]
fn a_producer_refuses_indexes_and_buffers_that_cannot_be() {
    let mut pair = pair();
    let memory = &pair.ours.0[0];
    for head in [9, u16::MAX] {
        memory.store_u16(512 + 6, head);
        assert_eq!(pair.down.0.put(&pair.theirs, &[1; 60]), Err(Fault::Index));
    }
    memory.store_u16(512 + 6, 8);
    memory.store_u32(512 + 128 + 8, u32::MAX);
    assert_eq!(pair.down.0.put(&pair.theirs, &[1; 60]), Err(Fault::Bounds));
    memory.store_u16(512 + 128 + 2, 1);
    assert_eq!(pair.down.0.put(&pair.theirs, &[1; 60]), Err(Fault::Region));
    for tail in [1, 0x8000] {
        memory.store_u16(64, tail);
        assert_eq!(pair.up.0.put(&pair.ours, &[1; 60]), Err(Fault::Index));
    }
}

#[test]
fn places_outside_their_region_are_no_rings() {
    let (memory, _descriptor) = Mapping::sealed(8192).expect("memory");
    let regions = Regions(vec![memory]);
    let is_in = |region, offset, log2_slots| Place { region, offset, log2_slots }.is_in(&regions);
    assert!(is_in(0, 0, 8) && is_in(0, 8192 - 128 - 32, 1) && is_in(0, 8, 4));
    assert!(is_in(0, 8192 - 128 - 16, 0), "VPP makes rings of one slot");
    for (region, offset, log2_slots) in [
        (0, 8192 - 128 - 8, 0),
        (0, 0, 9),
        (0, 0, 15),
        (0, 0, 255),
        (1, 0, 4),
        (0, 4, 4),
        (0, 8192 - 128 - 24, 1),
        (0, u32::MAX - 7, 1),
    ] {
        assert!(!is_in(region, offset, log2_slots), "{region} {offset} {log2_slots}");
    }
}

/// Whatever a ring's image is, nothing outside of the region is touched (an access there would panic) and no call goes on for
/// ever.
#[test]
fn any_image_is_survived() {
    let mut generator = fastrand::Rng::with_seed(0x6d65_6d69);
    let mut pair = pair();
    let mut outcomes = std::collections::BTreeSet::new();
    for _ in 0..20_000 {
        let memory = &pair.ours.0[0];
        // Everything, a few words, or nothing but the indexes.
        let words = [1024, 8, 0][generator.usize(..3)];
        for _ in 0..words {
            let value = if generator.bool() { generator.u64(..) } else { generator.u64(..16_384) };
            memory.store_u64(8 * generator.usize(..128), value);
        }
        for at in [6, 64, 512 + 6, 512 + 64] {
            let value = if generator.bool() { generator.u16(..) } else { generator.u16(..12) };
            memory.store_u16(at, value);
        }
        // What the test knows of the protocol's state is put right again now and then, so that packets pass too.
        if generator.u8(..4) == 0 {
            pair.up.0.prepare(&pair.ours, false);
            pair.down.1.prepare(&pair.ours, true);
            let memory = &pair.ours.0[0];
            memory.store_u16(6, pair.up.1.next().wrapping_add(generator.u16(..=8)));
            memory.store_u16(512 + 6, pair.down.0.next().wrapping_add(generator.u16(..=8)));
        }
        let mut buffer = [0; 2048];
        for _ in 0..4 {
            outcomes.insert(
                format!("{:?}", pair.up.1.take(&pair.theirs, &mut buffer)).split('(').next().map(str::to_owned),
            );
            outcomes.insert(
                format!("{:?}", pair.down.1.take(&pair.ours, &mut buffer)).split('(').next().map(str::to_owned),
            );
            let length = generator.usize(1..2048);
            // Refused or not: it must come back.
            let _ = pair.down.0.put(&pair.theirs, &buffer[..length]);
            let _ = pair.up.0.put(&pair.ours, &buffer[..length]);
        }
        pair.up.1.release(&pair.theirs);
        pair.down.1.release(&pair.ours);
        pair.down.0.show(&pair.theirs);
        pair.up.0.show(&pair.ours);
    }
    assert!(outcomes.contains(&Some("Packet".to_owned())) && outcomes.len() >= 3, "{outcomes:?}");
}

/// A side that has seen what there is does not look again before that is used up: an index that goes back meanwhile is found, and
/// never leads to a slot that the other side did not give.
#[test]
fn an_index_that_goes_back_ends_a_packet_of_several_buffers() {
    let mut pair = pair();
    let Pair { ours, theirs, up: (producer, consumer), .. } = &mut pair;
    let mut buffer = [0; 2048];
    for length in [60, 300] {
        assert_eq!(producer.put(ours, &vec![5; length]), Ok(Put::Done));
    }
    producer.show(ours);
    assert_eq!(consumer.take(theirs, &mut buffer), Taken::Packet(60));
    // All slots say that the packet goes on, and the index that there is none.
    (0..8).for_each(|slot| ours.0[0].store_u16(128 + 16 * slot, 1));
    ours.0[0].store_u16(6, 1);
    assert_eq!(consumer.take(theirs, &mut buffer), Taken::Refused(Fault::Index));

    let Pair { ours, theirs, down: (producer, _), .. } = &mut pair;
    assert_eq!(producer.put(theirs, &[5; 60]), Ok(Put::Done));
    ours.0[0].store_u16(512 + 6, 1);
    assert_eq!(producer.put(theirs, &[5; 300]), Err(Fault::Index));
}

#[test]
fn a_packet_without_an_end_takes_the_ring_with_it_once() {
    let mut pair = pair();
    let Pair { ours, theirs, up: (_, consumer), .. } = &mut pair;
    (0..8).for_each(|slot| ours.0[0].store_u16(128 + 16 * slot, 1));
    ours.0[0].store_u16(6, 8);
    assert_eq!(consumer.take(theirs, &mut [0; 2048]), Taken::Refused(Fault::Chain));
    assert_eq!((consumer.unreleased(), consumer.take(theirs, &mut [0; 2048])), (8, Taken::None));
    consumer.release(theirs);
    assert_eq!(ours.0[0].load_u16(64), 8, "its slots go back");
}

#[test]
fn a_packet_that_is_too_long_and_broken_is_broken() {
    let mut pair = pair();
    let Pair { ours, theirs, up: (producer, consumer), .. } = &mut pair;
    assert_eq!(producer.put(ours, &[1; 500]), Ok(Put::Done));
    producer.show(ours);
    // No such region, behind where the room ends.
    ours.0[0].store_u16(128 + 16 * 3 + 2, 7);
    assert_eq!(consumer.take(theirs, &mut [0; 100]), Taken::Refused(Fault::Region));
    assert_eq!(consumer.unreleased(), 4);
}

#[test]
fn a_server_fills_the_buffer_that_a_descriptor_names_and_leaves_the_name() {
    let mut pair = pair();
    let (other, _descriptor) = Mapping::sealed(4096).expect("memory");
    pair.theirs.0.push(other);
    // Two buffers of another region, of which a packet takes one, and one takes both.
    for slot in 0..3 {
        pair.ours.0[0].store_u16(512 + 128 + 16 * slot + 2, 1);
        pair.ours.0[0].store_u32(512 + 128 + 16 * slot + 8, 1024 + 128 * slot as u32);
    }
    assert_eq!(pair.down.0.put(&pair.theirs, &[7; 100]), Ok(Put::Done));
    assert_eq!(pair.down.0.put(&pair.theirs, &[8; 200]), Ok(Put::Done));
    let mut written = [0; 328];
    pair.theirs.0[1].read_bytes(1024, &mut written);
    assert_eq!((&written[..100], &written[128..]), (&[7; 100][..], &[8; 200][..]));
    assert_eq!([0, 1, 2].map(|slot| pair.ours.0[0].load_u16(512 + 128 + 16 * slot + 2)), [1; 3]);
}

/// A server's side of the longest ring there can be, all of whose descriptors have these flags and this length.
fn longest(flags: u16, length: u32) -> (Regions, Ring) {
    let place = Place { region: 0, offset: 0, log2_slots: MOST_LOG2_SLOTS };
    let (memory, _descriptor) = Mapping::sealed(1 << 19).expect("memory");
    for slot in 0..1 << MOST_LOG2_SLOTS {
        memory.store_u16(DESCRIPTORS + DESCRIPTOR * slot, flags);
        memory.store_u32(DESCRIPTORS + DESCRIPTOR * slot + 4, length);
        memory.store_u32(DESCRIPTORS + DESCRIPTOR * slot + 8, 1 << 18 | 1 << 15);
    }
    (Regions(vec![memory]), Ring::new(place, Side::Server))
}

/// The most descriptors that one call may read.
const WORK: usize = 150;

#[test]
fn a_packet_that_is_shown_without_its_end_is_a_fault_and_is_not_walked_again() {
    let (regions, mut ring) = longest(NEXT, 1);
    let shown = (1 << MOST_LOG2_SLOTS) - 1;
    let mut head = 0u16;
    for round in 1..=20 {
        head = head.wrapping_add(shown);
        regions.0[0].store_release_u16(HEAD, head);
        let taken: Vec<Taken> = (0..1000).map(|_| ring.take(&regions, &mut [0; MAX_FRAME])).collect();
        let faults = taken.iter().filter(|taken| **taken != Taken::None).count();
        assert_eq!((taken[0], faults), (Taken::Refused(Fault::Chain), 1), "round {round}");
        assert!(ring.reads.get() <= round * WORK, "round {round}: {} descriptors were read", ring.reads.get());
        assert_eq!(ring.unreleased(), shown, "its slots can go back");
        ring.release(&regions);
    }
}

#[test]
fn no_packet_has_more_pieces_than_the_smallest_buffers_make_of_the_longest_frame() {
    for (pieces, expected) in [(WORK, Taken::Packet(WORK)), (WORK + 1, Taken::Refused(Fault::Chain))] {
        let (regions, mut ring) = longest(NEXT, 1);
        regions.0[0].store_u16(DESCRIPTORS + DESCRIPTOR * (pieces - 1), 0);
        regions.0[0].store_release_u16(HEAD, pieces as u16);
        assert_eq!(ring.take(&regions, &mut [0; MAX_FRAME]), expected, "{pieces} pieces");
        assert_eq!((ring.unreleased(), ring.take(&regions, &mut [0; MAX_FRAME])), (pieces as u16, Taken::None));
    }
}

#[test]
fn a_packet_that_finds_too_little_room_is_not_begun_and_tiny_buffers_are_a_fault() {
    let (regions, mut ring) = longest(0, 1);
    regions.0[0].store_release_u16(HEAD, 9000);
    for attempt in 1..=1000 {
        assert_eq!(ring.put(&regions, &[7; MAX_FRAME]), Err(Fault::Bounds));
        assert!(ring.reads.get() <= attempt * WORK, "attempt {attempt}: {} descriptors were read", ring.reads.get());
    }
    let (regions, mut ring) = longest(0, 64);
    let memory = &regions.0[0];
    memory.store_release_u16(HEAD, WORK as u16 - 1);
    for attempt in 1..=1000 {
        assert_eq!(ring.put(&regions, &[7; MAX_FRAME]), Ok(Put::Full));
        // The first one is looked at before it is known that the packet takes several.
        assert!(ring.reads.get() <= attempt * WORK, "attempt {attempt}: {} descriptors were read", ring.reads.get());
    }
    let flags = |slot: usize| memory.load_u16(DESCRIPTORS + DESCRIPTOR * slot);
    assert!((0..WORK).all(|slot| flags(slot) == 0), "nothing was written");
    memory.store_release_u16(HEAD, WORK as u16);
    assert_eq!((ring.put(&regions, &[7; MAX_FRAME]), ring.unshown()), (Ok(Put::Done), WORK as u16));
    assert_eq!([0, WORK - 2, WORK - 1].map(flags), [NEXT, NEXT, 0]);
}
