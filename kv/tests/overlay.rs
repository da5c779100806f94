//! A store on one interface, its clients behind another, and an overlay between: on ordinary memory, everybody by turns.

use std::rc::Rc;

use conic_fabric::{Home, LINE_BYTES, Layout, PlayedByCore, SynchronisingWords};
use conic_interface::overlay::Overlay;
use conic_interface::{ccnic, ring};
use conic_kv::{Catalogue, Clients, Demand, Filling, Server, Sizes, Store};
use conic_load::{Network, Traffic};
use conic_native::{Memory, NativeCore, Pages};

const JUMBO: u64 = 9600;

/// Serves so many requests through an overlay between CC-NIC and a ring of so many descriptors.
fn exchange(sizes: Sizes, window: u64, descriptors: u64, requests: u64) {
    let demand = Demand { keys: 200, sizes, zipf: 0.75, sets: 300, seed: 4 };
    let catalogue = Catalogue::new(demand);
    let bytes = catalogue.bytes_of_values();
    let geometry = ccnic::Geometry { queues: 1, descriptors: 64, buffers: [256, 256, 64], object_bytes: bytes };
    let map = ccnic::Map::new(geometry, ccnic::Features::best()).expect("a region that can be");
    let mut layout = map.layout.clone();
    let store = Store::place(&mut layout, demand.keys.into(), map.objects(), Home::Host);
    let shape = ring::Shape {
        descriptors,
        buffers: 3 * descriptors + 64,
        ..ring::Shape::for_packets(JUMBO).expect("jumbo frames fit")
    };
    let pair = shape.place(&mut layout).expect("a queue pair");
    let memory = Memory::create(&layout, Pages::Plain).expect("a small region");
    let core = NativeCore::new(&memory);
    map.pool.fill(&core);
    assert!(store.fill(&core, &catalogue), "the keys fit");
    let mut server = Server::new(vec![ccnic::host_queue(core, &map, 0)], store, 0);
    let mut overlay = Overlay::new(ccnic::nic_queue(core, &map, 0), pair.host(core), JUMBO as u16);
    let clients = Clients::new(Rc::new(catalogue), window, 11);
    let mut network = Network::new(core, ring::Wire::new(pair.nic(PlayedByCore(core)), shape), clients);
    let mut idle = 0;
    while network.account().received() < requests {
        let moved = server.step() + overlay.step() + network.step();
        idle = if moved == 0 { idle + 1 } else { 0 };
        assert!(idle < 1000, "it stands after {} answers", network.account().received());
    }
    assert_eq!((network.account().lost(), network.account().corrupt()), (0, 0));
    let answers = network.far_end().answers();
    assert!(answers.sets > requests / 5 && answers.gets > requests / 2, "{answers:?}");
}

#[test]
fn every_answer_comes_through_and_no_buffer_is_lost() {
    for sizes in [Sizes::Bytes(1), Sizes::Bytes(200), Sizes::ADS_LIKE, Sizes::GEO_LIKE] {
        exchange(sizes, 32, 64, 30_000);
    }
}

#[test]
fn a_ring_that_is_often_full_loses_nothing() {
    for window in [1, 7, 100] {
        exchange(Sizes::ADS_LIKE, window, 8, 10_000);
    }
}

#[test]
fn an_index_finds_every_key_and_no_other() {
    let keys = 100_000;
    let mut layout = Layout::new();
    let bytes = keys * LINE_BYTES;
    let values = layout.add("values", bytes, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    let store = Store::place(&mut layout, keys, (values, bytes), Home::Host);
    let memory = Memory::create(&layout, Pages::Plain).expect("a small region");
    let core = NativeCore::new(&memory);
    let mut filling = Filling::new(store);
    // Every third number, so that those between are not there.
    for key in 0..keys {
        assert!(filling.insert(&core, 3 * key, (key % 65) as u16), "key {key}");
    }
    assert!(!filling.insert(&core, 3 * keys, 1), "all slots are taken");
    let mut elsewhere = 0;
    for key in 0..3 * keys {
        let hashed = store.hash(key);
        let likely = store.likely(&core, hashed);
        let found = store.find(&core, hashed, likely);
        elsewhere += u64::from(found.is_some() && found != likely);
        let bytes = found.map(|slot| store.value(&core, slot).expect("nobody replaces it").bytes);
        assert_eq!(bytes, key.is_multiple_of(3).then_some((key / 3 % 65) as u16), "key {key}");
    }
    assert!((1..keys / 20).contains(&elsewhere), "{elsewhere} keys are not where they are looked for first");
}
