//! One NIC core that serves several queue pairs, over real memory: there it looks at each in turn, whatever it is asked.

use conic_fabric::{Address, Core};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::ccnic::{Features, Geometry, Map, host_queue, nic_queue, prepare};
use conic_interface::serve::{Attention, Server};
use conic_native::{Memory, NativeCore, Pages};

const QUEUES: usize = 5;

fn send<C: Core>(host: &mut impl HostQueue<Core = C>, content: u64) {
    let mut buffer = [Address(0)];
    assert_eq!(host.buf_alloc(64, &mut buffer), 1);
    host.core().store(buffer[0], content);
    assert_eq!(host.tx_burst(&[Packet::new(buffer[0], 64)]), 1);
}

fn receive<C: Core>(host: &mut impl HostQueue<Core = C>) -> Vec<u64> {
    let mut packets = [Packet::BLANK; 32];
    let count = host.rx_burst(&mut packets);
    let contents = packets[..count].iter().map(|packet| host.core().load(packet.address())).collect();
    for packet in &packets[..count] {
        host.buf_free(&[packet.address()]);
    }
    contents
}

#[test]
fn every_queue_pair_is_served_where_no_snoops_are_told() {
    for features in [Features::paper(), Features::best()] {
        for attention in [Attention::Polling, Attention::Snoops] {
            let geometry = Geometry { queues: QUEUES as u32, descriptors: 16, ..Geometry::default() };
            let map = Map::new(geometry, features).expect("a geometry that can be");
            let memory = Memory::create(&map.layout, Pages::Plain).expect("memory");
            let core = NativeCore::new(&memory);
            prepare(&core, &map);
            let mut hosts: Vec<_> = (0..QUEUES).map(|queue| host_queue(core, &map, queue)).collect();
            let nics = (0..QUEUES).map(|queue| nic_queue(core, &map, queue)).collect();
            let mut server = Server::new(core, nics, attention);
            assert_eq!(server.round(), 0, "nothing was sent");
            for round in 0..100 {
                let busy = round as usize % QUEUES;
                send(&mut hosts[busy], round);
                assert_eq!(server.round(), 1);
                for (queue, host) in hosts.iter_mut().enumerate() {
                    let expected = if queue == busy { vec![round] } else { vec![] };
                    assert_eq!(receive(host), expected, "{features}, {attention:?}");
                }
            }
            // Every queue pair is looked at in every round.
            assert_eq!(server.looks(), (101 * QUEUES as u64, 101 * QUEUES as u64 - 100));
        }
    }
}
