//! `conic tap` with the kernel as its peer, in a network namespace of its own.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use conic_check::skipped;

/// Why the test cannot run here, if it cannot.
fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root");
    }
    if std::fs::File::options().read(true).write(true).open("/dev/net/tun").is_err() {
        return Some("/dev/net/tun cannot be opened");
    }
    let namespace = Command::new("unshare").args(["--net", "true"]).stderr(Stdio::null()).status();
    if !namespace.is_ok_and(|status| status.success()) {
        return Some("no network namespace can be made (unshare --net)");
    }
    None
}

/// `conic tap` in a new network namespace; killed when dropped.
struct Tap(Child);

impl Tap {
    fn start(arguments: &[&str]) -> Tap {
        let mut command = Command::new("unshare");
        command.args(["--net", env!("CARGO_BIN_EXE_conic"), "tap", "--duration", "60s"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("unshare was there");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let first = lines.next().expect("a first line").expect("text");
        assert!(first.contains("is up"), "{first}");
        // The rest is read so that the program never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Tap(child)
    }

    /// Runs `body` in a thread that has entered the namespace.
    fn inside<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        let namespace = std::fs::File::open(format!("/proc/{}/ns/net", self.0.id())).expect("a namespace");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let network = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), network)
                    .expect("entering the namespace");
                body()
            });
            thread.join().expect("the thread in the namespace")
        })
    }

    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a process");
        assert!(self.0.wait().expect("a process").success(), "an interrupted tap ends in order");
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn echo(sizes: impl Iterator<Item = usize>) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect("10.9.0.2:7").expect("a route");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    let mut answer = vec![0; 65_536];
    for (number, size) in sizes.enumerate() {
        let datagram: Vec<u8> = (0..size).map(|at| (at * 3 + number) as u8).collect();
        socket.send(&datagram).expect("a route");
        let length = socket.recv(&mut answer).unwrap_or_else(|error| panic!("no answer to {size} bytes: {error}"));
        assert_eq!(answer[..length], datagram, "{size} bytes");
    }
}

/// Datagrams that are all sent before any answer is taken, so that they wait in the queues; the answers come in order.
fn burst(count: u32, size: usize) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect("10.9.0.2:7").expect("a route");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    // All answers fit, however late they are taken: what the kernel drops here would look as if it were lost on the way.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 4 << 20).expect("root may");
    let mut datagram = vec![0; size];
    for number in 0..count {
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        socket.send(&datagram).expect("a route");
    }
    for number in 0..count {
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        let mut answer = vec![0; size + 1];
        let length = socket.recv(&mut answer).unwrap_or_else(|error| panic!("no answer {number} of {count}: {error}"));
        assert!(answer[..length] == datagram, "answer {number} of {count} with {size} bytes");
    }
}

#[test]
fn udp_echo_and_ping_lose_nothing() {
    if let Some(obstacle) = obstacle() {
        skipped(&format!("conic tap: {obstacle}"));
        return;
    }
    // Beside each other: each waits most of the time, for intervals of ping's.
    std::thread::scope(|scope| {
        for features in ["best", "paper", "register,packed"] {
            scope.spawn(move || loses_nothing(features));
        }
    });
}

fn loses_nothing(features: &str) {
    let tap = Tap::start(&["--mtu", "9000", "--features", features]);
    tap.inside(|| {
        echo((0..2000).map(|number| number * 37 % 8973));
        burst(100, 4);
        burst(50, 8972);
        ping(&["-l", "100", "-c", "104", "10.9.0.2"]);
        ping(&["-l", "8", "-c", "12", "-s", "8000", "10.9.0.2"]);
        let neighbour = "fe80::c0:1cff:fe00:2%conic0";
        wait_for(neighbour);
        ping(&["-l", "20", "-c", "24", neighbour]);
    });
    tap.stop();
}

/// Whether every packet is answered. For the last one ping waits an interval, or twice the longest round trip so far: it is one in which
/// a busy machine lets whoever answers run. A burst is what is sent at once, by `-l`; ping itself has room for some 170 small answers.
fn ping(arguments: &[&str]) {
    match Command::new("ping").args(["-q", "-W", "10", "-i", "0.5"]).args(arguments).output() {
        Err(_) => skipped(&format!("ping {arguments:?}: ping is not installed")),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                text.contains(" 0% packet loss"),
                "{arguments:?}: {text}{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

/// Waits until the kernel's own IPv6 address is ready: at first it asks the link whether another host has it.
fn wait_for(neighbour: &str) {
    for _ in 0..20 {
        let output = Command::new("ping").args(["-q", "-c", "1", "-W", "1", neighbour]).output();
        if output.map_or(true, |output| output.status.success()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(250));
    }
}

#[test]
fn without_the_right_to_make_an_interface_it_says_what_to_do() {
    // Nobody may attach to what is no TAP interface, whoever runs this.
    let output = Command::new(env!("CARGO_BIN_EXE_conic")).args(["tap", "--name", "lo", "--duration", "1s"]).output();
    let output = output.expect("the program");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.starts_with("error: "), "{text}");
}
