//! A NIC that posts copies, over real memory, where a core that posts one makes it: packets of every shape come back whole.

use conic_fabric::{Address, Core};
use conic_interface::burst::{HostQueue, NicQueue, Packet};
use conic_interface::ccnic::{
    Completions, Descriptor, Features, Flags, Geometry, Map, bulk_nic_queue, host_queue, prepare,
};
use conic_native::{Memory, NativeCore, Pages};

/// A queue pair with a bulk NIC, and its memory.
fn pair(features: Features, buffers: [u64; 3], test: impl FnOnce(&mut dyn Host, &mut dyn NicQueue)) {
    let geometry = Geometry { descriptors: 64, buffers, ..Geometry::default() };
    let map = Map::new(geometry, features).expect("a geometry that can be");
    let mut layout = map.layout.clone();
    let completions = Completions::place(&mut layout);
    let memory = Memory::create(&layout, Pages::Plain).expect("memory");
    let core = NativeCore::new(&memory);
    prepare(&core, &map);
    let mut host = host_queue(core, &map, 0);
    let mut nic = bulk_nic_queue(core, &map, 0, completions);
    test(&mut host, &mut *nic);
}

/// A host's half whose core is of no interest.
trait Host {
    fn allocate(&mut self, bytes: u64) -> Option<Address>;
    fn write(&self, at: Address, bytes: &[u8]);
    fn send(&mut self, packets: &[Packet]) -> usize;
    /// The bytes of what has come, and whether they are in order; the buffers are freed.
    fn receive(&mut self) -> Vec<Vec<u8>>;
}

impl<Q: HostQueue> Host for Q {
    fn allocate(&mut self, bytes: u64) -> Option<Address> {
        let mut at = [Address(0)];
        (self.buf_alloc(bytes, &mut at) == 1).then_some(at[0])
    }
    fn write(&self, at: Address, bytes: &[u8]) {
        self.core().write_bytes(at, bytes);
    }
    fn send(&mut self, packets: &[Packet]) -> usize {
        self.tx_burst(packets)
    }
    fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut packets = [Packet::BLANK; 32];
        let count = self.rx_burst(&mut packets);
        let read = |packet: &Packet| {
            let mut bytes = vec![0; usize::from(packet.length())];
            self.core().read_bytes(packet.address(), &mut bytes);
            bytes
        };
        let all = packets[..count].iter().map(read).collect();
        for packet in &packets[..count] {
            self.buf_free(&[packet.address()]);
        }
        all
    }
}

/// Lets the NIC turn around what it can: a copy is made when it is posted, so a few rounds are enough.
fn turn_around(nic: &mut dyn NicQueue) -> usize {
    (0..10).map(|_| nic.turn_around()).sum()
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|index| (seed * 31 + index * 7) as u8).collect()
}

#[test]
fn packets_of_every_size_come_back_whole_and_in_order() {
    for features in [Features::paper(), Features::best(), Features { shared_pool: false, ..Features::paper() }] {
        let buffers = if features.shared_pool { [512, 512, 64] } else { [512, 512, 0] };
        pair(features, buffers, |host, nic| {
            for round in 0..40 {
                // Blank buffers that the host posts may be of 4 KiB.
                let count = if features.shared_pool { 10 } else { 8 };
                let sizes = &[1_u16, 60, 64, 65, 128, 129, 1500, 4096, 4097, 9600][..count];
                for (index, &size) in sizes.iter().enumerate() {
                    let at = host.allocate(size.into()).expect("a pool that is large enough");
                    host.write(at, &bytes(round + index as u64, size.into()));
                    assert_eq!(host.send(&[Descriptor::new(at, size)]), 1);
                }
                assert_eq!(turn_around(nic), sizes.len(), "{features}, round {round}");
                let expected: Vec<_> =
                    sizes.iter().enumerate().map(|(index, &size)| bytes(round + index as u64, size.into())).collect();
                assert_eq!(host.receive(), expected, "{features}, round {round}");
            }
            assert_eq!((nic.refused(), nic.dropped()), (0, 0));
        });
    }
}

#[test]
fn packets_of_pieces_or_within_a_line_are_put_together() {
    pair(Features::paper(), [512, 512, 4], |host, nic| {
        let (first, second, third) = (bytes(1, 100), bytes(2, 7), bytes(3, 70));
        let at = [100, 7, 200].map(|size| host.allocate(size).expect("a pool that is large enough"));
        let within = at[2] + 24;
        for (at, bytes) in [(at[0], &first), (at[1], &second), (within, &third)] {
            host.write(at, bytes);
        }
        let chain = [Descriptor::new(at[0], 100).with(Flags::NEXT), Descriptor::new(at[1], 7)];
        assert_eq!(host.send(&chain), 2);
        assert_eq!(host.send(&[Descriptor::new(within, 70)]), 1);
        assert_eq!(turn_around(nic), 2);
        assert_eq!(host.receive(), [[first, second].concat(), third]);
        assert_eq!((nic.refused(), nic.dropped()), (0, 0));
    });
}

#[test]
fn a_packet_without_a_buffer_is_dropped_and_those_behind_it_are_not() {
    // Two large buffers: one holds the packet, none may be left for its copy.
    pair(Features { recycling: false, ..Features::paper() }, [256, 2, 0], |host, nic| {
        let large: Vec<Address> = std::iter::from_fn(|| host.allocate(1000)).take(2).collect();
        assert_eq!(large.len(), 2, "both large buffers");
        let small = host.allocate(64).expect("a small one");
        host.write(small, &bytes(9, 64));
        assert_eq!(host.send(&[Descriptor::new(large[0], 1000), Descriptor::new(small, 64)]), 2);
        assert_eq!((turn_around(nic), nic.dropped()), (1, 1));
        assert_eq!(host.receive(), [bytes(9, 64)]);
    });
}
