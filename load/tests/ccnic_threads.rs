//! CC-NIC between two threads over native memory: everything comes back, in order, with its content.
//!
//! For ThreadSanitizer and AddressSanitizer too, with `conic-native/portable`: machine instructions are opaque to them.

use conic_fabric::Time;
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::{Features, Geometry, Host, Map, Nic, Packing, PhaseCredit, Policy, Signal, Wire, prepare};
use conic_interface::with_policy;
use conic_load::{ClosedLoop, Workload, frame_header};
use conic_native::{Flag, Memory, NativeCore, Pages, yield_core};

/// Round trips of each run: a second or two under a sanitizer, on two busy cores.
const PACKETS: u64 = 20_000;

/// Says that the run is over, also when a thread panics, so that the others end.
struct Over<'a>(&'a Flag);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// One application and one NIC thread for each queue pair, all on one pool.
fn run<P: Policy>(features: Features, geometry: Geometry, workload: Workload, packets: u64) {
    let map = Map::new(geometry, features).expect("a geometry that can be");
    let memory = Memory::create(&map.layout, Pages::Plain).expect("memory");
    prepare(&NativeCore::new(&memory), &map);
    let (map, memory) = (&map, &memory);
    for_each_queue(
        geometry.queues,
        |queue, over| {
            let mut wire = Wire::new(Nic::<_, P>::new(NativeCore::new(memory), map, queue));
            while !over.is_up() {
                if wire.turn_around() == 0 {
                    wire.spin();
                    // Two threads may have one core.
                    yield_core();
                }
            }
            assert_eq!((wire.dropped(), wire.refused()), (0, 0), "{features}");
            wire.nic().drain();
        },
        |queue| {
            let host = Host::<_, P>::new(NativeCore::new(memory), map, queue);
            let mut application = ClosedLoop::new(host, workload);
            while application.account().received() < packets {
                if application.step() == 0 {
                    yield_core();
                }
                assert_eq!(application.account().lost() + application.account().corrupt(), 0, "{features}");
            }
            application.drain(Time::NEVER);
            assert_eq!(application.account().lost() + application.account().corrupt(), 0, "{features}");
            assert_eq!(application.queue().faults(), Default::default(), "{features}");
            application.queue().drain();
        },
    );
    let free = map.pool.free(&NativeCore::new(memory));
    if features.shared_pool {
        assert_eq!(free, geometry.buffers, "{features}: buffers were lost");
    }
}

/// Runs both sides of every queue pair; the NICs' sides end when all applications have.
fn for_each_queue(queues: u32, nic: impl Fn(usize, &Flag) + Sync, application: impl Fn(usize) + Sync) {
    let over = Flag::new();
    std::thread::scope(|scope| {
        let (nic, application, over) = (&nic, &application, &over);
        let ends = Over(over);
        let nics: Vec<_> = (0..queues as usize).map(|queue| scope.spawn(move || nic(queue, over))).collect();
        let applications: Vec<_> = (0..queues as usize).map(|queue| scope.spawn(move || application(queue))).collect();
        for thread in applications {
            thread.join().expect("an application ends");
        }
        drop(ends);
        // Joined here too: ThreadSanitizer does not understand what a scope does at its end.
        for thread in nics {
            thread.join().expect("a NIC ends");
        }
    });
}

fn workload(packet_size: u16, window: u64) -> Workload {
    Workload { packet_size, window, transmit_burst: 16, receive_burst: 32, fetch_ahead: true }
}

fn one_queue(features: Features, workload: Workload, packets: u64) {
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [512, 256, 64], object_bytes: 0 };
    with_policy!(features, P => run::<P>(features, geometry, workload, packets));
}

fn packings(signal: Signal) {
    for packing in [Packing::Grouped, Packing::Packed, Packing::Padded] {
        for whole_line in [true, false] {
            let features = Features { signal, packing, whole_line, ..Features::best() };
            one_queue(features, workload(64, 32), PACKETS);
        }
    }
}

#[test]
fn cleared() {
    packings(Signal::Clear);
}

#[test]
fn by_phase() {
    packings(Signal::Phase);
}

#[test]
fn by_registers() {
    packings(Signal::Register);
}

#[test]
fn one_packet_at_a_time() {
    for features in [Features::paper(), Features::best()] {
        // In one line of the ring, in two, and in a buffer.
        for size in [16, 48, 64, 104, 105] {
            one_queue(features, workload(size, 1), PACKETS / 20);
        }
    }
}

#[test]
fn large_packets() {
    for features in [Features::paper(), Features::best()] {
        one_queue(features, workload(1500, 32), PACKETS / 4);
        one_queue(features, workload(9600, 8), PACKETS / 20);
    }
}

#[test]
fn ablations() {
    let paper = Features::paper();
    for features in [
        Features { recycling: false, ..paper },
        Features { scattered: false, ..paper },
        Features { small_buffers: false, ..paper },
        Features { shared_pool: false, ..paper },
        Features { shared_pool: false, recycling: false, ..Features::best() },
    ] {
        one_queue(features, workload(64, 32), PACKETS);
    }
}

#[test]
fn several_queues_share_one_pool() {
    for features in [Features::paper(), Features::best(), Features { recycling: false, ..Features::best() }] {
        let geometry = Geometry { queues: 3, descriptors: 64, buffers: [512, 64, 0], object_bytes: 0 };
        with_policy!(features, P => run::<P>(features, geometry, workload(64, 24), PACKETS / 2));
    }
}

/// Packets of a framed loop over a NIC that sends them back as they were, and how many of them were corrupt.
fn framed(packet_size: u16, own: [u8; 6], other: [u8; 6]) -> (u64, u64) {
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [256, 64, 0], object_bytes: 0 };
    let map = Map::new(geometry, Features::best()).expect("a geometry that can be");
    let memory = Memory::create(&map.layout, Pages::Plain).expect("memory");
    prepare(&NativeCore::new(&memory), &map);
    let mut wire = Wire::new(Nic::<_, PhaseCredit>::new(NativeCore::new(&memory), &map, 0));
    let host = Host::<_, PhaseCredit>::new(NativeCore::new(&memory), &map, 0);
    let workload = Workload { packet_size, window: 8, transmit_burst: 4, receive_burst: 4, fetch_ahead: true };
    let mut application = ClosedLoop::framed(host, workload, own, other);
    while application.account().received() < 100 {
        application.step();
        wire.turn_around();
    }
    (application.account().received(), application.account().corrupt())
}

#[test]
fn a_frame_comes_back_with_its_addresses_swapped_or_is_corrupt() {
    let (here, there) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    for packet_size in [32, 60, 64, 1500] {
        let (_, corrupt) = framed(packet_size, here, here);
        assert_eq!(corrupt, 0, "{packet_size} bytes to itself");
        let (received, corrupt) = framed(packet_size, here, there);
        assert_eq!(corrupt, received, "{packet_size} bytes that nobody answered");
    }
    let header = frame_header([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]).map(u64::to_ne_bytes).concat();
    assert_eq!(header, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x88, 0xb5, 0, 0]);
}
