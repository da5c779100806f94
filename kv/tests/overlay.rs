//! A store on one interface, its clients behind another, and an overlay between: on ordinary memory, everybody by turns.

use std::sync::Arc;

use conic_fabric::{Home, PlayedByCore};
use conic_interface::overlay::Overlay;
use conic_interface::{ccnic, ring};
use conic_kv::{Catalogue, Clients, Demand, Server, Sizes, Store};
use conic_load::{Network, Traffic};
use conic_native::{Memory, NativeCore, Pages};

const JUMBO: u64 = 9600;

/// Serves so many requests through an overlay between CC-NIC and a ring of so many descriptors; `steps` are those of server, overlay
/// and network in a round.
fn exchange(sizes: Sizes, window: u64, descriptors: u64, requests: u64, steps: [usize; 3]) {
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
    let clients = Clients::new(Arc::new(catalogue), window, 11);
    let mut network = Network::new(core, ring::Wire::new(pair.nic(PlayedByCore(core)), shape), clients);
    let mut idle = 0;
    while network.account().received() < requests {
        let [serving, between, asking] = steps;
        let mut moved: usize = (0..serving).map(|_| server.step()).sum();
        moved += (0..between).map(|_| overlay.step()).sum::<usize>();
        moved += (0..asking).map(|_| network.step()).sum::<usize>();
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
        exchange(sizes, 32, 64, 30_000, [1; 3]);
    }
}

#[test]
fn a_ring_that_is_often_full_loses_nothing() {
    // One of the three does more than the others can take.
    for steps in [[1, 1, 1], [4, 1, 1], [1, 5, 1], [1, 3, 12]] {
        for window in [1, 7, 100, 600] {
            exchange(Sizes::ADS_LIKE, window, 8, 10_000, steps);
            exchange(Sizes::Bytes(10), window, 128, 10_000, steps);
        }
    }
}
