//! A port whose queues are served by several of its network's threads: to its peers, its clients and operators it is one port.
//!
//! In network namespaces of their own; without the right to make one, the tests say that they are skipped.

use std::path::Path;
use std::time::Duration;

use crate::heir::Heir;
use crate::served::Served;
use crate::station::{alone, can_serve, config, pair_of_queues, run, station};
use crate::waiting::wait_until;
use conic_check::skipped;
use conic_client::{Client, Operator, Options, Queue};
use conic_native::clock;
use conic_port::{
    CaptureReader, MAX_FRAME, Memif, MemifOptions, PacketOptions, PacketSocket, Port, Receive, Role, Transmit,
    VhostOptions, VhostUser, VirtioUser,
};

/// Clients, a thread's each where there are two.
const CLIENTS: usize = 2;

/// Flows between each client and the kernel's side, each way: so many that the kernel has some on each queue.
const FLOWS: usize = 16;

/// Frames of a flow that are on their way, at most: so few that none is dropped.
const WINDOW: u64 = 4;

/// The station on the kernel's side.
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 0x77];

/// The station that a client is.
fn mac(client: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, 1 + client as u8]
}

/// A frame of a flow of UDP, with its number. The two ways have ports of their own: the kernel answers to a flow where that came from, and
/// so moves it to another queue once, where frames may pass those that wait in the first.
fn frame(from: [u8; 6], to: [u8; 6], flow: usize, number: u64) -> Vec<u8> {
    let length = 60 + (number * 37 % 1300) as usize;
    let mut frame = [&to[..], &from, &[8, 0, 0x45, 0]].concat();
    frame.extend((length as u16 - 14).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, from[5], 10, 0, 0, to[5]]);
    frame.extend((1000 + flow as u16).to_be_bytes());
    frame.extend([0, if from == FAR { 7 } else { 8 }]);
    frame.extend((length as u16 - 34).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..length).map(|index| (number as usize * 31 + index) as u8));
    frame
}

/// The flow of such a frame, if it is one.
fn flow_of(frame: &[u8]) -> Option<usize> {
    let is_one =
        frame.len() >= 60 && frame[..5] == FAR[..5] && frame[12..14] == [8, 0] && matches!(frame[36..38], [0, 7 | 8]);
    let flow = usize::from(u16::from_be_bytes([frame[34], frame[35]])).checked_sub(1000)?;
    (is_one && flow < FLOWS).then_some(flow)
}

/// One way of a flow.
#[derive(Clone, Copy, Default)]
struct Way {
    sent: u64,
    /// All before this number have come.
    arrived: u64,
    /// Those behind it that have come: bit `n` is this number and `n`.
    ahead: u64,
}

impl Way {
    /// Takes a frame: it must come whole, once and, unless it may pass others, in order.
    fn take(&mut self, got: &[u8], from: [u8; 6], to: [u8; 6], flow: usize, may_pass: bool) {
        let came = u64::from_be_bytes(got[42..50].try_into().expect("eight bytes"));
        assert!(got == frame(from, to, flow, came), "frame {came} of flow {flow} is changed");
        let awaited = (self.arrived..self.sent).contains(&came) && self.ahead & 1 << (came - self.arrived) == 0;
        assert!(awaited, "frame {came} of flow {flow} came twice, or was never sent: {} have come", self.arrived);
        assert!(may_pass || came == self.arrived, "frame {came} of flow {flow} came, and not {}", self.arrived);
        self.ahead |= 1 << (came - self.arrived);
        let whole = self.ahead.trailing_ones();
        (self.arrived, self.ahead) = (self.arrived + u64::from(whole), self.ahead >> whole);
    }
}

/// The kernel's side and clients, each with flows to and from the other.
struct Exchange {
    peer: Box<dyn Port>,
    /// Whether frames to the other end may pass each other when a client is on another thread: rings of memif and of virtio are one beside the
    /// other up to whoever reads them, and the kernel's queues lead into one interface.
    may_pass: bool,
    clients: Vec<(Client, Queue)>,
    /// For each client its flows: to the client, and from it.
    ways: Vec<[[Way; FLOWS]; 2]>,
}

impl Exchange {
    fn begin(socket: &Path, peer: Box<dyn Port>) -> Exchange {
        let attach = |client: usize| {
            let options = Options { mac: Some(mac(client)), ..station() };
            let (client, mut queues) = Client::attach(socket, &options).unwrap_or_else(|error| panic!("{error}"));
            (client, queues.remove(0))
        };
        let clients = (0..CLIENTS).map(attach).collect();
        let may_pass = ["memif", "vhost", "virtio"].iter().any(|kind| peer.description().starts_with(kind));
        Exchange { peer, may_pass, clients, ways: vec![Default::default(); CLIENTS] }
    }

    fn step(&mut self) {
        let now = clock::now();
        for (client, [there, back]) in self.ways.iter_mut().enumerate() {
            let queue = &mut self.clients[client].1;
            for flow in 0..FLOWS {
                let way = &mut there[flow];
                let next = frame(FAR, mac(client), flow, way.sent);
                if way.sent - way.arrived < WINDOW
                    && self.peer.transmit(now, &next).expect("it is there") == Transmit::Accepted
                {
                    way.sent += 1;
                }
                let way = &mut back[flow];
                let next = frame(mac(client), FAR, flow, way.sent);
                if way.sent - way.arrived < WINDOW
                    && let Some(mut buffer) = queue.allocate(next.len())
                {
                    buffer.fill(&next);
                    way.sent += queue.transmit(&mut vec![buffer]) as u64;
                }
            }
        }
        self.peer.flush(now).expect("it is there");
        self.receive();
    }

    fn receive(&mut self) {
        for (client, [there, _]) in self.ways.iter_mut().enumerate() {
            let mut incoming = Vec::new();
            let queue = &mut self.clients[client].1;
            queue.receive(&mut incoming, 64);
            for got in incoming.iter().map(|buffer| buffer.to_vec()) {
                // Of a station that is not known yet whoever may have it gets a frame.
                if let Some(flow) = flow_of(&got).filter(|_| got[..6] == mac(client)) {
                    there[flow].take(&got, FAR, mac(client), flow, false);
                }
            }
            queue.free(&mut incoming);
        }
        let mut bytes = [0; MAX_FRAME];
        while let Receive::Frame { length, .. } = self.peer.receive(clock::now(), &mut bytes).expect("it is there") {
            let got = &bytes[..length];
            let from = (0..CLIENTS).find(|&client| got[6..12] == mac(client));
            if let (Some(client), Some(flow)) = (from, flow_of(got).filter(|_| got[..6] == FAR)) {
                self.ways[client][1][flow].take(got, mac(client), FAR, flow, self.may_pass);
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Way> {
        self.ways.iter().flatten().flatten()
    }

    fn sent(&self) -> u64 {
        self.all().map(|way| way.sent).sum()
    }

    /// Goes on until so many more frames of each flow have come.
    fn more(&mut self, frames: u64) {
        let before: Vec<u64> = self.all().map(|way| way.arrived).collect();
        wait_until("frames of each flow come", || {
            self.step();
            self.all().zip(&before).all(|(way, before)| way.arrived >= before + frames)
        });
    }

    /// Receives until all that was sent has come.
    fn settle(&mut self) {
        wait_until("all has come", || {
            self.receive();
            self.all().all(|way| way.arrived == way.sent)
        });
    }
}

fn ask(socket: &Path, question: &str) -> serde_json::Value {
    let operator = Operator::connect(socket, Duration::from_secs(10)).expect("it listens");
    serde_json::from_str(&operator.ask(question).expect("it answers")).expect("an answer")
}

/// What operators see of a port that two threads serve, with two clients on it.
fn is_one_port_to_operators(socket: &Path, exchange: &mut Exchange, spec: &str) {
    let list = ask(socket, r#"{"ask": "list"}"#);
    let network = &list["networks"][0];
    let ports = network["ports"].as_array().expect("ports");
    assert_eq!((ports.len(), ports[0]["up"].as_bool(), ports[0]["spec"].as_str()), (1, Some(true), Some(spec)));
    assert!(ports[0]["description"].as_str().is_some_and(|text| text.len() > 10), "{}", ports[0]);
    let counted = |name: &str| ports[0]["counters"][name].as_u64().expect("a counter");
    let [there, back] = [0, 1].map(|way| exchange.ways.iter().flat_map(|ways| ways[way]).map(|way| way.sent).sum());
    // The kernel has its own frames for everybody beside these.
    assert!(
        counted("received_frames") >= there && counted("transmitted_frames") == back,
        "{there} {back} {}",
        ports[0]
    );
    // A client gets from its own thread's part what the kernel has on that queue, and the rest from the other.
    for way in network["trunks"].as_array().expect("ways") {
        let sent = way["counters"]["sent_frames"].as_u64().expect("a counter");
        assert!(0 < sent && sent < there, "{way} of {there}");
        assert_eq!(
            (&way["counters"]["dropped_full"], &way["counters"]["dropped_no_way"]),
            (&0.into(), &0.into()),
            "{way}"
        );
    }
}

/// Copies of all that passes a port come to one file, whichever thread it passes.
fn is_mirrored_whole(socket: &Path, exchange: &mut Exchange, file: &Path) {
    let question = format!(r#"{{"ask": "mirror", "end": "port:0", "file": "{}"}}"#, file.display());
    assert_eq!(ask(socket, &question)["done"], true);
    let before = exchange.sent();
    exchange.more(5);
    exchange.settle();
    let mirrors = ask(socket, r#"{"ask": "list"}"#)["networks"][0]["mirrors"].clone();
    assert_eq!(mirrors.as_array().map(Vec::len), Some(1), "{mirrors}");
    // What the disk is too slow for is left out and counted, as of any mirror; frames of the kernel may be among it.
    let [copied, dropped] = ["frames", "dropped"].map(|name| mirrors[0][name].as_u64().expect("a counter"));
    assert_eq!(ask(socket, r#"{"ask": "mirror", "end": "port:0"}"#)["done"], true);
    let expected = exchange.sent() - before;
    assert!(copied + dropped >= expected, "of all threads: {copied} and {dropped} of {expected}");
    wait_until("the file is written out", || {
        let Ok(mut reader) = CaptureReader::open(file) else { return false };
        let mut found = 0;
        while let Ok(Some(_)) = reader.next_record() {
            found += u64::from(flow_of(reader.data()).is_some());
        }
        assert!(found <= expected, "{found} of {expected}");
        found > 0 && found + dropped >= expected
    });
}

/// A port and a client in a circuit reach each other by all its queues.
fn is_one_end_of_a_circuit(socket: &Path, exchange: &mut Exchange) {
    let session = exchange.clients[1].0.attached().session;
    let ends = ["port:0".to_owned(), format!("client:{session}")];
    assert_eq!(ask(socket, &serde_json::json!({ "ask": "connect", "between": ends }).to_string())["done"], true);
    let circuits = ask(socket, r#"{"ask": "list"}"#)["networks"][0]["circuits"].clone();
    assert_eq!(circuits, serde_json::json!([{ "between": ends }]));
    // What is for the other client comes to this one.
    for flow in 0..FLOWS {
        let sent = frame(FAR, mac(0), flow, 0);
        assert_eq!(exchange.peer.transmit(clock::now(), &sent).expect("it is there"), Transmit::Accepted);
        exchange.peer.flush(clock::now()).expect("it is there");
        let queue = &mut exchange.clients[1].1;
        wait_until("it comes to the other end", || {
            let mut incoming = Vec::new();
            queue.receive(&mut incoming, 32);
            let is_there = incoming.iter().any(|buffer| buffer.to_vec() == sent);
            queue.free(&mut incoming);
            is_there
        });
    }
    assert_eq!(ask(socket, r#"{"ask": "disconnect", "end": "port:0"}"#)["done"], true);
}

/// An interface, as the other end of a port.
fn interface(name: &str) -> Box<dyn Port> {
    // With traffic control a veth interface takes the flow's queue, and without the queue of the core that sends.
    let options = PacketOptions { traffic_control: true, ..PacketOptions::new(name) };
    Box::new(PacketSocket::open(&options).expect("root may"))
}

/// Another process, as the other end of a port.
fn process(mut peer: impl Port + 'static) -> Box<dyn Port> {
    wait_until("they meet", || {
        peer.receive(clock::now(), &mut [0; MAX_FRAME]).expect("it does not fail");
        peer.is_up()
    });
    Box::new(peer)
}

/// Two threads and two clients on a port that is described so, with its other end.
fn begin(folder: &Path, spec: &str, other: impl FnOnce() -> Box<dyn Port>) -> (Served, Exchange) {
    let socket = folder.join("nic.sock");
    let mut config = config(&socket, spec);
    config.networks[0].threads = 2;
    let served = Served::start(config);
    let mut exchange = Exchange::begin(&socket, other());
    exchange.more(100);
    exchange.settle();
    is_one_port_to_operators(&socket, &mut exchange, spec);
    is_mirrored_whole(&socket, &mut exchange, &folder.join("port.pcap"));
    is_one_end_of_a_circuit(&socket, &mut exchange);
    exchange.more(30);
    (served, exchange)
}

/// Goes on while daemons with other numbers of threads take over.
fn take_over(mut served: Served, mut exchange: Exchange) {
    let clients: Vec<Client> = exchange.clients.iter().map(|(_, queue)| queue.client()).collect();
    for (round, threads) in [1, 2, 3, 1, 3, 2].into_iter().enumerate() {
        // The first one dies with the port and all else in its hands.
        let heir = Heir::of(served.socket(), &[0]);
        (0..20).for_each(|_| exchange.step());
        drop(heir);
        exchange.more(30);
        served = served.with(|config| config.networks[0].threads = threads);
        served = served.taken_over(round as u32, &clients.iter().collect::<Vec<_>>(), || exchange.step());
        exchange.more(30);
    }
    exchange.settle();
    served.end();
}

#[test]
fn a_tap_interface_of_several_queues_is_one_port_on_two_threads_and_across_take_overs() {
    if !Path::new("/dev/net/tun").exists() {
        return skipped("there is no /dev/net/tun");
    }
    if !alone() {
        return;
    }
    for spec in ["tap:t0,queues=2", "tap:t0,queues=3,offload"] {
        let folder = tempfile::tempdir().expect("a folder");
        let (served, exchange) = begin(folder.path(), spec, || interface("t0"));
        take_over(served, exchange);
        // It vanishes with the last of its queues: no descriptor of it is left anywhere.
        assert!(!run(&["link", "show", "t0"]), "the interface is still there");
    }
}

#[test]
fn sockets_of_several_queues_are_one_port_on_two_threads() {
    if !alone() || !pair_of_queues(2) {
        return;
    }
    for spec in ["af-packet:v1,queues=2", "af-xdp:v1,queues=2", "impair:delay=0us+af-xdp:v1,queues=2"] {
        if !can_serve(spec) {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (served, exchange) = begin(folder.path(), spec, || interface("v0"));
        // A packet socket is opened anew by a daemon that takes over, which has what comes from then on.
        if spec.starts_with("af-packet") { served.end() } else { take_over(served, exchange) }
    }
}

#[test]
fn a_memif_port_of_several_queues_is_one_port_on_two_threads_and_across_take_overs() {
    for (own, other, queues, rings) in
        [("server", Role::Client, 2, 2), ("server", Role::Client, 2, 5), ("client", Role::Server, 3, 3)]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("memif.sock");
        let path = path.to_str().expect("text");
        let options = MemifOptions { role: other, queues: rings, ..MemifOptions::new(path) };
        let spec = format!("memif:{path},role={own},queues={queues}");
        let (served, exchange) = begin(folder.path(), &spec, || process(Memif::open(&options).expect("a peer")));
        take_over(served, exchange);
    }
}

#[test]
fn a_vhost_user_port_of_several_queues_is_one_port_on_two_threads_and_across_take_overs() {
    // With fewer pairs than parts the part of a third thread, which a take-over begins, has none of its own.
    for (queues, pairs) in [(2, 2), (4, 4), (3, 2)] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("vhost.sock");
        let path = path.to_str().expect("text");
        let options = VhostOptions { role: Role::Client, queues: pairs, ..VhostOptions::new(path) };
        let spec = format!("vhost-user:{path},queues={queues}");
        let (served, exchange) =
            begin(folder.path(), &spec, || process(VirtioUser::open(&options).expect("a frontend")));
        take_over(served, exchange);
    }
}

#[test]
fn a_virtio_user_port_of_several_queues_is_one_port_on_two_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("vhost.sock");
    let path = path.to_str().expect("text");
    let options = VhostOptions { role: Role::Client, queues: 3, ..VhostOptions::new(path) };
    let spec = format!("virtio-user:{path},queues=3,role=server");
    let socket = folder.path().join("nic.sock");
    let (served, mut exchange) = begin(folder.path(), &spec, || {
        let mut peer = process(VhostUser::open(&options).expect("a backend"));
        // The backend has its rings one after the other, and the frontend begins behind the last.
        wait_until("all rings are in use on both sides", || {
            peer.receive(clock::now(), &mut [0; MAX_FRAME]).expect("it does not fail");
            let is_up = ask(&socket, r#"{"ask": "list"}"#)["networks"][0]["ports"][0]["up"].as_bool();
            peer.description().contains("3 rings in and 3 out") && is_up == Some(true)
        });
        peer
    });
    exchange.settle();
    served.end();
}

/// DPDK's own packet socket, whose queues two threads serve. It is opened anew by a daemon that takes over: `adopt_dpdk` shows that.
#[cfg(feature = "dpdk")]
#[test]
fn a_dpdk_device_of_several_queues_is_one_port_on_two_threads() {
    if !alone() || !pair_of_queues(2) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let spec = "dpdk:net_af_packet0;iface=v1;qpairs=2,queues=2,frames=256";
    let (served, mut exchange) = begin(folder.path(), spec, || interface("v0"));
    exchange.settle();
    served.end();
}
