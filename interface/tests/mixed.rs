//! Bursts of packets of all sizes and shapes through a NIC that is a loopback.

use conic_fabric::{Address, Core};
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::{Descriptor, Features, Flags, Geometry, Host, Map, Nic, PhaseCredit, Wire, prepare};
use conic_native::{Memory, NativeCore, Pages};

/// Bytes of each packet of a burst. Each class stands behind each other one, and there are runs of a class.
const SIZES: [u16; 16] = [60, 64, 1500, 128, 129, 9000, 60, 9000, 1514, 4096, 4097, 61, 127, 100, 60, 60];
const BUFFERS: u64 = 64;
const ROUNDS: usize = 200;

fn byte(round: usize, index: usize, at: usize) -> u8 {
    (round * 31 + index * 7 + at) as u8
}

/// A packet with its bytes written; every fifth begins within a line, and of every third the last byte is a segment of its own.
fn packet(
    host: &mut Host<NativeCore<'_>, PhaseCredit>,
    round: usize,
    index: usize,
    length: u16,
) -> ([Descriptor; 2], usize) {
    let bytes: Vec<u8> = (0..usize::from(length)).map(|at| byte(round, index, at)).collect();
    let inside = if (round + index).is_multiple_of(5) { 8 } else { 0 };
    let mut at = [Address(0)];
    assert_eq!(host.buf_alloc(u64::from(length) + inside, &mut at), 1, "a buffer for {length} bytes in round {round}");
    let at = at[0] + inside;
    if !(round + index).is_multiple_of(3) {
        host.core().write_bytes(at, &bytes);
        return ([Descriptor::new(at, length).with_metadata(index as u64), Descriptor::BLANK], 1);
    }
    let mut last = [Address(0)];
    assert_eq!(host.buf_alloc(1, &mut last), 1, "a buffer for a byte in round {round}");
    let (front, end) = bytes.split_at(usize::from(length) - 1);
    host.core().write_bytes(at, front);
    host.core().write_bytes(last[0], end);
    let first = Descriptor::new(at, length - 1).with(Flags::NEXT).with_metadata(index as u64);
    ([first, Descriptor::new(last[0], 1)], 2)
}

#[test]
fn packets_of_all_sizes_and_shapes_come_back_whole_in_the_smallest_buffers() {
    // With stacks, and where each buffer goes to the pool and comes from it.
    for features in [Features::best(), Features { recycling: false, ..Features::best() }] {
        let geometry = Geometry { queues: 1, descriptors: 256, buffers: [BUFFERS; 3], object_bytes: 0 };
        let map = Map::new(geometry, features).expect("a geometry that can be");
        let memory = Memory::create(&map.layout, Pages::Plain).expect("a region");
        let core = NativeCore::new(&memory);
        prepare(&core, &map);
        let mut host = Host::<_, PhaseCredit>::new(core, &map, 0);
        let mut wire = Wire::new(Nic::<_, PhaseCredit>::new(core, &map, 0));
        for round in 0..ROUNDS {
            let order: Vec<usize> = (0..8).map(|index| (index * 5 + round) % SIZES.len()).collect();
            let mut burst = Vec::new();
            for &index in &order {
                let (segments, count) = packet(&mut host, round, index, SIZES[index]);
                burst.extend_from_slice(&segments[..count]);
            }
            assert_eq!(host.tx_burst(&burst), burst.len());
            let mut received = Vec::new();
            while received.len() < order.len() {
                assert!(wire.turn_around() > 0, "{features}: {} of a burst in round {round}", received.len());
                let mut out = [Descriptor::BLANK; 32];
                let count = host.rx_burst(&mut out);
                received.extend_from_slice(&out[..count]);
            }
            for (packet, index) in received.iter().zip(order) {
                assert_eq!((packet.length(), packet.metadata), (SIZES[index], index as u64));
                let mut bytes = vec![0; usize::from(packet.length())];
                core.read_bytes(packet.address(), &mut bytes);
                let whole = bytes.iter().enumerate().all(|(at, &got)| got == byte(round, index, at));
                assert!(whole, "{features}: {} bytes in round {round}", packet.length());
                let smallest = map.pool.classes.iter().position(|class| class.size() >= u64::from(packet.length()));
                assert_eq!(map.pool.class_of(packet.address()), smallest, "{features}: {} bytes", packet.length());
                host.buf_free(&[packet.address()]);
            }
        }
        assert_eq!((wire.faults().total(), wire.dropped()), (0, 0));
        wire.nic().drain();
        host.drain();
        assert_eq!(map.pool.free(&core), [BUFFERS; 3], "{features}: each class has all its buffers again");
    }
}
