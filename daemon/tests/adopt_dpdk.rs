//! A daemon with a DPDK device is replaced by one in another process, again and again: no client loses its session, and what comes from
//! the device comes once. It says how long the device was nobody's. The same with one that an operator attaches to a daemon that serves,
//! and detaches.
//!
//! DPDK is one for each process, so this program also plays the daemons: with `serve SOCKET [PORT]` it is one, with `adopt SOCKET [PORT]`
//! one that takes over. `cargo test -p conic-daemon --features dpdk --test adopt_dpdk`, as root.

#[path = "support/station.rs"]
mod station;
#[path = "support/waiting.rs"]
mod waiting;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use conic_client::{Client, Link, Operator, Queue};
use conic_daemon::{Daemon, Event, Stop};
use conic_fabric::Time;
use conic_native::clock;
use conic_port::{MAX_FRAME, PacketOptions, PacketSocket, Port, Receive};
use serde_json::{Value, json};
use station::{Numbered, STATION, alone, config, pair, station};
use waiting::wait_until;

/// DPDK's own packet socket, at the end of a wire.
const DEVICE: &str = "dpdk:net_af_packet0;iface=v1,frames=256";

/// Frames are this far apart: the wire's ends share their core's backlog with all others.
const BETWEEN_FRAMES: Time = Time::from_nanoseconds(20_000);

/// A daemon's process, which ends with this one's interest in it.
struct Process(Child);

impl Process {
    fn start(role: &str, socket: &Path, port: Option<&str>) -> Process {
        let mut program = Command::new(std::env::current_exe().expect("this program has a path"));
        program.arg(role).arg(socket).args(port).stderr(Stdio::null());
        Process(program.spawn().expect("it can be started"))
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("it can be asked").is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Plays a daemon.
fn serve(role: &str, socket: &str, port: Option<&str>) {
    let begin = if role == "adopt" { Daemon::adopt } else { Daemon::start };
    let log = Box::new(|event: &Event| {
        if let Event::Adopted { clients, microseconds } = event {
            println!("  {clients} client served again after {microseconds} us");
        }
    });
    let mut config = config(Path::new(socket), port.unwrap_or(DEVICE));
    if port.is_none() {
        config.networks[0].ports.clear();
    }
    let daemon = begin(config, Stop::new().expect("a descriptor"), log);
    daemon.unwrap_or_else(|error| panic!("{error}")).run().expect("the system lets it");
}

/// Frames from the other end of the device to the station.
struct Flow {
    queue: Queue,
    numbered: Numbered,
    sent_at: Time,
    /// The number of the last one that came, and when it came.
    last: u64,
    came_at: Time,
    /// Those that did not come.
    lost: u64,
    /// The longest time between two.
    pause: Time,
}

impl Flow {
    fn step(&mut self) {
        let now = clock::now();
        if now.since(self.sent_at) >= BETWEEN_FRAMES {
            self.numbered.send();
            self.sent_at = now;
        }
        let mut incoming = Vec::new();
        self.queue.receive(&mut incoming, 32);
        for number in incoming.into_iter().filter_map(|frame| Numbered::number(&frame.to_vec())) {
            assert!(number > self.last, "frame {number} comes behind {}", self.last);
            self.lost += number - self.last - 1;
            self.pause = self.pause.max(now.since(self.came_at));
            (self.last, self.came_at) = (number, now);
        }
    }

    fn goes_on(&mut self) {
        let until = self.last + 100;
        wait_until("frames come", || {
            self.step();
            self.last > until
        });
    }
}

/// A client, and the flow to it, which has not begun.
fn begin(socket: &Path) -> (Client, Flow) {
    let mut attached = None;
    wait_until("it listens", || {
        attached = Client::attach(socket, &station()).ok();
        attached.is_some()
    });
    let (client, mut queues) = attached.expect("it listens");
    let numbered = Numbered { socket: PacketSocket::open(&PacketOptions::new("v0")).expect("root may"), sent: 0 };
    let (queue, begun) = (queues.remove(0), clock::now());
    let flow = Flow { queue, numbered, sent_at: begun, last: 0, came_at: begun, lost: 0, pause: Time::ZERO };
    (client, flow)
}

/// Another daemon takes over from the one that serves, while frames come.
fn replace(serving: &mut Process, socket: &Path, port: Option<&str>, flow: &mut Flow) {
    (flow.lost, flow.pause) = (0, Time::ZERO);
    let mut next = Process::start("adopt", socket, port);
    wait_until("it has taken over", || {
        flow.step();
        serving.has_ended() || next.has_ended()
    });
    assert!(!next.has_ended() && serving.0.wait().expect("it ended").success());
    *serving = next;
    flow.goes_on();
    let milliseconds = flow.pause.nanoseconds() / 1_000_000;
    println!("  take-over: {} frames lost, {milliseconds} ms without one", flow.lost);
}

fn replace_it_again_and_again(socket: &Path) {
    let mut serving = Process::start("serve", socket, Some(DEVICE));
    let (client, mut flow) = begin(socket);
    for round in 1..=5 {
        flow.goes_on();
        replace(&mut serving, socket, Some(DEVICE), &mut flow);
        assert_eq!((client.maintain(), client.reconnects()), (Link::Up, 0), "round {round}");
    }
    send_one(&mut flow);
}

fn ask(operator: &Operator, question: &Value) -> Value {
    serde_json::from_str(&operator.ask(&question.to_string()).expect("it answers")).expect("an answer")
}

/// The daemon begins without DPDK, which is started by a thread that opens the first device and ends then.
fn attach_it_again_and_again(socket: &Path) {
    let mut serving = Process::start("serve", socket, None);
    let (client, mut flow) = begin(socket);
    let attach = |operator: &Operator| ask(operator, &json!({ "ask": "attach_port", "port": DEVICE }));
    let connect = || Operator::connect(socket, Duration::from_secs(20)).expect("it listens");
    let mut operator = connect();
    for round in 1..=20 {
        let answer = attach(&operator);
        let port = answer["port"].as_u64().unwrap_or_else(|| panic!("round {round}: {answer}"));
        flow.goes_on();
        let again = attach(&operator);
        let error = again["error"].as_str().unwrap_or_else(|| panic!("round {round}: it is there twice: {again}"));
        assert!(error.contains("is a port already"), "{error}");
        flow.goes_on();
        if round % 10 == 0 {
            send_one(&mut flow);
            replace(&mut serving, socket, None, &mut flow);
            operator = connect();
        }
        let gone = ask(&operator, &json!({ "ask": "detach_port", "port": port }));
        assert_eq!(gone["done"], true, "round {round}: {gone}");
        // What lies in the queue came from the device while it was there.
        let mut last = 0;
        while flow.last > last {
            last = flow.last;
            flow.step();
        }
        (0..100).for_each(|_| flow.numbered.send());
        flow.step();
        assert_eq!(flow.last, last, "round {round}: a device that is gone gives frames");
        assert_eq!((client.maintain(), client.reconnects()), (Link::Up, 0), "round {round}");
    }
    println!("a device was attached and detached 20 times");
}

/// What the station sends leaves through the device.
fn send_one(flow: &mut Flow) {
    let mut bytes = Numbered::frame(u64::MAX);
    let (to, from) = bytes.split_at_mut(6);
    to.swap_with_slice(&mut from[..6]);
    assert_eq!(bytes[6..12], STATION);
    let mut frame = flow.queue.allocate(bytes.len()).expect("a buffer");
    frame.write(0, &bytes);
    assert_eq!(flow.queue.transmit(&mut vec![frame]), 1);
    let mut buffer = [0; MAX_FRAME];
    wait_until("it is there", || {
        let received = flow.numbered.socket.receive(clock::now(), &mut buffer).expect("the interface is there");
        matches!(received, Receive::Frame { length, .. } if buffer[..length] == bytes)
    });
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [role, socket, port @ ..] = &words[..] {
        return serve(role, socket, port.first().map(String::as_str));
    }
    if alone() && pair() {
        let folder = tempfile::tempdir().expect("a folder");
        replace_it_again_and_again(&folder.path().join("nic.sock"));
        attach_it_again_and_again(&folder.path().join("other.sock"));
    }
}
