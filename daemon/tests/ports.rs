//! An operator attaches ports and detaches them while clients send: each is reached as long as it is there, nothing of it is left, and
//! nobody else notices.

mod support;

#[path = "support/served.rs"]
mod served;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conic_client::{Client, Operator, Queue};
use conic_control::Reason;
use conic_native::clock;
use conic_nicd::config::{Config, NetworkConfig, NetworkMode, PortConfig};
use conic_port::{MAX_FRAME, Memif, MemifOptions, Port, Receive, Role, Transmit};
use serde_json::{Value, json};
use served::Served;
use support::bystanders::Bystanders;
use support::waiting::wait_until;
use support::{VICTIM, held, options, settled, wait_until_held};

// Both files beside it name it so.
use support::waiting;

/// Whoever counts what this process holds is alone in it.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A daemon with a network of so many threads that has a port of the configuration, and a loopback.
fn config(folder: &Path, threads: usize) -> Config {
    let spec = format!("memif:{}/configured.sock", folder.display());
    let ports = vec![PortConfig { spec, vlan: None }];
    let bridge = NetworkConfig { threads, ports, ..NetworkConfig::default() };
    let echo = NetworkConfig { name: "echo".to_owned(), mode: NetworkMode::Loopback, ..NetworkConfig::default() };
    let networks = vec![bridge, echo];
    Config { socket: folder.join("nic.sock"), networks, ..Config::default() }.checked().expect("a sound configuration")
}

fn operator(socket: &Path) -> Operator {
    Operator::connect(socket, Duration::from_secs(20)).expect("it listens")
}

fn ask(operator: &Operator, question: &Value) -> Value {
    serde_json::from_str(&operator.ask(&question.to_string()).expect("it answers")).expect("an answer")
}

/// Attaches a port; its number.
fn attach(operator: &Operator, spec: &str) -> u64 {
    let answer = ask(operator, &json!({ "ask": "attach_port", "port": spec }));
    answer["port"].as_u64().unwrap_or_else(|| panic!("{spec}: {answer}"))
}

fn detach(operator: &Operator, port: u64) -> Value {
    ask(operator, &json!({ "ask": "detach_port", "port": port }))
}

/// The numbers of the first network's ports.
fn numbers(operator: &Operator) -> Vec<u64> {
    let list = ask(operator, &json!({ "ask": "list" }));
    let ports = list["networks"][0]["ports"].as_array().cloned().unwrap_or_default();
    ports.iter().filter_map(|port| port["number"].as_u64()).collect()
}

/// The other end of a memif port of so many queues.
fn peer(socket: &Path, queues: usize) -> Vec<Memif> {
    let options = MemifOptions::new(&socket.display().to_string());
    Memif::open_queues(&MemifOptions { role: Role::Client, queues, ..options }).expect("a peer")
}

/// Exchanges a frame each way between a client and the other end of a port.
fn speaks_with(peer: &mut [Memif], client: &Client, queue: &mut Queue, mut meanwhile: impl FnMut()) {
    const FAR: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
    let frame = |to: [u8; 6], from: [u8; 6]| [&to[..], &from, &[0x88, 0xb5], &[7; 46]].concat();
    let (there, back) = (frame(client.mac(), FAR), frame(FAR, client.mac()));
    let mut room = vec![0; MAX_FRAME];
    let mut comes = |peer: &mut [Memif], wanted: &[u8]| {
        peer.iter_mut().any(|queue| {
            let came = queue.receive(clock::now(), &mut room);
            matches!(came, Ok(Receive::Frame { length, .. }) if room[..length] == *wanted)
        })
    };
    let mut is_sent = false;
    wait_until("a frame comes from the port", || {
        meanwhile();
        if !is_sent {
            is_sent = peer[0].transmit(clock::now(), &there).expect("it goes on") == Transmit::Accepted;
            peer[0].flush(clock::now()).expect("it goes on");
        }
        // It connects.
        comes(peer, &[]);
        let mut came = Vec::new();
        queue.receive(&mut came, 32);
        came.iter().any(|one| one.to_vec() == there)
    });
    let mut sent = queue.allocate(back.len()).expect("a buffer");
    sent.fill(&back);
    assert_eq!(queue.transmit(&mut vec![sent]), 1);
    wait_until("a frame goes out of the port", || {
        meanwhile();
        comes(peer, &back)
    });
}

fn ports_come_and_go(threads: usize, rounds: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let served = Served::start(config(path, threads));
    let socket = path.join("nic.sock");
    let mut others = Bystanders::attach(&socket, false).unwrap_or_else(|error| panic!("{error}"));
    let (client, mut queues) = Client::attach(&socket, &options(VICTIM)).unwrap_or_else(|error| panic!("{error}"));
    let operator = operator(&socket);
    let mut last = 0;
    let mut round = |number: usize, others: &mut Bystanders, queue: &mut Queue| {
        // Of each kind that any user may have: one that another process reaches, and one of which the kernel knows a file alone.
        let (memif, record) = (path.join(format!("{number}.sock")), path.join(format!("{number}.pcap")));
        let one = attach(&operator, &format!("memif:{},queues=2", memif.display()));
        let other = attach(&operator, &format!("capture:record={}", record.display()));
        assert!(last < one && one < other, "no number comes again");
        last = other;
        assert_eq!(numbers(&operator), [0, one, other]);
        speaks_with(&mut peer(&memif, 2), &client, queue, || others.step());
        for port in if number.is_multiple_of(2) { [one, other] } else { [other, one] } {
            let before = others.received();
            assert_eq!(detach(&operator, port), json!({ "done": true }));
            wait_until("they go on", || {
                others.step();
                others.received() > before + 10
            });
        }
        assert!(!memif.exists(), "it is closed");
        std::fs::remove_file(record).expect("it was there");
    };
    round(0, &mut others, &mut queues[0]);
    let baseline = settled();
    for number in 1..=rounds {
        round(number, &mut others, &mut queues[0]);
    }
    wait_until_held(baseline);
    assert_eq!((others.lost(), others.sessions(), numbers(&operator)), (0, [0; 3], vec![0]));
    drop((client, queues, others));
    served.end();
}

#[test]
fn ports_come_and_go_on_one_thread_and_on_several() {
    let _alone = alone();
    ports_come_and_go(1, 100);
    ports_come_and_go(3, 100);
}

#[test]
fn what_cannot_be_attached_is_said_and_leaves_nothing() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = (folder.path(), folder.path().display());
    let served = Served::start(config(path, 2));
    let operator = operator(&path.join("nic.sock"));
    let refused = |question: &Value| {
        let answer = ask(&operator, question);
        answer["error"].as_str().unwrap_or_else(|| panic!("{question}: {answer}")).to_owned()
    };
    numbers(&operator);
    let baseline = settled();
    for (spec, reason) in [
        ("tab:lab0", "tab"),
        ("tap:a,queues=x", "queues=x"),
        ("tap:a-name-that-is-too-long", "at most 15 bytes"),
        ("af-packet:none0", "there is no interface 'none0'"),
        ("capture:record=a.pcap", "name the whole path"),
        ("impair:loss=1%+memif:a.sock", "name the whole path"),
        (&format!("capture:record={text}/none/a.pcap"), "there is no folder"),
        (&format!("capture:replay={text}/none.pcap"), "there is no file"),
        (&format!("memif:{text}/configured.sock"), "another process or port listens"),
        #[cfg(not(feature = "dpdk"))]
        ("dpdk:net_null0", "built without DPDK"),
        ("loopback", "mode = \"loopback\""),
    ] {
        let why = refused(&json!({ "ask": "attach_port", "port": spec }));
        assert!(why.contains(reason), "{spec}: {why}");
    }
    let spec = format!("capture:record={text}/a.pcap");
    for (question, reason) in [
        (json!({ "ask": "attach_port", "port": spec, "network": "none" }), "no network none"),
        (json!({ "ask": "attach_port", "port": spec, "network": "echo" }), "is a loopback"),
        (json!({ "ask": "attach_port", "port": spec, "vlan": 4095 }), "1 to 4094"),
        (json!({ "ask": "detach_port", "port": 1 }), "no port:1 on network default"),
        (json!({ "ask": "detach_port", "port": 0, "network": "echo" }), "no port:0 on network echo"),
        (json!({ "ask": "mirror", "end": "port:1", "file": "/tmp/a.pcap" }), "no port:1"),
    ] {
        let why = refused(&question);
        assert!(why.contains(reason), "{question}: {why}");
    }
    assert_eq!(numbers(&operator), [0]);
    wait_until_held(baseline);
    assert!(!path.join("a.pcap").exists());
    served.end();
}

#[test]
fn an_operator_that_does_not_wait_leaves_no_port_and_keeps_nobody_waiting() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let served = Served::start(config(path, 2));
    let socket = path.join("nic.sock");
    // To open this takes until somebody opens its other end.
    let pipe = path.join("pipe.pcap");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a pipe");
    let asked = Operator::connect(&socket, Duration::from_millis(300)).expect("it listens");
    let question = json!({ "ask": "attach_port", "port": format!("capture:replay={}", pipe.display()) }).to_string();
    assert!(asked.ask(&question).is_err(), "nobody opens the other end");
    // Meanwhile everybody is served.
    let mut others = Bystanders::attach(&socket, false).unwrap_or_else(|error| panic!("{error}"));
    let operator = operator(&socket);
    let port = attach(&operator, &format!("memif:{}/a.sock", path.display()));
    wait_until("they go on", || {
        others.step();
        others.received() > 100
    });
    drop(asked);
    let before = held();
    let other_end = std::fs::OpenOptions::new().write(true).open(&pipe).expect("it is read");
    drop(other_end);
    // What was opened for nobody is closed.
    wait_until("it is closed", || held() <= before);
    assert_eq!(numbers(&operator), [0, port]);
    drop(others);
    served.end();
}

#[test]
fn a_port_that_was_attached_goes_on_with_the_daemon_that_takes_over() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let mut served = Served::start(config(path, 2));
    let socket = path.join("nic.sock");
    let (client, mut queues) = Client::attach(&socket, &options(VICTIM)).unwrap_or_else(|error| panic!("{error}"));
    let mut others = Bystanders::attach(&socket, false).unwrap_or_else(|error| panic!("{error}"));
    let (first, spec) = (operator(&socket), |name: &str| format!("memif:{}/{name}.sock", path.display()));
    let ports = ["gone", "stays", "named"].map(|name| attach(&first, &spec(name)));
    assert_eq!(ports, [1, 2, 3]);
    assert_eq!(detach(&first, 1), json!({ "done": true }));
    let circuit = json!({ "ask": "mirror", "end": "port:2", "file": path.join("a.pcapng") });
    assert_eq!(ask(&first, &circuit), json!({ "done": true }));
    let mut far = peer(&path.join("stays.sock"), 1);
    speaks_with(&mut far, &client, &mut queues[0], || others.step());
    for round in 1..=3 {
        // What is in the file by then is the configuration's, and another than it was.
        let named = PortConfig { spec: spec("named"), vlan: None };
        served = served.with(|config| config.networks[0].ports = [config.networks[0].ports[0].clone(), named].to_vec());
        served = served.taken_over_with_others(round, &[&client], 3..=3, || others.step());
        let now = operator(&socket);
        assert_eq!(numbers(&now), [0, 1, 2], "the second is the one that was named, the third keeps its number");
        let list = ask(&now, &json!({ "ask": "list" }));
        let attached: Vec<_> = (0..3).map(|port| list["networks"][0]["ports"][port]["attached"].clone()).collect();
        assert_eq!(attached, [json!(false), json!(false), json!(true)]);
        assert_eq!(list["networks"][0]["mirrors"][0]["end"], "port:2");
        // With its session: the other end has noticed nothing.
        speaks_with(&mut far, &client, &mut queues[0], || others.step());
    }
    let last = operator(&socket);
    assert_eq!(attach(&last, &spec("next")), 3);
    assert_eq!(detach(&last, 2), json!({ "done": true }));
    assert_eq!((numbers(&last), others.lost(), others.sessions()), (vec![0, 1, 3], 0, [0; 3]));
    assert_eq!(ask(&last, &json!({ "ask": "list" }))["networks"][0]["mirrors"], json!([]));
    assert!(client.detached().is_none_or(|refused| refused.reason == Reason::Operator));
    drop((client, queues, others));
    served.end();
}
