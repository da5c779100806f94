//! What a burst's lookups wait for, seen by a core that writes down what is done: misses of one kind overlap, and no line is asked for
//! before the one that names it is there.

use std::cell::RefCell;

use crate::common::{SMALL, connections, segment};
use conic_check::{Does, ToldCore};
use conic_fabric::Home;
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::{self, Features, Geometry, Map};
use conic_native::{Memory, NativeCore, Pages};
use conic_tcp::{Acknowledge, FastPath, Service};

#[test]
fn a_line_is_asked_for_when_the_one_that_names_it_is_there() {
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [0, 256, 0], object_bytes: 0 };
    let map = Map::new(geometry, Features::paper()).expect("a region that can be");
    let mut layout = map.layout.clone();
    let service = Service::place(&mut layout, SMALL, Home::Host).expect("a service");
    let memory = Memory::create(&layout, Pages::Plain).expect("a small region");
    let core = NativeCore::new(&memory);
    map.pool.fill(&core);
    let connections = connections(SMALL, [9, 10]);
    for (flow, connection) in (0..).zip(&connections) {
        assert!(service.install(&core, flow, connection));
    }
    let did = RefCell::new(Vec::new());
    let tell = |does: Does| did.borrow_mut().push(does);
    let queue = ccnic::host_queue(ToldCore::new(core, &tell), &map, 0);
    let mut fast_path = FastPath::new(vec![queue], &service, 0, Acknowledge::AtOnce);
    let mut nic = ccnic::nic_queue(core, &map, 0);
    let frames: Vec<Vec<u8>> = connections.iter().map(|connection| segment(connection, 64).frame(&[5; 64])).collect();
    assert_eq!(nic.deliver_frames(&frames), frames.len());
    did.borrow_mut().clear();
    fast_path.step();
    assert_eq!(fast_path.counted().segments, frames.len() as u64);
    // What stands between a prefetch and what it waited for is work.
    let is_of_lines = |does: &Does| matches!(does, Does::ReadLine(_) | Does::Prefetch(_) | Does::DependsOn(_));
    let did: Vec<Does> = did.take().into_iter().filter(is_of_lines).collect();
    let within = |name: &str, does: &Does| match does {
        Does::ReadLine(at) | Does::Prefetch(at) | Does::DependsOn(at) => {
            layout.segment_of(*at).is_some_and(|segment| segment.name == name)
        }
        _ => false,
    };
    let first = |what: &dyn Fn(&Does) -> bool| did.iter().position(what).expect("it was done");
    let last = |what: &dyn Fn(&Does) -> bool| did.iter().rposition(what).expect("it was done");
    let is_read = |does: &Does| matches!(does, Does::ReadLine(_));
    let is_wait = |does: &Does| matches!(does, Does::DependsOn(_));
    let is_ask = |does: &Does| matches!(does, Does::Prefetch(_));
    // Every bucket is asked for before one is waited for, and every connection before one is read.
    let bucket = |does: &Does| within("TCP table", does);
    let connection = |does: &Does| within("TCP connections", does);
    assert!(last(&|does| bucket(does) && is_ask(does)) < first(&|does| bucket(does) && is_wait(does)), "{did:?}");
    assert!(first(&|does| bucket(does) && is_wait(does)) < first(&|does| connection(does) && is_ask(does)), "{did:?}");
    assert!(last(&|does| connection(does) && is_ask(does)) > last(&|does| bucket(does) && is_wait(does)), "{did:?}");
    assert!(
        last(&|does| bucket(does) && is_wait(does)) < first(&|does| connection(does) && is_read(does)),
        "a connection is read when all are asked for: {did:?}"
    );
    // A bucket is asked for when its header is there, and every header is read before one is waited for.
    let waits: Vec<usize> =
        (0..did.len()).filter(|&index| bucket(&did[index]) && is_ask(&did[index])).map(|at| at - 1).collect();
    assert_eq!(waits.len(), frames.len());
    for &wait in &waits {
        let Does::DependsOn(header) = did[wait] else { panic!("not behind its header: {did:?}") };
        assert!(first(&|does| *does == Does::ReadLine(header)) < waits[0], "{did:?}");
    }
}
