//! A client of a daemon asks for another address: it has it on every thread at once, nobody has another's, and a daemon that takes over
//! knows it.

use std::path::Path;

use crate::served::Served;
use crate::waiting::wait_until;
use conic_client::{AttachError, Client, Link, Options, Queue};
use conic_interface::ccnic::Geometry;
use conic_nicd::config::{ClientConfig, Config, NetworkConfig};
use conic_nicd::switch::Mac;

const MOVED: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];
const BOUND: [u8; 6] = [2, 0, 0, 0, 0, 0xbd];

fn config(socket: &Path, threads: usize) -> Config {
    let network = |name: &str| NetworkConfig { name: name.to_owned(), threads, ..NetworkConfig::default() };
    let networks = vec![network("first"), network("second")];
    Config { socket: socket.to_owned(), networks, ..Config::default() }.checked().expect("a sound configuration")
}

/// A client whose address ends with its number.
struct Station {
    client: Client,
    queue: Queue,
}

fn options(network: &str, number: u8) -> Options {
    let geometry = Geometry { queues: 1, descriptors: 128, buffers: [256, 256, 0], object_bytes: 0 };
    let network = conic_client::Name::new(network).expect("a name");
    Options { geometry, network, mac: Some([2, 0, 0, 0, 0, number]), ..Options::default() }
}

impl Station {
    fn attach(socket: &Path, network: &str, number: u8) -> Station {
        let attached = Client::attach(socket, &options(network, number));
        let (client, mut queues) = attached.unwrap_or_else(|error| panic!("{error}"));
        Station { client, queue: queues.remove(0) }
    }

    fn send(&mut self, from: [u8; 6], to: [u8; 6], number: u64) {
        let frame = [&to[..], &from, &[0x88, 0xb5], &number.to_le_bytes(), &[0; 38]].concat();
        let mut buffer = self.queue.allocate(frame.len()).expect("a buffer is free");
        buffer.fill(&frame);
        assert_eq!(self.queue.transmit(&mut vec![buffer]), 1);
    }

    /// The numbers in what has come.
    fn receive(&mut self) -> Vec<u64> {
        let mut buffers = Vec::new();
        self.queue.receive(&mut buffers, 32);
        let numbers =
            buffers.iter().map(|one| u64::from_le_bytes(one.to_vec()[14..22].try_into().expect("eight bytes")));
        let numbers = numbers.collect();
        self.queue.free(&mut buffers);
        numbers
    }
}

/// Station `from` sends to the addresses: all is for station `to`, and nothing is for anybody else.
fn reaches(stations: &mut [Station], from: usize, addresses: &[[u8; 6]], to: usize) {
    let source = stations[from].client.mac();
    for (number, &address) in addresses.iter().enumerate() {
        stations[from].send(source, address, number as u64);
    }
    let mut got = Vec::new();
    wait_until("all of it comes", || {
        got.extend(stations[to].receive());
        got.len() >= addresses.len()
    });
    assert_eq!(got, (0..addresses.len() as u64).collect::<Vec<_>>());
    for (index, station) in stations.iter_mut().enumerate() {
        assert!(index == to || station.receive().is_empty(), "station {index} got something");
    }
}

#[test]
fn a_client_has_only_what_is_kept_for_it_or_for_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let own = rustix::process::getuid().as_raw();
    let bound = ClientConfig {
        name: Some("bound".to_owned()),
        user: Some(own),
        macs: vec![Mac(BOUND)],
        ..ClientConfig::default()
    };
    let mut config = config(&socket, 1);
    (config.networks[0].clients, config.networks[0].kept_macs) = (vec![bound], vec![Mac(GATEWAY)]);
    let served = Served::start(config.checked().expect("a sound configuration"));
    let attach = |name: &str, mac| {
        let name = conic_client::Name::new(name).expect("a name");
        Client::attach(&socket, &Options { name, mac, ..options("first", 0) }).map(|(client, _)| client)
    };
    let refused = |name: &str, mac, why: &str| {
        let Err(AttachError::Refused(said)) = attach(name, Some(mac)) else { panic!("{name} has it") };
        assert!(said.to_string().contains(why), "{said}");
    };
    // Nobody takes the gateway's address, nor another's that is bound to it.
    refused("any", GATEWAY, "kept from this client");
    refused("any", BOUND, "kept from this client");
    refused("bound", [2, 0, 0, 0, 0, 9], "kept from this client");
    refused("bound", GATEWAY, "kept from this client");
    let any = attach("any", Some([2, 0, 0, 0, 0, 9])).expect("that is nobody's");
    for mac in [GATEWAY, BOUND] {
        any.set_mac(mac).expect_err("not later either");
    }
    // Who asks for none is given its own, which is then taken.
    assert_eq!(attach("bound", None).expect("it is free").mac(), BOUND);
    drop(served);
}

#[test]
fn it_is_had_at_once_on_every_thread_and_after_a_take_over() {
    for threads in 1..=3 {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("nic.sock");
        let mut served = Served::start(config(&socket, threads));
        let mut stations: Vec<Station> = (1..=4).map(|number| Station::attach(&socket, "first", number)).collect();
        let macs: Vec<[u8; 6]> = stations.iter().map(|station| station.client.mac()).collect();
        stations[1].client.set_mac(MOVED).unwrap_or_else(|error| panic!("{error}"));
        for from in [0, 2, 3] {
            reaches(&mut stations, from, &[MOVED], 1);
        }
        reaches(&mut stations, 1, &[macs[0]], 0);
        // It is nobody's whom it was given to, and who has its old one is not confused with it.
        for (taken, by) in [(MOVED, 0), (macs[2], 1), (macs[3], 0)] {
            let refused = stations[by].client.set_mac(taken);
            assert!(matches!(refused, Err(AttachError::Address(mac)) if mac == taken), "{refused:?}");
        }
        stations[2].client.set_mac(macs[1]).expect("nobody has it");
        reaches(&mut stations, 0, &[macs[1], MOVED][..1], 2);
        reaches(&mut stations, 3, &[MOVED], 1);
        // A network's addresses are its own.
        let elsewhere = Station::attach(&socket, "second", 9);
        elsewhere.client.set_mac(MOVED).expect("another network");
        let clients: Vec<&Client> = stations.iter().map(|one| &one.client).chain([&elsewhere.client]).collect();
        served = served.taken_over(0, &clients, || ());
        reaches(&mut stations, 0, &[MOVED], 1);
        reaches(&mut stations, 3, &[macs[1]], 2);
        let refused = stations[0].client.set_mac(MOVED);
        assert!(matches!(refused, Err(AttachError::Address(MOVED))), "{refused:?}");
        served.end();
        // Each is asked for again, whichever it was that came first.
        let served = Served::start(config(&socket, threads));
        wait_until("all are back", || stations.iter().all(|station| station.client.maintain() == Link::Up));
        assert_eq!(stations[1].client.mac(), MOVED);
        reaches(&mut stations, 0, &[MOVED], 1);
        reaches(&mut stations, 3, &[macs[1]], 2);
        served.end();
    }
}

#[test]
fn what_the_old_address_sends_is_refused_from_the_answer_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let served = Served::start(config(&socket, 2));
    let mut stations: Vec<Station> = (1..=2).map(|number| Station::attach(&socket, "first", number)).collect();
    let (old, other) = (stations[0].client.mac(), stations[1].client.mac());
    for round in 0..200 {
        let (from, to) = if round % 2 == 0 { (old, MOVED) } else { (MOVED, old) };
        stations[0].client.set_mac(to).expect("nobody has it");
        stations[0].send(from, other, 1000);
        stations[0].send(to, other, round);
        let mut got = Vec::new();
        wait_until("the second comes", || {
            got.extend(stations[1].receive());
            !got.is_empty()
        });
        assert_eq!(got, [round]);
    }
    served.end();
}
