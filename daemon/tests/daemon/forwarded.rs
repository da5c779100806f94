//! AF_XDP ports between which the kernel forwards: what goes past the daemon, what does not, and that no policy is passed by.
//!
//! Three wires in a network namespace of their own; the daemon has one end of each, the test the other, by AF_XDP sockets: an interface
//! with a program takes what others' programs redirect to it. Without the right to make one, the tests say that they are skipped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::heir::Heir;
use crate::served::Served;
use crate::station::{alone, can_serve, run, station};
use crate::waiting::{try_until, wait_until};
use conic_client::{Client, Operator, Options};
use conic_native::clock;
use conic_nicd::config::{Config, NetworkConfig, PortConfig};
use conic_port::{CaptureReader, MAX_FRAME, Port, Receive, Transmit, XdpOptions, XdpSocket};
use serde_json::{Value, json};

/// Stations behind the three wires, by their wires, and one behind whichever a test likes.
const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const C: [u8; 6] = [2, 0, 0, 0, 0, 0xc];

const WIRES: [(&str, &str); 3] = [("v0", "v1"), ("w0", "w1"), ("x0", "x1")];

/// A frame whose every byte depends on its number.
fn frame(from: [u8; 6], to: [u8; 6], number: u32, length: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..length).map(|at| (number as usize + 31 * at) as u8).collect();
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// A daemon on the near ends of three wires, and the far ends.
struct World {
    served: Option<Served>,
    socket: PathBuf,
    ends: Vec<XdpSocket>,
    number: u32,
    _folder: tempfile::TempDir,
}

fn spec(wire: usize, more: &str) -> String {
    format!("af-xdp:{},frames=64,forward=kernel{more}", WIRES[wire].1)
}

fn config(socket: &Path, wires: usize, more: &str, age: u64) -> Config {
    let port = |wire| PortConfig { spec: spec(wire, more), vlan: None };
    let ports = (0..wires).map(port).collect();
    let networks = vec![NetworkConfig { ports, address_age_s: age, ..NetworkConfig::default() }];
    Config { socket: socket.to_owned(), networks, ..Config::default() }.checked().expect("a sound configuration")
}

impl World {
    /// With so many of the wires' ends as ports from the start, each with further options; none where that cannot be.
    fn new(wires: usize, more: &str, age: u64) -> Option<World> {
        if !alone() {
            return None;
        }
        for (far, near) in WIRES {
            let made = run(&["link", "add", far, "type", "veth", "peer", "name", near]);
            assert!(made && run(&["link", "set", far, "up"]) && run(&["link", "set", near, "up"]), "{far}");
        }
        if !can_serve("af-xdp:v1,frames=64,forward=kernel") {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("nic.sock");
        let open = |(far, _)| XdpSocket::open(&XdpOptions { frames: 256, ..XdpOptions::new(far) }).expect("root may");
        // Before the daemon's: it then takes frames from the first look on.
        let ends = WIRES.map(open).into_iter().collect();
        let served = Some(Served::start(config(&socket, wires, more, age)));
        Some(World { served, socket, ends, number: 0, _folder: folder })
    }

    fn ask(&self, question: &Value) -> Value {
        let operator = Operator::connect(&self.socket, Duration::from_secs(10)).expect("it listens");
        serde_json::from_str(&operator.ask(&question.to_string()).expect("it answers")).expect("an answer")
    }

    fn done(&self, question: &Value) -> Value {
        let answer = self.ask(question);
        assert_eq!(answer["done"], true, "{question}: {answer}");
        answer
    }

    fn port(&self, number: usize) -> Value {
        let list = self.ask(&json!({ "ask": "list" }));
        let ports = list["networks"][0]["ports"].as_array().expect("they are listed");
        ports
            .iter()
            .find(|port| port["number"] == number)
            .cloned()
            .unwrap_or_else(|| panic!("no port {number}: {list}"))
    }

    /// What a port counts by a name.
    fn count(&self, port: usize, name: &str) -> u64 {
        self.port(port)["counters"][name].as_u64().unwrap_or_else(|| panic!("port {port} counts no {name}"))
    }

    /// Frames that were forwarded in the kernel from a port, and to it.
    fn forwarded(&self, port: usize) -> (u64, u64) {
        (self.count(port, "kernel_forwarded_in_frames"), self.count(port, "kernel_forwarded_out_frames"))
    }

    fn give(&mut self, wire: usize, frame: &[u8]) {
        let now = clock::now();
        wait_until("there is room", || {
            let accepted = self.ends[wire].transmit(now, frame).expect("it is there") == Transmit::Accepted;
            self.ends[wire].flush(now).expect("it is there");
            accepted
        });
    }

    /// A numbered frame from a station behind a wire to another.
    fn send(&mut self, wire: usize, from: [u8; 6], to: [u8; 6], length: usize) -> Vec<u8> {
        self.number += 1;
        let frame = frame(from, to, self.number, length);
        self.give(wire, &frame);
        frame
    }

    /// All that has come at a wire's end.
    fn take(&mut self, wire: usize) -> Vec<Vec<u8>> {
        let (mut buffer, mut frames) = ([0; MAX_FRAME], Vec::new());
        // One whose interface is gone gives nothing.
        while let Ok(Receive::Frame { length, .. }) = self.ends[wire].receive(clock::now(), &mut buffer) {
            // Others, such as the kernel's own of IPv6, come too.
            if buffer[12..14] == [0x88, 0xb5] || buffer[12] == 0x81 {
                frames.push(buffer[..length].to_vec());
            }
        }
        frames
    }

    /// Whether a frame comes at these wires' ends and at no other, once each.
    fn comes(&mut self, wires: &[usize], frame: &[u8]) {
        let mut came = [0; WIRES.len()];
        wait_until("it comes", || {
            for (wire, came) in came.iter_mut().enumerate() {
                *came += self.take(wire).iter().filter(|one| one[..] == *frame).count();
            }
            wires.iter().all(|&wire| came[wire] > 0)
        });
        let expected: Vec<usize> = (0..WIRES.len()).map(|wire| usize::from(wires.contains(&wire))).collect();
        assert_eq!(came[..], expected[..]);
    }

    /// Sends until the kernel forwards from one station to another.
    fn until_forwarded(&mut self, (wire, from): (usize, [u8; 6]), (to_wire, to): (usize, [u8; 6])) {
        self.send(to_wire, to, from, 60);
        let before = self.forwarded(wire).0;
        let forwarded = try_until("the kernel forwards", || {
            let frame = self.send(wire, from, to, 60);
            wait_until("it comes", || self.take(to_wire).contains(&frame));
            self.forwarded(wire).0 > before
        });
        forwarded.unwrap_or_else(|why| panic!("{why}: {} {}", self.port(wire), self.port(to_wire)));
        (0..WIRES.len()).for_each(|wire| drop(self.take(wire)));
    }

    fn end(mut self) {
        self.served.take().expect("it runs").end();
    }
}

#[test]
fn frames_between_two_stations_go_past_the_daemon_whole_and_counted_and_others_do_not() {
    for more in ["", ",generic", ",complete-checksums"] {
        let Some(mut world) = World::new(3, more, 300) else { return };
        world.until_forwarded((0, A), (1, B));
        let (before, received) = (world.forwarded(0).0, world.count(0, "received_frames"));
        let bytes = world.count(1, "kernel_forwarded_out_bytes");
        let lengths: Vec<usize> = (60..1515).step_by(97).chain([1514]).collect();
        for &length in &lengths {
            let frame = world.send(0, A, B, length);
            world.comes(&[1], &frame);
        }
        let forwarded = lengths.len() as u64;
        assert_eq!(world.forwarded(0), (before + forwarded, 0), "{more}");
        assert_eq!(world.forwarded(1), (0, before + forwarded));
        let sum: usize = lengths.iter().sum();
        assert_eq!(world.count(1, "kernel_forwarded_out_bytes"), bytes + sum as u64);
        assert_eq!(world.count(0, "received_frames"), received, "the daemon has seen none");
        // Who is unknown, who is many, who is elsewhere than it was, and what has a tag.
        let mut tagged = frame(A, B, 0, 64);
        tagged[12..16].copy_from_slice(&[0x81, 0, 0, 7]);
        let others = [
            (frame(A, [2, 9, 9, 9, 9, 9], 1, 60), vec![1, 2]),
            (frame(A, [0xff; 6], 2, 60), vec![1, 2]),
            (frame(A, [1, 0, 0x5e, 0, 0, 5], 3, 60), vec![1, 2]),
            (frame(C, B, 4, 60), vec![1]),
            (tagged, vec![1]),
        ];
        for (number, (other, to)) in others.into_iter().enumerate() {
            world.give(0, &other);
            world.comes(&to, &other);
            assert_eq!(world.count(0, "received_frames"), received + number as u64 + 1, "{more} {number}");
        }
        assert_eq!(world.forwarded(0).0, before + forwarded);
        world.end();
    }
}

#[test]
fn a_station_that_moves_is_followed_and_one_that_is_silent_is_forgotten() {
    let Some(mut world) = World::new(3, "", 1) else { return };
    world.until_forwarded((0, A), (1, B));
    // B is behind the third port from here on; the next frame for it is sent when its own has come.
    let moved = world.send(2, B, A, 60);
    world.comes(&[0], &moved);
    wait_until("it is followed", || {
        let frame = world.send(0, A, B, 60);
        let mut at = None;
        wait_until("it comes somewhere", || {
            at = (1..3).find(|&wire| world.take(wire).contains(&frame));
            at.is_some()
        });
        at == Some(2)
    });
    world.until_forwarded((0, A), (2, B));
    let frame = world.send(0, A, B, 60);
    world.comes(&[2], &frame);
    // Who sends is remembered for longer than the age of what the daemon itself has seen, who does not is not.
    let begun = clock::now();
    let received = world.count(0, "received_frames");
    let mut asked = false;
    wait_until("B is forgotten", || {
        let frame = world.send(0, A, B, 60);
        wait_until("it comes", || world.take(2).contains(&frame));
        asked = asked || world.take(1).contains(&frame);
        asked
    });
    let waited = clock::now().since(begun).seconds();
    assert!((0.5..3.0).contains(&waited), "{waited} seconds");
    // All of A's frames but the last ones went past the daemon, and yet it knows where A is.
    assert!(world.count(0, "received_frames") - received < 20);
    let frame = world.send(1, C, A, 60);
    world.comes(&[0], &frame);
    world.end();
}

/// The numbers of the frames in a capture file, once it has the one that is named.
fn captured(file: &Path, last: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    wait_until("the file is written out", || {
        found.clear();
        let Ok(mut reader) = CaptureReader::open(file) else { return false };
        while let Ok(Some(_)) = reader.next_record() {
            let number = reader.data().get(14..18).and_then(|number| number.try_into().ok()).map(u32::from_be_bytes);
            found.extend(number);
        }
        found.contains(&last)
    });
    found
}

#[test]
fn a_mirror_gets_every_frame_behind_its_answer_and_the_kernel_goes_on_when_it_ends() {
    let Some(mut world) = World::new(2, "", 300) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    world.until_forwarded((0, A), (1, B));
    for (round, end) in ["port:0", "port:1"].into_iter().enumerate() {
        let file = folder.path().join(format!("{round}.pcap"));
        world.send(0, A, B, 60);
        world.done(&json!({ "ask": "mirror", "end": end, "file": file }));
        let (before, first) = (world.forwarded(0).0, world.number + 1);
        for _ in 0..200 {
            let frame = world.send(0, A, B, 60);
            wait_until("it comes", || world.take(1).contains(&frame));
        }
        assert_eq!(world.forwarded(0).0, before);
        world.done(&json!({ "ask": "mirror", "end": end }));
        // It is written out then.
        let seen = captured(&file, world.number);
        assert!((first..=world.number).all(|number| seen.contains(&number)), "{end}");
        let frame = world.send(0, A, B, 60);
        world.comes(&[1], &frame);
        assert_eq!(world.forwarded(0).0, before + 1, "{end} is not mirrored any more");
    }
    world.end();
}

#[test]
fn a_wire_between_two_ports_and_a_pinned_flow_are_kept() {
    let Some(mut world) = World::new(3, "", 300) else { return };
    world.until_forwarded((0, A), (1, B));
    let before = world.forwarded(0).0;
    world.done(&json!({ "ask": "connect", "between": ["port:0", "port:2"] }));
    for _ in 0..10 {
        let frame = world.send(0, A, B, 60);
        world.comes(&[2], &frame);
    }
    world.done(&json!({ "ask": "disconnect", "end": "port:2" }));
    assert_eq!(world.forwarded(0).0, before);
    world.until_forwarded((0, A), (1, B));
    // With an address that no station has: else that station would be here.
    let options = Options { mac: None, ..station() };
    let (client, mut queues) = Client::attach(&world.socket, &options).unwrap_or_else(|error| panic!("{error}"));
    let list = world.ask(&json!({ "ask": "list" }));
    let session = list["clients"][0]["session"].as_u64().expect("it is attached");
    let pattern = "source-mac=02:00:00:00:00:0a";
    world.done(&json!({ "ask": "pin", "client": session, "match": pattern }));
    let before = world.forwarded(0).0;
    let frame = world.send(0, A, B, 60);
    let mut incoming = Vec::new();
    wait_until("the client gets it", || {
        queues[0].receive(&mut incoming, 32);
        incoming.iter().any(|one| one.to_vec() == frame)
    });
    drop(incoming);
    assert_eq!(world.forwarded(0).0, before);
    world.done(&json!({ "ask": "unpin", "client": session }));
    let frame = world.send(0, A, B, 60);
    world.comes(&[1], &frame);
    assert_eq!(world.forwarded(0).0, before + 1);
    drop((client, queues));
    world.end();
}

#[test]
fn a_port_goes_under_traffic_and_comes_again_and_one_that_fails_takes_nothing_with_it() {
    let Some(mut world) = World::new(3, "", 300) else { return };
    world.until_forwarded((0, A), (1, B));
    world.until_forwarded((0, A), (2, C));
    let total = world.forwarded(0).0;
    world.done(&json!({ "ask": "detach_port", "port": 1 }));
    // Nobody knows B: it is asked for behind the only other port.
    let frame = world.send(0, A, B, 60);
    world.comes(&[2], &frame);
    assert_eq!(world.forwarded(0), (total, 0), "what was counted stays");
    let frame = world.send(0, A, C, 60);
    world.comes(&[2], &frame);
    assert_eq!(world.forwarded(0).0, total + 1, "the third is not concerned");
    let attached = world.done(&json!({ "ask": "attach_port", "port": spec(1, "") }));
    let number = attached["port"].as_u64().expect("its number") as usize;
    world.send(1, B, A, 60);
    let before = world.forwarded(number).1;
    assert_eq!(before, 0, "it is another port");
    wait_until("the kernel forwards to it", || {
        let frame = world.send(0, A, B, 60);
        wait_until("it comes", || world.take(1).contains(&frame));
        world.forwarded(number).1 > 0
    });
    // Its interface is down, then gone: what is for it is the daemon's to count, and the others go on.
    assert!(run(&["link", "delete", "w1"]));
    let before = world.forwarded(0).0;
    wait_until("it is noticed", || world.port(number)["up"] == false);
    world.send(0, A, B, 60);
    let frame = world.send(0, A, C, 60);
    world.comes(&[2], &frame);
    assert_eq!(world.forwarded(0).0, before + 1);
    world.end();
}

/// Frames under way at most: rings hold more.
const UNDER_WAY: usize = 32;

#[test]
fn frames_are_forwarded_while_one_daemon_after_the_other_takes_over() {
    let Some(mut world) = World::new(2, "", 300) else { return };
    world.until_forwarded((0, A), (1, B));
    let mut awaited = BTreeSet::new();
    for round in 1..=5 {
        let served = world.served.take().expect("it runs");
        let served = served.taken_over(round, &[], || {
            if awaited.len() < UNDER_WAY {
                awaited.insert(world.send(0, A, B, 60));
            }
            world.take(1).iter().for_each(|frame| _ = awaited.remove(frame));
        });
        world.served = Some(served);
        let before = world.forwarded(0).0;
        assert!(before < 10_000, "its counters begin with it");
        wait_until("the kernel forwards for this one too", || {
            if awaited.len() < UNDER_WAY {
                awaited.insert(world.send(0, A, B, 60));
            }
            world.send(1, B, A, 60);
            world.take(1).iter().for_each(|frame| _ = awaited.remove(frame));
            world.take(0);
            world.forwarded(0).0 > before
        });
    }
    wait_until("no frame was lost", || {
        world.take(1).iter().for_each(|frame| _ = awaited.remove(frame));
        awaited.is_empty()
    });
    world.end();
    // Nothing is left on the interfaces.
    assert!(XdpSocket::open(&XdpOptions { frames: 64, ..XdpOptions::new("v1") }).is_ok());
}

/// The old daemon goes on with its ports as they were given, whose tables are empty then: each station has its place in them again.
#[test]
fn frames_are_forwarded_behind_a_take_over_that_failed() {
    let Some(mut world) = World::new(2, "", 300) else { return };
    for _ in 0..2 {
        world.until_forwarded((0, A), (1, B));
        world.until_forwarded((1, B), (0, A));
        drop(Heir::of(&world.socket, &[0, 1]));
    }
    world.until_forwarded((0, A), (1, B));
    world.until_forwarded((1, B), (0, A));
    world.end();
}

#[test]
fn an_interface_that_takes_no_frames_of_programs_is_named_and_served_as_ever() {
    let Some(mut world) = World::new(2, "", 300) else { return };
    // Its other end has no program any more, and joins nothing.
    let socket = world.ends.remove(1);
    drop(socket);
    world.ends.insert(1, XdpSocket::open(&XdpOptions { frames: 64, ..XdpOptions::new("x1") }).expect("root may"));
    wait_until("it is said", || {
        let described = world.port(1)["description"].as_str().expect("a text").to_owned();
        described.contains("forwarding in the kernel (nothing to it: its driver takes no frames of other drivers")
    });
    // With GRO at the other end it does.
    conic_port::set_receive_offload("w0", true).expect("it can");
    wait_until("it takes them", || !world.port(1)["description"].as_str().expect("a text").contains("nothing to it"));
    world.end();
}
