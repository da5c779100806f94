//! A whole host and a whole NIC under many schedules: transmit, turn around in a buffer of the pool, receive, free.

use std::sync::Arc;

use conic_check::{Exploration, LoomMemory, explore, spawn};
use conic_fabric::{Address, Core};
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::{
    BulkWire, Completions, Descriptor, Features, Geometry, Host, Map, Nic, Packing, Policy, Signal, Wire,
};
use conic_interface::with_policy;

/// Packets of one word there and back; with `completions`, by a NIC that posts copies.
fn round_trip<P: Policy>(memory: &LoomMemory, map: &Arc<Map>, completions: Option<Completions>, packets: u64) {
    map.pool.fill(&memory.core("builder"));
    let (host_core, nic_core) = (memory.core("host"), memory.core("nic"));
    let nic_map = Arc::clone(map);
    // Before the host, which posts buffers where it manages the pool alone.
    let nic = spawn(move || {
        let nic = Nic::<_, P>::new(nic_core, &nic_map, 0);
        let mut wire: Box<dyn NicQueue> = match completions {
            None => Box::new(Wire::new(nic)),
            Some(completions) => Box::new(BulkWire::new(nic, completions)),
        };
        let mut done = 0;
        while done < packets {
            let count = wire.turn_around();
            done += count as u64;
            if count == 0 {
                wire.spin();
            }
        }
        assert_eq!((wire.dropped(), wire.refused()), (0, 0));
        wire.drain();
    });
    let map = Arc::clone(map);
    let host = spawn(move || {
        let mut host = Host::<_, P>::new(host_core, &map, 0);
        let (mut sent, mut received) = (0, 0);
        let mut waiting = None;
        while received < packets {
            let mut progress = false;
            if sent < packets {
                let mut at = [Address(0)];
                if waiting.is_none() && host.buf_alloc(8, &mut at) == 1 {
                    host.core().store(at[0], sent + 1);
                    waiting = Some(Descriptor::new(at[0], 8).with_metadata(sent));
                }
                if let Some(packet) = waiting
                    && host.tx_burst(&[packet]) == 1
                {
                    (waiting, sent, progress) = (None, sent + 1, true);
                }
            }
            let mut out = [Descriptor::BLANK; 4];
            let count = host.rx_burst(&mut out);
            for packet in &out[..count] {
                assert_eq!((packet.metadata, packet.length()), (received, 8));
                assert_eq!(host.core().load(packet.address()), received + 1);
                host.buf_free(&[packet.address()]);
                received += 1;
                progress = true;
            }
            if !progress {
                host.core().spin();
            }
        }
        host.drain();
        assert_eq!(host.faults(), Default::default());
    });
    nic.join().expect("the NIC ends");
    host.join().expect("the host ends");
}

fn explores(features: Features, buffers: [u64; 3], packets: u64, bound: usize) {
    explores_with(features, buffers, packets, bound, false);
}

fn explores_with(features: Features, buffers: [u64; 3], packets: u64, bound: usize, bulk: bool) {
    let geometry = Geometry { queues: 1, descriptors: if bulk { 32 } else { 4 }, buffers, object_bytes: 0 };
    let map = Arc::new(Map::new(geometry, features).expect("a geometry that can be"));
    let mut layout = map.layout.clone();
    let completions = bulk.then(|| Completions::place(&mut layout));
    let exploration = Exploration { max_branches: 20_000, ..Exploration::bounded(bound) };
    let executions = with_policy!(features, P => {
        explore(&layout, exploration, move |memory| round_trip::<P>(memory, &map, completions, packets))
    });
    println!("{features}: {executions} executions");
    assert!(executions > 1);
}

#[test]
fn the_paper() {
    explores(Features::paper(), [4, 0, 0], 2, 3);
}

#[test]
fn what_measured_best() {
    explores(Features::best(), [4, 0, 0], 2, 3);
}

#[test]
fn registers() {
    explores(Features { signal: Signal::Register, ..Features::paper() }, [4, 0, 0], 2, 3);
}

#[test]
fn a_pool_of_the_host_alone() {
    let posted = Features { shared_pool: false, ..Features::paper() };
    explores(posted, [4, 8, 0], 2, 2);
    for packing in [Packing::Packed, Packing::Padded] {
        explores(Features { packing, ..posted }, [4, 8, 0], 2, 2);
    }
    explores(Features { signal: Signal::Register, ..posted }, [4, 8, 0], 2, 2);
}

#[test]
fn copies_that_are_posted() {
    explores_with(Features::paper(), [8, 0, 0], 2, 2, true);
}

#[test]
fn copies_that_are_posted_where_the_best_is_on() {
    // Buffers of packets that come in the ring are kept until the copies are done: four would not be enough, and packets dropped.
    explores_with(Features::best(), [8, 0, 0], 2, 2, true);
}
