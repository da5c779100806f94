//! No coordinated omission: a peer that stands still for a while shows in the latency of every packet that was due meanwhile,
//! also of those that were sent only afterwards.

use std::cell::Cell;
use std::rc::Rc;

use conic_fabric::{Core, Time};
use conic_interface::ccnic;
use conic_load::{ClosedLoop, Latency, Traffic, Workload};
use conic_sim::platform::Platform;
use conic_sim::{Options, Role, Simulation};

/// Packets that are due, one every `INTERVAL`; the peer stands still for `STALL` from `BEGINS` on.
const PACKETS: u64 = 1_000;
const INTERVAL: Time = Time::from_nanoseconds(500);
const BEGINS: Time = Time::from_nanoseconds(100_000);
const STALL: Time = Time::from_nanoseconds(100_000);

/// Latencies of an open loop with at most `window` packets in flight.
fn latencies(window: u64) -> Latency {
    let platform = Platform::load("icx").expect("the platform is shipped");
    let geometry = ccnic::Geometry { queues: 1, descriptors: 1024, buffers: [2048, 0, 0], object_bytes: 0 };
    let map = Rc::new(ccnic::Map::new(geometry, ccnic::Features::paper()).expect("a small region"));
    let mut simulation = Simulation::new(platform.parameters(), &map.layout, Options::default());
    map.pool.fill(&simulation.setup());
    let (host_map, nic_map) = (Rc::clone(&map), map);
    let seen = Rc::new(Cell::new(None));
    let into = Rc::clone(&seen);
    simulation.core("host", 0, Role::Main, Time::ZERO, move |core| {
        let workload = Workload { packet_size: 64, window, transmit_burst: 32, receive_burst: 32, fetch_ahead: true };
        let queue = ccnic::host_queue(core, &host_map, 0);
        let mut application = ClosedLoop::new(queue, workload);
        application.pace(core.now(), INTERVAL);
        while application.account().received() < PACKETS {
            application.step();
        }
        into.set(Some(application.account().latency().clone()));
    });
    simulation.core("NIC", 1, Role::Service, Time::ZERO, move |core| {
        let mut queue = ccnic::nic_queue(core, &nic_map, 0);
        let mut stalled = false;
        loop {
            if !stalled && core.now() >= BEGINS {
                stalled = true;
                while core.now() < BEGINS + STALL {
                    core.work(100);
                }
            }
            if queue.turn_around() == 0 {
                core.spin_until(if stalled { Time::NEVER } else { BEGINS });
            }
        }
    });
    simulation.run().expect("the host's program ends");
    seen.take().expect("the host has measured")
}

#[test]
fn a_stalled_peer_shows_in_every_packet_that_was_due_meanwhile() {
    // 200 packets are due while the peer stands still, evenly over the stall: of those, as many take longer than a share of it
    // as are due in the rest, and then those before them must be carried. Eight may be in flight: who counts from when they are
    // sent has eight late ones.
    let latencies = latencies(8);
    assert_eq!(latencies.count(), PACKETS);
    let stall = STALL.picoseconds() as f64;
    for (late, share) in [(180, 0.1), (100, 0.5), (20, 0.9)] {
        let quantile = latencies.quantile(1.0 - (late as f64 + 0.5) / PACKETS as f64).picoseconds() as f64;
        let expected = share * stall;
        let expected = expected - 0.01 * stall..expected + 0.4 * stall;
        assert!(expected.contains(&quantile), "{late} take longer than {quantile} ps, which is not in {expected:?}");
    }
    // Those that were due at other times do not wait.
    assert!(latencies.quantile(0.7) < Time::from_nanoseconds(1_000), "{}", latencies.quantile(0.7));
}

#[test]
fn holding_packets_back_hides_nothing() {
    let (few, many) = (latencies(4), latencies(256));
    for share in [0.85, 0.9, 0.95, 0.99] {
        let [few, many] = [&few, &many].map(|seen| seen.quantile(share).picoseconds() as f64);
        // With many in flight the peer hands all back at once: a burst of 32 packets counts as received with its first.
        let burst = 32.0 * INTERVAL.picoseconds() as f64;
        assert!(few > many - burst, "{few} ps with 4 in flight and {many} ps with 256");
    }
}
