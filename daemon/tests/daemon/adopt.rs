//! A daemon takes over from another, and its clients notice nothing.

use std::fs::{OpenOptions, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::heir::{ADOPT, Heir};
use crate::served::Served;
use crate::spoken::{greeted, hear, hear_message, hello, say, wish};
use crate::waiting::wait_until;
use conic_client::{Client, Link, Name, Operator, Options, Queue};
use conic_control::Message;
use conic_daemon::{Daemon, Stop};
use conic_interface::ccnic::Geometry;
use conic_native::channel::Channel;
use conic_native::clock;
use conic_nicd::config::{Config, ConnectConfig, NetworkConfig, NetworkMode, PinConfig, WaitMode};
use rustix::fs::{CWD, FileType, Mode, mknodat};

fn config(socket: &Path, mode: NetworkMode) -> Config {
    let networks = vec![NetworkConfig { mode, ..NetworkConfig::default() }];
    let config = Config { socket: socket.to_owned(), networks, ..Config::default() };
    config.checked().expect("a sound configuration")
}

fn attach(socket: &Path, queues: u32) -> (Client, Vec<Queue>) {
    let geometry = Geometry { queues, descriptors: 256, buffers: [4096, 4096, 16], object_bytes: 0 };
    Client::attach(socket, &Options { geometry, ..Options::default() }).unwrap_or_else(|error| panic!("{error}"))
}

/// Sends numbered frames to itself over a loopback and checks that each comes back once, in order.
struct Loop {
    queue: Queue,
    sent: u64,
    received: u64,
}

impl Loop {
    fn step(&mut self) {
        if self.sent - self.received < 64
            && let Some(mut frame) = self.queue.allocate(60 + (self.sent % 400) as usize)
        {
            frame.write(14, &self.sent.to_le_bytes());
            let mut outgoing = vec![frame];
            self.sent += self.queue.transmit(&mut outgoing) as u64;
        }
        let mut incoming = Vec::new();
        self.queue.receive(&mut incoming, 32);
        for frame in incoming {
            let mut number = [0; 8];
            frame.read(14, &mut number);
            assert_eq!(u64::from_le_bytes(number), self.received, "a frame was lost, or came twice");
            self.received += 1;
        }
    }
}

#[test]
fn no_client_is_lost_and_no_frame_however_often_it_happens() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let mut served = Served::start(config(&socket, NetworkMode::Loopback));
    let (client, queues) = attach(&socket, 3);
    let mut loops: Vec<Loop> = queues.into_iter().map(|queue| Loop { queue, sent: 0, received: 0 }).collect();
    for round in 1..=10 {
        let target: Vec<u64> = loops.iter().map(|one| one.received + 500).collect();
        wait_until("frames flow", || {
            loops.iter_mut().for_each(Loop::step);
            loops.iter().zip(&target).all(|(one, &target)| one.received >= target)
        });
        // The new one begins in the middle of everything.
        served = served.taken_over(round, &[&client], || loops.iter_mut().for_each(Loop::step));
    }
    wait_until("all is back", || {
        loops.iter_mut().for_each(|one| {
            let mut incoming = Vec::new();
            one.queue.receive(&mut incoming, 32);
            one.received += incoming.len() as u64;
        });
        loops.iter().all(|one| one.received == one.sent)
    });
    // A new client meets the one that listens now.
    let (_other, _queues) = attach(&socket, 1);
    served.end();
}

/// A client does not hear that another daemon has taken over, and so not how that one's threads wait.
#[test]
fn a_client_of_a_network_that_spins_wakes_the_next_ones_threads_that_sleep() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let mut config = config(&socket, NetworkMode::Loopback);
    config.networks[0].wait = WaitMode::Spin;
    let mut served = Served::start(config);
    let (client, queues) = attach(&socket, 1);
    let mut one = Loop { queue: queues.into_iter().next().expect("a queue"), sent: 0, received: 0 };
    for (round, wait) in [(1, WaitMode::Interrupt), (2, WaitMode::Adaptive)] {
        served = served.with(|config| config.networks[0].wait = wait).taken_over(round, &[&client], || ());
        // Each begins behind a rest.
        for target in 1..=10 {
            let begun = clock::now();
            wait_until("its thread sleeps", || clock::now().since(begun).nanoseconds() > 5_000_000);
            wait_until("the frame comes", || {
                if one.sent < u64::from(round - 1) * 10 + target {
                    one.step();
                }
                let mut incoming = Vec::new();
                one.queue.receive(&mut incoming, 1);
                one.received += incoming.len() as u64;
                one.received == u64::from(round - 1) * 10 + target
            });
        }
    }
    served.end();
}

#[test]
fn a_take_over_that_fails_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let served = Served::start(config(&socket, NetworkMode::Loopback));
    let (client, queues) = attach(&socket, 1);
    // One without the network that the client is on.
    let mut other = config(&socket, NetworkMode::Loopback);
    other.networks[0].name = "another".to_owned();
    let refused = Daemon::adopt(other, Stop::new().expect("a descriptor"), Box::new(|_| {}));
    let why = refused.err().expect("it cannot take over").to_string();
    assert!(why.contains("no network") || why.contains("none of that name"), "{why}");
    let mut one = Loop { queue: queues.into_iter().next().expect("a queue"), sent: 0, received: 0 };
    wait_until("frames flow as before", || {
        one.step();
        one.received >= 1000
    });
    assert_eq!((client.maintain(), client.reconnects()), (Link::Up, 0));
    let nobody = folder.path().join("nobody.sock");
    let alone = Daemon::adopt(config(&nobody, NetworkMode::Bridge), Stop::new().expect("one"), Box::new(|_| {}));
    assert!(alone.err().expect("nobody is there").to_string().contains("--adopt"));
    served.end();
}

/// Steps loops until each has got so many frames more.
fn flow(loops: &mut [Loop], more: u64) {
    let target: Vec<u64> = loops.iter().map(|one| one.received + more).collect();
    wait_until("frames flow", || {
        loops.iter_mut().for_each(Loop::step);
        loops.iter().zip(&target).all(|(one, &target)| one.received >= target)
    });
}

fn loops(queues: Vec<Queue>) -> Vec<Loop> {
    queues.into_iter().map(|queue| Loop { queue, sent: 0, received: 0 }).collect()
}

#[test]
fn one_that_dies_with_everything_in_its_hands_costs_no_session_and_no_frame() {
    for threads in [1, 2] {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("nic.sock");
        let mut config = config(&socket, NetworkMode::Loopback);
        config.networks[0].threads = threads;
        let mut served = Served::start(config);
        let clients = [(); 3].map(|()| attach(&socket, 2));
        let (clients, queues): (Vec<Client>, Vec<Vec<Queue>>) = clients.into_iter().unzip();
        let mut loops = loops(queues.into_iter().flatten().collect());
        for round in 1..=5 {
            flow(&mut loops, 500);
            let heir = Heir::of(&socket, &[]);
            // Frames that nobody takes.
            (0..100).for_each(|_| loops.iter_mut().for_each(Loop::step));
            let stood: Vec<u64> = loops.iter().map(|one| one.received).collect();
            (0..100).for_each(|_| loops.iter_mut().for_each(Loop::step));
            assert_eq!(loops.iter().map(|one| one.received).collect::<Vec<u64>>(), stood, "somebody serves");
            drop(heir);
            flow(&mut loops, 500);
            for client in &clients {
                assert_eq!((client.maintain(), client.reconnects()), (Link::Up, 0), "round {round}");
            }
            // Who comes now is let in, and leaves again.
            drop(attach(&socket, 1));
            // Sometimes behind a failure, and sometimes behind one that was none.
            if round % 2 == 0 {
                let clients: Vec<&Client> = clients.iter().collect();
                served =
                    served.taken_over_with_others(round, &clients, 0..=1, || loops.iter_mut().for_each(Loop::step));
            }
        }
        flow(&mut loops, 500);
        served.end();
    }
}

#[test]
fn who_does_not_say_in_time_that_all_is_its_own_can_say_so_no_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let served = Served::start(config(&socket, NetworkMode::Loopback));
    let (client, queues) = attach(&socket, 1);
    let mut loops = loops(queues);
    flow(&mut loops, 500);
    let begun = clock::now();
    let heir = Heir::of(&socket, &[]);
    flow(&mut loops, 500);
    let took = clock::now().since(begun).seconds();
    assert!((1.9..6.0).contains(&took), "it waited for {took} s");
    // Two would serve.
    assert!(!heir.takes_all());
    flow(&mut loops, 500);
    assert_eq!((client.maintain(), client.reconnects()), (Link::Up, 0));
    served.taken_over(1, &[&client], || loops.iter_mut().for_each(Loop::step)).end();
}

#[test]
fn another_word_than_that_all_is_its_own_gives_nothing_to_anybody() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let served = Served::start(config(&socket, NetworkMode::Loopback));
    let (client, queues) = attach(&socket, 1);
    let mut loops = loops(queues);
    flow(&mut loops, 500);
    let heir = Heir::of(&socket, &[]);
    heir.say(r#""begun""#);
    flow(&mut loops, 500);
    assert!(!heir.takes_all());
    assert_eq!((client.maintain(), client.reconnects()), (Link::Up, 0));
    served.end();
}

#[test]
fn as_many_flows_are_pinned_behind_a_take_over_as_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let mut config = config(&socket, NetworkMode::Bridge);
    // More than one message holds.
    let pin = |port: u16| format!("pinned,protocol=tcp,destination-port={port}").parse::<PinConfig>().expect("a pin");
    config.networks[0].pins = (0..2000).map(pin).collect();
    let served = Served::start(config);
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 0 };
    let options = Options { geometry, name: Name::new("pinned").expect("a name"), ..Options::default() };
    let (client, _queues) = Client::attach(&socket, &options).unwrap_or_else(|error| panic!("{error}"));
    let pinned = || {
        let operator = Operator::connect(&socket, Duration::from_secs(5)).expect("it listens");
        operator.ask(r#"{"ask":"list"}"#).expect("it answers").matches("protocol=tcp").count()
    };
    assert_eq!(pinned(), 2000);
    // More than a socket holds: one who has not listened yet hears the rest from the other.
    let slow = greeted(&socket);
    (0..8).for_each(|_| say(&slow, &Message::Query(r#"{"ask":"list"}"#.to_owned())));
    assert_eq!(pinned(), 2000);
    let served = served.taken_over(1, &[&client], || ());
    assert_eq!(pinned(), 2000);
    assert!((0..8).all(|_| answer_to(&slow).matches("protocol=tcp").count() == 2000));
    served.end();
}

#[test]
fn what_a_client_says_while_another_takes_over_is_for_that_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let served = Served::start(config(&socket, NetworkMode::Bridge));
    let client = greeted(&socket);
    say(&client, &wish(1));
    hear(&client);
    let (holds_it_up, heir) = (greeted(&socket), greeted(&socket));
    let adopt = Message::Query(ADOPT.to_owned());
    say(&holds_it_up, &adopt);
    // While it waits for that one's word it hears nobody: the two that follow are heard at one moment.
    hear(&holds_it_up);
    say(&heir, &adopt);
    say(&client, &Message::Longest(9000));
    drop(holds_it_up);
    // What it has beside clients, the client, its bell.
    let [_, mut passed, _] = [hear(&heir), hear(&heir), hear(&heir)];
    say(&heir, &Message::Part { descriptors: 0, text: r#"{"ready":[]}"#.to_owned() });
    // Where the client's queue stood, and that this was all.
    let _ = [hear(&heir), hear(&heir)];
    say(&heir, &Message::Part { descriptors: 0, text: r#""mine""#.to_owned() });
    served.given_over();
    let channel = Channel::of_descriptor(passed.descriptors.swap_remove(1));
    let heard = hear(&channel);
    assert_eq!(Message::decode(&heard.bytes, 0), Ok(Message::Longest(9000)));
}

/// The whole of an answer to an operator.
fn answer_to(operator: &Channel) -> String {
    let mut answer = String::new();
    loop {
        match hear_message(operator) {
            Message::Answer(piece) if piece.is_empty() => return answer,
            Message::Answer(piece) => answer += &piece,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn who_has_no_queues_yet_goes_on_with_the_one_that_takes_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let served = Served::start(config(&socket, NetworkMode::Bridge));
    let silent = Channel::connect(&socket).expect("it listens");
    let between = greeted(&socket);
    let (asks, operator) = (Message::Query(r#"{"ask":"list"}"#.to_owned()), greeted(&socket));
    say(&operator, &asks);
    assert!(answer_to(&operator).contains("\"clients\":[]"));
    let served = served.taken_over(1, &[], || ());
    say(&silent, &hello());
    say(&between, &wish(1));
    assert!(matches!(hear_message(&silent), Message::Welcome(_)));
    let attached = hear_message(&between);
    assert!(matches!(attached, Message::Attached(_)), "{attached:?}");
    // It has asked nothing since.
    assert!(operator.receive().is_ok_and(|said| said.is_none()));
    say(&operator, &asks);
    assert!(answer_to(&operator).contains("\"session\":"));
    served.end();
}

/// What its port does is the old one's, and nobody knows how long that takes.
#[test]
fn an_operator_whose_port_is_being_opened_is_told_that_another_has_taken_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    // As long as the pipe's other end likes.
    let pipe = folder.path().join("pipe.pcap");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    let served = Served::start(config(&socket, NetworkMode::Bridge));
    let operator = greeted(&socket);
    let question = format!(r#"{{"ask":"attach_port","port":"capture:replay={}"}}"#, pipe.display());
    say(&operator, &Message::Query(question));
    // Who is heard behind it has its answer.
    let other = Operator::connect(&socket, Duration::from_secs(5)).expect("it listens");
    other.ask(r#"{"ask":"list"}"#).expect("it answers");
    let begun = clock::now();
    let served = served.taken_over(1, &[], || ());
    let took = clock::now().since(begun).seconds();
    assert_eq!(answer_to(&operator), r#"{"error":"another NIC has taken over: ask again"}"#);
    assert!(took < 3.0, "clients and operators waited for {took} s");
    // It asks again, and is answered.
    say(&operator, &Message::Query(r#"{"ask":"list"}"#.to_owned()));
    assert!(answer_to(&operator).contains("\"clients\":[]"));
    // What was opened for nobody is closed.
    drop(OpenOptions::new().write(true).open(&pipe).expect("it is read"));
    served.end();
}

#[test]
fn who_may_connect_is_what_the_one_that_takes_over_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let mut served = Served::start(config(&socket, NetworkMode::Bridge));
    for (round, mode) in [(1, 0o600), (2, 0o666), (3, 0o660)] {
        served = served.with(|config| config.socket_mode = format!("{mode:04o}")).taken_over(round, &[], || ());
        let permissions = std::fs::metadata(&socket).expect("it is there").permissions();
        assert_eq!(permissions.mode() & 0o777, mode, "round {round}");
    }
    // One that fails behind that has changed nothing.
    let heir = Heir::of(&socket, &[]);
    std::fs::set_permissions(&socket, Permissions::from_mode(0o666)).expect("it is this user's");
    drop(heir);
    let operator = Operator::connect(&socket, Duration::from_secs(5)).expect("it listens");
    assert!(operator.ask(r#"{"ask":"list"}"#).is_ok(), "who is answered is answered behind it");
    assert_eq!(std::fs::metadata(&socket).expect("it is there").permissions().mode() & 0o777, 0o660);
    served.end();
}

/// The answer to whoever asks for metrics there.
fn metrics_at(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn metrics_go_on_where_they_were_and_move_where_the_new_one_has_them_elsewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    // Two that nobody has at this moment.
    let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let [here, there] = free.map(|listener| listener.local_addr().expect("it has one"));
    let config = Config { metrics: Some(here), ..config(&folder.path().join("nic.sock"), NetworkMode::Bridge) };
    let served = Served::start(config).taken_over(1, &[], || ());
    assert!(metrics_at(here).expect("it listens").contains("conic_clients"));
    let served = served.with(|config| config.metrics = Some(there)).taken_over(2, &[], || ());
    assert!(metrics_at(there).expect("it listens").contains("conic_clients"));
    assert!(metrics_at(here).is_err(), "nobody listens there any more");
    let served = served.with(|config| config.metrics = None).taken_over(3, &[], || ());
    assert!(metrics_at(there).is_err(), "nobody listens there any more");
    served.end();
}

/// A client that calls itself so.
fn named(socket: &Path, name: &str) -> (Client, Queue) {
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 0 };
    let options = Options { geometry, name: Name::new(name).expect("a name"), ..Options::default() };
    let (client, mut queues) = Client::attach(socket, &options).unwrap_or_else(|error| panic!("{error}"));
    (client, queues.remove(0))
}

/// The first sends a frame to everybody, and the second gets it: it alone.
fn reaches(clients: &mut [(Client, Queue)], from: usize, to: usize) {
    let (client, queue) = &mut clients[from];
    let mut frame = queue.allocate(60).expect("a buffer");
    frame.write(0, &[[0xff; 6], client.mac()].concat());
    assert_eq!(queue.transmit(&mut vec![frame]), 1);
    wait_until("the frame comes", || clients[to].1.receive(&mut Vec::new(), 1) == 1);
    let got = |(_, queue): &mut (Client, Queue)| queue.receive(&mut Vec::new(), 1);
    assert_eq!(clients.iter_mut().map(got).sum::<usize>(), 0, "somebody else got it too");
}

/// A place that is free is another's when the old one takes up again what it has left.
#[test]
fn frames_find_their_clients_behind_a_take_over_that_failed() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let served = Served::start(config(&socket, NetworkMode::Bridge));
    let mut clients: Vec<(Client, Queue)> = ["first", "second", "third"].map(|name| named(&socket, name)).into();
    drop(clients.remove(1));
    let sessions = || {
        let operator = Operator::connect(&socket, Duration::from_secs(5)).expect("it listens");
        operator.ask(r#"{"ask":"list"}"#).expect("it answers").matches("\"session\":").count()
    };
    wait_until("it is gone", || sessions() == 2);
    drop(Heir::of(&socket, &[]));
    for _ in 0..2 {
        let to = clients[1].0.mac();
        let mut frame = clients[0].1.allocate(60).expect("a buffer");
        frame.write(0, &[to, clients[0].0.mac()].concat());
        assert_eq!(clients[0].1.transmit(&mut vec![frame]), 1);
        wait_until("the frame comes", || clients[1].1.receive(&mut Vec::new(), 1) == 1);
        clients.reverse();
    }
    // Nobody else has it, and whoever is gone is gone.
    assert_eq!(sessions(), 2);
    served.end();
}

#[test]
fn who_is_connected_to_whom_is_not_a_matter_of_the_place_in_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let between = |text: &str| text.parse::<ConnectConfig>().expect("a connection");
    let mut config = config(&socket, NetworkMode::Bridge);
    config.networks[0].connects = vec![between("client:c1,client:c2")];
    let served = Served::start(config);
    let mut clients = vec![named(&socket, "c1"), named(&socket, "c2")];
    reaches(&mut clients, 0, 1);
    let served = served.with(|config| config.networks[0].connects.insert(0, between("client:c3,client:c4")));
    let served = served.taken_over(1, &[&clients[0].0, &clients[1].0], || ());
    clients.extend([named(&socket, "c3"), named(&socket, "c4")]);
    reaches(&mut clients, 2, 3);
    reaches(&mut clients, 0, 1);
    // Who comes again finds the other end, which has come from the daemon before.
    drop(clients.remove(1));
    clients.push(named(&socket, "c2"));
    reaches(&mut clients, 0, 3);
    served.end();
}

#[test]
fn an_operator_connects_nobody_with_whom_one_of_the_daemon_before_has_connected() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let served = Served::start(config(&socket, NetworkMode::Bridge));
    let connect = |two: &[(Client, Queue)]| {
        let [near, far] = [&two[0], &two[1]].map(|(client, _)| client.attached().session);
        let operator = Operator::connect(&socket, Duration::from_secs(5)).expect("it listens");
        let question = format!(r#"{{"ask":"connect","between":["client:{near}","client:{far}"]}}"#);
        assert_eq!(operator.ask(&question).expect("it answers"), r#"{"done":true}"#);
    };
    let mut clients = vec![named(&socket, "c1"), named(&socket, "c2")];
    connect(&clients);
    let served = served.taken_over(1, &[&clients[0].0, &clients[1].0], || ());
    clients.extend([named(&socket, "c3"), named(&socket, "c4")]);
    connect(&clients[2..]);
    reaches(&mut clients, 2, 3);
    reaches(&mut clients, 0, 1);
    served.end();
}
