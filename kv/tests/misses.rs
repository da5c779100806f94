//! What a burst's lookups wait for, seen by a core that writes down what is done: misses of one kind overlap, and no line is asked for
//! before the one that names it is there.

use std::cell::RefCell;

use conic_fabric::{Address, Core, Home, Layout, Line, Time};
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::{self, Features, Geometry, Map};
use conic_kv::message::{Operation, Request, checksum};
use conic_kv::{Catalogue, Demand, Server, Sizes, Store};
use conic_native::{Memory, NativeCore, Pages};

/// What a core did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Read(Address),
    Prefetch(Address),
    Wait(Address),
}

/// A core that writes down what it does to lines.
#[derive(Clone, Copy)]
struct Writing<'a> {
    core: NativeCore<'a>,
    did: &'a RefCell<Vec<Did>>,
}

impl Core for Writing<'_> {
    fn load_acquire(&self, at: Address) -> u64 {
        self.core.load_acquire(at)
    }
    fn store_release(&self, at: Address, value: u64) {
        self.core.store_release(at, value);
    }
    fn fetch_and(&self, at: Address, bits: u64) -> u64 {
        self.core.fetch_and(at, bits)
    }
    fn fetch_or(&self, at: Address, bits: u64) -> u64 {
        self.core.fetch_or(at, bits)
    }
    fn compare_exchange(&self, at: Address, current: u64, new: u64) -> Result<u64, u64> {
        self.core.compare_exchange(at, current, new)
    }
    fn load(&self, at: Address) -> u64 {
        self.core.load(at)
    }
    fn store(&self, at: Address, value: u64) {
        self.core.store(at, value);
    }
    fn read_line(&self, at: Address) -> Line {
        self.did.borrow_mut().push(Did::Read(at));
        self.core.read_line(at)
    }
    fn write_line(&self, at: Address, line: &Line) {
        self.core.write_line(at, line);
    }
    fn publish_line(&self, at: Address, line: &Line) {
        self.core.publish_line(at, line);
    }
    fn read_bytes(&self, at: Address, into: &mut [u8]) {
        self.core.read_bytes(at, into);
    }
    fn write_bytes(&self, at: Address, from: &[u8]) {
        self.core.write_bytes(at, from);
    }
    fn prefetch_read(&self, at: Address) {
        self.did.borrow_mut().push(Did::Prefetch(at));
    }
    fn depends_on(&self, at: Address) {
        self.did.borrow_mut().push(Did::Wait(at));
    }
    fn full_fence(&self) {
        self.core.full_fence();
    }
    fn spin(&self) {
        self.core.spin();
    }
    fn now(&self) -> Time {
        self.core.now()
    }
}

#[test]
fn a_line_is_asked_for_when_the_one_that_names_it_is_there() {
    // Two slots lie in a line: these are in lines of their own.
    const KEYS: [u64; 8] = [0, 2, 4, 6, 8, 10, 12, 14];
    let demand = Demand { keys: 200, sizes: Sizes::Bytes(64), zipf: 0.0, sets: 0, seed: 1 };
    let catalogue = Catalogue::new(demand);
    let geometry =
        Geometry { queues: 1, descriptors: 64, buffers: [0, 256, 128], object_bytes: catalogue.bytes_of_values() };
    let map = Map::new(geometry, Features::paper()).expect("a region that can be");
    let mut layout: Layout = map.layout.clone();
    let store = Store::place(&mut layout, demand.keys.into(), map.objects(), Home::Host);
    let memory = Memory::create(&layout, Pages::Plain).expect("a small region");
    let core = NativeCore::new(&memory);
    map.pool.fill(&core);
    assert!(store.fill(&core, &catalogue), "the keys fit");
    let did = RefCell::default();
    let writing = Writing { core, did: &did };
    let mut server = Server::new(vec![ccnic::host_queue(writing, &map, 0)], store, 0);
    let mut nic = ccnic::nic_queue(core, &map, 0);
    let get = |key| {
        let request = Request { operation: Operation::Get, key, value_bytes: 0, number: 1, checksum: checksum(&[]) };
        request.header(1).to_bytes().to_vec()
    };
    let gets = KEYS.map(get).to_vec();
    assert_eq!(nic.deliver_frames(&gets), gets.len());
    did.borrow_mut().clear();
    while server.served().gets < gets.len() as u64 {
        server.step();
    }
    let did = did.take();
    let position = |what| did.iter().position(|&other| other == what);
    let mut headers = Vec::new();
    for key in KEYS {
        let bucket = store.first_bucket(store.hash(key));
        let asked = position(Did::Prefetch(bucket)).expect("a bucket is asked for");
        let Did::Wait(header) = did[asked - 1] else { panic!("key {key}: not behind its header: {did:?}") };
        headers.push((position(Did::Read(header)).expect("which was read"), asked - 1));
        let there = position(Did::Wait(bucket)).expect("a bucket is waited for");
        let slot = store.find(&core, store.hash(key), None).expect("every key is there").line();
        assert!(position(Did::Prefetch(slot)).is_some_and(|asked| asked > there), "key {key}: {did:?}");
    }
    let (last_read, first_wait) =
        headers.iter().fold((0, usize::MAX), |(last, first), &(read, waited)| (last.max(read), first.min(waited)));
    assert!(last_read < first_wait, "the headers' misses overlap: {did:?}");
}
