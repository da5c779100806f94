//! A NIC that posts copies to an engine, which makes them late and in any order, and dies at any of its memory operations.
//!
//! The engine stops with the NIC: copies that it had not made are not made.

use conic_check::{CrashMemory, Outcome, for_every_death, run_until_death};
use conic_interface::burst::NicQueue;
use conic_interface::ccnic::{Completions, Descriptor, Features, Map, bulk_nic_queue, prepare};

use crate::common::*;
use crate::erased::{BoxedHost, host};
use crate::guard::{Guard, Side};

/// Packets on their way at once.
const WINDOW: u64 = 6;

/// Packets of a script.
const PACKETS: u64 = 30;

/// Rounds after which an exchange that is not over hangs.
const ROUNDS: u64 = 2_000;

/// A length that takes whole lines, parts of one, several, and a buffer of another class.
fn length(sequence: u64) -> u16 {
    [64, 40, 128, 200, 1500][sequence as usize % 5]
}

struct World {
    map: Map,
    memory: CrashMemory,
    completions: Completions,
}

fn world(features: Features) -> World {
    let mut map = Map::new(geometry(32, [64, 64, 1], 0), features).expect("a geometry that can be");
    let completions = Completions::place(&mut map.layout);
    let memory = CrashMemory::new(&map.layout);
    prepare(&memory.core("builder"), &map);
    World { map, memory, completions }
}

/// An application that sends packets and checks what comes back.
struct Application {
    host: BoxedHost<Guard>,
    sent: u64,
    received: u64,
}

impl Application {
    /// Sends what the window has room for, up to packet `until`.
    fn send(&mut self, until: u64) {
        while self.sent < until && self.sent < self.received + WINDOW {
            if !send(&mut *self.host, self.sent, length(self.sent)) {
                return;
            }
            self.sent += 1;
        }
    }

    /// Receives what is there, in order and whole; how many.
    fn receive(&mut self) -> usize {
        let mut out = [Descriptor::BLANK; 8];
        let count = self.host.rx_burst(&mut out);
        for packet in &out[..count] {
            let sequence = !packet.metadata;
            assert_eq!(sequence, self.received, "a packet is lost, or came twice");
            assert_eq!(packet.length(), length(sequence));
            verify(self.host.core(), packet.address(), sequence, length(sequence));
            self.host.buf_free(&[packet.address()]);
            self.received += 1;
        }
        count
    }

    /// Exchanges packets up to `until` by a NIC on a core whose engine makes a copy now and then.
    fn exchange(&mut self, nic: &mut dyn NicQueue, engine: &Guard, until: u64) {
        let mut random = fastrand::Rng::with_seed(until);
        for _ in 0..ROUNDS {
            if self.received == until {
                return;
            }
            self.send(until);
            nic.turn_around();
            for _ in 0..random.u8(..3) {
                engine.make_copy(random.usize(..8));
            }
            self.receive();
        }
        panic!("the exchange hangs: {} of {until} came back", self.received);
    }
}

fn engine(world: &World, name: &str) -> Guard {
    let core = Guard::new(&world.memory, &world.map, name, Side::Nic);
    core.delay_copies();
    core
}

fn nic_dies(features: Features, n: u64) -> Outcome<()> {
    let world = world(features);
    let World { map, memory, completions } = &world;
    let core = engine(&world, "nic");
    core.crash().die_at(n);
    let mut application =
        Application { host: host(features, Guard::new(memory, map, "host", Side::Host), map, 0), sent: 0, received: 0 };
    let outcome = run_until_death(|| {
        let mut nic = bulk_nic_queue(core.clone(), map, 0, *completions);
        application.exchange(&mut *nic, &core, PACKETS);
    });
    // What was delivered whole is taken, and nothing else is there.
    while application.receive() > 0 {}
    assert!(application.received <= application.sent);
    let Application { host, .. } = application;
    assert_eq!(host.faults(), Default::default());
    host.core().allow_anything(true);
    let (recovered, _) = host.recover(map, 0, &[]);
    recovered.core().allow_anything(false);
    if features.shared_pool {
        assert_whole(memory, map, [], recovered.allocator().held());
    }
    let mut application = Application { host: recovered, sent: 1000, received: 1000 };
    let core = engine(&world, "successor");
    let mut nic = bulk_nic_queue(core.clone(), map, 0, *completions);
    application.exchange(&mut *nic, &core, 1000 + PACKETS);
    assert_eq!((nic.dropped(), nic.refused()), (0, 0));
    assert_eq!(application.host.faults(), Default::default());
    outcome
}

fn deaths(features: Features) {
    let deaths = for_every_death(|n| nic_dies(features, n));
    println!("{features}: {deaths} deaths of a NIC that posts copies");
    assert!(deaths > 300, "the script has shrunk: {deaths}");
}

#[test]
fn a_nic_that_posts_copies_may_die_anywhere() {
    deaths(Features::paper());
    deaths(Features::best());
    deaths(Features { shared_pool: false, ..Features::paper() });
    deaths(Features { inline_payload: true, ..Features::paper() });
}

#[test]
fn what_a_full_ring_does_not_take_at_once_is_delivered_later() {
    for features in [Features::paper(), Features { inline_payload: true, ..Features::paper() }] {
        let world = world(features);
        let World { map, memory, completions } = &world;
        let core = engine(&world, "nic");
        let mut nic = bulk_nic_queue(core.clone(), map, 0, *completions);
        let mut host = host(features, Guard::new(memory, map, "host", Side::Host), map, 0);
        let packets: Vec<_> =
            (0..20).map(|one| packet(&mut *host, one, length(one)).expect("a pool larger than that")).collect();
        assert_eq!(host.tx_burst(&packets), 20, "five slots");
        // Copied one by one, each delivered in a slot of its own, into a ring of eight that nobody empties.
        let mut delivered = 0;
        for _ in 0..30 {
            delivered += nic.turn_around();
            core.make_copy(0);
        }
        assert!((4..20).contains(&delivered), "{features}: {delivered}");
        let mut application = Application { host, sent: 20, received: 0 };
        application.exchange(&mut *nic, &core, 20);
        assert_eq!((nic.dropped(), nic.refused()), (0, 0), "{features}");
        application.host.drain();
        nic.drain();
        assert_whole(memory, map, [], [0; 3]);
    }
}
