//! A client of a daemon with a port, in a network of its own, and what sends it frames from the port's other end.

use std::path::Path;
use std::process::Command;

use conic_check::skipped;
use conic_client::Options;
use conic_daemon::{Daemon, Stop};
use conic_interface::ccnic::Geometry;
use conic_native::clock;
use conic_nicd::config::{Config, NetworkConfig, PortConfig};
use conic_port::{PacketSocket, Port};
use rustix::thread::UnshareFlags;

/// The station that answers: a client of the daemon.
pub const STATION: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];

pub fn config(socket: &Path, spec: &str) -> Config {
    let ports = vec![PortConfig { spec: spec.to_owned(), vlan: None }];
    let networks = vec![NetworkConfig { ports, ..NetworkConfig::default() }];
    Config { socket: socket.to_owned(), networks, ..Config::default() }.checked().expect("a sound configuration")
}

/// Whether a daemon can have such a port; says so if the test is skipped. It is tried in a folder of its own: for a moment a child that
/// another test forks has its socket too.
#[allow(dead_code, reason = "not every test program has ports that a system may lack")]
pub fn can_serve(spec: &str) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let stop = Stop::new().expect("a descriptor");
    let tried = Daemon::start(config(&folder.path().join("nic.sock"), spec), stop, Box::new(|_| {}));
    if let Err(error) = &tried {
        skipped(&error.to_string());
    }
    tried.is_ok()
}

/// Moves this thread to a network namespace of its own, or says why the test is skipped. Nothing sends there by itself.
pub fn alone() -> bool {
    // SAFETY: only this thread's network namespace changes; the descriptors are shared with the process's other threads as before.
    let alone = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
    if let Err(error) = &alone {
        skipped(&format!("making a network namespace needs CAP_SYS_ADMIN ({error})"));
        return false;
    }
    // With IPv6 an interface that comes up asks for routers and reports its groups, when it likes: frames that no test has sent, and
    // that are counted. A kernel without it has no such file.
    let by_itself = Path::new("/proc/sys/net/ipv6/conf/default/disable_ipv6");
    assert!(!by_itself.exists() || std::fs::write(by_itself, "1").is_ok(), "the namespace is this thread's");
    true
}

/// Two interfaces, `v0` and `v1`, at the ends of one wire, up; or says why the test is skipped.
pub fn pair() -> bool {
    pair_of_queues(1)
}

/// The same with so many queues each way.
pub fn pair_of_queues(queues: usize) -> bool {
    let count = queues.to_string();
    let queues = ["numtxqueues", &count, "numrxqueues", &count];
    let [near, far] = [["link", "add", "v0"], ["peer", "name", "v1"]];
    if !run(&[&near[..], &queues, &["type", "veth"], &far, &queues].concat()) {
        skipped("the kernel has no veth");
        return false;
    }
    assert!(run(&["link", "set", "v0", "up"]) && run(&["link", "set", "v1", "up"]));
    true
}

pub fn run(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).status().is_ok_and(|status| status.success())
}

pub fn station() -> Options {
    let geometry = Geometry { queues: 1, descriptors: 256, buffers: [1024, 256, 16], object_bytes: 0 };
    Options { geometry, mac: Some(STATION), ..Options::default() }
}

/// What sends numbered frames to the station, over the other end of the daemon's interface.
pub struct Numbered {
    pub socket: PacketSocket,
    pub sent: u64,
}

impl Numbered {
    /// For local experiments (IEEE 802).
    pub const TYPE: [u8; 2] = [0x88, 0xb5];

    pub fn frame(number: u64) -> [u8; 60] {
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&STATION);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x0b]);
        frame[12..14].copy_from_slice(&Numbered::TYPE);
        frame[14..22].copy_from_slice(&number.to_be_bytes());
        frame
    }

    pub fn send(&mut self) {
        self.sent += 1;
        self.socket.transmit(clock::now(), &Numbered::frame(self.sent)).expect("the interface is there");
        self.socket.flush(clock::now()).expect("the interface is there");
    }

    pub fn number(frame: &[u8]) -> Option<u64> {
        let number = frame.get(14..22).filter(|_| frame[12..14] == Numbered::TYPE)?;
        Some(u64::from_be_bytes(number.try_into().expect("eight bytes")))
    }
}
