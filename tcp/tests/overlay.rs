//! A service on one interface, its clients behind another, and an overlay between: on ordinary memory, everybody by turns.

use crate::common::{SMALL, connections};
use conic_fabric::{Home, PlayedByCore};
use conic_interface::overlay::Overlay;
use conic_interface::{ccnic, ring};
use conic_load::{Network, Traffic};
use conic_native::{Memory, NativeCore, Pages};
use conic_tcp::segment::{HEADER_BYTES, MOST_PAYLOAD};
use conic_tcp::{Acknowledge, Application, Clients, FastPath, Load, Service};

const MOST: u16 = HEADER_BYTES + MOST_PAYLOAD;

#[test]
fn every_answer_comes_through_an_overlay() {
    for descriptors in [8, 64] {
        for steps in [[1, 1, 1, 1], [4, 1, 1, 1], [1, 5, 1, 2], [1, 1, 12, 3]] {
            let geometry = ccnic::Geometry { queues: 1, descriptors: 64, buffers: [512, 256, 0], object_bytes: 0 };
            let map = ccnic::Map::new(geometry, ccnic::Features::paper()).expect("a region that can be");
            let mut layout = map.layout.clone();
            let service = Service::place(&mut layout, SMALL, Home::Host).expect("a service");
            let shape = ring::Shape {
                descriptors,
                buffers: 3 * descriptors + 64,
                ..ring::Shape::for_packets(MOST.into()).expect("frames fit")
            };
            let pair = shape.place(&mut layout).expect("a queue pair");
            let memory = Memory::create(&layout, Pages::Plain).expect("a small region");
            let core = NativeCore::new(&memory);
            map.pool.fill(&core);
            let connections = connections(SMALL, [9, 10]);
            for (flow, connection) in (0..).zip(&connections) {
                assert!(service.install(&core, flow, connection));
            }
            let queue = ccnic::host_queue(core, &map, 0);
            let mut fast_path = FastPath::new(vec![queue], &service, 0, Acknowledge::AtOnce);
            let mut application = Application::new(core, &service, 0);
            let mut overlay = Overlay::new(ccnic::nic_queue(core, &map, 0), pair.host(core), MOST);
            let clients = Clients::new(&connections, SMALL.buffers[0], Load { window: 40, requests_a_segment: 3 }, 2);
            let mut network = Network::new(core, ring::Wire::new(pair.nic(PlayedByCore(core)), shape), clients);
            let mut idle = 0;
            while network.account().received() < 10_000 {
                let mut moved: usize = (0..steps[0]).map(|_| fast_path.step()).sum();
                moved += (0..steps[1]).map(|_| overlay.step()).sum::<usize>();
                moved += (0..steps[2]).map(|_| network.step()).sum::<usize>();
                moved += (0..steps[3]).map(|_| application.step()).sum::<usize>();
                idle = if moved == 0 { idle + 1 } else { 0 };
                assert!(idle < 100_000, "it stands after {} answers", network.account().received());
            }
            assert_eq!(network.account().corrupt(), 0);
        }
    }
}
