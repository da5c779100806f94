//! A daemon with ports is replaced: on a TAP interface the kernel's pings go on, from a packet socket each frame comes once, and over
//! memif and AF_XDP none is lost and the other side keeps its session.
//!
//! In network namespaces of their own; without the right to make one, the tests say that they are skipped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::heir::Heir;
use crate::served::Served;
use crate::station::{Numbered, STATION, alone, can_serve, config, pair, pair_of_queues, run, station};
use crate::waiting::{try_until, wait_until};
use conic_check::skipped;
use conic_client::{Client, Operator, Queue};
use conic_daemon::{Daemon, Stop};
use conic_native::clock;
use conic_nicd::config::PortConfig;
use conic_port::{
    CaptureReader, MAX_FRAME, Memif, MemifOptions, PacketOptions, PacketSocket, Port, Receive, Role, Transmit,
};

/// Echo requests, one a millisecond.
const PINGS: usize = 2000;

/// Makes the answer of an echo request (RFC 792); false if it is none.
fn answer(frame: &mut [u8]) -> bool {
    // EtherType IPv4, protocol ICMP, type 8.
    if frame.len() < 42 || frame[12..14] != [8, 0] || frame[23] != 1 || frame[34] != 8 {
        return false;
    }
    let (there, back) = frame.split_at_mut(6);
    there.swap_with_slice(&mut back[..6]);
    let (there, back) = frame.split_at_mut(30);
    there[26..].swap_with_slice(&mut back[..4]);
    frame[34] = 0;
    // The type's 8 is gone from the sum, whose complement stands in the header (RFC 1624).
    let sum = u32::from(u16::from_be_bytes([frame[36], frame[37]])) + 0x0800;
    let sum = (sum & 0xffff) + (sum >> 16);
    frame[36..38].copy_from_slice(&(sum as u16).to_be_bytes());
    true
}

/// A daemon on a port, its client, and the client's queue.
pub(super) fn served_on(folder: &Path, spec: &str) -> (Served, Client, Queue) {
    let socket = folder.join("nic.sock");
    let served = Served::start(config(&socket, spec));
    let (client, mut queues) = Client::attach(&socket, &station()).unwrap_or_else(|error| panic!("{error}"));
    (served, client, queues.remove(0))
}

fn ping_goes_on_across_take_overs(spec: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut served, client, mut queue) = served_on(folder.path(), spec);
    assert!(run(&["neighbour", "replace", "10.9.7.2", "lladdr", "02:00:00:00:00:0a", "dev", "t0"]));
    let mut ping = Command::new("ping");
    ping.args(["-q", "-i", "0.001", "-c", &PINGS.to_string(), "10.9.7.2"]).stdout(Stdio::piped());
    let mut ping = ping.spawn().expect("there is ping");
    let (mut answered, mut incoming) = (0, Vec::new());
    let mut serve = || {
        queue.receive(&mut incoming, 32);
        let mut outgoing = Vec::new();
        for mut frame in incoming.drain(..) {
            let mut bytes = frame.to_vec();
            if answer(&mut bytes) {
                frame.write(0, &bytes);
                outgoing.push(frame);
            } else {
                queue.free(&mut vec![frame]);
            }
        }
        while !outgoing.is_empty() {
            answered += queue.transmit(&mut outgoing);
        }
        answered
    };
    for round in 1..=5 {
        let before = serve();
        wait_until("pings come", || serve() > before + 100);
        served = served.taken_over(round, &[&client], || {
            serve();
        });
    }
    wait_until("ping has ended", || {
        serve();
        ping.try_wait().expect("it can be asked").is_some()
    });
    let output = ping.wait_with_output().expect("it ended");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(&format!("{PINGS} packets transmitted, {PINGS} received")), "{text}");
    served.end();
    // It vanishes with the last of its queues: no descriptor of it is left anywhere.
    assert!(!run(&["link", "show", "t0"]), "the interface is still there");
}

#[test]
fn pings_go_on_while_the_daemon_is_replaced() {
    if !Path::new("/dev/net/tun").exists() {
        return skipped("there is no /dev/net/tun");
    }
    if !alone() {
        return;
    }
    if Command::new("ping").arg("-V").output().is_err() {
        return skipped("there is no ping");
    }
    for spec in
        ["tap:t0,address=10.9.7.1/24", "tap:t0,address=10.9.7.1/24,offload", "tap:t0,address=10.9.7.1/24,queues=2"]
    {
        ping_goes_on_across_take_overs(spec);
    }
    // A port that is not the same on both is not passed, and the take-over fails.
    ping_is_not_disturbed_by_another_port();
}

fn ping_is_not_disturbed_by_another_port() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let served = Served::start(config(&socket, "tap:t0,address=10.9.7.1/24"));
    let other = config(&socket, "tap:t0,address=10.9.7.1/24,mtu=1400");
    let refused = Daemon::adopt(other, Stop::new().expect("a descriptor"), Box::new(|_| {}));
    let why = refused.err().expect("the interface is the other's").to_string();
    assert!(why.contains("in use by another process"), "{why}");
    assert!(run(&["link", "show", "t0"]), "the interface is still there");
    served.end();
}

#[test]
fn frames_of_a_packet_socket_come_once_while_the_daemon_is_replaced() {
    if !alone() || !pair() {
        return;
    }
    let mut numbered = Numbered { socket: PacketSocket::open(&PacketOptions::new("v0")).expect("root may"), sent: 0 };
    let folder = tempfile::tempdir().expect("a folder");
    let (mut served, client, mut queue) = served_on(folder.path(), "af-packet:v1");
    let (mut last, mut incoming) = (0, Vec::new());
    let mut serve = || {
        numbered.send();
        queue.receive(&mut incoming, 32);
        for frame in incoming.drain(..) {
            if let Some(number) = Numbered::number(&frame.to_vec()) {
                assert!(number > last, "frame {number} comes behind {last}");
                last = number;
            }
        }
        last
    };
    for round in 1..=5 {
        let before = serve();
        wait_until("frames come", || serve() > before + 100);
        served = served.taken_over(round, &[&client], || {
            serve();
        });
    }
    let before = serve();
    wait_until("frames come", || serve() > before + 100);
    served.end();
}

/// Numbered frames from the other end of the daemon's port to the station and back, some always under way; none may be lost or come
/// twice.
struct Exchange<P> {
    socket: PathBuf,
    peer: P,
    queue: Queue,
    /// Whether one way keeps them in order. A veth interface takes the queue of the core that sends, so that frames of a thread
    /// that the system moves may wait in two queues.
    in_order: bool,
    sent: u64,
    arrived: u64,
    back: u64,
    /// The frames that have not arrived, and those that are not back.
    arriving: BTreeSet<u64>,
    returning: BTreeSet<u64>,
}

impl<P: Port> Exchange<P> {
    const UNDER_WAY: u64 = 48;

    fn new(socket: PathBuf, peer: P, queue: Queue, in_order: bool) -> Exchange<P> {
        let (arriving, returning) = (BTreeSet::new(), BTreeSet::new());
        Exchange { socket, peer, queue, in_order, sent: 0, arrived: 0, back: 0, arriving, returning }
    }

    /// Sends one more if `more` and it may; gives how many are back.
    fn step(&mut self, more: bool) -> u64 {
        let now = clock::now();
        if more
            && self.sent < self.back + Exchange::<P>::UNDER_WAY
            && self.peer.transmit(now, &Numbered::frame(self.sent + 1)).expect("it is there") == Transmit::Accepted
        {
            self.sent += 1;
            self.arriving.insert(self.sent);
            self.returning.insert(self.sent);
        }
        self.peer.flush(now).expect("it is there");
        let (mut incoming, mut outgoing) = (Vec::new(), Vec::new());
        self.queue.receive(&mut incoming, 32);
        for mut frame in incoming {
            let mut bytes = frame.to_vec();
            let Some(number) = Numbered::number(&bytes) else {
                self.queue.free(&mut vec![frame]);
                continue;
            };
            self.arrived += 1;
            let awaited = comes(&mut self.arriving, self.in_order, number);
            assert!(awaited, "{number} came to the client twice or behind a later one: {}", self.counts());
            let (to, from) = bytes.split_at_mut(6);
            to.swap_with_slice(&mut from[..6]);
            frame.write(0, &bytes);
            outgoing.push(frame);
        }
        while !outgoing.is_empty() {
            self.queue.transmit(&mut outgoing);
        }
        let mut buffer = [0; MAX_FRAME];
        while let Receive::Frame { length, .. } = self.peer.receive(now, &mut buffer).expect("it is there") {
            if let Some(number) = Numbered::number(&buffer[..length]).filter(|_| buffer[6..12] == STATION) {
                self.back += 1;
                let awaited = comes(&mut self.returning, self.in_order, number);
                assert!(awaited, "{number} came back twice or behind a later one: {}", self.counts());
            }
        }
        self.back
    }

    fn go_on(&mut self, frames: u64) {
        let before = self.step(true);
        if let Err(why) = try_until("frames come back", || self.step(true) >= before + frames) {
            panic!("{why}: {}", self.counts());
        }
    }

    /// Sends no more; all must come.
    fn end(mut self) -> P {
        if let Err(why) = try_until("all frames come back", || self.step(false) == self.sent) {
            panic!("{why}: {}", self.counts());
        }
        self.peer
    }

    /// What the peer, the daemon and the kernel have counted, to tell where a frame was lost.
    fn counts(&self) -> String {
        let Exchange { sent, arrived, back, arriving, returning, .. } = self;
        let peer = (self.peer.counters().named(), self.peer.details());
        let daemon = Operator::connect(&self.socket, Duration::from_secs(10))
            .map_err(|error| error.to_string())
            .and_then(|operator| operator.ask(r#"{"ask": "list"}"#).map_err(|error| error.to_string()));
        let kernel = Command::new("ip").args(["-s", "-s", "link"]).output();
        let kernel = kernel.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let backlog = std::fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
        format!(
            "{sent} sent, {arrived} arrived, {back} back; not arrived {arriving:?}, not back {returning:?}\n\
             peer {peer:?}\ndaemon {daemon:?}\n{kernel}{backlog}"
        )
    }
}

/// Whether a frame that comes is awaited: it did not come before, and none sent before it is still to come.
fn comes(awaited: &mut BTreeSet<u64>, in_order: bool, number: u64) -> bool {
    let first = awaited.first() == Some(&number);
    awaited.remove(&number) && (first || !in_order)
}

/// Exchanges frames with the other end of a port while one daemon after the other takes over; gives that end back.
fn frames_go_on_across_take_overs<P: Port>(spec: &str, folder: &Path, in_order: bool, peer: impl FnOnce() -> P) -> P {
    let (mut served, client, queue) = served_on(folder, spec);
    let mut exchange = Exchange::new(folder.join("nic.sock"), peer(), queue, in_order);
    for round in 1..=5 {
        exchange.go_on(500);
        // The first one dies with the port and all else in its hands.
        let heir = Heir::of(&folder.join("nic.sock"), &[0]);
        (0..20).for_each(|_| _ = exchange.step(true));
        drop(heir);
        exchange.go_on(500);
        served = served.taken_over(round, &[&client], || exchange.go_on(0));
    }
    exchange.go_on(500);
    let peer = exchange.end();
    served.end();
    peer
}

fn detail(port: &impl Port, name: &str) -> u64 {
    port.details().into_iter().find(|(own, _)| *own == name).map(|(_, count)| count).expect("it is counted")
}

#[test]
fn a_memif_peer_keeps_its_session_and_every_frame_while_the_daemon_is_replaced() {
    for (own, other) in [("server", Role::Client), ("client", Role::Server)] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("memif.sock");
        let path = path.to_str().expect("text");
        let options = MemifOptions { role: other, queues: 2, log2_slots: 6, ..MemifOptions::new(path) };
        let open = || {
            let mut peer = Memif::open(&options).expect("a peer");
            wait_until("they meet", || {
                peer.receive(clock::now(), &mut [0; MAX_FRAME]).expect("memif does not fail");
                peer.is_connected()
            });
            peer
        };
        let spec = format!("memif:{path},role={own},queues=2,slots=64");
        let mut peer = frames_go_on_across_take_overs(&spec, folder.path(), true, open);
        assert_eq!((detail(&peer, "sessions"), detail(&peer, "sessions_ended")), (1, 0), "{}", peer.description());
        // The last of the daemons ends it as the first would have.
        wait_until("it is told of the end", || {
            peer.receive(clock::now(), &mut [0; MAX_FRAME]).expect("memif does not fail");
            !peer.is_connected()
        });
        assert_eq!(Path::new(path).exists(), other == Role::Server, "who made the socket removes it");
    }
}

#[test]
fn a_port_that_an_operator_has_connected_is_connected_behind_a_take_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("memif.sock");
    let options = MemifOptions { role: Role::Client, ..MemifOptions::new(path.to_str().expect("text")) };
    let open = || {
        let operator = Operator::connect(&folder.path().join("nic.sock"), Duration::from_secs(10)).expect("it listens");
        let done = operator.ask(r#"{"ask": "connect", "between": ["client:1", "port:0"]}"#).expect("it answers");
        assert_eq!(done, r#"{"done":true}"#);
        Memif::open(&options).expect("a peer")
    };
    frames_go_on_across_take_overs(&format!("memif:{}", path.display()), folder.path(), true, open);
}

#[test]
fn no_frame_of_an_xdp_socket_is_lost_while_the_daemon_is_replaced() {
    if !alone() || !pair_of_queues(2) {
        return;
    }
    for spec in ["af-xdp:v1,queues=2,frames=64", "af-xdp:v1,frames=64,generic", "impair:delay=0us+af-xdp:v1,queues=2"] {
        if !can_serve(spec) {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let open = || PacketSocket::open(&PacketOptions::new("v0")).expect("root may");
        frames_go_on_across_take_overs(spec, folder.path(), !spec.contains("queues=2"), open);
    }
}

#[test]
fn no_frame_of_a_tap_interface_is_lost_while_the_daemon_is_replaced() {
    if !Path::new("/dev/net/tun").exists() {
        return skipped("there is no /dev/net/tun");
    }
    if !alone() {
        return;
    }
    for spec in ["tap:t0", "tap:t0,offload", "tap:t0,queues=2"] {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || PacketSocket::open(&PacketOptions::new("t0")).expect("root may");
        frames_go_on_across_take_overs(spec, folder.path(), true, open);
        // It vanishes with the last of its queues: no descriptor of it is left anywhere.
        assert!(!run(&["link", "show", "t0"]), "the interface is still there");
    }
}

/// The numbers of the frames in a capture file, every one of which can be read.
fn recorded(file: &Path) -> Vec<u64> {
    let mut reader = CaptureReader::open(file).expect("it is a capture");
    let mut numbers = Vec::new();
    while reader.next_record().expect("it is sound").is_some() {
        numbers.extend(Numbered::number(reader.data()));
    }
    numbers
}

/// Sends so many more frames of 1500 bytes to everybody, numbered.
pub(super) fn send_more(queue: &mut Queue, sent: &mut u64, frames: u64) {
    for _ in 0..frames {
        *sent += 1;
        let mut bytes = Numbered::frame(*sent).to_vec();
        bytes.resize(1500, 0);
        bytes[..6].fill(0xff);
        bytes[6..12].copy_from_slice(&STATION);
        wait_until("there is room", || {
            let Some(mut frame) = queue.allocate(1500) else { return false };
            frame.write(0, &bytes);
            let mut outgoing = vec![frame];
            queue.transmit(&mut outgoing) == 1 || (queue.free(&mut outgoing), false).1
        });
    }
}

#[test]
fn what_a_port_has_recorded_stays_while_the_daemon_is_replaced_and_where_that_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let spec = format!("capture:record={}", path("wire.pcap").display());
    let (served, client, mut queue) = served_on(folder.path(), &spec);
    let frames_out = || {
        let operator = Operator::connect(&path("nic.sock"), Duration::from_secs(10)).expect("it listens");
        let list = operator.ask(r#"{"ask": "list"}"#).expect("it answers");
        let list: serde_json::Value = serde_json::from_str(&list).expect("one JSON object");
        list["networks"][0]["ports"][0]["counters"]["transmitted_frames"].as_u64().unwrap_or(0)
    };
    // More than the 256 KiB that the writer gathers before it writes: most of that lies in the file, the rest is still to come.
    let mut sent = 0;
    send_more(&mut queue, &mut sent, 300);
    wait_until("all are recorded", || frames_out() == 300);
    let before = std::fs::read(path("wire.pcap")).expect("it is there");
    assert!(before.len() > 250 << 10, "{} bytes", before.len());
    // One whose other port is none takes nothing over, whether or not it has the same port; nor touches what that records.
    std::fs::write(path("none.pcap"), [0; 64]).expect("a folder");
    for own in [spec.clone(), format!("impair:delay=0us+{spec}")] {
        let mut other = config(&path("nic.sock"), &own);
        let none = format!("capture:replay={}", path("none.pcap").display());
        other.networks[0].ports.push(PortConfig { spec: none, vlan: None });
        let refused = Daemon::adopt(other, Stop::new().expect("a descriptor"), Box::new(|_| {}));
        assert!(refused.is_err(), "there is no such capture");
        assert!(std::fs::read(path("wire.pcap")).expect("it is there") == before, "the recording is another");
    }
    send_more(&mut queue, &mut sent, 10);
    wait_until("these are recorded too", || frames_out() == 310);
    let mut served = served.taken_over(1, &[&client], || {});
    // Who is answered is answered behind the opening.
    assert_eq!(frames_out(), 0);
    send_more(&mut queue, &mut sent, 10);
    wait_until("these are recorded too", || frames_out() == 10);
    served = served.taken_over(2, &[&client], || {});
    assert_eq!(frames_out(), 0);
    send_more(&mut queue, &mut sent, 5);
    wait_until("these are recorded too", || frames_out() == 5);
    served.end();
    let numbers = ["wire.pcap", "wire.1.pcap", "wire.2.pcap"].map(|name| recorded(&path(name)));
    assert_eq!(numbers, [(1..=310).collect::<Vec<_>>(), (311..=320).collect(), (321..=325).collect()]);
}
