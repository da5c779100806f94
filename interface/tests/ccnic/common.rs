//! What the tests of CC-NIC share: small instances, packets that know their content, and every combination of switches.

use std::collections::BTreeSet;

use conic_check::CrashMemory;
use conic_fabric::{Address, Core};
use conic_interface::ccnic::{
    Allocator, AllocatorFeatures, ClassMap, Descriptor, Features, Geometry, Map, Packing, PoolMap, Signal, prepare,
};

use crate::erased::{AnyHost, BoxedHost, BoxedNic, BoxedWire, host, nic};
use crate::guard::{Guard, Side};

/// Every signal with every packing, and from there each other switch turned.
pub fn all_features() -> Vec<Features> {
    let mut all = Vec::new();
    for signal in [Signal::Clear, Signal::Phase, Signal::Register] {
        for packing in [Packing::Grouped, Packing::Packed, Packing::Padded] {
            let base = Features { signal, packing, ..Features::best() };
            all.push(base);
            all.push(Features { whole_line: false, inline_payload: false, ..base });
            all.push(Features { shared_pool: false, ..base });
            all.push(Features { recycling: false, small_buffers: false, ..base });
        }
    }
    all.push(Features::paper());
    all.push(Features { scattered: false, ..Features::paper() });
    all.push(Features { scattered: false, recycling: false, ..Features::best() });
    all.push(Features { shared_pool: false, recycling: false, small_buffers: false, ..Features::paper() });
    all
}

/// One queue pair.
pub fn geometry(descriptors: u64, buffers: [u64; 3], object_bytes: u64) -> Geometry {
    Geometry { queues: 1, descriptors, buffers, object_bytes }
}

/// A fresh memory for an instance.
pub fn world(features: Features, geometry: Geometry) -> (Map, CrashMemory) {
    let map = Map::new(geometry, features).expect("a geometry that can be");
    let memory = CrashMemory::new(&map.layout);
    prepare(&memory.core("builder"), &map);
    (map, memory)
}

/// A host and a NIC on a fresh memory.
pub struct Pair {
    pub map: Map,
    pub memory: CrashMemory,
    pub host: BoxedHost<Guard>,
    pub nic: BoxedNic<Guard>,
}

impl Pair {
    pub fn new(features: Features, geometry: Geometry) -> Pair {
        Pair::of(Map::new(geometry, features).expect("a geometry that can be"))
    }

    /// The same, laid out in whatever way.
    pub fn of(map: Map) -> Pair {
        let features = map.features;
        let memory = CrashMemory::new(&map.layout);
        prepare(&memory.core("builder"), &map);
        let nic = nic(features, Guard::new(&memory, &map, "nic", Side::Nic), &map, 0);
        let host = host(features, Guard::new(&memory, &map, "host", Side::Host), &map, 0);
        Pair { map, memory, host, nic }
    }

    /// The NIC as a wire; the client keeps the host.
    pub fn wire(self) -> (Client, BoxedWire<Guard>) {
        (Client { host: self.host }, self.nic.wire())
    }
}

/// A host whose NIC is a wire.
pub struct Client {
    pub host: BoxedHost<Guard>,
}

impl Client {
    /// Allocates a buffer, writes packet `sequence` into it and sends it.
    pub fn send(&mut self, sequence: u64, length: u16) -> bool {
        send(&mut *self.host, sequence, length)
    }

    /// Receives everything that is there, asserts that it is packets `from..`, frees it, and returns how many.
    #[track_caller]
    pub fn receive(&mut self, from: u64, length: u16) -> u64 {
        let mut received = 0;
        loop {
            let mut out = [Descriptor::BLANK; 8];
            let count = self.host.rx_burst(&mut out);
            if count == 0 {
                return received;
            }
            for packet in &out[..count] {
                assert_eq!((packet.metadata, packet.length()), (!(from + received), length));
                verify(self.host.core(), packet.address(), from + received, length);
                self.host.buf_free(&[packet.address()]);
                received += 1;
            }
        }
    }
}

/// Allocates a buffer, writes packet `sequence` into it and sends it.
pub fn send<C: Core>(host: &mut dyn AnyHost<C>, sequence: u64, length: u16) -> bool {
    let Some(packet) = packet(host, sequence, length) else { return false };
    let sent = host.tx_burst(&[packet]) == 1;
    if !sent {
        host.buf_free(&[packet.address()]);
    }
    sent
}

/// A buffer of the host's with packet `sequence` in it.
pub fn packet<C: Core>(host: &mut dyn AnyHost<C>, sequence: u64, length: u16) -> Option<Descriptor> {
    let mut at = [Address(0)];
    if host.buf_alloc(u64::from(length), &mut at) == 0 {
        return None;
    }
    write(host.core(), at[0], sequence, length);
    Some(Descriptor::new(at[0], length).with_metadata(!sequence))
}

/// Byte `index` of packet `sequence`.
pub fn byte(sequence: u64, index: usize) -> u8 {
    let word = (sequence + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7 * (index / 8) as u32);
    word.to_le_bytes()[index % 8]
}

/// The bytes of packet `sequence`.
pub fn bytes(sequence: u64, length: usize) -> Vec<u8> {
    (0..length).map(|index| byte(sequence, index)).collect()
}

/// Writes packet `sequence` into a buffer.
pub fn write<C: Core>(core: &C, at: Address, sequence: u64, length: u16) {
    core.write_bytes(at, &bytes(sequence, usize::from(length)));
}

/// Asserts that a buffer holds packet `sequence`.
#[track_caller]
pub fn verify<C: Core>(core: &C, at: Address, sequence: u64, length: u16) {
    let mut read = vec![0; usize::from(length)];
    core.read_bytes(at, &mut read);
    assert!(read == bytes(sequence, usize::from(length)), "the {length} bytes at {at} are not packet {sequence}");
}

/// Every buffer there is.
pub fn all_buffers(map: &PoolMap) -> BTreeSet<Address> {
    let of_class = |class: &ClassMap| {
        let class = *class;
        (0..class.count).map(move |index| class.start + index * class.distance())
    };
    map.classes.iter().flat_map(of_class).collect()
}

/// The buffer that an address lies in.
#[track_caller]
pub fn buffer_of(map: &PoolMap, at: Address) -> Address {
    map.buffer_of(at).unwrap_or_else(|| panic!("{at} lies in no buffer"))
}

/// Asserts that each buffer is free in the pool, in `held`, or one of the `stacked` that lie on stacks; exactly once.
#[track_caller]
pub fn assert_whole(memory: &CrashMemory, map: &Map, held: impl IntoIterator<Item = Address>, stacked: [u64; 3]) {
    let core = memory.core("accountant");
    // Without a stack, so that every buffer is taken from the pool, and given back to it.
    let features = AllocatorFeatures { small_buffers: true, recycling: false, ..AllocatorFeatures::of(&map.features) };
    let mut allocator = Allocator::new(map.pool, features, false);
    let mut seen = BTreeSet::new();
    for at in held {
        assert!(seen.insert(buffer_of(&map.pool, at)), "{at} is held twice");
    }
    let mut free = Vec::new();
    while let Some(at) = allocator.allocate(&core, 1) {
        assert!(seen.insert(at), "{at} is in the pool although it is held, or twice");
        free.push(at);
    }
    let missing: Vec<_> = all_buffers(&map.pool).difference(&seen).copied().collect();
    let stacked: u64 = stacked.iter().sum();
    assert_eq!(missing.len() as u64, stacked, "not on {stacked} places of stacks: {missing:?}");
    for at in free {
        allocator.free(&core, at);
    }
}
