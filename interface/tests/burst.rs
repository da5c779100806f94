//! What every host's half says of its buffers.

use crate::common::Memory;
use conic_fabric::{Address, Layout};
use conic_interface::burst::HostQueue;
use conic_interface::ccnic::{self, Features, Geometry, Map};
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
