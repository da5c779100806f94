//! What a burst's lookups wait for, seen by a core that writes down what is done: misses of one kind overlap, and no line is asked for
//! before the one that names it is there.

use std::cell::RefCell;

use conic_check::{Does, ToldCore};
use conic_fabric::{Home, Layout};
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::{self, Features, Geometry, Map};
use conic_kv::message::{Operation, Request, checksum};
use conic_kv::{Catalogue, Demand, Server, Sizes, Store};
use conic_native::{Memory, NativeCore, Pages};

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
    let did = RefCell::new(Vec::new());
    let told = ToldCore::new(core, |does| did.borrow_mut().push(does));
    let mut server = Server::new(vec![ccnic::host_queue(told, &map, 0)], store, 0);
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
    // What stands between a prefetch and what it waited for is work.
    let is_of_lines = |does: &Does| matches!(does, Does::ReadLine(_) | Does::Prefetch(_) | Does::DependsOn(_));
    let did: Vec<Does> = did.take().into_iter().filter(is_of_lines).collect();
    let position = |what| did.iter().position(|&other| other == what);
    let mut headers = Vec::new();
    for key in KEYS {
        let bucket = store.first_bucket(store.hash(key));
        let asked = position(Does::Prefetch(bucket)).expect("a bucket is asked for");
        let Does::DependsOn(header) = did[asked - 1] else { panic!("key {key}: not behind its header: {did:?}") };
        headers.push((position(Does::ReadLine(header)).expect("which was read"), asked - 1));
        let there = position(Does::DependsOn(bucket)).expect("a bucket is waited for");
        let slot = store.find(&core, store.hash(key), None).expect("every key is there").line();
        assert!(position(Does::Prefetch(slot)).is_some_and(|asked| asked > there), "key {key}: {did:?}");
    }
    let (last_read, first_wait) =
        headers.iter().fold((0, usize::MAX), |(last, first), &(read, waited)| (last.max(read), first.min(waited)));
    assert!(last_read < first_wait, "the headers' misses overlap: {did:?}");
}
