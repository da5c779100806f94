//! What every host's half says of its buffers, and what is made of its calls.

use crate::common::Memory;
use conic_fabric::{Address, Core, Layout, PlayedByCore};
use conic_interface::burst::{HostQueue, NicQueue, Packet, Waiting, receive_whole};
use conic_interface::ccnic::{self, Features, Geometry, Map, Nic, PhaseCredit};
use conic_interface::cxl::{self, Signal};
use conic_interface::ring;

/// What a host says of each byte of a buffer that it allocates for so many, and of addresses in none.
fn says_where_buffers_end(mut host: impl HostQueue, room: u64, buffer_bytes: u64, in_none: &[Address]) {
    let mut buffers = [Address(0); 3];
    assert_eq!(host.buf_alloc(room, &mut buffers), 3);
    for at in buffers {
        // Where an allocated buffer begins, its packet may begin later.
        let all = host.bytes_to_end(at);
        assert!((room..=buffer_bytes).contains(&all), "{all} of {buffer_bytes}");
        for offset in [0, 1, 63, 64, room - 1] {
            assert_eq!(host.bytes_to_end(at + offset), all - offset, "{offset} bytes into a buffer at {at}");
        }
    }
    for &at in in_none.iter().chain(&[Address(0), Address(1 << 40), Address(u64::MAX)]) {
        assert_eq!(host.bytes_to_end(at), 0, "{at} is in no buffer");
    }
}

#[test]
fn a_host_knows_how_much_of_a_buffer_lies_behind_an_address() {
    for with_metadata in [false, true] {
        let bare = ring::Shape { buffer_bytes: 256, ..ring::Shape::default() };
        let shape = if with_metadata { bare.with_metadata(256) } else { bare };
        let mut layout = Layout::new();
        let pair = shape.place(&mut layout).expect("a queue pair");
        let memory = Memory::new(&layout);
        says_where_buffers_end(pair.host(memory.agent(0)), 256, 256, &[Address(layout.bytes())]);

        let geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 8], object_bytes: 4096 };
        let map = if with_metadata { Map::with_metadata } else { Map::new };
        let map = map(geometry, Features::best()).expect("a region");
        let memory = Memory::new(&map.layout);
        map.pool.fill(&memory.agent(0));
        let mut in_none = vec![map.objects().0];
        if with_metadata {
            // The metadata in front of a buffer are in none, and not in the one before them.
            in_none.extend(
                map.pool
                    .classes
                    .iter()
                    .flat_map(|class| [class.start, class.start + class.distance()].map(|start| Address(start.0 - 8))),
            );
        }
        for (room, bytes) in [(128, 128), (129, 4096), (9600, 16384)] {
            let host = ccnic::host_queue(memory.agent(0), &map, 0);
            says_where_buffers_end(host, room, bytes, &in_none);
        }
    }
    let mut layout = Layout::new();
    let shape = cxl::Shape { descriptors: 16, buffers: 24, ..cxl::Shape::for_packets(1500) };
    let queues = shape.place(&mut layout).expect("a queue pair");
    let memory = Memory::new(&layout);
    let host = cxl::Host::new(queues, memory.agent(0), Signal::Tail);
    says_where_buffers_end(host, 1500, 1536, &[Address(layout.bytes())]);
}

#[test]
fn what_is_named_and_is_not_whole_in_a_buffer_has_no_bytes() {
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 4096 };
    let map = Map::new(geometry, Features::best()).expect("a region");
    let memory = Memory::new(&map.layout);
    map.pool.fill(&memory.agent(0));
    let mut host = ccnic::host_queue(memory.agent(0), &map, 0);
    let mut nic = Nic::<_, PhaseCredit>::new(memory.agent(1), &map, 0);
    let small = nic.rx_alloc(100).expect("a buffer");
    let named = [
        (small, 128, 128),
        (small, 129, 0),
        // Its first line is read, whatever its length.
        (small + 64, 1, 1),
        (small + 65, 1, 0),
        (map.objects().0, 60, 0),
        (Address(1 << 39), 60, 0),
    ];
    let packets = named.map(|(at, bytes, _)| Packet::new(at, bytes));
    assert_eq!(nic.rx_burst(&packets), packets.len());
    let mut received = [Packet::BLANK; 32];
    assert_eq!(receive_whole(&mut host, &mut received), packets.len());
    let found = received.map(|packet| (packet.address(), packet.length()));
    assert_eq!(found[..packets.len()], named.map(|(at, _, bytes)| (at, bytes)));
}

#[test]
fn what_finds_no_room_waits_for_it_in_its_order() {
    let mut layout = Layout::new();
    let shape = ring::Shape { descriptors: 8, buffers: 64, ..ring::Shape::default() };
    let pair = shape.place(&mut layout).expect("a queue pair");
    let memory = Memory::new(&layout);
    let mut host = pair.host(memory.agent(0));
    let mut nic = ring::Wire::new(pair.nic(PlayedByCore(memory.agent(1))), pair.shape());
    let mut buffers = [Address(0); 20];
    assert_eq!(HostQueue::buf_alloc(&mut host, 100, &mut buffers), 20);
    let mut waiting = Waiting::default();
    assert_eq!(waiting.send(&mut host), 0);
    for (number, &at) in (0..).zip(&buffers) {
        memory.agent(0).write_bytes(at, &[number; 64]);
        waiting.push(Packet::new(at, 64));
    }
    let (mut sent, mut came, mut frame) = (0, Vec::new(), vec![0; 2048]);
    while !waiting.is_empty() {
        assert_eq!(waiting.len(), 20, "those that were sent go with the last");
        let count = waiting.send(&mut host);
        assert!(count > 0 && count < 20, "{count} of 20 in a ring of 8");
        sent += count;
        while nic.take_frame(&mut frame).is_some() {
            came.push(frame[0]);
        }
    }
    assert_eq!((sent, waiting.len()), (20, 0));
    assert_eq!(came, (0..20).collect::<Vec<u8>>());
}
