//! A network of several threads: its clients and ports reach each other as on one, through deaths, orders and take-overs.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::served::Served;
use crate::waiting::wait_until;
use conic_client::{Client, Operator, Options, Queue};
use conic_interface::ccnic::Geometry;
use conic_native::clock;
use conic_nicd::config::{Config, NetworkConfig, PortConfig};
use conic_port::{MAX_FRAME, Memif, MemifOptions, Port, Receive, Role, Transmit};

/// Frames from one to another that are on their way, at most: so few that none is dropped.
const WINDOW: u64 = 8;

fn config(socket: &Path, threads: usize, ports: Vec<PortConfig>) -> Config {
    let networks = vec![NetworkConfig { threads, ports, ..NetworkConfig::default() }];
    Config { socket: socket.to_owned(), networks, ..Config::default() }.checked().expect("a sound configuration")
}

/// A client that sends numbered frames to others, and counts what comes from them.
struct Station {
    client: Client,
    queue: Queue,
    mac: [u8; 6],
    sent: BTreeMap<[u8; 6], u64>,
    received: BTreeMap<[u8; 6], u64>,
}

impl Station {
    fn attach(socket: &Path) -> Station {
        let geometry = Geometry { queues: 1, descriptors: 128, buffers: [256, 256, 64], object_bytes: 0 };
        let options = Options { geometry, ..Options::default() };
        let (client, mut queues) = Client::attach(socket, &options).unwrap_or_else(|error| panic!("{error}"));
        let (queue, mac) = (queues.remove(0), client.mac());
        Station { client, queue, mac, sent: BTreeMap::new(), received: BTreeMap::new() }
    }

    /// Sends the next frame; false if it cannot be now.
    fn send(&mut self, to: [u8; 6]) -> bool {
        let number = self.sent.entry(to).or_default();
        let length = if number.is_multiple_of(50) { 9000 } else { 60 + (*number * 37 % 1400) as usize };
        let Some(mut buffer) = self.queue.allocate(length) else { return false };
        buffer.fill(&frame(self.mac, to, *number, length));
        let is_sent = self.queue.transmit(&mut vec![buffer]) == 1;
        *number += u64::from(is_sent);
        is_sent
    }

    /// Receives what has come. All that is for it must come whole, once and in order.
    fn receive(&mut self) {
        let mut buffers = Vec::new();
        self.queue.receive(&mut buffers, 32);
        for buffer in &buffers {
            let got = buffer.to_vec();
            let (to, from) = got[..12].split_at(6);
            // Of one whose place is not known yet whoever may have it gets a frame.
            if to == self.mac {
                let from = from.try_into().expect("six bytes");
                let number = self.received.entry(from).or_default();
                assert!(
                    got == frame(from, self.mac, *number, got.len()),
                    "frame {number} is late, changed, or comes again"
                );
                *number += 1;
            }
        }
        self.queue.free(&mut buffers);
    }
}

fn frame(from: [u8; 6], to: [u8; 6], number: u64, length: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5], &number.to_le_bytes()].concat();
    frame.extend((frame.len()..length).map(|index| (number as usize * 31 + index) as u8));
    frame
}

/// Each sends to each other, a few frames ahead of what has come.
fn exchange(stations: &mut [Station]) {
    for from in 0..stations.len() {
        for to in (0..stations.len()).filter(|&to| to != from) {
            let (source, target) = (stations[from].mac, stations[to].mac);
            let arrived = stations[to].received.get(&source).copied().unwrap_or(0);
            while stations[from].sent.get(&target).copied().unwrap_or(0) - arrived < WINDOW
                && stations[from].send(target)
            {}
        }
        stations[from].receive();
    }
}

/// Exchanges until so many more have come from each to each other.
fn exchange_more(stations: &mut [Station], frames: u64) {
    let macs: Vec<[u8; 6]> = stations.iter().map(|station| station.mac).collect();
    let received = |stations: &[Station]| -> Vec<u64> {
        let of = |station: &Station, from| station.received.get(from).copied().unwrap_or(0);
        let others =
            |station: &Station| macs.iter().filter(|&&mac| mac != station.mac).map(|from| of(station, from)).min();
        stations.iter().filter_map(others).collect()
    };
    let before = received(stations);
    wait_until("frames come from each to each", || {
        exchange(stations);
        received(stations).iter().zip(&before).all(|(now, before)| now - before >= frames)
    });
}

/// Receives until all that was sent has come.
fn settle(stations: &mut [Station]) {
    wait_until("all has come", || {
        stations.iter_mut().for_each(Station::receive);
        let sent: u64 = stations.iter().flat_map(|station| station.sent.values()).sum();
        let received: u64 = stations.iter().flat_map(|station| station.received.values()).sum();
        sent == received
    });
}

fn ask(socket: &Path, question: &str) -> serde_json::Value {
    let operator = Operator::connect(socket, Duration::from_secs(10)).expect("it listens");
    serde_json::from_str(&operator.ask(question).expect("it answers")).expect("an answer")
}

#[test]
fn circuits_and_pins_are_listed_in_one_order_whichever_threads_have_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let served = Served::start(config(&socket, 2, Vec::new()));
    let stations: Vec<Station> = (0..4).map(|_| Station::attach(&socket)).collect();
    let sessions: Vec<u64> = stations.iter().map(|station| station.client.attached().session).collect();
    let list = ask(&socket, r#"{"ask": "list"}"#);
    let threads: Vec<_> = (0..4).map(|client| list["clients"][client]["thread"].as_u64()).collect();
    assert_eq!(threads, [0, 1, 0, 1].map(Some), "in turn");
    let done = |question: serde_json::Value| assert_eq!(ask(&socket, &question.to_string())["done"], true);
    // Each circuit's near end, and the first pins, are on the other thread than a list by threads would begin with.
    let between = [[1, 2], [0, 3]].map(|ends| ends.map(|end| format!("client:{}", sessions[end])));
    between.iter().for_each(|ends| done(serde_json::json!({ "ask": "connect", "between": ends })));
    let pins = [(2, "destination-port=9"), (1, "destination-port=8"), (1, "destination-port=7")];
    for (client, pattern) in pins {
        done(
            serde_json::json!({ "ask": "pin", "client": sessions[client], "match": format!("protocol=udp,{pattern}") }),
        );
    }
    let list = ask(&socket, r#"{"ask": "list"}"#)["networks"][0].clone();
    assert_eq!(list["circuits"], serde_json::json!([{ "between": between[0] }, { "between": between[1] }]));
    let listed: Vec<(u64, &str)> = list["pins"].as_array().expect("pins").iter().map(of_pin).collect();
    // By client; those of one as they were asked for, of which the first that fits counts.
    let expected = [
        (1, "protocol=udp,destination-port=8"),
        (1, "protocol=udp,destination-port=7"),
        (2, "protocol=udp,destination-port=9"),
    ];
    assert_eq!(listed, expected.map(|(client, pattern)| (sessions[client], pattern)));
    served.end();
}

/// Whose a pin is that an operator sees, and which flow.
fn of_pin(pin: &serde_json::Value) -> (u64, &str) {
    (pin["client"].as_u64().expect("a session"), pin["match"].as_str().expect("a pattern"))
}

#[test]
fn clients_of_different_threads_reach_each_other_and_one_that_dies_costs_the_others_nothing() {
    for threads in [2, 3] {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("nic.sock");
        let served = Served::start(config(&socket, threads, Vec::new()));
        let mut stations: Vec<Station> = (0..5).map(|_| Station::attach(&socket)).collect();
        exchange_more(&mut stations, 500);
        let list = ask(&socket, r#"{"ask": "list"}"#);
        let thread = |index: usize| list["clients"][index]["thread"].as_u64().expect("a thread");
        assert_eq!(
            (0..5).map(thread).collect::<Vec<_>>(),
            (0..5).map(|index| index % threads as u64).collect::<Vec<_>>()
        );
        for client in list["clients"].as_array().expect("clients") {
            assert!(client["counters"]["sent_frames"].as_u64() >= Some(2000), "{client}");
        }
        let ways = list["networks"][0]["trunks"].as_array().expect("ways");
        assert_eq!(ways.len(), threads * (threads - 1));
        for way in ways {
            let counters = &way["counters"];
            assert!(counters["sent_frames"].as_u64() > Some(500), "{way}");
            assert_eq!((&counters["dropped_full"], &counters["dropped_no_way"]), (&0.into(), &0.into()), "{way}");
        }
        // One goes with frames on their way to it and from it, and another comes in its place.
        drop(stations.remove(1));
        exchange_more(&mut stations, 200);
        stations.push(Station::attach(&socket));
        exchange_more(&mut stations, 200);
        let list = ask(&socket, r#"{"ask": "list"}"#);
        assert_eq!(list["clients"][4]["thread"], 1, "the one that has the fewest");
        served.end();
    }
}

#[test]
fn an_operator_joins_clients_of_different_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let served = Served::start(config(&socket, 2, Vec::new()));
    let mut stations: Vec<Station> = (0..4).map(|_| Station::attach(&socket)).collect();
    exchange_more(&mut stations, 10);
    settle(&mut stations);
    let number = |station: &Station| station.client.attached().session;
    let sessions: Vec<u64> = stations.iter().map(number).collect();
    // Whatever is sent at one end comes out at the other.
    let question = format!(r#"{{"ask": "connect", "between": ["client:{}", "client:{}"]}}"#, sessions[0], sessions[1]);
    assert_eq!(ask(&socket, &question)["done"], true);
    let circuits = &ask(&socket, r#"{"ask": "list"}"#)["networks"][0]["circuits"];
    let ends = [format!("client:{}", sessions[0]), format!("client:{}", sessions[1])];
    assert_eq!(*circuits, serde_json::json!([{ "between": ends }]));
    let elsewhere = [2, 0, 0, 0, 0, 0x99];
    let got = |station: &mut Station, wanted: &[u8]| {
        let mut buffers = Vec::new();
        station.queue.receive(&mut buffers, 32);
        let is_there = buffers.iter().any(|buffer| buffer.to_vec() == wanted);
        station.queue.free(&mut buffers);
        is_there
    };
    let sent = frame(stations[0].mac, elsewhere, 0, 9000);
    assert!(stations[0].send(elsewhere));
    wait_until("it comes out at the other end", || got(&mut stations[1], &sent));
    let end = format!(r#"{{"ask": "disconnect", "end": "client:{}"}}"#, sessions[1]);
    assert_eq!(ask(&socket, &end)["done"], true);
    // A flow goes to a client of the other thread.
    let question = format!(
        r#"{{"ask": "pin", "client": {}, "queue": 0, "match": "destination-mac=02:00:00:00:00:99"}}"#,
        sessions[3]
    );
    assert_eq!(ask(&socket, &question)["done"], true);
    let pins = &ask(&socket, r#"{"ask": "list"}"#)["networks"][0]["pins"];
    assert_eq!((pins.as_array().map(Vec::len), &pins[0]["client"]), (Some(1), &sessions[3].into()));
    let sent = frame(stations[2].mac, elsewhere, 0, 9000);
    assert!(stations[2].send(elsewhere));
    wait_until("it comes to whom it is pinned", || got(&mut stations[3], &sent));
    exchange_more(&mut stations, 10);
    served.end();
}

#[test]
fn a_daemon_with_another_number_of_threads_takes_over_and_no_frame_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let mut served = Served::start(config(&socket, 2, Vec::new()));
    let mut stations: Vec<Station> = (0..4).map(|_| Station::attach(&socket)).collect();
    let clients: Vec<Client> = stations.iter().map(|station| station.queue.client()).collect();
    let clients: Vec<&Client> = clients.iter().collect();
    for (round, threads) in [1, 2, 3, 1, 3, 2].into_iter().enumerate() {
        exchange_more(&mut stations, 50);
        served = served.with(|config| config.networks[0].threads = threads);
        served = served.taken_over(round as u32, &clients, || exchange(&mut stations));
    }
    exchange_more(&mut stations, 50);
    served.end();
}

#[test]
fn a_port_and_a_client_of_different_threads_reach_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, path) = (folder.path().join("nic.sock"), folder.path().join("memif.sock"));
    let path = path.to_str().expect("text");
    let port = PortConfig { spec: format!("memif:{path},role=server"), vlan: None };
    let mut served = Served::start(config(&socket, 2, vec![port]));
    let options = MemifOptions { role: Role::Client, ..MemifOptions::new(path) };
    let mut peer = Memif::open(&options).expect("a peer");
    wait_until("they meet", || {
        peer.receive(clock::now(), &mut [0; MAX_FRAME]).expect("it goes on");
        peer.is_connected()
    });
    let mut stations: Vec<Station> = (0..2).map(|_| Station::attach(&socket)).collect();
    let far = [2, 0, 0, 0, 0, 0x77];
    let (mut sent, mut arrived, mut bytes) = ([0; 2], [0; 2], vec![0; MAX_FRAME]);
    let mut exchange = |stations: &mut [Station]| {
        for (index, station) in stations.iter_mut().enumerate() {
            station.receive();
            let (way, there) = (&mut sent[index], station.received.get(&far).copied().unwrap_or(0));
            let next = frame(far, station.mac, *way, 60 + (*way % 7 * 200) as usize);
            if *way - there < WINDOW && peer.transmit(clock::now(), &next).expect("it goes on") == Transmit::Accepted {
                *way += 1;
            }
            while station.sent.get(&far).copied().unwrap_or(0) - arrived[index] < WINDOW && station.send(far) {}
        }
        peer.flush(clock::now()).expect("it goes on");
        while let Receive::Frame { length, .. } = peer.receive(clock::now(), &mut bytes).expect("it goes on") {
            let got = &bytes[..length];
            let Some(index) = stations.iter().position(|station| station.mac == got[6..12]) else { continue };
            assert!(got == frame(stations[index].mac, far, arrived[index], length), "frame {} is late", arrived[index]);
            arrived[index] += 1;
        }
        let there = stations.iter().map(|station| station.received.get(&far).copied().unwrap_or(0)).min();
        there.min(arrived.iter().copied().min()).unwrap_or(0)
    };
    for (round, threads) in [1, 2].into_iter().enumerate() {
        let before = exchange(&mut stations);
        wait_until("frames go both ways", || exchange(&mut stations) >= before + 300);
        let clients: Vec<Client> = stations.iter().map(|station| station.queue.client()).collect();
        served = served.with(|config| config.networks[0].threads = threads);
        served = served.taken_over(round as u32, &clients.iter().collect::<Vec<_>>(), || {
            exchange(&mut stations);
        });
    }
    served.end();
}

#[test]
fn two_ports_of_different_threads_that_the_configuration_connects_reach_each_other_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let paths = ["one", "two"].map(|name| folder.path().join(name).to_str().expect("text").to_owned());
    let port = |path: &String| PortConfig { spec: format!("memif:{path},role=server"), vlan: None };
    let mut config = config(&socket, 2, paths.iter().map(port).collect());
    config.networks[0].connects = vec!["port:0,port:1".parse().expect("a connection")];
    let served = Served::start(config.checked().expect("a sound configuration"));
    let mut station = Station::attach(&socket);
    let mut peers = paths.each_ref().map(|path| {
        let options = MemifOptions { role: Role::Client, ..MemifOptions::new(path) };
        Memif::open(&options).expect("a peer")
    });
    let mut bytes = vec![0; MAX_FRAME];
    wait_until("they meet", || {
        peers.iter_mut().for_each(|peer| _ = peer.receive(clock::now(), &mut bytes).expect("it goes on"));
        peers.iter().all(Memif::is_connected)
    });
    for (from, to) in [(0, 1), (1, 0)] {
        // For the client, whom it does not reach.
        let sent = frame([2, 0, 0, 0, 0, 0x77], station.mac, 0, 100);
        assert_eq!(peers[from].transmit(clock::now(), &sent).expect("it goes on"), Transmit::Accepted);
        peers[from].flush(clock::now()).expect("it goes on");
        wait_until("it comes out of the other port", || {
            let got = peers[to].receive(clock::now(), &mut bytes).expect("it goes on");
            matches!(got, Receive::Frame { length, .. } if bytes[..length] == sent)
        });
    }
    station.receive();
    assert!(station.received.is_empty());
    served.end();
}
