//! What a client and an operator are told while a thread of the network stands still.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use conic_client::{AttachError, Client, Operator, Options};
use conic_control::Name;
use conic_interface::ccnic::Geometry;
use conic_nicd::config::{Limits, NetworkConfig, PortConfig};
use conic_port::{CapturePort, Counters, Port, PortError, Receive, Timestamp, Transmit};

use super::*;

/// A port in which its thread stands still, from a word on until the other end of a channel is gone.
struct Still {
    begins: Receiver<()>,
    stands: Sender<()>,
    held: Receiver<()>,
    counters: Counters,
}

impl Port for Still {
    fn receive(&mut self, _now: Time, _frame: &mut [u8]) -> Result<Receive, PortError> {
        if self.begins.try_recv().is_ok() {
            // Who waits for it to stand still asks once.
            let _ = self.stands.send(());
            let _ = self.held.recv();
        }
        Ok(Receive::None)
    }
    fn transmit(&mut self, _now: Time, _frame: &[u8]) -> Result<Transmit, PortError> {
        Ok(Transmit::Accepted)
    }
    fn next_due(&self) -> Option<Time> {
        // The word comes at any time.
        Some(Time::ZERO)
    }
    fn counters(&self) -> &Counters {
        &self.counters
    }
    fn finish(&mut self) -> Result<(), PortError> {
        // As of a full disk.
        let path = std::path::Path::new("full.pcapless");
        CapturePort::record(path, Timestamp::default()).map(drop)
    }
}

/// A daemon with the networks `one`, of two threads, one of which stands still from [`Halted::stands_still`] on as long as `holds` is there,
/// and `other`.
struct Halted {
    folder: tempfile::TempDir,
    begins: Sender<()>,
    stands: Receiver<()>,
    holds: Option<Sender<()>>,
    stop: Stop,
    thread: JoinHandle<Result<Ended, DaemonError>>,
}

impl Halted {
    /// One whose thread stands still from the start.
    fn begin(still: usize, step_timeout_ms: u64) -> Halted {
        let halted = Halted::serve(still, step_timeout_ms);
        halted.stands_still();
        halted
    }

    /// The other network is a thread's that goes on.
    fn serve(still: usize, step_timeout_ms: u64) -> Halted {
        let folder = tempfile::tempdir().expect("a folder");
        let port = |number| {
            let file = folder.path().join(format!("{number}.pcap"));
            PortConfig { spec: format!("capture:record={}", file.display()), vlan: None }
        };
        let one = NetworkConfig {
            name: "one".to_owned(),
            threads: 2,
            // The second one's port is of the second thread.
            ports: (0..2).map(port).collect(),
            ..NetworkConfig::default()
        };
        let other = NetworkConfig { name: "other".to_owned(), ..NetworkConfig::default() };
        let socket = folder.path().join("nic.sock");
        let limits = Limits { clients: 2, ..Limits::default() };
        let config = Config { socket, networks: vec![one, other], step_timeout_ms, limits, ..Config::default() };
        let config = config.checked().expect("a sound configuration");
        let stop = Stop::new().expect("a descriptor");
        let daemon = Daemon::start(config, stop.clone(), Box::new(|_| {})).expect("it starts");
        let (holds, held) = channel();
        let ((begins, begun), (tell, stands)) = (channel(), channel());
        let port = Still { begins: begun, stands: tell, held, counters: Counters::default() };
        daemon.networks[0].inherit(still, vec![Box::new(port)]);
        Halted { folder, begins, stands, holds: Some(holds), stop, thread: std::thread::spawn(move || daemon.run()) }
    }

    fn stands_still(&self) {
        self.begins.send(()).expect("the thread is there");
        self.stands.recv().expect("it stands still");
    }

    /// Attaches a client in a thread of its own, which says how that ended.
    fn attaching(&self, network: &str) -> Receiver<Result<Client, AttachError>> {
        self.attaching_as(network, Some([2, 0, 0, 0, 0, 1]))
    }

    fn attaching_as(&self, network: &str, mac: Option<[u8; 6]>) -> Receiver<Result<Client, AttachError>> {
        let (tell, told) = channel();
        let geometry = Geometry { queues: 1, descriptors: 128, buffers: [256, 128, 16], object_bytes: 0 };
        let network = Name::new(network).expect("a name");
        let options = Options { geometry, network, mac, ..Options::default() };
        let socket = self.folder.path().join("nic.sock");
        // The test is still there, or has failed.
        std::thread::spawn(move || tell.send(Client::attach(&socket, &options).map(|(client, _)| client)));
        told
    }

    /// Asks in a thread of its own, which says what the answer is.
    fn asking(&self, question: &'static str) -> Receiver<Result<String, AttachError>> {
        let (tell, told) = channel();
        let socket = self.folder.path().join("nic.sock");
        // The test is still there, or has failed.
        std::thread::spawn(move || tell.send(Operator::connect(&socket, LONG).and_then(|one| one.ask(question))));
        told
    }

    fn goes_on(&mut self) {
        self.holds = None;
    }

    fn end(self) {
        self.stop.raise();
        assert!(matches!(self.thread.join(), Ok(Ok(_))));
    }
}

/// Long enough for what would be told too early.
const A_WHILE: Duration = Duration::from_millis(200);

/// Long enough for anything.
const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_client_is_told_that_it_is_attached_when_each_thread_has_entered_it() {
    // The first client of a network is on its first thread: once that stands still, once the other.
    for still in 0..2 {
        let mut halted = Halted::begin(still, 60_000);
        let attaching = halted.attaching("one");
        assert!(
            matches!(attaching.recv_timeout(A_WHILE), Err(RecvTimeoutError::Timeout)),
            "thread {still} stands still"
        );
        let other = halted.attaching("other").recv_timeout(LONG).expect("nobody else waits");
        assert!(other.is_ok(), "{other:?}");
        halted.goes_on();
        let attached = attaching.recv_timeout(LONG).expect("it is told");
        assert!(attached.is_ok(), "{attached:?}");
        halted.end();
    }
}

#[test]
fn a_thread_that_stands_still_costs_a_client_the_time_of_a_step_and_leaves_nothing_of_it() {
    for still in 0..2 {
        let mut halted = Halted::begin(still, 300);
        let refused = halted.attaching("one").recv_timeout(LONG).expect("it is told");
        let Err(AttachError::Refused(refused)) = refused else { panic!("thread {still} stands still: {refused:?}") };
        assert_eq!(refused.reason, Reason::Timeout);
        assert!(refused.text.contains("a thread of the network has done nothing for 300 ms"), "{}", refused.text);
        let other = halted.attaching("other").recv_timeout(LONG).expect("nobody else waits");
        assert!(other.is_ok(), "{other:?}");
        halted.goes_on();
        // Its address is nobody's, and its share of what a user may have is given back.
        let attached = halted.attaching("one").recv_timeout(LONG).expect("it is told").expect("it is attached");
        let list = halted.asking(r#"{"ask": "list"}"#).recv_timeout(LONG).expect("it is told").expect("it answers");
        let list: serde_json::Value = serde_json::from_str(&list).expect("an answer");
        let clients = list["clients"].as_array().expect("clients");
        let on_one: Vec<_> = clients.iter().filter(|client| client["network"] == "one").collect();
        assert_eq!(on_one.len(), 1, "{list}");
        assert_eq!(on_one[0]["session"], attached.attached().session);
        halted.end();
    }
}

#[test]
fn who_waits_for_memory_that_does_not_come_back_is_told_so() {
    let mut halted = Halted::serve(0, 300);
    // All that the user may have.
    let [one, other] = ["one", "other"].map(|network| {
        let attached = halted.attaching(network).recv_timeout(LONG).expect("it is told");
        attached.expect("it is attached")
    });
    halted.stands_still();
    drop(one);
    let refused = halted.attaching_as("other", None).recv_timeout(LONG).expect("it is told");
    let Err(AttachError::Refused(refused)) = refused else { panic!("nothing is free: {refused:?}") };
    assert_eq!(refused.reason, Reason::Timeout);
    assert!(refused.text.contains("is not given back after 300 ms"), "{}", refused.text);
    halted.goes_on();
    drop(other);
    halted.end();
}

/// What a client asks for, and what came of it.
type Question = fn(&Client) -> Result<(), AttachError>;
type Answered = (Client, Result<(), AttachError>);

/// Asks in a thread of its own, which gives the client back with the answer.
fn asks(client: Client, question: Question) -> Receiver<Answered> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let answer = question(&client);
        // The test is still there, or has failed.
        tell.send((client, answer))
    });
    told
}

#[test]
fn what_a_client_asks_for_is_so_when_each_thread_has_heard_of_it_and_nobody_else_waits() {
    let moves: Question = |client| client.set_mac([2, 0, 0, 0, 0, 9]);
    let limits: Question = |client| client.limit_packets(9000);
    // The first client of a network is on its first thread, which alone must know of its packets' limit.
    for (still, question) in [(0, moves), (1, moves), (0, limits)] {
        let mut halted = Halted::serve(still, 60_000);
        let client = halted.attaching("one").recv_timeout(LONG).expect("it is told").expect("it is attached");
        halted.stands_still();
        let asked = asks(client, question);
        assert!(matches!(asked.recv_timeout(A_WHILE), Err(RecvTimeoutError::Timeout)), "thread {still} stands still");
        let other = halted.attaching("other").recv_timeout(LONG).expect("nobody else waits");
        assert!(other.is_ok(), "{other:?}");
        halted.goes_on();
        let (client, answer) = asked.recv_timeout(LONG).expect("it is told");
        assert!(answer.is_ok(), "{answer:?}");
        // It is heard again, and may take all the time in the world for its next question.
        assert!(client.set_mac([2, 0, 0, 0, 0, 10]).is_ok());
        drop((client, other));
        halted.end();
    }
}

#[test]
fn a_thread_that_stands_still_costs_a_client_that_asks_the_time_of_a_step_and_then_its_queues() {
    for still in 0..2 {
        let mut halted = Halted::serve(still, 300);
        let client = halted.attaching("one").recv_timeout(LONG).expect("it is told").expect("it is attached");
        halted.stands_still();
        let asked = asks(client, |client| client.set_mac([2, 0, 0, 0, 0, 9]));
        let (client, answer) = asked.recv_timeout(LONG).expect("it is told");
        assert!(
            matches!(&answer, Err(AttachError::Refused(refused)) if refused.reason == Reason::Timeout),
            "thread {still} stands still: {answer:?}"
        );
        drop(client);
        // One who does not wait for the answer leaves nothing behind either.
        halted.goes_on();
        let back = halted.attaching("one").recv_timeout(LONG).expect("it is told").expect("its address is nobody's");
        assert!(back.set_mac([2, 0, 0, 0, 0, 9]).is_ok(), "nor is the other");
        halted.end();
    }
}

#[test]
fn an_operator_is_told_that_something_is_done_when_each_thread_has_heard_of_it() {
    const CONNECT: &str = r#"{"ask": "connect", "between": ["port:0", "port:1"]}"#;
    for still in 0..2 {
        let mut halted = Halted::begin(still, 60_000);
        let asking = halted.asking(CONNECT);
        assert!(matches!(asking.recv_timeout(A_WHILE), Err(RecvTimeoutError::Timeout)), "thread {still} stands still");
        halted.goes_on();
        let answer = asking.recv_timeout(LONG).expect("it is told").expect("it is done");
        assert_eq!(answer, r#"{"done":true}"#);
        halted.end();
        let mut halted = Halted::begin(still, 300);
        let refused = halted.asking(CONNECT).recv_timeout(LONG).expect("it is told");
        assert!(
            matches!(&refused, Err(AttachError::Refused(refused)) if refused.reason == Reason::Timeout),
            "{refused:?}"
        );
        halted.goes_on();
        halted.end();
    }
}

#[test]
fn an_operator_is_told_where_a_port_that_it_detaches_could_not_write_out_what_it_holds() {
    let halted = Halted::serve(0, 60_000);
    let answer = |question| halted.asking(question).recv_timeout(LONG).expect("it is told").expect("it is answered");
    let told = answer(r#"{"ask": "detach_port", "port": 0}"#);
    assert!(told.contains("it is detached, and what was sent to it last is lost: full.pcapless"), "{told}");
    // The other has nothing to write out.
    assert_eq!(answer(r#"{"ask": "detach_port", "port": 1}"#), r#"{"done":true}"#);
    assert!(answer(r#"{"ask": "list"}"#).contains(r#""ports":[]"#), "both are gone");
    halted.end();
}
