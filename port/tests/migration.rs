//! A virtual machine that migrates from behind one port to behind another, while frames go to it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::support::machine::Machine;
use crate::vhost::{MACHINE, answers, assert_no_faults, ping};
use conic_native::clock;
use conic_port::{MAX_FRAME, Port, Receive, Transmit, VhostOptions, VhostUser};

/// What QEMU's monitor is asked, and says.
struct Monitor {
    socket: UnixStream,
    said: String,
}

impl Monitor {
    fn connect(path: &Path) -> Monitor {
        let socket = UnixStream::connect(path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Monitor { socket, said: String::new() }
    }

    fn say(&mut self, line: &str) {
        self.said.clear();
        writeln!(self.socket, "{line}").unwrap();
    }

    /// What it has said since it was told something last.
    fn said(&mut self) -> &str {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = self.socket.read(&mut bytes) {
            self.said += &String::from_utf8_lossy(&bytes[..read]);
        }
        &self.said
    }
}

/// The first request's number.
const FIRST: u16 = 1000;

/// Ethernet's numbers of ARP and of its reverse.
const ADDRESS: [u8; 2] = [8, 6];
const REVERSE: [u8; 2] = [0x80, 0x35];

/// Two ports, and behind which of them the machine was heard last: what a switch does with a station.
struct Network {
    ports: [VhostUser; 2],
    at: usize,
    /// How the machine was announced behind the second: by which protocol.
    announced: Option<[u8; 2]>,
    /// Answers, by their requests' numbers, and how many came from each port.
    answered: Vec<u16>,
    from: [usize; 2],
    asked: u16,
    due: f64,
}

impl Network {
    /// Takes what has come.
    fn receive(&mut self) {
        let mut frame = [0; MAX_FRAME];
        for (number, port) in self.ports.iter_mut().enumerate() {
            let Receive::Frame { length, .. } = port.receive(clock::now(), &mut frame).unwrap() else { continue };
            if frame[6..12] != MACHINE.0 {
                continue;
            }
            self.at = number;
            let protocol = [frame[12], frame[13]];
            // Who has its own address? Or, where it says so itself: it has this one.
            let is_announced = protocol == REVERSE || protocol == ADDRESS && frame[38..42] == MACHINE.1;
            if number == 1 && frame[..6] == [0xff; 6] && is_announced {
                self.announced = Some(protocol);
            }
            if protocol == [8, 0] && frame[23] == 1 {
                let said = u16::from_be_bytes([frame[40], frame[41]]);
                let asked = ping(length, said);
                assert_eq!((frame[34], &frame[38..length]), (0, &asked[38..]), "request {said}");
                assert!(!self.answered.contains(&said), "request {said} was answered twice");
                self.answered.push(said);
                self.from[number] += 1;
            }
        }
    }

    /// Asks the machine where it was heard last, some hundred times in a second.
    fn ask(&mut self) {
        let now = clock::now();
        let seconds = now.nanoseconds() as f64 / 1e9;
        if seconds >= self.due {
            self.due = seconds + 0.005;
            let asked = ping([60, 98, 512, 1514][usize::from(self.asked) % 4], self.asked);
            let port = &mut self.ports[self.at];
            if port.transmit(now, &asked).unwrap() == Transmit::Accepted {
                port.flush(now).unwrap();
                self.asked += 1;
            }
        }
    }
}

/// A machine behind each port, of two cores, so that it uses two pairs of rings, with a monitor; the second waits for what the first was.
fn machines(folder: &Path, network: &mut Network, options: &[VhostOptions; 2], card: &str) -> Option<[Machine; 2]> {
    let start = |number: usize, more: &[String]| {
        let own = format!("-smp 2 -monitor unix:{},server=on,wait=off", monitor_of(folder, number).display());
        let own: Vec<String> = own.split(' ').map(str::to_owned).collect();
        let VhostOptions { socket, queues, .. } = &options[number];
        Machine::start_with(socket, "10.77.0.2", *queues, card, &[&own, more].concat())
    };
    let first = start(0, &[])?;
    let second = start(1, &["-incoming".to_owned(), passage(folder)])?;
    first.boot(|| network.receive());
    Some([first, second])
}

fn monitor_of(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("monitor-{number}"))
}

/// By where a machine passes from one QEMU to the other.
fn passage(folder: &Path) -> String {
    format!("unix:{}", folder.join("passage").display())
}

/// A machine whose card has these properties migrates while it is asked something, and is announced by a protocol.
fn migrates(card: &str, protocol: [u8; 2], kind: &str) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // The log is sealed, as the memory is.
    let options = ["source", "destination"].map(|name| {
        let options = VhostOptions::new(folder.join(name).to_str().unwrap());
        VhostOptions { queues: 2, offload: true, ..options }
    });
    let ports = [0, 1].map(|number| VhostUser::open(&options[number]).unwrap());
    let mut network =
        Network { ports, at: 0, announced: None, answered: Vec::new(), from: [0; 2], asked: FIRST, due: 0.0 };
    let Some(machines) = machines(folder, &mut network, &options, card) else { return };
    answers(&mut network.ports[0], &machines[0]);
    let mut monitor = Monitor::connect(&monitor_of(folder, 0));
    monitor.say(&format!("migrate -d {}", passage(folder)));
    let (begun, mut look) = (clock::now(), 0.1);
    let seconds = || clock::now().since(begun).seconds();
    while !monitor.said().contains("Migration status: completed") {
        assert!(seconds() < 60.0, "{}\n{}", monitor.said(), network.ports[0].description());
        if seconds() > look {
            look = seconds() + 0.1;
            monitor.say("info migrate");
        }
        network.ask();
        network.receive();
    }
    assert!(network.from[0] > 10, "{} answers while it migrated", network.from[0]);
    // What was under way when the machine stopped is answered by what it is now, once.
    while network.announced.is_none() || network.answered.len() < usize::from(network.asked - FIRST) {
        let (answers, asked) = (network.from, network.asked - FIRST);
        assert!(seconds() < 60.0, "{asked}, {answers:?}, {:?}: {}", network.announced, network.ports[1].description());
        network.receive();
    }
    assert_eq!((network.at, network.announced), (1, Some(protocol)));
    answers(&mut network.ports[1], &machines[1]);
    network.ports.iter().for_each(assert_no_faults);
    assert!(network.ports[1].description().contains(kind), "{}", network.ports[1].description());
    assert!(!network.ports[0].is_up(), "{}", network.ports[0].description());
}

#[test]
fn a_virtual_machine_is_reached_behind_another_port_when_it_has_migrated() {
    migrates(",mq=on", ADDRESS, "2 rings in and 2 out, 128 MiB");
}

#[test]
fn a_virtual_machine_is_reached_by_packed_rings_behind_another_port_which_announces_it() {
    migrates(",mq=on,packed=on,guest_announce=off", REVERSE, "2 rings in and 2 out, packed");
}
