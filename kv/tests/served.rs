//! Servers and their clients on ordinary memory: every answer is checked by whoever asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, PlayedByCore, SynchronisingWords};
use conic_interface::burst::{NicQueue, Packet};
use conic_interface::ccnic::{Nic, PhaseCredit};
use conic_interface::{ccnic, ring};
use conic_kv::message::{Answer, MOST_VALUE_BYTES, Operation, Request, Status, checksum};
use conic_kv::{Answers, Catalogue, Clients, Demand, Served, Server, Sizes, Store};
use conic_load::{Network, Traffic};
use conic_native::{Memory, NativeCore, Pages};

const KEYS: u32 = 500;

fn demand(sizes: Sizes) -> Demand {
    Demand { keys: KEYS, sizes, zipf: 0.75, sets: 200, seed: 3 }
}

/// A store with queue pairs of CC-NIC's.
pub struct Ground {
    memory: Memory,
    pub map: ccnic::Map,
    store: Store,
    pub catalogue: Catalogue,
}

impl Ground {
    pub fn new(features: ccnic::Features, demand: Demand, queues: u32) -> Ground {
        let catalogue = Catalogue::new(demand);
        let bytes = catalogue.bytes_of_values();
        let buffers = if features.small_buffers { [1024, 256, 128] } else { [0, 1024, 128] };
        let geometry = ccnic::Geometry { queues, descriptors: 64, buffers, object_bytes: bytes };
        let map = ccnic::Map::new(geometry, features).expect("a region that can be");
        let mut layout = map.layout.clone();
        let store = Store::place(&mut layout, demand.keys.into(), map.objects(), Home::Host);
        let memory = Memory::create(&layout, Pages::Plain).expect("a small region");
        let core = NativeCore::new(&memory);
        map.pool.fill(&core);
        assert!(store.fill(&core, &catalogue), "the keys fit");
        Ground { memory, map, store, catalogue }
    }

    pub fn core(&self) -> NativeCore<'_> {
        NativeCore::new(&self.memory)
    }

    /// A server of one queue pair.
    pub fn server(&self, queue: usize, copied_up_to: u16) -> Server<impl conic_interface::burst::HostQueue> {
        Server::new(vec![ccnic::host_queue(self.core(), &self.map, queue)], self.store, copied_up_to)
    }

    /// Server and clients by turns on one thread, until so many answers are there.
    fn exchange(&self, copied_up_to: u16, requests: u64) -> Answers {
        let nic_core = self.core();
        let clients = Clients::new(Arc::new(self.catalogue.clone()), 40, 9);
        let mut network = Network::new(nic_core, ccnic::nic_queue(nic_core, &self.map, 0), clients);
        let mut server = self.server(0, copied_up_to);
        let mut idle = 0;
        while network.account().received() < requests {
            let moved = server.step() + network.step();
            idle = if moved == 0 { idle + 1 } else { 0 };
            assert!(idle < 1000, "it stands after {} answers", network.account().received());
        }
        let account = network.account();
        assert_eq!((account.lost(), account.corrupt()), (0, 0));
        let (answers, served) = (network.far_end().answers(), server.served());
        assert_eq!(answers.busy, 0, "nobody else is there");
        // What was copied nobody overwrites; else a set may come behind a get whose value has not left.
        assert!(answers.torn == 0 || copied_up_to < u16::MAX && answers.torn < requests / 10, "{answers:?}");
        assert!(served.gets >= answers.gets + answers.torn && served.sets >= answers.sets);
        assert_eq!((served.missing, served.too_long, served.malformed), (0, 0, 0));
        answers
    }
}

/// What measured best and what was published, and each with one switch another way.
fn every_switch() -> Vec<ccnic::Features> {
    let mut switched = Vec::new();
    for all in [ccnic::Features::best(), ccnic::Features::paper()] {
        let printed = all.to_string();
        // Behind signal and packing there is a name for each switch that is on or off.
        let over = printed.split(',').skip(2).map(|name| match name.strip_prefix("no-") {
            Some(name) => name.to_owned(),
            None => format!("no-{name}"),
        });
        let others = ["clear", "phase", "register", "packed", "padded"].map(str::to_owned);
        let lists = over.chain(others).map(|name| format!("{printed},{name}"));
        switched.extend(lists.map(|list| list.parse::<ccnic::Features>().expect("what is printed can be read")));
    }
    switched
}

#[test]
fn every_value_comes_back_as_it_was_put_with_every_feature() {
    let switched = every_switch();
    let different: BTreeSet<_> = switched.iter().map(ToString::to_string).collect();
    assert_eq!(different.len(), switched.len(), "each is another one: {different:?}");
    assert!(switched.contains(&ccnic::Features::best()) && switched.contains(&ccnic::Features::paper()));
    for features in switched {
        let few = [Sizes::Bytes(1), Sizes::Bytes(64), Sizes::Bytes(4000)];
        let all = [few[0], few[1], Sizes::ADS_LIKE, Sizes::GEO_LIKE, Sizes::Bytes(MOST_VALUE_BYTES)];
        // A host that manages the pool alone posts blank buffers of one size: larger requests are dropped for want of one.
        for &sizes in if features.shared_pool { &all[..] } else { &few[..] } {
            for copied_up_to in [0, 64, 200, u16::MAX] {
                let answers = Ground::new(features, demand(sizes), 1).exchange(copied_up_to, 1500);
                assert!(answers.sets > 200 && answers.gets > 950, "{features} {sizes:?}: {answers:?}");
            }
        }
    }
}

#[test]
fn a_long_run_loses_no_buffer() {
    // Some two hundred times as many as there are.
    Ground::new(ccnic::Features::best(), demand(Sizes::ADS_LIKE), 1).exchange(0, 200_000);
}

#[test]
fn a_ring_serves_as_well() {
    for (sizes, descriptors, copied_up_to) in
        [(Sizes::ADS_LIKE, 64, 0), (Sizes::ADS_LIKE, 8, 100), (Sizes::GEO_LIKE, 64, 0), (Sizes::GEO_LIKE, 64, u16::MAX)]
    {
        let catalogue = Catalogue::new(demand(sizes));
        let bytes = catalogue.bytes_of_values();
        let mut layout = Layout::new();
        let values = layout.add("values", bytes, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
        let store = Store::place(&mut layout, KEYS.into(), (values, bytes), Home::Host);
        let shape = ring::Shape::for_packets(9600).expect("jumbo frames fit");
        let shape = ring::Shape { descriptors, buffers: 3 * descriptors + 64, ..shape };
        let pair = shape.place(&mut layout).expect("a queue pair").with_objects(values, bytes);
        let memory = Memory::create(&layout, Pages::Plain).expect("a small region");
        let core = NativeCore::new(&memory);
        assert!(store.fill(&core, &catalogue), "the keys fit");
        let mut server = Server::new(vec![pair.host(core)], store, copied_up_to);
        let clients = Clients::new(Arc::new(catalogue), 40, 9);
        let mut network = Network::new(core, ring::Wire::new(pair.nic(PlayedByCore(core)), shape), clients);
        let mut idle = 0;
        while network.account().received() < 20_000 {
            let moved = server.step() + network.step();
            idle = if moved == 0 { idle + 1 } else { 0 };
            assert!(idle < 1000, "it stands after {} answers", network.account().received());
        }
        assert_eq!((network.account().lost(), network.account().corrupt()), (0, 0));
        assert!(network.far_end().answers().gets > 14_000, "{:?}", network.far_end().answers());
    }
}

#[test]
fn a_value_is_copied_only_where_its_buffer_has_room() {
    // Requests of 64 bytes fill their buffers, and the next one is behind them.
    let catalogue = Catalogue::new(Demand { sets: 0, ..demand(Sizes::Bytes(64)) });
    let bytes = catalogue.bytes_of_values();
    let mut layout = Layout::new();
    let values = layout.add("values", bytes, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    let store = Store::place(&mut layout, KEYS.into(), (values, bytes), Home::Host);
    let shape = ring::Shape { descriptors: 64, buffers: 256, buffer_bytes: 64, ..ring::Shape::default() };
    let pair = shape.place(&mut layout).expect("a queue pair").with_objects(values, bytes);
    let memory = Memory::create(&layout, Pages::Plain).expect("a small region");
    let core = NativeCore::new(&memory);
    assert!(store.fill(&core, &catalogue), "the keys fit");
    let mut server = Server::new(vec![pair.host(core)], store, 64);
    let clients = Clients::new(Arc::new(catalogue), 40, 9);
    let mut network = Network::new(core, ring::Wire::new(pair.nic(PlayedByCore(core)), shape), clients);
    (0..10_000).for_each(|_| _ = server.step() + network.step());
    assert_eq!((network.account().lost(), network.account().corrupt(), server.served().malformed), (0, 0, 0));
    assert!(network.far_end().answers().gets > 10_000, "{:?}", network.far_end().answers());
}

#[test]
fn what_a_nic_names_and_is_no_buffer_is_neither_read_nor_written() {
    let ground = Ground::new(ccnic::Features::best(), demand(Sizes::Bytes(100)), 1);
    let (core, mut server) = (ground.core(), ground.server(0, u16::MAX));
    let mut nic = Nic::<_, PhaseCredit>::new(core, &ground.map, 0);
    // A request that lies among the values, and one at the end of a buffer, of which it has the headers alone.
    let (request, among) = (frame(Operation::Get, 3, &[]), ground.map.objects().0);
    core.write_bytes(among, &request);
    let small = nic.rx_alloc(64).expect("a buffer");
    let longer = frame(Operation::Set, 3, &[7; 100]);
    let last = small + 64;
    core.write_bytes(last, &longer[..64]);
    let named = [
        Packet::new(among, 64),
        Packet::new(Address(1 << 39), 64),
        Packet::new(Address(0), 64),
        Packet::new(last, 164),
    ];
    assert_eq!(nic.rx_burst(&named), 4);
    assert_eq!((server.step(), server.step()), (4, 0));
    let mut still = [0; 64];
    core.read_bytes(among, &mut still);
    assert_eq!(still[..], request);
    assert_eq!(server.served(), Served { malformed: 4, ..Served::default() });
    // And a request behind them is served.
    let at = nic.rx_alloc(64).expect("a buffer");
    core.write_bytes(at, &request);
    assert_eq!((nic.rx_burst(&[Packet::new(at, 64)]), server.step(), server.served().gets), (1, 1, 1));
}

/// One request, and its answer.
struct One<'a> {
    nic: Box<dyn NicQueue + 'a>,
    server: Box<dyn FnMut() -> usize + 'a>,
}

impl One<'_> {
    fn ask(&mut self, frame: &[u8]) -> Option<(Answer, Vec<u8>)> {
        assert!(self.nic.deliver_frame(frame), "there is room");
        let mut into = vec![0; 9664];
        for _ in 0..4 {
            (self.server)();
            if let Some(length) = self.nic.take_frame(&mut into) {
                let header = Line::from_bytes(into[..LINE_BYTES as usize].try_into().expect("a line"));
                let answer = Answer::parse(&header, length as u16).expect("an answer");
                return Some((answer, into[LINE_BYTES as usize..length].to_vec()));
            }
        }
        None
    }
}

fn frame(operation: Operation, key: u64, value: &[u8]) -> Vec<u8> {
    let value_bytes = value.len() as u16;
    let request = Request { operation, key, value_bytes, number: 1, checksum: checksum(value) };
    [&request.header(1).to_bytes()[..], value].concat()
}

#[test]
fn what_cannot_be_done_is_said() {
    let ground = Ground::new(ccnic::Features::best(), demand(Sizes::Bytes(100)), 1);
    let mut server = ground.server(0, 0);
    let mut one = One { nic: ccnic::nic_queue(ground.core(), &ground.map, 0), server: Box::new(move || server.step()) };
    let mut ask = |operation, key, value: &[u8]| one.ask(&frame(operation, key, value)).expect("an answer");
    let zeros = ask(Operation::Get, 7, &[]);
    assert_eq!((zeros.0.status, zeros.1), (Status::Done, vec![0; 100]), "nobody has put one");
    assert_eq!(ask(Operation::Get, u64::from(KEYS), &[]).0.status, Status::Missing);
    assert_eq!(ask(Operation::Set, u64::MAX, &[1; 10]).0.status, Status::Missing);
    assert_eq!(ask(Operation::Set, 7, &[1; 129]).0.status, Status::TooLong, "there is room for two lines");
    assert_eq!(ask(Operation::Get, 7, &[]).1, vec![0; 100], "and it is as it was");
    assert_eq!(ask(Operation::Set, 7, &[1; 128]).0.status, Status::Done);
    assert_eq!(ask(Operation::Set, 7, &[2; 3]).0.status, Status::Done);
    let (answer, value) = ask(Operation::Get, 7, &[]);
    assert_eq!((value.as_slice(), answer.checksum), (&[2; 3][..], checksum(&[2; 3])));
    assert_eq!(ask(Operation::Set, 7, &[]).0.status, Status::Done);
    assert_eq!(ask(Operation::Get, 7, &[]).1, Vec::<u8>::new(), "a value of no bytes");
}

#[test]
fn what_is_no_request_is_dropped_and_nobody_else_loses_anything() {
    const ROUNDS: u64 = 30_000;
    /// Bytes of the headers that a request cannot have otherwise.
    const WATCHED: [usize; 17] = [12, 13, 14, 16, 17, 21, 23, 36, 37, 38, 39, 42, 43, 44, 45, 62, 63];
    let ground = Ground::new(ccnic::Features::best(), demand(Sizes::Bytes(100)), 1);
    let mut server = ground.server(0, 0);
    let mut nic = ccnic::nic_queue(ground.core(), &ground.map, 0);
    let mut draws = fastrand::Rng::with_seed(5);
    let good = frame(Operation::Get, 3, &[]);
    let (mut answered, mut dropped, mut into) = (0, 0, vec![0; 9664]);
    let mut step = |nic: &mut Box<dyn NicQueue + '_>| {
        let served = server.step();
        while nic.take_frame(&mut into).is_some() {
            answered += 1;
        }
        served
    };
    for round in 0..ROUNDS {
        // Noise, a request cut short or with bytes behind it, or one with a bit that is wrong.
        let mut bad = good.clone();
        match round % 4 {
            0 => bad = (0..draws.usize(1..200)).map(|_| draws.u8(..)).collect(),
            1 => bad.truncate(draws.usize(1..64)),
            2 => bad.extend(vec![0; draws.usize(1..100)]),
            _ => bad[WATCHED[draws.usize(..WATCHED.len())]] ^= 1 << draws.u8(..8),
        }
        // A bit of the operation may make a set without a value of it, which is one.
        dropped += u64::from(bad.len() < 64 || Request::parse(&header_of(&bad), bad.len() as u16).is_none());
        for frame in [&bad, &good] {
            let mut tries = 0;
            while !nic.deliver_frame(frame) {
                step(&mut nic);
                tries += 1;
                assert!(tries < 100, "it stands in round {round}");
            }
        }
        step(&mut nic);
    }
    while step(&mut nic) > 0 {}
    assert_eq!((answered, server.served().malformed), (2 * ROUNDS - dropped, dropped));
    assert!((20_000..ROUNDS).contains(&dropped), "{dropped}: some are bad, and few good after all");
}

fn header_of(frame: &[u8]) -> Line {
    Line::from_bytes(frame[..64].try_into().expect("a line"))
}
