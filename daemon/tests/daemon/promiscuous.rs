//! A client of a daemon asks for frames for stations that nobody is known to have: it gets them if its operator lets it, and nobody else does.

use std::path::Path;

use crate::served::Served;
use crate::waiting::wait_until;
use conic_client::{AttachError, Client, Link, Name, Operator, Options, Queue};
use conic_interface::ccnic::Geometry;
use conic_nicd::config::{ClientConfig, Config, NetworkConfig};

/// A station that nobody has.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0x77, 0x77];

/// A bridge on which clients called `trusted` alone may be promiscuous, and those called `router` may send from any address.
fn config(socket: &Path, threads: usize) -> Config {
    let named = |name: &str| ClientConfig { name: Some(name.to_owned()), ..ClientConfig::default() };
    let clients = vec![
        ClientConfig { promiscuous: Some(true), ..named("trusted") },
        ClientConfig { own_address_only: Some(false), ..named("router") },
    ];
    let networks = vec![NetworkConfig { threads, clients, ..NetworkConfig::default() }];
    Config { socket: socket.to_owned(), networks, ..Config::default() }.checked().expect("a sound configuration")
}

fn attach(socket: &Path, name: &str, promiscuous: bool) -> Result<(Client, Queue), AttachError> {
    let geometry = Geometry { queues: 1, descriptors: 128, buffers: [256, 256, 0], object_bytes: 0 };
    let options = Options { name: Name::new(name).expect("a name"), geometry, promiscuous, ..Options::default() };
    Client::attach(socket, &options).map(|(client, mut queues)| (client, queues.remove(0)))
}

type Station = (Client, Queue);

fn send((client, queue): &mut Station, to: [u8; 6], number: u8) {
    let mut buffer = queue.allocate(60).expect("a buffer is free");
    buffer.fill(&[&to[..], &client.mac(), &[0x88, 0xb5, number], &[0; 45]].concat());
    assert_eq!(queue.transmit(&mut vec![buffer]), 1);
}

/// The numbers in what has come until one has, which is the last that was sent to everybody.
fn received((_, queue): &mut Station, last: u8) -> Vec<u8> {
    let (mut numbers, mut buffers) = (Vec::new(), Vec::new());
    wait_until("the last frame comes", || {
        queue.receive(&mut buffers, 32);
        numbers.extend(buffers.iter().map(|one| one.to_vec()[14]));
        queue.free(&mut buffers);
        numbers.last() == Some(&last)
    });
    numbers
}

/// The first client sends to nobody, then to everybody: what the others get.
fn told(stations: &mut [Station]) -> Vec<bool> {
    let (sender, others) = stations.split_first_mut().expect("a sender");
    send(sender, NOBODY, 1);
    send(sender, [0xff; 6], 2);
    let got = others.iter_mut().map(|station| match &received(station, 2)[..] {
        [2] => false,
        [1, 2] => true,
        other => panic!("{other:?}"),
    });
    got.collect()
}

/// Which clients the daemon says are promiscuous, in the order in which they came.
fn listed(socket: &Path) -> Vec<bool> {
    let operator = Operator::connect(socket, std::time::Duration::from_secs(20)).expect("it listens");
    let list = operator.ask(r#"{"ask": "list"}"#).expect("it answers");
    let list: serde_json::Value = serde_json::from_str(&list).expect("an answer");
    let mut clients = list["clients"].as_array().expect("clients").clone();
    clients.sort_by_key(|one| one["session"].as_u64());
    clients.iter().map(|one| one["promiscuous"] == true).collect()
}

fn refused<T>(answer: Result<T, AttachError>) {
    let Err(error) = answer else { panic!("it was granted") };
    assert!(matches!(error, AttachError::Promiscuous) && error.to_string().contains("promiscuous = true"), "{error}");
}

#[test]
fn who_may_gets_frames_for_unknown_stations_when_it_asks_and_nobody_else_does() {
    for threads in 1..=3 {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("nic.sock");
        let mut served = Served::start(config(&socket, threads));
        let names = [("plain", false), ("plain", false), ("trusted", false), ("trusted", true), ("router", false)];
        let attached = names.map(|(name, promiscuous)| attach(&socket, name, promiscuous));
        let mut stations: Vec<Station> = attached.into_iter().map(|one| one.expect("it may")).collect();
        assert_eq!(told(&mut stations), [false, false, true, true], "{threads} threads");
        // Nobody gets them whom the configuration does not let, neither at attaching nor later.
        refused(attach(&socket, "plain", true));
        refused(stations[1].0.set_promiscuous(true));
        stations[1].0.set_promiscuous(false).expect("it was none");
        stations[2].0.set_promiscuous(true).expect("it may");
        assert_eq!(told(&mut stations), [false, true, true, true]);
        stations[3].0.set_promiscuous(false).expect("anybody may");
        assert_eq!(told(&mut stations), [false, true, false, true]);
        wait_until("the one that was refused is gone", || listed(&socket).len() == stations.len());
        assert_eq!(listed(&socket), [false, false, true, false, false]);
        let clients: Vec<&Client> = stations.iter().map(|one| &one.0).collect();
        served = served.taken_over(0, &clients, || ());
        assert_eq!(listed(&socket), [false, false, true, false, false]);
        assert_eq!(told(&mut stations), [false, true, false, true]);
        served.end();
        // It is asked for again; a daemon that does not grant it lets the client in without.
        for (is_allowed, told_then) in [(true, [false, true, false, true]), (false, [false, false, false, true])] {
            let mut config = config(&socket, threads);
            config.networks[0].clients[0].promiscuous = Some(is_allowed);
            let served = Served::start(config);
            wait_until("all are back", || stations.iter().all(|(client, _)| client.maintain() == Link::Up));
            assert_eq!(told(&mut stations), told_then);
            assert_eq!(stations[2].0.is_promiscuous(), is_allowed);
            served.end();
        }
    }
}
