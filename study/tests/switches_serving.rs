//! One NIC core that serves many queue pairs, by looking at each or by acting on snoops.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Core, Time};
use conic_interface::ccnic::{self, Features, Packing, Signal};
use conic_interface::serve::Server;
use conic_load::{ClosedLoop, Workload};
use conic_sim::platform::Platform;
use conic_sim::{Options, Parameters, Role, Simulation};
use conic_study::simulated::Simulator;
use conic_study::workload::{Attention, Interface, Loopback, LoopbackOutcome, Machine, Serving, Switches};

fn spr() -> Parameters {
    Platform::load("spr").expect("a platform that comes with the simulator").parameters().clone()
}

fn question(queue_pairs: usize, attention: Attention, window: u64) -> Loopback {
    Loopback {
        window,
        switches: Switches { serving: Serving::Shared { queue_pairs, attention }, ..Switches::default() },
        ..Loopback::new(&spr(), Interface::CcNic(Features::paper()))
    }
}

fn run(question: &Loopback) -> LoopbackOutcome {
    let outcome = Simulator.loopback(question).expect("a loopback that runs");
    assert_eq!(outcome.wrong(), 0);
    outcome
}

#[test]
fn idle_queue_pairs_cost_a_polling_nic_time_and_one_that_acts_on_snoops_none() {
    let latency = |pairs, attention| run(&question(pairs, attention, 1)).median_nanoseconds;
    let (few, many) = (latency(2, Attention::Snoops), latency(128, Attention::Snoops));
    assert!((many / few - 1.0).abs() < 0.001, "{few} and {many} ns");
    // With a single pair the core asks once a round for what is new, not twice: a hit, and a polling loop to come out of.
    let core = spr().core;
    let cycles = u64::from(core.poll_exit_cycles + core.l1_hit_cycles);
    let one = latency(1, Attention::Snoops);
    assert!((many - one).abs() <= core.cycles(cycles) as f64 / 1000.0, "{one} and {many} ns");
    let polled = latency(128, Attention::Polling);
    assert!(polled > 1.5 * many, "{polled} and {many} ns");
}

#[test]
fn a_packet_needs_the_same_messages_however_the_nic_learns_of_it() {
    for window in [1, 32] {
        let [polling, snoops] = [Attention::Polling, Attention::Snoops].map(|how| run(&question(1, how, window)));
        // A snoop says that the line has changed; its data is fetched all the same.
        assert!((polling.nic.reads - snoops.nic.reads).abs() < 0.01, "{:?} {:?}", polling.nic, snoops.nic);
        assert!((polling.nic.rfos - snoops.nic.rfos).abs() < 0.01, "{:?} {:?}", polling.nic, snoops.nic);
    }
}

#[test]
fn fewer_queue_pairs_than_threads_are_refused() {
    let question = Loopback { threads: 3, ..question(2, Attention::Snoops, 1) };
    let failure = Simulator.loopback(&question).expect_err("three threads on two queue pairs").to_string();
    assert!(failure.contains('3') && failure.contains('2') && failure.contains("queue pair"), "{failure}");
}

/// Every signal with every packing, and the switches that change what is waited for.
fn features() -> Vec<Features> {
    let mut all = vec![Features::paper(), Features { shared_pool: false, ..Features::paper() }];
    for signal in [Signal::Clear, Signal::Phase, Signal::Register] {
        for packing in [Packing::Grouped, Packing::Packed, Packing::Padded] {
            all.push(Features { signal, packing, ..Features::best() });
        }
    }
    all
}

const PACKETS: u64 = 150;

/// Three busy queue pairs among seven on one NIC core, with rings so short that each side waits for the other's room, and
/// caches that hold fewer lines than the NIC watches. When each host had all its packets, and what the server looked at.
fn crowded(features: Features, options: Options) -> (Vec<Time>, u64) {
    let geometry = ccnic::Geometry { queues: 7, descriptors: 16, buffers: [512, 512, 4], object_bytes: 0 };
    let map = Rc::new(ccnic::Map::new(geometry, features).expect("a sound geometry"));
    let mut machine = spr();
    (machine.cache.l1_bytes, machine.cache.l1_ways) = (64 * 2, 2);
    (machine.cache.l2_bytes, machine.cache.l2_ways) = (64 * 20, 20);
    let mut simulation = Simulation::new(&machine, &map.layout, options);
    map.pool.fill(&simulation.setup());
    let ends = Rc::new(RefCell::new(vec![Time::ZERO; 3]));
    for host in 0..3 {
        let (map, ends) = (Rc::clone(&map), Rc::clone(&ends));
        simulation.core("host", 0, Role::Main, Time::from_picoseconds(1_000 * host as u64), move |core| {
            // Windows larger than the ring: the NIC finds no room to deliver, and waits for it.
            let workload = Workload {
                packet_size: 64,
                window: 40,
                transmit_burst: 32,
                receive_burst: 3,
                fetch_ahead: features.fetch_ahead,
            };
            let mut application = ClosedLoop::new(ccnic::host_queue(core, &map, 2 * host), workload);
            while application.account().received() < PACKETS {
                application.step();
                core.work(if host == 0 { 2_000 } else { 10 });
            }
            let account = application.account();
            assert_eq!((account.lost(), account.corrupt()), (0, 0), "{features}");
            ends.borrow_mut()[host] = core.now();
        });
    }
    let looks = Rc::new(RefCell::new(0));
    let vain = Rc::clone(&looks);
    simulation.core("NIC", 1, Role::Service, Time::from_nanoseconds(50), move |core| {
        let nics = (0..7).map(|queue| ccnic::nic_queue(core, &map, queue)).collect();
        let mut server = Server::new(core, nics, Attention::Snoops);
        loop {
            if server.round() == 0 {
                *vain.borrow_mut() = server.looks().1;
                server.spin();
            }
        }
    });
    simulation.set_limit(Time::from_nanoseconds(50_000_000));
    simulation.run().unwrap_or_else(|failure| panic!("{features}: {failure}"));
    let ends = ends.borrow().clone();
    (ends, *looks.borrow())
}

#[test]
fn lines_lost_without_news_are_harmless_and_no_news_is_lost() {
    for features in features() {
        let options =
            |fast_forward, run_ahead| Options { checked: true, fast_forward, run_ahead, seed: 1, queues: true };
        let (exact, looks) = crowded(features, options(false, false));
        assert!(looks > 7, "{features}: evictions wake the server in vain: {looks}");
        for (fast_forward, run_ahead) in [(true, false), (false, true), (true, true)] {
            assert_eq!(crowded(features, options(fast_forward, run_ahead)).0, exact, "{features}");
        }
    }
}
