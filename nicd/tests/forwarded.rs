//! Ports that forward frames by themselves: what they are told of, and when; here a model of a kernel's tables that a test looks into.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::support::clients::{Client, EVERYBODY, Outside, frame, mac, plain, port};
use crate::support::threads::Threads;
use conic_fabric::Time;
use conic_native::KeptCore;
use conic_nicd::switch::{Circuit, Mirror, Parts, Party, Pattern, Pin, Rules, Switch, SwitchOptions, SwitchPort};
use conic_port::{Counters, Egress, Forwarding, Port, PortError, Receive, Transmit};

/// What a port knows, and what a test has it say.
struct Tables {
    stations: BTreeMap<u64, Option<u32>>,
    /// Stations whose frames it has forwarded.
    seen: BTreeSet<u64>,
    ways: BTreeMap<u32, (u32, u32)>,
    counted: BTreeMap<u32, (u64, u64)>,
    egress: Result<Egress, String>,
    is_in_driver: bool,
    room: usize,
}

#[derive(Clone)]
struct Kernel(Arc<Mutex<Tables>>, u32);

impl Kernel {
    fn new(device: u32) -> Kernel {
        let tables = Tables {
            stations: BTreeMap::new(),
            seen: BTreeSet::new(),
            ways: BTreeMap::new(),
            counted: BTreeMap::new(),
            egress: Ok(Egress { longest: 1500 + device, from_drivers: true }),
            is_in_driver: true,
            room: 4096,
        };
        Kernel(Arc::new(Mutex::new(tables)), device)
    }
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().expect("nobody panicked")
    }
    /// The ports to which the way is open.
    fn ways(&self) -> Vec<u32> {
        self.tables().ways.keys().copied().collect()
    }
    fn knows(&self, station: u8) -> Option<Option<u32>> {
        self.tables().stations.get(&u64::from_be_bytes([0, 0, 2, 0, 0, 0, 1, station])).copied()
    }
    fn see(&self, station: u8) {
        self.tables().seen.insert(u64::from_be_bytes([0, 0, 2, 0, 0, 0, 1, station]));
    }
}

/// The address of a station behind a port.
fn station(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 1, number]
}

impl Forwarding for Kernel {
    fn device(&self) -> u32 {
        self.1
    }
    fn is_in_driver(&self) -> bool {
        self.tables().is_in_driver
    }
    fn egress(&self) -> Result<Egress, String> {
        self.tables().egress.clone()
    }
    fn open(&mut self, port: u32, device: u32, longest: u32) -> io::Result<()> {
        let ways = &mut self.tables().ways;
        if longest == 0 {
            ways.remove(&port)
        } else {
            ways.insert(port, (device, longest))
        };
        Ok(())
    }
    fn place(&mut self, station: u64, port: Option<u32>) -> io::Result<()> {
        let mut tables = self.tables();
        if tables.stations.len() >= tables.room {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        tables.stations.insert(station, port);
        Ok(())
    }
    fn forget(&mut self, station: u64) -> io::Result<()> {
        self.tables().stations.remove(&station);
        Ok(())
    }
    fn was_seen(&mut self, station: u64) -> io::Result<bool> {
        Ok(self.tables().seen.remove(&station))
    }
    fn forwarded(&self, port: u32) -> io::Result<(u64, u64)> {
        Ok(self.tables().counted.get(&port).copied().unwrap_or_default())
    }
}

/// A port that forwards by itself; it ends when it is told to.
struct Offloading(Box<dyn Port>, Kernel);

impl Port for Offloading {
    fn receive(&mut self, now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        self.0.receive(now, frame)
    }
    fn transmit(&mut self, now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        self.0.transmit(now, frame)
    }
    fn next_due(&self) -> Option<Time> {
        None
    }
    fn counters(&self) -> &Counters {
        self.0.counters()
    }
    fn forwarding(&self) -> Option<Box<dyn Forwarding>> {
        Some(Box::new(self.1.clone()))
    }
}

fn offloading(outside: &Outside, kernel: &Kernel, vlan: Option<u16>) -> SwitchPort {
    let mut plain = port(outside, vlan);
    let queue = Offloading(plain.queues.remove(0), kernel.clone());
    SwitchPort { queues: vec![Box::new(queue)], ..plain }
}

/// Three ports that forward, a fourth that does not, and what is outside of each.
struct World {
    switch: Switch<KeptCore>,
    kernels: Vec<Kernel>,
    outside: Vec<Outside>,
}

/// For how long a station is remembered: eight hundred milliseconds, so that they are asked for each hundred.
const AGE: Time = milliseconds(800);

const fn milliseconds(count: u64) -> Time {
    Time::from_nanoseconds(1_000_000 * count)
}

impl World {
    fn new() -> World {
        World::of((0..3).map(|device| Kernel::new(10 + device)).collect())
    }

    fn of(kernels: Vec<Kernel>) -> World {
        let outside: Vec<Outside> = (0..=kernels.len()).map(|_| Outside::default()).collect();
        let mut ports: Vec<SwitchPort> =
            kernels.iter().zip(&outside).map(|(kernel, outside)| offloading(outside, kernel, None)).collect();
        ports.push(port(&outside[kernels.len()], None));
        let options = SwitchOptions { age: AGE, ..SwitchOptions::default() };
        World { switch: Switch::new(options, ports), kernels, outside }
    }

    /// A frame of a station comes by a port.
    fn hear(&mut self, now: Time, port: usize, number: u8) {
        self.outside[port].give(frame(station(number), EVERYBODY, 1, 1, 60));
        self.switch.step(now);
    }

    fn ways(&self) -> Vec<Vec<u32>> {
        self.kernels.iter().map(Kernel::ways).collect()
    }

    /// What all of them know of a station.
    fn known(&self, number: u8) -> Vec<Option<Option<u32>>> {
        self.kernels.iter().map(|kernel| kernel.knows(number)).collect()
    }

    fn count(&mut self, port: usize, name: &str) -> u64 {
        self.switch.count_forwarded();
        let report = self.switch.ports().find(|one| one.number == port).expect("it is there");
        report.own.iter().find(|(known, _)| *known == name).expect("it is counted").1
    }
}

const OPEN: [&[u32]; 3] = [&[1, 2], &[0, 2], &[0, 1]];

#[test]
fn each_port_knows_who_is_behind_it_and_behind_the_others_that_forward() {
    let mut world = World::new();
    assert_eq!(world.ways(), OPEN);
    assert_eq!(world.kernels[0].tables().ways[&2], (12, 1512), "the other's interface, and what that takes");
    world.switch.step(Time::ZERO);
    world.hear(milliseconds(1), 1, 7);
    world.hear(milliseconds(1), 3, 8);
    let client = Client::attach(&mut world.switch, milliseconds(1), 1, 1, plain(1));
    assert_eq!(world.known(7), [None; 3], "not at once: there may be many");
    assert_eq!(world.switch.next_due(), Some(milliseconds(20)), "nobody sleeps past it");
    world.switch.step(milliseconds(20));
    assert_eq!(world.known(7), [Some(Some(1)), Some(None), Some(Some(1))]);
    // Who is behind the fourth, or a client, is the switch's.
    assert_eq!((world.known(8), world.kernels[0].tables().stations.len()), (vec![None; 3], 1));
    assert_eq!(world.switch.next_due(), Some(milliseconds(100)));
    drop(client);
}

#[test]
fn who_is_in_a_vlan_is_the_switchs() {
    let mut world = World::new();
    let _client = Client::attach(&mut world.switch, Time::ZERO, 1, 1, Rules { vlan: Some(7), ..plain(1) });
    world.switch.step(Time::ZERO);
    let mut tagged = frame(station(7), EVERYBODY, 1, 1, 64);
    tagged[12..16].copy_from_slice(&[0x81, 0, 0, 7]);
    world.outside[0].give(tagged);
    world.hear(milliseconds(1), 0, 8);
    assert_eq!(world.switch.table().stations(milliseconds(1)).len(), 3);
    world.switch.step(milliseconds(20));
    assert_eq!((world.known(7), world.known(8)[0]), (vec![None; 3], Some(None)));
}

#[test]
fn a_station_that_moves_is_known_nowhere_before_the_step_ends() {
    for to in 0..4 {
        let mut world = World::new();
        world.switch.step(Time::ZERO);
        world.hear(milliseconds(1), 1, 7);
        world.switch.step(milliseconds(20));
        assert_eq!(world.known(7)[0], Some(Some(1)));
        let now = milliseconds(21);
        world.hear(now, to, 7);
        let stays = to == 1;
        assert_eq!(world.known(7), if stays { [Some(Some(1)), Some(None), Some(Some(1))] } else { [None; 3] }, "{to}");
        world.switch.step(milliseconds(41));
        let at = |port: u32| if port as usize == to { Some(None) } else { Some(Some(to as u32)) };
        let expected = if to == 3 { vec![None; 3] } else { (0..3).map(at).collect() };
        assert_eq!(world.known(7), expected, "{to}");
    }
    // A client takes its address.
    let mut world = World::new();
    world.outside[1].give(frame(mac(5), EVERYBODY, 1, 1, 60));
    world.switch.step(Time::ZERO);
    world.switch.step(milliseconds(20));
    assert_eq!(world.kernels[0].tables().stations.len(), 1);
    let _client = Client::attach(&mut world.switch, milliseconds(21), 5, 1, plain(5));
    world.switch.step(milliseconds(21));
    assert_eq!(world.kernels[0].tables().stations.len(), 0);
}

#[test]
fn who_is_seen_by_the_kernel_alone_is_remembered_and_who_is_not_is_forgotten() {
    let mut world = World::new();
    for number in [7, 8] {
        world.hear(Time::ZERO, 1, number);
    }
    world.switch.step(milliseconds(20));
    for tenth in 1..=30 {
        world.kernels[1].see(7);
        world.switch.step(milliseconds(100 * tenth));
        assert_eq!(world.known(7)[0], Some(Some(1)), "{tenth}");
        let silent = if 100 * tenth < 800 { Some(Some(1)) } else { None };
        assert_eq!(world.known(8)[0], silent, "{tenth}");
    }
    // Behind another port it is no sender.
    world.kernels[0].see(7);
    for tenth in 31..=38 {
        let silent = if tenth < 38 { Some(Some(1)) } else { None };
        world.switch.step(milliseconds(100 * tenth));
        assert_eq!(world.known(7)[0], silent, "{tenth}");
    }
}

struct Nowhere;

impl Mirror for Nowhere {
    fn copy(&mut self, _now: Time, _frame: &[u8]) -> bool {
        true
    }
}

/// What is open while port 1 is in no traffic of the kernel's.
const WITHOUT_1: [&[u32]; 3] = [&[2], &[], &[0]];
const NONE: [&[u32]; 3] = [&[], &[], &[]];

#[test]
fn no_policy_is_passed_by_and_no_step_is_needed_for_that() {
    let mut world = World::new();
    let client = Client::attach(&mut world.switch, Time::ZERO, 1, 1, plain(1));
    // Of a client, and of a port that forwards nothing: neither sees what is between the others.
    for party in [Party::Client(1), Party::Port(3)] {
        world.switch.mirror(party, Box::new(Nowhere));
        assert_eq!(world.ways(), OPEN);
    }
    for _ in 0..2 {
        world.switch.mirror(Party::Port(1), Box::new(Nowhere));
        assert_eq!(world.ways(), WITHOUT_1, "a mirror");
    }
    world.switch.unmirror(Party::Port(1));
    assert_eq!(world.ways(), OPEN);
    for (near, far) in [(Party::Port(1), Party::Client(1)), (Party::Client(1), Party::Port(1))] {
        for (far_end, party) in [(false, near), (true, far)] {
            world.switch.connect(party, Some(Circuit { number: 1, far: far_end }));
        }
        assert_eq!(world.ways(), WITHOUT_1, "a circuit");
        world.switch.connect(near, None);
        world.switch.connect(far, None);
        assert_eq!(world.ways(), OPEN);
    }
    let pattern: Pattern = "protocol=tcp".parse().expect("a pattern");
    world.switch.pin(1, Pin { pattern, queue: None });
    assert_eq!(world.ways(), NONE, "a flow of any port may be the client's");
    world.switch.unpin(1);
    assert_eq!(world.ways(), OPEN);
    drop(client);
}

#[test]
fn a_port_with_a_vlan_forwards_nothing_and_so_does_a_network_of_several_threads() {
    let (outside, kernels) = (Outside::default(), [0, 1, 2].map(Kernel::new));
    let vlans = [None, Some(7), None];
    let ports = kernels.iter().zip(vlans).map(|(kernel, vlan)| offloading(&outside, kernel, vlan)).collect();
    let _switch = Switch::<KeptCore>::new(SwitchOptions::default(), ports);
    assert_eq!(kernels.map(|kernel| kernel.ways()), WITHOUT_1);
    let kernels = [0, 1].map(Kernel::new);
    let ports = kernels.iter().map(|kernel| offloading(&outside, kernel, None)).collect();
    // Both on the first thread: the second port has number 2 there.
    let mut threads = Threads::bridge(2, Vec::new());
    for (number, port) in [0, 2].into_iter().zip::<Vec<SwitchPort>>(ports) {
        threads.attach_port(Time::ZERO, number, port);
    }
    assert!(kernels.iter().all(|kernel| kernel.ways().is_empty()));
}

#[test]
fn an_interface_that_sends_nothing_for_others_is_looked_at_again_and_named_once() {
    let kernels: Vec<Kernel> = (0..3).map(Kernel::new).collect();
    kernels[1].tables().egress = Ok(Egress { longest: 1514, from_drivers: false });
    // What comes by the network stack reaches it.
    kernels[2].tables().is_in_driver = false;
    let mut world = World::of(kernels);
    assert_eq!(world.ways(), [&[2][..], &[0, 2], &[0, 1]]);
    let said = world.switch.take_remarks();
    assert!(said.len() == 1 && said[0].starts_with("what is for port:1 is not forwarded in the kernel"), "{said:?}");
    world.kernels[1].tables().egress = Ok(Egress { longest: 600, from_drivers: true });
    world.kernels[0].tables().egress = Err("v0 is down".to_owned());
    world.switch.step(Time::ZERO);
    world.switch.step(milliseconds(999));
    assert_eq!(world.kernels[0].tables().ways.get(&1), Some(&(1, 600)));
    assert_eq!(world.ways(), [&[1, 2][..], &[2], &[1]]);
    let described: Vec<String> = world.switch.ports().map(|port| port.description).collect();
    assert!(
        described[0].ends_with(" (nothing to it: v0 is down)") && !described[1].contains("nothing"),
        "{described:?}"
    );
    world.kernels[0].tables().egress = Ok(Egress { longest: 1500, from_drivers: true });
    world.kernels[1].tables().egress = Ok(Egress { longest: 700, from_drivers: true });
    world.switch.step(milliseconds(999));
    assert_eq!(world.kernels[0].tables().ways[&1], (1, 600), "not before a second is over");
    world.switch.step(milliseconds(1000));
    assert_eq!((world.ways(), world.kernels[0].tables().ways[&1]), (OPEN.map(<[u32]>::to_vec).to_vec(), (1, 700)));
    assert!(world.switch.take_remarks().is_empty(), "once");
}

#[test]
fn what_was_forwarded_is_counted_where_it_came_in_and_where_it_went_and_stays_when_a_port_goes() {
    let mut world = World::new();
    for (from, to, frames, bytes) in [(0, 1, 5, 500), (0, 2, 1, 60), (1, 0, 2, 3000)] {
        world.kernels[from].tables().counted.insert(to, (frames, bytes));
    }
    let counted = |world: &mut World, port| {
        ["in_frames", "in_bytes", "out_frames", "out_bytes"]
            .map(|name| world.count(port, &format!("kernel_forwarded_{name}")))
    };
    for _ in 0..2 {
        assert_eq!(counted(&mut world, 0), [6, 560, 2, 3000]);
        assert_eq!(counted(&mut world, 1), [2, 3000, 5, 500]);
    }
    world.hear(Time::ZERO, 1, 7);
    world.hear(Time::ZERO, 2, 8);
    world.switch.step(milliseconds(20));
    world.kernels[0].tables().counted.insert(1, (9, 900));
    let gone = world.switch.detach_port(1).expect("it is there");
    assert_eq!((world.kernels[0].ways(), world.kernels[2].ways()), (vec![2], vec![0]));
    assert_eq!((world.known(7)[0], world.known(8)[0]), (None, Some(Some(2))));
    assert_eq!(counted(&mut world, 0), [10, 960, 2, 3000], "what went to it last as well");
    drop(gone);
    // Another has its place, and begins with nothing.
    let (kernel, outside) = (Kernel::new(40), Outside::default());
    world.switch.attach_port(Parts::new(4, 1, 1), offloading(&outside, &kernel, None));
    assert_eq!((kernel.ways(), world.kernels[0].tables().ways[&1]), (vec![0, 2], (40, 1540)));
    assert_eq!(kernel.knows(8), Some(Some(2)), "it knows whom the others know");
    world.kernels[0].tables().counted.insert(1, (10, 1000));
    assert_eq!((counted(&mut world, 0), counted(&mut world, 4)), ([11, 1060, 2, 3000], [0, 0, 1, 100]));
}

#[test]
fn a_flood_of_addresses_costs_each_copy_a_part_and_who_finds_no_room_is_known_to_none() {
    let mut world = World::new();
    for number in 0..600u32 {
        let [_, _, a, b] = number.to_be_bytes();
        world.outside[0].give(frame([2, 1, 0, 0, a, b], EVERYBODY, 1, 1, 60));
    }
    while world.switch.step(Time::ZERO) > 0 {}
    let known = |world: &World, port: usize| world.kernels[port].tables().stations.len();
    let mut copied = Vec::new();
    for round in 1..=4 {
        world.switch.step(milliseconds(20 * round));
        copied.push(known(&world, 1));
    }
    let first = copied[0] % 256;
    assert!(copied.windows(2).all(|two| two[1] - two[0] <= 256) && copied[3] == 600, "{copied:?}, {first}");
    // One of them has room for no more.
    world.kernels[2].tables().room = 600;
    world.hear(milliseconds(90), 1, 7);
    world.switch.step(milliseconds(120));
    assert_eq!(world.known(7), [None; 3]);
}

#[test]
fn a_port_that_is_passed_on_goes_on_forwarding_until_the_other_process_has_it() {
    let mut world = World::new();
    world.hear(Time::ZERO, 1, 7);
    world.switch.step(milliseconds(20));
    for port in 0..3 {
        world.switch.bequeath(port);
    }
    assert_eq!((world.ways(), world.known(7)[0]), (OPEN.map(<[u32]>::to_vec).to_vec(), Some(Some(1))));
    // A switch that gets queues begins with what these forward by themselves.
    let kernels = [Kernel::new(20), Kernel::new(21)];
    let empty = |_: &Kernel| SwitchPort { queues: Vec::new(), vlan: None, circuit: None };
    let mut next = Switch::<KeptCore>::new(SwitchOptions::default(), kernels.iter().map(empty).collect());
    for (number, kernel) in kernels.iter().enumerate() {
        next.inherit(number, offloading(&Outside::default(), kernel, None).queues);
    }
    assert_eq!(kernels.map(|kernel| kernel.ways()), [[1], [0]]);
}
