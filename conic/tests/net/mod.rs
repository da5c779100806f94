//! Network namespaces with interfaces between them, for tests with the kernel's stack and other programs as peers.
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::sync::OnceLock;

use conic_check::skipped;

/// Why the tests cannot run here, if they cannot. Root in a container may make no namespace, or no interface in it, so both are tried.
pub fn obstacle() -> Option<&'static str> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        let name = format!("conic-{}-try", std::process::id());
        let made = try_ip(&["netns", "add", &name])
            .and_then(|()| try_ip(&["-n", &name, "link", "add", "a0", "type", "veth", "peer", "name", "b0"]));
        // Where none was made there is none to remove.
        let _ = try_ip(&["netns", "delete", &name]);
        made.err()
    };
    FOUND.get_or_init(find).as_deref()
}

/// Two namespaces with an interface each, `a0` and `b0`, whose other ends `a1` and `b1` are in a third, where the bridge
/// runs. All go when it is dropped.
pub struct Net {
    pub names: [String; 3],
}

impl Net {
    pub fn new(name: &str) -> Net {
        let names = ["a", "b", "m"].map(|part| format!("conic-{}-{name}-{part}", std::process::id()));
        let net = Net { names };
        for name in &net.names {
            ip(&["netns", "add", name]);
        }
        for (end, name, address) in [("a", &net.names[0], "10.5.0.1/24"), ("b", &net.names[1], "10.5.0.2/24")] {
            let (near, far) = (format!("{end}0"), format!("{end}1"));
            ip(&["link", "add", &near, "netns", name, "type", "veth", "peer", "name", &far, "netns", &net.names[2]]);
            ip(&["-n", name, "link", "set", &near, "up"]);
            ip(&["-n", &net.names[2], "link", "set", &far, "up"]);
            ip(&["-n", name, "address", "add", address, "dev", &near]);
        }
        net
    }

    pub fn command(&self, place: usize, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[place], program]).args(arguments);
        command
    }

    /// Does something in one of the namespaces, by a thread of its own.
    pub fn inside<T: Send>(&self, place: usize, what: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let namespace = File::open(format!("/run/netns/{}", self.names[place])).expect("a namespace");
                let kind = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(namespace.as_fd(), kind).expect("root may");
                what()
            });
            inside.join().expect("it is done")
        })
    }

    /// Lets an interface carry jumbo frames, and send nothing by itself.
    pub fn quiet(&self, place: usize, link: &str) {
        ip(&["-n", &self.names[place], "link", "set", link, "mtu", "9586"]);
        ip(&["-n", &self.names[place], "link", "set", link, "arp", "off"]);
        let off = format!("net.ipv6.conf.{link}.disable_ipv6=1");
        self.command(place, "sysctl", &["-q", &off]).output().expect("ip was there");
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

pub fn ip(arguments: &[&str]) {
    try_ip(arguments).unwrap_or_else(|why| panic!("{why}"));
}

pub fn try_ip(arguments: &[&str]) -> Result<(), String> {
    let said = |why: &str| format!("ip {}: {}", arguments.join(" "), why.trim());
    let output = Command::new("ip").args(arguments).output().map_err(|error| said(&error.to_string()))?;
    if output.status.success() { Ok(()) } else { Err(said(&String::from_utf8_lossy(&output.stderr))) }
}

/// Whether a program is there; says so where it is not.
pub fn there(program: &str) -> bool {
    let there = Command::new("which").arg(program).output().is_ok_and(|output| output.status.success());
    if !there {
        skipped(&format!("{program} is not installed"));
    }
    there
}

pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
